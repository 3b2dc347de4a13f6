"""Runs: against the protocol as agents would do it, and what may be shown of them."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from affinedp.consensus import PrivateConsensus
from affinedp.consensus import runs as simulation_module
from affinedp.consensus import schedule as schedule_module
from affinedp.errors import AffineDPError

GRAPH = nx.karate_club_graph()
X0 = np.linspace(-5, 5, 34)


def made(**settings):
    graph = nx.Graph(GRAPH.edges)
    graph = nx.Graph()
    graph.add_nodes_from(range(34))
    graph.add_edges_from(GRAPH.edges)
    return PrivateConsensus(graph, law="laplace", **(settings or {"epsilon": 0.5}))


def agents_by_hand(consensus, x0, gamma, steps):
    """Every agent adds up what it hears, one after the other."""
    weights = consensus.weights.toarray()
    state = list(x0)
    states, messages = [], []
    for _ in range(steps + 1):
        sent = [state[i] + gamma[i] for i in range(len(state))]
        states.append(list(state))
        messages.append(sent)
        state = [
            state[i] + sum(weights[i, j] * (sent[j] - sent[i]) for j in range(len(state)))
            for i in range(len(state))
        ]
    return np.array(states), np.array(messages)


def test_runs_are_the_protocol():
    consensus = made()
    run = consensus.run(X0, 15, 20, seed=4)
    assert run.states.shape == run.messages.shape == (20, 16, 34)
    for i in (0, 19):
        states, messages = agents_by_hand(consensus, X0, run.noise[i], 15)
        assert_allclose(run.states[i], states, atol=1e-11)
        assert_allclose(run.messages[i], messages, atol=1e-11)
    # the average is kept, and so is the draw of each agent
    assert_allclose(run.states.mean(axis=2), X0.mean(), atol=1e-12)
    assert_allclose(run.messages - run.states, np.broadcast_to(run.noise[:, None], (20, 16, 34)))
    assert_allclose(run.readout("corrected"), run.messages - run.noise[:, None] / 34)


def test_what_is_kept():
    consensus = made()
    everything = consensus.run(X0, 9, 37, seed=1)
    last = consensus.run(X0, 9, 37, seed=1, keep="last")
    errors = consensus.run(X0, 9, 37, seed=1, keep="errors")
    assert last.messages.shape == (37, 1, 34)
    assert last.times.tolist() == [9]
    assert_array_equal(last.messages[:, 0], everything.messages[:, -1])
    for readout in ("state", "message", "corrected"):
        wanted = ((everything.readout(readout) - X0.mean()) ** 2).sum(axis=2)
        assert_allclose(everything.squared_error(readout), wanted, rtol=1e-12)
        assert_allclose(errors.squared_error(readout), wanted, rtol=1e-11)
        assert_allclose(last.squared_error(readout)[:, 0], wanted[:, -1], rtol=1e-12)
    assert errors.noise is None
    with pytest.raises(AffineDPError, match="only errors were kept"):
        _ = errors.messages
    with pytest.raises(AffineDPError, match="only errors were kept"):
        _ = errors.states


def test_errors_survive_enormous_noise():
    consensus = PrivateConsensus(nx.path_graph(5), law="gaussian", sigma=1e9)
    run = consensus.run([1.0] * 5, 0, 40, seed=0, keep="errors")
    # x0 + γ − γ loses what γ's roundings take, and nothing more
    assert run.squared_error("state").max() < 5 * (5e9 * 1e-15) ** 2


def test_a_seed_gives_the_same_run_however_it_is_batched(monkeypatch):
    consensus = made()
    wanted = consensus.run(X0, 5, 33, seed=9).messages
    monkeypatch.setattr(simulation_module, "RUNS_AT_ONCE", 5)
    assert_allclose(consensus.run(X0, 5, 33, seed=9).messages, wanted, atol=1e-12)
    first = consensus.run(X0, 5, 1, seed=9).messages
    assert_allclose(first[0], wanted[0], atol=1e-12)
    streams = [np.random.default_rng(9), np.random.SeedSequence(9)]
    found = [consensus.run(X0, 5, 33, seed=stream).messages for stream in streams]
    assert_allclose(found[0], found[1], atol=1e-12)
    # values that a user drew with the same number must not be the noise
    assert not np.allclose(found[0], wanted)
    assert not np.allclose(consensus.run(X0, 5, 33, seed=10).messages, wanted)
    assert not np.allclose(consensus.run(X0, 5).messages, consensus.run(X0, 5).messages)


def test_ordering_the_agents_changes_nothing(monkeypatch):
    consensus = made()
    wanted = {
        keep: consensus.run(X0, 8, 21, seed=3, keep=keep) for keep in ("all", "last", "errors")
    }
    curve = consensus.mean_square_error(X0, 8, method="estimate", seed=1)
    monkeypatch.setattr(schedule_module, "ORDERED_AGENTS", 0)
    monkeypatch.setattr(schedule_module, "ORDERED_PRODUCTS", 0)
    again = made()
    for keep, run in wanted.items():
        found = again.run(X0, 8, 21, seed=3, keep=keep)
        for readout in ("state", "message", "corrected"):
            assert_allclose(found.squared_error(readout), run.squared_error(readout), rtol=1e-11)
        if keep != "errors":
            assert_allclose(found.messages, run.messages, atol=1e-11)
            assert_array_equal(found.noise, run.noise)
    single = again.run(X0, 8, 1, seed=3).messages
    assert_allclose(single[0], wanted["all"].messages[0], atol=1e-11)
    ordered = again.mean_square_error(X0, 8, method="estimate", seed=1)
    assert_allclose(ordered, curve.values, rtol=1e-10)
    assert again.network.ordered[0].indices.dtype == np.int32


def test_nothing_of_a_simulation_is_published():
    run = made().run(X0, 3, 2, seed=0)
    assert run.overheard is run.messages
    for refused in (run.publish, run.release):
        with pytest.raises(AffineDPError, match="simulated message must not"):
            refused()
        with pytest.raises(AffineDPError, match="readout must be"):
            refused("states")
    for readout in ("state", "corrected"):
        with pytest.raises(AffineDPError, match="reveals x_i"):
            run.publish(readout)
        with pytest.raises(AffineDPError, match="Publish the message"):
            run.release(readout)


def test_why_states_must_not_be_published():
    """The attack that the guard prevents, on either private read-out."""
    run = made().run(X0, 6, seed=0)
    gamma = run.messages[0, -1] - run.states[0, -1]
    assert_allclose(run.messages[0, 0] - gamma, X0, atol=1e-12)
    gamma = 34 * (run.messages[0, -1] - run.readout("corrected")[0, -1])
    assert_allclose(run.messages[0, 0] - gamma, X0, atol=1e-11)


def test_standard_errors():
    run = made().run(X0, 2, 50, seed=1)
    mean, error = run.mean_square_error("message")
    squares = run.squared_error("message")
    assert_allclose(mean, squares.mean(axis=0))
    assert_allclose(error, squares.std(axis=0, ddof=1) / 50**0.5)
    assert np.isnan(made().run(X0, 2).mean_square_error()[1]).all()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"steps": -1}, "steps must be"),
        ({"steps": 2.0}, "steps must be"),
        ({"runs": 0}, "runs must be"),
        ({"keep": "none"}, "keep must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": "a"}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"x0": X0[:3]}, "34 agents"),
        ({"x0": {0: 1.0}}, "x0 is missing"),
        ({"x0": "abc"}, "one value"),
        ({"runs": 10**6, "steps": 10**4}, "keep='last'"),
        ({"runs": 10**400}, "too many numbers"),
        ({"steps": 10**400}, "too many numbers"),
        ({"steps": 10**400, "keep": "errors"}, "too many numbers"),
    ],
)
def test_refusals(arguments, what):
    with pytest.raises(AffineDPError, match=what):
        made().run(**{"x0": X0, "steps": 3} | arguments)


def test_squares_beyond_double_precision():
    huge = np.asarray(X0, dtype=float) * 1e200
    run = made().run(huge, 3, 2, seed=0)
    with pytest.raises(AffineDPError, match="another unit"):
        run.squared_error()
    with pytest.raises(AffineDPError, match="another unit"):
        made().run(huge, 3, 2, seed=0, keep="errors")
