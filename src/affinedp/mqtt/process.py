"""How a process listens at one place, answers at another, and ends."""

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
from typing import Any, Protocol, TextIO, TypeAlias

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import Broker, check_topic
from affinedp.mqtt.connection import Connection, Message, Will
from affinedp.mqtt.messages import Dropped, write_object

logger = logging.getLogger(__name__)

POLL = 0.1  # seconds after which `stop` is looked at
LINGER = 10.0  # seconds without a message after the last step, before a process ends

OnStep: TypeAlias = Callable[[int], None]


@dataclass(frozen=True)
class Place:
    """A topic at a broker."""

    broker: Broker
    topic: str


@dataclass(frozen=True)
class Outcome:
    """What a process did."""

    steps: int  # how many steps it has come along, skipped ones included
    finished: bool  # whether the horizon was reached; otherwise it was stopped
    # messages that were dropped, by reason
    dropped: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""  # why it ended before its time; empty if it did not, or was stopped


class Responder(Protocol):
    """What a process answers to each message, and when its work is done; no network in it."""

    dropped: Dropped
    reason: str
    failure: AffineDPError | None

    @property
    def steps(self) -> int:
        """How many steps it has come along."""

    @property
    def finished(self) -> bool:
        """Whether the horizon was reached."""

    def answer(self, payload: bytes) -> tuple[bytes, int | None] | None:
        """Return what to publish, and the step if there are numbers in it; None for no message."""

    def done(self, quiet: float, linger: float) -> bool:
        """Whether the work is done, after so many seconds without a message."""


class Channel:
    """A place to read from and one to write to, while they are connected.

    Whoever names itself leaves a last will there: that it is gone.
    """

    def __init__(
        self,
        source: Place,
        target: Place,
        handler: Callable[[Message], None] | None = None,
        *,
        who: str = "",
        patience: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        for place in (source, target):
            check_topic(place.topic)  # to read several would mix them up
        if source.topic == target.topic and source.broker.address == target.broker.address:
            raise AffineDPError(
                f"{source.topic!r} is read and written at the same broker: give two topics"
            )
        self._topic = target.topic
        self._gone = write_object({"gone": f"the {who} is gone"}) if who else None
        will = None if self._gone is None else Will(target.topic, self._gone, retain=False)
        waiting: dict[str, Any] = {"patience": patience, "stop": stop}
        same = source.broker == target.broker
        self._reading = Connection(
            source.broker, [source.topic], handler, will=will if same else None, **waiting
        )
        self._writing = self._reading if same else Connection(target.broker, will=will, **waiting)
        self._stack = ExitStack()

    def __enter__(self) -> Channel:
        with ExitStack() as stack:
            # before it is read from, so that the first message can be answered
            for connection in dict.fromkeys((self._writing, self._reading)):
                stack.enter_context(connection)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def connected(self) -> bool:
        """Whether both brokers are there; what went wrong with a connection is raised."""
        self._reading.check()
        self._writing.check()
        return self._reading.connected and self._writing.connected

    def send(self, payload: bytes) -> bool:
        """Publish; False if the broker is away."""
        return self._writing.publish(self._topic, payload)

    def receive(self, timeout: float) -> bytes | None:
        """Return the next payload, if there is no handler, or None if none comes in time."""
        message = self._reading.receive(timeout)
        return None if message is None else message.payload

    def leave(self) -> None:
        """Tell those who wait that we go before the work is done, as our last will would."""
        if self._gone is not None and self._writing.connected:
            self.send(self._gone)


def serve(
    who: str,
    responder: Responder,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    linger: float,
    on_step: OnStep | None,
    patience: float,
    where: str = "",
    check: Callable[[], None] = lambda: None,
) -> Outcome:
    """Answer each message as a responder does, until its work is done or ``stop`` is set.

    ``check`` is called between messages, and what it raises ends the process.
    """
    heard = time.monotonic()

    def handle(message: Message) -> None:
        nonlocal heard
        answer = None if responder.failure is not None else responder.answer(message.payload)
        if answer is not None:
            payload, step = answer
            if not channel.send(payload):
                responder.dropped.add("broker away", "it is answered again when it comes again")
            elif step is not None and on_step is not None:
                on_step(step)
        heard = time.monotonic()

    channel = Channel(source, target, handle, who=who, patience=patience, stop=stop)
    with channel:
        say_ready(who, source, target, where or f"at step {responder.steps}")
        try:
            while not stop.wait(POLL):
                check()
                if not channel.connected:  # time without a broker does not count
                    heard = time.monotonic()
                quiet = time.monotonic() - heard
                if responder.failure is not None or responder.done(quiet, linger):
                    break
            else:
                channel.leave()
        except BaseException:
            channel.leave()
            raise
    if responder.failure is not None:
        raise responder.failure
    return Outcome(responder.steps, responder.finished, responder.dropped.counts, responder.reason)


def say_ready(who: str, source: Place, target: Place, more: str) -> None:
    """Log that a process is connected."""
    listening = f"listening to {source.topic} at {source.broker.address}"
    sending = f"sending to {target.topic} at {target.broker.address}"
    logger.info("%s: %s, %s, %s", who, listening, sending, more)


class JsonLines:
    """A file with one JSON object per line, for its owner only; without a path nothing is written.

    An existing file is overwritten.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8", opener=_for_owner)  # noqa: SIM115
            except OSError as error:
                raise AffineDPError(f"{path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, **record: Any) -> None:
        """Write a line at once, so that a crash loses nothing."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, default=np.ndarray.tolist) + "\n")
            self._file.flush()
        except OSError as error:
            raise AffineDPError(f"{self._path} cannot be written: {error.strerror}") from None


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
