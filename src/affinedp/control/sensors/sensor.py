"""What is declared about the sensors of a plant, checked: steps, range, model error."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.sensors.dither import Dither
from affinedp.control.sensors.reach import Reach
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number, real_array

EXACT = "exact"
MOST_GIVEN = 1e120

Resolution = ArrayLike | Dither | Sequence["float | Dither"]


@dataclass(frozen=True)
class Sensor:
    """The sensors of all outputs, as they were declared."""

    steps: tuple[float, ...]
    grids: tuple[float, ...]
    errors: tuple[float, ...] = ()
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
        if self.steps:
            rounded = np.array(self.steps) / 2
        return rounded + (np.array(self.errors) if self.errors else 0.0)

    def to_record(self) -> dict[str, list[str]]:
        """Return it as text, for a file."""
        names = ("steps", "grids", "errors", "low", "high")
        return {name: [value.hex() for value in getattr(self, name)] for name in names}

    def sentence(self, names: Sequence[str]) -> str:
        """Say in words what was declared."""
        if self.exact:
            return "readings are taken as exact, which only a simulation's are"
        parts = [f"{name} has steps of {step:.3g}" for name, step in zip(names, self.steps)]
        return "; ".join(parts)


def sensor_of(
    names: Sequence[str],
    resolution: Resolution | str,
    measurement_error: ArrayLike | None = None,
    limits: tuple[ArrayLike, ArrayLike] | None = None,
) -> Sensor:
    """Check what is declared about sensors.

    Examples
    --------
    >>> sensor_of(["room"], 0.1).deviation().tolist(), sensor_of(["room"], "exact").deviation()
    ([0.05], None)
    """
    count = len(names)
    steps, grids = _steps(resolution, count)
    errors = per_output(measurement_error, "measurement_error", count)
    low, high = _limits(limits, count)
    return Sensor(
        steps,
        grids,
        () if errors is None else tuple(errors.tolist()),
        low,
        high,
    )


def per_output(given: ArrayLike | None, name: str, count: int) -> FloatArray | None:
    """Return one positive number for each output, or None if nothing was given."""
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
    """Refuse a range that measurements can leave, since noise with a colour does not hide that."""
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
    for i, name in enumerate(dynamics.output_names):
        if low[i] < sensor.low[i] or high[i] > sensor.high[i]:
            raise AffineDPError(
                f"by the given limits {name} can go from {low[i]:.4g} to {high[i]:.4g}, "
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
    if not is_number(item):
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
