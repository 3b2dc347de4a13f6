"""Equations between rows in small tables, rows that repeat columns, and balances of groups.

A statement of accounts has its items in the rows and years in the columns; an input-output table
has the same sectors in both; double-entry books balance by entry.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from affinedp.discovery.chance import collision_share, least_surprises, log10_by_size, log10_choices
from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.costs import cost_between_rows
from affinedp.discovery.exact_relations import exact_relations
from affinedp.discovery.exact_table import ExactTable, Labels
from affinedp.discovery.found import DiscoveredEquation, told
from affinedp.discovery.relation import Found, Relation, Terms, written_equation
from affinedp.discovery.row_sums import sums
from affinedp.discovery.search import Search
from affinedp.discovery.within import search_within
from affinedp.domains.text import quoted

MOST_ROWS = 80
FEWEST = 3
MOST_MATCHED = 1000
FEWEST_GROUPS = 8
ONE = Fraction(1)


def row_relations(
    table: ExactTable, rng: np.random.Generator, limit: float, counted: Container[str]
) -> tuple[list[Found], tuple[str, ...]]:
    """Return the equations between rows of a small table, and the columns in which they hold.

    Only counted columns, which no equation makes of others, are evidence.
    """
    whole = [j for j, column in enumerate(table.columns) if not column.missing.any()]
    names = tuple(table.names[j] for j in whole)
    if not FEWEST <= table.rows <= MOST_ROWS or len(whole) < FEWEST:
        return [], names
    # each number in units of its column: sums of rows do not mix columns
    numbers = np.array([table.columns[j].whole.astype(object) for j in whole])
    none = np.zeros(len(whole), dtype=bool)
    terms = Terms(
        tuple(map(table.row_name, range(table.rows))),
        tuple(Numbers(ONE, none, True, row) for row in numbers.T.copy()),
        constant=False,
    )
    evident = [j for j, name in enumerate(names) if name in counted]
    shares = [collision_share(table.columns[whole[j]]) for j in evident]
    # even the plainest sum of rows with the largest numbers could be chance
    largest = [
        log10_by_size(np.abs(numbers[j]).max(keepdims=True), 0.0, share)
        for j, share in zip(evident, shares)
    ]
    plain = Relation(dict.fromkeys(range(FEWEST), ONE))
    if sum(largest) + log10_choices(plain, len(terms)) > limit:
        return [], names
    surprises = [least_surprises(numbers[j]) for j in evident]
    out = []
    for one in exact_relations(terms, np.arange(len(whole)), rng).every:
        rows = list(one.relation.coefficients)
        if len(rows) < FEWEST:
            continue  # zero rows and copies of rows are no sums
        if one.relation.digits and len(evident) <= len(rows):
            continue  # so many columns any coefficients could have been fitted to
        # the numbers of a column that surprise most come as they do
        steady = [
            log10_by_size(np.array([int(surprise[rows].max())], dtype=object), 0.0, 0.0)
            for surprise in surprises
        ]
        evidence = max(
            sum(
                max(log10_by_size(numbers[j][i : i + 1], 0.0, share), moved)
                for j, share, moved in zip(evident, shares, steady)
            )
            for i in rows
        )
        chance = min(0.0, evidence + log10_choices(one.relation, len(terms)))
        if chance <= limit:
            out.append(replace(one, log10_chance=chance))
    return out, names


def items(search: Search) -> list[DiscoveredEquation]:
    """Return equations between rows that hold in every column, in words."""
    table = search.table
    found, columns = row_relations(table, search.rng, search.limit, search.counted)
    names = [f"[{table.row_name(i)}]" for i in range(table.rows)] if found else []
    out = []
    for one in found:
        values = one.relation.coefficients
        tied = {f"{columns[0]}@{i}": c for i, c in values.items()}
        signs = sum(value > 0 for value in values.values())
        out.append(
            told(
                one,
                written_equation(one.relation, names) + ", in every column of numbers",
                {table.row_name(i): c for i, c in values.items()},
                pattern="total row" if min(signs, len(values) - signs) == 1 else "balance of rows",
                columns=columns,
                row_name=table.row_name,
                scope="rows",
                cost=cost_between_rows(search.promise, [(tied, Fraction(0))]),
            )
        )
    return out


def mirrors(table: ExactTable, limit: float) -> Iterator[tuple[int, str, Labels, Found]]:
    """Yield rows that repeat a column, where the same names label rows and columns.

    The row, the column and the label column whose values are names of columns; the terms of what
    was found are those columns.
    """
    places = {name: j for j, name in enumerate(table.names)}
    for label in table.labels:
        codes, counts = np.unique(label.codes, return_counts=True)
        once = [int(code) for code in codes[counts == 1] if code >= 0]
        shared = [places[label.values[code]] for code in once if label.values[code] in places]
        if not FEWEST <= len(shared) <= MOST_MATCHED:
            continue
        row_of = {label.values[code]: i for i, code in enumerate(label.codes) if code >= 0}
        rows = [row_of[table.names[j]] for j in shared]
        outer = [i for i in range(table.rows) if i not in set(rows)][:MOST_MATCHED]
        across = {tuple(_value(table, i, j) for j in shared): i for i in outer}
        for j, name in enumerate(table.names):
            if j in shared:
                continue
            values = tuple(_value(table, i, j) for i in rows)
            row = across.get(values)
            if row is None or None in values:
                continue
            column = table.columns[j]
            chance = log10_by_size(column.whole_at(np.array(rows)), 0.0, collision_share(column))
            tried = (table.rows - len(rows)) * len(table.names)
            chance = min(0.0, chance + float(np.log10(tried)))
            if chance <= limit:
                count = len(shared)
                relation = Relation(dict.fromkeys(shared, ONE))
                yield row, name, label, Found(relation, count, count, count, log10_chance=chance)


def _value(table: ExactTable, row: int, j: int) -> Fraction | None:
    column = table.columns[j]
    if column.missing[row]:
        return None
    return int(column.whole_at(slice(row, row + 1))[0]) * column.unit


def repeated(search: Search) -> list[DiscoveredEquation]:
    """Return rows that repeat a column, in words: what flows out of each sector flows in."""
    out = []
    for row, column, label, found in mirrors(search.table, search.limit):
        here = f"[{search.table.row_name(row)}] in the column of that name"
        twice = {f"{column}@0": ONE, f"{column}@1": -ONE}
        out.append(
            told(
                found,
                f"{quoted(column)} of each {quoted(label.name)} = {here}",
                {"total": ONE, "sum of parts": -ONE},
                pattern="row repeats column",
                columns=(column, *(search.table.names[j] for j in found.relation.coefficients)),
                row_name=search.table.row_name,
                scope="rows",
                cost=cost_between_rows(search.promise, [(twice, Fraction(0))]),
            )
        )
    return out


def balances(search: Search) -> list[DiscoveredEquation]:
    """Return equations between sums by label that no row obeys by itself: double-entry books."""
    table = search.table
    size = len(table.names)
    out = []
    for label in table.labels:
        if len(label.values) < FEWEST_GROUPS or 1.5 * len(label.values) > table.rows:
            continue
        grouped = _grouped(table, label)
        # a constant within a row is so many times that constant in a group of rows
        known = [
            Relation({**one.coefficients, **({size: one.offset} if one.offset else {})})
            for one in [*search.known, *search.found]
        ]
        written = [*(f"sum of {quoted(name)}" for name in table.names), "number of rows"]
        for found in search_within(grouped, search.rng, search.limit, known).found:
            values = found.relation.coefficients
            support = [j for j in found.relation.support if j < size]
            if not support or (found.log10_chance > search.limit and len(values) > 1):
                continue
            group = {f"{table.names[j]}@{i}": values[j] for j in support for i in range(2)}
            out.append(
                told(
                    found,
                    f"{written_equation(found.relation, written)}, for each {quoted(label.name)}",
                    {grouped.names[j]: values[j] for j in found.relation.support},
                    pattern="balance of groups",
                    columns=[table.names[j] for j in support],
                    row_name=label.values.__getitem__,
                    scope="rows",
                    cost=cost_between_rows(search.promise, [(group, Fraction(0))]),
                )
            )
    return out


def _grouped(table: ExactTable, label: Labels) -> Terms:
    """The sums of columns by label, with the number of rows as a further term."""
    there = np.flatnonzero(label.codes >= 0)
    order = there[np.argsort(label.codes[there], kind="stable")]
    members: Sequence[np.ndarray] = np.split(order, np.flatnonzero(np.diff(label.codes[order])) + 1)
    count = np.array([len(part) for part in members], dtype=np.int64)
    number = Numbers(ONE, np.zeros(len(members), dtype=bool), True, count)
    names = [f"sum of {name}" for name in table.names]
    columns = [sums(column, members) for column in table.columns]
    return Terms((*names, "number of rows"), (*columns, number), constant=False)
