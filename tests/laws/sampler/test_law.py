"""How sizes are proposed: cells, the limit, and what is refused."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.errors import AffineDPError
from affinedp.laws.sampler.reference import IntegerLaw

LAWS = st.sampled_from(["gaussian", "laplace"])
SCALES = st.one_of(
    st.integers(1, 10**6),
    st.integers(1, 2**300),
    st.fractions(min_value=Fraction(1, 10**9), max_value=10**9),
)


def ratio(law, k):
    """2^k e^-y at the first integer of a cell, to 60 digits."""
    y = law.exponent(k << law.cell_bits)
    with mpmath.workdps(60):
        return mpmath.mpf(2) ** k * mpmath.exp(-mpmath.mpf(y.numerator) / y.denominator)


@given(LAWS, SCALES)
def test_a_proposal_is_never_accepted_with_more_than_certainty(name, scale):
    law = IntegerLaw.of(name, scale)
    largest = max(ratio(law, k) for k in range(40))
    with mpmath.workdps(60):
        limit = mpmath.mpf(law.limit.numerator) / law.limit.denominator
        assert largest <= limit <= largest + mpmath.mpf(2) ** -60


@given(LAWS, SCALES)
def test_cells_are_about_as_wide_as_the_scale(name, scale):
    law = IntegerLaw.of(name, scale)
    width = (1 << law.cell_bits) / law.scale
    least = Fraction(3, 5) if name == "gaussian" else Fraction(7, 10)
    assert width >= least
    assert width < 2 * least or law.cell_bits == 0


def test_exponents_are_exact():
    assert IntegerLaw.of("gaussian", Fraction(3, 7)).exponent(5) == Fraction(35 * 35, 18)
    assert IntegerLaw.of("laplace", Fraction(3, 7)).exponent(5) == Fraction(35, 3)


def test_numpy_integers_become_python_integers():
    scale = IntegerLaw.of("gaussian", np.int64(2**62)).scale
    assert type(scale.numerator) is int
    assert type(scale.denominator) is int


@pytest.mark.parametrize(
    "scale", [0, -1, Fraction(-1, 2), 0.5, 1.0, True, "1", None, np.float64(2)]
)
def test_refuses_what_is_no_scale(scale):
    with pytest.raises(AffineDPError, match="scale must be"):
        IntegerLaw.of("gaussian", scale)


def test_refuses_other_laws():
    with pytest.raises(AffineDPError, match="'gaussian' or 'laplace', not 'cauchy'"):
        IntegerLaw.of("cauchy", 1)
