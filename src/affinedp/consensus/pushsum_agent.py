"""One agent of push-sum, without the network: it may lose, repeat or reorder messages.

Only ``first``, its noisy value, is a release.  All else that the agent holds or sends follows from
published numbers, so its run may be saved, copied or started again without any cost.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from affinedp.consensus.one_way import LEAST_MASS
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number


@dataclass(frozen=True)
class PushSumMessage:
    """What an agent sends to all of its receivers: the sums of all parts so far.

    Attributes
    ----------
    agent : str
        Who sends it.
    round : int
        How many parts the sums hold.
    value, mass : float
        The sums of the parts of y and of the mass.
    """

    agent: str
    round: int
    value: float
    mass: float


class PushSumAgent:
    """An agent that starts from its noisy value.

    Parameters
    ----------
    name : str
        Its name.
    first : float
        y(0) = x(0) + γ, released once: the first message of an :class:`Agent`, say, or
        ``AgentNoise(...).mechanism().release([x])[0]``.  Releasing it again is a second release.
    receivers : int
        To how many it sends; who they are does not matter.
    known : iterable of str, optional
        From whom it takes messages; from anyone by default.

    Examples
    --------
    >>> one, two = PushSumAgent("1", 11.5, receivers=1), PushSumAgent("2", 28.5, receivers=1)
    >>> for t in range(40):
    ...     sent = one.send(), two.send()
    ...     if t % 3:                           # every third message to agent 1 is lost
    ...         _ = one.hear(sent[1])
    ...     _ = two.hear(sent[0])
    >>> round(one.estimate, 6), round(two.estimate, 6)
    (20.0, 20.0)
    """

    def __init__(
        self, name: str, first: float, receivers: int, known: frozenset[str] | None = None
    ) -> None:
        if isinstance(receivers, bool) or not isinstance(receivers, int) or receivers < 1:
            raise AffineDPError(f"receivers must be a whole number, at least 1, not {receivers!r}")
        if not is_number(first) or not math.isfinite(first):
            raise AffineDPError("first must be a finite number: the noisy value of the agent")
        self.name, self._receivers = str(name), receivers
        self._known = None if known is None else frozenset(known)
        self._held = (float(first), 1.0)
        self._sent = PushSumMessage(self.name, 0, 0.0, 0.0)
        self._heard: dict[str, PushSumMessage] = {}

    @property
    def round(self) -> int:
        """How often it has sent."""
        return self._sent.round

    @property
    def mass(self) -> float:
        """The mass that it holds: public."""
        return self._held[1]

    @property
    def estimate(self) -> float:
        """Its estimate of the average: public."""
        return self._held[0] / self._held[1]

    def send(self) -> PushSumMessage:
        """Split what it holds, and return the message for all receivers of this round.

        Who has not heard anything for hundreds of rounds keeps the little that is left.
        """
        last = self._sent
        if self._held[1] < LEAST_MASS:
            self._sent = PushSumMessage(self.name, last.round + 1, last.value, last.mass)
            return self._sent
        share = 1.0 / (1 + self._receivers)
        value, mass = self._held[0] * share, self._held[1] * share
        self._held = (value, mass)
        self._sent = PushSumMessage(self.name, last.round + 1, last.value + value, last.mass + mass)
        return self._sent

    def hear(self, message: PushSumMessage) -> bool:
        """Take over what the sender has sent since we heard it last; return whether it was new.

        Parameters
        ----------
        message : PushSumMessage
            Of another agent.  Repeated and overtaken messages change nothing.
        """
        if message.agent == self.name:
            return False
        if self._known is not None and message.agent not in self._known:
            raise AffineDPError(f"agent {message.agent!r} is not known to agent {self.name!r}")
        if not (math.isfinite(message.value) and 0 < message.mass < math.inf):
            raise AffineDPError(f"agent {message.agent!r} sends numbers that cannot be: dropped")
        before = self._heard.get(message.agent, PushSumMessage(message.agent, 0, 0.0, 0.0))
        if message.round <= before.round:
            return False
        if message.mass < before.mass:
            raise AffineDPError(
                f"agent {message.agent!r} sends a smaller mass than before: it started again. All "
                "start again together, from their first values, which costs nothing"
            )
        self._held = (
            self._held[0] + (message.value - before.value),
            self._held[1] + (message.mass - before.mass),
        )
        self._heard[message.agent] = message
        return True

    def saved(self) -> str:
        """Return the run as JSON, for :meth:`restored`; nothing in it is secret."""
        return json.dumps(
            {
                "name": self.name,
                "receivers": self._receivers,
                "known": None if self._known is None else sorted(self._known),
                "held": self._held,
                "sent": vars(self._sent),
                "heard": [vars(message) for message in self._heard.values()],
            }
        )

    @classmethod
    def restored(cls, saved: str) -> PushSumAgent:
        """Return the agent of :meth:`saved`, which goes on where it was.

        Parameters
        ----------
        saved : str
            As saved.
        """
        try:
            record = json.loads(saved)
            value, mass = (float(number) for number in record["held"])
            made = cls(record["name"], value, record["receivers"], record.get("known"))
            made._held = (value, mass)
            made._sent = PushSumMessage(**record["sent"])
            heard = [PushSumMessage(**entry) for entry in record["heard"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AffineDPError(f"this is no saved agent of push-sum: {error}") from None
        made._heard = {message.agent: message for message in heard}
        return made
