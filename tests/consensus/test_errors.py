"""Errors: against powers of the matrix, word by word, and against many runs."""

import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from affinedp.consensus import PrivateConsensus
from affinedp.consensus import private as private_module
from affinedp.consensus.error_curves import trace_interval
from affinedp.errors import AffineDPError
from networks import bridged, precise_second

READOUTS = ("state", "message", "corrected")
STEPS = 12


def brute_force(consensus, x0, steps, readout):
    """E‖·‖² from the definition: x(t+1) = x(t) − L (x(t) + γ), covariance by covariance."""
    n, laplacian = consensus.n, consensus.laplacian.toarray()
    x0 = np.asarray(x0, dtype=float)
    draws = np.diag(consensus.sigma**2) * (1 if consensus.law == "gaussian" else 2)
    state, noise = x0.copy(), np.zeros((n, n))  # x(t) = state + noise γ
    found = []
    for _ in range(steps + 1):
        factor = {
            "state": noise,
            "message": noise + np.eye(n),
            "corrected": noise + (1 - 1 / n) * np.eye(n),
        }[readout]
        found.append(((state - x0.mean()) ** 2).sum() + np.trace(factor @ draws @ factor.T))
        state, noise = state - laplacian @ state, noise - laplacian @ (noise + np.eye(n))
    return np.array(found)


@st.composite
def networks(draw):
    """A connected weighted graph, x(0) and σ."""
    n = draw(st.integers(2, 9))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    for agent in range(1, n):
        graph.add_edge(agent, int(generator.integers(agent)))
    for _ in range(draw(st.integers(0, n))):
        a, b = generator.integers(n, size=2)
        if a != b:
            graph.add_edge(int(a), int(b))
    most = max(dict(graph.degree).values())
    for _, _, data in graph.edges(data=True):
        data["weight"] = generator.uniform(0.1, 0.99) / most
    law = draw(st.sampled_from(["gaussian", "laplace"]))
    sigma = generator.uniform(0, 3, size=n)
    return PrivateConsensus(graph, law=law, sigma=sigma), generator.normal(size=n) * 5


@pytest.mark.slow
@given(networks(), st.sampled_from(READOUTS))
@settings(max_examples=40)
def test_exact_curves_on_random_networks(network, readout):
    consensus, x0 = network
    wanted = brute_force(consensus, x0, STEPS, readout)
    curve = consensus.mean_square_error(x0, STEPS, readout)
    assert curve.exact
    assert_allclose(curve, wanted, rtol=1e-9, atol=1e-9)
    followed = consensus.mean_square_error(x0, STEPS, readout, schedule=lambda t: consensus.weights)
    assert followed.exact
    assert_allclose(followed, wanted, rtol=1e-9, atol=1e-9)
    mean = consensus.mean_error(x0, STEPS)
    P = np.eye(consensus.n) - consensus.laplacian.toarray()
    for t in (0, 1, STEPS):
        assert_allclose(mean[t], np.linalg.matrix_power(P, t) @ x0 - x0.mean(), atol=1e-9)
    assert_allclose(consensus.mean_error(x0, STEPS, keep="last")[0], mean[-1], atol=1e-12)
    # Proposition 1, and the exact limit
    assert np.all(consensus.bound(x0, STEPS) >= brute_force(consensus, x0, STEPS, "state"))
    assert np.all(consensus.bound(x0, STEPS, "mean") >= np.linalg.norm(mean, axis=1) - 1e-12)
    assert consensus.bound() >= consensus.limit("state")
    far = 1000
    late = consensus.mean_square_error(x0, far, readout)[-1]
    tail = consensus.alpha**far * (1 + abs(x0).max() ** 2 + consensus.noise.total_variance) * 100
    assert_allclose(late, consensus.limit(readout), rtol=1e-9, atol=tail)


@given(networks(), st.floats(1e-6, 10))
@settings(max_examples=30)
def test_settled_after_the_proved_number_of_steps(network, tolerance):
    consensus, x0 = network
    spread = float(np.linalg.norm(x0 - x0.mean()))
    for readout in READOUTS:
        steps = consensus.steps_to(tolerance, spread=spread, readout=readout)
        if steps < 4000:
            curve = np.array(consensus.mean_square_error(x0, steps + 20, readout))[steps:]
            assert np.all(np.abs(curve - consensus.limit(readout)) <= tolerance * (1 + 1e-9) + 1e-9)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("readout", READOUTS)
def test_against_many_runs(law, readout):
    graph = nx.random_regular_graph(4, 14, seed=1)
    sigma = np.linspace(0.5, 2.0, 14)
    consensus = PrivateConsensus(graph, law=law, sigma=sigma)
    x0 = np.linspace(-3, 3, 14) ** 3
    run = consensus.run(x0, STEPS, 4000, seed=5, keep="errors")
    mean, error = run.mean_square_error(readout)
    exact = np.array(consensus.mean_square_error(x0, STEPS, readout))
    off = np.abs(mean - exact) / np.maximum(error, 1e-9 * exact)
    assert off.max() < 4
    # the means, too
    states = consensus.run(x0, STEPS, 4000, seed=6).readout(readout)
    wanted = consensus.mean_error(x0, STEPS) + x0.mean()
    spread = states.std(axis=0) / np.sqrt(4000) + 1e-12
    assert (np.abs(states.mean(axis=0) - wanted) / spread).max() < 5


@pytest.mark.parametrize("readout", READOUTS)
def test_estimates_cover_the_exact_curve(readout):
    graph = nx.random_regular_graph(4, 60, seed=2)
    consensus = PrivateConsensus(graph, law="laplace", sigma=np.linspace(0.1, 3, 60))
    x0 = np.sin(np.arange(60.0))
    exact = np.array(consensus.mean_square_error(x0, 8, readout))
    inside, middles = [], []
    for seed in range(60):
        curve = consensus.mean_square_error(
            x0, 8, readout, method="estimate", probes=12, confidence=0.95, seed=seed
        )
        assert not curve.exact
        assert "estimate" in curve.method
        inside.append((curve.low <= exact + 1e-9) & (exact <= curve.high + 1e-9))
        middles.append(np.array(curve))
    # 95 % with 60 trials: fewer than 50 have a chance below 1e-4
    assert np.sum(inside, axis=0).min() >= 50
    error = np.std(middles, axis=0) / np.sqrt(60) + 1e-9
    assert (np.abs(np.mean(middles, axis=0) - exact) / error).max() < 5
    # it becomes exact as differences die out
    late = consensus.mean_square_error(x0, 400, readout, method="estimate", probes=2)
    assert_allclose(late[-1], consensus.limit(readout), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("probes", [2, 16])
@pytest.mark.parametrize("readout", READOUTS)
def test_intervals_cover_where_one_mode_is_left(readout, probes):
    """All noise on one agent of a path: values as skewed as χ²₁, where Student's t fails."""
    n, steps = 8, [0, 1, 8, 60]
    sigma = np.full(n, 1e-3)
    sigma[0] = 1.0
    consensus = PrivateConsensus(nx.path_graph(n), law="gaussian", sigma=sigma)
    exact = np.array(consensus.mean_square_error(np.zeros(n), steps, readout))
    missed = np.zeros(len(steps))
    for seed in range(150):
        curve = consensus.mean_square_error(
            np.zeros(n), steps, readout, method="estimate", probes=probes, seed=seed
        )
        missed += (exact < curve.low * (1 - 1e-9)) | (exact > curve.high * (1 + 1e-9))
    # 5 % of 150 are 7.5; 18 and more would have a chance of 1e-3
    assert missed.max() < 18


def test_intervals_of_traces_cover():
    """Against the law itself: gᵀ M g with one, two and many eigenvalues."""
    generator = np.random.default_rng(3)
    for weights in ([1.0], [0.9, 0.1], np.full(50, 1.0), [1.0] * 3 + [0.01] * 40):
        weights = np.asarray(weights)
        for probes in (1, 4, 30):
            means = (generator.chisquare(probes, size=(4000, len(weights))) @ weights) / probes
            low, high = trace_interval(means, probes, float(weights.max()), 0.05)
            missed = np.mean((weights.sum() < low) | (weights.sum() > high))
            assert missed <= 0.05 + 5 * np.sqrt(0.05 / 4000)
    low, high = trace_interval(np.array([0.0]), 4, 1.0, 0.05)
    assert low == high == 0


@pytest.mark.parametrize("weight", [1e-12, 1e-14, 1e-16, 1e-20])
def test_groups_that_hardly_hear_each_other(weight):
    """The difference between the groups dies out as (1 − λ₂)^t; everything else at once."""
    graph = bridged(weight, size=6)
    second = float(precise_second(graph))
    consensus = PrivateConsensus(graph, law="gaussian", sigma=1e-8)
    x0 = np.repeat([0.0, 100.0], 6)
    steps = [0, 1, 1000, 10**6, 10**10, 10**14]
    curve = consensus.mean_square_error(x0, steps)
    wanted = 12 * 50.0**2 * np.exp(2 * np.array(steps) * np.log1p(-second))
    assert curve.exact
    assert_allclose(curve, wanted, rtol=1e-7, atol=1e-10)


def test_eigenvalues_next_to_minus_one_are_refused_where_rounding_decides():
    """A complete two-sided network with weight sums of almost 1 swaps sides almost for ever."""
    graph = nx.complete_bipartite_graph(3, 3)
    consensus = PrivateConsensus(graph, law="gaussian", sigma=1.0, weights=(1 - 1e-9) / 3)
    x0 = [1, 1, 1, -1, -1, -1]
    assert consensus.mean_square_error(x0, 10).exact
    with pytest.raises(AffineDPError, match="so close to 2"):
        consensus.mean_square_error(x0, [10**9, 10**12])


def test_chosen_steps():
    graph = nx.random_regular_graph(4, 30, seed=5)
    consensus = PrivateConsensus(graph, law="laplace", epsilon=1.0)
    x0, chosen = np.arange(30.0) ** 2, [0, 3, 4, 17, 40]
    for readout in READOUTS:
        for more in ({}, {"schedule": lambda t: consensus.weights}, {"method": "estimate"}):
            every = consensus.mean_square_error(x0, 40, readout, **more)
            some = consensus.mean_square_error(x0, chosen, readout, **more)
            assert some.times.tolist() == chosen
            assert every.times.tolist() == list(range(41))
            assert_allclose(some.values, every.values[chosen], rtol=1e-12)
            assert_allclose(some.high, every.high[chosen], rtol=1e-12)


def test_many_steps_in_little_memory():
    consensus = PrivateConsensus(nx.cycle_graph(100), law="laplace", epsilon=1.0)
    tracemalloc.start()
    curve = consensus.mean_square_error(np.arange(100.0), 200_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2e7  # all powers at once would take 1.6e8
    assert_allclose(curve[-1], consensus.limit("state"), rtol=1e-9)
    far = consensus.mean_square_error(np.arange(100.0), [10, 5_000, 123_456])
    assert_allclose(far.values, curve[[10, 5_000, 123_456]], rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-300, 1e-100, 1e100, 1e150])
def test_extreme_units(unit):
    """Numbers whose squares are no doubles are refused; others are right."""
    consensus = PrivateConsensus(nx.cycle_graph(5), law="gaussian", sigma=unit)
    x0 = np.arange(5.0) * unit
    plain = PrivateConsensus(nx.cycle_graph(5), law="gaussian", sigma=1.0)
    for more in ({}, {"method": "estimate"}, {"schedule": lambda t: consensus.weights}):
        wanted = np.array(plain.mean_square_error(np.arange(5.0), 6, **more)) * unit * unit
        assert_allclose(consensus.mean_square_error(x0, 6, **more), wanted, rtol=1e-9)
    huge = PrivateConsensus(nx.cycle_graph(5), law="gaussian", sigma=1e200)
    for more in ({}, {"method": "estimate"}, {"schedule": lambda t: huge.weights}):
        with pytest.raises(AffineDPError, match="another unit"):
            huge.mean_square_error(np.zeros(5), 6, **more)
        with pytest.raises(AffineDPError, match="another unit"):
            huge.limit()
        with pytest.raises(AffineDPError, match="another unit"):
            plain.mean_square_error(np.arange(5) * 1e200, 6, **more)


def test_large_networks_are_estimated(monkeypatch):
    monkeypatch.setattr(private_module, "DENSE_AGENTS", 30)
    consensus = PrivateConsensus(nx.circulant_graph(40, [1, 2, 5]), law="gaussian", sigma=1.0)
    x0 = np.arange(40.0)
    curve = consensus.mean_square_error(x0, 5)
    assert not curve.exact
    assert curve.confidence == 0.95
    assert np.all(curve.low <= curve.values)
    assert np.all(curve.values <= curve.high)
    exact = consensus.mean_square_error(x0, 5, method="exact")
    assert exact.exact
    assert_allclose(exact, brute_force(consensus, x0, 5, "state"), rtol=1e-10)
    assert np.all((curve.low <= exact.values) & (exact.values <= curve.high))


def test_a_curve_is_an_array():
    consensus = PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=1.0)
    curve = consensus.mean_square_error([1, 2, 6], 4)
    assert len(curve) == 5
    assert curve[0] == pytest.approx(4 + 1 + 9)
    assert list(curve) == curve.values.tolist()
    assert np.sqrt(curve).shape == (5,)
    assert np.all(curve.low == curve.high)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda c: c.mean_square_error([0, 0], 3), "3 agents"),
        (lambda c: c.mean_square_error(1.0, 3), "one value for each"),
        (lambda c: c.mean_square_error([0, 0, np.nan], 3), "finite"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, "best"), "readout must be"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, ["state"]), "readout must be"),
        (lambda c: c.mean_square_error([0, 0, 0], -1), "at least 0"),
        (lambda c: c.mean_square_error([0, 0, 0], 2.5), "whole number"),
        (lambda c: c.mean_square_error([0, 0, 0], "many"), "whole number"),
        (lambda c: c.mean_square_error([0, 0, 0], [1, 2.5]), "whole number"),
        (lambda c: c.mean_square_error([0, 0, 0], [2, 1]), "ascending"),
        (lambda c: c.mean_square_error([0, 0, 0], []), "at least one"),
        (lambda c: c.mean_square_error([0, 0, 0], 10**12), "choose some"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, method="estimate", confidence="a"), "confid"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, method="guess"), "method must be"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, method="estimate", probes=1), "probes"),
        (lambda c: c.mean_square_error([0, 0, 0], 3, method="estimate", confidence=1), "confid"),
        (lambda c: c.mean_error([0, 0, 0], 3, keep="errors"), "keep must be"),
        (lambda c: c.mean_error([0, 0, 0], 10**9), "keep='last'"),
        (lambda c: c.limit("mean"), "readout must be"),
    ],
)
def test_refusals(call, what):
    with pytest.raises(AffineDPError, match=what):
        call(PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=1.0))
