"""Listeners: an eavesdropper at a broker, and a monitor of the rounds of agents."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from affinedp.errors import AffineDPError
from affinedp.mqtt.agent_process import Meeting, read_message
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection, Message
from affinedp.mqtt.messages import read_object
from affinedp.mqtt.process import POLL, JsonLines

logger = logging.getLogger(__name__)


class Listener:
    """Writes down every message that a broker delivers while it is open, if there is a log.

    It needs no key and believes everyone: it shows what is public, and decides nothing.  A line
    has ``time``, ``topic`` and ``payload``, or ``hex`` if that is no UTF-8 text.
    """

    def __init__(self, broker: Broker, topics: Sequence[str], log: Path | None) -> None:
        self._lines = JsonLines(log)
        self._connection = Connection(broker, topics, self._hear)
        self.count = 0

    def __enter__(self) -> Listener:
        self._connection.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._lines.__exit__()

    def check(self) -> None:
        """Raise what went wrong with the connection, if anything."""
        self._connection.check()

    def _hear(self, arrived: Message) -> None:
        try:
            content = {"payload": arrived.payload.decode("utf-8")}
        except UnicodeDecodeError:
            content = {"hex": arrived.payload.hex()}
        self._lines.write(time=time.time(), topic=arrived.topic, **content)
        self.count += 1


class Monitor(Listener):
    """Follows the agents of a meeting, sealed or not."""

    def __init__(self, meeting: Meeting, names: Iterable[str], log: Path | None = None) -> None:
        self._meeting = meeting
        self._seen: dict[str, tuple[int, int]] = dict.fromkeys(names, (0, -1))  # run, round
        super().__init__(meeting.broker, [meeting.topic("+", "+")], log)

    def __enter__(self) -> Monitor:
        super().__enter__()
        return self

    def round(self) -> int:
        """Return the round that all agents have reached in the latest run; −1 before the first."""
        run = max(run for run, _ in self._seen.values())
        return min(t if latest == run else -1 for latest, t in self._seen.values())

    def _hear(self, arrived: Message) -> None:
        super()._hear(arrived)
        sender, to = self._meeting.ends(arrived.topic)
        if sender not in self._seen:
            return
        try:
            record = read_object(arrived.payload, ())
            inner = record.get("message")
            message = read_message(inner if isinstance(inner, dict) else record, sender, to)
        except AffineDPError:
            return
        self._seen[sender] = max(self._seen[sender], (message.run, message.round))


def eavesdrop(broker: Broker, topics: Sequence[str], log: Path, stop: threading.Event) -> int:
    """Write down every message that a broker delivers, until stopped; return how many."""
    with Listener(broker, topics, log) as listener:
        logger.info("eavesdropper: listening to %s at %s", ", ".join(topics), broker.address)
        while not stop.wait(POLL):
            listener.check()
    return listener.count
