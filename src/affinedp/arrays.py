"""The array types, and checks that every entry point shares."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.errors import AffineDPError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
# A dense array or a SciPy sparse array: what the linear algebra here accepts.
Matrix: TypeAlias = Any
# The norm of the difference of neighbours: 1 for Laplace, 2 for Gaussian noise.
Norm = Literal[1, 2]


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a SciPy sparse matrix or array, without importing SciPy for others."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def real_matrix(value: object, name: str) -> Matrix:
    """Return ``value`` as a finite float64 matrix of its own, dense or CSR as it came."""
    if not is_sparse(value):
        return real_array(value, name, 2)  # type: ignore[arg-type]
    import scipy.sparse as sparse

    given: Any = value
    if given.dtype.kind not in "iuf" or given.ndim != 2:
        raise AffineDPError(f"{name} must be a matrix of real numbers, not {given.dtype}")
    matrix = sparse.csr_array(given, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    check_finite(matrix.data, f"{name}.data")
    return matrix


def dense(matrix: Matrix) -> FloatArray:
    """Return a matrix as a dense array."""
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)


def real_array(value: ArrayLike, name: str, ndim: int | None = None) -> FloatArray:
    """Return ``value`` as a finite float64 array of its own, or refuse it by ``name``."""
    if np.ma.is_masked(value):
        raise AffineDPError(f"{name} has masked values: fill them or leave them out")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise AffineDPError(f"{name} is not a rectangular array of numbers: {error}") from None
    if array.dtype.kind == "O":
        array = _numbers_from_objects(array, name)
    if array.dtype.kind not in "iuf":
        raise AffineDPError(f"{name} must hold real numbers, not {array.dtype}")
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > 2**53:
        raise AffineDPError(
            f"{name} holds integers beyond 2^53, which a double cannot hold exactly"
        )
    array = np.array(array, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        shape = {1: "a vector", 2: "a matrix"}.get(ndim, f"{ndim}-dimensional")
        raise AffineDPError(f"{name} must be {shape}, but has shape {array.shape}")
    check_finite(array, name)
    return array


def _numbers_from_objects(array: NDArray[Any], name: str) -> FloatArray:
    """Exact numbers (int, Fraction, Decimal) arrive as objects; anything else is refused."""
    import numbers
    from decimal import Decimal

    for place, item in np.ndenumerate(array):
        if isinstance(item, bool) or not isinstance(item, numbers.Real | Decimal):
            raise AffineDPError(f"{name}{list(place)} is not a real number: {item!r}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise AffineDPError(f"{name} holds a number too large for double precision") from None


def check_finite(array: FloatArray, name: str) -> None:
    """Refuse NaN and infinity, naming the first place."""
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f"{name}{list(place)}" if place else name
        raise AffineDPError(f"{where} is {array[place]}: every number must be finite")
