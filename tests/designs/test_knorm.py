"""K-norm designs: errors of the literature's and our own tables, promises, whole numbers."""

import math
from fractions import Fraction as F

import numpy as np
import pytest

import affinedp as adp
from affinedp.designs import knorm_bodies
from affinedp.designs.knorm_blocks import as_one_sum
from affinedp.designs.knorm_bodies import Search, better_bodies
from affinedp.laws import orbits
from affinedp.laws import polytope as hulls
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import Polytope


def one_sum(n):
    return adp.AffineManifold([[1.0] * (n - 1) + [-1.0]])


def margins(rows, columns):
    equations = np.zeros((rows + columns, rows * columns))
    for i in range(rows):
        for j in range(columns):
            equations[[i, rows + j], columns * i + j] = 1
    return adp.AffineManifold(equations)


def double_integrator(steps=5):
    motion = [f"p{t + 1} = p{t} + 0.1*v{t}" for t in range(steps - 1)]
    motion += [f"v{t + 1} = v{t}" for t in range(steps - 1)]
    return adp.AffineManifold.from_equations(
        motion, [f"{kind}{t}" for t in range(steps) for kind in "pv"]
    )


def table_with_margins():
    lines = [f"c{i}0 + c{i}1 + c{i}2 = r{i}" for i in range(2)]
    lines += [f"c0{j} + c1{j} = k{j}" for j in range(3)] + ["r0 + r1 = t"]
    return adp.AffineManifold.from_equations(lines)


HULLS = {
    "one sum of 3": (one_sum(3), 10),
    "one sum of 4": (one_sum(4), 16.8),
    "one sum of 5": (one_sum(5), 24),
    "one sum of 6": (one_sum(6), 220 / 7),
    "one sum of 8": (one_sum(8), 140 / 3),
    "one sum of 40": (one_sum(40), 4 * 39 * 79 / 41),
    "2×3, public margins": (margins(2, 3), 20),
    "3×3, public margins": (margins(3, 3), 452 / 7),
    "double integrator": (double_integrator(), 2120),
}


@pytest.mark.parametrize("name", HULLS)
@pytest.mark.parametrize("epsilon", [1.0, 0.3])
def test_hulls_have_their_errors_and_promise(name, epsilon):
    manifold, error = HULLS[name]
    mechanism = adp.design_knorm(manifold, epsilon=epsilon, effort="quick")
    assert mechanism.law == "knorm"
    assert mechanism.expected_squared_error * epsilon**2 == pytest.approx(error, rel=1e-9)
    assert np.trace(mechanism.covariance) == pytest.approx(mechanism.expected_squared_error)
    promise = mechanism.guarantee
    assert epsilon * (1 - 1e-12) <= promise.epsilon() <= epsilon
    assert promise.exact
    assert promise.sensitivity_lower >= epsilon * (1 - 1e-12)


@pytest.mark.slow
def test_a_table_with_its_margins():
    mechanism = adp.design_knorm(table_with_margins(), epsilon=1.0, effort="quick")
    assert mechanism.expected_squared_error == pytest.approx(18522 / 151)
    assert mechanism.guarantee.epsilon() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manifold", "weights", "error"),
    [(double_integrator(), None, 1889.8), (one_sum(3), [1, 1, 100], 293.9)],
    ids=["double integrator", "weight 100"],
)
def test_better_bodies_than_the_hull_are_found(manifold, weights, error):
    found = adp.design_knorm(manifold, epsilon=1.0, weights=weights, effort="thorough")
    cost = np.ones(manifold.n) if weights is None else np.array(weights, dtype=float)
    assert float(found.expected_squared_errors @ cost) <= error * (1 + 1e-4)
    assert 1 - 1e-9 <= found.guarantee.epsilon() <= 1.0
    for other in (
        adp.design_laplace(manifold, epsilon=1.0, weights=weights),
        adp.design_knorm(manifold, epsilon=1.0, weights=weights, effort="quick"),
    ):
        theirs = float(other.expected_squared_errors @ cost)
        assert float(found.expected_squared_errors @ cost) <= theirs * (1 + 1e-12)


def test_the_vehicle_has_a_better_body_than_its_hull():
    steps = np.arange(100.0)
    moves = np.vstack([[[1.0, 0.0]], np.stack([-0.01 * steps, np.full(100, 0.1)], axis=1)])
    total = np.array([[100, 0.1 * steps.sum()], [0.1 * steps.sum(), 0.01 * (steps**2).sum()]])
    hull = Polytope([tuple(F(str(round(c, 6))) for c in move) for move in moves.tolist()])
    assert float((hull.second_moment() * total).sum()) == pytest.approx(276.7, abs=0.05)
    generator = np.random.default_rng(0)
    best = next(better_bodies(hull.vertices, total, [], 6, generator))
    rows = np.vstack([hull.vertices, np.round(best, 5)])
    body = Polytope([tuple(F(str(c)) for c in row) for row in rows.tolist()])
    assert float((body.second_moment() * total).sum()) <= 263.1


def test_the_slope_of_the_search_is_the_derivative():
    generator = np.random.default_rng(5)
    search = Search(generator.normal(size=(4, 3)))
    extra = 2 * generator.normal(size=6)
    slope = search.value(extra)[1]
    for i in range(6):
        step = np.zeros(6)
        step[i] = 1e-6
        change = search.value(extra + step)[0] - search.value(extra - step)[0]
        assert slope[i] == pytest.approx(change / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_three_integers_have_the_least_error_of_all_mechanisms(epsilon):
    q = math.exp(epsilon)
    least = 12 * q * (q * q + 3 * q + 1) / ((q - 1) ** 2 * (q * q + 4 * q + 1))
    mechanism = adp.design_knorm(one_sum(3), epsilon=epsilon, integers=True)
    assert mechanism.noise.whole
    assert mechanism.expected_squared_error == pytest.approx(least, rel=1e-12)
    assert mechanism.guarantee.epsilon() == epsilon
    p = 1 / q
    top = (1 + p) / (1 + 4 * p + p * p)
    for share in (0.0, 0.3, 0.9):
        exact = top * -math.expm1((share - 1) * epsilon)
        assert mechanism.guarantee.delta(share * epsilon) == pytest.approx(exact, rel=1e-6)
    assert mechanism.guarantee.curve_exact


@pytest.mark.parametrize(
    ("equations", "mu", "data"),
    [([[1, 1, -1]], 2.0, [3, 4, 7]), ([[1, -2, 0]], 1.0, [4, 2, 5]), ([[2, 3, -1]], 3.0, [1, 1, 5]),
     ([[1, 1, -1]], 2.7, [3, 4, 7])],
)  # fmt: skip
def test_whole_data_gets_whole_noise(equations, mu, data):
    manifold = adp.AffineManifold(equations)
    mechanism = adp.design_knorm(manifold, epsilon=1.0, mu=mu, integers=True)
    real = adp.design_knorm(manifold, epsilon=1.0, mu=mu, effort="quick")
    assert mechanism.expected_squared_error <= real.expected_squared_error * (1 + 1e-9)
    published = mechanism.release(np.tile(np.array(data, dtype=float), (200, 1)))
    assert np.array_equal(published, np.rint(published))
    assert not (published @ np.array(equations[0])).any()
    assert np.unique(published, axis=0).shape[0] > 20
    assert mechanism.guarantee.neighbours.endswith("whole numbers")


def test_whole_neighbours_are_whole():
    """With μ = 2.7 whole entries move by 2 at most."""
    two, more = (
        adp.design_knorm(one_sum(4), epsilon=1.0, mu=mu, integers=True, effort="quick")
        for mu in (2.0, 2.7)
    )
    assert more.expected_squared_error == pytest.approx(two.expected_squared_error)
    assert more.guarantee.epsilon() == 1.0
    with pytest.raises(adp.AffineDPError, match="treat the data as real|Treat the data as real"):
        adp.design_knorm(one_sum(4), epsilon=1.0, mu=0.5, integers=True)


def test_two_blocks_are_two_noises():
    manifold = adp.AffineManifold.from_equations(["a + b = c", "d + e = f"])
    mechanism = adp.design_knorm(manifold, epsilon=1.0, effort="quick")
    assert mechanism.expected_squared_error == pytest.approx(20.0)
    assert mechanism.guarantee.epsilon() == 1.0
    assert len(mechanism.noise.parts) == 2


def test_large_bodies_become_other_noise_and_say_so(monkeypatch):
    monkeypatch.setattr(hulls, "MOST_DIMENSIONS", 1)
    monkeypatch.setattr(orbits, "MOST_DIMENSIONS", 1)
    for manifold, law in ((margins(3, 3), "productnorm"), (double_integrator(), "laplace")):
        mechanism = adp.design_knorm(manifold, epsilon=1.0)
        assert mechanism.law == law
        assert "not designed: the body has" in mechanism.notes[-1]


@pytest.mark.slow
def test_a_better_laplace_strategy_is_taken(monkeypatch):
    """What design_laplace finds is a candidate, whatever it is."""
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    wanted = {"epsilon": 1.0, "weights": [1, 1, 100]}
    laplace = adp.design_laplace(manifold, **wanted)  # 322.5, where the hull costs 340
    monkeypatch.setattr(knorm_bodies, "better_bodies", lambda *_: iter(()))
    taken = adp.design_knorm(manifold, **wanted)
    assert taken.law == "laplace"
    assert taken.expected_squared_error == pytest.approx(laplace.expected_squared_error, rel=1e-3)


def test_exchanges_are_recognised():
    assert as_one_sum(np.array([[2.0, 0], [0, 2], [2, 2]])).signs.tolist() == [1, -1, 1]
    assert as_one_sum(np.array([[1.0, 0], [0, 1], [1, -1], [1, 1]])) is None
    assert as_one_sum(np.array([[1.0, 0], [0, 2], [1, -1]])) is None
    assert as_one_sum(np.array([[1.0]])) is None


def test_many_entries_are_not_listed():
    n = 600
    manifold = one_sum(n)
    for integers in (False, True):
        mechanism = adp.design_knorm(manifold, epsilon=0.5, integers=integers)
        assert mechanism.guarantee.epsilon() == 0.5
        assert mechanism.noise.points.shape == (n, 1)
    assert mechanism.expected_squared_error == pytest.approx(4 * 599 * 1199 / 601 / 0.25, rel=0.02)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), "x"])
def test_bad_epsilon_is_refused(epsilon):
    with pytest.raises(adp.AffineDPError, match="epsilon"):
        adp.design_knorm(one_sum(3), epsilon=epsilon)


def test_a_body_that_was_found_is_the_hull_of_its_points():
    """Noise that is loaded finds its body anew, and must be the same to the last bit."""
    law = adp.design_knorm(table_with_margins(), epsilon=1.0, effort="quick").noise
    again = KNorm(law.points, law.rate, law.whole)
    first, second = (one.parts[0].body for one in (law, again))
    assert first is not second
    assert np.array_equal(first.facets.simplices, second.facets.simplices)
    assert np.array_equal(law.moment, again.moment)
    assert law.at_rate(2.0).parts[0].body is first
