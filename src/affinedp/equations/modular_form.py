"""The canonical form ``[I | X]`` modulo primes, which certifies where X is zero.

Which entries move together, which are public and what a circuit is made of all follow from the
zeros of X and of its minors.  Floating point cannot tell a zero from a small number; residues can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse
from affinedp.equations.elimination import Canonical
from affinedp.equations.residues import (
    PRIMES,
    Integers,
    VanishesError,
    draw_primes,
    reduce_dense,
    reduce_sparse,
    residues_of_floats,
    residues_of_rationals,
)
from affinedp.errors import DoubtfulZeroError

if TYPE_CHECKING:
    import scipy.sparse as sparse

ExactRow = Mapping[int, Fraction]
# Equations with a smaller share of nonzeros than this are eliminated as sparse ones.
SPARSE_SHARE = 0.1


@dataclass(frozen=True)
class ModularForm:
    """X modulo primes.

    Attributes
    ----------
    primes : tuple of int
        The primes.
    residues : tuple of sparse matrices, CSR
        X modulo each of them; all have the same nonzeros.
    """

    primes: tuple[int, ...]
    residues: tuple[sparse.csr_array, ...]

    def part(self, rows: IntArray, columns: IntArray) -> ModularForm:
        """Return the form on some rows and columns.

        Parameters
        ----------
        rows, columns : arrays of int
            Which to keep, in this order.
        """
        parts = tuple(each[rows][:, columns] for each in self.residues)
        for part in parts:
            part.sort_indices()
        return ModularForm(self.primes, parts)

    def pairs(self) -> list[tuple[int, sparse.csr_array]]:
        """Return every prime with X modulo it."""
        return list(zip(self.primes, self.residues))

    def dense(self) -> list[tuple[int, Integers]]:
        """Return every prime with X modulo it as an array."""
        return [(p, np.asarray(each.toarray())) for p, each in self.pairs()]

    def agrees(self, reduced: Matrix) -> bool:
        """Whether X in floating point is zero exactly where X is.

        Parameters
        ----------
        reduced : matrix
            X in floating point.
        """
        import scipy.sparse as sparse

        floats, residues = sparse.csr_array(reduced, copy=True), self.residues[0]
        floats.eliminate_zeros()
        floats.sort_indices()
        return bool(
            np.array_equal(floats.indptr, residues.indptr)
            and np.array_equal(floats.indices, residues.indices)
        )


def modular_form(
    matrix: Matrix, exact: Sequence[ExactRow] | None, canonical: Canonical
) -> ModularForm:
    """Return X modulo primes.

    Parameters
    ----------
    matrix : matrix, shape (q, n)
        Independent equations.
    exact : sequence of mappings, optional
        The same in rational numbers; otherwise every coefficient is the double that it is.
    canonical : Canonical
        Which columns are the basis, and X itself where it is rational.
    """
    primes: list[int] = []
    found: list[sparse.csr_array] = []
    for prime in draw_primes(_seed(matrix, exact)):
        if prime in primes:
            continue
        try:
            residues = _reduced(matrix, exact, canonical, prime)
        except VanishesError:
            continue
        residues.sort_indices()
        if found and residues.nnz != found[0].nnz:
            # a number vanishes modulo one of them: keep the prime that sees more
            if residues.nnz > found[0].nnz:
                primes, found = [prime], [residues]
            continue
        primes.append(prime)
        found.append(residues)
        if len(found) == PRIMES:
            return ModularForm(tuple(primes), tuple(found))
    raise DoubtfulZeroError(
        "the independent equations cannot be told from dependent ones in exact arithmetic. Give "
        "exact (integer, decimal or text) coefficients, or drop the nearly dependent equation",
        0.0,
    )


def _seed(matrix: Matrix, exact: Sequence[ExactRow] | None) -> bytes:
    if exact is not None:
        return repr([sorted(row.items()) for row in exact]).encode()
    if is_sparse(matrix):
        return bytes(matrix.data.tobytes() + matrix.indices.tobytes())
    return bytes(np.asarray(matrix).tobytes())


def _reduced(
    matrix: Matrix, exact: Sequence[ExactRow] | None, canonical: Canonical, prime: int
) -> sparse.csr_array:
    import scipy.sparse as sparse

    q, n = matrix.shape
    place = np.full(n, -1)
    place[canonical.free] = np.arange(len(canonical.free))
    shape = (len(canonical.pivots), len(canonical.free))
    if canonical.exact_rows is not None:
        rows = np.repeat(np.arange(shape[0]), [len(row) for row in canonical.exact_rows])
        columns = np.array([j for row in canonical.exact_rows for j in row], dtype=np.intp)
        values = [value for row in canonical.exact_rows for value in row.values()]
        residues = residues_of_rationals(values, prime)
        if not np.all(residues):
            raise VanishesError
        return sparse.csr_array((residues, (rows, place[columns])), shape=shape)
    row_of, column_of, coefficients = _coefficients(matrix, exact, prime)
    if not np.all(coefficients):
        raise VanishesError
    if len(coefficients) > SPARSE_SHARE * q * n:
        table = np.zeros((q, n), dtype=np.int64)
        table[row_of, column_of] = coefficients
        return sparse.csr_array(reduce_dense(table, canonical.pivots, prime)[:, canonical.free])
    starts = np.searchsorted(row_of, np.arange(q + 1)).tolist()
    pairs = list(zip(column_of.tolist(), coefficients.tolist()))
    rows_given = (dict(pairs[start:stop]) for start, stop in pairwise(starts))
    reduced = reduce_sparse(rows_given, canonical.pivots.tolist(), prime)
    ordered = [reduced[int(pivot)] for pivot in canonical.pivots]
    rows = np.repeat(np.arange(q), [len(row) for row in ordered])
    columns = np.array([j for row in ordered for j in row], dtype=np.intp)
    residues = np.array([value for row in ordered for value in row.values()], dtype=np.int64)
    return sparse.csr_array((residues, (rows, place[columns])), shape=shape)


def _coefficients(
    matrix: Matrix, exact: Sequence[ExactRow] | None, prime: int
) -> tuple[IntArray, IntArray, Integers]:
    """Rows, columns and residues of the nonzero coefficients, row by row."""
    if exact is not None:
        terms = [(i, j, row[j]) for i, row in enumerate(exact) for j in row if row[j]]
        places = np.array([(i, j) for i, j, _ in terms], dtype=np.intp).reshape(-1, 2).T
        return places[0], places[1], residues_of_rationals([v for _, _, v in terms], prime)
    found: Any
    if is_sparse(matrix):
        found = matrix.tocsr().tocoo()
        kept = found.data != 0
        return found.row[kept], found.col[kept], residues_of_floats(found.data[kept], prime)
    rows, columns = np.nonzero(matrix)
    floats: FloatArray = np.asarray(matrix)[rows, columns]
    return rows, columns, residues_of_floats(floats, prime)
