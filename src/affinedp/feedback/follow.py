"""Which outputs carry news, and how the others follow from them and from public offsets, exactly.

On ``D x + b = 0`` an output is a combination of free entries plus a combination of b.  Taken in
the order in which they are due, an output either is independent of those before, and must be
read, or it is a combination of earlier ones plus a combination of b.  Rational arithmetic decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import Matrix, dense
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.neighbours.definition import exact_number

# whole numbers as int, which is far quicker
Exact = int | Fraction
Row = dict[int, Exact]
# Numbers up to which the equations are solved in rational arithmetic.
MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Following:
    """``F_i x = Σ coefficients[j] F_j x + Σ offsets[e] b_e`` for all x with ``D x + b = 0``.

    Attributes
    ----------
    coefficients : mapping of int to int or Fraction
        By output that is read.
    offsets : mapping of int to int or Fraction
        By equation.
    """

    coefficients: Row
    offsets: Row


class _Echelon:
    """Rows in reduced form, each with the combination of given rows that it is."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Row, Row]] = {}

    def left_over(self, row: Row) -> tuple[Row, Row]:
        """What remains of a row, and the combination of given rows that was taken away."""
        rest, taken = dict(row), Row()
        for column in [j for j in row if j in self._rows]:
            factor = rest[column]
            pivot, made_of = self._rows[column]
            _subtract(rest, pivot, factor)
            _subtract(taken, made_of, -factor)
        return rest, taken

    def insert(self, rest: Row, taken: Row, label: int) -> None:
        """Keep what remained of the row that is called ``label``."""
        column = max(rest)
        unit = _plain(1 / Fraction(rest[column]))
        made_of: Row = {label: unit}
        _subtract(made_of, taken, unit)
        row = {j: _plain(value * unit) for j, value in rest.items()}
        for other, combination in self._rows.values():
            factor = other.get(column)
            if factor:
                _subtract(other, row, factor)
                _subtract(combination, made_of, factor)
        self._rows[column] = (row, made_of)

    def items(self) -> Iterator[tuple[int, Row, Row]]:
        """Yield (pivot column, row, combination of given rows)."""
        for column, (row, made_of) in self._rows.items():
            yield column, row, made_of


def followings(
    manifold: AffineManifold, query: Matrix, order: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, Following]]:
    """Return the outputs that must be read, in order, and how each of the others follows.

    Parameters
    ----------
    manifold : AffineManifold
        The equations; their offsets do not matter.
    query : matrix, shape (m, n)
        F.
    order : sequence of int
        The outputs in the order in which they are due.
    """
    equations = len(manifold.b)
    if equations * float(manifold.n) > MOST_NUMBERS:
        raise AffineDPError(
            f"{equations:,} equations in {manifold.n:,} entries are too many to be solved in exact "
            "arithmetic, which a release in steps needs"
        )
    solved = _Echelon()
    for e, row in enumerate(_exact_rows(manifold)):
        solved.insert(*solved.left_over(row), e)
    pivots = {column: (row, made_of) for column, row, made_of in solved.items()}
    read: list[int] = []
    follow: dict[int, Following] = {}
    known: dict[int, Row] = {}  # the offsets in what is read
    news = _Echelon()
    for i in order:
        free, offsets = _on_the_manifold(_exact_row(query, i), pivots)
        rest, taken = news.left_over(free)
        if rest:
            news.insert(rest, taken, i)
            read.append(i)
            known[i] = offsets
            continue
        for j, factor in taken.items():
            _subtract(offsets, known[j], factor)
        follow[i] = Following(taken, offsets)
    return tuple(read), follow


def _on_the_manifold(row: Row, pivots: dict[int, tuple[Row, Row]]) -> tuple[Row, Row]:
    """A combination of entries as one of free entries and one of offsets."""
    free, offsets = dict(row), Row()
    for column, factor in row.items():
        if column in pivots:
            solved, made_of = pivots[column]
            _subtract(free, solved, factor)
            _subtract(offsets, made_of, factor)
    return free, offsets


def _subtract(target: Row, row: Row, factor: Exact) -> None:
    for j, value in row.items():
        after = target.pop(j, 0) - factor * value
        if after:
            target[j] = after


def _plain(value: Exact) -> Exact:
    """A whole number as int."""
    return value.numerator if value.denominator == 1 else value


def _exact_rows(manifold: AffineManifold) -> Iterator[Row]:
    if manifold.exact_rows is not None:
        for row in manifold.exact_rows:
            yield {j: _plain(value) for j, value in row.items()}
        return
    matrix = manifold.D
    for i in range(matrix.shape[0]):
        values = dense(matrix[[i]])[0]
        yield {int(j): Fraction(float(values[j])) for j in np.flatnonzero(values)}


def _exact_row(query: Matrix, i: int) -> Row:
    values = dense(query[[i]])[0]
    return {int(j): _plain(exact_number(values[j])) for j in np.flatnonzero(values)}
