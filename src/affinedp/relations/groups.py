"""Sums over groups of rows: hierarchies by label columns, and balances of double-entry books."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.relations.chance import collision_share, log10_by_size
from affinedp.relations.columns import ExactTable, Labels
from affinedp.relations.numbers import Numbers
from affinedp.relations.relation import FITS, Checked, Relation, Terms, check

TOTAL_WORDS = frozenset(
    word
    for line in (
        ("total", "totals", "all", "sum", "overall", "aggregate", "subtotal", "subtotals"),
        ("gesamt", "insgesamt", "summe", "totale", "totaal"),
    )
    for word in line
)
# A label with no more values than this is tried as the mark of total rows whatever it says.
FEW_VALUES = 30
MOST_MISSES = 0.05


@dataclass(frozen=True, eq=False)
class GroupTotals:
    """Rows with a mark in one label column are sums of the rows that share all other labels.

    Attributes
    ----------
    label : str
        The label column.
    mark : str or None
        What marks a total row; None where it has no label.
    others : tuple of str
        The label columns that must agree.
    columns : tuple of (str, Checked)
        The columns for which it holds.
    not_columns : tuple of str
        Those for which it does not.
    groups : tuple of (int, tuple of int)
        Each total row and the rows that it is the sum of.
    log10_chance : float
        Bound on how many such families there are by chance.
    """

    label: str
    mark: str | None
    others: tuple[str, ...]
    columns: tuple[tuple[str, Checked], ...]
    not_columns: tuple[str, ...]
    groups: tuple[tuple[int, tuple[int, ...]], ...]
    log10_chance: float


def group_totals(
    table: ExactTable,
    keys: Sequence[str] | None = None,
    counted: Container[str] | None = None,
) -> list[GroupTotals]:
    """Return the hierarchies and cross-tabulations with totals that a table contains.

    Parameters
    ----------
    table : ExactTable
        The table.
    keys : sequence of str, optional
        The label columns that identify a row; by default all, then those that repeat.
    counted : container of str, optional
        Columns that no equation makes of others: only these are evidence.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({
    ...     "state": ["A", "A", "A", "B", "B", "B"], "county": ["x", "y", "all", "z", "w", "all"],
    ...     "n": [120, 80, 200, 50, 70, 120],
    ... })
    >>> found = group_totals(table)[0]
    >>> found.label, found.mark, found.others, found.groups
    ('county', 'all', ('state',), ((2, (0, 1)), (5, (3, 4))))
    """
    for labels in _key_sets(table, keys):
        found = [one for label in labels for one in _marked(table, label, labels, counted)]
        if found:
            return found
    return []


def _key_sets(table: ExactTable, keys: Sequence[str] | None) -> Iterator[list[Labels]]:
    if keys is not None:
        yield [label for label in table.labels if label.name in keys]
        return
    everything = list(table.labels)
    yield everything
    repeating = [label for label in everything if len(label.values) < table.rows]
    if len(repeating) < len(everything):
        yield repeating


def _marked(
    table: ExactTable, label: Labels, labels: list[Labels], counted: Container[str] | None
) -> Iterator[GroupTotals]:
    others = [one for one in labels if one is not label]
    if others:
        stacked = np.stack([one.codes for one in others], axis=1)
        group = np.ravel(np.unique(stacked, axis=0, return_inverse=True)[1])
    else:
        group = np.zeros(table.rows, dtype=np.intp)
    marks = _marks(label)
    for mark in marks:
        found = _family(table, label, mark, others, group, len(marks) * len(labels), counted)
        if found is not None:
            yield found
            return


def says_total(text: str) -> bool:
    """Whether a label says that its row is a total.

    Parameters
    ----------
    text : str
        The label.

    Examples
    --------
    >>> [says_total(text) for text in ("Total", "sub-total 3", "all", "allotments")]
    [True, True, True, False]
    """
    return bool(TOTAL_WORDS & set(re.split(r"[\W\d_]+", text.lower().replace("sub-", "sub"))))


def _marks(label: Labels) -> list[int]:
    """What may mark a total row, the likeliest first."""
    words = [code for code, text in enumerate(label.values) if says_total(text)]
    nothing = [-1] if (label.codes < 0).any() else []
    rest = [c for c in range(len(label.values)) if c not in words]
    return [*nothing, *words, *(rest if len(label.values) <= FEW_VALUES else [])]


def _family(
    table: ExactTable,
    label: Labels,
    mark: int,
    others: list[Labels],
    group: NDArray[np.intp],
    tried: int,
    counted: Container[str] | None,
) -> GroupTotals | None:
    marked = label.codes == mark
    totals = np.flatnonzero(marked)
    parts = np.flatnonzero(~marked)
    place = dict(zip(group[totals].tolist(), totals.tolist()))
    if len(place) < len(totals):
        return None  # two rows would be the same total
    parts = parts[np.isin(group[parts], list(place))]
    order = parts[np.argsort(group[parts], kind="stable")]
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    members = [part for part in np.split(order, cuts) if len(part) > 1]
    if not members:
        return None
    rows = np.array([place[int(group[part[0]])] for part in members], dtype=np.intp)
    held: list[tuple[str, Checked]] = []
    not_held: list[str] = []
    chance = 0.0
    for name, column in zip(table.names, table.columns):
        terms = Terms((name, "sum"), (column.take(rows), sums(column, members)), constant=False)
        found = check(Relation({0: Fraction(1), 1: Fraction(-1)}), terms)
        # rounding of every part counts
        width = max(map(len, members)) / 2 if column.written else 0.0
        good = found.zero if found.exact else found.within
        if found.rows == 0 or found.rows - good > MOST_MISSES * found.rows:
            not_held.append(name)
            continue
        held.append((name, found))
        if counted is not None and name not in counted:
            continue
        values = terms.columns[0].whole[~terms.columns[0].missing]
        chance += log10_by_size(values, 0.0 if found.exact else width, collision_share(column))
    if not held:
        return None
    columns = 2.0 ** min(len(not_held) + len(held), 50) if not_held else 1.0
    return GroupTotals(
        label.name,
        label.values[mark] if mark >= 0 else None,
        tuple(one.name for one in others),
        tuple(held),
        tuple(not_held),
        tuple((int(r), tuple(part.tolist())) for r, part in zip(rows, members)),
        min(0.0, chance + float(np.log10(tried) + np.log10(columns))),
    )


def sums(column: Numbers, members: Sequence[NDArray[np.intp]]) -> Numbers:
    """Return the exact sums of a column over groups of rows.

    Parameters
    ----------
    column : Numbers
        The column.
    members : sequence of int arrays
        The rows of each group, none empty.
    """
    order = np.concatenate(members)
    starts = np.cumsum([0, *map(len, members[:-1])])
    whole = column.whole_at(order)
    if whole.dtype != object and column.largest * max(map(len, members)) >= FITS:
        whole = whole.astype(object)
    gone = np.logical_or.reduceat(column.missing[order], starts)
    added = np.add.reduceat(whole, starts)
    return Numbers(column.unit, gone, column.written, added)


def grouped_terms(table: ExactTable, label: Labels, chosen: Sequence[int]) -> Terms | None:
    """Return the sums of columns by label, with the number of rows as a further term.

    Parameters
    ----------
    table : ExactTable
        The table.
    label : Labels
        What groups the rows.
    chosen : sequence of int
        Which columns.
    """
    there = np.flatnonzero(label.codes >= 0)
    order = there[np.argsort(label.codes[there], kind="stable")]
    if not len(order):
        return None
    members = np.split(order, np.flatnonzero(np.diff(label.codes[order])) + 1)
    columns = [sums(table.columns[j], members) for j in chosen]
    count = np.array([len(part) for part in members], dtype=np.int64)
    number = Numbers(Fraction(1), np.zeros(len(members), dtype=bool), True, count)
    names = [f"sum of {table.names[j]}" for j in chosen]
    return Terms((*names, "number of rows"), (*columns, number), constant=False)
