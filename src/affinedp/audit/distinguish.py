"""From an attacker's scores of two samples to an ε that is exceeded, with confidence.

(ε, δ)-differential privacy says P(S) ≤ e^ε Q(S) + δ for every event S.  One half of each sample
chooses an event; the other half bounds its two probabilities by Clopper and Pearson's exact
intervals.  Since the event was chosen on other runs, nothing is lost to trying many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray

THRESHOLDS = 2_000


@dataclass(frozen=True)
class Evidence:
    """How well two samples are told apart."""

    epsilon_lower: float
    named: int
    hit_rate: float
    miss_rate: float
    advantage: tuple[float, float]


def distinguish(
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    delta: float,
    confidence: float,
    seed: int | None,
    learns: bool = False,
) -> Evidence:
    """Bound ε from below by the best threshold on the scores of two samples.

    Examples
    --------
    Two Gaussians with distance 1 have ε ≈ 1.57 at δ = 0.05.

    >>> noise = np.random.default_rng(0).standard_normal((2, 100_000, 1))
    >>> found = distinguish(noise[0], noise[1] + 1, delta=0.05, confidence=0.99, seed=0)
    >>> 1.4 < found.epsilon_lower < 1.57
    True
    """
    runs = len(first)
    order = np.random.default_rng(seed).permutation(runs)
    chosen, counted = order[: runs // 2], order[runs // 2 :]
    if learns:
        first, second = _learnt(first, second, chosen)
    column, named, threshold = _best_event(first[chosen], second[chosen], delta, confidence)
    # samples in the order (other, named); small scores speak for the first one
    pair, sign = ((first, second), 1) if named else ((second, first), -1)
    misses, hits = (
        np.count_nonzero(sign * sample[counted, column] >= threshold) for sample in pair
    )
    hit = clopper_pearson(np.array(hits), len(counted), confidence)
    miss = clopper_pearson(np.array(misses), len(counted), confidence)
    return Evidence(
        epsilon_lower=float(_epsilon_lower(hit[0], miss[1], delta)),
        named=named,
        hit_rate=hits / len(counted),
        miss_rate=misses / len(counted),
        advantage=(float(hit[0] - miss[1]), float(hit[1] - miss[0])),
    )


def clopper_pearson(
    counts: NDArray[Any], runs: int, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return exact lower and upper bounds on probabilities.

    Each is wrong with at most half of the allowed probability, so that two of them hold
    together with the confidence.
    """
    from scipy.special import betainccinv, betaincinv

    k = np.asarray(counts, dtype=np.float64)
    tail = (1 - confidence) / 2
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), runs - k + 1, tail), 0.0)
    high = np.where(k < runs, betainccinv(k + 1, np.maximum(runs - k, 1), tail), 1.0)
    # wider by more than these functions round
    return low * (1 - 1e-9), np.minimum(high * (1 + 1e-9), 1.0)


def _epsilon_lower(hit: FloatArray, miss: FloatArray, delta: float) -> FloatArray:
    return np.asarray(np.log(np.maximum((hit - delta) / miss, 1.0)))


def _best_event(
    first: FloatArray, second: FloatArray, delta: float, confidence: float
) -> tuple[int, int, float]:
    """The column, the sample it speaks for, and the threshold with the best bound."""
    best = (-1.0, 0, 1, 0.0)
    for column in range(first.shape[1]):
        low, high = first[:, column], second[:, column]
        for named, right, wrong in ((1, high, low), (0, -low, -high)):
            hits, misses = np.sort(right), np.sort(wrong)
            steps = np.unique(np.concatenate([hits, misses]))
            evenly = np.linspace(0, len(steps) - 1, THRESHOLDS).astype(int)
            # and all of the upper end, where few mistakes decide
            steps = np.unique(np.concatenate([steps[evenly], steps[-THRESHOLDS:]]))
            hit, miss = (
                clopper_pearson(len(part) - np.searchsorted(part, steps), len(part), confidence)
                for part in (hits, misses)
            )
            # equal bounds (often 0): the larger difference
            merit = _epsilon_lower(hit[0], miss[1], delta) + 1e-6 * (hit[0] - miss[1])
            place = int(np.argmax(merit))
            best = max(best, (float(merit[place]), column, named, float(steps[place])))
    return best[1:]


def _learnt(
    first: NDArray[Any], second: NDArray[Any], chosen: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood ratios of the patterns in each column, learnt from the chosen runs."""
    patterns = int(max(first.max(), second.max())) + 1
    scores = np.zeros(first.shape), np.zeros(second.shape)
    for column in range(first.shape[1]):
        seen = [np.bincount(part[chosen, column], minlength=patterns) for part in (first, second)]
        table = np.log((seen[1] + 1) / (seen[0] + 1))
        for values, part in zip(scores, (first, second)):
            values[:, column] = table[part[:, column]]
    return scores
