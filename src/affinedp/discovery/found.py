"""Everything that was found in a table, in words and ready to paste."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from affinedp.discovery.costs import upward
from affinedp.discovery.equation import DiscoveredEquation

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
        lines += self._public_lines()
        within = [one for one in self.equations if one.scope == "row" and len(one.columns) > 1]
        if within:
            lines.append("equations = [")
            for one in within:
                remark = f"  {_comment(self._remark(one))}" if one.kind != "exact" else ""
                lines.append(f"    {_text(one.text)},{remark}")
            lines.append("]")
        if self.hierarchy:
            lines.append(f"hierarchy = {_text(self.hierarchy)}")
        between = [one for one in self.equations if one.scope != "row"]
        if any(one.pattern != "hierarchy" or not self.hierarchy for one in between):
            lines.append(UNDECIDED)  # no file is read with this line: rows would count as separate
        for one in between:
            if not self._has_a_key(one):
                lines.append(_comment(f"between rows: {one.text}"))
        sums = [one.sides() for one in within if one.pattern == "total"]
        # these keys of a table file say in which numbers a person is counted, and no data does
        for head, pairs in (
            ("[totals]  # not the equation, if people are counted in the parts",
             [(total, parts) for (total,), parts in sums]),
            ("[changes]  # if people are counted in the right one, not in its changes",
             self.changes.items()),
            ("[row_totals]  # if people are counted in the parts, and so in the total",
             self.row_totals),
        ):  # fmt: skip
            lines += [f"# {head}"] if pairs else []
            lines += [_comment(f"{_text(key)} = {_text(value)}") for key, value in pairs]
        return "\n".join(lines)

    def python(self) -> str:
        """Return the equations within a row as a call that can be pasted into a script."""
        texts = [one.text for one in self.equations if one.scope == "row" and len(one.columns) > 1]
        inside = "".join(f"    {text!r},\n" for text in texts)
        return f"adp.AffineManifold.from_equations([\n{inside}])" if texts else ""

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
            rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
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

    def _public_lines(self) -> list[str]:
        fixed = [one for one in self.equations if one.scope == "row" and len(one.columns) == 1]
        return [_comment(f"{one.text} in every row: there is nothing to protect") for one in fixed]

    def _has_a_key(self, one: DiscoveredEquation) -> bool:
        """Whether a table file has a key of its own for this equation."""
        if one.pattern == "change":
            return any(column in one.columns for column in self.changes)
        return (one.pattern == "hierarchy" and bool(self.hierarchy)) or (
            one.pattern == "total row" and bool(self.row_totals)
        )

    def _remark(self, one: DiscoveredEquation) -> str:
        if one.kind == "rounded":
            return f"off by rounding, at most {one.largest_miss:.6g}"
        row, miss = one.misses[0] if one.misses else ("", one.largest_miss)
        return f"holds in {one.holds} rows; {row} misses by {abs(miss):.6g}"


def _text(value: str | Sequence[str]) -> str:
    """A text or a list of texts, as TOML writes them."""
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
