"""What a gateway must know of a mechanism to choose its grids and its fresh noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.sensors import Sensor
from affinedp.errors import AffineDPError
from affinedp.files.saved import AGREEMENT
from affinedp.mechanism import Mechanism
from affinedp.parts import Part
from affinedp.privacy.guarantee import promise
from affinedp.strategies.base import GRID_BITS, SHARE
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import LEAST_BITS, Fresh, Trajectory

# Without a declared error, 2e/τ over all steps and outputs adds up to twice this share of s.
DEVIATION_SHARE = 2.0**-16
# τ is at most this share of the noise (the lower decile over time), unless the caller decides.
FRESH_SHARE = 2.0**-10
# The same for very many steps, each of which rounds: a part in a thousand of the variance.
FRESH_SHARE_ENDLESS, MANY_STEPS = 2.0**-5, 2**24
# ζ of stationary noise lives on multiples of 2^-STREAM_BITS of its scale: there are very many.
STREAM_BITS = 96
# For sums and roots in double precision; far more than they round.
SAFE = 1e-12
# Steps whose noise is listed to choose by.
MOST_STEPS = 20_000_000


@dataclass(frozen=True)
class Facts:
    """What the plan of a gateway follows from."""

    # of the outputs
    names: tuple[str, ...]
    # s
    sensitivity: float
    # T, how many are sent at most
    steps: int
    # how far output i moves at most if every number that is drawn once moves by 2⁵⁶ steps of
    # its grid
    loading: FloatArray
    # V, of the correlated noise, over all outputs and steps
    variance: float
    # fresh noise that is far below the noise; 0 for an output without any
    usual: FloatArray
    # whether δ = 0 is promised: losses add up, and the fresh noise is Laplace noise
    pure: bool = False

    @property
    def draws(self) -> int:
        """T m, the fresh ones."""
        return self.steps * len(self.names)

    def own_error(self, fresh: FloatArray) -> FloatArray:
        """Return a bound on all that is rounded: y and γ to the grid, the path, and the draws."""
        own = fresh * 2.0 ** -(GRID_BITS - 1) + self.loading * 2.0 ** -(GRID_BITS + 1)
        return np.asarray(own * (1 + SAFE))

    def free_deviation(self, fresh: FloatArray) -> FloatArray:
        """Return the deviation that costs next to nothing."""
        many = float(self.draws) if self.pure else math.sqrt(self.draws)
        return np.asarray(fresh * (self.sensitivity * DEVIATION_SHARE / many))

    def least_fresh(self) -> FloatArray | None:
        """Return the fresh noise from which our own rounding costs next to nothing, if any."""
        spare = float(self.free_deviation(np.array(1.0))) / 2
        spare -= 2.0 ** -(GRID_BITS - 1) * (1 + SAFE)
        if spare <= 0:
            return None
        return np.asarray(self.loading * 2.0 ** -(GRID_BITS + 1) / spare)


def facts_of(mechanism: Mechanism, strategy: Causal, steps: int, every: int = 1) -> Facts:
    """Return the facts of noise with a memory, over the steps of a run that are sent."""
    check_promise(mechanism)
    if isinstance(strategy, Trajectory):
        return _of_one_draw(mechanism, strategy, every)
    if isinstance(strategy, Filter):
        return _of_filter(mechanism, strategy, -(-steps // every))
    raise AffineDPError(f"a gateway does not know noise of a {type(strategy).__name__}")


def _of_one_draw(mechanism: Mechanism, strategy: Trajectory, every: int) -> Facts:
    """The facts of noise from one draw."""
    dynamics, law = strategy.domain, mechanism.noise
    if dynamics.horizon > MOST_STEPS:
        raise AffineDPError(
            f"a horizon of {dynamics.horizon:,} steps is too long to send one by one: give "
            "horizon=, how many steps this run has at most, or send once and predict "
            "(once_then_predict)"
        )
    deviations = strategy.deviations(law, dynamics.horizon)
    # these are doubles: each is off by at most (2n + 4) ulp of |C| |A…A| |R|
    rows = np.abs(dynamics.C.reshape(-1, *dynamics.C.shape[-2:])).max(axis=0)
    size = np.linalg.norm(rows, axis=1) * math.sqrt(np.trace(law.covariance(strategy.start)))
    size = size * math.ldexp(1.0, strategy.growth)
    largest = deviations.max(axis=0) + size * dynamics.states * 2.0**-40
    sent = deviations[::every]
    return Facts(
        dynamics.output_names,
        mechanism.guarantee.sensitivity,
        len(sent),
        math.sqrt(strategy.coordinates) * largest * (1 + SAFE),
        float((sent**2).sum()),
        np.array([_usual(spread) for spread in sent.T]),
        law.norm != 2,
    )


def _of_filter(mechanism: Mechanism, made: Filter, steps: int) -> Facts:
    """Return the facts of stationary noise."""
    moved = made.loading() * made.scale * 2.0 ** (GRID_BITS - STREAM_BITS) * (1 + SAFE)
    deviations = np.sqrt(made.last_variances(mechanism.noise))
    more = FRESH_SHARE_ENDLESS / FRESH_SHARE if steps > MANY_STEPS else 1.0
    facts = Facts(
        made.step_names,
        mechanism.guarantee.sensitivity,
        steps,
        moved,
        made.mean_variance(mechanism.noise) * steps,
        more * np.array([_usual(np.array([spread])) for spread in deviations]),
    )
    least = facts.least_fresh()
    if least is None:
        return facts
    # a long memory and many steps need a little more
    return replace(facts, usual=np.maximum(facts.usual, 1.01 * least))


def _usual(spread: FloatArray) -> float:
    noisy = spread[spread > 0]
    if not len(noisy):
        return 0.0
    usual = FRESH_SHARE * float(np.quantile(noisy, 0.1, method="lower"))
    return math.ldexp(1.0, math.frexp(usual)[1] - 1)


def check_promise(mechanism: Mechanism) -> None:
    """Refuse a guarantee that promises nothing, or more than its noise keeps."""
    guarantee = mechanism.guarantee
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is sent with it")
    found = promise(mechanism.adjacency, mechanism.strategy, mechanism.noise).sensitivity
    if not found <= guarantee.sensitivity * (1 + AGREEMENT):
        raise AffineDPError(
            f"the guarantee states a sensitivity of {guarantee.sensitivity!r}, but the noise gives "
            f"{found!r}: they do not belong together"
        )


# Published are multiples of τ / 2^PUBLISHED_BITS.
PUBLISHED_BITS = 2
# τ outside of 2^±LARGEST is refused: noise whose square underflows would not be seen here.
LARGEST = 400
# So much of the promise may go to a declared error at most; then the noise is 32 times as large.
MOST_SHARE = 0.999


@dataclass(frozen=True)
class GatewayPlan(Part):
    """Everything about a gateway that is public and fixed before the draw."""

    kind = "gateway plan"
    # the fresh noise on output i lies on a grid of ``2**(fresh_exponents[i] − 56)``
    fresh_exponents: tuple[int, ...]
    # its standard deviation τ_i in units of that grid, from 2⁵⁶ up to 2⁵⁷
    fresh_scales: tuple[int, ...]
    # how far recorded measurements may be off the equations
    measurement_error: tuple[float, ...]
    # e_i: that, and all that is rounded here
    deviation: tuple[float, ...]
    # c, by which the correlated noise is enlarged
    noise_factor: float
    # fixed-point bits of the noise's path
    path_bits: int
    # law of the fresh noise: Gaussian, or Laplace of scale τ where δ = 0 is promised
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


def plan_for(
    facts: Facts,
    sensor: Sensor,
    fresh: Sequence[float],
    bits: Callable[[Sequence[int]], int],
) -> GatewayPlan:
    """Choose fresh noise and grids by the facts of a mechanism.

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> from affinedp.control.gateway_plan import facts_of
    >>> from affinedp.control.sensors import sensor_of
    >>> m = design_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> facts, bits = facts_of(m, m.strategy, 100), m.strategy.path_bits
    >>> plan = plan_for(facts, sensor_of(("y1",), "exact"), (), bits)
    >>> plan.fresh_exponents, plan.noise_factor < 1 + 1e-8, plan.measurement_error[0] > 7e-10
    ((-10,), True, True)
    >>> plan = plan_for(facts, sensor_of(("y1",), 2e-3), (), bits)          # it rounds to 2e-3
    >>> round(float(plan.fresh_noise[0]), 3), round(plan.noise_factor, 3)
    (0.268, 1.01)
    """
    declared = sensor.deviation()
    exponents, integers = on_grids(fresh or _chosen_scales(facts, sensor))
    noise = np.array([math.ldexp(k, e - GRID_BITS) for k, e in zip(integers, exponents)])
    own, free = facts.own_error(noise), facts.free_deviation(noise)
    if declared is None and np.any(own > free / 2):
        raise _too_fine(facts, own, free)
    needed = np.zeros(len(facts.names)) if declared is None else declared
    deviation = np.maximum((needed + own) * (1 + SAFE), free)
    return GatewayPlan(
        fresh_exponents=exponents,
        fresh_scales=integers,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=_noise_factor(facts, deviation / noise),
        path_bits=bits([e - GRID_BITS - 4 for e in exponents]),
        fresh_law="laplace" if facts.pure else "gaussian",
    )


def on_grids(scales: Iterable[float]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


def white_plan(mechanism: Mechanism, strategy: Fresh, sensor: Sensor) -> GatewayPlan:
    """Choose scales and grids for independent noise over the horizon of the strategy.

    Examples
    --------
    >>> from affinedp.control import independent_output_noise
    >>> from affinedp.control.sensors import sensor_of
    >>> m = independent_output_noise(([[1]], [[1]]), horizon=100, epsilon=1, delta=0.01)
    >>> plan = white_plan(m, m.strategy, sensor_of(("y1",), 0.1))
    >>> bool(np.isclose(plan.fresh_noise[0] / m.strategy.sigma, 1.1))
    True
    """
    check_promise(mechanism)
    s, steps, outputs = mechanism.guarantee.sensitivity, strategy.horizon, strategy.domain.outputs
    sigma = np.full(outputs, strategy.sigma)
    declared = sensor.deviation()
    free = sigma * (s * DEVIATION_SHARE / math.sqrt(steps * outputs))
    needed = np.zeros(len(sigma)) if declared is None else declared
    # y is rounded to a grid of 2^-56 of the final noise, which this bounds generously
    growth = 1 + 2 * math.sqrt(steps * float(((needed / sigma) ** 2).sum())) / s
    own = 2.0 ** -(GRID_BITS - 1) * sigma * growth
    deviation = np.maximum((needed + own) * (1 + SAFE), free)
    box = math.sqrt(steps * float(((2 * deviation / sigma) ** 2).sum()))
    factor = (s + box) / s * (1 + SHARE) * (1 + 8 * SAFE)
    exponents, integers = on_grids(sigma * factor)
    return GatewayPlan(
        fresh_exponents=exponents,
        fresh_scales=integers,
        measurement_error=tuple(float(v) for v in (deviation - own) * (1 - SAFE)),
        deviation=tuple(float(v) for v in deviation),
        noise_factor=1.0,
        path_bits=LEAST_BITS,
    )
