"""``F x + Λ η`` as matrices: what is measured, what noise misses, what neighbours share.

What is measured is the query in units of the noise, ``Λ⁺F x``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, dense, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import format_equation
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows, meaning, meant_numbers, nonzeros
from affinedp.exact.rational import RationalMatrix, combination, reduce_exactly
from affinedp.exact.rounding import careful_product
from affinedp.laws.base import Law
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency, ExactMatrix
from affinedp.parts import frozen
from affinedp.strategies.base import Prepared, Strategy
from affinedp.strategies.coverage import (
    Span,
    bare_combination,
    has_full_row_rank,
    noise_blocks,
    noise_rank,
)
from affinedp.strategies.one_sum import exchange_gauge

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 1e8
# Rational operations up to which the noise is inverted exactly.
MOST_EXACT_WORK = 100_000
MOST_EXACT_NUMBERS = 5_000
MOST_ENTRIES = 200
# Λ⁺F from a singular value decomposition is off by this many eps times the condition of Λ.
ROUNDINGS = 32
# Beyond this error what is promised is not known.
MOST_ERROR = 1e-8


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

    @cached_property
    def keeps_whole(self) -> bool:
        """Whether whole data with whole noise has whole outputs."""
        numbers = self.query.data if is_sparse(self.query) else self.query
        return bool(np.all(numbers == np.rint(numbers)))

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
        rows = self.free_rows(law, combinations)
        return law.reach_together(rows, outside) if together else law.reach(rows, outside)

    def free_rows(self, law: Law, combinations: Matrix | None) -> Matrix:
        """Return combinations in terms of noise of which no row but 0 has none.

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


# ---------------------------------------------------------------------- the query in units of noise


def exact_whitening(manifold: AffineManifold, noise: Matrix, query: Matrix) -> ExactMatrix | None:
    """Return Λ⁺F exactly, or None where numbers are long, many, or Λ's columns are dependent.

    Noise that is exactly tight must be seen to be so, where the equations, the query and the noise
    are integers or short decimals, and few.
    """
    if manifold.exact_rows is None or manifold.canonical.exact_rows is None:
        return None
    (m, r), n = noise.shape, manifold.n
    if max(n, m) > MOST_ENTRIES or not (_is_short(noise) and _is_short(query)):
        return None
    left, right = given_rows(noise), given_rows(query)
    single = [next(iter(row)) for row in left if len(row) == 1]
    if len(single) == m and len(set(single)) == m == r:  # independent noise on every output
        found: list[dict[int, Fraction]] = [{} for _ in left]
        for noisy, row in zip(left, right):
            ((place, scale),) = noisy.items()
            found[place] = {j: value / scale for j, value in row.items()}
        return ExactMatrix.of_rationals(found)
    if float(r) * r * (m + r) + float(r) * m * n > MOST_EXACT_WORK:
        return None
    root, seen = (RationalMatrix.meant(dense(matrix)) for matrix in (noise, query))
    inverse = (root.T @ root).inverse()
    if inverse is None:
        return None
    solved = inverse @ (root.T @ seen)
    unit = Fraction(1, solved.over)
    rows = [{j: unit * c for j, c in enumerate(row) if c} for row in solved.values.tolist()]
    return ExactMatrix.of_rationals(rows)


def _is_short(matrix: Matrix) -> bool:
    """Whether the numbers are short decimals, and few."""
    values = nonzeros(matrix)[2]
    return len(values) <= MOST_EXACT_NUMBERS and meant_numbers(values)


@dataclass(frozen=True)
class Whitened:
    """The query in units of the noise."""

    # Λ⁺F; shape (r, n)
    query: Matrix
    # its relative rounding error
    error: float
    # whether Λ has independent columns
    full_column_rank: bool


def _moved(query: Matrix, adjacency: Adjacency) -> Matrix:
    """``F`` on vectors that span the neighbour directions, without rounding dust."""
    import scipy.sparse as sparse

    span = adjacency.span()
    moved, terms = query @ span, abs(query) @ abs(span)
    share = 64 * EPS + adjacency.manifold.kernel_error
    if not is_sparse(moved):
        return np.where(np.abs(moved) <= share * terms, 0.0, moved)
    clear = sparse.csr_array(abs(moved) > share * terms)
    return sparse.csr_array(moved * clear)


def output_units(query: Matrix, adjacency: Adjacency) -> Matrix:
    """Return diagonal powers of two that make neighbours move every output by about 1.

    The promise does not change, and an output in small units cannot hide a leak.
    """
    import scipy.sparse as sparse

    moved = abs(_moved(query, adjacency))
    size = dense(moved.max(axis=1)).ravel() if moved.shape[1] else np.zeros(moved.shape[0])
    # a power of two that is itself a number, also for moves that are not normal numbers
    exponent = np.clip(np.where(size > 0, np.frexp(size)[1], 0), -1000, 1000)
    return sparse.csr_array(sparse.diags_array(np.ldexp(1.0, -exponent)))


def in_output_units(noise: Matrix, query: Matrix, adjacency: Adjacency) -> tuple[Matrix, Matrix]:
    """Return noise and query in units in which neighbours move outputs by about 1."""
    unit = output_units(query, adjacency)
    found = unit @ noise, unit @ query
    for given, scaled in zip((noise, query), found):
        # what is no number in these units would be taken for none
        if nonzeros(scaled)[2].size < nonzeros(given)[2].size:
            raise AffineDPError(
                "the noise is too small beside what neighbours move for double precision: choose "
                "another unit, or leave out noise that is tiny"
            )
    return found


def whiten(noise: Matrix, query: Matrix) -> Whitened:
    """Return the query in units of the noise, block by block of outputs that share noise."""
    import scipy.sparse as sparse

    diagonal = _positive_diagonal(noise)
    if diagonal is not None:
        inverse = sparse.dia_array((1 / diagonal[None], [0]), shape=noise.shape)
        powers_of_two = np.all(np.frexp(diagonal)[0] == 0.5)
        return Whitened(inverse @ query, 0.0 if powers_of_two else 4 * EPS, True)
    blocks = noise_blocks(noise)
    parts, places = [], []
    error, full_column_rank = 0.0, True
    for rows, columns in blocks:
        if len(columns) == 0:
            continue
        part = _whiten_block(dense(noise[rows][:, columns]), query[rows])
        parts.append(part.query)
        places.append(columns)
        error = max(error, part.error)
        full_column_rank &= part.full_column_rank
    if not parts:
        raise AffineDPError("noise_matrix is zero: there is no noise")
    if len(blocks) == 1 and len(places[0]) == noise.shape[1]:
        return Whitened(parts[0], error, full_column_rank)
    stacked = sparse.coo_array(sparse.vstack([sparse.csr_array(part) for part in parts]))
    # a draw that no output has is no unit of anything: its row stays empty
    row = np.concatenate(places)[stacked.row]
    shape = (noise.shape[1], query.shape[1])
    whole = sparse.csr_array((stacked.data, (row, stacked.col)), shape=shape)
    return Whitened(whole, error, full_column_rank)


def _whiten_block(noise: FloatArray, query: Matrix) -> Whitened:
    """Whiten by singular values; columns are scaled first, so that small noise counts too."""
    if noise.shape[0] * float(max(noise.shape[1], query.shape[1])) > MOST_NUMBERS:
        raise AffineDPError(
            f"a noise matrix of shape {noise.shape} on {query.shape[1]} entries is too large to "
            "factor; noise in blocks (a sparse matrix) has no such limit"
        )
    largest = np.abs(noise).max(axis=0)
    if not largest.any():
        raise AffineDPError("noise_matrix is zero: there is no noise")
    # squares of tiny or huge noise must not leave the range of floating point
    with np.errstate(over="ignore"):
        size = largest * np.linalg.norm(noise / np.where(largest > 0, largest, 1.0), axis=0)
    if not math.isfinite(float(size.sum())):  # LAPACK might never return
        raise AffineDPError("the noise is too large for double precision: choose another unit")
    full = bool(np.all(size > 0))
    if full:
        left, values, right = _singular_values(noise / size)
        full = len(values) == noise.shape[1]
        right = right / size
    if not full:
        # for Gaussian noise any root of the same covariance will do, and the pseudo-inverse
        # bounds the 1-norm of Laplace noise too
        left, values, right = _singular_values(noise)
    inverse = right.T @ (left.T @ query / values[:, None])
    error = ROUNDINGS * EPS * float(values[0] / values[-1])
    if error > MOST_ERROR or (not full and len(values) != noise_rank(noise)):
        raise AffineDPError(
            "the noise matrix is too ill-conditioned to tell what it promises (singular values "
            f"{values[0]:.1e} to {values[-1]:.1e}). Leave out noise that is huge or tiny"
        )
    return Whitened(inverse, error, full)


def _singular_values(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The singular value decomposition without what is zero up to rounding."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > 16 * max(matrix.shape) * EPS * values[0]
    return left[:, kept], values[kept], right[kept]


def _positive_diagonal(noise: Matrix) -> FloatArray | None:
    """The diagonal, if the noise is independent on every output."""
    if noise.shape[0] != noise.shape[1]:
        return None
    diagonal = np.asarray(noise.diagonal())
    entries = noise.count_nonzero() if is_sparse(noise) else np.count_nonzero(noise)
    return np.abs(diagonal) if np.all(diagonal != 0) and entries == len(diagonal) else None


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

    @property
    def places(self) -> set[int]:
        """The places among the free entries that e is computed from."""
        return {place for j, row in self.rows.items() for place in (j, *row)}

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
        spread = {j: {column[place]: c for place, c in row.items()} for j, row in self.rows.items()}
        spread |= {place: {i: Fraction(1)} for place, i in column.items()}
        return [combination((weight, spread[j]) for j, weight in row.items()) for row in rows]

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
    if not others and strategy.leak(law, Span.of(adjacency)) is None:
        return None  # all that is open is moved, and noise covers the moves
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


@dataclass(frozen=True, eq=False)
class DensePlan(Prepared):
    """The public part of releases of ``F x + Λ η``."""

    strategy: Matrices
    # the public bound on the data
    bound: float | None
    # what neighbours have in common and is published as it is; None where noise hides all
    common: SharedPart | None = field(repr=False)
    # F x_p of a public point
    offset: FloatArray = field(repr=False)
    # data beyond this is refused
    largest: float
    # what follows from the outputs, where that is what is published; shape (k, m)
    followed: FloatArray | None = field(default=None, repr=False, kw_only=True)

    def check(self, data: FloatArray) -> None:
        """Refuse data beyond the declared bound, or beyond what is released exactly."""
        size = float(np.abs(data).max(initial=0.0))
        if self.bound is not None and size > self.bound:
            raise AffineDPError("some entry of x is larger than the declared bound")
        if size > self.largest:
            raise AffineDPError(
                f"some entry of x is beyond {self.largest:.1e}, up to which data is released "
                "exactly with this noise. Nothing was released; change the units, or release fewer "
                "combinations at once"
            )

    def shared(self, data: FloatArray) -> FloatArray:
        """Return what is published without noise: equal for neighbours, bit for bit."""
        if self.common is None:
            return self.offset
        free = data[:, self.strategy.domain.canonical.free]
        return np.asarray(self.offset + self.common.values(free) @ self.kernel.T)

    @cached_property
    def kernel(self) -> FloatArray:
        """F K: what free entries make of the outputs."""
        return dense(self.strategy.query @ self.strategy.domain.kernel)

    def published(self, outputs: FloatArray) -> FloatArray:
        """Return outputs, or what follows from them."""
        return np.asarray(outputs if self.followed is None else outputs @ self.followed.T)
