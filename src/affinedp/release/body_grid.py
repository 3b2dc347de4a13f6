"""Bodies of K-norm noise on the grids of a release, and what reading on them costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import IntArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.laws.bodies import Bodies, PartsNoise, SumPart
from affinedp.laws.knorm import KNorm
from affinedp.promise.largest_gauge import largest_gauge
from affinedp.record import MechanismRecord

Row = dict[int, Fraction]

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
    noise_factor : float
        How much larger than stated the noise is.
    """

    exponents: IntArray
    noise: PartsNoise
    charge: Fraction
    rate: Fraction
    noise_factor: float


def body_grid(
    mechanism: MechanismRecord, rows: list[Row], hidden: IntArray, bound: float | None
) -> Grid:
    """Return bodies on grids, and a rate that pays for reading on them.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    rows : list of dict
        Coordinates as exact combinations of the entries that are read.
    hidden : array of int
        Those entries.
    bound : float or None
        The public bound on the data.
    """
    noise, sensitivity = mechanism.noise, mechanism.guarantee.sensitivity
    assert isinstance(noise, KNorm)
    largest = sensitivity / mechanism.rate  # gauge of the longest move
    exponents = noise.bodies.exponents(largest)
    # how far every coordinate may be off, in steps: one for two roundings, and the data's own
    widths = [Fraction(1)] * len(rows)
    if bound is not None:  # a coordinate that follows from others has no row and needs none
        for i, row in enumerate(rows):
            off = sum((abs(c) for c in row.values()), Fraction(0)) * Fraction(2 * bound * EPS)
            widths[i] += off / Fraction(2) ** int(exponents[i])
    bodies = noise.bodies.on_grid(exponents)
    moved = _moved(mechanism, rows, hidden, exponents, bodies)
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
    factor = mechanism.rate / float(rate) * (1 + 2.0**-30)
    return Grid(exponents, bodies.drawn(rate), charge, rate, factor)


def _moved(
    mechanism: MechanismRecord,
    rows: list[Row],
    hidden: IntArray,
    exponents: IntArray,
    bodies: Bodies,
) -> Fraction:
    """The largest gauge of a move on the grid, or a little more."""
    if all(isinstance(part, SumPart) for part in bodies.parts):  # wider than the parts themselves
        return Fraction(mechanism.guarantee.sensitivity) / Fraction(mechanism.rate)
    steps = [Fraction(2) ** -int(exponent) for exponent in exponents.tolist()]
    entries = hidden.tolist()

    def exact(move: Mapping[int, Fraction]) -> list[Fraction]:
        read = [move.get(entry, Fraction(0)) for entry in entries]
        return [
            step * sum((c * read[j] for j, c in row.items()), Fraction(0))
            for step, row in zip(steps, rows)
        ]

    matrix = _float_matrix(rows, steps, hidden, mechanism.manifold.n)
    found = largest_gauge(mechanism.adjacency, matrix, bodies, exact, enough=NEARLY)
    return Fraction(found.upper)


def _float_matrix(rows: list[Row], steps: list[Fraction], hidden: IntArray, width: int) -> Matrix:
    """The coordinates in steps, each number rounded once."""
    import scipy.sparse as sparse

    place = [i for i, row in enumerate(rows) for _ in row]
    column = [int(hidden[j]) for row in rows for j in row]
    values = [float(c * step) for step, row in zip(steps, rows) for c in row.values()]
    found: Matrix = sparse.csr_array((values, (place, column)), shape=(len(rows), width))
    return found
