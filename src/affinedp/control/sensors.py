"""What is declared about the sensors of a plant, checked: steps, dither, range, model error."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics, dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.exact.systems import LinearSystem
from affinedp.parts import Part

MOST_BITS = 40


@dataclass(frozen=True)
class Dither:
    """A converter with subtractive dither (docs/explanation/sensors.md).

    Conditions, which nothing here can check: the offset is added before the converter, which
    rounds halves up and is not saturated by ``y + d``; neither offset nor raw code is sent, logged
    in the open, or used by a local loop.  At run time readings that do not lie on the finer grid
    raise an alarm in the gateway's own log.

    Attributes
    ----------
    bits : int
        b: the offset has 2^b equally likely levels within one step.
    step : float
        q, the step of the converter.
    nonlinearity : float
        The largest distance of a threshold of the converter from its place (integral nonlinearity).

    Examples
    --------
    >>> dither = Dither(bits=6, step=0.1)
    >>> dither.declared                                # as good as a step of 0.1 / 64
    0.0015625
    >>> offset = dither.draw(1)                        # secret: add it before the converter
    >>> code = np.floor((21.34 + offset) / 0.1 + 0.5) * 0.1
    >>> bool(abs(dither.subtract(code, offset) - 21.34) <= 0.05 + 0.0016)
    True
    """

    bits: int
    step: float
    nonlinearity: float = 0.0

    def __post_init__(self) -> None:
        whole_number(self.bits, "bits", most=MOST_BITS)
        for name, value in (("step", self.step), ("nonlinearity", self.nonlinearity)):
            number = real_array(value, name)
            if number.shape or number < 0 or (name == "step" and number == 0):
                raise AffineDPError(f"{name} of a dithered converter must be a positive number")

    @property
    def declared(self) -> float:
        """The step that readings then count as having: q/2^b + 2 · nonlinearity."""
        return math.ldexp(float(self.step), -self.bits) + 2 * float(self.nonlinearity)

    @property
    def grid(self) -> float:
        """The grid on which readings lie after the offset is taken off."""
        return math.ldexp(float(self.step), -self.bits)

    def draw(self, count: int = 1) -> FloatArray:
        """Return fresh offsets for one step, from the operating system's randomness.  Secret.

        Parameters
        ----------
        count : int
            One for each output.
        """
        half = 1 << (self.bits - 1)
        levels = [secrets.randbelow(2 * half) - half for _ in range(count)]
        return np.array([float(level * self._unit) for level in levels])

    def subtract(self, reading: ArrayLike, offset: ArrayLike) -> FloatArray:
        """Return the reading with the offset taken off, exact on the finer grid.

        Parameters
        ----------
        reading : array_like
            What the converter gave, a multiple of its step.  Secret.
        offset : array_like
            What :meth:`draw` returned for this reading.
        """
        codes = real_array(reading, "reading") / float(self.step)
        levels = real_array(offset, "offset") / self.grid
        if codes.shape != levels.shape or np.any(np.abs(levels - np.rint(levels)) > 1e-6):
            raise AffineDPError("each reading goes with the offset that was drawn for it")
        whole = zip(np.rint(codes).ravel(), np.rint(levels).ravel())
        left = [float(((int(c) << self.bits) - int(j)) * self._unit) for c, j in whole]
        return np.reshape(left, codes.shape)

    @property
    def _unit(self) -> Fraction:
        return Fraction(float(self.step)) / (1 << self.bits)


# Far more than sums over a horizon round.
SAFE = 1e-9
# Responses that differ by less are the same one, of numbers that were rounded.
ALIKE = 1e-6

_Box = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Reach:
    """Public limits that hold for every trajectory, whatever was sent.

    They must be enforced by something that does not look at the data: actuators that go no further,
    a physical end.  Disturbances and private inputs count as inputs: add their columns to B and
    their limits, which hold for neighbours too.

    Attributes
    ----------
    start : (low, high)
        Between which x(0) lies, entry by entry; for neighbours too.  What a later jump of the state
        adds between ``"forward"`` neighbours is worked out by a gateway.
    B : array_like, shape (n, k)
        How inputs and disturbances enter the state.
    inputs : (low, high)
        Between which they lie.
    D : array_like, shape (m, k), optional
        How they enter the outputs at once; not at all unless given.
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D), optional
        The whole plant, if a mechanism knows only a part of it: noise for private inputs knows the
        states that they move, and others move the outputs, too.

    Examples
    --------
    >>> from affinedp.domains.dynamics import dynamics_of
    >>> room = dynamics_of(([[0.9]], [[1.0]]), horizon=100)
    >>> low, high = Reach(start=([15], [25]), B=[[1.0]], inputs=([0], [3])).outputs(room)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0], [30.0])
    """

    start: tuple[ArrayLike, ArrayLike]
    B: ArrayLike
    inputs: tuple[ArrayLike, ArrayLike]
    D: ArrayLike | None = None
    system: Any = None

    def outputs(self, dynamics: Dynamics) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest value that each output can have at any time.

        Parameters
        ----------
        dynamics : Dynamics
            A, C and the horizon.
        """
        dynamics, matrix = self._whole(dynamics), self._entering(dynamics)
        middle, spread = _box(self.start, "start", dynamics.states)
        given, width = _box(self.inputs, "inputs", matrix.shape[1])
        if dynamics.time_varying:
            raise AffineDPError("limits are worked out for matrices that do not change over time")
        low, high = _hulls(dynamics, matrix, (middle, spread), (given, width))
        direct = self._direct(dynamics, matrix)
        low = low + direct @ given - np.abs(direct) @ width
        high = high + direct @ given + np.abs(direct) @ width
        margin = SAFE * np.maximum(np.abs(low), np.abs(high))
        return low - margin, high + margin

    def _whole(self, dynamics: Dynamics) -> Dynamics:
        if self.system is None:
            return dynamics
        whole = dynamics_of(self.system, dynamics.horizon)
        if whole.outputs != dynamics.outputs:
            raise AffineDPError(
                f"the system of reach has {whole.outputs} outputs, the mechanism {dynamics.outputs}"
            )
        # the outputs are called as the mechanism calls them
        return Dynamics(
            whole.A, whole.C, dynamics.horizon, whole.state_names, dynamics.output_names
        )

    def _entering(self, dynamics: Dynamics) -> FloatArray:
        """B, which must fit the whole plant."""
        matrix, states = real_array(self.B, "B", 2), self._whole(dynamics).states
        if len(matrix) != states:
            raise AffineDPError(
                f"B has {len(matrix)} rows, but x has {states} entries. If the mechanism "
                "knows only the states that private inputs move, give the whole plant: "
                "Reach(…, system=(A, C))"
            )
        return matrix

    def _direct(self, whole: Dynamics, B: FloatArray) -> FloatArray:
        """D, which must fit the outputs and B; zeros unless given."""
        if self.D is None:
            return np.zeros((whole.outputs, B.shape[1]))
        direct = real_array(self.D, "D", 2)
        if direct.shape != (whole.outputs, B.shape[1]):
            raise AffineDPError(
                f"D has shape {direct.shape}, but there are {whole.outputs} outputs and "
                f"{B.shape[1]} inputs"
            )
        return direct


def undeclared(reach: Reach, dynamics: Dynamics, private: LinearSystem) -> list[int]:
    """Return which private inputs move the outputs as no input of the limits does."""
    whole, B = reach._whole(dynamics), reach._entering(dynamics)
    everything = LinearSystem(whole.A, B, whole.C, reach._direct(whole, B))
    # two responses that agree for so long agree for ever
    steps = min(whole.horizon, whole.states + private.order + 1)
    given, asked = (one.impulse(steps).reshape(-1, one.inputs) for one in (everything, private))
    given = given / np.maximum(np.linalg.norm(given, axis=0), np.finfo(np.float64).tiny)
    rest = asked - given @ np.linalg.lstsq(given, asked, rcond=None)[0]
    missed = np.linalg.norm(rest, axis=0) > ALIKE * np.linalg.norm(asked, axis=0)
    return [int(i) for i in np.flatnonzero(missed)]


def ends(given: tuple[ArrayLike, ArrayLike], name: str, size: int) -> _Box:
    """The lower and the upper ends of a pair, one number or some each."""
    try:
        low, high = (np.broadcast_to(real_array(v, name), (size,)) for v in given)
    except (TypeError, ValueError):
        raise AffineDPError(
            f"{name} must be [low, high], or [[lows], [highs]] with {size} numbers each"
        ) from None
    if np.any(low > high):
        place = int(np.argmax(low > high))
        raise AffineDPError(
            f"{name}: the lower end of entry {place + 1} is {low[place]:g}, above its upper end "
            f"{high[place]:g}. Write [[lows], [highs]]: first the lower ends of all entries, then "
            "the upper ones"
        )
    return low, high


def _box(limits: tuple[ArrayLike, ArrayLike], name: str, size: int) -> _Box:
    low, high = ends(limits, name, size)
    return (low + high) / 2, (high - low) / 2


def _hulls(
    dynamics: Dynamics, B: FloatArray, start: _Box, inputs: _Box
) -> tuple[FloatArray, FloatArray]:
    """Exact interval hulls: |C A^t| around the start, Σ |C A^k B| around the inputs."""
    middle = start[0].copy()
    from_inputs = np.zeros(dynamics.outputs)
    low = np.full(dynamics.outputs, np.inf)
    high = -low
    for rows in _seen(dynamics):
        centre, radius = dynamics.C @ middle, np.abs(rows) @ start[1] + from_inputs
        low, high = np.minimum(low, centre - radius), np.maximum(high, centre + radius)
        from_inputs = from_inputs + np.abs(rows @ B) @ inputs[1]
        middle = dynamics.A @ middle + B @ inputs[0]
        _check_finite(middle)
    return low, high


def largest_moves(dynamics: Dynamics, jumps: FloatArray) -> FloatArray:
    """Return how far each output moves at most when the state jumps by a column, at any time.

    Examples
    --------
    >>> room = dynamics_of(([[0.9]], [[2.0]]), horizon=100)
    >>> largest_moves(room, np.array([[0.5]])).round(6).tolist()
    [1.0]
    """
    found = np.zeros(dynamics.outputs)
    for rows in _seen(dynamics):
        found = np.maximum(found, np.abs(rows @ jumps).max(axis=1))
    _check_finite(found)
    return np.asarray(found * (1 + SAFE))


def _seen(dynamics: Dynamics) -> Iterator[FloatArray]:
    """C, C A, C A², …: what the outputs show of a state, by the steps since."""
    rows = np.array(dynamics.C)
    for _ in range(dynamics.horizon):
        _check_finite(rows)
        yield rows
        rows = rows @ dynamics.A


def _check_finite(values: FloatArray) -> None:
    if not np.all(np.isfinite(values)):
        raise AffineDPError("the plant grows beyond double precision: no limits keep it in")


EXACT = "exact"
MOST_GIVEN = 1e120

Resolution = ArrayLike | Dither | Sequence["float | Dither"]


@dataclass(frozen=True)
class Sensor(Part):
    """The sensors of all outputs, as they were declared."""

    kind = "sensor"
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

    def sentence(self, names: Sequence[str]) -> str:
        """Say in words what was declared."""
        parts = [f"{name} has steps of {step:.3g}" for name, step in zip(names, self.steps)]
        if self.exact:
            parts = ["readings are taken as exact, which only a simulation's are"]
        parts += [f"{name} is off by {one:.3g} besides" for name, one in zip(names, self.errors)]
        return "; ".join(parts)


def sensor_of(
    names: Sequence[str],
    resolution: Resolution | str | None,
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


def check_range(
    sensor: Sensor,
    dynamics: Dynamics,
    reach: Reach | None,
    jumps: FloatArray | None = None,
    otherwise: str = "",
) -> None:
    """Refuse a range that measurements can leave, since noise with a colour does not hide that.

    The state of a neighbour may jump by a column of ``jumps``, beyond the limits; ``otherwise``
    says what else one can do.
    """
    if not sensor.low:
        if reach is not None:
            raise AffineDPError("reach goes with a range: which one must it stay in?")
        return
    if not isinstance(reach, Reach):
        raise AffineDPError(
            "a sensor with a range saturates when someone steers the plant there, and this noise "
            "does not hide where it did (a simulated attack broke a promise of δ = 1e-4 to 0.13). "
            "Give reach=Reach(start, B, inputs), public limits that keep every measurement inside"
            + otherwise
        )
    low, high = reach.outputs(dynamics)
    moved = np.zeros(len(low)) if jumps is None else largest_moves(dynamics, jumps)
    low, high = low - moved, high + moved
    for i, name in enumerate(dynamics.output_names):
        if not (sensor.low[i] <= low[i] and high[i] <= sensor.high[i]):
            jumped = f", and with {moved[i]:.4g} for the jump of a neighbour," if moved[i] else ""
            raise AffineDPError(
                f"by the given limits{jumped} {name} can go from {low[i]:.4g} to {high[i]:.4g}, "
                f"outside of the sensor's range from {sensor.low[i]:.4g} to "
                f"{sensor.high[i]:.4g}: a saturated sensor breaks the promise. Limit the inputs "
                "further, or take another sensor"
            )


def _steps(
    resolution: Resolution | str | None, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    found = [
        (one.declared, one.grid) if isinstance(one, Dither) else (one, one)
        for one in _each(resolution, count)
    ]
    return tuple(step for step, _ in found), tuple(grid for _, grid in found)


def read_by(y: FloatArray, resolution: Resolution | str) -> FloatArray:
    """Return what sensors make of outputs, in a simulation: rounded to their steps.

    Examples
    --------
    >>> read_by(np.array([0.26, 1.3]), [0.1, 0.5]).tolist()
    [0.30000000000000004, 1.5]
    """
    found = np.array(y, dtype=np.float64)
    for i, one in enumerate(_each(resolution, len(found))):
        if isinstance(one, Dither):
            offset = one.draw()[0]
            found[i] = one.subtract(_rounded(found[i] + offset, one.step), offset)
        else:
            found[i] = _rounded(found[i], one)
    return found


def _rounded(value: float, step: float) -> float:
    """What a converter gives, halves up."""
    return math.floor(value / step + 0.5) * step


def _each(resolution: Resolution | str | None, count: int) -> list[float | Dither]:
    """The step or the converter of each output; none if readings are exact."""
    if isinstance(resolution, str):
        if resolution == EXACT:
            return []
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
    return [_one(item) for item in each]


def read_resolution(text: str) -> Any:
    """Return what a text says of sensors: numbers, dithered converters, or "exact".

    Examples
    --------
    >>> read_resolution("0.1,dither:6:0.1")
    [0.1, Dither(bits=6, step=0.1, nonlinearity=0.0)]
    """
    if text == EXACT:
        return text
    found: list[Any] = []
    for word in map(str.strip, text.split(",")):
        kind, *figures = word.split(":")
        try:
            if kind == "dither":
                bits, step, *more = figures
                found.append(Dither(int(bits), float(step), *map(float, more)))
            else:
                found.append(float(word))
        except (ValueError, TypeError):
            raise AffineDPError(
                f"resolution: {word!r} is neither a number, nor dither:BITS:STEP, nor exact"
            ) from None
    return found if len(found) > 1 else found[0]


def _one(item: Any) -> float | Dither:
    if isinstance(item, Dither):
        return item
    values = per_output(item, "resolution", 1)
    if values is None:
        raise AffineDPError("resolution: one of the outputs has none")
    return float(values[0])


def _limits(
    limits: tuple[ArrayLike, ArrayLike] | None, count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if limits is None:
        return (), ()
    low, high = ends(limits, "range", count)
    if np.any(low == high):
        raise AffineDPError("range: the lower end must be below the upper one")
    return tuple(low.tolist()), tuple(high.tolist())
