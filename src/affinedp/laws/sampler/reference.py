"""The definition of the sampler: two laws on the integers, one proposal at a time.

A size M = |i| is written M = k · 2^m + j with 0 ≤ j < 2^m.  The cell k is proposed with
probability 2^(−k−1), by tossing coins, and j with m random bits.  A proposal is accepted with
probability 2ᵏ e^(−y(M)) / limit, where e^(−y(M)) is the law.  The factor 2ᵏ cancels, so what
is accepted has the law, for every m for which the probability is never above 1.

Every branch compares a uniform number with a threshold.  The number's bits are drawn as they
are needed, and the threshold is known to as many bits as that takes, so the branch taken is the
one that the real numbers would take.  Nothing rounds, wraps or clamps.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

from affinedp.errors import AffineDPError
from affinedp.laws.sampler.words import WORD_BITS

LawName = Literal["gaussian", "laplace"]
# The least cell, in units of the scale; the largest is twice as wide, or one step.
LEAST_CELL = {"gaussian": Fraction(3, 5), "laplace": Fraction(7, 10)}
LIMIT_BITS = 64


@dataclass(frozen=True)
class IntegerLaw:
    """P(i) ∝ exp(−i² / (2 scale²)), or ∝ exp(−|i| / scale), over all integers i."""

    name: LawName  # which of the two
    scale: Fraction  # σ or b, positive, of any size
    cell_bits: int  # m: cells are 2^m integers wide
    limit: Fraction  # at least 2ᵏ e^(−y) at every integer, by less than 2⁻⁶⁰

    @classmethod
    def of(cls, name: str, scale: int | Fraction) -> IntegerLaw:
        """Choose the cells for a law."""
        if name not in LEAST_CELL:
            raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {name!r}")
        exact = _exact(scale)
        least = LEAST_CELL[name] * exact
        bits = max(0, (-(-least.numerator // least.denominator) - 1).bit_length())
        law = cls(cast(LawName, name), exact, bits, Fraction(1))
        # From one cell to the next, 2ᵏ e^(−y) at the first integer changes by the factor
        # 2 e^(−(2k+1) w²/2) with w ≥ 0.6, or 2 e^(−w) with w ≥ 0.7: less than 1 from k = 2 on.
        # Inside a cell it falls.
        tops = [exp_minus(law.exponent(k << bits), LIMIT_BITS)[1] << k for k in range(3)]
        return cls(law.name, exact, bits, Fraction(max(tops), 1 << LIMIT_BITS))

    def exponent(self, size: int) -> Fraction:
        """Return y, exactly: the law is proportional to e⁻ʸ."""
        ratio = size / self.scale
        return ratio * ratio / 2 if self.name == "gaussian" else ratio


def _exact(scale: Any) -> Fraction:
    """The scale as a fraction of Python integers, which cannot overflow."""
    if not isinstance(scale, numbers.Rational) or isinstance(scale, bool):
        raise AffineDPError(
            f"scale must be an int or a Fraction, not {scale!r}; "
            "Fraction(x) is exactly the value of a float x"
        )
    exact = Fraction(int(scale.numerator), int(scale.denominator))
    if exact <= 0:
        raise AffineDPError(f"scale must be positive, not {scale}")
    return exact


def exp_minus(y: Fraction, bits: int) -> tuple[int, int]:
    """Return integers ``low ≤ 2**bits · e⁻ʸ ≤ high``, at most 3 units apart.

    The series of e^z for z = y / 2ˢ < ½, one division, and s squarings, each rounded outwards.
    """
    if y == 0:
        return 1 << bits, 1 << bits
    if y >= bits:
        return 0, 1
    squarings = (y.numerator // y.denominator).bit_length() + 1
    # the first error is below 4 · precision + 10 units, and a squaring doubles it at most
    precision = bits + bits.bit_length() + squarings + 8
    one = 1 << precision
    z = (y.numerator << precision) // (y.denominator << squarings)
    total = term = one
    count = 0
    while term:
        count += 1
        term = (term * z >> precision) // count
        total += term
    # Each term is too small by less than 4 units (half of the error before it, and 2 of its own),
    # and so are the terms left out together.  z is too small by less than one unit: e^z by 2.
    low = one * one // (total + 4 * count + 6)
    high = -(-one * one // total)
    for _ in range(squarings):
        low = low * low >> precision
        high = -(-high * high >> precision)
    spare = precision - bits
    return low >> spare, -(-high >> spare)


# Gives one more word.
More = Callable[[], int]


class Uniform:
    """A number uniform on [0, 1), of which only the leading bits are known so far."""

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
