"""Products of matrices whose entries keep their digits where large terms cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse

# An entry so many times smaller than its terms is added up again, exactly.
CANCELLED = 2.0**-20
WHOLE = 2.0**53
# Entries that are added up again at a time.
CHUNK = 100_000
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
    i, j = np.nonzero(np.abs(found) < CANCELLED * size)
    found[i, j] = _exact_entries(left, right, i, j)
    return found


def _sparse_again(left: Any, right: Any, found: Any, size: Any) -> Any:
    import scipy.sparse as sparse

    places = sparse.coo_array(size)
    values = np.asarray(sparse.csr_array(found)[places.row, places.col], dtype=float).ravel()
    again = np.flatnonzero(np.abs(values) < CANCELLED * places.data)
    values[again] = _exact_entries(left, right, places.row[again], places.col[again])
    whole = sparse.csr_array((values, (places.row, places.col)), shape=size.shape)
    whole.eliminate_zeros()
    return whole


def _is_whole(matrix: Matrix) -> bool:
    numbers = matrix.data if is_sparse(matrix) else matrix
    return bool(np.all(numbers == np.rint(numbers)))


def _exact_entries(left: Any, right: Any, i: IntArray, j: IntArray) -> FloatArray:
    """Some entries: products in two halves, added up without rounding."""
    import scipy.sparse as sparse

    found = np.zeros(len(i))
    rows, columns = sparse.csr_array(left), sparse.csr_array(right.T)
    for start in range(0, len(i), CHUNK):
        chunk = slice(start, start + CHUNK)
        a, b = rows[i[chunk]], columns[j[chunk]]
        a, b = sparse.csr_array(a.multiply(b != 0)), sparse.csr_array(b.multiply(a != 0))
        a.sort_indices()
        b.sort_indices()
        high, low = (part.tolist() for part in _two_products(a.data, b.data))
        ends = zip(a.indptr[:-1].tolist(), a.indptr[1:].tolist())
        found[chunk] = [math.fsum(high[s:e] + low[s:e]) for s, e in ends]
    return found


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
