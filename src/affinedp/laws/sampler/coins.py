"""Exact coins with probabilities made of e^(−y): bits are drawn until the outcome is certain.

An outcome is decided only where the interval that is known
of the uniform number lies on one side of the interval that is known of the threshold.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import IntArray
from affinedp.laws.sampler.noise import IntegerNoise
from affinedp.laws.sampler.reference import exp_minus
from affinedp.laws.sampler.words import SYSTEM, LongWords, Random, RandomBits, Source, system_bytes
from affinedp.parts import Locked

BITS = 64
# From bits to integers low ≤ 2**bits · threshold ≤ high.
Threshold = Callable[[int], tuple[int, int]]


def below(threshold: Threshold, random: RandomBits = SYSTEM.bits, head: int | None = None) -> bool:
    """Whether a uniform number lies below a threshold that is known to any number of bits."""
    head, bits = random(BITS) if head is None else head, BITS
    while True:
        low, high = threshold(bits)
        if head + 1 <= low:
            return True
        if head >= high:
            return False
        head = (head << BITS) | random(BITS)
        bits += BITS


def bernoulli_exp(y: Fraction, random: RandomBits = SYSTEM.bits) -> bool:
    """Return True with probability e^(−y), exactly."""
    return below(exp_threshold(y), random)


def exp_threshold(y: Fraction) -> Threshold:
    """Return e^(−y) as a threshold."""

    def threshold(bits: int) -> tuple[int, int]:
        # 1 − y ≤ e^(−y) ≤ 1 decides most coins for small y without a series
        if bits == BITS and y.numerator << 4 < y.denominator:
            least = ((y.denominator - y.numerator) << bits) // y.denominator
            return least, 1 << bits
        return exp_minus(y, bits)

    return threshold


def ratio_threshold(numerator: int, denominator: int, y: Fraction) -> Threshold:
    """Return (numerator/denominator) e^(−y), which is at most 1, as a threshold."""
    size = abs(y)
    # e^(−|y|) needs so many bits before its first one
    leading = 2 * (size.numerator // size.denominator + 1)

    def threshold(bits: int) -> tuple[int, int]:
        precision = bits + leading + BITS
        low, high = exp_minus(size, precision)
        if y >= 0:
            down, up = numerator * low, -(-numerator * high // denominator)
            return (down // denominator) >> (precision - bits), -(-up >> (precision - bits))
        # e^(+|y|) is 1 over what is known; while that may be 0 there is no upper bound yet
        down = (numerator << (bits + precision)) // (denominator * high)
        if low == 0:
            return down, (1 << bits) + 1
        return down, -(-(numerator << (bits + precision)) // (denominator * low))

    return threshold


class ExponentialChoice(Locked):
    """A place drawn with probability ∝ counts[j] e^(−exponents[j]), exactly."""

    def __init__(self, counts: Sequence[int], exponents: Sequence[Fraction]) -> None:
        self._counts, self._exponents = list(counts), list(exponents)
        self._tables: dict[int, tuple[list[int], list[int]]] = {}

    def _table(self, bits: int) -> tuple[list[int], list[int]]:
        """Bounds of the cumulative weights, times 2^bits."""
        if bits not in self._tables:
            bounds = [exp_minus(y, bits) for y in self._exponents]
            low = accumulate(c * b[0] for c, b in zip(self._counts, bounds))
            high = accumulate(c * b[1] for c, b in zip(self._counts, bounds))
            self._tables[bits] = list(low), list(high)
        return self._tables[bits]

    def draw(self, random: RandomBits = SYSTEM.bits) -> int:
        """Return one place."""
        return self._place(random(BITS), random)

    def draw_many(self, count: int, random: Random = SYSTEM) -> IntArray:
        """Return many independent places."""
        return self.places(random.long_words(count), random.bits)

    def places(self, words: LongWords, random: RandomBits = SYSTEM.bits) -> IntArray:
        """Return the places that uniform numbers fall on; further bits are drawn where needed."""
        first, end = self._certain
        place = np.searchsorted(end, words, side="right")
        inside = np.minimum(place, len(end) - 1)
        for i in np.flatnonzero((place == len(end)) | (words < first[inside])).tolist():
            inside[i] = self._place(int(words[i]), random)
        return np.asarray(inside, dtype=np.intp)

    @cached_property
    def _certain(self) -> tuple[LongWords, LongWords]:
        """Words from ``first`` on and before ``end`` fall on a place for certain."""
        low, high = self._table(2 * BITS)
        most = (1 << BITS) - 1
        first = [0, *(min(most, -(-(c << BITS) // max(low[-1], 1))) for c in high[:-1])]
        end = [*((c << BITS) // high[-1] for c in low[:-1]), most]
        return np.array(first, dtype=np.uint64), np.array(end, dtype=np.uint64)

    def _place(self, head: int, random: RandomBits) -> int:
        """The place of a number with these first 64 bits."""
        bits = BITS
        while True:
            low, high = self._table(bits + BITS)
            # the first place whose cumulative weight is certainly above the number …
            place = bisect.bisect_left(low, -(-(head + 1) * high[-1] >> bits))
            place = min(place, len(low) - 1)
            # … is it, if the one before is certainly not
            if place == 0 or head * low[-1] >= high[place - 1] << bits:
                return place
            head = (head << BITS) | random(BITS)
            bits += BITS


class Geometric:
    """Numbers t = 0, 1, 2, … with probability ∝ e^(−rate t), exactly.

    Of discrete Laplace noise i take i itself, or −i − 1 where it is negative: both have this law.
    """

    def __init__(self, rate: Fraction) -> None:
        self._noise = IntegerNoise("laplace", 1 / rate)

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return ``count`` independent numbers, Python integers in an object array."""
        return self.draw_narrow(count, source).astype(object)

    def draw_narrow(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return the same, of 64 bits where all of them fit."""
        drawn = self._noise.draw_narrow(count, source)
        return np.where(drawn < 0, -1 - drawn, drawn)


# ---------------------------------------------------------------------- many decisions at once


# Whole numbers below 2^NARROW are added and compared in 64 bits.
NARROW = 62
LARGEST = (1 << BITS) - 1


def narrowed(numbers: Any) -> NDArray[Any]:
    """Return whole numbers as 64-bit integers if all are below 2^NARROW, else as they are."""
    wide: NDArray[Any] = numbers if isinstance(numbers, np.ndarray) else np.array(numbers, object)
    fits = not wide.size or max(int(wide.max()), -int(wide.min())) >> NARROW == 0
    return wide.astype(np.int64) if fits else wide


def uniform_below(limits: NDArray[Any], random: Random = SYSTEM) -> NDArray[Any]:
    """Return uniform whole numbers from 0 to their limits − 1; limits of int64 are below 2^62."""
    if limits.dtype == object:
        found: NDArray[Any] = np.empty(len(limits), dtype=object)
        found[:] = [random.below(limit) for limit in limits.tolist()]
        return found
    drawn = np.zeros(len(limits), dtype=np.int64)
    # the bits that limit − 1 does not have: as a double it never falls below a power of two
    unused = (BITS - np.frexp((limits - 1).astype(np.float64))[1]).astype(np.uint64)
    left = np.flatnonzero(limits > 1)
    while len(left):
        proposed = (random.long_words(len(left)) >> unused[left]).astype(np.int64)
        kept = proposed < limits[left]
        drawn[left[kept]] = proposed[kept]
        left = left[~kept]
    return drawn


def coins(
    thresholds: Sequence[Threshold], which: IntArray, random: Random = SYSTEM
) -> NDArray[np.bool_]:
    """Toss one coin per entry of ``which``, each with the probability of its threshold, exactly."""
    return tossed(thresholds, which, random.long_words(len(which)), random.bits)


def tossed(
    thresholds: Sequence[Threshold],
    which: IntArray,
    known: LongWords,
    random: RandomBits = SYSTEM.bits,
) -> NDArray[np.bool_]:
    """The same from given first words; further bits are drawn where these leave it open."""
    bounds = [threshold(BITS) for threshold in thresholds]
    low = np.array([min(low, LARGEST) for low, _ in bounds], dtype=np.uint64)[which]
    # the last word that is not certainly above
    last = np.array([min(high - 1, LARGEST) for _, high in bounds], dtype=np.uint64)[which]
    found = known < low
    for i in np.flatnonzero(~found & (known <= last)).tolist():
        found[i] = below(thresholds[which[i]], random, int(known[i]))
    return found
