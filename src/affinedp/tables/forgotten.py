"""Rows and columns of a private table that are sums of others, and that nobody said are.

Whoever is counted in a part is counted in the sum too, so the promise would be about less than
one person.  What is found is refused before any charge, in words for whoever holds the data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.discovery.column_numbers import Numbers, read_numbers
from affinedp.discovery.exact_table import ExactTable
from affinedp.discovery.forgotten import CHANCE
from affinedp.discovery.row_sums import MOST_ROWS, says_total, subtotals
from affinedp.errors import AffineDPError, AffineDPWarning, outside
from affinedp.tables.layout import Layout
from affinedp.tables.people import manifold_of
from affinedp.tables.reading import computed_points
from affinedp.tables.refusals import TableError, closest, label_words, listed
from affinedp.tables.relations import without_people

if TYPE_CHECKING:
    from affinedp.tables.noise import DesignedNoise

# A sum that is likelier than this by chance is not spoken of.
SPOKEN_OF = 1e-1
# Rows (or columns) in which sums are looked for, and then verified in all.
LOOKED_AT, MOST_PLACES = 40, 400
# Sums that hold in fewer columns (or rows) are told, but not refused.
ENOUGH = 2
SHOWN = 3


@dataclass(frozen=True)
class ForgottenSum:
    """A row or column that is the sum of others, by their places."""

    total: int
    parts: tuple[int, ...]
    lines: int  # in how many lines of the other kind that is evidence
    log10_chance: float


def refuse_forgotten(design: DesignedNoise, points: FloatArray, index: Any) -> None:
    """Refuse a table with sums that nobody told of; warn where they may well be chance."""
    layout, asked = design.layout, design.description
    columns, rows = list(layout.columns), []
    few = len(index) <= MOST_ROWS
    if few or asked.by_chance:
        rows = [label_words(label) for label in index.tolist()]
    for name in map(label_words, asked.by_chance):
        if name not in columns and name not in rows:
            raise TableError(
                f"by_chance names {name!r}, which is no row and no column"
                f"{closest(name, [*columns, *rows])}"
            )
    values = points[:, : layout.cells].reshape(-1, len(columns))
    example = _example(design, values)
    across = list(_sums(values.T, columns, ()))
    down: list[ForgottenSum] = []
    if few and asked.row_mode != "composed":  # which is about people who are in all rows
        down = list(_sums(values, rows, {one.total for one in across}))
    if down:  # a row that is a sum says nothing new about columns
        across = list(_sums(values.T, columns, {one.total for one in down}))
    told = set(map(label_words, asked.by_chance))
    found = [("column", columns, one) for one in _untold(across, values.T, example.T)]
    found += [("row", rows, one) for one in _untold(down, values, example)]
    # that all of them are chance is less likely than each
    together = sum({kind: one.log10_chance for kind, _, one in found}.values())
    cells = math.prod(1 + sum(kind == one for one, _, _ in found) for kind in ("column", "row"))
    for kind, names, one in found:
        if names[one.total] in told or _is_covered(design, kind, one, cells):
            continue
        text = _words(kind, names, one)
        likely = SPOKEN_OF if says_total(names[one.total]) else CHANCE
        if together <= math.log10(likely) and one.lines >= ENOUGH:
            raise TableError(f"{text}. Nothing was released", "", names[one.total])
        warnings.warn(
            f"{text} (this is about private data: do not publish it)",
            AffineDPWarning,
            stacklevel=outside(),
        )


def _untold(
    sums: Sequence[ForgottenSum], lines: FloatArray, example: FloatArray
) -> Iterator[ForgottenSum]:
    """Sums that hold everywhere, and not because it was said."""
    return (one for one in sums if _holds(one, lines) and not _holds(one, example))


def _words(kind: str, names: Sequence[str], one: ForgottenSum) -> str:
    total, parts = names[one.total], [names[part] for part in one.parts]
    argument = "totals" if kind == "column" else "row_totals"
    more = ", …" if len(parts) > SHOWN else ""
    said = f"{argument}={{{total!r}: [{', '.join(map(repr, parts[:SHOWN]))}{more}]}}"
    return (
        f"the {kind} {total!r} is the sum of the {kind}s {listed(parts)}, and nobody said so: "
        f"whoever is counted in one of them is counted in {total!r} too, which the promise does "
        f"not cover. Say {said} (in a file: [{argument}]), leave it out, or, if it is chance, say "
        f"by_chance=[{total!r}]"
    )


def _is_covered(design: DesignedNoise, kind: str, one: ForgottenSum, cells: int) -> bool:
    """Whether the promise is about people who are counted in this sum, too."""
    layout, asked = design.layout, design.description
    apart = layout.row_names is None
    grid = layout.is_private[: layout.cells].reshape(-1, len(layout.columns))
    lines = grid.T if kind == "column" else grid
    if apart and kind == "row":
        return False
    if not lines[list(one.parts)].any():  # all are public
        return True
    if asked.has_values and kind == "column":  # every column has a value of its own
        return True
    if asked.adjacency != "person" or asked.cells is not None or design.tree:
        return False
    if asked.at_most is not None:
        return asked.at_most >= cells
    # a person is counted once in each part of the table that no equation ties
    group = _groups(layout).reshape(-1, len(layout.columns))
    group = group.T if kind == "column" else group
    return not bool((group[list(one.parts)] == group[one.total]).any())


def _groups(layout: Layout) -> IntArray:
    """Which cells equations tie together, as a number for each."""
    from scipy.sparse.csgraph import connected_components

    tied = abs(layout.matrix)
    return np.asarray(connected_components(tied.T @ tied, directed=False)[1][: layout.cells])


def _sums(
    lines: FloatArray, names: Sequence[str], apart: Collection[int]
) -> Iterator[ForgottenSum]:
    """Lines that are sums of others, level by level; places that are ``apart`` are no evidence."""
    # what is 0 everywhere is part of any sum, and of equal places one says as much as all
    own = np.flatnonzero(lines.any(axis=1)).tolist()
    free = np.setdiff1d(np.flatnonzero(lines.any(axis=0)), list(apart))
    if len(own) < 3 or not len(free):
        return
    places = free[np.unique(np.linspace(0, len(free) - 1, MOST_PLACES).astype(int))]
    different = np.unique(lines[np.ix_(own, places)], axis=1)[:, :LOOKED_AT]
    table = _exact(different, [names[i] for i in own])
    for one in subtotals(table, math.log10(SPOKEN_OF), set(table.names)):
        if not one.not_columns:
            ((total, parts),) = one.groups
            found = tuple(own[part] for part in parts)
            yield ForgottenSum(own[total], found, len(one.columns), one.log10_chance)


def _exact(lines: FloatArray, names: Sequence[str]) -> ExactTable:
    """Lines as rows of a table of exact numbers."""
    read = [read_numbers(np.ascontiguousarray(column)) for column in lines.T]
    columns = tuple(_in_decimals(one) for one in read if isinstance(one, Numbers))
    return ExactTable(tuple(map(str, range(len(columns)))), columns, (), len(lines), list(names))


def _in_decimals(numbers: Numbers) -> Numbers:
    """The same in a unit that people round to: a few numbers share factors by accident."""
    unit = Fraction(1)
    while numbers.unit % (10 * unit) == 0:
        unit *= 10
    if numbers.unit < 1 or numbers.source.dtype.kind != "i":
        return numbers
    return replace(numbers, unit=unit, source=numbers.source * int(numbers.unit / unit))


def _holds(one: ForgottenSum, lines: FloatArray) -> bool:
    """Whether a sum holds everywhere, up to the rounding of double precision."""
    parts = lines[list(one.parts)]
    size = np.abs(parts).sum(axis=0) + np.abs(lines[one.total])
    off = np.abs(parts.sum(axis=0) - lines[one.total])
    return bool((off <= 8 * (len(parts) + 2) * EPS * size).all())


def _example(design: DesignedNoise, values: FloatArray) -> FloatArray:
    """A table of other numbers that obeys what was said: what holds there, too, was said.

    Lines that are 0 everywhere are 0 there, too: sums hold with them and without.
    """
    layout, generator = design.layout, np.random.default_rng(0)
    height, width = values.shape
    used = np.outer(values.any(axis=1), values.any(axis=0))
    empty = np.flatnonzero(~(used.any(axis=0) if layout.row_names is None else used))
    if design.tree:
        drawn = generator.integers(1, 10**6, size=(1, len(layout.is_private))).astype(float)
        drawn[:, empty] = 0.0
        return computed_points(layout, drawn, sorted(layout.totals))[:, : layout.cells].reshape(
            -1, width
        )
    private, kernel = layout.private, design.mechanism.manifold.kernel
    with suppress(AffineDPError):  # some equations do not say what follows
        own = layout.is_private.copy()
        own[sorted(without_people(set(empty.tolist()), layout.relations))] = False
        if own.any() and len(empty):
            kernel = manifold_of(replace(layout, is_private=own)).kernel
            private = np.flatnonzero(own)
    # of rows apart, a few say what was said of all
    sets = min(height, MOST_ROWS) if layout.row_names is None else 1
    free = generator.integers(1, 10**6, size=(kernel.shape[1], sets)).astype(float)
    example = np.zeros((sets, layout.cells))
    example[:, private] = np.asarray(kernel @ free).T
    return example.reshape(-1, width)
