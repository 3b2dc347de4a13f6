"""Staircase noise where every move is along one axis: the least noise of one real number."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.designs.axes import lattice_bases
from affinedp.designs.knorm import at_the_rate, together
from affinedp.designs.knorm_blocks import Cell, real_cell, whole_cells
from affinedp.designs.separate import split
from affinedp.errors import AffineDPError
from affinedp.laws.stairs import best_first, best_whole_first
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency

NOTE = "staircase noise: the density falls by e^ε whenever a neighbour's move is exceeded"


class NoStairsError(AffineDPError):
    """Moves that are along no axes."""


def least_staircase(
    neighbours: Adjacency,
    matrix: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    *,
    integers: bool = False,
) -> Mechanism:
    """Return independent staircase noise on axes along which all moves are.

    Parameters
    ----------
    neighbours : Adjacency
        Whom it protects.
    matrix : matrix, shape (m, n)
        F.
    names : tuple of str
        Names of the outputs.
    limit : float
        ε.
    weights : matrix, shape (m, m)
        What squared error costs.
    integers : bool
        Whether data is whole.

    Examples
    --------
    One real number at ε = 5: Laplace noise has 0.08.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1.0, -1.0]])
    >>> m = adp.design(M, epsilon=5.0)
    >>> m.law, round(float(m.expected_squared_errors[0]), 4), round(m.excess, 6)
    ('staircase', 0.0297, 1.0)
    """
    make = whole_cells(neighbours.manifold, matrix) if integers else real_cell
    parts = []
    for block in split(neighbours, matrix, weights):
        cell = make(block)
        axes, widths = _axes(cell, integers)
        firsts = [
            float(best_whole_first(int(width), limit)) if integers else best_first(width, limit)
            for width in widths.tolist()
        ]
        root = np.hstack([np.diag(widths), np.diag(firsts)])
        parts.append((block.outputs, cell.basis @ axes, root))
    if not parts:
        raise NoStairsError("the query does not depend on what neighbours differ in")
    basis, root = together(parts, matrix.shape[0])
    found = build(
        neighbours, matrix, basis, root, "staircase", names, notes=(NOTE,), rate=limit,
        whole=integers,
    )  # fmt: skip
    if found.guarantee.sensitivity > limit * (1 + 1e-9):
        raise NoStairsError("staircase noise needs moves of one coordinate at a time")
    if found.shared_part is not None:
        raise NoStairsError(
            "staircase noise must hide all that the query reveals, and neighbours share some of it"
        )
    return at_the_rate(found, limit)


def _axes(cell: Cell, integers: bool) -> tuple[FloatArray, FloatArray]:
    """Axes along which all moves are, as columns, and how far they go."""
    size = cell.moves.shape[1]
    if integers:
        for basis, back in lattice_bases(cell.moves, cell.cost):
            moved = np.abs(cell.moves @ back.T)
            if ((moved != 0).sum(axis=1) == 1).all():
                return basis, moved.max(axis=0)
    else:
        length = np.abs(cell.moves).max(axis=1)
        order = np.argsort(-length, kind="stable")
        unit = (
            cell.moves
            / cell.moves[np.arange(len(length)), np.abs(cell.moves).argmax(axis=1)][:, None]
        )
        _, first = np.unique(unit[order].round(12), axis=0, return_index=True)
        chosen = cell.moves[order[np.sort(first)]]
        if len(chosen) == size:
            return chosen.T, np.ones(size)
    raise NoStairsError("staircase noise needs moves along as many axes as there are dimensions")
