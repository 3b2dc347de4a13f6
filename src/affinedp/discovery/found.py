"""Equations that were found in a table: each in the words of its columns, and all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal

from affinedp.discovery.costs import Cost, upward
from affinedp.discovery.relation import Found, Relation
from affinedp.errors import counted

Kind = Literal["exact", "rounded", "mostly"]
Scope = Literal["row", "earlier row", "rows"]
PRIVATE = (
    "Found in private data: for whoever holds the data, not for publication. Nothing of it goes "
    "into a mechanism unless you add it."
)
UNDECIDED = (
    'between_rows = "undecided"  # say below what the public knows of it, and take this line out'
)
SHOWN_DOUBTFUL = 8
SHOWN_LABELS = 12


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
        ε that the noise would really give if the public knew this equation; None where that
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


@dataclass(frozen=True)
class Discovery:
    """The equations that a table obeys, those that cost most first.

    Attributes
    ----------
    equations : tuple of DiscoveredEquation
        What holds and is hardly chance.
    doubtful : tuple of DiscoveredEquation
        What holds and may be chance: too few rows, or too few different numbers.
    notes : tuple of str
        What was not looked at, and how columns were read.
    promise : str
        The noise that the costs are about.
    rows : int
        Rows of the table.
    columns : tuple of str
        Columns of numbers.
    labels : tuple of str
        Columns that label rows.
    cost_of_all : float or None
        ε that is kept if the public knows all equations within a row together; None where that
        could not be said.
    hierarchy : tuple of str
        Label columns from the top to the bottom, where rows are totals by them.
    changes : mapping of str to str
        Columns that are the change of another one since the row before, and that one, as
        :class:`~affinedp.tables.TableRelease` takes them.
    row_totals : tuple of (str, tuple of str)
        Rows that are sums of rows, by the labels of the table.
    """

    equations: tuple[DiscoveredEquation, ...]
    doubtful: tuple[DiscoveredEquation, ...] = ()
    notes: tuple[str, ...] = ()
    promise: str = ""
    rows: int = 0
    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    cost_of_all: float | None = None
    hierarchy: tuple[str, ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)
    row_totals: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    def toml(self) -> str:
        """Return the equations as the top of a problem file or a table file.

        Look at every line: only what the public knows belongs there.  A table file asks besides in
        which numbers a person is counted, which no data tells: give sums under ``[totals]``, or
        name ``cells``.  What is found about rows is a comment, and no file is read before somebody
        has decided about it.

        Examples
        --------
        >>> import affinedp as adp
        >>> a, b = [12, 71, 45, 33, 90, 8, 27, 64], [5, 81, 22, 97, 41, 60, 13, 38]
        >>> table = {"a": a, "b": b, "both": [x + y for x, y in zip(a, b)]}
        >>> print(adp.discover(table).toml())  # doctest: +ELLIPSIS
        # Found in private data: ...
        # Keep the lines that the public knows.
        equations = [
            "both = a + b",
        ]
        # [totals]  # not the equation, if people are counted in the parts
        # "both" = ["a", "b"]
        """
        lines = [f"# {PRIVATE}", "# Keep the lines that the public knows."]
        lines += [
            _comment(f"{one.text} in every row: there is nothing to protect")
            for one in self.equations
            if one.scope == "row" and len(one.columns) == 1
        ]
        within = [one for one in self.equations if one.scope == "row" and len(one.columns) > 1]
        if within:
            lines.append("equations = [")
            for one in within:
                remark = f"  {_comment(self._remark(one))}" if one.kind != "exact" else ""
                lines.append(f"    {_text(one.text)},{remark}")
            lines.append("]")
        between = [one for one in self.equations if one.scope != "row"]
        if between:
            lines.append(UNDECIDED)  # no file is read with this line: rows would count as separate
        for one in between:
            if not self._has_a_key(one):
                lines.append(_comment(f"between rows: {one.text}"))
        sums = [one.sides() for one in within if one.pattern == "total"]
        # these keys of a table file say in which numbers a person is counted, and no data does
        if self.hierarchy:
            lines.append("# hierarchy: if people are counted in the rows without further parts")
            lines.append(f"# hierarchy = {_text(self.hierarchy)}")
        for head, pairs in (
            ("[totals]  # not the equation, if people are counted in the parts",
             [(total, parts) for (total,), parts in sums]),
            ("[changes]  # if people are counted in the right one, not in its changes",
             self.changes.items()),
            ("[row_totals]  # if people are counted in the parts, and so in the total",
             self.row_totals),
        ):  # fmt: skip
            lines += [f"# {head}"] if pairs else []
            told: dict[str, list[Any]] = {}
            for key, value in pairs:
                told.setdefault(key, []).append(value)
            # a key stands once in a table of TOML: a total of several kinds of parts lists them
            lines += [
                _comment(f"{_text(key)} = {_text(ways if len(ways) > 1 else ways[0])}")
                for key, ways in told.items()
            ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "private": PRIVATE,
            "rows": self.rows,
            "columns": list(self.columns),
            "labels": list(self.labels),
            "cost_is_of": self.promise,
            "cost_of_all": _number(self.cost_of_all),
            "equations": [_as_dict(one) for one in self.equations],
            "doubtful": [_as_dict(one) for one in self.doubtful],
            "hierarchy": list(self.hierarchy),
            "changes": dict(self.changes),
            "row_totals": {total: list(parts) for total, parts in self.row_totals},
            "notes": list(self.notes),
        }

    def headings(self) -> tuple[str, ...]:
        """Return the headings of :meth:`table`."""
        return ("equation", "what", "holds in rows", "largest miss", "by chance", "ε if known")

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield one row of texts per equation, as people read it."""
        for one in self.equations:
            cost = "–" if one.cost is None else upward(one.cost)
            if one.cost_note.startswith("at least"):
                cost = f"≥ {cost}"
            miss = f"{one.largest_miss:.6g}" if one.largest_miss else "0"
            if one.misses:
                miss += f" ({one.misses[0][0]})"
            yield one.text, one.pattern, one.holds, miss, one.chance, cost

    def summary(self) -> list[str]:
        """Return the sentences around the table."""
        lines = []
        if not self.columns:
            lines.append("No column of numbers: nothing was looked at.")
        elif not self.equations:
            rows = counted(self.rows, "row")
            lines.append(f"No linear equation was found in {rows}.")
        if self.cost_of_all is not None and len(self.equations) > 1:
            lines.append(
                f"If the public knows all of those within a row, ε = {upward(self.cost_of_all)}."
            )
        if self.promise:
            lines.append(f"ε is of {self.promise}.")
        if self.doubtful:
            some = "; ".join(one.text for one in self.doubtful[:SHOWN_DOUBTFUL])
            more = "; …" if len(self.doubtful) > SHOWN_DOUBTFUL else ""
            lines.append(f"These hold and may be chance: {some}{more}")
        if self.labels:
            some = ", ".join(self.labels[:SHOWN_LABELS])
            more = ", …" if len(self.labels) > SHOWN_LABELS else ""
            lines.append(f"Read as labels, not as numbers: {some}{more}.")
        return [*lines, *(f"Note: {one}" for one in self.notes), PRIVATE]

    def __str__(self) -> str:
        rows = [self.headings(), *self.table()] if self.equations else []
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *self.summary()])

    def _repr_html_(self) -> str:
        from html import escape

        def line(kind: str, row: Sequence[str]) -> str:
            cells = (f"<{kind} style='text-align:left'>{escape(text)}</{kind}>" for text in row)
            return f"<tr>{''.join(cells)}</tr>"

        body = "".join(line("td", row) for row in self.table())
        below = "".join(f"<p>{escape(one)}</p>" for one in self.summary())
        return f"<table>{line('th', self.headings())}{body}</table>{below}"

    def _has_a_key(self, one: DiscoveredEquation) -> bool:
        """Whether a table file has a key of its own for this equation."""
        if one.pattern == "change":
            return any(column in one.columns for column in self.changes)
        if one.pattern == "hierarchy":
            return bool(self.hierarchy or self.row_totals)
        return one.pattern == "total row" and bool(self.row_totals)

    def _remark(self, one: DiscoveredEquation) -> str:
        if one.kind == "rounded":
            return f"off by rounding, at most {one.largest_miss:.6g}"
        row, miss = one.misses[0] if one.misses else ("", one.largest_miss)
        return f"holds in {one.holds} rows; {row} misses by {abs(miss):.6g}"


def _text(value: str | Sequence[Any]) -> str:
    """A text or a list of texts (or of such lists), as TOML writes them."""
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    """One line, whatever names of columns and rows hold."""
    return "# " + " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _number(value: float | None) -> float | str | None:
    return value if value is None or value < float("inf") else "inf"


def _as_dict(one: DiscoveredEquation) -> dict[str, Any]:
    """The fields of an equation as plain values."""
    return {each.name: getattr(one, each.name) for each in fields(one)} | {
        "coefficients": {name: str(value) for name, value in one.coefficients.items()},
        "offset": str(one.offset),
        "columns": list(one.columns),
        "misses": [{"row": row, "miss": miss} for row, miss in one.misses],
        "cost": _number(one.cost),
    }
