"""The controller in the cloud as a process: it always has an answer, also where nothing came."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.closed_loop import ClosedLoop
from affinedp.errors import AffineDPError
from affinedp.files.writing import write_text
from affinedp.mqtt.loop_messages import LoopMessage, decode, encode, encode_word
from affinedp.mqtt.messages import Dropped
from affinedp.mqtt.process import LINGER, OnStep, Outcome, Place, serve

logger = logging.getLogger(__name__)

Missing = Literal["predict", "hold", "stop"]
# Answers that are kept for steps that are asked about again.
KEPT = 4096
_DEEDS = {"predict": "the observer predicts them", "hold": "the input before them is held"}


class Controller:
    """Observer and feedback of a :class:`~affinedp.control.ClosedLoop` (section V.C of the paper).

    Where no measurement came the plant gets the feedback of the predicted state, or with "hold"
    the input before it once more; the observer takes into account which.
    """

    def __init__(
        self, loop: ClosedLoop, horizon: int, missing: Literal["predict", "hold"] = "predict"
    ) -> None:
        self._loop = loop
        self._horizon = horizon
        self._missing = missing
        self._references = loop.references(horizon)
        self._estimate = loop.xhat0
        self._given: dict[int, FloatArray] = {}
        self.next_step = 0

    def answer(self, step: int, received: FloatArray | None) -> FloatArray | None:
        """Return u(step), given ŷ(step) if there is one; None if it is long ago and forgotten.

        Over steps that were skipped the observer predicts, as if the plant had got the answers.
        """
        if step < self.next_step:
            return self._given.get(step)
        while self.next_step < step:
            self._advance(None)
        return self._advance(received)

    def _advance(self, received: FloatArray | None) -> FloatArray:
        """Take one step, with or without a correction; refuse before anything has changed."""
        plant, loop, estimate = self._loop.plant, self._loop, self._estimate
        with np.errstate(over="ignore", invalid="ignore"):
            given = loop.feedback @ (self._references[self.next_step] - estimate)
            if received is None and self._missing == "hold":
                given = self._given.get(self.next_step - 1, np.zeros_like(given))
            predicted = plant.A @ estimate + plant.B @ given
            if received is not None:
                surprise = received - plant.C @ estimate - plant.D @ given
                predicted = predicted + loop.observer @ surprise
        if not (np.all(np.isfinite(predicted)) and np.all(np.isfinite(given))):
            raise AffineDPError(
                f"the observer would leave double precision at step {self.next_step}: that "
                "measurement is absurd, or A − L C or A − B K is not stable"
            )
        self._estimate = predicted
        self._given[self.next_step] = np.asarray(given)
        self._given.pop(self.next_step - KEPT, None)
        self.next_step += 1
        return np.asarray(given)

    def save(self, path: Path, run: str) -> None:
        """Write down how far it has come; an existing file is replaced at once or not at all.

        Nothing in it is secret: all of it follows from what was published.
        """
        recent = sorted(self._given)[-64:]
        record = {
            "loop": self._fingerprint(),
            "run": run,
            "next_step": self.next_step,
            "estimate": [float(v).hex() for v in self._estimate],
            "given": {str(t): [float(v).hex() for v in self._given[t]] for t in recent},
        }
        write_text(path, json.dumps(record))

    def resume(self, path: Path) -> str | None:
        """Go on from what :meth:`save` wrote; return the run, or None if there is no file."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            same = record["loop"] == self._fingerprint()
            if same:
                self._take(record)
                return str(record["run"])
        except FileNotFoundError:
            return None
        except (OSError, LookupError, TypeError, ValueError, AttributeError):
            raise AffineDPError(
                f"{path} cannot be read: remove it, and the observer starts anew"
            ) from None
        raise AffineDPError(
            f"{path} is of another loop, or of another choice for missing steps: give another "
            "file, or remove it"
        )

    def _take(self, record: dict[str, Any]) -> None:
        estimate = np.array([float.fromhex(v) for v in record["estimate"]])
        given = {
            int(t): np.array([float.fromhex(v) for v in values])
            for t, values in record["given"].items()
        }
        if estimate.shape != self._estimate.shape or not np.all(np.isfinite(estimate)):
            raise ValueError
        self.next_step = int(record["next_step"])
        self._estimate, self._given = estimate, given

    def _fingerprint(self) -> str:
        """A hash of everything that decides the answers."""
        plant, loop = self._loop.plant, self._loop
        digest = hashlib.sha256(f"{self._horizon} {self._missing}".encode())
        parts = (plant.A, plant.B, plant.C, plant.D, loop.feedback, loop.observer, loop.xhat0)
        for part in (*parts, self._references):
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()


class CloudResponder:
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
        except AffineDPError as error:
            self.dropped.add("malformed", str(error), payload)
            return None
        if said.word == "malformed":  # then there is no measurement, and a word says so below
            self.dropped.add("malformed", said.reason, payload)
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

    def _input(self, said: LoopMessage) -> tuple[bytes, int | None]:
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

    def _stop(self, said: LoopMessage, reason: str) -> tuple[bytes, None]:
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
    responder = CloudResponder(loop, horizon, missing, state)
    return serve(
        "cloud", responder, source, target, stop, linger=linger, on_step=on_step, patience=patience
    )
