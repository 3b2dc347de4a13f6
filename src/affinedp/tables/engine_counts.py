"""Counts of people whose table an engine keeps: counted there, in that engine's own words.

narwhals says a group-by in the words of Dask, Spark, polars, DuckDB and others; what comes back is
one number per group that occurs.  A table is computed once for the counts, so one that changes
while it is used changes nothing that was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from affinedp.errors import MissingExtraError
from affinedp.release.engines import engine_of
from affinedp.tables.refusals import TableError

COUNTED = "affinedp_counted"
NOBODY = "affinedp_nobody"


def counted_on_engine(
    people: Any, by: Sequence[str], person: str | None = None, at_most: int | None = None
) -> dict[tuple[Any, ...], int]:
    """Return how many rows have each combination of labels that occurs.

    Parameters
    ----------
    people : lazy table of any engine that narwhals knows
        One row per person, or several.
    by : sequence of str
        The label columns.
    person : str, optional
        The column that says whose row it is.
    at_most : int, optional
        How many rows of one person are counted: the first ones in the order of their labels.
        Which rows came first elsewhere is no property of the person alone on an engine that moves
        rows about, and the rows of one person must not decide about those of another.

    Examples
    --------
    >>> import polars as pl
    >>> visits = pl.LazyFrame({"who": [1, 1, 1, 2], "ward": ["b", "a", "a", "b"]})
    >>> sorted(counted_on_engine(visits, ["ward"]).items())
    [(('a',), 2), (('b',), 2)]
    >>> sorted(counted_on_engine(visits, ["ward"], person="who", at_most=2).items())
    [(('a',), 2), (('b',), 1)]
    """
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
