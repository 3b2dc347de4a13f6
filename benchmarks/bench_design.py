"""Designs at once: seconds to the first answer and to the last, beside what people do today."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse

import affinedp as adp
from affinedp.laws.laplace import geometric_variance

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
    parent, level = [-1], [0]
    for count in branches:
        below = []
        for node in level:
            below += range(len(parent), len(parent) + count)
            parent += [node] * count
        level = below
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
        "one run beside other work; the bound holds for every mechanism of any law.  The baseline",
        "is independent noise on every number, calibrated over all moves and projected onto the",
        "equations (the better of Laplace and Gaussian).",
        "",
        "| problem | numbers | moves | first | last | law | error | bound | baseline |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    adp.design(one_sum(3), epsilon=EPSILON)  # imports
    for problem in PROBLEMS:
        manifold = problem.make()
        seconds = []
        for effort in ("quick", "default"):
            start = time.perf_counter()
            m = adp.design(
                problem.make(), epsilon=EPSILON, delta=problem.delta, effort=effort,
                query=problem.query,
            )  # fmt: skip
            seconds.append(time.perf_counter() - start)
        moves, baseline = _baseline(manifold, problem)
        bound = "–" if m.lower_bound is None else f"{m.lower_bound:,.4g}"
        lines.append(
            f"| {problem.name} | {manifold.n:,} | {moves} | {seconds[0]:.2f} | {seconds[1]:.2f} | "
            f"{m.law} | {m.expected_squared_error:,.6g} | {bound} | {baseline} |"
        )
        print(lines[-1], flush=True)
    lines += ["", *_levels()]
    return "\n".join(lines)


def _levels() -> list[str]:
    """Trees of people beside geometric cells (OpenDP's) and equal shares of all levels."""
    lines = [
        "Trees of people, ε = ½, every level of weight 1: geometric noise on the cells, added up",
        "(what OpenDP does with counts), one equal share per level, and `design_tree`.",
        "",
        "| tree | numbers | seconds | geometric cells | equal shares | design |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for branches in ((3, 3, 3), (5, 4), (10, 10), (6, 5, 4)):
        sizes = np.cumprod([1, *branches]).tolist()
        cells = sizes[-1]
        parent, level = [-1], [0]
        for count in branches:
            below = []
            for node in level:
                below += range(len(parent), len(parent) + count)
                parent += [node] * count
            level = below
        weights = np.repeat([1 / size for size in sizes], sizes)
        start = time.perf_counter()
        m = adp.design_tree(parent, epsilon=0.5, weights=weights, law="laplace")
        seconds = time.perf_counter() - start
        geometric = geometric_variance(0.5) * math.fsum(cells / size for size in sizes)
        levels = [np.kron(np.eye(size), np.ones((1, cells // size))) for size in sizes]
        precision = sum((0.5 / len(sizes)) ** 2 / 2 * A.T @ A for A in levels)
        spread = np.linalg.inv(precision)
        equal = sum(np.trace(A @ spread @ A.T) / len(A) for A in levels)
        error = float(m.expected_squared_errors @ weights)
        name = "-".join(map(str, branches))
        lines.append(
            f"| {name} | {len(parent):,} | {seconds:.2f} | {geometric:,.4g} | {equal:,.4g} | "
            f"{error:,.6g} |"
        )
    return lines


if __name__ == "__main__":
    print(run())
