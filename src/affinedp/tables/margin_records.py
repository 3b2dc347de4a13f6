"""From one row per person to numbers: labels, places, how often a row counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from affinedp.arrays import IntArray
from affinedp.domains.crossed import MOST_PEOPLE
from affinedp.exact.numbers import real_array
from affinedp.tables.places import Places
from affinedp.tables.refusals import TableError, closest, listed


def with_index_columns(frame: Any) -> Any:
    """Return people with the named levels of the index as columns, as a grouped sum has them.

    Parameters
    ----------
    frame : DataFrame
        One row per person or cell.
    """
    names = [name for name in frame.index.names if isinstance(name, str) and name not in frame]
    return frame.reset_index(level=names) if names else frame


def first_rows(frame: Any, person: str, at_most: int) -> Any:
    """Return the first rows of every person, so many at most.

    Parameters
    ----------
    frame : DataFrame
        One row per visit, say.
    person : str
        The column that says whose row it is.
    at_most : int
        How many rows of one person are counted.
    """
    if person not in frame:
        raise TableError(f"there is no column {person!r}{closest(person, frame)}", "", person)
    if frame[person].isna().any():
        raise TableError(f"rows without {person!r} belong to nobody: fill it in", "", person)
    return frame[frame.groupby(person, sort=False, observed=True).cumcount() < at_most]


def label_codes(frame: Any, name: str, labels: Sequence[Any], where: str) -> IntArray:
    """Return labels as numbers; other labels than the public ones are refused.

    Parameters
    ----------
    frame : DataFrame
        People.
    name : str
        The column.
    labels : sequence
        The public labels, in their order.
    where : str
        Where they are named, for the refusal.
    """
    import pandas

    if name not in frame:
        raise TableError(f"there is no column {name!r}{closest(name, frame)}", "", name)
    place = {label: i for i, label in enumerate(labels)}
    codes, different = pandas.factorize(frame[name], use_na_sentinel=False)
    known = np.array([place.get(label, -1) for label in different.tolist()], dtype=np.int64)
    if (known < 0).any():
        raise TableError(
            f"column {name!r} has a label that is not among the public ones. Add it to {where}, "
            "or leave the row out",
            "",
            name,
        )
    return np.asarray(known[codes], dtype=np.int64)


def records_of(frame: Any, attributes: Mapping[str, Sequence[Any]]) -> IntArray:
    """Return one row of numbers per person, a column per attribute.

    Parameters
    ----------
    frame : DataFrame
        People.
    attributes : mapping
        From attributes to their public labels.
    """
    columns = [
        label_codes(frame, name, labels, "attributes") for name, labels in attributes.items()
    ]
    return np.column_stack(columns)


def place_numbers(frame: Any, places: Places) -> IntArray:
    """Return the place of every person: its number among those at the bottom.

    Columns of upper levels may be missing where the labels at the bottom say it all.

    Parameters
    ----------
    frame : DataFrame
        People.
    places : Places
        All places there are.
    """
    bottom = places.nodes(places.levels[-1])
    codes = places.label_codes(bottom)
    used = [level for level, name in enumerate(places.levels) if name in frame]
    if len(places.levels) - 1 not in used:
        name = places.levels[-1]
        raise TableError(f"there is no column {name!r}{closest(name, frame)}", "", name)
    key, own = np.zeros(len(frame), dtype=np.int64), np.zeros(len(bottom), dtype=np.int64)
    for level in used:
        names = list(dict.fromkeys(places.labels[level]))
        number = {label: i for i, label in enumerate(names)}
        at = np.array([number[label] for label in places.labels[level]], dtype=np.int64)
        key = key * len(names) + label_codes(frame, places.levels[level], names, "places")
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
            "place. Add it to places, or leave the row out"
        )
    return np.asarray(order[found], dtype=np.int64)


def counted_times(frame: Any, count: str) -> IntArray:
    """Return how many people every row stands for.

    Parameters
    ----------
    frame : DataFrame
        Cells.
    count : str
        The column of counts.
    """
    if count not in frame:
        raise TableError(f"there is no column {count!r}{closest(count, frame)}", "", count)
    values = frame[count].tolist()
    if any(isinstance(value, bool | str) for value in values):
        raise TableError(f"column {count!r} must hold numbers", "", count)
    numbers = real_array(values, f"column {count!r}")
    if not np.isfinite(numbers).all() or (numbers != np.rint(numbers)).any() or (numbers < 0).any():
        raise TableError(
            f"column {count!r} must hold whole numbers that are not negative", "", count
        )
    if math.fsum(numbers) > MOST_PEOPLE:
        raise TableError(f"column {count!r} counts more than 2**53 people", "", count)
    return np.asarray(numbers, dtype=np.int64)
