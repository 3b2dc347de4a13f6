"""A plant that is simulated on the network."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.gateway.gateway import checked_run
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.control.processes.messages import decode, encode
from affinedp.errors import AffineDPError
from affinedp.wire.line import (
    POLL,
    Line,
    LineLog,
    OnStep,
    Outcome,
    Place,
    say_ready,
)
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)

RESEND = 1.0  # seconds without an answer before the plant sends again
PATIENCE = 60.0  # seconds without an answer before it gives up

Silence = Literal["stop", "hold"]


class PlantModel:
    """The plant of a :class:`~affinedp.control.ClosedLoop`, from x0 on.

    Parameters
    ----------
    loop : ClosedLoop
        Its plant and x0 are used.
    """

    def __init__(self, loop: ClosedLoop) -> None:
        if np.any(loop.plant.D):
            raise AffineDPError(
                "y(t) of this plant depends on u(t) (D is not zero), but u(t) is the answer to "
                "y(t): a plant on the network needs D = 0"
            )
        self._plant = loop.plant
        self.state = loop.x0

    @property
    def inputs(self) -> int:
        """How many entries u(t) has."""
        return self._plant.inputs

    def measure(self) -> FloatArray:
        """Return y(t) = C x(t)."""
        return np.asarray(self._plant.C @ self.state)

    def apply(self, given: FloatArray) -> None:
        """Move to x(t+1) = A x(t) + B u(t).

        Parameters
        ----------
        given : array, shape (k,)
            u(t).
        """
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
    run: str | None = None,
    log: Path | None = None,
    period: float = 0.0,
    resend: float = RESEND,
    silence: Silence = "stop",
    patience: float = PATIENCE,
    on_step: OnStep | None = None,
    wait: float = 0.0,
) -> Outcome:
    """Simulate the plant in lockstep: send y(t), wait for u(t), move on.

    Parameters
    ----------
    loop : ClosedLoop
        Its plant and x0 are used.
    horizon : int
        How many steps to go.
    source, target : Place
        Where inputs come from, and where measurements go.
    stop : Event
        Ends it.
    run : str, optional
        The name of this run, which no other has; a random one by default.
    log : Path, optional
        Where a line with the step, x, y and u is written for each step.  It is secret.
    period : float
        Seconds from one step to the next, at least.
    resend : float
        Seconds without an answer after which y(t) is sent again.
    silence : "stop" or "hold"
        What to do when no answer comes: end, or apply the input before once more and go on.
    patience : float
        Seconds after which no answer comes.
    on_step : callable, optional
        Called with each step that was answered.
    wait : float
        Seconds to wait for brokers at the start.

    Returns
    -------
    Outcome
    """
    plant = PlantModel(loop)
    name = secrets.token_hex(8) if run is None else checked_run(run)
    dropped = Dropped("plant")
    given = np.zeros(plant.inputs)
    with LineLog(log) as lines, Line(source, target, patience=wait, stop=stop) as line:
        way = _Way(line, stop, name, resend, patience, dropped)
        say_ready("plant", source, target, f"run {name}")
        for step in range(horizon):
            started = time.monotonic()
            measured = plant.measure()
            try:
                answer = way.ask(step, encode(name, step, "y", measured), plant.inputs)
            except _EndError as end:
                return Outcome(step, False, dropped.counts, end.reason)
            if answer is None and stop.is_set():
                return Outcome(step, False, dropped.counts)
            if answer is None and silence == "stop":
                reason = f"no answer to step {step} for {patience:g} s"
                return Outcome(step, False, dropped.counts, reason)
            if answer is None:
                dropped.add("unanswered", f"step {step}: the input before is held")
            else:
                given = answer
            lines.write(step=step, x=plant.state, y=measured, u=given)
            plant.apply(given)
            if on_step is not None:
                on_step(step)
            stop.wait(max(0.0, started + period - time.monotonic()))
    return Outcome(horizon, True, dropped.counts)


class _EndError(Exception):
    """The other side ends the run."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class _Way:
    """The way to the cloud and back."""

    line: Line
    stop: threading.Event
    run: str
    resend: float
    patience: float
    dropped: Dropped

    def ask(self, step: int, message: bytes, size: int) -> FloatArray | None:
        """u(step), for which y(step) is sent again and again; None when stopped or out of time."""
        started = time.monotonic()
        until = started + self.patience
        tries = 0
        while not self.stop.is_set() and (tries == 0 or time.monotonic() < until):
            self.line.send(message)
            tries += 1
            answer = self._wait(step, size, min(time.monotonic() + self.resend, until))
            if answer is not None:
                return answer
            if tries.bit_count() == 1:  # after the 1st, 2nd, 4th, 8th, ... try
                waited = time.monotonic() - started
                logger.warning("plant: no answer to step %d for %.1f s", step, waited)
        return None

    def _wait(self, step: int, size: int, until: float) -> FloatArray | None:
        while (left := until - time.monotonic()) > 0 and not self.stop.is_set():
            arrived = self.line.receive(min(left, POLL))
            if arrived is None:
                continue
            try:
                said = decode(arrived, "u", size)
            except MalformedMessageError as error:
                self.dropped.add("malformed", str(error), arrived)
                continue
            if said.run != self.run:
                self.dropped.count("answer to another run")
            elif said.step != step:
                self.dropped.count("answer to another step")  # such as one to a repeated message
            elif said.word:
                raise _EndError(said.reason)
            else:
                return said.values
        return None
