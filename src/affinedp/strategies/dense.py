"""``F x + Λ η`` with matrices: the mechanism of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import frozen
from affinedp.strategies.base import Largest, Prepared, Promised, Strategy
from affinedp.strategies.largest_gauge import largest_of_gauge
from affinedp.strategies.largest_norm import largest_of_norm
from affinedp.strategies.shared import SharedPart, shared_part
from affinedp.strategies.whitening import whiten

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 1e8


@dataclass(frozen=True, eq=False)
class Dense(Strategy):
    """Publish ``F x + Λ η``; what is measured is ``Λ⁺F x``.

    Attributes
    ----------
    domain : AffineManifold
        The public equations.
    query : matrix, shape (m, n)
        F.
    basis : matrix, shape (m, r)
        Vectors that span the noise; dense or sparse.
    names : tuple of str
        Names of the m outputs.
    root : matrix, shape (r, p), or None
        ``Λ = basis @ root``; the identity if left out, as for a law that is bound to its
        coordinates.
    error : float
        Relative error of Λ, where it had to be computed.
    """

    kind = "dense"
    domain: AffineManifold
    query: Any = field(repr=False)
    basis: Any = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    root: Any = field(default=None, repr=False)
    error: float = 0.0

    def __post_init__(self) -> None:
        for name in ("query", "basis", "root"):
            matrix = getattr(self, name)
            if matrix is not None:
                object.__setattr__(self, name, _checked(frozen(matrix), name))
        rows, names = self.query.shape[0], tuple(self.names)
        object.__setattr__(self, "names", names)
        if self.query.shape[1] != len(self.domain.names) or len(names) != rows:
            raise AffineDPError(
                f"the query has shape {self.query.shape}, but there are {len(names)} outputs of "
                f"{len(self.domain.names)} entries"
            )
        if self.basis.shape[0] != rows:
            raise AffineDPError(f"the noise is for {self.basis.shape[0]} outputs, not {rows}")
        if self.root is not None and self.root.shape[0] != self.basis.shape[1]:
            raise AffineDPError("the noise matrices do not fit together")
        if not 0 <= self.error < 1:
            raise AffineDPError(f"the noise is off by a share of {self.error}: it is not known")

    @property
    def coordinates(self) -> int:
        """How many numbers are drawn."""
        return int((self.basis if self.root is None else self.root).shape[1])

    @cached_property
    def noise(self) -> Matrix:
        """Λ, shape (m, p); refused where it would not fit in memory."""
        if self.root is None:
            return self.basis
        if _numbers(self.basis, self.root) > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise matrix would have {self.basis.shape[0]:,} × {self.root.shape[1]:,} "
                "numbers; use basis and root, or sample"
            )
        return frozen(self.basis @ self.root)

    def range(self, law: Law) -> Matrix:
        """Return vectors that span the noise in the outputs, as columns.

        Parameters
        ----------
        law : Law
            Of the noise.
        """
        span = law.span()
        return self.noise if span is None else self.noise @ span

    # -------------------------------------------------------------- the promise

    @cached_property
    def _whitened(self) -> Matrix:
        return whiten(self.noise, self.query).query

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return ``Λ⁺F v``."""
        return (abs(self._whitened) if absolute else self._whitened) @ moves

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm by a search, or the largest gauge from the list of moves."""
        if law.norm is not None and law.size is None:
            return largest_of_norm(self, adjacency, law)
        return largest_of_gauge(self, adjacency, law)

    def shared_part(self, adjacency: Adjacency, law: Law) -> SharedPart | None:
        """Return what neighbours share and noise does not hide; None if noise hides everything.

        Parameters
        ----------
        adjacency : Adjacency
            The neighbours.
        law : Law
            Of the noise.
        """
        return shared_part(self, adjacency, law)

    # -------------------------------------------------------------- errors and releases

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return ``C Λ``, without putting Λ together where that would be large."""
        if combinations is None:
            return self.noise
        found = combinations @ self.basis
        return found if self.root is None else found @ self.root

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return ``Λ η``, without putting Λ together where that would be large."""
        noisy = drawn.T if self.root is None else self.root @ drawn.T
        return np.asarray((self.basis @ noisy).T)

    def scaled(self, factor: float) -> Dense:
        """Return the same with noise that is larger by a factor."""
        if self.root is None:
            return replace(self, basis=self.basis * factor)
        return replace(self, root=self.root * factor)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        # plans are a large part of the library, and not needed to verify
        from affinedp.strategies.exact_plan import exact_plan
        from affinedp.strategies.rounded_plan import rounded_plan

        make = rounded_plan if law.norm is not None and law.size is None else exact_plan
        return make(self, adjacency, law, promised, bound)


def _numbers(left: Matrix, right: Matrix) -> float:
    """How many numbers a product has: two factors of small rank may fill the memory."""
    if not (is_sparse(left) and is_sparse(right)):
        return float(left.shape[0]) * float(right.shape[1])
    each = np.bincount(left.tocoo().col, minlength=left.shape[1]) * np.diff(right.tocsr().indptr)
    return float(each.sum())


def _checked(matrix: Matrix, name: str) -> Matrix:
    if matrix.ndim != 2:
        raise AffineDPError(f"{name} must be a matrix")
    if not np.all(np.isfinite(matrix.data if is_sparse(matrix) else matrix)):
        raise AffineDPError("the noise is too large for double precision: choose another unit")
    return matrix


def array_of(matrix: Matrix) -> FloatArray:
    """Return a matrix as a dense array."""
    return np.asarray(matrix.toarray() if is_sparse(matrix) else matrix)
