"""Who watches a run: what everyone can see, agent by agent."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from affinedp.consensus.agents.message import AgentMessage, read_message
from affinedp.consensus.agents.process import Meeting
from affinedp.wire.client import Message
from affinedp.wire.connection import Connection
from affinedp.wire.line import LineLog
from affinedp.wire.messages import MalformedMessageError, read_object


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
        self._seen: dict[str, tuple[int, int]] = dict.fromkeys(names, (0, -1))  # run, round
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

    def round(self) -> int:
        """Return the round that all agents have reached in the latest run; −1 before the first."""
        run = max(run for run, _ in self._seen.values())
        return min(t if latest == run else -1 for latest, t in self._seen.values())

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
        self._seen[sender] = max(self._seen[sender], (message.run, message.round))


def _public(payload: bytes, sender: str, to: str) -> AgentMessage:
    """A message as it is, sealed or not."""
    record = read_object(payload, ())
    inner = record.get("message")
    return read_message(inner if isinstance(inner, dict) else record, sender, to)
