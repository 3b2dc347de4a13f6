"""Counts and single numbers: beside OpenDP's geometric noise, and the staircase beside Laplace."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd

import affinedp as adp
from affinedp.tables import TableRelease


def table(rows: int, columns: int) -> pd.DataFrame:
    inner = pd.DataFrame(
        np.arange(rows * columns).reshape(rows, columns), columns=[f"c{j}" for j in range(columns)]
    ).rename(index=lambda i: f"r{i}")
    found = inner.assign(all=inner.sum(axis=1))
    found.loc["sum"] = found.sum()
    return found


def crosstab(rows: int, columns: int, epsilon: float) -> str:
    given = table(rows, columns)
    names = [name for name in given if name != "all"]
    below = [row for row in given.index if row != "sum"]
    wanted = {"totals": {"all": names}, "row_totals": {"sum": below}, "epsilon": epsilon}
    start = time.process_time()
    design = TableRelease(**wanted).design(given)
    seconds = time.process_time() - start
    real = TableRelease(**wanted, whole=False).design(given)
    q = math.exp(-epsilon)
    opendp = 4 * rows * columns * 2 * q / (1 - q) ** 2
    return (
        f"| {rows} × {columns} with totals | {epsilon:g} | {design.weighted_error:.5g} | "
        f"{opendp:.5g} | {8 * rows * columns / epsilon**2:.5g} | "
        f"{real.weighted_error:.5g} ({real.mechanism.law}) | {seconds:.2f} |"
    )


def number(epsilon: float) -> str:
    manifold = adp.AffineManifold([[1.0, -1.0]])
    real = adp.design(manifold, epsilon=epsilon)
    whole = adp.design(manifold, epsilon=epsilon, integers=True)
    return (
        f"| {epsilon:g} | {real.expected_squared_errors[0]:.4g} ({real.law}, {real.excess:.3f}) | "
        f"{2 / epsilon**2:.4g} | {whole.expected_squared_errors[0]:.4g} ({whole.excess:.3f}) |"
    )


def run() -> str:
    """Return the Markdown section."""
    lines = [
        "## Counts, and single numbers",
        "",
        "Squared error of all numbers of a cross-tabulation of people, who are in one cell each.  "
        "*OpenDP*: its Laplace noise on whole cells, added up, in closed form; *Laplace*: "
        "continuous noise on the cells.",
        "",
        "| table | ε | affinedp | OpenDP | Laplace | real data | design s |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            crosstab(*shape, epsilon)
            for shape in ((2, 3), (3, 3), (5, 6))
            for epsilon in (0.1, 1.0, 3.0)
        ),
        "",
        "One number that moves by 1: the variance, and how many times the least possible it is.",
        "",
        "| ε | real data | Laplace | whole data |",
        "|---:|---:|---:|---:|",
        *map(number, (0.1, 1.0, 2.0, 5.0, 10.0)),
        "",
        "Processor time.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
