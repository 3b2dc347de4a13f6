"""Designs at once: seconds to the first answer and to the last, beside what people do today."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas
import scipy.sparse as sparse

import affinedp as adp
from affinedp.laws.laplace import geometric_variance
from affinedp.tables import TableRelease, with_total_rows

EPSILON, DELTA = 1.0, 1e-6
# Moves that a baseline is computed from.
MOST_MOVES = 200_000


def one_sum(n: int) -> adp.AffineManifold:
    """n numbers with a public sum."""
    return adp.AffineManifold(sparse.csr_array(np.ones((1, n))))


def table(rows: int, columns: int) -> adp.AffineManifold:
    """Cells with row and column totals and the total."""
    place = np.arange((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    lines = [*place, *place.T]
    D = np.zeros((len(lines) - 1, place.size))
    for equation, line in zip(D, lines):
        equation[line[:-1]], equation[line[-1]] = 1, -1
    return adp.AffineManifold(D)


def public_margins(rows: int, columns: int) -> adp.AffineManifold:
    """Cells whose row and column totals are public."""
    D = np.zeros((rows + columns, rows * columns))
    for i in range(rows):
        for j in range(columns):
            D[[i, rows + j], columns * i + j] = 1
    return adp.AffineManifold(D)


def random_equations(equations: int, entries: int) -> adp.AffineManifold:
    """Equations with random whole coefficients."""
    rng = np.random.default_rng(0)
    return adp.AffineManifold(rng.integers(-9, 10, size=(equations, entries)).astype(float))


def chain(steps: int) -> adp.AffineManifold:
    """A quantity that stays what it is."""
    return adp.AffineManifold(np.eye(steps - 1, steps) - np.eye(steps - 1, steps, 1))


def totals(*branches: int) -> adp.AffineManifold:
    """A tree of totals."""
    parent = _tree(branches)
    inner = sorted(set(parent[1:]))
    D = np.zeros((len(inner), len(parent)))
    for row, node in enumerate(inner):
        D[row, node] = -1
        D[row, [i for i, above in enumerate(parent) if above == node]] = 1
    return adp.AffineManifold(D)


@dataclass(frozen=True)
class Problem:
    """One row of the table."""

    name: str
    make: Callable[[], adp.AffineManifold]
    delta: float = 0.0
    query: Sequence[Sequence[float]] | None = None


def _row(n: int) -> list[list[float]]:
    return [np.cos(np.arange(n)).tolist()]


PROBLEMS = [
    *(
        Problem(f"one sum of {n:,}", lambda n=n: one_sum(n))
        for n in (3, 10, 60, 300, 1_000, 100_000)
    ),
    *(
        Problem(f"table {a} × {b} with totals", lambda a=a, b=b: table(a, b))
        for a, b in ((2, 2), (2, 3), (2, 5), (3, 3), (4, 5), (5, 7), (6, 8), (10, 10))
    ),
    *(
        Problem(f"table {a} × {b}, public margins", lambda a=a, b=b: public_margins(a, b))
        for a, b in ((3, 3), (4, 4), (6, 9))
    ),
    *(
        Problem(f"{a} random equations in {b}", lambda a=a, b=b: random_equations(a, b))
        for a, b in ((3, 8), (8, 16))
    ),
    Problem("totals 3-3", lambda: totals(3, 3)),
    Problem("totals 5-4", lambda: totals(5, 4)),
    Problem("x(t+1) = x(t), 100 steps", lambda: chain(100)),
    Problem("one sum of 60, δ = 10⁻⁶", lambda: one_sum(60), DELTA),
    Problem("one row over one sum of 1,000, δ = 10⁻⁶", lambda: one_sum(1_000), DELTA, _row(1_000)),
    Problem("table 3 × 3 with totals, δ = 10⁻⁶", lambda: table(3, 3), DELTA),
    Problem("table 4 × 5 with totals, δ = 10⁻⁶", lambda: table(4, 5), DELTA),
    Problem("table 5 × 7 with totals, δ = 10⁻⁶", lambda: table(5, 7), DELTA),
]  # fmt: skip


def _baseline(manifold: adp.AffineManifold, problem: Problem) -> tuple[str, str]:
    """How many moves there are, and what noise on every number, projected, costs."""
    adjacency = adp.CircuitAdjacency(manifold)
    if manifold.n > 2_000:
        return "–", "–"
    try:
        moves = adjacency.directions(MOST_MOVES)
    except adp.AffineDPError:
        return "not listed", "–"
    moves = moves.toarray() if sparse.issparse(moves) else moves
    F = np.eye(manifold.n) if problem.query is None else np.array(problem.query)
    K = manifold.kernel.toarray() if sparse.issparse(manifold.kernel) else manifold.kernel
    image = F @ K
    P = image @ np.linalg.pinv(image)
    laplace = 2 * (np.abs(F @ moves).sum(axis=0).max() / EPSILON) ** 2
    best = laplace
    if problem.delta:
        size = np.linalg.norm(F @ moves, axis=0).max()
        best = min(best, float(adp.gaussian_sigma(EPSILON, problem.delta, size)) ** 2)
    return f"{moves.shape[1]:,}", f"{best * float((P * P).sum()):,.4g}"


def run() -> str:
    """Return the Markdown section."""
    lines = [
        "## Designs at once",
        "",
        '`adp.design` at ε = 1.  *First* is `effort="quick"`, *last* the default, in seconds of',
        "the processor, after the searches that numba compiles",
        "were loaded (about a second, once in a process); the bound holds for every mechanism of",
        "any law.  The baseline is independent noise on every number, calibrated over all moves",
        "and projected onto the equations (the better of Laplace and Gaussian).",
        "",
        "| problem | numbers | moves | first | last | law | error | bound | baseline |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    adp.design(table(4, 5), epsilon=EPSILON)  # imports, and what is compiled
    for problem in PROBLEMS:
        manifold = problem.make()
        seconds = []
        for effort in ("quick", "default"):
            start = time.process_time()
            m = adp.design(
                problem.make(), epsilon=EPSILON, delta=problem.delta, effort=effort,
                query=problem.query,
            )  # fmt: skip
            seconds.append(time.process_time() - start)
        moves, baseline = _baseline(manifold, problem)
        bound = "–" if m.lower_bound is None else f"{m.lower_bound:,.4g}"
        lines.append(
            f"| {problem.name} | {manifold.n:,} | {moves} | {seconds[0]:.2f} | {seconds[1]:.2f} | "
            f"{m.law} | {m.expected_squared_error:,.6g} | {bound} | {baseline} |"
        )
        print(lines[-1], flush=True)
    lines += ["", *_levels(), "", *_split_tables(), "", *_margins()]
    return "\n".join(lines)


def _tree(branches: Sequence[int]) -> list[int]:
    """The node above every node, level by level."""
    parent, level = [-1], [0]
    for count in branches:
        below = range(len(parent), len(parent) + count * len(level))
        parent += [node for node in level for _ in range(count)]
        level = list(below)
    return parent


def _split_error(shares: np.ndarray, levels: list[np.ndarray]) -> float:
    """Laplace noise with a share of ε = ½ on every level, least squares: the mean of each level."""
    precision = sum((share / 2) ** 2 / 2 * A.T @ A for share, A in zip(shares, levels))
    try:
        spread = np.linalg.inv(precision)
    except np.linalg.LinAlgError:
        return math.inf
    return float(sum(np.trace(A @ spread @ A.T) / len(A) for A in levels))


def _best_split(levels: list[np.ndarray]) -> float:
    """The best shares of the levels, from those that are equal, and from each level left out."""
    from scipy.optimize import minimize

    def error(free: np.ndarray) -> float:
        shares = np.exp(free - free.max())
        return _split_error(shares / shares.sum(), levels)

    starts = [np.zeros(len(levels)), *(-8.0 * np.eye(len(levels)))]
    return min(minimize(error, start, method="Nelder-Mead").fun for start in starts)


def _levels() -> list[str]:
    """Trees of people beside geometric cells (OpenDP's) and shares of all levels."""
    lines = [
        "Trees of people, ε = ½, every level of weight 1: geometric noise on the cells, added up",
        "(what OpenDP does with counts), Laplace noise with one share per level (equal, and the",
        "best that a search finds) and least squares, and `design_tree`.",
        "",
        "| tree | numbers | seconds | geometric cells | equal shares | best shares | design |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    adp.design_tree([-1, 0, 0], epsilon=0.5, law="laplace")  # imports
    for branches in ((3, 3, 3), (5, 4), (10, 10), (6, 5, 4)):
        sizes = np.cumprod([1, *branches]).tolist()
        cells, parent = sizes[-1], _tree(branches)
        weights = np.repeat([1 / size for size in sizes], sizes)
        start = time.process_time()
        m = adp.design_tree(parent, epsilon=0.5, weights=weights, law="laplace")
        seconds = time.process_time() - start
        geometric = geometric_variance(0.5) * math.fsum(cells / size for size in sizes)
        levels = [np.kron(np.eye(size), np.ones((1, cells // size))) for size in sizes]
        equal = _split_error(np.full(len(sizes), 1 / len(sizes)), levels)
        error = float(m.expected_squared_errors @ weights)
        lines.append(
            f"| {'-'.join(map(str, branches))} | {len(parent):,} | {seconds:.2f} | "
            f"{geometric:,.4g} | {equal:,.4g} | {_best_split(levels):,.6g} | {error:,.6g} |"
        )
    return lines


def _split_tables() -> list[str]:
    """Hierarchies of rows that split a total column beside geometric cells."""
    lines = [
        "Hierarchies (states and counties) whose rows split a total column into parts, ε = 1, one",
        "person joins: geometric noise on the cells, added up, and `TableRelease.design`, reading",
        "of the table included.",
        "",
        "| states × counties | parts | rows | weights | seconds | geometric cells | design |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    for states, counties, parts, weights in (
        (3, 4, 3, "levels"), (12, 20, 2, None), (12, 20, 2, "levels"), (12, 80, 2, None),
        (12, 80, 2, "levels"), (50, 60, 4, None),
    ):  # fmt: skip
        names = [f"part {j}" for j in range(parts)]
        places = [(f"{s}", f"{s}-{c}") for s in range(states) for c in range(counties)]
        cells = pandas.DataFrame(places, columns=["state", "county"])
        rows = with_total_rows(cells.assign(**dict.fromkeys(names, 1)), ["state", "county"], names)
        rows["all"] = rows[names].sum(axis=1)
        asked = TableRelease(
            hierarchy=["state", "county"], totals={"all": names}, epsilon=EPSILON, weights=weights
        )
        start = time.process_time()
        made = asked.design(rows)
        seconds = time.process_time() - start
        # each cell is part of a number of every level, in its own column and in the total; under
        # weights "levels" numbers of a level and a kind of column count as one
        sums = states * counties * parts * 3 * 2
        if weights:
            sums = sum(below * (1 + parts) for below in (1, counties, states * counties))
        lines.append(
            f"| {states} × {counties} | {parts} | {len(rows):,} | {weights or 'equal'} | "
            f"{seconds:.2f} | {sums * geometric_variance(EPSILON):,.5g} | "
            f"{made.weighted_error:,.5g} |"
        )
    return lines


# Attributes, margins of up to so many of them, and ResidualPlanner's sum of variances at squared
# sensitivity 1, without the total.
RESIDUAL_PLANNER = [
    ((2, 3, 4), 1, 19.383242),
    ((2, 3, 4), 2, 85.842331),
    ((2, 3, 4), 3, 128.227450),
    ((10, 10, 10), 1, 82.553074),
    ((10, 10, 10), 2, 1171.523853),
    ((10, 10, 10), 3, 3422.992967),
    ((85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2), 2, 6111607.1558),
]


def _margins() -> list[str]:
    """Margins beside ResidualPlanner."""
    lines = [
        "Margins of up to k attributes, one person joins: the sum of variances at squared",
        "sensitivity 1 of ResidualPlanner+ (its own program with default settings, run once",
        "elsewhere) and of `design_margins`.",
        "",
        "| attributes | k | seconds | ResidualPlanner+ | design |",
        "|---|---:|---:|---:|---:|",
    ]
    unit = float(adp.gaussian_sensitivity(EPSILON, DELTA)) ** 2
    for sizes, most, theirs in RESIDUAL_PLANNER:
        wanted = [s for k in range(1, most + 1) for s in combinations(range(len(sizes)), k)]
        start = time.process_time()
        m = adp.design_margins(sizes, wanted, epsilon=EPSILON, delta=DELTA, law="gaussian")
        seconds = time.process_time() - start
        name = "Adult, 14" if len(sizes) > 3 else ", ".join(map(str, sizes))
        own = m.expected_squared_error * unit
        lines.append(f"| {name} | {most} | {seconds:.2f} | {theirs:,.7g} | {own:,.7g} |")
    return lines


if __name__ == "__main__":
    print(run())
