"""A strategy of little squared error under Laplace noise: Algorithm 2 with its basis chosen well.

A secret ξ in R^r has neighbours ξ + n_k.  A *strategy* is a p×r matrix S of full column rank: draw
z = Sξ + ση with η i.i.d. Laplace L(0, 1), then publish the least-squares estimate (SᵀS)⁻¹Sᵀz, which
is post-processing of z.  By Theorem 2 this keeps ε = max_k ‖S n_k‖₁/σ, so at ε = 1 it has

    squared error  2 (max_k ‖S n_k‖₁)² tr(W (SᵀS)⁻¹),        W the cost of an error in ξ.

Algorithm 2 of the paper (Ren, Wang, Yuan, Shi, "Differential Privacy on Affine Manifolds") is the
case p = r and leaves the basis open.  Here S is searched for, with as many rows as pay.  The
problem is not convex: the result is the best of many local optima and says how many agreed.

Both the maximum and the 1-norm have kinks, and a good strategy sits on many of them.  Descent on
a smoothed cost that is sharpened step by step finds them without guessing which.  A row of no use
vanishes by itself, since it adds linearly to the 1-norm and quadratically to SᵀS; so
a search with 2r rows finds strategies with fewer as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, real_array
from affinedp.designs.least_trace import least_trace
from affinedp.errors import AffineDPError

# Sharpness is relative to the largest 1-norm, which is 1 while annealing.
_SHARPNESS = (3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 500.0, 1500.0, 1e4)
_FROM_BASIS, _FROM_GIVEN = _SHARPNESS[2:], _SHARPNESS[3:]  # blunter stages would lose such starts
_POLISH = (1e3, 1e4, 1e5, 1e6)
_ITERATIONS, _FEWEST_ITERATIONS = 60, 6  # for each sharpness
_MOST_STARTS, _FEWEST_STARTS = 16, 2  # random ones
_RETRIES = 1.5  # variations of the best end that are tried, for each random start
_WORK = 1e10  # multiply-adds (about) that the searches may take together
_CALL_WORK = 1e5  # what one evaluation costs before its first multiply-add, in the same unit
_LARGE = 40  # dimensions beyond which random starts are square and every other sharpness is skipped
_MOST_DIRECTIONS = 2000  # with more of them annealing looks at a working set
_ROUNDS = 4  # how often the working set may grow in one search
_GAP, _GAP_WHEN_LARGE = 1e-3, 0.3  # of the ellipsoid, which gives coordinates and lower bound
_CHUNK = 1 << 21  # entries of N Sᵀ held at a time
_WORTHWHILE = 1e-9  # relative gain below which a strategy is left as it was given
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LaplaceStrategy:
    """The best strategy that was found: a local optimum.

    Attributes
    ----------
    strategy : ndarray of shape (p, r)
        S, scaled so that max_k ‖S n_k‖₁ ≤ 1, rounding included (and ≥ 1 − 1e-12, unless the
        coordinates are badly conditioned).  Noise of scale 1/ε on Sξ keeps ε.
    value : float
        2 tr(W (SᵀS)⁻¹): the squared error at ε = 1.
    start : str
        Where its search began; ", optimised" is added if the search moved.
    starts : int
        How many starts were tried.
    agreement : float
        The share of starts that ended within 1 % of `value`.  Near 0, more starts may help.
    lower_bound : float
        No strategy of any size has a smaller value.  It replaces the 1-norm by the 2-norm, so the
        optimum may lie well above it.
    """

    strategy: FloatArray
    value: float
    start: str
    starts: int
    agreement: float
    lower_bound: float


def strategy_value(
    strategy: FloatArray, directions: FloatArray, weight: FloatArray | None = None
) -> float:
    """Return the squared error at ε = 1 of Laplace noise on Sξ (Theorem 2 and Algorithm 2).

    Parameters
    ----------
    strategy : ndarray of shape (p, r)
        S, of full column rank.  Its scale does not matter.
    directions : ndarray of shape (K, r)
        The neighbours ξ + n_k of ξ, one n_k per row.
    weight : ndarray of shape (r, r), optional
        W, symmetric positive definite; the identity if not given.

    Returns
    -------
    float
        2 (max_k ‖S n_k‖₁)² tr(W (SᵀS)⁻¹).

    Examples
    --------
    >>> from affinedp.designs.laplace_strategy import strategy_value
    >>> strategy_value([[1, 0], [0, 1]], [[1, 1], [1, 0]])
    16.0
    """
    directions, weight = _checked_problem(directions, weight)
    strategy = _checked_strategy(strategy, directions.shape[1], "strategy")
    # Powers of two keep every intermediate result in range without rounding.
    unit = _power_of_two(directions)
    norm = _largest_norm(strategy, directions / unit)
    with np.errstate(over="ignore", under="ignore"):
        value = 2.0 * norm**2 * _error(strategy, weight) * unit * unit
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
) -> LaplaceStrategy:
    """Search for the strategy of least squared error under Laplace noise.

    Algorithm 2 of the paper with its basis optimised, and beyond it with more rows than columns;
    the promise is that of Theorem 2.  The result is a local optimum, but never worse than a given
    start.

    Parameters
    ----------
    directions : ndarray of shape (K, r)
        The neighbours ξ + n_k of ξ, one n_k per row, spanning R^r.
    weight : ndarray of shape (r, r), optional
        W, symmetric positive definite; the identity if not given.
    tall_starts : sequence of ndarray, each of shape (p, r) with p ≥ r
        Strategies to improve, such as a basis of range(FK): noise on all outputs, projected.
    orthonormal : ndarray of shape (r, r), optional
        The strategy that stands for an orthonormal basis; the identity if not given.
    seed : int or numpy.random.Generator
        The same seed gives the same result on the same machine.
    starts : int, optional
        Random starts to draw besides the given ones.  By default 4 + 2r, at most 16, and down to
        2 for large r or K, where every search also gets fewer iterations, so that the time stays
        bounded.  In proportion, variations of the best end are tried too.
    progress : callable, optional
        Called as ``progress(done, total)`` after every search.

    Returns
    -------
    LaplaceStrategy

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
    directions, weight = _checked_problem(directions, weight)
    dimension = directions.shape[1]
    given = {"orthonormal": np.eye(dimension)}
    if orthonormal is not None:
        given["orthonormal"] = _checked_strategy(orthonormal, dimension, "orthonormal")
        if len(given["orthonormal"]) > dimension:
            raise AffineDPError(
                f"orthonormal has {len(given['orthonormal'])} rows; a basis of R^{dimension} has"
                f" {dimension}: pass taller strategies as tall_starts"
            )
    for index, tall in enumerate(tall_starts):
        given[f"tall start {index}"] = _checked_strategy(tall, dimension, f"tall_starts[{index}]")
    if starts is not None and (not isinstance(starts, int | np.integer) or starts < 0):
        raise AffineDPError(f"starts is a number of random starts, 0 or more, not {starts!r}")

    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # several threads cost more than they gain at these sizes
        gap = _GAP if dimension <= _LARGE else _GAP_WHEN_LARGE
        ellipsoid = least_trace(directions, weight, tol=gap)
        raw = {name: strategy_value(start, directions, weight) for name, start in given.items()}
        name = min(raw, key=raw.__getitem__)
        strategy, tried, agreement = given[name], len(given), 1.0
        if dimension > 1:  # in one dimension a single row is best, and "orthonormal" is one
            root = ellipsoid.root
            problem = _Problem(directions, weight, root)
            moved = {name: start @ root for name, start in given.items()}
            best, ends = _search(problem, moved, starts, np.random.default_rng(seed), progress)
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
        value=2.0 * _error(strategy, weight),
        start=name,
        starts=tried,
        agreement=agreement,
        lower_bound=2.0 * ellipsoid.lower_bound,
    )


@dataclass(frozen=True)
class _End:
    """Where a search ended, in its own coordinates and unit of value, and where it began."""

    strategy: FloatArray
    value: float
    start: str


class _Problem:
    """The problem in coordinates where the ellipsoid of least Gaussian noise is the unit ball.

    There it no longer depends on the units and the basis of ξ, and random rotations are sensible
    starts.  Only the working set of the directions is looked at while annealing.
    """

    def __init__(self, directions: FloatArray, weight: FloatArray, root: FloatArray) -> None:
        self.weight = root.T @ (weight / _power_of_two(weight)) @ root
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
        return _largest_norm(strategy, self.directions) ** 2 * _error(strategy, self.weight)

    def grow(self, strategy: FloatArray) -> bool:
        """Add the most violated directions to the working set; say whether there were any."""
        if len(self.working) == len(self.directions):
            return False
        norms = _norms(strategy, self.directions)
        violated = np.flatnonzero(norms > (1.0 + 1e-6) * np.max(norms[self._chosen]))
        worst = violated[np.argsort(norms[violated])[-len(self.working) // 2 :]]
        self._chosen[worst] = True
        self.working = self.directions[self._chosen]
        return len(worst) > 0


def _search(
    problem: _Problem,
    given: dict[str, FloatArray],
    starts: int | None,
    generator: np.random.Generator,
    progress: Callable[[int, int], None] | None,
) -> tuple[_End, FloatArray]:
    """Descend from every start, then from variations of the best end; polish the best.

    Returns the best end and the values of the ends of all starts.
    """
    affordable, iterations = _effort(problem)
    random = affordable if starts is None else starts
    retries = round(_RETRIES * random)
    report = progress or (lambda done, total: None)
    total = len(given) + random + retries + 1

    ends: list[_End] = []
    for name, strategy in given.items():
        ends.append(_descend(problem, strategy, name, _FROM_GIVEN, iterations))
        report(len(ends), total)
    for index in range(random):
        strategy, stages = _random_start(problem, index, generator)
        ends.append(_descend(problem, strategy, f"random {index}", stages, iterations))
        report(len(ends), total)
    best = min(ends, key=lambda end: end.value)
    for index in range(retries):
        strategy, stages = _variation(best.strategy, index, generator)
        end = _descend(problem, strategy, best.start, stages, iterations)
        best = min(best, end, key=lambda end: end.value)
        report(len(ends) + index + 1, total)
    best = _descend(problem, best.strategy, best.start, _POLISH, 6 * iterations)
    report(total, total)
    return best, np.array([end.value for end in ends])


def _effort(problem: _Problem) -> tuple[int, int]:
    """Return how many random starts, and iterations for each sharpness, are affordable."""
    dimension = len(problem.weight)
    evaluation = _CALL_WORK + len(problem.working) * dimension * 1.5 * dimension
    share = _WORK / (evaluation * _ITERATIONS * len(_SHARPNESS) * (1.0 + _RETRIES))
    most = min(_MOST_STARTS, 4 + 2 * dimension)  # low dimensions have few local optima
    starts = int(np.clip(share, _FEWEST_STARTS, most))
    iterations = int(np.clip(share / _FEWEST_STARTS * _ITERATIONS, _FEWEST_ITERATIONS, _ITERATIONS))
    return starts, iterations


def _random_start(
    problem: _Problem, index: int, generator: np.random.Generator
) -> tuple[FloatArray, Sequence[float]]:
    """Return a start and the stages of its annealing.  Four kinds take turns: none suits all.

    A basis start maps r of the directions to unit vectors; a rotation has orthonormal columns.
    """
    dimension = len(problem.weight)
    double = index % 4 >= 2 and dimension <= _LARGE
    if index % 2 == 0:
        bases = [_basis_start(problem, generator) for _ in range(1 + double)]
        return np.vstack(bases), _FROM_BASIS
    columns = generator.standard_normal(((1 + double) * dimension, dimension))
    return np.linalg.qr(columns)[0], _SHARPNESS


def _basis_start(problem: _Problem, generator: np.random.Generator) -> FloatArray:
    """Return the inverse of a random basis of directions, so that each has 1-norm 1."""
    import scipy.linalg

    # Pivoting picks independent directions, the random factors make it pick different ones.
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
    problem: _Problem,
    start: FloatArray,
    name: str,
    stages: Sequence[float],
    iterations: int,
) -> _End:
    """Anneal, and again as long as a direction outside the working set is violated."""
    if len(problem.weight) > _LARGE:
        stages = stages[::-2][::-1]
    end = start
    for _ in range(_ROUNDS):
        end = _anneal(end, problem.working, problem.weight, stages, iterations)
        if not problem.grow(end):
            break
        stages = stages[-4:]
    end = _without_idle_rows(problem, min(start, end, key=problem.value))
    return _End(end, problem.value(end), name)


def _anneal(
    start: FloatArray,
    directions: FloatArray,
    weight: FloatArray,
    stages: Sequence[float],
    iterations: int,
) -> FloatArray:
    """Minimise smoothed costs, each sharper than the one before; return the best end."""
    from scipy.optimize import minimize

    def value(strategy: FloatArray) -> float:
        return _largest_norm(strategy, directions) ** 2 * _error(strategy, weight)

    best, current = start, start
    for sharpness in stages:
        current = current / _largest_norm(current, directions)
        with np.errstate(all="ignore"):  # a line search may step onto a singular strategy
            result = minimize(
                _smoothed_cost,
                current.ravel(),
                args=(current.shape, directions, weight, sharpness),
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


def _without_idle_rows(problem: _Problem, strategy: FloatArray) -> FloatArray:
    """Drop the shortest row, and the next, as long as that costs nothing."""
    value = problem.value(strategy)
    while len(strategy) > strategy.shape[1]:
        rest = np.delete(strategy, np.argmin(np.linalg.norm(strategy, axis=1)), axis=0)
        rest_value = problem.value(rest)
        if not rest_value <= value:
            break
        strategy, value = rest, rest_value
    return strategy


def _norms(strategy: FloatArray, directions: FloatArray) -> FloatArray:
    """Return ‖S n_k‖₁ for every direction, a chunk of them at a time."""
    step = max(1, _CHUNK // len(strategy))
    chunks = (directions[i : i + step] for i in range(0, len(directions), step))
    return np.concatenate([np.abs(chunk @ strategy.T).sum(axis=1) for chunk in chunks])


def _largest_norm(strategy: FloatArray, directions: FloatArray) -> float:
    return float(np.max(_norms(strategy, directions)))


def _error(strategy: FloatArray, weight: FloatArray) -> float:
    """Return tr(W (SᵀS)⁻¹), infinite if S is singular."""
    try:
        inverse = np.linalg.inv(np.linalg.qr(strategy)[1])
    except np.linalg.LinAlgError:
        return np.inf
    return float(np.sum((np.linalg.cholesky(weight).T @ inverse) ** 2))


def _safely_scaled(strategy: FloatArray, directions: FloatArray) -> FloatArray:
    """Scale S so that its largest 1-norm is just below 1 with every rounding error counted."""
    rows, columns = strategy.shape
    sizes = np.abs(directions)
    with np.errstate(over="ignore", invalid="ignore"):  # such a bound is not ≤ 1
        strategy = strategy / _largest_norm(strategy, directions)
        for attempt in range(50):
            # An entry of N Sᵀ is off by at most (r/2)·eps·|n|ᵀ|s|, a sum of p by (p/2)·eps of it.
            slack = (columns + 4) * _EPS * _norms(np.abs(strategy), sizes)
            bound = np.max(_norms(strategy, directions) + slack) * (1.0 + (rows + 4) * _EPS)
            if bound <= 1.0:
                return strategy
            strategy = strategy * (1.0 - (bound - 1.0) - 2.0**attempt * _EPS)
    raise AffineDPError(
        "the noise cannot be scaled in double precision: the directions' unit is extreme, or their"
        " coordinates are badly conditioned; choose others"
    )


def _power_of_two(array: FloatArray) -> float:
    """Return a power of two near the largest entry: dividing by it rounds nothing."""
    return float(np.ldexp(1.0, int(np.frexp(np.max(np.abs(array)))[1]) - 1))


def _checked_problem(
    directions: FloatArray, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return both as finite matrices of matching shapes, W positive definite, or refuse."""
    directions = real_array(directions, "directions", 2)
    if directions.size == 0:
        raise AffineDPError(f"directions has shape {directions.shape}: there is no direction")
    dimension = directions.shape[1]
    if weight is None:
        return directions, np.eye(dimension)
    weight = real_array(weight, "weight", 2)
    if weight.shape != (dimension, dimension):
        raise AffineDPError(
            f"weight has shape {weight.shape}; directions in R^{dimension} need"
            f" ({dimension}, {dimension})"
        )
    scale = np.sqrt(np.maximum(np.diag(weight), 0.0))
    if np.any(np.abs(weight - weight.T) > 1e-12 * np.outer(scale, scale)):
        raise AffineDPError("weight is not symmetric: pass (W + W.T) / 2")
    smallest = 0.0  # eigenvalue once the diagonal is 1, which no unit of a coordinate changes
    if np.all(scale > 0.0):
        smallest = float(np.linalg.eigvalsh(weight / scale[:, None] / scale)[0])
    if smallest < 4 * dimension * _EPS:
        raise AffineDPError(
            f"weight is not positive definite (scaled to diagonal 1, its smallest eigenvalue is"
            f" {smallest:.1e}): add a small multiple of the identity"
        )
    return directions, 0.5 * (weight + weight.T)


def _checked_strategy(strategy: FloatArray, dimension: int, name: str) -> FloatArray:
    """Return a finite p×r matrix of full column rank, or refuse it by ``name``."""
    strategy = real_array(strategy, name, 2)
    if strategy.shape[1] != dimension or len(strategy) < dimension:
        raise AffineDPError(
            f"{name} has shape {strategy.shape}; directions in R^{dimension} need {dimension}"
            f" columns and at least as many rows"
        )
    strategy = strategy / _power_of_two(strategy)
    lengths = np.linalg.norm(strategy, axis=0)
    singular = np.linalg.svd(strategy / np.where(lengths > 0.0, lengths, 1.0), compute_uv=False)
    if not singular[-1] > 4 * len(strategy) * _EPS * singular[0]:
        raise AffineDPError(
            f"{name} does not have full column rank: some direction of ξ would not be measured and"
            " could not be estimated; add a row that sees it"
        )
    return strategy
