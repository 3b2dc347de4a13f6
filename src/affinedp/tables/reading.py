"""Read a table: nothing is charged or drawn before all of this was found sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.errors import counted
from affinedp.exact.numbers import real_number
from affinedp.tables.describe import TableDescription
from affinedp.tables.frames import numbers_of
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.refusals import SUMS_OF_VALUES, TableError, listed, row_words
from affinedp.tables.relations import Relation

EXACT = 2.0**53


def read_points(
    description: TableDescription, layout: Layout, table: Any, bound: float | None = None
) -> FloatArray:
    """Return the numbers of every data set, sound and on the equations, or refuse them."""
    data = [name for name in table.index.names if name in layout.roles.private]
    if data:
        raise TableError(
            f"the labels of the rows are called {data[0]!r}, as a private column is, and labels "
            "are published as they are: use reset_index(drop=True), or other labels",
            "",
            data[0],
        )
    not_read = np.zeros((len(table), len(layout.columns)), dtype=bool)
    if description.unknown:
        entries = list(replaced_entries(description, layout))
        if layout.row_names is None:
            not_read[:, entries] = True
        else:
            not_read.ravel()[entries] = True
    values = numbers_of(table, layout.columns, not_read)
    points = repaired(description, layout, layout.points(values), table.index)
    full = [entry for entry in sorted(layout.impossible) if points[:, entry].any()]
    if full:
        raise TableError(
            f"{layout.name(full[0])!r} was said to be impossible, but is not 0 ({len(full)} such "
            "numbers). Correct the table, or leave the combination out of impossible",
            "",
            layout.name(full[0]),
        )
    if bound is not None:
        limit = real_number(bound, "bound", positive=True)
        beyond = np.abs(points[:, layout.private]) > limit
        if beyond.any():
            name = layout.names[int(np.argwhere(beyond)[0][1])]
            raise TableError(f"a number of {name!r} is larger than the declared bound", "", name)
    return points


def broken_totals(description: TableDescription, table: Any) -> Any:
    """Return every broken equation of a table; see :meth:`TableRelease.check`."""
    import pandas

    layout = layout_of(description, table)
    points = layout.points(numbers_of(table, layout.columns))
    off = residuals(layout, points)
    amounts = [float(f"{one:.9g}") for one in off[off != 0]]
    rows = [(*where, one) for where, one in zip(_broken(layout, off, table.index), amounts)]
    return pandas.DataFrame(rows, columns=["row", "equation", "off"])


def repaired(
    description: TableDescription, layout: Layout, points: FloatArray, index: Any
) -> FloatArray:
    """Return points that obey the equations, or refuse them."""
    recorded = points
    replaced = replaced_entries(description, layout)
    if replaced:
        computed = computed_points(layout, points, replaced)
        if description.within is not None:
            _refuse_far(layout, points, computed, replaced, description.within, index)
        points = computed
    off = residuals(layout, points)
    if off.any():
        raise _refusal(description, layout, recorded, off, index)
    return points


def replaced_entries(description: TableDescription, layout: Layout) -> tuple[int, ...]:
    """Return the private entries that are adjusted, or computed instead of read."""
    chosen = description.adjust or description.unknown
    private = [int(entry) for entry in layout.private]
    if chosen == "totals":
        return tuple(entry for entry in private if entry in layout.totals)
    for name in chosen:
        if name not in layout.roles.private:
            which = "adjust" if description.adjust else "unknown"
            raise TableError(f"{which} names {name!r}, which is no private column", "", name)
    width = len(layout.columns)
    return tuple(entry for entry in private if layout.columns[entry % width] in chosen)


def residuals(layout: Layout, points: FloatArray) -> FloatArray:
    """Return left side minus right side of every equation, 0 where only rounding is left.

    Whole numbers are added exactly; decimals are allowed what adding doubles can be off by.
    """
    matrix = layout.matrix
    value = points @ matrix.T + layout.offsets
    size = np.abs(points) @ abs(matrix).T + np.abs(layout.offsets)
    fractional = (points != np.rint(points)).astype(float) @ (matrix != 0).astype(float).T > 0
    whole = np.array([_is_whole(relation) for relation in layout.relations], dtype=bool)
    exact = whole & ~fractional & (size < EXACT)
    terms = np.diff(matrix.indptr) + 2
    return np.asarray(
        np.where(np.abs(value) > np.where(exact, 0.0, 8 * terms * EPS * size), value, 0.0)
    )


def _is_whole(relation: Relation) -> bool:
    values = (*relation.coefficients.values(), relation.offset)
    return all(value.denominator == 1 for value in values)


def computed_points(layout: Layout, points: FloatArray, entries: Sequence[int]) -> FloatArray:
    """Return points with these entries computed from the others, one after the other."""
    result = points.copy()
    left = set(entries)
    waiting = list(layout.relations)
    while left:
        ready = [r for r in waiting if len(left.intersection(r.coefficients)) == 1]
        if not ready:
            names = [layout.name(entry) for entry in sorted(left)]
            raise TableError(
                f"{listed(names)} cannot be computed: the equations do not determine it from the "
                "other columns. Name fewer columns"
            )
        # a total's own equation first: where others remain, they are checked afterwards
        ready.sort(key=lambda r: r.total not in left)
        for relation in ready:
            unknown = left.intersection(relation.coefficients)
            if len(unknown) != 1:
                continue
            entry = unknown.pop()
            result[:, entry] = _solved(relation, result, entry)
            left.discard(entry)
    return result


def _solved(relation: Relation, points: FloatArray, entry: int) -> FloatArray:
    """The value of one entry that makes the equation true."""
    others = [other for other in relation.coefficients if other != entry]
    factors = [
        float(relation.coefficients[other] / relation.coefficients[entry]) for other in others
    ]
    constant = float(relation.offset / relation.coefficients[entry])
    return np.asarray(-(points[:, others] @ np.array(factors)) - constant)


def _refuse_far(
    layout: Layout,
    points: FloatArray,
    computed: FloatArray,
    entries: Sequence[int],
    within: float,
    index: Any,
) -> None:
    """Refuse what is off by more than rounding."""
    columns = list(entries)
    moved = np.abs(computed[:, columns] - points[:, columns])
    allowed = within + 64 * EPS * np.abs(points[:, columns])
    far = moved > allowed
    if far.any():
        place, which = (int(i) for i in np.argwhere(far)[0])
        name = layout.name(columns[which])
        row = row_words(index, place) if layout.row_names is None else name
        raise TableError(
            f"{row}: {name!r} would have to change by more than within = {within:g} to fit the "
            f"equations ({int(far.any(axis=1).sum())} such rows). Correct the table",
            row,
            name,
        )


def _broken(layout: Layout, off: FloatArray, index: Any) -> list[tuple[str, str]]:
    """Every broken equation, row by row."""
    separate = layout.row_names is None
    found = [(place, layout.relations[equation]) for place, equation in np.argwhere(off).tolist()]
    return [
        (row_words(index, place) if separate else relation.place, relation.words)
        for place, relation in found
    ]


def _refusal(
    description: TableDescription, layout: Layout, recorded: FloatArray, off: FloatArray, index: Any
) -> TableError:
    broken = _broken(layout, off, index)
    row, equation = broken[0]
    message = f"{row}: {equation} does not hold"
    named = replaced_entries(description, layout)
    if named:
        message += f", also after {'adjusting' if description.adjust else 'computing'} "
        message += listed(dict.fromkeys(layout.name(entry) for entry in named))
    if len(broken) > 1:
        rows = f"; {int(off.any(axis=1).sum()):,} of {len(off):,} rows break it"
        kinds = len({words for _, words in broken})
        other = f" or {counted(kinds - 1, 'other equation')}" if kinds > 1 else ""
        places = f"; {len(broken)} equations are broken"
        message += rows + other if layout.row_names is None else places
    if description.mu == 1 and (recorded != np.rint(recorded)).any():
        message += f". {SUMS_OF_VALUES}; means do not add up: publish sums and counts"
    return TableError(
        f"{message}. Nothing was released. Correct the table (TableRelease.check shows by how "
        f"much){_ways_out(layout, np.flatnonzero(residuals(layout, recorded).any(axis=0)))}",
        row,
        broken=broken,
    )


def _ways_out(layout: Layout, broken: IntArray) -> str:
    """Columns that could take up the difference without breaking another equation."""
    if layout.row_names is not None:
        return ", or compute the totals instead of reading them (unknown='totals')"
    used = (layout.matrix != 0).toarray()
    wanted = np.isin(np.arange(len(used)), broken)
    fits = (used == wanted[:, None]).all(axis=0) & layout.is_private
    names = [layout.name(int(entry)) for entry in np.flatnonzero(fits)]
    if not names:
        return ""
    return (
        f"; if it is only rounding, let one of {listed(names)} take it up "
        f"(adjust=[{names[-1]!r}], within=…)"
    )
