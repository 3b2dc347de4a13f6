"""Functions with a known reach: against brute force over pairs of neighbours."""

from fractions import Fraction

import numpy as np
import pytest

import affinedp as adp
from affinedp import functions
from affinedp.errors import AffineDPWarning

M = adp.AffineManifold.from_equations(["a + b + c + d = 100", "2 a - e = 3"])
TOTAL = adp.AffineManifold(np.ones((1, 6)), b=[-60.0])
SOME = TOTAL.names[:3]
FUNCTIONS = {
    "peak": (functions.peak(), np.max),
    "median": (functions.order_statistic(3), lambda x: np.sort(x)[2]),
    "range": (functions.range(), np.ptp),
    "exceedance": (functions.exceedance(20), lambda x: np.maximum(x - 20, 0).sum()),
    "clipped": (functions.clipped_sum(5, 30), lambda x: np.clip(x, 5, 30).sum()),
    "mean difference": (
        functions.mean_absolute_difference(),
        lambda x: np.abs(x[:, None] - x).sum() / (len(x) * (len(x) - 1)),
    ),
    "gini": (functions.gini(60.0), lambda x: np.abs(x[:, None] - x).sum() / (2 * len(x) * 60)),
}


def exact(x):
    return [Fraction(float(v)) for v in x]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("manifold", [M, TOTAL], ids=["two equations", "one sum"])
def test_no_neighbour_moves_it_farther(name, manifold):
    known, plain = FUNCTIONS[name]
    adjacency = adp.CircuitAdjacency(manifold, mu=1.5)
    bound = float(known.sensitivity(adjacency))
    generator, found = np.random.default_rng(1), 0.0
    moves = adjacency.directions()
    for _ in range(400):
        x = manifold.project(generator.normal(15, 20, manifold.n))
        assert float(known.value(exact(x))) == pytest.approx(plain(x), abs=1e-9)
        v = moves[:, generator.integers(moves.shape[1])] * generator.choice([-1, 1, 0.3])
        found = max(found, abs(plain(x + v) - plain(x)))
    assert found <= bound * (1 + 1e-12)
    if manifold is TOTAL:  # where moves are pairs it is attained
        assert found > 0.99 * bound


def test_releases_pay_for_their_grid():
    """Steps of neighbours differ by no more than the noise is for."""
    m = adp.design(TOTAL, query=functions.exceedance(7.3), epsilon=0.7, law="laplace")
    assert m.guarantee.holds(0.7)
    plan = m.prepared(1000.0)
    x = np.array([10.1, 10.2, 9.7, 9.9, 10.05, 10.05])
    for i, j in ((0, 1), (2, 3), (5, 0)):
        other = x.copy()
        other[i], other[j] = other[i] + 1.0, other[j] - 1.0
        moved = int((plan.steps(other[None]) - plan.steps(x[None]))[0, 0])
        assert abs(moved) <= m.guarantee.sensitivity * plan.unit
    assert m.release(x).shape == (1,)
    assert m.release(np.stack([x, x])).shape == (2, 1)


def test_values_of_any_size_are_cut_and_not_refused():
    free = adp.AffineManifold(np.zeros((0, 2)))
    m = adp.design(free, query=functions.peak(), epsilon=1.0, law="laplace")
    with pytest.warns(AffineDPWarning, match="where values are cut"):
        assert 1e11 < float(m.release([1e200, 0.0])[0]) < 1e13
    assert m.release([1e10, 0.0])[0] == pytest.approx(1e10, abs=100)


def test_names_ledgers_and_files(tmp_path):
    m = adp.design(TOTAL, query=functions.range(SOME), epsilon=1.0, delta=1e-6)
    assert m.expected_squared_error**0.5 < 3
    ledger = adp.Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6, protects="one")
    m.release([10.0] * 6, ledger=ledger)
    with pytest.raises(adp.BudgetExceededError):
        m.release([10.0] * 6, ledger=ledger)
    m.save(tmp_path / "noise.json")
    again = adp.Mechanism.load(tmp_path / "noise.json")
    assert again.fingerprint == m.fingerprint
    assert again.guarantee.sensitivity == m.guarantee.sensitivity
    low, high = m.interval([3.0])
    assert low[0] < 3 < high[0]
    assert "the range" in str(m.report())
    with pytest.raises(adp.AffineDPError, match="no entry"):
        adp.design(TOTAL, query=functions.peak(["y"]), epsilon=1.0)
    with pytest.raises(adp.AffineDPError, match="larger than the declared bound"):
        m.release([60.0, 0, 0, 0, 0, 0], bound=50.0)


def test_a_function_on_trust_says_so():
    own = functions.lipschitz(lambda v: float(np.hypot(v[0], v[1])), 1.0, "sum")
    m = adp.design(TOTAL, query=own, epsilon=1.0)
    assert any("user's word" in text for text in m.guarantee.warnings)
    assert "user's word" in m.guarantee.basis
    assert np.isfinite(m.release([10.0] * 6)).all()
    bad = adp.design(TOTAL, query=functions.lipschitz(lambda v: np.nan, 1.0), epsilon=1.0)
    with pytest.raises(adp.AffineDPError, match="not finite"):
        bad.release([10.0] * 6)
    for f in (lambda v: v, lambda v: 1 / 0):
        fails = adp.design(TOTAL, query=functions.lipschitz(f, 1.0), epsilon=1.0)
        with pytest.raises(adp.AffineDPError, match="fails at this data"):
            fails.release([10.0] * 6)
    with pytest.raises(adp.AffineDPError):
        m.save("nowhere.json")


def test_a_cut_from_above_to_below_is_refused():
    with pytest.raises(adp.AffineDPError, match="at most upper"):
        functions.clipped_sum(5, 1)
