"""One equation that was found in data, in the words of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from affinedp.relations.relation import Checked, Relation

Kind = Literal["exact", "rounded", "mostly"]
Scope = Literal["row", "earlier row", "rows"]


@dataclass(frozen=True)
class DiscoveredEquation:
    """An equation that data obeys.

    Attributes
    ----------
    text : str
        The equation in the columns' own names; for those within a row it can be read again.
    coefficients : mapping of str to Fraction
        Coefficient of each term when everything stands on one side.
    offset : Fraction
        The constant on that side.
    pattern : str
        What it is: a total, a copy, a conversion, a change, …
    kind : {"exact", "rounded", "mostly"}
        Whether every row obeys it exactly, up to rounding, or all but a few rows.
    scope : {"row", "earlier row", "rows"}
        Whether it ties the numbers of one row, of two, or of many.
    rows : int
        Rows (or sums) that could be checked.
    rows_that_hold : int
        Those that obey it, up to rounding where it is not exact.
    rows_exactly : int
        Those that obey it exactly.
    largest_miss : float
        The largest miss, in the units of the left side.
    rounding : float
        The largest miss that rounding alone explains.
    misses : tuple of (str, float)
        Rows that miss by more than rounding, the largest first.
    log10_chance : float
        Decimal logarithm of how many such equations to expect by chance: an upper bound.
    cost : float or None
        ε that the noise would really keep if the public knew this equation; None where that
        could not be said.
    cost_note : str
        Whether the cost is more in truth, and why.
    columns : tuple of str
        The columns it is about.
    """

    text: str
    coefficients: Mapping[str, Fraction]
    offset: Fraction
    pattern: str
    kind: Kind
    scope: Scope
    rows: int
    rows_that_hold: int
    rows_exactly: int
    largest_miss: float
    rounding: float
    misses: tuple[tuple[str, float], ...]
    log10_chance: float
    cost: float | None = None
    cost_note: str = ""
    columns: tuple[str, ...] = field(default=())

    @property
    def chance(self) -> str:
        """How many such equations chance would give, in words for people."""
        return "certain" if self.log10_chance > -1e-9 else f"10^{math.ceil(self.log10_chance)}"

    @property
    def holds(self) -> str:
        """In how many rows it holds, in words for people."""
        if self.rows_that_hold == self.rows:
            every = f"{self.rows:,} of {self.rows:,}"
            return every if self.kind == "exact" else f"{every}, up to rounding"
        return f"{self.rows_that_hold:,} of {self.rows:,}"


def kind_of(found: Checked) -> Kind:
    """Return whether every row obeys a relation, and how.

    Parameters
    ----------
    found : Checked
        The relation and how rows obey it.
    """
    if found.exact:
        return "exact"
    return "rounded" if found.within == found.rows else "mostly"


def written_equation(relation: Relation, names: Sequence[str], alone: int | None = None) -> str:
    """Return a relation as somebody would write it: a total on the left, its parts on the right.

    Parameters
    ----------
    relation : Relation
        The relation.
    names : sequence of str
        One per term, quoted where needed.
    alone : int, optional
        The term that stands on the left by itself, where that is wanted.

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
        shortest = min(map(abs, values.values()))
        return set(values), shortest if plus else -shortest
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
    sign = 1 if left is plus else -1
    return left, sign * min(map(abs, values.values()))


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

    Parameters
    ----------
    value : Fraction
        The number.

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


def quoted(name: str) -> str:
    """Return a name as equations write it: in backticks unless it is an identifier.

    Parameters
    ----------
    name : str
        Name of a column.
    """
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


def pattern_of(relation: Relation) -> str:
    """Return what a relation within a row is.

    Parameters
    ----------
    relation : Relation
        The relation.

    Examples
    --------
    >>> one = Fraction(1)
    >>> pattern_of(Relation({0: one, 1: one, 2: -one})), pattern_of(Relation({0: one}, -one))
    ('total', 'constant')
    """
    values = list(relation.coefficients.values())
    sizes = {abs(value) for value in values}
    plus = sum(value > 0 for value in values)
    lone = min(plus, len(values) - plus)
    if len(values) == 1:
        return "constant" if relation.offset else "zero"
    if len(values) == 2 and lone == 1:
        if relation.offset:
            return "shifted copy" if len(sizes) == 1 else "conversion"
        return "copy" if len(sizes) == 1 else "conversion"
    if len(sizes) > 1:
        return "weighted sum"
    if lone == 0:
        share = abs(relation.offset) / sizes.pop()
        return "shares of the whole" if share in (1, 100) else "fixed sum"
    if lone == 1:
        return "total and a constant" if relation.offset else "total"
    return "balance"
