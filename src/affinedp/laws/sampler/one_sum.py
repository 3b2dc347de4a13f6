"""Noise under one public sum of n whole numbers, exactly, in O(n) for any n.

P(z) ∝ exp(−rate ‖z‖₁ / 2) on {z ∈ Zⁿ, Σ z = 0}: z = G − G' with two uniform compositions of the
same s into n parts, s with weight C(s+n−1, n−1)² e^(−rate s).  docs/explanation/knorm-draws.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.laws.sampler.coins import (
    BITS,
    NARROW,
    Geometric,
    Threshold,
    below,
    coins,
    ratio_threshold,
    uniform_below,
)
from affinedp.laws.sampler.reference import exp_minus
from affinedp.laws.sampler.words import SYSTEM, LongWords, Random, Source, system_bytes
from affinedp.parts import Locked

# Below this many places a uniform subset is drawn by sorting random keys.
MOST_KEYS = 100_000_000
# So many parts of a sum are chosen for many rows at once, in n² steps each.
MOST_TOGETHER = 64


class OneSumNoise(Locked):
    """Independent vectors of n whole numbers with sum 0 and P(z) ∝ exp(−rate ‖z‖₁ / 2)."""

    def __init__(self, n: int, rate: Fraction) -> None:
        self._n, self._rate = n, rate
        # on fine grids s is far above n², and the sum of 2n − 1 numbers nearly has the law
        self._fine = n * rate <= 1
        if self._fine:
            self._geometric = Geometric(rate)
        else:
            self._geometric = Geometric(rate / 2)
            self._mode = _mode(n, rate)

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, in an object array of shape (count, n)."""
        sizes, n, random = self._sizes(count, source), self._n, Random(source)
        if sizes.dtype != object and count > 1 and n <= MOST_TOGETHER:
            first, second = (compositions(sizes, n, random) for _ in range(2))
            return (first - second).astype(object)
        drawn: NDArray[Any] = np.empty((count, n), dtype=object)
        for i, s in enumerate(sizes.tolist()):
            drawn[i] = composition(s, n, random) - composition(s, n, random)
        return drawn

    def _sizes(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """The sizes, of 64 bits if all of them are below 2^62."""
        found: list[NDArray[Any]] = []
        terms = 2 * self._n - 1 if self._fine else self._n
        missing = count
        while missing:
            numbers = self._geometric.draw_narrow(missing * terms, source).reshape(missing, terms)
            if numbers.dtype != object and (int(numbers.max()) + 1) * terms >> (NARROW - 1):
                numbers = numbers.astype(object)
            proposals = numbers.sum(axis=1)
            found.append(proposals[self._accepted(proposals, Random(source))])
            missing -= len(found[-1])
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _accepted(self, sizes: NDArray[Any], random: Random) -> NDArray[np.bool_]:
        if self._fine:
            return _accepted_fine(sizes, self._n, random.long_words(len(sizes)), random)
        different, which = np.unique(sizes, return_inverse=True)
        thresholds = [_acceptance(s, self._n, self._mode, self._rate) for s in different.tolist()]
        return coins(thresholds, which.ravel(), random)


def _mode(n: int, rate: Fraction) -> int:
    """The s at which C(s+n−1, n−1) e^(−rate s/2) is largest, decided exactly."""

    def rises(s: int) -> bool:  # (s + n) e^(−rate/2) > s + 1; never equal, e^(rate/2) is irrational
        bits = BITS
        while True:
            low, high = exp_minus(rate / 2, bits)
            if (s + n) * low > (s + 1) << bits:
                return True
            if (s + n) * high < (s + 1) << bits:
                return False
            bits *= 2

    if not rises(0):
        return 0
    low, high = 0, 1
    while rises(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rises(middle) else (low, middle)
    return high


def _acceptance(s: int, n: int, mode: int, rate: Fraction) -> Threshold:
    """The probability f(s)/f(mode), f(s) = C(s+n−1, n−1) e^(−rate s/2).

    The sum of n geometric numbers has f as its law, and the wanted law is ∝ f².
    """
    first, last = min(s, mode), max(s, mode)
    up = _product(first + n, last + n)  # Π (j + n) for j from first to last − 1
    down = _product(first + 1, last + 1)
    y = rate * (s - mode) / 2
    return ratio_threshold(up, down, y) if s >= mode else ratio_threshold(down, up, y)


def _product(first: int, end: int) -> int:
    """first · (first + 1) ⋯ (end − 1), in halves so that factors are of equal size."""
    if end - first <= 32:
        return math.prod(range(first, end))
    middle = (first + end) // 2
    return _product(first, middle) * _product(middle, end)


def _accepted_fine(
    sizes: NDArray[Any], n: int, words: LongWords, random: Random = SYSTEM
) -> NDArray[np.bool_]:
    """Coins of the probabilities of :func:`_fine_acceptance`, from their first words."""
    # each factor is at least 1 − (n−1)/(s+n); doubles are right to 2^-50, and 2^-40 is taken off
    least = 1 - (n - 1) ** 2 / (sizes.astype(np.float64) + n) - 2.0**-40
    sure = (np.maximum(least, 0.0) * 2.0**53).astype(np.uint64) << np.uint64(11)
    found = words < sure
    for i in np.flatnonzero(~found).tolist():
        found[i] = below(_fine_acceptance(int(sizes[i]), n), random.bits, int(words[i]))
    return found


def _fine_acceptance(s: int, n: int) -> Threshold:
    """The probability Π_{j=1}^{n−1} (s+j)/(s+n−1+j).

    It is C(s+n−1, n−1)² over C(s+2n−2, 2n−2), divided by the limit of that for large s.
    """

    def threshold(bits: int) -> tuple[int, int]:
        if bits == BITS:  # each factor is at least 1 − (n−1)/(s+n)
            least = ((s + n - (n - 1) ** 2) << bits) // (s + n)
            return max(0, least), 1 << bits
        one = 1 << (bits + 2 * n.bit_length())
        low = high = one
        for j in range(1, n):
            low = low * (s + j) // (s + n - 1 + j)
            high = -(-high * (s + j) // (s + n - 1 + j))
        return (low << bits) // one, -(-(high << bits) // one)

    return threshold


def composition(s: int, n: int, random: Random = SYSTEM) -> NDArray[Any]:
    """Return a uniform way to write s as an ordered sum of n numbers from 0 on.

    The bars between the parts are a uniform subset of n − 1 among s + n − 1 places.
    """
    places = s + n - 1
    if n == 1:
        return np.array([s], dtype=object)
    if places <= max(1_000, min(MOST_KEYS, 40 * n)):
        bars: NDArray[Any] = _subset_by_keys(places, n - 1, random)
    elif places.bit_length() <= NARROW:
        bars = _distinct(places, n - 1, random)
    elif places.bit_length() <= 2 * NARROW and n - 1 < 1 << 24:
        bars = _distinct_wide(places, n - 1, random)
    else:
        bars = np.array(sorted(_floyd(places, n - 1, random)), dtype=object)
    walls = np.concatenate([np.array([-1], dtype=bars.dtype), bars])
    ends = np.concatenate([bars, np.array([places], dtype=bars.dtype)])
    return np.asarray(ends - walls - 1, dtype=object)


def compositions(sizes: NDArray[np.int64], n: int, random: Random = SYSTEM) -> NDArray[np.int64]:
    """Return a uniform composition into n parts of every size below 2^61, as rows.

    Floyd's subsets, all rows at once: the i-th bar is uniform among the first s + i + 1 places, and
    goes to the last of them if there is one already.
    """
    bars = np.full((len(sizes), n - 1), -1, dtype=np.int64)
    for i in range(n - 1):
        last = sizes + i
        drawn = uniform_below(last + 1, random)
        taken = (bars[:, :i] == drawn[:, None]).any(axis=1)
        bars[:, i] = np.where(taken, last, drawn)
    bars.sort(axis=1)
    return np.diff(bars, axis=1, prepend=-1, append=(sizes + n - 1)[:, None]) - 1


def _subset_by_keys(places: int, size: int, random: Random = SYSTEM) -> NDArray[np.int64]:
    """The places with the smallest random keys; drawn again if that is not decided."""
    if size == places:
        return np.arange(places)
    while True:
        keys = random.long_words(places)
        order = np.partition(keys, (size - 1, size))
        if order[size - 1] < order[size]:
            return np.flatnonzero(keys <= order[size - 1])


def _distinct(places: int, size: int, random: Random = SYSTEM) -> NDArray[np.int64]:
    """Independent uniform places, each replaced while it equals an earlier one (Floyd's, sorted).

    Distinct places drawn one after the other, equal ones skipped, are a uniform subset.
    """
    bits = np.uint64(64 - places.bit_length())
    found: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    while len(found) < size:
        drawn = (random.long_words(2 * (size - len(found)) + 16) >> bits).astype(np.int64)
        drawn = drawn[drawn < places]
        both = np.concatenate([found, drawn])
        _, first = np.unique(both, return_index=True)
        found = both[np.sort(first)][:size]  # in the order in which they came
    return np.sort(found)


def _distinct_wide(places: int, size: int, random: Random = SYSTEM) -> NDArray[Any]:
    """The same for places of up to two words: drawn again if any two are equal, which is rare."""
    bits = places.bit_length()
    top, bottom = np.uint64(places >> BITS), np.uint64(places & ((1 << BITS) - 1))
    while True:
        high: LongWords = np.zeros(0, dtype=np.uint64)
        low = high
        while len(high) < size:
            count = 2 * (size - len(high)) + 16
            words = random.long_words(2 * count).reshape(2, count)
            first = words[0] >> np.uint64(2 * BITS - bits) if bits > BITS else words[0] * 0
            second = words[1] >> np.uint64(max(0, BITS - bits))
            kept = (first < top) | ((first == top) & (second < bottom))
            high, low = np.append(high, first[kept]), np.append(low, second[kept])
        high, low = high[:size], low[:size]
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        if not np.any((high[1:] == high[:-1]) & (low[1:] == low[:-1])):
            return np.asarray(high.astype(object) * (1 << BITS) + low.astype(object))


def _floyd(places: int, size: int, random: Random = SYSTEM) -> set[int]:
    chosen: set[int] = set()
    for j in range(places - size, places):
        t = random.below(j + 1)
        chosen.add(j if t in chosen else t)
    return chosen
