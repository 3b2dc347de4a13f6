"""Neighbours among whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import Matrix, Norm
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import exact_number
from affinedp.exact.rational import common_denominator, primitive
from affinedp.neighbours.adjacency import LISTED, Adjacency, Columns, Sensitivity
from affinedp.neighbours.definition import NeighbourAnswer
from affinedp.neighbours.norms import ExactMatrix


@dataclass(frozen=True, eq=False)
class Whole(Adjacency):
    """The neighbours of another adjacency whose data is whole: they differ by whole numbers.

    Attributes
    ----------
    adjacency : Adjacency
        Whose neighbours they are.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -2, 0]])
    >>> Whole(adp.DirectionAdjacency(M, [[3.5], [1.75], [0]])).directions().ravel()
    array([2., 1., 0.])
    """

    kind = "whole"
    adjacency: Adjacency

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
    """Return the primitive whole vector along a move, and how often it fits.

    Examples
    --------
    >>> whole_steps([Fraction(5, 2), Fraction(5)])
    ((1, 2), 2)
    """
    scale = common_denominator(move)
    step, content = primitive([int(c * scale) for c in move])
    return step, content // scale
