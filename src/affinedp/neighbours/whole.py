"""Neighbours among whole numbers, and moves between neighbours in rational numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import exact_number
from affinedp.exact.rational import common_denominator, primitive
from affinedp.neighbours.adjacency import (
    LISTED,
    Adjacency,
    Columns,
    ExactMatrix,
    Sensitivity,
    Vector,
)
from affinedp.neighbours.definition import NeighbourAnswer


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
                whole = whole_part(move, np.zeros(len(columns.values)))
                if whole.any():
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


def known_moves(
    adjacency: Adjacency, limit: int, way_out: str = "treat the data as real"
) -> Iterator[tuple[Vector, FloatArray]]:
    """Yield all moves as fractions and as doubles; refuse any that is not known exactly."""
    for columns in adjacency.moves(limit):
        for k, column in enumerate(columns.values.T):
            move = columns.certain(k)
            if move is None:
                raise AffineDPError(
                    "the moves are no short fractions, so that they are not known exactly: "
                    f"{way_out}"
                )
            yield move, column


def whole_move(move: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """Return the longest part of a move between whole data; nothing where there is none.

    Examples
    --------
    >>> whole_move({0: Fraction(5, 2), 3: Fraction(-5)})
    {0: Fraction(2, 1), 3: Fraction(-4, 1)}
    """
    step, times = whole_steps(list(move.values()))
    return {i: Fraction(times * c) for i, c in zip(move, step)} if times else {}


def whole_part(move: Mapping[int, Fraction], column: FloatArray) -> FloatArray:
    """Return the longest part of a move between whole data, or all of it where there is none."""
    whole = whole_move(move)
    if not whole:
        return column
    part = np.zeros_like(column)
    part[list(whole)] = [float(c) for c in whole.values()]
    return part


def moves_are_whole(adjacency: Adjacency) -> bool:
    """Whether every listed move is whole: only then is the bound about whole numbers, too."""
    try:
        return all(map(_are_whole, adjacency.moves(MOST_LOOKED_AT)))
    except TooManyCircuitsError:
        return False


def _are_whole(columns: Columns) -> bool:
    # computed moves may be off by a rounding: those are looked at in exact arithmetic
    off = np.abs(columns.values - np.rint(columns.values)).max(axis=0, initial=0.0)
    if np.any(off > WHOLE):
        return False
    doubtful = map(columns.certain, np.flatnonzero(off).tolist())
    return all(move and all(c.denominator == 1 for c in move.values()) for move in doubtful)


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
