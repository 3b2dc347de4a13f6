"""Bounds on what rounding did to products, inverses and factors, and products that keep digits.

Every bound is an upper bound for round-to-nearest double precision, whatever the order in
which sums are taken, as long as nothing overflows or underflows (the caller scales first).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse

UNIT_ROUNDOFF = 2.0**-53
# An entry so many times smaller than its terms is added up again, exactly.
CANCELLED = 2.0**-20
WHOLE = 2.0**53
# Entries that are added up again at a time.
CHUNK = 100_000
# Dekker's: the high half of a double.
SPLIT = 2.0**27 + 1


def gamma(roundings: int) -> float:
    """Bound the relative error of a sum of products with that many roundings."""
    return roundings * UNIT_ROUNDOFF / (1.0 - roundings * UNIT_ROUNDOFF)


def row_exponents(matrix: FloatArray) -> IntArray:
    """Return the exponents of the powers of two just above the largest entry of every row."""
    exponents = np.frexp(np.max(np.abs(matrix), axis=1))[1]
    return np.asarray(exponents, dtype=np.intp)


def row_sums(*factors: FloatArray) -> FloatArray:
    """Bound the row sums of the product of the absolute values of ``factors`` from above."""
    sums = np.ones(factors[-1].shape[1])
    for factor in reversed(factors):
        sums = np.abs(factor) @ sums * (1.0 + gamma(2 * len(sums) + 20))
    return sums


def difference_bound(matrix: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Bound the entries of ``|matrix − left rightᵀ|`` from above, closely.

    Forming the product would cost r rounding errors an entry.  The product of the leading bits
    costs none; what is left is a million times smaller, and so are its rounding errors.
    """
    leading_left, leading_right = _leading_bits(left), _leading_bits(right)
    rest_left, rest_right = left - leading_left, right - leading_right
    main = matrix - leading_left @ leading_right.T
    small = leading_left @ rest_right.T + rest_left @ right.T
    products = np.outer(_row_norms(leading_left), _row_norms(rest_right))
    products += np.outer(_row_norms(rest_left), _row_norms(right))
    error = gamma(2 * left.shape[1] + 20) * products
    error += 4.0 * UNIT_ROUNDOFF * (np.abs(main) + np.abs(small))
    return np.abs(main - small) + error


def _leading_bits(matrix: FloatArray) -> FloatArray:
    """Round every row to so few bits that products of such rows are sums without rounding."""
    bits = (53 - math.ceil(math.log2(matrix.shape[1]))) // 2
    shift = bits - row_exponents(matrix)[:, None]
    leading: FloatArray = np.ldexp(np.rint(np.ldexp(matrix, shift)), -shift)
    return leading


def _row_norms(matrix: FloatArray) -> FloatArray:
    norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    return norms


@dataclass(frozen=True)
class CheckedInverse:
    """An approximate inverse X of a factor C of a matrix S.

    ``‖X C − I‖ ≤ residual`` and ``‖X (S − C Cᵀ) Xᵀ‖ ≤ difference`` in the spectral norm.
    """

    matrix: FloatArray
    residual: float
    difference: float


def checked_inverse(factor: FloatArray, product: FloatArray) -> CheckedInverse:
    """Invert a lower triangular factor of ``product`` and bound both errors.

    Rows are first brought to size 1 by powers of two, which changes neither error.
    """
    from scipy.linalg import solve_triangular

    exponents = row_exponents(factor)
    factor = np.ldexp(factor, -exponents[:, None])
    product = np.ldexp(product, -np.add.outer(exponents, exponents))
    identity = np.eye(len(factor))
    inverse = solve_triangular(factor, identity, lower=True, check_finite=False)
    residual = difference_bound(identity, inverse, factor.T)
    residual_norm = math.sqrt(row_sums(residual).max() * row_sums(residual.T).max())
    difference = row_sums(inverse, difference_bound(product, factor, factor), inverse.T).max()
    return CheckedInverse(
        matrix=np.ldexp(inverse, -exponents),
        residual=residual_norm * (1.0 + 4.0 * UNIT_ROUNDOFF),
        difference=float(difference),
    )


def factor_below(matrix: FloatArray) -> FloatArray | None:
    """Return a lower triangular L with ``L Lᵀ ⪯ matrix`` for certain, and close; else None.

    Shrinking the diagonal a little first makes room for the error of the factorisation, and for an
    error of one rounding in every entry of ``matrix``.
    """
    from scipy.linalg import LinAlgError, cholesky

    diagonal = np.diag(matrix)
    if np.any(diagonal <= 0.0):
        return None
    scale = 1.0 / np.sqrt(diagonal)
    for enlarge in (4.0, 16.0, 64.0, 256.0):
        room = enlarge * gamma(len(matrix) + 10)
        shrunk = matrix - np.diag(room * diagonal)
        try:
            factor: FloatArray = cholesky(shrunk, lower=True)
        except LinAlgError:
            return None
        error = difference_bound(shrunk, factor, factor) * np.outer(scale, scale)
        if row_sums(error).max() <= 0.7 * room:
            return factor
    return None


def careful_product(left: Matrix, right: Matrix) -> Matrix:
    """Return ``left @ right``, with the entries in which terms nearly cancel rounded only once."""
    found = left @ right
    size = abs(left) @ abs(right)
    largest = (size.data if is_sparse(size) else size).max(initial=0.0)
    if _is_whole(left) and _is_whole(right) and float(largest) < WHOLE:
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
        high, low = (part.tolist() for part in two_products(a.data, b.data))
        ends = zip(a.indptr[:-1].tolist(), a.indptr[1:].tolist())
        found[chunk] = [math.fsum(high[s:e] + low[s:e]) for s, e in ends]
    return found


def two_products(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rounded products and what rounding took, exactly (Dekker 1971)."""
    whole = a * b
    first, second = _halves(a), _halves(b)
    rest = first[0] * second[0] - whole
    rest = rest + first[0] * second[1] + first[1] * second[0]
    return whole, np.asarray(rest + first[1] * second[1])


def _halves(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    large = SPLIT * a
    high = large - (large - a)
    return high, a - high
