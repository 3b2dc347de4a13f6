"""The gateway: one noisy measurement per step, from one draw for the whole trajectory.

``send`` publishes ``y(t) + γ(t)`` with the correlated noise of section V of the paper, as integers,
with a little fresh noise that hides what is rounded and what the sensor rounded.
docs/explanation/streaming.md says why that keeps the promise also when the inputs of the plant
depend on what was sent.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.budget.ledger import Ledger
from affinedp.control.gateway_path import Sending, check_useful, conditions
from affinedp.control.gateway_plan import PUBLISHED_BITS, GatewayPlan
from affinedp.control.recordings import Alarms
from affinedp.control.sensors import Reach, Resolution, Sensor
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number, whole_number
from affinedp.laws.sampler.noise import SingleNoise
from affinedp.laws.sampler.words import hashed_bytes
from affinedp.parts import restored
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.causal import rounded
from affinedp.stream.run import Asked, Beginning, Held, Memory, Owner, Run, RunError

logger = logging.getLogger(__name__)

# A larger enlargement makes the stated promise an upper bound.
HARDLY_ENLARGED = 1e-6
# Steps that may be jumped over at once: each takes a draw.
FARTHEST = 1_000_000
DIGEST_BYTES = 16
AT_ONCE = 256  # steps for which noise is drawn together
GATEWAY = Owner("gateway", "trajectory")
Why = Literal["horizon", "late", "repeated", "run"]  # why a step is not sent
_RUN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class StepError(AffineDPError):
    """A step that is not sent."""

    def __init__(self, message: str, why: Why) -> None:
        self.why = why
        super().__init__(message)


class Gateway(Held):
    """Sends the measurements of one trajectory, one by one, with the noise of a mechanism.

    The noise is drawn once, when the state is created, and belongs to this one trajectory: a plant
    that is started anew is a new run and needs a new state.  The promise is about neighbours whose
    inputs are the same function of what was sent: see docs/explanation/streaming.md.  What it needs
    of the sensors must be declared: docs/explanation/sensors.md.

    Parameters
    ----------
    mechanism : Mechanism
        From :func:`~affinedp.control.design_output_noise`,
        :func:`~affinedp.control.design_input_noise` or
        :func:`~affinedp.control.independent_output_noise`.  Stationary noise goes on for ever
        with bounded memory; its filter's memory is part of the state.
    state : str or Path
        The file of this trajectory.  It is created, for its owner only, if it does not exist.  It
        is secret, and losing it ends the trajectory.  Who opens it while another gateway has it
        open takes it over, at a step that the other cannot have sent.
    resolution : float, array_like, Dither, or "exact"
        The step of each sensor: one number, one per output, or a
        :class:`~affinedp.control.Dither`.  The noise grows to hide the steps.  ``"exact"`` is for
        simulations alone: then only the rounding of double precision is hidden.  It may be left
        out where the noise was designed with one.
    range : (low, high), optional
        Where readings end, numbers or one for each output.  A saturated sensor breaks the promise
        of noise with a colour, so ``reach`` must show that it never is.  Without a range the
        promise holds as long as no sensor saturates, and says so.
    reach : Reach, optional
        Public limits on start and inputs that keep every measurement within the range.
    measurement_error : float or array_like, optional
        How far measurements may be off the equations beside the steps: nonlinearity, model error
        that neighbours do not share.  This, ``fresh_noise`` and ``every`` are as designed for
        where they are left out.
    fresh_noise : float or array_like, optional
        Scale of the fresh noise, one number or one per output.  By default what adds least.
    horizon : int, optional
        How many steps this run has at most, if fewer than the mechanism is made for.  Sensors
        with steps need it for noise without an end.
    every : int, optional
        Send one of so many steps alone: the first, and so on.  :meth:`send` is still called once
        per reading, and returns None for the others.  The steps of sensors cost less then.
    ledger : Ledger, optional
        Charged once, before the draw.  Without one nothing keeps count.
    label : str, optional
        What the ledger calls this trajectory; by default the name of the file.
    redraw : bool
        Draw again if the state is lost or damaged.  That is a second release: it needs a ledger,
        which is charged again.
    moved : bool
        Take a state that was drawn under another path.  Say so only if no other copy of it is in
        use: two trajectories with one draw give the noise away.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.control import Gateway, design_output_noise
    >>> m = design_output_noise(([[1, 0.1], [0, 1]], [[1, 0]]), horizon=100, epsilon=1, delta=0.01)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Gateway(m, state=f"{folder.name}/run1.db", resolution=0.001) as gateway:
    ...     first = gateway.send([3.012])
    ...     again = gateway.send([3.012], step=0)            # a step is sent once
    ...     print(first.shape, bool((first == again).all()), gateway.next_step)
    (1,) True 1
    """

    @within_range
    def __init__(
        self,
        mechanism: Any,
        *,
        state: str | os.PathLike[str],
        resolution: Resolution | str | None = None,
        range: tuple[ArrayLike, ArrayLike] | None = None,
        reach: Reach | None = None,
        measurement_error: ArrayLike | None = None,
        fresh_noise: ArrayLike | None = None,
        horizon: int | None = None,
        every: int | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
    ) -> None:
        asked = Asked(ledger, label, redraw, moved)
        sending = Sending.of(
            mechanism,
            resolution,
            measurement_error=measurement_error,
            limits=range,
            fresh_noise=fresh_noise,
            horizon=horizon,
            every=every,
        )
        sending.check_range(reach)
        self._sending, sensor = sending, sending.sensor
        chosen = _chosen(sending)

        def begin() -> Beginning:
            plan = sending.plan()
            check_useful(sending, plan)
            begin_walk = sending.walk(plan).beginning(sending.guarantee.sensitivity)
            return Beginning.charging(
                sending.mechanism,
                {**chosen, "plan": plan.record()},
                lambda: _memory(begin_walk(), None),
            )

        def check(settings: Mapping[str, Any], memory: Memory) -> None:
            _refuse_other(chosen, settings)

        self._run = Run(state, GATEWAY, begin, check, asked)
        self._plan = restored(self._run.settings["plan"], GatewayPlan)
        self._walk = sending.walk(self._plan)
        self._grids = tuple(zip(self._plan.grid_exponents, self._plan.published_exponents))
        self._fresh = [SingleNoise(self._plan.fresh_law, s) for s in self._plan.fresh_scales]
        self._alarms = Alarms(self._run.path, sensor, sending.names, self._plan.largest)
        self._name: str | None = self._run.memory["run"]
        self._next = self._run.until
        # memory and draws of steps that may be sent, and the memory behind them
        self._ahead: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        self._last = _numbers(self._run.memory)
        self._run.rest = self._rest
        if sensor.exact:
            logger.warning("gateway: %s", sensor.sentence(sending.names))

    @cached_property
    def mechanism(self) -> Any:
        """The noise as it is sent.

        Its ``interval`` and ``function`` are about rows that :meth:`send` returned, from the first
        step on: with them comes what this gateway adds.
        """
        return self._sending.mechanism.with_design(sent=self._sending.sent(self._plan))

    @property
    def outputs(self) -> int:
        """How many numbers are sent at each step."""
        return len(self._sending.names)

    @property
    def horizon(self) -> int:
        """How many steps there are."""
        return self._sending.steps

    @property
    def every(self) -> int:
        """Of how many steps one is sent."""
        return self._sending.every

    @property
    def next_step(self) -> int:
        """The first step that is to be sent and was neither sent nor skipped."""
        every = self._sending.every
        return min(-(-self._next // every) * every, self.horizon)

    @property
    def measurement_error(self) -> FloatArray:
        """How far recorded measurements may be off the equations, shape (m,)."""
        return np.array(self._plan.measurement_error)

    @property
    def largest(self) -> FloatArray:
        """Up to which measurements rounding is within their error, shape (m,).

        Larger ones are sent too, since a refusal would tell of them; nothing is promised then.
        """
        return self._plan.largest

    @property
    def sensor(self) -> Sensor:
        """What was declared about the readings."""
        return self._sending.sensor

    @property
    def run(self) -> str | None:
        """The run that the draw belongs to; None before anything was sent."""
        return self._name

    @property
    def alarms(self) -> tuple[str, ...]:
        """What does not fit the declared sensors, since this gateway was opened.

        Also in a file beside the state (``….alarms``).  Secret: it depends on the readings.
        """
        return self._alarms.said

    @property
    def noise_factor(self) -> float:
        """By what the mechanism's noise is enlarged, so that the sensors' steps are hidden too."""
        return self._plan.noise_factor

    @property
    def fresh_noise(self) -> FloatArray:
        """Standard deviation of the fresh noise at every step, shape (m,)."""
        return self._plan.fresh_noise

    @property
    def added_variance(self) -> FloatArray:
        """By which share the mean variance exceeds the mechanism's, shape (m,).

        From the fresh noise, from rounding what is sent, and from the enlargement of the noise;
        inf for an output to which the mechanism adds no noise.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(self._sending.variance(self._plan) / self._sending.designed - 1)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about everything sent over the whole horizon."""
        promise = self._sending.guarantee
        warnings = [*self._conditions, *self._run.warnings]
        exact = promise.exact and self._plan.noise_factor < 1 + HARDLY_ENLARGED
        return replace(promise, exact=exact, warnings=(*promise.warnings, *warnings))

    @cached_property
    def _conditions(self) -> tuple[str, ...]:
        return tuple(conditions(self._sending, self._plan))

    def send(
        self, y: ArrayLike, step: int | None = None, run: str | None = None
    ) -> FloatArray | None:
        """Return what to publish at a step, once the disk knows that it may have been sent.

        Call it once for each reading of the plant, also for those that ``every`` leaves out: they
        count as steps.  No reading is refused for its value, since that would tell of it; one that
        does not fit the declared sensors is sent, and noted in :attr:`alarms`.

        Parameters
        ----------
        y : array_like, shape (m,)
            The measurement.  Malformed ones are refused, and the step is still free.
        step : int, optional
            Which step it is, counted from 0; that after the last one by default.  After a crash
            give it: the rest of a block is skipped.  A step that was sent gives the same numbers
            again, except after a crash those of the unfinished block.  Steps that are jumped over
            are skipped for good.
        run : str, optional
            Which run of the plant it belongs to.  The first one that is sent takes the draw.

        Returns
        -------
        array, shape (m,), or None
            ``y + γ(step)`` with fresh noise, on the grid of a quarter of that noise.  None, and
            nothing is to be published, for a step that ``every`` leaves out.

        Raises
        ------
        StepError
            If the step lies beyond the horizon, was skipped, was sent of another reading, or
            belongs to another run.
        """
        with self._run.turn():
            number = self._next if step is None else whole_number(step, "step", least=0)
            self._check_run(run)
            if number >= self.horizon:
                raise StepError(
                    f"step {number} is beyond the horizon of {self.horizon:,} steps (counted from "
                    "0) that the promise is about",
                    "horizon",
                )
            measured = readings_of(y, self.outputs) + 0.0  # minus zero is zero
            unsent = number % self._sending.every != 0
            if number < self._next:
                return None if unsent else self._sent_before(number, measured)
            if number - self._next > FARTHEST:
                raise AffineDPError(
                    f"step {number} jumps over {number - self._next:,} steps: at most "
                    f"{FARTHEST:,} may be skipped at once"
                )
            if unsent:
                self._pass(number)
                return None
            return self._send(number, measured, run)

    def _send(self, step: int, measured: FloatArray, run: str | None) -> FloatArray:
        """A step that was neither sent nor skipped."""
        name = run or self._name or ""
        if step < self._run.until:
            outputs = self._published(step, measured, self._ahead[step])
            self._run.keep(step, self._kept(step, measured, outputs))
        else:
            until = self._run.block(step, self.horizon)
            ahead, last = self._drawn(step, until)
            outputs = self._published(step, measured, ahead[step])
            self._run.keep(step, self._kept(step, measured, outputs))
            forget = None if self._sending.keeps is None else step - self._sending.keeps
            self._run.commit(until, _memory(last, name), forget)
            self._ahead, self._last, self._name = ahead, last, name
        self._pass(step)
        self._alarms.look(measured.tolist())
        return outputs

    def _pass(self, step: int) -> None:
        """Go on behind a step; what was drawn for it and for those before it is forgotten."""
        for t in range(self._next, step + 1):
            self._ahead.pop(t, None)
        self._next = step + 1

    def _drawn(
        self, step: int, until: int
    ) -> tuple[dict[int, tuple[tuple[int, ...], list[int]]], tuple[int, ...]]:
        """Memory and draws of each step of a block, and the memory behind it."""
        ahead, memory = {}, self._last
        for first in range(self._run.until, until, AT_ONCE):
            for t, drawn in enumerate(self._walk.draw(min(AT_ONCE, until - first)), first):
                if t >= step:
                    ahead[t] = memory, drawn
                memory = self._walk.advance(t, memory, drawn)
        return ahead, memory

    def _published(
        self, step: int, measured: FloatArray, ahead: tuple[tuple[int, ...], list[int]]
    ) -> FloatArray:
        """The reading with its noise: exact sums of integers, rounded once at the end."""
        noise = self._walk.noise(step, *ahead)
        # two that go on from one snapshot of the machine's memory share no fresh noise
        words = hashed_bytes(self._run.hedged(step, measured.tobytes()))
        outputs = np.empty(len(measured))
        for i, (value, (grid, published)) in enumerate(zip(measured.tolist(), self._grids)):
            whole, over = value.as_integer_ratio()
            # over is a power of two
            steps = rounded(whole, 1 - over.bit_length() - grid)
            total = steps + noise[i] + self._fresh[i].draw(words)
            outputs[i] = _nearest_double(rounded(total, PUBLISHED_BITS - GRID_BITS), published)
        return outputs

    def _kept(self, step: int, measured: FloatArray, outputs: FloatArray) -> bytes:
        """What is kept of a step: a keyed hash of the reading, and the outputs."""
        return self._run.digest(step, measured.tobytes()) + outputs.tobytes()

    def _sent_before(self, step: int, measured: FloatArray) -> FloatArray:
        kept = self._run.sent(step)
        if kept is None:
            raise StepError(
                f"step {step} was skipped, or may have been sent before a crash or long ago: it "
                f"is not sent again (the next is {self._next})",
                "late",
            )
        if kept[:DIGEST_BYTES] != self._run.digest(step, measured.tobytes()):
            raise StepError(
                f"step {step} was sent of another reading: a step is measured once. If the plant "
                "was started anew, this is a new run, which needs a new state and a new charge",
                "repeated",
            )
        return np.frombuffer(kept[DIGEST_BYTES:], dtype=np.float64).copy()

    def _rest(self) -> tuple[int, Memory]:
        """Where a gateway goes on after a close: steps that were not sent are free."""
        if self._next == self._run.until:
            return self._run.until, self._run.memory
        if self._next > self._run.until:  # every= leaves these out
            return self._next, _memory(self._drawn(self._next, self._next)[1], self._name)
        return self._next, _memory(self._ahead[self._next][0], self._name)

    def _check_run(self, run: str | None) -> None:
        if run is not None and checked_run(run) != self._name and self._name is not None:
            raise StepError(
                f"this draw belongs to run {self._name or 'without a name'}, not to {run}: with "
                "one draw for two runs the noise cancels in their difference. Give the new run a "
                "new state, which the ledger is charged for",
                "run",
            )

    def __repr__(self) -> str:
        return f"Gateway(state={str(self._run.path)!r}, step {self.next_step} of {self.horizon})"


def checked_run(run: object) -> str:
    """Return the name of a run, or refuse it.

    Examples
    --------
    >>> checked_run("2026-05-01.a")
    '2026-05-01.a'
    """
    if not isinstance(run, str) or _RUN_NAME.fullmatch(run) is None:
        raise AffineDPError(
            "a run is named by up to 64 letters, digits, dots, dashes and underscores"
        )
    return run


def _memory(numbers: Sequence[int], run: str | None) -> Memory:
    """What a run keeps of a gateway: the noise's path, and whose it is."""
    return {"path": [format(number, "x") for number in numbers], "run": run}


def _numbers(memory: Memory) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in memory["path"])


def _chosen(sending: Sending) -> dict[str, Any]:
    """What the user chose, as text: it must be the same whenever the state is opened."""
    return {
        "fingerprint": sending.mechanism.fingerprint,
        "sensor": sending.sensor.record(),
        "fresh_noise": [value.hex() for value in sending.fresh],
        "horizon": sending.steps,
        "every": sending.every,
    }


def _refuse_other(chosen: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse a state that was drawn for something else."""
    if chosen["fingerprint"] != settings["fingerprint"]:
        raise RunError(
            "this is the state of another mechanism: with one draw for two, the noise would "
            "cancel. Give each its own state"
        )
    if chosen["sensor"] != settings["sensor"]:
        raise RunError(
            "this state was drawn for other sensors: give the resolution, range and errors that "
            "were declared then, or start a new run with a new state"
        )
    for name in ("horizon", "every"):
        if chosen[name] != settings[name]:
            raise RunError(f"this state was drawn with {name} = {settings[name]}: give that")
    if chosen["fresh_noise"] not in ([], settings["fresh_noise"]):
        raise RunError("this state was drawn with another fresh_noise: leave it out")


def _nearest_double(value: int, exponent: int) -> float:
    """Return ``value * 2**exponent`` as a double; beyond the range of doubles the largest."""
    try:
        # division of integers is rounded once, and does not overflow on the way
        return value / (1 << -exponent) if exponent < 0 else float(value << exponent)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def readings_of(y: Any, count: int) -> FloatArray:
    """Return one double for each output.

    Numbers that no double holds are rounded to the nearest: to refuse them would tell of them.

    Examples
    --------
    >>> readings_of([3, 2**60 + 1], 2).tolist()
    [3.0, 1.152921504606847e+18]
    """
    if np.ma.is_masked(y):
        raise AffineDPError("y has masked values: fill them or leave them out")
    try:
        given = np.array(y, dtype=object)
    except ValueError:
        raise AffineDPError("y is not an array of numbers") from None
    if given.shape != (count,):
        raise AffineDPError(
            f"y has shape {given.shape}, but must have one number for each of {count} outputs"
        )
    return np.array([_double(item, i) for i, item in enumerate(given)])


def _double(item: Any, place: int) -> float:
    if type(item) is not float and not is_number(item):
        raise AffineDPError(f"y[{place}] is not a real number but {type(item).__name__}")
    try:
        value = float(item)
    except OverflowError:
        return sys.float_info.max if item > 0 else -sys.float_info.max
    except ValueError:  # Decimal knows a NaN that no float can be
        value = math.nan
    if math.isinf(value) and item != value:  # a finite Decimal or longdouble
        return math.copysign(sys.float_info.max, value)
    if not math.isfinite(value):
        raise AffineDPError(f"y[{place}] is no finite number")
    return value
