"""Both ends of a control loop as processes: the controller in the cloud, and a simulated plant.

A message is ``{"run": "a1b2", "step": 17, "y": [1.5, -2.0]}``, or u for inputs.  Where there are no
numbers, ``"missing"`` says why instead (the gateway to the cloud), and ``"stop"`` ends the run (to
whoever waits).  ``{"gone": "the gateway is gone"}`` is a last will.  Who waits is always answered,
so that no loop stalls for ever.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.closed_loop import ClosedLoop
from affinedp.control.gateway import checked_run
from affinedp.control.sensors import EXACT, Resolution, read_by
from affinedp.errors import AffineDPError
from affinedp.files.writing import write_text
from affinedp.mqtt.messages import Dropped, read_count, read_number, read_object, write_object
from affinedp.mqtt.process import (
    LINGER,
    POLL,
    Channel,
    JsonLines,
    OnStep,
    Outcome,
    Place,
    say_ready,
    serve,
)

Signal = Literal["y", "u"]
Word = Literal["missing", "stop", "gone", "malformed"]

LONGEST_REASON = 300
# Why a step is missing in good order; of how many steps one is sent follows.
UNSENT = "not sent: one step of "


@dataclass(frozen=True)
class LoopMessage:
    """A message that was understood: numbers, or a word and its reason instead."""

    run: str
    step: int
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    word: Word | Literal[""] = ""
    reason: str = ""


def encode(run: str, step: int, signal: Signal, values: FloatArray) -> bytes:
    """Write finite numbers; the same numbers always give the same bytes."""
    return write_object({"run": run, "step": step, signal: np.asarray(values, float).tolist()})


def encode_word(run: str, step: int, word: Literal["missing", "stop"], reason: str) -> bytes:
    """Write that there are no values at a step, or that the run ends.

    Nothing in the reason may depend on measurements.
    """
    return write_object({"run": run, "step": step, word: reason[:LONGEST_REASON]})


def decode(payload: bytes, signal: Signal, size: int, nearest: bool = False) -> LoopMessage:
    """Read a message with so many values; where these alone are wrong, its word is "malformed".

    With ``nearest`` a number that no double holds is read as the nearest one, as a gateway reads
    it in Python: to refuse it would tell of it.
    """
    record = read_object(payload, ())
    if "gone" in record and "run" not in record:
        return LoopMessage("", -1, word="gone", reason=_reason(record, "gone"))
    if not record.keys() >= {"run", "step"}:
        raise AffineDPError("it must be an object with run, step")
    run, step = checked_run(record["run"]), read_count(record["step"], "step")
    words: tuple[Word, ...] = ("missing", "stop")
    for word in words:
        if word in record:
            return LoopMessage(run, step, word=word, reason=_reason(record, word))
    if signal not in record:
        raise AffineDPError(f"it must be an object with {signal}")
    try:
        return LoopMessage(run, step, _values(record[signal], signal, size, nearest))
    except AffineDPError as error:
        return LoopMessage(run, step, word="malformed", reason=str(error))


def _values(value: Any, signal: str, size: int, nearest: bool) -> FloatArray:
    if not isinstance(value, list) or len(value) != size:
        raise AffineDPError(f"{signal} must be a list of {size} numbers")
    if nearest:
        value = [_nearest(number) for number in value]
    return np.array([read_number(number, signal) for number in value])


def _nearest(number: Any) -> Any:
    is_beyond = type(number) is float and math.isinf(number)
    return math.copysign(sys.float_info.max, number) if is_beyond else number


def _reason(record: dict[str, Any], word: str) -> str:
    """A reason that no terminal acts on."""
    reason = record[word]
    if not isinstance(reason, str):
        raise AffineDPError(f"{word} must be text")
    return "".join(c if c.isprintable() else "?" for c in reason[:LONGEST_REASON])


logger = logging.getLogger(__name__)

Missing = Literal["predict", "hold", "stop"]
Limits = tuple[FloatArray, FloatArray]
# What a cloud says when it keeps inputs within their limits; a trial repeats it.
CLIPPED = "inputs are clipped to [sensors] inputs, on which the promise rests"
# Answers that are kept for steps that are asked about again.
KEPT = 4096
_DEEDS = {"predict": "the observer predicts them", "hold": "the input before them is held"}


class Controller:
    """Observer and feedback of a :class:`~affinedp.control.ClosedLoop` (section V.C of the paper).

    Where no measurement came the plant gets the feedback of the predicted state, or with "hold"
    the input before it once more; the observer takes into account which.  Inputs are clipped to
    their public limits, on which a promise about saturating sensors rests.
    """

    def __init__(
        self,
        loop: ClosedLoop,
        horizon: int,
        missing: Literal["predict", "hold"] = "predict",
        limits: Limits | None = None,
    ) -> None:
        self._loop = loop
        self._horizon = horizon
        self._missing = missing
        self._limits = limits
        self._has_clipped = False
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
            given = self._clipped(np.asarray(given))
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
        self._given[self.next_step] = given
        self._given.pop(self.next_step - KEPT, None)
        self.next_step += 1
        return given

    def _clipped(self, asked: FloatArray) -> FloatArray:
        """Keep an input within the limits, and say so the first time."""
        if self._limits is None:
            return asked
        given = np.clip(asked, *self._limits)
        if not self._has_clipped and np.any(given != asked):
            self._has_clipped = True
            logger.warning(
                "cloud: %s: u(%d) = %s became %s (said once)",
                CLIPPED, self.next_step, _short(asked), _short(given),
            )  # fmt: skip
        return given

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
        for part in (*parts, self._references, *(self._limits or ())):
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()


def _short(values: FloatArray) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"


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
        limits: Limits | None = None,
    ) -> None:
        self._loop = loop
        self._horizon = horizon
        self._missing = missing
        self._state = state
        self._limits = limits
        self._earlier: set[str] = set()
        self._rarely = ""  # what was said of steps that are not sent
        self.dropped = Dropped("cloud")
        self.reason = ""
        self.controller = self._new()
        self.run = None if state is None else self.controller.resume(state)
        if self.run is not None:
            logger.info("cloud: goes on with run %s at step %d", self.run, self.steps)

    def _new(self) -> Controller:
        missing: Literal["predict", "hold"] = "hold" if self._missing == "hold" else "predict"
        return Controller(self._loop, self._horizon, missing, self._limits)

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
            self._mention(said, lost)
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

    def _mention(self, said: LoopMessage, lost: str) -> None:
        """Say that steps have no measurement; of those that are left out in good order once."""
        deed = _DEEDS[self._missing]
        if said.reason.startswith(UNSENT):
            if said.reason != self._rarely:
                logger.info("cloud: steps are %s; %s", said.reason, deed)
            self._rarely = said.reason
        else:
            logger.warning("cloud: %s were skipped; %s", lost, deed)

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
    limits: Limits | None = None,
    linger: float = LINGER,
    on_step: OnStep | None = None,
    patience: float = 0.0,
) -> Outcome:
    """Answer noisy measurements with inputs: the observer and the feedback of the loop.

    Steps get the same answer again when they are repeated.  Where the plant starts (``x0``) is
    not used.  With ``state`` a cloud that is started again goes on with its observer.  Inputs are
    clipped to ``limits`` (low, high).
    """
    responder = CloudResponder(loop, horizon, missing, state, limits)
    return serve(
        "cloud", responder, source, target, stop, linger=linger, on_step=on_step, patience=patience
    )


logger = logging.getLogger(__name__)

RESEND = 1.0  # seconds without an answer before the plant sends again
PATIENCE = 60.0  # seconds without an answer before it gives up

Silence = Literal["stop", "hold"]


class PlantModel:
    """The plant of a :class:`~affinedp.control.ClosedLoop`, from x0 on, its sensors and actuators.

    Actuators end at their public limits, whatever a controller asks for.
    """

    def __init__(
        self,
        loop: ClosedLoop,
        resolution: Resolution | str = EXACT,
        limits: Limits | None = None,
    ) -> None:
        if np.any(loop.plant.D):
            raise AffineDPError(
                "y(t) of this plant depends on u(t) (D is not zero), but u(t) is the answer to "
                "y(t): a plant on the network needs D = 0"
            )
        self._plant, self._resolution, self._limits = loop.plant, resolution, limits
        self.state = loop.x0

    @property
    def inputs(self) -> int:
        """How many entries u(t) has."""
        return self._plant.inputs

    def measure(self) -> FloatArray:
        """Return y(t) = C x(t), as its sensors read it."""
        return read_by(self._plant.C @ self.state, self._resolution)

    def actuated(self, asked: FloatArray) -> FloatArray:
        """Return what the actuators make of an input."""
        return asked if self._limits is None else np.clip(asked, *self._limits)

    def apply(self, given: FloatArray) -> None:
        """Move to x(t+1) = A x(t) + B u(t)."""
        with np.errstate(over="ignore", invalid="ignore"):
            self.state = self._plant.A @ self.state + self._plant.B @ given
        if not np.all(np.isfinite(self.state)):
            raise AffineDPError("the plant grows beyond double precision: the loop is not stable")


def run_plant(
    loop: ClosedLoop,
    horizon: int,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    resolution: Resolution | str = EXACT,
    limits: Limits | None = None,
    run: str | None = None,
    log: Path | None = None,
    period: float = 0.0,
    resend: float = RESEND,
    silence: Silence = "stop",
    patience: float = PATIENCE,
    on_step: OnStep | None = None,
    wait: float = 0.0,
) -> Outcome:
    """Simulate the plant in lockstep: send y(t), read by its sensors, wait for u(t), move on.

    Actuators end at ``limits`` (low, high), whoever controls the plant.  ``run`` names this run, as
    no other is named; a random name by default.  The log, with x, y and
    u of each step, is secret.  Without an answer for ``patience`` seconds the plant ends, or with
    ``silence="hold"`` applies the input before once more; brokers are waited for at the start for
    ``wait`` seconds.
    """
    plant = PlantModel(loop, resolution, limits)
    name = secrets.token_hex(8) if run is None else checked_run(run)
    given = plant.actuated(np.zeros(plant.inputs))
    with JsonLines(log) as lines, Channel(source, target, patience=wait, stop=stop) as channel:
        way = _Way(channel, stop, name, plant.inputs)
        dropped = way.dropped
        say_ready("plant", source, target, f"run {name}")
        for step in range(horizon):
            started = time.monotonic()
            measured = plant.measure()
            answer = way.ask(step, encode(name, step, "y", measured), resend, patience)
            if way.ended or (answer is None and stop.is_set()):
                return Outcome(step, False, dropped.counts, way.ended)
            if answer is None and silence == "stop":
                reason = f"no answer to step {step} for {patience:g} s{way.gone and ': '}{way.gone}"
                return Outcome(step, False, dropped.counts, reason)
            if answer is None:
                dropped.add("unanswered", f"step {step}: the input before is held")
            else:
                given = plant.actuated(answer)
            lines.write(step=step, x=plant.state, y=measured, u=given)
            plant.apply(given)
            if on_step is not None:
                on_step(step)
            stop.wait(max(0.0, started + period - time.monotonic()))
    return Outcome(horizon, True, dropped.counts)


class _Way:
    """The way to the cloud and back, and what was heard of those on it."""

    def __init__(self, channel: Channel, stop: threading.Event, run: str, size: int) -> None:
        self._channel = channel
        self._stop = stop
        self._run = run
        self._size = size
        self.dropped = Dropped("plant")
        self.ended = ""  # why the other side ended the run
        self.gone = ""  # who is gone, as its last will said

    def ask(self, step: int, message: bytes, resend: float, patience: float) -> FloatArray | None:
        """u(step), for which y(step) is sent again and again; None when ended or out of time."""
        started = time.monotonic()
        until = started + patience
        tries = 0
        while not (self._stop.is_set() or self.ended) and (tries == 0 or time.monotonic() < until):
            self._channel.send(message)
            tries += 1
            answer = self._wait(step, min(time.monotonic() + resend, until))
            if answer is not None:
                self.gone = ""
                return answer
            if tries.bit_count() == 1 and not self.ended:  # after the 1st, 2nd, 4th, 8th, ... try
                waited = time.monotonic() - started
                logger.warning("plant: no answer to step %d for %.1f s", step, waited)
        return None

    def _wait(self, step: int, until: float) -> FloatArray | None:
        while (left := until - time.monotonic()) > 0 and not (self._stop.is_set() or self.ended):
            arrived = self._channel.receive(min(left, POLL))
            if arrived is None:
                continue
            try:
                said = decode(arrived, "u", self._size)
            except AffineDPError as error:
                self.dropped.add("malformed", str(error), arrived)
                continue
            if said.word == "gone":
                self.gone = said.reason
                logger.warning("plant: %s; step %d waits for it to come back", said.reason, step)
            elif said.word == "malformed":
                self.dropped.add("malformed", said.reason, arrived)
            elif said.run != self._run:
                self.dropped.count("answer to another run")
            elif said.step != step:
                self.dropped.count("answer to another step")  # such as one to a repeated message
            elif said.word:
                self.ended = said.reason or "the run was stopped"
            else:
                return said.values
        return None
