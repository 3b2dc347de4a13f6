"""Data in, results out: arrays, pandas and polars objects as rows of doubles, and back.

Data that doubles do not hold is refused.  Of a pandas object only the labels come back, which are
public.  What a DataFrame carries beside its values (types, attributes, flags, frequencies,
categories) depends on how it was made, and so perhaps on private numbers.  Nothing of that is
copied: the type of a published label follows from the labels themselves.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, listed
from affinedp.exact.numbers import LARGEST_WHOLE, real_array

# Where the tables of an engine come from, and what they are called.
ENGINES = {
    ("dask", "DataFrame"): "dask",
    ("dask_expr", "DataFrame"): "dask",
    ("pyspark", "DataFrame"): "spark",
    ("polars", "LazyFrame"): "polars",
    ("affinedp", "Parts"): "parts",
}
# Results with their names, in the form that the data had.
Wrap = Callable[[FloatArray, tuple[str, ...]], Any]


def read_rows(names: tuple[str, ...], x: Any) -> tuple[FloatArray, Wrap]:
    """Return data as rows of a float array, and how to hand results back in the same form."""
    if hasattr(x, "columns") and hasattr(x, "index"):  # a pandas DataFrame
        values = _by_name(lambda name: _pandas_column(x[name]), list(x.columns), names)
        data = [name for name in x.index.names if name in names]
        if data:
            raise AffineDPError(
                f"the labels of the rows are called {data[0]!r}, as data is, and labels are "
                "published as they are: use reset_index(drop=True), or other labels"
            )
        return values, lambda y, outputs: _frame(y, x.index, outputs)
    if _is_polars(x):
        values = _by_name(lambda name: _polars_column(x[name]), list(x.columns), names)
        return values, lambda y, outputs: type(x)(dict(zip(outputs, y.T.copy())))
    if hasattr(x, "index") and hasattr(x, "to_frame"):  # a pandas Series
        row = x.to_frame().T
        values = _by_name(lambda name: _pandas_column(row[name]), list(x.index), names)
        return values, lambda y, outputs: _series(y[0], outputs, x.name)
    if isinstance(x, Mapping):
        values = _by_name(lambda name: real_array(x[name], repr(name), 0)[None], list(x), names)
        return values, lambda y, outputs: dict(zip(outputs, y[0].tolist()))
    array = real_array(x, "x")
    if array.ndim not in (1, 2) or array.shape[-1] != len(names):
        raise AffineDPError(
            f"x has shape {array.shape}, but must have {len(names)} entries (or rows of them)"
        )
    if array.ndim == 1:
        return array[None], lambda y, outputs: y[0]
    return array, lambda y, outputs: y


def _by_name(column: Callable[[str], Any], given: list[Any], names: tuple[str, ...]) -> FloatArray:
    """Columns in the manifold's order, matched by name."""
    if len(set(given)) < len(given):
        raise AffineDPError("a column name occurs twice in the data")
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    if missing or unknown:
        raise AffineDPError(_other_columns(missing, unknown))
    return np.column_stack([real_array(column(name), f"column {name!r}, row") for name in names])


def _pandas_column(column: Any) -> Any:
    kind = column.dtype.kind if hasattr(column.dtype, "kind") else "O"
    if kind not in "iufO" or bool(column.isna().any()):
        what = "missing values" if kind in "iufO" else f"values of type {column.dtype}"
        raise AffineDPError(f"column {column.name!r} has {what}")
    return column


def _polars_column(column: Any) -> Any:
    """The numbers as they are: decimals one by one, since an array of them would be doubles."""
    if not column.dtype.is_numeric() or column.null_count():
        what = "missing values" if column.dtype.is_numeric() else f"values of type {column.dtype}"
        raise AffineDPError(f"column {column.name!r} has {what}")
    if column.dtype.is_decimal():
        return np.array(column.to_list(), dtype=object)
    return column.to_numpy()


def _is_polars(x: Any) -> bool:
    # its type is asked: for its columns a lazy table would compute its schema, with a warning
    return type(x).__module__.partition(".")[0] == "polars" and hasattr(type(x), "columns")


def engine_of(data: Any) -> str | None:
    """Return which engine keeps a table, or None; no engine is imported for that."""
    for kind in type(data).__mro__:
        found = ENGINES.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found
    return None


def in_parts(data: Any, into: str | os.PathLike[str] | None) -> bool:
    """Whether a table is released part by part.

    A lazy table of polars is read once, as a whole, unless a folder is given.
    """
    engine = engine_of(data)
    if engine is None and into is not None:
        raise AffineDPError(
            "into= is for tables in parts (Dask, Spark, lazy polars); write this one yourself"
        )
    return engine is not None and not (engine == "polars" and into is None)


def held(x: Any) -> Any:
    """Return data as it is in memory: a lazy table of polars is computed here, once.

    So what is checked and charged is what is released, whatever becomes of its sources.
    """
    return x.collect() if engine_of(x) == "polars" else x


def _other_columns(missing: list[str], unknown: list[str]) -> str:
    """Say which columns are not there, and which are too many."""
    found = []
    if missing:
        found.append(f"there is no column {_some(missing)}")
    if unknown:
        found.append(f"the mechanism does not know the column {_some(unknown)}")
    text = f"the data does not have the mechanism's entries: {', and '.join(found)}"
    if unknown and not missing:
        text += "; leave out what is not released, or describe the table: TableRelease keeps labels"
    return text


def _some(names: list[str]) -> str:
    return listed([repr(name) for name in names])


def _frame(values: FloatArray, index: Any, outputs: tuple[str, ...]) -> Any:
    import pandas

    return pandas.DataFrame(values, index=fresh_index(index), columns=list(outputs))


def _series(values: FloatArray, outputs: tuple[str, ...], name: Any) -> Any:
    """One row; its name is the label of that row in the table that it was taken from."""
    import pandas

    return pandas.Series(values, index=list(outputs), name=name)


# ---------------------------------------------------------------------- published frames


INT64 = range(-(2**63), 2**63)


def fresh_frame(columns: Mapping[str, Any], index: Any) -> Any:
    """Return a DataFrame of its own with these columns, and with the labels of an index."""
    import pandas

    return pandas.DataFrame(dict(columns), index=fresh_index(index), columns=list(columns))


def fresh_index(index: Any) -> Any:
    """Return an index of its own with the same labels and names."""
    import pandas

    names = list(index.names)
    levels = [fresh_labels(index.get_level_values(i)) for i in range(index.nlevels)]
    if index.nlevels > 1:
        return pandas.MultiIndex.from_arrays(levels, names=names)
    labels = levels[0]
    if labels.dtype.kind == "i" and np.array_equal(labels, np.arange(len(labels))):
        return pandas.RangeIndex(len(labels), name=names[0])
    return pandas.Index(labels, name=names[0])


def fresh_labels(labels: Any) -> Any:
    """Return public labels as an array whose type follows from them.

    Whole numbers are int64, other numbers float64, points in time datetime64; everything else
    stays what it is.  Missing labels are NaN (or no time).
    """
    import pandas

    kind = getattr(labels, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind == "i":  # the common case, without a look at each
        return np.array(labels, dtype=np.int64)
    listed = labels.tolist() if hasattr(labels, "tolist") else labels
    given = [_plain(label) for label in listed]
    missing = [bool(pandas.api.types.is_scalar(label) and pandas.isna(label)) for label in given]
    present = [label for label, gap in zip(given, missing) if not gap]
    if present and all(type(label) in (int, float) for label in present):
        if not any(missing) and all(_is_whole(label) for label in present):
            return np.array([int(label) for label in present], dtype=np.int64)
        if all(type(label) is float or abs(label) <= LARGEST_WHOLE for label in present):
            return np.array([np.nan if gap else label for label, gap in zip(given, missing)], float)
    if present and all(isinstance(label, datetime.datetime) for label in present):
        times = _times([None if gap else label for label, gap in zip(given, missing)])
        if times is not None:
            return times
    if not any(missing) and all(type(label) is bool for label in present):
        return np.array(present, dtype=np.bool_)
    found = np.empty(len(given), dtype=object)
    for place, (label, gap) in enumerate(zip(given, missing)):
        found[place] = np.nan if gap else label
    return found


def pandas_of_polars(table: Any) -> Any:
    """Return a DataFrame of polars as one of pandas, with the same values.

    Whole numbers beside missing ones would be doubles in pandas, which do not hold all of them.
    """
    import pandas

    columns = {}
    for name in table.columns:
        column = table[name]
        gaps, whole = column.null_count() > 0, column.dtype.is_integer()
        if (column.dtype.is_float() or whole) and not gaps and "128" not in str(column.dtype):
            columns[name] = pandas.Series(column.to_numpy())
        elif getattr(column.dtype, "time_unit", None) == "ns":  # Python's times have none of these
            columns[name] = _nanoseconds(column)
        else:  # Python's values, so that no type is guessed on the way
            kind = object if whole and gaps else None
            columns[name] = pandas.Series(column.to_list(), dtype=kind)
    return pandas.DataFrame(columns, columns=list(table.columns))


def _nanoseconds(column: Any) -> Any:
    """Points and lengths of time of polars, to the nanosecond."""
    import pandas

    zone = getattr(column.dtype, "time_zone", None)
    if zone is None:
        return pandas.Series(column.to_numpy())
    plain = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return pandas.Series(plain.to_numpy()).dt.tz_localize("UTC").dt.tz_convert(zone)


def _plain(label: Any) -> Any:
    """A label without the type that NumPy gave it."""
    return label.item() if isinstance(label, np.generic) else label


def _is_whole(label: float) -> bool:
    if type(label) is int:
        return label in INT64
    return abs(label) <= LARGEST_WHOLE and label == int(label)


def _times(given: list[Any]) -> Any:
    """Points in time in pandas' usual unit; None where that does not hold them."""
    import pandas

    try:
        return pandas.DatetimeIndex(given).as_unit("ns").array
    except (ValueError, TypeError):  # before 1677, after 2262, or with and without time zones
        return None
