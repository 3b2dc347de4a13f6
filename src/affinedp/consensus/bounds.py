"""Proposition 1 of the paper, proved numbers of steps, and the best ε for a given error."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.promise import Noise
from affinedp.consensus.readouts import limit_factor, noise_share
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_epsilon

EPS = float(np.finfo(float).eps)
# Sums of many squares, roots and powers: more than all their roundings together.
ROUNDING_UP = 1 + 1e-12
# The least positive double.
SMALLEST = float(np.nextafter(0.0, 1.0))
# No sensible number of steps is larger; float counts are exact up to here.
MOST_STEPS = 2.0**53


def path_bound(alpha: float, x0: FloatArray, gamma: FloatArray, steps: int) -> FloatArray:
    """Return Proposition 1 (i): α^t ‖x(0)‖ + (1 + α^t) ‖γ‖, which no run exceeds."""
    powers = alpha ** np.arange(steps + 1)
    noise = np.asarray(length(gamma))[..., None]
    return upwards(lambda: powers * length(x0) + (1 + powers) * noise)


def mean_bound(alpha: float, x0: FloatArray, steps: int) -> FloatArray:
    """Return α^t ‖x(0) − average‖ ≥ ‖E x(t) − average‖: Proposition 1 (ii) at every step."""
    spread = length(x0 - x0.mean())
    return upwards(lambda: alpha ** np.arange(steps + 1) * spread)


def mean_square_bound(alpha: float, x0: FloatArray, noise: Noise, steps: int) -> FloatArray:
    """Return α^2t ‖x(0) − average‖² + (1 + α^t)² Σ E γ_i²: Proposition 1 (iii) at every step."""
    powers = alpha ** np.arange(steps + 1)
    spread, total = length(x0 - x0.mean()), noise.total_variance
    return upwards(lambda: (powers * spread) ** 2 + (1 + powers) ** 2 * total)


def length(vectors: FloatArray) -> FloatArray:
    """Return ‖·‖ along the last axis, also where squares are beyond double precision.

    >>> float(length(np.array([3e-300, 4e-300])))
    5e-300
    """
    largest = np.abs(vectors).max(axis=-1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.linalg.norm(vectors / scale[..., None], axis=-1) * largest)


def upwards(compute: Callable[[], FloatArray]) -> FloatArray:
    """Return a bound rounded up; one beyond double precision is refused."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = np.asarray(compute() * ROUNDING_UP)
    if not np.isfinite(found).all():
        raise AffineDPError(
            "the bound is beyond double precision: use another unit, such as thousands"
        )
    # what became 0 on the way may have been more
    return np.maximum(found, SMALLEST)


def shrinking_steps(alpha: float, factor: float) -> int:
    """Return a t with α^t ≤ factor, at most one more than needed for this α.

    >>> shrinking_steps(0.5, 0.1)
    4
    """
    if factor >= 1.0:
        return 0
    if not alpha < 1.0:
        raise AffineDPError("no number of steps can be proved: α may be 1 within rounding")
    if alpha <= 0.0:
        return 1
    steps = math.log(factor) / math.log(alpha) * (1 + 4 * EPS)
    if not steps < MOST_STEPS:
        raise AffineDPError("differences die out too slowly for a number of steps: α is almost 1")
    return math.ceil(steps)


def settling_steps(
    alpha: float, noise: Noise, readout: str, spread: float, tolerance: float
) -> int:
    """Return a t from which on the mean-square error is within ``tolerance`` of its limit.

    With S the total variance of the noise times (1 − 1/n), the difference is at most
    α^2t (spread² + S) + 2 c α^t S for a read-out with share c.
    """
    n = len(noise.sigma)
    total = noise.total_variance * (1 - 1 / n) * ROUNDING_UP
    linear = noise_share(readout, n) * total
    square = (spread * spread + total) * ROUNDING_UP
    if not math.isfinite(square):
        raise AffineDPError("the square of spread is beyond double precision: use another unit")
    if spread == 0.0 and total == 0.0:
        return 0
    square = max(square, SMALLEST)
    # the positive root of square p² + 2 linear p = tolerance, without cancellation
    power = tolerance / (linear + math.hypot(linear, math.sqrt(square) * math.sqrt(tolerance)))
    return shrinking_steps(alpha, power * (1 - 1e-12))


def optimal_epsilon(noise: Noise, zeta: float, readout: str, delta: float | None) -> float:
    """Return the least ε with which the limit of the mean-square error is at most ζ.

    σ_i is proportional to μ_i, as the least noise for one ε is.  The paper's trade-off is
    ``readout="paper"``: it uses the bound Σ E γ_i² in place of the limit.
    """
    factor = 1.0 if readout == "paper" else limit_factor(readout, len(noise.mu))
    squares = factor * noise.variance * math.fsum(noise.mu**2)
    sensitivity = math.sqrt(squares) / math.sqrt(zeta) * (1 + 8 * EPS)
    if noise.law == "laplace":
        return sensitivity
    if delta is None or not 0 < delta < 1:
        raise AffineDPError(f"Gaussian noise needs delta between 0 and 1, not {delta!r}")
    return float(gaussian_epsilon(float(delta), sensitivity))
