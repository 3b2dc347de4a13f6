"""A broker of one's own on this machine, for trials: the embedded one, or mosquitto."""

from __future__ import annotations

import importlib.util
import logging
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from affinedp.errors import install_command
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import BrokerError

logger = logging.getLogger(__name__)

# Debian puts programs for administrators where not every user looks.
MORE_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/bin")
PATIENCE = 30.0  # seconds to start
GOODBYE = 10.0  # seconds to end
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds before it is started again


def has_embedded() -> bool:
    """Whether the embedded broker can be started: whether amqtt is installed."""
    return importlib.util.find_spec("amqtt") is not None


def find_mosquitto() -> str | None:
    """Return where mosquitto is, if it is installed."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), *MORE_PLACES])
    return shutil.which("mosquitto", path=places)


@contextmanager
def local_broker(
    folder: Path, kind: Literal["embedded", "mosquitto"] | None = None, port: int | None = None
) -> Iterator[Broker]:
    """Start a broker that only this machine can reach; it ends with the block.

    By default it is the embedded one, or mosquitto where amqtt is not installed, at a free port.
    If it ends before, it is started again.  Anyone on the machine can read and write there: all
    that crosses it is public anyway.  The folder is for its settings and what it says.
    """
    mosquitto = None if kind == "embedded" else find_mosquitto()
    if kind != "mosquitto" and has_embedded():
        command = [sys.executable, "-m", "affinedp.mqtt.embedded", str(port or 0)]
        says_port = True
    elif mosquitto is not None:
        port = _free_port() if port is None else port
        keeper = [sys.executable, "-m", "affinedp.mqtt.lifeline"]
        command = [*keeper, mosquitto, "-c", str(_settings(folder, port))]
        says_port = False
    else:
        raise BrokerError(
            "no broker was named, and there is none here. One for trials comes with "
            f"{install_command('broker')}; mosquitto is the one for use (Debian and Ubuntu: "
            "apt install mosquitto; macOS: brew install mosquitto; Windows: "
            "mosquitto.org/download). Or name a broker that runs: --broker host:port"
        )
    running = _Running(command, folder / "broker.log", says_port)
    try:
        found = running.first_port(port)
        if found is None:
            raise BrokerError(f"the broker does not start: {running.last_words()}")
        running.keep(found)
        yield Broker("127.0.0.1", found)
    finally:
        running.end()


class _Running:
    """A broker as a process, started again where it was if it ends by itself."""

    def __init__(self, command: list[str], log: Path, says_port: bool) -> None:
        self._command, self._log, self._says_port = command, log, says_port
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._process = self._start("wb")

    def _start(self, mode: Literal["wb", "ab"]) -> subprocess.Popen[bytes]:
        with self._log.open(mode) as said:
            # a session of its own: Ctrl-C comes to us, and what we start may still say goodbye
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self._says_port else said,
                stderr=said,
                start_new_session=True,
            )

    def first_port(self, port: int | None) -> int | None:
        """Where it listens, once it does; None if it does not."""
        if self._says_port:
            return _port_said_by(self._process.stdout)
        return _reached(self._process, port)

    def last_words(self) -> str:
        """The last line that it said."""
        said = self._log.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else "it says nothing"

    def keep(self, port: int) -> None:
        """Start it again, ever more patiently, whenever it ends; clients come back by themselves.

        Without that whoever waits for messages would wait for ever.
        """
        if self._says_port:
            self._command[-1] = str(port)

        def watch() -> None:
            pause = FIRST_PAUSE
            while True:
                code = self._process.wait()
                if self._ending.wait(pause):
                    return
                logger.warning(
                    "the broker ended (exit code %d): starting it again, without its messages", code
                )
                pause = min(2.0 * pause, LONGEST_PAUSE)
                with self._lock:
                    if self._ending.is_set():
                        return
                    _close(self._process)
                    self._process = self._start("ab")

        self._keeper = threading.Thread(target=watch, name="broker", daemon=True)
        self._keeper.start()

    def end(self) -> None:
        """Ask it to end; if it does not, kill it."""
        with self._lock:
            self._ending.set()
            process = self._process
        process.terminate()
        try:
            process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._keeper is not None:
            self._keeper.join()
        _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for end in (process.stdin, process.stdout):
        if end is not None:
            end.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _settings(folder: Path, port: int) -> Path:
    """The settings of mosquitto."""
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true"]
    lines += ["persistence false", "max_queued_messages 0"]
    if hasattr(os, "getuid") and os.getuid() == 0:
        lines.append("user root")  # otherwise it may not read the folder
    settings = folder / "broker.conf"
    settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return settings


def _port_said_by(said: IO[bytes] | None) -> int | None:
    """The port that the embedded broker found free; None if it ends or says nothing in time."""
    assert said is not None
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=lambda: lines.put(said.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=PATIENCE)
    except queue.Empty:
        return None
    return int(line) if line.strip().isdigit() else None


def _reached(process: subprocess.Popen[bytes], port: int | None) -> int | None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return port
        except OSError:
            time.sleep(0.02)
    return None
