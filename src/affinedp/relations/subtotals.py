"""Rows that are sums of other rows: of all others, or of the block before or after them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.relations.chance import collision_share, log10_by_size
from affinedp.relations.columns import ExactTable
from affinedp.relations.groups import says_total, sums
from affinedp.relations.relation import Checked, Relation, Terms, check

LEVELS = 6
# More rows than this are not tried pair by pair.
MOST_ROWS = 20_000
# Blocks that fit one row in one column; more say nothing.
MOST_FITS = 12
# A sum that is likelier than this by chance says nothing, also not together with others.
WEAK = -0.5
# A column with more equal pairs than this share does not tell which rows are sums.
TELLING = 0.1


@dataclass(frozen=True, eq=False)
class Subtotal:
    """A row that is the sum of other rows.

    Attributes
    ----------
    row : int
        The total.
    parts : tuple of int
        The rows that it is the sum of.
    columns : tuple of (str, Checked)
        The columns for which it holds.
    not_columns : tuple of str
        Those for which it does not.
    log10_chance : float
        Bound on how many such sums there are by chance.
    """

    row: int
    parts: tuple[int, ...]
    columns: tuple[tuple[str, Checked], ...]
    not_columns: tuple[str, ...]
    log10_chance: float


def subtotals(
    table: ExactTable, limit: float, counted: Container[str] | None = None
) -> list[Subtotal]:
    """Return the rows that are sums of others, level by level.

    Parameters
    ----------
    table : ExactTable
        The table.
    limit : float
        log10 of the chance beyond which a sum is not told.
    counted : container of str, optional
        Columns that no equation makes of others: only these are evidence.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> table = exact_table({
    ...     "a": [312, 95, 407, 58, 11, 69, 476], "b": [9, 80, 89, 44, 32, 76, 165],
    ... })
    >>> [(one.row, one.parts) for one in subtotals(table, -4.0)]
    [(2, (0, 1)), (5, (3, 4)), (6, (2, 5))]
    """
    if not 3 <= table.rows <= MOST_ROWS:
        return []
    rows = np.arange(table.rows)
    found: list[Subtotal] = []
    gathered = 0.0
    for _ in range(LEVELS):
        level = _of_all_others(table, rows, counted) or _level(table, rows, counted)
        if not level:
            break
        found += level
        gathered += level[0].log10_chance
        # what is summed is done with; its total stands for it
        rows = np.setdiff1d(rows, [part for one in level for part in one.parts])
        if len(rows) < 3:
            break
    return [replace(one, log10_chance=gathered) for one in found] if gathered <= limit else []


def _of_all_others(
    table: ExactTable, rows: NDArray[np.intp], counted: Container[str] | None
) -> list[Subtotal]:
    """The row that is half of its column's sum."""
    votes: dict[int, int] = {}
    for column in table.columns:
        if column.missing[rows].any():
            continue
        whole = column.whole_at(rows).astype(object)
        for i in np.flatnonzero(2 * whole == whole.sum())[:MOST_FITS]:
            votes[int(i)] = votes.get(int(i), 0) + 1
    for i in sorted(votes, key=lambda i: -votes[i])[:3]:
        one = _checked(table, int(rows[i]), np.delete(rows, i), 3 * len(rows), counted)
        if one is not None and one.log10_chance <= WEAK:
            return [one]
    return []


def _level(
    table: ExactTable, rows: NDArray[np.intp], counted: Container[str] | None
) -> list[Subtotal]:
    """Totals of the rows right before or right after them, without overlaps."""
    evidence: dict[tuple[int, int, int], float] = {}
    for name, column in zip(table.names, table.columns):
        share = collision_share(column)
        told = counted is None or name in counted
        if column.missing[rows].any() or share > TELLING or not told:
            continue
        whole = column.whole_at(rows)
        for block in _blocks(whole):
            fits = log10_by_size(whole[block[0] : block[0] + 1], 0.0, share)
            evidence[block] = evidence.get(block, 0.0) + fits
    candidates = []
    for (i, first, last), most in evidence.items():
        # whichever row it is, or one that says so itself
        tried = 2 * len(rows) * (1 if says_total(table.row_name(int(rows[i]))) else len(rows))
        if most + np.log10(tried) > WEAK:
            continue
        one = _checked(table, int(rows[i]), rows[first:last], tried, counted)
        if one is not None and one.log10_chance <= WEAK:
            candidates.append(one)
    # those that hold for most columns first, then small blocks: totals of totals come later
    candidates.sort(key=lambda one: (-len(one.columns), len(one.parts), one.row))
    chosen: list[Subtotal] = []
    used: set[int] = set()
    for one in candidates:
        mine = {one.row, *one.parts}
        if not mine & used:
            chosen.append(one)
            used |= mine
    # several sums at once are less likely than each
    together = sum(one.log10_chance for one in chosen)
    chosen.sort(key=lambda one: one.row)
    return [replace(one, log10_chance=together) for one in chosen]


def _blocks(whole: NDArray[np.generic]) -> list[tuple[int, int, int]]:
    """(row, first, last) such that the row is the sum of rows first..last-1 next to it."""
    values = np.array([int(x) % 2**63 for x in whole], dtype=np.int64)
    n = len(values)
    ahead = np.concatenate([[0], np.cumsum(values)])  # modulo 2^64; verified later
    order = np.argsort(ahead, kind="stable")
    sorted_sums = ahead[order]
    out: list[tuple[int, int, int]] = []
    with np.errstate(over="ignore"):
        after = ahead[1:] + values  # rows i+1 .. j-1 sum to row i
        before = ahead[:-1] - values  # rows j .. i-1 sum to row i
    for goal, later in ((after, True), (before, False)):
        low = np.searchsorted(sorted_sums, goal, side="left")
        high = np.searchsorted(sorted_sums, goal, side="right")
        for i in np.flatnonzero((high > low) & (values != 0)):
            if high[i] - low[i] > MOST_FITS:
                continue
            for j in order[low[i] : high[i]].tolist():
                if later and j >= i + 3:
                    out.append((int(i), int(i) + 1, j))
                elif not later and j <= i - 2:
                    out.append((int(i), j, int(i)))
    return [block for block in out if block[2] <= n]


def _checked(
    table: ExactTable,
    row: int,
    parts: NDArray[np.intp],
    tried: int,
    counted: Container[str] | None,
) -> Subtotal | None:
    held: list[tuple[str, Checked]] = []
    not_held: list[str] = []
    chance = 0.0
    for name, column in zip(table.names, table.columns):
        total = column.take(np.array([row]))
        terms = Terms((name, "sum"), (total, sums(column, [parts])), constant=False)
        found = check(Relation({0: Fraction(1), 1: Fraction(-1)}), terms)
        if not found.rows:
            continue
        if not found.exact:
            not_held.append(name)
            continue
        held.append((name, found))
        if counted is None or name in counted:
            chance += log10_by_size(total.whole, 0.0, collision_share(column))
    if not held:
        return None
    # which columns it holds for is free
    columns = 2.0 ** min(len(held) + len(not_held), 50) if not_held else 1.0
    log10 = min(0.0, chance + float(np.log10(tried) + np.log10(columns)))
    return Subtotal(row, tuple(map(int, parts)), tuple(held), tuple(not_held), log10)
