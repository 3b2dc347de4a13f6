"""Theorems 1 and 2 in rational arithmetic: the query in units of the noise without rounding.

Noise that is exactly tight must be seen to be so, and noise that misses a direction by little
misses it.  Where the equations, the query and the noise are integers or short decimals, and few,
both are decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.exact.numbers import given_rows, short_numbers
from affinedp.neighbours.norms import ExactMatrix

Row = dict[int, Fraction]
# Rational operations up to which the noise is inverted exactly.
MOST_WORK = 100_000
MOST_NUMBERS = 5_000
MOST_ENTRIES = 200
MOST_SPANNED = 40_000
# Beyond this, whole numbers are no sign that a number was written down by somebody.
LARGEST_MEANT = 1e12


@dataclass(frozen=True)
class ExactWhitening:
    """Λ⁺F in rational numbers, and what the noise does not cover.

    Attributes
    ----------
    query : ExactMatrix
        Λ⁺F.
    bare : array, shape (m,), or None
        A combination of outputs without noise in which some points of the manifold differ.
    rest : tuple of mappings
        The rows of ``F − ΛΛ⁺F``: what no noise covers.
    """

    query: ExactMatrix
    bare: FloatArray | None
    rest: tuple[Row, ...]

    def bare_along(self, manifold: AffineManifold, span: Matrix) -> FloatArray | None:
        """Return a combination without noise in which neighbours differ, or None if none is seen.

        Directions that rounding has taken off the manifold are left to floating point.
        """
        assert manifold.exact_rows is not None
        if not self.rest or span.shape[0] * span.shape[1] > MOST_SPANNED:
            return None
        directions = [
            move
            for move in given_rows(span.T)
            if not any(_dot(row, move) for row in map(dict, manifold.exact_rows))
        ]
        moved = [{i: _dot(row, move) for i, row in enumerate(self.rest)} for move in directions]
        return _worst(moved, len(self.rest))


def exact_whitening(
    manifold: AffineManifold, noise: Matrix, query: Matrix
) -> ExactWhitening | None:
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
        whitened = _independent(left, right)
        return ExactWhitening(ExactMatrix.of_rationals(whitened), None, ())
    if float(r) * r * (m + r) + float(r) * m * n > MOST_WORK:
        return None
    columns = _transposed(left, r)
    gram = [{j: _dot(a, b) for j, b in enumerate(columns)} for a in columns]
    seen = [_combined(column, right) for column in columns]
    solved = _solve(gram, seen)
    if solved is None:
        return None
    rest = [_minus(row, _combined(noisy, solved)) for noisy, row in zip(left, right)]
    return ExactWhitening(ExactMatrix.of_rationals(solved), _bare(manifold, rest), tuple(rest))


def _rows(matrix: Matrix) -> list[Row] | None:
    """The rows as short decimals, zeros left out; None if they are not, or too many."""
    if is_sparse(matrix):
        entries = matrix.tocoo()
        i, j, values = entries.row, entries.col, entries.data
    else:
        i, j = np.nonzero(matrix)
        values = np.asarray(matrix)[i, j]
    if len(values) > MOST_NUMBERS:
        return None
    if np.abs(values).max(initial=0.0) >= LARGEST_MEANT:
        return None  # a double this large is an integer whether or not anybody meant one
    exact = short_numbers(values.tolist())
    if exact is None:
        return None
    rows: list[Row] = [{} for _ in range(matrix.shape[0])]
    for a, b, value in zip(i.tolist(), j.tolist(), exact):
        if value:
            rows[a][b] = value
    return rows


def _independent(noise: Sequence[Row], query: Sequence[Row]) -> list[Row]:
    found: list[Row] = [{} for _ in noise]
    for noisy, row in zip(noise, query):
        ((place, scale),) = noisy.items()
        found[place] = {j: value / scale for j, value in row.items()}
    return found


def _bare(manifold: AffineManifold, rest: Sequence[Row]) -> FloatArray | None:
    """The part of some movement on the manifold that no noise covers, if there is one."""
    canonical = manifold.canonical
    assert canonical.exact_rows is not None
    # along the kernel the pivots follow the free entries
    follows = {int(p): row for p, row in zip(canonical.pivots, canonical.exact_rows)}
    moved: dict[int, dict[int, Fraction]] = {}
    for i, row in enumerate(rest):
        for j, value in row.items():
            terms = follows.get(j)
            for f, factor in ({j: Fraction(-1)} if terms is None else terms).items():
                column = moved.setdefault(f, {})
                column[i] = column.get(i, Fraction(0)) - value * factor
    return _worst(list(moved.values()), len(rest))


def _worst(columns: Sequence[Row], outputs: int) -> FloatArray | None:
    """The longest of some columns, its largest entry 1; None if all of them are zero."""
    columns = [column for column in columns if any(column.values())]
    if not columns:
        return None
    worst = max(columns, key=lambda column: sum(value * value for value in column.values()))
    largest = max(abs(value) for value in worst.values())
    combination = np.zeros(outputs)
    for i, value in worst.items():
        combination[i] = float(value / largest)
    return combination


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
