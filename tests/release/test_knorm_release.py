"""Releases with K-norm noise: exact reading, the charge for rounding, order, files, ledgers."""

import functools
import itertools
import random
from fractions import Fraction as F

import numpy as np
import pytest

import affinedp as adp
from affinedp.audit import audit
from affinedp.exact.numbers import meaning
from affinedp.laws import bodies as bodies_room
from affinedp.laws.polytope import LatticeCones, Polytope
from affinedp.laws.sampler.bodies import ConeNoise
from affinedp.release import publish as publishing
from affinedp.strategies import exact_plan

SUM = adp.AffineManifold.from_equations(["a + b = c"])


@functools.cache
def weighted(integers=False):
    """A polygon with other corners than the moves."""
    return adp.design_knorm(SUM, epsilon=1.0, weights=[1, 1, 100], integers=integers)


def directed(moves, **options):
    manifold = adp.AffineManifold(np.zeros((0, len(moves[0]))))
    columns = np.array(moves, dtype=float).T
    neighbours = adp.DirectionAdjacency(manifold, columns)
    return adp.design_knorm(manifold, adjacency=neighbours, epsilon=1.0, effort="quick", **options)


def test_releases_have_the_stated_error_and_obey_the_equation():
    for mechanism in (adp.design_knorm(SUM, epsilon=1.0, effort="quick"), weighted()):
        data = np.tile([30.5, 70.25, 100.75], (4000, 1))
        noise = mechanism.release(data) - data
        np.testing.assert_allclose(noise[:, 0] + noise[:, 1], noise[:, 2], atol=1e-9)
        square = (noise**2).sum(axis=1)
        wide = 6 * square.std() / len(data) ** 0.5
        assert square.mean() == pytest.approx(mechanism.expected_squared_error, abs=wide)


@pytest.mark.parametrize("bits", [2, 4, 42])
def test_rounded_neighbours_stay_within_epsilon(bits, monkeypatch):
    """The charge covers two roundings: on every grid, in rational arithmetic."""
    monkeypatch.setattr(bodies_room, "GRID_BITS", bits)
    monkeypatch.setattr(bodies_room, "SPLIT", 1)
    monkeypatch.setattr(exact_plan, "NOTICED", F(100))
    seen = {}
    monkeypatch.setattr(ConeNoise, "__init__", lambda self, cones, rate: seen.update(rate=rate))
    bodies = []
    monkeypatch.setattr(bodies_room, "LatticeCones", lambda body: bodies.append(body))
    moves = [(F(7, 3), F(1, 5)), (F(-1, 2), F(9, 4))]
    mechanism = directed([[float(c) for c in move] for move in moves])
    plan = mechanism.prepared()
    (body,) = bodies
    numbers = random.Random(1)
    worst = F(0)
    for _ in range(1500):
        x = [F(numbers.randrange(-4000, 4000), 1024) for _ in range(2)]
        move, times = numbers.choice(moves), F(numbers.randrange(-64, 65), 64)
        y = [a + times * b for a, b in zip(x, move)]
        steps = [
            [round(c / F(2) ** int(e)) for c, e in zip(point, plan.exponents)] for point in (x, y)
        ]
        worst = max(worst, seen["rate"] * body.gauge([F(a - b) for a, b in zip(*steps)]))
    assert worst <= F(mechanism.guarantee.sensitivity)
    if bits == 2:  # on a coarse grid the charge is needed
        assert worst * plan.grid.charge > F(mechanism.guarantee.sensitivity)


def test_the_law_on_the_grid_keeps_the_ratio(monkeypatch):
    """P(z)/P(z+n) ≤ e^ε for every z of a box and every rounded move n, exactly."""
    monkeypatch.setattr(bodies_room, "GRID_BITS", 1)
    monkeypatch.setattr(bodies_room, "SPLIT", 1)
    monkeypatch.setattr(exact_plan, "NOTICED", F(100))
    bodies = []
    monkeypatch.setattr(
        bodies_room, "LatticeCones", lambda b: (bodies.append(b), LatticeCones(b))[1]
    )
    mechanism = directed([[1.0, 0.5], [-0.25, 1.5]])
    plan = mechanism.prepared()
    (body,) = bodies
    units = [F(2) ** int(e) for e in plan.exponents]
    for z in itertools.product(range(-4, 5), repeat=2):
        here = body.gauge(list(map(F, z)))
        for move in ([F(1), F(1, 2)], [F(-1, 4), F(3, 2)]):
            for off in itertools.product((-1, 0, 1), repeat=2):
                moved = [round(c / u) + e for c, u, e in zip(move, units, off)]
                if all(abs(m - c / u) <= 1 for m, c, u in zip(moved, move, units)):
                    there = body.gauge([F(a + b) for a, b in zip(z, moved)])
                    assert plan.grid.rate * abs(there - here) <= F(mechanism.guarantee.sensitivity)


def test_coordinates_are_read_exactly():
    mechanism = directed([[0.1, 0.3], [0.7, -0.2]])
    plan = mechanism.prepared()
    points = np.array([[1 / 3, 1e6 + 0.1], [-(2.0**-60), 5e-324]])
    steps = plan.steps(points)
    for point, column in zip(points, steps.T):
        for value, exponent, step in zip(point, plan.exponents, column):
            assert abs(meaning(float(value)) / F(2) ** int(exponent) - step) <= F(1, 2)


def test_a_bound_pays_for_rounded_records():
    mechanism = weighted()
    plain, bounded = mechanism.prepared(), mechanism.prepared(1e6)
    assert bounded.grid.charge > plain.grid.charge
    assert bounded.grid.rate < plain.grid.rate
    mechanism.release([1.0, 2.0, 3.0], bound=1e6)
    with pytest.raises(adp.AffineDPError, match="larger than the declared bound"):
        mechanism.release([1e7, 2.0, 1e7 + 2], bound=1e6)


def test_noise_is_drawn_before_data_is_read(monkeypatch):
    mechanism = weighted()
    order = []
    kind = type(mechanism.domain)
    draw, read = publishing.drawn, kind.read
    monkeypatch.setattr(publishing, "drawn", lambda *a: (order.append("draw"), draw(*a))[1])
    monkeypatch.setattr(kind, "read", lambda *a: (order.append("read"), read(*a))[1])
    mechanism.release([1.0, 2.0, 3.0])
    assert order == ["draw", "read"]


def test_noise_is_drawn_in_batches(monkeypatch):
    mechanism = weighted()
    counts = []
    draw = ConeNoise.draw
    monkeypatch.setattr(
        ConeNoise, "draw", lambda self, n, s: (counts.append(n), draw(self, n, s))[1]
    )
    mechanism.release([1.0, 2.0, 3.0])
    mechanism.release(np.tile([1.0, 2.0, 3.0], (500, 1)))
    assert counts == [64, 500]


def test_whole_data_is_checked():
    mechanism = adp.design_knorm(SUM, epsilon=1.0, integers=True)
    with pytest.raises(adp.AffineDPError, match="whole"):
        mechanism.release([1.5, 2.5, 4.0])
    shifted = adp.AffineManifold([[2, 4]], [-6])
    whole = adp.design_knorm(shifted, epsilon=1.0, integers=True)
    published = whole.release([1.0, 1.0])
    assert published @ [2, 4] == 6
    none = adp.AffineManifold([[2, 4]], [-3])
    with pytest.raises(adp.AffineDPError, match="no whole numbers"):
        adp.design_knorm(none, epsilon=1.0, integers=True).release([1.5, 0.0])


@pytest.mark.parametrize("integers", [False, True])
def test_files_keep_everything(integers, tmp_path):
    for mechanism in (
        weighted(integers=integers),
        adp.design_knorm(SUM, epsilon=0.3, effort="quick"),
    ):
        mechanism.save(tmp_path / "m.json")
        again = adp.Mechanism.load(tmp_path / "m.json")
        assert again.guarantee.epsilon() == mechanism.guarantee.epsilon()
        assert again.expected_squared_error == mechanism.expected_squared_error
        assert again.fingerprint == mechanism.fingerprint
        assert (again.noise.rate, again.noise.whole) == (
            mechanism.noise.rate,
            mechanism.noise.whole,
        )
        trusted = adp.Mechanism.load(tmp_path / "m.json", reverify=False)
        assert trusted.guarantee.epsilon() == mechanism.guarantee.epsilon()
        assert trusted.guarantee.warnings
    text = (tmp_path / "m.json").read_text()
    for old, new in (('"rate": 0.3', '"rate": 0.4'), ('"rate": 0.3', '"rate": "x"')):
        (tmp_path / "bad.json").write_text(text.replace(old, new))
        with pytest.raises(adp.AffineDPError, match="does not keep|rate"):
            adp.Mechanism.load(tmp_path / "bad.json")


def test_ledgers_add_up_epsilon_to_the_bit(tmp_path):
    for i, mechanism in enumerate((weighted(), adp.design_knorm(SUM, epsilon=1.0, integers=True))):
        ledger = adp.Ledger(tmp_path / f"{i}.db", epsilon=2.0, delta=0.0, protects="x")
        for _ in range(2):
            mechanism.release([1, 2, 3], ledger=ledger)
        assert ledger.spent == 2.0
        with pytest.raises(adp.BudgetExceededError):
            mechanism.release([1, 2, 3], ledger=ledger)


def test_stacks_add_their_gauges():
    mechanism = weighted()
    both = mechanism.stack(mechanism)
    assert both.guarantee.epsilon() == 2.0
    assert both.expected_squared_error == pytest.approx(2 * mechanism.expected_squared_error)
    assert both.release([1.0, 2.0, 3.0]).shape == (6,)
    with pytest.raises(adp.AffineDPError, match="whole"):
        mechanism.stack(weighted(integers=True))


def test_opendp_and_dp_accounting_know_it():
    mechanism = weighted()
    measurement = mechanism.make_measurement()
    assert 1.0 <= measurement.map(1.0) < 1 + 1e-9
    assert len(measurement([1.0, 2.0, 3.0])) == 3
    assert "Laplace" in type(mechanism.dp_event()).__name__
    whole = weighted(integers=True)
    assert 1.0 <= whole.make_measurement().map(1.0) < 1 + 1e-9
    accountant = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    accountant.compose(whole.dp_event(), 3)
    assert 3.0 <= accountant.get_epsilon(0.0) < 3.001


@pytest.mark.slow
@pytest.mark.parametrize("integers", [False, True])
def test_attacks_do_not_refute_it(integers):
    mechanism = weighted(integers=integers)
    found = audit(mechanism, runs=4000, confidence=1 - 1e-9)
    assert found.passed
    assert found.epsilon_lower > 0.3
    assert audit(mechanism, attack="low bits", runs=2000, confidence=1 - 1e-9).passed
    refuted = audit(mechanism, claim=(0.2, 0.0), runs=4000, confidence=0.999)
    assert not refuted.passed


def test_reports_and_figures_are_made():
    mechanism = weighted(integers=True)
    text = str(mechanism.report())
    assert "K-norm noise on integers" in text
    assert "every release obeys 1 equation" in text
    assert len(mechanism.plot().axes) >= 3
    assert "every release obeys" in str(adp.design_knorm(SUM, epsilon=1.0, effort="quick").report())


def test_what_neighbours_share_is_published_as_it_is():
    neighbours = adp.DirectionAdjacency(SUM, [[1.0], [0.0], [1.0]])
    mechanism = adp.design_knorm(SUM, epsilon=1.0, adjacency=neighbours)
    assert mechanism.published_without_noise == ("b",)
    published = mechanism.release([1.0, 2.0, 3.0])
    assert published[1] == 2.0
    assert published[0] + 2.0 == pytest.approx(published[2])
    with pytest.raises(adp.AffineDPError, match="agree in them"):
        mechanism.release([1.0, 2.0, 3.0], bound=10.0)


def test_not_in_steps(tmp_path):
    with pytest.raises(adp.AffineDPError, match="not released in steps"):
        weighted().in_steps(state=tmp_path / "s.db")


def test_flat_bodies_are_released_or_refused():
    thin = directed([[1.0, 0.0], [1.0, 1e-7]])
    thin.release([0.0, 0.0])
    assert Polytope([(F(1), F(0)), (F(1), F(1, 10**7))]).dimension == 2


def test_bound_that_is_too_large_is_named():
    m = adp.design_knorm(SUM, epsilon=1.0, effort="quick")
    assert m.release([1.0, 2.0, 3.0], bound=1e6).shape == (3,)
    with pytest.raises(adp.AffineDPError, match=r"bound=1e\+12"):
        m.release([1.0, 2.0, 3.0], bound=1e12)


def test_whole_neighbours_are_named_to_opendp_and_by_audits():
    pytest.importorskip("opendp")
    m = adp.design_knorm(SUM, epsilon=1.0, mu=2.7, integers=True, effort="quick")
    measurement = m.make_measurement()
    assert "whole numbers" in str(measurement.input_metric)
    assert measurement.map(1.0) == pytest.approx(1.0)
    # a move of 1.5 times 2.7 is 4 whole steps, where one neighbour is 2 away
    assert measurement.map(1.5) == pytest.approx(2.0)
    assert audit(m, runs=2_000, seed=1).neighbours.endswith("whole numbers")
