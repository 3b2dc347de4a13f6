"""From one row per person (or per visit) to counts, with a limit on what one person can change.

A table that an engine keeps is counted there: narwhals says a group-by in the words of Dask, Spark,
polars, DuckDB and others, and one number per group that occurs comes back.  It is computed once, so
a table that changes while it is used changes nothing that was counted.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.crossed import MOST_PEOPLE
from affinedp.domains.reading import engine_of
from affinedp.errors import MissingExtraError
from affinedp.exact.numbers import (
    NOT_KEPT,
    nearest_doubles,
    over_one_denominator,
    whole_number,
)
from affinedp.tables.describe import amounts_of
from affinedp.tables.frames import given_table, numbers_of
from affinedp.tables.refusals import (
    OTHER_LABELS,
    TableError,
    closest,
    declared,
    has_no_label,
    is_label,
    listed,
    one_label_each,
)

COUNTED = "affinedp_counted"
NOBODY = "affinedp_nobody"


@one_label_each()
def count_people(
    people: Any,
    by: Sequence[str],
    *,
    cells: Mapping[str, Sequence[Any]] | Any = None,
    person: str | None = None,
    at_most: int | None = None,
    name: str = "count",
    values: Mapping[str, tuple[float, float]] | None = None,
) -> Any:
    """Count rows by labels, and add up their values, at most so many rows for one person.

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
        engine, which keeps no order, the first ones in the order of their labels, then values (a
        table in memory that is sorted by them gives the same).  Give the same number to
        :class:`TableRelease`, whose promise then covers all rows of a person.
    name : str
        The column of counts.
    values : mapping, optional
        Columns that are added up, too, with public bounds such as ``{"income": (0, 200_000)}``:
        every value is first clipped to them.  Give the same bounds to :class:`TableRelease`, as
        its ``mu``.  Sums are those of the decimals as written.

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
    >>> visits["cost"] = [120.5, 80, 40, 9000]
    >>> costs = {"cost": (0, 500)}
    >>> count_people(visits, ["ward"], cells=wards, values=costs)["cost"].tolist()
    [200.5, 540.0, 0.0]
    """
    import pandas

    if isinstance(by, str) or not isinstance(by, Iterable):
        raise TableError("by must be a list of label columns, such as ['ward']")
    labels = list(by)
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise TableError(f"by names {twice[0]!r} twice", "", str(twice[0]))
    if (person is None) != (at_most is None):
        raise TableError("person and at_most go together: whose rows, and how many are counted")
    if at_most is not None:
        whole_number(at_most, "at_most")
    every = _cells(people, labels, cells)
    if values is not None:
        if engine_of(people) in ("dask", "spark", "parts"):
            raise TableError(
                "values are added up in one place, where no sum is rounded: bring the rows there "
                "(compute(), toPandas()), or count without values"
            )
        if not isinstance(values, Mapping):
            raise TableError("values must be bounds by column, such as {'income': (0, 200_000)}")
        twice = [column for column in values if column in (*labels, name, person)]
        if twice:
            raise TableError(f"{twice[0]!r} names a label or the count, and a value", "", twice[0])
        lazy = engine_of(people) is not None
        people = given_table(people).frame
        if lazy and at_most is not None:  # it came in an order that other people's rows may decide
            named = [*labels, *values]
            people = people.sort_values([column_of(people, x).name for x in named], key=_plain)
    frame, times = people_of(people, labels, person=person, at_most=at_most)
    columns = [column_of(frame, label).tolist() for label in labels]
    counts = dict.fromkeys(every, 0)
    found: Counter[tuple[Any, ...]] = Counter()
    for cell, count in zip(zip(*columns), itertools.repeat(1) if times is None else times.tolist()):
        found[cell] += count
    # Python takes True for 1
    truths = [
        {isinstance(one, bool | np.bool_) for one in here}
        <= {isinstance(one, bool | np.bool_) for one in there}
        for here, there in zip(columns, zip(*every))
    ]
    for cell, count in found.items():
        if cell not in counts or not all(truths):
            here, there = zip(*found), zip(*every)
            types = "".join(map(other_types, labels, map(list, here), map(list, there)))
            raise TableError(
                f"a row has labels in {listed(labels)} that are no cell{types}. {OTHER_LABELS}"
            )
        counts[cell] += count
    table = pandas.DataFrame(every, columns=labels)
    table = table.assign(**{name: list(counts.values())})
    place = {cell: row for row, cell in enumerate(every)}
    rows = np.array([place[cell] for cell in zip(*columns)], dtype=np.int64)
    sums = {column: _sums(frame, column, ends, rows, len(every))
            for column, ends in (values or {}).items()}  # fmt: skip
    return table.assign(**sums)


def _sums(frame: Any, column: str, ends: Any, rows: IntArray, count: int) -> FloatArray:
    """Clipped values added up by cell: the sums of the decimals, each as its double."""
    column_of(frame, column)
    low, high = map(float, amounts_of(ends))
    given = np.clip(numbers_of(frame, [column])[:, 0], low, high)
    whole, below = over_one_denominator(given)
    found = np.zeros(count, dtype=object)
    np.add.at(found, rows, whole.astype(object))
    exact = np.array([Fraction(int(one), below) for one in found], dtype=object)
    doubles, changed = nearest_doubles(exact)
    if changed.any():
        raise TableError(f"a sum of {column!r} {NOT_KEPT}: round the values first", "", column)
    return doubles


def _cells(people: Any, labels: list[str], cells: Any) -> list[tuple[Any, ...]]:
    """All cells, from public labels alone."""
    if cells is not None and not isinstance(cells, Mapping):
        given = given_table(cells).frame
        missing = [label for label in labels if label not in given]
        if missing:
            raise TableError(f"cells has no column {missing[0]!r}", "", missing[0])
        found = list(zip(*(given[label].tolist() for label in labels)))
        if len(set(found)) < len(found):
            raise TableError("cells names a cell twice")
        return found
    known = {**_enums(people, labels), **(cells or {})}
    for label in labels:
        if label not in known:
            raise TableError(
                f"which labels {label!r} has is published, so it cannot come from the data: name "
                "them in cells (in polars an Enum names them too; categories, of pandas and "
                f"polars, may come from the data){closest(label, known)}",
                "",
                label,
            )
    return list(itertools.product(*(declared(known[label], label) for label in labels)))


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


@one_label_each()
def people_of(
    people: Any,
    labels: Sequence[str],
    optional: Sequence[str] = (),
    *,
    count: str | None = None,
    person: str | None = None,
    at_most: int | None = None,
) -> tuple[Any, IntArray | None]:
    """Return rows of people with these labels, and how many people each row stands for.

    On an engine the labels of people decide which of their rows are counted: such a table has no
    order, and if that in which its rows arrive decided, the rows of one person could move others.
    """
    import pandas

    engine = engine_of(people)
    if engine in ("dask", "spark") and count is not None:
        raise TableError(
            "counts of cells are read in one place: bring them there (compute(), toPandas())"
        )
    if engine not in (None, "parts") and count is None:
        own = people.collect_schema().names() if engine == "polars" else list(people.columns)
        names = [*(name for name in optional if name in own), *labels]
        found = counted_on_engine(people, names, person, at_most)
        times = np.array(list(found.values()), dtype=np.int64)
        return pandas.DataFrame(list(found), columns=names), times
    frame = given_table(people).frame
    # the named levels of the index are columns, too, as a grouped sum has them
    names = [name for name in frame.index.names if isinstance(name, str) and name not in frame]
    frame = frame.reset_index(level=names) if names else frame
    if person is not None:
        if column_of(frame, person).isna().any():
            raise TableError(f"rows without {person!r} belong to nobody: fill it in", "", person)
        frame = frame[frame.groupby(person, sort=False, observed=True).cumcount() < at_most]
    return frame, None if count is None else _times(frame, count)


def column_of(frame: Any, name: str) -> Any:
    """Return a column, or refuse a table that has none of this name."""
    if name not in frame:
        raise TableError(f"there is no column {name!r}{closest(name, frame)}", "", name)
    if list(frame.columns).count(name) > 1:
        raise TableError(f"the column {name!r} occurs twice in the table", "", name)
    return frame[name]


def other_types(name: str, here: Collection[Any], known: Collection[Any]) -> str:
    """Return in words that labels are missing, or differ in their types: "1" is not 1."""
    if any(map(has_no_label, here)):
        return f" ({name!r} has rows without a label)"
    own, public = ({type(label).__name__ for label in labels} for labels in (here, known))
    if own & public or not own or not public:
        return ""
    return (
        f" ({name!r} holds {listed(sorted(own))}, the public labels are {listed(sorted(public))})"
    )


@one_label_each()
def label_codes(frame: Any, name: str, labels: Sequence[Any]) -> IntArray:
    """Return labels as numbers; other labels than the public ones are refused."""
    import pandas

    place = {label: i for i, label in enumerate(labels)}
    column = column_of(frame, name)
    codes, different = pandas.factorize(column, use_na_sentinel=False)
    met = different.tolist()
    known = np.array([place.get(label, -1) for label in met], dtype=np.int64)
    # Python, and pandas, take True for 1
    equal = met if column.dtype != object else column.tolist()
    at = known if column.dtype != object else known[codes]
    other = [i >= 0 and not is_label(one, labels[i]) for one, i in zip(equal, at.tolist())]
    if (known < 0).any() or any(other):
        types = other_types(name, different.tolist(), labels)
        raise TableError(
            f"column {name!r} has a label that is not among the public ones{types}. {OTHER_LABELS}",
            "",
            name,
        )
    return np.asarray(known[codes], dtype=np.int64)


def _times(frame: Any, count: str) -> IntArray:
    """How many people every row stands for."""
    column_of(frame, count)
    numbers = numbers_of(frame, [count])[:, 0]
    if (numbers != np.rint(numbers)).any() or (numbers < 0).any():
        raise TableError(
            f"column {count!r} must hold whole numbers that are not negative", "", count
        )
    if math.fsum(numbers) > MOST_PEOPLE:
        raise TableError(f"column {count!r} counts more than 2**53 people", "", count)
    return np.asarray(numbers, dtype=np.int64)


def counted_on_engine(
    people: Any, by: Sequence[str], person: str | None = None, at_most: int | None = None
) -> dict[tuple[Any, ...], int]:
    """Return how many rows have each combination of labels that occurs."""
    try:
        import narwhals.stable.v2 as nw
    except ImportError:
        raise MissingExtraError("narwhals", "tables") from None

    labels = list(by)
    try:
        table = nw.from_native(people).lazy()
    except TypeError:  # pandas on Spark, say
        raise TableError(
            f"{type(people).__module__}.{type(people).__name__} cannot count: give a DataFrame of "
            "Dask, Spark (to_spark() makes one of pandas on Spark) or polars"
        ) from None
    names = table.collect_schema()
    for column in (*labels, *([] if person is None else [person])):
        if column not in names:
            raise TableError(f"there is no column {column!r}", "", column)
    for own in (COUNTED, NOBODY):
        if own in (*labels, person):
            raise TableError(f"a column cannot be called {own!r}", "", own)
    keys = labels if person is None or person in labels else [person, *labels]
    groups = table.group_by(keys).agg(nw.len().alias(COUNTED))
    # with a sign: some engines count without, and differences would wrap around
    groups = groups.with_columns(nw.col(COUNTED).cast(nw.Int64))
    if person is not None and at_most is not None:
        # looked for among the groups that are counted, not in a pass of its own: a source that
        # changes would pass by it
        nobody = _nobody(nw, person, names[person])
        groups = groups.with_columns(nobody.cast(nw.Int64).alias(NOBODY))
        if engine_of(people) == "dask":  # its windows have no order in narwhals
            groups = nw.from_native(_first_on_dask(nw.to_native(groups), person, labels, at_most))
        else:
            order = [f"{COUNTED} {label}" for label in labels]
            groups = groups.with_columns(
                _in_order(nw, label, names[label]).alias(name) for label, name in zip(labels, order)
            )
            before = nw.col(COUNTED).cum_sum().over(person, order_by=order) - nw.col(COUNTED)
            room = nw.lit(at_most) - before
            fits = nw.when(room < nw.col(COUNTED)).then(room).otherwise(nw.col(COUNTED))
            counted = (nw.col(COUNTED) > 0) | (nw.col(NOBODY) > 0)
            groups = groups.with_columns(fits.alias(COUNTED)).filter(counted)
        sums = (nw.col(COUNTED).sum(), nw.col(NOBODY).sum())
        groups = groups.lazy().group_by(labels).agg(*sums)
    found = groups.collect().to_dict(as_series=False)
    if any(found.get(NOBODY, ())):
        raise TableError(f"rows without {person!r} belong to nobody: fill it in", "", person or "")
    cells = zip(*(found[label] for label in labels))
    return {cell: int(count) for cell, count in zip(cells, found[COUNTED]) if count}


def _nobody(nw: Any, person: str, kind: Any) -> Any:
    """Whose rows cannot be limited: several people may be behind rows without a person."""
    missing = nw.col(person).is_null()
    return missing | nw.col(person).is_nan() if kind.is_float() else missing


def _in_order(nw: Any, label: str, kind: Any) -> Any:
    """What a label is ordered by: itself, as a text if it is one of several categories.

    Engines number categories as they meet them, so whose rows came first would decide their order,
    and one person's rows about which rows of another are counted.
    """
    found = nw.col(label)
    return found.cast(nw.String) if kind in (nw.Categorical, nw.Enum) else found


def _first_on_dask(groups: Any, person: str, labels: list[str], at_most: int) -> Any:
    """The same on Dask: all groups of a person in one part, in the order of their labels."""

    def first(part: Any) -> Any:
        ordered = part.sort_values(list(dict.fromkeys([person, *labels])), key=_plain)
        before = ordered.groupby(person, dropna=False)[COUNTED].cumsum() - ordered[COUNTED]
        room = (at_most - before).clip(lower=0)
        return ordered.assign(**{COUNTED: ordered[COUNTED].clip(upper=room)})

    return groups.shuffle(person).map_partitions(first, meta=groups._meta)


def _plain(column: Any) -> Any:
    """Labels themselves in place of the numbers of categories."""
    return column.astype(column.cat.categories.dtype) if hasattr(column, "cat") else column
