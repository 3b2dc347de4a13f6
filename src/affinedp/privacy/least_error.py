"""The least squared error of any mechanism, of whatever law, for one number that moves by 1.

Every number here is a lower bound, rounded down, on the worst-case expected squared error of every
mechanism that keeps (ε, δ) for data that may be anywhere on a line, with neighbours one
step apart.  Averaging over translations makes any mechanism additive, so the bound is about the law
of the noise alone.

For δ > 0 the optimum is a mixture of two-sided geometric laws that are cut off.  With
``q = e^-ε`` let ``P(j, k)`` put mass proportional to ``q^|i|`` on ``i = -k, …, j``, about its mean,
``N`` its normaliser, and ``d = (q^j + q^k)/2N`` the δ that cutting costs.  For every λ ≥ 0

    E z² + λ (δ₊ + δ₋)/2  ≥  ν(λ) = min over j, k of  var P(j, k) + λ d(j, k)

for all laws on the line, so ``ν(λ) − λ δ`` bounds the error.  The proof is a dual certificate:
numbers ``a_i = min over j of  q^j λ/2 + Σ_{l ≤ j} q^l ((i + l + u)² − ν)`` for every offset u of
the outputs from the data.  They grow with i, so ``0 ≤ a_0`` makes all of them feasible, and one
inequality at the middle is left (docs/explanation/least-known.md).  Both are checked here for
all offsets at once, with room for every rounding error; the search for λ need not be trusted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from affinedp.arrays import FloatArray, within_range
from affinedp.errors import AffineDPError

Data = Literal["any", "real", "integer"]

# Room for the rounding of some dozen operations and of exp.
DOWN = 1 - 1e-13
# Relative room in the certificate: powers of q are off by 1e-13 at most, sums of them by less.
ROOM = 2e-12
# A law with more points than this is bounded through longer steps instead.
MOST_POINTS = 200_000
# Beyond this ε the least error is below 1e-250: of no use to anyone.
MOST_EPSILON = 600.0


@within_range
def least_variance(epsilon: float, delta: float = 0.0, data: Data = "any") -> float:
    """Return what no mechanism with (ε, δ) can go below, for one number that moves by 1."""
    if not (0.0 <= epsilon < math.inf and 0.0 <= delta < 1.0) or epsilon == delta == 0.0:
        raise AffineDPError(
            f"ε must be at least 0 and δ in [0, 1), not both 0; not {epsilon!r}, {delta!r}"
        )
    if data not in ("any", "real", "integer"):
        raise AffineDPError(f"data must be 'any', 'real' or 'integer', not {data!r}")
    if epsilon > MOST_EPSILON:
        return 0.0
    if delta == 0.0:
        return _staircase(epsilon) if data == "real" else _geometric(epsilon)
    return _truncated(float(epsilon), float(delta))


def least_sum_of_three(epsilon: float) -> float:
    """Return the least squared error for three whole numbers with a public sum, at pure ε.

    Attained by whole outputs, and proved for all mechanisms, real outputs included: data
    anywhere on the lattice (no bound on the entries), neighbours exactly ±(e_i − e_j).
    """
    if not 0.0 < epsilon < math.inf:
        raise AffineDPError(f"ε must be positive, not {epsilon!r}")
    q = math.exp(-epsilon)
    return 12 * q * (1 + 3 * q + q * q) / (math.expm1(-epsilon) ** 2 * (1 + 4 * q + q * q)) * DOWN


def _geometric(epsilon: float) -> float:
    """1/(2 sinh²(ε/2)): the two-sided geometric law."""
    return 2.0 * math.exp(-epsilon) / math.expm1(-epsilon) ** 2 * DOWN


def _staircase(epsilon: float) -> float:
    """The staircase law of Geng and Viswanath with its best step."""
    b, rest = math.exp(-epsilon), -math.expm1(-epsilon)
    return ((0.5 * b * (1.0 + b)) ** (2.0 / 3.0) + b) / rest**2 * DOWN if b > 0.0 else 0.0


def _truncated(epsilon: float, delta: float) -> float:
    steps = _steps(epsilon, delta)
    if steps > 1:
        # moves of several steps at once: group privacy gives their promise
        grown = math.expm1(steps * epsilon) / math.expm1(epsilon) if epsilon > 0 else float(steps)
        return float(steps) ** 2 * _truncated(steps * epsilon, delta * grown * (1 + 1e-12)) * DOWN
    slope = _best_slope(epsilon, delta)
    for shrink in (1e-11, 1e-10, 1e-9, 1e-8, 1e-6):
        value = slope.value * (1.0 - shrink)
        if _proved(epsilon, slope.penalty, value):
            return max(0.0, value - slope.penalty * delta * (1 + 1e-15)) * DOWN
    return 0.0


def _steps(epsilon: float, delta: float) -> int:
    """How many steps to take at once, so that the laws have at most MOST_POINTS points."""
    reach = 1.0 / delta
    if epsilon > 0.0:
        reach = min(reach, 4.0 * (1.0 + math.log1p(1.0 / delta)) / epsilon + 8.0)
    return max(1, math.ceil(reach / MOST_POINTS))


@dataclass(frozen=True)
class _Slope:
    """λ, and the least variance plus λ times δ over the laws that were tried."""

    penalty: float
    value: float


def _best_slope(epsilon: float, delta: float) -> _Slope:
    """The λ of the lower convex envelope of (δ, variance) at δ, by cutting planes."""
    reach = 1.0 / delta
    if epsilon > 0.0:
        reach = min(reach, 4.0 * (1.0 + math.log1p(1.0 / delta)) / epsilon)
    count = int(reach) + 8
    cost, variance = _laws(epsilon, count)
    pure = _geometric(epsilon) if epsilon > 0.0 else math.inf
    left = (0.0, pure) if math.isfinite(pure) else (float(cost[-1]), float(variance[-1]))
    right = (1.0, 0.0)
    while True:
        penalty = (left[1] - right[1]) / (right[0] - left[0])
        value = left[1] + penalty * left[0]
        tried = variance + penalty * cost
        best = int(tried.argmin())
        if not tried[best] < value * (1 - 1e-13):
            return _Slope(penalty, value)
        point = (float(cost[best]), float(variance[best]))
        if point[0] <= delta:
            left = point
        else:
            right = point


def _laws(epsilon: float, count: int) -> tuple[FloatArray, FloatArray]:
    """δ and variance of the cut laws with 1, 2, …, ``count`` points."""
    place = np.arange(count // 2 + 2, dtype=float)
    mass = np.exp(-epsilon * place)
    sums = [np.cumsum(mass * place**power) for power in (0, 1, 2)]
    index = np.arange(count)
    right, left = (index + 1) // 2, index // 2
    total = sums[0][right] + sums[0][left] - 1.0
    mean = (sums[1][right] - sums[1][left]) / total
    variance = (sums[2][right] + sums[2][left]) / total - mean**2
    return (mass[right] + mass[left]) / (2.0 * total), np.maximum(variance, 0.0)


def _proved(epsilon: float, penalty: float, value: float) -> bool:
    """Whether ``E z² + λ (δ₊ + δ₋)/2 ≥ ν`` is certain for all laws, with λ and ν given.

    An offset u in [0, ½] of the outputs is enough, by symmetry.  Chains of a_i to the right and
    to the left stop where |i ± u| reaches ``√(ν + (e^ε − 1) λ/2)``; both stops are known up to
    one, and some more are tried against rounding.
    """
    reach = math.sqrt(value + math.expm1(epsilon) * penalty / 2.0)
    if not reach < 4.0 * MOST_POINTS:
        return False
    last = math.ceil(reach) - 1
    stops = [stop for stop in range(last - 3, last + 4) if stop >= 0]
    place = np.arange(stops[-1] + 1, dtype=float)
    mass = np.exp(-epsilon * place)
    chains = {}
    for stop in stops:
        m, i = mass[1 : stop + 1], place[1 : stop + 1]
        chains[stop] = (
            float(mass[stop]), math.fsum(m), math.fsum(m * i), math.fsum(m * i * i),
        )  # fmt: skip
    return all(
        _start_is_feasible(chains[stop], penalty, value) for stop in stops
    ) and all(
        _middle_is_feasible(chains[right], chains[left], penalty, value)
        for right in stops
        for left in stops
    )  # fmt: skip


def _start_is_feasible(
    chain: tuple[float, float, float, float], penalty: float, value: float
) -> bool:
    """``a_0 ≥ 0`` at u = −½, where it is least."""
    end, total, first, second = chain
    kept = end * penalty / 2.0 + second + total / 4.0
    lost = first + value * total
    return kept - lost >= ROOM * (kept + lost)


def _middle_is_feasible(
    right: tuple[float, float, float, float],
    left: tuple[float, float, float, float],
    penalty: float,
    value: float,
) -> bool:
    """``u² + a_0(u) + a_0(−u) ≥ ν`` for all u in [0, ½], when the chains stop there."""
    total = 1.0 + right[1] + left[1]
    constant = (right[0] + left[0]) * penalty / 2.0 + right[3] + left[3]
    slope = 2.0 * (right[2] - left[2])
    u = min(max(-slope / (2.0 * total), 0.0), 0.5)
    found = constant + slope * u + total * u * u
    # moving u by a rounding changes the least value by the square of it only
    size = constant + 2.0 * (right[2] + left[2]) * u + total * (u * u + value)
    return found - value * total >= ROOM * size
