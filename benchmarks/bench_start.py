"""How long a command takes from nothing, and how long the two brokers take for a message."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from brokers import private_broker

ROOT = Path(__file__).parent.parent
REPEATS = 5
# Sources of an older version to compare with in the same run, if any.
BEFORE = os.environ.get("AFFINEDP_BEFORE")
COMMANDS = {
    "`python -c 'import numpy, scipy'`": ["-c", "import numpy, scipy"],
    "`affinedp --help`": ["-m", "affinedp", "--help"],
    "`affinedp verify examples/cells.toml`": ["-m", "affinedp", "verify", "examples/cells.toml"],
}
MESSAGES = 1000
BATCH = 2000


def _seconds(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Processor time, and time, of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, cwd=ROOT, env=environment,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    taken = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, taken


def _starts(words: list[str], sources: str) -> tuple[float, float]:
    """Least processor seconds: with nothing compiled before, and with everything."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": sources, "PYTHONPYCACHEPREFIX": f"{cache}/pyc",
                       "NUMBA_CACHE_DIR": f"{cache}/numba"}  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # NumPy and SciPy are compiled when they are installed
        others = "numpy, scipy.sparse.csgraph, scipy.spatial.distance, numba, typer, rich.table"
        _seconds(["-c", f"import {others}"], environment)
        cold = _seconds(words, environment)[0]
        return cold, min(_seconds(words, environment)[0] for _ in range(REPEATS))


def starts() -> list[str]:
    lines = [
        f"Processor seconds of a new process, the least of {REPEATS}; cold is the first one after",
        "installation, without compiled Python files of affinedp and without numba's cache.  The",
        "last column is the warm time relative to `import numpy, scipy`.",
        "",
        "| command | cold s | warm s | warm, ratio |",
        "|:---|---:|---:|---:|",
    ]
    versions = {"": str(ROOT / "src"), **({" (before)": BEFORE} if BEFORE else {})}
    unit = 0.0
    for name, words in COMMANDS.items():
        for version, sources in versions.items():
            if "import" in name and version:
                continue
            cold, warm = _starts(words, sources)
            unit = unit or warm
            lines.append(f"| {name}{version} | {cold:.2f} | {warm:.2f} | {warm / unit:.1f} |")
    return lines


def _messages(kind: str) -> tuple[float, float, float]:
    """Median and 99 % of a round trip in milliseconds, and messages per second in a burst."""
    from affinedp.mqtt.broker import Broker
    from affinedp.mqtt.connection import Connection, Message

    with tempfile.TemporaryDirectory() as folder, private_broker(Path(folder), kind) as started:
        broker, times = Broker.parse(started.address), []
        with Connection(broker, ["t"]) as connection:
            for _ in range(MESSAGES):
                start = time.perf_counter()
                connection.publish("t", b"x" * 50)
                connection.receive(10.0)
                times.append(time.perf_counter() - start)
        left, done = BATCH, threading.Event()

        def heard(message: Message) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        with Connection(broker, ["b"], heard), Connection(broker) as sender:
            start = time.perf_counter()
            for _ in range(BATCH):
                sender.publish("b", b"x" * 50)
            if not done.wait(120.0):
                raise TimeoutError(f"{left} of {BATCH} messages did not come")
            rate = BATCH / (time.perf_counter() - start)
    cut = statistics.quantiles(times[100:], n=100)
    return 1e3 * statistics.median(times[100:]), 1e3 * cut[98], rate


def brokers() -> list[str]:
    lines = [
        f"{MESSAGES:,} messages of 50 bytes, QoS 1, to the broker and back to the sender, one",
        f"after the other; and {BATCH:,} at once from one connection to another.",
        "",
        "| broker | median ms | 99 % ms | messages per s |",
        "|:---|---:|---:|---:|",
    ]
    for kind in ("mosquitto", "embedded"):
        median, late, rate = _messages(kind)
        lines.append(f"| {kind} | {median:.2f} | {late:.2f} | {rate:,.0f} |")
    return lines


def run() -> str:
    """Return the Markdown section."""
    load = (
        f"The load average was {os.getloadavg()[0]:.1f} when this began, on {os.cpu_count()} cores."
    )
    return "\n".join(["## Starting, and brokers", "", load, "", *starts(), "", *brokers()])


if __name__ == "__main__":
    print(run())
