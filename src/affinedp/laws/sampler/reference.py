"""The definition of the sampler, one proposal at a time, in Python integers of any size.

Every branch compares a uniform number with a threshold.  The number's bits are drawn as they
are needed, and the threshold is known to as many bits as that takes, so the branch taken is the
one that the real numbers would take.  Nothing rounds, wraps or clamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from affinedp.laws.sampler.exponential import exp_minus
from affinedp.laws.sampler.law import IntegerLaw
from affinedp.laws.sampler.words import WORD_BITS

# Gives one more word.
More = Callable[[], int]


class Uniform:
    """A number uniform on [0, 1), of which only the leading bits are known so far.

    Parameters
    ----------
    word : int
        Its first bits.
    more : callable
        Gives the words that follow.
    word_bits : int
        Length of a word.

    Attributes
    ----------
    head, bits : int
        The number lies in ``[head, head + 1) / 2**bits``.
    """

    __slots__ = ("_more", "_word_bits", "bits", "head")

    def __init__(self, word: int, more: More, word_bits: int) -> None:
        self.head = word
        self.bits = word_bits
        self._more = more
        self._word_bits = word_bits

    def extend(self) -> None:
        """Draw one more word of the number."""
        self.head = (self.head << self._word_bits) | self._more()
        self.bits += self._word_bits

    def bit(self, index: int) -> int:
        """Return one binary digit."""
        while index >= self.bits:
            self.extend()
        return (self.head >> (self.bits - 1 - index)) & 1


def row_length(law: IntegerLaw, word_bits: int = WORD_BITS) -> int:
    """How many words every proposal has: one for sign and cell, some for j, one to accept with."""
    return 2 + -(-law.cell_bits // word_bits)


def proposal(
    law: IntegerLaw, row: Sequence[int], more: More, word_bits: int = WORD_BITS
) -> int | None:
    """Return the proposed integer, or None if it is rejected."""
    shape = Uniform(row[0], more, word_bits)
    negative = shape.bit(0)
    k = 0
    while shape.bit(1 + k):
        k += 1
    j = 0
    for word in row[1:-1]:
        j = (j << word_bits) | word
    j >>= word_bits * (len(row) - 2) - law.cell_bits
    size = (k << law.cell_bits) + j
    if not accepted(law, k, size, Uniform(row[-1], more, word_bits)):
        return None
    if negative:
        return -size if size else None  # zero has one sign only
    return size


def accepted(law: IntegerLaw, k: int, size: int, uniform: Uniform) -> bool:
    """Whether ``uniform`` is below 2ᵏ e^(−y) / limit; draws on until that is certain."""
    y = law.exponent(size)
    while True:
        bits = uniform.bits + k + 8
        low, high = exp_minus(y, bits)
        # both sides times 2^bits · limit
        step = law.limit.numerator << (bits - uniform.bits)
        if (uniform.head + 1) * step <= (low << k) * law.limit.denominator:
            return True
        if uniform.head * step >= (high << k) * law.limit.denominator:
            return False
        uniform.extend()


def draw(law: IntegerLaw, more: More, word_bits: int = WORD_BITS) -> int:
    """Return one integer of the law."""
    length = row_length(law, word_bits)
    while True:
        number = proposal(law, [more() for _ in range(length)], more, word_bits)
        if number is not None:
            return number
