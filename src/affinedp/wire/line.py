"""A line between two places at MQTT brokers, and what a process on it tells of its work.

A process reads at one place and writes at another until its work is done or ``stop`` is set.
Whoever waits sends again: every message may be lost, repeated or late, and the brokers and the
other processes may be killed and started again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.wire.broker import Broker, check_topic
from affinedp.wire.client import Message
from affinedp.wire.connection import Connection

logger = logging.getLogger(__name__)

POLL = 0.1  # seconds after which `stop` is looked at
LINGER = 10.0  # seconds without a message after the last step, before a process ends

OnStep: TypeAlias = Callable[[int], None]


@dataclass(frozen=True)
class Place:
    """A topic at a broker.

    Attributes
    ----------
    broker : Broker
        Which broker.
    topic : str
        Which topic.
    """

    broker: Broker
    topic: str


@dataclass(frozen=True)
class Outcome:
    """What a process did.

    Attributes
    ----------
    steps : int
        How many steps it has come along, skipped ones included.
    finished : bool
        Whether the horizon was reached; otherwise it was stopped.
    dropped : mapping of str to int
        Messages that were dropped, by reason.
    reason : str
        Why it ended before its time; empty if it did not, or was stopped.
    """

    steps: int
    finished: bool
    dropped: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


class Line:
    """A place to read from and one to write to, while they are connected.

    Parameters
    ----------
    source, target : Place
        Where messages come from and go to; at the same broker they share a connection.
    handle : callable, optional
        Called with each payload, one at a time, on the thread of the connection.
    patience : float
        Seconds to wait for brokers that are not there yet.
    stop : Event, optional
        Ends that waiting.
    """

    def __init__(
        self,
        source: Place,
        target: Place,
        handle: Callable[[bytes], None] | None = None,
        *,
        patience: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        for place in (source, target):
            check_topic(place.topic)  # to read several would mix them up
        if source.topic == target.topic and source.broker.address == target.broker.address:
            raise AffineDPError(
                f"{source.topic!r} is read and written at the same broker: give two topics"
            )
        self._handle = handle
        self._topic = target.topic
        self._heard = time.monotonic()
        handler = None if handle is None else self._hear
        waiting: dict[str, Any] = {"patience": patience, "stop": stop}
        self._reading = Connection(source.broker, [source.topic], handler, **waiting)
        same = source.broker == target.broker
        self._writing = self._reading if same else Connection(target.broker, **waiting)
        self._stack = ExitStack()

    def __enter__(self) -> Line:
        with ExitStack() as stack:
            # before it is read from, so that the first message can be answered
            for connection in dict.fromkeys((self._writing, self._reading)):
                stack.enter_context(connection)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, payload: bytes) -> bool:
        """Publish; False if the broker is away.

        Parameters
        ----------
        payload : bytes
            What to publish.
        """
        return self._writing.publish(self._topic, payload)

    def receive(self, timeout: float) -> bytes | None:
        """Return the next payload, if there is no handler, or None if none comes in time.

        Parameters
        ----------
        timeout : float
            Seconds to wait.
        """
        message = self._reading.receive(timeout)
        return None if message is None else message.payload

    def serve(self, done: Callable[[float], bool], stop: threading.Event) -> None:
        """Wait, while messages are handled, until stopped or done.

        Parameters
        ----------
        done : callable
            Called with the seconds since the last message; time without a broker does not count.
        stop : Event
            Ends it.
        """
        while not stop.wait(POLL):
            self._reading.check()
            self._writing.check()
            if not (self._reading.connected and self._writing.connected):
                self._heard = time.monotonic()
            if done(time.monotonic() - self._heard):
                return

    def _hear(self, message: Message) -> None:
        assert self._handle is not None
        self._handle(message.payload)
        self._heard = time.monotonic()


def say_ready(who: str, source: Place, target: Place, more: str = "") -> None:
    """Log that a process is connected.

    Parameters
    ----------
    who : str
        Which process.
    source, target : Place
        Where it reads and writes.
    more : str
        What else to say.
    """
    listening = f"listening to {source.topic} at {source.broker.address}"
    sending = f"sending to {target.topic} at {target.broker.address}"
    logger.info("%s: %s, %s%s", who, listening, sending, f", {more}" if more else "")


class LineLog:
    """A file with one JSON object per line, for its owner only.

    Parameters
    ----------
    path : Path or None
        An existing file is overwritten; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8", opener=_for_owner)  # noqa: SIM115
            except OSError as error:
                raise AffineDPError(f"{path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> LineLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, **record: Any) -> None:
        """Write a line at once, so that a crash loses nothing.

        Parameters
        ----------
        **record
            Texts, numbers and arrays.
        """
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, default=np.ndarray.tolist) + "\n")
            self._file.flush()
        except OSError as error:
            raise AffineDPError(f"{self._path} cannot be written: {error.strerror}") from None


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
