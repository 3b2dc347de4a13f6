"""Bodies of K-norm noise on the grid of a release, and what draws their noise in steps."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.bodies.axes import AxesPart
from affinedp.bodies.cones import LatticeCones
from affinedp.bodies.noise import HullPart, Part, SumPart
from affinedp.bodies.polytope import Gauges, Polytope
from affinedp.bodies.stairs import StairsPart
from affinedp.exact.numbers import readable
from affinedp.release.fixed_point import BigIntegers
from affinedp.release.sampler.axes import AxesNoise
from affinedp.release.sampler.cone import ConeNoise
from affinedp.release.sampler.one_sum import OneSumNoise
from affinedp.release.sampler.stairs import StairsNoise

# A step in every coordinate has about this share of the largest gauge of a move.
GRID_BITS = 42
# Vertices are multiples of this many steps, so that few proposals are rejected.
SPLIT = 256
# Noise is drawn in batches of so many numbers, before data is read: time says little about one.
BATCH_NUMBERS = 128
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class PartNoise:
    """The noise of one part, in steps.

    Attributes
    ----------
    rows : array of int
        Its coordinates.
    sampler : ConeNoise, OneSumNoise, AxesNoise or StairsNoise
        What draws it.
    signs : array of int or None
        Under a public sum, the signs of the entries.
    """

    rows: IntArray
    sampler: ConeNoise | OneSumNoise | AxesNoise | StairsNoise
    signs: IntArray | None = None

    def draw(self, count: int) -> BigIntegers:
        """Return noise, shape (coordinates, count), from a batch of at least a few draws."""
        batch = max(count, -(-BATCH_NUMBERS // len(self.rows)))
        drawn: BigIntegers = self.sampler.draw(batch)[:count].T
        return drawn if self.signs is None else drawn * self.signs.astype(object)[:, None]


@dataclass(frozen=True, eq=False)
class Grid:
    """Grids of the coordinates, what draws noise on them, and the charge for reading on them.

    Attributes
    ----------
    exponents : array of int
        Coordinate i is read in steps of ``2**exponents[i]``.
    parts : list of PartNoise
        The noise.
    charge : Fraction
        The largest gauge of a move between what is read of neighbours.
    rate : Fraction
        The rate of the noise that is drawn.
    noise_factor : float
        How much larger than stated the noise is.
    """

    exponents: IntArray
    parts: list[PartNoise]
    charge: Fraction
    rate: Fraction
    noise_factor: float


@dataclass(frozen=True, eq=False)
class GridHull:
    """A polytope in steps of the grid."""

    rows: IntArray
    body: Polytope

    def box(self, widths: list[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        return self.body.box(widths)

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""
        return self.body.gauges(moves, doubt)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return the gauge exactly."""
        return self.body.near_gauge(move)

    def sampler(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise."""
        return PartNoise(self.rows, ConeNoise(LatticeCones(self.body), rate))


@dataclass(frozen=True, eq=False)
class GridSum:
    """The body under one public sum, in steps."""

    rows: IntArray
    signs: IntArray
    width: int

    def box(self, widths: list[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        # one coordinate, of least width, follows from the others, and is off by all they are off
        counts = Counter(map(id, widths))  # nearly all are one and the same number
        different = {id(width): width for width in widths}
        total = sum((counts[key] * width for key, width in different.items()), Fraction(0))
        return (total - min(different.values())) / self.width

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""
        total = np.abs(moves).sum(axis=0) / (2 * self.width)
        off = doubt.sum(axis=0) / (2 * self.width) + (len(self.rows) + 4) * EPS * total
        return Gauges(np.maximum(total - off, 0.0), total + off)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return the gauge exactly."""
        return sum((abs(c) for c in move), Fraction(0)) / (2 * self.width)

    def sampler(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise."""
        return PartNoise(self.rows, OneSumNoise(len(self.rows), rate / self.width), self.signs)


@dataclass(frozen=True, eq=False)
class GridAxes:
    """Independent coordinates, in steps."""

    rows: IntArray
    widths: list[int]

    def box(self, widths: list[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        return sum((w / own for w, own in zip(widths, self.widths)), Fraction(0))

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""
        shares = 1 / np.array([float(width) for width in self.widths])
        total, off = shares @ np.abs(moves), shares @ doubt
        off = (off + (len(self.rows) + 8) * EPS * total) * (1 + 1e-9)
        return Gauges(np.maximum(total - off, 0.0), total + off)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return the gauge exactly."""
        return sum((abs(c) / width for c, width in zip(move, self.widths)), Fraction(0))

    def sampler(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise."""
        return PartNoise(self.rows, AxesNoise([width / rate for width in self.widths]))


GridBody = GridHull | GridSum | GridAxes


def exponents_of(part: Part, largest: float) -> IntArray:
    """Grids on which a step of all coordinates has a gauge of about 2^-GRID_BITS ``largest``."""
    count = len(part.rows)
    if isinstance(part, SumPart):
        gauges = np.full(count, 1 / part.width)
    elif isinstance(part, AxesPart | StairsPart):
        gauges = 1 / part.widths
    else:
        gauges = np.abs(part.body.normals).max(axis=0)
    step = largest / (gauges * count)
    return np.asarray(np.frexp(step)[1] - 1 - GRID_BITS, dtype=np.intp)


def on_grid(part: Part, exponents: IntArray) -> GridBody:
    """Return a part with its body rounded to the grid; the charge is taken of what comes out."""
    if isinstance(part, SumPart):
        width = math.ceil(readable(part.width) / Fraction(2) ** int(exponents[0]))
        return GridSum(part.rows, part.signs.astype(int), width)
    units = [Fraction(2) ** int(e) for e in exponents.tolist()]
    if isinstance(part, AxesPart):
        ends = zip(part.widths.tolist(), units)
        return GridAxes(part.rows, [math.ceil(readable(width) / unit) for width, unit in ends])
    assert isinstance(part, HullPart)
    vertices = [
        tuple(Fraction(SPLIT * round(c / (SPLIT * u))) for c, u in zip(vertex, units))
        for vertex in part.body.exact_vertices
    ]
    return GridHull(part.rows, Polytope(vertices))
