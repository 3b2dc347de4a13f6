"""Random words from the operating system.

There is no generator, no seed and no pool in this process: what a call does not use is dropped, and
a fork cannot make two processes draw the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

WORD_BITS = 32

Words = NDArray[np.uint32]
LongWords = NDArray[np.uint64]
# How many words are wanted -> that many, independent and uniform.
Source = Callable[[int], Words]


def system_words(count: int) -> Words:
    """Return words from the operating system's cryptographic generator.

    Parameters
    ----------
    count : int
        How many words of 32 bits.
    """
    return np.frombuffer(os.urandom(count * (WORD_BITS // 8)), dtype=np.uint32)


def long_words(count: int) -> LongWords:
    """Return words of 64 bits from the same generator.

    Parameters
    ----------
    count : int
        How many.
    """
    return np.frombuffer(os.urandom(count * 2 * (WORD_BITS // 8)), dtype=np.uint64)
