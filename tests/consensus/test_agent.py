"""One agent without a network: what it says, what it refuses, what it tells its owner."""

import copy
import math
import sqlite3
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.audit.trial import audit
from affinedp.consensus.agent import (
    Agent,
    AgentMessage,
    checked_name,
    checked_weights,
    next_message,
    read_state,
)
from affinedp.consensus.one_draw import AgentNoise
from affinedp.errors import AffineDPError
from agents import transition

NOISE = AgentNoise(sigma=2.5)


@pytest.fixture
def agent(tmp_path):
    """Agent 3 between 1 and 5."""
    with Agent(
        "3", {"1": 0.25, "5": 0.25}, state=tmp_path / "3.db", value=20.0, noise=NOISE
    ) as opened:
        yield opened


def said(name, t, y, previous=None, weight=0.25, run=1):
    """A message to agent 3."""
    before = previous if t else None
    return AgentMessage(name, "3", run, t, None, y, before, weight)


# ---------------------------------------------------------------------- the rounds


def test_a_round(agent):
    first = agent.message_to("1")
    assert (first.run, first.round, first.previous, first.weight) == (1, 0, None, 0.25)
    assert (agent.message_to("5").y, agent.message_to("5").to) == (first.y, "5")
    assert agent.missing == ("1", "5")
    assert agent.hear(said("1", 0, 4.0)) == "new"
    assert agent.missing == ("5",)
    assert not agent.advance()
    assert agent.hear(said("1", 0, 4.0)) == "repeated"
    assert agent.hear(said("1", 1, 5.0, 4.0)) == "new", "a neighbour may be ahead by one"
    assert agent.hear(said("5", 1, 7.0, 8.0)) == "new", "its first message was lost"
    assert agent.advance()
    second = agent.message_to("1")
    assert second.round == 1
    assert second.previous == first.y
    assert second.y == next_message(first.y, {"1": 4.0, "5": 8.0}, agent.weights)
    assert agent.hear(said("1", 0, 4.0)) == "late"
    assert agent.hear(first) == "own"
    assert agent.advance(), "both were heard in round 1"
    assert not agent.advance()
    assert agent.round == 2
    assert agent.all_reached(1)
    assert not agent.all_reached(2)


def test_it_goes_on_where_it_was(agent, tmp_path):
    for t in range(3):
        for name in ("1", "5"):
            agent.hear(said(name, t, 4.0 + t, 3.0 + t))
        agent.advance()
    before, state = agent.message_to("1"), agent.readout("state")
    agent.close()
    with read_state(tmp_path / "3.db") as again:
        assert again.message_to("1") == before
        assert again.readout("state") == state
        assert again.missing == ("1", "5")
        with pytest.raises(AffineDPError, match="agent '1' said 5.0 in round 1"):
            again.hear(said("1", 1, 5.5, 4.0))


@pytest.mark.parametrize(
    "contradiction",
    [
        said("1", 0, 4.5),
        said("1", 1, 5.5, 4.0),
        said("1", 1, 5.0, 4.5),
        said("1", 2, 6.0, 5.5),
        said("5", 2, 6.0, 5.5),
    ],
)
def test_contradictions(agent, contradiction):
    for message in (said("1", 0, 4.0), said("5", 0, 8.0)):
        agent.hear(message)
    agent.advance()
    for message in (said("1", 1, 5.0, 4.0), said("5", 1, 7.0, 8.0)):
        agent.hear(message)
    with pytest.raises(AffineDPError, match=f"agent '{contradiction.agent}' said.*lost its state"):
        agent.hear(contradiction)


@pytest.mark.parametrize("wrong", [None, True, "1", b"1", [1], 1j, math.nan, -1, 10**400])
@pytest.mark.parametrize("what", ["agent", "to", "run", "round", "rounds", "y", "weight"])
def test_what_is_no_message(agent, what, wrong):
    words = {"agent": "1", "to": "3", "run": 1, "round": 1, "y": 4.0, "previous": 5.0}
    words |= {"rounds": None, "weight": 0.25, what: wrong}
    if (what, wrong) in [("agent", "1"), ("rounds", None)]:
        return
    with pytest.raises(AffineDPError):
        agent.hear(AgentMessage(**words))
    with pytest.raises(AffineDPError):
        agent.hear(wrong)
    assert agent.missing == ("1", "5")


def test_a_message_before_the_first(agent):
    with pytest.raises(AffineDPError, match="before that of round 0"):
        AgentMessage("1", "3", 1, 0, None, 4.0, 5.0, 0.25)


@pytest.mark.parametrize(
    "wrong", [{"noise": 1.0}, {"state": 3}, {"rerun": "no"}, {"label": 0}, {"run": True}]
)
def test_wrong_types(tmp_path, wrong):
    settings = {"state": tmp_path / "4.db", "value": 1.0, "noise": NOISE} | wrong
    with pytest.raises(AffineDPError):
        Agent("4", {"1": 0.25}, **settings)
    assert not list(tmp_path.iterdir())


def test_a_neighbour_that_is_too_far(agent):
    with pytest.raises(AffineDPError, match="cannot reach"):
        agent.hear(said("1", 2, 1.0, 1.0))


@pytest.mark.parametrize(
    "change", [{"y": 0.125}, {"round": 1, "previous": 0.0}, {"round": 7, "previous": 0.0}]
)
def test_someone_else_under_our_name(agent, change):
    forged = AgentMessage(**{**vars(agent.message_to("1")), **change})
    with pytest.raises(AffineDPError, match="as agent '3'"):
        agent.hear(forged)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (said("1", 0, 1.0, weight=0.2), "uses the weight 0.25 .* which uses 0.2"),
        (
            said("1", 0, 1.0, weight=0.0),
            "agent '1', which uses 0.0 .0 without a link",
        ),
        (said("7", 0, 1.0), "uses the weight 0.0 for its link with agent '7'"),
    ],
)
def test_asymmetric_links(agent, message, words):
    with pytest.raises(AffineDPError, match=words):
        agent.hear(message)


def test_a_poisoned_run_begins_again_for_free(agent, tmp_path):
    """A forged message was recorded; the same first message, another run, and it goes on."""
    first = agent.y
    for message in (said("1", 0, 1e6), said("5", 0, 8.0)):  # the first is forged
        agent.hear(message)
    agent.advance()
    with pytest.raises(AffineDPError, match="costs nothing"):
        agent.hear(said("1", 0, 4.0))
    agent.close()
    settings = {"state": tmp_path / "3.db"}
    with Agent("3", {"1": 0.25, "5": 0.25}, **settings) as poisoned:
        assert poisoned.round == 1
        with pytest.raises(AffineDPError):
            poisoned.hear(said("1", 0, 4.0))
    with Agent("3", {"1": 0.25, "5": 0.25}, rerun=True, **settings) as again:
        assert (again.run, again.round, again.y) == (2, 0, first)
        assert again.hear(said("1", 0, 4.0)) == "of an earlier run"
        for message in (said("1", 0, 4.0, run=2), said("5", 0, 8.0, run=2)):
            assert again.hear(message) == "new"
        assert again.advance()
        assert again.y == next_message(first, {"1": 4.0, "5": 8.0}, again.weights)
        assert again.message_to("1").run == 2
        with pytest.raises(AffineDPError, match="'1' is in run 4, this one in run 2.*--run 4"):
            again.hear(said("1", 0, 4.0, run=4))
    with Agent("3", {"1": 0.25, "5": 0.25}, run=2, **settings) as same:
        assert (same.run, same.round) == (2, 1)
    with Agent("3", {"1": 0.25, "5": 0.25}, run=4, **settings) as other:
        assert (other.run, other.round, other.y) == (4, 0, first)
    for wrong in ({"run": 0}, {"run": 1.0}, {"run": True}, {"run": 2, "rerun": True}):
        with pytest.raises(AffineDPError, match="whole number from 1 on"):
            Agent("3", {"1": 0.25, "5": 0.25}, **settings, **wrong)


def test_a_first_run_that_is_called_a_rerun(tmp_path):
    settings = {"state": tmp_path / "3.db", "value": 1.0, "noise": NOISE}
    with Agent("3", {"1": 0.25}, rerun=True, **settings) as agent:
        assert (agent.run, agent.round) == (1, 0)


def test_the_rounds_of_a_poisoned_state_are_gone_with_the_run(agent, tmp_path):
    """Also if what it recorded was altered: the draw has a seal of its own."""
    agent.hear(said("1", 0, 4.0))
    agent.hear(said("5", 0, 8.0))
    agent.advance()
    first = agent._own(0)
    agent.close()
    with sqlite3.connect(tmp_path / "3.db") as connection:
        connection.execute("UPDATE sent SET outputs = x'00'")
    connection.close()
    with pytest.raises(AffineDPError, match="altered"):
        read_state(tmp_path / "3.db")
    with Agent("3", {"1": 0.25, "5": 0.25}, state=tmp_path / "3.db", rerun=True) as again:
        assert again.y == first


LINKS = {
    "a": {"b": 0.25, "c": 0.3},
    "b": {"a": 0.25, "c": 0.45, "d": 0.2},
    "c": {"a": 0.3, "b": 0.45},
    "d": {"b": 0.2},
}
ROUNDS = 4


@settings(max_examples=8)
@given(data=st.data())
def test_any_order_any_loss_any_restart(data, tmp_path_factory):
    """Messages come in any order, several times or never, agents die: P^t y(0) all the same."""
    folder = tmp_path_factory.mktemp("agents")
    values = dict(zip(LINKS, (10.0, -3.0, 0.0, 1e3)))

    def opened(name, **more):
        return stack.enter_context(
            Agent(name, LINKS[name], state=folder / name, noise=NOISE, **more)
        )

    with ExitStack() as stack:
        agents = {name: opened(name, value=value) for name, value in values.items()}
        ever = {(name, 0): {agent.y} for name, agent in agents.items()}

        def deliver(message, name):
            agents[name].hear(message)
            while agents[name].round < ROUNDS and agents[name].advance():
                sent.extend(letters(name))
                ever.setdefault((name, agents[name].round), set()).add(agents[name].y)

        def letters(name):
            return [agents[name].message_to(other) for other in LINKS[name]]

        sent = [message for name in LINKS for message in letters(name)]
        for _ in range(data.draw(st.integers(0, 60))):
            if data.draw(st.integers(0, 9)) == 0:
                name = data.draw(st.sampled_from(list(LINKS)))
                agents[name].close()
                agents[name] = opened(name)
                ever[name, agents[name].round].add(agents[name].y)
                continue
            message = data.draw(st.sampled_from(sent))
            deliver(message, message.to)
        while any(agent.round < ROUNDS for agent in agents.values()):  # everyone says it again
            for message in [message for name in LINKS for message in letters(name)]:
                deliver(message, message.to)
        assert all(len(values) == 1 for values in ever.values())
        start = np.array([ever[name, 0].copy().pop() for name in LINKS])
        for t in range(ROUNDS + 1):
            found = [ever[name, t].copy().pop() for name in LINKS]
            expected = np.linalg.matrix_power(transition(LINKS), t) @ start
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)
        states = [agent.readout("state") for agent in agents.values()]
        assert np.mean(states) == pytest.approx(np.mean(list(values.values())), abs=1e-9)
        corrected = [agent.readout("corrected", len(LINKS)) for agent in agents.values()]
        draws = start - list(values.values())
        shared = np.mean(list(values.values())) + (1 - 1 / len(LINKS)) * np.mean(draws)
        assert np.mean(corrected) == pytest.approx(shared, abs=1e-9)


# ---------------------------------------------------------------------- the promise


@pytest.mark.parametrize(
    ("noise", "epsilon", "delta", "scale"),
    [
        (AgentNoise(epsilon=1.0, delta=0.01), 1.0, 0.01, 1.8778755),
        (AgentNoise(epsilon=1.0, delta=0.01, mu=10.0), 1.0, 0.01, 18.778755),
        (AgentNoise("laplace", epsilon=0.5, mu=2.0), 0.5, 0.0, 4.0),
        (AgentNoise("laplace", sigma=4.0, mu=2.0), 0.5, 0.0, 4.0),
        (AgentNoise(sigma=1.8778756), 1.0, 0.01, 1.8778756),
    ],
)
def test_noise(noise, epsilon, delta, scale):
    mechanism = noise.mechanism()
    assert noise.scale == pytest.approx(scale, rel=1e-6)
    assert mechanism.guarantee.holds(epsilon, delta)
    assert not mechanism.guarantee.holds(0.999 * epsilon, delta)


@pytest.mark.parametrize(
    "given",
    [
        {"law": "cauchy", "epsilon": 1.0},
        {},
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": -1.0, "delta": 0.1},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": math.nan, "delta": 0.1},
        {"epsilon": "1", "delta": 0.1},
        {"epsilon": 1.0, "delta": 0.1, "mu": 0.0},
        {"epsilon": 1.0, "delta": 0.1, "mu": math.inf},
        {"epsilon": 1.0, "delta": 0.1, "sigma": 1.0},
        {"delta": 0.1, "sigma": 1.0},
        {"sigma": 0.0},
        {"sigma": True},
        {"law": "laplace", "epsilon": 0.0},
        {"law": "laplace", "epsilon": 1.0, "delta": 0.1},
    ],
)
def test_noise_that_makes_no_sense(given):
    with pytest.raises(AffineDPError):
        AgentNoise(**given).mechanism()


def test_guarantee(agent):
    promise = agent.guarantee
    assert promise.sensitivity == pytest.approx(0.4)
    assert any("reveals the draw" in warning for warning in promise.warnings)
    assert any("no ledger" in warning for warning in promise.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_attack_on_first_messages(law):
    """Later messages follow from first ones, so these are all there is to attack."""
    delta = 0.01 if law == "gaussian" else 0.0
    mechanism = AgentNoise(law, epsilon=1.0, delta=delta or None).mechanism()
    found = audit(mechanism, claim=(1.0, delta), runs=4_000, confidence=1 - 1e-6)
    assert found.passed, str(found)
    # an agent that draws again at every restart would be found out
    restarted = audit(
        mechanism,
        claim=(1.0, delta),
        release=lambda x: np.mean([mechanism.release(x) for _ in range(12)], axis=0),
        runs=4_000,
        confidence=1 - 1e-6,
    )
    assert not restarted.passed


# ---------------------------------------------------------------------- owners and mistakes


def test_readouts(agent):
    value, first = 20.0, agent.y
    assert agent.readout("message") == first
    assert agent.readout("state") == pytest.approx(value, abs=1e-12)
    assert agent.readout("corrected", 10) == pytest.approx(first - (first - value) / 10)
    for wrong in (None, 1, 0.5):
        with pytest.raises(AffineDPError, match="number of agents"):
            agent.readout("corrected", wrong)
    with pytest.raises(AffineDPError, match="readout must be"):
        agent.readout("average")


def test_secrets_are_not_shown(agent):
    for text in (
        repr(agent),
        repr(vars(agent)),
        str(agent.message_to("1")),
        repr(agent._run),
    ):
        assert "20.0" not in text
    with pytest.raises(AffineDPError, match="not copied"):
        copy.copy(agent)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 0.3)), min_size=1, max_size=6))
def test_next_message_does_not_depend_on_the_order(links):
    heard = {str(i): y for i, (y, _) in enumerate(links)}
    weights = {str(i): w for i, (_, w) in enumerate(links)}
    backwards = dict(reversed(list(weights.items())))
    found = next_message(3.0, heard, weights)
    assert found == next_message(3.0, heard, backwards)
    expected = 3.0 + sum(w * (y - 3.0) for y, w in links)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("heard", [1e308, -1e308])
def test_next_message_beyond_double_precision(heard):
    with pytest.raises(AffineDPError, match="beyond double precision"):
        next_message(-heard, {"1": heard}, {"1": 1.9})


@pytest.mark.parametrize("name", ["", "a/b", "a+", "#", "a,b", "a:b", "a b", "x" * 65, 3, None])
def test_names(name):
    with pytest.raises(AffineDPError, match="no name of an agent"):
        checked_name(name)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({}, "no neighbours"),
        (["1"], "no neighbours"),
        ({"3": 0.1}, "its own neighbours"),
        ({"1": 0.0}, "must be positive"),
        ({"1": -0.1}, "must be positive"),
        ({"1": math.nan}, "must be finite"),
        ({"1": "0.1"}, "not a real number"),
        ({"1": True}, "not a real number"),
        ({"1": 1.0, "2": 1.0}, "diverge"),
        ({1: 0.1, "2": 0.1}, "no name"),
    ],
)
def test_weights(weights, words):
    with pytest.raises(AffineDPError, match=words):
        checked_weights("3", weights)
