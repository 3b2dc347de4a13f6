"""Proposition 1, numbers of steps and the trade-off between ε and the error."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from affinedp.consensus import PrivateConsensus
from affinedp.consensus.error_curves import shrinking_steps
from affinedp.errors import AffineDPError

GRAPH = nx.petersen_graph()
X0 = np.arange(10.0) ** 2


def made(law="gaussian", **settings):
    return PrivateConsensus(GRAPH, law=law, **(settings or {"sigma": 1.5}))


def test_statement_i_holds_in_every_run():
    consensus = made("laplace", sigma=np.linspace(0.5, 3, 10))
    run = consensus.run(X0, 25, 200, seed=2)
    bound = consensus.bound(X0, 25, "path", noise=run.noise)
    assert bound.shape == (200, 26)
    error = np.sqrt(run.squared_error("state"))
    assert np.all(error <= bound)
    single = consensus.bound(X0, 25, "path", noise=run.noise[7])
    assert_allclose(single, bound[7])
    alpha = consensus.alpha
    t = np.arange(26)
    eta = np.linalg.norm(run.noise[7])
    assert_allclose(single, alpha**t * np.linalg.norm(X0) + (1 + alpha**t) * eta, rtol=1e-9)
    assert consensus.bound(statement="path", noise=run.noise[7]) == pytest.approx(eta)


def test_statements_ii_and_iii():
    consensus = made()
    spread = np.linalg.norm(X0 - X0.mean())
    t = np.arange(9)
    shrunk = consensus.alpha**t
    assert_allclose(consensus.bound(X0, 8, "mean"), shrunk * spread, rtol=1e-9)
    wanted = shrunk**2 * spread**2 + (1 + shrunk) ** 2 * 10 * 1.5**2
    assert_allclose(consensus.bound(X0, 8), wanted, rtol=1e-9)
    assert consensus.bound() == pytest.approx(22.5)
    assert consensus.bound(statement="mean") == 0.0
    assert made("laplace", sigma=1.5).bound() == pytest.approx(45.0)


@given(st.floats(0.01, 0.9999), st.floats(1e-12, 0.999))
def test_shrinking_steps(alpha, factor):
    steps = shrinking_steps(alpha, factor)
    log = math.log(factor) / math.log(alpha)
    assert log <= steps * (1 + 1e-15)
    assert steps - 1 <= log * (1 + 1e-12) + 1e-9


def test_messages_are_close_after_steps_to():
    consensus = made()
    steps = consensus.steps_to(1e-4)
    run = consensus.run(X0, steps, 20, seed=1)
    spread = run.messages - run.messages.mean(axis=2, keepdims=True)
    size = np.linalg.norm(spread, axis=2)
    assert np.all(size[:, -1] <= 1e-4 * size[:, 0])
    assert consensus.steps_to(1.0) == 0
    assert consensus.steps_to(2.0) == 0


def test_steps_to_of_a_complete_graph_is_one():
    consensus = PrivateConsensus(np.full((4, 4), 0.25), law="laplace", epsilon=1.0)
    assert consensus.alpha < 1e-12
    assert consensus.steps_to(1e-6) == 1


def test_more_tolerance_needs_fewer_steps():
    consensus = made()
    found = [consensus.steps_to(t, spread=100.0) for t in (1e-6, 1e-3, 1.0, 1e9)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0
    assert consensus.with_noise(sigma=0.0).steps_to(1.0, spread=0.0) == 0


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("readout", ["paper", "state", "message", "corrected"])
def test_optimal_epsilon(law, readout):
    delta = 0.01 if law == "gaussian" else 0.0
    consensus = made(law, epsilon=1.0, delta=delta, mu=np.linspace(1, 2, 10))
    zeta = 80.0
    epsilon = consensus.optimal_epsilon(zeta, readout)

    def error(wanted):
        again = consensus.with_noise(epsilon=wanted, delta=delta)
        return again.bound() if readout == "paper" else again.limit(readout)

    assert error(epsilon) == pytest.approx(zeta, rel=1e-8)
    assert error(epsilon * 0.999) > zeta
    if law == "laplace":
        assert consensus.with_noise(epsilon=epsilon, delta=0.0).guarantee.holds(epsilon)


def test_optimal_epsilon_of_the_paper():
    """Its two formulas, and how much the exact limits save."""
    gaussian, laplace = made(epsilon=1.0, delta=0.01), made("laplace", epsilon=1.0)
    assert laplace.optimal_epsilon(50.0) == pytest.approx(math.sqrt(2 * 10 / 50), rel=1e-12)
    s = math.sqrt(10 / 50)
    from scipy.stats import norm

    epsilon = gaussian.optimal_epsilon(50.0)
    kappa = norm.cdf(s / 2 - epsilon / s) - math.exp(epsilon) * norm.cdf(-s / 2 - epsilon / s)
    assert kappa == pytest.approx(0.01, rel=1e-8)
    for consensus in (gaussian, laplace):
        found = [
            consensus.optimal_epsilon(50.0, readout)
            for readout in ("paper", "state", "message", "corrected")
        ]
        assert found == sorted(found, reverse=True)
    assert laplace.optimal_epsilon(50.0, "message") == pytest.approx(math.sqrt(2 / 50), rel=1e-12)


def test_delta_of_the_tradeoff():
    verified = made(sigma=2.0)
    with pytest.raises(AffineDPError, match="needs delta"):
        verified.optimal_epsilon(10.0)
    designed = made(epsilon=1.0, delta=0.01)
    assert designed.optimal_epsilon(10.0) == verified.optimal_epsilon(10.0, delta=0.01)
    with pytest.raises(AffineDPError, match="needs delta"):
        designed.optimal_epsilon(10.0, delta=2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.bound(X0),
        lambda c: c.bound(steps=3),
        lambda c: c.bound(X0, 3, "iv"),
        lambda c: c.bound(X0, 3, "path"),
        lambda c: c.bound(X0, 3, "path", noise=[1.0]),
        lambda c: c.bound(X0, 3, "path", noise=np.zeros((1, 1, 10))),
        lambda c: c.steps_to(0.0),
        lambda c: c.steps_to(-1.0),
        lambda c: c.steps_to(math.nan),
        lambda c: c.steps_to("0.1"),
        lambda c: c.steps_to(0.1, spread=-1),
        lambda c: c.steps_to(0.1, spread=math.inf),
        lambda c: c.steps_to(0.1, spread=1, readout="best"),
        lambda c: c.optimal_epsilon(0.0),
        lambda c: c.optimal_epsilon(1.0, "best"),
    ],
)
def test_refusals(call):
    with pytest.raises(AffineDPError):
        call(made(epsilon=1.0, delta=0.01))


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1.0, 1e150, 1e300])
def test_bounds_in_any_unit(unit):
    """Lengths are taken without squares, so that a bound never becomes 0 or infinite by itself."""
    consensus = PrivateConsensus(nx.cycle_graph(5), law="laplace", epsilon=1.0)
    x0, gamma = np.arange(5.0), np.array([1.0, -1, 2, 0, 0.5])
    for statement in ("path", "mean"):
        more = {"noise": gamma} if statement == "path" else {}
        scaled = {"noise": gamma * unit} if statement == "path" else {}
        plain = consensus.bound(x0, 6, statement, **more)
        found = consensus.bound(x0 * unit, 6, statement, **scaled)
        assert_allclose(found, plain * unit, rtol=1e-12)
    if unit > 1e153:
        with pytest.raises(AffineDPError, match="another unit"):
            consensus.bound(x0 * unit, 6)
        with pytest.raises(AffineDPError, match="another unit"):
            consensus.steps_to(0.1, spread=unit)
    else:
        assert np.all(consensus.bound(x0 * unit, 6) > 0)
        assert consensus.steps_to(0.1, spread=unit) >= 0
