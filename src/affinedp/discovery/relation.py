"""A linear relation between the terms of a table, and how well every row obeys it, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.column_numbers import Numbers, Whole

FITS = 2**62
# Rows beyond rounding that are kept.
SHOWN = 5
# Rounding breaks more rows than this share of them: so few were mistyped.
MISTYPED = 0.02
# Rows that may break a relation which is still told.
MOST_MISSES = 0.05


@dataclass(frozen=True)
class Relation:
    """``Σ coefficients[j] x[j] + offset = 0``; no coefficient is zero."""

    coefficients: Mapping[int, Fraction]
    offset: Fraction = Fraction(0)

    @property
    def support(self) -> tuple[int, ...]:
        """The terms, in order."""
        return tuple(sorted(self.coefficients))

    @cached_property
    def complexity(self) -> tuple[int, float]:
        """How long it is to write: terms first, then the digits of its coefficients."""
        return len(self.coefficients) + (self.offset != 0), self.digits

    @cached_property
    def digits(self) -> float:
        """Binary digits of the coefficients beyond ±1, scaled to be the least."""
        values = [*self.coefficients.values()]
        best = min(self._bits_over(unit) for unit in {abs(value) for value in values})
        return best + (bits(self.offset / max(map(abs, values))) if self.offset else 0.0)

    def scaled(self) -> Relation:
        """Return the same relation with the coefficients that are shortest to write."""
        unit = min(
            sorted({abs(value) for value in self.coefficients.values()}), key=self._bits_over
        )
        return Relation({j: c / unit for j, c in self.coefficients.items()}, self.offset / unit)

    def _bits_over(self, unit: Fraction) -> float:
        return sum(bits(value / unit) for value in self.coefficients.values())

    def moved(self, place: Mapping[int, int]) -> Relation:
        """Return the same relation where every term has another place."""
        return Relation({place[j]: c for j, c in self.coefficients.items()}, self.offset)


def inside(known: Iterable[Relation], chosen: Sequence[int]) -> list[Relation]:
    """Return the relations between chosen terms alone, in their own counting."""
    place = {j: i for i, j in enumerate(chosen)}
    return [one.moved(place) for one in known if set(one.coefficients) <= set(place)]


def bits(value: Fraction) -> float:
    """Return binary digits beyond those of ±1, in a decimal or a quotient, whichever is shorter."""
    numerator, denominator = abs(value.numerator), value.denominator
    quotient = math.log2(numerator) + math.log2(denominator)
    rest, tens = denominator, 0
    while rest % 2 == 0 or rest % 5 == 0:
        rest //= math.gcd(rest, 10)
        tens += 1
    if rest > 1:
        return quotient
    digits = max(numerator * 10**tens // denominator, 1)
    return min(quotient, math.log2(digits) + math.log2(1 + tens))


@dataclass(frozen=True, eq=False)
class Terms:
    """What a relation may be about: columns, or columns a row earlier, or sums of groups.

    ``constant`` says whether a relation may have one.
    """

    names: tuple[str, ...]
    columns: tuple[Numbers, ...]
    constant: bool = True

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns[0]) if self.columns else 0

    def __len__(self) -> int:
        return len(self.columns)

    def complete(self, chosen: Iterable[int]) -> NDArray[np.intp]:
        """Return the rows in which none of the chosen terms is missing."""
        return np.flatnonzero(~np.any([self.columns[j].missing for j in chosen], axis=0))

    def subset(self, chosen: Sequence[int]) -> Terms:
        """Return some of the terms, in this order."""
        return Terms(
            tuple(self.names[j] for j in chosen),
            tuple(self.columns[j] for j in chosen),
            self.constant,
        )

    def resolution(self, j: int) -> Fraction:
        """Return how finely the numbers of a term are given."""
        column = self.columns[j]
        if column.written:
            return column.unit
        return column.precision * column.largest * column.unit


@dataclass(frozen=True, eq=False)
class Found:
    """A relation, how the rows obey it, and how likely that is by chance.

    Attributes
    ----------
    relation : Relation
        The relation.
    rows : int
        The rows that could be checked: all of its terms are there.
    zero, within : int
        The rows that obey it exactly, and up to the rounding of the numbers.
    largest_miss, rounding : Fraction
        The largest miss, in the units of the relation, and what rounding alone can explain.
    worst : tuple of (int, Fraction)
        Rows beyond rounding and their misses, the largest first.
    log10_chance : float
        Decimal logarithm of how many such relations chance gives: an upper bound.
    """

    relation: Relation
    rows: int
    zero: int
    within: int
    largest_miss: Fraction = Fraction(0)
    rounding: Fraction = Fraction(0)
    worst: tuple[tuple[int, Fraction], ...] = ()
    log10_chance: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every row obeys the relation exactly."""
        return self.zero == self.rows

    @property
    def missed(self) -> int:
        """The rows that break the relation by more than rounding."""
        return self.rows - self.within


def residual(
    relation: Relation, terms: Terms, rows: NDArray[np.intp] | None = None
) -> tuple[Whole, int]:
    """Return what is left of a relation in each row, as whole numbers over one denominator."""
    scaled = {j: c * terms.columns[j].unit for j, c in relation.coefficients.items()}
    common = math.lcm(*(c.denominator for c in scaled.values()), relation.offset.denominator)
    factors = {j: int(c * common) for j, c in scaled.items()}
    offset = int(relation.offset * common)
    size = abs(offset) + sum(abs(a) * max(terms.columns[j].largest, 1) for j, a in factors.items())
    kind = np.int64 if size < FITS else object
    total: Whole = np.full(terms.rows if rows is None else len(rows), offset, dtype=kind)
    for j, factor in factors.items():
        column = terms.columns[j]
        part = column.whole if rows is None else column.whole_at(rows)
        total = total + part.astype(kind) * factor
    return total, common


def check(relation: Relation, terms: Terms) -> Found:
    """Verify a relation on every row, in whole numbers."""
    there = terms.complete(relation.support)
    left, common = residual(relation, terms, None if len(there) == terms.rows else there)
    rounding = sum(
        (abs(c) * terms.resolution(j) / 2 for j, c in relation.coefficients.items()), Fraction(0)
    )
    size = np.abs(left)
    missed = int(np.count_nonzero(size))
    written = all(terms.columns[j].written for j in relation.support)
    if missed <= MISTYPED * len(there) and written:
        rounding = Fraction(0)
    beyond = np.flatnonzero(size > math.floor(rounding * common))
    order = beyond[np.argsort(-size[beyond], kind="stable")[:SHOWN]]
    return Found(
        relation,
        len(there),
        len(there) - missed,
        len(there) - len(beyond),
        Fraction(int(size.max()) if len(size) else 0, common),
        rounding,
        tuple((int(there[i]), Fraction(int(left[i]), common)) for i in order),
    )
