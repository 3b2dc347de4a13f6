"""The gateway: one noisy measurement per step, from one draw for the whole trajectory.

``send`` publishes ``y(t) + γ(t)`` with the correlated noise of section V of the paper, as integers,
with a little fresh noise that hides what is rounded and what the sensor rounded.
docs/explanation/streaming.md says why that keeps the promise also when the inputs of the plant
depend on what was sent.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, exact_doubles
from affinedp.budget.ledger import Ledger
from affinedp.control.gateway.integer_noise import FreshNoise
from affinedp.control.gateway.noise_path import NoisePath, rounded
from affinedp.control.gateway.plan import PUBLISHED_BITS
from affinedp.control.gateway.state import GATEWAY, Trajectory, obtain_state, plan_of, was_charged
from affinedp.control.gateway.state import GatewayStateError as GatewayStateError
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.errors import AffineDPError
from affinedp.once.draw import checked_path
from affinedp.once.marker import marked_draws
from affinedp.once.state import Head
from affinedp.promise.guarantee import Guarantee
from affinedp.release.plan import GRID_BITS

# A larger enlargement makes the stated promise an upper bound.
HARDLY_ENLARGED = 1e-6


class HorizonError(AffineDPError):
    """A step beyond the horizon.

    Attributes
    ----------
    horizon : int
        How many steps the promise is about.
    """

    def __init__(self, message: str, horizon: int) -> None:
        self.horizon = horizon
        super().__init__(message)


class LateStepError(AffineDPError):
    """A step that was skipped and comes too late.

    Attributes
    ----------
    step, next_step : int
        The step, and the first that can still be sent.
    """

    def __init__(self, message: str, step: int, next_step: int) -> None:
        self.step = step
        self.next_step = next_step
        super().__init__(message)


class Gateway:
    """Sends the measurements of one trajectory, one by one, with the noise of a mechanism.

    The noise is drawn once, when the state is created, and belongs to this one trajectory: a plant
    that is started anew needs a new state.  The promise is about neighbours whose inputs are the
    same function of what was sent: see docs/explanation/streaming.md.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        From :func:`~affinedp.control.design_output_noise`.
    state : str or Path
        The file of this trajectory.  It is created, for its owner only, if it does not exist,
        and locked while the gateway is open.  It is secret, and losing it ends the trajectory.
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
    resolution : float or array_like, optional
        Scale of the fresh noise, one number or one per output (rounded down to a power of
        two).  By default a thousandth of the noise, or what ``measurement_error`` needs.
    measurement_error : float or array_like, optional
        How far recorded measurements may be off the equations: half the step of the sensor, model
        error that neighbours do not share.  The noise grows a little to hide it.  By default
        only what costs nothing is covered, about the rounding of double precision.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.control import Gateway, design_output_noise
    >>> m = design_output_noise(([[1, 0.1], [0, 1]], [[1, 0]]), horizon=100, epsilon=1, delta=0.01)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Gateway(m, state=f"{folder.name}/run1.db") as gateway:
    ...     first = gateway.send([3.0])
    ...     again = gateway.send([99.0], step=0)        # a step is sent once; y is not looked at
    ...     print(first.shape, bool((first == again).all()), gateway.next_step)
    (1,) True 1
    """

    def __init__(
        self,
        mechanism: TrajectoryMechanism,
        *,
        state: str | os.PathLike[str],
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
        resolution: ArrayLike | None = None,
        measurement_error: ArrayLike | None = None,
    ) -> None:
        if not isinstance(mechanism, TrajectoryMechanism):
            raise AffineDPError(
                "a gateway sends with a TrajectoryMechanism (design_output_noise), not with "
                f"{type(mechanism).__name__}"
            )
        if mechanism.law != "gaussian":
            raise AffineDPError(
                "a gateway sends Gaussian noise: the fresh noise that hides rounding at every step "
                "has no counterpart for δ = 0. Release Laplace noise for a recorded trajectory "
                "(mechanism().release), or design Gaussian noise"
            )
        if not (label is None or isinstance(label, str)):
            raise AffineDPError(f"label must be text, not {label!r}")
        if not (ledger is None or isinstance(ledger, Ledger)):
            raise AffineDPError(f"ledger must be a Ledger, not {type(ledger).__name__}")
        for name, value in (("redraw", redraw), ("moved", moved)):
            if not isinstance(value, bool):
                raise AffineDPError(f"{name} must be True or False, not {value!r}")
        path = checked_path(GATEWAY, state)
        self._mechanism = mechanism
        self._lock = threading.Lock()
        self._state = obtain_state(
            Trajectory(mechanism, resolution, measurement_error),
            path,
            ledger=ledger,
            label=label or f"gateway {path.name}",
            redraw=redraw,
            moved=moved,
        )
        try:
            self._plan = plan_of(self._state)
            self._largest = self._plan.largest
            self._draws = len(marked_draws(path))
            self._charged = was_charged(self._state)
            self._path = NoisePath(mechanism.dynamics, mechanism.root, self._plan.path_bits)
            self._fresh = FreshNoise()
        except BaseException:
            self._state.close()
            raise

    @property
    def mechanism(self) -> TrajectoryMechanism:
        """The noise."""
        return self._mechanism

    @property
    def horizon(self) -> int:
        """How many steps there are."""
        return self._mechanism.horizon

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
        """How large measurements may be, shape (m,): up to here rounding is within their error."""
        return self._largest.copy()

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
        designed = (self._mechanism.noise_by_time**2).mean(axis=0)
        fresh = self.fresh_noise**2 * (1 + 4.0**-PUBLISHED_BITS / 12)
        with np.errstate(divide="ignore"):
            return np.asarray(self._plan.noise_factor**2 - 1 + fresh / designed)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about everything sent over the whole horizon."""
        promise = self._mechanism.guarantee
        errors = "; ".join(
            f"{name}: {error:.3g} (and |{name}| ≤ {largest:.3g})"
            for name, error, largest in zip(
                self._mechanism.dynamics.output_names, self.measurement_error, self.largest
            )
        )
        warnings = [
            "it holds for recorded measurements that are off the equations by at most "
            f"{errors}: rounding, the sensor's resolution, model error that neighbours do not share"
        ]
        if not self._charged:
            warnings.append("no ledger was charged for this draw: nothing keeps count of it")
        if self._draws > 1:
            warnings.append(
                f"{self._draws} draws were made for this state; this is the promise of one alone"
            )
        exact = promise.exact and self._plan.noise_factor < 1 + HARDLY_ENLARGED
        return replace(promise, exact=exact, warnings=(*promise.warnings, *warnings))

    def send(self, y: ArrayLike, step: int | None = None) -> FloatArray:
        """Return what to publish at a step; it is on the disk before this returns.

        Parameters
        ----------
        y : array_like, shape (m,)
            The measurement.  Malformed ones are refused, and the step is still free.
        step : int, optional
            Which step it is; the next one by default.  A step that was sent gives the same numbers
            again and ``y`` is not looked at.  Steps that are jumped over are skipped for good.

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
        """
        with self._lock:
            head, next_step = self._state.head, self._state.next_step
            number = next_step if step is None else _checked_step(step)
            if number < next_step:
                return self._sent(number, next_step)
            if number >= self.horizon:
                raise HorizonError(
                    f"step {number} is beyond the horizon of {self.horizon:,} steps (counted from "
                    "0) that the promise is about",
                    self.horizon,
                )
            measured = self._measurement(y)
            numbers = head.numbers
            for t in range(head.at, number):
                numbers = self._path.advance(t, numbers)
            outputs = self._noisy(measured, number, numbers)
            self._state.record(number, outputs.tobytes(), Head(number + 1, numbers))
            return outputs

    def _noisy(self, measured: list[float], step: int, numbers: tuple[int, ...]) -> FloatArray:
        """Exact sums on the grid of the fresh noise, rounded to the grid of publication."""
        plan = self._plan
        noise = self._path.outputs(step, numbers, plan.grid_exponents)
        fresh = self._fresh.take(len(measured))
        outputs = np.empty(len(measured))
        for i, value in enumerate(measured):
            whole, over = value.as_integer_ratio()
            # over is a power of two
            steps = rounded(whole, 1 - over.bit_length() - plan.grid_exponents[i])
            total = rounded(steps + noise[i] + fresh[i], PUBLISHED_BITS - GRID_BITS)
            outputs[i] = np.ldexp(float(total), plan.published_exponents[i])
        return outputs

    def _sent(self, step: int, next_step: int) -> FloatArray:
        outputs = self._state.sent(step)
        if outputs is None:
            raise LateStepError(
                f"step {step} was skipped and cannot be sent any more (the next is {next_step})",
                step,
                next_step,
            )
        return np.frombuffer(outputs, dtype=np.float64).copy()

    def _measurement(self, y: ArrayLike) -> list[float]:
        values = exact_doubles(y, "y")
        if values.shape != (self._mechanism.outputs,):
            raise AffineDPError(
                f"y has shape {values.shape}, but must have one number for each of "
                f"{self._mechanism.outputs} outputs"
            )
        if np.any(np.abs(values) > self._largest):
            worst = int(np.argmax(np.abs(values) / self._largest))
            raise AffineDPError(
                f"y[{worst}] is larger than {self._largest[worst]:.3g}, up to which the declared "
                "measurement error covers the rounding of double precision; nothing was sent. "
                "Declare a larger measurement_error when the state is created"
            )
        return [float(value) for value in values]

    def to_control_block(self, seed: int | np.random.Generator | None = None) -> Any:
        """Return a python-control block with simulated noise of the same law.

        It never shows the secret draw: a simulation may be repeated and looked at, what is sent may
        not.

        Parameters
        ----------
        seed : int, Generator or None
            Seed of the simulation.
        """
        return self._mechanism.to_control_block(seed)

    def close(self) -> None:
        """Close the state; another gateway may then continue where this one ended."""
        with self._lock:
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


def _checked_step(step: Any) -> int:
    if isinstance(step, bool | np.bool_) or not isinstance(step, int | np.integer) or step < 0:
        raise AffineDPError(f"step must be a whole number, at least 0, not {step!r}")
    return int(step)
