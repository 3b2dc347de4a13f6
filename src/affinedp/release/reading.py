"""Data in, results out: arrays and pandas objects as rows of doubles, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, real_array
from affinedp.errors import AffineDPError
from affinedp.record import MechanismRecord


def read_points(mechanism: MechanismRecord, x: Any) -> tuple[FloatArray, Any]:
    """The data as rows of a float array, and how to hand results back in the same form."""
    names = mechanism.manifold.names
    outputs = mechanism.output_names
    if hasattr(x, "columns") and hasattr(x, "index"):  # a pandas DataFrame
        values = _by_name(x, list(x.columns), names)
        return values, lambda y: type(x)(y, index=x.index, columns=list(outputs))
    if hasattr(x, "index") and hasattr(x, "to_frame"):  # a pandas Series
        values = _by_name(x.to_frame().T, list(x.index), names)
        return values, lambda y: type(x)(y[0], index=list(outputs), name=x.name)
    array = _finite(x)
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
        raise AffineDPError(
            f"the data does not have the mechanism's entries: missing {missing[:5]}, "
            f"unknown {unknown[:5]}"
        )
    columns = frame[list(names)]
    for name in names:
        kind = columns[name].dtype.kind if hasattr(columns[name].dtype, "kind") else "O"
        if kind not in "iufO" or bool(columns[name].isna().any()):
            what = "missing values" if kind in "iufO" else f"values of type {columns[name].dtype}"
            raise AffineDPError(f"column {name!r} has {what}")
    return _finite(columns.to_numpy(dtype=object))


def _finite(x: ArrayLike) -> FloatArray:
    array = real_array(x, "x")
    given = np.asarray(x)
    # an integer that a double cannot hold would be changed silently
    if given.dtype.kind in "iu" and np.abs(array).max(initial=0.0) > 2.0**53:
        raise AffineDPError("x holds integers beyond 2^53, which double precision cannot hold")
    return array
