"""``F x + Λ η`` as plain matrices: query, noise, names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.parts import frozen
from affinedp.strategies.base import Strategy

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 1e8


@dataclass(frozen=True, eq=False)
class Matrices(Strategy):
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
