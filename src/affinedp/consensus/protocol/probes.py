"""Mean-square errors of large networks: estimates with intervals that cover, whatever the network.

The part of the error that is not known in closed form is V (A − 2c B), where V is the variance of
η, c the share of its own draw that an agent takes off, and with S = diag(σ), C = I − 11ᵀ/n

    A = tr(S C QᵀQ C S) = E‖Q C S g‖²,     B = tr(S C Q C S) = E[gᵀ S C Q C S g]

for a vector g of independent standard normal numbers.  Both die out as t grows, so the estimate
becomes exact.  The mean Â of m values has the law of Σ λ_j χ²_m/m with λ_j ≥ 0, Σ λ_j = A and
λ_j ≤ A/r, where r = max(1, A/σ_max²), since ‖Q‖ ≤ 1.  The logarithm is concave, so among all such
λ the moment generating function is largest where r of them are equal, which is a gamma law with
shape a = m r/2.  Chernoff's bound gives, with h(y) = y − 1 − log y,

    P(Â/A ≤ y) ≤ exp(−a h(y)) for y < 1,     P(Â/A ≥ y) ≤ exp(−a h(y)) for y > 1,

and the interval for A holds every A that both leave.  For B the eigenvalues β_j of the symmetric
part have Σ β_j² ≤ σ_max² A and |β_j| ≤ min(σ_max², σ_max √A), so with A⁺ the upper end for A
(Laurent and Massart)

    |B̂ − B| ≤ 2 √(σ_max² A⁺ x/m) + 2 min(σ_max², σ_max √A⁺) x/m,

except with probability 2 e^−x.  Student's t would be narrower, and cover less than it says: a few
slow modes make the values as skewed as χ²₁.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.network.schedule import Mover
from affinedp.consensus.protocol.exact_errors import ErrorCurve, moved_to, squares_at
from affinedp.consensus.protocol.promise import Noise
from affinedp.consensus.protocol.simulation import RUNS_AT_ONCE
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

_HALVINGS = 60  # of an interval in logarithms: more than doubles can tell


def estimated_curve(
    mover: Mover,
    noise: Noise,
    x0: FloatArray,
    times: IntArray,
    share: float,
    probes: int,
    confidence: float,
    generator: np.random.Generator,
) -> ErrorCurve:
    """Return an unbiased estimate of the curve, with an interval.

    Parameters
    ----------
    mover : Mover
        What one step does.
    noise : Noise
        One draw per agent.
    x0 : array, shape (n,)
        x(0).
    times : array of int
        The steps, ascending.
    share : float
        c, the share of its own draw that an agent takes off.
    probes : int
        How many vectors g.
    confidence : float
        Of the interval at each step.
    generator : numpy.random.Generator
        Where they come from.
    """
    n, scale = len(x0), float(noise.sigma.max())
    unit = noise.sigma / (scale or 1.0)  # so that no square is beyond double precision
    a, b = _means(mover, unit, times, probes, generator)
    failure = (1 - confidence) / (1 if share == 0 else 2)
    trace = math.fsum(unit**2) * (1 - 1 / n)  # of A and B at t = 0; A never grows
    low_a, high_a = trace_interval(a, probes, 1.0, failure)
    low_a, high_a = np.minimum(low_a, trace), np.minimum(high_a, trace)
    x = math.log(2 / failure)
    half = 2 * np.sqrt(high_a * x / probes) + 2 * np.minimum(1.0, np.sqrt(high_a)) * x / probes
    begin = times == 0
    a[begin] = b[begin] = low_a[begin] = high_a[begin] = trace
    half[begin] = 0.0
    middle = np.clip(a, low_a, high_a) - 2 * share * b
    low, high = low_a - 2 * share * (b + half), high_a - 2 * share * (b - half)
    with np.errstate(over="ignore"):
        size = noise.variance * scale * scale
        # of the average of the draws, which stays, and of what an agent takes off
        stays = size * (1 - share) ** 2 * math.fsum(unit**2) / n
        sure = stays + size * share**2 * trace
        base = squares_at(mover, (x0 - x0.mean())[:, None], times, 0.0)[:, 0]
        values = base + sure + size * middle
        # noise adds to the bias and to what stays
        low = np.minimum(values, np.maximum(base + sure + size * low, base + stays))
        high = np.maximum(values, base + sure + size * high)
    if not np.isfinite(high).all():
        raise AffineDPError(
            "the squared errors are beyond double precision: use another unit, such as thousands"
        )
    method = f"an estimate from {probes} vectors of normal numbers"
    return ErrorCurve(values, low, high, False, confidence, method, times)


def _means(
    mover: Mover, sigma: FloatArray, times: IntArray, probes: int, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """The means over the probes of ‖Q v‖² and vᵀ Q v with v = C S g."""
    squares, products = np.zeros(len(times)), np.zeros(len(times))
    with Progress("estimating the error") as progress:
        for first in range(0, probes, RUNS_AT_ONCE):
            count = min(RUNS_AT_ONCE, probes - first)
            columns = generator.normal(size=(count, len(sigma))).T * sigma[:, None]
            columns = np.ascontiguousarray(columns - columns.mean(axis=0))
            if mover.order is not None:
                columns = columns[mover.order]
            for place, now in moved_to(mover, columns, times):
                squares[place] += np.einsum("ij,ij->", now, now)
                products[place] += np.einsum("ij,ij->", now, columns)
            progress.update((first + count) / probes)
    return squares / probes, products / probes


def trace_interval(
    mean: FloatArray, probes: int, largest: float, failure: float
) -> tuple[FloatArray, FloatArray]:
    """Return an interval for the trace A of a positive semidefinite matrix.

    Parameters
    ----------
    mean : array
        Of ``probes`` values of gᵀ M g.
    probes : int
        m.
    largest : float
        No eigenvalue is larger.
    failure : float
        The probability, at most, that the interval misses A, half of it on each side.

    Examples
    --------
    >>> low, high = trace_interval(np.array([100.0]), 64, 1.0, 0.05)
    >>> round(float(low[0]), 1), round(float(high[0]), 1)
    (95.2, 104.8)
    """
    enough = math.log(2 / failure)

    def covers(trace: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        y = mean / trace
        shape = probes / 2 * np.maximum(1.0, trace / largest)
        return np.asarray(shape * (y - 1 - np.log(y)) <= enough)

    ends = []
    positive = mean > 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for side in (-1.0, 1.0):
            # in logarithms of A/Â; beyond ±(enough + 2) nothing is covered for one probe
            inside = np.zeros(len(mean))
            outside = np.full(len(mean), side * 2 * (enough + 2))
            for _ in range(_HALVINGS):
                middle = (inside + outside) / 2
                kept = covers(mean * np.exp(middle))
                inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
            ends.append(np.where(positive, mean * np.exp(outside), 0.0))
    return ends[0], ends[1]
