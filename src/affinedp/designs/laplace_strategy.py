"""A strategy of little squared error under Laplace noise: Algorithm 2 with its basis chosen well.

A secret ξ in R^r has neighbours ξ + n_k.  A *strategy* is a p×r matrix S of full column rank: draw
z = Sξ + ση with η i.i.d. Laplace L(0, 1), then publish the least-squares estimate (SᵀS)⁻¹Sᵀz, which
is post-processing of z.  By Theorem 2 this keeps ε = max_k ‖S n_k‖₁/σ, so at ε = 1 it has

    squared error  2 (max_k ‖S n_k‖₁)² tr(W (SᵀS)⁻¹),        W the cost of an error in ξ.

Algorithm 2 of the paper (Ren, Wang, Yuan, Shi, "Differential Privacy on Affine Manifolds") is the
case p = r and leaves the basis open.  Here S is searched for, with as many rows as pay.  The
problem is not convex: the result is the best of many local optima and says how many agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.effort import Budget
from affinedp.designs.laplace_search import (
    LARGE,
    Problem,
    largest_norm,
    power_of_two,
    search,
    strategy_error,
    strategy_norms,
)
from affinedp.designs.least_trace import least_trace
from affinedp.errors import AffineDPError

_GAP, _GAP_WHEN_LARGE = 1e-3, 0.3  # of the ellipsoid, which gives coordinates and lower bound
_WORTHWHILE = 1e-9  # relative gain below which a strategy is left as it was given
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LaplaceStrategy:
    """The best strategy that was found: a local optimum."""

    # S, scaled so that max_k ‖S n_k‖₁ ≤ 1, rounding included (and ≥ 1 − 1e-12, unless the
    # coordinates are badly conditioned).  Noise of scale 1/ε on Sξ keeps ε. shape (p, r).
    strategy: FloatArray
    value: float  # 2 tr(W (SᵀS)⁻¹): the squared error at ε = 1
    start: str  # where its search began; ", optimised" is added if the search moved
    starts: int  # how many starts were tried
    # the share of starts that ended within 1 % of `value`.  Near 0, more starts may help.
    agreement: float
    # no strategy of any size has a smaller value.  It replaces the 1-norm by the 2-norm, so the
    # optimum may lie well above it.
    lower_bound: float


def strategy_value(
    strategy: FloatArray, directions: FloatArray, weight: FloatArray | None = None
) -> float:
    """Return the squared error at ε = 1 of Laplace noise on Sξ (Theorem 2 and Algorithm 2).

    Examples
    --------
    >>> from affinedp.designs.laplace_strategy import strategy_value
    >>> strategy_value([[1, 0], [0, 1]], [[1, 1], [1, 0]])
    16.0
    """
    directions, weight = _given_problem(directions, weight)
    strategy = np.asarray(strategy) / power_of_two(strategy)
    # Powers of two keep every intermediate result in range without rounding.
    unit = power_of_two(directions)
    norm = largest_norm(strategy, directions / unit)
    with np.errstate(over="ignore", under="ignore"):
        value = 2.0 * norm**2 * strategy_error(strategy, weight) * unit * unit
    if not 0.0 < value < np.inf:
        raise AffineDPError(
            f"the squared error is {value} in double precision: the directions are all zero, or"
            " their unit or the weight's is extreme; rescale them"
        )
    return float(value)


def least_laplace(
    directions: FloatArray,
    weight: FloatArray | None = None,
    *,
    tall_starts: Sequence[FloatArray] = (),
    orthonormal: FloatArray | None = None,
    seed: int | np.random.Generator = 0,
    starts: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    budget: Budget | None = None,
) -> LaplaceStrategy:
    """Search for the strategy of least squared error under Laplace noise.

    Algorithm 2 of the paper with its basis optimised, and beyond it with more rows than columns;
    the promise is that of Theorem 2.  The result is a local optimum, but never worse than a given
    start.

    Examples
    --------
    Three entries with a known sum; neighbours differ in two of them, by 1 and −1.

    >>> import numpy as np
    >>> from affinedp.designs.laplace_strategy import least_laplace, strategy_value
    >>> basis = np.array([[1, -1, 0], [1, 1, -2]]).T / np.sqrt([2, 6])
    >>> directions = basis[[0, 0, 1]] - basis[[1, 2, 2]]
    >>> found = least_laplace(directions, tall_starts=[basis], starts=4)
    >>> round(strategy_value(np.eye(2), directions), 2), round(strategy_value(basis, directions), 2)
    (14.93, 16.0)
    >>> round(found.value, 2)
    14.0
    """
    directions, weight = _given_problem(directions, weight)
    dimension = directions.shape[1]
    given = {"orthonormal": np.eye(dimension) if orthonormal is None else orthonormal}
    given |= {f"tall start {index}": tall for index, tall in enumerate(tall_starts)}
    given = {name: np.asarray(start) / power_of_two(start) for name, start in given.items()}

    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # several threads cost more than they gain at these sizes
        gap = _GAP if dimension <= LARGE else _GAP_WHEN_LARGE
        ellipsoid = least_trace(directions, weight, tol=gap)
        raw = {name: strategy_value(start, directions, weight) for name, start in given.items()}
        name = min(raw, key=raw.__getitem__)
        strategy, tried, agreement = given[name], len(given), 1.0
        if dimension > 1:  # in one dimension a single row is best, and "orthonormal" is one
            root = ellipsoid.root
            problem = Problem(directions, weight, root, budget)
            moved = {name: start @ root for name, start in given.items()}
            best, ends = search(problem, moved, starts, np.random.default_rng(seed), progress)
            found = best.strategy @ np.linalg.inv(root)
            found_value = strategy_value(found, directions, weight)
            # The search has a unit of value of its own, which its best end translates.
            ends *= found_value / best.value
            tried, agreement = len(ends), float(np.mean(ends <= 1.01 * min(found_value, raw[name])))
            if found_value < raw[name] * (1.0 - _WORTHWHILE):
                name, strategy = f"{best.start}, optimised", found
        strategy = _safely_scaled(strategy, directions)
    strategy.flags.writeable = False
    return LaplaceStrategy(
        strategy=strategy,
        value=2.0 * strategy_error(strategy, weight),
        start=name,
        starts=tried,
        agreement=agreement,
        lower_bound=2.0 * ellipsoid.lower_bound,
    )


def _safely_scaled(strategy: FloatArray, directions: FloatArray) -> FloatArray:
    """Scale S so that its largest 1-norm is just below 1 with every rounding error counted."""
    rows, columns = strategy.shape
    sizes = np.abs(directions)
    with np.errstate(over="ignore", invalid="ignore"):  # such a bound is not ≤ 1
        strategy = strategy / largest_norm(strategy, directions)
        for attempt in range(50):
            # An entry of N Sᵀ is off by at most (r/2)·eps·|n|ᵀ|s|, a sum of p by (p/2)·eps of it.
            slack = (columns + 4) * _EPS * strategy_norms(np.abs(strategy), sizes)
            bound = np.max(strategy_norms(strategy, directions) + slack) * (1.0 + (rows + 4) * _EPS)
            if bound <= 1.0:
                return strategy
            strategy = strategy * (1.0 - (bound - 1.0) - 2.0**attempt * _EPS)
    raise AffineDPError(
        "the noise cannot be scaled in double precision: the directions' unit is extreme, or their"
        " coordinates are badly conditioned; choose others"
    )


def _given_problem(
    directions: FloatArray, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return both as matrices, W positive definite beyond rounding, or refuse."""
    directions = np.asarray(directions, dtype=float)
    dimension = directions.shape[1]
    if weight is None:
        return directions, np.eye(dimension)
    weight = np.asarray(weight, dtype=float)
    scale = np.sqrt(np.maximum(np.diag(weight), 0.0))
    smallest = 0.0  # eigenvalue once the diagonal is 1, which no unit of a coordinate changes
    if np.all(scale > 0.0):
        smallest = float(np.linalg.eigvalsh(weight / scale[:, None] / scale)[0])
    if smallest < 4 * dimension * _EPS:
        raise AffineDPError(
            f"weight is not positive definite (scaled to diagonal 1, its smallest eigenvalue is"
            f" {smallest:.1e}): add a small multiple of the identity"
        )
    return directions, 0.5 * (weight + weight.T)
