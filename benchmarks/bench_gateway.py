"""Round trips plant → broker → cloud → broker → plant, with and without the gateway in between."""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RATE = 1000  # messages per second
SECONDS = 4.0
ROUNDS = 3
WARM_UP = 200  # messages that are not measured
GIVE_UP = 60.0  # seconds without an answer

# The far end: it answers every message at once, with the same JSON that the cloud uses.
ECHO = """
import sys, threading
from affinedp.control.processes.messages import decode, encode
from affinedp.wire.connection import Connection
from affinedp.wire.broker import Broker

def answer(message):
    said = decode(message.payload, "y", 1)
    connection.publish("cloud/u", encode(said.run, said.step, "u", said.values))

connection = Connection(Broker.parse(sys.argv[1]), [sys.argv[2]], answer)
with connection:
    print("ready", flush=True)
    threading.Event().wait()
"""

GATEWAY = """
import sys, threading
from affinedp.control import Gateway, TrajectoryMechanism
from affinedp.wire.line import Place
from affinedp.control.processes.gateway import run_gateway
from affinedp.wire.broker import Broker
import logging
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
broker = Broker.parse(sys.argv[1])
mechanism = TrajectoryMechanism.load(sys.argv[2])
with Gateway(mechanism, state=sys.argv[3], resolution="exact") as gateway:
    run_gateway(gateway, Place(broker, "plant/y"), Place(broker, "cloud/y"), threading.Event())
"""


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    program = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        raise FileNotFoundError("mosquitto is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / "mosquitto.conf"
    # a queue without limit: a machine that stalls for a moment must not lose messages
    lines = ("allow_anonymous true", "set_tcp_nodelay true", "max_queued_messages 0")
    settings.write_text("\n".join((f"listener {port} localhost", *lines)) + "\n")
    process = subprocess.Popen([program, "-c", str(settings)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("localhost", port), timeout=1.0).close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def _process(program: str, *arguments: object) -> Iterator[None]:
    """A Python process; it is ready when it prints a line."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _round_trips(address: str) -> tuple[list[float], float]:
    """Seconds from sending to receiving, at a steady rate; and how many came back per second."""
    from affinedp.wire.broker import Broker
    from affinedp.wire.client import Message
    from affinedp.wire.connection import Connection

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


def _shown(times: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds."""
    cut = statistics.quantiles(times, n=100)
    return 1e3 * statistics.median(times), 1e3 * cut[98]


def run() -> str:
    """Return the Markdown section."""
    from affinedp.control import design_output_noise

    places = {"disk": None, "memory": "/dev/shm" if Path("/dev/shm").is_dir() else None}
    results: dict[str, list[float]] = {"none": [], **{name: [] for name in places}}
    kept: dict[str, list[float]] = {name: [] for name in results}

    def measure(place: str) -> None:
        times, rate = _round_trips(address)
        results[place] += times
        kept[place].append(rate)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        noise = design_output_noise(
            ([[1, 0.1], [0, 1]], [[1, 0]]), int(RATE * SECONDS), 1.0, 0.01, mu=[1, 0]
        )
        noise.save(folder / "m.json")
        with _broker(folder) as address:
            for _ in range(ROUNDS):
                with _process(ECHO, address, "plant/y"):
                    measure("none")
                for place, root in places.items():
                    with (
                        tempfile.TemporaryDirectory(dir=root) as states,
                        _process(ECHO, address, "cloud/y"),
                        _process(GATEWAY, address, folder / "m.json", Path(states) / "state.db"),
                    ):
                        measure(place)
    base = _shown(results["none"])
    lines = [
        "## Gateway",
        "",
        f"Round trips of {RATE} messages a second for {SECONDS:g} s, {ROUNDS} times in turn, one",
        "mosquitto and three processes on this machine: a sender, an echo with the messages of the",
        "cloud, and `affinedp control gateway` in between (three hops instead of two, and every",
        "step written before it is sent).  Milliseconds.  Wanted: at most twice the median.",
        f"Fewer than {RATE} a second that come back mean that a queue grew.",
        "",
        "| gateway | come back per s | median | 99 % | ratio of medians | ratio at 99 % |",
        "|:---|---:|---:|---:|---:|---:|",
    ]
    names = {"none": "none", "disk": "state on the disk", "memory": "state in memory (tmpfs)"}
    for place, times in results.items():
        median, late = _shown(times)
        ratios = f"{median / base[0]:.2f} | {late / base[1]:.2f}"
        rate = statistics.median(kept[place])
        lines.append(f"| {names[place]} | {rate:.0f} | {median:.2f} | {late:.2f} | {ratios} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
