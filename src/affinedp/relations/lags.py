"""Relations between a row and an earlier one: changes, running totals, balances carried forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.relations.columns import ExactTable, Labels
from affinedp.relations.exact import MOST_MISSES
from affinedp.relations.nearly import COARSE
from affinedp.relations.numbers import Numbers
from affinedp.relations.relation import Checked, Relation, Terms, residual

# A label that has at least this many rows of its own makes a run.
SHORTEST_RUN = 2
MOST_ORDERS = 3


@dataclass(frozen=True, eq=False)
class Order:
    """Which rows follow which.

    Attributes
    ----------
    now, before : int arrays
        Rows and the rows that they are compared with.
    words : str
        What follows what, for people.
    longest : int
        How many rows follow each other, at most.
    """

    now: NDArray[np.intp]
    before: NDArray[np.intp]
    words: str
    longest: int


def orders(
    table: ExactTable, lag: int, by: Sequence[str] | None, order: NDArray[np.intp]
) -> list[Order]:
    """Return the ways in which rows may follow each other.

    Parameters
    ----------
    table : ExactTable
        The table.
    lag : int
        How many rows lie between.
    by : sequence of str, optional
        Label columns: rows follow each other only where these are equal.
    order : array of int
        The rows in the order of time.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({"state": ["A", "A", "B", "B"], "n": [1, 2, 3, 4]})
    >>> found = orders(table, 1, None, np.arange(4))
    >>> [(one.words, one.now.tolist(), one.before.tolist()) for one in found]
    [('within state', [1, 3], [0, 2])]
    """
    if by is not None:
        known = {label.name: label for label in table.labels}
        return [_within([known[name] for name in by], lag, order)] if by else [_plain(lag, order)]
    groups = [label for label in table.labels if _groups(label, table.rows)]
    together = [label for label in groups if _contiguous(label.codes[order])]
    scattered = [label for label in groups if not _contiguous(label.codes[order])]
    first = _within(together, lag, order) if together else _plain(lag, order)
    return [first, *(_within([label], lag, order) for label in scattered[: MOST_ORDERS - 1])]


def _plain(lag: int, order: NDArray[np.intp]) -> Order:
    return Order(order[lag:], order[:-lag], "row by row", len(order))


def _within(labels: Sequence[Labels], lag: int, order: NDArray[np.intp]) -> Order:
    codes = np.stack([label.codes[order] for label in labels], axis=1)
    _, group = np.unique(codes, axis=0, return_inverse=True)
    group = np.ravel(group)
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
    runs = 1 + int(np.count_nonzero(np.diff(codes)))
    return runs == len(np.unique(codes))


def lagged_terms(terms: Terms, order: Order, lag: int) -> Terms:
    """Return every term now and, right after it, the same term a lag earlier.

    Parameters
    ----------
    terms : Terms
        Columns.
    order : Order
        Which rows follow which.
    lag : int
        For their names.
    """
    names: list[str] = []
    columns: list[Numbers] = []
    for name, column in zip(terms.names, terms.columns):
        names += [f"{name}(t)", f"{name}(t-{lag})"]
        columns += [column.take(order.now), column.take(order.before)]
    return Terms(tuple(names), tuple(columns))


def known_twice(known: Sequence[Relation]) -> list[Relation]:
    """Return relations within a row as relations within this row and within the earlier one.

    Parameters
    ----------
    known : sequence of Relation
        About terms of one row.
    """
    return [
        Relation({2 * j + time: value for j, value in one.coefficients.items()}, one.offset)
        for one in known
        for time in (0, 1)
    ]


def is_counter(column: Numbers, order: Order) -> bool:
    """Whether a column only counts rows, as years do.

    Parameters
    ----------
    column : Numbers
        The column.
    order : Order
        Which rows follow which.
    """
    if len(order.now) < 2 or column.missing.any():
        return False
    both = Terms(("now", "before"), (column.take(order.now), column.take(order.before)))
    step, _ = residual(Relation({0: Fraction(1), 1: Fraction(-1)}), both)
    return bool(step[0] != 0 and np.all(step == step[0]))


def stands_still(found: Checked, both: Terms) -> bool:
    """Whether a relation that is not exact holds only because a column hardly changes.

    Parameters
    ----------
    found : Checked
        A relation between two times.
    both : Terms
        Every column now and, right after it, earlier.
    """
    support = set(found.relation.support)
    levels = [j for j in support if j % 2 == 0 and j + 1 in support]
    there = np.flatnonzero(~np.any([both.columns[j].missing for j in support], axis=0))
    changed = np.zeros(len(there), dtype=bool)
    for j in levels:
        step, common = residual(Relation({j: Fraction(1), j + 1: Fraction(-1)}), both, there)
        unit = both.resolution(j) * common
        changed |= np.abs(step) > unit / 2
        if found.zero < found.within and float(np.std(step.astype(float))) < COARSE * float(unit):
            return True
    if not levels or found.zero < found.within:
        return False
    left, _ = residual(found.relation, both, there)
    missed = np.count_nonzero(left[changed])
    return bool(missed > MOST_MISSES * np.count_nonzero(changed))
