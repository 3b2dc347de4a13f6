"""Neighbours that may differ in several parts at once: one move of each part.

One person who is counted once in each of several tables moves one cell in each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import (
    ONLY_ROUNDING,
    Adjacency,
    Sensitivity,
    check_norm,
    checked_unit,
    hashed,
)

if TYPE_CHECKING:
    import scipy.sparse as sparse

EPS = float(np.finfo(float).eps)


class JointAdjacency(Adjacency):
    """Data sets that differ by at most one move of each of several parts, in either direction.

    Noise that is independent from part to part has the sensitivity ``√(Σ s²)`` (Gaussian) or
    ``Σ s`` (Laplace) of the parts' own s, and that is attained.  For other noise the sum of the
    parts' sensitivities is a bound.

    Parameters
    ----------
    parts : sequence of Adjacency
        All on one manifold.
    unit : str, optional
        What moves between neighbours, in a few words, for a ledger.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, 1, -1, 0]])
    >>> first = adp.DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1], [0, 0]])
    >>> second = adp.DirectionAdjacency(M, [[0], [0], [0], [1]])
    >>> JointAdjacency([first, second]).sensitivity([[1, 1, 0, 0], [0, 0, 0, 1]], norm=1).value
    2.0
    """

    def __init__(self, parts: Sequence[Adjacency], *, unit: str | None = None) -> None:
        self.parts = tuple(parts)
        if not self.parts:
            raise AffineDPError("give at least one part")
        self.manifold = self.parts[0].manifold
        if any(part.manifold.fingerprint != self.manifold.fingerprint for part in self.parts):
            raise AffineDPError("the parts are about different manifolds")
        self._unit = checked_unit(unit)

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        inner = "; ".join(dict.fromkeys(part.neighbours for part in self.parts))
        return f"at most one move in each of {len(self.parts)} parts ({inner})"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return hashed("joint", *(part.key for part in self.parts))

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v``, exact where the parts meet no common row.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        check_norm(norm)
        checked = self.checked_matrix(matrix)
        found = [part.sensitivity(checked, norm) for part in self.parts]
        apart = self._apart(checked)
        squares_add = norm == 2 and apart
        values, uppers = [one.value for one in found], [one.upper for one in found]
        value = math.hypot(*values) if squares_add else math.fsum(values)
        upper = math.hypot(*uppers) if squares_add else math.fsum(uppers)
        upper *= 1 + 4 * EPS
        direction = np.asarray(sum(one.direction for one in found))
        if not apart:
            moved = np.asarray(checked @ direction)
            value = float(np.abs(moved).sum() if norm == 1 else np.linalg.norm(moved))
        exact = apart and all(one.exact for one in found)
        return Sensitivity(
            value,
            upper,
            exact and upper <= value * (1 + ONLY_ROUNDING),
            f"one move in each of {len(found)} parts ({found[0].method})",
            direction,
            tuple(dict.fromkeys(text for one in found for text in one.warnings)),
        )

    def _apart(self, matrix: Matrix) -> bool:
        """Whether no row of the matrix sees moves of two parts."""
        seen = np.zeros(matrix.shape[0], dtype=int)
        for part in self.parts:
            seen += dense((abs(matrix) @ abs(part.span())).sum(axis=1)).ravel() > 0
        return bool(seen.max(initial=0) <= 1)

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the directions: every choice of one move, or none, in each part.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        moves = []
        count = 1.0
        for part in self.parts:
            own = part.directions(limit)
            moves.append(np.hstack([np.zeros((self.manifold.n, 1)), own, -own]))
            count *= moves[-1].shape[1]
        count = (count - 1) / 2
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,.0f} directions", int(count), limit)
        found = []
        for choice in itertools.product(*(range(one.shape[1]) for one in moves)):
            first = next((place for place, which in enumerate(choice) if which), None)
            # one of every pair ±v: the first part that moves does so forwards
            if first is None or choice[first] > (moves[first].shape[1] - 1) // 2:
                continue
            found.append(sum(one[:, which] for one, which in zip(moves, choice)))
        yield np.column_stack(found)

    def span(self) -> Matrix:
        """Return vectors that span the moves of all parts."""
        return np.hstack([dense(part.span()) for part in self.parts])
