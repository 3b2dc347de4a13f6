"""The controller in the cloud as a process."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.errors import AffineDPError
from affinedp.mqtt.controller import Controller, Missing
from affinedp.mqtt.loop_messages import Spoken, decode, encode, encode_word
from affinedp.mqtt.messages import Dropped, MessageError
from affinedp.mqtt.process import LINGER, OnStep, Outcome, Place, serve

logger = logging.getLogger(__name__)

_DEEDS = {"predict": "the observer predicts them", "hold": "the input before them is held"}


class CloudDesk:
    """What the cloud answers to each message; no network in it.

    Every readable message of the current run is answered, with an input or with ``stop``.  A new
    run begins with a new observer; messages of earlier runs are dropped.  That the gateway is gone
    is passed on to the plant.
    """

    failure: AffineDPError | None = None

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
            logger.info("cloud: goes on with run %s at step %d", self.run, self.steps)

    def _new(self) -> Controller:
        return Controller(
            self._loop, self._horizon, "hold" if self._missing == "hold" else "predict"
        )

    @property
    def steps(self) -> int:
        """How many steps it has come along."""
        return self.controller.next_step

    @property
    def finished(self) -> bool:
        """Whether the horizon was reached."""
        return self.steps >= self._horizon

    def answer(self, payload: bytes) -> tuple[bytes, int | None] | None:
        """Return what to publish, and the step if it is an input; None for no message."""
        try:
            said = decode(payload, "y", self._loop.plant.outputs)
        except MessageError as error:
            self.dropped.add(error.reason, str(error), payload)
            if error.asked is None:
                return None
            said = Spoken(*error.asked, word="missing", reason=str(error))
        if said.word == "gone":
            logger.warning("cloud: %s", said.reason)
            return payload, None
        if not self._is_current(said.run):
            self.dropped.add("another run", f"run {said.run} is over")
            return None
        if said.word == "stop":
            return self._stop(said, said.reason)
        if said.step >= self._horizon:
            self.dropped.add("past the horizon", f"step {said.step} of {self._horizon}", payload)
            return self._stop(said, f"the controller's horizon is {self._horizon} steps")
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
        first = self.steps
        if said.step > first or (said.word and said.step >= first):
            lost = f"steps {first} to {said.step - (0 if said.word else 1)}"
            if self._missing == "stop":
                return self._stop(said, f"{lost} have no measurement")
            logger.warning("cloud: %s were skipped; %s", lost, _DEEDS[self._missing])
        try:
            given = self.controller.answer(said.step, None if said.word else said.values)
        except AffineDPError as error:
            self.dropped.add("refused", str(error))
            return self._stop(said, str(error))
        if given is None:
            self.dropped.add("late", f"step {said.step} is forgotten")
            return self._stop(said, f"step {said.step} is too long ago")
        if self.steps > first:
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

    def _stop(self, said: Spoken, reason: str) -> tuple[bytes, None]:
        self.reason = f"run {said.run} is stopped at step {said.step}: {reason}"
        logger.error("cloud: %s", self.reason)
        return encode_word(said.run, said.step, "stop", reason), None

    def done(self, quiet: float, linger: float) -> bool:
        """Whether the horizon was reached or the run stopped, and nobody asks any more."""
        return (self.finished or bool(self.reason)) and quiet >= linger


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
    not used.  With ``state`` a cloud that is started again goes on with its observer.
    """
    desk = CloudDesk(loop, horizon, missing, state)
    return serve(
        "cloud", desk, source, target, stop, linger=linger, on_step=on_step, patience=patience
    )
