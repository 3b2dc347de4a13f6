"""Arrays and exact numbers inside JSON: hashed, and never larger than what stands in the file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.parts import StorageError as StorageError

# A side of an array may be this much longer than what the file holds for it.
MOST_EMPTY = 10_000
# Numbers of the noise matrix that a file may describe by two factors.
MOST_NUMBERS = 100_000_000


def packed(array: Matrix) -> dict[str, Any]:
    """Return shape, data and hash of a dense or sparse array.

    Parameters
    ----------
    array : array
        Of at most two dimensions.
    """
    if is_sparse(array):
        entries = array.tocoo()
        data = np.stack([entries.row, entries.col, entries.data])
        return {"shape": list(array.shape), "sparse": True, **_encoded(data)}
    return {"shape": list(np.shape(array)), "sparse": False, **_encoded(np.asarray(array))}


def _encoded(array: FloatArray) -> dict[str, str]:
    raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"data": base64.b64encode(raw).decode(), "sha256": hashlib.sha256(raw).hexdigest()}


def unpacked(record: Mapping[str, Any], most_empty: int = MOST_EMPTY) -> Any:
    """Return the array of a record, checked against its hash.

    Parameters
    ----------
    record : mapping
        What :func:`packed` returned.
    most_empty : int
        How much longer than its data a side may be: a few bytes must not claim much memory.

    Examples
    --------
    >>> unpacked(packed(np.array([1.0, 2.0])))
    array([1., 2.])
    """
    shape, is_one_sparse = _shape(record["shape"]), record["sparse"]
    if not isinstance(is_one_sparse, bool) or not isinstance(record["data"], str):
        raise StorageError("an array must say whether it is sparse, and have data")
    values = _decoded(record["data"], record["sha256"])
    if max(shape, default=0) > most_empty + len(values):
        raise StorageError(f"an array of shape {shape} is too large for {len(values)} numbers")
    if is_one_sparse:
        return _sparse(shape, values)
    if math.prod(shape) != len(values):
        raise StorageError(f"an array of shape {shape} cannot have {len(values)} numbers")
    return values.reshape(shape)


def _shape(record: Any) -> tuple[int, ...]:
    whole = isinstance(record, list) and all(type(size) is int for size in record)
    if not whole or len(record) > 2 or any(size < 0 for size in record):
        raise StorageError("an array has a shape that is not possible")
    return tuple(record)


def _decoded(data: str, digest: Any) -> FloatArray:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise StorageError("an array is not valid base64") from None
    if hashlib.sha256(raw).hexdigest() != digest:
        raise StorageError("an array does not match its hash: the file is damaged")
    if len(raw) % 8:
        raise StorageError("an array ends in the middle of a number")
    values = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise StorageError("an array holds numbers that are not finite")
    return values


def _sparse(shape: tuple[int, ...], values: FloatArray) -> Any:
    import scipy.sparse as sparse

    if len(shape) != 2 or len(values) % 3:
        raise StorageError(f"a sparse array of shape {shape} is not possible")
    row, column, data = values.reshape(3, -1)
    for places, size in ((row, shape[0]), (column, shape[1])):
        if np.any((places != np.floor(places)) | (places < 0) | (places >= size)):
            raise StorageError(f"a sparse array of shape {shape} has an entry outside of it")
    found = sparse.csr_array((data, (row.astype(np.int64), column.astype(np.int64))), shape=shape)
    if not np.all(np.isfinite(found.data)):  # entries of one place are added
        raise StorageError("an array holds numbers that are not finite")
    return found


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return the product of two matrices of a file, unless it is far larger than they are.

    Parameters
    ----------
    left, right : matrices
        Two factors of small rank may describe a matrix that fills the memory.
    """
    if is_sparse(left) and is_sparse(right):
        each = np.bincount(left.tocoo().col, minlength=left.shape[1]) * np.diff(right.indptr)
        size = float(each.sum())
    else:
        size = float(left.shape[0]) * right.shape[1]
    if size > MOST_NUMBERS:
        raise StorageError(f"noise of {left.shape[0]}×{right.shape[1]} numbers is too large")
    return left @ right
