"""What all neighbours have in common, exactly: it may be published without noise.

On the manifold ``x = x_p + K ξ`` with ξ the free entries.  Let U be a basis of the span of the
neighbours' differences, as free entries, with an identity in some of its rows P.  Then
``ξ = U ξ_P + e`` with ``e = ξ − U ξ_P``, and e is the same for all neighbours: noise need only hide
``ξ_P``.  U is computed in rational arithmetic (floats are rational), so that "the same" holds to
the last bit; e is computed from recorded numbers in rational arithmetic too.

Most mechanisms hide everything: U is the identity, and nothing is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import format_equation
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import reduce_exactly
from affinedp.laws.base import Law
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.coverage import Span, bare_combination, noise_range
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.one_sum import exchange_gauge

# Numbers that are still eliminated in rational arithmetic.
MOST_EXACT = 2_000_000

Row = dict[int, Fraction]


@dataclass(frozen=True)
class SharedPart:
    """The split ``ξ = U ξ_P + e`` of the free entries ξ.

    Attributes
    ----------
    hidden : array of int
        P: places among the free entries whose values noise hides.
    rows : dict
        For every other place j the nonzero entries of row j of U, by place.
    """

    hidden: IntArray
    rows: dict[int, Row]

    def spread(self, count: int) -> FloatArray:
        """Return U, shape (count, len(hidden)).

        Parameters
        ----------
        count : int
            Number of free entries.
        """
        matrix = np.zeros((count, len(self.hidden)))
        matrix[self.hidden, np.arange(len(self.hidden))] = 1.0
        column = {int(place): i for i, place in enumerate(self.hidden)}
        for j, row in self.rows.items():
            for place, value in row.items():
                matrix[j, column[place]] = float(value)
        return matrix

    def values(self, free: FloatArray) -> FloatArray:
        """Return e for rows of free entries, each number exact before it is rounded once.

        Parameters
        ----------
        free : array, shape (rows, k)
            Recorded free entries.
        """
        shared = np.zeros(free.shape)
        for j, row in self.rows.items():
            for i, point in enumerate(free.tolist()):
                follows = sum((u * meaning(point[p]) for p, u in row.items()), Fraction(0))
                shared[i, j] = float(meaning(point[j]) - follows)
        return shared


def shared_part(strategy: Matrices, adjacency: Adjacency, law: Law) -> SharedPart | None:
    """Return what neighbours share and noise does not hide, or None if noise hides everything.

    Parameters
    ----------
    strategy : Matrices
        F and Λ.
    adjacency : Adjacency
        The neighbours.
    law : Law
        Of the noise.
    """
    query = strategy.query
    points = getattr(law, "points", None)
    if points is not None and exchange_gauge(adjacency, query, strategy.noise, points):
        return None  # noise under the one equation there is, on everything else
    everything = Span.along(adjacency.manifold)
    if bare_combination(noise_range(strategy, law), query, everything, strategy.error) is None:
        return None
    free = adjacency.manifold.canonical.free
    place_of = {int(entry): place for place, entry in enumerate(free)}
    vectors = adjacency.exact_span()
    if len(free) * float(len(vectors)) > MOST_EXACT:
        raise AffineDPError(
            "the neighbours differ in a part of the manifold only, which is too large to be told "
            "from the rest in exact arithmetic. Give an adjacency that moves every entry"
        )
    rows = [{place_of[j]: c for j, c in vector.items() if j in place_of} for vector in vectors]
    reduced = reduce_exactly([row for row in rows if row])
    hidden = np.array(sorted(place for place, _ in reduced), dtype=np.intp)
    others: dict[int, Row] = {j: {} for j in range(len(free)) if j not in set(hidden.tolist())}
    for place, vector in reduced:
        for j, value in vector.items():
            if j != place:
                others[j][place] = value
    return SharedPart(hidden, others)


def shared_combinations(
    manifold: AffineManifold, query: Matrix, part: SharedPart
) -> tuple[str, ...]:
    """Return the combinations of entries that are published without noise, in words.

    Parameters
    ----------
    manifold : AffineManifold
        Names of the entries.
    query : matrix, shape (m, n)
        F; combinations that it does not see are left out.
    part : SharedPart
        What neighbours share.
    """
    free = manifold.canonical.free
    seen = np.abs(dense(query @ manifold.kernel)).max(axis=0, initial=0.0) > 0
    found = []
    for j, row in part.rows.items():
        if seen[j]:
            coefficients = {int(free[j]): Fraction(1)}
            coefficients |= {int(free[place]): -value for place, value in row.items()}
            text = format_equation(coefficients, Fraction(0), manifold.names)
            found.append(text.rsplit(" = ", 1)[0])
    return tuple(found)
