"""Whole noise on entries of whole data, brought back onto the equations: geometric cells."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.bodies import AxesPart
from affinedp.laws.knorm import KNorm
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.whole import Whole
from affinedp.strategies.base import Largest, Prepared, Promised, largest_listed
from affinedp.strategies.coverage import Span
from affinedp.strategies.exact_plan import ExactPlan, Grid, rows_on_free
from affinedp.strategies.matrices import shared_part
from affinedp.strategies.projected import Projected

# How far computed loadings may be off, as a share of the largest output of a move.
CLOSE = 1e-9


@dataclass(frozen=True, eq=False)
class WholeEntries(Projected):
    """Publish ``F x_p + F e + Λ (z + η)``: z chosen entries of ``x − x_p − e``, η whole.

    The part e of x in which all neighbours agree comes out as it is; Λ brings entries back from
    what is left, in which they differ.
    """

    kind = "whole entries"
    keeps_whole = False

    def _check_back(self) -> None:
        """Leave it to ``largest``: only of what neighbours differ in entries are brought back."""

    def range(self, law: Law) -> Matrix:
        """Return vectors that span the noise in the outputs."""
        return self.basis

    def leak(self, law: Law, span: Span) -> FloatArray | None:
        """Return a combination of outputs without noise in which data may differ, or None."""
        vectors = dense(span.floats())
        moved = dense(self.query @ vectors)
        missed = moved - dense(self.basis @ vectors[self.entries])
        if np.abs(missed).max(initial=0.0) <= CLOSE * max(1.0, np.abs(moved).max(initial=0.0)):
            return None
        basis = dense(self.basis)
        bare = moved - basis @ np.linalg.lstsq(basis, moved, rcond=None)[0]
        longest = bare[:, int(np.argmax(np.linalg.norm(bare, axis=0)))]
        return np.asarray(longest / np.abs(longest).max())

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest gauge of a whole move, from the list of all."""
        parts = law.bodies.parts if isinstance(law, KNorm) and law.whole else ()
        if not parts or not all(isinstance(part, AxesPart) for part in parts):
            raise AffineDPError(f"{law.words} noise is not drawn whole for every entry by itself")
        if self.leak(law, Span.of(adjacency)) is not None:
            raise AffineDPError("the basis does not bring the entries back to the outputs")
        return largest_listed(self, adjacency if adjacency.is_whole else Whole(adjacency), law)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases: entries are read and drawn as they are."""
        assert isinstance(law, KNorm)
        manifold = self.domain
        shared = shared_part(self, adjacency, law)
        rows = rows_on_free(self, [{int(entry): Fraction(1)} for entry in self.entries])
        hidden = manifold.canonical.free
        if shared is not None:
            rows, hidden = shared.on_hidden(rows), hidden[shared.hidden]
        if any(c.denominator != 1 for row in rows for c in row.values()):
            raise AffineDPError("entries do not follow from whole numbers by whole numbers")
        rate, nothing = Fraction(law.rate), np.zeros(len(rows), dtype=np.intp)
        drawn = law.bodies.drawn(rate)
        grid = Grid(nothing, drawn, Fraction(promised.sensitivity) / rate, rate, 1.0)
        offset = np.asarray(self.query @ manifold.point).ravel()
        start = [Fraction(0)] * len(rows)
        return ExactPlan(self, None, shared, offset, 2.0**53, hidden, rows, grid, [], start)
