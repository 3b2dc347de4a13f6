"""Equations between many rows, in words: hierarchies, total rows, balances by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from affinedp.discovery.costs import (
    MOST_COMPONENT,
    Cost,
    Promise,
    cost_between_rows,
    cost_of_sums,
)
from affinedp.discovery.equation import DiscoveredEquation, kind_of
from affinedp.discovery.gather import equation_of, zero_offset
from affinedp.relations.columns import ExactTable, Labels
from affinedp.relations.crossed import Mirror, RowRelation, mirrors, row_relations
from affinedp.relations.groups import GroupTotals, group_totals, grouped_terms
from affinedp.relations.relation import Checked, Relation, Terms
from affinedp.relations.subtotals import MOST_ROWS, Subtotal, subtotals
from affinedp.relations.within import Search, search_within
from affinedp.relations.written import quoted, written_equation

FEWEST_GROUPS = 8
SHOWN_PARTS = 12
ONE = Fraction(1)

Total = tuple[str, tuple[str, ...]]


def between_rows(
    table: ExactTable,
    terms: Terms,
    within: Search,
    known: Sequence[Relation],
    counted: frozenset[str],
    by: Sequence[str] | None,
    rng: np.random.Generator,
    limit: float,
    promise: Promise,
    notes: list[str],
) -> tuple[list[DiscoveredEquation], tuple[str, ...], tuple[Total, ...]]:
    """Return equations between rows, the levels of a hierarchy, and total rows by label.

    Parameters
    ----------
    table : ExactTable
        The table.
    terms : Terms
        Its columns.
    within : Search
        What was found within rows.
    known : sequence of Relation
        What else is known within rows.
    counted : frozenset of str
        Columns that no equation makes of others.
    by : sequence of str, optional
        Label columns that identify rows.
    rng : Generator
        For the search.
    limit : float
        log10 of the chance beyond which an equation is not told.
    promise : Promise
        Whose loss is told.
    notes : list of str
        Where to say what was not looked at.
    """
    out: list[DiscoveredEquation] = []
    totals: list[Total] = []
    families = [one for one in group_totals(table, by, counted) if one.log10_chance <= limit]
    out += [_family(table, one, promise) for one in families]
    if not families:
        rows = row_relations(table, rng, limit, counted=counted)
        out += [_row_relation(table, one, promise) for one in rows]
        if not rows:
            single = subtotals(table, limit, counted)
            out += [_subtotal(table, one, promise) for one in single]
            if table.row_names is not None:
                names = [table.row_name(i) for i in range(table.rows)]
                totals = [
                    (names[one.row], tuple(names[i] for i in one.parts))
                    for one in single
                    if not one.not_columns
                ]
        if table.rows > MOST_ROWS and not rows:
            notes.append(f"rows that are sums of other rows: not looked for in {table.rows:,} rows")
    out += [_mirror(table, one, promise) for one in mirrors(table, limit)]
    for label in table.labels:
        if len(label.values) >= FEWEST_GROUPS and len(label.values) * 1.5 <= table.rows:
            out += _balances(table, terms, [*known, *within.relations], label, rng, limit, promise)
    return out, _levels(families), tuple(totals)


def _levels(families: Sequence[GroupTotals]) -> tuple[str, ...]:
    """From the top to the bottom: a level with fewer totals is higher."""
    if not families or any(one.mark is not None for one in families):
        return ()
    ordered = sorted(families, key=lambda one: len(one.groups))
    labels = {one.label for one in families}
    if any(set(one.others) - labels for one in families):
        return ()
    return tuple(one.label for one in ordered)


def _together(columns: Sequence[tuple[str, Checked]]) -> Checked:
    """The column that obeys worst stands for all."""
    return max(
        (one for _, one in columns), key=lambda one: (one.rows - one.within, one.largest_miss)
    )


def _which(columns: Sequence[tuple[str, Checked]], not_columns: Sequence[str]) -> str:
    if not not_columns:
        return "in every column of numbers"
    names = [name for name, _ in columns]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"in {', '.join(names[:6])}{more}"


def _sum_equation(
    text: str,
    pattern: str,
    worst: Checked,
    columns: Sequence[str],
    chance: float,
    cost: Cost,
    missed: tuple[tuple[str, float], ...] = (),
) -> DiscoveredEquation:
    kind = kind_of(worst)
    return DiscoveredEquation(
        text=text,
        coefficients={"total": ONE, "sum of parts": -ONE},
        offset=Fraction(0),
        pattern=pattern,
        kind=kind,
        scope="rows",
        rows=worst.rows,
        rows_that_hold=worst.zero if kind == "exact" else max(worst.zero, worst.within),
        rows_exactly=worst.zero,
        largest_miss=float(worst.largest_miss),
        rounding=float(worst.rounding),
        misses=missed if kind == "mostly" else (),
        log10_chance=chance,
        cost=cost.epsilon,
        cost_note=cost.note,
        columns=tuple(columns),
    )


def _family(table: ExactTable, one: GroupTotals, promise: Promise) -> DiscoveredEquation:
    mark = f"{quoted(one.label)} {'is empty' if one.mark is None else f'is {one.mark!r}'}"
    same = f" with the same {', '.join(map(quoted, one.others))}" if one.others else ""
    worst = _together(one.columns)
    text = (
        f"a row where {mark} is the sum of the rows{same}, {_which(one.columns, one.not_columns)}"
    )
    names = [name for name, _ in one.columns]
    missed = tuple((table.row_name(one.groups[i][0]), float(miss)) for i, miss in worst.worst)
    cost = cost_of_sums(promise, one.groups, names[0])
    return _sum_equation(text, "hierarchy", worst, names, one.log10_chance, cost, missed)


def _subtotal(table: ExactTable, one: Subtotal, promise: Promise) -> DiscoveredEquation:
    parts = [table.row_name(i) for i in one.parts]
    first, last = one.parts[0], one.parts[-1]
    if len(parts) > SHOWN_PARTS:
        right = f"sum of {len(parts)} rows, {table.row_name(first)} to {table.row_name(last)}"
    else:
        right = " + ".join(f"[{name}]" for name in parts)
    text = f"[{table.row_name(one.row)}] = {right}, {_which(one.columns, one.not_columns)}"
    names = [name for name, _ in one.columns]
    cost = cost_of_sums(promise, [(one.row, one.parts[:MOST_COMPONENT])], names[0])
    worst = _together(one.columns)
    return _sum_equation(text, "total row", worst, names, one.log10_chance, cost)


def _row_relation(table: ExactTable, one: RowRelation, promise: Promise) -> DiscoveredEquation:
    names = [f"[{table.row_name(i)}]" for i in range(table.rows)]
    values = {f"{one.columns[0]}@{i}": c for i, c in one.found.relation.coefficients.items()}
    cost = cost_between_rows(promise, [(values, Fraction(0))])
    signs = sum(value > 0 for value in values.values())
    said = _sum_equation(
        written_equation(one.found.relation, names) + ", in every column of numbers",
        "total row" if min(signs, len(values) - signs) == 1 else "balance of rows",
        one.found,
        one.columns,
        one.log10_chance,
        cost,
    )
    named = {table.row_name(i): c for i, c in one.found.relation.coefficients.items()}
    return replace(said, coefficients=named)


def _mirror(table: ExactTable, one: Mirror, promise: Promise) -> DiscoveredEquation:
    here = f"[{table.row_name(one.row)}]"
    text = f"{quoted(one.column)} of each {quoted(one.label)} = {here} in the column of that name"
    cost = cost_between_rows(
        promise, [({f"{one.column}@0": ONE, f"{one.column}@1": -ONE}, Fraction(0))]
    )
    count = len(one.entries)
    worst = Checked(Relation({}), count, count, count, Fraction(0), Fraction(0), ())
    columns = (one.column, *one.entries)
    return _sum_equation(text, "row repeats column", worst, columns, one.log10_chance, cost)


def _balances(
    table: ExactTable,
    terms: Terms,
    inside: Sequence[Relation],
    label: Labels,
    rng: np.random.Generator,
    limit: float,
    promise: Promise,
) -> list[DiscoveredEquation]:
    """Equations between sums by label that no row obeys by itself: double-entry books."""
    grouped = grouped_terms(table, label, range(len(terms)))
    if grouped is None:
        return []
    size = len(terms)
    known = [zero_offset(one, size) for one in inside]
    out = []
    for found, chance in search_within(grouped, rng, limit, known).found:
        support = [j for j in found.relation.support if j < size]
        if not support or (chance > limit and len(found.relation.coefficients) > 1):
            continue
        group = {
            f"{terms.names[j]}@{i}": found.relation.coefficients[j]
            for j in support
            for i in range(2)
        }
        cost = cost_between_rows(promise, [(group, Fraction(0))])
        columns = [terms.names[j] for j in support]
        written = [f"sum of {quoted(name)}" for name in terms.names]
        said = equation_of(
            found,
            chance,
            grouped.names,
            columns,
            [label.values[row] for row, _ in found.worst],
            pattern="balance of groups",
            scope="rows",
            written=[*written, "number of rows"],
            after=f", for each {quoted(label.name)}",
        )
        out.append(replace(said, cost=cost.epsilon, cost_note=cost.note))
    return out
