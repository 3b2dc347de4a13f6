"""A broker of one's own on this machine, for trials: mosquitto, if it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from affinedp.wire.broker import Broker
from affinedp.wire.client import BrokerError

# Debian puts programs for administrators where not every user looks.
MORE_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/bin")
PATIENCE = 10.0  # seconds to start


def find_mosquitto() -> str:
    """Return where mosquitto is, or say how to get a broker.

    Raises
    ------
    BrokerError
        If it is not installed.
    """
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), *MORE_PLACES])
    found = shutil.which("mosquitto", path=places)
    if found is None:
        raise BrokerError(
            "no broker was named, and the program mosquitto is not installed. Install it (Debian "
            "and Ubuntu: apt install mosquitto; macOS: brew install mosquitto; Windows: "
            "mosquitto.org/download), or name a broker that runs: --broker host:port"
        )
    return found


@contextmanager
def local_broker(folder: Path) -> Iterator[Broker]:
    """Start a broker that only this machine can reach; it ends with the block.

    Anyone on the machine can read and write there: all that crosses it is public anyway.

    Parameters
    ----------
    folder : Path
        For its settings and what it says.

    Yields
    ------
    Broker
        Where it is.
    """
    program = find_mosquitto()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    settings, log = folder / "broker.conf", folder / "broker.log"
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true"]
    lines += ["persistence false", "max_queued_messages 0"]
    if hasattr(os, "getuid") and os.getuid() == 0:
        lines.append("user root")  # otherwise it may not read the folder
    settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with log.open("wb") as said:
        process = subprocess.Popen([program, "-c", str(settings)], stdout=said, stderr=said)
    try:
        _wait_for(process, port, log)
        yield Broker("127.0.0.1", port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.02)
    said = log.read_text(errors="replace").strip().splitlines()
    raise BrokerError(f"mosquitto does not start: {said[-1] if said else 'it says nothing'}")
