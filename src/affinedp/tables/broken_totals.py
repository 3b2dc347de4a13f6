"""Totals that do not add up: found by row and equation, and repaired as the caller says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import BrokenTotal, BrokenTotalsError, TableError, listed, row_words
from affinedp.tables.relations import Relation

EPS = float(np.finfo(float).eps)
EXACT = 2.0**53


def repaired(
    description: TableDescription, layout: Layout, points: FloatArray, index: Any
) -> FloatArray:
    """Return points that obey the equations, or refuse them.

    Parameters
    ----------
    description : TableDescription
        Says what may be adjusted or computed.
    layout : Layout
        The equations.
    points : array, shape (data sets, entries)
        As recorded; NaN where nothing was read.
    index : pandas Index
        Of the table, for messages.
    """
    recorded = points
    replaced = replaced_entries(description, layout)
    if replaced:
        computed = _computed(layout, points, replaced)
        if description.within is not None:
            _refuse_far(layout, points, computed, replaced, description.within, index)
        points = computed
    off = residuals(layout, points)
    if off.any():
        raise _refusal(description, layout, recorded, off, index)
    return points


def replaced_entries(description: TableDescription, layout: Layout) -> tuple[int, ...]:
    """Return the private entries that are adjusted, or computed instead of read.

    Parameters
    ----------
    description : TableDescription
        Says which.
    layout : Layout
        The entries.
    """
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

    Parameters
    ----------
    layout : Layout
        The equations.
    points : array, shape (data sets, entries)
        The numbers.
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


def _computed(layout: Layout, points: FloatArray, entries: Sequence[int]) -> FloatArray:
    """Points with these entries computed from the others, one after the other."""
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


def broken_list(
    layout: Layout, off: FloatArray, index: Any
) -> tuple[list[BrokenTotal], list[float]]:
    """Return every broken equation, row by row, and by how much each is off.

    Parameters
    ----------
    layout : Layout
        The equations.
    off : array, shape (data sets, equations)
        From :func:`residuals`.
    index : pandas Index
        Of the table.
    """
    found, amounts = [], []
    for place, equation in np.argwhere(off != 0).tolist():
        relation = layout.relations[equation]
        row = row_words(index, place) if layout.row_names is None else relation.place
        found.append(BrokenTotal(row, relation.words))
        amounts.append(float(f"{off[place, equation]:.9g}"))
    return found, amounts


def _refusal(
    description: TableDescription, layout: Layout, recorded: FloatArray, off: FloatArray, index: Any
) -> BrokenTotalsError:
    broken, _ = broken_list(layout, off, index)
    first = broken[0]
    equation = int(np.argwhere(off != 0)[0][1])
    message = [f"{first.row}: {first.equation} does not hold"]
    named = replaced_entries(description, layout)
    if named:
        message[0] += f", also after {'adjusting' if description.adjust else 'computing'} "
        message[0] += listed(dict.fromkeys(layout.name(entry) for entry in named))
    if layout.row_names is None:
        same = np.flatnonzero(off[:, equation])
        if len(same) > 1:
            message.append(f"{len(same):,} of {len(off):,} rows break it")
    others = len({found.equation for found in broken}) - 1
    if others:
        message.append(f"{others} other equation{'s' if others > 1 else ''} broken too")
    elif layout.row_names is not None and len(broken) > 1:
        message.append(f"it is broken in {len(broken)} places")
    return BrokenTotalsError(
        "; ".join(message)
        + ". Nothing was released. Correct the table (TableRelease.check shows by how much)"
        + _ways_out(layout, np.flatnonzero(residuals(layout, recorded).any(axis=0)).tolist()),
        broken,
    )


def _ways_out(layout: Layout, broken: Iterable[int]) -> str:
    """Columns that could take up the difference without breaking another equation."""
    equations = set(broken)
    if layout.row_names is not None:
        return ", or compute the totals instead of reading them (unknown='totals')"
    private = {int(entry) for entry in layout.private}
    where: dict[int, set[int]] = {}
    for i, relation in enumerate(layout.relations):
        for entry in private.intersection(relation.coefficients):
            where.setdefault(entry, set()).add(i)
    fitting = [layout.name(entry) for entry, found in sorted(where.items()) if found == equations]
    if not fitting:
        return ""
    return (
        f"; if it is only rounding, let one of {listed(fitting)} take it up "
        f"(adjust=[{fitting[-1]!r}], within=…)"
    )
