"""The controller in the cloud as a process."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.control.processes.controller import Controller, Missing
from affinedp.control.processes.messages import (
    Spoken,
    WrongValuesError,
    decode,
    encode,
    encode_word,
)
from affinedp.errors import AffineDPError
from affinedp.wire.line import LINGER, Line, OnStep, Outcome, Place, say_ready
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)


class CloudDesk:
    """What the cloud answers to each message; no network in it.

    Every readable message of the current run is answered, with an input or with ``stop``.  A new
    run begins with a new observer; messages of earlier runs are dropped.

    Parameters
    ----------
    loop : ClosedLoop
        Plant, gains and reference.
    horizon : int
        How many steps there are.
    missing : "predict", "hold" or "stop"
        What becomes of a step without a measurement.
    state : Path, optional
        Where the observer is kept, so that a cloud that is started again goes on with it.
    """

    def __init__(
        self,
        loop: ClosedLoop,
        horizon: int,
        missing: Missing = "predict",
        state: Path | None = None,
    ) -> None:
        self._loop = loop
        self._horizon = horizon
        self._missing = missing
        self._state = state
        self._earlier: set[str] = set()
        self.dropped = Dropped("cloud")
        self.reason = ""
        self.controller = self._new()
        self.run = None if state is None else self.controller.resume(state)
        if self.run is not None:
            step = self.controller.next_step
            logger.info("cloud: goes on with run %s at step %d", self.run, step)

    def _new(self) -> Controller:
        return Controller(
            self._loop, self._horizon, "hold" if self._missing == "hold" else "predict"
        )

    def answer(self, payload: bytes) -> tuple[bytes, int | None] | None:
        """Return what to publish, and the step if it is an input; None for no message.

        Parameters
        ----------
        payload : bytes
            What arrived.
        """
        try:
            said = decode(payload, "y", self._loop.plant.outputs)
        except WrongValuesError as error:
            self.dropped.add("malformed", str(error), payload)
            said = Spoken(error.run, error.step, self._loop.xhat0[:0], "missing", str(error))
        except MalformedMessageError as error:
            self.dropped.add("malformed", str(error), payload)
            return None
        if not self._is_current(said.run):
            self.dropped.add("another run", f"run {said.run} is over")
            return None
        if said.word == "stop":
            return self._stop(said, said.reason), None
        if said.step >= self._horizon:
            self.dropped.add("past the horizon", f"step {said.step} of {self._horizon}", payload)
            return self._stop(said, f"the controller's horizon is {self._horizon} steps"), None
        return self._input(said)

    def _is_current(self, run: str) -> bool:
        """Whether a run is the current one; a new one becomes it."""
        if run == self.run:
            return True
        if run in self._earlier:
            return False
        if self.run is not None:
            self._earlier.add(self.run)
            logger.warning("cloud: run %s begins, with a new observer", run)
            self.controller = self._new()
        self.run, self.reason = run, ""
        return True

    def _input(self, said: Spoken) -> tuple[bytes, int | None]:
        first = self.controller.next_step
        if said.step > first or (said.word and said.step >= first):
            lost = f"steps {first} to {said.step - (0 if said.word else 1)}"
            if self._missing == "stop":
                return self._stop(said, f"{lost} have no measurement"), None
            logger.warning("cloud: %s were skipped; %s", lost, _DEEDS[self._missing])
        try:
            given = self.controller.answer(said.step, None if said.word else said.values)
        except AffineDPError as error:
            self.dropped.add("refused", str(error))
            return self._stop(said, str(error)), None
        if given is None:
            self.dropped.add("late", f"step {said.step} is forgotten")
            return self._stop(said, f"step {said.step} is too long ago"), None
        if self.controller.next_step > first:
            self._save(said.run)
        return encode(said.run, said.step, "u", given), said.step

    def _save(self, run: str) -> None:
        """Keep the observer; a full disk does not stop the plant."""
        if self._state is None:
            return
        try:
            self.controller.save(self._state, run)
        except AffineDPError as error:
            self.dropped.add("not saved", str(error))

    def _stop(self, said: Spoken, reason: str) -> bytes:
        self.reason = f"run {said.run} is stopped at step {said.step}: {reason}"
        logger.error("cloud: %s", self.reason)
        return encode_word(said.run, said.step, "stop", reason)

    def done(self, quiet: float, linger: float) -> bool:
        """Whether the work is done.

        Parameters
        ----------
        quiet : float
            Seconds since the last message.
        linger : float
            For how long to stay.
        """
        ended = self.controller.next_step >= self._horizon or bool(self.reason)
        return ended and quiet >= linger


_DEEDS = {"predict": "the observer predicts them", "hold": "the input before them is held"}


def run_cloud(
    loop: ClosedLoop,
    horizon: int,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    missing: Missing = "predict",
    state: Path | None = None,
    linger: float = LINGER,
    on_step: OnStep | None = None,
    patience: float = 0.0,
) -> Outcome:
    """Answer noisy measurements with inputs: the observer and the feedback of the loop.

    Steps get the same answer again when they are repeated.  Where the plant starts (``x0``) is
    not used.

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
    missing : "predict", "hold" or "stop"
        What becomes of a step without a measurement: the observer predicts, the input before is
        held, or the run ends.
    state : Path, optional
        Where the observer is kept, so that a cloud that is started again goes on with it.
    linger : float
        Seconds without a message after the last step, after which it ends by itself.
    on_step : callable, optional
        Called with each step that was answered.
    patience : float
        Seconds to wait for brokers at the start.

    Returns
    -------
    Outcome
    """
    desk = CloudDesk(loop, horizon, missing, state)

    def handle(payload: bytes) -> None:
        answer = desk.answer(payload)
        if answer is None:
            return
        message, step = answer
        if not line.send(message):
            desk.dropped.add("broker away", "it is answered again when it comes again")
        elif step is not None and on_step is not None:
            on_step(step)

    line = Line(source, target, handle, patience=patience, stop=stop)
    with line:
        say_ready("cloud", source, target)
        line.serve(lambda quiet: desk.done(quiet, linger), stop)
    reached = desk.controller.next_step
    return Outcome(reached, reached >= horizon, desk.dropped.counts, desk.reason)
