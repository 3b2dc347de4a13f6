"""Who watches a run: what everyone can see, agent by agent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from affinedp.consensus.agents.message import AgentMessage, read_message
from affinedp.consensus.agents.process import Meeting
from affinedp.wire.connection import Connection, Message
from affinedp.wire.line import LineLog
from affinedp.wire.messages import MalformedMessageError, read_object


@dataclass(frozen=True)
class Seen:
    """The last that was heard of an agent.

    Attributes
    ----------
    run, round : int
        Where it is.
    y : float
        Its public number.
    """

    run: int
    round: int
    y: float


class Monitor:
    """Listens to all agents that meet somewhere, and writes down what they say.

    It needs no key and believes everyone: it shows what is public, and decides nothing.

    Parameters
    ----------
    meeting : Meeting
        Where.
    names : iterable of str
        Whom to follow.
    log : Path, optional
        One JSON object per line with ``time``, ``topic`` and ``payload``.
    """

    def __init__(self, meeting: Meeting, names: Iterable[str], log: Path | None = None) -> None:
        self._meeting = meeting
        self._seen: dict[str, Seen | None] = dict.fromkeys(names)
        self._lines = LineLog(log)
        self._connection = Connection(meeting.broker, [meeting.topic("+", "+")], self._hear)

    def __enter__(self) -> Monitor:
        self._connection.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._lines.__exit__()

    @property
    def seen(self) -> Mapping[str, Seen | None]:
        """The last that was heard of each agent."""
        return dict(self._seen)

    def round(self) -> int:
        """Return the round that all agents have reached in the latest run; −1 before the first."""
        known = [seen for seen in self._seen.values() if seen is not None]
        run = max((seen.run for seen in known), default=0)
        if len(known) < len(self._seen) or any(seen.run < run for seen in known):
            return -1
        return min(seen.round for seen in known)

    def check(self) -> None:
        """Raise what went wrong with the connection, if anything."""
        self._connection.check()

    def _hear(self, arrived: Message) -> None:
        text = arrived.payload.decode("utf-8", "backslashreplace")
        self._lines.write(time=time.time(), topic=arrived.topic, payload=text)
        sender, to = arrived.topic.removeprefix(f"{self._meeting.prefix}/").split("/")
        if sender not in self._seen:
            return
        try:
            message = _public(arrived.payload, sender, to)
        except MalformedMessageError:
            return
        last = self._seen[sender]
        if last is None or (message.run, message.round) >= (last.run, last.round):
            self._seen[sender] = Seen(message.run, message.round, message.y)


def _public(payload: bytes, sender: str, to: str) -> AgentMessage:
    """A message as it is, sealed or not."""
    record = read_object(payload, ())
    inner = record.get("message")
    return read_message(inner if isinstance(inner, dict) else record, sender, to)
