"""A broker of one's own on this machine, for trials: amqtt in a process that ends with ours.

``python -m affinedp.mqtt.local_broker PORT`` is that process.  Who starts a process holds a pipe to
its standard input and writes nothing.  When the holder is gone, killed or not, the system closes
the pipe, and the process reads the end of its input.

amqtt speaks MQTT 3.1.1 only.  It reads the first words of a client that speaks MQTT 5 wrongly and
waits for more of them, so those are read here first, and answered as the standard wants it: this
version is not spoken.  It also sends whoever connects all kept messages that anyone subscribed to,
and breaks off if somebody subscribes meanwhile; here they go only to who subscribed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.errors import AffineDPError, install_command
from affinedp.mqtt.broker import Broker

if TYPE_CHECKING:
    from amqtt.session import Session


def when_input_ends(act: Callable[[], object]) -> None:
    """Do something, on a thread of its own, when standard input has ended."""
    threading.Thread(target=_listen, args=(act,), daemon=True).start()


def _listen(act: Callable[[], object]) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a broken pipe has nobody at its other end either
    act()


CONNECT = 0x10
HELLO = b"\0\4MQTT\4"  # the name of the protocol, and the level of MQTT 3.1.1
LISTENER = "default"  # amqtt wants one of this name
MOST_LENGTH_BYTES = 4
UNACCEPTABLE_VERSION = bytes([0x20, 2, 0, 1])  # CONNACK


def main() -> None:
    """Serve until standard input ends."""
    logging.basicConfig(level=logging.WARNING)
    when_input_ends(lambda: os._exit(0))
    port = int(sys.argv[1])
    try:
        asyncio.run(_serve(port))
    except OSError as error:
        sys.exit(f"no broker at port {port}: {error.strerror}")


async def _serve(port: int) -> None:
    from amqtt.broker import Broker as Amqtt

    class Courteous(Amqtt):  # type: ignore[misc]
        async def _publish_retained_messages_for_subscription(
            self, subscription: tuple[str, int], session: Session
        ) -> None:
            who = self._subscriptions.get(subscription[0], [])
            if any(subscriber is session for subscriber, _ in who):
                await super()._publish_retained_messages_for_subscription(subscription, session)

    anonymous = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    broker = Courteous({"listeners": {LISTENER: {"type": "external"}}, "plugins": anonymous})
    await broker.start()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _welcome(broker, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(welcome, "127.0.0.1", port)
    await server.serve_forever()


class _FromTheBeginning:
    """A reader for amqtt that gives first what was read before."""

    def __init__(self, words: bytes, reader: asyncio.StreamReader) -> None:
        self._words = words
        self._reader = reader

    async def read(self, n: int) -> bytes:
        """Read so many bytes."""
        first, self._words = self._words[:n], self._words[n:]
        return first + await self._reader.readexactly(n - len(first)) if len(first) < n else first

    def feed_eof(self) -> None:
        """End it."""
        self._reader.feed_eof()


async def _welcome(broker: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand a client over to amqtt, with its first words, unless it speaks another version."""
    from amqtt.adapters import StreamWriterAdapter

    words = await reader.readexactly(2)
    if words[0] != CONNECT:
        raise ConnectionError("these are not the words of a client of MQTT")
    while words[-1] & 0x80 and len(words) <= MOST_LENGTH_BYTES:
        words += await reader.readexactly(1)
    hello = await reader.readexactly(len(HELLO))
    if hello != HELLO:
        writer.write(UNACCEPTABLE_VERSION)
        await writer.drain()
        writer.close()
        return
    client = _FromTheBeginning(words + hello, reader), StreamWriterAdapter(writer)
    await broker.external_connected(*client, listener_name=LISTENER)


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
            f"{install_command('broker,network')}; mosquitto is the one for use (Debian and "
            "Ubuntu: apt install mosquitto; macOS: brew install mosquitto; Windows: "
            "mosquitto.org/download). Or name a broker that runs: --broker host:port"
        )
    command = [sys.executable, "-m", "affinedp.mqtt.local_broker", str(port)]
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


if __name__ == "__main__":
    main()
