"""A strategy of little squared error under Laplace noise: Algorithm 2 with its basis chosen well.

A secret ξ in R^r has neighbours ξ + n_k.  A *strategy* is a p×r matrix S of full column rank: draw
z = Sξ + ση with η i.i.d. Laplace L(0, 1), then publish the least-squares estimate (SᵀS)⁻¹Sᵀz, which
is post-processing of z.  By Theorem 2 this keeps ε = max_k ‖S n_k‖₁/σ, so at ε = 1 it has

    squared error  2 (max_k ‖S n_k‖₁)² tr(W (SᵀS)⁻¹),        W the cost of an error in ξ.

Algorithm 2 of the paper (Ren, Wang, Yuan, Shi, "Differential Privacy on Affine Manifolds") is the
case p = r and leaves the basis open.  Here S is searched for, with as many rows as pay.  The
problem is not convex: the result is the best of many local optima and says how many agreed.

The search is descent on a smoothed cost, from many starts.  Both the maximum and the 1-norm have
kinks, and a good strategy sits on many of them.  Descent on a smoothed cost that is sharpened step
by step finds them without guessing which.  A row of no use vanishes by itself, since it adds
linearly to the 1-norm and quadratically to SᵀS; so a search with 2r rows finds strategies with
fewer as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, one_thread
from affinedp.designs.effort import Budget
from affinedp.designs.least_trace import LeastTrace, least_trace
from affinedp.errors import AffineDPError

_GAP, _GAP_WHEN_LARGE = 1e-3, 0.3  # of the ellipsoid, which gives coordinates and lower bound
_MOST_CLASSES = 8  # of outputs that look alike
_BLUNT, _SHARP, _SCALE_STEPS = 50.0, 2_000.0, 25  # of the search of scales
_LOOKED_AT = 500  # directions, the longest, in that search
_WORTHWHILE = 1e-9  # relative gain below which a strategy is left as it was given


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
    tall_starts: Mapping[str, FloatArray] | None = None,
    orthonormal: FloatArray | None = None,
    ellipsoid: LeastTrace | None = None,
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
    >>> found = least_laplace(directions, tall_starts={"outputs": basis}, starts=4)
    >>> round(strategy_value(np.eye(2), directions), 2), round(strategy_value(basis, directions), 2)
    (14.93, 16.0)
    >>> round(found.value, 2)
    14.0
    """
    directions, weight = _given_problem(directions, weight)
    dimension = directions.shape[1]
    given = {"orthonormal": np.eye(dimension) if orthonormal is None else orthonormal}
    given |= tall_starts or {}
    given = {name: np.asarray(start) / power_of_two(start) for name, start in given.items()}

    with one_thread():
        if ellipsoid is None:
            gap = _GAP if dimension <= LARGE else _GAP_WHEN_LARGE
            ellipsoid = least_trace(directions, weight, tol=gap)
        raw = {name: strategy_value(start, directions, weight) for name, start in given.items()}
        raw = dict(sorted(raw.items(), key=lambda pair: pair[1]))  # the best is searched from first
        name = next(iter(raw))
        strategy, tried, agreement = given[name], len(given), 1.0
        if dimension > 1:  # in one dimension a single row is best, and "orthonormal" is one
            root = ellipsoid.root
            problem = Problem(directions, weight, root, budget)
            moved = {name: given[name] @ root for name in raw}
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


def class_weights(
    basis: FloatArray, directions: FloatArray, weight: FloatArray
) -> FloatArray | None:
    """Return weights of outputs, the same for those that look alike, of (locally) least error.

    Noise on the outputs with these weights is a start, and in symmetric problems a good one.  None
    where all outputs look alike, or nearly none do.
    """
    seen = np.sort(np.abs(basis @ np.linalg.pinv(basis)), axis=1)
    price = np.einsum("ij,jk,ik->i", basis, weight, basis) / np.trace(weight)
    label = np.unique(np.column_stack([seen, price]).round(9), axis=0, return_inverse=True)[1]
    classes = [np.flatnonzero(label == one) for one in np.unique(label)]
    if not 1 < len(classes) <= min(_MOST_CLASSES, len(basis) // 2):
        return None
    groups = [basis[own] for own in classes]
    equal, alone = np.ones((1, len(classes))), np.exp(3.0 * (np.eye(len(classes)) - 1))
    scales = best_scales(groups, directions, weight, np.vstack([equal, alone]))[1]
    return np.asarray(scales[label.ravel()])


def best_scales(
    groups: Sequence[FloatArray], directions: FloatArray, weight: FloatArray, starts: FloatArray
) -> tuple[float, FloatArray]:
    """Return the error of a strategy whose groups of rows are scaled, and (locally) best scales.

    The largest 1-norm is 1 with them, up to rounding.  The result is never worse than a start.
    """
    from scipy.optimize import minimize

    sums = np.array([np.abs(rows @ directions.T).sum(axis=0) for rows in groups])
    if sums.shape[1] <= _LOOKED_AT:
        sums = np.unique((sums / sums.max()).round(9), axis=1) * sums.max()
    rows = np.vstack(list(groups))
    group = np.repeat(np.arange(len(groups)), [len(own) for own in groups])
    prices = None
    if len(rows) == rows.shape[1]:  # the noise of each row is by itself
        with suppress(np.linalg.LinAlgError):
            inverse = np.linalg.inv(rows)
            prices = np.bincount(group, ((weight @ inverse) * inverse).sum(axis=0))

    def error_by_group(scales: FloatArray) -> FloatArray:
        """Which part of the error the noise of each group makes."""
        if prices is not None:
            return np.asarray(prices / scales**2)
        inverse = np.linalg.inv((rows.T * scales[group] ** 2) @ rows)
        cost = ((rows @ (inverse @ weight @ inverse)) * rows).sum(axis=1)
        return np.asarray(scales**2 * np.bincount(group, cost))

    def fitted(scales: FloatArray) -> tuple[float, FloatArray]:
        scales = scales / (scales @ sums).max()
        try:
            return float(error_by_group(scales).sum()), scales
        except np.linalg.LinAlgError:
            return np.inf, scales

    def smooth(logs: FloatArray, sums: FloatArray, sharpness: float) -> tuple[float, FloatArray]:
        scales = np.exp(logs)
        norms = scales @ sums
        top = norms.max()
        shares = np.exp(sharpness * (norms - top))
        largest = top + np.log(shares.sum()) / sharpness
        by_group = error_by_group(scales)
        error = by_group.sum()
        slope = scales * (sums @ shares) / (shares.sum() * largest) - by_group / error
        return 2 * np.log(largest) + np.log(error), 2 * slope

    def descended(scales: FloatArray, sharpness: float) -> tuple[float, FloatArray]:
        longest = np.argsort(-(scales @ sums), kind="stable")[:_LOOKED_AT]
        try:
            with np.errstate(all="ignore"):
                end = minimize(
                    smooth, np.log(scales), (sums[:, longest], sharpness), jac=True,
                    method="L-BFGS-B", options={"maxiter": _SCALE_STEPS},
                )  # fmt: skip
                return fitted(np.exp(end.x))
        except np.linalg.LinAlgError:  # a line search stepped onto a singular strategy
            return np.inf, scales

    found = [fitted(start) for start in starts]
    found += [descended(scales, _BLUNT) for _, scales in found]
    found.append(descended(min(found, key=lambda end: end[0])[1], _SHARP))
    return min(found, key=lambda end: end[0])


def _safely_scaled(strategy: FloatArray, directions: FloatArray) -> FloatArray:
    """Scale S so that its largest 1-norm is just below 1 with every rounding error counted."""
    rows, columns = strategy.shape
    sizes = np.abs(directions)
    with np.errstate(over="ignore", invalid="ignore"):  # such a bound is not ≤ 1
        strategy = strategy / largest_norm(strategy, directions)
        for attempt in range(50):
            # An entry of N Sᵀ is off by at most (r/2)·eps·|n|ᵀ|s|, a sum of p by (p/2)·eps of it.
            slack = (columns + 4) * EPS * strategy_norms(np.abs(strategy), sizes)
            bound = np.max(strategy_norms(strategy, directions) + slack) * (1.0 + (rows + 4) * EPS)
            if bound <= 1.0:
                return strategy
            strategy = strategy * (1.0 - (bound - 1.0) - 2.0**attempt * EPS)
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
    if smallest < 4 * dimension * EPS:
        raise AffineDPError(
            f"weight is not positive definite (scaled to diagonal 1, its smallest eigenvalue is"
            f" {smallest:.1e}): add a small multiple of the identity"
        )
    return directions, 0.5 * (weight + weight.T)


# ---------------------------------------------------------------------- the search


# Sharpness is relative to the largest 1-norm, which is 1 while annealing.
_SHARPNESS = (3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 500.0, 1500.0, 1e4)
_FROM_BASIS, _FROM_GIVEN = _SHARPNESS[2:], _SHARPNESS[3:]  # blunter stages would lose such starts
_POLISH = (1e3, 1e4, 1e5, 1e6)
_ITERATIONS, _FEWEST_ITERATIONS = 60, 6  # for each sharpness
_MOST_STARTS, _FEWEST_STARTS = 16, 2  # random ones
_RETRIES = 1.5  # variations of the best end that are tried, for each random start
_WORK = 1e10  # multiply-adds (about) that the searches may take together
_CALL_WORK = 2e5  # what one evaluation costs before its first multiply-add, in the same unit
LARGE = 40  # dimensions beyond which random starts are square and every other sharpness is skipped
_MOST_DIRECTIONS = 2000  # with more of them annealing looks at a working set
_ROUNDS = 4  # how often the working set may grow in one search
SAME = 1.001  # ends that differ by less are the same
EPS = float(np.finfo(np.float64).eps)
_CHUNK = 1 << 21  # entries of N Sᵀ held at a time


@dataclass(frozen=True)
class End:
    """Where a search ended, in its own coordinates and unit of value, and where it began."""

    strategy: FloatArray
    value: float
    start: str


class Problem:
    """The problem in coordinates where the ellipsoid of least Gaussian noise is the unit ball.

    There it no longer depends on the units and the basis of ξ, and random rotations are sensible
    starts.  Only the working set of the directions is looked at while annealing.
    """

    def __init__(
        self,
        directions: FloatArray,
        weight: FloatArray,
        root: FloatArray,
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget or Budget.of("thorough")
        self.weight = root.T @ (weight / power_of_two(weight)) @ root
        self.directions = directions @ np.linalg.inv(root).T
        self.weight /= np.trace(self.weight)
        count, dimension = directions.shape
        self._chosen = np.ones(count, dtype=np.bool_)
        if count > _MOST_DIRECTIONS:
            lengths = np.linalg.norm(self.directions, axis=1)
            self._chosen[np.argsort(lengths)[: -_MOST_DIRECTIONS // 4 - 10 * dimension]] = False
        self.working = self.directions[self._chosen]

    def value(self, strategy: FloatArray) -> float:
        """Return the squared error at ε = 1, over all directions, up to a fixed factor."""
        return largest_norm(strategy, self.directions) ** 2 * strategy_error(strategy, self.weight)

    def grow(self, strategy: FloatArray) -> bool:
        """Add the most violated directions to the working set; say whether there were any."""
        if len(self.working) == len(self.directions):
            return False
        norms = strategy_norms(strategy, self.directions)
        violated = np.flatnonzero(norms > (1.0 + 1e-6) * np.max(norms[self._chosen]))
        worst = violated[np.argsort(norms[violated])[-len(self.working) // 2 :]]
        self._chosen[worst] = True
        self.working = self.directions[self._chosen]
        return len(worst) > 0


def search(
    problem: Problem,
    given: dict[str, FloatArray],
    starts: int | None,
    generator: np.random.Generator,
    progress: Callable[[int, int], None] | None,
) -> tuple[End, FloatArray]:
    """Descend from every start, then from variations of the best end; polish the best.

    Returns the best end and the values of the ends of all starts.
    """
    affordable, iterations = _effort(problem)
    random = affordable if starts is None else starts
    retries = round(_RETRIES * random)
    report = progress or (lambda done, total: None)
    total = len(given) + random + retries + 1

    # where nothing is left to search with the starts themselves are compared
    ends = [End(start, problem.value(start), name) for name, start in given.items()]
    further = {"ellipsoid": np.eye(len(problem.weight)), "longest moves": _basis_start(problem)}
    raw = [End(start, problem.value(start), name) for name, start in further.items()]
    best = min([*ends, *raw], key=lambda end: end.value)
    with problem.budget.keeping("Laplace strategies", 0.85):
        for place, (name, strategy) in enumerate(given.items()):
            ends[place] = _descend(problem, strategy, name, _FROM_GIVEN, iterations)
            best = min(best, ends[place], key=lambda end: end.value)
            report(place + 1, total)
        for index in range(random):
            strategy, stages = _random_start(problem, index, generator)
            ends.append(_descend(problem, strategy, f"random {index}", stages, iterations))
            best = min(best, ends[-1], key=lambda end: end.value)
            report(len(ends), total)
            if sum(end.value <= SAME * best.value for end in ends) >= problem.budget.agreeing:
                retries = 0
                break
        for index in range(retries):
            strategy, stages = _variation(best.strategy, index, generator)
            end = _descend(problem, strategy, best.start, stages, iterations)
            best = min(best, end, key=lambda end: end.value)
            report(len(ends) + index + 1, total)
    with problem.budget.keeping("Laplace strategies"):
        best = _descend(problem, best.strategy, best.start, _POLISH, 6 * iterations)
    report(total, total)
    return best, np.array([end.value for end in ends])


def _effort(problem: Problem) -> tuple[int, int]:
    """Return how many random starts, and iterations for each sharpness, are affordable."""
    dimension = len(problem.weight)
    evaluation = _CALL_WORK + len(problem.working) * dimension * 1.5 * dimension
    share = _WORK / (evaluation * _ITERATIONS * len(_SHARPNESS) * (1.0 + _RETRIES))
    most = min(_MOST_STARTS, 4 + 2 * dimension)  # low dimensions have few local optima
    starts = int(np.clip(share, _FEWEST_STARTS, most))
    iterations = int(np.clip(share / _FEWEST_STARTS * _ITERATIONS, _FEWEST_ITERATIONS, _ITERATIONS))
    return starts, iterations


def _random_start(
    problem: Problem, index: int, generator: np.random.Generator
) -> tuple[FloatArray, Sequence[float]]:
    """Return a start and the stages of its annealing.  Four kinds take turns: none suits all.

    A basis start maps r of the directions to unit vectors; a rotation has orthonormal columns.
    """
    dimension = len(problem.weight)
    double = index % 4 >= 2 and dimension <= LARGE
    if index % 2 == 0:
        bases = [_basis_start(problem, generator) for _ in range(1 + double)]
        return np.vstack(bases), _FROM_BASIS
    columns = generator.standard_normal(((1 + double) * dimension, dimension))
    return np.linalg.qr(columns)[0], _SHARPNESS


def _basis_start(problem: Problem, generator: np.random.Generator | None = None) -> FloatArray:
    """Return the inverse of a basis of directions, so that each has 1-norm 1."""
    import scipy.linalg

    # Pivoting picks independent directions, random factors make it pick different ones.
    factors = np.ones(len(problem.working))
    if generator is not None:
        factors = np.exp(generator.standard_normal(len(problem.working)))
    pivots = scipy.linalg.qr((problem.working * factors[:, None]).T, mode="r", pivoting=True)[1]
    basis = problem.working[pivots[: len(problem.weight)]]
    inverse: FloatArray = np.linalg.inv(basis.T)
    return inverse


def _variation(
    best: FloatArray, index: int, generator: np.random.Generator
) -> tuple[FloatArray, Sequence[float]]:
    """Return the best strategy disturbed a little, disturbed more or, in turn, with a new row."""
    noise = generator.standard_normal(best.shape) * np.sqrt(np.mean(best**2))
    if index % 3 < 2:
        return best + (0.5, 0.8)[index % 3] * noise, _FROM_BASIS
    varied = best.copy()
    row = generator.integers(len(best))
    varied[row] = noise[row]
    return varied, _FROM_GIVEN


def _descend(
    problem: Problem,
    start: FloatArray,
    name: str,
    stages: Sequence[float],
    iterations: int,
) -> End:
    """Anneal, and again as long as a direction outside the working set is violated."""
    if len(problem.weight) > LARGE:
        stages = stages[::-2][::-1]
    end = start
    for _ in range(_ROUNDS):
        end = _anneal(problem, end, stages, iterations)
        if not problem.grow(end):
            break
        stages = stages[-4:]
    end = _without_idle_rows(problem, min(start, end, key=problem.value))
    return End(end, problem.value(end), name)


def _anneal(
    problem: Problem, start: FloatArray, stages: Sequence[float], iterations: int
) -> FloatArray:
    """Minimise smoothed costs, each sharper than the one before; return the best end."""
    from scipy.optimize import minimize

    directions, weight = problem.working, problem.weight
    work = _CALL_WORK + 3.0 * directions.shape[0] * start.size

    def value(strategy: FloatArray) -> float:
        return largest_norm(strategy, directions) ** 2 * strategy_error(strategy, weight)

    def smoothed(entries: FloatArray, sharpness: float) -> tuple[float, FloatArray]:
        problem.budget.spend(work)
        return _smoothed_cost(entries, start.shape, directions, weight, sharpness)

    best, current = start, start
    for sharpness in stages:
        current = current / largest_norm(current, directions)
        with np.errstate(all="ignore"):  # a line search may step onto a singular strategy
            result = minimize(
                smoothed,
                current.ravel(),
                args=(sharpness,),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-7},
            )
        if not np.isfinite(result.fun):
            break
        current = result.x.reshape(start.shape)
        best = min(best, current, key=value)
    return best


def _smoothed_cost(
    entries: FloatArray,
    shape: tuple[int, int],
    directions: FloatArray,
    weight: FloatArray,
    sharpness: float,
) -> tuple[float, FloatArray]:
    """Return a smooth 2 log max_k ‖S n_k‖₁ + log tr(W (SᵀS)⁻¹), and its gradient in S.

    |x| becomes √(x² + d²), the maximum a log-sum-exp; both exceed the truth by O(1/sharpness).
    """
    strategy = entries.reshape(shape)
    images = directions @ strategy.T
    smooth = np.sqrt(images**2 + (0.3 / (sharpness * shape[0])) ** 2)
    norms = smooth.sum(axis=1)
    top = norms.max()
    shares = np.exp(sharpness * (norms - top))
    total = shares.sum()
    maximum = top + np.log(total) / sharpness
    slopes = (images / smooth * (shares / total)[:, None]).T @ directions

    try:
        inverse = np.linalg.inv(strategy.T @ strategy)
    except np.linalg.LinAlgError:
        return np.inf, np.zeros_like(entries)
    spread = inverse @ weight
    error = np.trace(spread)
    gradient = 2.0 * slopes / maximum - 2.0 * strategy @ (spread @ inverse) / error
    return 2.0 * np.log(maximum) + np.log(error), gradient.ravel()


def _without_idle_rows(problem: Problem, strategy: FloatArray) -> FloatArray:
    """Drop the shortest row, and the next, as long as that costs nothing."""
    value = problem.value(strategy)
    while len(strategy) > strategy.shape[1]:
        rest = np.delete(strategy, np.argmin(np.linalg.norm(strategy, axis=1)), axis=0)
        rest_value = problem.value(rest)
        if not rest_value <= value:
            break
        strategy, value = rest, rest_value
    return strategy


def strategy_norms(strategy: FloatArray, directions: FloatArray) -> FloatArray:
    """Return ‖S n_k‖₁ for every direction, a chunk of them at a time."""
    step = max(1, _CHUNK // len(strategy))
    chunks = (directions[i : i + step] for i in range(0, len(directions), step))
    return np.concatenate([np.abs(chunk @ strategy.T).sum(axis=1) for chunk in chunks])


def largest_norm(strategy: FloatArray, directions: FloatArray) -> float:
    """Return max_k ‖S n_k‖₁."""
    return float(np.max(strategy_norms(strategy, directions)))


def strategy_error(strategy: FloatArray, weight: FloatArray) -> float:
    """Return tr(W (SᵀS)⁻¹), infinite if S is singular up to rounding."""
    triangle = np.linalg.qr(strategy)[1]
    size = np.linalg.norm(triangle, axis=0)
    if np.any(np.abs(np.diagonal(triangle)) <= 4 * len(strategy) * EPS * size):
        return np.inf
    inverse = np.linalg.inv(triangle)
    return float(np.sum((np.linalg.cholesky(weight).T @ inverse) ** 2))


def power_of_two(array: FloatArray) -> float:
    """Return a power of two near the largest entry: dividing by it rounds nothing."""
    return float(np.ldexp(1.0, int(np.frexp(np.max(np.abs(array)))[1]) - 1))
