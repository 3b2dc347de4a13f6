"""Neighbours along directions that the caller gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, within_range
from affinedp.domains.manifold import ON_MANIFOLD, AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError, counted
from affinedp.exact.numbers import real_array
from affinedp.neighbours.adjacency import (
    LISTED,
    Adjacency,
    Columns,
    checked_manifold,
    checked_unit,
)
from affinedp.parts import frozen


class DirectionAdjacency(Adjacency):
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

    kind = "directions"

    @within_range
    def __init__(
        self, manifold: AffineManifold, directions: ArrayLike, *, unit: str | None = None
    ) -> None:
        self.domain = checked_manifold(manifold)
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
        self._directions: FloatArray = frozen(vectors)

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        unit = {"unit": self._unit} if self._unit else {}
        return {"manifold": self.manifold, "directions": self._directions, **unit}

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        given = counted(self._directions.shape[1], "given direction")
        return f"{self._unit}, in one of {given}" if self._unit else given

    @property
    def unit(self) -> str:
        """What moves between neighbours, as it was given."""
        return self._unit or f"the given directions {self.key[:12]}"

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        count = self._directions.shape[1]
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        yield Columns.given(self._directions)

    def span(self) -> Matrix:
        """Return the directions."""
        return self._directions
