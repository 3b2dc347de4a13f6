"""How far sums of Laplace noises reach, from their characteristic function."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray

# Terms of the Fourier series; what is left out is bounded and counted against the coverage.
TERMS = 4096
# Numbers in one table of the series' factors.
MOST_WORK = 2e7
TAIL = 1e-12
# Scales of a sum that are told apart.
MOST_SCALES = 400
# Slopes for Chernoff's bound, as shares of the steepest: steep ones for few terms, flat for many.
SLOPES = np.concatenate([np.geomspace(1e-6, 1e-3, 200), np.linspace(0.001, 0.999, 999)])


def laplace_reach(scales: FloatArray, times: FloatArray, outside: float) -> float:
    """Return the half width for a sum of Laplace noises with these scales, never too small.

    Parameters
    ----------
    scales : array
        Positive, the largest first.
    times : array
        How many terms have each of them.
    outside : float
        In (0, 1): the probability of more.
    """
    if len(scales) == 1 and times[0] == 1:
        return -math.log(outside) * float(scales[0])
    safe = chernoff_reach(scales, times, outside)
    far = chernoff_reach(scales, times, TAIL)
    if len(scales) * float(TERMS) > MOST_WORK or safe >= far:
        return safe
    step = math.pi / far  # the series has period 2 far, so what wraps around is beyond far
    frequency: FloatArray = step * np.arange(1.0, TERMS + 1)
    decay = np.exp(-(np.log1p(np.outer(frequency, scales) ** 2) @ times)) / frequency
    missing = _left_out(scales, times, float(frequency[-1])) + TAIL

    return covering(decay, frequency, far, missing, 1 - outside, safe)


def laplace_total_reach(scales: FloatArray, times: FloatArray, outside: float) -> float:
    """Return t with ``P(|Σ b_i η_i| > t) ≤ outside`` for independent Laplace numbers η.

    Scales are taken a little larger so that few of them differ, which makes a sum of symmetric
    unimodal noises reach farther (Birnbaum 1948): the result is never too small, and at most a
    thousandth too large.

    Parameters
    ----------
    scales : array
        The b_i that differ, at least 0.
    times : array
        How many terms have each of them.
    outside : float
        In (0, 1).
    """
    kept = (scales > 0) & (times > 0)
    given, count = scales[kept], times[kept]
    if not len(given):
        return 0.0
    largest = float(given.max())  # squares of small and of large numbers are no doubles
    size = largest * math.sqrt(float((count * (given / largest) ** 2).sum()))
    if len(given) > MOST_SCALES:
        # up to the next power of 1.0005, and nothing below a millionth of the whole
        steps = np.ceil(np.log(np.maximum(given / size, 1e-7)) / math.log1p(5e-4))
        different, where = np.unique(steps, return_inverse=True)
        given = np.exp(different * math.log1p(5e-4)) * size * (1 + 1e-12)
        count = np.asarray(np.bincount(where, count), dtype=float)
    order = np.argsort(-given)
    reach = laplace_reach(given[order] / size, count[order], outside)
    return reach * size * (1 + 1e-12)


def covering(
    decay: FloatArray,
    frequency: FloatArray,
    far: float,
    missing: float,
    level: float,
    safe: float,
) -> float:
    """Return the least t at which a Fourier series says that ``|sum| ≤ t`` has this probability.

    Parameters
    ----------
    decay : array
        The characteristic function at the frequencies, over them.
    frequency : array
        Multiples of π / far.
    far : float
        Half a period of the series.
    missing : float
        What is left out of the series, and what wraps around: taken off the probability.
    level : float
        In (0, 1).
    safe : float
        A t that certainly has it; returned where the series does not say so.
    """
    step = math.pi / far

    def coverage(t: float) -> float:
        series = float(decay @ np.sin(frequency * t))
        return t / far + 2 * step / math.pi * series - missing

    if coverage(safe) < level:
        return safe
    low, high = 0.0, safe
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if coverage(middle) >= level else (middle, high)
    return high


def _left_out(scales: FloatArray, times: FloatArray, last: float) -> float:
    """What the terms of the series beyond the last frequency add up to at most."""
    largest = np.repeat(scales[:64], np.minimum(times[:64], 64).astype(int))[:64]
    logs = 2 * np.cumsum(np.log(largest * last))
    bounds = np.exp(-np.maximum(logs, -700)) / (2 * np.arange(1, len(largest) + 1))
    return 2 / math.pi * float(bounds.min())


def chernoff_reach(scales: FloatArray, times: FloatArray, probability: float) -> float:
    """Return a t with ``P(|sum| > t) ≤ probability``: Chernoff's bound, at the best of many slopes.

    Parameters
    ----------
    scales, times : arrays
        As for :func:`laplace_reach`.
    probability : float
        In (0, 1).
    """
    theta = SLOPES / float(scales.max())
    logs = -(np.log1p(-(np.outer(theta, scales) ** 2)) @ times)
    return float(((logs - math.log(probability / 2)) / theta).min())
