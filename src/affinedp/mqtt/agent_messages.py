"""Messages of agents as bytes, plain or sealed so that nobody else can have written them.

A message is ``{"agent":"3","to":"1","run":1,"round":4,"rounds":30,"y":1.5,"previous":2.0,
"weight":0.25}``, to each neighbour on a topic of its own, so that it stays small.

A sealed message is ``{"message": …, "session": "…", "for": "…", "tag": "…"}``.  The tag is an
HMAC-SHA-256 (Python's :mod:`hmac`) under the key of the link, over the topic's prefix, both
sessions and the message in its one spelling: who, to whom, run, round and all numbers are in it.

A session is a random number that a process makes when it starts.  An agent takes note of a message
only if it is *for* its own session, so that what was recorded before it started, in this run or in
any other with the same keys, is dropped.  Who does not know the other's session yet leaves it
open; such a message is not taken note of, but answered, and the answer tells.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from affinedp.consensus.keys import Keys
from affinedp.consensus.message import AgentMessage
from affinedp.errors import AffineDPError
from affinedp.mqtt.messages import read_count, read_number, read_object, write_object

SESSION_BYTES = 16
_KEYS = tuple(field.name for field in fields(AgentMessage))
_ENVELOPE = ("message", "session", "for", "tag")
_DOMAIN = "affinedp consensus 1"


def encode(message: AgentMessage) -> bytes:
    """Write a message; the same message always gives the same bytes."""
    return write_object(vars(message))


def decode(payload: bytes, agent: str, to: str) -> AgentMessage:
    """Read a plain message of an agent to another, or refuse it."""
    return read_message(read_object(payload, _KEYS), agent, to)


def read_message(record: Mapping[str, Any], agent: str, to: str) -> AgentMessage:
    """Read a message from a JSON object, or refuse it."""
    if not record.keys() >= set(_KEYS):
        raise AffineDPError(f"it must be an object with {', '.join(_KEYS)}")
    if record["agent"] != agent or record["to"] != to:
        raise AffineDPError(f"it is not of agent {agent!r} to {to!r}, whose topic it is on")
    t = read_count(record["round"], "round")
    if (record["previous"] is None) != (t == 0):
        raise AffineDPError("previous must be a number, and null in round 0")
    rounds = record["rounds"]
    return AgentMessage(
        agent,
        to,
        read_count(record["run"], "run"),
        t,
        None if rounds is None else read_count(rounds, "rounds"),
        read_number(record["y"], "y"),
        None if t == 0 else read_number(record["previous"], "previous"),
        read_number(record["weight"], "weight"),
    )


class Seals:
    """The seals of one process: its session, and those of its neighbours as far as they are known.

    ``prefix`` is that of the topics.
    """

    def __init__(self, keys: Keys, prefix: str) -> None:
        self._keys = keys.by_neighbour
        self._prefix = prefix
        self._session = secrets.token_hex(SESSION_BYTES)
        self._theirs: dict[str, str] = {}

    def seal(self, message: AgentMessage, session: str | None = None) -> bytes:
        """Write a message with its tag, for the known session of the neighbour unless said."""
        theirs = session or self._theirs.get(message.to)
        tag = self._tag(message.to, message, self._session, theirs)
        envelope = (vars(message), self._session, theirs, tag)
        return write_object(dict(zip(_ENVELOPE, envelope)))

    def open(self, payload: bytes, agent: str, to: str) -> tuple[AgentMessage, str | None] | None:
        """Read a message from an agent to another, one of which is us; None if it is forged.

        It counts only if no session comes with it: that is the one of a sender that did not know
        ours, which must be answered first.
        """
        record = read_object(payload, _ENVELOPE)
        inner, session, theirs, tag = (record[key] for key in _ENVELOPE)
        texts = [session, tag] + ([] if theirs is None else [theirs])
        if not isinstance(inner, dict) or not all(isinstance(text, str) for text in texts):
            raise AffineDPError("it is no sealed message")
        message = read_message(inner, agent, to)
        neighbour = agent if agent in self._keys else to
        if neighbour not in self._keys:
            return None
        wanted = self._tag(neighbour, message, session, theirs)
        # a forged tag may be no text that can be encoded, such as half a surrogate pair
        if not hmac.compare_digest(wanted.encode(), tag.encode(errors="replace")):
            return None
        if neighbour == to:  # our own came back; of another session it may be a recording
            return message, None if session == self._session else session
        if theirs != self._session:
            return message, session
        self._theirs[agent] = session
        return message, None

    def knows(self, neighbour: str) -> str | None:
        """Return the session of a neighbour that has answered ours, or None."""
        return self._theirs.get(neighbour)

    def _tag(self, neighbour: str, message: AgentMessage, ours: str, theirs: str | None) -> str:
        text = json.dumps([_DOMAIN, self._prefix, ours, theirs, encode(message).decode()])
        return hmac.digest(self._keys[neighbour], text.encode(), hashlib.sha256).hex()
