"""Noise for tables with too many neighbours to design for one by one.

Entries of the same level (all counties, all tracts) play the same part, so they get the same
weight y.  With ``P = Kᵀ diag(y) K`` on the kernel, Gaussian noise of covariance ``K P⁻¹ Kᵀ`` moves
neighbours that differ by v apart by exactly ``Σ y_i v_i²`` (squared).  Laplace noise of scale
``1/y_i`` on every entry, followed by least squares, has ``Σ y_i |v_i|``.  Both are linear in y, so
a few weights are found by cutting planes: least squared error, all worst moves so far within the
limit.  For a regular hierarchy this is the least Gaussian noise there is.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Norm, dense
from affinedp.designs.fit import at_the_limit
from affinedp.designs.separate import range_basis
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.progress import Progress
from affinedp.tables.never_worse import projected_root

ROUNDS = 60
# A move that passes the limit by less than this is taken care of by scaling the noise.
SLACK = 1e-5
LEAST = 1e-12


def symmetric_noise(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    levels: Sequence[Hashable],
    weights: FloatArray | None,
) -> Mechanism:
    """Return a mechanism with one weight per level, with its exact guarantee.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    law : {"gaussian", "laplace"}
        Law of the noise.
    limit : float
        The sensitivity that the promise allows.
    levels : sequence
        One per entry.
    weights : array or None
        What squared error costs, one per entry.
    """
    import scipy.sparse as sparse

    manifold = adjacency.manifold
    kinds = {level: i for i, level in enumerate(dict.fromkeys(levels))}
    level_of = np.array([kinds[level] for level in levels])
    # what neighbours differ in; all of the kernel, unless they share a part of it
    kernel = range_basis(dense(adjacency.span()))
    cost = np.ones(manifold.n) if weights is None else weights
    chosen = _least_weights(adjacency, law, kernel, cost, level_of)
    root = projected_root(kernel, chosen[level_of], law)
    identity = sparse.csr_array(sparse.eye_array(manifold.n))
    note = f"one weight for each of {len(kinds)} levels of the table; less noise may do"
    mechanism = build(adjacency, identity, kernel, root / limit, law, manifold.names, notes=(note,))
    return at_the_limit(mechanism, limit)


def _least_weights(
    adjacency: Adjacency, law: LawName, kernel: FloatArray, cost: FloatArray, level_of: IntArray
) -> FloatArray:
    """Weights of least squared error such that no move is larger than 1."""
    count = int(level_of.max()) + 1
    moment = kernel.T @ (cost[:, None] * kernel)
    # a first move through every level, so that no weight can grow without limit
    moves = [_worst(adjacency, law, level_of, (np.arange(count) == i) + 1e-6) for i in range(count)]
    moves.append(_worst(adjacency, law, level_of, np.ones(count)))
    y = np.ones(count) / max(float(move.sum()) for move in moves)
    with Progress("weights of the levels") as progress:
        for turn in range(ROUNDS):
            y = _solve(kernel, moment, level_of, law, np.array(moves), y)
            worst = _worst(adjacency, law, level_of, y)
            if float(worst @ y) <= 1 + SLACK:
                break
            moves.append(worst)
            progress.update(turn / ROUNDS)
    return y


def _worst(adjacency: Adjacency, law: LawName, level_of: IntArray, y: FloatArray) -> FloatArray:
    """What the worst move for these weights adds up to in every level."""
    import scipy.sparse as sparse

    norm: Norm = 2 if law == "gaussian" else 1
    scale = np.sqrt(y[level_of]) if law == "gaussian" else y[level_of]
    found = adjacency.sensitivity(sparse.csr_array(sparse.diags_array(scale)), norm)
    size = np.abs(found.direction)
    moved = size**2 if law == "gaussian" else size
    return np.bincount(level_of, weights=moved, minlength=len(y)).astype(float)


def _solve(
    kernel: FloatArray,
    moment: FloatArray,
    level_of: IntArray,
    law: LawName,
    moves: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Least squared error over positive weights with all these moves at most 1."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    power = 1.0 if law == "gaussian" else 2.0

    def value_and_slope(logs: FloatArray) -> tuple[float, FloatArray]:
        precision = np.exp(power * logs)[level_of]
        factor = cho_factor(kernel.T @ (precision[:, None] * kernel))
        spread = cho_solve(factor, moment)
        total = float(np.trace(spread))
        both = kernel @ cho_solve(factor, spread.T)
        slope = -power * precision * np.einsum("ij,ij->i", both, kernel) / total
        by_level = np.bincount(level_of, weights=slope, minlength=len(logs))
        return math.log(total), by_level.astype(float)

    # within the limit to start with, whatever the last cut was
    begin = np.log(np.maximum(start / max(1.0, float((moves @ start).max())), LEAST))
    found = minimize(
        value_and_slope,
        begin,
        jac=True,
        method="SLSQP",
        bounds=[(np.log(LEAST), None)] * len(begin),
        constraints=[
            {
                "type": "ineq",
                "fun": lambda logs: 1.0 - moves @ np.exp(logs),
                "jac": lambda logs: -moves * np.exp(logs),
            }
        ],
        options={"maxiter": 100, "ftol": 1e-9},
    )
    y = np.exp(found.x)
    return np.asarray(y / max(1.0, float((moves @ y).max())))
