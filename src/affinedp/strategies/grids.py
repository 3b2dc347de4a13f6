"""Grids of coordinates that are read exactly, and what reading on them costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import IntArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.bodies import Bodies, PartNoise, PartsNoise, SumPart, grid_exponents
from affinedp.laws.curves import Curve
from affinedp.laws.knorm import KNorm
from affinedp.laws.sampler.stairs import StairsNoise
from affinedp.laws.staircase import Staircase
from affinedp.laws.stairs import best_whole_first, whole_top, whole_variance
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.exact_moves import exact_move
from affinedp.strategies.base import Promised
from affinedp.strategies.coordinates import Coordinates
from affinedp.strategies.largest_gauge import largest_gauge

Row = dict[int, Fraction]

MOST_MOVES = 5_000
# Rounding may make staircase noise larger than it is said to be by this share, and no more.
MOST_WIDENED = 1e-4
# The rate is rounded down to a multiple of 2^-RATE_BITS of itself.
RATE_BITS = 80
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = Fraction(1, 10_000)
# How exact the gauge of the longest move needs to be for the charge.
NEARLY = 1e-9
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Grid:
    """Grids of the coordinates, what draws noise on them, and the charge for reading on them.

    Attributes
    ----------
    exponents : array of int
        Coordinate i is read in steps of ``2**exponents[i]``.
    noise : PartsNoise
        The noise.
    charge : Fraction
        The largest gauge of a move between what is read of neighbours.
    rate : Fraction
        The rate of the noise that is drawn.
    factor : float
        How much larger than stated the noise is.
    """

    exponents: IntArray
    noise: PartsNoise
    charge: Fraction
    rate: Fraction
    factor: float


def body_grid(
    adjacency: Adjacency,
    law: KNorm,
    promised: Promised,
    rows: list[Row],
    hidden: IntArray,
    bound: float | None,
) -> Grid:
    """Return bodies on grids, and a rate that pays for reading on them.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours.
    law : KNorm
        Of the coordinates.
    promised : Promised
        What releases must keep.
    rows : list of dict
        Coordinates as exact combinations of the entries that are read.
    hidden : array of int
        Those entries.
    bound : float or None
        The public bound on the data.
    """
    sensitivity = promised.sensitivity
    largest = sensitivity / law.rate  # gauge of the longest move
    exponents = law.bodies.exponents(largest)
    # how far every coordinate may be off, in steps: one for two roundings, and the data's own
    widths = [Fraction(1)] * len(rows)
    if bound is not None:  # a coordinate that follows from others has no row and needs none
        for i, row in enumerate(rows):
            off = sum((abs(c) for c in row.values()), Fraction(0)) * Fraction(2 * bound * EPS)
            widths[i] += off / Fraction(2) ** int(exponents[i])
    bodies = law.bodies.on_grid(exponents)
    exact = Fraction(sensitivity) / Fraction(law.rate)
    moved = _moved(adjacency, exact, rows, hidden, exponents, bodies)
    cell, half = bodies.box(widths), bodies.box([Fraction(1, 2)] * len(rows))
    # one release needs the first two; the last makes the law on the grid a law that scalar
    # Laplace noise dominates, for compositions
    charge = moved + cell + 4 * half
    rate = Fraction(sensitivity) / charge
    unit = Fraction(2) ** (math.frexp(float(rate))[1] - RATE_BITS)
    rate = math.floor(rate / unit) * unit
    if charge > Fraction(largest) * (1 + NOTICED):
        if bound is not None and cell > 1000 * half:
            raise AffineDPError(
                f"numbers up to bound={bound:g} are off by so much of a neighbour's move that "
                "K-norm noise would have to grow: give a smaller bound, whole numbers or "
                "decimals that are exact without bound=, or release with Gaussian noise"
            )
        raise AffineDPError(
            "the body is too flat for the grid of releases: some outputs have far more noise "
            "than others. Rescale the outputs, or release them apart"
        )
    factor = law.rate / float(rate) * (1 + 2.0**-30)
    return Grid(exponents, bodies.drawn(rate), charge, rate, factor)


def _moved(
    adjacency: Adjacency,
    stated: Fraction,
    rows: list[Row],
    hidden: IntArray,
    exponents: IntArray,
    bodies: Bodies,
) -> Fraction:
    """The largest gauge of a move on the grid, or a little more."""
    if all(isinstance(part, SumPart) for part in bodies.parts):  # wider than the parts themselves
        return stated
    steps = [Fraction(2) ** -int(exponent) for exponent in exponents.tolist()]
    entries = hidden.tolist()

    def exact(move: Mapping[int, Fraction]) -> list[Fraction]:
        read = [move.get(entry, Fraction(0)) for entry in entries]
        return [
            step * sum((c * read[j] for j, c in row.items()), Fraction(0))
            for step, row in zip(steps, rows)
        ]

    matrix = _float_matrix(rows, steps, hidden, adjacency.manifold.n)
    found = largest_gauge(adjacency, matrix, bodies, exact, enough=NEARLY)
    return Fraction(found.upper)


def _float_matrix(rows: list[Row], steps: list[Fraction], hidden: IntArray, width: int) -> Matrix:
    """The coordinates in steps, each number rounded once."""
    import scipy.sparse as sparse

    place = [i for i, row in enumerate(rows) for _ in row]
    column = [int(hidden[j]) for row in rows for j in row]
    values = [float(c * step) for step, row in zip(steps, rows) for c in row.values()]
    found: Matrix = sparse.csr_array((values, (place, column)), shape=(len(rows), width))
    return found


def stairs_grid(
    adjacency: Adjacency,
    law: Staircase,
    promised: Promised,
    coordinates: Coordinates,
    rows: list[dict[int, Fraction]],
    bound: float | None,
) -> Grid:
    """Return the grid of staircase noise for real data: wider steps pay for its rounding.

    Neighbours that differ by n in a coordinate differ by at most |n|/g + 1 steps of the grid g
    after rounding.  With steps of the staircase so wide that this crosses no more of them than n
    does, the promise is that of the design, in exact arithmetic.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours.
    law : Staircase
        Of the coordinates.
    promised : Promised
        What releases must keep.
    coordinates : Coordinates
        What makes coordinates of data.
    rows : list of dict
        The same on the entries that are read.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by rounding.
    """
    exponents = grid_exponents(1 / law.widths, promised.sensitivity / law.rate)
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
    for move in _moves(adjacency, coordinates):
        for i, moved in enumerate(map(abs, move)):
            if moved:
                farthest = math.floor(moved / units[i] + spare[i])
                crossed = math.ceil(moved / stated[i])
                widths[i] = max(widths[i], -(-farthest // crossed))
    firsts = [
        _first(law, promised.curve, law.firsts[i] / law.widths[i], w) for i, w in enumerate(widths)
    ]
    factor = max(
        math.sqrt(whole_variance(width, first, law.rate) / variance) * float(unit)
        for width, first, unit, variance in zip(
            widths, firsts, units, law.variance_of_each.tolist()
        )
    )
    if factor > 1 + MOST_WIDENED:
        raise AffineDPError(
            "numbers are off by so much of a neighbour's move that staircase noise would have to "
            "grow: give a smaller bound, or release with other noise"
        )
    rate = Fraction(law.rate)
    charge = Fraction(promised.sensitivity) / rate
    noise = PartsNoise((PartNoise(np.arange(law.size), StairsNoise(widths, firsts, rate)),))
    return Grid(exponents, noise, charge, rate, max(1.0, factor) * (1 + 1e-9))


def _moves(adjacency: Adjacency, coordinates: Coordinates) -> list[list[Fraction]]:
    """All moves, exactly."""
    found = []
    for column in adjacency.directions(MOST_MOVES).T:
        move, known = exact_move(adjacency, column)
        if not known:
            raise AffineDPError(
                "the moves are no short fractions, so that steps cannot be fitted to them exactly: "
                "use Laplace noise"
            )
        found.append(coordinates.exact(move))
    return found


def _first(law: Staircase, curve: Curve, share: float, width: int) -> int:
    """The first step on the grid; the loss ε must not be more probable than was promised."""
    first = min(width, max(1, round(share * width)))
    most = getattr(curve, "probability", 1.0)
    if whole_top(width, first, law.rate) > most:
        first = best_whole_first(width, law.rate)
        if whole_top(width, first, law.rate) > most:
            raise AffineDPError("the grid is too coarse for the curve of this staircase")
    return first
