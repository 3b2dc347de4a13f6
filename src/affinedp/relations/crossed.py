"""Equations between rows in small tables, and rows that repeat columns.

A statement of accounts has its items in the rows and years in the columns; an input-output table
has the same sectors in both.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.relations.chance import collision_share, log10_by_size, log10_choices
from affinedp.relations.columns import ExactTable
from affinedp.relations.exact import exact_relations
from affinedp.relations.numbers import Numbers
from affinedp.relations.relation import Checked, Relation, Terms
from affinedp.relations.steady import least_surprises

MOST_ROWS = 80
FEWEST = 3
MOST_MATCHED = 1000


@dataclass(frozen=True, eq=False)
class RowRelation:
    """An equation between rows that holds in every column.

    Attributes
    ----------
    found : Checked
        The relation; its terms are rows.
    columns : tuple of str
        The columns in which it holds.
    log10_chance : float
        Bound on how many such equations there are by chance.
    """

    found: Checked
    columns: tuple[str, ...]
    log10_chance: float


def row_relations(
    table: ExactTable,
    rng: np.random.Generator,
    limit: float,
    known: Sequence[Relation] = (),
    counted: Container[str] | None = None,
) -> list[RowRelation]:
    """Return the equations between rows of a small table that hold in every column.

    Parameters
    ----------
    table : ExactTable
        The table.
    rng : Generator
        For the search.
    limit : float
        log10 of the chance beyond which an equation is not told.
    known : sequence of Relation
        Between rows; they need not be found again.
    counted : container of str, optional
        Columns that no equation makes of others: only these are evidence.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({
    ...     "item": ["sales", "cost", "profit"],
    ...     "2021": [5123, 3907, 1216], "2022": [5480, 4021, 1459], "2023": [6001, 4415, 1586],
    ... })
    >>> found = row_relations(table, np.random.default_rng(0), -4.0)
    >>> [dict(one.found.relation.coefficients) for one in found]
    [{0: Fraction(1, 1), 1: Fraction(-1, 1), 2: Fraction(-1, 1)}]
    """
    whole = [j for j, column in enumerate(table.columns) if not column.missing.any()]
    if not FEWEST <= table.rows <= MOST_ROWS or len(whole) < FEWEST:
        return []
    names = tuple(table.names[j] for j in whole)
    terms = Terms(
        tuple(table.row_name(i) for i in range(table.rows)),
        tuple(_row(table, i, whole) for i in range(table.rows)),
        constant=False,
    )
    told = [j for j, name in enumerate(names) if counted is None or name in counted]
    shares = [collision_share(table.columns[whole[j]]) for j in told]
    if _too_small(terms, told, shares, limit):
        return []
    out = []
    for one in exact_relations(terms, np.arange(len(whole)), rng, known).exact:
        if len(one.relation.coefficients) < FEWEST:
            continue  # zero rows and copies of rows are no sums
        if one.relation.digits and len(told) <= len(one.relation.coefficients):
            continue  # so many columns any coefficients could have been fitted to
        moved = [_moved(one.relation, terms, j) for j in told]
        evidence = max(
            sum(
                max(log10_by_size(terms.columns[i].source[j : j + 1], 0.0, share), steady)
                for j, share, steady in zip(told, shares, moved)
            )
            for i in one.relation.coefficients
        )
        chance = min(0.0, evidence + log10_choices(one.relation, len(terms)))
        if chance <= limit:
            out.append(RowRelation(one, names, chance))
    return out


def _moved(relation: Relation, terms: Terms, j: int) -> float:
    """log10 of the chance that the numbers of column j which surprise most come as they do."""
    values = np.array([int(row.source[j]) for row in terms.columns], dtype=object)
    surprise = least_surprises(values)[list(relation.coefficients)]
    return log10_by_size(np.array([int(surprise.max())], dtype=object), 0.0, 0.0)


def _too_small(terms: Terms, told: Sequence[int], shares: Sequence[float], limit: float) -> bool:
    """Whether even the plainest sum of rows with the largest numbers could be chance."""
    most = 0.0
    for j, share in zip(told, shares):
        largest = max((abs(int(row.source[j])) for row in terms.columns), default=0)
        most += log10_by_size(np.array([largest], dtype=object), 0.0, share)
    plain = Relation(dict.fromkeys(range(FEWEST), Fraction(1)))
    return most + log10_choices(plain, len(terms)) > limit


def _row(table: ExactTable, row: int, columns: Sequence[int]) -> Numbers:
    """One row, each number in units of its column: sums of rows do not mix columns."""
    values = np.empty(len(columns), dtype=object)
    values[:] = [int(table.columns[j].whole_at(slice(row, row + 1))[0]) for j in columns]
    return Numbers(Fraction(1), np.zeros(len(columns), dtype=bool), True, values)


@dataclass(frozen=True, eq=False)
class Mirror:
    """A row that repeats a column: what flows out of each sector is what flows in.

    Attributes
    ----------
    row : int
        The row.
    column : str
        The column with the same numbers.
    label : str
        The label column whose values are names of columns.
    entries : tuple of str
        Those names.
    log10_chance : float
        Bound on how many such pairs there are by chance.
    """

    row: int
    column: str
    label: str
    entries: tuple[str, ...]
    log10_chance: float


def mirrors(table: ExactTable, limit: float) -> list[Mirror]:
    """Return the rows that repeat a column, where the same names label rows and columns.

    Parameters
    ----------
    table : ExactTable
        The table.
    limit : float
        log10 of the chance beyond which a pair is not told.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({
    ...     "from": ["farm", "mill", "shop", "output"], "farm": [10, 250, 31, 311],
    ...     "mill": [140, 20, 73, 490], "shop": [161, 220, 35, 420], "use": [311, 490, 420, 0],
    ... })
    >>> [(one.row, one.column, one.entries) for one in mirrors(table, -4.0)]
    [(3, 'use', ('farm', 'mill', 'shop'))]
    """
    out: list[Mirror] = []
    places = {name: j for j, name in enumerate(table.names)}
    for label in table.labels:
        shared = [
            (int(np.flatnonzero(label.codes == code)[0]), places[text], text)
            for code, text in enumerate(label.values)
            if text in places and np.count_nonzero(label.codes == code) == 1
        ]
        if not FEWEST <= len(shared) <= MOST_MATCHED:
            continue
        rows = np.array([row for row, _, _ in shared])
        inner = {j for _, j, _ in shared}
        outer = [i for i in range(table.rows) if i not in set(rows.tolist())]
        across = {tuple(_value(table, i, j) for _, j, _ in shared): i for i in outer[:MOST_MATCHED]}
        for j, name in enumerate(table.names):
            if j in inner:
                continue
            values = tuple(_value(table, int(i), j) for i in rows)
            row = across.get(values)
            if row is None or None in values:
                continue
            column = table.columns[j]
            chance = log10_by_size(column.whole_at(rows), 0.0, collision_share(column))
            chance = min(0.0, chance + float(np.log10(len(outer) * len(table.names))))
            if chance <= limit:
                entries = tuple(text for _, _, text in shared)
                out.append(Mirror(row, name, label.name, entries, chance))
    return out


def _value(table: ExactTable, row: int, j: int) -> Fraction | None:
    column = table.columns[j]
    if column.missing[row]:
        return None
    return int(column.whole_at(slice(row, row + 1))[0]) * column.unit
