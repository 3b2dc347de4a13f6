"""Grids, fresh noise and enlargement of a gateway: what makes the stated promise hold.

In exact arithmetic all that a gateway publishes follows from one Gaussian release.  Whatever is not
exact is a deviation of at most e_i in output i, and a little fresh noise of scale τ_i at every step
hides it.  Together that is Gaussian differential privacy with

    √( (s/c)² + T Σ_i (2 e_i / τ_i)² ),

where c enlarges the correlated noise.  Here τ, e and c are chosen so that it stays below s.
docs/explanation/streaming.md gives the argument.  Everything on this page is public.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, real_array
from affinedp.control.gateway.noise_path import path_bits
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.control.trajectory.powers import growth_exponent
from affinedp.control.trajectory.promise import promise_of_root
from affinedp.errors import AffineDPError
from affinedp.files.mechanisms import AGREEMENT
from affinedp.release.plan import GRID_BITS, SHARE

# τ is at most this share of the noise (the lower decile over time), unless the caller decides.
FRESH_SHARE = 2.0**-10
# Without a declared error, 2e/τ over all steps and outputs adds up to twice this share of s.
DEVIATION_SHARE = 2.0**-16
# A declared error may use up to this share of s².
MOST_SHARE = 0.5
# Published are multiples of τ / 2^PUBLISHED_BITS.
PUBLISHED_BITS = 2
# τ outside of 2^±LARGEST is refused: noise whose square underflows would not be seen here.
LARGEST = 400
MOST_GIVEN = 1e120
# For sums and roots in double precision; far more than they round.
SAFE = 1e-12


@dataclass(frozen=True)
class GatewayPlan:
    """Everything about a gateway that is public and fixed before the draw.

    Attributes
    ----------
    fresh_exponents : tuple of int
        The fresh noise on output i has scale τ_i = ``2**fresh_exponents[i]``.
    measurement_error : tuple of float
        How far recorded measurements may be off the equations.
    deviation : tuple of float
        e_i: that, and all that is rounded here.
    noise_factor : float
        c, by which the correlated noise is enlarged.
    path_bits : int
        Fixed-point bits of the noise's path.
    """

    fresh_exponents: tuple[int, ...]
    measurement_error: tuple[float, ...]
    deviation: tuple[float, ...]
    noise_factor: float
    path_bits: int

    @property
    def grid_exponents(self) -> tuple[int, ...]:
        """Exponents of the grids on which measurements and noise are added."""
        return tuple(exponent - GRID_BITS for exponent in self.fresh_exponents)

    @property
    def published_exponents(self) -> tuple[int, ...]:
        """Exponents of the grids on which outputs are published."""
        return tuple(exponent - PUBLISHED_BITS for exponent in self.fresh_exponents)

    @property
    def fresh_noise(self) -> FloatArray:
        """τ, shape (m,)."""
        return np.asarray(np.ldexp(1.0, np.array(self.fresh_exponents)))

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
            tuple(float.fromhex(value) for value in record["measurement_error"]),
            tuple(float.fromhex(value) for value in record["deviation"]),
            float.fromhex(record["noise_factor"]),
            int(record["path_bits"]),
        )


@dataclass(frozen=True)
class _Facts:
    """What the plan follows from."""

    mechanism: TrajectoryMechanism
    sensitivity: float
    draws: int  # T m, the fresh ones
    growth: int
    loading: FloatArray  # (m,) a bound on Σ_k |Γ_ik(t)| ≤ √r ‖Γ_i(t)‖ over all times
    deviations: FloatArray  # (T, m) standard deviations of the noise

    def own_error(self, fresh: FloatArray) -> FloatArray:
        """A bound on all that is rounded: y and γ to the grid, the path, and η to its grid."""
        own = fresh * 2.0 ** -(GRID_BITS - 1) + self.loading * 2.0 ** -(GRID_BITS + 1)
        return np.asarray(own * (1 + SAFE))

    def free_deviation(self, fresh: FloatArray) -> FloatArray:
        """The deviation that costs next to nothing."""
        return fresh * (self.sensitivity * DEVIATION_SHARE / math.sqrt(self.draws))


def gateway_plan(
    mechanism: TrajectoryMechanism,
    resolution: ArrayLike | None = None,
    measurement_error: ArrayLike | None = None,
) -> GatewayPlan:
    """Choose fresh noise and grids for a mechanism.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        With a promise.
    resolution : float or array_like, optional
        Scale of the fresh noise, one number or one per output; rounded down to a power of two.
    measurement_error : float or array_like, optional
        How far recorded measurements may be off the equations, one number or one per output.
        What the plan allows is at least that.

    Returns
    -------
    GatewayPlan

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> m = design_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> plan = gateway_plan(m)
    >>> plan.fresh_exponents, plan.noise_factor < 1 + 1e-8, plan.measurement_error[0] > 7e-10
    ((-10,), True, True)
    >>> plan = gateway_plan(m, measurement_error=1e-3)           # a sensor that rounds to 2e-3
    >>> plan.fresh_exponents, round(plan.noise_factor, 3)
    ((-2,), 1.011)
    """
    facts = _facts_of(mechanism)
    declared = per_output(measurement_error, "measurement_error", mechanism)
    scales = per_output(resolution, "resolution", mechanism)
    needed = np.zeros(mechanism.outputs) if declared is None else declared
    if scales is None:
        exponents = _chosen_exponents(facts, declared)
    else:
        exponents = tuple(math.frexp(scale)[1] - 1 for scale in scales)
    if any(abs(exponent) > LARGEST for exponent in exponents):
        raise AffineDPError("the noise is too large or too small for double precision: rescale")
    fresh = np.ldexp(1.0, np.array(exponents))
    own, free = facts.own_error(fresh), facts.free_deviation(fresh)
    if declared is None and np.any(own > free / 2):
        raise _too_fine(facts, own, free)
    deviation = np.maximum((needed + own) * (1 + SAFE), free)
    bits = path_bits(mechanism.dynamics, facts.growth, [e - GRID_BITS - 4 for e in exponents])
    return GatewayPlan(
        fresh_exponents=exponents,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=_noise_factor(facts, deviation / fresh),
        path_bits=bits,
    )


def _noise_factor(facts: _Facts, ratios: FloatArray) -> float:
    """The least c with (s/c)² + T Σ (2e/τ)² ≤ (s/(1 + SHARE))², rounded up."""
    steps = facts.mechanism.horizon
    share = steps * float(((2 * ratios / facts.sensitivity) ** 2).sum()) * (1 + SAFE)
    if not share <= MOST_SHARE:
        raise AffineDPError(
            f"hiding this measurement error would take {share:.2g} of what the promise allows "
            f"(at most {MOST_SHARE:g}): give a larger resolution, a smaller measurement_error or a "
            "shorter horizon"
        )
    return (1 + SAFE) / math.sqrt((1 + SHARE) ** -2 - share)


def _facts_of(mechanism: TrajectoryMechanism) -> _Facts:
    guarantee = mechanism.guarantee
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is sent with it")
    found = promise_of_root(mechanism.neighbours, mechanism.root).sensitivity
    if not found <= guarantee.sensitivity * (1 + AGREEMENT):
        raise AffineDPError(
            f"the guarantee states a sensitivity of {guarantee.sensitivity!r}, but the noise gives "
            f"{found!r}: they do not belong together"
        )
    dynamics, root = mechanism.dynamics, mechanism.root
    growth = growth_exponent(dynamics)
    deviations = mechanism.noise_by_time
    # these are doubles: each is off by at most (2n + 4) ulp of |C| |A…A| |R|
    rows = np.abs(dynamics.C.reshape(-1, *dynamics.C.shape[-2:])).max(axis=0)
    size = np.linalg.norm(rows, axis=1) * np.linalg.norm(root) * math.ldexp(1.0, growth)
    largest = deviations.max(axis=0) + size * dynamics.states * 2.0**-40
    return _Facts(
        mechanism,
        guarantee.sensitivity,
        mechanism.horizon * mechanism.outputs,
        growth,
        math.sqrt(root.shape[1]) * largest * (1 + SAFE),
        deviations,
    )


def _chosen_exponents(facts: _Facts, declared: FloatArray | None) -> tuple[int, ...]:
    """Exponents of τ: far below the noise, unless a declared error needs more."""
    names = facts.mechanism.dynamics.output_names
    exponents = []
    for i, spread in enumerate(facts.deviations.T):
        noisy = spread[spread > 0]
        choices = []
        if len(noisy):
            usual = FRESH_SHARE * float(np.quantile(noisy, 0.1, method="lower"))
            choices.append(math.frexp(usual)[1] - 1)
        if declared is not None:
            hidden = float(declared[i]) + float(facts.loading[i]) * 2.0**-GRID_BITS
            choices.append(_hiding_exponent(facts, hidden, math.sqrt((spread**2).mean())))
        if not choices:
            raise AffineDPError(
                f"output {names[i]!r} has no noise at any time: by the equations it is public. "
                "Give resolution= (a scale of fresh noise for each output) to send it all the same"
            )
        exponents.append(max(choices))
    return tuple(exponents)


def _hiding_exponent(facts: _Facts, deviation: float, noise: float) -> int:
    """Exponent of the τ that hides a deviation and adds least to the variance.

    With share θ = T m (2e/τ)²/s² the noise on all outputs grows by θ/(1 − θ), relatively, and τ
    adds τ²/σ² to that on its own.
    """
    unit = 2 * deviation * math.sqrt(facts.draws) / facts.sensitivity
    least = math.ceil(math.log2(unit / math.sqrt(0.99 * MOST_SHARE)))
    if noise == 0:
        return least + 3

    def added(exponent: int) -> float:
        share = (unit / math.ldexp(1.0, exponent)) ** 2
        # beyond 1e150 squares overflow, and nothing is the best
        return share / (1 - share) + min(math.ldexp(1.0, exponent) / noise, 1e150) ** 2

    return min(range(least, least + 60), key=added)


def _too_fine(facts: _Facts, own: FloatArray, free: FloatArray) -> AffineDPError:
    worst = int(np.argmax(own / free))
    name = facts.mechanism.dynamics.output_names[worst]
    spare = facts.free_deviation(np.array(1.0)) / 2 - 2.0 ** -(GRID_BITS - 1) * (1 + SAFE)
    if spare <= 0:
        return AffineDPError("the horizon is too long for a gateway with this promise")
    least = float(facts.loading[worst]) * 2.0 ** -(GRID_BITS + 1) / float(spare)
    return AffineDPError(
        f"the noise of output {name!r} differs so much over time that its rounding (2^-{GRID_BITS} "
        "of the largest) is too much where it is small: give resolution= (a scale of fresh noise, "
        f"here at least {2 * least:.2g}), or a shorter horizon"
    )


def per_output(
    given: ArrayLike | None, name: str, mechanism: TrajectoryMechanism
) -> FloatArray | None:
    """Return one positive number for each output, or None if nothing was given.

    Parameters
    ----------
    given : float, array_like or None
        One number or one per output.
    name : str
        What to call it in a refusal.
    mechanism : TrajectoryMechanism
        Whose outputs.
    """
    if given is None:
        return None
    values = real_array(given, name)
    if values.shape not in ((), (mechanism.outputs,)):
        raise AffineDPError(
            f"{name} has shape {values.shape}: give one number, or one for each of "
            f"{mechanism.outputs} outputs"
        )
    if np.any(values <= 0) or np.any(values > MOST_GIVEN):
        raise AffineDPError(f"{name} must be positive, and at most {MOST_GIVEN:g}")
    return np.array(np.broadcast_to(values, (mechanism.outputs,)))
