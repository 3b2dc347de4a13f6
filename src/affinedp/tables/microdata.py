"""From one row per person (or per visit) to counts, with a limit on what one person can change."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from affinedp.release.engines import engine_of
from affinedp.tables.engine_counts import counted_on_engine
from affinedp.tables.frames import given_table
from affinedp.tables.refusals import TableError, declared, listed
from affinedp.tables.table_release import TableRelease


def count_people(
    people: Any,
    by: Sequence[str],
    *,
    cells: Mapping[str, Sequence[Any]] | Any = None,
    person: str | None = None,
    at_most: int | None = None,
    name: str = "count",
) -> Any:
    """Count rows by labels, over cells that are public, and at most so many for one person.

    Which cells there are is published, so it must not come from the data: give the labels, or a
    table of all cells.  The categories of a column are not taken for public: ``astype("category")``
    and ``qcut`` make them of the data.  Only an Enum of polars, whose type names its labels, is.

    Parameters
    ----------
    people : DataFrame
        One row per person, or several with a column that says whose they are.  Tables of Dask and
        Spark, and lazy ones of polars, are counted where they are.
    by : sequence of str
        The label columns, from the top to the bottom of a hierarchy.
    cells : mapping or DataFrame, optional
        Labels by column (every combination is a cell), or one row per cell.
    person : str, optional
        The column that says whose row it is.
    at_most : int, optional
        How many rows of one person are counted: the first ones of a table in memory, and on an
        engine, which keeps no order, the first ones in the order of their labels (a table in
        memory that is sorted by labels gives the same).  Give the same number to
        :class:`TableRelease`, whose promise then covers all rows of a person.
    name : str
        The column of counts.

    Returns
    -------
    DataFrame
        One row per cell, in the order of the labels that were given.

    Examples
    --------
    >>> import pandas as pd
    >>> visits = pd.DataFrame({"who": [1, 1, 1, 2], "ward": ["a", "a", "b", "b"]})
    >>> wards = {"ward": ["a", "b", "c"]}
    >>> count_people(visits, ["ward"], cells=wards, person="who", at_most=2)["count"].tolist()
    [2, 1, 0]
    """
    import pandas

    labels = list(by)
    if (person is None) != (at_most is None):
        raise TableError("person and at_most go together: whose rows, and how many are counted")
    if at_most is not None and (
        isinstance(at_most, bool) or not isinstance(at_most, int) or at_most < 1
    ):
        raise TableError(f"at_most must be a whole number of at least 1, not {at_most!r}")
    known = {**_enums(people, labels), **(cells or {})} if _by_column(cells) else cells
    if engine_of(people) not in (None, "parts"):
        every = _cells(labels, known)
        found = counted_on_engine(people, labels, person, at_most)
    else:
        frame = given_table(TableRelease(epsilon=1.0, equations=[]), people).frame
        found = _counted(frame, labels, person, at_most)
        every = _cells(labels, known)
    counts = dict.fromkeys(every, 0)
    for cell, count in found.items():
        if cell not in counts:
            raise TableError(
                f"a row has labels in {listed(labels)} that are no cell. Add the cell, or leave "
                "the row out"
            )
        counts[cell] += count
    table = pandas.DataFrame(every, columns=labels)
    return table.assign(**{name: list(counts.values())})


def _counted(
    frame: Any, labels: list[str], person: str | None, at_most: int | None
) -> Counter[tuple[Any, ...]]:
    """How many rows have each combination of labels that occurs."""
    for column in (*labels, *([] if person is None else [person])):
        if column not in frame:
            raise TableError(f"there is no column {column!r}", "", column)
    if person is not None:
        if frame[person].isna().any():
            raise TableError(f"rows without {person!r} belong to nobody: fill it in", "", person)
        frame = frame[frame.groupby(person, sort=False).cumcount() < at_most]
    return Counter(zip(*(frame[label] for label in labels)))


def _by_column(cells: Any) -> bool:
    return cells is None or isinstance(cells, Mapping)


def _enums(people: Any, labels: list[str]) -> dict[str, list[Any]]:
    """Labels that the type of a polars column names; those of a Categorical come from the data."""
    if not type(people).__module__.startswith("polars"):
        return {}
    schema = people.collect_schema()
    return {
        name: schema[name].categories.to_list()
        for name in labels
        if name in schema and type(schema[name]).__name__ == "Enum"
    }


def _cells(labels: list[str], cells: Any) -> list[tuple[Any, ...]]:
    """All cells, from public labels alone."""
    if cells is not None and not isinstance(cells, Mapping):
        given = given_table(TableRelease(epsilon=1.0, equations=[]), cells).frame
        missing = [label for label in labels if label not in given]
        if missing:
            raise TableError(f"cells has no column {missing[0]!r}", "", missing[0])
        found = list(zip(*(given[label] for label in labels)))
        if len(set(found)) < len(found):
            raise TableError("cells names a cell twice")
        return found
    every = []
    for label in labels:
        if cells is not None and label in cells:
            every.append(list(dict.fromkeys(declared(cells[label], label))))
        else:
            raise TableError(
                f"which labels {label!r} has is published, so it cannot come from the data: name "
                "them in cells (in polars an Enum names them too; categories, of pandas and "
                "polars, may come from the data)",
                "",
                label,
            )
    return list(itertools.product(*every))
