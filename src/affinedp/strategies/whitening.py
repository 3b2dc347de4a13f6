"""The query in units of the noise: Λ⁺F."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows, meant_numbers, nonzeros
from affinedp.exact.rational import RationalMatrix
from affinedp.laws.curves import EPS
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.norms import ExactMatrix
from affinedp.strategies.coverage import noise_blocks, noise_rank

# Rational operations up to which the noise is inverted exactly.
MOST_WORK = 100_000
MOST_NUMBERS = 5_000
MOST_ENTRIES = 200


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
    if float(r) * r * (m + r) + float(r) * m * n > MOST_WORK:
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
    return len(values) <= MOST_NUMBERS and meant_numbers(values)


MOST_DENSE = 1e8
# Λ⁺F from a singular value decomposition is off by this many eps times the condition of Λ.
ROUNDINGS = 32
# Beyond this error what is promised is not known.
MOST_ERROR = 1e-8


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
    if noise.shape[0] * float(max(noise.shape[1], query.shape[1])) > MOST_DENSE:
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
