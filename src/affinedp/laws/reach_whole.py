"""How far sums of whole Laplace noise reach: many equal ones, and some with coefficients."""

from __future__ import annotations

import functools
import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.laws.reach_sums import MOST_SERIES, SERIES_TAIL, SLOPES, covering, laplace_total_reach

# The smoothing number is so many times smaller than the reach, and damps the series up to here.
SMOOTH = 400
LAST = 8.5
# P(W > −3κ), rounded down.
NORMAL_3 = 0.99865


@functools.lru_cache(maxsize=4096)
def equal_sum_reach(scale: float, terms: int, outside: float) -> float:
    """Return how far a sum of so many Laplace numbers of one scale reaches; never too small."""
    return laplace_total_reach(np.array([scale]), np.array([float(terms)]), outside)


def whole_reach(scale: float, terms: int, outside: float) -> float:
    """Return how far a sum of so many whole Laplace numbers of one scale reaches.

    A Laplace number is the difference of two exponential ones.  Their whole parts are geometric,
    independent of the rests, and differ by whole Laplace noise.  So a sum L on the line is the
    whole sum S and independent noise; a window of length 2k + 1 holds 2k + 1 whole numbers
    wherever it is, and S is symmetric and unimodal: P(|S| ≤ k) ≥ P(|L| ≤ k + ½).
    """
    return float(math.ceil(max(equal_sum_reach(scale, terms, outside) - 0.5, 0.0)))


def whole_sum_reach(
    factors: FloatArray, rates: FloatArray, times: FloatArray, outside: float
) -> float:
    """Return t with ``P(|Σ c_i S_i| > t) ≤ outside`` for independent whole Laplace numbers S.

    Their law has jumps, so a Gaussian number W of deviation κ = t/400 smooths it.  The
    characteristic function of the sum X + W is ``e^(−κ²θ²/2) Π 1/(1 + sin²(c θ/2)/sinh²(y/2))``,
    and its series is cut off with all that is left out counted against the coverage.  X beyond t
    and W above −3κ mean X + W beyond t − 3κ: ``P(|X| > t) ≤ P(|X + W| > t − 3κ) / Φ(3)``.

    Parameters
    ----------
    factors, rates, times : arrays
        c and y of the numbers that differ, P(S = i) ∝ exp(−y |i|), and how many there are of each.
    outside : float
        In (0, 1).

    Examples
    --------
    >>> one = np.ones(1)
    >>> 2 < whole_sum_reach(one, one, one, 0.1) < 2.05       # P(|S| ≤ 2) = 0.927, P(|S| ≤ 1) = 0.80
    True
    """
    kept = (factors > 0) & (times > 0)
    c, y, count = factors[kept], rates[kept], times[kept]
    if not len(c):
        return 0.0
    safe = _whole_chernoff(c, y, count, outside)
    far = _whole_chernoff(c, y, count, SERIES_TAIL)
    smooth = safe / SMOOTH
    far += 8 * smooth  # P(|W| > 8κ) < SERIES_TAIL
    step = math.pi / far
    terms = math.ceil(LAST / smooth / step)
    if len(c) * float(terms) > MOST_SERIES or safe >= far:
        return safe
    frequency: FloatArray = step * np.arange(1.0, terms + 1)
    logs = -((smooth * frequency) ** 2) / 2
    for factor, rate, often in zip(c.tolist(), np.sinh(y / 2).tolist(), count.tolist()):
        logs -= often * np.log1p((np.sin(factor / 2 * frequency) / rate) ** 2)
    decay = np.exp(logs) / frequency
    # beyond the last term: Σ e^(−κ²θ²/2)/θ ≤ e^(−L²/2) (1 + 1/L²) / (step θ), and L = 8.5
    missing = 3 * SERIES_TAIL
    wanted = 1 - outside * NORMAL_3

    high = covering(decay, frequency, far, missing, wanted, safe)
    return min(safe, (high + 3 * smooth) * (1 + 1e-12))


def _whole_chernoff(
    factors: FloatArray, rates: FloatArray, times: FloatArray, probability: float
) -> float:
    """A t with ``P(|sum| > t) ≤ probability``, at the best of many slopes."""
    slopes = SLOPES * float((rates / factors).min())
    logs = np.zeros(len(slopes))
    for factor, rate, often in zip(factors.tolist(), rates.tolist(), times.tolist()):
        grown = (np.sinh(factor / 2 * slopes) / math.sinh(rate / 2)) ** 2
        logs -= often * np.log1p(-grown)
    return float(((logs - math.log(probability / 2)) / slopes).min())
