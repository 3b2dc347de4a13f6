"""Round trips plant → broker → cloud → broker → plant, with and without the gateway in between."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from brokers import private_broker

RATE = 1000  # messages per second
SECONDS = 4.0
ROUNDS = 7
WARM_UP = 200  # messages that are not measured
GIVE_UP = 60.0  # seconds without an answer
# Sources of an older version to compare with in the same run, if any.
BEFORE = os.environ.get("AFFINEDP_BEFORE")

# The far end: it answers every message at once, with the same JSON that the cloud uses.
ECHO = """
import sys, threading
from affinedp.mqtt.loop_process import decode, encode
from affinedp.mqtt.connection import Connection
from affinedp.mqtt.broker import Broker

def answer(message):
    said = decode(message.payload, "y", 1)
    connection.publish("cloud/u", encode(said.run, said.step, "u", said.values))

connection = Connection(Broker.parse(sys.argv[1]), [sys.argv[2]], answer)
with connection:
    print("ready", flush=True)
    threading.Event().wait()
"""

# Sends as fast as it can: median and 99 % in milliseconds, steps per second.
SENDS = """
import statistics, sys, tempfile, time
from affinedp.control import Gateway, design_output_noise
from affinedp.exact.systems import start_certificate
from affinedp.exact.systems import LinearSystem
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.inputs import private_inputs
from affinedp.strategies.filter import Filter

made = LinearSystem([[0.97, 0.0], [0.1, 0.7]], [[0.5], [0.1]], [[0.4, 0.3]], [[1.0]])
room = private_inputs(([[0.99]], [[0.9]], [[1.0]]), mu=1.0)
start = start_certificate(made.exact()).root
noise = Filter(room.domain, made, "output", 1.5, start)
noises = {
    "one draw": design_output_noise(([[1, 0.1], [0, 1]], [[1, 0]]), 2000, 1, 0.01, mu=[1, 0]),
    "stationary": Mechanism(room, noise, Gaussian()),
}
with tempfile.TemporaryDirectory() as folder:
    with Gateway(noises[sys.argv[1]], state=folder + "/state", resolution="exact") as gateway:
        times = [time.perf_counter()]
        for _ in range(2000):
            gateway.send([0.0])
            times.append(time.perf_counter())
taken = [b - a for a, b in zip(times, times[1:])]
cut = statistics.quantiles(taken, n=100)[98]
print(1e3 * statistics.median(taken), 1e3 * cut, len(taken) / (times[-1] - times[0]))
"""

GATEWAY = """
import sys, threading
from affinedp.control import Gateway
from affinedp.mechanism import Mechanism
from affinedp.mqtt.process import Place
from affinedp.mqtt.gateway_process import run_gateway
from affinedp.mqtt.broker import Broker
import logging
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
broker = Broker.parse(sys.argv[1])
mechanism = Mechanism.load(sys.argv[2])
with Gateway(mechanism, state=sys.argv[3], resolution="exact") as gateway:
    run_gateway(gateway, Place(broker, "plant/y"), Place(broker, "cloud/y"), threading.Event())
"""


@contextmanager
def _process(program: str, *arguments: object, sources: str | None = None) -> Iterator[None]:
    """A Python process, perhaps with other sources; it is ready when it says so."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, **({"PYTHONPATH": sources} if sources else {})}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    while not any(word in process.stdout.readline() for word in ("ready", "listening")):
        assert process.poll() is None
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _round_trips(address: str) -> tuple[list[float], float]:
    """Seconds from sending to receiving, at a steady rate; and how many came back per second."""
    from affinedp.mqtt.broker import Broker
    from affinedp.mqtt.connection import Connection, Message

    count = int(RATE * SECONDS)
    sent = [0.0] * count
    taken: list[float] = []
    all_back = threading.Event()

    def back(message: Message) -> None:
        taken.append(time.perf_counter() - sent[json.loads(message.payload)["step"]])
        if len(taken) == count:
            all_back.set()

    with Connection(Broker.parse(address), ["cloud/u"], back) as connection:
        start = time.perf_counter()
        for step in range(count):
            time.sleep(max(0.0, start + step / RATE - time.perf_counter()))
            sent[step] = time.perf_counter()
            message = b'{"run":"r","step":%d,"y":[%.3f]}' % (step, step * 0.001)
            connection.publish("plant/y", message)
        if not all_back.wait(GIVE_UP):
            raise TimeoutError(f"only {len(taken)} of {count} messages came back")
        kept = count / (time.perf_counter() - start)
    return taken[WARM_UP:], kept


def _shown(rounds: list[list[float]]) -> tuple[float, float, float]:
    """Median, 99th percentile and the latter in the worst round, in milliseconds.

    Of rounds the median is taken: where four processes share two cores one round in some is late.
    """
    late = [1e3 * statistics.quantiles(times, n=100)[98] for times in rounds]
    middle = statistics.median(statistics.median(times) for times in rounds)
    return 1e3 * middle, statistics.median(late), max(late)


def _sends(noise: str, sources: str | None) -> tuple[float, float, float]:
    environment = {**os.environ, **({"PYTHONPATH": sources} if sources else {})}
    words = [sys.executable, "-c", SENDS, noise]
    said = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    median, late, rate = map(float, said.stdout.split())
    return median, late, rate


def run() -> str:
    """Return the Markdown section."""
    from affinedp.control import design_output_noise

    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    places: dict[str, tuple[str | None, str | None]] = {
        "state on the disk": (None, None),
        "state in memory (tmpfs)": (memory, None),
    }
    if BEFORE:
        places["before, state on the disk"] = (None, BEFORE)
    results: dict[str, list[list[float]]] = {"none": [], **{name: [] for name in places}}
    kept: dict[str, list[float]] = {name: [] for name in results}

    def measure(place: str) -> None:
        times, rate = _round_trips(address)
        results[place].append(times)
        kept[place].append(rate)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        noise = design_output_noise(
            ([[1, 0.1], [0, 1]], [[1, 0]]), int(RATE * SECONDS), 1.0, 0.01, mu=[1, 0]
        )
        noise.save(folder / "m.json")
        with private_broker(folder, "mosquitto") as broker:
            address = broker.address
            for _ in range(ROUNDS):
                with _process(ECHO, address, "plant/y"):
                    measure("none")
                for place, (root, sources) in places.items():
                    with (
                        tempfile.TemporaryDirectory(dir=root) as states,
                        _process(ECHO, address, "cloud/y"),
                        _process(GATEWAY, address, folder / "m.json", Path(states) / "state.db",
                                 sources=sources),
                    ):  # fmt: skip
                        measure(place)
    base = _shown(results["none"])
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    lines = [
        "## Gateway",
        "",
        f"Round trips of {RATE} messages a second for {SECONDS:g} s, {ROUNDS} times in turn, one",
        "mosquitto and three processes on this machine: a sender, an echo with the messages of the",
        "cloud, and `affinedp control gateway` in between (three hops instead of two, and every",
        "step written before it is sent).  Milliseconds.  Wanted: at most twice the median.",
        f"Fewer than {RATE} a second that come back mean that a queue grew.",
        f"Medians of the rounds.  Load average {load}.",
        "",
        "| gateway | come back per s | median | 99 % | worst round | ratio of medians | at 99 % |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    for place, times in results.items():
        shown = _shown(times)
        numbers = " | ".join(f"{number:.2f}" for number in shown)
        ratios = f"{shown[0] / base[0]:.2f} | {shown[1] / base[1]:.2f}"
        lines.append(f"| {place} | {statistics.median(kept[place]):.0f} | {numbers} | {ratios} |")
    lines += ["", "`Gateway.send` alone, 2,000 steps, state on the disk.", ""]
    lines += ["| noise | median ms | 99 % ms | steps per s |", "|:---|---:|---:|---:|"]
    for version, sources in {"": None, **({" (before)": BEFORE} if BEFORE else {})}.items():
        for kind in ("one draw", "stationary"):
            median, late, rate = _sends(kind, sources)
            lines.append(f"| {kind}{version} | {median:.2f} | {late:.2f} | {rate:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
