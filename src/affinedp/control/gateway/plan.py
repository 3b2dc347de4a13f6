"""Grids, fresh noise and enlargement of a gateway: what makes the stated promise hold.

In exact arithmetic all that a gateway publishes follows from one Gaussian release.  Whatever is not
exact is a deviation of at most e_i in output i, and a little fresh noise of scale τ_i at every step
hides it.  Together that is Gaussian differential privacy with

    √( (s/c)² + T Σ_i (2 e_i / τ_i)² ),

where c enlarges the correlated noise.  Here τ, e and c are chosen so that it stays below s.
docs/explanation/streaming.md gives the argument.  Everything on this page is public.

Neighbours differ by what the equations allow, which the correlated noise hides, and by up to
``E_i`` in output i at every step for what is not exact: the step of a sensor above all.  With the
correlated noise enlarged by c and fresh noise τ_i the promise is

    (s/c)² + T Σ_i (E_i/τ_i)² ≤ s²,     and the total variance  c² V + T Σ_i τ_i²,

where V is that of the correlated noise over the horizon.  By Cauchy–Schwarz the least total is
``(c₀ + T Σ E_i)²/s²`` with ``c₀ = s √V``, at

    c² = (c₀ + T Σ E)/c₀,     τ_i² = E_i (c₀ + T Σ E)/s².

Against differences that fill their box no covariance does much better: the least of all is at least
``(tr(M_v + diag(E²))^½)²/s²``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.gateway.facts import SAFE, Facts
from affinedp.control.sensors.sensor import Sensor, per_output
from affinedp.errors import AffineDPError
from affinedp.strategies.rounded_plan import GRID_BITS, SHARE

# Published are multiples of τ / 2^PUBLISHED_BITS.
PUBLISHED_BITS = 2
# τ outside of 2^±LARGEST is refused: noise whose square underflows would not be seen here.
LARGEST = 400
# So much of the promise may go to a declared error at most; then the noise is 32 times as large.
MOST_SHARE = 0.999


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


def plan_for(
    facts: Facts,
    sensor: Sensor | None,
    fresh_noise: ArrayLike | None,
    bits: Callable[[Sequence[int]], int],
) -> GatewayPlan:
    """Choose fresh noise and grids by the facts of a mechanism.

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.gateway.facts import facts_of
    >>> from affinedp.control.sensors.sensor import sensor_of
    >>> m = design_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> facts, bits = facts_of(m, m.strategy, 100), m.strategy.path_bits
    >>> plan = plan_for(facts, None, None, bits)
    >>> plan.fresh_exponents, plan.noise_factor < 1 + 1e-8, plan.measurement_error[0] > 7e-10
    ((-10,), True, True)
    >>> plan = plan_for(facts, sensor_of(("y1",), 2e-3), None, bits)        # it rounds to 2e-3
    >>> round(float(plan.fresh_noise[0]), 3), round(plan.noise_factor, 3)
    (0.268, 1.01)
    """
    sensor = Sensor((), ()) if sensor is None else sensor
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
    return GatewayPlan(
        fresh_exponents=exponents,
        fresh_scales=integers,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=_noise_factor(facts, deviation / fresh),
        path_bits=bits([e - GRID_BITS - 4 for e in exponents]),
        fresh_law="laplace" if facts.pure else "gaussian",
    )


def on_grids(scales: FloatArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return exponents and integers k in [2⁵⁶, 2⁵⁷) with τ = k · 2^(exponent − 56)."""
    exponents, integers = [], []
    for scale in scales:
        fraction, exponent = math.frexp(float(scale))
        if abs(exponent) > LARGEST:
            raise AffineDPError("the noise is too large or too small for double precision: rescale")
        exponents.append(exponent - 1)
        integers.append(int(math.ldexp(fraction, GRID_BITS + 1)))
    return tuple(exponents), tuple(integers)


def _noise_factor(facts: Facts, ratios: FloatArray) -> float:
    """The least c with (s/c)² + T Σ (2e/τ)² ≤ (s/(1 + 2⁻³⁰))², rounded up."""
    each = 2 * ratios / facts.sensitivity
    share = facts.steps * float((each if facts.pure else each**2).sum()) * (1 + SAFE)
    if not share <= MOST_SHARE:
        raise AffineDPError(
            f"hiding this measurement error would take {share:.2g} of what the promise allows "
            f"(at most {MOST_SHARE:g}): give a larger fresh_noise, finer sensors or a shorter "
            "horizon"
        )
    if facts.pure:  # the least c with s/c + T Σ 2e/τ ≤ s/(1 + 2⁻³⁰)
        return (1 + SAFE) / (1 / (1 + SHARE) - share)
    return (1 + SAFE) / math.sqrt((1 + SHARE) ** -2 - share)


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
    for name, scale in zip(facts.names, scales):
        if not scale > 0:
            raise AffineDPError(
                f"output {name!r} has no noise at any time: by the equations it is public. "
                "Give fresh_noise= (a scale for each output) to send it all the same"
            )
    return np.asarray(scales)


def cost_of_steps(facts: Facts, sensor: Sensor) -> float:
    """Return the total variance with the best shares, relative to the mechanism's own."""
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


def least_fresh_noise(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> FloatArray:
    """Return the fresh noise τ_i with which the total variance is least.

    Examples
    --------
    >>> tau = least_fresh_noise(0.3, 400.0, 96, np.array([0.1]))
    >>> c0, box = 0.3 * 20.0, 96 * 0.1
    >>> bool(np.isclose(tau[0] ** 2, 0.1 * (c0 + box) / 0.3**2))
    True
    """
    reach = sensitivity * math.sqrt(variance) + steps * float(differences.sum())
    return np.asarray(np.sqrt(differences * reach) / sensitivity)


def least_total(sensitivity: float, variance: float, steps: int, differences: FloatArray) -> float:
    """Return the least total variance over the horizon, relative to the correlated noise alone.

    Examples
    --------
    >>> round(least_total(0.3, 400.0, 96, np.array([0.1])), 6)
    6.76
    """
    alone = sensitivity * math.sqrt(variance)
    return ((alone + steps * float(differences.sum())) / alone) ** 2


def least_pure_noise(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> FloatArray:
    """Return the scales τ_i of fresh Laplace noise with which the total variance is least.

    Losses add up: ``s/c + T Σ E_i/τ_i ≤ s``, and the total is ``c² V + 2 T Σ τ_i²``.  For a share u
    of the promise τ_i is in proportion to the cube root of E_i, the total is
    ``V/(1 − u)² + B/u²`` with ``B = 2 (T Σ E^⅔)³/s²``, and least where ``u/(1 − u) = (B/V)^⅓``.

    Examples
    --------
    >>> tau = least_pure_noise(1.0, 400.0, 96, np.array([0.1]))
    >>> u = 96 * 0.1 / tau[0]                                  # of the promise
    >>> B = 2 * (96 * 0.1 ** (2 / 3)) ** 3
    >>> bool(np.isclose(u / (1 - u), (B / 400) ** (1 / 3)))
    True
    """
    box = steps * float((differences ** (2 / 3)).sum())
    if box == 0.0:
        return np.zeros_like(differences)
    fresh = (2 * box**3 / sensitivity**2) ** (1 / 3)
    share = fresh / (fresh + variance ** (1 / 3))
    return np.asarray(differences ** (1 / 3) * box / (share * sensitivity))


def least_pure_total(
    sensitivity: float, variance: float, steps: int, differences: FloatArray
) -> float:
    """Return the least total variance with fresh Laplace noise, relative to what is correlated.

    Examples
    --------
    >>> least_pure_total(1.0, 400.0, 96, np.array([0.0]))
    1.0
    """
    box = steps * float((differences ** (2 / 3)).sum())
    fresh = 2 * box**3 / sensitivity**2
    return float((1 + (fresh / variance) ** (1 / 3)) ** 3)
