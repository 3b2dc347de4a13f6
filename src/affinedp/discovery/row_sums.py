"""Rows that are sums of other rows: hierarchies by label columns, subtotals and grand totals."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.chance import collision_share, log10_by_size
from affinedp.discovery.column_numbers import Numbers
from affinedp.discovery.costs import MOST_COMPONENT, cost_of_sums
from affinedp.discovery.exact_table import ExactTable, Labels
from affinedp.discovery.found import DiscoveredEquation, told
from affinedp.discovery.relation import FITS, MOST_MISSES, Found, Relation, Terms, check
from affinedp.discovery.search import Search
from affinedp.domains.text import quoted
from affinedp.errors import listed

TOTAL_WORDS = frozenset({
    "total", "totals", "all", "sum", "overall", "aggregate", "subtotal", "subtotals",
    "everybody", "everyone", "margin", "margins",
    "gesamt", "insgesamt", "summe", "alle", "zusammen", "ensemble", "tous", "toutes", "totale",
    "totaal", "tutti", "todos", "totalt", "samtliga", "summa", "suma", "razem",
})  # fmt: skip
# A label with no more values than this is tried as the mark of total rows whatever it says.
FEW_VALUES = 30
LEVELS = 6
# More rows than this are not tried pair by pair.
MOST_ROWS = 20_000
# Blocks that fit one row in one column; more say nothing.
MOST_FITS = 12
# A sum that is likelier than this by chance says nothing, also not together with others.
WEAK = -0.5
# A column with more equal pairs than this share does not tell which rows are sums.
TELLING = 0.1
SHOWN_PARTS = 12
EQUAL = Relation({0: Fraction(1), 1: Fraction(-1)})

Group = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class RowSums:
    """Total rows with their parts, the columns in which they are sums, and those in which not.

    In a hierarchy ``label`` marks a total row with ``mark`` (None where it is empty), and
    its parts share the labels of ``others``.
    """

    groups: tuple[Group, ...]
    columns: tuple[tuple[str, Found], ...]
    not_columns: tuple[str, ...]
    log10_chance: float
    label: str = ""
    mark: str | None = None
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in which they are sums."""
        return tuple(name for name, _ in self.columns)

    def told(self, search: Search, text: str, pattern: str) -> DiscoveredEquation:
        """Return this in words; the column that obeys worst stands for all."""
        worst = max(
            (one for _, one in self.columns), key=lambda one: (one.missed, one.largest_miss)
        )
        where = "in every column of numbers"
        if self.not_columns:
            where = f"in {listed(self.names)}"
        some = [(total, parts[:MOST_COMPONENT]) for total, parts in self.groups]
        return told(
            replace(worst, log10_chance=self.log10_chance),
            f"{text}, {where}",
            {"total": Fraction(1), "sum of parts": Fraction(-1)},
            pattern=pattern,
            scope="rows",
            columns=self.names,
            row_name=lambda i: search.table.row_name(self.groups[i][0]),
            cost=cost_of_sums(search.promise, some, self.names[0]),
        )


def sums(column: Numbers, members: Sequence[NDArray[np.intp]]) -> Numbers:
    """Return the exact sums of a column over groups of rows, none of them empty."""
    order = np.concatenate(members)
    starts = np.cumsum([0, *map(len, members[:-1])])
    whole = column.whole_at(order)
    if whole.dtype != object and column.largest * max(map(len, members)) >= FITS:
        whole = whole.astype(object)
    gone = np.logical_or.reduceat(column.missing[order], starts)
    return Numbers(column.unit, gone, column.written, np.add.reduceat(whole, starts))


def _summed(
    table: ExactTable,
    rows: NDArray[np.intp],
    members: Sequence[NDArray[np.intp]],
    tried: int,
    counted: Container[str],
    *,
    exactly: bool,
) -> RowSums | None:
    """In which columns rows are the sums of others; only counted columns are evidence."""
    held: list[tuple[str, Found]] = []
    not_held: list[str] = []
    chance = 0.0
    for name, column in zip(table.names, table.columns):
        terms = Terms((name, "sum"), (column.take(rows), sums(column, members)), constant=False)
        found = check(EQUAL, terms)
        if exactly and not found.rows:
            continue
        few = found.exact if exactly else found.missed <= MOST_MISSES * found.rows
        if not found.rows or not few:
            not_held.append(name)
            continue
        held.append((name, found))
        if name in counted:
            total = terms.columns[0]
            # rounding of every part counts
            rounded = not found.exact and column.written
            width = max(map(len, members)) / 2 if rounded else 0.0
            chance += log10_by_size(total.whole[~total.missing], width, collision_share(column))
    if not held:
        return None
    # which columns it holds for is free
    columns = 2.0 ** min(len(held) + len(not_held), 50) if not_held else 1.0
    log10 = min(0.0, chance + float(np.log10(tried) + np.log10(columns)))
    groups = tuple((int(row), tuple(map(int, part))) for row, part in zip(rows, members))
    return RowSums(groups, tuple(held), tuple(not_held), log10)


# ---------------------------------------------------------------------- by label columns


def group_totals(
    table: ExactTable, keys: Sequence[str] | None, counted: Container[str]
) -> list[RowSums]:
    """Return the hierarchies and cross-tabulations with totals that a table contains.

    The keys are the label columns that identify a row: by default all, then those that repeat.
    """
    every = [label for label in table.labels if keys is None or label.name in keys]
    repeating = [label for label in every if len(label.values) < table.rows]
    choices = [every] if keys is not None or len(repeating) == len(every) else [every, repeating]
    for labels in choices:
        found = [_marked(table, label, labels, counted) for label in labels]
        if any(found):
            return [one for one in found if one is not None]
    return []


def _marked(
    table: ExactTable, label: Labels, labels: list[Labels], counted: Container[str]
) -> RowSums | None:
    """The first mark of this label whose rows are sums of those that share all other labels."""
    others = [one for one in labels if one is not label]
    group = np.zeros(table.rows, dtype=np.intp)
    if others:
        stacked = np.stack([one.codes for one in others], axis=1)
        group = np.ravel(np.unique(stacked, axis=0, return_inverse=True)[1])
    marks = _marks(label)
    for mark in marks:
        rows, members = _families(label.codes == mark, group)
        if not members:
            continue
        tried = len(marks) * len(labels)
        found = _summed(table, rows, members, tried, counted, exactly=False)
        if found is not None:
            return replace(
                found,
                label=label.name,
                mark=label.values[mark] if mark >= 0 else None,
                others=tuple(one.name for one in others),
            )
    return None


def _families(
    marked: NDArray[np.bool_], group: NDArray[np.intp]
) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """The marked rows, and the unmarked ones of the same group, two or more."""
    totals, parts = np.flatnonzero(marked), np.flatnonzero(~marked)
    place = dict(zip(group[totals].tolist(), totals.tolist()))
    if len(place) < len(totals):
        return totals, []  # two rows would be the same total
    parts = parts[np.isin(group[parts], list(place))]
    order = parts[np.argsort(group[parts], kind="stable")]
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    members = [part for part in np.split(order, cuts) if len(part) > 1]
    return np.array([place[int(group[part[0]])] for part in members], dtype=np.intp), members


def says_total(text: str) -> bool:
    """Whether a label says that its row is a total.

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


def hierarchies(
    search: Search,
) -> tuple[list[DiscoveredEquation], tuple[str, ...], list[tuple[str, tuple[str, ...]]]]:
    """Return sums by label columns in words, their levels, or else total rows by their labels."""
    out = []
    families = [
        one
        for one in group_totals(search.table, search.by, search.counted)
        if one.log10_chance <= search.limit
    ]
    for one in families:
        mark = f"{quoted(one.label)} {'is empty' if one.mark is None else f'is {one.mark!r}'}"
        same = f" with the same {', '.join(map(quoted, one.others))}" if one.others else ""
        text = f"a row where {mark} is the sum of the rows{same}"
        if one.others and one.mark is None and _is_grand_total(search.table, one):
            names = ", ".join(map(quoted, one.others))
            text = f"the row without {quoted(one.label)} and {names} is the sum of the rows"
            text += f" with {quoted(one.label)} alone"
        out.append(one.told(search, text, "hierarchy"))
    labels = {one.label for one in families}
    if any(one.mark is not None or set(one.others) - labels for one in families):
        return out, (), _by_label(search.table, families)
    # a level with fewer totals is higher
    levels = tuple(one.label for one in sorted(families, key=lambda one: len(one.groups)))
    return out, levels, []


def _is_grand_total(table: ExactTable, found: RowSums) -> bool:
    """Whether its total rows have no label at all."""
    rows = [row for row, _ in found.groups]
    return all((one.codes[rows] < 0).all() for one in table.labels if one.name in found.others)


def _by_label(table: ExactTable, found: list[RowSums]) -> list[tuple[str, tuple[str, ...]]]:
    """The same by the labels of their columns, joined as a table file joins several.

    Nothing where a sum does not hold in every column, or where these do not name every row.
    """
    if any(one.not_columns for one in found):
        return []
    if table.row_names is not None:
        return _by_name(table, found)
    keys = {name for one in found for name in (one.label, *one.others)}
    labels = [one for one in table.labels if one.name in keys]
    names = [
        " / ".join(one.values[one.codes[row]] for one in labels if one.codes[row] >= 0)
        for row in range(table.rows)
    ]
    return _by_name(table, found, names) if len(set(names)) == table.rows else []


def _by_name(
    table: ExactTable, found: list[RowSums], names: Sequence[str] | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    """The total rows of all columns and their parts, by the names of the rows."""
    named = table.row_name if names is None else names.__getitem__
    return [
        (named(row), tuple(map(named, parts)))
        for one in found
        if not one.not_columns
        for row, parts in one.groups
    ]


# ---------------------------------------------------------------------- without labels


def subtotals(table: ExactTable, limit: float, counted: Container[str]) -> list[RowSums]:
    """Return the rows that are sums of others, level by level."""
    if not 3 <= table.rows <= MOST_ROWS:
        return []
    rows = np.arange(table.rows)
    found: list[RowSums] = []
    gathered = 0.0
    for _ in range(LEVELS):
        level = _of_all_others(table, rows, counted) or _level(table, rows, counted)
        if not level:
            break
        found += level
        gathered += level[0].log10_chance
        # what is summed is done with; its total stands for it
        rows = np.setdiff1d(rows, [part for one in level for part in one.groups[0][1]])
        if len(rows) < 3:
            break
    return [replace(one, log10_chance=gathered) for one in found] if gathered <= limit else []


def _one_sum(
    table: ExactTable, row: int, parts: NDArray[np.intp], tried: int, counted: Container[str]
) -> RowSums | None:
    one = _summed(table, np.array([row]), [parts], tried, counted, exactly=True)
    return one if one is not None and one.log10_chance <= WEAK else None


def _of_all_others(
    table: ExactTable, rows: NDArray[np.intp], counted: Container[str]
) -> list[RowSums]:
    """The row that is half of its column's sum."""
    votes: dict[int, int] = {}
    for column in table.columns:
        if column.missing[rows].any():
            continue
        whole = column.whole_at(rows).astype(object)
        for i in np.flatnonzero(2 * whole == whole.sum())[:MOST_FITS]:
            votes[int(i)] = votes.get(int(i), 0) + 1
    for i in sorted(votes, key=lambda i: -votes[i])[:3]:
        one = _one_sum(table, int(rows[i]), np.delete(rows, i), 3 * len(rows), counted)
        if one is not None:
            return [one]
    return []


def _level(table: ExactTable, rows: NDArray[np.intp], counted: Container[str]) -> list[RowSums]:
    """Totals of the rows right before or right after them, without overlaps."""
    evidence: dict[tuple[int, int, int], float] = {}
    for name, column in zip(table.names, table.columns):
        share = collision_share(column)
        if column.missing[rows].any() or share > TELLING or name not in counted:
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
        one = _one_sum(table, int(rows[i]), rows[first:last], tried, counted)
        if one is not None:
            candidates.append((one, one.groups[0]))
    # those that hold for most columns first, then small blocks: totals of totals come later
    candidates.sort(key=lambda pair: (-len(pair[0].columns), len(pair[1][1]), pair[1][0]))
    chosen: dict[int, RowSums] = {}
    used: set[int] = set()
    for one, (row, parts) in candidates:
        if not {row, *parts} & used:
            chosen[row] = one
            used |= {row, *parts}
    # several sums at once are less likely than each
    together = sum(one.log10_chance for one in chosen.values())
    return [replace(chosen[row], log10_chance=together) for row in sorted(chosen)]


def _blocks(whole: NDArray[np.generic]) -> list[tuple[int, int, int]]:
    """(row, first, last) such that the row is the sum of rows first..last-1 next to it."""
    values = np.array([int(x) % 2**63 for x in whole], dtype=np.int64)
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
        fits = high - low
        for i in np.flatnonzero((fits > 0) & (fits <= MOST_FITS) & (values != 0)).tolist():
            for j in order[low[i] : high[i]].tolist():
                if later and j >= i + 3:
                    out.append((i, i + 1, j))
                elif not later and j <= i - 2:
                    out.append((i, j, i))
    return out


def total_rows(
    search: Search,
) -> tuple[list[DiscoveredEquation], list[tuple[str, tuple[str, ...]]]]:
    """Return total rows in words, and by the labels of the table where these name its rows."""
    table = search.table
    found = subtotals(table, search.limit, search.counted)
    out = []
    for one in found:
        ((row, parts),) = one.groups
        right = " + ".join(f"[{table.row_name(i)}]" for i in parts)
        if len(parts) > SHOWN_PARTS:
            first, last = table.row_name(parts[0]), table.row_name(parts[-1])
            right = f"sum of {len(parts)} rows, {first} to {last}"
        out.append(one.told(search, f"[{table.row_name(row)}] = {right}", "total row"))
    if table.row_names is None:
        return out, []
    return out, _by_name(table, found)
