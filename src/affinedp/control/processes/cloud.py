"""The controller in the cloud, step by step and as a process."""

from __future__ import annotations

import logging
import threading

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.control.processes.messages import decode, encode
from affinedp.errors import AffineDPError
from affinedp.wire.line import LINGER, Line, OnStep, Outcome, Place, say_ready
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)


class Controller:
    """Observer and feedback of a :class:`~affinedp.control.ClosedLoop` (section V.C of the paper).

    Parameters
    ----------
    loop : ClosedLoop
        Plant, gains and reference.
    horizon : int
        How many steps there are.

    Examples
    --------
    >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[2.0])
    >>> controller = Controller(loop, horizon=3)
    >>> controller.answer(0, np.array([4.0])), controller.answer(0, np.array([9.0]))
    (array([1.]), array([1.]))
    >>> controller.answer(2, np.array([4.0])), controller.answer(1, np.array([4.0]))
    (array([-0.25]), None)
    """

    def __init__(self, loop: ClosedLoop, horizon: int) -> None:
        self._loop = loop
        self._references = loop.references(horizon)
        self._estimate = loop.xhat0
        self._last: FloatArray | None = None
        self.next_step = 0

    def answer(self, step: int, received: FloatArray) -> FloatArray | None:
        """Return u(step).

        Parameters
        ----------
        step : int
            Below the horizon.  Over steps that were skipped the observer predicts, as if
            the plant had got the answers.
        received : array, shape (m,)
            ŷ(step); it is not looked at when the step is repeated.

        Returns
        -------
        array of shape (k,), or None
            None for a step before the last one.
        """
        if step < self.next_step - 1:
            return None
        if step == self.next_step - 1:
            return self._last
        while self.next_step < step:
            self._advance(None)
        return self._advance(received)

    def _advance(self, received: FloatArray | None) -> FloatArray:
        """Take one step, with or without a correction; refuse before anything has changed."""
        plant, loop, estimate = self._loop.plant, self._loop, self._estimate
        with np.errstate(over="ignore", invalid="ignore"):
            given = loop.feedback @ (self._references[self.next_step] - estimate)
            predicted = plant.A @ estimate + plant.B @ given
            if received is not None:
                surprise = received - plant.C @ estimate - plant.D @ given
                predicted = predicted + loop.observer @ surprise
        if not (np.all(np.isfinite(predicted)) and np.all(np.isfinite(given))):
            raise AffineDPError(
                f"the observer would leave double precision at step {self.next_step}: that "
                "measurement is absurd, or A − L C or A − B K is not stable"
            )
        self._estimate, self._last = predicted, given
        self.next_step += 1
        return np.asarray(given)


def run_cloud(
    loop: ClosedLoop,
    horizon: int,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    linger: float = LINGER,
    on_step: OnStep | None = None,
) -> Outcome:
    """Answer noisy measurements with inputs: the observer and the feedback of the loop.

    The last step gets the same answer again when it is repeated.  Over a skipped step the observer
    predicts without correcting.  Where the plant starts (``x0``) is not used.

    Parameters
    ----------
    loop : ClosedLoop
        Plant, gains and reference.
    horizon : int
        How many steps there are.
    source, target : Place
        Where noisy measurements come from, and where inputs go.
    stop : Event
        Ends it.
    linger : float
        Seconds without a message after the last step, after which it ends by itself.
    on_step : callable, optional
        Called with each step that was answered.

    Returns
    -------
    Outcome
    """
    controller = Controller(loop, horizon)
    dropped = Dropped("cloud")

    def handle(payload: bytes) -> None:
        try:
            step, received = decode(payload, "y", loop.plant.outputs)
        except MalformedMessageError as error:
            dropped.add("malformed", str(error), payload)
            return
        if step >= horizon:
            dropped.add("past the horizon", f"step {step} of {horizon}", payload)
            return
        if step > controller.next_step:
            skipped = f"steps {controller.next_step} to {step - 1} were skipped"
            logger.warning("cloud: %s; the observer predicts them", skipped)
        try:
            answer = controller.answer(step, received)
        except AffineDPError as error:
            dropped.add("refused", str(error), payload)
            return
        if answer is None:
            dropped.add("late", f"step {step} after step {controller.next_step - 1}", payload)
        elif not line.send(encode(step, "u", answer)):
            dropped.add("broker away", f"step {step}; it is answered again when it comes again")
        elif on_step is not None:
            on_step(step)

    def done(quiet: float) -> bool:
        return controller.next_step >= horizon and quiet >= linger

    line = Line(source, target, handle)
    with line:
        say_ready("cloud", source, target)
        line.serve(done, stop)
    return Outcome(controller.next_step, controller.next_step >= horizon, dropped.counts)
