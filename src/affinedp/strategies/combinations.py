"""Combinations of the data that a query sees, read in exact arithmetic.

A query such as a single total sees less than the data: noise hides ``t = Q ξ`` with a rational
matrix Q of full row rank, and the outputs are ``slope @ t``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, dense, rank_of
from affinedp.exact.dyadic import nearest_steps
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import BigIntegers, reduce_exactly
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.shared import SharedPart

# Numbers that are still eliminated in rational arithmetic.
MOST_EXACT = 40_000
# Entries are read this many bits finer than their combinations.
EXTRA_BITS = 64


@dataclass(frozen=True)
class Combinations:
    """``t_i = Σ_j numerators[i, j] ξ_j / denominators[i]``, and t_i is ξ_places[i] plus others.

    Attributes
    ----------
    places : array of int
        Hidden entries of which no two stand in one combination.
    numerators : array of Python integers, shape (r, k)
        By combination and hidden entry.
    denominators : tuple of int
        By combination.
    """

    places: IntArray
    numerators: BigIntegers
    denominators: tuple[int, ...]

    @property
    def weight(self) -> float:
        """The largest sum of absolute coefficients, rounded up."""
        sums = (
            Fraction(sum(abs(n) for n in row), q)
            for row, q in zip(self.numerators.tolist(), self.denominators)
        )
        return math.nextafter(float(max(sums)), math.inf)

    def steps(self, entries: FloatArray, exponent: int) -> BigIntegers:
        """Return t on the grid ``2**exponent``, each off by at most one step.

        Parameters
        ----------
        entries : array, shape (k, columns)
            Hidden entries.
        exponent : int
            The grid of t.
        """
        finer = EXTRA_BITS + math.frexp(self.weight)[1]
        read = nearest_steps(entries, exponent - finer)
        total: BigIntegers = self.numerators @ read
        divisor = np.array([2 * q << finer for q in self.denominators], dtype=object)[:, None]
        rounded: BigIntegers = (2 * total + divisor // 2) // divisor
        return rounded


def seen_combinations(
    strategy: Matrices, slope: FloatArray, shared: SharedPart | None
) -> Combinations | None:
    """Return the combinations that the query sees, or None where it sees every hidden entry.

    Also None where they cannot be found in exact arithmetic; the plan then limits the data.

    Parameters
    ----------
    strategy : Matrices
        Its query and equations.
    slope : array, shape (m, k)
        The outputs per hidden entry, rounded.
    shared : SharedPart or None
        Which entries are hidden.
    """
    manifold = strategy.domain
    size = np.abs(slope).max(axis=1, initial=0.0)
    scaled = slope[size > 0] / size[size > 0, None]
    if rank_of(scaled) == slope.shape[1]:
        return None
    if manifold.exact_rows is None or slope.size > MOST_EXACT:
        return None
    rows = _exact_slope(strategy, shared)
    reduced = sorted(reduce_exactly([row for row in rows if row]), key=lambda pair: pair[0])
    denominators = tuple(math.lcm(*(v.denominator for v in row.values())) for _, row in reduced)
    numerators: Any = np.zeros((len(reduced), slope.shape[1]), dtype=object)
    for i, ((_, row), q) in enumerate(zip(reduced, denominators)):
        for j, value in row.items():
            numerators[i, j] = int(value * q)
    places = np.array([place for place, _ in reduced], dtype=np.intp)
    return Combinations(places, numerators, denominators)


def _exact_slope(strategy: Matrices, shared: SharedPart | None) -> list[dict[int, Fraction]]:
    """F K (or F K U) by row, in rational numbers."""
    manifold = strategy.domain
    assert manifold.exact_rows is not None
    free = {int(entry): place for place, entry in enumerate(manifold.canonical.free)}
    kernel: dict[int, dict[int, Fraction]] = {i: {j: Fraction(1)} for i, j in free.items()}
    for entry, row in _solved_for(manifold.exact_rows, manifold.canonical.pivots):
        kernel[entry] = {free[i]: -value for i, value in row.items() if i in free}
    hidden = range(len(free)) if shared is None else shared.hidden.tolist()
    column = {place: i for i, place in enumerate(hidden)}
    follows = {} if shared is None else shared.rows
    slope = []
    for outputs in dense(strategy.query):
        total: dict[int, Fraction] = {}
        for entry in np.flatnonzero(outputs).tolist():
            weight = meaning(float(outputs[entry]))
            for place, value in kernel[entry].items():
                parts = {place: Fraction(1)} if place in column else follows[place]
                for hidden_place, part in parts.items():
                    i = column[hidden_place]
                    total[i] = total.get(i, Fraction(0)) + weight * value * part
        slope.append({i: value for i, value in total.items() if value})
    return slope


def _solved_for(rows: Any, pivots: IntArray) -> list[tuple[int, dict[int, Fraction]]]:
    """The equations solved for the pivots, exactly; the pivots are a basis."""
    order = {int(entry): place for place, entry in enumerate(pivots)}
    basis = [{order[j]: v for j, v in row.items() if j in order} for row in rows]
    # [B | N]: eliminating with the other columns moved behind keeps the pivots in B
    shift = len(order)
    others = sorted({j for row in rows for j in row if j not in order})
    behind = {j: shift + place for place, j in enumerate(others)}
    joined = [
        {**left, **{behind[j]: v for j, v in row.items() if j in behind}}
        for left, row in zip(basis, rows)
    ]
    solved = []
    for place, row in _forward(joined, shift):
        solved.append(
            (int(pivots[place]), {others[j - shift]: v for j, v in row.items() if j >= shift})
        )
    return solved


def _forward(rows: list[dict[int, Fraction]], count: int) -> list[tuple[int, dict[int, Fraction]]]:
    """Gauss–Jordan on the first ``count`` columns, which are known to be independent."""
    left = [dict(row) for row in rows]
    done: list[tuple[int, dict[int, Fraction]]] = []
    for column in range(count):
        i = next(i for i, row in enumerate(left) if row.get(column))
        row = left.pop(i)
        row = {j: v / row[column] for j, v in row.items()}
        for other in [*left, *(reduced for _, reduced in done)]:
            factor = other.pop(column, None)
            if factor:
                for j, value in row.items():
                    if j != column:
                        other[j] = other.get(j, Fraction(0)) - factor * value
        done.append((column, row))
    return done
