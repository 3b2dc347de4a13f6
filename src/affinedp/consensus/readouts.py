"""What an agent reads off as its estimate of the average, who may see it, and how far off it ends.

Every read-out is y_i − c γ_i, the message minus a share c of the agent's own draw:

* ``"state"``      c = 1    x_i itself, as in the paper;
* ``"message"``    c = 0    y_i, which everyone sees anyway;
* ``"corrected"``  c = 1/n  private to agent i, and the least mean-square error of the three.

The messages run plain consensus, y(t+1) = P y(t) with P = I − L, so a read-out with share c ends
at a mean-square error of ((1−c)²/n + c²(1−1/n)) times the total variance of the noise.  Then
Proposition 1 of the paper, proved numbers of steps, and the best ε for a given error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Literal, NoReturn

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.one_draw import Noise
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_epsilon

Readout = Literal["state", "message", "corrected"]

READOUTS: tuple[Readout, ...] = ("state", "message", "corrected")

EPS = float(np.finfo(float).eps)
# Sums of many squares, roots and powers: more than all their roundings together.
ROUNDING_UP = 1 + 1e-12
# The least positive double.
SMALLEST = float(np.nextafter(0.0, 1.0))
# No sensible number of steps is larger; float counts are exact up to here.
MOST_STEPS = 2.0**53


def noise_share(readout: str, n: int) -> float:
    """Return c, the share of its own draw that an agent takes off its message."""
    shares = {"state": 1.0, "message": 0.0, "corrected": 1.0 / n}
    if not isinstance(readout, Hashable) or readout not in shares:
        raise AffineDPError(f"readout must be one of {', '.join(READOUTS)}, not {readout!r}")
    return shares[readout]


def limit_factor(readout: str, n: int) -> float:
    """Return the mean-square error in the limit, in units of the total variance of the noise."""
    share = noise_share(readout, n)
    return (1 - share) ** 2 / n + share**2 * (1 - 1 / n)


def refuse_to_publish(readout: str) -> NoReturn:
    """Say why a simulated read-out is not published."""
    if noise_share(readout, 2):
        raise AffineDPError(
            f"the {readout} read-out must stay with its agent: the message y_i is already public, "
            "and their difference gives away γ_i, the one draw of agent i, which reveals x_i(0). "
            "Publish the message of an agent"
        )
    raise AffineDPError(
        "a simulated message must not be published: its noise comes from a generator that can be "
        "guessed and from doubles that leak. Let PrivateConsensus.agent draw it"
    )


def proposition_1(
    statement: str, powers: FloatArray, x0: FloatArray, noise: Noise, gamma: FloatArray | None
) -> FloatArray:
    """Return the bounds of Proposition 1 where α^t is as given.

    (i) "path": α^t ‖x(0)‖ + (1 + α^t) ‖γ‖, which no run with the draws γ exceeds; (ii) "mean":
    α^t ‖x(0) − average‖; (iii) "mean-square": α^2t ‖x(0) − average‖² + (1 + α^t)² Σ E γ_i².
    """
    if gamma is not None:
        drawn = np.asarray(length(gamma))[..., None]
        return upwards(lambda: powers * length(x0) + (1 + powers) * drawn)
    spread = length(x0 - x0.mean())
    if statement == "mean":
        return upwards(lambda: powers * spread)
    total = noise.total_variance
    return upwards(lambda: (powers * spread) ** 2 + (1 + powers) ** 2 * total)


def length(vectors: FloatArray) -> FloatArray:
    """Return ‖·‖ along the last axis, also where squares are beyond double precision."""
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
    """Return a t with α^t ≤ factor, at most one more than needed for this α."""
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
