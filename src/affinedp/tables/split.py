"""A tree of rows, each of which splits one total column into parts: all tables of places at once.

Noise for it is designed and released as margins of one attribute at every node of a tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.tables.layout import Layout
from affinedp.tables.people import Sum, is_tree, sum_of


class Shares(NamedTuple):
    """Weights of rows, and of the total column and its parts: whether they multiply to all."""

    rows: FloatArray
    columns: FloatArray
    exact: bool


@dataclass(frozen=True, eq=False)
class SplitTree:
    """Which row is above every row, −1 at the top, and which column is the sum of the others."""

    parent: IntArray
    total: int
    parts: tuple[int, ...]

    def counts(self, points: FloatArray) -> NDArray[np.int64]:
        """Return the parts in the rows that are no totals, from all cells of the table."""
        leaf = ~np.isin(np.arange(len(self.parent)), self.parent)
        return np.asarray(points.reshape(len(leaf), -1)[leaf][:, self.parts], dtype=np.int64)

    def cells(self, parts: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
        """Return all cells of the table from its columns."""
        found = np.empty((len(parts), len(self.parts) + 1), parts.dtype)
        found[:, self.parts], found[:, self.total] = parts, total
        return found.ravel()

    @cached_property
    def outputs(self) -> IntArray:
        """Where every cell stands among the outputs: first the totals, then the parts."""
        rows = np.arange(len(self.parent))
        parts = len(rows) + np.arange(len(rows) * len(self.parts))
        return self.cells(parts.reshape(len(rows), -1), rows)

    @property
    def terms(self) -> IntArray:
        """How many parts every cell adds up."""
        rows = len(self.parent)
        return self.cells(np.ones((rows, len(self.parts)), np.intp), np.full(rows, len(self.parts)))

    def weights(self, given: FloatArray | None) -> Shares | None:
        """Return weights of rows, and of total and parts, near these; None if some are 0."""
        if given is None:
            return Shares(np.ones(len(self.parent)), np.ones(2), True)
        table = given.reshape(len(self.parent), -1)
        if not table.min() > 0:
            return None
        rows, every = table.sum(axis=1), float(table.sum())
        columns = np.array([table[:, self.total].sum(), table[:, self.parts].sum()]) / every
        columns[1] /= len(self.parts)
        product = np.empty(table.shape)
        product[:, self.total] = rows * columns[0]
        product[:, self.parts] = rows[:, None] * columns[1]
        return Shares(rows, columns, bool(np.allclose(product, table, rtol=1e-12, atol=0)))


def parents_of(sums: list[Sum], count: int) -> IntArray | None:
    """Return the parent of every number, −1 at the top; None if it is not one tree of totals."""
    if not is_tree(sums):
        return None
    parent = np.full(count, -1, dtype=np.int64)
    for total, parts in sums:
        parent[list(parts)] = total
    return parent if int((parent < 0).sum()) == 1 else None


def sums_of(layout: Layout) -> list[Sum] | None:
    """Return all equations as totals of numbers of the table; None if some are no such totals."""
    sums = []
    private = frozenset(layout.private.tolist())
    for place, relation in enumerate(layout.relations):
        one = sum_of(relation, place, private)
        if one is None or one[0] < 0 or relation.offset:
            return None
        sums.append(one)
    return None if layout.sums else sums


def split_of(layout: Layout) -> SplitTree | None:
    """Return the tree of rows and the split of columns that a table is, if it is both at once."""
    sums, width = sums_of(layout), len(layout.columns)
    if sums is None or layout.row_names is None or not layout.is_private.all():
        return None
    rows = len(layout.row_names)
    across: list[set[tuple[int, frozenset[int]]]] = [set() for _ in range(rows)]
    down: list[list[Sum]] = [[] for _ in range(width)]
    for total, parts in sums:
        row, column = divmod(total, width)
        if all(part // width == row for part in parts):
            across[row].add((column, frozenset(part % width for part in parts)))
        elif all(part % width == column for part in parts):
            down[column].append((row, tuple(sorted(part // width for part in parts))))
        else:
            return None
    if any(one != across[0] for one in across) or len(across[0]) != 1:
        return None
    if any(set(one) != set(down[0]) for one in down) or not down[0]:
        return None
    ((column, others),) = across[0]
    parent = parents_of(down[0], rows)
    if parent is None or len(others) != width - 1 or width < 3:
        return None
    return SplitTree(parent, column, tuple(sorted(others)))
