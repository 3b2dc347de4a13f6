"""Three jobs of a statistics office, beside what others would do for the same promise to a person.

OpenDP adds up noisy cells; Hay et al. (2010) put equal noise on every level and make it
consistent, written here once more as an oracle; ResidualPlanner's number is its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from affinedp import gaussian_sensitivity
from affinedp.tables import MarginRelease, TableRelease, with_total_rows

EPSILON, DELTA = 1.0, 1e-6
ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
# github.com/dkifer/ResidualPlanner at ef9c170, selection_only, "Adult", "3D": its own output.
PLANNER = 10.6650
RUNS = 1000


def crosstab(rows: int = 5, columns: int = 6) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    inner = pd.DataFrame(
        generator.poisson(20, (rows, columns)), columns=[f"c{j}" for j in range(columns)]
    ).rename(index=lambda i: f"r{i}")
    table = inner.assign(all=inner.sum(axis=1))
    table.loc["sum"] = table.sum()
    return table


def counties() -> pd.DataFrame:
    """As many states and counties as the US, uneven, with simulated counts."""
    generator = np.random.default_rng(1)
    state = np.sort(generator.integers(0, 51, 3143))
    counts = generator.lognormal(3, 1.5, 3143).astype(int)
    cells = pd.DataFrame({"state": state, "county": np.arange(3143), "n": counts})
    return with_total_rows(cells.astype({"state": str, "county": str}), ["state", "county"], ["n"])


def opendp_cells(cells: np.ndarray[Any, Any]) -> Callable[[], np.ndarray[Any, Any]]:
    """OpenDP's Laplace measurement on the cells: one person changes one of them by 1."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = (dp.vector_domain(dp.atom_domain(T="i64"), size=len(cells)), dp.l1_distance(T="i64"))
    measure = space >> dp.m.then_laplace(scale=1 / EPSILON)
    assert measure.map(1) <= EPSILON * (1 + 1e-9)
    return lambda: np.array(measure([int(v) for v in cells]))


def crosstab_job() -> list[str]:
    table = crosstab()
    names = [name for name in table if name != "all"]
    rows = [row for row in table.index if row != "sum"]
    release = TableRelease(
        totals={"all": names}, row_totals={"sum": rows}, epsilon=EPSILON, round_to=1
    )
    start = time.process_time()
    design = release.design(table)
    between = time.process_time()
    design.release(table)
    ours = (design.weighted_error, between - start, time.process_time() - between)
    inner = table.loc[rows, names].to_numpy()
    draw = opendp_cells(inner.ravel())
    squares, seconds = [], []
    for _ in range(RUNS):
        start = time.process_time()
        noisy = draw().reshape(inner.shape)
        seconds.append(time.process_time() - start)
        error = noisy - inner
        squares.append(
            (error**2).sum() + (error.sum(0) ** 2).sum() + (error.sum(1) ** 2).sum()
            + error.sum() ** 2
        )  # fmt: skip
    q = math.exp(-EPSILON)
    added_up = 4 * inner.size * 2 * q / (1 - q) ** 2  # every cell is in four numbers
    spread = 2 * np.std(squares) / math.sqrt(RUNS)
    independent = 2 * (4 / EPSILON) ** 2 * table.size
    return [
        "| cross-tabulation, 6 × 7 with totals, ε = 1 | "
        f"{ours[0]:.2f} ({ours[1]:.2f} + {ours[2]:.3f} s) | {added_up:.2f}, measured "
        f"{np.mean(squares):.0f} ± {spread:.0f} ({np.mean(seconds):.4f} s) | {independent:.0f} | |"
    ]


def hay(parent: np.ndarray[Any, Any], leaf: np.ndarray[Any, Any], y: float) -> np.ndarray[Any, Any]:
    """Variances after least squares with precision y on every node, by dense algebra."""
    n = len(parent)
    below = np.zeros((n, int(leaf.sum())))
    below[leaf, np.arange(int(leaf.sum()))] = 1
    for v in range(n - 1, 0, -1):
        below[parent[v]] += below[v]
    covariance = np.linalg.inv(y * (below.T @ below))
    return np.einsum("ij,jk,ik->i", below, covariance, below, optimize=True)


def hierarchy_job() -> list[str]:
    table = counties()
    small = TableRelease(hierarchy=["state", "county"], epsilon=EPSILON, delta=DELTA, round_to=1)
    small.release(table)  # compiled
    state = pd.factorize(table["state"])[0]
    level = table[["state", "county"]].notna().sum(axis=1).to_numpy()
    parent = np.where(level == 0, -1, np.where(level == 1, 0, 1 + state))
    leaf = level == 2
    s = float(gaussian_sensitivity(EPSILON, DELTA))
    # three levels change: the better of Gaussian noise and of Laplace noise on each of them
    unit = min(3 / s**2, 2 * (3 / EPSILON) ** 2)
    equal = hay(parent, leaf, 1.0) * unit
    sizes = np.where(leaf, 1, 0)
    for v in range(len(parent) - 1, 0, -1):
        sizes[parent[v]] += sizes[v]
    lines = []
    for words, weights in (("every number 1", None), ("every level 1", "levels")):
        release = TableRelease(
            hierarchy=["state", "county"], epsilon=EPSILON, delta=DELTA, weights=weights, round_to=1
        )
        start = time.process_time()
        design = release.design(table)
        between = time.process_time()
        design.release(table)
        cost = np.ones(len(table)) if weights is None else 1 / np.bincount(level)[level]
        values = [design.weighted_error, cost @ (2 / EPSILON**2 * sizes), cost @ equal]
        lines.append(
            f"| {len(table):,} rows of nation, states, counties, (1, 10⁻⁶), {words} | "
            f"{values[0]:.0f}, {design.mechanism.law} ({between - start:.2f} + "
            f"{time.process_time() - between:.2f} s) | {values[1]:.0f} | "
            f"{cost.sum() * unit:.0f} | Hay et al.: {values[2]:.0f} |"
        )
    return lines


def margins_job() -> list[str]:
    attributes = {f"a{j}": list(range(size)) for j, size in enumerate(ADULT)}
    release = MarginRelease(attributes=attributes, margins="<=3", epsilon=EPSILON, delta=DELTA)
    start = time.process_time()
    design = release.design()
    between = time.process_time()
    mechanism = design.mechanism
    generator = np.random.default_rng(0)
    people = pd.DataFrame(
        {name: generator.integers(0, len(labels), 48_842) for name, labels in attributes.items()}
    )
    design.release(people)
    seconds = time.process_time() - between
    error = math.sqrt(mechanism.expected_squared_errors.mean())
    unit = error * mechanism.guarantee.sensitivity
    s = float(gaussian_sensitivity(EPSILON, DELTA))
    count = sum(math.comb(len(ADULT), k) for k in range(4))
    return [
        "| margins of up to 3 of Adult's 14 attributes, 48,842 synthetic people, RMSE at "
        f"(1, 10⁻⁶) | {error:.2f}, {mechanism.law} "
        f"({between - start:.2f} + {seconds:.1f} s) | not possible: 6·10¹⁷ cells | "
        f"{math.sqrt(count) / s:.1f} | ResidualPlanner {PLANNER / s:.2f} "
        f"({PLANNER:.4f} at sensitivity 1, ours {unit:.4f}) |"
    ]


def run() -> str:
    """Return the Markdown section."""
    lines = [
        "## Tables beside their peers",
        "",
        "Squared error of all numbers (weighted where it says so) for the same promise to one "
        "person, and processor time (design + release). "
        "*Cells added up* is what OpenDP gives: Laplace noise on the cells, in closed form; for "
        f"the cross-tabulation also measured ({RUNS} releases, ± two standard errors).  "
        "*Independent*: noise on every number by itself, which does not add up; the better law.  "
        "OpenDP's Laplace noise on integers has variance 1.84 at ε = 1, continuous noise 2; for "
        "tables of counts the design uses it too.",
        "",
        "| job | affinedp | cells added up | independent | others |",
        "| --- | --- | --- | --- | --- |",
        *crosstab_job(),
        *hierarchy_job(),
        *margins_job(),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
