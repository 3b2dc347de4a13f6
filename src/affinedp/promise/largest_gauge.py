"""The largest gauge of a listed move: bounds for all, and exactly for those on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.laws.base import Gauges
from affinedp.laws.curves import EPS
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.exact_moves import exact_move

LISTED = 2_000_000
# Moves that floats cannot tell from the largest, and whose gauge is computed exactly.
MOST_EXACT = 5_000

Exact = Callable[[Mapping[int, Fraction]], list[Fraction]]


class Body(Protocol):
    """Noise that can tell the gauge of its coordinates: a law, or bodies on a grid."""

    def gauges(self, moves: FloatArray, doubt: FloatArray, /) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""

    def gauge(self, move: list[Fraction], /) -> Fraction:
        """Return the gauge exactly."""


@dataclass(frozen=True, eq=False)
class LargestGauge:
    """The largest gauge of a move.

    Attributes
    ----------
    lower, upper : float or Fraction
        Certain bounds, rounding included; equal where it is known.
    direction : array, shape (n,), or None
        A move that has it.
    count : int
        How many moves were listed.
    """

    lower: float | Fraction
    upper: float | Fraction
    direction: FloatArray | None
    count: int


def largest_gauge(
    adjacency: Adjacency,
    matrix: Matrix,
    body: Body,
    exact: Exact,
    enough: float = 0.0,
) -> LargestGauge:
    """Return the largest gauge of all moves.

    Parameters
    ----------
    adjacency : Adjacency
        Its directions can be listed.
    matrix : matrix, shape (r, n)
        Coordinates of a move, each number rounded once.
    body : Body
        The noise.
    exact : callable
        Returns the coordinates of a move in rational numbers.
    enough : float
        Bounds that differ by less than this share will do, without exact arithmetic.
    """
    rounding = 8 * EPS * (adjacency.manifold.n + 8)
    best, count = 0.0, 0
    near: list[tuple[FloatArray, FloatArray]] = []
    for listed in adjacency.moves(LISTED):
        block = listed.values
        count += block.shape[1]
        moves = dense(matrix @ block)
        doubt = dense(abs(matrix) @ (listed.off + rounding * np.abs(block)))
        gauges = body.gauges(moves, doubt)
        best = max(best, float(gauges.lower.max(initial=0.0)))
        chosen = gauges.upper >= best
        near.append((block[:, chosen], gauges.upper[chosen]))
    upper = np.concatenate([part for _, part in near]) if near else np.zeros(0)
    if not len(upper):
        return LargestGauge(0.0, 0.0, None, count)
    columns = np.hstack([part for part, _ in near])[:, upper >= best]
    upper = upper[upper >= best]
    above, worst = float(upper.max()), columns[:, int(np.argmax(upper))]
    if columns.shape[1] > MOST_EXACT or above <= best * (1 + enough):
        return LargestGauge(best, above, worst, count)
    read = [exact_move(adjacency, column) for column in columns.T]
    values = [body.gauge(exact(move)) for move, _ in read]
    top = max(values)
    worst = columns[:, values.index(top)]
    # doubles that are not the move itself are off by their rounding, and what they cancel to by
    # far more: of those only the bounds hold
    unknown = [value for value, (_, known) in zip(upper.tolist(), read) if not known]
    if not unknown:
        return LargestGauge(top, top, worst, count)
    known = [value for value, (_, sure) in zip(values, read) if sure]
    highest = max([*known, Fraction(max(unknown))])
    return LargestGauge(max([*known, Fraction(best)]), highest, worst, count)
