"""A loop that survives its plant: power cuts, full disks, late brokers, second gateways."""

import json
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from affinedp.stream.run import RunError

from affinedp.budget.ledger import Ledger
from affinedp.control import ClosedLoop, Gateway, design_output_noise
from affinedp.control.gateway.refusals import LateStepError
from affinedp.control.processes.cloud import run_cloud
from affinedp.control.processes.gateway import run_gateway
from affinedp.control.processes.plant import run_plant
from affinedp.wire.broker import Broker
from affinedp.wire.claim import ClaimedError
from affinedp.wire.connection import Connection
from affinedp.wire.line import Place
from brokers import PATIENCE, Command, private_broker, until
from disks import MortalDisk, SmallDisk

HORIZON = 25
A, B, C = [[1.0, 0.1], [0.0, 1.0]], [[0.005], [0.1]], [[1.0, 0.0]]
K, L = [[3.4240, 4.3095]], [[0.8266], [0.6973]]
LOOP = ClosedLoop((A, B, C), K, L, [1.0, 0.0], x0=[-20.0, 0.0], xhat0=[1.0, 2.0])
NOISE = design_output_noise((A, C), HORIZON, epsilon=1.0, delta=0.01)


# ---------------------------------------------------------------------- disks

SENDING = """
    import sys
    from affinedp.control import Gateway, TrajectoryMechanism
    mechanism = TrajectoryMechanism.load(sys.argv[1])
    with Gateway(mechanism, state=sys.argv[2], resolution=0.001) as gateway:
        while True:
            step = gateway.next_step
            print(step, gateway.send([1.0], step, run="r").tobytes().hex(), flush=True)
"""


@pytest.mark.slow
def test_power_is_cut_while_sending(tmp_path):
    """What came out comes out again or not at all, and nothing that may have is sent anew."""
    m = design_output_noise(([[1]], [[1]]), 4000, epsilon=1, delta=1e-3)
    m.save(tmp_path / "m.json")
    with MortalDisk(tmp_path) as disk:
        state = disk.place / "run.db"
        seen = {}
        for lines in (1, 40, 300):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SENDING), tmp_path / "m.json", state],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            printed = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGSTOP)
            left = disk.snapshot()
            process.kill()
            printed += process.communicate()[0].splitlines(keepends=True)
            for step, sent in (line.split() for line in printed if line.endswith("\n")):
                assert int(step) not in seen, "a step went out twice"
                seen[int(step)] = sent
            disk.boot(left)
        again = lost = 0
        with Gateway(m, state=state, resolution=0.001) as gateway:
            assert gateway.run == "r", "whose draw it is survives"
            assert gateway.next_step > max(seen)
            for step, sent in seen.items():
                try:
                    assert gateway.send([1.0], step).tobytes().hex() == sent
                    again += 1
                except LateStepError:
                    lost += 1
            gateway.send([1.0])
        assert again + lost == len(seen) > 300
        assert lost > 0, "the cut came too gently to test anything"


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1])
def test_power_is_cut_at_the_start(tmp_path, lines):
    """The draw and its charge are on the disk before anything is sent."""
    NOISE.save(tmp_path / "m.json")
    code = """
        import sys, time
        from affinedp.budget.ledger import Ledger
        from affinedp.control import Gateway, TrajectoryMechanism
        ledger = Ledger(sys.argv[3], create=False)
        m = TrajectoryMechanism.load(sys.argv[1])
        gateway = Gateway(m, state=sys.argv[2], resolution=0.001, ledger=ledger)
        print("drawn", flush=True)
        print(gateway.send([1.0], run="r").tobytes().hex(), flush=True)
        time.sleep(100)
    """
    with MortalDisk(tmp_path) as disk:
        state, budget = disk.place / "run.db", disk.place / "budget.db"
        with Ledger(budget, epsilon=3.0, delta=0.05, protects="one vehicle"):
            pass
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), tmp_path / "m.json", state, budget],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        printed = [process.stdout.readline() for _ in range(1 + lines)]
        process.send_signal(signal.SIGSTOP)
        left = disk.snapshot()
        process.kill()
        process.communicate()
        disk.boot(left)
        with Ledger(budget) as ledger, Gateway(
            NOISE, state=state, resolution=0.001, ledger=ledger
        ) as gateway:  # fmt: skip
            assert len(ledger.history()) == 1
            if lines:  # the first step is waited for: it names the run
                assert gateway.run == "r"
                assert gateway.send([1.0], 0).tobytes().hex() == printed[1].strip()
            else:
                assert gateway.next_step <= 1


def test_full_disk(tmp_path):
    """Nothing is sent that is not on the disk; with room again it goes on where it was."""
    m = design_output_noise(([[1]], [[1]]), 100_000, epsilon=1, delta=1e-3)
    with SmallDisk(tmp_path, 400) as disk:
        state = disk.place / "run.db"
        gateway = Gateway(m, state=state, resolution=0.001)
        sent = [gateway.send([1.0], run="r") for _ in range(3)]
        disk.fill()
        with pytest.raises(RunError, match="disk is full"):
            sent.extend(iter(lambda: gateway.send([1.0]), None))
        with pytest.raises(RunError, match="met an error"):
            gateway.send([1.0])
        disk.make_room()
        with Gateway(m, state=state, resolution=0.001) as again:
            assert again.next_step == len(sent)
            assert np.array_equal(again.send([1.0], 0), sent[0])
            again.send([1.0])


def test_no_draw_on_a_full_disk(tmp_path):
    with (
        SmallDisk(tmp_path, 64) as disk,
        Ledger(tmp_path / "b.db", epsilon=3.0, delta=0.05, protects="one vehicle") as ledger,
    ):
        disk.fill()
        with pytest.raises(RunError):
            Gateway(NOISE, state=disk.place / "run.db", resolution=0.001, ledger=ledger)
        assert {name.name for name in disk.place.iterdir()} <= {"filler"}, "no draw is left behind"


# ---------------------------------------------------------------------- brokers

pytest.importorskip("paho.mqtt.client")


@pytest.fixture
def start():
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        yield lambda function, *words, **more: pool.submit(function, *words, stop, **more)
        stop.set()


@pytest.fixture
def broker(tmp_path):
    with private_broker(tmp_path / "broker") as broker:
        yield Broker.parse(broker.address)


def ready(caplog, who, times=1):
    def seen():
        return sum(who in line and "listening" in line for line in caplog.messages) >= times

    until(seen)


def test_two_gateways_on_one_topic(tmp_path, broker, start, caplog):
    caplog.set_level(logging.INFO)
    words = (Place(broker, "plant/y"), Place(broker, "cloud/y"))
    with (
        Gateway(NOISE, state=tmp_path / "a", resolution=0.01) as first,
        Gateway(NOISE, state=tmp_path / "b", resolution=0.01) as second,
        Connection(broker, ["cloud/y"]) as spy,
    ):
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_gateway, first, *words, stop)
            ready(caplog, "gateway:")
            with pytest.raises(ClaimedError, match="two draws for one step"):
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
def test_the_claim_of_a_gateway_that_was_killed(tmp_path, broker):
    """Its last will frees the topic; a stale claim can be taken over."""
    NOISE.save(tmp_path / "m.json")
    words = ("control", "gateway", "--mechanism", tmp_path / "m.json", "--resolution", 0.01,
             "--broker", broker.address, "--linger", 0.2)  # fmt: skip
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
    caplog.set_level(logging.INFO)
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


@pytest.mark.parametrize("missing", ["predict", "hold"])
def test_the_loop_goes_on_after_steps_that_are_lost(tmp_path, broker, start, caplog, missing):
    """As after a gateway's power loss: the plant gets its answers all the same."""
    caplog.set_level(logging.INFO)
    with Gateway(NOISE, state=tmp_path / "s", resolution=0.01) as gateway:
        gateway._next = 3  # what a power cut leaves: these may have been sent
        measured, noisy = Place(broker, "plant/y"), Place(broker, "cloud/y")
        inputs = Place(broker, "cloud/u")
        cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, missing=missing, linger=0.3)
        running = start(run_gateway, gateway, measured, noisy, linger=0.3)
        for who in ("cloud:", "gateway:"):
            ready(caplog, who)
        plant = start(run_plant, LOOP, HORIZON, inputs, measured, resend=0.2)
        for one in (plant, cloud, running):
            assert one.result(PATIENCE).finished
        assert running.result().dropped["late"] >= 3


@pytest.mark.parametrize("missing", ["predict", "hold", "stop"])
def test_a_message_with_a_later_step(tmp_path, broker, start, caplog, missing):
    caplog.set_level(logging.INFO)
    with Gateway(NOISE, state=tmp_path / "s", resolution=0.01) as gateway:
        measured, noisy = Place(broker, "plant/y"), Place(broker, "cloud/y")
        inputs = Place(broker, "cloud/u")
        cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, missing=missing, linger=0.5)
        start(run_gateway, gateway, measured, noisy, linger=0.5)
        for who in ("cloud:", "gateway:"):
            ready(caplog, who)

        def on_step(step):
            if step == 9:
                with Connection(broker) as rogue:
                    rogue.publish("plant/y", b'{"run": "r", "step": 14, "y": [0.0]}')
                    until(lambda: gateway.next_step == 15)

        # the plant's own step 14 comes with another value; it ends before that
        words = (LOOP, 14, inputs, measured)
        plant = start(run_plant, *words, run="r", resend=0.2, on_step=on_step)
        outcome = plant.result(PATIENCE)
        if missing == "stop":
            assert not outcome.finished
            assert "no measurement" in outcome.reason
            assert "no measurement" in cloud.result(PATIENCE).reason
        else:
            assert outcome.finished


def test_a_mechanism_that_is_shorter_than_the_run(tmp_path, broker, start, caplog):
    caplog.set_level(logging.INFO)
    short = design_output_noise((A, C), 5, epsilon=1.0, delta=0.01)
    for missing, finished in (("stop", False), ("predict", True)):
        with Gateway(short, state=tmp_path / missing, resolution=0.01) as gateway:
            names = [f"{missing}/{name}" for name in ("plant", "cloud", "u")]
            measured, noisy, inputs = (Place(broker, name) for name in names)
            cloud = start(run_cloud, LOOP, HORIZON, noisy, inputs, missing=missing, linger=0.3)
            running = start(run_gateway, gateway, measured, noisy, linger=0.3)
            ready(caplog, "gateway:", 1 if missing == "stop" else 2)
            ready(caplog, "cloud:", 1 if missing == "stop" else 2)
            plant = start(run_plant, LOOP, HORIZON, inputs, measured, resend=0.2)
            outcome = plant.result(PATIENCE)
            assert outcome.finished == finished
            assert bool(outcome.reason) != finished
            assert "beyond the horizon of 5 steps" in running.result(PATIENCE).reason
            assert bool(cloud.result(PATIENCE).reason) != finished


def test_a_cloud_is_started_again_in_the_midst(tmp_path, broker, start, caplog):
    caplog.set_level(logging.INFO)
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
            for who in ("cloud:", "gateway:"):
                ready(caplog, who)

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
    )
    words = ("control", "plant", file, "--broker", broker.address, "--patience", 0.3)
    with Command(tmp_path, *words) as plant:
        assert plant.wait() == 5
        assert "no answer to step 0 for 0.3 s" in plant.said
