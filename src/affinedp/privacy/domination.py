"""Weights that dominate a whitened query: a bound over circuits that needs no list of them.

For v in the kernel, ``‖W v‖² ≤ c Σ_i y_i v_i²`` with ``c`` from :func:`domination_factor`, and no
circuit with at most ``most`` entries of size at most 1 has more than :func:`top_sum` on the right.
Every bound includes the rounding of its own computation.
"""

from __future__ import annotations

import math
import operator
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.exact.rounding import UNIT_ROUNDOFF, gamma, row_exponents

NEGLIGIBLE = 1e-200  # relative; far above what underflow can do, far below what rounding does
NORM_ROUNDING = 1.01  # covers the rounding of a norm of small numbers


def top_sum(weights: ArrayLike, most: SupportsIndex) -> float:
    """Return the sum of the ``most`` largest weights, rounded up.

    No circuit with that many entries, all of size at most 1, has a larger ``Σ_i y_i v_i²``: what
    replaces the maximum over circuits in Theorem 1 of the paper when they cannot be listed.

    Parameters
    ----------
    weights : array_like of shape (n,)
        Nonnegative weights.
    most : int
        At least 1; more than n counts all weights.

    Returns
    -------
    float

    Raises
    ------
    AffineDPError
        If a weight is negative or not finite, or ``most`` is not a positive integer.

    Examples
    --------
    >>> from affinedp.privacy.domination import top_sum
    >>> top_sum([0.5, 0.125, 0.25], 2) >= 0.75
    True
    """
    values, count = nonnegative_weights(weights), positive_count(most)
    try:
        return math.nextafter(math.fsum(np.sort(values)[::-1][:count]), math.inf)
    except OverflowError:
        raise AffineDPError("the weights are too large to be added: change their units") from None


def domination_factor(kernel: ArrayLike, weights: ArrayLike, whitened: ArrayLike) -> float:
    """Bound the least c with ``‖W v‖² ≤ c Σ_i y_i v_i²`` for all v in the range of the kernel.

    With W the whitened query ``Λ⁺F`` of a Gaussian mechanism (Theorem 1 of the paper), ``√(c ·
    top_sum(y, most))`` bounds its sensitivity to every circuit whose entries are at most 1 in size.

    Parameters
    ----------
    kernel : array_like of shape (n, k)
        K.  The bound is about the exact range of these numbers.
    weights : array_like of shape (n,)
        y, nonnegative, with ``Kᵀ diag(y) K`` nonsingular.
    whitened : array_like of shape (r, n)
        W, on the entries of the component.

    Returns
    -------
    float
        An upper bound, rounding included, close to the largest generalised eigenvalue of
        ``Kᵀ Wᵀ W K`` and ``Kᵀ diag(y) K``.

    Raises
    ------
    AffineDPError
        If the input is malformed, or ``Kᵀ diag(y) K`` is singular to working precision.

    Notes
    -----
    In theory the factor is at most 1 for the noise ``Λ Λᵀ = N (Kᵀ diag(y) K)⁻¹ Nᵀ``; computing it
    from the Λ that is really used makes the promise independent of how Λ was found.

    Examples
    --------
    >>> import numpy as np
    >>> from affinedp.privacy.domination import domination_factor
    >>> kernel = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> round(domination_factor(kernel, [0.5, 0.5, 0.5], np.eye(3)), 6)
    2.0
    """
    from threadpoolctl import threadpool_limits

    points, _ = balanced_kernel(real_array(kernel, "kernel", 2))
    values, query = nonnegative_weights(weights), real_array(whitened, "whitened", 2)
    if values.shape != (len(points),) or query.shape[1] != len(points):
        raise AffineDPError(
            f"a kernel with {len(points)} rows needs as many weights (not {values.size}) and"
            f" columns of the whitened query (not {query.shape[1]})"
        )
    if not query.any():
        return 0.0
    # Exact scalings; a smaller weight only makes the factor larger.
    weight_exponent = int(row_exponents(values[None])[0])
    query_exponent = int(row_exponents(query.reshape(1, -1))[0])
    values = np.ldexp(values, -weight_exponent)
    values[values < NEGLIGIBLE] = 0.0
    query = np.ldexp(query, -query_exponent)
    with threadpool_limits(limits=1, user_api="blas"):
        inverse, shrink = inverse_root(points, values)
        product = query @ points @ inverse.T
        error = norm_bound(np.abs(query) @ np.abs(points) @ np.abs(inverse.T))
        error = gamma(sum(points.shape) + 20) * error + NEGLIGIBLE
        factor = (math.sqrt(_squared_norm_bound(product)) + error) ** 2 / shrink
    factor *= 1.0 + 10.0 * UNIT_ROUNDOFF
    return times_power_of_two(factor, 2 * query_exponent - weight_exponent)


def positive_count(most: SupportsIndex) -> int:
    """Return ``most`` as an integer, or refuse it."""
    try:
        count = operator.index(most)
    except TypeError:
        raise AffineDPError(f"most must be an integer, not {most!r}") from None
    if count < 1:
        raise AffineDPError(f"most counts the entries of a circuit: at least 1, not {count}")
    return count


def nonnegative_weights(weights: ArrayLike) -> FloatArray:
    """Return the weights as a vector, or refuse them."""
    values = real_array(weights, "weights", 1)
    if np.any(values < 0.0):
        place = int(np.argmax(values < 0.0))
        raise AffineDPError(f"weights[{place}] is {values[place]}: weights are nonnegative")
    return values


def balanced_kernel(points: FloatArray) -> tuple[FloatArray, IntArray]:
    """Bring every column to size 1 by powers of two."""
    if points.shape[1] == 0 or len(points) < points.shape[1]:
        raise AffineDPError(
            f"kernel has shape {points.shape}: it needs at least one column, and not more columns"
            " than rows"
        )
    exponents = row_exponents(points.T)
    return np.ldexp(points, -exponents), exponents


def times_power_of_two(value: float, exponent: int) -> float:
    """Multiply by a power of two, or refuse to where that would round."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = float(np.ldexp(value, exponent))
    if not np.finfo(float).tiny <= scaled < math.inf:
        raise AffineDPError(
            "the result leaves the range of double precision: the numbers are too large or too"
            " small; change their units"
        )
    return scaled


def norm_bound(matrix: FloatArray) -> float:
    """Bound the Frobenius norm, and with it the spectral norm, from above."""
    return NORM_ROUNDING * float(np.linalg.norm(matrix))


def inverse_root(points: FloatArray, weights: FloatArray) -> tuple[FloatArray, float]:
    """Return X and a number s > 0 such that ``M(y)⁻¹ ⪯ XᵀX / s``, and nearly equal.

    With ``A = diag(√y) K`` and ``V = A Xᵀ``, ``X M Xᵀ = VᵀV ⪰ s I`` for ``s = σ_min(V)²``.  The
    rounding of V and the distance of ``VᵀV`` from the identity are bounded, so whether X is a good
    inverse is checked, not assumed.
    """
    from scipy.linalg import LinAlgError, solve_triangular

    scaled = points * np.sqrt(weights)[:, None]
    smallest = 0.0
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            triangle = np.linalg.qr(scaled, mode="r")
            inverse = solve_triangular(triangle, np.eye(len(triangle)), trans="T")
            if np.abs(inverse).max() < NEGLIGIBLE**-0.5:  # so that underflow stays negligible
                smallest = _smallest_singular_value(scaled, inverse)
    except LinAlgError:
        pass
    if not smallest > 0.5:
        raise AffineDPError(
            "kernelᵀ diag(weights) kernel is singular to working precision, so the weights do not"
            " bound every direction of the kernel: make more of them positive, or pass a better"
            " conditioned kernel"
        )
    return inverse, smallest**2 * (1.0 - 4.0 * UNIT_ROUNDOFF)


def _smallest_singular_value(scaled: FloatArray, inverse: FloatArray) -> float:
    """Bound the smallest singular value of ``scaled @ inverse.T`` from below."""
    count, size = scaled.shape
    product = scaled @ inverse.T
    departure = norm_bound(product.T @ product - np.eye(size))
    departure += gamma(count + 20) * (norm_bound(product) ** 2 + size)
    error = gamma(size + 20) * norm_bound(np.abs(scaled) @ np.abs(inverse.T)) + NEGLIGIBLE
    if not departure < 1.0:
        return 0.0
    return math.sqrt(1.0 - departure) * (1.0 - 4.0 * UNIT_ROUNDOFF) - error


def _squared_norm_bound(matrix: FloatArray) -> float:
    """Bound the largest eigenvalue of ``matrix.T @ matrix`` from above, and closely.

    From ``G = V diag(λ) Vᵀ + E`` follows ``‖G‖ ≤ max λ · (1 + ‖VᵀV − I‖) + ‖E‖``, for any V and λ.
    """
    if len(matrix) > matrix.shape[1]:
        matrix = matrix.T
    size = len(matrix)
    gram = matrix @ matrix.T
    values, vectors = np.linalg.eigh(gram)
    largest = float(np.max(np.abs(values)))
    rounding = gamma(size + 20) * (norm_bound(vectors) ** 2 + size)
    spread = norm_bound(vectors.T @ vectors - np.eye(size)) + rounding
    residual = norm_bound(gram - (vectors * values) @ vectors.T) + 2.0 * rounding * largest
    formed = gamma(matrix.shape[1] + 20) * norm_bound(matrix) ** 2
    return (largest * (1.0 + spread) + residual + formed) * (1.0 + 10.0 * UNIT_ROUNDOFF)
