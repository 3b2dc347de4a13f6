"""Staircase noise on the grid of a release: wider steps pay for the rounding of data.

Neighbours that differ by n in a coordinate differ by at most |n|/g + 1 steps of the grid g after
rounding.  With steps of the staircase so wide that this crosses no more of them than n does, the
promise is that of the design, in exact arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.bodies import PartNoise, PartsNoise, grid_exponents
from affinedp.laws.sampler.stairs import StairsNoise
from affinedp.laws.staircase import Staircase, best_whole_first, whole_top, whole_variance
from affinedp.promise.coordinates import Coordinates
from affinedp.promise.exact_moves import exact_move
from affinedp.record import MechanismRecord
from affinedp.release.body_grid import Grid

MOST_MOVES = 5_000
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = 1e-4
EPS = float(np.finfo(float).eps)


def stairs_grid(
    mechanism: MechanismRecord,
    coordinates: Coordinates,
    rows: list[dict[int, Fraction]],
    bound: float | None,
) -> Grid:
    """Return the grid of a staircase mechanism for real data.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    coordinates : Coordinates
        What makes coordinates of data.
    rows : list of dict
        The same on the entries that are read.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by rounding.
    """
    law = mechanism.noise
    assert isinstance(law, Staircase)
    exponents = grid_exponents(1 / law.widths, mechanism.guarantee.sensitivity / mechanism.rate)
    units = [Fraction(2) ** int(e) for e in exponents.tolist()]
    spare = [Fraction(1)] * len(units)  # two roundings to the grid
    if bound is not None:
        if len(units) > 1:
            raise AffineDPError(
                "several coordinates with staircase noise do not go with bound=: records that are "
                "off in all of them would cross a step in each. Use Laplace noise"
            )
        off = sum((abs(c) for c in rows[0].values()), Fraction(0)) * Fraction(2 * bound * EPS)
        spare[0] += off / units[0]
    stated = [meaning(width) for width in law.widths.tolist()]
    widths = [1] * len(units)
    for move in _moves(mechanism, coordinates):
        for i, moved in enumerate(map(abs, move)):
            if moved:
                farthest = math.floor(moved / units[i] + spare[i])
                crossed = math.ceil(moved / stated[i])
                widths[i] = max(widths[i], -(-farthest // crossed))
    firsts = [_first(mechanism, law.firsts[i] / law.widths[i], w) for i, w in enumerate(widths)]
    factor = max(
        math.sqrt(whole_variance(width, first, mechanism.rate) / variance) * float(unit)
        for width, first, unit, variance in zip(widths, firsts, units, law.each.tolist())
    )
    if factor > 1 + NOTICED:
        raise AffineDPError(
            "numbers are off by so much of a neighbour's move that staircase noise would have to "
            "grow: give a smaller bound, or release with other noise"
        )
    rate = Fraction(mechanism.rate)
    charge = Fraction(mechanism.guarantee.sensitivity) / rate
    noise = PartsNoise((PartNoise(np.arange(law.size), StairsNoise(widths, firsts, rate)),))
    return Grid(exponents, noise, charge, rate, max(1.0, factor) * (1 + 1e-9))


def _moves(mechanism: MechanismRecord, coordinates: Coordinates) -> list[list[Fraction]]:
    """All moves, exactly."""
    found = []
    for column in mechanism.adjacency.directions(MOST_MOVES).T:
        move, known = exact_move(mechanism.adjacency, column)
        if not known:
            raise AffineDPError(
                "the moves are no short fractions, so that steps cannot be fitted to them exactly: "
                "use Laplace noise"
            )
        found.append(coordinates.exact(move))
    return found


def _first(mechanism: MechanismRecord, share: float, width: int) -> int:
    """The first step on the grid; the loss ε must not be more probable than was promised."""
    first = min(width, max(1, round(share * width)))
    curve = mechanism.guarantee.curve
    most = getattr(curve, "probability", 1.0)
    if whole_top(width, first, mechanism.rate) > most:
        first = best_whole_first(width, mechanism.rate)
        if whole_top(width, first, mechanism.rate) > most:
            raise AffineDPError("the grid is too coarse for the curve of this staircase")
    return first
