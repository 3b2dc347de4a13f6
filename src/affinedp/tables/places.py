"""Places in places: every state, county and tract there is, which is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import IntArray
from affinedp.tables.counting import column_of, label_codes
from affinedp.tables.frames import given_table
from affinedp.tables.refusals import (
    OTHER_LABELS,
    TableError,
    closest,
    has_no_label,
    listed,
    one_label_each,
)

EVERYWHERE = "everywhere"


@dataclass(frozen=True, eq=False)
class Places:
    """A tree of places: node 0 is everywhere, then level by level as they were named."""

    levels: tuple[str, ...] = ()
    parent: IntArray = field(default_factory=lambda: np.array([-1]), repr=False)
    depth: IntArray = field(default_factory=lambda: np.array([0]), repr=False)
    labels: tuple[list[Any], ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The levels, and everywhere above them."""
        return (EVERYWHERE, *self.levels)

    def nodes(self, at: str | None) -> IntArray:
        """Return the nodes of a level, or all of them."""
        if at is None:
            return np.arange(len(self.parent))
        if at not in self.names:
            if not self.levels:
                raise TableError("this release has no places: leave out at")
            raise TableError(f"there is no level {at!r}{closest(at, self.names)}")
        return np.flatnonzero(self.depth == self.names.index(at))

    def label_codes(self, nodes: IntArray) -> IntArray:
        """Return where the labels of nodes stand in each level's list, −1 above that level."""
        found = np.full((len(nodes), len(self.levels)), -1)
        above = np.array(nodes)
        starts = np.searchsorted(self.depth, np.arange(len(self.levels) + 1))
        for level in range(len(self.levels), 0, -1):
            here = self.depth[above] == level
            found[here, level - 1] = above[here] - starts[level]
            above[here] = self.parent[above[here]]
        return found


@one_label_each()
def places_of(table: Any, levels: Sequence[str] | None = None) -> Places:
    """Return the tree of places that a table names, one row for each at the bottom."""
    frame = given_table(table).frame
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


def place_numbers(frame: Any, places: Places) -> IntArray:
    """Return the place of every person: its number among those at the bottom.

    Columns of upper levels may be missing where the labels at the bottom say it all.
    """
    bottom = places.nodes(places.levels[-1])
    codes = places.label_codes(bottom)
    used = [level for level, name in enumerate(places.levels) if name in frame]
    column_of(frame, places.levels[-1])
    key, own = np.zeros(len(frame), dtype=np.int64), np.zeros(len(bottom), dtype=np.int64)
    for level in used:
        names = list(dict.fromkeys(places.labels[level]))
        number = {label: i for i, label in enumerate(names)}
        at = np.array([number[label] for label in places.labels[level]], dtype=np.int64)
        key = key * len(names) + label_codes(frame, places.levels[level], names)
        own = own * len(names) + at[codes[:, level]]
    order = np.argsort(own)
    known = own[order]
    if len(used) < len(places.levels) and (known[1:] == known[:-1]).any():
        raise TableError(
            f"{listed([places.levels[level] for level in used])} does not tell places apart: the "
            f"table needs the columns {listed(places.levels)}"
        )
    found = np.minimum(np.searchsorted(known, key), len(known) - 1)
    if (known[found] != key).any():
        raise TableError(
            f"a row has labels in {listed([places.levels[level] for level in used])} that are no "
            f"place. {OTHER_LABELS}"
        )
    return np.asarray(order[found], dtype=np.int64)
