"""Linear algebra in whole and rational numbers: small matrices, nothing rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

Vector = tuple[int, ...]
Rationals = Sequence[Fraction]

# Doubles nearest to a fraction with at most this denominator are read as that fraction.
MOST_DENOMINATOR = 10_000


def readable(value: float) -> Fraction:
    """Return the number that a double stands for: a short fraction or decimal, else itself.

    Parameters
    ----------
    value : float
        Any finite double.

    Examples
    --------
    >>> readable(1 / 3), readable(-0.07), readable(2.0**-60) == Fraction(1, 2**60)
    (Fraction(1, 3), Fraction(-7, 100), True)
    """
    exact = Fraction(value)
    short = exact.limit_denominator(MOST_DENOMINATOR)
    if float(short) == value:
        return short
    decimal = Fraction(repr(float(value)))
    return decimal if decimal.denominator <= 10**12 else exact


def common_denominator(values: Iterable[Fraction]) -> int:
    """Return the least number that makes all of them whole."""
    return math.lcm(1, *(value.denominator for value in values))


def primitive(vector: Sequence[int]) -> tuple[Vector, int]:
    """Return the vector divided by the greatest common divisor of its entries, and that divisor."""
    content = math.gcd(*vector)
    if content == 0:
        return tuple(vector), 0
    return tuple(c // content for c in vector), content


def adjugate(matrix: Sequence[Sequence[int]]) -> tuple[int, list[list[int]]]:
    """Return the determinant and determinant × inverse; (0, []) for a singular matrix.

    Gauss–Jordan without fractions: every division is exact.

    Parameters
    ----------
    matrix : sequence of rows of int
        Square.

    Examples
    --------
    >>> adjugate([[2, 1], [1, 3]])
    (5, [[3, -1], [-1, 2]])
    """
    size = len(matrix)
    rows = [list(row) + [int(i == j) for j in range(size)] for i, row in enumerate(matrix)]
    sign, before = 1, 1
    for k in range(size):
        place = next((i for i in range(k, size) if rows[i][k]), None)
        if place is None:
            return 0, []
        if place != k:
            rows[k], rows[place] = rows[place], rows[k]
            sign = -sign
        lead = rows[k]
        pivot = lead[k]
        for i in range(size):
            if i != k:
                row, factor = rows[i], rows[i][k]
                rows[i] = [(pivot * a - factor * b) // before for a, b in zip(row, lead)]
        before = pivot
    # every diagonal entry is the determinant up to the sign of the exchanges
    return sign * before, [[sign * c for c in row[size:]] for row in rows]


def inverse(matrix: Sequence[Rationals]) -> list[list[Fraction]] | None:
    """Return the inverse of a square rational matrix, or None if there is none."""
    scale = common_denominator(c for row in matrix for c in row)
    whole = [[int(c * scale) for c in row] for row in matrix]
    determinant, adjoint = adjugate(whole)
    if determinant == 0:
        return None
    return [[Fraction(c * scale, determinant) for c in row] for row in adjoint]


def independent(vectors: Sequence[Sequence[int]], most: int) -> list[int]:
    """Return the places of the first vectors that are independent of those before, up to ``most``.

    Parameters
    ----------
    vectors : sequence of vectors of int
        All of one length.
    most : int
        Stop here.
    """
    echelon: list[tuple[int, list[int]]] = []
    found: list[int] = []
    for place, vector in enumerate(vectors):
        left = list(vector)
        for pivot, row in echelon:
            if left[pivot]:
                a, b = row[pivot], left[pivot]
                left = [a * x - b * y for x, y in zip(left, row)]
        lead = next((j for j, c in enumerate(left) if c), None)
        if lead is not None:
            content = math.gcd(*left)
            echelon.append((lead, [c // content for c in left]))
            found.append(place)
            if len(found) == most:
                break
    return found


def hermite_diagonal(generators: Sequence[Sequence[int]]) -> list[int]:
    """Return h such that Π [0, h_i) has one point of every coset of the lattice they span.

    Parameters
    ----------
    generators : sequence of vectors of int
        A basis of a lattice of full rank.

    Examples
    --------
    >>> hermite_diagonal([(2, 0), (1, 3)])
    [1, 6]
    """
    columns = [list(vector) for vector in generators]
    found = []
    for i in range(len(columns)):
        active = columns[i:]
        while True:
            lead = min((c for c in active if c[i]), key=lambda c: abs(c[i]))
            others = [c for c in active if c is not lead and c[i]]
            if not others:
                break
            for column in others:
                quotient = column[i] // lead[i]
                column[:] = [a - quotient * b for a, b in zip(column, lead)]
        active.remove(lead)
        columns[i:] = [lead, *active]
        found.append(abs(lead[i]))
    return found
