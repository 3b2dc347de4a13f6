"""Attach to a design what no mechanism of any law can go below."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import LISTED, Block, with_floor
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.exact_moves import exact_move
from affinedp.promise.least_error import Data
from affinedp.promise.least_possible import LeastPossible, Objective
from affinedp.record import MechanismRecord

Kind = TypeVar("Kind", bound=MechanismRecord)

# Coordinates of a block are off by some roundings; this much covers them with ease.
COORDINATES = 1 - 1e-9
# How exact the bound needs to be where it is computed for its own sake.
TOLERANCE = 1e-6
# Moves that are off by more than this are not whole.
WHOLE = 1e-6


def dual_value(blocks: list[Block], tol: float = TOLERANCE) -> float | None:
    """Return a lower bound on the least cost of Gaussian noise at sensitivity 1, or None.

    There is none where the weights leave a combination free, or where double precision cannot
    certify it.

    Parameters
    ----------
    blocks : list of Block
        The design problem.
    tol : float
        Relative gap.
    """
    solved: dict[str, float] = {}
    try:
        for block in blocks:
            if block.key not in solved:
                floored, floor = with_floor(block.weight, np.abs(block.directions).max(axis=0))
                if floor:
                    return None
                solved[block.key] = least_trace(block.directions, floored, tol=tol).lower_bound
    except AffineDPError:
        return None
    return sum(solved[block.key] for block in blocks) * COORDINATES


def moves_are_whole(adjacency: Adjacency) -> bool:
    """Whether every listed move is whole: only then is the bound about whole numbers, too.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours; False where they cannot be listed.
    """
    try:
        moves = adjacency.directions(LISTED)
    except TooManyCircuitsError:
        return False
    # computed moves may be off by a rounding: those are looked at in exact arithmetic
    doubtful = moves[:, np.any(moves != np.rint(moves), axis=0)]
    if np.any(np.abs(doubtful - np.rint(doubtful)) > WHOLE):
        return False
    return all(_is_whole(adjacency, column) for column in doubtful.T)


def _is_whole(adjacency: Adjacency, column: FloatArray) -> bool:
    move, known = exact_move(adjacency, column)
    return known and all(value.denominator == 1 for value in move.values())


def weighted_error(mechanism: MechanismRecord, weights: Matrix) -> float:
    """Return the expected squared error under weights.

    Parameters
    ----------
    mechanism : MechanismRecord
        The noise.
    weights : matrix, shape (m, m)
        What squared error costs.
    """
    import scipy.sparse as sparse

    rows, columns, costs = sparse.find(sparse.coo_array(weights))
    if np.array_equal(rows, columns):
        return float(costs @ mechanism.expected_squared_errors[rows])
    return float(costs @ mechanism.covariance[rows, columns])


def with_least(
    mechanism: Kind,
    weights: Matrix,
    dual: float | None,
    epsilon: float,
    delta: float = 0.0,
    *,
    data: Data = "any",
    objective: Objective = "sum",
    confined: bool = False,
) -> Kind:
    """Return the mechanism with the bound that belongs to its promise, if there is one.

    Parameters
    ----------
    mechanism : MechanismRecord
        As designed.
    weights : matrix, shape (m, m)
        What squared error costs.
    dual : float or None
        Of :func:`dual_value`.
    epsilon, delta : float
        The promise of one release.
    data, objective, confined
        As for :class:`~affinedp.promise.least_possible.LeastPossible`.
    """
    if dual is None:
        return mechanism
    if objective == "sum":
        error = weighted_error(mechanism, weights)
    else:
        error = float(mechanism.expected_squared_errors.max())
    three = (
        _weight_of_three(mechanism, weights) if objective == "sum" and data == "integer" else 0.0
    )
    least = LeastPossible(
        dual, error, float(epsilon), float(delta), data, objective, confined, three
    )
    return replace(mechanism, least=least)


def _weight_of_three(mechanism: MechanismRecord, weights: Matrix) -> float:
    """The common weight, if three whole numbers with one public sum move by ±1, two at a time."""
    if mechanism.query.shape != (3, 3) or mechanism.manifold.dim != 2:
        return 0.0
    query = dense(mechanism.query)
    weight, place = dense(weights), np.abs(query)
    common = float(weight[0, 0])
    moves = query @ mechanism.adjacency.directions(10)
    pairs = {tuple(np.flatnonzero(move).tolist()) for move in moves.T}
    if (
        sorted(map(tuple, place)) == sorted(map(tuple, np.eye(3)))
        and np.array_equal(weight, common * np.eye(3))
        and set(np.unique(np.abs(moves))) == {0.0, 1.0}
        and pairs == {(0, 1), (0, 2), (1, 2)}
    ):
        return common
    return 0.0
