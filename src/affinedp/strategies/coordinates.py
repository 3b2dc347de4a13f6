"""Coordinates of noise: which z makes a difference of outputs, in exact numbers and in doubles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, connected_parts, dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows, meaning, meant_numbers
from affinedp.exact.rational import Echelon, inverse
from affinedp.laws.base import Law
from affinedp.laws.knorm import KNorm
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.norms import as_float

Piece = tuple[IntArray, list[list[Fraction]] | None, list[dict[int, Fraction]]]

# Numbers of points that are still eliminated in rational arithmetic.
MOST_EXACT = 2_000
DEPENDENT = "the vectors that span the noise are dependent"


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates z of a difference of data v: z = matrix @ v.

    Attributes
    ----------
    matrix : matrix, shape (r, n)
        In doubles.
    pieces : list of (rows, left, right)
        The same exactly: rows of z are ``left @ (right @ v)`` with rational left and right.
    """

    matrix: Matrix
    pieces: list[Piece]

    @classmethod
    def of(cls, query: Matrix, basis: Matrix, law: Law) -> Coordinates:
        """Solve ``F v = basis z`` for z, from as many outputs as there are coordinates.

        Parameters
        ----------
        query, basis : matrices
            F, and what makes outputs of z.
        law : Law
            Says which coordinates are bound by a sum.
        """
        import scipy.sparse as sparse

        bound = law.bodies.sums if isinstance(law, KNorm) else ()
        size = int(basis.shape[1])
        extra = sparse.csr_array((len(bound), size))
        if bound:
            place = np.concatenate([np.full(len(p.rows), i) for i, p in enumerate(bound)])
            values = np.concatenate([part.signs for part in bound])
            rows = np.concatenate([part.rows for part in bound])
            extra = sparse.csr_array((values, (place, rows)), shape=(len(bound), size))
        left = sparse.csr_array(sparse.vstack([sparse.csr_array(basis), extra]))
        left.eliminate_zeros()
        empty = sparse.csr_array((len(bound), query.shape[1]))
        right = sparse.csr_array(sparse.vstack([sparse.csr_array(query), empty]))
        pieces: list[Piece] = []
        blocks, order = [], []
        for rows, outputs in _pieces(left):
            square = sparse.csr_array(left[outputs][:, rows])
            seen = sparse.csr_array(right[outputs])
            numbers = _exact_rows(seen)
            if _is_identity(square):
                blocks.append(seen)
                pieces.append((rows, None, numbers))
            else:
                exact = inverse([[meaning(c) for c in row] for row in dense(square).tolist()])
                if exact is None:
                    raise AffineDPError(DEPENDENT)
                pieces.append((rows, exact, numbers))
                # rounded once from exact numbers, however ill-conditioned the basis is
                blocks.append(_rounded(_combined(exact, numbers), query.shape[1]))
            order.append(rows)
        stacked = sparse.csr_array(sparse.vstack(blocks))
        return cls(stacked[np.argsort(np.concatenate(order))], pieces)

    @property
    def is_exact(self) -> bool:
        """Whether the doubles are the exact numbers."""
        return all(meaning(value) == value for value in set(self.matrix.data.tolist()))

    def rows(self) -> list[dict[int, Fraction]]:
        """Return the exact matrix by rows."""
        found: list[dict[int, Fraction]] = [{} for _ in range(self.matrix.shape[0])]
        for rows, left, right in self.pieces:
            combined = right if left is None else _combined(left, right)
            for row, values in zip(rows.tolist(), combined):
                found[row] = values
        return found

    def exact(self, moved: Mapping[int, Fraction]) -> list[Fraction]:
        """Return z of one difference in rational numbers.

        Parameters
        ----------
        moved : mapping of int to Fraction
            The entries of v that are not zero.
        """
        found = [Fraction(0)] * self.matrix.shape[0]
        for rows, left, right in self.pieces:
            outputs = [
                sum((c * moved[j] for j, c in row.items() if j in moved), Fraction(0))
                for row in right
            ]
            if not any(outputs):
                continue
            for i, row in enumerate(rows.tolist()):
                found[row] = (
                    outputs[i]
                    if left is None
                    else sum((a * b for a, b in zip(left[i], outputs)), Fraction(0))
                )
        return found


def _is_identity(square: Matrix) -> bool:
    size = int(square.shape[0])
    return bool(
        square.nnz == size
        and np.all(square.data == 1.0)
        and np.array_equal(square.indices, np.arange(size))
    )


def _combined(
    left: list[list[Fraction]], right: list[dict[int, Fraction]]
) -> list[dict[int, Fraction]]:
    """The product of exact matrices, by rows."""
    found = []
    for weights in left:
        total: dict[int, Fraction] = {}
        for weight, row in zip(weights, right):
            if weight:
                for j, c in row.items():
                    total[j] = total.get(j, Fraction(0)) + weight * c
        found.append({j: c for j, c in total.items() if c})
    return found


def _rounded(rows: list[dict[int, Fraction]], width: int) -> Matrix:
    import scipy.sparse as sparse

    place = [i for i, row in enumerate(rows) for _ in row]
    columns = [j for row in rows for j in row]
    values = [float(c) for row in rows for c in row.values()]
    found: Matrix = sparse.csr_array((values, (place, columns)), shape=(len(rows), width))
    return found


def _exact_rows(matrix: Any) -> list[dict[int, Fraction]]:
    known = {value: meaning(value) for value in set(matrix.data.tolist())}
    numbers = [known[value] for value in matrix.data.tolist()]
    columns, ends = matrix.indices.tolist(), matrix.indptr.tolist()
    if all(known.values()):  # nothing to leave out, which is quicker for a million rows
        return [dict(zip(columns[a:b], numbers[a:b])) for a, b in pairwise(ends)]
    return [{j: c for j, c in zip(columns[a:b], numbers[a:b]) if c} for a, b in pairwise(ends)]


def _pieces(left: Any) -> Iterator[tuple[IntArray, IntArray]]:
    """Coordinates that are read together, and as many independent outputs that show them."""
    from scipy.linalg import qr

    ones = np.diff(left.indptr) == 1
    ones[ones] = left.data[left.indptr[:-1][ones]] == 1.0
    places = np.flatnonzero(ones)[::-1]
    alone = dict(zip(left.indices[left.indptr[places]].tolist(), places.tolist()))
    shown: list[int] = []  # coordinates that are outputs themselves
    for outputs, columns in connected_parts(left):
        if all(j in alone for j in columns.tolist()):
            shown.extend(columns.tolist())
            continue
        if len(outputs) < len(columns):
            raise AffineDPError(DEPENDENT)
        block = dense(left[outputs][:, columns])
        _, triangle, order = qr(block.T, mode="economic", pivoting=True)
        diagonal = np.abs(np.diagonal(triangle))
        if diagonal[-1] <= 1e-10 * diagonal[0]:
            raise AffineDPError(DEPENDENT)
        yield columns, outputs[np.sort(order[: len(columns)])]
    if shown:
        shown.sort()
        yield np.array(shown), np.array([alone[j] for j in shown])


def moves_of(adjacency: Adjacency, query: Matrix) -> FloatArray:
    """Return how neighbours move the outputs, as columns: their hull is the hull of the moves.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours; they can be listed.
    query : matrix, shape (m, n)
        F.
    """
    moves = dense(query @ adjacency.directions())
    return np.asarray(moves[:, moves.any(axis=0)])


def points_on_outputs(points: Matrix) -> tuple[Matrix, Matrix]:
    """Return a basis that is the identity on some outputs, and the points on those outputs.

    Parameters
    ----------
    points : matrix, shape (m, p)
        Points of a body, in outputs, as columns.
    """
    from scipy.linalg import qr

    whole = dense(points)
    if whole.size <= MOST_EXACT and meant_numbers(whole):
        return _exactly_on_outputs(whole)
    size = np.abs(whole).max(axis=1)
    unit = np.where(size > 0, size, 1.0)[:, None]
    _, triangle, order = qr((whole / unit).T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > 1e-10 * diagonal[0]).sum())
    places = np.sort(order[:rank])
    chosen = whole[places]
    basis = np.linalg.lstsq((chosen / unit[places]).T, (whole / unit).T, rcond=None)[0].T
    basis[np.abs(basis) < 1e-13 * np.abs(basis).max()] = 0.0
    basis = basis * unit / unit[places].T
    basis[places] = np.eye(rank)
    return basis, chosen


def _exactly_on_outputs(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for numbers that were given: which outputs depend on others is no rounding."""
    width = points.shape[1]
    space, places = Echelon(width), []
    combinations = []
    for i, row in enumerate(given_rows(points)):
        rest = space.rest({**row, width + i: 1})
        if min(rest) < width:
            space.add({**row, width + i: 1})
            places.append(i)
        else:
            unit = rest.pop(width + i)
            combinations.append((i, {j - width: Fraction(-c, unit) for j, c in rest.items()}))
    basis = np.zeros((len(points), len(places)))
    basis[places] = np.eye(len(places))
    for i, combination in combinations:
        for j, value in combination.items():
            basis[i, places.index(j)] = as_float(value)
    return basis, points[places]
