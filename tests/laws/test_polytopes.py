"""Exact polytopes, their cones and lattices, against linear programs and brute force."""

import collections
import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from affinedp.errors import AffineDPError
from affinedp.exact.rational import adjugate
from affinedp.laws import polytope as hulls
from affinedp.laws.bodies import continuous_error, integer_error, largest_loss_probability
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import LatticeCones, Polytope, TooLargeBodyError, symmetric_hull


def exchanges(n):
    """Moves under one sum of n entries, in the first n − 1 of them."""
    pairs = itertools.combinations(range(n), 2)
    return [tuple(F((k == i) - (k == j)) for k in range(n - 1)) for i, j in pairs]


def rational(moves):
    return [tuple(map(F, move)) for move in moves]


POLYGONS = {
    "hexagon": [(1, 0), (0, 1), (1, -1)],
    "not unimodular": [(3, 1), (1, 2), (-2, 3), (2, 2)],
    "one move inside": [(5, 0), (3, 4), (1, 1), (-4, 3)],
    "fractions": [(F(3, 2), 1), (F(1, 3), 2)],
    "three dimensions": [(2, 0, 1), (0, 3, 1), (1, 1, -2), (1, -1, 1)],
    "one dimension": [(3,), (2,)],
}


@pytest.mark.parametrize("moves", POLYGONS.values(), ids=POLYGONS)
def test_the_gauge_is_that_of_a_linear_program(moves):
    body = Polytope(rational(moves))
    points = np.array([[float(c) for c in move] for move in moves]).T
    generator = np.random.default_rng(0)
    for vector in generator.integers(-9, 10, (20, len(points))):
        # the least Σ|c| with points c = vector
        best = linprog(
            np.ones(2 * points.shape[1]), A_eq=np.hstack([points, -points]), b_eq=vector
        ).fun
        exact = body.gauge([F(int(c)) for c in vector])
        assert float(exact) == pytest.approx(best, abs=1e-9)
        assert body.near_gauge([F(int(c)) for c in vector]) == exact
        bounds = body.gauges(vector[:, None].astype(float), np.zeros((len(vector), 1)))
        assert F(float(bounds.lower[0])) <= exact <= F(float(bounds.upper[0]))


@pytest.mark.parametrize("count", [5, 300])
def test_facets_hold_all_points_and_have_the_volume_of_the_hull(count):
    generator = np.random.default_rng(count)
    for size in (2, 3, 4):
        moves = [tuple(map(int, v)) for v in generator.integers(-30, 31, (count, size))]
        found = symmetric_hull(moves)
        for normal, offset in found.planes:
            heights = [sum(a * b for a, b in zip(normal, move)) for move in moves]
            assert max(map(abs, heights)) <= offset
        points = np.array(moves + [tuple(-c for c in move) for move in moves])
        volume = sum(abs(adjugate([found.points[i] for i in s])[0]) for s in found.simplices)
        assert volume / math.factorial(size) == pytest.approx(ConvexHull(points).volume)


def test_points_inside_a_facet_do_not_refine_it():
    drive = [(F(1), F(0))] + [(F(-t, 100), F(1, 10)) for t in range(100)]
    assert len(Polytope(drive).facets.simplices) == 6
    cube = [(1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1), (1, 0, 0), (1, 1, 0)]
    assert len(Polytope(rational(cube)).facets.simplices) == 12


def test_too_many_dimensions_are_refused_before_qhull_is_asked(monkeypatch):
    """In 15 dimensions qhull takes hours for what is refused afterwards anyway."""
    import scipy.spatial

    def never(points):
        raise AssertionError("qhull was asked")

    monkeypatch.setattr(scipy.spatial, "ConvexHull", never)
    moves = [*map(tuple, np.random.default_rng(0).integers(-3, 4, (80, 10)).tolist())]
    with pytest.raises(TooLargeBodyError, match="10 dimensions"):
        symmetric_hull(moves)


def test_bodies_that_are_too_large_are_refused():
    with pytest.raises(TooLargeBodyError, match="10 dimensions"):
        Polytope(rational(np.eye(10, dtype=int).tolist()))
    with pytest.raises(TooLargeBodyError, match="more than 5 simplices"):
        symmetric_hull([(1, 0), (0, 1), (1, 1)], limit=5)
    with pytest.raises(AffineDPError, match="span"):
        Polytope(rational([(1, 1), (2, 2)]))


@pytest.mark.parametrize(("n", "error"), [(2, 4), (3, 10), (4, 16.8), (5, 24), (6, 220 / 7)])
def test_one_sum_has_the_closed_form(n, error):
    body = Polytope(exchanges(n))
    spread = np.vstack([np.eye(n - 1), -np.ones(n - 1)])
    assert np.trace(spread @ body.second_moment() @ spread.T) == pytest.approx(error)
    assert continuous_error(n, 1.0) == pytest.approx(error)
    for rate in (0.3, 1.0, 4.0):
        whole = spread @ LatticeCones(body).second_moment(rate) @ spread.T
        assert integer_error(n, rate) == pytest.approx(np.trace(whole), rel=1e-11)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 6.0])
def test_three_integers_have_the_proved_optimum(epsilon):
    q = math.exp(epsilon)
    least = 12 * q * (q * q + 3 * q + 1) / ((q - 1) ** 2 * (q * q + 4 * q + 1))
    assert integer_error(3, epsilon) == pytest.approx(least, rel=1e-12)
    p = math.exp(-epsilon)
    top = (1 + p) / (1 + 4 * p + p * p)
    assert top <= largest_loss_probability(3, epsilon) <= top * (1 + 1e-9)


def test_the_largest_loss_has_the_probability_of_its_cone():
    for n, rate in ((4, 1.0), (5, 2.0)):
        total = top = 0.0
        for z in itertools.product(range(-14, 15), repeat=n - 1):
            last = -sum(z)
            weight = math.exp(-rate * (sum(map(abs, z)) + abs(last)) / 2)
            total += weight
            top += weight * (z[0] >= 0 >= z[1])
        assert largest_loss_probability(n, rate) == pytest.approx(top / total, rel=1e-4)


@pytest.mark.parametrize("moves", POLYGONS.values(), ids=POLYGONS)
def test_half_open_cones_partition_the_lattice(moves):
    body = Polytope(rational(moves))
    cones = LatticeCones(body)
    size, reach = cones.dimension, {1: 30, 2: 12, 3: 5}[cones.dimension]
    box = list(itertools.product(range(-reach, reach + 1), repeat=size))
    found = collections.Counter()
    for cone in cones.cones:
        for z in box:
            inside = [sum(a * b for a, b in zip(row, z)) for row in cone.adjoint]
            if all(c > 0 or (c == 0 and not o) for c, o in zip(inside, cone.is_open)):
                found[z] += 1
                # the box point is the one of its coset, and the gauge is linear on the cone
                lam = cone.box_points(np.array([z]).T)[0].tolist()
                assert all((c - p) % cone.determinant == 0 for c, p in zip(inside, lam))
                assert body.gauge(list(map(F, z))) == cones.unit * F(sum(inside), cone.determinant)
    assert found == collections.Counter(box)


@pytest.mark.parametrize("moves", POLYGONS.values(), ids=POLYGONS)
def test_moments_on_the_lattice_are_sums_over_it(moves):
    body, rate = Polytope(rational(moves)), 3.0
    cones = LatticeCones(body)
    reach = {1: 80, 2: 60, 3: 30}[cones.dimension]
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * cones.dimension, indexing="ij")
    z = np.stack([axis.ravel() for axis in axes]).astype(float)
    weights = np.exp(-rate * (body.normals @ z).max(axis=0))
    assert cones.normaliser(rate) == pytest.approx(weights.sum(), rel=1e-9)
    expected = (z * weights) @ z.T / weights.sum()
    np.testing.assert_allclose(cones.second_moment(rate), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("moves", POLYGONS.values(), ids=POLYGONS)
def test_neighbours_on_the_lattice_differ_by_their_gauge_at_most(moves):
    """The ratio P(z)/P(z+n) is at most e^ε for every z of a box, in rational arithmetic."""
    body = Polytope(rational(moves))
    size = body.dimension
    attained = set()
    for z in itertools.product(range(-5, 6), repeat=size):
        here = body.gauge(list(map(F, z)))
        for move in rational(moves):
            there = body.gauge([a + b for a, b in zip(map(F, z), move)])
            assert abs(there - here) <= body.gauge(move) <= 1
            attained.add(there - here)
    assert max(attained) == 1


def test_blocks_are_independent_noises():
    hexagon = np.array([[1.0, 0, 1], [0, 1, -1]])
    both = np.zeros((4, 6))
    both[:2, :3], both[2:, 3:] = hexagon, 2 * hexagon
    noise = KNorm(both, 1.0)
    assert len(noise.parts) == 2
    alone = KNorm(hexagon, 1.0).moment
    np.testing.assert_allclose(noise.moment.toarray()[:2, :2], alone)
    np.testing.assert_allclose(noise.moment.toarray()[2:, 2:], 4 * alone)
    assert not noise.moment.toarray()[:2, 2:].any()
    assert noise.variances(np.eye(4)).tolist() == pytest.approx(noise.moment.diagonal().tolist())


def test_one_column_stands_for_a_public_sum():
    column = np.array([[2.0], [2.0], [-2.0]])
    noise = KNorm(column, 1.0)
    points = noise.hull_points().toarray()
    assert points.shape == (3, 3)
    assert not (np.array([1, 1, -1]) @ points).any()
    listed = KNorm(points[:2], 1.0)
    np.testing.assert_allclose(noise.moment[:2, :2], listed.moment)
    assert noise.span().shape == (3, 2)
    assert listed.span() is None
    with pytest.raises(AffineDPError, match="one point"):
        KNorm(np.array([[1.0], [2.0]]), 1.0).variances(np.eye(2))


@pytest.mark.parametrize("integers", [False, True])
def test_samples_for_simulation_have_the_moments(integers):
    for root in (
        np.array([[1.0, 0, 1], [0, 1, -1]]),
        np.ones((4, 1)),
        np.array([[3.0, 1], [1, 2]]),
    ):
        noise = KNorm(root, 0.8, integers)
        drawn = noise.sample(np.random.default_rng(1), 20_000, len(root))
        expected = np.asarray(noise.moment)
        np.testing.assert_allclose(
            drawn.T @ drawn / len(drawn), expected, atol=0.1 * expected.max()
        )
        assert not integers or np.array_equal(drawn, np.rint(drawn))


def test_many_points_are_sorted_out_exactly(monkeypatch):
    """Floats only order and skip points: the facets are those of plain insertion."""
    generator = np.random.default_rng(3)
    moves = [tuple(map(int, v)) for v in generator.integers(-9, 10, (200, 3))]
    quick = sorted(symmetric_hull(moves).planes)
    monkeypatch.setattr(hulls, "FEW_POINTS", 10**9)
    assert sorted(symmetric_hull(moves).planes) == quick
