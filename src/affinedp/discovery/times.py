"""Equations with an earlier row: changes, running totals, balances carried forward."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.costs import cost_over_rows
from affinedp.discovery.exact_table import ExactTable, Labels
from affinedp.discovery.found import DiscoveredEquation, told
from affinedp.discovery.relation import (
    MOST_MISSES,
    Found,
    Relation,
    Terms,
    inside,
    residual,
    written_equation,
)
from affinedp.discovery.rounded_relations import COARSE
from affinedp.discovery.search import Search
from affinedp.discovery.within import BLOCK, search_within
from affinedp.domains.text import quoted

# A label that has at least this many rows of its own makes a run.
SHORTEST_RUN = 2
MOST_ORDERS = 3
FEWEST_ROWS = 8
STEP = Relation({0: Fraction(1), 1: Fraction(-1)})


@dataclass(frozen=True, eq=False)
class Order:
    """Rows and the rows before them, in words, and how many follow each other at most."""

    now: NDArray[np.intp]
    before: NDArray[np.intp]
    words: str
    longest: int


def orders(
    table: ExactTable, lag: int, by: Sequence[str] | None, order: NDArray[np.intp]
) -> list[Order]:
    """Return the ways in which rows, in the order of time, may follow each other.

    They do where the label columns ``by`` are equal; found by itself by default.
    """
    if by is not None:
        known = {label.name: label for label in table.labels}
        return [_within([known[name] for name in by], lag, order)]
    groups = [label for label in table.labels if _groups(label, table.rows)]
    together = [label for label in groups if _contiguous(label.codes[order])]
    scattered = [label for label in groups if label not in together]
    return [
        _within(labels, lag, order)
        for labels in (together, *([label] for label in scattered[: MOST_ORDERS - 1]))
    ]


def _within(labels: Sequence[Labels], lag: int, order: NDArray[np.intp]) -> Order:
    if not labels:
        return Order(order[lag:], order[:-lag], "row by row", len(order))
    codes = np.stack([label.codes[order] for label in labels], axis=1)
    group = np.ravel(np.unique(codes, axis=0, return_inverse=True)[1])
    place = np.argsort(group, kind="stable")
    rows, group = order[place], group[place]
    same = group[lag:] == group[:-lag]
    words = "within " + ", ".join(label.name for label in labels)
    return Order(rows[lag:][same], rows[:-lag][same], words, int(np.bincount(group).max()))


def _groups(label: Labels, rows: int) -> bool:
    """Whether the labels name groups of rows, and neither all of them nor each by itself."""
    there = label.codes[label.codes >= 0]
    few = len(label.values) * SHORTEST_RUN <= len(there)
    return len(label.values) > 1 and few and len(there) == rows


def _contiguous(codes: NDArray[np.int64]) -> bool:
    return 1 + int(np.count_nonzero(np.diff(codes))) == len(np.unique(codes))


def _both(terms: Terms, way: Order, lag: int) -> Terms:
    """Every term now and, right after it, the same term a lag earlier."""
    names: list[str] = []
    columns: list[Numbers] = []
    for name, column in zip(terms.names, terms.columns):
        names += [f"{name}(t)", f"{name}(t-{lag})"]
        columns += [column.take(way.now), column.take(way.before)]
    return Terms(tuple(names), tuple(columns))


def _is_counter(column: Numbers, way: Order) -> bool:
    """Whether a column only counts rows, as years do."""
    if len(way.now) < 2 or column.missing.any():
        return False
    step, _ = residual(STEP, _both(Terms(("",), (column,)), way, 0))
    return bool(step[0] != 0 and np.all(step == step[0]))


def _stands_still(found: Found, both: Terms) -> bool:
    """Whether a relation that is not exact holds only because a column hardly changes."""
    support = set(found.relation.support)
    levels = [j for j in support if j % 2 == 0 and j + 1 in support]
    there = both.complete(support)
    changed = np.zeros(len(there), dtype=bool)
    for j in levels:
        step, common = residual(STEP.moved({0: j, 1: j + 1}), both, there)
        unit = both.resolution(j) * common
        changed |= np.abs(step) > unit / 2
        if found.zero < found.within and float(np.std(step.astype(float))) < COARSE * float(unit):
            return True
    if not levels or found.zero < found.within:
        return False
    left, _ = residual(found.relation, both, there)
    missed = np.count_nonzero(left[changed])
    return bool(missed > MOST_MISSES * np.count_nonzero(changed))


def between_times(search: Search, lag: int) -> list[DiscoveredEquation]:
    """Return the equations between a row and the one a lag earlier."""
    terms = search.table.terms
    easy = {one.support[-1] for one in search.found if len(one.support) < 3}
    kept = [j for j in range(len(terms)) if j not in easy]
    out: list[DiscoveredEquation] = []
    for way in orders(search.table, lag, search.by, search.order):
        if len(way.now) < FEWEST_ROWS:
            continue
        moving = [j for j in kept if not _is_counter(terms.columns[j], way)]
        if 2 * len(moving) > BLOCK:
            search.notes.append(
                f"equations with earlier rows: not looked for in {len(moving)} columns"
            )
        if not moving or 2 * len(moving) > BLOCK:
            continue
        part = terms.subset(moving)
        both = _both(part, way, lag)
        known = [
            one.moved({j: 2 * j + time for j in one.coefficients})
            for one in inside([*search.known, *search.found], moving)
            for time in (0, 1)
        ]
        found = search_within(both, search.rng, search.limit, known)
        search.notes.extend(
            f"with earlier rows: {text}"
            for text in found.notes[:1]
            if "may have been missed" not in text
        )
        for one in found.found:
            if len({j % 2 for j in one.relation.support}) == 1:
                continue  # within one row after all: constants that only the first row breaks
            if one.exact or not _stands_still(one, both):
                said = _lagged(search, part, both, one, way, lag)
                if all(said.text != other.text for other in out):
                    out.append(said)
    return out


def _lagged(
    search: Search, part: Terms, both: Terms, one: Found, way: Order, lag: int
) -> DiscoveredEquation:
    relation = one.relation
    pattern, alone = _lag_pattern(relation)
    written = [quoted(name) + time for name in part.names for time in ("(t)", f"(t-{lag})")]
    text = written_equation(relation, written, alone)
    named = {f"{part.names[j // 2]}@{j % 2}": value for j, value in relation.coefficients.items()}
    return told(
        one,
        text if way.words == "row by row" else f"{text}, {way.words}",
        {both.names[j]: relation.coefficients[j] for j in relation.support},
        pattern=pattern,
        columns=list(dict.fromkeys(part.names[j // 2] for j in relation.support)),
        row_name=lambda row: search.table.row_name(int(way.now[row])),
        scope="earlier row",
        cost=cost_over_rows(search.promise, (named, relation.offset), lag, way.longest),
    )


def _lag_pattern(relation: Relation) -> tuple[str, int | None]:
    """What a relation between two times is, and which term stands by itself on the left."""
    now = {j // 2 for j in relation.support if j % 2 == 0}
    before = {j // 2 for j in relation.support if j % 2 == 1}
    values = relation.coefficients
    if before <= now and len(before) == 1:
        level = next(iter(before))
        if values[2 * level] == -values[2 * level + 1]:
            if len(now) == 2:
                return "change", 2 * next(iter(now - before))
            return "carried forward" if len(now) > 2 else "steady change", 2 * level
    if len(relation.support) == 2:
        return "copy of an earlier row", None
    return "between rows in time", None


def changes_of(found: Sequence[DiscoveredEquation]) -> dict[str, str]:
    """Return the columns that are changes of others since the row before, as table files say it."""
    out: dict[str, str] = {}
    for one in found:
        for column, of in itertools.permutations(one.columns, 2):
            level = quoted(of)
            # as it stands: not within groups, which a table file has no word for
            if one.text == f"{quoted(column)}(t) = {level}(t) - {level}(t-1)":
                out.setdefault(column, of)
    return out
