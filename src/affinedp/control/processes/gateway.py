"""The gateway as a process: measurements in, noisy measurements out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext

from affinedp.budget.ledger import BudgetExceededError
from affinedp.control.gateway.gateway import Gateway
from affinedp.control.gateway.refusals import (
    HorizonError,
    LateStepError,
    OtherRunError,
    RepeatedStepError,
)
from affinedp.control.processes.messages import WrongValuesError, decode, encode, encode_word
from affinedp.control.trajectory.dynamics import step_of
from affinedp.errors import AffineDPError
from affinedp.stream.run import RunError
from affinedp.wire.claim import Claim
from affinedp.wire.line import LINGER, Line, OnStep, Outcome, Place, say_ready
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)

Renew = Callable[[str], Gateway]


class _NoNewRunError(AffineDPError):
    """A new run for which no draw could be made."""


class GatewayDesk:
    """What a gateway answers to each message; no network in it.

    Every readable message is answered: with the noisy measurement, with ``missing`` if there is
    none and the loop may go on, or with ``stop`` if it may not.  No answer depends on a
    measurement except through its noise.

    Parameters
    ----------
    gateway : Gateway
        What adds the noise.
    renew : callable, optional
        Called with the name of a new run; returns a gateway with a draw of its own for it.
        Without it a new run is told to stop.
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

    def answer(self, payload: bytes) -> tuple[bytes, int | None] | None:
        """Return what to publish, and the step if it is a measurement; None for no message.

        Parameters
        ----------
        payload : bytes
            What arrived.  It is never logged: it holds a measurement without noise.
        """
        try:
            said = decode(payload, "y", self.gateway.outputs)
        except WrongValuesError as error:
            self.dropped.add("malformed", str(error))
            return encode_word(error.run, error.step, "missing", "it came malformed"), None
        except MalformedMessageError as error:
            self.dropped.add("malformed", str(error))
            return None
        if said.word:
            self.dropped.add("malformed", f"{said.word} says nothing to a gateway")
            return None
        try:
            published = self._gateway_for(said.run).send(said.values, said.step, said.run)
        except AffineDPError as error:
            return self._refusal(said.run, said.step, error), None
        now = time.monotonic()
        self._longest = max(self._longest, now - self._heard)
        self._heard, self.reason = now, ""
        return encode(said.run, said.step, "y", published), said.step

    def _gateway_for(self, run: str) -> Gateway:
        """The gateway of a run: another one, with another draw, if the plant was started anew."""
        known = self.gateway.run
        if known is None or known == run or self._renew is None or run in self._left:
            return self.gateway
        try:
            renewed = self._renew(run)
        except BudgetExceededError:
            raise
        except AffineDPError as error:
            raise _NoNewRunError(str(error)) from error
        logger.warning("gateway: run %s begins: a new draw, charged anew", run)
        self._left.add(known)
        self.gateway.close()
        self.gateway = renewed
        return renewed

    def _refusal(self, run: str, step: int, error: AffineDPError) -> bytes:
        """What is answered instead of a measurement, and what that means for this process."""
        if isinstance(error, LateStepError):
            self.dropped.add("late", str(error))
            return encode_word(run, step, "missing", "it was lost for good")
        if isinstance(error, HorizonError):
            self.reason = str(error)
            self.dropped.add("past the horizon", str(error))
            return encode_word(
                run, step, "missing", f"the promise ends after {error.horizon} steps"
            )
        if isinstance(error, OtherRunError):
            self.reason = f"run {run} was started, and this draw belongs to run {error.run}"
            self.dropped.add("another run", str(error))
            return encode_word(run, step, "stop", "the gateway's draw belongs to another run")
        if isinstance(error, BudgetExceededError):
            self.reason = f"no budget is left for run {run}: {error}"
            self.dropped.add("no budget", str(error))
            return encode_word(run, step, "stop", "no budget is left for a new run")
        if isinstance(error, _NoNewRunError):
            self.reason = f"run {run} gets no draw: {error}"
            self.dropped.add("no draw", str(error))
            return encode_word(run, step, "stop", "the new run could not get a draw of its own")
        if isinstance(error, RepeatedStepError):
            logger.error("gateway: %s; it ends here", error)
            self.failure = error
            return encode_word(run, step, "stop", "a step came again with another measurement")
        if isinstance(error, RunError):
            self.failure = error
            return encode_word(run, step, "stop", "the gateway's state cannot be used")
        self.dropped.add("refused", str(error))
        return encode_word(run, step, "missing", "it was refused")

    def done(self, quiet: float, linger: float) -> bool:
        """Whether the work is done: the end was reached, or another run took the place of ours.

        Parameters
        ----------
        quiet : float
            Seconds since the last message.
        linger : float
            For how long to stay.
        """
        if self.gateway.next_step >= self.gateway.horizon:
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
    """Read measurements, and publish them with noise.

    A step that was published before is published again with the same bytes.  Where there is
    nothing to publish, ``missing`` or ``stop`` is: see :class:`GatewayDesk`.

    Parameters
    ----------
    gateway : Gateway
        What adds the noise.
    source, target : Place
        Where measurements come from, and where noisy ones go.  Who can read the source sees the
        measurements themselves: it belongs on a broker on the plant's side.
    stop : Event
        Ends it.
    linger : float
        Seconds without a message after the last step, after which it ends by itself.
    on_step : callable, optional
        Called with each step that was published.
    renew : callable, optional
        Makes a gateway for a new run; without it a new run is told to stop.
    claim : bool
        Claim the target for this draw, so that no second gateway publishes there.
    take_over : bool
        Take the target from a gateway that is gone and left its claim.
    patience : float
        Seconds to wait for brokers at the start.

    Returns
    -------
    Outcome
    """
    desk = GatewayDesk(gateway, renew)

    def handle(payload: bytes) -> None:
        answer = None if desk.failure is not None else desk.answer(payload)
        if answer is None:
            return
        message, step = answer
        if not line.send(message):
            desk.dropped.add("broker away", "it is sent again when y comes again")
        elif step is not None and on_step is not None:
            on_step(step)

    line = Line(source, target, handle, patience=patience, stop=stop)
    # a new run may bring a new draw: the claim is that of the first
    who = gateway.commitment[:32]
    claimed = (
        Claim(target, who, take_over=take_over, patience=patience, stop=stop)
        if claim
        else nullcontext()
    )
    with claimed as held, line:
        say_ready(
            "gateway", source, target, f"at step {step_of(gateway.next_step, gateway.horizon)}"
        )

        def done(quiet: float) -> bool:
            if held is not None:
                held.check()
            return desk.failure is not None or desk.done(quiet, linger)

        line.serve(done, stop)
    if desk.failure is not None:
        raise desk.failure
    last = desk.gateway
    finished = last.next_step >= last.horizon
    return Outcome(last.next_step, finished, desk.dropped.counts, desk.reason)
