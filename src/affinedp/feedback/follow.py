"""Which outputs carry news, and how the others follow from them and from public offsets, exactly.

On ``D x + b = 0`` an output is a combination of free entries plus a combination of b.  Taken in
the order in which they are due, an output either is independent of those before, and must be
read, or it is a combination of earlier ones plus a combination of b.  Rational arithmetic decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from affinedp.arrays import Matrix
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows
from affinedp.exact.rational import Echelon

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
    # D x + b = 0 and F x − y = 0 in the unknowns x, b and y, of which only x is eliminated
    n, rows = manifold.n, manifold.exact_rows or given_rows(manifold.D)
    space = Echelon(n)
    for e, row in enumerate(rows):
        space.add({**row, n + e: Fraction(1)})
    read: list[int] = []
    follow: dict[int, Following] = {}
    outputs = dict(zip(order, given_rows(query[list(order)])))
    for i in order:
        output = n + equations + i
        row = {**outputs[i], output: Fraction(-1)}
        if space.add(row):
            read.append(i)
            continue
        rest = space.rest(row)
        parts = {j: _plain(Fraction(-c, rest[output])) for j, c in rest.items() if j != output}
        first = n + equations
        follow[i] = Following(
            {j - first: c for j, c in parts.items() if j >= first},
            {j - n: c for j, c in parts.items() if j < first},
        )
    return tuple(read), follow


def _plain(value: Fraction) -> Exact:
    """A whole number as int."""
    return value.numerator if value.denominator == 1 else value
