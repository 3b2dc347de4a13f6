"""Equations between the cells of a table, in exact coefficients and in words."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from affinedp.domains.text import format_equation, parse_equations
from affinedp.tables.columns import split_totals
from affinedp.tables.description import TableDescription
from affinedp.tables.refusals import row_words, same
from affinedp.tables.row_groups import RowGroup


@dataclass(frozen=True)
class Relation:
    """One equation ``Σ coefficient · entry + offset = 0``.

    Attributes
    ----------
    coefficients : mapping of int to Fraction
        By entry.
    offset : Fraction
        The constant.
    words : str
        The equation as a person wrote or would write it.
    place : str
        Where it holds, if it holds in one place only.
    total : int or None
        The entry that is the sum of the others, where there is one.
    counts : bool
        Whether it says in which numbers a person is counted, as totals, margins and changes do.
        An equation does not: ``net = inn - out`` is ``inn = net + out``.
    """

    coefficients: Mapping[int, Fraction]
    offset: Fraction
    words: str
    place: str = ""
    total: int | None = None
    counts: bool = True

    def ambiguous(self, private: Container[int]) -> bool:
        """Whether a person may be counted in different ways among the private entries."""
        values = {value for entry, value in self.coefficients.items() if entry in private}
        return not self.counts and len(values) > 1


def column_relations(description: TableDescription, columns: Sequence[str]) -> Iterator[Relation]:
    """Yield the equations between the columns of a row."""
    texts = list(description.equations or [])
    parsed = parse_equations(texts, columns)
    for text, coefficients, offset in zip(texts, parsed.coefficients, parsed.offsets):
        if coefficients or offset:
            alone = _clear_total(coefficients)
            yield Relation(coefficients, offset, text.strip(), total=alone, counts=False)
    place = {same(name): i for i, name in enumerate(columns)}
    for total, parts in split_totals(description.totals or {}):
        coefficients = {place[same(part)]: Fraction(-1) for part in parts}
        coefficients[place[same(total)]] = Fraction(1)
        words = f"{_quoted(total)} = {' + '.join(map(_quoted, parts))}"
        yield Relation(coefficients, Fraction(0), words, total=place[same(total)])


def _clear_total(coefficients: Mapping[int, Fraction]) -> int | None:
    """The entry that an equation calls the sum of two or more others, if it does."""
    if len({abs(value) for value in coefficients.values()}) != 1 or len(coefficients) < 3:
        return None
    for sign in (1, -1):
        alone = [entry for entry, value in coefficients.items() if value * sign > 0]
        if len(alone) == 1:
            return alone[0]
    return None


def _quoted(name: str) -> str:
    return format_equation({0: Fraction(1)}, Fraction(0), [name]).removesuffix(" = 0")


def depths(relations: Sequence[Relation], count: int) -> list[int]:
    """Return how many totals each entry is nested in, at most."""
    depth = [0] * count
    for _ in range(count):
        changed = False
        for relation in relations:
            if relation.total is None:
                continue
            for part in relation.coefficients:
                if part != relation.total and depth[part] <= depth[relation.total] < count:
                    depth[part], changed = depth[relation.total] + 1, True
        if not changed:
            break
    return depth


def shifted(relation: Relation, by: int, where: str) -> Relation:
    """Return the same equation in another row."""
    return replace(
        relation,
        coefficients={entry + by: value for entry, value in relation.coefficients.items()},
        place=where,
        total=None if relation.total is None else relation.total + by,
    )


def group_relation(
    group: RowGroup,
    column: int,
    width: int,
    height: int,
    name: str,
    sums: list[tuple[int, ...]],
) -> Relation:
    """Return the equation of rows that add up, for one column."""
    cells = tuple(row * width + column for row in group.parts)
    where = f"column {name!r}"
    if group.total is None:
        return public_sum(cells, width * height, sums, group.words, where)
    total = group.total * width + column
    coefficients = {total: Fraction(1), **{cell: Fraction(-1) for cell in cells}}
    return Relation(coefficients, Fraction(0), group.words, where, total)


def public_sum(
    cells: tuple[int, ...], count: int, sums: list[tuple[int, ...]], words: str, where: str
) -> Relation:
    """Return the equation of a public sum that no cell holds: it becomes an entry of its own."""
    sums.append(cells)
    entry = count + len(sums) - 1
    coefficients = {**{cell: Fraction(1) for cell in cells}, entry: Fraction(-1)}
    return Relation(coefficients, Fraction(0), words, where)


def changes(
    description: TableDescription, table: Any, columns: Sequence[str]
) -> Iterator[Relation]:
    """Yield the equations of columns that are the change of another one since the row above."""
    width = len(columns)
    place = {same(name): i for i, name in enumerate(columns)}
    for change, level in (description.changes or {}).items():
        c, x = place[same(change)], place[same(level)]
        for row in range(1, len(table)):
            now, before = row * width, (row - 1) * width
            yield Relation(
                {now + c: Fraction(1), now + x: Fraction(-1), before + x: Fraction(1)},
                Fraction(0),
                f"{_quoted(change)} = {_quoted(level)} - {_quoted(level)} of the row above",
                row_words(table.index, row),
                now + c,
            )
