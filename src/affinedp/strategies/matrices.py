"""``F x + Λ η`` as matrices: what is measured, what noise misses, what neighbours share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import format_equation
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import reduce_exactly
from affinedp.exact.rounding import careful_product
from affinedp.laws.base import Law
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import frozen
from affinedp.strategies.base import Strategy
from affinedp.strategies.coverage import Span, bare_combination, has_full_row_rank
from affinedp.strategies.one_sum import exchange_gauge
from affinedp.strategies.whitening import whiten

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 1e8


@dataclass(frozen=True, eq=False)
class Matrices(Strategy):
    """Publish ``F x + Λ η``; what is measured is ``Λ⁺F x``."""

    # the public equations
    domain: AffineManifold
    # F; shape (m, n)
    query: Any = field(repr=False)
    # vectors that span the noise; dense or sparse; shape (m, r)
    basis: Any = field(repr=False)
    # names of the m outputs
    names: tuple[str, ...] = field(repr=False)
    # ``Λ = basis @ root``; the identity if left out, as for a law that is bound to its coordinates;
    # shape (r, p)
    root: Any = field(default=None, repr=False)
    # relative error of Λ, where it had to be computed
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
        """Return vectors that span the noise in the outputs, as columns."""
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

    @cached_property
    def _whitened(self) -> Matrix:
        return whiten(self.noise, self.query).query

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return ``Λ⁺F v``."""
        return (abs(self._whitened) if absolute else self._whitened) @ moves

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

    def leak(self, law: Law, span: Span) -> FloatArray | None:
        """Return a combination of outputs without noise in which data may differ, or None."""
        inner = [part for part in (self.root, law.span()) if part is not None]
        # vectors that span the noise, as they were given if that is known
        given = all(has_full_row_rank(part) for part in inner)
        return bare_combination(
            self.basis if given else self.range(law), self.query, span, self.error,
            designed=self.root is not None,
        )  # fmt: skip

    def scaled(self, factor: float) -> Self:
        """Return the same with noise that is larger by a factor."""
        if self.root is None:
            return replace(self, basis=self.basis * factor)
        return replace(self, root=self.root * factor)


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


# ---------------------------------------------------------------------- what neighbours share

# Numbers that are still eliminated in rational arithmetic.
MOST_EXACT = 2_000_000

Row = dict[int, Fraction]


@dataclass(frozen=True)
class SharedPart:
    """What all neighbours have in common, exactly: it may be published without noise.

    On the manifold ``x = x_p + K ξ`` with ξ the free entries.  Let U be a basis of the span of the
    neighbours' differences, as free entries, with an identity in some of its rows P.  Then
    ``ξ = U ξ_P + e``, and e is the same for all neighbours: noise need only hide ``ξ_P``.  U and e
    are computed in rational arithmetic, so that "the same" holds to the last bit.
    """

    # P: places among the free entries whose values noise hides
    hidden: IntArray
    # for every other place j the nonzero entries of row j of U, by place
    rows: dict[int, Row]

    def spread(self, count: int) -> FloatArray:
        """Return U, shape (count, len(hidden))."""
        matrix = np.zeros((count, len(self.hidden)))
        matrix[self.hidden, np.arange(len(self.hidden))] = 1.0
        column = {int(place): i for i, place in enumerate(self.hidden)}
        for j, row in self.rows.items():
            for place, value in row.items():
                matrix[j, column[place]] = float(value)
        return matrix

    def on_hidden(self, rows: Sequence[Row]) -> list[Row]:
        """Return exact combinations of ξ as combinations of ξ_P, for ``ξ = U ξ_P``."""
        column = {int(place): i for i, place in enumerate(self.hidden)}
        found = []
        for row in rows:
            total: Row = {}
            for place, weight in row.items():
                parts = {place: Fraction(1)} if place in column else self.rows[place]
                for hidden, value in parts.items():
                    i = column[hidden]
                    total[i] = total.get(i, Fraction(0)) + weight * value
            found.append({i: value for i, value in total.items() if value})
        return found

    def values(self, free: FloatArray) -> FloatArray:
        """Return e for rows of free entries, each number exact before it is rounded once."""
        shared = np.zeros(free.shape)
        for j, row in self.rows.items():
            for i, point in enumerate(free.tolist()):
                follows = sum((u * meaning(point[p]) for p, u in row.items()), Fraction(0))
                shared[i, j] = float(meaning(point[j]) - follows)
        return shared


def shared_part(strategy: Matrices, adjacency: Adjacency, law: Law) -> SharedPart | None:
    """Return what neighbours share and noise does not hide, or None if noise hides everything."""
    points = getattr(law, "points", None)
    if points is not None and exchange_gauge(adjacency, strategy.query, strategy.noise, points):
        return None  # noise under the one equation there is, on everything else
    if strategy.leak(law, Span.along(adjacency.manifold)) is None:
        return None
    free = adjacency.manifold.canonical.free
    place_of = {int(entry): place for place, entry in enumerate(free)}
    vectors = adjacency.exact_span()
    if len(free) * float(len(vectors)) > MOST_EXACT:
        raise AffineDPError(
            "the neighbours differ in a part of the manifold only, which is too large to be told "
            "from the rest in exact arithmetic. Give an adjacency that moves every entry"
        )
    rows = [{place_of[j]: c for j, c in vector.items() if j in place_of} for vector in vectors]
    reduced = reduce_exactly([row for row in rows if row])
    hidden = np.array(sorted(place for place, _ in reduced), dtype=np.intp)
    others: dict[int, Row] = {j: {} for j in range(len(free)) if j not in set(hidden.tolist())}
    for place, vector in reduced:
        for j, value in vector.items():
            if j != place:
                others[j][place] = value
    return SharedPart(hidden, others)


def shared_combinations(
    manifold: AffineManifold, query: Matrix, part: SharedPart
) -> tuple[str, ...]:
    """Return the combinations of entries that are published without noise, in words."""
    free = manifold.canonical.free
    seen = np.abs(dense(query @ manifold.kernel)).max(axis=0, initial=0.0) > 0
    found = []
    for j, row in part.rows.items():
        if seen[j]:
            coefficients = {int(free[j]): Fraction(1)}
            coefficients |= {int(free[place]): -value for place, value in row.items()}
            text = format_equation(coefficients, Fraction(0), manifold.names)
            found.append(text.rsplit(" = ", 1)[0])
    return tuple(found)
