"""The two laws on the integers, and how a size is proposed for them.

A size M = |i| is written M = k · 2^m + j with 0 ≤ j < 2^m.  The cell k is proposed with
probability 2^(−k−1), by tossing coins, and j with m random bits.  A proposal is accepted with
probability 2ᵏ e^(−y(M)) / limit, where e^(−y(M)) is the law.  The factor 2ᵏ cancels, so what
is accepted has the law, for every m for which the probability is never above 1.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

from affinedp.errors import AffineDPError
from affinedp.laws.sampler.exponential import exp_minus

LawName = Literal["gaussian", "laplace"]
# The least cell, in units of the scale; the largest is twice as wide, or one step.
LEAST_CELL = {"gaussian": Fraction(3, 5), "laplace": Fraction(7, 10)}
LIMIT_BITS = 64


@dataclass(frozen=True)
class IntegerLaw:
    """P(i) ∝ exp(−i² / (2 scale²)), or ∝ exp(−|i| / scale), over all integers i.

    Attributes
    ----------
    name : {"gaussian", "laplace"}
        Which of the two.
    scale : Fraction
        σ or b, positive, of any size.
    cell_bits : int
        m: cells are 2^m integers wide.
    limit : Fraction
        At least 2ᵏ e^(−y) at every integer, by less than 2⁻⁶⁰.
    """

    name: LawName
    scale: Fraction
    cell_bits: int
    limit: Fraction

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
