"""How far combinations of K-norm noise reach, against integration and enumeration."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

import affinedp as adp
from affinedp.laws.reach import safe_rank
from affinedp.laws.reach_bodies import Mixture

SUM = adp.AffineManifold.from_equations(["a + b = c"])
FOUR = adp.AffineManifold.from_equations(["a + b + c = d"])


def outside_of_hexagon(c, t):
    """P(|c·z| > t) for density e^(−(|z₁| + |z₂| + |z₁ + z₂|)/2), by integration over directions.

    In the direction (cos φ, sin φ) the density is e^(−g r), so the weight is ∫ r e^(−g r) dr.
    """
    with mpmath.workdps(30):

        def gauge(x, y):
            return (abs(x) + abs(y) + abs(x + y)) / 2

        def weight(phi, cut):
            x, y = mpmath.cos(phi), mpmath.sin(phi)
            g, along = gauge(x, y), abs(c[0] * x + c[1] * y)
            if cut == 0:
                return 1 / g**2
            if along < mpmath.mpf(10) ** -25:
                return mpmath.mpf(0)
            r = cut / along
            return mpmath.exp(-g * r) * (r / g + 1 / g**2)

        kinks = sorted({0, mpmath.pi / 2, 3 * mpmath.pi / 4, mpmath.pi})
        zero = mpmath.atan2(-c[0], c[1]) % mpmath.pi
        kinks = sorted({*kinks, zero})
        total = mpmath.quad(lambda phi: weight(phi, 0), kinks)
        return mpmath.quad(lambda phi: weight(phi, t), kinks) / total


@pytest.mark.parametrize("outside", [0.5, 0.05, 1e-3, 2.0**-40])
@pytest.mark.parametrize("c", [(1, 0), (1, 1), (1, -1), (0.3, 2)])
def test_real_noise_by_integration(c, outside):
    m = adp.design_knorm(SUM, epsilon=1.0)
    found = m.interval(np.zeros(3), combination={"a": c[0], "b": c[1]}, level=1 - outside)
    assert found.how.startswith("from the law")
    exact = outside_of_hexagon(c, mpmath.mpf(float(found.high)))
    assert exact <= outside * (1 + mpmath.mpf("1e-15"))
    assert exact == pytest.approx(outside, rel=1e-5)


# Sums of so many Laplace numbers have the density p(|x|) e^(−|x|), up to a factor.
LAPLACE_SUMS = {2: [1, 1], 3: [3, 3, 1], 6: [945, 945, 420, 105, 15, 1]}


def beyond(terms, u):
    """∫ p(x) e^(−2x) dx from u on, up to a factor."""
    pairs = enumerate(LAPLACE_SUMS[terms], start=1)
    return sum(p * mpmath.gammainc(k, 2 * u) / mpmath.mpf(2) ** k for k, p in pairs)


@pytest.mark.parametrize("outside", [0.5, 0.05, 1e-3, 2.0**-40])
@pytest.mark.parametrize("terms", LAPLACE_SUMS)
def test_one_entry_of_a_sum_in_closed_form(terms, outside):
    """Noise under a sum is Laplace noise of scale 2 that adds up to 0: e^(−u) p(u) e^(−u)."""
    names = [f"x{i}" for i in range(terms)]
    M = adp.AffineManifold.from_equations([" + ".join(names) + " = total"])
    found = adp.design_knorm(M, epsilon=1.0).interval(np.zeros(terms + 1), level=1 - outside)
    assert found.how.startswith("from the law")
    for high in found.high.tolist():
        with mpmath.workdps(30):
            exact = beyond(terms, mpmath.mpf(high) / 2) / beyond(terms, 0)
        assert exact <= outside
        assert exact == pytest.approx(outside, rel=1e-6)


@pytest.mark.parametrize("manifold", [SUM, FOUR], ids=["three", "four"])
@pytest.mark.parametrize("level", [0.3, 0.9, 0.95, 0.999])
def test_whole_noise_by_enumeration(manifold, level):
    """All points of the lattice up to where nothing is left, weighed by ‖z‖₁/2."""
    m = adp.design_knorm(manifold, epsilon=2.0, integers=True)
    far = 30 if manifold is SUM else 14
    z = np.array(list(itertools.product(range(-far, far + 1), repeat=manifold.n - 1)))
    x = np.column_stack([z, z.sum(axis=1)])
    weights = np.exp(-2.0 * np.abs(x).sum(axis=1) / 2)
    weights /= weights.sum()
    for c in (np.eye(manifold.n)[0], np.arange(1.0, manifold.n + 1), np.eye(manifold.n)[-1] / 4):
        found = m.interval(np.zeros(manifold.n), combination=c, level=level)
        assert found.how.startswith("from the law")
        size = np.abs(x @ c)
        assert weights[size <= found.high].sum() >= level - 1e-9
        shorter = weights[size <= found.high * (1 - 1e-9)].sum()
        assert found.high == 0 or shorter < level


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e8, 1.5])
def test_combinations_near_an_equation_have_noise(integers, scale):
    """What is left of a combination when the equation is taken off, in fractions."""
    m = adp.design_knorm(FOUR, epsilon=1.0, integers=integers)
    c = np.array([scale + (1.0 if scale > 2 else 1e-8), scale, scale, -scale])
    left = float(Fraction(c[0]) - Fraction(scale))  # times a alone
    for simultaneous in (False, True):
        near = m.interval(np.zeros(4), combination=c, simultaneous=simultaneous)
        alone = m.interval(np.zeros(4), combination={"a": left}, simultaneous=simultaneous)
        assert alone.high > 0
        assert near.high == pytest.approx(alone.high, rel=1e-6)
        assert "no noise" not in near.how


def test_independent_axes_near_an_equation():
    moves = np.array([[1, 0, 1], [0, 1, 1.0]]).T
    m = adp.design(SUM, adjacency=adp.DirectionAdjacency(SUM, moves), epsilon=1.0, integers=True)
    c = np.array([1.00000001, 1, -1])
    left = float(Fraction(c[0]) - 1)
    for simultaneous in (False, True):
        found = m.interval(np.zeros(3), combination=c, simultaneous=simultaneous)
        alone = m.interval(np.zeros(3), combination=[left, 0, 0], simultaneous=simultaneous)
        assert found.high == pytest.approx(alone.high, rel=1e-9)
        assert found.high >= 3 * left  # 2 e^(−4)/(1 + e^(−1)) is 0.027, e^(−3) more than 0.05


def test_centers_keep_what_cancels():
    """Also of one release and of many, dense and sparse."""
    m = adp.design_knorm(SUM, epsilon=1.0)
    c = np.array([[1e8 + 1 / 3, 1e8, -1e8], [0.1, 0.2, 0.3]])
    y = np.array([[30.25, 70.5, 100.75], [1.1, 2.2, 3.3]])
    for given, matrix in ((y, c), (y, csr_array(c)), (y[0], c), (y[0], csr_array(c))):
        low, high = m.interval(given, combination=matrix)
        for row, mid in zip(np.atleast_2d(given), np.atleast_2d((low + high) / 2)):
            exact = [
                float(sum(map(Fraction.__mul__, map(Fraction, one), map(Fraction, row))))
                for one in c
            ]
            assert mid == pytest.approx(exact, rel=1e-12)


def test_tails_of_equal_stages_are_those_of_gamma():
    law = Mixture(np.array([0.5, 0.5]), np.array([[1.0] * 5, [-1.0] * 5]))
    for t in (0.1, 3.0, 30.0, 300.0):
        exact = stats.gamma.sf(t, 5)
        assert exact <= law.tail(t) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("releases", [400, 5000, 100_000])
@pytest.mark.parametrize("outside", [0.5, 0.05])
def test_ranks_are_safe_but_for_the_stated_doubt(releases, outside):
    rank = safe_rank(releases, outside)
    # at least `rank` of them below a quantile that each is below with 1 − outside
    assert stats.binom.sf(rank - 1, releases, 1 - outside) <= 1e-6
    assert stats.binom.sf(rank - 2, releases, 1 - outside) > 1e-6
    if releases > 400:
        assert safe_rank(releases, outside, numbers=1000) > rank
