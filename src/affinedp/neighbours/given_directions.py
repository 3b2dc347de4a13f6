"""Neighbours along directions that the caller gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, Norm, real_array, within_range
from affinedp.domains.manifold import ON_MANIFOLD, AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import exact_numbers
from affinedp.neighbours.adjacency import (
    ONLY_ROUNDING,
    MeasuredAdjacency,
    Sensitivity,
    checked_unit,
    hashed,
)
from affinedp.neighbours.definition import NeighbourAnswer, among_directions
from affinedp.neighbours.norms import ExactMatrix, in_integers, largest_norm


class DirectionAdjacency(MeasuredAdjacency):
    """Neighbours along directions that the caller gives, already scaled.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    directions : array_like, shape (n, K)
        Columns in ``ker D``: x and x' are neighbours if they differ by at most one of them.
    unit : str, optional
        What moves between neighbours, in a few words, for a ledger.  Columns of numbers do not
        say it: unless given, only the same columns have the same unit.

    Examples
    --------
    >>> M = AffineManifold([[1, 1, -1]])
    >>> adj = DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]])
    >>> adj.sensitivity([[1, 1, 1]], norm=1).value
    2.0
    """

    @within_range
    def __init__(
        self, manifold: AffineManifold, directions: ArrayLike, *, unit: str | None = None
    ) -> None:
        self.manifold = manifold
        self._unit = checked_unit(unit)
        vectors = real_array(directions, "directions", 2)
        if vectors.shape[0] != manifold.n or vectors.shape[1] == 0:
            raise AffineDPError(
                f"directions has shape {vectors.shape}, but must hold at least one column of "
                f"{manifold.n} entries"
            )
        off = np.abs(manifold.D @ vectors)
        scale = abs(manifold.D) @ np.abs(vectors)
        bad = np.flatnonzero(np.any(off > ON_MANIFOLD * scale, axis=0))
        if len(bad):
            raise AffineDPError(
                f"direction {bad[0] + 1} (counting from 1) leaves the manifold: D v must be 0. "
                "Neighbours must both obey the equations"
            )
        self._directions = vectors

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        count = self._directions.shape[1]
        return f"{count} given direction{'s' if count > 1 else ''}"

    @property
    def unit(self) -> str:
        """What moves between neighbours, as it was given."""
        return self._unit or f"the given directions {self.key[:12]}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return hashed("directions", self.manifold.fingerprint, self._directions)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        """Return whether x and y differ by at most one of the directions, and why.

        Parameters
        ----------
        x, y : sequences of numbers
            Two data sets that obey the equations, as for :meth:`Adjacency.are_neighbours`.
        """
        return among_directions(self.manifold, self._directions, x, y)

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the directions.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        count = self._directions.shape[1]
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        yield self._directions.copy()

    def span(self) -> Matrix:
        """Return vectors that span the directions."""
        return self._directions.copy()

    @within_range
    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm over the given directions.

        Parameters
        ----------
        matrix : array or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            Which norm.
        numbers : ExactMatrix or None
            The same matrix in rational numbers.
        """
        vectors = self._directions

        def exact(k: int) -> tuple[dict[int, int], Fraction]:
            moved = np.flatnonzero(vectors[:, k]).tolist()
            values = exact_numbers(vectors[moved, k].tolist())
            return in_integers(dict(zip(moved, values)))

        largest = largest_norm(matrix, vectors, norm, exact, numbers)
        return Sensitivity(
            largest.value,
            largest.upper,
            largest.upper <= largest.value * (1 + ONLY_ROUNDING),
            f"{vectors.shape[1]} directions, closed form",
            vectors[:, largest.place].copy(),
        )
