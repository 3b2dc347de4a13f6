"""Grids on which real data is read, the bodies of K-norm noise on them, and what that costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.bodies.cones import LatticeCones
from affinedp.bodies.exact import readable
from affinedp.bodies.noise import HullPart, Part, SumPart
from affinedp.bodies.polytope import Gauges, Polytope
from affinedp.errors import AffineDPError
from affinedp.promise.largest_gauge import largest_gauge
from affinedp.record import MechanismRecord
from affinedp.release.fixed_point import BigIntegers
from affinedp.release.sampler.cone import ConeNoise
from affinedp.release.sampler.one_sum import OneSumNoise

Row = dict[int, Fraction]

# A step in every coordinate has about this share of the largest gauge of a move.
GRID_BITS = 42
# Vertices are multiples of this many steps, so that few proposals are rejected.
SPLIT = 256
# The rate is rounded down to a multiple of 2^-RATE_BITS of itself.
RATE_BITS = 80
# Noise is drawn in batches of so many numbers, before data is read: time says little about one.
BATCH_NUMBERS = 128
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = Fraction(1, 10_000)
# How exact the gauge of the longest move needs to be for the charge.
NEARLY = 1e-9
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class PartNoise:
    """The noise of one part, in steps.

    Attributes
    ----------
    rows : array of int
        Its coordinates.
    sampler : ConeNoise or OneSumNoise
        What draws it.
    signs : array of int or None
        Under a public sum, the signs of the entries.
    """

    rows: IntArray
    sampler: ConeNoise | OneSumNoise
    signs: IntArray | None = None

    def draw(self, count: int) -> BigIntegers:
        """Return noise, shape (coordinates, count), from a batch of at least a few draws."""
        batch = max(count, -(-BATCH_NUMBERS // len(self.rows)))
        drawn: BigIntegers = self.sampler.draw(batch)[:count].T
        return drawn if self.signs is None else drawn * self.signs.astype(object)[:, None]


@dataclass(frozen=True, eq=False)
class Grid:
    """Grids of the coordinates, bodies on them, and the charge for reading on them.

    Attributes
    ----------
    exponents : array of int
        Coordinate i is read in steps of ``2**exponents[i]``.
    parts : list of PartNoise
        The noise, in steps.
    charge : Fraction
        The largest gauge of a move between what is read of neighbours.
    rate : Fraction
        The rate of the noise that is drawn.
    """

    exponents: IntArray
    parts: list[PartNoise]
    charge: Fraction
    rate: Fraction

    @classmethod
    def of(
        cls, mechanism: MechanismRecord, rows: list[Row], hidden: IntArray, bound: float | None
    ) -> Grid:
        """Return grids so fine that reading on them hardly adds to the noise.

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
        noise, sensitivity = mechanism.knorm, mechanism.guarantee.sensitivity
        largest = sensitivity / mechanism.rate  # gauge of the longest move
        exponents = np.zeros(noise.size, dtype=np.intp)
        for part in noise.parts:
            exponents[part.rows] = _exponents(part, largest)
        # how far every coordinate may be off, in steps: one for two roundings, and the data's own
        widths = [Fraction(1)] * len(rows)
        if bound is not None:  # a coordinate that follows from others has no row and needs none
            for i, row in enumerate(rows):
                off = sum((abs(c) for c in row.values()), Fraction(0)) * Fraction(2 * bound * EPS)
                widths[i] += off / Fraction(2) ** int(exponents[i])
        bodies = [_on_grid(part, exponents[part.rows]) for part in noise.parts]
        moved = _moved(mechanism, rows, hidden, exponents, bodies)
        cell = sum((b.box([widths[i] for i in b.rows.tolist()]) for b in bodies), Fraction(0))
        half = sum((b.box([Fraction(1, 2)] * len(b.rows)) for b in bodies), Fraction(0))
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
        return cls(exponents, [body.sampler(rate) for body in bodies], charge, rate)


@dataclass(frozen=True, eq=False)
class _GridHull:
    rows: IntArray
    body: Polytope

    def box(self, widths: list[Fraction]) -> Fraction:
        return self.body.box(widths)

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        return self.body.gauges(moves, doubt)

    def gauge(self, move: list[Fraction]) -> Fraction:
        return self.body.near_gauge(move)

    def sampler(self, rate: Fraction) -> PartNoise:
        return PartNoise(self.rows, ConeNoise(LatticeCones(self.body), rate))


@dataclass(frozen=True, eq=False)
class _GridSum:
    rows: IntArray
    signs: IntArray
    width: int

    def box(self, widths: list[Fraction]) -> Fraction:
        # one coordinate, of least width, follows from the others, and is off by all they are off
        counts = Counter(map(id, widths))  # nearly all are one and the same number
        different = {id(width): width for width in widths}
        total = sum((counts[key] * width for key, width in different.items()), Fraction(0))
        return (total - min(different.values())) / self.width

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        total = np.abs(moves).sum(axis=0) / (2 * self.width)
        off = doubt.sum(axis=0) / (2 * self.width) + (len(self.rows) + 4) * EPS * total
        return Gauges(np.maximum(total - off, 0.0), total + off)

    def gauge(self, move: list[Fraction]) -> Fraction:
        return sum((abs(c) for c in move), Fraction(0)) / (2 * self.width)

    def sampler(self, rate: Fraction) -> PartNoise:
        return PartNoise(self.rows, OneSumNoise(len(self.rows), rate / self.width), self.signs)


def _exponents(part: Part, largest: float) -> IntArray:
    """Grids on which a step of all coordinates has a gauge of about 2^-GRID_BITS ``largest``."""
    count = len(part.rows)
    if isinstance(part, SumPart):
        gauges = np.full(count, 1 / part.width)
    else:
        gauges = np.abs(part.body.normals).max(axis=0)
    step = largest / (gauges * count)
    return np.asarray(np.frexp(step)[1] - 1 - GRID_BITS, dtype=np.intp)


def _on_grid(part: Part, exponents: IntArray) -> _GridHull | _GridSum:
    if isinstance(part, SumPart):
        width = math.ceil(readable(part.width) / Fraction(2) ** int(exponents[0]))
        return _GridSum(part.rows, part.signs.astype(int), width)
    units = [Fraction(2) ** int(e) for e in exponents.tolist()]
    assert isinstance(part, HullPart)
    vertices = [
        tuple(Fraction(SPLIT * round(c / (SPLIT * u))) for c, u in zip(vertex, units))
        for vertex in part.body.exact_vertices
    ]
    return _GridHull(part.rows, Polytope(vertices))


def _moved(
    mechanism: MechanismRecord,
    rows: list[Row],
    hidden: IntArray,
    exponents: IntArray,
    bodies: list[_GridHull | _GridSum],
) -> Fraction:
    """The largest gauge of a move on the grid, or a little more."""
    if all(isinstance(body, _GridSum) for body in bodies):  # wider than the parts themselves
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
