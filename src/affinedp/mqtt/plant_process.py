"""A plant that is simulated on the network."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from pathlib import Path
from typing import Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.closed_loop import ClosedLoop
from affinedp.control.gateway import checked_run
from affinedp.control.sensors import EXACT, Resolution, read_by
from affinedp.errors import AffineDPError
from affinedp.mqtt.loop_messages import decode, encode
from affinedp.mqtt.messages import Dropped
from affinedp.mqtt.process import POLL, Channel, JsonLines, OnStep, Outcome, Place, say_ready

logger = logging.getLogger(__name__)

RESEND = 1.0  # seconds without an answer before the plant sends again
PATIENCE = 60.0  # seconds without an answer before it gives up

Silence = Literal["stop", "hold"]


class PlantModel:
    """The plant of a :class:`~affinedp.control.ClosedLoop`, from x0 on, and its sensors."""

    def __init__(self, loop: ClosedLoop, resolution: Resolution | str = EXACT) -> None:
        if np.any(loop.plant.D):
            raise AffineDPError(
                "y(t) of this plant depends on u(t) (D is not zero), but u(t) is the answer to "
                "y(t): a plant on the network needs D = 0"
            )
        self._plant, self._resolution = loop.plant, resolution
        self.state = loop.x0

    @property
    def inputs(self) -> int:
        """How many entries u(t) has."""
        return self._plant.inputs

    def measure(self) -> FloatArray:
        """Return y(t) = C x(t), as its sensors read it."""
        return read_by(self._plant.C @ self.state, self._resolution)

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

    ``run`` names this run, as no other is named; a random name by default.  The log, with x, y and
    u of each step, is secret.  Without an answer for ``patience`` seconds the plant ends, or with
    ``silence="hold"`` applies the input before once more; brokers are waited for at the start for
    ``wait`` seconds.
    """
    plant = PlantModel(loop, resolution)
    name = secrets.token_hex(8) if run is None else checked_run(run)
    given = np.zeros(plant.inputs)
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
                given = answer
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
