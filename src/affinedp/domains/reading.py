"""Data in, results out: arrays, pandas and polars objects as rows of doubles, and back.

Data that doubles do not hold is refused.  Of a pandas object only the labels come back, which are
public: not its types, attributes or class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.frames import fresh_index
from affinedp.errors import AffineDPError, listed
from affinedp.exact.numbers import real_array

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


def held(x: Any) -> Any:
    """Return data as it is in memory: a lazy table of polars is computed here, once.

    So what is checked and charged is what is released, whatever becomes of its sources.
    """
    return x.collect() if _is_polars(x) and hasattr(x, "collect") else x


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
