"""An agent as a process: messages with its neighbours over MQTT, round by round, plain or sealed.

A message is ``{"agent":"3","to":"1","run":1,"round":4,"rounds":30,"y":1.5,"previous":2.0,
"weight":0.25}``, to each neighbour on a topic of its own, so that it stays small.  Neighbours are
never more than one round apart, since an agent goes on only when it has heard all of them.  A
message carries y(t) and y(t−1), so the last message of an agent is all that a neighbour can still
need.  It is sent when a round is reached, again after a while, and as an answer to a neighbour that
is behind: lost messages, late starters, restarted agents and brokers change nothing but the time it
takes.  Messages are not retained by the broker: they would outlive the run and greet the next one
with old numbers.  What somebody else had it retain is not asked for.

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
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from affinedp.consensus.agent import FREE, Agent, AgentMessage, Heard
from affinedp.consensus.keys import Keys
from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import Broker, check_topic
from affinedp.mqtt.connection import Connection, Message
from affinedp.mqtt.messages import Dropped, read_count, read_number, read_object, write_object
from affinedp.mqtt.process import POLL, Outcome

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


logger = logging.getLogger(__name__)

RESEND = 1.0  # seconds without progress before a message is sent again
LINGER = 60.0  # seconds of silence after the last round before an agent stops waiting for others


@dataclass(frozen=True)
class Meeting:
    """Where the agents of one run meet: agent 3 speaks to agent 5 on the topic ``prefix/3/5``.

    Agents that have nothing to do with each other need another prefix.
    """

    broker: Broker
    prefix: str = "consensus"

    def __post_init__(self) -> None:
        check_topic(self.prefix)

    def topic(self, agent: str, to: str) -> str:
        """Return where an agent speaks to another; ``+`` for anyone."""
        return f"{self.prefix}/{agent}/{to}"

    def ends(self, topic: str) -> tuple[str, str]:
        """Return who speaks to whom on a topic."""
        agent, to = topic.removeprefix(f"{self.prefix}/").split("/")
        return agent, to


def run_agent(
    agent: Agent,
    meeting: Meeting,
    stop: threading.Event,
    *,
    rounds: int | None = None,
    resend: float = RESEND,
    linger: float = LINGER,
    on_round: Callable[[int], None] | None = None,
    keys: Keys | None = None,
) -> Outcome:
    """Exchange messages with the neighbours until a number of rounds is reached, or without end.

    Then the agent stays until all neighbours are there too, which may still need its messages, or
    until they are silent for ``linger`` seconds; time without a broker does not count.  With keys
    it drops what the neighbours did not seal with them.  If going on makes no sense, this is
    raised, and the draw is kept.
    """
    if rounds is not None and rounds < 0:
        raise AffineDPError(f"rounds must be at least 0, not {rounds}")
    if rounds is not None and agent.round > rounds:
        raise AffineDPError(
            f"agent {agent.name!r} is at round {agent.round} of its run {agent.run}, beyond the "
            f"{rounds} rounds that are asked for: give more, or begin again (rerun). {FREE}"
        )
    if keys is not None:
        keys.check(agent.weights)
    total = math.fsum(agent.weights.values())
    if total > 1:
        logger.warning(
            "agent %s: its weights add up to %g; above 1 the messages may not settle",
            agent.name,
            total,
        )
    topics = [meeting.topic("+", agent.name), meeting.topic(agent.name, "+")]
    with Connection(meeting.broker, topics, retained=False) as connection:
        talk = _Talk(agent, connection, meeting, rounds, keys, on_round, resend)
        logger.info(
            "agent %s: listening to %s under %s at %s, run %d, at round %d",
            agent.name,
            ", ".join(agent.weights),
            meeting.prefix,
            meeting.broker.address,
            agent.run,
            agent.round,
        )
        talk.say()
        while not stop.is_set() and not talk.is_over(linger):
            arrived = connection.receive(min(POLL, resend))
            if arrived is not None:
                talk.hear(arrived)
            talk.say_again()
    return Outcome(agent.round, talk.is_at_its_goal, talk.dropped.counts)


class _Talk:
    """One side of the conversation."""

    def __init__(
        self,
        agent: Agent,
        connection: Connection,
        meeting: Meeting,
        rounds: int | None,
        keys: Keys | None,
        on_round: Callable[[int], None] | None,
        resend: float,
    ) -> None:
        self._agent = agent
        self._connection = connection
        self._meeting = meeting
        self._rounds = rounds
        self._seals = None if keys is None else Seals(keys, meeting.prefix)
        self._on_round = on_round
        self._said = self._moved = self._heard = time.monotonic()
        self._tries = 0
        self._resend = resend
        self._answered: dict[str, tuple[int, float]] = {}  # in which round, and when
        self.dropped = Dropped(f"agent {agent.name}")

    @property
    def is_at_its_goal(self) -> bool:
        """Whether the last round is reached."""
        return self._rounds is not None and self._agent.round >= self._rounds

    def is_over(self, linger: float) -> bool:
        """Whether the last round is reached and nobody needs us any more."""
        if not self.is_at_its_goal:
            return False
        quiet = time.monotonic() - self._heard
        return self._agent.all_reached(self._agent.round) or quiet >= linger

    def say(self) -> None:
        """Publish our last message, which is on the disk, to all neighbours."""
        for neighbour in self._agent.weights:
            self._say_to(neighbour)
        self._said = time.monotonic()

    def _say_to(self, neighbour: str, session: str | None = None) -> None:
        message = self._agent.message_to(neighbour, self._rounds)
        payload = encode(message) if self._seals is None else self._seals.seal(message, session)
        self._connection.publish(self._meeting.topic(self._agent.name, neighbour), payload)

    def _answer(self, neighbour: str) -> None:
        """Tell a neighbour that is behind where we are, once a round and once in a while.

        An answer that comes late is answered itself: without a limit every recording that is
        played back would go to and fro for the rest of the run.
        """
        t, now = self._agent.round, time.monotonic()
        answered, when = self._answered.get(neighbour, (-1, now))
        if answered != t or now - when >= self._resend:
            self._answered[neighbour] = (t, now)
            self._say_to(neighbour)

    def say_again(self) -> None:
        """Publish it again after a while, and mention once in a while whom we wait for."""
        if time.monotonic() - self._said < self._resend:
            return
        self.say()
        if not self._connection.connected:
            self._heard = self._said
        if self.is_at_its_goal:
            return
        self._tries += 1
        if self._tries.bit_count() == 1:  # the 1st, 2nd, 4th, 8th, ... time
            logger.info(
                "agent %s: waits for round %d of %s (%.1f s)",
                self._agent.name,
                self._agent.round,
                ", ".join(self._agent.missing),
                self._said - self._moved,
            )

    def hear(self, arrived: Message) -> None:
        """Take a message in, answer it if need be, and go on as far as possible."""
        message = self._opened(arrived)
        if message is None or self._is_stranger(message):
            return
        try:
            kind = self._taken(message)
        except AffineDPError:
            if message.agent != self._agent.name:
                self._say_to(message.agent)  # so that the other one ends with a reason, too
            raise
        if kind == "own":
            return
        self._heard = time.monotonic()
        if kind != "new":
            self.dropped.count(kind)
        if kind in ("late", "of an earlier run"):
            self._answer(message.agent)
        while not self.is_at_its_goal and self._agent.advance():
            self.say()
            self._moved, self._tries = self._said, 0
            if self._on_round is not None:
                self._on_round(self._agent.round)

    def _opened(self, arrived: Message) -> AgentMessage | None:
        """The message, or None if it is dropped; a sender that does not know us is answered."""
        sender, to = self._meeting.ends(arrived.topic)
        try:
            if self._seals is None:
                return decode(arrived.payload, sender, to)
            known, opened = self._seals.knows(sender), self._seals.open(arrived.payload, sender, to)
        except AffineDPError as error:
            sealed = self._seals is None and b'"tag"' in arrived.payload
            needs = f"agent {sender!r} seals its messages: keys are needed"
            self.dropped.add("malformed", needs if sealed else str(error), arrived.payload)
            return None
        if opened is None:
            why = f"it is not sealed with a key of the link of {sender!r} and {to!r}"
            self.dropped.add("forged", why, arrived.payload)
            return None
        message, session = opened
        if session is None:
            if sender != self._agent.name and self._seals.knows(sender) != known:
                self._say_to(sender)  # it can take note of us now
            return message
        if sender != self._agent.name:
            self.dropped.count("of another session")
            self._say_to(sender, session)
        return None

    def _is_stranger(self, message: AgentMessage) -> bool:
        """Whether it is of somebody who is no neighbour; who thinks so is told, once a message."""
        if message.agent == self._agent.name or message.agent in self._agent.weights:
            return False
        self.dropped.add("of a stranger", f"agent {message.agent!r} is no neighbour")
        if message.weight:
            self._say_to(message.agent)
        return True

    def _taken(self, message: AgentMessage) -> Heard:
        """What the agent makes of a message; who goes other rounds is not waited for."""
        ours_too = message.agent != self._agent.name and message.run == self._agent.run
        if ours_too and message.rounds != self._rounds:
            ours, theirs = (
                "without end" if number is None else f"{number} rounds"
                for number in (self._rounds, message.rounds)
            )
            raise AffineDPError(
                f"agent {message.agent!r} goes {theirs}, this one {ours}: they would wait for each "
                f"other for ever. Give both the same rounds. {FREE}"
            )
        return self._agent.hear(message)
