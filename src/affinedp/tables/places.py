"""Places in places: every state, county and tract there is, which is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import IntArray
from affinedp.tables.description import TableDescription
from affinedp.tables.frames import given_table
from affinedp.tables.refusals import TableError, closest, listed
from affinedp.tables.row_groups import has_no_label

ANY = TableDescription(epsilon=1.0, equations=[])
EVERYWHERE = "everywhere"


@dataclass(frozen=True, eq=False)
class Places:
    """A tree of places: node 0 is everywhere, then level by level as they were named.

    Attributes
    ----------
    levels : tuple of str
        Names of the levels, from the top to the bottom.
    parent : array of int
        The node above every node, −1 for everywhere.
    depth : array of int
        The level of every node; 0 is everywhere.
    labels : tuple of lists
        The labels of the nodes of every level below everywhere, as they were given.
    """

    levels: tuple[str, ...]
    parent: IntArray = field(repr=False)
    depth: IntArray = field(repr=False)
    labels: tuple[list[Any], ...] = field(repr=False)

    def nodes(self, at: str | None) -> IntArray:
        """Return the nodes of a level, or all of them.

        Parameters
        ----------
        at : str or None
            The name of a level, or ``"everywhere"``.
        """
        if at is None:
            return np.arange(len(self.parent))
        known = [EVERYWHERE, *self.levels]
        if at not in known:
            raise TableError(f"there is no level {at!r}{closest(at, known)}")
        return np.flatnonzero(self.depth == known.index(at))

    def label_codes(self, nodes: IntArray) -> IntArray:
        """Return where the labels of nodes stand in each level's list, −1 above that level.

        Parameters
        ----------
        nodes : array of int
            Which.
        """
        found = np.full((len(nodes), len(self.levels)), -1)
        above = np.array(nodes)
        starts = np.searchsorted(self.depth, np.arange(len(self.levels) + 1))
        for level in range(len(self.levels), 0, -1):
            here = self.depth[above] == level
            found[here, level - 1] = above[here] - starts[level]
            above[here] = self.parent[above[here]]
        return found


def places_of(table: Any, levels: Sequence[str] | None = None) -> Places:
    """Return the tree of places that a table names, one row for each at the bottom.

    Parameters
    ----------
    table : DataFrame of pandas or polars
        A column per level.
    levels : sequence of str, optional
        The columns, from the top to the bottom; all of them by default.

    Examples
    --------
    >>> import pandas as pd
    >>> wards = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"]})
    >>> places_of(wards).parent.tolist()
    [-1, 0, 0, 1, 1, 2]
    """
    frame = given_table(ANY, table).frame
    names = list(frame.columns) if levels is None else list(levels)
    for name in names:
        if name not in frame:
            raise TableError(f"places has no column {name!r}{closest(name, frame)}", "", name)
    if not names or not len(frame):
        raise TableError("places names no place")
    empty = [name for name in names if any(has_no_label(x) for x in frame[name].tolist())]
    if empty:
        raise TableError(
            f"places has rows without {empty[0]!r}: name the places at the bottom only, their "
            "totals follow",
            "",
            empty[0],
        )
    if frame.duplicated(names).any():
        raise TableError(f"places names a place twice in {listed(names)}")
    parents, depths, labels = [np.array([-1])], [np.array([0])], []
    above, start = np.zeros(len(frame), dtype=np.int64), 1
    for depth in range(1, len(names) + 1):
        own = frame.groupby(names[:depth], sort=False, observed=True).ngroup().to_numpy()
        first = np.unique(own, return_index=True)[1]
        parents.append(above[first])
        depths.append(np.full(len(first), depth))
        labels.append([frame[names[depth - 1]].iloc[row] for row in first.tolist()])
        above = start + own
        start += len(first)
    return Places(tuple(names), np.concatenate(parents), np.concatenate(depths), tuple(labels))
