"""Whole numbers that obey linear equations: Hermite's form, kernel lattices and one solution.

Column operations with determinant ±1 bring the equations to a lower staircase ``D V = [H 0]``.
The columns of V behind the zeros are a basis of all whole vectors of the kernel; the others solve
``D x = b`` in whole numbers, or show that no whole numbers do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import Rows, given_rows, meaning
from affinedp.exact.rational import common_denominator, subtract

# Whole numbers in the matrices that are reduced for K-norm noise.
MOST_NUMBERS = 1_000_000
# Shorter bases are looked for up to this many dimensions.
MOST_REDUCED = 60
REDUCTIONS = 20_000
LOVASZ = 0.99
# Entries of a basis in 64 bits, with room for sums.
MOST_BASIS = 2**40

Integers = NDArray[Any]  # int64, or Python integers in an object array
SparseVector = dict[int, int]
Columns = list[list[int]]


def staircase(
    columns: Sequence[Mapping[int, int]], rows: int
) -> tuple[dict[int, SparseVector], list[SparseVector]]:
    """Reduce the first ``rows`` entries by Euclid: leading columns by row, and those with none."""
    left = [dict(column) for column in columns]
    lead: dict[int, SparseVector] = {}
    for i in range(rows):
        active = [column for column in left if i in column]
        while len(active) > 1:
            # the smallest coefficient, then the shortest column: others change the least
            pivot = min(active, key=lambda column: (abs(column[i]), len(column)))
            for column in active:
                if column is not pivot:
                    subtract(column, pivot, _nearest_quotient(column[i], pivot[i]))
            active = [column for column in active if i in column]
        if active:
            lead[i] = active[0]
            left = [column for column in left if column is not active[0]]
    return lead, left


def hermite_diagonal(generators: Sequence[Sequence[int]]) -> list[int]:
    """Return h such that Π [0, h_i) has one point of every coset of the lattice they span."""
    lead, _ = staircase([_sparse(vector) for vector in generators], len(generators))
    return [abs(column[i]) for i, column in lead.items()]


def image_lattice(kernel: Columns, query: Rows) -> list[list[Fraction]]:
    """Return Hermite's basis of the lattice that a query makes of a lattice, as columns."""
    scale = common_denominator(c for row in query for c in row.values())
    whole = [{j: int(c * scale) for j, c in row.items()} for row in query]
    images = [[sum(c * column[j] for j, c in row.items()) for row in whole] for column in kernel]
    lead, _ = staircase([_sparse(image) for image in images], len(whole))
    for i, pivot in lead.items():  # entries to the left of a pivot are below it
        if pivot[i] < 0:
            pivot.update({j: -c for j, c in pivot.items()})
        for earlier in lead.values():
            if earlier is pivot:
                break
            subtract(earlier, pivot, earlier.get(i, 0) // pivot[i])
    return [
        [Fraction(column.get(i, 0), scale) for i in range(len(whole))] for column in lead.values()
    ]


@dataclass(frozen=True, eq=False)
class Lattice:
    """All whole x with ``D x = 0``, and how to solve ``D x = b``."""

    n: int  # n, equations: columns and rows of D
    equations: int
    # a basis of the whole vectors of the kernel: entry to coefficient
    vectors: tuple[SparseVector, ...]
    # for each independent equation the column of ``[D V; V]`` that leads in it
    lead: Mapping[int, SparseVector]

    def solve(self, right: Integers) -> Integers | None:
        """Return whole numbers x with ``D x = right`` for each row, or None if there are none."""
        # what is left of the right sides, and with the opposite sign what solves the rest
        left = np.zeros((len(right), self.equations + self.n), dtype=object)
        left[:, : self.equations] = right
        for equation, column in self.lead.items():
            amounts = left[:, equation] // column[equation]
            if (amounts * column[equation] != left[:, equation]).any():
                return None
            for place, value in column.items():
                left[:, place] -= amounts * value
        return None if left[:, : self.equations].any() else -left[:, self.equations :]

    def short_basis(self) -> Integers:
        """Return short vectors of the kernel that generate it, as columns of 64-bit integers."""
        vectors = shortened(self.vectors, self.n)
        if any(abs(value) > MOST_BASIS for vector in vectors for value in vector.values()):
            raise AffineDPError(
                "the coefficients of the equations are too large to publish whole numbers"
            )
        return _array(vectors, self.n)


def kernel_lattice(equations: Sequence[Mapping[int, int]], n: int) -> Lattice:
    """Return the whole solutions of ``D x = 0``, D given by its rows, and how to solve."""
    count = len(equations)
    columns: list[SparseVector] = [{} for _ in range(n)]
    for i, row in enumerate(equations):
        for j, value in row.items():
            columns[j][i] = value
    for j, column in enumerate(columns):
        column[count + j] = 1
    lead, rest = staircase(columns, count)
    vectors = tuple({place - count: value for place, value in column.items()} for column in rest)
    return Lattice(n, count, vectors, lead)


def whole_kernel(matrix: Matrix, exact: Rows | None) -> Columns:
    """Return a basis of the whole points of the kernel, as columns."""
    n = int(matrix.shape[1])
    rows = [_whole(row, 0)[0] for row in _rows(matrix, exact)]
    _refuse_many(n, len(rows))
    return [[vector.get(j, 0) for j in range(n)] for vector in kernel_lattice(rows, n).vectors]


def whole_solution(matrix: Matrix, b: FloatArray, exact: Rows | None) -> list[Fraction] | None:
    """Return whole numbers x with ``D x + b = 0``, or None if there are none."""
    n = int(matrix.shape[1])
    found = [Fraction(0)] * n
    if not np.any(b):
        return found
    given = zip(_rows(matrix, exact), b.tolist())
    equations = [_whole(row, -meaning(value)) for row, value in given]
    if len(equations) == 1:
        only, total = equations[0]
        content = math.gcd(*only.values())
        place = next((j for j, c in only.items() if abs(c) == content), None)
        if total % content:
            return None
        if place is not None:
            found[place] = Fraction(total, only[place])
            return found
    _refuse_many(n, len(equations))
    right = np.array([[right for _, right in equations]], dtype=object)
    solution = kernel_lattice([row for row, _ in equations], n).solve(right)
    return None if solution is None else [Fraction(value) for value in solution[0]]


def shortened(vectors: Sequence[SparseVector], n: int) -> list[SparseVector]:
    """Return a basis of the same lattice with shorter vectors (Lenstra, Lenstra, Lovász).

    The basis changes in exact integers; floating point only decides what to try.
    """
    basis = [dict(vector) for vector in vectors]
    if not 1 < len(basis) <= MOST_REDUCED:
        return basis
    k = 1
    for _ in range(REDUCTIONS):
        if k >= len(basis):
            break
        lengths, shares = _orthogonalised(basis[: k + 1], n)
        for j in range(k - 1, -1, -1):
            times = round(shares[j])
            if times:
                subtract(basis[k], basis[j], times)
                lengths, shares = _orthogonalised(basis[: k + 1], n)
        if lengths[k] >= (LOVASZ - shares[k - 1] ** 2) * lengths[k - 1]:
            k += 1
        else:
            basis[k - 1], basis[k] = basis[k], basis[k - 1]
            k = max(1, k - 1)
    return basis


def _orthogonalised(basis: Sequence[SparseVector], n: int) -> tuple[FloatArray, FloatArray]:
    """Squared lengths after orthogonalisation, and the last vector's share of the others."""
    triangle = np.asarray(np.linalg.qr(_array(basis, n, float), mode="r"))
    diagonal = np.diagonal(triangle)
    return diagonal**2, triangle[:, -1] / diagonal


def _array(vectors: Sequence[SparseVector], n: int, kind: Any = np.int64) -> NDArray[Any]:
    array = np.zeros((n, len(vectors)), dtype=kind)
    for j, vector in enumerate(vectors):
        array[list(vector), j] = list(vector.values())
    return array


def _sparse(vector: Sequence[int]) -> SparseVector:
    return {i: value for i, value in enumerate(vector) if value}


def _nearest_quotient(value: int, divisor: int) -> int:
    return (2 * value + divisor) // (2 * divisor)


def _rows(matrix: Matrix, exact: Rows | None) -> Rows:
    return given_rows(matrix) if exact is None else exact


def _whole(row: Mapping[int, Fraction], right: Fraction | int) -> tuple[SparseVector, int]:
    """An equation with whole coefficients and right side."""
    scale = common_denominator([Fraction(right), *row.values()])
    return {j: int(c * scale) for j, c in row.items() if c}, int(right * scale)


def _refuse_many(n: int, rows: int) -> None:
    if float(n) * (n + rows) > MOST_NUMBERS:
        raise AffineDPError(
            f"{n:,} whole entries are too many for exact arithmetic: treat the data as real"
        )
