"""Read a table: nothing is charged or drawn before all of this was found sound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.tables.broken_totals import broken_list, repaired, replaced_entries, residuals
from affinedp.tables.columns import numbers_of
from affinedp.tables.description import TableDescription, number
from affinedp.tables.layout import Layout, layout_of
from affinedp.tables.refusals import TableError


def read_points(
    description: TableDescription, layout: Layout, table: Any, bound: float | None = None
) -> FloatArray:
    """Return the numbers of every data set, sound and on the equations, or refuse them.

    Parameters
    ----------
    description : TableDescription
        Says what is adjusted, or computed instead of read.
    layout : Layout
        The entries of the table.
    table : DataFrame
        The private table.
    bound : float, optional
        What no private number may pass.

    Returns
    -------
    array, shape (data sets, entries)
    """
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
    if bound is not None:
        limit = number(bound, "bound")
        if not 0 < limit < math.inf:
            raise TableError(f"bound must be positive, not {bound}")
        beyond = np.abs(points[:, layout.private]) > limit
        if beyond.any():
            name = layout.names[int(np.argwhere(beyond)[0][1])]
            raise TableError(f"a number of {name!r} is larger than the declared bound", "", name)
    return points


def broken_totals(description: TableDescription, table: Any) -> Any:
    """Return every broken equation of a table; see :meth:`TableRelease.check`.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    table : DataFrame
        The private table.
    """
    import pandas

    layout = layout_of(description, table)
    points = layout.points(numbers_of(table, layout.columns))
    found, amounts = broken_list(layout, residuals(layout, points), table.index)
    rows = [(one.row, one.equation, off) for one, off in zip(found, amounts)]
    return pandas.DataFrame(rows, columns=["row", "equation", "off"])
