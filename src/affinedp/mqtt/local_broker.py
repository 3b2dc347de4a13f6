"""A broker of one's own on this machine, for trials: the embedded one."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from affinedp.errors import AffineDPError, install_command
from affinedp.mqtt.broker import Broker

logger = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds to start
GOODBYE = 10.0  # seconds to end
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds before it is started again


def has_embedded() -> bool:
    """Whether the embedded broker can be started: whether amqtt is installed."""
    return importlib.util.find_spec("amqtt") is not None


@contextmanager
def local_broker(folder: Path, port: int | None = None) -> Iterator[Broker]:
    """Start a broker that only this machine can reach; it ends with the block.

    It is at a free port unless one is given.  If it ends before, it is started again.  Anyone on
    the machine can read and write there: all that crosses it is public anyway.  The folder is for
    what it says.
    """
    port = _free_port(port)
    if not has_embedded():
        raise AffineDPError(
            "no broker was named, and there is none here. One for trials comes with "
            f"{install_command('broker')}; mosquitto is the one for use (Debian and Ubuntu: "
            "apt install mosquitto; macOS: brew install mosquitto; Windows: "
            "mosquitto.org/download). Or name a broker that runs: --broker host:port"
        )
    command = [sys.executable, "-m", "affinedp.mqtt.embedded", str(port)]
    log = folder / "broker.log"
    log.write_bytes(b"")
    running = _Running(command, log)
    try:
        if not running.listens(port):
            said = log.read_text(errors="replace").strip().splitlines()
            last = said[-1] if said else "it says nothing"
            raise AffineDPError(f"the broker does not start: {last}")
        running.keep()
        yield Broker("127.0.0.1", port)
    finally:
        running.end()


class _Running:
    """A broker as a process, started again where it was if it ends by itself."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as said:
            # a session of its own: Ctrl-C comes to us, and what we start may still say goodbye
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def listens(self, port: int) -> bool:
        """Wait until it listens; False if it ends before, or does not in time."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def keep(self) -> None:
        """Start it again, ever more patiently, whenever it ends; clients come back by themselves.

        Without that whoever waits for messages would wait for ever.
        """
        self._keeper = threading.Thread(target=self._watch, name="broker", daemon=True)
        self._keeper.start()

    def _watch(self) -> None:
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
                _hang_up(self._process)
                self._process = self._start()

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
        _hang_up(process)


def _hang_up(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _free_port(port: int | None) -> int:
    """A port where nobody listens: the given one, or any."""
    with socket.socket() as probe:
        if os.name == "posix":  # what was closed a minute ago is free; Windows needs no option
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as error:
            raise AffineDPError(f"no broker can be at port {port}: {error.strerror}") from None
        return int(probe.getsockname()[1])
