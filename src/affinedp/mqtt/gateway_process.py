"""The gateway as a process: measurements in, noisy measurements out, on a topic that it claims.

The claim lies beside the topic, at ``<topic>/claim``, and holds who claims it.  Whoever comes
subscribes to it, publishes a claim of its own, and waits until that comes back.  The broker puts
all claims into one order: who hears another's before its own has come second, and gives way.  Who
was first hears the other's too, and renews its own.  When the owner's connection breaks, the broker
publishes its last will: an empty claim, which is none.  A claim of the same owner (the same draw,
after a crash) is no obstacle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from affinedp.budget.ledger import BudgetExceededError
from affinedp.control.gateway import Gateway, StepError
from affinedp.domains.dynamics import step_of
from affinedp.errors import AffineDPError
from affinedp.mqtt.connection import Connection, Message, Will
from affinedp.mqtt.loop_process import UNSENT, decode, encode, encode_word
from affinedp.mqtt.messages import Dropped, printable, read_object, write_object
from affinedp.mqtt.process import LINGER, OnStep, Outcome, Place, serve
from affinedp.stream.run import RunError

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


logger = logging.getLogger(__name__)

Renew = Callable[[str], Gateway]


class GatewayResponder:
    """What a gateway answers to each message; no network in it.

    Every readable message is answered: with the noisy measurement, with ``missing`` if there is
    none and the loop may go on, or with ``stop`` if it may not; whose state another gateway took
    over leaves the answer to that one.  No answer depends on a measurement except through its
    noise.  ``renew`` makes a gateway, with a draw of its own, for the name of a new run; without it
    a new run is told to stop.
    """

    def __init__(self, gateway: Gateway, renew: Renew | None = None) -> None:
        self.gateway = gateway
        self.dropped = Dropped("gateway")
        self.failure: AffineDPError | None = None
        self.reason = ""
        self._heard = time.monotonic()  # when our own run spoke last
        self._longest = 0.0  # seconds that it was silent at most
        self._renew = renew
        self._left: set[str] = set()

    @property
    def steps(self) -> int:
        """How many steps it has come along."""
        return self.gateway.next_step

    @property
    def finished(self) -> bool:
        """Whether the horizon was reached."""
        return self.gateway.next_step >= self.gateway.horizon

    def answer(self, payload: bytes) -> tuple[bytes, int | None] | None:
        """Return what to publish, and the step if it is a measurement; None for no message.

        The payload is never logged: it holds a measurement without noise.
        """
        try:
            said = decode(payload, "y", self.gateway.outputs, nearest=True)
        except AffineDPError as error:
            self.dropped.add("malformed", str(error))
            return None
        if said.word:
            reason = f"{said.word} says nothing to a gateway"
            self.dropped.add("malformed", said.reason if said.word == "malformed" else reason)
            if said.word != "malformed":
                return None
            return encode_word(said.run, said.step, "missing", "it came malformed"), None
        try:
            gateway = self._gateway_for(said.run)
        except BudgetExceededError as error:
            return self._stop(said.run, said.step, error, "no budget is left")
        except AffineDPError as error:
            return self._stop(said.run, said.step, error, "no draw could be made")
        try:
            published = gateway.send(said.values, said.step, said.run)
        except AffineDPError as error:
            refused = self._refusal(said.run, said.step, error)
            return None if refused is None else (refused, None)
        now = time.monotonic()
        self._longest = max(self._longest, now - self._heard)
        self._heard, self.reason = now, ""
        if published is None:
            return encode_word(said.run, said.step, "missing", f"{UNSENT}{gateway.every}"), None
        return encode(said.run, said.step, "y", published), said.step

    def _gateway_for(self, run: str) -> Gateway:
        """The gateway of a run: another one, with another draw, if the plant was started anew."""
        known = self.gateway.run
        if known is None or known == run or self._renew is None or run in self._left:
            return self.gateway
        renewed = self._renew(run)
        logger.warning("gateway: run %s begins: a new draw, charged anew", run)
        self._left.add(known)
        self.gateway.close()
        self.gateway = renewed
        return renewed

    def _stop(self, run: str, step: int, error: AffineDPError, lack: str) -> tuple[bytes, None]:
        """What a new run is told that cannot begin."""
        self.reason = f"{lack} for run {run}: {error}"
        self.dropped.add(lack, str(error))
        return encode_word(run, step, "stop", f"{lack} for a new run"), None

    def _refusal(self, run: str, step: int, error: AffineDPError) -> bytes | None:
        """What is answered instead of a measurement, and what that means for this process."""
        why = error.why if isinstance(error, StepError) else ""
        if why == "late":
            self.dropped.add("late", str(error))
            return encode_word(run, step, "missing", "it was lost for good")
        if why == "horizon":
            self.reason = str(error)
            self.dropped.add("past the horizon", str(error))
            ends = f"the promise ends after {self.gateway.horizon} steps"
            return encode_word(run, step, "missing", ends)
        if why == "run":
            self.reason = f"run {run} was started, and this draw belongs to run {self.gateway.run}"
            self.dropped.add("another run", str(error))
            return encode_word(run, step, "stop", "the gateway's draw belongs to another run")
        if why == "repeated":
            logger.error("gateway: %s; it ends here", error)
            self.failure = error
            return encode_word(run, step, "stop", "a step came again with another measurement")
        if isinstance(error, RunError):
            self.failure = error
            if error.taken:  # who took the state over answers, and the loop goes on
                return None
            return encode_word(run, step, "stop", "the gateway's state cannot be used")
        self.dropped.add("refused", str(error))
        return encode_word(run, step, "missing", "it was refused")

    def done(self, quiet: float, linger: float) -> bool:
        """Whether the end was reached, or another run took the place of ours."""
        if self.finished:
            return quiet >= linger
        # our own run may only be slow
        silent = time.monotonic() - self._heard
        return bool(self.reason) and silent >= max(linger, 3 * self._longest)


def run_gateway(
    gateway: Gateway,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    linger: float = LINGER,
    on_step: OnStep | None = None,
    renew: Renew | None = None,
    claim: bool = True,
    take_over: bool = False,
    patience: float = 0.0,
) -> Outcome:
    """Read measurements, and publish them with noise, as :class:`GatewayResponder` says.

    Who can read the source sees the measurements themselves: it belongs on a broker on the plant's
    side.  With ``claim`` the target belongs to this draw, so that no second gateway publishes
    there; ``take_over`` takes it from one that is gone and left its claim.
    """
    responder = GatewayResponder(gateway, renew)
    words: dict[str, Any] = {"linger": linger, "on_step": on_step, "patience": patience}
    words["where"] = f"at step {step_of(gateway.next_step, gateway.horizon)}"
    if not claim:
        return serve("gateway", responder, source, target, stop, **words)
    # a new run may bring a new draw: the claim is that of the first
    who = gateway.commitment[:32]
    with Claim(target, who, take_over=take_over, patience=patience, stop=stop) as held:
        return serve("gateway", responder, source, target, stop, check=held.check, **words)
