"""Sealed messages: what a neighbour did not write, or wrote to another session, is dropped."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from affinedp.consensus.agent import Agent, AgentMessage, next_message
from affinedp.consensus.keys import Keys, write_keys
from affinedp.consensus.one_draw import AgentNoise
from affinedp.errors import AffineDPError
from affinedp.mqtt.agent_process import Meeting, Seals, encode, run_agent
from affinedp.mqtt.connection import Connection
from brokers import PATIENCE, until

NOISE = AgentNoise(sigma=2.5)


@pytest.fixture
def keys(tmp_path):
    """The keys of 1, 2 and 3 in a row."""
    folder = tmp_path / "keys"
    folder.mkdir()
    write_keys(folder, [("1", "2"), ("2", "3")])
    return {name: Keys.read(folder / f"{name}.keys") for name in "123"}


def message(agent="1", to="2", run=1, t=0, y=1.5):
    return AgentMessage(agent, to, run, t, 9, y, 2.0 if t else None, 0.25)


# ---------------------------------------------------------------------- seals by themselves


def test_two_sides_find_each_other(keys):
    one, two = Seals(keys["1"], "p"), Seals(keys["2"], "p")
    hello = one.seal(message())
    found, session = two.open(hello, "1", "2")
    assert (found, two.knows("1")) == (message(), None)
    assert session is not None, "it is not for this session: answered, not taken note of"
    answer = two.seal(message("2", "1", y=4.0), session)
    found, session = one.open(answer, "2", "1")
    assert (found.y, session) == (4.0, None)
    found, session = two.open(one.seal(message()), "1", "2")
    assert (found, session) == (message(), None)
    assert two.open(one.seal(message(t=1)), "1", "2") == (message(t=1), None)


def test_recordings_of_other_sessions_do_not_count(keys):
    """All that was ever said is played back to a process that starts later with the same keys."""
    one, two = Seals(keys["1"], "p"), Seals(keys["2"], "p")
    _, session = two.open(one.seal(message()), "1", "2")
    one.open(two.seal(message("2", "1"), session), "2", "1")
    recorded = [one.seal(message(t=t)) for t in range(5)]
    assert all(two.open(payload, "1", "2")[1] is None for payload in recorded)
    later = Seals(keys["2"], "p")
    assert all(later.open(payload, "1", "2")[1] is not None for payload in recorded)
    # our own, from before: neither ours now nor somebody else under our name
    assert Seals(keys["1"], "p").open(recorded[0], "1", "2")[1] is not None
    assert one.open(recorded[0], "1", "2")[1] is None


def change(payload, **more):
    record = json.loads(payload)
    record["message"] |= more.pop("message", {})
    return json.dumps({**record, **more}).encode()


@pytest.mark.parametrize(
    "more",
    [
        {"message": {"y": 1.5000000000000002}},
        {"message": {"round": 1, "previous": 1.0}},
        {"message": {"run": 2}},
        {"message": {"rounds": 10}},
        {"message": {"weight": 0.5}},
        {"session": "00"},
        {"for": "00"},
        {"tag": ""},
        {"tag": "é"},
        {"tag": "\ud800"},
        {"tag": "0" * 64},
    ],
)
def test_forgeries(keys, more):
    one, two = Seals(keys["1"], "p"), Seals(keys["2"], "p")
    sealed = one.seal(message())
    assert two.open(change(sealed, **more), "1", "2") is None


def test_seals_of_another_link_place_or_direction(keys):
    one, two, three = (Seals(keys[name], "p") for name in "123")
    assert two.open(three.seal(message("3", "2")).replace(b'"3"', b'"1"'), "1", "2") is None
    assert two.open(one.seal(message()).replace(b'"1"', b'"9"'), "9", "2") is None
    assert Seals(keys["2"], "elsewhere").open(one.seal(message()), "1", "2") is None
    with pytest.raises(AffineDPError):
        two.open(one.seal(message()), "2", "1")


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", encode(message()), b'{"message":1,"session":"a","for":null,"tag":"b"}',
     b'{"message":{},"session":1,"for":null,"tag":"b"}',
     b'{"message":{},"session":"a","for":2,"tag":"b"}'],
)  # fmt: skip
def test_what_is_not_sealed(keys, payload):
    with pytest.raises(AffineDPError):
        Seals(keys["2"], "p").open(payload, "1", "2")


def test_keys(keys, tmp_path):
    assert keys["1"].by_neighbour["2"] == keys["2"].by_neighbour["1"]
    assert keys["1"].by_neighbour["2"] != keys["2"].by_neighbour["3"]
    assert str(keys["1"].by_neighbour["2"]) not in repr(keys["1"])
    with pytest.raises(AffineDPError, match="no key is overwritten"):
        write_keys(tmp_path / "keys", [("1", "2")])
    with pytest.raises(AffineDPError, match="no key for the link with agent '7'"):
        keys["1"].check(["2", "7"])
    file = tmp_path / "keys" / "1.keys"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(AffineDPError, match="others than its owner"):
        Keys.read(file)
    file.chmod(0o600)
    for text in ("2 abc", "2", "2 " + "0" * 62, "a/b " + "0" * 64, f"2 {'0' * 64}\n2 {'1' * 64}"):
        file.write_text(text)
        with pytest.raises(AffineDPError, match="line [12] of the key file"):
            Keys.read(file)
    with pytest.raises(AffineDPError, match="does not exist"):
        Keys.read(tmp_path / "absent")


# ---------------------------------------------------------------------- over a broker


WEIGHTS = {"1": {"2": 0.25}, "2": {"1": 0.25, "3": 0.5}, "3": {"2": 0.5}}


def test_a_run_under_attack(shared, keys, tmp_path):
    """Forged, retained and recorded messages all the time; the run is as if there were none."""
    stop, rounds = threading.Event(), 40  # so many that forgeries come before the end
    forged = {
        (a, b): [
            encode(AgentMessage(a, b, 1, 0, rounds, 1e9, None, WEIGHTS[a][b])),
            encode(AgentMessage(a, b, 99, 0, rounds, 1e9, None, 0.1)),
            b"garbage",
        ]
        for a in WEIGHTS
        for b in WEIGHTS[a]
    }
    recorded = []
    with ExitStack() as stack:
        spy = stack.enter_context(Connection(shared, ["sealed/#"]))
        for (a, b), payloads in forged.items():
            for payload in payloads:
                spy._client.publish(f"sealed/{a}/{b}", payload, qos=1, retain=True)
        agents = {
            name: stack.enter_context(
                Agent(name, WEIGHTS[name], state=tmp_path / name, value=1.0, noise=NOISE)
            )
            for name in WEIGHTS
        }
        first = {name: agent.y for name, agent in agents.items()}
        pool = stack.enter_context(ThreadPoolExecutor(4))
        stack.callback(stop.set)

        def attack():
            while not stop.is_set():
                heard = spy.receive(0.01)
                if heard is not None and b"tag" in heard.payload:
                    recorded.append(heard)
                    again = recorded[len(recorded) // 2]
                    spy.publish(again.topic, again.payload)
                    spy.publish(heard.topic, change(heard.payload, message={"y": 7.0}))
                for (a, b), payloads in forged.items():
                    spy.publish(f"sealed/{a}/{b}", payloads[len(recorded) % 3])

        attacker = pool.submit(attack)
        meeting = Meeting(shared, "sealed")
        running = [
            pool.submit(
                run_agent,
                agent,
                meeting,
                stop,
                rounds=rounds,
                resend=0.2,
                linger=2.0,
                keys=keys[name],
            )
            for name, agent in agents.items()
        ]
        outcomes = [future.result(PATIENCE) for future in running]
        stop.set()
        attacker.result(PATIENCE)
        assert all(outcome.finished for outcome in outcomes)
        assert any(outcome.dropped.get("forged", 0) for outcome in outcomes)
        current = first
        for _ in range(rounds):
            current = {n: next_message(current[n], current, WEIGHTS[n]) for n in WEIGHTS}
        assert {name: agent.y for name, agent in agents.items()} == current


def test_a_restart_in_the_midst(shared, keys, tmp_path):
    """A process that comes back has another session, and its neighbours find out."""
    stop, pause = threading.Event(), threading.Event()
    meeting = Meeting(shared, "again")
    weights = {"1": {"2": 0.25}, "2": {"1": 0.25}}
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        stack.callback(stop.set)
        one = stack.enter_context(
            Agent("1", weights["1"], state=tmp_path / "1", value=1.0, noise=NOISE)
        )
        two = Agent("2", weights["2"], state=tmp_path / "2", value=5.0, noise=NOISE)
        more = {"rounds": 200, "resend": 0.1, "linger": 1.0}
        first = pool.submit(run_agent, one, meeting, stop, keys=keys["1"], **more)
        second = pool.submit(run_agent, two, meeting, pause, keys=keys["2"], **more)
        until(lambda: two.round > 3 or second.done())
        pause.set()
        second.result(PATIENCE)
        two.close()
        again = stack.enter_context(Agent("2", weights["2"], state=tmp_path / "2"))
        second = pool.submit(run_agent, again, meeting, stop, keys=keys["2"], **more)
        assert first.result(PATIENCE).finished
        assert second.result(PATIENCE).finished
        assert one.y == pytest.approx(again.y)


def test_keys_that_leave_a_neighbour_out(shared, keys, tmp_path):
    with (
        Agent("1", {"9": 0.25}, state=tmp_path / "1", value=1.0, noise=NOISE) as agent,
        pytest.raises(AffineDPError, match="no key for the link"),
    ):
        run_agent(agent, Meeting(shared), threading.Event(), keys=keys["1"])
