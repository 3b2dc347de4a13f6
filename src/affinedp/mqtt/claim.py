"""A claim on a topic: one publisher at a time, told by a retained message with a last will.

The claim lies beside the topic, at ``<topic>/claim``, and holds who claims it.  Whoever comes
subscribes to it, publishes a claim of its own, and waits until that comes back.  The broker puts
all claims into one order: who hears another's before its own has come second, and gives way.  Who
was first hears the other's too, and renews its own.  When the owner's connection breaks, the broker
publishes its last will: an empty claim, which is none.  A claim of the same owner (the same draw,
after a crash) is no obstacle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from affinedp.errors import AffineDPError
from affinedp.mqtt.connection import Connection, Message, Will
from affinedp.mqtt.messages import printable, read_object, write_object
from affinedp.mqtt.process import Place

WAIT = 10.0  # seconds for a claim to come back


class ClaimRules:
    """Whose a topic is, by the claims in the order of the broker; no network in it."""

    def __init__(self, who: str, publish: Callable[[], object], take_over: bool = False) -> None:
        self._who = who
        self._publish = publish
        self._take_over = take_over  # claims that were there before ours do not count
        self._over = False
        self.ours = False
        self.other = ""

    def begin(self) -> None:
        """Claim, at the start and whenever the broker was away."""
        self.ours = False
        if not self._over:
            self._publish()

    def give_up(self) -> None:
        """Claim no more: our own empty claim, when it comes back, is no reason to renew it."""
        self.ours, self._over = False, True

    def hear(self, owner: str) -> None:
        """Take a claim that the broker delivered; empty for one that was given up."""
        if self._over:
            return
        if owner == self._who:
            self.ours = self.ours or not self.other
        elif self.ours:
            self._publish()  # the last will of our own past, or somebody who came second
        elif owner and not self._take_over:
            self.other = owner


class Claim:
    """A claim that is held while the context is open; ``who`` is the same after a restart."""

    def __init__(
        self,
        place: Place,
        who: str,
        *,
        take_over: bool = False,
        patience: float = 0.0,
        stop: threading.Event | None = None,
    ) -> None:
        self._place = place
        self._topic = f"{place.topic}/claim"
        self._content = write_object({"owner": who})
        self._rules = ClaimRules(who, self._say, take_over)
        self._settled = threading.Event()
        self._connection = Connection(
            place.broker,
            [self._topic],
            self._hear,
            patience=patience,
            stop=stop,
            will=Will(self._topic, b"", retain=True),
            on_connect=self._rules.begin,
        )

    def __enter__(self) -> Claim:
        self._connection.__enter__()
        try:
            if not self._settled.wait(WAIT):
                raise AffineDPError(
                    f"{self._topic} at {self._place.broker.address} does not give our claim back: "
                    "let the broker's access control allow us to read and write it, or do without "
                    "the claim"
                )
            self.check()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        ours = self._rules.ours
        self._rules.give_up()
        if ours:
            self._connection.publish(self._topic, b"", retain=True)
        self._connection.close()

    def check(self) -> None:
        """Raise if the topic is somebody else's."""
        self._connection.check()
        if self._rules.other:
            raise AffineDPError(
                f"another gateway ({printable(self._rules.other.encode())}) publishes on "
                f"{self._place.topic} at {self._place.broker.address}: two draws for one step "
                "would be two releases. End that one first, or, if it is gone for good, take over "
                "its claim (take_over=True)"
            )

    def _say(self) -> None:
        self._connection.publish(self._topic, self._content, retain=True)

    def _hear(self, message: Message) -> None:
        try:
            owner = str(read_object(message.payload, ["owner"])["owner"]) if message.payload else ""
        except AffineDPError:
            owner = "unreadable"
        self._rules.hear(owner)
        if self._rules.ours or self._rules.other:
            self._settled.set()
