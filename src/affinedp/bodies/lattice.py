"""Lattices of whole points: those of a kernel, of what a query makes of them, and one solution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.bodies.exact import common_denominator, readable
from affinedp.errors import AffineDPError

Columns = list[list[int]]
Rows = Sequence[Mapping[int, Fraction]]
# Whole numbers in the matrices that are reduced.
MOST_NUMBERS = 1_000_000


def reduce_columns(columns: Columns, rows: int) -> tuple[Columns, Columns, list[int]]:
    """Column operations that make the first ``rows`` entries a lower staircase.

    Parameters
    ----------
    columns : list of columns of int
        What is reduced; all operations are invertible on whole numbers.
    rows : int
        Entries that are looked at; the others only follow.

    Returns
    -------
    lead, rest, places
        Columns with leading entries, in the rows ``places``; and those with none.
    """
    left = [list(column) for column in columns]
    lead: Columns = []
    places: list[int] = []
    for i in range(rows):
        active = [column for column in left if column[i]]
        while len(active) > 1:
            pivot = min(active, key=lambda c: abs(c[i]))
            for column in active:
                if column is not pivot:
                    quotient = column[i] // pivot[i]
                    column[:] = [a - quotient * b for a, b in zip(column, pivot)]
            active = [column for column in active if column[i]]
        if not active:
            continue
        pivot = active[0]
        left = [column for column in left if column is not pivot]
        if pivot[i] < 0:
            pivot[:] = [-c for c in pivot]
        for column in lead:  # short columns: entries to the left of a pivot are below it
            quotient = column[i] // pivot[i]
            column[:] = [a - quotient * b for a, b in zip(column, pivot)]
        lead.append(pivot)
        places.append(i)
    return lead, left, places


def _rational_rows(matrix: Matrix, exact: Rows | None) -> Rows:
    if exact is not None:
        return exact
    whole = matrix.toarray() if is_sparse(matrix) else np.asarray(matrix)
    return [{int(j): readable(float(row[j])) for j in np.flatnonzero(row)} for row in whole]


def _whole_rows(matrix: Matrix, exact: Rows | None) -> list[dict[int, int]]:
    """The equations with whole coefficients."""
    found = []
    for row in _rational_rows(matrix, exact):
        scale = common_denominator(row.values())
        found.append({j: int(v * scale) for j, v in row.items() if v})
    return found


def whole_kernel(matrix: Matrix, exact: Rows | None) -> Columns:
    """Return a basis of the whole points of the kernel, as columns.

    Parameters
    ----------
    matrix : matrix, shape (q, n)
        D.
    exact : sequence of dict or None
        Its rows as rationals, if they are known.

    Examples
    --------
    >>> whole_kernel(np.array([[2.0, 4.0]]), None)
    [[-2, 1]]
    """
    rows, n = _whole_rows(matrix, exact), int(matrix.shape[1])
    _refuse_many(n, len(rows))
    columns = _with_identity(rows, n)
    _, rest, _ = reduce_columns(columns, len(rows))
    return [column[len(rows) :] for column in rest]


def image_lattice(kernel: Columns, query: Sequence[Mapping[int, Fraction]]) -> list[list[Fraction]]:
    """Return a basis of the lattice that the query makes of a lattice, as columns.

    Parameters
    ----------
    kernel : list of columns of int
        A basis.
    query : sequence of dict
        Rows of F, as rationals.
    """
    scale = common_denominator(c for row in query for c in row.values())
    whole = [{j: int(c * scale) for j, c in row.items()} for row in query]
    columns = [[sum(c * column[j] for j, c in row.items()) for row in whole] for column in kernel]
    lead, _, _ = reduce_columns(columns, len(whole))
    return [[Fraction(c, scale) for c in column] for column in lead]


def whole_solution(matrix: Matrix, b: FloatArray, exact: Rows | None) -> list[Fraction] | None:
    """Return whole numbers x with ``D x + b = 0``, or None if there are none.

    Parameters
    ----------
    matrix : matrix, shape (q, n)
        D.
    b : array, shape (q,)
        b.
    exact : sequence of dict or None
        Rows of D as rationals, if they are known.

    Examples
    --------
    >>> [int(c) for c in whole_solution(np.array([[3.0, 5.0]]), np.array([-1.0]), None)]
    [2, -1]
    """
    n = int(matrix.shape[1])
    found = [Fraction(0)] * n
    if not np.any(b):
        return found
    equations = []
    for row, value in zip(_rational_rows(matrix, exact), b.tolist()):
        right = -readable(value)
        scale = common_denominator([right, *row.values()])
        equations.append(({j: int(c * scale) for j, c in row.items() if c}, int(right * scale)))
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
    rows = [row for row, _ in equations]
    lead, _, places = reduce_columns(_with_identity(rows, n), len(rows))
    left = [right for _, right in equations]
    for column, place in zip(lead, places):
        times, rest = divmod(left[place], column[place])
        if rest:
            return None
        left = [a - times * c for a, c in zip(left, column)]
        found = [a + times * c for a, c in zip(found, column[len(rows) :])]
    return None if any(left) else found


def _with_identity(rows: Sequence[Mapping[int, int]], n: int) -> Columns:
    """The columns of the matrix with those of the identity below."""
    return [[row.get(j, 0) for row in rows] + [int(i == j) for i in range(n)] for j in range(n)]


def _refuse_many(n: int, rows: int) -> None:
    if float(n) * (n + rows) > MOST_NUMBERS:
        raise AffineDPError(
            f"{n:,} whole entries are too many for exact arithmetic: treat the data as real"
        )
