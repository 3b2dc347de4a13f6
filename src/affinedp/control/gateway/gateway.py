"""The gateway: one noisy measurement per step, from one draw for the whole trajectory.

``send`` publishes ``y(t) + γ(t)`` with the correlated noise of section V of the paper, as integers,
with a little fresh noise that hides what is rounded and what the sensor rounded.
docs/explanation/streaming.md says why that keeps the promise also when the inputs of the plant
depend on what was sent.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.alarms import Alarms
from affinedp.control.gateway.kinds import kind_of, spread
from affinedp.control.gateway.refusals import (
    HorizonError,
    LateStepError,
    OtherRunError,
    RepeatedStepError,
)
from affinedp.control.gateway.sent import Sent, checked_run, digest_of
from affinedp.control.gateway.state import (
    GATEWAY,
    Trajectory,
    check_path,
    obtain_state,
    plan_of,
    was_charged,
)
from affinedp.control.gateway.stated import check_arguments, conditions
from affinedp.control.gateway.usefulness import check_useful
from affinedp.control.sensors.reach import Reach
from affinedp.control.sensors.reading import readings_of
from affinedp.control.sensors.sensor import Resolution, Sensor, sensor_of
from affinedp.errors import AffineDPError
from affinedp.once.draw import checked_path
from affinedp.once.marker import marked_draws
from affinedp.once.record import Head
from affinedp.promise.guarantee import Guarantee

logger = logging.getLogger(__name__)

# A larger enlargement makes the stated promise an upper bound.
HARDLY_ENLARGED = 1e-6


class Gateway:
    """Sends the measurements of one trajectory, one by one, with the noise of a mechanism.

    The noise is drawn once, when the state is created, and belongs to this one trajectory: a plant
    that is started anew is a new run and needs a new state.  The promise is about neighbours whose
    inputs are the same function of what was sent: see docs/explanation/streaming.md.  What it needs
    of the sensors must be declared: docs/explanation/sensors.md.

    Parameters
    ----------
    mechanism : TrajectoryMechanism, StationaryNoise or IndependentOutputNoise
        From :func:`~affinedp.control.design_output_noise`,
        :func:`~affinedp.control.design_input_noise` or
        :func:`~affinedp.control.independent_output_noise`.  Stationary noise goes on for ever
        with bounded memory; its filter's memory is part of the state.
    state : str or Path
        The file of this trajectory.  It is created, for its owner only, if it does not exist,
        and locked while the gateway is open.  It is secret, and losing it ends the trajectory.
    resolution : float, array_like, Dither, or "exact"
        The step of each sensor: one number, one per output, or a
        :class:`~affinedp.control.Dither`.  The noise grows to hide the steps.  ``"exact"`` is for
        simulations alone: then only the rounding of double precision is hidden.
    range : (low, high), optional
        Where readings end, numbers or one for each output.  A saturated sensor breaks the promise
        of noise with a colour, so ``reach`` must show that it never is.  Without a range the
        promise holds as long as no sensor saturates, and says so.
    reach : Reach, optional
        Public limits on start and inputs that keep every measurement within the range.
    measurement_error : float or array_like, optional
        How far measurements may be off the equations beside the steps: nonlinearity, model error
        that neighbours do not share.
    analog_noise : float or array_like, optional
        Least standard deviation of Gaussian noise before the converter, fresh at every reading and
        independent of the data.  It hides the steps; it is an assumption about the hardware.
    fresh_noise : float or array_like, optional
        Scale of the fresh noise, one number or one per output.  By default what adds least.
    horizon : int, optional
        How many steps this run has at most, if fewer than the mechanism is made for.  Sensors
        with steps need it for noise without an end.
    ledger : Ledger, optional
        Charged once, before the draw.  Without one nothing keeps count.
    label : str, optional
        What the ledger calls this trajectory; by default the name of the file.
    redraw : bool
        Draw again if the state is lost or damaged.  That is a second release: it needs a ledger,
        which is charged again.
    moved : bool
        Take a state that was drawn under another path, or whose marker is lost.  Say so only if no
        other copy of it is in use: two trajectories with one draw give the noise away.

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

    def __init__(
        self,
        mechanism: Any,
        *,
        state: str | os.PathLike[str],
        resolution: Resolution | str,
        range: tuple[ArrayLike, ArrayLike] | None = None,
        reach: Reach | None = None,
        measurement_error: ArrayLike | None = None,
        analog_noise: ArrayLike | None = None,
        fresh_noise: ArrayLike | None = None,
        horizon: int | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
    ) -> None:
        check_arguments(ledger, label, {"redraw": redraw, "moved": moved})
        kind = kind_of(mechanism, horizon)
        path = checked_path(GATEWAY, state)
        sensor = sensor_of(kind.names, resolution, measurement_error, analog_noise, range)
        kind.check_range(sensor, reach)
        trajectory = Trajectory(kind, sensor, fresh_noise)
        self._kind = kind
        self._sensor = sensor
        planned = trajectory.plan
        check_useful(sensor, spread(kind, planned), kind.cost(sensor))
        self._state = obtain_state(
            trajectory,
            path,
            ledger=ledger,
            label=label or f"gateway {path.name}",
            redraw=redraw,
            moved=moved,
        )
        try:
            self._plan = plan_of(self._state)
            self._draws = len(marked_draws(path))
            self._charged = was_charged(self._state)
            self._noise = kind.source(self._plan)
            check_path(self._state, self._noise)
            self._alarms = Alarms(path, sensor, kind.names, self._plan.largest)
            self._run = self._known_run()
        except BaseException:
            self._state.close()
            raise
        if sensor.exact:
            logger.warning("gateway: %s", sensor.sentence(kind.names))

    @property
    def mechanism(self) -> Any:
        """The noise."""
        return self._kind.mechanism

    @property
    def outputs(self) -> int:
        """How many numbers are sent at each step."""
        return len(self._kind.names)

    @property
    def horizon(self) -> int:
        """How many steps there are."""
        return self._kind.steps

    @property
    def next_step(self) -> int:
        """The first step that was neither sent nor skipped."""
        return self._state.next_step

    @property
    def commitment(self) -> str:
        """A hash that fixes the draw without revealing it: note it elsewhere."""
        return self._state.draw.commitment

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
        return self._sensor

    @property
    def run(self) -> str | None:
        """The run that the draw belongs to; None before anything was sent."""
        return self._run

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
            return np.asarray(self._kind.variance(self._plan) / self._kind.designed - 1)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about everything sent over the whole horizon."""
        promise = self._kind.guarantee
        warnings = list(conditions(self._kind, self._sensor, self._plan))
        if not self._charged:
            warnings.append("no ledger was charged for this draw: nothing keeps count of it")
        if self._draws > 1:
            warnings.append(
                f"{self._draws} draws were made for this state; this is the promise of one alone"
            )
        exact = promise.exact and self._plan.noise_factor < 1 + HARDLY_ENLARGED
        return replace(promise, exact=exact, warnings=(*promise.warnings, *warnings))

    def send(self, y: ArrayLike, step: int | None = None, run: str | None = None) -> FloatArray:
        """Return what to publish at a step; it is on the disk before this returns.

        No reading is refused for its value, since that would tell of it.

        Parameters
        ----------
        y : array_like, shape (m,)
            The measurement.  Malformed ones are refused, and the step is still free.
        step : int, optional
            Which step it is; the next one by default.  A step that was sent gives the same numbers
            again.  Steps that are jumped over are skipped for good.
        run : str, optional
            Which run of the plant it belongs to.  The first one that is sent takes the draw.

        Returns
        -------
        array, shape (m,)
            ``y + γ(step)`` with fresh noise, on the grid of a quarter of that noise.

        Raises
        ------
        HorizonError
            Beyond the horizon.
        LateStepError
            If the step was skipped.
        RepeatedStepError
            If the step was sent, of another reading.
        OtherRunError
            If the draw belongs to another run.
        """
        with self._state.turn():
            number = self._state.next_step if step is None else _checked_step(step)
            self._check_run(run)
            if number >= self.horizon:
                raise HorizonError(
                    f"step {number} is beyond the horizon of {self.horizon:,} steps (counted from "
                    "0) that the promise is about",
                    self.horizon,
                )
            measured = readings_of(y, self.outputs)
            if number < self._state.next_step:
                return self._sent_before(number, measured)
            return self._send(number, measured, run)

    def _send(self, step: int, measured: FloatArray, run: str | None) -> FloatArray:
        """A step that was neither sent nor skipped."""
        before = self._state.head.next_step
        outputs, numbers = self._noise.at(self._state.head, step, measured.tolist())
        name = run or self._run or ""
        sent = Sent(outputs, digest_of(self._state.draw.salt, step, measured), name)
        head = Head(step + 1, numbers)
        # whose draw it is must be known after a power cut, too
        wait, until = self._run is None, self._noise.until(head)
        self._state.record(step, sent.to_bytes(), head, wait=wait, until=until)
        self._run = name
        if self._kind.keeps is not None and _passed(before, step, self._kind.keeps // 4):
            self._state.forget(step - self._kind.keeps)
        self._alarms.look(measured.tolist())
        return outputs

    def _sent_before(self, step: int, measured: FloatArray) -> FloatArray:
        content = self._state.sent(step)
        if content is None:
            raise LateStepError(
                f"step {step} was skipped and cannot be sent any more (the next is "
                f"{self._state.next_step})",
                step,
                self._state.next_step,
            )
        sent = Sent.from_bytes(content, self.outputs)
        if sent.digest != digest_of(self._state.draw.salt, step, measured):
            raise RepeatedStepError(
                f"step {step} was sent of another reading: a step is measured once. If the plant "
                "was started anew, this is a new run, which needs a new state and a new charge",
                step,
            )
        return sent.outputs

    def _known_run(self) -> str | None:
        last = self._state.last()
        if last is None:
            return None
        content = self._state.sent(last)
        assert content is not None
        return Sent.from_bytes(content, self.outputs).run

    def _check_run(self, run: str | None) -> None:
        if run is not None and checked_run(run) != self._run and self._run is not None:
            raise OtherRunError(
                f"this draw belongs to run {self._run or 'without a name'}, not to {run}: with one "
                "draw for two runs the noise cancels in their difference. Give the new run a new "
                "state, which the ledger is charged for",
                self._run,
                run,
            )

    def to_control_block(self, seed: int | np.random.Generator | None = None) -> Any:
        """Return a python-control block with simulated noise of the same law.

        It never shows the secret draw: a simulation may be looked at, what is sent may not.

        Parameters
        ----------
        seed : int, Generator or None
            Seed of the simulation.
        """
        return self._kind.mechanism.to_control_block(seed)

    def close(self) -> None:
        """Close the state; another gateway may then continue where this one ended.

        Called by a signal handler in the middle of :meth:`send`, it takes effect when that ends.
        """
        self._state.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gateway(state={str(self._state.path)!r}, step {self.next_step} of {self.horizon})"

    def __reduce__(self) -> NoReturn:
        raise AffineDPError("a gateway is not copied: it holds the only draw of its trajectory")


def _passed(first: int, last: int, every: int) -> bool:
    """Whether one of these steps is a multiple: the last need not be where steps are skipped."""
    return last // every * every >= first


def _checked_step(step: Any) -> int:
    if isinstance(step, bool | np.bool_) or not isinstance(step, int | np.integer) or step < 0:
        raise AffineDPError(f"step must be a whole number, at least 0, not {step!r}")
    return int(step)
