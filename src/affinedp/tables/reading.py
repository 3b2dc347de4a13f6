"""Read a table: nothing is charged or drawn before all of this was found sound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.tables.broken import repaired, replaced_entries
from affinedp.tables.columns import numbers_of
from affinedp.tables.description import TableRelease, number
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import TableError


def read_points(
    description: TableRelease, layout: Layout, table: Any, bound: float | None = None
) -> FloatArray:
    """Return the numbers of every data set, sound and on the equations, or refuse them.

    Parameters
    ----------
    description : TableRelease
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
        if np.abs(points[:, layout.private]).max() > limit:
            raise TableError("some number is larger than the declared bound")
    return points
