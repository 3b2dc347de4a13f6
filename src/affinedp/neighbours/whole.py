"""Neighbours among whole numbers, and moves between neighbours in rational numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import exact_number, meaning
from affinedp.exact.rational import common_denominator, primitive
from affinedp.neighbours.adjacency import LISTED, Adjacency, Columns, Sensitivity
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.definition import NeighbourAnswer
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.norms import ExactMatrix


@dataclass(frozen=True, eq=False)
class Whole(Adjacency):
    """The neighbours of another adjacency whose data is whole: they differ by whole numbers."""

    kind = "whole"
    adjacency: Adjacency  # whose neighbours they are

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", self.adjacency.domain)

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        return f"{self.adjacency.words}; whole numbers"

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return self.adjacency.unit

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        for columns in self.adjacency.moves(limit):
            found = []
            for k in range(columns.values.shape[1]):
                move = columns.exact(k)
                if move is None:
                    raise AffineDPError(
                        "the moves are no short fractions, so that whole neighbours cannot be told "
                        "exactly: treat the data as real"
                    )
                step, times = whole_steps(list(move.values()))
                if times:
                    whole = np.zeros(len(columns.values))
                    whole[list(move)] = [float(times * c) for c in step]
                    found.append(whole)
            if found:
                yield Columns.given(np.column_stack(found))

    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        try:
            return super().measured(matrix, norm, numbers)
        except TooManyCircuitsError:
            return replace(self.adjacency.measured(matrix, norm, numbers), exact=False)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        pair = [*x], [*y]
        if any(exact_number(value).denominator != 1 for data in pair for value in data):
            return NeighbourAnswer(False, "some number is not whole")
        return self.adjacency.are_neighbours(*pair)


def whole_steps(move: list[Fraction]) -> tuple[tuple[int, ...], int]:
    """Return the primitive whole vector along a move, and how often it fits."""
    scale = common_denominator(move)
    step, content = primitive([int(c * scale) for c in move])
    return step, content // scale


# ---------------------------------------------------------------------- moves in rational numbers


MOST_LOOKED_AT = 2_000_000
# Moves that are off by more than this are not whole.
WHOLE = 1e-6


def exact_move(adjacency: Adjacency, column: FloatArray) -> tuple[dict[int, Fraction], bool]:
    """Return a move as fractions, and whether it is certainly the move itself.

    A circuit is determined by its support up to its length, and some entry of it moves by μ
    exactly while the others move by at least theirs; both are checked.  Likewise a move of a free
    set by the one entry of the set that moves.
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
    """Return the longest part of a move between whole data, or all of it where there is none."""
    step, times = whole_steps(list(move.values()))
    if times == 0:
        return column
    part = np.zeros_like(column)
    part[list(move)] = [float(times * c) for c in step]
    return part


def moves_are_whole(adjacency: Adjacency) -> bool:
    """Whether every listed move is whole: only then is the bound about whole numbers, too."""
    try:
        moves = adjacency.directions(MOST_LOOKED_AT)
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
    """Return the common weight of three whole numbers with one public sum, moved by one; else 0."""
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
