"""Releases with noise of any gauge: exact coordinates on a grid, or whole ones.

Real data is read in exact rational arithmetic and rounded to the nearest step of a fine grid; what
that adds to the gauge of a move is charged for.  Whole data has whole coordinates in a basis of its
lattice, and nothing is charged.  docs/explanation/knorm-draws.md gives the argument step by step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, dense
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import RationalRow, nearest_steps
from affinedp.exact.lattice import whole_solution
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import BigIntegers, combination, dot
from affinedp.laws.base import Law, Sampler
from affinedp.laws.bodies import (
    AxesPart,
    Bodies,
    PartNoise,
    PartsNoise,
    SumPart,
    grid_exponents,
)
from affinedp.laws.curves import Curve
from affinedp.laws.knorm import KNorm
from affinedp.laws.product_norm import ProductNorm, ProductPart
from affinedp.laws.sampler.bodies import StairsNoise
from affinedp.laws.staircase import Staircase, best_whole_first, whole_top, whole_variance
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Promised
from affinedp.strategies.largest_gauge import Coordinates, largest_gauge, rounded_rows
from affinedp.strategies.matrices import DensePlan, Matrices, Row, shared_part

# Rounding may make staircase noise larger than it is said to be by this share, and no more.
MOST_WIDENED = 1e-4
# The rate is rounded down to a multiple of 2^-RATE_BITS of itself.
RATE_BITS = 80
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = Fraction(1, 10_000)
# How exact the gauge of the longest move needs to be for the charge.
NEARLY = 1e-9


@dataclass(frozen=True, eq=False)
class Grid:
    """Grids of the coordinates, what draws noise on them, and the charge for reading on them."""

    # coordinate i is read in steps of ``2**exponents[i]``
    exponents: IntArray
    # the noise
    noise: PartsNoise
    # the largest gauge of a move between what is read of neighbours
    charge: Fraction
    # the rate of the noise that is drawn
    rate: Fraction
    # how much larger than stated the noise is
    factor: float


def body_grid(
    adjacency: Adjacency,
    law: KNorm | ProductNorm,
    promised: Promised,
    rows: list[Row],
    hidden: IntArray,
    bound: float | None,
) -> Grid:
    """Return bodies on grids, and a rate that pays for reading on them."""
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
    if all(isinstance(part, SumPart | AxesPart | ProductPart) for part in bodies.parts):
        return stated  # ends and widths are rounded up: no move has a larger gauge on the grid
    steps = [Fraction(2) ** -int(exponent) for exponent in exponents.tolist()]
    entries = hidden.tolist()
    in_steps = [{entries[j]: c * step for j, c in row.items()} for step, row in zip(steps, rows)]

    def exact(move: Mapping[int, Fraction]) -> list[Fraction]:
        return [dot(row, move) for row in in_steps]

    matrix = rounded_rows(in_steps, adjacency.manifold.n)
    found = largest_gauge(adjacency, matrix, bodies, exact, enough=NEARLY)
    return Fraction(found.upper)


def stairs_grid(
    law: Staircase,
    promised: Promised,
    rows: list[dict[int, Fraction]],
    bound: float | None,
) -> Grid:
    """Return the grid of staircase noise for real data: wider steps pay for its rounding.

    Neighbours that differ by n in a coordinate differ by at most |n|/g + 1 steps of the grid g
    after rounding.  With steps of the staircase so wide that this crosses no more of them than n
    does, whatever n is, the promise is that of the design, in exact arithmetic.
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
    # A move of at most k·w changes what is read by at most ⌊k w/g + s⌋ ≤ k ⌊w/g + s⌋ steps, s ≥ 1.
    widths = [
        math.floor(meaning(width) / unit + more)
        for width, unit, more in zip(law.widths.tolist(), units, spare)
    ]
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


def _first(law: Staircase, curve: Curve, share: float, width: int) -> int:
    """The first step on the grid; the loss ε must not be more probable than was promised."""
    first = min(width, max(1, round(share * width)))
    most = getattr(curve, "probability", 1.0)
    if whole_top(width, first, law.rate) > most:
        first = best_whole_first(width, law.rate)
        if whole_top(width, first, law.rate) > most:
            raise AffineDPError("the grid is too coarse for the curve of this staircase")
    return first


NOTHING = Fraction(0)


@dataclass(frozen=True, eq=False)
class ExactPlan(DensePlan):
    """Releases whose coordinates are read exactly."""

    draws_first: ClassVar[bool] = True
    # the entries of x that are read
    read: IntArray
    # coordinates as exact combinations of the entries that are read
    rows: list[Row] = field(repr=False)
    # steps of the coordinates, and what draws noise in them
    grid: Grid
    # coordinates of which the last follows from the others
    sums: list[tuple[IntArray, IntArray]] = field(repr=False)
    # for whole data, coordinates of a public whole point
    start: list[Fraction] | None = field(default=None, repr=False)

    @property
    def factor(self) -> float:  # type: ignore[override]
        """How much larger than stated the noise is."""
        return self.grid.factor

    @property
    def exponents(self) -> IntArray:
        """Coordinate i is read in steps of ``2**exponents[i]``."""
        return self.grid.exponents

    @property
    def size(self) -> int:
        """To how many numbers noise is added."""
        return len(self.exponents)

    @property
    def noise(self) -> Sampler:
        """What draws the noise, in steps."""
        return self.grid.noise

    def steps(self, data: FloatArray) -> BigIntegers:
        """Return the coordinates in steps, one column per row of data."""
        entries = data[:, self.read]
        if self.start is not None and np.any(entries != np.rint(entries)):
            raise AffineDPError("this noise is for whole numbers, and x is not whole")
        steps: BigIntegers = np.zeros((len(self.exponents), len(data)), dtype=object)
        alone, seen = self._entries_themselves
        steps[alone] = self._read(entries[:, seen].T, alone)
        for i, row in self._combinations.items():
            read = (
                row.rounded(entries, int(self.exponents[i]))
                if self.start is None
                else row.whole(entries)
            )
            if read is None:
                raise AffineDPError("x does not obey the equations in whole numbers")
            steps[i] = read
        for rows, signs in self.sums:
            others = (steps[rows[:-1]] * signs[:-1].astype(object)[:, None]).sum(axis=0)
            steps[rows[-1]] = -int(signs[-1]) * others
        return steps

    @cached_property
    def _entries_themselves(self) -> tuple[IntArray, IntArray]:
        """Coordinates that are entries of x as they stand, and which."""
        short = [(i, *next(iter(row.items()))) for i, row in enumerate(self.rows) if len(row) == 1]
        # a few coefficients stand for a million, and comparing fractions takes time
        ones = {id(c) for c in {id(c): c for _, _, c in short}.values() if c == 1}
        pairs = [(i, j) for i, j, c in short if id(c) in ones]
        if self.start is not None and any(self.start):
            pairs = [(i, j) for i, j in pairs if not self.start[i]]
        places = np.array(pairs, dtype=np.intp).reshape(-1, 2)
        return places[:, 0], places[:, 1]

    @cached_property
    def _combinations(self) -> dict[int, RationalRow]:
        """Coordinates that are put together from several entries."""
        alone = set(self._entries_themselves[0].tolist())
        return {
            i: RationalRow.of(row, None if self.start is None else self.start[i])
            for i, row in enumerate(self.rows)
            if row and i not in alone
        }

    def _read(self, values: FloatArray, places: IntArray) -> BigIntegers:
        """Entries of x as steps of the coordinates that they are."""
        exponents = np.broadcast_to(self.exponents[places][:, None], values.shape)
        near = np.rint(np.ldexp(values, -exponents))
        # doubles beyond are farther apart than steps: their decimals are read exactly
        long = np.abs(near) >= 2.0**53
        whole: BigIntegers = np.where(long, 0.0, near).astype(np.int64).astype(object)
        for exponent in np.unique(exponents[long]).tolist():
            these = long & (exponents == exponent)
            whole[these] = nearest_steps(values[these], exponent)
        return whole

    def reconstruct(self, noisy: BigIntegers, shared: FloatArray) -> FloatArray:
        """Return the outputs from noisy steps: public quantities and nothing else."""
        values = np.ldexp(noisy.astype(np.float64), self.exponents[:, None])
        return self.published(shared + np.asarray(self.strategy.noise @ values).T)


def exact_plan(
    strategy: Matrices,
    adjacency: Adjacency,
    law: Law,
    promised: Promised,
    bound: float | None,
    given: list[Row] | None = None,
) -> ExactPlan:
    """Prepare releases with noise that is bound to its coordinates, which may be given by rows."""
    manifold = strategy.domain
    shared = shared_part(strategy, adjacency, law)
    if shared is not None and (bound is not None or law.whole):
        raise AffineDPError(
            "some combinations are published without noise because neighbours agree in them "
            "exactly; this is not possible with bound= nor for whole numbers. Protect these "
            "combinations too (see Mechanism.published_without_noise)"
        )
    if given is None:
        coordinates = Coordinates.of(strategy.query, strategy.noise, law)
        if law.whole:
            return _whole_plan(strategy, law, promised, coordinates)
        if not isinstance(law, KNorm | Staircase):
            raise AffineDPError(f"{law.words} noise has no grid: simulate with it, do not release")
        given = coordinates.rows()
    free = manifold.canonical.free
    hidden = free if shared is None else free[shared.hidden]
    sums = following_sums(strategy, law, given)
    for following, _ in sums:
        given[following[-1]] = {}
    rows = rows_on_free(strategy, given)
    if shared is not None:
        rows = shared.on_hidden(rows)
    if isinstance(law, Staircase):
        if shared is not None:
            raise AffineDPError("staircase noise must hide all that the query reveals")
        grid = stairs_grid(law, promised, rows, bound)
    else:
        assert isinstance(law, KNorm | ProductNorm)
        grid = body_grid(adjacency, law, promised, rows, hidden, bound)
    finest = int(min(grid.exponents.tolist()))
    largest = math.ldexp(1.0, min(1000, 1000 + finest))
    offset = np.asarray(strategy.query @ manifold.point).ravel()
    return ExactPlan(strategy, bound, shared, offset, largest, hidden, rows, grid, sums)


def following_sums(
    strategy: Matrices, law: Law, rows: list[Row]
) -> list[tuple[IntArray, IntArray]]:
    """Return coordinates under public sums and signs; the last one follows from the others.

    That is one that would have to be put together from many entries, if there is one.
    """
    pivots = set(strategy.domain.canonical.pivots.tolist())
    found = []
    for part in law.bodies.sums if isinstance(law, KNorm | ProductNorm) else ():
        last = len(part.rows) - 1
        long = (i for i, row in enumerate(part.rows.tolist()) if pivots & rows[row].keys())
        order, chosen = np.arange(last + 1), next(long, last)
        order[[chosen, last]] = [last, chosen]
        found.append((part.rows[order], part.signs[order].astype(int)))
    return found


# ---------------------------------------------------------------------- whole numbers


def _whole_plan(
    strategy: Matrices, law: Law, promised: Promised, coordinates: Coordinates
) -> ExactPlan:
    """Coordinates in a basis of the lattice; the law is drawn as it is."""
    manifold = strategy.domain
    start = whole_solution(manifold.D, manifold.b, manifold.exact_rows)
    if start is None:
        raise AffineDPError("no whole numbers obey the equations: there is no whole data")
    rows = coordinates.rows()
    sums = following_sums(strategy, law, rows)
    moved = {j for j, value in enumerate(start) if value}
    at_start = [
        sum((c * start[j] for j, c in row.items() if j in moved), Fraction(0))
        if moved and not moved.isdisjoint(row)
        else NOTHING
        for row in rows
    ]
    noise = law.sampler()
    assert isinstance(noise, PartsNoise)
    rate = Fraction(law.rate)
    exponents = np.zeros(len(rows), dtype=np.intp)
    grid = Grid(exponents, noise, Fraction(promised.sensitivity) / rate, rate, 1.0)
    offset = np.asarray(strategy.query @ np.array([float(c) for c in start])).ravel()
    read = np.arange(manifold.n)
    return ExactPlan(strategy, None, None, offset, 2.0**53, read, rows, grid, sums, at_start)


# ---------------------------------------------------------------------- real numbers


def rows_on_free(strategy: Matrices, rows: list[Row]) -> list[Row]:
    """Return coordinates as combinations of the free entries: the others follow from them."""
    canonical = strategy.domain.canonical
    free = {int(entry): place for place, entry in enumerate(canonical.free.tolist())}
    used = {entry for row in rows for entry in row if entry not in free}
    follows: dict[int, Row] = {}
    for i, entry in enumerate(canonical.pivots.tolist()):
        if entry not in used:
            continue
        if canonical.exact_rows is not None:
            row = canonical.exact_rows[i]
            follows[entry] = {free[j]: -value for j, value in row.items() if j in free}
        else:
            line = dense(strategy.domain.kernel[[entry]]).ravel()
            follows[entry] = {int(j): Fraction(float(line[j])) for j in np.flatnonzero(line)}
    return [_on_free(row, free, follows) for row in rows]


def _on_free(row: Row, free: Mapping[int, int], follows: Mapping[int, Row]) -> Row:
    if len(row) == 1 and next(iter(row)) in free:
        return {free[entry]: value for entry, value in row.items() if value}
    return combination(
        (weight, {free[entry]: Fraction(1)} if entry in free else follows[entry])
        for entry, weight in row.items()
    )
