"""One equation that was found in data, in the words of its columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from affinedp.discovery.costs import Cost
from affinedp.discovery.relation import Found, Relation

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
        held = f"{self.rows_that_hold:,} of {self.rows:,}"
        return f"{held}, up to rounding" if self.kind == "rounded" else held

    def sides(self) -> tuple[list[str], list[str]]:
        """Return the terms of either sign, the shorter side first."""
        plus = [name for name, value in self.coefficients.items() if value > 0]
        minus = [name for name, value in self.coefficients.items() if value < 0]
        return (plus, minus) if len(plus) <= len(minus) else (minus, plus)


def told(
    found: Found,
    text: str,
    coefficients: Mapping[str, Fraction],
    *,
    pattern: str,
    columns: Sequence[str],
    row_name: Callable[[int], str],
    scope: Scope = "row",
    cost: Cost | None = None,
) -> DiscoveredEquation:
    """Return what was found as an equation in words; ``row_name`` names the rows that miss it."""
    kind: Kind = "exact" if found.exact else "mostly" if found.missed else "rounded"
    misses = tuple((row_name(row), float(miss)) for row, miss in found.worst)
    return DiscoveredEquation(
        text=text,
        coefficients=coefficients,
        offset=found.relation.offset,
        pattern=pattern,
        kind=kind,
        scope=scope,
        rows=found.rows,
        rows_that_hold=found.within,
        rows_exactly=found.zero,
        largest_miss=float(found.largest_miss),
        rounding=float(found.rounding),
        misses=misses if kind == "mostly" else (),
        log10_chance=found.log10_chance,
        cost=None if cost is None else cost.epsilon,
        cost_note="" if cost is None else cost.note,
        columns=tuple(columns),
    )


def pattern_of(relation: Relation) -> str:
    """Return what a relation within a row is.

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
        if len(sizes) > 1:
            return "conversion"
        return "shifted copy" if relation.offset else "copy"
    if len(sizes) > 1:
        return "weighted sum"
    if lone == 0 and not relation.offset:
        return "negative copy" if len(values) == 2 else "balance"
    if lone == 0:
        share = abs(relation.offset) / sizes.pop()
        return "shares of the whole" if share in (1, 100) else "fixed sum"
    if lone == 1:
        return "total and a constant" if relation.offset else "total"
    return "balance"
