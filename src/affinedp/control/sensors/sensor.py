"""What is declared about the sensors of a plant, checked: steps, range, noise, model error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.sensors.dither import Dither
from affinedp.control.sensors.reach import Reach
from affinedp.control.trajectory.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

EXACT = "exact"
# Noise before the converter is never so many times its standard deviation (chance 4e-33).
FARTHEST = 12.0
MOST_GIVEN = 1e120

Resolution = ArrayLike | Dither | Sequence["float | Dither"]


@dataclass(frozen=True)
class Sensor:
    """The sensors of all outputs, as they were declared.

    Attributes
    ----------
    steps : tuple of float
        What readings count as having for steps; empty for exact readings.
    grids : tuple of float
        The grids on which readings lie; finer than the steps where a nonlinearity was declared.
    errors : tuple of float
        Other deviation from the equations that neighbours do not share; may be empty.
    analog : tuple of float
        Standard deviations of noise before the converter; empty if none was declared.
    low, high : tuple of float
        Where readings end; empty where no range was declared.
    """

    steps: tuple[float, ...]
    grids: tuple[float, ...]
    errors: tuple[float, ...] = ()
    analog: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether readings were declared to be exact."""
        return not self.steps

    def deviation(self) -> FloatArray | None:
        """Return how far readings may be off the equations; None if only by rounding of doubles."""
        if self.exact and not self.errors:
            return None
        count = len(self.steps or self.errors)
        rounded = np.zeros(count)
        if self.steps and not self.analog:
            rounded = np.array(self.steps) / 2
        return rounded + (np.array(self.errors) if self.errors else 0.0)

    @property
    def margins(self) -> FloatArray:
        """How far from what is measured the converter is driven by its own noise."""
        return FARTHEST * np.array(self.analog) if self.analog else np.zeros(len(self.low))

    def to_record(self) -> dict[str, list[str]]:
        """Return it as text, for a file."""
        names = ("steps", "grids", "errors", "analog", "low", "high")
        return {name: [value.hex() for value in getattr(self, name)] for name in names}

    def sentence(self, names: Sequence[str]) -> str:
        """Say in words what was declared.

        Parameters
        ----------
        names : sequence of str
            Of the outputs.
        """
        if self.exact:
            return "readings are taken as exact, which only a simulation's are"
        parts = [f"{name} has steps of {step:.3g}" for name, step in zip(names, self.steps)]
        said = "; ".join(parts)
        if self.analog:
            given = ", ".join(f"{a:.3g}" for a in self.analog)
            said += f"; noise before the converter of at least {given}"
        return said


def sensor_of(
    names: Sequence[str],
    resolution: Resolution | str,
    measurement_error: ArrayLike | None = None,
    analog_noise: ArrayLike | None = None,
    limits: tuple[ArrayLike, ArrayLike] | None = None,
) -> Sensor:
    """Check what is declared about sensors.

    Parameters
    ----------
    names : sequence of str
        Of the outputs that are read.
    resolution : float, array_like, "exact", Dither, or one for each output
        The step of each sensor.
    measurement_error : float or array_like, optional
        Deviation from the equations beside the steps.
    analog_noise : float or array_like, optional
        Least standard deviation of Gaussian noise before the converter.
    limits : (low, high), optional
        Where readings end.

    Examples
    --------
    >>> sensor_of(["room"], 0.1).deviation().tolist(), sensor_of(["room"], "exact").deviation()
    ([0.05], None)
    """
    count = len(names)
    steps, grids = _steps(resolution, count)
    errors = per_output(measurement_error, "measurement_error", count)
    analog = per_output(analog_noise, "analog_noise", count)
    if analog is not None and not steps:
        raise AffineDPError("analog_noise goes with the step of the converter behind it")
    if analog is not None and steps != grids:
        raise AffineDPError(
            "analog_noise needs a converter whose steps are all alike: with a nonlinearity or "
            "dither, declare those alone"
        )
    low, high = _limits(limits, count)
    return Sensor(
        steps,
        grids,
        () if errors is None else tuple(errors.tolist()),
        () if analog is None else tuple(analog.tolist()),
        low,
        high,
    )


def per_output(given: ArrayLike | None, name: str, count: int) -> FloatArray | None:
    """Return one positive number for each output, or None if nothing was given.

    Parameters
    ----------
    given : float, array_like or None
        One number or one per output.
    name : str
        What to call it in a refusal.
    count : int
        How many outputs there are.
    """
    if given is None:
        return None
    values = real_array(given, name)
    if values.shape not in ((), (count,)):
        raise AffineDPError(
            f"{name} has shape {values.shape}: give one number, or one for each of {count} outputs"
        )
    if np.any(values <= 0) or np.any(values > MOST_GIVEN):
        raise AffineDPError(f"{name} must be positive, and at most {MOST_GIVEN:g}")
    return np.array(np.broadcast_to(values, (count,)))


def check_range(sensor: Sensor, dynamics: Dynamics, reach: Reach | None) -> None:
    """Refuse a range that measurements can leave, since noise with a colour does not hide that.

    Parameters
    ----------
    sensor : Sensor
        With the range.
    dynamics : Dynamics
        What is measured.
    reach : Reach or None
        Public limits on start and inputs.
    """
    if not sensor.low:
        if reach is not None:
            raise AffineDPError("reach goes with a range: which one must it stay in?")
        return
    if not isinstance(reach, Reach):
        raise AffineDPError(
            "a sensor with a range saturates when someone steers the plant there, and this noise "
            "does not hide where it did (a promise of δ = 1e-4 was broken to δ = 0.13 that way). "
            "Give reach=Reach(start, B, inputs), public limits that keep every measurement inside, "
            "or send with noise that is independent at every step (independent_output_noise), "
            "to which saturation costs nothing"
        )
    low, high = reach.outputs(dynamics)
    low, high = low - sensor.margins, high + sensor.margins
    also = " with the noise before the converter" if sensor.analog else ""
    for i, name in enumerate(dynamics.output_names):
        if low[i] < sensor.low[i] or high[i] > sensor.high[i]:
            raise AffineDPError(
                f"by the given limits {name} can go from {low[i]:.4g} to {high[i]:.4g}{also}, "
                f"outside of the sensor's range from {sensor.low[i]:.4g} to "
                f"{sensor.high[i]:.4g}: a saturated sensor breaks the promise. Limit the inputs "
                "further, or take another sensor"
            )


def _steps(resolution: Resolution | str, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if isinstance(resolution, str):
        if resolution == EXACT:
            return (), ()
        raise AffineDPError(
            f'resolution must be the step of each sensor, Dither(…) or "exact" (simulation), not '
            f"{resolution!r}"
        )
    each: list[Any]
    if isinstance(resolution, Dither):
        each = [resolution] * count
    elif isinstance(resolution, list | tuple):
        each = list(resolution)
    else:
        given: Any = resolution
        values = per_output(given, "resolution", count)
        if values is None:
            raise AffineDPError(
                "resolution is missing: what is the step of each sensor? Readings have steps, and "
                'noise does not hide them by itself. Give it, or Dither(…), or "exact" for a '
                "simulation"
            )
        each = values.tolist()
    if len(each) != count:
        raise AffineDPError(f"resolution: {len(each)} given, but there are {count} outputs")
    steps = [_one(item) for item in each]
    return tuple(step for step, _ in steps), tuple(grid for _, grid in steps)


def _one(item: Any) -> tuple[float, float]:
    if isinstance(item, Dither):
        return item.declared, item.grid
    values = per_output(item, "resolution", 1)
    if values is None:
        raise AffineDPError("resolution: one of the outputs has none")
    return float(values[0]), float(values[0])


def _limits(
    limits: tuple[ArrayLike, ArrayLike] | None, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if limits is None:
        return (), ()
    try:
        low, high = (np.broadcast_to(real_array(v, "range"), (count,)) for v in limits)
    except (TypeError, ValueError):
        raise AffineDPError(
            f"range must be a pair (low, high), of numbers or of one for each of {count} outputs"
        ) from None
    if np.any(low >= high):
        raise AffineDPError("range: the lower end must be below the upper one")
    return tuple(low.tolist()), tuple(high.tolist())
