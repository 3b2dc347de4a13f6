"""The search for a Laplace strategy: descent on a smoothed cost, from many starts.

Both the maximum and the 1-norm have kinks, and a good strategy sits on many of them.  Descent on
a smoothed cost that is sharpened step by step finds them without guessing which.  A row of no use
vanishes by itself, since it adds linearly to the 1-norm and quadratically to SᵀS; so
a search with 2r rows finds strategies with fewer as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.effort import Budget

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
    """Return tr(W (SᵀS)⁻¹), infinite if S is singular."""
    try:
        inverse = np.linalg.inv(np.linalg.qr(strategy)[1])
    except np.linalg.LinAlgError:
        return np.inf
    return float(np.sum((np.linalg.cholesky(weight).T @ inverse) ** 2))


def power_of_two(array: FloatArray) -> float:
    """Return a power of two near the largest entry: dividing by it rounds nothing."""
    return float(np.ldexp(1.0, int(np.frexp(np.max(np.abs(array)))[1]) - 1))
