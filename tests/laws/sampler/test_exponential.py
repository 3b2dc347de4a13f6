"""e⁻ʸ between two integers, against mpmath."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.laws.sampler.reference import exp_minus


def scaled(y, bits):
    """2**bits e^-y with some 60 bits to spare."""
    with mpmath.workprec(2 * bits + int(2 * y) + 100):
        return mpmath.ldexp(mpmath.exp(-mpmath.mpf(y.numerator) / y.denominator), bits)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.fractions(min_value=0, max_value=300), st.integers(0, 400))
def test_encloses(y, bits):
    low, high = exp_minus(y, bits)
    with mpmath.workprec(2 * bits + 1000):
        assert low <= scaled(y, bits) <= high
    assert high - low <= 3


@pytest.mark.parametrize("bits", [1, 2, 3, 63, 64, 2000])
@pytest.mark.parametrize("near", [Fraction(1, 2), Fraction(1), Fraction(64), Fraction(1, 2**400)])
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(1, 10**40), -Fraction(1, 2**401)])
def test_encloses_where_the_number_of_squarings_changes(bits, near, offset):
    low, high = exp_minus(near + offset, bits)
    with mpmath.workprec(3 * bits + 1000):
        assert low <= scaled(near + offset, bits) <= high
    assert high - low <= 3


def test_zero_is_exact():
    assert exp_minus(Fraction(0), 70) == (1 << 70, 1 << 70)


def test_a_huge_exponent_is_no_work():
    assert exp_minus(Fraction(2) ** 10**6, 64) == (0, 1)
