"""Search for the dual weights of the least-trace problem: interior point on a working set.

In whitened coordinates (points ``a_k`` in R^r, identity weight) the covariance of least trace
with ``a_kᵀ Σ⁻¹ a_k ≤ 1`` has the scale-free concave dual

    maximise  2 tr G(w)^½ − Σ_k w_k   over w ≥ 0,     G(w) = Σ_k w_k a_k a_kᵀ,

with gradient ``l_k(w) − 1``, where ``l_k(w) = a_kᵀ G(w)^-½ a_k``.  Every ``w`` gives a feasible
covariance ``max(l) G^½`` and the lower bound ``(tr G^½)² / Σ w``, hence the relative gap
``max(l) · Σ w / tr G^½ − 1``.  Nothing here is rigorous about rounding: the caller certifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError

WORKING_SET_LIMIT = 6000  # three matrices of this size take less than a gigabyte
SWEEPS = 8  # multiplicative updates of all points before the first working set is chosen
MAX_ROUNDS = 60
MAX_ITERATIONS = 60
STALLED_AFTER = 15  # the gap is not monotone: small weights settle late
FRACTION_TO_BOUNDARY = 0.99
WEIGHT_FLOOR = 1e-3  # of the mean weight, where the interior point starts
KERNEL_TRUNCATION = 1e-4  # costs no Newton step; 1e-2 costs one
MOST_SWEEPS = 200
FAST_GAIN = 0.8  # a sweep that reduces the gap by less is slower than Newton steps
HIDDEN_BELOW = 1e-13  # relative eigenvalues of G that rounding hides
SMALLEST_LIFT = 1e-12
ROWS_PER_CHUNK = 8192


@dataclass(frozen=True)
class DualPoint:
    """Weights with the eigenvalues and eigenvectors of ``G(w)^½`` and the lengths ``l(w)``."""

    weights: FloatArray
    root_values: FloatArray
    root_vectors: FloatArray
    lengths: FloatArray

    @property
    def transform(self) -> FloatArray:
        """The matrix whose transpose maps a point to a vector of squared norm ``l``."""
        return self.root_vectors / np.sqrt(self.root_values)

    @property
    def scale(self) -> float:
        """``Σ w / tr G^½``: lengths times this are 1 on the support of an optimum."""
        return float(self.weights.sum() / self.root_values.sum())

    @property
    def gap(self) -> float:
        """Relative gap between the covariance and the lower bound that these weights give."""
        return float(self.lengths.max()) * self.scale - 1.0


def search(
    points: FloatArray,
    chosen: IntArray,
    start: FloatArray,
    *,
    target: float,
    lift: float,
    report: Callable[[str, float], None],
) -> tuple[DualPoint, int]:
    """Raise the dual on a growing working set until the gap over all points meets ``target``."""
    size = points.shape[1]
    if size == 1:
        return _on_a_line(points), 0
    if len(chosen) == len(points):
        point = evaluate(points, start, lift)
        if point.gap <= target:
            return point, 0
    # A set that misses points is solved roughly: its optimum will move.
    inner_target = target if len(chosen) == len(points) else max(target, 0.01)
    iterations = 0
    previous_gap = np.inf
    for _ in range(MAX_ROUNDS):
        inner, spent = ascend(
            points[chosen],
            start,
            target=inner_target,
            lift=lift,
            report=lambda gap: report("interior point", gap),
        )
        iterations += spent
        weights = np.zeros(len(points))
        weights[chosen] = inner.weights
        point = replace(inner, weights=weights, lengths=squared_lengths(points, inner.transform))
        report("all directions", point.gap)
        if point.gap <= target or inner.gap > inner_target:
            break
        added = _longest_left_out(point, chosen, limit=max(2 * size, 40))
        inner_target = max(target, 0.05 * point.gap) if len(added) else target
        kept = chosen[_largest(inner.weights, max(WORKING_SET_LIMIT, 4 * size) - len(added))]
        if len(kept) < len(chosen) and point.gap > 0.5 * previous_gap:
            break  # what had to be dropped is missed
        previous_gap = point.gap
        chosen = np.concatenate([kept, added])
        start = np.maximum(weights[chosen], 1e-3 * inner.weights.mean())
    return point, iterations


def _on_a_line(points: FloatArray) -> DualPoint:
    """Solve r = 1: the longest point decides alone."""
    length = np.abs(points[:, 0])
    weights = np.zeros(len(points))
    weights[np.argmax(length)] = 1.0
    return DualPoint(weights, np.array([length.max()]), np.eye(1), length**2 / length.max())


def first_working_set(points: FloatArray, target: float) -> tuple[IntArray, FloatArray]:
    """Return the points that stick out and weights for them, after some cheap updates.

    Symmetric problems (equal parts of a total) have thousands of active points, which no working
    set holds, but the updates solve them: they go on while they gain fast, and if they meet
    ``target`` all points are returned.
    """
    count, size = points.shape
    point = evaluate(points, np.full(count, 1.0 / count), lift=0.0)
    for sweep in range(MOST_SWEEPS):
        if point.gap <= target:
            return np.arange(count), point.weights
        gap = point.gap
        point = evaluate(points, multiplicative_update(point), lift=0.0)
        if sweep >= SWEEPS and point.gap > FAST_GAIN * gap:
            break
    weights = point.weights
    chosen = _largest(point.lengths, min(max(6 * size, 40), max(WORKING_SET_LIMIT, 2 * size)))
    return chosen, weights[chosen]


def multiplicative_update(point: DualPoint) -> FloatArray:
    """Return better weights of sum 1: slow in the end, excellent at the start.

    With the square of the lengths one update solves the case of orthogonal points.
    """
    weights: FloatArray = point.weights * point.lengths**2
    weights /= weights.sum()
    return weights


def _longest_left_out(point: DualPoint, chosen: IntArray, limit: int) -> IntArray:
    """Return the points outside ``chosen`` that violate their constraint most."""
    lengths = point.lengths * point.scale
    lengths[chosen] = 0.0
    longest = _largest(lengths, limit)
    return longest[lengths[longest] > 1.0]


def _largest(values: FloatArray, count: int) -> IntArray:
    """Return where the ``count`` largest values are."""
    if count >= len(values):
        return np.arange(len(values))
    where: IntArray = np.argpartition(-values, count)[:count]
    return where


def squared_lengths(points: FloatArray, transform: FloatArray) -> FloatArray:
    """Return ``|transformᵀ a_k|²`` for every row ``a_k``, a cache-sized chunk at a time."""
    lengths = np.empty(len(points))
    for start in range(0, len(points), ROWS_PER_CHUNK):
        image = points[start : start + ROWS_PER_CHUNK] @ transform
        np.einsum("ij,ij->i", image, image, out=lengths[start : start + ROWS_PER_CHUNK])
    return lengths


def evaluate(points: FloatArray, weights: FloatArray, lift: float) -> DualPoint:
    """Evaluate the dual at ``weights``."""
    values, vectors = second_moment_root(points, weights, lift)
    lengths = squared_lengths(points, vectors / np.sqrt(values))
    return DualPoint(weights, values, vectors, lengths)


def second_moment_root(
    points: FloatArray, weights: FloatArray, lift: float
) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues and eigenvectors of ``G(w)^½``.

    Forming ``G`` squares the condition number.  When that hides small eigenvalues, or ``lift`` is
    positive, take the singular values of the matrix with rows ``√w_k a_k`` by preconditioned Jacobi
    rotations instead, which finds small ones well even in coordinates on very different scales, at
    several times the cost.  Values below the fraction ``lift`` of the largest are raised to it:
    that adds little trace, and rounding errors no longer spoil the lengths along them.
    """
    scaled = points * np.sqrt(weights)[:, None]
    if lift == 0.0:
        values, vectors = np.linalg.eigh(scaled.T @ scaled)
        if values[0] > HIDDEN_BELOW * values[-1]:
            return np.sqrt(values), vectors
    from scipy.linalg import lapack

    # joba=2 ('F') is for rows and columns on different scales; jobu=3 ('N') skips the left side
    values, _, vectors, work, _, _ = lapack.dgejsv(scaled, joba=2, jobu=3, jobv=0)
    values = values * (work[0] / work[1])
    return np.maximum(values, max(lift, SMALLEST_LIFT) * values[0]), vectors


def ascend(
    points: FloatArray,
    weights: FloatArray,
    *,
    target: float,
    lift: float,
    report: Callable[[float], None],
) -> tuple[DualPoint, int]:
    """Raise the dual from ``weights`` until the gap over ``points`` is at most ``target``.

    Mehrotra's predictor-corrector on ``1 − l(w) = z``, ``w z = μ``, ``w, z > 0``.
    """
    count = len(points)
    point = _interior_start(points, weights, lift)
    w = point.weights
    z = np.maximum(1.0 - point.lengths, 0.5 * max(point.gap, 1e-3) * w.mean() / w)
    best = point
    iterations = since_best = 0
    while best.gap > target and iterations < MAX_ITERATIONS and since_best < STALLED_AFTER:
        iterations += 1
        mu = float(w @ z) / count
        solve = _newton_solver(hessian(points, point), z / w)
        gradient = point.lengths - 1.0
        predictor = solve(gradient)
        predictor_z = -z - (z / w) * predictor
        reached_w = w + _longest_step(w, predictor) * predictor
        reached_z = z + _longest_step(z, predictor_z) * predictor_z
        centring = min(1.0, float(reached_w @ reached_z) / count / mu) ** 3
        centre = (centring * mu - predictor * predictor_z) / w
        direction = solve(centre + gradient)
        direction_z = centre - z - (z / w) * direction
        w = w + _longest_step(w, direction) * direction
        z = z + _longest_step(z, direction_z) * direction_z
        point = evaluate(points, w, lift)
        best, since_best = (point, 0) if point.gap < best.gap else (best, since_best + 1)
        report(best.gap)
    return best, iterations


def _interior_start(points: FloatArray, weights: FloatArray, lift: float) -> DualPoint:
    """Improve ``weights`` cheaply, lift them off zero, and scale them so that ``tr G^½ = Σ w``."""
    weights = multiplicative_update(evaluate(points, weights, lift))
    point = evaluate(points, np.maximum(weights, WEIGHT_FLOOR / len(points)), lift)
    return DualPoint(
        point.weights / point.scale**2,
        point.root_values / point.scale,
        point.root_vectors,
        point.lengths * point.scale,
    )


def hessian(points: FloatArray, point: DualPoint) -> FloatArray:
    """Return ``−∂l_k/∂w_j`` as a short sum of squared Gram matrices.

    With ``B`` the points in the eigenbasis the entry is ``Σ_ab c_ab B_ka B_kb B_ja B_jb``,
    ``c_ab = 1/(s_a s_b (s_a + s_b))``.  The kernel ``√(s_a s_b)/(s_a + s_b)`` is positive definite
    with a spectrum that decays exponentially, so a pivoted Cholesky factor with a few columns ``u``
    reproduces it, and each contributes the squared entries of ``B diag(u) Bᵀ``.
    """
    from scipy.linalg import lapack

    s = point.root_values
    kernel = 2.0 * np.sqrt(np.outer(s, s)) / np.add.outer(s, s)
    factor, pivots, rank, _ = lapack.dpstrf(kernel, tol=KERNEL_TRUNCATION, lower=1)
    columns = np.zeros((len(s), rank))
    columns[pivots - 1] = np.tril(factor)[:, :rank]
    coordinates = points @ (point.root_vectors * (2.0**-0.25 * s**-0.75))
    total = np.zeros((len(points), len(points)))
    for column in columns.T:
        gram = (coordinates * column) @ coordinates.T
        total += np.multiply(gram, gram, out=gram)
    return total


def _newton_solver(matrix: FloatArray, diagonal: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Factor ``matrix + diag(diagonal)``, overwriting it, and return its solver.

    The matrix is singular where points repeat or outnumber r(r+1)/2; a relative ridge, as small as
    the factorisation allows, then decides.  It changes the path, not the optimum.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    matrix[np.diag_indices_from(matrix)] += diagonal
    scale = 1.0 / np.sqrt(np.diag(matrix))
    matrix *= scale[:, None]
    matrix *= scale
    ridge = 1e-15
    while ridge < 1.0:
        matrix[np.diag_indices_from(matrix)] = 1.0 + ridge
        try:
            factor = cho_factor(matrix, lower=True, check_finite=False)
        except LinAlgError:
            ridge *= 100.0
        else:
            return lambda rhs: scale * cho_solve(factor, scale * rhs, check_finite=False)
    raise AffineDPError(
        "the search for the least covariance broke down: the directions or the weight are too"
        " ill-conditioned; choose coordinates in which they are well spread"
    )


def _longest_step(values: FloatArray, direction: FloatArray) -> float:
    """Return the longest step, at most 1, that keeps positive ``values`` positive."""
    steepest = -float(np.min(direction / values))
    return min(1.0, FRACTION_TO_BOUNDARY / steepest) if steepest > 0.0 else 1.0
