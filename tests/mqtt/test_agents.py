"""Agents over a real broker: messages that go wrong, and processes that die."""

import json
import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from affinedp.audit.trial import audit
from affinedp.consensus.agent import (
    Agent,
    AgentMessage,
    next_message,
    read_state,
)
from affinedp.consensus.one_draw import AgentNoise
from affinedp.errors import AffineDPError
from affinedp.mqtt import agent_process
from affinedp.mqtt.agent_process import Meeting, encode, run_agent
from affinedp.mqtt.connection import Connection
from affinedp.mqtt.listening import eavesdrop
from agents import VALUES, WEIGHT, neighbours, overheard, transition
from brokers import PATIENCE, Command, private_broker, until

NOISE = AgentNoise(sigma=2.5)
ROUNDS = 10


# ---------------------------------------------------------------------- one agent, a test client


class Neighbour:
    """A test that plays both neighbours of agent 3, and hears it."""

    def __init__(self, connection, prefix):
        self._connection, self._prefix = connection, prefix

    def send(self, name, t, y, previous=None, weight=0.25, rounds=2, run=1):
        message = AgentMessage(name, "3", run, t, rounds, y, previous, weight)
        self.send_bytes(name, encode(message))

    def send_bytes(self, name, payload):
        assert self._connection.publish(f"{self._prefix}/{name}/3", payload)

    def next(self):
        """What agent 3 says next, to agent 1; it says the same to agent 5."""
        message = self._connection.receive(PATIENCE)
        assert message is not None, "waited in vain"
        return json.loads(message.payload)

    def hear(self, t):
        """Wait for a round; what is repeated meanwhile must be of earlier ones."""
        for _ in range(500):
            message = self.next()
            if message["round"] == t:
                return message
            assert message["round"] < t
        raise AssertionError(f"round {t} does not come")


@pytest.fixture
def agent(tmp_path):
    with Agent(
        "3", {"1": 0.25, "5": 0.25}, state=tmp_path / "3.db", value=20.0, noise=NOISE
    ) as opened:
        yield opened


@pytest.fixture
def talk(shared, agent, start):
    """Start agent 3; the test as its neighbours, and what it is running as."""
    with ExitStack() as stack:

        def begin(prefix, **more):
            me = stack.enter_context(Connection(shared, [f"{prefix}/3/1"]))
            settings = {"rounds": 2, "resend": 0.1, "linger": 0.5, **more}
            running = start(run_agent, agent, Meeting(shared, prefix), **settings)
            return Neighbour(me, prefix), running

        yield begin


GARBAGE = [
    b"",
    b"hello \x1b[31m",
    b"[" * 50_000,
    b"x" * 100_000,
    b'{"agent":"5","to":"3","run":1,"round":0,"rounds":2,"y":1,"previous":null,"weight":0.25}',
    b'{"agent":"1","to":"4","run":1,"round":0,"rounds":2,"y":1,"previous":null,"weight":0.25}',
]


def test_lost_repeated_late_and_malformed_messages(talk, agent, caplog):
    caplog.set_level(logging.INFO)
    me, running = talk("a")
    first = me.next()
    assert (first["weight"], first["rounds"], first["run"]) == (0.25, 2, 1)
    assert (first["round"], first["previous"]) == (0, None)
    assert me.next() == first, "sent again while nobody answers"
    for payload in GARBAGE:
        me.send_bytes("1", payload)
    for _ in range(3):
        me.send("1", 0, 4.0)
    me.send("5", 1, 7.0, 8.0)  # its first message was lost
    second = me.hear(1)
    assert second["previous"] == first["y"]
    assert second["y"] == next_message(first["y"], {"1": 4.0, "5": 8.0}, agent.weights)
    me.send("1", 0, 4.0)  # late: it is answered, and changes nothing
    assert me.next() == second
    me.send("1", 1, 5.0, 4.0)
    third = me.hear(2)
    assert third["y"] == next_message(second["y"], {"1": 5.0, "5": 7.0}, agent.weights)
    me.send("1", 2, 5.5, 5.0)
    me.send("5", 2, 5.5, 7.0)
    outcome = running.result(PATIENCE)
    assert (outcome.steps, outcome.finished) == (2, True)
    assert outcome.dropped["malformed"] == len(GARBAGE)
    assert outcome.dropped["repeated"] == 2
    assert outcome.dropped["late"] >= 1
    assert "waits for round 0 of 1, 5" in caplog.text
    assert "\x1b" not in caplog.text
    assert "20.0" not in caplog.text


def test_recordings_are_not_answered_one_by_one(talk):
    """Otherwise each would go to and fro between two agents for the rest of the run."""
    me, running = talk("recordings", resend=60.0)
    me.next()
    me.send("5", 0, 8.0)
    for _ in range(100):
        me.send("1", 0, 4.0)
    second = me.hear(1)
    me.send("1", 1, 5.0, 4.0)
    me.send("5", 1, 5.0, 8.0)
    said = [second]
    while said[-1]["round"] < 2:
        said.append(me.next())
    assert len(said) <= 3
    me.send("1", 2, 5.0, 5.0)
    me.send("5", 2, 5.0, 5.0)
    assert running.result(PATIENCE).dropped["late"] >= 90


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda me, y: me.send("1", 0, 4.5), "'1' said 4.0 in round 0, and now says 4.5"),
        (lambda me, y: me.send("1", 1, 5.0, 4.5), "'1' said 4.0 in round 0, and now says 4.5"),
        (lambda me, y: me.send("1", 2, 5.0, 4.0), "'1' is at round 2, which it cannot reach"),
        (lambda me, y: me.send("3", 0, y + 1.0), "somebody publishes round 0 as agent '3'"),
        (lambda me, y: me.send("5", 0, 8.0, weight=0.2), "agent '5', which uses 0.2"),
        (lambda me, y: me.send("5", 0, 8.0, weight=0.0), "agent '5', which uses 0.0"),
        (lambda me, y: me.send("5", 0, 8.0, rounds=3), "'5' goes 3 rounds"),
        (lambda me, y: me.send("5", 0, 8.0, rounds=None), "'5' goes without end"),
        (lambda me, y: me.send("5", 0, 8.0, run=2), "'5' is in run 2"),
    ],
    ids=[
        "round",
        "previous",
        "too far",
        "our name",
        "weight",
        "no link",
        "rounds",
        "no end",
        "run",
    ],
)
def test_contradictory_messages_stop_it(talk, spoil, why, request):
    me, running = talk(request.node.callspec.id.replace(" ", "-"))
    y = me.next()["y"]
    me.send("1", 0, 4.0)
    spoil(me, y)
    with pytest.raises(AffineDPError, match=why):
        running.result(PATIENCE)


def test_it_does_not_wait_for_ever_after_its_last_round(talk, agent, shared):
    me, running = talk("b", rounds=1)
    assert me.next()["round"] == 0
    for name in ("1", "5"):
        me.send(name, 0, 4.0, rounds=1)
    assert me.hear(1)["round"] == 1
    outcome = running.result(PATIENCE)
    assert (outcome.steps, outcome.finished) == (1, True)
    with pytest.raises(AffineDPError, match="at round 1 of its run 1, beyond the 0 rounds"):
        run_agent(agent, Meeting(shared), threading.Event(), rounds=0)


def test_no_end_without_rounds_until_it_is_stopped(agent, shared):
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool, Connection(shared, ["c/3/1"]) as connection:
        running = pool.submit(run_agent, agent, Meeting(shared, "c"), stop)
        me = Neighbour(connection, "c")
        assert me.next()["round"] == 0
        for name in ("1", "5"):
            me.send(name, 0, 4.0, rounds=None)
        me.hear(1)
        stop.set()
        outcome = running.result(PATIENCE)
    assert (outcome.steps, outcome.finished) == (1, False)


def test_places_and_rounds_that_make_no_sense(agent, shared):
    for prefix in ("", "a/#", "+"):
        with pytest.raises(AffineDPError, match="topic"):
            Meeting(shared, prefix)
    with pytest.raises(AffineDPError, match="rounds"):
        run_agent(agent, Meeting(shared), threading.Event(), rounds=-1)


def test_heavy_weights_are_mentioned(shared, tmp_path, caplog):
    weights = {"1": 0.75, "5": 0.75}
    with Agent("3", weights, state=tmp_path / "3.db", value=1.0, noise=NOISE) as agent:
        run_agent(agent, Meeting(shared, "d"), threading.Event(), rounds=0, linger=0.0)
    assert "add up to 1.5" in caplog.text


def test_retained_messages_do_not_greet_it(talk, shared):
    """What an attacker left at the broker for a neighbour is not asked for."""
    with Connection(shared) as attacker:
        for name in ("1", "5"):
            message = AgentMessage(name, "3", 1, 0, 2, 1e9, None, 0.25)
            attacker._client.publish(f"kept/{name}/3", encode(message), qos=1, retain=True)
        me, running = talk("kept")
        first = me.next()
        for t, y in ((0, 4.0), (1, 5.0), (2, 6.0)):
            for name in ("1", "5"):
                me.send(name, t, y, y - 1.0 if t else None)
        outcome = running.result(PATIENCE)
        assert (outcome.steps, outcome.finished) == (2, True)
        assert me.hear(1)["y"] == next_message(
            first["y"], {"1": 4.0, "5": 4.0}, {"1": 0.25, "5": 0.25}
        )
        for name in ("1", "5"):
            attacker._client.publish(f"kept/{name}/3", b"", qos=1, retain=True)


def test_strangers_are_told_and_cannot_stop_it(talk):
    me, running = talk("strange")
    me.next()
    me.send_bytes("7", encode(AgentMessage("7", "3", 1, 0, 2, 1e9, None, 0.25)))
    me.send_bytes("7", encode(AgentMessage("7", "3", 9, 9, 9, 1e9, 1.0, 0.0)))
    for t, y in ((0, 4.0), (1, 5.0), (2, 6.0)):
        for name in ("1", "5"):
            me.send(name, t, y, y - 1.0 if t else None)
    outcome = running.result(PATIENCE)
    assert outcome.finished
    assert outcome.dropped["of a stranger"] == 2


# ---------------------------------------------------------------------- a bad network


class BadConnection(Connection):
    """Loses every other message, repeats some, and delivers old ones late."""

    dice = random.Random(7)

    def publish(self, topic, payload):
        old = vars(self).setdefault("old", [])
        old.append((topic, payload))
        fate = self.dice.random()
        if fate < 0.5:
            return True
        if fate < 0.7:
            super().publish(*self.dice.choice(old))
        if fate > 0.9:
            super().publish(topic, payload)
        return super().publish(topic, payload)


def test_a_bad_network(shared, start, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(agent_process, "Connection", BadConnection)
    links = {"a": {"b": 0.5}, "b": {"a": 0.5, "c": 0.25}, "c": {"b": 0.25}}
    seen = tmp_path / "seen"
    start(eavesdrop, shared, ["bad/#"], seen)
    until(lambda: "eavesdropper: listening" in caplog.text)
    with ExitStack() as stack:
        agents = [
            stack.enter_context(Agent(name, weights, state=tmp_path / name, value=1.0, noise=NOISE))
            for name, weights in links.items()
        ]
        # they start one after the other, as they are drawn
        settings = {"rounds": ROUNDS, "resend": 0.05, "linger": 1.0}
        running = [start(run_agent, agent, Meeting(shared, "bad"), **settings) for agent in agents]
        assert all(future.result(PATIENCE).finished for future in running)
    check_messages(overheard(seen), links, all_of_them=False)


# ---------------------------------------------------------------------- the paper's ten agents


def check_messages(found, links, all_of_them=True):
    """One value for each agent and round, and that is P^t y(0); returns y(0)."""
    assert all(len(values) == 1 for values in found.values()), "a message had two values"
    said = {key: next(iter(values)) for key, values in found.items()}
    first = {name: said[name, 0] for name in links}
    # what was overheard is a function of the first messages, bit for bit ...
    current, matrix = first, transition(links)
    for t in range(ROUNDS + 1):
        # ... and equals the matrix computation
        expected = np.linalg.matrix_power(matrix, t) @ np.array(list(first.values()))
        np.testing.assert_allclose(list(current.values()), expected, rtol=0, atol=1e-9)
        for name in links:
            if all_of_them or (name, t) in said:
                assert said[name, t] == current[name]
        current = {name: next_message(current[name], current, links[name]) for name in links}
    return np.array(list(first.values()))


@pytest.mark.slow
def test_ten_agents_in_processes(tmp_path):
    """Agent 4 starts late; 8, 5 and the broker are killed and started again."""
    links = {
        str(i): dict.fromkeys(map(str, neighbours(i)), WEIGHT) for i in range(1, len(VALUES) + 1)
    }
    seen = tmp_path / "seen.jsonl"
    network = tmp_path / "network.toml"
    pairs = [[a, b, WEIGHT] for a in links for b in links[a] if int(a) < int(b)]
    network.write_text(
        f"rounds = {ROUNDS}\nlinks = {json.dumps(pairs)}\n[noise]\nepsilon = 1\ndelta = 0.01\n"
        "[mqtt]\nresend = 0.3\n"
    )
    running = {}

    def begin(name, broker):
        (tmp_path / f"{name}.txt").write_text(f"{VALUES[int(name) - 1]}\n")
        running[name] = stack.enter_context(
            Command(
                tmp_path, "consensus", "agent", "--id", name, "--network", network,
                "--value-file", tmp_path / f"{name}.txt", "--state", tmp_path / f"{name}.db",
                "--broker", broker.address,
            )
        )  # fmt: skip
        return running[name]

    def again(name, broker):
        running[name].kill()
        begin(name, broker)

    with ExitStack() as stack:
        broker = stack.enter_context(private_broker(tmp_path / "broker"))
        at = ("--broker", broker.address)
        spy = stack.enter_context(
            Command(tmp_path, "consensus", "eavesdrop", *at, "--log", seen)
        ).ready()
        for name in links:
            if name != "4":
                begin(name, broker)
        for process in running.values():
            process.ready()
        # without agent 4, an agent that is d links away from it comes to round d − 1
        until(lambda: {("8", 2), ("9", 2), ("10", 2), ("5", 0)} <= set(overheard(seen)))
        again("8", broker)
        running["8"].ready()
        assert "at round 2" in running["8"].said
        broker.kill()
        broker.start()
        until(lambda: "again" in spy.said)
        assert ("3", 1) not in overheard(seen)
        begin("4", broker)
        until(lambda: ("5", 1) in overheard(seen))
        again("5", broker)  # in the midst of the rounds
        for name in links:
            assert running[name].wait() == 0, running[name].said
            assert f"all rounds, {ROUNDS} of {ROUNDS}" in running[name].said
        assert spy.end() == 0
    first = check_messages(overheard(seen), links)
    check_readouts([tmp_path / f"{name}.db" for name in links], first, transition(links))
    check_attack(first, transition(links))
    said = "".join(process.said for process in running.values())
    assert "keep ε = 1 at δ = 0.01" in said
    assert "no ledger" in said
    assert "Traceback" not in said


def check_readouts(states, first, matrix):
    """The sum of the states is kept; messages and corrected read-outs share the mean draw."""
    n, draws = len(VALUES), first - VALUES
    found = {"message": [], "state": [], "corrected": []}
    for path in states:
        with read_state(path) as agent:
            assert agent.round == ROUNDS
            for readout, values in found.items():
                values.append(agent.readout(readout, n))
    assert np.mean(VALUES) == 15
    assert np.mean(found["state"]) == pytest.approx(15, abs=1e-9)
    assert np.mean(found["message"]) == pytest.approx(15 + np.mean(draws), abs=1e-9)
    shared = 15 + (1 - 1 / n) * np.mean(draws)
    assert np.mean(found["corrected"]) == pytest.approx(shared, abs=1e-9)
    power = np.linalg.matrix_power(matrix, ROUNDS)
    theory = power @ VALUES + (power - np.eye(n)) @ draws
    np.testing.assert_allclose(found["state"], theory, rtol=0, atol=1e-9)


def check_attack(first, matrix):
    """Whoever has all messages of the run knows no more about agent 2 than ε = 1 allows."""
    mechanism = AgentNoise(epsilon=1.0, delta=0.01).mechanism()
    observe = np.vstack([np.linalg.matrix_power(matrix, t) for t in range(ROUNDS + 1)])
    solve = np.linalg.pinv(observe)  # least squares on all messages at once

    def estimate(x):
        """What the eavesdropper makes of runs in which agent 2 has the value x."""
        starts = np.tile(first, (len(x), 1))
        starts[:, 1] = mechanism.release(x)[:, 0]
        return (starts @ observe.T @ solve.T)[:, [1]]

    found = audit(mechanism, claim=(1.0, 0.01), release=estimate, runs=4_000, confidence=1 - 1e-6)
    assert found.passed, str(found)


# ---------------------------------------------------------------------- neighbours


def test_a_message_stays_small_however_many_neighbours(tmp_path):
    weights = {f"{'neighbour-with-a-long-name-' * 2}{i}": 1 / 2501 for i in range(2500)}
    with Agent("hub", weights, state=tmp_path / "hub.db", value=1.0, noise=NOISE) as hub:
        assert all(len(encode(hub.message_to(name))) < 300 for name in list(weights)[::500])


def test_a_hub_with_many_leaves(shared, start, tmp_path):
    """One hub and a few leaves that are real; the test says what 300 others would say."""
    names = [str(i) for i in range(300)]
    weights = dict.fromkeys([*names, "leaf"], 1 / 400)
    settings = {"rounds": 1, "resend": 0.5, "linger": 0.2}
    with ExitStack() as stack:
        hub = stack.enter_context(
            Agent("hub", weights, state=tmp_path / "hub", value=1.0, noise=NOISE)
        )
        leaf = stack.enter_context(
            Agent("leaf", {"hub": 1 / 400}, state=tmp_path / "leaf", value=1.0, noise=NOISE)
        )
        me = stack.enter_context(Connection(shared, ["star/hub/0"]))
        running = [
            start(run_agent, who, Meeting(shared, "star"), **settings) for who in (hub, leaf)
        ]
        assert me.receive(PATIENCE) is not None
        for name in names:
            message = AgentMessage(name, "hub", 1, 0, 1, 2.0, None, 1 / 400)
            me.publish(f"star/{name}/hub", encode(message))
        assert all(future.result(PATIENCE).finished for future in running)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"rounds": 3}, {"rounds": 5}, "goes 3 rounds, this one 5 rounds"),
        ({"rounds": 3}, {"rounds": None}, "goes 3 rounds, this one without end"),
        ({"weight": 0.3}, {}, "uses the weight 0.25"),
        ({"links": {"c": 0.25}}, {}, "agent 'a', which uses 0.0"),
        ({"run": 2}, {}, "'a' is in run 2, this one in run 1"),
    ],
    ids=["rounds", "no-end", "weight", "no-link", "run"],
)
def test_what_differs_ends_both_with_a_reason(
    shared, start, tmp_path, first, second, words, request
):
    """They would wait for ever.  The draw stays, and the same state goes on afterwards."""
    meeting = Meeting(shared, f"differ-{request.node.callspec.id}")
    links = first.pop("links", {"b": first.pop("weight", 0.25)})
    with (
        Agent(
            "a", links, state=tmp_path / "a", value=1.0, noise=NOISE, run=first.pop("run", None)
        ) as a,
        Agent("b", {"a": 0.25}, state=tmp_path / "b", value=1.0, noise=NOISE) as b,
    ):
        y = b.y
        more = {"resend": 0.1, "linger": 0.3}
        waits = start(run_agent, a, meeting, **{"rounds": 4, **more, **first})
        with pytest.raises(AffineDPError, match=words):
            start(run_agent, b, meeting, **{"rounds": 4, **more, **second}).result(PATIENCE)
        if "rounds" in first or links == {"b": 0.3}:
            with pytest.raises(AffineDPError):
                waits.result(PATIENCE)
    with Agent("b", {"a": 0.25}, state=tmp_path / "b", rerun=True) as again:
        assert (again.y, again.round) == (y, 0)
