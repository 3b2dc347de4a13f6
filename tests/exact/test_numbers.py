"""How numbers are read: what a double stands for, and what is taken or refused."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import nearest_steps
from affinedp.exact.numbers import (
    exact_number,
    meaning,
    over_one_denominator,
    real_array,
    real_matrix,
)
from oracles import stands_for

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.fractions(max_denominator=5000).map(float),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(float),
    st.builds(math.ldexp, st.integers(-(2**33), 2**33), st.integers(-80, 20)),
)


@settings(max_examples=300)
@given(NUMBERS)
def test_a_double_stands_for_one_number_and_is_the_nearest_to_it(value):
    found = meaning(value)
    assert found == stands_for(value)
    assert float(found) == value
    assert meaning(-value) == -found


@given(st.integers(-(10**12) + 1, 10**12 - 1), st.integers(0, 20))
def test_decimals_of_twelve_digits_are_themselves(whole, places):
    assert meaning(float(Fraction(whole, 10**places))) == Fraction(whole, 10**places)


@given(st.integers(-(10**12), 10**12), st.integers(1, 4000))
def test_small_fractions_are_themselves(p, q):
    assert meaning(p / q) == Fraction(p, q)


@given(st.integers(-(2**32) + 1, 2**32 - 1), st.integers(-200, 200))
def test_powers_of_two_change_nothing(m, e):
    assert meaning(math.ldexp(m, e)) == Fraction(m) * Fraction(2) ** e


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.integers(-60, 5))
def test_many_numbers_are_read_like_one(values, exponent):
    whole, below = over_one_denominator(np.array(values))
    exact = [meaning(value) for value in values]
    assert [Fraction(int(w), below) for w in whole] == exact
    steps = nearest_steps(np.array(values), exponent).tolist()
    assert steps == [math.floor(v / Fraction(2) ** exponent + Fraction(1, 2)) for v in exact]


@given(
    st.one_of(
        st.integers(),
        st.fractions(),
        st.decimals(allow_nan=False, allow_infinity=False),
        st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_what_is_taken_is_what_was_given(value):
    try:
        (double,) = real_array([value], "x")
    except AffineDPError:
        return
    assert exact_number(value) == meaning(double)


def test_what_is_refused():
    odd = [True, "1/3", None, 1j, 2**53 + 1, 10**400, Fraction(0.1), Fraction(1, 4001), math.nan]
    odd += [Decimal("1e999"), Decimal("1e-9999999"), Decimal("NaN"), Decimal("0.12345678901234567")]
    odd += [np.longdouble("0.1"), np.bool_(True), "0.1"]
    for value in odd:
        for door in ([value], np.array([value], dtype=object), [0.5, value]):
            with pytest.raises(AffineDPError) as refusal:
                real_array(door, "x")
            assert "4001" not in str(refusal.value)
    for matrix in ([[2**53 + 1]], [[2**53 + 1, 1]]):
        whole = np.array(matrix, dtype=np.int64)
        for given_matrix in (matrix, whole, sparse.csr_array(whole), sparse.coo_array(whole)):
            with pytest.raises(AffineDPError, match="more digits"):
                real_matrix(given_matrix, "D")
    twice = sparse.coo_array(([0.1, 0.2], ([0, 0], [0, 0])), shape=(1, 1))
    with pytest.raises(AffineDPError, match="one place"):
        real_matrix(twice, "D")
    whole = sparse.coo_array(([1, 2], ([0, 0], [0, 0])), shape=(1, 1))
    assert real_matrix(whole, "D").toarray().tolist() == [[3.0]]


def test_what_is_taken():
    same = [0.1, Decimal("0.1"), Decimal("0.100"), Fraction(1, 10), np.float64(0.1)]
    assert {float(real_array(value, "x", 0)) for value in same} == {0.1}
    assert real_array([Fraction(1, 3), 2**60, np.float32(0.5)], "x").tolist() == [
        1 / 3,
        2.0**60,
        0.5,
    ]
    assert real_array([], "x").shape == (0,)
    assert exact_number("1/3") == Fraction(1, 3)
    for text in ("1e30000000", "nan", "", "1/0", "0x10", "9" * 2000, Decimal("sNaN")):
        with pytest.raises(AffineDPError):
            exact_number(text)


@pytest.mark.parametrize("bits", [20, 34, 40, 44, 46])
def test_near_dependence_is_decided_on_the_coefficients_given(bits):
    """Doubles short of full length were written by somebody: no rank is left to rounding."""
    a = 2.0**-bits
    M = adp.AffineManifold([[1, 1, 1, 1], [1, 1, 1 + a, 1 - 2 * a]])
    assert M.dim == 2
    assert adp.verify(M, 1.0, law="laplace").epsilon() >= 6
