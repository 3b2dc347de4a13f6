"""Hulls by orbits of facets, against hulls facet by facet and brute force; and what they draw."""

import collections
import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest
from scipy.stats import chi2

from affinedp.errors import AffineDPError
from affinedp.exact.rational import adjugate
from affinedp.laws import orbits
from affinedp.laws.bodies import HullPart
from affinedp.laws.knorm import KNorm
from affinedp.laws.orbits import OrbitPolytope, facet_orbits, hull_of, symmetries
from affinedp.laws.polytope import LatticeCones, Polytope, TooLargeBodyError, symmetric_hull
from affinedp.laws.sampler.bodies import ConeNoise

# Nothing is seeded: a law that is right fails this once in a million runs.
SURE = 1e-6


def table_moves(rows, columns):
    """Circuits of a table with its totals, in its cells: cycles of a network of lines."""
    found = set()
    for size in range(2, min(rows, columns) + 2):
        for some in itertools.combinations(range(rows + 1), size):
            for order in itertools.permutations(some[1:]):
                around = (some[0], *order)
                for across in itertools.permutations(range(columns + 1), size):
                    move = np.zeros((rows + 1, columns + 1), dtype=int)
                    for i, column in enumerate(across):
                        move[around[i], column] += 1
                        move[around[i - 1], column] -= 1
                    cells = tuple(move[:rows, :columns].ravel().tolist())
                    found.add(max(cells, tuple(-c for c in cells)))
    return sorted(found)


def with_signs(*points):
    """Points with all permutations and signs of their coordinates."""
    return [
        tuple(s * c for s, c in zip(signs, order))
        for point in points
        for order in itertools.permutations(point)
        for signs in itertools.product((1, -1), repeat=len(point))
    ]


def rational(moves):
    return [tuple(map(F, move)) for move in moves]


def volume(points, simplices, counts):
    """Σ |det|, exactly."""
    each = [abs(adjugate([points[i] for i in simplex])[0]) for simplex in simplices.tolist()]
    return sum(d * int(c) for d, c in zip(each, np.broadcast_to(counts, len(each))))


BODIES = {
    "hexagon": [(1, 0), (0, 1), (1, -1)],
    "octagon": with_signs((3, 1)),
    "cube": with_signs((1, 1, 1)),
    "with long and short corners": with_signs((2, 1, 0), (0, 0, 2), (1, 1, 1)),
    "one symmetry beside −1": [(2, 1), (1, 2), (1, -1), (3, 1), (1, 3)],
    "2 × 2": table_moves(2, 2),
    "2 × 3": table_moves(2, 3),
    "one sum of 6": [
        tuple((k == i) - (k == j) for k in range(5)) for i, j in itertools.combinations(range(6), 2)
    ],
}


@pytest.mark.parametrize("moves", BODIES.values(), ids=BODIES)
def test_orbits_have_all_facets_and_all_of_the_volume(moves):
    whole = symmetric_hull(moves)
    body = OrbitPolytope.of(rational(moves), 200_000)
    assert sorted(body.planes) == sorted(whole.planes)
    assert {*body.facets.points} == {*whole.points}
    wanted = volume(whole.points, whole.simplices, 1)
    assert volume(body.facets.points, body.facets.simplices, body.counts) == wanted
    assert len(body.facets.simplices) < len(whole.simplices)
    ordinary = Polytope(rational(moves))
    np.testing.assert_allclose(
        body.second_moment(), ordinary.second_moment(), rtol=1e-12, atol=1e-12
    )
    for move in rational(moves):
        assert body.gauge(move) == body.near_gauge(move) == ordinary.gauge(move) <= 1
    for own, simplex in zip(body.facets.own.tolist(), body.facets.simplices.tolist()):
        normal, offset = body.facets.planes[own]
        points = [body.facets.points[i] for i in simplex]
        assert all(sum(map(int.__mul__, normal, point)) == offset for point in points)


@pytest.mark.parametrize("seed", range(12))
def test_random_bodies_with_symmetries_are_those_of_the_ordinary_hull(seed):
    """Images of random points under random signed permutations, sheared."""
    rng = np.random.default_rng(seed)
    size = 2 + seed % 4
    turns = [
        np.eye(size, dtype=int)[rng.permutation(size)] * rng.choice([-1, 1], size) for _ in range(2)
    ]
    shear = np.triu(rng.integers(-1, 2, (size, size)), 1) + np.eye(size, dtype=int)
    found = set()
    waiting = [tuple(row) for row in [*rng.integers(-3, 4, (2, size)), *np.eye(size, dtype=int)]]
    while waiting:
        point = waiting.pop()
        if point not in found:
            found.add(point)
            waiting += [tuple(turn @ point) for turn in turns]
    moves = rational((np.array(sorted(found)) @ shear).tolist())
    body, ordinary = OrbitPolytope.of(moves, 100_000), Polytope(moves)

    def scaled(one):
        return {tuple(F(c, d) * one.denominator for c in normal) for normal, d in one.planes}

    assert scaled(body) == scaled(ordinary)
    assert {*body.exact_vertices} == {*ordinary.exact_vertices}
    wanted = volume(ordinary.facets.points, ordinary.facets.simplices, 1)
    own = volume(body.facets.points, body.facets.simplices, body.counts)
    assert own / F(body.denominator) ** size == wanted


@pytest.mark.slow
def test_larger_tables_have_their_facets():
    moves = table_moves(2, 4)
    whole = symmetric_hull(moves)
    body = hull_of(rational(moves))
    assert body.group.shape == (2 * math.factorial(3) * math.factorial(5), 8, 8)
    assert sorted(body.planes) == sorted(whole.planes)
    shares = Polytope(rational(moves)).second_moment()
    np.testing.assert_allclose(body.second_moment(), shares, rtol=1e-11, atol=1e-11)
    large = hull_of(rational(table_moves(3, 3)))
    assert len(large.planes) == 944
    sizes = dict(zip(large.facets.own.tolist(), large.counts.tolist()))
    assert sorted(sizes.values()) == [32, 48, 288, 576]


@pytest.mark.parametrize("name", ["hexagon", "octagon", "cube", "one symmetry beside −1"])
def test_all_whole_symmetries_are_found(name):
    points = {p for move in BODIES[name] for p in (tuple(move), tuple(-c for c in move))}
    size = len(next(iter(points)))
    base = next(some for some in itertools.combinations(sorted(points), size) if adjugate(some)[0])
    inverse = np.linalg.inv(np.array(base).T)
    wanted = set()
    for images in itertools.product(points, repeat=size):
        near = np.array(images).T @ inverse
        matrix = np.rint(near).astype(int)
        if (
            np.abs(near - matrix).max() < 1e-9
            and {tuple((matrix @ point).tolist()) for point in points} == points
        ):
            wanted.add(tuple(matrix.ravel().tolist()))
    one = np.array(orbits.one_of_each_pair(sorted(points)))
    found = symmetries(one)
    assert {tuple(one.ravel().tolist()) for one in found} == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize("most", [1, 10, 100, 1_000])
def test_a_part_of_the_symmetries_is_a_group_too(most):
    """A cross-polytope has 384 of them; those that fix an axis are taken where that is too many."""
    points = np.eye(4, dtype=np.int64)
    group = symmetries(points, most)
    assert len(group) == {1: 2, 10: 2 * 8, 100: 2 * 48, 1_000: 384}[most]
    known = {one.tobytes() for one in group}
    assert len(known) == len(group)
    assert all((one @ other).tobytes() in known for one in group[:20] for other in group)
    facets, counts = facet_orbits(points, group, 10_000)
    assert len(facets.planes) == 16
    assert volume(facets.points, facets.simplices, counts) == 16


def test_no_symmetry_but_the_sign_is_right_too():
    moves = np.random.default_rng(5).integers(-9, 10, (12, 4)).tolist()
    one = np.array(orbits.one_of_each_pair([tuple(move) for move in moves]))
    group = symmetries(one)
    assert sorted(group[:, 0, 0].tolist()) == [-1, 1]
    facets, counts = facet_orbits(one, group, 100_000)
    whole = symmetric_hull([tuple(move) for move in moves])
    assert sorted(facets.planes) == sorted(whole.planes)
    wanted = volume(whole.points, whole.simplices, 1)
    assert volume(facets.points, facets.simplices, counts) == wanted
    assert OrbitPolytope.of(rational(moves), 100_000) is None


def test_points_inside_are_left_out():
    corners = with_signs((2, 2, 2))
    inside = with_signs((2, 0, 0), (2, 2, 0), (1, 0, 0))  # amid facets, on edges, inside
    body = OrbitPolytope.of(rational(corners + inside), 1_000)
    assert {*body.facets.points} == {*corners}
    assert {*body.exact_vertices} <= {*rational(corners)}
    assert body.gauge([F(2), F(1), F(1)]) == 1


def test_bodies_of_a_size_keep_their_shape():
    """Points may be multiples of any number: 0.3 and 3 have the same symmetries."""
    moves = [tuple(F(3, 10) * c for c in move) for move in table_moves(2, 2)]
    body = OrbitPolytope.of(moves, 1_000)
    assert {*body.exact_vertices} <= {*moves, *(tuple(-c for c in move) for move in moves)}
    assert body.gauge(moves[0]) == 1
    for step in (F(1, 2**40), F(1, 4), F(1)):
        part = HullPart(np.arange(4), body, 1.0, False).on_grid(
            np.full(4, round(math.log2(step)), dtype=np.intp)
        )
        grid = part.body
        for move in moves:  # never larger, and hardly smaller
            in_steps = [c / step for c in move]
            assert F(3, 10) / (F(3, 10) + step) <= grid.gauge(in_steps) <= 1
        assert all(c.denominator == 1 for point in grid.exact_vertices for c in point)


def test_hulls_by_orbits_refuse_what_the_others_refuse():
    flat = [(*move, 0) for move in np.eye(8, dtype=int).tolist()]
    assert OrbitPolytope.of(rational(flat), 100) is None
    with pytest.raises(AffineDPError, match="span"):
        hull_of(rational(flat))
    with pytest.raises(AffineDPError, match="span"):
        hull_of(rational(np.zeros((9, 9), dtype=int).tolist()))
    with pytest.raises(TooLargeBodyError, match="11 dimensions"):
        hull_of(rational(np.eye(11, dtype=int).tolist()))
    with pytest.raises(TooLargeBodyError, match="simplices"):
        hull_of(rational(table_moves(3, 3)), 100)
    with pytest.raises(TooLargeBodyError, match="up to symmetry"):
        OrbitPolytope.of(rational(table_moves(2, 4)), 1_500)


@pytest.mark.parametrize("long", [1, 10**3, 10**6, 10**18, 10**40])
def test_long_numbers_are_left_to_the_ordinary_hull(long, monkeypatch):
    """Whatever the numbers: the same planes, by either way."""
    monkeypatch.setattr(orbits, "FEW_SIMPLICES", 1)
    moves = [tuple(long * c for c in move) for move in with_signs((3, 1, 0))]
    moves += with_signs((long + 1, long + 1, long + 1))
    body = hull_of(rational(moves))
    assert (body.group is not None) == (long <= 10**3)
    assert sorted(body.planes) == sorted(Polytope(rational(moves)).planes)


def test_symmetries_with_long_numbers_are_refused():
    """Short points far from a basis have symmetries with long numbers: some, but not all, fit."""
    turn = np.array([[1, 9_000, 0], [0, 1, 9_000], [0, 0, 1]])
    moves = [tuple(row) for row in (np.eye(3, dtype=int) @ turn).tolist()]
    with pytest.raises(TooLargeBodyError, match="long"):
        OrbitPolytope.of(rational(moves), 100)


# ---------------------------------------------------------------------- what is drawn


def fits(drawn, law):
    """The probability that drawn points are so far from their law."""
    seen, size = collections.Counter(map(tuple, drawn.tolist())), len(drawn)
    often = [point for point, p in law.items() if p * size >= 8]
    wanted = np.array([law[point] * size for point in often])
    found = np.array([seen[point] for point in often])
    rest, mass = size - found.sum(), size - wanted.sum()
    statistic = ((found - wanted) ** 2 / wanted).sum() + (rest - mass) ** 2 / max(mass, 1.0)
    return chi2.sf(statistic, len(often))


def lattice_law(body, rate, reach):
    """P(z) in a box, from the ordinary cones and the gauge."""
    box = list(itertools.product(range(-reach, reach + 1), repeat=body.dimension))
    gauges = (body.normals @ np.array(box, dtype=float).T).max(axis=0)
    weights = np.exp(-rate * gauges) / LatticeCones(body).normaliser(rate)
    return dict(zip(box, weights.tolist()))


@pytest.mark.parametrize(
    ("name", "rate", "reach"),
    [
        ("hexagon", F(1), 12), ("octagon", F(3), 14), ("cube", F(2), 9),
        ("with long and short corners", F(3), 6), ("one symmetry beside −1", F(1), 20),
        ("2 × 2", F(2), 2),
    ],
)  # fmt: skip
def test_draws_by_orbits_have_their_law_on_a_coarse_lattice(name, rate, reach):
    """Many points lie on sides that cones share: each must count once."""
    moves = rational(BODIES[name])
    body = OrbitPolytope.of(moves, 1_000)
    drawn = ConeNoise(LatticeCones(body), rate).draw(20_000)
    assert drawn.shape == (20_000, body.dimension)
    assert {type(c) for c in drawn.ravel()} == {int}
    assert fits(drawn, lattice_law(Polytope(moves), float(rate), reach)) > SURE


@pytest.mark.parametrize("name", ["hexagon", "octagon", "2 × 2"])
def test_every_point_of_the_lattice_counts_equally_often(name):
    """Over all cones and symmetries, weighted as they are drawn: as often as the group is large."""
    body = OrbitPolytope.of(rational(BODIES[name]), 1_000)
    cones, size = LatticeCones(body), body.dimension
    counts = collections.Counter()
    box = list(itertools.product(range(-3, 4) if size == 2 else range(-1, 2), repeat=size))
    weights = np.broadcast_to(body.counts, len(cones.cones)).tolist()
    for matrix in body.group:
        back = np.rint(np.linalg.inv(matrix)).astype(int)
        for cone, weight in zip(cones.cones, weights):
            rows = np.array(cone.adjoint) @ back
            for z in box:
                inside = (rows @ z).tolist()
                # z moved a little along (1, δ, δ², …)
                first = [next(c for c in (i, *row) if c) for i, row in zip(inside, rows.tolist())]
                counts[z] += weight * all(c > 0 for c in first)
    assert set(counts.values()) == {len(body.group)}


def test_simulated_noise_has_its_moments():
    law = KNorm(np.array(table_moves(2, 4), dtype=float).T, 2.0)
    assert law.parts[0].body.group is not None
    drawn = law.sample(np.random.default_rng(0), 200_000, 8)
    wide = 6 * (drawn**2).std() / len(drawn) ** 0.5
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), law.moment, atol=wide)
    depths = law.depths(drawn.T)  # a sum of r exponential numbers
    assert depths.mean() == pytest.approx(8, abs=6 * math.sqrt(8 / len(drawn)))


def test_draws_on_a_fine_grid_have_their_moments():
    body = OrbitPolytope.of(rational(BODIES["2 × 3"]), 1_000).in_steps(F(1, 2**30))
    drawn = ConeNoise(LatticeCones(body), F(1)).draw(40_000).astype(float) / 2**30
    wanted = Polytope(rational(BODIES["2 × 3"])).second_moment()
    wide = 6 * (drawn**2).std() / len(drawn) ** 0.5
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), wanted, atol=wide)
    with pytest.raises(AffineDPError, match="up to symmetry"):
        LatticeCones(body).second_moment(1.0)
