"""Gaussian noise for every circuit of a component, without a list of them.

The circuits over which the optimum of Algorithm 1 of "the paper" (Ren, Wang, Yuan, Shi,
"Differential Privacy on Affine Manifolds") ranges can be too many to list.  Let the columns of K
span the kernel, and let every circuit v have entries of size at most 1, at most ``most`` of them
nonzero.  For weights y ≥ 0, ``Σ = N (Kᵀ diag(y) K)⁻¹ Nᵀ`` gives every v = K ξ in the kernel

    (N ξ)ᵀ Σ⁻¹ (N ξ)  ≤  Σ_i y_i v_i²  ≤  the sum of the ``most`` largest y_i,  if v is a circuit,

the first since ``Nᵀ (N M⁻¹ Nᵀ)⁻¹ N ⪯ M`` for any positive definite M.  The weights of least

    f(y) = tr(C M(y)⁻¹),    M(y) = Kᵀ diag(y) K,    C = Nᵀ W N,

of which the ``most`` largest sum to at most 1, are found here, and certified: the search need not
be trusted.  Writing ``y = u + λ`` with u, λ ≥ 0 turns the budget into ``Σ u + most · λ ≤ 1``: an
A-optimal design with n atoms ``k_i k_iᵀ`` of price 1 and one atom ``KᵀK`` of price ``most``.

*The lower bound.*  Take any matrix Z, any root ``L Lᵀ = C`` and any feasible y.  By Cauchy–Schwarz

    tr(Lᵀ Z)² = ⟨M^-½ L, M^½ Z⟩²  ≤  tr(C M(y)⁻¹) · tr(Zᵀ M(y) Z)  =  f(y) · Σ_i y_i g_i

with ``g_i = ‖Zᵀ k_i‖²``.  Let λ be the ``most``-th largest y_i (0 if there are fewer) and u_i the
part of y_i above λ: then ``y ≤ u + λ`` and ``Σ u + most · λ ≤ 1``, so ``Σ y_i g_i ≤ Σ u_i g_i + λ Σ
g_i ≤ max(max_i g_i, Σ_i g_i / most)``, and f(y) is at least ``tr(Lᵀ Z)²`` divided by that.  With
``Z = M(y)⁻¹ L`` the numerator is ``f(y)²``, g is minus the gradient of f, ``Σ y_i g_i = f(y)``, and
at the optimum the bound is met.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.exact.rounding import UNIT_ROUNDOFF, gamma
from affinedp.privacy.without_list import (
    NORM_ROUNDING,
    balanced_kernel,
    inverse_root,
    norm_bound,
    positive_count,
    times_power_of_two,
    top_sum,
)

MOST_STEPS = 100


@dataclass(frozen=True)
class CertifiedWeights:
    """Weights of nearly least error for all circuits of a component, with the proof of it."""

    # y, nonnegative; the ``most`` largest sum to at most 1, rounding included, and ``Kᵀ diag(y) K``
    # is certainly nonsingular; shape (n,)
    weights: FloatArray
    value: float  # ``f(y) = tr(C (Kᵀ diag(y) K)⁻¹)``, rounded up
    # no feasible weights have a smaller value, rounding included.  Noise that is not of this form
    # may still have a smaller trace.
    lower_bound: float
    gap: float  # ``value / lower_bound − 1``
    iterations: int  # newton systems solved


def certified_weights(
    kernel: ArrayLike,
    cost: ArrayLike,
    most: SupportsIndex,
    *,
    tol: float = 1e-3,
    progress: Callable[[str, float], None] | None = None,
) -> CertifiedWeights:
    """Return the weights y of least ``tr(C (Kᵀ diag(y) K)⁻¹)`` with a bounded top sum.

    This serves the optimum of Algorithm 1 of the paper where its list of neighbours is out of
    reach; the module's docstring says why the promise then holds for all circuits.

    Notes
    -----
    If C is singular the infimum may not be attained; the weights returned come close to it and keep
    ``Kᵀ diag(y) K`` nonsingular.

    Examples
    --------
    Three shares of a fixed total; each circuit moves something from one share to another.  All
    weights are one half, and the trace 4 is that of the best noise for the listed circuits.

    >>> import numpy as np
    >>> from affinedp.designs.circuit_weights import certified_weights
    >>> kernel = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> best = certified_weights(kernel, kernel.T @ kernel, most=2, tol=1e-6)
    >>> [round(float(y), 3) for y in best.weights], round(best.value, 4), best.gap <= 1e-6
    ([0.5, 0.5, 0.5], 4.0, True)
    """
    from threadpoolctl import threadpool_limits

    if not 1e-8 <= tol < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-8 and less than 1, not {tol}")
    report = progress or (lambda stage, gap: None)
    points, count = real_array(kernel, "kernel", 2), positive_count(most)
    # A second thread gains little on idle cores, and costs ten times the time on busy ones.
    with threadpool_limits(limits=1, user_api="blas"):
        points, exponents = balanced_kernel(points)
        _refuse_if_no_basis(points)
        root, cost_exponent = _root(real_array(cost, "cost", 2), exponents)
        near, dual, iterations = _search(_orthonormal(points, root, count), tol, report)
        near = _within_budget(near, count)
        value = _upper_value(points, root, near)
        lower_bound = _lower_bound(points, root, count, dual)
    gap = value / lower_bound - 1.0 if lower_bound > 0.0 else math.inf
    if not gap <= tol:
        raise AffineDPError(
            f"the relative gap could be certified down to {gap:.1e} only, not to tol={tol:.1e}:"
            " pass a larger tol, or a better conditioned kernel (such as an orthonormal one)"
        )
    value, lower_bound = (times_power_of_two(v, cost_exponent) for v in (value, lower_bound))
    return CertifiedWeights(near, value, lower_bound, max(gap, 0.0), iterations)


# --- input ----------------------------------------------------------------------------------------


def _refuse_if_no_basis(points: FloatArray) -> None:
    """Refuse zero rows and dependent columns."""
    zero = np.flatnonzero(~points.any(axis=1))
    if zero.size:
        raise AffineDPError(
            f"row {zero[0]} of kernel is zero: that entry follows from the equations alone and no"
            " noise can protect it; drop it"
        )
    singular = np.linalg.svd(np.linalg.qr(points, mode="r"), compute_uv=False)
    rank = int(np.count_nonzero(singular > len(points) * np.finfo(float).eps * singular[0]))
    if rank < len(singular):
        raise AffineDPError(
            f"kernel has {len(singular)} columns but rank {rank}: pass independent columns"
        )


def _root(cost: FloatArray, exponents: IntArray) -> tuple[FloatArray, int]:
    """Return L with ``L Lᵀ = C / 2^e`` in the coordinates of the balanced kernel, and e."""
    size = len(exponents)
    if cost.shape != (size, size):
        raise AffineDPError(
            f"cost has shape {cost.shape}; a kernel with {size} columns needs ({size}, {size})"
        )
    scale = np.sqrt(np.abs(np.diag(cost)))
    if np.any(np.abs(cost - cost.T) > 1e-12 * np.outer(scale, scale)):
        raise AffineDPError("cost is not symmetric and positive semidefinite: pass (C + C.T) / 2")
    if not cost.any():
        raise AffineDPError("cost is zero: the query does not see this component; leave it out")
    shift = np.add.outer(exponents, exponents)
    cost_exponent = int(np.max((np.frexp(cost)[1] - shift)[cost != 0.0]))
    cost = np.ldexp(0.5 * (cost + cost.T), -shift - cost_exponent)
    values, vectors = np.linalg.eigh(cost)
    if values[0] < -1e-10 * values[-1]:
        raise AffineDPError(
            f"cost is not positive semidefinite: it has the eigenvalue {values[0]:.1e} next to"
            f" {values[-1]:.1e} (in units in which the largest entry is about 1)"
        )
    seen = values > size * np.finfo(float).eps * values[-1]
    root: FloatArray = vectors[:, seen] * np.sqrt(values[seen])
    return root, cost_exponent


# --- the search: a primal-dual interior point -----------------------------------------------------


@dataclass(frozen=True)
class _Design:
    """The problem in coordinates in which the kernel is orthonormal, with the prices of the atoms.

    Since f is homogeneous of degree −1, its minimum under a budget is, up to scaling, that of
    ``f + prices · shares`` over shares ≥ 0: the only constraints left are signs.
    """

    points: FloatArray
    root: FloatArray
    prices: FloatArray
    most: int


@dataclass(frozen=True)
class _Point:
    """f at ``y = u + λ`` for the shares (u, λ), and minus its gradient, the gains of the atoms.

    ``left`` and ``right`` have ``R⁻¹ k_i`` and ``(M⁻¹ L)ᵀ k_i`` as columns, with ``R Rᵀ = M``.
    """

    shares: FloatArray
    weights: FloatArray
    value: float
    gains: FloatArray
    left: FloatArray
    right: FloatArray


def _orthonormal(points: FloatArray, root: FloatArray, most: int) -> _Design:
    from scipy.linalg import solve_triangular

    basis, triangle = np.linalg.qr(points)
    root = solve_triangular(triangle, root, trans="T")
    return _Design(basis, root, np.append(np.ones(len(points)), float(most)), most)


def _evaluate(design: _Design, shares: FloatArray) -> _Point:
    from scipy.linalg import cholesky, solve_triangular

    weights = shares[:-1] + shares[-1]
    scaled = design.points * np.sqrt(weights)[:, None]
    factor = cholesky(scaled.T @ scaled, lower=True)
    left = solve_triangular(factor, design.points.T, lower=True)
    error = solve_triangular(factor, design.root, lower=True)
    right = error.T @ left
    gains = np.einsum("ij,ij->j", right, right)
    return _Point(
        shares, weights, float(np.sum(error**2)), np.append(gains, gains.sum()), left, right
    )


def _start(design: _Design) -> _Point:
    """Return a point with all shares positive, after a few multiplicative updates."""
    prices, count = design.prices, len(design.prices)
    shares = 0.5 / (prices * np.append(np.full(count - 1, count - 1), 1.0))
    for _ in range(5):
        point = _evaluate(design, shares)
        shares = shares * np.sqrt(point.gains / prices)  # f never increases
        shares /= prices @ shares
    shares = np.maximum(shares, 0.1 / (count * prices))
    return _evaluate(design, shares * math.sqrt(point.value))


def _search(
    design: _Design, tol: float, report: Callable[[str, float], None]
) -> tuple[FloatArray, FloatArray, int]:
    """Return weights of nearly least value, weights whose gains bound it, and the steps taken."""
    point = _start(design)
    slacks = 0.1 * point.value / len(point.shares) / point.shares
    least, bound = math.inf, 0.0
    nearest = dual = point.weights
    iterations = 0
    while True:
        value = point.value * float(np.sum(np.sort(point.weights)[::-1][: design.most]))
        lower = point.value**2 / float(np.max(point.gains / design.prices))
        if value < least:
            least, nearest = value, point.weights
        if lower > bound:
            bound, dual = lower, point.weights
        report("certified weights", max(least / bound - 1.0, 0.0))
        # What rounding costs the certificate has to fit into the rest of the tolerance.
        if least / bound - 1.0 <= 0.9 * tol or iterations == MOST_STEPS:
            break
        moved = _newton_step(design, point, slacks)
        if moved is None:
            break
        point, slacks = moved
        iterations += 1
    return nearest, dual, iterations


def _newton_step(
    design: _Design, point: _Point, slacks: FloatArray
) -> tuple[_Point, FloatArray] | None:
    """Take one step along the central path, or None where rounding ends the search.

    On the path ``prices − gains = slacks`` and ``shares · slacks`` is the same number, the barrier,
    for all atoms.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    shares = point.shares
    barrier = float(shares @ slacks) / len(shares)
    system = _curvature(point)
    system[np.diag_indices_from(system)] += slacks / shares
    try:
        factor = cho_factor(system, overwrite_a=True)
    except LinAlgError:
        return None

    def direction(target: float) -> tuple[FloatArray, FloatArray]:
        change = cho_solve(factor, target / shares - design.prices + point.gains)
        return change, (target - slacks * change) / shares - slacks

    change, slack_change = direction(0.0)
    ahead = shares + _longest(shares, change) * change
    slack_ahead = slacks + _longest(slacks, slack_change) * slack_change
    centring = max((float(ahead @ slack_ahead) / float(shares @ slacks)) ** 2, 0.01)
    # Gains far above the prices: the point is too far off the path to give a lower bound.
    excess = float(np.max(point.gains / design.prices)) - 1.0
    if excess * point.value > 3.0 * barrier * len(shares):
        centring = 0.5
    target = centring * barrier
    change, slack_change = direction(target)
    moved = _descend(design, point, change, target)
    if moved is None:
        return None
    slacks = slacks + _longest(slacks, slack_change, 0.9) * slack_change
    central = target / moved.shares
    return moved, np.clip(slacks, 0.01 * central, 100.0 * central)


def _curvature(point: _Point) -> FloatArray:
    """Return the second derivatives of f with respect to the shares."""
    own = 2.0 * (point.left.T @ point.left) * (point.right.T @ point.right)
    last = own.sum(axis=0)
    return np.block([[own, last[:, None]], [last, last.sum()]])


def _longest(values: FloatArray, change: FloatArray, part: float = 1.0) -> float:
    """Return a step of at most 1, and at most ``part`` of the way to where a value becomes 0."""
    return part / max(part, float(np.max(-change / values)))


def _descend(design: _Design, point: _Point, change: FloatArray, barrier: float) -> _Point | None:
    """Step along ``change`` until ``f + prices · shares − barrier · Σ log shares`` decreases."""
    from scipy.linalg import LinAlgError

    def merit(at: _Point) -> float:
        return at.value + float(design.prices @ at.shares - barrier * np.log(at.shares).sum())

    start = merit(point)
    slope = float((design.prices - point.gains - barrier / point.shares) @ change)
    step = _longest(point.shares, change, 0.9)
    for _ in range(30):
        try:
            moved = _evaluate(design, point.shares + step * change)
        except LinAlgError:
            step *= 0.5
            continue
        if merit(moved) <= start + 1e-4 * step * slope + 1e-12 * abs(start):
            return moved
        step *= 0.5
    return None


# --- the certificate ------------------------------------------------------------------------------


def _within_budget(weights: FloatArray, most: int) -> FloatArray:
    """Scale the weights until the ``most`` largest certainly sum to at most 1."""
    weights = weights / top_sum(weights, most)
    while top_sum(weights, most) > 1.0:
        weights = weights * (1.0 - 4.0 * UNIT_ROUNDOFF)
    return weights


def _upper_value(points: FloatArray, root: FloatArray, weights: FloatArray) -> float:
    """Return ``tr(L Lᵀ M(y)⁻¹) ≤ ‖X L‖² / s``, rounded up."""
    inverse, shrink = inverse_root(points, weights)
    product = inverse @ root
    error = gamma(len(root) + 20) * norm_bound(np.abs(inverse) @ np.abs(root))
    length = math.sqrt(math.fsum((product**2).ravel())) * (1.0 + 10.0 * UNIT_ROUNDOFF)
    return (length + error) ** 2 / shrink * (1.0 + 10.0 * UNIT_ROUNDOFF)


def _lower_bound(points: FloatArray, root: FloatArray, most: int, weights: FloatArray) -> float:
    """Return ``tr(Lᵀ Z)² / max(max g, Σ g / most)`` for Z near ``M(y)⁻¹ L``, rounded down.

    The inequality holds whatever Z is, so only the rounding of these products counts.
    """
    inverse, _ = inverse_root(points, weights)
    solution = inverse.T @ (inverse @ root)
    terms = (root * solution).ravel()
    trace = math.fsum(terms) - 4.0 * UNIT_ROUNDOFF * math.fsum(np.abs(terms))
    lengths = np.linalg.norm(points @ solution, axis=1)
    errors = np.linalg.norm(np.abs(points) @ np.abs(solution), axis=1)
    lengths += gamma(sum(root.shape) + 20) * NORM_ROUNDING * errors
    gains = lengths**2 * (1.0 + 10.0 * UNIT_ROUNDOFF)
    steepest = max(float(gains.max()), math.fsum(gains) / most)
    return max(trace, 0.0) ** 2 / steepest * (1.0 - 10.0 * UNIT_ROUNDOFF)
