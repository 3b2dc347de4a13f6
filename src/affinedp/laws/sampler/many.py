"""Many exact decisions at once: words of 64 bits settle nearly all, the rest goes on bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import IntArray
from affinedp.laws.sampler.coins import BITS, Threshold, below
from affinedp.laws.sampler.words import SYSTEM, LongWords, Random, RandomBits

# Whole numbers below 2^NARROW are added and compared in 64 bits.
NARROW = 62
LARGEST = (1 << BITS) - 1


def narrowed(numbers: Any) -> NDArray[Any]:
    """Return whole numbers as 64-bit integers if all are below 2^NARROW, else as they are."""
    wide: NDArray[Any] = np.array(numbers, dtype=object)
    fits = all(abs(number) >> NARROW == 0 for number in wide.ravel().tolist())
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
