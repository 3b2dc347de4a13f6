"""Grids, fresh noise and enlargement of a gateway: what makes the stated promise hold.

In exact arithmetic all that a gateway publishes follows from one Gaussian release.  Whatever is not
exact is a deviation of at most e_i in output i, and a little fresh noise of scale τ_i at every step
hides it.  Together that is Gaussian differential privacy with

    √( (s/c)² + T Σ_i (2 e_i / τ_i)² ),

where c enlarges the correlated noise.  Here τ, e and c are chosen so that it stays below s;
:mod:`~affinedp.control.gateway.shares` says with which shares that adds least.
docs/explanation/streaming.md gives the argument.  Everything on this page is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.gateway.facts import SAFE, Facts, trajectory_facts
from affinedp.control.gateway.noise_path import path_bits
from affinedp.control.gateway.shares import (
    MOST_SHARE,
    least_fresh_noise,
    least_pure_noise,
    least_pure_total,
    least_total,
)
from affinedp.control.sensors.analog import fresh_noise_for, rounding_distance
from affinedp.control.sensors.sensor import Sensor, per_output
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.control.trajectory.powers import growth_exponent
from affinedp.errors import AffineDPError
from affinedp.strategies.rounded_plan import GRID_BITS, SHARE

# Room for the sensors' own noise, which hides their steps: the promise holds down to a δ of
# ANALOG_DELTA (1 + e^ε), since s/(1 + ANALOG_SHARE) leaves at least that share of it.
ANALOG_SHARE = 2.0**-10
ANALOG_DELTA = 1e-12
# Published are multiples of τ / 2^PUBLISHED_BITS.
PUBLISHED_BITS = 2
# τ outside of 2^±LARGEST is refused: noise whose square underflows would not be seen here.
LARGEST = 400


@dataclass(frozen=True)
class GatewayPlan:
    """Everything about a gateway that is public and fixed before the draw.

    Attributes
    ----------
    fresh_exponents : tuple of int
        The fresh noise on output i lies on a grid of ``2**(fresh_exponents[i] − 56)``.
    fresh_scales : tuple of int
        Its standard deviation τ_i in units of that grid, from 2⁵⁶ up to 2⁵⁷.
    measurement_error : tuple of float
        How far recorded measurements may be off the equations.
    deviation : tuple of float
        e_i: that, and all that is rounded here.
    noise_factor : float
        c, by which the correlated noise is enlarged.
    path_bits : int
        Fixed-point bits of the noise's path.
    fresh_law : str
        Law of the fresh noise: Gaussian, or Laplace of scale τ where δ = 0 is promised.
    """

    fresh_exponents: tuple[int, ...]
    fresh_scales: tuple[int, ...]
    measurement_error: tuple[float, ...]
    deviation: tuple[float, ...]
    noise_factor: float
    path_bits: int
    fresh_law: str = "gaussian"

    @property
    def grid_exponents(self) -> tuple[int, ...]:
        """Exponents of the grids on which everything is added."""
        return tuple(exponent - GRID_BITS for exponent in self.fresh_exponents)

    @property
    def published_exponents(self) -> tuple[int, ...]:
        """Exponents of the grids of what is published."""
        return tuple(exponent - PUBLISHED_BITS for exponent in self.fresh_exponents)

    @property
    def fresh_noise(self) -> FloatArray:
        """τ, shape (m,)."""
        pairs = zip(self.fresh_scales, self.grid_exponents)
        return np.array([math.ldexp(scale, exponent) for scale, exponent in pairs])

    @property
    def added_variance(self) -> FloatArray:
        """Variance of the fresh noise and of rounding what is sent, shape (m,)."""
        own = 1.0 if self.fresh_law == "gaussian" else 2.0
        return np.asarray(self.fresh_noise**2 * (own + 4.0**-PUBLISHED_BITS / 12))

    @property
    def largest(self) -> FloatArray:
        """Measurements up to which rounding to a double takes at most half of their error."""
        return np.asarray(np.minimum(np.ldexp(np.array(self.measurement_error), 52), 1e300))

    def to_record(self) -> dict[str, Any]:
        """Return the plan as text and integers, for a file."""
        record = asdict(self)
        for name in ("measurement_error", "deviation"):
            record[name] = [value.hex() for value in record[name]]
        return {**record, "noise_factor": self.noise_factor.hex()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> GatewayPlan:
        """Return the plan that :meth:`to_record` wrote."""
        return cls(
            tuple(int(value) for value in record["fresh_exponents"]),
            tuple(int(value) for value in record["fresh_scales"]),
            tuple(float.fromhex(value) for value in record["measurement_error"]),
            tuple(float.fromhex(value) for value in record["deviation"]),
            float.fromhex(record["noise_factor"]),
            int(record["path_bits"]),
            str(record.get("fresh_law", "gaussian")),
        )


def gateway_plan(
    mechanism: TrajectoryMechanism,
    sensor: Sensor | None = None,
    fresh_noise: ArrayLike | None = None,
    horizon: int | None = None,
) -> GatewayPlan:
    """Choose fresh noise and grids for noise from one draw.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        With a promise.
    sensor : Sensor, optional
        What is declared about the readings; exact ones by default.  What the plan allows is at
        least that.
    fresh_noise : float or array_like, optional
        Scale of the fresh noise, one number or one per output; otherwise what adds least.
    horizon : int, optional
        How many steps are sent at most; by default the mechanism's.

    Returns
    -------
    GatewayPlan

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.sensors.sensor import sensor_of
    >>> m = design_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> plan = gateway_plan(m)
    >>> plan.fresh_exponents, plan.noise_factor < 1 + 1e-8, plan.measurement_error[0] > 7e-10
    ((-10,), True, True)
    >>> plan = gateway_plan(m, sensor_of(m.dynamics.output_names, 2e-3))    # it rounds to 2e-3
    >>> round(float(plan.fresh_noise[0]), 3), round(plan.noise_factor, 3)
    (0.268, 1.01)
    """
    dynamics = mechanism.dynamics if horizon is None else mechanism.dynamics.shortened(horizon)
    facts = trajectory_facts(mechanism, dynamics)

    def bits(exponents: Sequence[int]) -> int:
        return path_bits(dynamics, growth_exponent(dynamics), exponents)

    return plan_for(facts, sensor, fresh_noise, bits)


def plan_for(
    facts: Facts,
    sensor: Sensor | None,
    fresh_noise: ArrayLike | None,
    bits: Callable[[Sequence[int]], int],
) -> GatewayPlan:
    """Choose fresh noise and grids by the facts of a mechanism.

    Parameters
    ----------
    facts : Facts
        Of the mechanism.
    sensor, fresh_noise
        As for :func:`gateway_plan`.
    bits : callable
        How many bits of the path keep output i within ``2**exponents[i]`` of its true value.
    """
    sensor = Sensor((), ()) if sensor is None else sensor
    if facts.pure and sensor.analog:
        raise AffineDPError(
            "the sensors' own noise hides their steps up to some δ only: with a promise at δ = 0 "
            "leave analog_noise out"
        )
    declared = sensor.deviation()
    scales = per_output(fresh_noise, "fresh_noise", len(facts.names))
    if scales is None:
        scales = _chosen_scales(facts, sensor)
    exponents, integers = on_grids(scales)
    fresh = np.array([math.ldexp(k, e - GRID_BITS) for k, e in zip(integers, exponents)])
    own, free = facts.own_error(fresh), facts.free_deviation(fresh)
    if declared is None and np.any(own > free / 2):
        raise _too_fine(facts, own, free)
    needed = np.zeros(len(facts.names)) if declared is None else declared
    deviation = np.maximum((needed + own) * (1 + SAFE), free)
    room = SHARE if not sensor.analog else _analog_room(facts, sensor, fresh)
    return GatewayPlan(
        fresh_exponents=exponents,
        fresh_scales=integers,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=_noise_factor(facts, deviation / fresh, room),
        path_bits=bits([e - GRID_BITS - 4 for e in exponents]),
        fresh_law="laplace" if facts.pure else "gaussian",
    )


def on_grids(scales: FloatArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return exponents and integers k in [2⁵⁶, 2⁵⁷) with τ = k · 2^(exponent − 56).

    Parameters
    ----------
    scales : array, shape (m,)
        τ; a double has 53 bits, so nothing is rounded.
    """
    exponents, integers = [], []
    for scale in scales:
        fraction, exponent = math.frexp(float(scale))
        if abs(exponent) > LARGEST:
            raise AffineDPError("the noise is too large or too small for double precision: rescale")
        exponents.append(exponent - 1)
        integers.append(int(math.ldexp(fraction, GRID_BITS + 1)))
    return tuple(exponents), tuple(integers)


def analog_distance(steps: int, sensor: Sensor, fresh: FloatArray) -> float:
    """Return how far all readings together are from those of sensors without steps, at most.

    Parameters
    ----------
    steps : int
        How many there are.
    sensor : Sensor
        With noise before the converter.
    fresh : array, shape (m,)
        τ.
    """
    triples = zip(sensor.analog, fresh, sensor.steps)
    each = [rounding_distance(a, float(tau), q) for a, tau, q in triples]
    return steps * math.fsum(each) * (1 + SAFE)


def _analog_room(facts: Facts, sensor: Sensor, fresh: FloatArray) -> float:
    distance = analog_distance(facts.steps, sensor, fresh)
    if distance > ANALOG_DELTA * ANALOG_SHARE:
        raise AffineDPError(
            f"with this fresh noise the sensors' own noise hides their steps only up to "
            f"{distance:.2g} in total variation ({ANALOG_DELTA * ANALOG_SHARE:.2g} is needed): "
            "leave fresh_noise out"
        )
    # and a little more, because what is rounded behind the converter adds up without squares
    return ANALOG_SHARE * (1 + 2.0**-4)


def _noise_factor(facts: Facts, ratios: FloatArray, room: float) -> float:
    """The least c with (s/c)² + T Σ (2e/τ)² ≤ (s/(1 + room))², rounded up."""
    each = 2 * ratios / facts.sensitivity
    share = facts.steps * float((each if facts.pure else each**2).sum()) * (1 + SAFE)
    if not share <= MOST_SHARE:
        raise AffineDPError(
            f"hiding this measurement error would take {share:.2g} of what the promise allows "
            f"(at most {MOST_SHARE:g}): give a larger fresh_noise, finer sensors or a shorter "
            "horizon"
        )
    if facts.pure:  # the least c with s/c + T Σ 2e/τ ≤ s/(1 + room)
        return (1 + SAFE) / (1 / (1 + room) - share)
    return (1 + SAFE) / math.sqrt((1 + room) ** -2 - share)


def _chosen_scales(facts: Facts, sensor: Sensor) -> FloatArray:
    """τ: far below the noise, unless what is declared needs more."""
    declared = sensor.deviation()
    scales = facts.usual
    if declared is not None and np.any(declared > 0):
        # what is rounded here differs between neighbours, too
        differences = 2 * (declared + facts.loading * 2.0**-GRID_BITS) * (1 + SAFE)
        differences = np.where(declared > 0, differences, 0.0)
        least = least_pure_noise if facts.pure else least_fresh_noise
        hiding = least(facts.sensitivity, facts.variance, facts.steps, differences)
        scales = np.maximum(scales, hiding)
    if sensor.analog:
        each = ANALOG_DELTA * ANALOG_SHARE / facts.draws * (1 - 1e-6)
        pairs = zip(sensor.analog, sensor.steps)
        scales = np.maximum(scales, [fresh_noise_for(a, q, each) for a, q in pairs])
    for name, scale in zip(facts.names, scales):
        if not scale > 0:
            raise AffineDPError(
                f"output {name!r} has no noise at any time: by the equations it is public. "
                "Give fresh_noise= (a scale for each output) to send it all the same"
            )
    return np.asarray(scales)


def cost_of_steps(facts: Facts, sensor: Sensor) -> float:
    """Return the total variance with the best shares, relative to the mechanism's own.

    Parameters
    ----------
    facts : Facts
        Of the mechanism.
    sensor : Sensor
        Whose steps must be hidden.
    """
    declared = sensor.deviation()
    if declared is None or facts.variance == 0:
        return 1.0
    least = least_pure_total if facts.pure else least_total
    return least(facts.sensitivity, facts.variance, facts.steps, 2 * declared)


def _too_fine(facts: Facts, own: FloatArray, free: FloatArray) -> AffineDPError:
    worst = int(np.argmax(own / free))
    least = facts.least_fresh()
    if least is None:
        return AffineDPError("the horizon is too long for a gateway with this promise")
    return AffineDPError(
        f"the noise of output {facts.names[worst]!r} differs so much over time that its rounding "
        f"(2^-{GRID_BITS} of the largest) is too much where it is small: give fresh_noise= (a "
        f"scale, here at least {2 * least[worst]:.2g}), or a shorter horizon"
    )
