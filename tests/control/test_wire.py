"""The loop over a real broker: messages that go wrong, and processes that die."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.control import ClosedLoop, Gateway, design_output_noise
from affinedp.control.processes.cloud import run_cloud
from affinedp.control.processes.controller import Controller
from affinedp.control.processes.gateway import run_gateway
from affinedp.control.processes.messages import decode, encode
from affinedp.control.processes.plant import PlantModel, run_plant
from affinedp.errors import AffineDPError
from affinedp.wire.broker import Broker
from affinedp.wire.connection import Connection
from affinedp.wire.eavesdropper import eavesdrop
from affinedp.wire.line import Place
from affinedp.wire.messages import LARGEST_PAYLOAD, MalformedMessageError
from brokers import PATIENCE, Command, private_broker, until

pytest.importorskip("paho.mqtt.client")

HORIZON = 25
A, B, C = [[1.0, 0.1], [0.0, 1.0]], [[0.005], [0.1]], [[1.0, 0.0]]
K, L = [[3.4240, 4.3095]], [[0.8266], [0.6973]]
LOOP = ClosedLoop((A, B, C), K, L, [1.0, 0.0], x0=[-20.0, 0.0], xhat0=[1.0, 2.0])
VEHICLE = f"""
horizon = {HORIZON}
[plant]
A = {A}
B = {B}
C = {C}
x0 = [-20, 0]
[controller]
feedback = {K}
observer = {L}
xhat0 = [1, 2]
[reference]
constant = [1, 0]
[privacy]
epsilon = 1.0
delta = 0.01
"""


@pytest.fixture(scope="module")
def mechanism():
    return design_output_noise((A, C), HORIZON, epsilon=1.0, delta=0.01)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with private_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield Broker.parse(broker.address)


@pytest.fixture
def start():
    """Run something beside the test: ``start(function, ...)``; all are stopped at its end."""
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        yield lambda function, *words, **more: pool.submit(function, *words, stop, **more)
        stop.set()


class Client:
    """A test's own connection, which waits for what it expects."""

    def __init__(self, connection):
        self._connection = connection

    def send(self, topic, payload):
        text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        assert self._connection.publish(topic, text)

    def next(self):
        message = self._connection.receive(PATIENCE)
        assert message is not None, "waited in vain"
        return json.loads(message.payload)

    @property
    def silent(self):
        return self._connection.receive(0.0) is None


@pytest.fixture
def client(shared):
    def connect(*topics):
        connection = Connection(shared, topics)
        opened.append(connection)
        return Client(connection.__enter__())

    opened = []
    yield connect
    for connection in opened:
        connection.close()


def ready(caplog, who):
    """Wait until a process in a thread says that it listens."""
    until(lambda: any(who in line and "listening" in line for line in caplog.messages))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_step(seen, topic):
    """All payloads that were ever seen, by step."""
    found = {}
    for message in seen:
        if message["topic"] == topic:
            step = json.loads(message["payload"])["step"]
            found.setdefault(step, set()).add(message["payload"])
    return found


# ---------------------------------------------------------------------- messages


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.integers(0, 2**53 - 1))
def test_doubles_survive(values, step):
    payload = encode("a", step, "y", np.array(values, dtype=float))
    found = decode(payload, "y", len(values))
    assert (found.run, found.step, found.word) == ("a", step, "")
    assert found.values.tobytes() == np.array(values, dtype=float).tobytes()
    assert encode("a", found.step, "y", found.values) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"17",
        b"{}",
        b'{"run": "a", "step": 1}',
        b'{"run": "a", "y": [1]}',
        b'{"step": 1, "y": [1]}',
        b'{"run": 7, "step": 1, "y": [1]}',
        b'{"run": "a b", "step": 1, "y": [1]}',
        b'{"run": "a", "step": 1, "missing": 7}',
        b'{"run": "a", "step": 1, "u": [1]}',
        b'{"run": "a", "step": true, "y": [1]}',
        b'{"run": "a", "step": 1.0, "y": [1]}',
        b'{"run": "a", "step": -1, "y": [1]}',
        b'{"run": "a", "step": "1", "y": [1]}',
        b'{"run": "a", "step": 9007199254740992, "y": [1]}',
        b'{"run": "a", "step": ' + b"9" * 5000 + b', "y": [1]}',
        b'{"run": "a", "step": 1, "y": 1}',
        b'{"run": "a", "step": 1, "y": []}',
        b'{"run": "a", "step": 1, "y": [1, 2]}',
        b'{"run": "a", "step": 1, "y": [true]}',
        b'{"run": "a", "step": 1, "y": [null]}',
        b'{"run": "a", "step": 1, "y": ["1"]}',
        b'{"run": "a", "step": 1, "y": [[1]]}',
        b'{"run": "a", "step": 1, "y": [NaN]}',
        b'{"run": "a", "step": 1, "y": [-Infinity]}',
        b'{"run": "a", "step": 1, "y": [1e999]}',
        b'{"run": "a", "step": 1, "y": [' + b"9" * 400 + b"]}",
        b'{"run": "a", "step": 1, "step": 2, "y": [1]}',
        b'{"run": "a", "step": 1, "y": [1]} x',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"run": "a", "step": 1, "y": [1]' + b" " * LARGEST_PAYLOAD + b"}",
    ],
    ids=lambda payload: ascii(payload[:30]),
)
def test_malformed_messages_are_refused(payload):
    with pytest.raises(MalformedMessageError):
        decode(payload, "y", 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(payload):
    try:
        found = decode(payload, "y", 1)
    except MalformedMessageError:
        return
    assert found.step >= 0
    assert np.isfinite(found.values).all()


def test_other_keys_are_ignored():
    assert decode(b'{"time": 1.5, "y": [2], "step": 3, "run": "a"}', "y", 1).step == 3


def test_numbers_that_are_none_are_not_written():
    with pytest.raises(ValueError, match="JSON"):
        encode("a", 0, "y", np.array([np.nan]))


# ---------------------------------------------------------------------- both ends, without network


def recursion(noise, skipped=()):
    """The loop written down once more: states and inputs."""
    a, b, c, k, l = map(np.array, (A, B, C, K, L))
    x, estimate, target = np.array([-20.0, 0.0]), np.array([1.0, 2.0]), np.array([1.0, 0.0])
    states, inputs = [], []
    for t, gamma in enumerate(noise):
        u = -k @ (estimate - target)
        states.append(x)
        inputs.append(u)
        correction = l @ (c @ x + gamma - c @ estimate)
        estimate = a @ estimate + b @ u + (0.0 if t in skipped else correction)
        x = a @ x + b @ u
    return np.array(states), np.array(inputs)


@pytest.mark.parametrize("skipped", [(), (0,), (3, 4, 5), (23,)])
def test_controller_and_plant(skipped):
    noise = np.random.default_rng(0).normal(size=(HORIZON, 1))
    controller, plant = Controller(LOOP, HORIZON), PlantModel(LOOP)
    states, inputs = recursion(noise, skipped)
    for t in range(HORIZON):
        np.testing.assert_allclose(plant.state, states[t], rtol=1e-12, atol=1e-12)
        if t in skipped:  # nobody asks; the plant gets what the observer believes it got
            plant.apply(inputs[t])
            continue
        received = plant.measure() + noise[t]
        answer = controller.answer(t, received)
        assert controller.answer(t, received + 100) is answer
        if t > 2:  # what an earlier step got, or was believed to get
            np.testing.assert_allclose(controller.answer(t - 2, None), inputs[t - 2], rtol=1e-12)
        np.testing.assert_allclose(answer, inputs[t], rtol=1e-12, atol=1e-12)
        plant.apply(answer)


def test_feedthrough_and_divergence_are_refused():
    with pytest.raises(AffineDPError, match="D is not zero"):
        PlantModel(ClosedLoop((A, B, C, [[1.0]]), K, L, [0.0, 0.0]))
    wild = ClosedLoop(([[1e200]], [[1.0]], [[1.0]]), [[0.0]], [[1e200]], [0.0], x0=[1.0])
    controller, plant = Controller(wild, 3), PlantModel(wild)
    controller.answer(0, np.array([1.0]))
    with pytest.raises(AffineDPError, match="observer would leave"):
        controller.answer(2, np.array([1.0]))
    plant.apply(np.zeros(1))
    with pytest.raises(AffineDPError, match="plant grows"):
        plant.apply(np.zeros(1))


@pytest.mark.parametrize("topic", ["cloud/y", "#", "+/y"])
def test_a_loop_back_is_refused(shared, topic):
    with pytest.raises(AffineDPError, match="topic"):
        run_cloud(LOOP, 3, Place(shared, topic), Place(shared, "cloud/y"), threading.Event())


# ---------------------------------------------------------------------- one process, a test client

GARBAGE = [b"", b"hello \x1b[31m", b"[" * 50_000, b"x" * 100_000, b'{"step": true, "y": [1]}']


@pytest.fixture
def gateway(mechanism, shared, start, tmp_path, caplog):
    """A gateway that listens; what it is running as, and its state."""
    caplog.set_level(logging.INFO)
    state = tmp_path / "secret.db"

    def run(source, target, stop):
        with Gateway(mechanism, state=state, resolution="exact") as opened:
            return run_gateway(opened, source, target, stop, linger=0.3)

    def begin(name):
        running = start(run, Place(shared, f"{name}/plant"), Place(shared, f"{name}/cloud"))
        ready(caplog, "gateway:")
        return running

    begin.state = state
    return begin


def test_gateway_with_lost_repeated_late_and_malformed_messages(gateway, client, caplog):
    me = client("a/cloud")
    running = gateway("a")

    def say(step, *y):
        me.send("a/plant", {"run": "r", "step": step, "y": list(y)})

    for payload in GARBAGE:
        me.send("a/plant", payload)
    say(0, -20.0)
    first = me.next()
    assert (first["run"], first["step"]) == ("r", 0)
    say(0, -20.0)  # a repeated step is not measured again
    assert me.next() == first
    say(3, -19.0)  # steps 1 and 2 were lost
    third = me.next()
    say(1, -19.0)  # and one comes after all
    assert me.next() == {"run": "r", "step": 1, "missing": "it was lost for good"}
    say(4, 1.0, 2.0)
    assert me.next() == {"run": "r", "step": 4, "missing": "it came malformed"}
    say(4, 1e308)  # not covered by the promise, which nobody must see
    assert me.next()["step"] == 4
    say(3, -19.0)
    assert me.next() == third
    me.send("a/plant", {"run": "other", "step": 5, "y": [0.0]})
    assert me.next()["stop"] == "the gateway's draw belongs to another run"
    say(HORIZON, 0.0)
    assert "promise ends after 25 steps" in me.next()["missing"]
    outcome = running.result(PATIENCE)
    assert me.silent
    assert (outcome.steps, outcome.finished) == (5, False)
    assert "beyond the horizon" in outcome.reason
    assert outcome.dropped == {
        "malformed": len(GARBAGE) + 1, "late": 1, "another run": 1, "past the horizon": 1,
    }  # fmt: skip
    assert "hello" not in caplog.text, "measurements do not belong into the log"


def test_gateway_ends_after_its_last_step(gateway, client):
    me = client("b/cloud")
    running = gateway("b")
    me.send("b/plant", {"run": "r", "step": HORIZON - 1, "y": [0.0]})
    assert me.next()["step"] == HORIZON - 1
    assert running.result(PATIENCE).finished


def test_a_step_that_was_recorded_but_not_published(mechanism, gateway, client):
    """The gateway died between the disk and the network, and then y comes again."""
    with Gateway(mechanism, state=gateway.state, resolution="exact") as died:
        recorded = died.send([-20.0], 0, run="r")
    me = client("c/cloud")
    running = gateway("c")
    me.send("c/plant", {"run": "r", "step": 0, "y": [-20.0]})
    assert me.next() == {"run": "r", "step": 0, "y": recorded.tolist()}
    # measured anew: refused loudly, and it ends
    me.send("c/plant", {"run": "r", "step": 0, "y": [-3.0]})
    assert "another measurement" in me.next()["stop"]
    with pytest.raises(AffineDPError, match="another reading"):
        running.result(PATIENCE)


def test_gateway_ends_when_its_state_is_gone(gateway, client):
    me = client("d/cloud")
    running = gateway("d")
    gateway.state.rename(gateway.state.with_name("moved"))
    me.send("d/plant", {"run": "r", "step": 0, "y": [-20.0]})
    with pytest.raises(AffineDPError, match="moved or replaced"):
        running.result(PATIENCE)
    assert me.next()["stop"] == "the gateway's state cannot be used"
    assert me.silent


def test_cloud_with_lost_repeated_late_and_malformed_messages(shared, client, start, caplog):
    caplog.set_level(logging.INFO)
    me = client("e/u")
    words = (LOOP, HORIZON, Place(shared, "e/y"), Place(shared, "e/u"))
    running = start(run_cloud, *words, linger=0.3)
    ready(caplog, "cloud:")
    expected = Controller(LOOP, HORIZON)
    for payload in GARBAGE:
        me.send("e/y", payload)
    for step, y in ((0, -20.0), (0, 5.0), (4, -19.0), (4, -19.0), (HORIZON - 1, 0.0)):
        me.send("e/y", {"run": "r", "step": step, "y": [y]})
        answer = expected.answer(step, np.array([y]))
        assert me.next() == {"run": "r", "step": step, "u": answer.tolist()}
        late = max(step - 2, 0)  # what it got then, or was believed to get
        me.send("e/y", {"run": "r", "step": late, "y": [y]})
        answer = expected.answer(late, np.array([y]))
        assert me.next() == {"run": "r", "step": late, "u": answer.tolist()}
    outcome = running.result(PATIENCE)
    assert outcome.finished
    assert outcome.dropped == {"malformed": len(GARBAGE)}
    assert "steps 1 to 3 were skipped" in caplog.text
    assert "\x1b" not in caplog.text


def test_plant_with_lost_late_and_malformed_answers(shared, client, start, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    me = client("f/y")
    log = tmp_path / "plant.jsonl"
    words = (LOOP, 3, Place(shared, "f/u"), Place(shared, "f/y"))
    running = start(run_plant, *words, log=log, resend=0.2, run="r")
    first = me.next()
    assert first == {"run": "r", "step": 0, "y": [-20.0]}
    assert me.next() == first, "sent again without an answer"
    wrong = [b'{"run": "r", "step": 7, "u": [1]}', b'{"run": "s", "step": 0, "u": [1]}']
    for payload in [*GARBAGE, *wrong, b'{"run": "r", "step": 0, "u": [2.0]}']:
        me.send("f/u", payload)
    for step in (1, 2):
        while (message := me.next())["step"] < step:
            assert message["step"] == step - 1, "a repeated message was under way"
        me.send("f/u", {"run": "r", "step": step, "u": [0.5]})
    outcome = running.result(PATIENCE)
    assert outcome.finished
    assert outcome.dropped == {
        "malformed": len(GARBAGE), "answer to another step": 1, "answer to another run": 1,
    }  # fmt: skip
    found = lines(log)
    assert [line["u"] for line in found] == [[2.0], [0.5], [0.5]]
    np.testing.assert_allclose(found[1]["x"], [-20.0 + 0.005 * 2, 0.2])
    assert log.stat().st_mode & 0o077 == 0, "the log is secret"
    assert "no answer to step 0" in caplog.text


def test_plant_that_nobody_answers(shared, client, start, tmp_path):
    words = (LOOP, 3, Place(shared, "h/u"), Place(shared, "h/y"))
    ended = start(run_plant, *words, resend=0.05, patience=0.2).result(PATIENCE)
    assert (ended.steps, ended.finished) == (0, False)
    assert ended.reason == "no answer to step 0 for 0.2 s"
    log = tmp_path / "plant.jsonl"
    held = start(run_plant, *words, resend=0.05, patience=0.1, silence="hold", log=log)
    outcome = held.result(PATIENCE)
    assert outcome.finished
    assert outcome.dropped == {"unanswered": 3}
    assert [line["u"] for line in lines(log)] == [[0.0]] * 3
    me = client("h/y")
    running = start(run_plant, *words, run="r")
    assert me.next()["step"] == 0
    me.send("h/u", {"run": "r", "step": 0, "stop": "enough \x1b[31m"})
    assert running.result(PATIENCE).reason == "enough ?[31m"


def test_all_end_when_they_are_stopped(shared, gateway, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    waiting = gateway("g")
    stop = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        here, there = Place(shared, "g/y"), Place(shared, "g/u")
        running = [
            pool.submit(run_plant, LOOP, HORIZON, there, here, stop, resend=30.0),
            pool.submit(run_cloud, LOOP, HORIZON, Place(shared, "g/cloud"), there, stop),
            pool.submit(eavesdrop, shared, ["g/#"], tmp_path / "seen", stop),
        ]
        for who in ("plant:", "cloud:", "eavesdropper:"):
            ready(caplog, who)
        stop.set()
        plant, cloud, count = (future.result(PATIENCE) for future in running)
    assert not plant.finished
    assert not cloud.finished
    assert count <= 2  # a measurement, and the claim of the gateway
    assert not waiting.done()


# ---------------------------------------------------------------------- the whole loop


def check_run(plant_log, seen_log, topics):
    """Compare a run with the recursion, given the noise that was published."""
    truth, seen = lines(plant_log), lines(seen_log)
    assert [line["step"] for line in truth] == list(range(HORIZON))
    assert {message["topic"] for message in seen} - {"cloud/y/claim"} == topics
    published = by_step(seen, "cloud/y")
    assert sorted(published) == list(range(HORIZON))
    assert all(len(values) == 1 for values in published.values()), "a step had two values"
    assert all(len(values) == 1 for values in by_step(seen, "cloud/u").values())
    sent = [json.loads(published[t].copy().pop())["y"] for t in range(HORIZON)]
    noise = np.array(sent) - np.array([line["y"] for line in truth])
    assert np.abs(noise).min() > 0.0
    states, inputs = recursion(noise)
    simulated = LOOP.simulate(noise[None], HORIZON, 1, 0)
    for mine in (states, simulated.states[0, :-1]):
        np.testing.assert_allclose([line["x"] for line in truth], mine, rtol=1e-9, atol=1e-9)
    for mine in (inputs, simulated.inputs[0]):
        np.testing.assert_allclose([line["u"] for line in truth], mine, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_whole_loop_in_processes_with_two_brokers(mechanism, tmp_path):
    file, seen, log = tmp_path / "v.toml", tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    file.write_text(VEHICLE)
    mechanism.save(tmp_path / "m.json")
    with (
        private_broker(tmp_path / "plant") as own,
        private_broker(tmp_path / "public") as public,
    ):
        at = ("--broker", public.address)
        noise = (
            "--mechanism",
            tmp_path / "m.json",
            "--state",
            tmp_path / "secret.db",
            "--resolution",
            "exact",
        )
        with (
            Command(tmp_path, "control", "eavesdrop", *at, "--log", seen) as spy,
            Command(tmp_path, "control", "cloud", file, *at, "--linger", 0.3) as cloud,
            Command(
                tmp_path, "control", "gateway", *noise, *at, "--in-broker", own.address,
                "--linger", 0.3,
            ) as gateway,
        ):  # fmt: skip
            for process in (spy, cloud, gateway):
                process.ready()
            side = ("--out-broker", own.address, "--log", log)
            with Command(tmp_path, "control", "plant", file, *at, *side) as plant:
                assert plant.wait() == 0, plant.said
            assert gateway.wait() == 0, gateway.said
            assert cloud.wait() == 0, cloud.said
            assert spy.end() == 0, spy.said
    check_run(log, seen, {"cloud/y", "cloud/u"})
    for process in (plant, gateway, cloud):
        assert f"all steps, {HORIZON} of {HORIZON}; dropped: nothing" in process.said
    assert "share the broker" not in gateway.said
    assert "no ledger" in gateway.said


def test_brokers_die_and_come_back(mechanism, tmp_path, start, caplog):
    caplog.set_level(logging.INFO)
    seen, log = tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    with (
        private_broker(tmp_path / "plant") as own,
        private_broker(tmp_path / "public") as public,
        Gateway(mechanism, state=tmp_path / "secret.db", resolution="exact") as opened,
    ):
        inside, outside = Broker.parse(own.address), Broker.parse(public.address)
        measured, noisy = Place(inside, "plant/y"), Place(outside, "cloud/y")
        inputs = Place(outside, "cloud/u")
        start(eavesdrop, outside, ["#"], seen)
        cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, linger=0.5)
        gateway = start(run_gateway, opened, measured, noisy, linger=0.5)
        for who in ("eavesdropper:", "cloud:", "gateway:"):
            ready(caplog, who)
        killed = {5: public, 12: own, 18: public}

        def on_step(step):
            if step in killed:
                killed[step].kill()
                threading.Timer(0.2, killed[step].start).start()

        words = (LOOP, HORIZON, inputs, measured)
        plant = start(run_plant, *words, log=log, resend=0.3, on_step=on_step)
        assert plant.result(PATIENCE).finished
        assert gateway.result(PATIENCE).finished
        assert cloud.result(PATIENCE).finished
    assert caplog.text.count("lost the broker") >= 3
    # the eavesdropper, too, may miss what was sent while it was away
    assert all(len(values) == 1 for values in by_step(lines(seen), "cloud/y").values())
    assert [line["step"] for line in lines(log)] == list(range(HORIZON))


@pytest.mark.slow
def test_gateway_is_killed_and_started_again(mechanism, tmp_path, start, shared, caplog):
    caplog.set_level(logging.INFO)
    seen, log = tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    mechanism.save(tmp_path / "m.json")
    words = (
        "control", "gateway", "--mechanism", tmp_path / "m.json", "--state", tmp_path / "s.db",
        "--resolution", "exact", "--broker", shared.address, "--linger", 0.5,
    )  # fmt: skip
    processes = [Command(tmp_path, *words).ready()]

    def again():
        processes[-1].kill()
        processes.append(Command(tmp_path, *words))

    # a little after a step, so that it is in the midst of something
    timers = {6: threading.Timer(0.023, again), 14: threading.Timer(0.057, again)}

    def on_step(step):
        if step in timers:
            timers[step].start()

    noisy, inputs = Place(shared, "cloud/y"), Place(shared, "cloud/u")
    start(eavesdrop, shared, ["cloud/#"], seen)
    start(run_cloud, LOOP, HORIZON, noisy, inputs)
    for who in ("eavesdropper:", "cloud:"):
        ready(caplog, who)
    measured = Place(shared, "plant/y")
    # slower than a block: every output is on the disk with its step, and is said again
    more = {"log": log, "resend": 0.1, "period": 0.27, "on_step": on_step}
    assert start(run_plant, LOOP, HORIZON, inputs, measured, **more).result(PATIENCE).finished
    for timer in timers.values():
        timer.join()
    assert processes[-1].wait() == 0
    assert len(processes) == 3
    assert "share the broker" in processes[-1].said
    check_run(log, seen, {"cloud/y", "cloud/u"})
