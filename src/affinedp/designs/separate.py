"""Split a design into blocks that have nothing to do with each other.

Two entries belong to one block if an equation binds them (one matroid component), an
output mixes them, or a weight couples their outputs.  Directions lie in one component, so
block-diagonal noise is optimal for block-diagonal weights, and identical blocks are
designed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, groups, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import check_squares, dimensions, real_array, real_matrix
from affinedp.neighbours.adjacency import Adjacency

# Terms of an output that cancel leave so much of themselves, times their number.
ROUNDED = 2.0**-50
LISTED = 2_000_000
UNITS = "the data, of mu or of the query"
NOTHING_TO_HIDE = "the query does not depend on what neighbours differ in: no noise needed"
MOST_NUMBERS = 2e8
# Weights that leave a direction (nearly) free get this share of their largest as a floor.
FLOOR = 1e-6
SINGULAR = 1e-9


@dataclass(frozen=True)
class Block:
    """One block of a design problem, in coordinates of the range of F on the manifold."""

    outputs: IntArray  # its outputs
    # basis of what F spans there, orthonormal in units of the outputs' movements; shape (outputs,
    # r)
    basis: FloatArray
    directions: FloatArray  # neighbour directions in those coordinates, one per row; shape (K, r)
    weight: FloatArray  # cost of noise in those coordinates; shape (r, r)
    moves: Matrix  # the directions as differences of data; shape (n, K)

    @property
    def numbers(self) -> FloatArray:
        """The outputs, and the entries that they determine, in these coordinates, as rows."""
        moves = dense(self.moves).T
        entries = np.linalg.lstsq(self.directions, moves, rcond=None)[0]
        off = np.abs(self.directions @ entries - moves).max(axis=0)
        size = np.abs(moves).max(axis=0)
        rows = np.vstack([self.basis, entries[:, off <= SINGULAR * size].T])
        rows = rows[rows.any(axis=1)]
        unit = np.abs(rows).max(axis=1, keepdims=True)
        seen = np.hstack([rows / unit, np.log(unit)]).round(9)
        return np.asarray(rows[np.sort(np.unique(seen, axis=0, return_index=True)[1])])

    @cached_property
    def key(self) -> str:
        """A hash that is equal for identical problems."""
        digest = hashlib.sha256()
        for array in (self.basis, self.directions, self.weight):
            digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def checked_weights(weights: object, outputs: int) -> Matrix:
    """Return the weights as a matrix: the identity, a diagonal, or what was given."""
    import scipy.sparse as sparse

    if weights is None:
        return sparse.csr_array(sparse.eye_array(outputs))
    if not is_sparse(weights) and dimensions(weights, "weights") == 1:
        diagonal = real_array(weights, "weights", 1)  # type: ignore[arg-type]
        if diagonal.shape != (outputs,):
            raise AffineDPError(f"there are {len(diagonal)} weights for {outputs} outputs")
        if np.any(diagonal < 0) or not diagonal.any():
            raise AffineDPError("weights must not be negative, nor all zero")
        return sparse.csr_array(sparse.diags_array(diagonal))
    matrix = real_matrix(weights, "weights")
    if matrix.shape != (outputs, outputs):
        raise AffineDPError(f"weights has shape {matrix.shape}, but there are {outputs} outputs")
    if abs(matrix - matrix.T).max() > 1e-12 * abs(matrix).max():
        raise AffineDPError("weights is not symmetric: pass (W + W.T) / 2")
    own = matrix.diagonal()
    if abs(matrix).sum() == np.abs(own).sum():  # nothing beside the diagonal
        if own.min() < 0 or own.max() <= 0:
            raise AffineDPError("weights must not be negative, nor all zero")
    elif outputs <= 5_000:
        values = np.linalg.eigvalsh(dense(matrix))
        if values[0] < -1e-12 * max(values[-1], 0.0) or values[-1] <= 0:
            raise AffineDPError("weights is not positive semidefinite, or zero")
    return matrix


def split(
    adjacency: Adjacency, query: Matrix, weights: Matrix, limit: int = LISTED
) -> Iterator[Block]:
    """Yield the blocks of the problem, those without any neighbour direction left out."""
    import scipy.sparse as sparse

    query = sparse.csr_array(query)
    weights = sparse.csr_array(weights)
    directions = sparse.csc_array(adjacency.directions(limit))
    for outputs, columns in _connected(query, weights, directions):
        image = dense(query[outputs] @ directions[:, columns])
        # outputs that do not move, and moves of no output, have rounding errors in place of zeros
        terms = dense(abs(query[outputs]) @ abs(directions[:, columns]))
        dust = np.abs(image) <= ROUNDED * query.shape[1] * terms
        image[dust.all(axis=1)] = 0.0
        image[:, dust.all(axis=0)] = 0.0
        size = np.abs(image).max(axis=1)
        check_squares(size, "neighbours move an output by", UNITS)
        # outputs in units of how far neighbours move them: small ones must not drown in rounding
        unit = np.ldexp(1.0, np.frexp(size)[1])
        unit[~image.any(axis=1)] = 1.0
        image = image / unit[:, None]
        orthonormal = range_basis(image)
        if orthonormal.shape[1] == 0:
            continue
        basis = orthonormal * unit[:, None]
        weight = basis.T @ dense(weights[outputs][:, outputs]) @ basis
        coordinates = (orthonormal.T @ image).T
        moves = directions[:, columns]
        yield Block(outputs, basis, coordinates, (weight + weight.T) / 2, moves)


class Spanned(Protocol):
    """Outputs, and what makes them of coordinates."""

    @property
    def outputs(self) -> IntArray:
        """The outputs."""

    @property
    def basis(self) -> FloatArray:
        """One row per output, one column per coordinate."""


def together(
    parts: Sequence[Spanned], roots: Sequence[FloatArray], outputs: int
) -> tuple[Matrix, Matrix]:
    """Return basis and root of all blocks; dense where there is one."""
    import scipy.sparse as sparse

    if len(parts) == 1:
        basis = np.zeros((outputs, parts[0].basis.shape[1]))
        basis[parts[0].outputs] = parts[0].basis
        return basis, roots[0]
    place = np.concatenate([part.outputs for part in parts])
    spread = sparse.csr_array(
        (np.ones(len(place)), (place, np.arange(len(place)))), shape=(outputs, len(place))
    )
    stacked = sparse.csr_array(sparse.block_diag([part.basis for part in parts]))
    return sparse.csr_array(spread @ stacked), sparse.csr_array(sparse.block_diag(roots))


def _connected(
    query: Matrix, weights: Matrix, directions: Matrix
) -> Iterator[tuple[IntArray, IntArray]]:
    """Outputs, and the directions that reach them, block by block."""
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import connected_components

    reach = sparse.csr_array(abs(query) @ abs(directions))
    count = reach.shape[0]
    links = sparse.block_array([[weights, reach], [reach.T, None]], format="csr")
    label = connected_components(links, directed=False)[1]
    for group in groups(label):
        outputs, columns = group[group < count], group[group >= count] - count
        if len(outputs) and len(columns):
            if len(outputs) * float(len(columns)) > MOST_NUMBERS:
                raise AffineDPError(
                    f"a block of {len(outputs):,} outputs and {len(columns):,} neighbour "
                    "directions does not fit in memory"
                )
            yield outputs, columns


def range_basis(image: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the column space, its rank decided by a gap."""
    from scipy.linalg import qr

    scale = np.linalg.norm(image, axis=0)
    columns = image[:, scale > 0] / scale[scale > 0]
    if columns.shape[1] == 0:
        return np.zeros((image.shape[0], 0))
    orthogonal, triangle, _ = qr(columns, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > 1e-10 * diagonal[0]).sum())
    if rank < len(diagonal) and diagonal[rank] > 1e-13 * diagonal[0]:
        raise AffineDPError(
            "the query is too ill-conditioned to design noise for: it is not clear how many "
            "independent combinations it reveals (relative pivot "
            f"{diagonal[rank] / diagonal[0]:.1e}). Rescale or drop nearly dependent outputs"
        )
    kept = orthogonal[:, :rank]
    kept[~image.any(axis=1)] = 0.0  # an output that does not move has no dust either
    largest = kept[np.abs(kept).argmax(axis=0), np.arange(rank)]
    return np.asarray(kept * np.sign(largest))


def given_basis(adjacency: Adjacency, query: Matrix, basis: ArrayLike | None) -> FloatArray:
    """Return the basis that Algorithms 1 and 2 take: the given one, or an orthonormal one."""
    if basis is None:
        return range_basis(dense(query @ adjacency.span()))
    chosen = real_array(basis, "basis", 2)
    if chosen.shape[0] != query.shape[0]:
        raise AffineDPError(f"basis has {chosen.shape[0]} rows for {query.shape[0]} outputs")
    return chosen


def with_floor(weight: FloatArray, lengths: FloatArray | None = None) -> tuple[FloatArray, float]:
    """Return a positive definite weight, and the floor that was added for it (or 0)."""
    scale = np.ones(len(weight)) if lengths is None else np.where(lengths > 0, lengths, 1.0)
    scaled = weight * scale[:, None] * scale
    size = np.diagonal(scaled)
    if not size.max() > 0:
        raise AffineDPError(
            "the weights are zero on everything that a part of the query reveals, so that its "
            "noise could be anything: give its outputs a small weight, or leave them out"
        )
    unit = np.sqrt(np.maximum(size, SINGULAR * size.max()))
    # relative to each coordinate's own size, so that units do not count as singular
    values = np.linalg.eigvalsh(scaled / unit[:, None] / unit)
    if values[0] > SINGULAR * values[-1]:
        return weight, 0.0
    floor = FLOOR * float(values[-1])
    return weight + floor * np.diag((unit / scale) ** 2), floor


def floor_note(floor: float) -> str:
    """Say that and why a floor was added to the weights."""
    return (
        f"the weights leave some combination of outputs free; a floor of {floor:.2g} on every "
        "combination was added, without which no least noise exists"
    )
