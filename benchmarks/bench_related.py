"""Noise that is projected on public equations, and Semi-DP's table, beside the least noise.

No program of theirs runs: projected noise is one line of algebra, and the K-norm law of a hull is
written here once more, with draws of its own.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull

import affinedp as adp

EPSILON, DELTA = 1.0, 1e-6
DRAWS = 400_000
Array = np.ndarray[Any, Any]


def unit(n: int, *places: tuple[int, int]) -> Array:
    found = np.zeros(n)
    for place, sign in places:
        found[place] += sign
    return found


def moves_within(*groups: range) -> Array:
    """One person is counted in another cell of the same group; every direction once."""
    n = max(group.stop for group in groups)
    pairs = (pair for group in groups for pair in itertools.combinations(group, 2))
    return np.column_stack([unit(n, (i, 1), (j, -1)) for i, j in pairs])


def sums_over(*groups: range) -> Array:
    n = max(group.stop for group in groups)
    return np.array([[float(i in group) for i in range(n)] for group in groups])


def margins(k: int) -> Array:
    return np.vstack([np.kron(np.eye(k), np.ones(k)), np.kron(np.ones(k), np.eye(k))])


def swaps(k: int) -> Array:
    """Two people exchange places: the 2 × 2 moves of Semi-DP's scripts."""
    found = [
        unit(k * k, (i * k + j, 1), (m * k + n, 1), (i * k + n, -1), (m * k + j, -1))
        for i, m in itertools.combinations(range(k), 2)
        for j, n in itertools.combinations(range(k), 2)
    ]
    return np.column_stack(found)


def structures() -> list[tuple[str, Array, Array | None, Array]]:
    """Name, public equations, moves (None: Definition 4), and what is published."""
    states = sums_over(range(4), range(4, 8), range(8, 12))
    three = (range(2), range(2, 6), range(6, 14))
    weights = np.array([[1.0, 2, 4, 8]])
    return [
        ("one sum of 10 cells, a person moves", np.ones((1, 10)), moves_within(range(10)),
         np.eye(10)),
        ("3×3, margins public, swaps", margins(3), swaps(3), np.eye(9)),
        ("3×3, margins public, Definition 4", margins(3), None, np.eye(9)),
        ("three public sums of 2, 4 and 8 cells, a person moves within one", sums_over(*three),
         moves_within(*three), np.eye(14)),
        ("3×3 cells and 6 margins, total public, a person moves", np.ones((1, 9)),
         moves_within(range(9)), np.vstack([np.eye(9), margins(3)])),
        ("12 counties and 3 states, total public, a person moves", np.ones((1, 12)),
         moves_within(range(12)), np.vstack([np.eye(12), states])),
        ("x1 + 2x2 + 4x3 + 8x4 public, Definition 4", weights, None, np.eye(4)),
        ("15 prefix sums of 16 cells, total public, a person moves", np.ones((1, 16)),
         moves_within(range(16)), np.tri(15, 16)),
    ]  # fmt: skip


def projected() -> list[str]:
    s = float(adp.gaussian_sensitivity(EPSILON, DELTA))
    rows = []
    for name, equations, moves, outputs in structures():
        M = adp.AffineManifold(equations)
        if moves is None:
            adjacency: adp.Adjacency = adp.CircuitAdjacency(M)
            moves = adjacency.directions()
        else:
            adjacency = adp.DirectionAdjacency(M, moves)
        seen = outputs @ moves
        square = float((seen**2).sum(axis=0).max())
        equal, least = len(outputs) * square, np.linalg.matrix_rank(seen) * square
        m = adp.design_gaussian(M, epsilon=EPSILON, delta=DELTA, adjacency=adjacency, query=outputs)
        ours = m.expected_squared_error * s**2
        rows.append(
            f"| {name} | {len(outputs)} | {square:.6g} | {equal:.6g} | {least:.6g} | "
            f"{ours:.6g} | {least / ours:.4f} |"
        )
    return rows


def tables() -> list[str]:
    """Semi-DP's Gaussian noise: projected, squared l2 sensitivity 4, rank (k − 1)²."""
    s = float(adp.gaussian_sensitivity(EPSILON, DELTA))
    rows = []
    for k in (2, 3, 4, 5, 10):
        M = adp.AffineManifold(margins(k))
        near = adp.DirectionAdjacency(M, swaps(k))
        m = adp.design_gaussian(M, epsilon=EPSILON, delta=DELTA, adjacency=near)
        rows.append(f"| {k} | {4 * (k - 1) ** 2} | {m.expected_squared_error * s**2:.6g} |")
    return rows


def hull_length(k: int) -> tuple[float, float, int]:
    """Mean length and mean square of a uniform point of the hull of the swaps, and its rank."""
    moves = swaps(k)
    basis = np.linalg.svd(moves)[0][:, : (k - 1) ** 2]
    points = np.hstack([moves, -moves]).T @ basis
    generator = np.random.default_rng(0)
    if points.shape[1] == 1:
        lengths = np.abs(points).max() * generator.uniform(size=DRAWS)
    else:
        corners = points[ConvexHull(points).simplices]
        volumes = np.abs(np.linalg.det(corners))
        chosen = corners[generator.choice(len(corners), DRAWS, p=volumes / volumes.sum())]
        shares = generator.dirichlet(np.ones(points.shape[1] + 1), DRAWS)[:, 1:]
        lengths = np.linalg.norm(np.einsum("ij,ijk->ik", shares, chosen), axis=1)
    return float(lengths.mean()), float((lengths**2).mean()), points.shape[1]


def lengths() -> list[str]:
    rows = []
    for k in (2, 3):
        mean, square, rank = hull_length(k)
        M = adp.AffineManifold(margins(k))
        near = adp.DirectionAdjacency(M, swaps(k))
        m = adp.design(M, epsilon=EPSILON, adjacency=near)
        drawn = np.linalg.norm(m.sample(4000, seed=1), axis=1)
        spread = 2 * drawn.std() / math.sqrt(len(drawn))
        law = (rank + 1) * (rank + 2) * square
        rows.append(
            f"| {k} | {rank * mean:.3f} | {(rank + 1) * mean:.3f} | {law:.2f} | "
            f"{drawn.mean():.2f} ± {spread:.2f} | {m.expected_squared_error:.2f} ({m.law}) |"
        )
    return rows


def run() -> str:
    """Return the Markdown section."""
    return "\n".join([
        "## Projected noise, and tables with public margins",
        "",
        "Subspace differential privacy (Gao, Gong and Yu 2022): equal Gaussian noise on every "
        "output, projected on what can vary, beside `design_gaussian` for the same neighbours; "
        "total variance at squared sensitivity 1.",
        "",
        "| structure | outputs | sensitivity² | equal noise | projected | ours "
        "| projected / ours |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *projected(),
        "",
        "Semi-DP (Cho and Awan 2024): k × k tables whose margins are public, two people exchange "
        "places; Gaussian noise, the same total.",
        "",
        "| k | Semi-DP | ours |",
        "|---:|---:|---:|",
        *tables(),
        "",
        f"The same at ε = 1, K-norm noise of the hull of these moves ({DRAWS:,} draws of this "
        "file): mean length of the error with a radius of Gamma shape rank, as its scripts draw, "
        "which keeps no ε; with shape rank + 1, the K-norm law; its mean square; ours.",
        "",
        "| k | shape rank | hull, length | hull, square | ours, length | ours, square |",
        "|---:|---:|---:|---:|---:|---:|",
        *lengths(),
    ])  # fmt: skip


if __name__ == "__main__":
    print(run())
