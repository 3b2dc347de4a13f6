"""What K-norm noise promises: exact ε, curves on reals and on lattices, composition."""

import contextlib
import itertools
import math
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest

import affinedp as adp
from affinedp.arrays import dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.curves import (
    RANDOMISED_RESPONSE,
    ComposedCurve,
    LaplaceCurve,
    LatticeCurve,
    ThreeAtoms,
    dominating_gaussian,
    is_pure,
    lattice_delta,
    pair_of,
)
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import LatticeCones, Polytope
from affinedp.neighbours.whole import whole_steps
from affinedp.strategies.largest_gauge import Coordinates

SUM = adp.AffineManifold.from_equations(["a + b = c"])
HEXAGON = [[1.0, 0, 1], [0, 1, -1], [1, 1, 0]]


def test_verify_reads_columns_as_points():
    assert adp.verify(SUM, HEXAGON, law="knorm").epsilon() == 1.0
    assert adp.verify(SUM, 2 * np.array(HEXAGON), law="knorm").epsilon() == 0.5
    # two of the three: a parallelogram, in which the third move has gauge 2
    assert adp.verify(SUM, np.array(HEXAGON)[:, :2], law="knorm").epsilon() == 2.0
    leaking = adp.verify(SUM, [[1.0], [0.0], [1.0]], law="knorm")
    assert leaking.leak is not None
    assert math.isinf(leaking.epsilon())


def test_a_square_strategy_is_a_body():
    square = np.array([[2.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    theirs = adp.verify(SUM, square, law="laplace").epsilon()
    assert adp.verify(SUM, square, law="knorm").epsilon() == pytest.approx(theirs)


def test_coordinates_are_solved_together():
    """An output that shows one coordinate alone does not hide it in the others."""
    body = KNorm(np.array([[1.0, 0.5], [0.0, 1.0]]))
    basis = np.array([[1.0, 0.0], [1.0, 0.25], [1.0, 0.5]])
    coordinates = Coordinates.of(np.eye(3), basis, body)
    z = np.array([3.0, -2.0])
    np.testing.assert_allclose(coordinates.matrix @ (basis @ z), z)
    outputs = {i: F(str(c)) for i, c in enumerate((basis @ z).tolist())}
    assert coordinates.exact(outputs) == [F(3), F(-2)]
    rows = coordinates.rows()
    assert [sum(c * outputs[j] for j, c in row.items()) for row in rows] == [F(3), F(-2)]


def test_one_dimension_is_laplace_noise():
    manifold = adp.AffineManifold([[1, -4]])
    for noise in ([[4], [1]], [[1], [0.25]]):
        body = adp.verify(manifold, noise, law="knorm")
        assert body.epsilon() == adp.verify(manifold, noise, law="laplace").epsilon()
        assert body.delta(0.3) == pytest.approx(
            adp.verify(manifold, noise, law="laplace").delta(0.3)
        )


def continuous_delta(epsilon, at, points=700):
    """δ of the hexagon between neighbours, by a fine sum."""
    body = Polytope([(F(1), F(0)), (F(0), F(1)), (F(1), F(-1))])
    axis = np.linspace(-30 / epsilon, 30 / epsilon, points) + 1e-9
    x, y = np.meshgrid(axis, axis, indexing="ij")

    def density(u, v):
        return np.exp(-epsilon * np.max([a * u + b * v for a, b in body.normals], axis=0))

    p, q = density(x, y), density(x - 1, y)
    return float(np.maximum(p - math.exp(at) * q, 0).sum() / p.sum())


def test_the_curve_on_reals_is_between_the_truth_and_laplace():
    curve = LaplaceCurve(1.0)
    for at in (0.0, 0.25, 0.5, 0.9):
        assert continuous_delta(1.0, at) <= curve.delta(at) <= 1 - math.exp((at - 1) / 2) + 1e-12
    assert curve.delta(1.0) == 0.0
    assert curve.epsilon(0.0) == 1.0
    assert curve.losses() == [("laplace", 1.0)]
    assert curve.rho() >= 0.5
    assert curve.renyi(math.inf) == 1.0


def discrete_laplace_delta(total, steps, at):
    rate = total / steps
    z = np.arange(-int(60 / rate), int(60 / rate))
    p, q = np.exp(-rate * abs(z)), np.exp(-rate * abs(z - steps))
    return float(np.maximum(p - math.exp(at) * q, 0).sum() / p.sum())


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("total", [0.3, 1.0, 3.0])
def test_a_lattice_move_is_discrete_laplace(total, steps):
    for share in (0.0, 0.2, 0.5, 0.9, 0.99):
        expected = discrete_laplace_delta(total, steps, share * total)
        assert lattice_delta(total, steps, share * total) == pytest.approx(expected, abs=1e-12)
    assert lattice_delta(total, 1, 0.1) == pytest.approx(ThreeAtoms(total).delta(0.1))


def test_moves_of_different_lengths_are_not_ordered():
    two, three = (LatticeCurve(1.0, ((m, 1.0),)) for m in (2, 3))
    both = LatticeCurve(1.0, ((2, 1.0), (3, 1.0)))
    assert two.delta(0.0) < three.delta(0.0)
    assert two.delta(0.5) > three.delta(0.5)
    for at in (0.0, 0.5, 0.8):
        assert both.delta(at) == max(two.delta(at), three.delta(at))
    assert both.delta(both.epsilon(0.1)) <= 0.1


POLYGONS = [
    [(1, 0), (0, 1), (1, -1)],
    [(3, 1), (1, 2), (-2, 3)],
    [(4, 0), (0, 2), (2, -2)],
    [(2, 2), (-2, 1)],
]


@pytest.mark.parametrize("moves", POLYGONS)
@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_the_curve_on_a_lattice_holds_for_every_move(moves, rate):
    body = Polytope([tuple(map(F, move)) for move in moves])
    total = LatticeCones(body).normaliser(rate)
    axis = np.arange(-110, 111)
    x, y = np.meshgrid(axis, axis, indexing="ij")

    def weight(u, v):
        return np.exp(-rate * np.max([a * u + b * v for a, b in body.normals], axis=0)) / total

    lattice = LatticeCurve(
        rate,
        tuple((whole_steps(list(map(F, m)))[1], rate * float(body.gauge(list(map(F, m)))))
              for m in moves),
    )  # fmt: skip
    here = weight(x, y)
    for move, share in itertools.product(moves, (0.0, 0.3, 0.6, 0.9)):
        there = weight(x - move[0], y - move[1])
        true = float(np.maximum(here - math.exp(share * rate) * there, 0).sum())
        assert true <= lattice.delta(share * rate) + 1e-9
        assert true <= ThreeAtoms(rate).delta(share * rate) + 1e-9


def test_the_laplace_curve_would_break_the_promise_on_a_lattice():
    whole = adp.design_knorm(SUM, epsilon=1.0, integers=True)
    true = whole.guarantee.delta(0.5)
    q = math.exp(-1)
    assert true == pytest.approx((1 + q) / (1 + 4 * q + q * q) * (1 - math.exp(-0.5)), rel=1e-8)
    response = ThreeAtoms(1.0)
    assert true < response.delta(0.5)
    assert response.delta(0.0) > LaplaceCurve(1.0).delta(0.0)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 20.0, 50.0, 300.0])
@pytest.mark.parametrize("share", [None, 0.5, 0.9])
def test_a_gaussian_mechanism_dominates_three_atoms(epsilon, share):
    largest = 1 / (1 + math.exp(-epsilon))
    pair = ThreeAtoms(epsilon, None if share is None else share * largest)
    s = dominating_gaussian(pair)
    for at in np.linspace(0, epsilon, 40):
        assert adp.gaussian_delta(at, s) >= pair.delta(float(at)) * (1 - 1e-9) - 1e-14


def divergence(e, alpha, top):
    """From the definition, with 60 digits (and as many as cancel)."""
    cancelling = -2 * math.log10(e) - math.log10(top or 1.0)
    with mpmath.workdps(60 + max(0, int(cancelling))):
        e, order = mpmath.mpf(e), mpmath.mpf(alpha)
        largest = 1 / (1 + mpmath.exp(-e))
        a = largest if top is None else min(mpmath.mpf(top), largest)
        low = a * mpmath.exp(-e)
        if order == 1:
            return a * e - low * e
        mean = a * mpmath.exp((order - 1) * e) + low * mpmath.exp((1 - order) * e) + 1 - a - low
        return mpmath.log(mean) / (order - 1)


@pytest.mark.parametrize("top", [None, 0.5001, 0.3, 1e-9, 1e-200])
@pytest.mark.parametrize("epsilon", [*np.geomspace(1e-15, 50, 41).tolist(), 1e-3, 1.0, 1e-170])
def test_divergences_are_never_below_the_truth(epsilon, top):
    """Also where terms of order ε cancel and leave ε²."""
    pair = ThreeAtoms(epsilon, top)
    for alpha in (1.0, 1 + 2.0**-52, *(1 + np.geomspace(1e-8, 1e4, 37)).tolist()):
        found, exact = pair.renyi(alpha), divergence(epsilon, alpha, top)
        assert found >= exact, (epsilon, alpha)
        # ε itself bounds it, too, where the exponential would overflow
        assert found <= exact * (1 + mpmath.mpf("1e-12")) + 1e-320 or found == epsilon
        assert found <= alpha * pair.rho() * (1 + 1e-12)
        if top is None:
            assert LatticeCurve(epsilon).renyi(alpha) >= exact
            twice = ComposedCurve(((RANDOMISED_RESPONSE, epsilon),) * 2)
            assert twice.renyi(alpha) >= 2 * exact


def test_three_atoms_have_their_divergences():
    e, a = 1.3, 0.4
    pair = ThreeAtoms(e, a)
    p = np.array([a, 1 - a - a * math.exp(-e), a * math.exp(-e)])
    losses = np.array([e, 0.0, -e])
    for alpha in (1.5, 2.0, 8.0, 64.0):
        exact = math.log((p * np.exp((alpha - 1) * losses)).sum()) / (alpha - 1)
        assert exact <= pair.renyi(alpha) <= exact * (1 + 1e-9)
        assert pair.renyi(alpha) <= alpha * pair.rho()
    assert pair.renyi(1.0) == pytest.approx((p * losses).sum())
    for at in (0.0, 0.4, 1.2):
        exact = float((p * np.maximum(0, 1 - np.exp(at - losses))).sum())
        assert pair.delta(at) == pytest.approx(exact)
        assert pair.delta(pair.epsilon(exact)) <= exact
    assert pair.delta(e) == 0.0


def test_losses_are_written_and_read():
    for pair in (ThreeAtoms(0.7), ThreeAtoms(0.7, 0.3)):
        ((law, s),) = pair.losses()
        assert is_pure(law)
        assert pair_of(law, s) == pair
    assert is_pure("laplace")
    assert not is_pure("gaussian")
    assert pair_of("three atoms zebra", 1.0) is None
    assert pair_of("three atoms 0x1.8p+1", 1.0) is None


def test_compositions_are_those_of_their_atoms():
    pair, count, at = ThreeAtoms(0.5, 0.4), 6, 1.2
    p = np.array([0.4 * math.exp(-0.5), 1 - 0.4 * (1 + math.exp(-0.5)), 0.4])
    total = np.array([1.0])
    for _ in range(count):
        total = np.convolve(total, p)
    losses = (np.arange(2 * count + 1) - count) * 0.5
    exact = float((total * np.maximum(0, 1 - np.exp(at - losses))).sum())
    composed = ComposedCurve(tuple(pair.losses() * count))
    assert exact <= composed.delta(at) <= exact * 1.01 + 1e-6
    response = ComposedCurve(tuple(ThreeAtoms(0.5).losses() * count))
    assert response.delta(at) > composed.delta(at)
    assert response.epsilon(0.0) == pytest.approx(3.0)


def test_whole_and_real_promises_do_not_mix():
    whole = adp.design_knorm(SUM, epsilon=1.0, integers=True).guarantee
    real = adp.design_knorm(SUM, epsilon=1.0, effort="quick").guarantee
    with pytest.raises(adp.AffineDPError, match="different neighbours"):
        adp.compose([whole, real])
    assert adp.compose([whole, whole]).epsilon() == pytest.approx(2.0)
    assert adp.compose([real, real]).epsilon(1e-3) < 2.0


@pytest.mark.parametrize(
    "coefficient", [1.0000001267732437, 1.0000000071623942, 1.0001922974170705]
)
def test_moves_that_cancel_in_the_query_are_not_promised_too_little(coefficient):
    """x1 = c x2, and x1 − x2 is published: 1 − 1/c, where the double 1/c says little about it."""
    manifold = adp.AffineManifold([[1, -coefficient]])
    for size in (1.0, 3.0):
        noise = size * (1 - 1 / coefficient)
        guarantee = adp.verify(manifold, [[noise]], law="knorm", query=[[1.0, -1.0]], mu=[1.0, 0.0])
        move = 1 - 1 / F(coefficient)
        assert F(guarantee.epsilon()) >= move / F(noise)
        assert guarantee.epsilon() == pytest.approx(float(move / F(noise)), rel=1e-3)


def _exact_moves(rows, sets, mu):
    """Moves of free sets by Cramer's rule: the two entries of a set determine four."""
    found = []
    for first, second in sets:
        others = [j for j in range(4) if j not in (first, second)]
        (a, b), (c, d) = ([row[j] for j in others] for row in rows)
        if a * d == b * c:
            continue
        for mover in (first, second):
            right = [-row[mover] * mu for row in rows]
            solved = (
                (right[0] * d - b * right[1]) / (a * d - b * c),
                (a * right[1] - c * right[0]) / (a * d - b * c),
            )
            found.append({mover: mu, **{j: v for j, v in zip(others, solved) if v}})
    return found


def _polygon_gauge(points, z):
    """The least |s| + |t| with z = s a + t b over all pairs of points."""
    best = None
    for a, b in itertools.combinations(points, 2):
        det = a[0] * b[1] - a[1] * b[0]
        if det:
            s, t = (z[0] * b[1] - z[1] * b[0]) / det, (a[0] * z[1] - a[1] * z[0]) / det
            best = min(abs(s) + abs(t), abs(s) + abs(t) if best is None else best)
    return best


@pytest.mark.parametrize("power", [-12, -6, 0, 6, 12])
@pytest.mark.parametrize("nearly", [0, 4, 8])
def test_ill_conditioned_moves_and_coordinates_are_covered(power, nearly, monkeypatch):
    """Directions in floating point only, sets that are nearly dependent, scales far apart."""
    scale = F(10) ** power
    rows = [[F(3), F(1), scale * 2, scale], [F(3), 1 + F(1, 10**nearly), scale, -scale * 5]]
    D = np.array([[float(c) for c in row] for row in rows])
    M = adp.AffineManifold(D)
    sets = [s for s in itertools.combinations(range(4), 2) if _exact_moves(rows, [s], F(1))]
    monkeypatch.setattr("affinedp.neighbours.free_sets.EXACT_EXCHANGES", 10**6)
    adjacency = adp.FreeSetAdjacency(M, sets)
    monkeypatch.setattr("affinedp.neighbours.free_sets.EXACT_EXCHANGES", -1)
    units = [1.0, 1.0, 1 / float(scale), 1 / float(scale)]
    turned = np.array([[1.0, 1.0, 0.1, 0], [1, 1 + 10.0**-nearly, 0, 0.3]]) / units
    grids = []
    monkeypatch.setattr(
        "affinedp.laws.bodies.Polytope", lambda v: (grids.append(v), Polytope(v))[1]
    )
    monkeypatch.setattr("affinedp.designs.pure._laplace", lambda *_: iter(()))
    moves, checked = _exact_moves(rows, sets, F(1)), 0
    for query in (None, turned):
        with contextlib.suppress(AffineDPError):  # what is refused is not wrong
            mechanism = adp.design_knorm(
                M, epsilon=1.0, adjacency=adjacency, effort="quick", query=query
            )
            coordinates = Coordinates.of(
                mechanism.dense.query, mechanism.dense.basis, mechanism.noise
            )
            points = [
                [meaning(c) for c in point] for point in dense(mechanism.noise.points).T.tolist()
            ]
            worst = max(_polygon_gauge(points, coordinates.exact(move)) for move in moves)
            promised = F(mechanism.guarantee.sensitivity)
            assert worst * F(mechanism.noise.rate) <= promised <= 1
            assert mechanism.guarantee.sensitivity >= 1 - 1e-9
            checked += 1
            grids.clear()
            plan = mechanism.prepared()
            steps = [F(2) ** -int(e) for e in plan.exponents]
            for move in moves:
                read = [move.get(int(j), F(0)) for j in plan.read]
                seen = [sum(c * read[j] for j, c in row.items()) for row in plan.rows]
                z = [step * value for step, value in zip(steps, seen)]
                total = sum(
                    _polygon_gauge(grid, z)
                    if len(part.rows) == 2
                    else abs(z[part.rows[0]]) / abs(grid[0][0])
                    for part, grid in zip(plan.grid.noise.parts, grids)
                )
                assert total * plan.grid.rate <= promised
    assert checked or abs(power) == 12 or nearly == 8
