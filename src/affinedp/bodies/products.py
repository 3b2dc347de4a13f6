"""Products of matrices whose entries keep their digits where large terms cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse

# An entry so many times smaller than its terms is added up again, exactly.
CANCELLED = 2.0**-20
WHOLE = 2.0**53
# Dekker's: the high half of a double.
SPLIT = 2.0**27 + 1


def careful_product(left: Matrix, right: Matrix) -> Matrix:
    """Return ``left @ right``, with the entries in which terms nearly cancel rounded only once.

    Parameters
    ----------
    left, right : matrices
        Dense or sparse.

    Examples
    --------
    >>> careful_product(np.array([[1.0, 1e17, -1e17]]), np.array([[1.0], [3.0], [3.0]]))
    array([[1.]])
    """
    found = left @ right
    size = abs(left) @ abs(right)
    if _is_whole(left) and _is_whole(right) and float(size.max(initial=0.0)) < WHOLE:
        return found
    if is_sparse(size):
        return _sparse_again(left, right, found, size)
    found = np.array(found.toarray() if is_sparse(found) else found, dtype=float)
    for i, j in np.argwhere(np.abs(found) < CANCELLED * size).tolist():
        found[i, j] = _exact_entry(left, right, i, j)
    return found


def _sparse_again(left: Any, right: Any, found: Any, size: Any) -> Any:
    import scipy.sparse as sparse

    places = sparse.coo_array(size)
    values = np.asarray(sparse.csr_array(found)[places.row, places.col], dtype=float).ravel()
    left, right = sparse.csr_array(left), sparse.csc_array(right)
    for place in np.flatnonzero(np.abs(values) < CANCELLED * places.data).tolist():
        i, j = int(places.row[place]), int(places.col[place])
        values[place] = _exact_entry(left, right, i, j)
    again = sparse.csr_array((values, (places.row, places.col)), shape=size.shape)
    again.eliminate_zeros()
    return again


def _is_whole(matrix: Matrix) -> bool:
    numbers = matrix.data if is_sparse(matrix) else matrix
    return bool(np.all(numbers == np.rint(numbers)))


def _exact_entry(left: Any, right: Any, i: int, j: int) -> float:
    """One entry: products in two halves, added up without rounding."""
    row, column = left[[i], :], right[:, [j]]
    row = (row.toarray() if is_sparse(row) else np.asarray(row)).ravel()
    column = (column.toarray() if is_sparse(column) else np.asarray(column)).ravel()
    used = (row != 0) & (column != 0)
    high, low = _two_products(row[used], column[used])
    return math.fsum([*high.tolist(), *low.tolist()])


def _two_products(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The rounded products and what rounding took, exactly (Dekker 1971)."""
    whole = a * b
    first, second = _halves(a), _halves(b)
    rest = first[0] * second[0] - whole
    rest = rest + first[0] * second[1] + first[1] * second[0]
    return whole, np.asarray(rest + first[1] * second[1])


def _halves(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    large = SPLIT * a
    high = large - (large - a)
    return high, a - high
