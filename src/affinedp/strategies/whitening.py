"""The query in units of the noise, and combinations of outputs that no noise covers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_sparse, linked
from affinedp.errors import AffineDPError
from affinedp.laws.curves import EPS
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.norms import column_norms, first_largest

# What is left of F x outside the noise's range counts as a leak above this share.
LEAK = 1e-12
MOST_DENSE = 1e8
# Λ⁺F from a singular value decomposition is off by this many eps times the condition of Λ.
ROUNDINGS = 32
# Beyond this error a leak could hide in rounding.
MOST_ERROR = 1e-8


@dataclass(frozen=True)
class Whitened:
    """The query in units of the noise, and what the noise does not cover.

    Attributes
    ----------
    query : matrix, shape (r, n)
        Λ⁺F.
    error : float
        Its relative rounding error.
    full_column_rank : bool
        Whether Λ has independent columns.
    ranges : list of (outputs, basis)
        For each block of outputs that share noise and are not all covered, an orthonormal basis
        of what the noise covers.
    """

    query: Matrix
    error: float
    full_column_rank: bool
    ranges: list[tuple[IntArray, FloatArray]]


def moved_outputs(query: Matrix, adjacency: Adjacency) -> FloatArray:
    """Return ``F`` on vectors that span the neighbour directions, without rounding dust.

    An output that the equations fix moves by 0; floating point leaves a little.
    """
    return dense(_moved(query, adjacency))


def _moved(query: Matrix, adjacency: Adjacency) -> Matrix:
    """The same, sparse where the query and the manifold are."""
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


def whiten(noise: Matrix, query: Matrix) -> Whitened:
    """Return the query in units of the noise, block by block of outputs that share noise."""
    import scipy.sparse as sparse

    diagonal = _positive_diagonal(noise)
    if diagonal is not None:
        inverse = sparse.dia_array((1 / diagonal[None], [0]), shape=noise.shape)
        powers_of_two = np.all(np.frexp(diagonal)[0] == 0.5)
        return Whitened(inverse @ query, 0.0 if powers_of_two else 4 * EPS, True, [])
    blocks = _noise_blocks(noise)
    parts, ranges, places = [], [], []
    error, full_column_rank = 0.0, True
    for rows, columns in blocks:
        if len(columns) == 0:
            ranges.append((rows, np.zeros((len(rows), 0))))
            continue
        part = _whiten_block(dense(noise[rows][:, columns]), query[rows])
        parts.append(part.query)
        places.append(columns)
        ranges.extend((rows, covered) for _, covered in part.ranges)
        error = max(error, part.error)
        full_column_rank &= part.full_column_rank
    if not parts:
        raise AffineDPError("noise_matrix is zero: there is no noise")
    if len(blocks) == 1 and len(places[0]) == noise.shape[1]:
        return Whitened(parts[0], error, full_column_rank, ranges)
    stacked = sparse.coo_array(sparse.vstack([sparse.csr_array(part) for part in parts]))
    # a draw that no output has is no unit of anything: its row stays empty
    row = np.concatenate(places)[stacked.row]
    shape = (noise.shape[1], query.shape[1])
    whole = sparse.csr_array((stacked.data, (row, stacked.col)), shape=shape)
    return Whitened(whole, error, full_column_rank, ranges)


def _noise_blocks(noise: Matrix) -> list[tuple[IntArray, IntArray]]:
    """Outputs and noises that are connected through Λ; one block when Λ is dense."""
    m, r = noise.shape
    if not is_sparse(noise):
        return [(np.arange(m), np.arange(r))]
    import scipy.sparse as sparse

    pattern = sparse.coo_array(noise)
    label = linked(pattern.row, m + pattern.col, m + r)
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [(group[group < m], group[group >= m] - m) for group in groups if group[0] < m]


def _whiten_block(noise: FloatArray, query: Matrix) -> Whitened:
    """Whiten by singular values; columns are scaled first, so that small noise counts too."""
    if noise.shape[0] * float(max(noise.shape[1], query.shape[1])) > MOST_DENSE:
        raise AffineDPError(
            f"a noise matrix of shape {noise.shape} on {query.shape[1]} entries is too large to "
            "factor; noise in blocks (a sparse matrix) has no such limit"
        )
    rows = np.arange(noise.shape[0])
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
    covered = left.T @ query
    inverse = right.T @ (covered / values[:, None])
    error = ROUNDINGS * EPS * float(values[0] / values[-1])
    if error > MOST_ERROR:
        raise AffineDPError(
            "the noise matrix is too ill-conditioned to tell what it promises (singular values "
            f"{values[0]:.1e} to {values[-1]:.1e}). Leave out noise that is huge or tiny"
        )
    if len(values) == noise.shape[0]:  # noise in every direction covers everything
        return Whitened(inverse, error, full, [])
    return Whitened(inverse, error, full, [(rows, left)])


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


def find_leak(whitened: Whitened, query: Matrix, adjacency: Adjacency) -> FloatArray | None:
    """Return a combination of outputs with no noise in which neighbours differ, or None."""
    if not whitened.ranges:
        return None
    return _uncovered(whitened, moved_outputs(query, adjacency))


def _uncovered(whitened: Whitened, moved: FloatArray) -> FloatArray | None:
    """A combination of outputs without noise in which some of these vectors are not zero."""
    for rows, covered in whitened.ranges:
        whole = moved[rows]
        bare = whole - covered @ (covered.T @ whole)
        size = np.abs(whole).max(axis=0, initial=0.0)
        relative = bare[:, size > 0] / size[size > 0]
        if relative.size == 0 or np.abs(relative).max() <= max(LEAK, 32 * whitened.error):
            continue
        combination = np.zeros(len(moved))
        # what is bare has no noise in it; of equally large parts, the first movement's
        combination[rows] = relative[:, first_largest(column_norms(relative, 2))]
        combination[np.abs(combination) < 1e-9 * np.abs(combination).max()] = 0.0
        return combination
    return None


def covers(whitened: Whitened, outputs: FloatArray) -> bool:
    """Whether the noise reaches every combination of outputs that these vectors span.

    Parameters
    ----------
    whitened : Whitened
        The query in units of the noise.
    outputs : array, shape (m, k)
        Vectors of outputs, in the units in which the noise was whitened.
    """
    return _uncovered(whitened, outputs) is None


def combination_without_noise(
    adjacency: Adjacency, noise: Matrix, query: Matrix
) -> FloatArray | None:
    """Return a combination of outputs without noise in which neighbours differ, or None.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours.
    noise, query : matrices, shapes (m, p) and (m, n)
        Vectors that span the noise, and F.
    """
    unit = output_units(query, adjacency)
    leak = find_leak(whiten(unit @ noise, unit @ query), unit @ query, adjacency)
    return None if leak is None else normalised(leak @ unit)


def normalised(vector: FloatArray) -> FloatArray:
    """Return the vector with a largest entry of 1, the last nonzero one positive.

    Parameters
    ----------
    vector : array
        Not zero.
    """
    last = vector[np.flatnonzero(vector)[-1]]
    return np.asarray(vector / math.copysign(np.abs(vector).max(), last)) + 0.0
