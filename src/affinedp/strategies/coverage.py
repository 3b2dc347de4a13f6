"""Combinations of outputs that neighbours move and no noise reaches: Theorem 1's condition.

Whether noise covers what neighbours move is a question of rank.  For numbers that somebody wrote
down it is decided on those numbers, modulo primes, in whatever units they are.  Computed noise, of
doubles of full length, covers everything up to its rounding; outputs and draws are brought to one
size first, so that nothing small counts as rounding of something large.  Where its numbers as they
stand have another rank than they have up to rounding, nobody knows which was meant: it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, connected_parts, dense, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.modular import (
    PRIMES,
    Residues,
    draw_primes,
    product,
    rank_of_floats,
    reduced,
    residues_of_floats,
    residues_of_rationals,
)
from affinedp.exact.numbers import given_rows, meant_numbers
from affinedp.exact.rational import Echelon, inverse
from affinedp.exact.rounding import careful_product
from affinedp.neighbours.adjacency import Adjacency, as_float, first_largest

# Computed numbers are off by so many roundings for each row and column.
ROUNDINGS = 32
DUST = 64
# Numbers in a table of residues, and operations on it.
MOST_NUMBERS = 4_000_000
MOST_WORK = 3e8
# Terms of a sum of residues that fit into 64 bits.
MOST_TERMS = 2**15
# Operations up to which a leak is shown as the exact combination.
MOST_SHOWN = 100_000
# A root whose singular values differ by less has full rank, whatever rounding did.
CLEAR_RANK = 1e-8
MOST_ROOT = 1_000_000
ROUNDS = 4
# Pivots between which noise is inverted in exact arithmetic.
FEW_PIVOTS = 12

NOT_COVERED = "the noise does not cover the range of the query"
UNDECIDED = "the rank of the noise cannot be decided in exact arithmetic: rescale the outputs"
LAST_DIGITS = (
    "the rank of the noise matrix hangs on the last digits of its numbers: up to rounding it is "
    "{}, and as they stand it is higher. Give independent columns, numbers of up to 15 digits, or "
    "the covariance of Gaussian noise"
)

BoolArray = NDArray[np.bool_]
Vector = Mapping[int, Fraction]


@dataclass(frozen=True, eq=False)
class Span:
    """Vectors that span differences of data, in doubles and exactly."""

    # returns them as columns
    floats: Callable[[], Matrix]
    # returns them in rational numbers, or raises where that is not known
    exact: Callable[[], Sequence[Vector]]
    # relative error of the doubles
    error: float

    @classmethod
    def of(cls, adjacency: Adjacency) -> Span:
        """Return the span of all moves between neighbours."""
        return cls(adjacency.span, adjacency.exact_span, adjacency.manifold.kernel_error)

    @classmethod
    def along(cls, manifold: AffineManifold) -> Span:
        """Return everything that the equations leave open."""
        return cls(lambda: manifold.kernel, lambda: manifold.exact_kernel, manifold.kernel_error)


def has_full_row_rank(matrix: Matrix) -> bool:
    """Whether a computed matrix has independent rows, whatever rounding did."""
    if matrix.shape[0] > matrix.shape[1] or matrix.shape[0] * float(matrix.shape[1]) > MOST_ROOT:
        return False
    size = dense(abs(matrix).max(axis=1)).ravel()
    if not np.all(size > 0):
        return False
    values = np.linalg.svd(dense(matrix) / size[:, None], compute_uv=False)
    return bool(values[-1] > CLEAR_RANK * values[0])


def bare_combination(
    noise: Matrix, query: Matrix, span: Span, error: float = 0.0, designed: bool = False
) -> FloatArray | None:
    """Return a combination of outputs without noise in which data may differ, or None.

    What is released with noise that was designed covers all moves by the way it is drawn, so that
    its zeros may be off by rounding; those of noise that was given are zeros.
    """
    if not noise.nnz if is_sparse(noise) else not noise.any():
        raise AffineDPError("noise_matrix is zero: there is no noise")
    # an output with a draw of its own is covered
    shared = [block for block in noise_blocks(noise) if len(block[0]) > 1 or not len(block[1])]
    if not shared:
        return None
    moved = _Moved(query, span)
    for rows, columns in shared:
        part = dense(noise[rows][:, columns])
        if error == 0.0 and meant_numbers(part) and moved.is_exact(part):
            found = _bare_exactly(part, moved, rows)
        else:
            pivots, draws = _pivots(part)
            given = error == 0.0 and not designed and len(pivots) < min(part.shape)
            if given and rank_of_floats(part) > len(pivots):
                raise AffineDPError(LAST_DIGITS.format(len(pivots)))
            rounding = ROUNDINGS * sum(part.shape) * EPS + span.error + error
            found = _bare_in_floats(part, pivots, draws, moved.floats(rows), rounding, designed)
        if found is not None:
            combination = np.zeros(noise.shape[0])
            combination[rows] = found
            return normalised(combination)
    return None


def covers_by_rounding(noise: Matrix, query: Matrix, span: Span) -> bool:
    """Whether noise that covers all moves up to rounding misses some as its numbers stand."""
    shared = ((rows, columns) for rows, columns in noise_blocks(noise) if len(rows) > 1)
    parts = [(rows, dense(noise[rows][:, columns])) for rows, columns in shared]
    computed = [(rows, part) for rows, part in parts if not meant_numbers(part)]
    if not computed:
        return False
    moved = _Moved(query, span)
    return any(
        moved.is_exact(part) and _bare_exactly(part, moved, rows) is not None
        for rows, part in computed
    )


def noise_blocks(noise: Matrix) -> list[tuple[IntArray, IntArray]]:
    """Return outputs and draws that are connected through Λ; one block when Λ is dense."""
    if not is_sparse(noise):
        return [(np.arange(noise.shape[0]), np.arange(noise.shape[1]))]
    return [(rows, columns) for rows, columns in connected_parts(noise) if len(rows)]


def normalised(vector: FloatArray) -> FloatArray:
    """Return the vector with a largest entry of 1, the last nonzero one positive."""
    last = vector[np.flatnonzero(vector)[-1]]
    return np.asarray(vector / math.copysign(np.abs(vector).max(), last)) + 0.0


def noise_rank(noise: FloatArray) -> int:
    """Return the rank of noise: exactly if its numbers were given, else up to their rounding."""
    few = float(noise.size) * min(noise.shape) <= MOST_WORK
    return rank_of_floats(noise) if few and meant_numbers(noise) else len(_pivots(noise)[0])


class _Moved:
    """How differences of data move outputs: F on their span."""

    def __init__(self, query: Matrix, span: Span) -> None:
        import scipy.sparse as sparse

        self.query, self._span = sparse.csr_array(query), span
        self.vectors: Sequence[Vector] | None = None
        n = query.shape[1]
        try:
            vectors = span.exact()
        except AffineDPError:  # not known, or too many
            return
        if n < MOST_TERMS and n * float(len(vectors)) <= MOST_NUMBERS:
            self.vectors = vectors
            self._entry = np.array([i for v in vectors for i in v], dtype=np.intp)
            counts = [len(v) for v in vectors]
            self._column = np.repeat(np.arange(len(vectors)), counts)
            self._values = [value for v in vectors for value in v.values()]

    def is_exact(self, part: FloatArray) -> bool:
        """Whether the rank of some noise and these vectors is found without rounding."""
        if self.vectors is None:
            return False
        m, r = part.shape
        return bool(m * float(r) * (r + len(self.vectors)) <= MOST_WORK)

    def modulo(self, rows: IntArray, prime: int) -> Residues:
        """Return the vectors on some outputs modulo a prime."""
        import scipy.sparse as sparse

        assert self.vectors is not None
        span = np.zeros((self.query.shape[1], len(self.vectors)), dtype=np.int64)
        span[self._entry, self._column] = residues_of_rationals(self._values, prime)
        part = self.query[rows]
        left = residues_of_floats(part.data, prime)
        numbers = sparse.csr_array((left, part.indices, part.indptr), shape=part.shape)
        return product(numbers, span, prime)

    def floats(self, rows: IntArray) -> FloatArray:
        """Return the vectors on some outputs, with zeros where there is nothing but rounding."""
        import scipy.sparse as sparse

        if self.vectors is not None and not self._values:
            return np.zeros((len(rows), 0))
        if self.vectors is None:
            span: Matrix = self._span.floats()
        else:
            values = [as_float(value) for value in self._values]
            shape = (self.query.shape[1], len(self.vectors))
            span = sparse.csr_array((values, (self._entry, self._column)), shape=shape)
        found = dense(careful_product(self.query[rows], span))
        terms = dense(abs(self.query[rows]) @ abs(span))
        small = np.abs(found) <= (DUST * EPS + self._span.error) * terms
        if self.vectors is not None and small.any() and found.any():
            small &= self._vanish(rows)
        return np.where(small, 0.0, found)

    def _vanish(self, rows: IntArray) -> BoolArray:
        """Which of the numbers are exactly zero."""
        for prime in draw_primes(self.query.data.tobytes()):
            try:
                return np.asarray(self.modulo(rows, prime) == 0)
            except ArithmeticError:
                continue
        raise AffineDPError(UNDECIDED)


def _bare_exactly(noise: FloatArray, moved: _Moved, rows: IntArray) -> FloatArray | None:
    """The same for numbers that were given, on these outputs."""
    best: tuple[int, IntArray, list[int]] | None = None
    seen = 0
    for prime in draw_primes(noise.tobytes() + moved.query.data.tobytes()):
        try:
            vectors = moved.modulo(rows, prime)
            form, pivots = reduced(residues_of_floats(noise, prime).T, None, prime)
        except ArithmeticError:
            continue
        if best is not None and len(pivots) < len(best[2]):
            continue  # a minor vanishes modulo this prime
        rest = (vectors - product(form.T, vectors[pivots], prime)) % prime
        bare = np.flatnonzero(rest.any(axis=1))
        if best is None or len(pivots) > len(best[2]):
            best, seen = (prime, bare, pivots), 0
        best = (prime, np.union1d(best[1], bare), pivots)
        seen += 1
        if seen == PRIMES:
            return _combination(noise, pivots, best[1])
    raise AffineDPError(UNDECIDED)


def _combination(noise: FloatArray, pivots: list[int], bare: IntArray) -> FloatArray | None:
    """One of the bare outputs with what takes its noise out of it."""
    if not len(bare):
        return None
    place, rank = int(bare[0]), len(pivots)
    found = np.zeros(len(noise))
    if float(rank) * rank * noise.shape[1] > MOST_SHOWN:
        weights = np.linalg.lstsq(noise[pivots].T, noise[place], rcond=None)[0]
        found[place], found[pivots] = 1.0, -weights
        return found
    draws = noise.shape[1]
    exact = given_rows(noise[[*pivots, place]])
    space = Echelon(draws)
    for i, row in enumerate(exact[:-1]):
        space.add({**row, draws + i: 1})
    rest = space.rest({**exact[-1], draws + rank: 1})
    largest = max(map(abs, rest.values()))
    for i, value in rest.items():
        found[[*pivots, place][i - draws]] = float(Fraction(value, largest))
    return found


def _bare_in_floats(
    noise: FloatArray,
    pivots: IntArray,
    draws: IntArray,
    moved: FloatArray,
    rounding: float,
    designed: bool,
) -> FloatArray | None:
    """The same for computed noise: what is left beyond its rounding.

    Draws that make the moves of some outputs, as many as are independent, must make those of the
    others too, up to the rounding of all terms: whatever the units of outputs and draws.
    """
    moved = moved[:, moved.any(axis=0)]
    if not moved.size:
        return None
    others = np.setdiff1d(np.arange(len(noise)), pivots)
    if not len(others):
        return None
    square, beside = noise[np.ix_(pivots, draws)], noise[np.ix_(others, draws)]
    back = _inverse(square)
    weights, made = beside @ back, np.abs(back @ moved[pivots])
    rest = moved[others] - weights @ moved[pivots]
    terms = np.abs(moved[others]) + np.abs(beside) @ made
    terms += np.abs(weights) @ (np.abs(square) @ made + np.abs(moved[pivots]))
    sizes = terms
    if designed:  # a move that draws reach by rounding alone has the size of all that it moves
        sizes = np.vstack([terms, np.abs(moved[pivots]) + np.abs(square) @ made])
    row, column = _scales(sizes)
    share = np.abs(rest) / row[: len(others)] / column
    if share.max() <= rounding:
        return None
    chosen = first_largest(share.max(axis=1))
    found = np.zeros(len(noise))
    found[others[chosen]], found[pivots] = 1.0, -weights[chosen]
    return found


def _pivots(noise: FloatArray) -> tuple[IntArray, IntArray]:
    """Outputs and draws between which the noise is regular, as many as can be."""
    from scipy.linalg import qr

    if not noise.any():
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    row, column = _scales(np.abs(noise))
    scaled = noise / row / column
    triangle, order = qr(scaled.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > 16 * max(noise.shape) * EPS * diagonal[0]).sum())
    pivots = np.sort(order[:rank])
    return pivots, np.sort(qr(scaled[pivots], mode="r", pivoting=True)[1][:rank])


def _inverse(square: FloatArray) -> FloatArray:
    """The inverse of a regular matrix, from exact numbers where they are few."""
    if len(square) <= FEW_PIVOTS:
        exact = inverse([[Fraction(c) for c in row] for row in square.tolist()])
        if exact is not None:
            rows = [[float(c) for c in row] for row in exact]
            return np.array(rows).reshape(square.shape)
    row, column = _scales(np.abs(square))
    return np.asarray(np.linalg.inv(square / row / column) / column.T / row.T)


def _scales(sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Powers of two for rows and columns: the largest numbers in each become about 1."""
    row, column = np.ones((len(sizes), 1)), np.ones((1, sizes.shape[1]))
    for _ in range(ROUNDS):
        for axis, scale in ((0, column), (1, row)):
            largest = (sizes / row / column).max(axis=axis, keepdims=True, initial=0.0)
            scale *= np.ldexp(1.0, np.where(largest > 0, np.frexp(largest)[1], 0))
    return row, column
