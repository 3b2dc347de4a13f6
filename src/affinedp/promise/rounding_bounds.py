"""Bounds on what rounding may have done to matrix products, inverses and factors.

Everything here is an upper bound for round-to-nearest double precision, whatever the order in
which sums are taken, as long as nothing overflows or underflows (the caller scales first).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray

UNIT_ROUNDOFF = 2.0**-53


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
