"""Noise under several public sums: counts, the exact law, its moments, and what it promises."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse, stats

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.laws.bodies import SumPart
from affinedp.laws.product_norm import ProductNoise, ProductNorm, ProductPart, points_in_ball
from affinedp.mechanism import Mechanism
from affinedp.strategies.projected import Projected, cycles_of
from dense import table


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_lattice_points_are_counted(n):
    for radius in range(4):
        box = itertools.product(range(-radius, radius + 1), repeat=n)
        inside = sum(1 for z in box if sum(z) == 0 and sum(map(abs, z)) <= 2 * radius)
        assert points_in_ball(n, radius) == inside


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(3, 4), Fraction(2)])
def test_draws_have_the_law_of_the_largest_gauge(rate):
    """Two sums of 2 and 3 whole numbers, one with signs: every point near 0 by itself."""
    sums = (
        SumPart(np.array([0, 1]), np.array([1.0, -1.0]), Fraction(1), 1.0, True),
        SumPart(np.array([2, 3, 4]), np.ones(3), Fraction(1), 1.0, True),
    )
    count = 40_000
    drawn = ProductNoise(ProductPart(sums), rate).draw(count).T.tolist()
    seen = Counter(map(tuple, drawn))
    assert all(z[0] == z[1] and z[2] + z[3] + z[4] == 0 for z in seen)

    def gauge(z):
        return max(abs(z[0]), (abs(z[2]) + abs(z[3]) + abs(z[4])) // 2)

    q = math.exp(-rate)
    sizes = [(2 * t + 1) * (3 * t * (t + 1) + 1) for t in range(200)]  # of both balls
    total = sum(q**t * (here - before) for t, here, before in zip(range(200), sizes, [0, *sizes]))
    small = itertools.product((-1, 0, 1), repeat=3)
    near = [(a, a, b, c, -b - c) for a, b, c in small if abs(b + c) < 2]
    expected = np.array([count * q ** gauge(z) / total for z in near])
    found = np.array([seen[z] for z in near])
    rest = count - expected.sum(), count - found.sum()
    statistic = ((found - expected) ** 2 / expected).sum() + (rest[1] - rest[0]) ** 2 / rest[0]
    assert stats.chi2.sf(statistic, len(near)) > 1e-6


@pytest.mark.slow
def test_moments_are_those_of_draws_and_of_simulations():
    law = ProductNorm(np.kron(np.eye(3), np.ones((4, 1))) * 2.0, 0.5)
    expected = law.covariance(np.eye(12))
    simulated = law.sample(np.random.default_rng(0), 200_000, 12)
    np.testing.assert_allclose(np.cov(simulated.T), expected, atol=0.03 * expected[0, 0])
    np.testing.assert_allclose(law.variances(np.eye(12)), np.diagonal(expected))
    body = law.bodies.on_grid(np.full(12, -40, dtype=np.intp))  # a fine grid is nearly real
    drawn = body.drawn(Fraction(1, 2)).draw(4_000).astype(float) * 2.0**-40
    assert (drawn**2).sum(axis=0).mean() == pytest.approx(expected.trace(), rel=0.1)


def test_blocks_are_independent_and_their_gauges_add_up():
    points = np.kron(np.eye(2), np.ones((3, 1)))
    apart = ProductNorm(points, 1.0, np.array([0, 1]))
    both = adp.design_knorm(
        adp.AffineManifold.from_equations(["a + b = c", "d + e = f"]), epsilon=1.0
    )
    assert apart.covariance(np.eye(6)).trace() == pytest.approx(both.expected_squared_error)
    move = [Fraction(c) for c in (1, -1, 0, 2, 0, -2)]
    assert apart.gauge(move) == 3
    assert ProductNorm(points).gauge(move) == 2
    bounds = apart.gauges(np.array(move, dtype=float)[:, None])
    assert bounds.lower[0] <= 3 <= bounds.upper[0] <= 3 * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 3)])
def test_the_promise_is_that_of_every_listed_circuit(shape):
    """The nodes of the network say the same as a list of all circuits in exact arithmetic."""
    M = table(*shape)
    mu = 1.0 + (np.arange(M.n) % 3) / 2
    m = adp.design(M, epsilon=0.7, law="productnorm", mu=mu)
    assert m.guarantee.method == "the nodes of a network"
    assert m.guarantee.epsilon() <= 0.7
    moves = adp.CircuitAdjacency(M, mu).directions()
    worst = m.noise.gauges(m.strategy.measure(moves)).upper.max()
    assert worst == pytest.approx(m.guarantee.sensitivity, rel=1e-12)
    assert worst <= m.guarantee.sensitivity * (1 + 1e-12)


def test_other_neighbours_are_listed():
    M = table(2, 2)
    m = adp.design(M, epsilon=1.0, law="productnorm")
    one = one_long_circuit(M)
    found = Mechanism(one, m.strategy, m.noise).guarantee
    assert found.method.startswith("listed")
    assert found.sensitivity == pytest.approx(3.0)


def one_long_circuit(M):
    """One circuit, three times as long."""
    return adp.DirectionAdjacency(M, 3 * adp.CircuitAdjacency(M).directions()[:, :1])


@pytest.mark.slow
def test_releases_obey_all_equations_and_have_the_noise_that_is_stated():
    M = table(2, 3)
    m = adp.design(M, epsilon=1.0, law="productnorm")
    x = M.project(np.arange(M.n, dtype=float))
    y = m.release(np.tile(x, (3_000, 1)))
    assert abs(M.D @ y.T).max() < 1e-9
    error = ((y - x) ** 2).sum(axis=1).mean()
    assert error == pytest.approx(m.expected_squared_error, rel=0.1)
    low, high = m.interval(y, level=0.9)
    assert ((low <= x) & (x <= high)).mean() == pytest.approx(0.9, abs=0.02)


def test_sums_that_the_equations_do_not_fix_are_refused():
    M = table(2, 2)
    m = adp.design(M, epsilon=1.0, law="productnorm")
    turned = m.noise.points.toarray()
    turned[0] *= -1
    with pytest.raises(AffineDPError, match="do not fix"):
        Mechanism(m.adjacency, m.strategy, ProductNorm(turned, 1.0)).guarantee  # noqa: B018
    with pytest.raises(AffineDPError, match="each once"):
        Projected(M, m.strategy.query, m.strategy.basis, M.names,
                  entries=np.zeros(M.n, dtype=int))  # fmt: skip


@pytest.mark.parametrize(
    "points", [np.eye(2), np.ones((2, 2)), np.array([[1.0], [2.0]]), np.zeros((2, 1))]
)
def test_points_that_are_no_sums_are_refused(points):
    with pytest.raises(AffineDPError, match="one column per public sum"):
        ProductNorm(points)


def test_circuits_are_no_longer_than_stated():
    for shape in ((2, 2), (2, 3), (3, 3)):
        adjacency = adp.CircuitAdjacency(table(*shape))
        (found,) = cycles_of(adjacency)
        longest = (adjacency.directions() != 0).sum(axis=0).max()
        assert longest == found.longest == 2 * min(shape) + 2
    (scaled,) = cycles_of(adp.CircuitAdjacency(adp.AffineManifold([[1, 2, 3.0]]), 0.5))
    assert scaled.coefficients == {0: 1, 1: 2, 2: 3}
    assert (scaled.longest, scaled.reach) == (2, 1.5)
    both = adp.AffineManifold([[1, 2, 3.0, 0], [3, 1, 1, 0], [1, 1, 2, 0]], public_entries="allow")
    (loose,) = cycles_of(adp.CircuitAdjacency(both, 0.5))
    assert (loose.longest, loose.reach) == (1, 0.5)
    thrice = adp.AffineManifold([[1, 1, 1, 1.0, 0], [0, 1, 1, 0, 1], [0, 0, 1, 1, 1]])
    assert cycles_of(adp.CircuitAdjacency(thrice)) is None
    assert sparse.issparse(adp.design(table(2, 2), epsilon=1, law="productnorm").noise.points)
