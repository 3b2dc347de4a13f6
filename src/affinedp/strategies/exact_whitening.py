"""Theorems 1 and 2 in rational arithmetic: the query in units of the noise without rounding.

Noise that is exactly tight must be seen to be so, where the equations, the query and the noise are
integers or short decimals, and few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from affinedp.arrays import Matrix
from affinedp.domains.manifold import AffineManifold
from affinedp.exact.numbers import given_rows, meant_numbers, nonzeros
from affinedp.neighbours.norms import ExactMatrix

Row = dict[int, Fraction]
# Rational operations up to which the noise is inverted exactly.
MOST_WORK = 100_000
MOST_NUMBERS = 5_000
MOST_ENTRIES = 200


def exact_whitening(manifold: AffineManifold, noise: Matrix, query: Matrix) -> ExactMatrix | None:
    """Return Λ⁺F exactly, or None where numbers are long, many, or Λ's columns are dependent.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    noise, query : matrices, shapes (m, r) and (m, n)
        Λ and F.
    """
    if manifold.exact_rows is None or manifold.canonical.exact_rows is None:
        return None
    if max(manifold.n, noise.shape[0]) > MOST_ENTRIES:
        return None
    left, right = _rows(noise), _rows(query)
    if left is None or right is None:
        return None
    (m, r), n = noise.shape, manifold.n
    single = [next(iter(row)) for row in left if len(row) == 1]
    if len(single) == m and len(set(single)) == m == r:  # independent noise on every output
        return ExactMatrix.of_rationals(_independent(left, right))
    if float(r) * r * (m + r) + float(r) * m * n > MOST_WORK:
        return None
    columns = _transposed(left, r)
    gram = [{j: _dot(a, b) for j, b in enumerate(columns)} for a in columns]
    seen = [_combined(column, right) for column in columns]
    solved = _solve(gram, seen)
    return None if solved is None else ExactMatrix.of_rationals(solved)


def _rows(matrix: Matrix) -> list[Row] | None:
    """The rows as short decimals, zeros left out; None if they are not, or too many."""
    values = nonzeros(matrix)[2]
    if len(values) > MOST_NUMBERS:
        return None
    return given_rows(matrix) if meant_numbers(values) else None


def _independent(noise: Sequence[Row], query: Sequence[Row]) -> list[Row]:
    found: list[Row] = [{} for _ in noise]
    for noisy, row in zip(noise, query):
        ((place, scale),) = noisy.items()
        found[place] = {j: value / scale for j, value in row.items()}
    return found


def _transposed(rows: Sequence[Row], width: int) -> list[Row]:
    columns: list[Row] = [{} for _ in range(width)]
    for i, row in enumerate(rows):
        for j, value in row.items():
            columns[j][i] = value
    return columns


def _dot(left: Row, right: Row) -> Fraction:
    return sum((value * right[i] for i, value in left.items() if i in right), Fraction(0))


def _combined(weights: Mapping[int, Fraction], rows: Sequence[Row]) -> Row:
    total: Row = {}
    for i, weight in weights.items():
        for j, value in rows[i].items():
            total[j] = total.get(j, Fraction(0)) + weight * value
    return total


def _minus(left: Row, right: Row) -> Row:
    found = {j: left.get(j, Fraction(0)) - right.get(j, Fraction(0)) for j in {**left, **right}}
    return {j: value for j, value in found.items() if value}


def _solve(square: list[Row], right: list[Row]) -> list[Row] | None:
    """square⁻¹ right by Gauss–Jordan elimination, or None if it is singular."""
    left, found = [dict(row) for row in square], [dict(row) for row in right]
    for c in range(len(left)):
        pivot = next((i for i in range(c, len(left)) if left[i].get(c)), None)
        if pivot is None:
            return None
        left[c], left[pivot] = left[pivot], left[c]
        found[c], found[pivot] = found[pivot], found[c]
        lead = left[c][c]
        left[c] = {j: value / lead for j, value in left[c].items()}
        found[c] = {j: value / lead for j, value in found[c].items()}
        for i in range(len(left)):
            factor = left[i].get(c)
            if i != c and factor:
                left[i] = _minus(left[i], {j: factor * v for j, v in left[c].items()})
                found[i] = _minus(found[i], {j: factor * v for j, v in found[c].items()})
    return found
