"""The public part of releases with K-norm noise: exact coordinates on a grid, or whole ones.

Real data is read in exact rational arithmetic and rounded to the nearest step of a fine grid; what
that adds to the gauge of a move is charged for.  Whole data has whole coordinates in a basis of its
lattice, and nothing is charged.  docs/explanation/knorm.md gives the argument step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.bodies.axes import AxesPart
from affinedp.bodies.exact import readable
from affinedp.bodies.lattice import whole_solution
from affinedp.bodies.noise import SumPart
from affinedp.bodies.stairs import StairsPart
from affinedp.errors import AffineDPError
from affinedp.promise.knorm import Coordinates
from affinedp.promise.shared import SharedPart, shared_part
from affinedp.record import MechanismRecord
from affinedp.release.fixed_point import BigIntegers
from affinedp.release.knorm_grid import Grid, GridBody, GridSum, PartNoise, exponents_of, on_grid
from affinedp.release.sampler.axes import AxesNoise
from affinedp.release.sampler.cone import ConeNoise
from affinedp.release.sampler.one_sum import OneSumNoise
from affinedp.release.sampler.stairs import StairsNoise
from affinedp.release.stairs_grid import stairs_grid

Row = dict[int, Fraction]

# The rate is rounded down to a multiple of 2^-RATE_BITS of itself.
RATE_BITS = 80
LISTED = 2_000_000
# Rounding may make noise larger than it is said to be by this share, and no more.
NOTICED = Fraction(1, 10_000)
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class KNormPlan:
    """Everything about releases with K-norm noise that is public.

    Attributes
    ----------
    read : array of int
        The entries of x that are read.
    rows : list of dict
        Coordinates as exact combinations of the entries that are read.
    exponents : array of int
        Coordinate i is read in steps of ``2**exponents[i]``.
    parts : list of PartNoise
        The noise.
    sums : list of (rows, signs)
        Coordinates of which the last follows from the others.
    basis, offset : matrix and array
        What makes outputs of coordinates.
    shared, free, kernel
        What neighbours have in common and is published as it is; see
        :class:`affinedp.release.plan.Plan`.
    start : array of Python integers or None
        For whole data, coordinates of a public whole point.
    largest : float
        Data beyond this is refused.
    bound : float or None
        The public bound on the data.
    charge : Fraction
        The largest gauge of a move between what is read of neighbours.
    rate : Fraction
        The rate of the noise that is drawn.
    noise_factor : float
        How much larger than stated the noise is, for all that rounding adds.
    """

    read: IntArray
    rows: list[Row]
    exponents: IntArray
    parts: list[PartNoise]
    sums: list[tuple[IntArray, IntArray]]
    basis: Matrix
    offset: FloatArray
    shared: SharedPart | None
    free: IntArray
    kernel: FloatArray
    start: list[Fraction] | None
    largest: float
    bound: float | None
    charge: Fraction
    rate: Fraction
    noise_factor: float = 1.0
    law: str = field(default="knorm")

    def draw(self, count: int) -> BigIntegers:
        """Return noise in steps, shape (coordinates, count): draw it before data is read.

        Parameters
        ----------
        count : int
            How many rows of data.
        """
        noise: BigIntegers = np.zeros((len(self.exponents), count), dtype=object)
        for part in self.parts:
            noise[part.rows] = part.draw(count)
        return noise

    def grid_steps(self, points: FloatArray) -> BigIntegers:
        """Return the coordinates in steps, one column per row of ``points``.

        Parameters
        ----------
        points : array, shape (rows, n)
            Checked data.
        """
        entries = points[:, self.read]
        if self.start is not None and np.any(entries != np.rint(entries)):
            raise AffineDPError("this noise is for whole numbers, and x is not whole")
        steps: BigIntegers = np.zeros((len(self.exponents), len(points)), dtype=object)
        if self.start is not None and len(points) > 1:
            whole = self._whole_steps(entries)
            if whole is not None:
                return whole
        for i, (row, exponent) in enumerate(zip(self.rows, self.exponents.tolist())):
            if self.start is None and list(row.values()) == [1]:
                ((j, _),) = row.items()
                near = np.rint(np.ldexp(entries[:, j], -exponent))
                steps[i] = [int(value) for value in near.tolist()]
            elif row:
                steps[i] = [self._step(i, point) for point in entries]
        return self._with_sums(steps)

    def _whole_steps(self, entries: FloatArray) -> BigIntegers | None:
        """All coordinates of whole data at once, where 64-bit integers hold every sum."""
        assert self.start is not None
        reach = float(np.abs(entries).max(initial=1.0)) + 1.0
        total = np.zeros((len(self.rows), len(entries)), dtype=np.int64)
        columns = entries.T.astype(np.int64)
        for i, (row, start) in enumerate(zip(self.rows, self.start)):
            size = sum(abs(c) for c in row.values()) * Fraction(reach) + abs(start)
            if start.denominator != 1 or size >= 2**62:
                return None
            for j, c in row.items():
                if c.denominator != 1:
                    return None
                total[i] += int(c) * columns[j]
            total[i] -= int(start)
        return self._with_sums(total.astype(object))

    def _with_sums(self, steps: BigIntegers) -> BigIntegers:
        for rows, signs in self.sums:
            others = (steps[rows[:-1]] * signs[:-1].astype(object)[:, None]).sum(axis=0)
            steps[rows[-1]] = -int(signs[-1]) * others
        return steps

    def _step(self, i: int, entries: FloatArray) -> int:
        total = sum((c * Fraction(float(entries[j])) for j, c in self.rows[i].items()), Fraction())
        if self.start is None:
            return round(total / Fraction(2) ** int(self.exponents[i]))
        total -= self.start[i]
        if total.denominator != 1:
            raise AffineDPError("x does not obey the equations in whole numbers")
        return int(total)

    def shared_outputs(self, points: FloatArray) -> FloatArray:
        """Return what is published without noise: equal for neighbours, bit for bit.

        Parameters
        ----------
        points : array, shape (rows, n)
            Checked data.
        """
        if self.shared is None:
            return self.offset
        return np.asarray(self.offset + self.shared.values(points[:, self.free]) @ self.kernel.T)

    def publish(self, noisy: BigIntegers) -> FloatArray:
        """Return the outputs from noisy steps: public quantities and nothing else.

        Parameters
        ----------
        noisy : array of Python integers, shape (coordinates, rows)
            Steps with noise.
        """
        values = np.ldexp(noisy.astype(np.float64), self.exponents[:, None])
        return np.asarray(self.basis @ values).T


def knorm_plan(mechanism: MechanismRecord, bound: float | None) -> KNormPlan:
    """Prepare releases with K-norm noise.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by the rounding of double
        precision; otherwise recorded neighbours differ exactly as the adjacency says.
    """
    guarantee, manifold = mechanism.guarantee, mechanism.manifold
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    shared = shared_part(mechanism.adjacency, mechanism.query, mechanism.noise_range)
    if shared is not None and (bound is not None or mechanism.integers):
        raise AffineDPError(
            "some combinations are published without noise because neighbours agree in them "
            "exactly; this is not possible with bound= nor for whole numbers. Protect these "
            "combinations too (see Mechanism.published_without_noise)"
        )
    coordinates = Coordinates.of(mechanism.query, mechanism.basis, mechanism.knorm)
    if mechanism.integers:
        return _whole_plan(mechanism, coordinates)
    free = manifold.canonical.free
    hidden = free if shared is None else free[shared.hidden]
    rows = _rows_on_free(mechanism, coordinates)
    if shared is not None:
        rows = _hidden_rows(rows, shared)
    if mechanism.law == "staircase":
        if shared is not None:
            raise AffineDPError("staircase noise must hide all that the query reveals")
        grid = stairs_grid(mechanism, coordinates, rows, bound)
    else:
        grid = _body_grid(mechanism, rows, hidden, bound)
    finest = int(min(grid.exponents.tolist()))
    return KNormPlan(
        read=hidden, rows=rows, exponents=grid.exponents, parts=grid.parts, sums=_sums(mechanism),
        basis=mechanism.basis, offset=np.asarray(mechanism.query @ manifold.point).ravel(),
        shared=shared, free=free, kernel=dense(mechanism.query @ manifold.kernel)
        if shared is not None else np.zeros((0, 0)), start=None,
        largest=math.ldexp(1.0, min(1000, 1000 + finest)), bound=bound, charge=grid.charge,
        rate=grid.rate,
        noise_factor=grid.noise_factor,
    )  # fmt: skip


def _sums(mechanism: MechanismRecord) -> list[tuple[IntArray, IntArray]]:
    return [
        (part.rows, part.signs.astype(int))
        for part in mechanism.knorm.parts
        if isinstance(part, SumPart)
    ]


# ---------------------------------------------------------------------- whole numbers


def _whole_plan(mechanism: MechanismRecord, coordinates: Coordinates) -> KNormPlan:
    """Coordinates in a basis of the lattice; the law is drawn as it is."""
    manifold = mechanism.manifold
    start = whole_solution(manifold.D, manifold.b, manifold.exact_rows)
    if start is None:
        raise AffineDPError("no whole numbers obey the equations: there is no whole data")
    rows = coordinates.rows()
    at_start = [sum((c * start[j] for j, c in row.items()), Fraction(0)) for row in rows]
    rate = Fraction(mechanism.rate)
    parts = []
    for part in mechanism.knorm.parts:
        if isinstance(part, SumPart):
            sampler: Any = OneSumNoise(len(part.rows), rate / readable(part.width))
            parts.append(PartNoise(part.rows, sampler, part.signs.astype(int)))
        elif isinstance(part, StairsPart):
            steps = (part.widths.astype(int).tolist(), part.firsts.astype(int).tolist())
            parts.append(PartNoise(part.rows, StairsNoise(*steps, rate)))
        elif isinstance(part, AxesPart):
            scales = [readable(width) / rate for width in part.widths.tolist()]
            parts.append(PartNoise(part.rows, AxesNoise(scales)))
        else:
            parts.append(PartNoise(part.rows, ConeNoise(part.cones, rate)))
    point = np.array([float(c) for c in start])
    return KNormPlan(
        read=np.arange(manifold.n), rows=rows, exponents=np.zeros(len(rows), dtype=np.intp),
        parts=parts, sums=_sums(mechanism), basis=mechanism.basis,
        offset=np.asarray(mechanism.query @ point).ravel(), shared=None,
        free=manifold.canonical.free, kernel=np.zeros((0, 0)), start=at_start,
        largest=2.0**53, bound=None, charge=Fraction(mechanism.guarantee.sensitivity) / rate,
        rate=rate,
    )  # fmt: skip


# ---------------------------------------------------------------------- real numbers


def _rows_on_free(mechanism: MechanismRecord, coordinates: Coordinates) -> list[Row]:
    """The coordinates as combinations of the free entries: the others follow from them."""
    canonical = mechanism.manifold.canonical
    free = {int(entry): place for place, entry in enumerate(canonical.free)}
    follows: dict[int, Row] = {}
    if canonical.exact_rows is not None:
        for entry, row in zip(canonical.pivots.tolist(), canonical.exact_rows):
            follows[int(entry)] = {free[j]: -value for j, value in row.items() if j in free}
    else:
        kernel = mechanism.manifold.kernel
        for entry in canonical.pivots.tolist():
            line = dense(kernel[[entry]]).ravel()
            follows[int(entry)] = {int(j): Fraction(float(line[j])) for j in np.flatnonzero(line)}
    found = []
    for row in coordinates.rows():
        total: Row = {}
        for entry, weight in row.items():
            parts = {free[entry]: Fraction(1)} if entry in free else follows[entry]
            for place, value in parts.items():
                total[place] = total.get(place, Fraction(0)) + weight * value
        found.append({place: value for place, value in total.items() if value})
    return found


def _hidden_rows(rows: list[Row], shared: SharedPart) -> list[Row]:
    """The same for ξ = U ξ_P: what noise hides."""
    column = {int(place): i for i, place in enumerate(shared.hidden)}
    found = []
    for row in rows:
        total: Row = {}
        for place, weight in row.items():
            parts = {place: Fraction(1)} if place in column else shared.rows[place]
            for hidden, value in parts.items():
                i = column[hidden]
                total[i] = total.get(i, Fraction(0)) + weight * value
        found.append({i: value for i, value in total.items() if value})
    return found


def _body_grid(
    mechanism: MechanismRecord, rows: list[Row], hidden: IntArray, bound: float | None
) -> Grid:
    """Bodies on grids, and a rate that pays for reading on them."""
    noise, sensitivity = mechanism.knorm, mechanism.guarantee.sensitivity
    largest = sensitivity / mechanism.rate  # gauge of the longest move
    exponents = np.zeros(noise.size, dtype=np.intp)
    for part in noise.parts:
        exponents[part.rows] = exponents_of(part, largest)
    # how far every coordinate may be off, in steps: one for two roundings, and the data's own
    widths = [Fraction(1)] * len(rows)
    if bound is not None:
        for i, row in enumerate(rows):
            off = sum((abs(c) for c in row.values()), Fraction(0)) * Fraction(2 * bound * EPS)
            widths[i] += off / Fraction(2) ** int(exponents[i])
    bodies = [on_grid(part, exponents[part.rows]) for part in noise.parts]
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
    factor = mechanism.rate / float(rate) * (1 + 2.0**-30)
    return Grid(exponents, [body.sampler(rate) for body in bodies], charge, rate, factor)


def _moved(
    mechanism: MechanismRecord,
    rows: list[Row],
    hidden: IntArray,
    exponents: IntArray,
    bodies: list[GridBody],
) -> Fraction:
    """The largest gauge of a move on the grid, rounded up."""
    sums = [body for body in bodies if isinstance(body, GridSum)]
    if len(sums) == len(bodies):  # wider than the parts themselves: nothing to list
        guarantee = mechanism.guarantee
        return Fraction(guarantee.sensitivity) / Fraction(mechanism.rate)
    share = 64 * EPS * (mechanism.manifold.n + 8) + mechanism.manifold.kernel_error
    matrix = _float_matrix(rows, len(hidden))
    largest = 0.0
    for block in mechanism.adjacency.blocks(LISTED):
        entries = block[hidden]
        moves = np.ldexp(dense(matrix @ entries), -exponents[:, None])
        doubt = share * np.ldexp(dense(abs(matrix) @ np.abs(entries)), -exponents[:, None])
        upper = np.zeros(block.shape[1])
        for body in bodies:
            upper = upper + body.upper(moves[body.rows], doubt[body.rows])
        largest = max(largest, float(upper.max(initial=0.0)))
    return Fraction(math.nextafter(largest * (1 + 8 * EPS * len(bodies)), math.inf))


def _float_matrix(rows: Iterable[Row], width: int) -> Matrix:
    import scipy.sparse as sparse

    given = list(rows)
    place = [i for i, row in enumerate(given) for _ in row]
    column = [j for row in given for j in row]
    values = [float(c) for row in given for c in row.values()]
    found = sparse.csr_array((values, (place, column)), shape=(len(given), width))
    return found
