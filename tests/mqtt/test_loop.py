"""The loop over a real broker: messages that go wrong, and processes that die."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from affinedp.control import ClosedLoop, Dither, Gateway, design_output_noise
from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection
from affinedp.mqtt.gateway_process import run_gateway
from affinedp.mqtt.listening import eavesdrop
from affinedp.mqtt.loop_process import Controller, PlantModel, run_cloud, run_plant
from affinedp.mqtt.process import Place
from brokers import PATIENCE, Command, private_broker, until

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


NOISE = design_output_noise((A, C), HORIZON, epsilon=1.0, delta=0.01)


@pytest.fixture
def broker(tmp_path):
    with private_broker(tmp_path / "broker") as broker:
        yield Broker.parse(broker.address)


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


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_step(seen, topic):
    """All payloads that were ever seen, by step."""
    found = {}
    for message in seen:
        said = json.loads(message["payload"]) if message["topic"] == topic else {}
        if "step" in said:  # not the claim of a topic, nor a last will
            found.setdefault(said["step"], set()).add(message["payload"])
    return found


# ---------------------------------------------------------------------- both ends, without network


def recursion(noise, skipped=(), limits=(-np.inf, np.inf)):
    """The loop written down once more: states and inputs."""
    a, b, c, k, l = map(np.array, (A, B, C, K, L))
    x, estimate, target = np.array([-20.0, 0.0]), np.array([1.0, 2.0]), np.array([1.0, 0.0])
    states, inputs = [], []
    for t, gamma in enumerate(noise):
        u = np.clip(-k @ (estimate - target), *limits)
        states.append(x)
        inputs.append(u)
        correction = l @ (c @ x + gamma - c @ estimate)
        estimate = a @ estimate + b @ u + (0.0 if t in skipped else correction)
        x = a @ x + b @ u
    return np.array(states), np.array(inputs)


@pytest.mark.parametrize("limits", [None, (np.array([-2.0]), np.array([3.0]))])
@pytest.mark.parametrize("skipped", [(), (0,), (3, 4, 5), (23,)])
def test_controller_and_plant(skipped, limits, caplog):
    noise = np.random.default_rng(0).normal(size=(HORIZON, 1))
    controller, plant = Controller(LOOP, HORIZON, limits=limits), PlantModel(LOOP)
    states, inputs = recursion(noise, skipped, *([] if limits is None else [limits]))
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
    if limits is not None:
        assert {-2.0, 3.0} <= set(inputs.ravel()), "both limits are reached"
    assert caplog.text.count("inputs are clipped") == (limits is not None)


@pytest.mark.parametrize(("resolution", "grid"), [(0.5, 0.5), (Dither(2, 0.5), 0.125)])
def test_a_plant_reads_in_the_steps_of_its_sensors(resolution, grid):
    plant, exact = PlantModel(LOOP, resolution), PlantModel(LOOP)
    for t in range(20):
        codes = plant.measure() / grid
        np.testing.assert_array_equal(codes, np.rint(codes))
        assert np.abs(plant.measure() - exact.measure()).max() <= 0.25 + 0.125
        for one in (plant, exact):
            one.apply(np.full(one.inputs, 0.37 * t))


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
def gateway(shared, start, tmp_path, ready):
    """A gateway that listens; what it is running as, and its state."""
    state = tmp_path / "secret.db"

    def run(source, target, stop):
        with Gateway(NOISE, state=state, resolution="exact") as opened:
            return run_gateway(opened, source, target, stop, linger=0.3)

    def begin(name):
        running = start(run, Place(shared, f"{name}/plant"), Place(shared, f"{name}/cloud"))
        ready("gateway")
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


def test_a_step_that_was_recorded_but_not_published(gateway, client):
    """The gateway died between the disk and the network, and then y comes again."""
    with Gateway(NOISE, state=gateway.state, resolution="exact") as died:
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


def test_cloud_with_lost_repeated_late_and_malformed_messages(shared, client, start, caplog, ready):
    me = client("e/u")
    words = (LOOP, HORIZON, Place(shared, "e/y"), Place(shared, "e/u"))
    running = start(run_cloud, *words, linger=0.3)
    ready("cloud")
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


def test_actuators_end_at_their_limits(shared, client, start, tmp_path):
    """Whatever a controller of somebody else asks for: the promise rests on it."""
    log, me = tmp_path / "plant.jsonl", client("limits/y")
    words = (LOOP, 3, Place(shared, "limits/u"), Place(shared, "limits/y"))
    running = start(run_plant, *words, limits=([-2.0], [3.0]), log=log, resend=30.0, run="r")
    for step, asked in enumerate([7.0, 1.5, -1e300]):
        assert me.next()["step"] == step
        me.send("limits/u", {"run": "r", "step": step, "u": [asked]})
    assert running.result(PATIENCE).finished
    found = lines(log)
    assert [line["u"] for line in found] == [[3.0], [1.5], [-2.0]]
    np.testing.assert_allclose(found[1]["x"], [-20.0 + 0.005 * 3, 0.3])


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


def test_a_plant_that_hears_who_is_gone_says_so(shared, client, start):
    me = client("gone/y")
    words = (LOOP, 3, Place(shared, "gone/u"), Place(shared, "gone/y"))
    running = start(run_plant, *words, resend=0.05, patience=1.0)
    assert me.next()["step"] == 0
    me.send("gone/u", {"gone": "the gateway is gone"})
    assert running.result(PATIENCE).reason == "no answer to step 0 for 1 s: the gateway is gone"


def test_all_end_when_they_are_stopped(shared, gateway, tmp_path, ready):
    waiting = gateway("g")
    stop = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        here, there = Place(shared, "g/y"), Place(shared, "g/u")
        running = [
            pool.submit(run_plant, LOOP, HORIZON, there, here, stop, resend=30.0),
            pool.submit(run_cloud, LOOP, HORIZON, Place(shared, "g/cloud"), there, stop),
            pool.submit(eavesdrop, shared, ["g/#"], tmp_path / "seen", stop),
        ]
        ready("plant", "cloud", "eavesdropper")
        stop.set()
        plant, cloud, count = (future.result(PATIENCE) for future in running)
    assert not plant.finished
    assert not cloud.finished
    assert count <= 3  # a measurement, the claim of the gateway, and that the cloud is gone
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
def test_whole_loop_in_processes_with_two_brokers(tmp_path, ready):
    file, seen, log = tmp_path / "v.toml", tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    file.write_text(f"{VEHICLE}[mqtt]\nlinger = 0.3\n")
    NOISE.save(tmp_path / "m.json")
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
            Command(tmp_path, "control", "cloud", file, *at) as cloud,
            Command(
                tmp_path, "control", "gateway", file, *noise, *at, "--in-broker", own.address
            ) as gateway,
        ):
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
    assert "share the broker" not in gateway.said + plant.said
    assert "no ledger" in gateway.said


def test_brokers_die_and_come_back(tmp_path, start, caplog, ready):
    seen, log = tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    with (
        private_broker(tmp_path / "plant") as own,
        private_broker(tmp_path / "public") as public,
        Gateway(NOISE, state=tmp_path / "secret.db", resolution="exact") as opened,
    ):
        inside, outside = Broker.parse(own.address), Broker.parse(public.address)
        measured, noisy = Place(inside, "plant/y"), Place(outside, "cloud/y")
        inputs = Place(outside, "cloud/u")
        start(eavesdrop, outside, ["#"], seen)
        cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, linger=0.5)
        gateway = start(run_gateway, opened, measured, noisy, linger=0.5)
        ready("eavesdropper", "cloud", "gateway")
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
def test_gateway_is_killed_and_started_again(tmp_path, start, shared, ready, caplog):
    seen, log = tmp_path / "seen.jsonl", tmp_path / "plant.jsonl"
    NOISE.save(tmp_path / "m.json")
    (tmp_path / "v.toml").write_text(f"{VEHICLE}[mqtt]\nlinger = 0.5\n")
    words = (
        "control", "gateway", tmp_path / "v.toml", "--mechanism", tmp_path / "m.json",
        "--state", tmp_path / "s.db", "--resolution", "exact", "--broker", shared.address,
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
    ready("eavesdropper", "cloud")
    measured = Place(shared, "plant/y")
    more = {"log": log, "resend": 0.1, "period": 0.02, "on_step": on_step}
    assert start(run_plant, LOOP, HORIZON, inputs, measured, **more).result(PATIENCE).finished
    for timer in timers.values():
        timer.join()
    assert processes[-1].wait() == 0
    assert len(processes) == 3
    assert "plant: the gateway is gone" in caplog.text, "its last will was passed on"
    assert "share the broker" in processes[-1].said
    # a kill may cost the rest of a block, and never sends a step with two values
    assert [line["step"] for line in lines(log)] == list(range(HORIZON))
    said = {t: map(json.loads, values) for t, values in by_step(lines(seen), "cloud/y").items()}
    values = {t: {tuple(one["y"]) for one in spoken if "y" in one} for t, spoken in said.items()}
    assert sorted(values) == list(range(HORIZON))
    assert max(map(len, values.values())) == 1
    assert len(values[0]) == 1


# ---------------------------------------------------------------------- what it survives


def test_two_gateways_on_one_topic(tmp_path, broker, start, ready):
    words = (Place(broker, "plant/y"), Place(broker, "cloud/y"))
    with (
        Gateway(NOISE, state=tmp_path / "a", resolution=0.01) as first,
        Gateway(NOISE, state=tmp_path / "b", resolution=0.01) as second,
        Connection(broker, ["cloud/y"]) as spy,
    ):
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_gateway, first, *words, stop)
            ready("gateway")
            with pytest.raises(AffineDPError, match="two draws for one step"):
                run_gateway(second, *words, threading.Event())
            # and the first is not disturbed
            spy.publish("plant/y", b'{"run": "r", "step": 0, "y": [1.0]}')
            assert spy.receive(PATIENCE) is not None
            time.sleep(0.3)
            assert spy.receive(0.0) is None, "published by one alone"
            assert not running.done()
            stop.set()
            running.result(PATIENCE)
        # who ends gives the topic back
        stop = threading.Event()
        stop.set()
        run_gateway(second, *words, stop)


@pytest.mark.slow
def test_the_claim_of_a_gateway_that_was_killed(tmp_path, broker, ready):
    """Its last will frees the topic; a stale claim can be taken over."""
    NOISE.save(tmp_path / "m.json")
    (tmp_path / "v.toml").write_text(f"{VEHICLE}[mqtt]\nlinger = 0.2\n")
    words = ("control", "gateway", tmp_path / "v.toml", "--mechanism", tmp_path / "m.json",
             "--resolution", 0.01, "--broker", broker.address)  # fmt: skip
    with Command(tmp_path, *words, "--state", tmp_path / "a") as first:
        first.ready()
        with Command(tmp_path, *words, "--state", tmp_path / "b") as second:
            assert second.wait() == 2
            assert "another gateway" in second.said
            assert "--take-over" in second.said
            assert "take_over=True" not in second.said
        first.kill()
    with Command(tmp_path, *words, "--state", tmp_path / "b") as third:
        third.ready()
        assert third.end() == 0
    with Connection(broker) as me:
        me.publish("cloud/y/claim", b'{"owner": "somebody who is gone"}', retain=True)
        time.sleep(0.1)
    with Command(tmp_path, *words, "--state", tmp_path / "b") as fourth:
        assert fourth.wait() == 2
    with Command(tmp_path, *words, "--state", tmp_path / "b", "--take-over") as fifth:
        fifth.ready()
        assert fifth.end() == 0


def test_a_broker_that_is_down_at_the_start_is_waited_for(tmp_path, start, caplog):
    late = private_broker(tmp_path / "broker")
    broker = Broker.parse(late.address)
    with Gateway(NOISE, state=tmp_path / "s", resolution=0.01) as gateway:
        measured, noisy = Place(broker, "plant/y"), Place(broker, "cloud/y")
        inputs = Place(broker, "cloud/u")
        running = [
            start(run_cloud, LOOP, HORIZON, noisy, inputs, linger=0.3, patience=PATIENCE),
            start(run_gateway, gateway, measured, noisy, linger=0.3, patience=PATIENCE),
            start(run_plant, LOOP, HORIZON, inputs, measured, resend=0.3, wait=PATIENCE),
        ]
        until(lambda: caplog.text.count("waiting for it") >= 3)
        with late:
            for one in running:
                assert one.result(PATIENCE).finished


def test_a_mechanism_that_is_shorter_than_the_run(tmp_path, broker, start, ready):
    short = design_output_noise((A, C), 5, epsilon=1.0, delta=0.01)
    for missing, finished in (("stop", False), ("predict", True)):
        with Gateway(short, state=tmp_path / missing, resolution=0.01) as gateway:
            names = [f"{missing}/{name}" for name in ("plant", "cloud", "u")]
            measured, noisy, inputs = (Place(broker, name) for name in names)
            cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, missing=missing, linger=0.3)
            running = start(run_gateway, gateway, measured, noisy, linger=0.3)
            ready("gateway", times=1 if missing == "stop" else 2)
            ready("cloud", times=1 if missing == "stop" else 2)
            plant = start(run_plant, LOOP, HORIZON, inputs, measured, resend=0.2)
            outcome = plant.result(PATIENCE)
            assert outcome.finished == finished
            assert bool(outcome.reason) != finished
            assert "beyond the horizon of 5 steps" in running.result(PATIENCE).reason
            assert bool(cloud.result(PATIENCE).reason) != finished


def test_a_cloud_is_started_again_in_the_midst(tmp_path, broker, start, caplog, ready):
    log, state = tmp_path / "plant.jsonl", tmp_path / "cloud.json"
    with (
        Gateway(NOISE, state=tmp_path / "s", resolution="exact") as gateway,
        Connection(broker, ["cloud/y"]) as spy,
    ):
        measured, noisy = Place(broker, "plant/y"), Place(broker, "cloud/y")
        inputs = Place(broker, "cloud/u")
        stops = [threading.Event(), threading.Event()]
        with ThreadPoolExecutor(2) as pool:
            words = (LOOP, HORIZON, noisy, inputs)
            clouds = [pool.submit(run_cloud, *words, stops[0], state=state)]
            start(run_gateway, gateway, measured, noisy)
            ready("cloud", "gateway")

            def on_step(step):
                if step == 10:
                    stops[0].set()
                    clouds[0].result(PATIENCE)
                    clouds.append(pool.submit(run_cloud, *words, stops[1], state=state))

            more = {"resend": 0.2, "log": log, "on_step": on_step}
            assert start(run_plant, LOOP, HORIZON, inputs, measured, **more).result(PATIENCE)
            stops[1].set()
        published = {}
        while (message := spy.receive(0.0)) is not None:
            record = json.loads(message.payload)
            if "y" in record:
                published[record["step"]] = record["y"]
    assert "goes on with run" in caplog.text
    truth = [json.loads(line) for line in log.read_text().splitlines()]
    noise = np.array([published[t] for t in range(HORIZON)]) - [line["y"] for line in truth]
    expected = LOOP.simulate(noise[None], HORIZON, 1, 0)
    np.testing.assert_allclose([line["u"] for line in truth], expected.inputs[0], atol=1e-9)


@pytest.mark.slow
def test_a_plant_that_nobody_answers_ends_with_a_code(tmp_path, broker):
    file = tmp_path / "v.toml"
    file.write_text(
        f"horizon = 3\n[plant]\nA = {A}\nB = {B}\nC = {C}\nx0 = [-20, 0]\n[controller]\n"
        f"feedback = {K}\nobserver = {L}\n[reference]\nconstant = [1, 0]\n"
        "[mqtt]\npatience = 0.3\n"
    )
    words = ("control", "plant", file, "--broker", broker.address)
    with Command(tmp_path, *words) as plant:
        assert plant.wait() == 5
        assert "no answer to step 0 for 0.3 s" in plant.said
