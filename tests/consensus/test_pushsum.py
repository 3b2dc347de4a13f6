"""Push-sum with one draw: exact errors, losses, what is sent, and what breaks the promise."""

from __future__ import annotations

import itertools
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import affinedp as adp
from affinedp.consensus import AgentNoise, PrivatePushSum
from affinedp.consensus.pushsum import (
    PushSumAgent,
    PushSumMessage,
    Rounds,
    directed_network_of,
    losses_of,
)


def one_way(n: int, seed: int) -> nx.DiGraph:
    """A ring with some more one-way links: there is a way from everyone to everyone."""
    graph = nx.cycle_graph(n, create_using=nx.DiGraph)
    rng = np.random.default_rng(seed)
    graph.add_edges_from((a, b) for a, b in rng.integers(n, size=(n, 2)).tolist() if a != b)
    return graph


def by_agents(consensus: PrivatePushSum, y: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """The estimates of agent objects that send each other messages, some of them lost."""
    network = consensus.network
    receivers = np.bincount(network.sources, minlength=network.n)
    agents = [
        PushSumAgent(str(i), float(y[i]), receivers=int(receivers[i])) for i in range(network.n)
    ]
    found = [[agent.estimate for agent in agents]]
    for row in lost:
        sent = [agent.send() for agent in agents]
        for link, gone in enumerate(row):
            if not gone:
                agents[network.targets[link]].hear(sent[network.sources[link]])
        found.append([agent.estimate for agent in agents])
    return np.array(found)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 8), seed=st.integers(0, 2**32 - 1), chance=st.floats(0, 0.8))
def test_agents_do_what_the_simulation_says(n: int, seed: int, chance: float) -> None:
    consensus = PrivatePushSum(one_way(n, seed), law="laplace", epsilon=1.0)
    rng = np.random.default_rng(seed)
    lost = rng.random((30, consensus.network.links_count)) < chance
    x0 = rng.normal(size=n) * 10
    run = consensus.run(x0, 30, seed=seed, lost=lost)
    estimates = by_agents(consensus, x0 + run.noise[0], lost)
    assert estimates == pytest.approx(run.estimates[0], rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 8), seed=st.integers(0, 2**32 - 1), chance=st.floats(0, 0.8))
def test_errors_are_those_of_the_linear_map(n: int, seed: int, chance: float) -> None:
    """Unit vectors through agent objects give the weights; the error follows from them."""
    consensus = PrivatePushSum(one_way(n, seed), law="gaussian", epsilon=0.7, delta=1e-3)
    rng = np.random.default_rng(seed)
    lost = rng.random((12, consensus.network.links_count)) < chance
    weights = np.stack([by_agents(consensus, unit, lost) for unit in np.eye(n)], axis=-1)
    x0 = rng.normal(size=n)
    for readout, own in (("message", 0.0), ("corrected", 1 / n)):
        noisy = weights - own * np.eye(n)
        bias = weights @ x0 - x0.mean()
        expected = (bias**2).sum(axis=1) + (noisy**2 @ consensus.sigma**2).sum(axis=1)
        found = consensus.mean_square_error(x0, 12, readout, lost=lost)
        assert found == pytest.approx(expected, rel=1e-9)


def test_losses_delay_and_destroy_nothing() -> None:
    consensus = PrivatePushSum(one_way(9, 4), law="gaussian", epsilon=1.0, delta=1e-6)
    x0 = np.arange(9.0)
    for lost in (None, 0.3, 0.7):
        error = consensus.mean_square_error(x0, 600, lost=lost, seed=2)
        assert error[-1] == pytest.approx(consensus.limit(), rel=1e-9)
        corrected = consensus.mean_square_error(x0, 600, "corrected", lost=lost, seed=2)
        assert corrected[-1] == pytest.approx(consensus.limit("corrected"), rel=1e-9)
    assert consensus.steps_to(1e-6) < consensus.steps_to(1e-6, lost=0.5, seed=0)


def test_plain_push_sum_ends_elsewhere_if_messages_are_lost() -> None:
    """Why sums of parts are sent and not parts: the counterexample of the docs."""
    network = directed_network_of(one_way(9, 4))
    rng = np.random.default_rng(1)
    held = np.column_stack([np.arange(9.0), np.ones(9)])
    for _ in range(400):
        part = network.shares[:, None] * held
        held = part.copy()
        arrives = rng.random(network.links_count) > 0.3
        np.add.at(held, network.targets[arrives], part[network.sources[arrives]])
    estimates = held[:, 0] / held[:, 1]
    assert np.ptp(estimates) < 1e-6
    assert abs(estimates[0] - 4.0) > 0.1


def test_masses_tell_nothing_about_values() -> None:
    consensus = PrivatePushSum(one_way(6, 1), law="gaussian", epsilon=1.0, delta=1e-6)
    lost = np.random.default_rng(0).random((50, consensus.network.links_count)) < 0.3
    masses = consensus.run(np.zeros(6), 50, lost=lost, seed=1).masses
    assert np.array_equal(masses, consensus.run(np.full(6, 1e6), 50, lost=lost, seed=2).masses)


def test_the_promise_is_that_of_one_release() -> None:
    consensus = PrivatePushSum(one_way(5, 2), law="gaussian", epsilon=1.0, delta=1e-6, mu=2.0)
    alone = AgentNoise(epsilon=1.0, delta=1e-6, mu=2.0).mechanism().guarantee
    assert consensus.guarantee.sensitivity == pytest.approx(alone.sensitivity, rel=1e-12)
    assert consensus.guarantee.unit == alone.unit
    assert consensus.guarantee.holds(1.0, 1e-6)
    assert "masses must start at 1" in consensus.guarantee.warnings[0]
    pure = PrivatePushSum(one_way(5, 2), law="laplace", epsilon={i: 1.0 + i for i in range(5)})
    assert pure.agent_guarantee(0).epsilon() == 1.0
    assert pure.guarantee.epsilon() == 5.0


def test_simulated_errors_agree_with_exact_ones() -> None:
    consensus = PrivatePushSum(one_way(7, 9), law="laplace", epsilon=0.5)
    x0 = np.arange(7.0)
    lost = np.random.default_rng(0).random((20, consensus.network.links_count)) < 0.4
    run = consensus.run(x0, 20, runs=20_000, seed=5, lost=lost)
    for readout in ("message", "corrected"):
        squares = run.squared_error(readout)
        off = squares.mean(axis=0) - consensus.mean_square_error(x0, 20, readout, lost=lost)
        assert np.all(np.abs(off) < 5 * squares.std(axis=0) / np.sqrt(20_000))


def test_an_agent_takes_late_and_repeated_messages() -> None:
    agent = PushSumAgent("a", 4.0, receivers=2)
    first, second = PushSumMessage("b", 1, 1.0, 0.5), PushSumMessage("b", 2, 3.0, 0.75)
    assert agent.hear(second)
    assert not agent.hear(first)
    assert not agent.hear(second)
    assert (agent.estimate, agent.mass) == (7.0 / 1.75, 1.75)
    assert not agent.hear(PushSumMessage("a", 9, 1.0, 1.0))
    for wrong in (PushSumMessage("b", 3, -1e308, 1.0), PushSumMessage("b", 3, 1.0, 0.0)):
        with pytest.raises(adp.AffineDPError, match="cannot be|started again"):
            PushSumAgent("a", -1e308, receivers=2).hear(wrong)
    with pytest.raises(adp.AffineDPError, match="started again"):
        agent.hear(PushSumMessage("b", 3, 0.1, 0.5))
    with pytest.raises(adp.AffineDPError, match="not known"):
        PushSumAgent("a", 4.0, 2, frozenset("b")).hear(PushSumMessage("c", 1, 1.0, 1.0))


@pytest.mark.parametrize(
    "words",
    [
        (b"b", 1, 1.0, 1.0),
        ("b", 1.5, 1.0, 1.0),
        ("b", -1, 1.0, 1.0),
        ("b", 1, float("nan"), 1.0),
        ("b", 1, 10**400, 1.0),
        ("b", 1, 1.0, "1"),
        ("b", 1, 1.0, -1.0),
    ],
)
def test_what_is_no_message(words: tuple) -> None:
    with pytest.raises(adp.AffineDPError):
        PushSumMessage(*words)
    with pytest.raises(adp.AffineDPError, match="hears a PushSumMessage"):
        PushSumAgent("a", 4.0, receivers=2).hear(words)


def test_an_agent_goes_on_where_it_was() -> None:
    agent = PushSumAgent("a", 4.0, receivers=2)
    agent.send()
    agent.hear(PushSumMessage("b", 1, 1.0, 0.5))
    again = pickle.loads(pickle.dumps(agent))
    assert (again.send(), again.estimate) == (agent.send(), agent.estimate)
    assert not again.hear(PushSumMessage("b", 1, 1.0, 0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"graph": nx.DiGraph([(0, 1), (1, 0), (1, 2)])}, "agent 2 holds never reaches"),
        ({"graph": np.ones((2, 3))}, "square"),
        ({"graph": nx.DiGraph([(0, 0)])}, "at least 2"),
        ({"epsilon": -1.0}, "negative"),
        ({"delta": 0.0}, "delta"),
        ({"names": ["a"]}, "leave names out"),
    ],
)
def test_bad_input_gets_an_error(change: dict, words: str) -> None:
    arguments = {"graph": one_way(4, 0), "law": "gaussian", "epsilon": 1.0, "delta": 0.1} | change
    with pytest.raises(adp.AffineDPError, match=words):
        PrivatePushSum(arguments.pop("graph"), **arguments)


def test_bad_losses_get_an_error() -> None:
    consensus = PrivatePushSum(one_way(4, 0), law="gaussian", epsilon=1.0, delta=0.1)
    for lost, words in (
        (1.0, "probability"),
        (10**400, "probability"),
        ([[True]], "one column"),
        (lambda t: [True], "round"),
    ):
        with pytest.raises(adp.AffineDPError, match=words):
            consensus.mean_square_error(np.zeros(4), 5, lost=lost)
    with pytest.raises(adp.AffineDPError, match="readout"):
        consensus.mean_square_error(np.zeros(4), 5, "state")
    with pytest.raises(adp.AffineDPError, match="steps"):
        consensus.run(np.zeros(4), -1)
    for factor in (0.0, float("nan")):
        with pytest.raises(adp.AffineDPError, match="factor"):
            consensus.steps_to(factor)


def test_every_kind_of_graph_is_read_alike() -> None:
    graph = one_way(5, 3)
    matrix = nx.to_scipy_sparse_array(graph)
    networks = [directed_network_of(given) for given in (graph, matrix, matrix.toarray())]
    for a, b in itertools.pairwise(networks):
        assert np.array_equal(a.sources, b.sources)
        assert np.array_equal(a.targets, b.targets)
    both_ways = directed_network_of(nx.path_graph(3))
    assert both_ways.links_count == 4


def test_steps_to_holds_from_then_on_whatever_arrives_late() -> None:
    """A link that works late brings old parts, which nobody has seen: they count, too."""
    n, until = 100, 200
    ring = [(i, (i + 1) % n) for i in range(n)] + [(i, (i + n // 2) % n) for i in range(n)]
    other = [(i, (i * i + 7 * i + 3) % n) for i in range(n)]
    consensus = PrivatePushSum(nx.DiGraph(ring + other), law="laplace", epsilon=1.0)

    def lost(t: int) -> np.ndarray:
        return (np.arange(consensus.network.links_count) == 0) & (t < until)

    reached = consensus.steps_to(0.02, lost=lost)
    rounds = Rounds(consensus.network, losses_of(lost, consensus.network, None))
    weights = list(itertools.islice(rounds.follow(np.eye(n)), reached + 51))
    farthest = [np.abs(at - 1 / n).sum(axis=1).max() for at in weights]
    assert max(farthest[reached:]) <= 0.02
    assert max(farthest[until:]) > 0.02  # which a look at the agents alone would have missed


def test_who_never_hears_does_not_vanish() -> None:
    consensus = PrivatePushSum([[0, 1], [1, 0]], law="laplace", epsilon=1.0)
    error = consensus.mean_square_error(
        [1.0, 2.0], 3000, lost=lambda t: np.array([False, t < 2900])
    )
    assert np.isfinite(error).all()
    assert error[-1] == pytest.approx(consensus.limit(), rel=1e-9)
    one, two = PushSumAgent("1", 5.0, 1), PushSumAgent("2", 7.0, 1)
    for _ in range(3000):
        two.hear(one.send())
        two.send()
    assert (one.estimate, one.mass > 0) == (5.0, True)
    for _ in range(100):
        sent = one.send(), two.send()
        one.hear(sent[1])
        two.hear(sent[0])
    assert (one.estimate, two.estimate) == pytest.approx((6.0, 6.0))


def test_runs_and_errors_of_one_seed_lose_the_same_messages() -> None:
    consensus = PrivatePushSum(nx.cycle_graph(5), law="gaussian", sigma=1e-9)
    x0 = np.arange(5.0)
    run = consensus.run(x0, 20, seed=3, lost=0.5)
    exact = consensus.mean_square_error(x0, 20, seed=3, lost=0.5)
    assert run.squared_error()[0] == pytest.approx(exact, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_intervals_of_the_result_cover_the_average_that_any_agent_settles_at(law: str) -> None:
    """With lost messages, too: 400 seeded runs of one agent's estimate after it has settled."""
    consensus = PrivatePushSum(one_way(8, 3), law=law, sigma=np.linspace(0.5, 3.0, 8))
    x0 = np.linspace(2.0, 9.0, 8)
    settled = consensus.run(x0, 300, runs=400, seed=1, lost=0.1).estimates[:, -1, 2]
    result = consensus.result
    for found in (
        [result.interval([one], level=0.9) for one in settled.tolist()],
        [result.function([one], "average", level=0.9) for one in settled.tolist()],
    ):
        ends = np.array([np.ravel(tuple(one)) for one in found])
        hits = int(((ends[:, 0] <= x0.mean()) & (x0.mean() <= ends[:, 1])).sum())
        assert stats.binom.cdf(hits, 400, 0.9) > 1e-6
        assert stats.binom.sf(hits, 400, 0.95) > 1e-6
