"""A linear relation between the terms of a table: how well rows obey it, and how it is written."""

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
    """A relation, how the rows obey it, and how likely that is by chance."""

    relation: Relation
    rows: int  # those that could be checked: all of its terms are there
    zero: int  # those that obey it exactly
    within: int  # those that obey it up to the rounding of the numbers
    largest_miss: Fraction = Fraction(0)  # in the units of the relation
    rounding: Fraction = Fraction(0)  # what rounding alone can explain
    worst: tuple[tuple[int, Fraction], ...] = ()  # rows beyond rounding, the largest miss first
    log10_chance: float = 0.0  # of how many such relations chance gives: an upper bound

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


# ---------------------------------------------------------------------- as somebody would write it


def simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the number in an interval that is shortest to write, as a decimal or a quotient.

    Examples
    --------
    >>> simplest(Fraction(19558, 10**4), Fraction(195584, 10**5))
    Fraction(9779, 5000)
    >>> simplest(Fraction(333, 1000), Fraction(334, 1000)), simplest(Fraction(-1, 9), Fraction(1))
    (Fraction(1, 3), Fraction(0, 1))
    """
    if low > high:
        low, high = high, low
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -simplest(-high, -low)
    quotient = _shortest_quotient(low, high)
    length = math.log2(quotient.numerator) + math.log2(quotient.denominator)
    # people write 1/3 and 1.95583, and seldom 487/249
    seldom = 3.0 if quotient.denominator > 1 else 0.0
    decimal = _shortest_decimal(low, high, length + seldom)
    return quotient if decimal is None else decimal


def _shortest_decimal(low: Fraction, high: Fraction, most: float) -> Fraction | None:
    """The decimal with the fewest digits, if these are shorter than so many binary ones."""
    places = -math.floor(math.log10(high.numerator) - math.log10(high.denominator)) - 1
    while True:
        unit = Fraction(10) ** places
        first = math.ceil(low * unit)
        if first <= high * unit:
            # the roundest of those that fit, then the nearest to the middle
            last = math.floor(high * unit)
            middle = min(max(round((low + high) / 2 * unit), first), last)
            return Fraction(middle) / unit if math.log2(max(middle, 1)) < most else None
        if math.log2(max(first, 1)) > most:
            return None
        places += 1


def _shortest_quotient(low: Fraction, high: Fraction) -> Fraction:
    """The quotient with the least denominator: walk down the Stern–Brocot tree."""
    whole = math.floor(low)
    if whole == low:
        return Fraction(whole) if whole else Fraction(1)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    rest = _shortest_quotient(1 / (high - whole), 1 / (low - whole))
    return whole + 1 / rest


def written_equation(relation: Relation, names: Sequence[str], alone: int | None = None) -> str:
    """Return a relation as somebody would write it: a total on the left, its parts on the right.

    Examples
    --------
    >>> one = Fraction(1)
    >>> written_equation(Relation({0: one, 1: one, 2: -one}), ["a", "b", "total"])
    'total = a + b'
    >>> written_equation(Relation({0: one, 1: one}, Fraction(-100)), ["yes", "no"])
    'yes + no = 100'
    >>> written_equation(Relation({0: Fraction(195583, 100000), 1: -one}), ["eur", "dem"])
    'dem = 1.95583*eur'
    """
    relation = relation.scaled()
    if alone is None:
        left, scale = _left_side(relation)
    else:
        left, scale = {alone}, relation.coefficients[alone]
    values = {j: value / scale for j, value in relation.coefficients.items()}
    offset = relation.offset / scale
    here = {j: value for j, value in values.items() if j in left}
    there = {j: -value for j, value in values.items() if j not in left}
    return f"{_side(here, Fraction(0), names)} = {_side(there, -offset, names)}"


def _left_side(relation: Relation) -> tuple[set[int], Fraction]:
    """Which terms stand on the left, and what everything is divided by."""
    values = relation.coefficients
    plus = {j for j, value in values.items() if value > 0}
    minus = set(values) - plus
    if not plus or not minus:
        return set(values), Fraction(1 if plus else -1)
    alone = [side for side in (plus, minus) if len(side) == 1]
    if len(alone) == 2:
        # a = 2 b rather than b = 0.5 a
        first, second = sorted(values)
        other = min(
            (second, first), key=lambda j: abs(values[first + second - j] / values[j]).denominator
        )
        return {other}, values[other]
    left = alone[0] if alone else min(plus, minus, key=lambda side: (len(side), min(side)))
    if alone:
        return left, values[next(iter(left))]
    return left, Fraction(1 if left is plus else -1)


def _side(values: Mapping[int, Fraction], constant: Fraction, names: Sequence[str]) -> str:
    text = ""
    for j in sorted(values, key=lambda j: (values[j] < 0, j)):
        size = written_number(abs(values[j]))
        term = names[j] if size == "1" else f"{size}*{names[j]}"
        sign = "-" if values[j] < 0 else "+"
        text += f" {sign} {term}" if text else f"{'-' if sign == '-' else ''}{term}"
    if not text:
        return written_number(constant)
    if constant:
        text += f" {'-' if constant < 0 else '+'} {written_number(abs(constant))}"
    return text


def written_number(value: Fraction) -> str:
    """Return an exact number as a decimal where it is one, otherwise as a quotient.

    Examples
    --------
    >>> written_number(Fraction(5, 4)), written_number(Fraction(-1, 3)), written_number(Fraction(7))
    ('1.25', '-1/3', '7')
    """
    for digits in range(1, 19):
        if value.denominator > 1 and 10**digits % value.denominator == 0:
            whole = str(abs(int(value * 10**digits))).rjust(digits + 1, "0")
            return f"{'-' if value < 0 else ''}{whole[:-digits]}.{whole[-digits:]}"
    return str(value)
