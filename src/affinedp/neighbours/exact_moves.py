"""Moves between neighbours in rational numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.errors import TooManyCircuitsError
from affinedp.exact.numbers import meaning
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.whole import whole_steps

LISTED = 2_000_000
# Moves that are off by more than this are not whole.
WHOLE = 1e-6


def exact_move(adjacency: Adjacency, column: FloatArray) -> tuple[dict[int, Fraction], bool]:
    """Return a move as fractions, and whether it is certainly the move itself.

    A circuit is determined by its support up to its length, and some entry of it moves by μ
    exactly while the others move by at least theirs; both are checked.  Likewise a move of a free
    set by the one entry of the set that moves.

    Parameters
    ----------
    adjacency : Adjacency
        Whose move it is.
    column : array, shape (n,)
        The move in doubles.
    """
    places = np.flatnonzero(column).tolist()
    values = [float(column[j]) for j in places]
    if type(adjacency) is not CircuitAdjacency:
        read = {j: meaning(v) for j, v in zip(places, values)}
        short = all(c.denominator <= 10**12 for c in read.values())
        if type(adjacency) is FreeSetAdjacency:
            return read, short and _is_of_free_set(adjacency, read)
        return read, short
    size = max(map(abs, values), default=0.0)
    move = {j: _near(v, size) for j, v in zip(places, values)}
    rows, mu = adjacency.manifold.exact_rows, adjacency.mu
    lengths = [abs(c) / meaning(float(mu[j])) for j, c in move.items() if mu[j]]
    if rows is not None and _obeys(rows, move) and min(lengths, default=Fraction(0)) == 1:
        return move, True
    exact = adjacency.exact_direction(column)
    return (move, False) if exact is None else (exact, True)


def _obeys(rows: Sequence[Mapping[int, Fraction]], move: Mapping[int, Fraction]) -> bool:
    return all(
        sum((c * move[j] for j, c in row.items() if j in move), Fraction(0)) == 0 for row in rows
    )


def _is_of_free_set(adjacency: FreeSetAdjacency, move: Mapping[int, Fraction]) -> bool:
    """Whether one entry of a chosen set moves by μ, and everything else follows from it."""
    rows = adjacency.manifold.exact_rows
    if rows is None or not _obeys(rows, move):
        return False
    mu = adjacency.mu
    for entries in adjacency.free_sets:
        moved = [j for j in entries if j in move]
        if len(moved) == 1 and abs(move[moved[0]]) == meaning(float(mu[moved[0]])):
            return True
    return False


def _near(value: float, size: float) -> Fraction:
    """The short fraction that a computed number is, up to its rounding."""
    for most in (100, 10_000):
        near = Fraction(value).limit_denominator(most)
        if abs(float(near) - value) <= 1e-13 * size:
            return near
    return meaning(value)


def whole_part(move: Mapping[int, Fraction], column: FloatArray) -> FloatArray:
    """Return the longest part of a move between whole data, or all of it where there is none.

    Parameters
    ----------
    move : mapping of int to Fraction
        The move, exactly.
    column : array, shape (n,)
        The move in doubles.
    """
    step, times = whole_steps(list(move.values()))
    if times == 0:
        return column
    part = np.zeros_like(column)
    part[list(move)] = [float(times * c) for c in step]
    return part


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


def weight_of_three(adjacency: Adjacency, query: Matrix, weights: Matrix) -> float:
    """Return the common weight of three whole numbers with one public sum, moved by one; else 0.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours.
    query : matrix, shape (m, n)
        F.
    weights : matrix, shape (m, m)
        What squared error costs.
    """
    if query.shape != (3, 3) or adjacency.manifold.dim != 2:
        return 0.0
    whole = dense(query)
    weight, place = dense(weights), np.abs(whole)
    common = float(weight[0, 0])
    moves = whole @ adjacency.directions(10)
    pairs = {tuple(np.flatnonzero(move).tolist()) for move in moves.T}
    if (
        sorted(map(tuple, place)) == sorted(map(tuple, np.eye(3)))
        and np.array_equal(weight, common * np.eye(3))
        and set(np.unique(np.abs(moves))) == {0.0, 1.0}
        and pairs == {(0, 1), (0, 2), (1, 2)}
    ):
        return common
    return 0.0
