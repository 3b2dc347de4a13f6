"""Data in, results out: arrays and pandas objects as rows of doubles, and back.

Data that doubles do not hold is refused.  Of a pandas object only the labels come back, which are
public: not its types, attributes or class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, exact_doubles
from affinedp.errors import AffineDPError
from affinedp.files.frames import fresh_index
from affinedp.record import MechanismRecord


def read_points(mechanism: MechanismRecord, x: Any) -> tuple[FloatArray, Any]:
    """The data as rows of a float array, and how to hand results back in the same form."""
    names = mechanism.manifold.names
    outputs = mechanism.output_names
    if hasattr(x, "columns") and hasattr(x, "index"):  # a pandas DataFrame
        values = _by_name(x, list(x.columns), names)
        data = [name for name in x.index.names if name in names]
        if data:
            raise AffineDPError(
                f"the labels of the rows are called {data[0]!r}, as data is, and labels are "
                "published as they are: use reset_index(drop=True), or other labels"
            )
        return values, lambda y: _frame(y, x.index, outputs)
    if hasattr(x, "index") and hasattr(x, "to_frame"):  # a pandas Series
        values = _by_name(x.to_frame().T, list(x.index), names)
        return values, lambda y: _series(y[0], outputs, x.name)
    array = exact_doubles(x, "x")
    if array.ndim not in (1, 2) or array.shape[-1] != len(names):
        raise AffineDPError(
            f"x has shape {array.shape}, but must have {len(names)} entries (or rows of them)"
        )
    if array.ndim == 1:
        return array[None], lambda y: y[0]
    return array, lambda y: y


def _by_name(frame: Any, given: list[Any], names: tuple[str, ...]) -> FloatArray:
    """Columns in the manifold's order, matched by name."""
    if len(set(given)) < len(given):
        raise AffineDPError("a column name occurs twice in the data")
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    if missing or unknown:
        raise AffineDPError(_other_columns(missing, unknown))
    columns = frame[list(names)]
    for name in names:
        kind = columns[name].dtype.kind if hasattr(columns[name].dtype, "kind") else "O"
        if kind not in "iufO" or bool(columns[name].isna().any()):
            what = "missing values" if kind in "iufO" else f"values of type {columns[name].dtype}"
            raise AffineDPError(f"column {name!r} has {what}")
    return np.column_stack(
        [exact_doubles(columns[name], f"column {name!r}, row") for name in names]
    )


def _other_columns(missing: list[str], unknown: list[str]) -> str:
    """Say which columns are not there, and which are too many."""
    found = []
    if missing:
        found.append(f"there is no column {_some(missing)}")
    if unknown:
        found.append(f"the mechanism does not know the column {_some(unknown)}")
    text = f"the data does not have the mechanism's entries: {', and '.join(found)}"
    if unknown and not missing:
        text += "; leave out what is not released"
    return text


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more


def _frame(values: FloatArray, index: Any, outputs: tuple[str, ...]) -> Any:
    import pandas

    return pandas.DataFrame(values, index=fresh_index(index), columns=list(outputs))


def _series(values: FloatArray, outputs: tuple[str, ...], name: Any) -> Any:
    """One row; its name is the label of that row in the table that it was taken from."""
    import pandas

    return pandas.Series(values, index=list(outputs), name=name)
