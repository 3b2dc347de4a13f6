"""The covariance of least weighted trace that covers a set of directions, with a certificate.

This is the numerical core of the optimal Gaussian design (the optimum that Algorithm 1 of "the
paper", Ren, Wang, Yuan, Shi, "Differential Privacy on Affine Manifolds", can be brought to):

    minimise tr(W Σ)   subject to   n_kᵀ Σ⁻¹ n_k ≤ 1  for every direction n_k.

The dual maximises ``(tr (W^½ M(w) W^½)^½)²`` over weights ``w ≥ 0`` of sum 1, with
``M(w) = Σ_k w_k n_k n_kᵀ``.  The search is in :mod:`affinedp.designs.interior_point` and need
not be trusted: what is returned is checked afterwards with bounds on every rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray, one_thread
from affinedp.designs.interior_point import (
    SMALLEST_LIFT,
    DualPoint,
    first_working_set,
    search,
    squared_lengths,
)
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.exact.rounding import (
    UNIT_ROUNDOFF,
    checked_inverse,
    factor_below,
    gamma,
    row_exponents,
)

TINIEST = 1e-280  # below this, rounding errors are no longer relative ones


@dataclass(frozen=True)
class LeastTrace:
    """A covariance of nearly least weighted trace, and the proof that it is.

    Attributes
    ----------
    covariance : ndarray of shape (r, r)
        Σ, positive definite, with ``n_kᵀ Σ⁻¹ n_k ≤ 1`` for every direction, rounding included.
    root : ndarray of shape (r, r)
        A factor with ``root @ root.T`` equal to Σ; it satisfies the same inequalities.
    weights : ndarray of shape (K,)
        Dual weights, nonnegative, of sum 1.  Only directions that set the noise weigh much.
    value : float
        ``tr(W Σ)``, rounded up.
    lower_bound : float
        No feasible covariance has a smaller trace: the dual value of ``weights``, rounded down.
    gap : float
        ``value / lower_bound − 1``.
    iterations : int
        Newton systems solved.
    """

    covariance: FloatArray
    root: FloatArray
    weights: FloatArray
    value: float
    lower_bound: float
    gap: float
    iterations: int


def least_trace(
    directions: FloatArray,
    weight: FloatArray | None = None,
    *,
    tol: float = 1e-8,
    progress: Callable[[str, float], None] | None = None,
) -> LeastTrace:
    """Return the covariance of least ``tr(W Σ)`` with ``n_kᵀ Σ⁻¹ n_k ≤ 1`` for all directions.

    Parameters
    ----------
    directions : ndarray of shape (K, r)
        One direction per row, spanning R^r.  Zero, repeated and opposite rows are fine.
    weight : ndarray of shape (r, r), optional
        W, symmetric positive definite; the identity if not given.
    tol : float
        The relative gap to certify, rounding included.
    progress : callable, optional
        Called as ``progress("interior point", gap)`` after every Newton step and as
        ``progress("all directions", gap)`` whenever a working set has been solved.

    Returns
    -------
    LeastTrace

    Raises
    ------
    AffineDPError
        If the input is malformed, the directions do not span R^r, W is not positive definite, or
        the gap cannot be certified in double precision.

    Notes
    -----
    The optimum does not depend on the coordinates (``n → T n``, ``W → T^-T W T^-1``), rounding
    does: choose coordinates in which the directions are well spread.  Different units of single
    coordinates do no harm.

    Examples
    --------
    Two unit directions at 60 degrees; the noise is stretched along their bisector.

    >>> import numpy as np
    >>> from affinedp.designs.least_trace import least_trace
    >>> best = least_trace(np.array([[1.0, 0.0], [0.5, 0.75**0.5]]))
    >>> round(best.value, 6), best.gap <= 1e-8
    (1.866025, True)
    """
    if not 1e-14 <= tol < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-14 and less than 1, not {tol}")
    report = progress or (lambda stage, gap: None)
    with one_thread():
        return _solve(_balance(*_checked(directions, weight)), tol, report)


def _solve(problem: _Balanced, tol: float, report: Callable[[str, float], None]) -> LeastTrace:
    """Search and certify, with more and more care for rounding errors."""
    chosen, start = first_working_set(problem.points, tol / 3.0)
    iterations, reached = 0, math.inf
    # Fast; accurate; and with a lift that spends part of the tolerance against rounding errors.
    for lift in (0.0, SMALLEST_LIFT, 0.25 * tol / problem.points.shape[1]):
        dual, spent = search(
            problem.points, chosen, start, target=tol / 3.0, lift=lift, report=report
        )
        iterations += spent
        root = _feasible_root(problem, dual)
        if root is not None:
            certified = _certify(problem, dual.weights, root, iterations)
            if certified.gap <= tol:
                return certified
            reached = min(reached, certified.gap)
        chosen = np.flatnonzero(dual.weights)
        start = np.ones(len(chosen))
    raise AffineDPError(
        f"the relative gap could be certified down to {reached:.1e} only, not to tol={tol:.1e}:"
        " the directions are too ill-conditioned in these coordinates (choose some in which they"
        " are well spread), or too many of them matter at once for the working set, or this is too"
        " much for double precision (pass a larger tol)"
    )


def _checked(directions: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return both as finite float arrays of matching shapes, or refuse."""
    directions = real_array(directions, "directions", 2)
    if directions.size == 0:
        raise AffineDPError(f"directions are empty (shape {directions.shape}): nothing to protect")
    size = directions.shape[1]
    if weight is None:
        return directions, np.eye(size)
    weight = real_array(weight, "weight", 2)
    if weight.shape != (size, size):
        raise AffineDPError(
            f"weight has shape {weight.shape}; directions in R^{size} need ({size}, {size})"
        )
    scale = np.sqrt(np.abs(np.diag(weight)))
    if np.any(np.abs(weight - weight.T) > 1e-12 * np.outer(scale, scale)):
        raise AffineDPError("weight is not symmetric: pass (W + W.T) / 2")
    return directions, 0.5 * (weight + weight.T)


@dataclass(frozen=True)
class _Balanced:
    """The problem after exact scalings by powers of two and a permutation of the coordinates.

    ``factor`` is a triangular L with ``L Lᵀ`` just below the weight; ``points``, rounded, are the
    directions in the coordinates in which ``L Lᵀ`` is the identity: for the search only.
    """

    directions: FloatArray
    weight: FloatArray
    factor: FloatArray
    points: FloatArray
    order: IntArray
    exponents: IntArray
    trace_exponent: int


def _balance(directions: FloatArray, weight: FloatArray) -> _Balanced:
    """Bring every coordinate and the weight to size 1, without rounding.

    With the heaviest coordinate first the triangular factor of a badly scaled W is graded, and
    the small columns of ``points`` keep their relative accuracy.
    """
    exponents = row_exponents(directions.T)
    trace_exponent = int(np.max(np.frexp(np.diag(weight))[1] + 2 * exponents))
    directions = np.ldexp(directions, -exponents)
    weight = np.ldexp(weight, np.add.outer(exponents, exponents) - trace_exponent)
    _refuse_if_not_spanning(directions)
    order = np.argsort(-np.diag(weight), kind="stable")
    directions, weight = directions[:, order], weight[np.ix_(order, order)]
    factor = factor_below(weight)
    if factor is None:
        raise AffineDPError(
            "weight is not positive definite, to working precision, so the least trace may not be"
            " attained: add a small multiple of the identity to it"
        )
    points = directions @ factor
    return _Balanced(directions, weight, factor, points, order, exponents, trace_exponent)


def _refuse_if_not_spanning(directions: FloatArray) -> None:
    """Refuse directions that lie in a proper subspace, to working precision."""
    size = directions.shape[1]
    singular = np.linalg.svd(np.linalg.qr(directions, mode="r"), compute_uv=False)
    rank = int(np.count_nonzero(singular > size * np.finfo(float).eps * singular[0]))
    if rank < size:
        raise AffineDPError(
            f"the {len(directions)} directions span only {rank} of {size} dimensions, so noise may"
            " vanish in the others and no least covariance exists: use coordinates of their span"
        )


def _worst_length(directions: FloatArray, root: FloatArray) -> float:
    """Bound ``max_k n_kᵀ Σ⁻¹ n_k`` from above, for Σ = ``root @ root.T`` both exact and rounded.

    With X close to the inverse of the root, Σ ⪰ ((1 − residual)² − difference) X⁻¹ X⁻ᵀ.
    """
    inverse = checked_inverse(root, root @ root.T)
    shrink = (1.0 - inverse.residual) ** 2 - inverse.difference
    if not (inverse.residual < 1.0 and shrink > 0.0):
        return math.inf
    longest = math.sqrt(squared_lengths(directions, inverse.matrix.T).max())
    error = math.sqrt(squared_lengths(np.abs(directions), np.abs(inverse.matrix.T)).max())
    rounding = gamma(2 * len(root) + 20)
    return (longest + rounding * error) ** 2 * (1.0 + 2.0 * rounding) / shrink


def _feasible_root(problem: _Balanced, dual: DualPoint) -> FloatArray | None:
    """Return a triangular root of the covariance of ``dual``, scaled until it is surely feasible.

    None if rounding errors are too large to be sure of anything.
    """
    from scipy.linalg import solve_triangular

    scales = np.sqrt(dual.root_values * dual.lengths.max())
    some_root = solve_triangular(problem.factor, dual.root_vectors * scales, trans="T", lower=True)
    root = np.ascontiguousarray(np.linalg.qr(some_root.T)[1].T)
    for _ in range(5):
        worst = _worst_length(problem.directions, root)
        if worst <= 1.0:
            return root
        if worst == math.inf:
            break
        root = root * (math.sqrt(worst) * (1.0 + 4.0 * UNIT_ROUNDOFF))
    return None


def _lower_bound(problem: _Balanced, weights: FloatArray) -> float:
    """Return the dual value ``‖√w N L‖_*² / Σ w``, less what rounding may have added.

    The nuclear norm moves by at most √r times the Frobenius norm of a perturbation: that of forming
    the matrix, and the backward error of its singular values, for which ten times the sum of the
    dimensions is a generous factor.
    """
    used = weights > 0.0
    directions = problem.directions[used] * np.sqrt(weights[used])[:, None]
    count, size = directions.shape
    singular = np.linalg.svd(directions @ problem.factor, compute_uv=False)
    formed = gamma(size + 10) * np.linalg.norm(np.abs(directions) @ np.abs(problem.factor))
    found = 10 * (count + size) * UNIT_ROUNDOFF * np.linalg.norm(singular)
    nuclear = max(0.0, float(singular.sum() - math.sqrt(size) * (formed + found)))
    return nuclear**2 / math.fsum(weights) * (1.0 - 10.0 * UNIT_ROUNDOFF)


def _certify(
    problem: _Balanced, weights: FloatArray, root: FloatArray, iterations: int
) -> LeastTrace:
    """Bound the optimum from both sides and return to the coordinates of the input."""
    weights = weights / weights.sum()
    covariance = root @ root.T
    terms = (problem.weight * covariance).ravel()
    value = math.fsum(terms) + 4.0 * UNIT_ROUNDOFF * math.fsum(np.abs(terms))
    lower_bound = _lower_bound(problem, weights)
    gap = value / lower_bound - 1.0 if lower_bound > 0.0 else math.inf
    back = np.argsort(problem.order)
    exponents = problem.exponents
    with np.errstate(over="ignore", under="ignore"):
        covariance = np.ldexp(covariance[np.ix_(back, back)], np.add.outer(exponents, exponents))
        root = np.ldexp(root[back], exponents[:, None])
        value = float(np.ldexp(value, problem.trace_exponent))
        lower_bound = float(np.ldexp(lower_bound, problem.trace_exponent))
    variances = np.append(np.diag(covariance), [value, lower_bound])
    if not (np.all(np.isfinite(variances)) and np.all(variances > TINIEST)):
        raise AffineDPError(
            "the covariance leaves the range of double precision: directions and weight are too"
            " large or too small; change their units"
        )
    return LeastTrace(covariance, root, weights, value, lower_bound, max(gap, 0.0), iterations)
