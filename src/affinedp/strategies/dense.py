"""``F x + Λ η`` with matrices: the mechanism of the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from affinedp.arrays import Matrix, dense
from affinedp.exact.rounding import careful_product
from affinedp.laws.base import Law
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Largest, Prepared, Promised
from affinedp.strategies.largest_norm import largest_of_norm
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.shared import SharedPart, shared_part
from affinedp.strategies.whitening import whiten


@dataclass(frozen=True, eq=False)
class Dense(Matrices):
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
        # bodies are a large part of the library, and most noise has none
        from affinedp.strategies.largest_gauge import largest_of_gauge

        return largest_of_gauge(self, adjacency, law)

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return how far outputs, or combinations of them, may be off."""
        rows = self._free_rows(law, combinations)
        return law.reach_together(rows, outside) if together else law.reach(rows, outside)

    def _free_rows(self, law: Law, combinations: Matrix | None) -> Matrix:
        """Combinations in terms of noise whose coordinates are free: no row but 0 has no noise.

        Digits that cancel against a public equation are kept, so that what is left of the noise is
        not taken for a rounding.
        """
        body = law.size is not None
        if combinations is None:
            return self.range(law) if body else dense(law.spread(self.loadings()))
        if body:
            return careful_product(combinations, self.range(law))
        found = careful_product(combinations, self.basis)
        return dense(found if self.root is None else careful_product(found, self.root))

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
