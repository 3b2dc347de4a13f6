"""An agent as a process: messages with its neighbours over MQTT, round by round.

Neighbours are never more than one round apart, since an agent goes on only when it has heard all
of them.  A message carries y(t) and y(t−1), so the last message of an agent is all that a
neighbour can still need.  It is sent when a round is reached, again after a while, and as an answer
to a neighbour that is behind: lost messages, late starters, restarted agents and brokers change
nothing but the time it takes.

Messages are not retained by the broker: they would outlive the run and greet the next one with old
numbers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from affinedp.consensus.agents.agent import Agent
from affinedp.consensus.agents.message import decode, encode
from affinedp.errors import AffineDPError
from affinedp.wire.broker import Broker, check_topic
from affinedp.wire.connection import Connection, Message
from affinedp.wire.line import POLL, Outcome
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)

RESEND = 1.0  # seconds without progress before a message is sent again
LINGER = 60.0  # seconds of silence after the last round before an agent stops waiting for others


@dataclass(frozen=True)
class Meeting:
    """Where the agents of one run meet.

    Attributes
    ----------
    broker : Broker
        Which broker.
    prefix : str
        Agent 3 publishes on the topic ``prefix/3``; another run needs another prefix.
    """

    broker: Broker
    prefix: str = "consensus"

    def __post_init__(self) -> None:
        check_topic(self.prefix)

    def topic(self, agent: str) -> str:
        """Return where an agent publishes."""
        return f"{self.prefix}/{agent}"


def run_agent(
    agent: Agent,
    meeting: Meeting,
    stop: threading.Event,
    *,
    rounds: int | None = None,
    resend: float = RESEND,
    linger: float = LINGER,
    on_round: Callable[[int], None] | None = None,
) -> Outcome:
    """Exchange messages with the neighbours until a number of rounds is reached.

    Then the agent stays until all neighbours are there too: they may still need its messages.

    Parameters
    ----------
    agent : Agent
        Who speaks.
    meeting : Meeting
        Where.
    stop : Event
        Ends it.
    rounds : int, optional
        How many; without end by default.
    resend : float
        Seconds after which the last message is sent again.
    linger : float
        Seconds of silence after the last round, after which it does not wait for the others any
        longer.  Time without a broker does not count.
    on_round : callable, optional
        Called with each round that was reached.

    Returns
    -------
    Outcome
        Its ``steps`` are rounds.

    Raises
    ------
    ContradictionError, AsymmetryError
        If going on makes no sense.
    """
    if rounds is not None and rounds < 0:
        raise AffineDPError(f"rounds must be at least 0, not {rounds}")
    goal = math.inf if rounds is None else rounds
    total = math.fsum(agent.weights.values())
    if total > 1:
        logger.warning(
            "agent %s: its weights add up to %g; above 1 the messages may not settle",
            agent.name,
            total,
        )
    senders = {meeting.topic(name): name for name in (agent.name, *agent.weights)}
    with Connection(meeting.broker, list(senders)) as connection:
        talk = _Talk(agent, connection, meeting.topic(agent.name), senders, goal, on_round)
        neighbours = ", ".join(agent.weights)
        logger.info(
            "agent %s: listening to %s under %s at %s, at round %d",
            agent.name,
            neighbours,
            meeting.prefix,
            meeting.broker.address,
            agent.round,
        )
        talk.say()
        while not stop.is_set() and not talk.is_over(linger):
            arrived = connection.receive(min(POLL, resend))
            if arrived is not None:
                talk.hear(arrived)
            if talk.silent_for() >= resend:
                talk.say_again()
    return Outcome(agent.round, agent.round >= goal, talk.dropped.counts)


class _Talk:
    """One side of the conversation."""

    def __init__(
        self,
        agent: Agent,
        connection: Connection,
        topic: str,
        senders: dict[str, str],
        goal: float,
        on_round: Callable[[int], None] | None,
    ) -> None:
        self._agent = agent
        self._connection = connection
        self._topic = topic
        self._senders = senders
        self._goal = goal
        self._on_round = on_round
        self._said = self._moved = self._heard = time.monotonic()
        self._tries = 0
        self.dropped = Dropped(f"agent {agent.name}")

    def say(self) -> None:
        """Publish our last message, which is on the disk."""
        self._connection.publish(self._topic, encode(self._agent.message))
        self._said = time.monotonic()

    def say_again(self) -> None:
        """Publish it again, and mention once in a while whom we wait for."""
        self.say()
        if not self._connection.connected:
            self._heard = self._said
        if self._agent.round >= self._goal:
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

    def silent_for(self) -> float:
        """Seconds since our last message."""
        return time.monotonic() - self._said

    def hear(self, arrived: Message) -> None:
        """Take a message in, answer it if need be, and go on as far as possible."""
        try:
            message = decode(arrived.payload, self._senders[arrived.topic])
        except MalformedMessageError as error:
            self.dropped.add("malformed", str(error), arrived.payload)
            return
        kind = self._agent.hear(message)
        if kind == "own":
            return
        self._heard = time.monotonic()
        if kind != "new":
            self.dropped.count(kind)
        if kind == "late":
            self.say()
        while self._agent.round < self._goal and self._agent.advance():
            self.say()
            self._moved, self._tries = self._said, 0
            if self._on_round is not None:
                self._on_round(self._agent.round)

    def is_over(self, linger: float) -> bool:
        """Whether the last round is reached and nobody needs us any more."""
        if self._agent.round < self._goal:
            return False
        quiet = time.monotonic() - self._heard
        return self._agent.all_reached(int(self._goal)) or quiet >= linger
