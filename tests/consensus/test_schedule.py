"""Weights that change and agents that are away: the average is kept, and so is the promise."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import affinedp as adp
from affinedp.consensus import PrivateConsensus
from affinedp.consensus import schedule as schedule_module
from affinedp.errors import AffineDPError

RING = nx.cycle_graph(["a", "b", "c", "d", "e", "f"])
X0 = np.array([5.0, -2.0, 0.0, 8.0, 1.0, 3.0])
STEPS = 10


def made(**settings):
    return PrivateConsensus(RING, law="gaussian", **(settings or {"sigma": [1, 2, 1, 0.5, 1, 1]}))


def matrix(weights):
    """P of one step, from a dense weight matrix."""
    return np.eye(len(weights)) - np.diag(weights.sum(axis=1)) + weights


def gossip(t):
    """Two neighbours meet; everyone else rests."""
    weights = np.zeros((6, 6))
    i, j = t % 6, (t + 1) % 6
    weights[i, j] = weights[j, i] = 0.5
    return weights


def without(weights, away):
    kept = weights.copy()
    kept[away, :] = 0
    kept[:, away] = 0
    return kept


def brute_force(factors, consensus, x0, share):
    """Mean squares from the products of all matrices."""
    Q, found = np.eye(consensus.n), []
    for factor in [np.eye(consensus.n), *factors]:
        Q = factor @ Q
        noise = (Q - share * np.eye(consensus.n)) * consensus.sigma
        found.append(((Q @ x0 - x0.mean()) ** 2).sum() + (noise**2).sum())
    return np.array(found)


@given(
    st.integers(0, 10**6), st.sampled_from([("state", 1.0), ("message", 0.0), ("corrected", 1 / 6)])
)
@settings(max_examples=12)
def test_absences_and_weights_against_brute_force(seed, readout):
    generator = np.random.default_rng(seed)
    consensus = made()
    away = generator.random((STEPS, 6)) < 0.3
    weights = [np.triu(generator.uniform(0, 0.2, (6, 6)), 1) for _ in range(STEPS)]
    weights = [upper + upper.T for upper in weights]
    base = consensus.weights.toarray()
    for given_weights, used in ((None, [base] * STEPS), (weights, weights)):
        factors = [matrix(without(w, a)) for w, a in zip(used, away)]
        schedule = consensus.schedule(given_weights, away)
        wanted = brute_force(factors, consensus, X0, readout[1])
        curve = consensus.mean_square_error(X0, STEPS, readout[0], schedule=schedule)
        assert curve.exact
        assert_allclose(curve, wanted, rtol=1e-10, atol=1e-10)
        run = consensus.run(X0, STEPS, 3, seed=seed, schedule=schedule)
        y = X0 + run.noise
        for t, factor in enumerate(factors):
            y = y @ factor.T
            assert_allclose(run.messages[:, t + 1], y, atol=1e-11)
        assert_allclose(run.states.mean(axis=2), X0.mean(), atol=1e-12)
        mean = consensus.mean_error(X0, STEPS, schedule=schedule)
        Q = np.linalg.multi_dot([np.eye(6), *factors[::-1]])
        assert_allclose(mean[-1], Q @ X0 - X0.mean(), atol=1e-11)


def test_estimate_with_a_schedule():
    consensus = made()
    schedule = consensus.schedule(away={"b": range(2, 5)})
    exact = consensus.mean_square_error(X0, STEPS, schedule=schedule)
    estimate = consensus.mean_square_error(
        X0, STEPS, schedule=schedule, method="estimate", probes=400, confidence=0.9999
    )
    assert not estimate.exact
    assert np.all((estimate.low <= exact.values + 1e-9) & (exact.values <= estimate.high + 1e-9))


def test_an_absent_agent_keeps_its_state_and_returns():
    consensus = made()
    run = consensus.run(X0, 400, seed=1, schedule=consensus.schedule(away={"c": range(50)}))
    assert np.all(run.states[0, :51, 2] == run.states[0, 0, 2])
    assert run.states[0, 51, 2] != run.states[0, 0, 2]
    # everyone ends where they would have ended anyway
    plain = consensus.run(X0, 400, seed=1)
    assert_allclose(run.states[0, -1], plain.states[0, -1], atol=1e-9)


def test_gossip_reaches_the_average():
    consensus = made()
    run = consensus.run(X0, 300, 2, seed=1, schedule=gossip)
    assert_allclose(run.messages[:, -1], (X0 + run.noise).mean(axis=1)[:, None] * np.ones(6))
    schedule = consensus.schedule(gossip)
    assert not schedule.connects(8)
    assert schedule.connects(9)
    assert not consensus.schedule(gossip, away={"a": range(100)}).connects(60)
    # "a" comes back at step 2 and needs three steps to "d", on the other side
    assert consensus.schedule(away={"a": [0, 1]}).connects(5)
    assert not consensus.schedule(away={"a": [0, 1]}).connects(4)


def test_news_does_not_go_back_in_time():
    """Links 0–1 and then 1–2 carry no news of 2 to 0."""
    path = PrivateConsensus(nx.path_graph(3), law="laplace", epsilon=1.0)
    first, second = np.zeros((3, 3)), np.zeros((3, 3))
    first[0, 1] = first[1, 0] = second[1, 2] = second[2, 1] = 0.5
    assert not path.schedule([first, second]).connects(2)
    assert path.schedule([first, second, first]).connects(3)
    for steps in (-1, 1.0, True):
        with pytest.raises(AffineDPError, match="whole number"):
            path.schedule([first]).connects(steps)
    assert not path.schedule([]).connects(0)


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_connects_against_journeys(seed):
    """An oracle that walks from each agent, link by link in the order of time."""
    generator = np.random.default_rng(seed)
    n, steps = int(generator.integers(2, 13)), int(generator.integers(0, 12))
    whole = PrivateConsensus(nx.complete_graph(n), law="laplace", epsilon=1.0)
    layers, away = [], generator.random((steps, n)) < 0.1
    for _ in range(steps):
        weights = np.triu(generator.random((n, n)) < 1.2 / n, 1) * (0.5 / n)
        layers.append(weights + weights.T)
    reached = True
    for source in range(n):
        informed = {source}
        for layer, absent in zip(layers, away):
            informed |= {
                int(j)
                for i in informed
                if not absent[i]
                for j in np.flatnonzero(layer[i])
                if not absent[j]
            }
        reached &= len(informed) == n
    assert whole.schedule(layers, away=away).connects(steps) == reached


def test_connects_in_parts(monkeypatch):
    """Sources that go through one after the other give the same answer."""
    ring = PrivateConsensus(nx.cycle_graph(40), law="laplace", epsilon=1.0)
    for bits in (1, 9 * 120, 1 << 28):
        monkeypatch.setattr(schedule_module, "BITS_AT_ONCE", bits)
        assert ring.schedule().connects(20)
        assert not ring.schedule().connects(19)


def test_weights_in_many_forms():
    consensus = made()
    wanted = consensus.run(X0, 3, seed=1, schedule=[gossip(t) for t in range(3)]).messages
    for weights in (
        [sparse.csr_array(gossip(t)) for t in range(5)],
        tuple(gossip(t) for t in range(3)),
        [nx.relabel_nodes(nx.Graph(gossip(t)), dict(enumerate("abcdef"))) for t in range(3)],
    ):
        assert_allclose(consensus.run(X0, 3, seed=1, schedule=weights).messages, wanted)
    # nodes in another order
    shuffled = nx.Graph()
    shuffled.add_nodes_from("fbdace")
    shuffled.add_edge("b", "a", weight=0.5)
    one = consensus.run(X0, 1, seed=1, schedule=[shuffled]).messages
    assert_allclose(one[0, 1], wanted[0, 1])
    # a step on which nobody hears anybody
    quiet = consensus.run(X0, 1, seed=1, schedule=[nx.empty_graph(list("abcdef"))]).messages
    assert_allclose(quiet[0, 1], quiet[0, 0])


def test_promise_with_a_schedule_is_that_of_verify():
    """Given the messages, u(t) is public for any public weights: the same equations."""
    consensus = made()
    steps = 4
    rows = np.zeros((6 * (steps - 1), 6 * steps))
    for agent in range(6):
        for t in range(steps - 1):
            rows[agent * (steps - 1) + t, agent * steps + t : agent * steps + t + 2] = 1, -1
    run = consensus.run(X0, steps - 1, seed=3, schedule=gossip)
    # b = u, from messages and weights alone
    u = np.array([(matrix(gossip(t)) - np.eye(6)) @ run.messages[0, t] for t in range(steps - 1)])
    manifold = adp.AffineManifold(rows, u.T.ravel())
    assert manifold.contains(run.states[0].T.ravel())
    noise = np.kron(np.diag(consensus.sigma), np.ones((steps, 1)))
    found = adp.verify(manifold, noise)
    assert_allclose(found.sensitivity, consensus.guarantee.sensitivity, rtol=1e-12)


def test_what_is_refused():
    consensus = made()
    one_way = gossip(0)
    one_way[0, 1] = 0.4
    growing = gossip(0) * 5
    smaller = np.zeros((5, 5))
    other = nx.cycle_graph(6)
    for weights, what in [
        ([one_way], "step 0 of the schedule: the weights are not symmetric: [01] hears [01]"),
        ([gossip(0), -gossip(1)], "step 1 of the schedule.*negative"),
        ([gossip(0), gossip(1) * np.nan], "step 1.*finite"),
        ([growing], "differences would grow"),
        ([smaller], "for 5 agents, but there are 6"),
        ([other], "other agents.*make a new PrivateConsensus"),
        ([nx.DiGraph(RING)], "directed graph does not keep the average"),
        ([gossip(0)], "weights for 1 steps; step 1 has none"),
        ([None, gossip(0)], "step 0"),
        ("metropolis", "step 0"),
        (7, "list of matrices"),
    ]:
        with pytest.raises(AffineDPError, match=what):
            consensus.run(X0, 2, schedule=weights)


def test_absences_that_are_refused():
    consensus = made()
    for away, what in [
        ({"z": [1]}, "no agent 'z'"),
        ({"a": [0.5]}, "'a' is away must be whole"),
        ({"a": 3}, "'a' is away must be whole"),
        (np.zeros((3, 6)), "bool array"),
        (np.zeros((3, 5), dtype=bool), "bool array"),
        ([True], "bool array"),
    ]:
        with pytest.raises(AffineDPError, match=what):
            consensus.schedule(away=away)
    short = consensus.schedule(away=np.zeros((2, 6), dtype=bool))
    with pytest.raises(AffineDPError, match="away covers 2 steps, and step 2"):
        consensus.run(X0, 3, schedule=short)
    with pytest.raises(AffineDPError, match="another network"):
        made(sigma=1.0).run(X0, 3, schedule=short)


def test_weights_that_swap_are_not_growing():
    """λ_n = 2 at single steps is allowed: two agents exchange their messages."""
    consensus = made()
    swap = gossip(0) * 2
    run = consensus.run(X0, 2, seed=0, schedule=[swap, swap])
    assert_allclose(run.messages[0, 2], run.messages[0, 0], atol=1e-12)
