"""The public part of releases with K-norm noise: exact coordinates on a grid, or whole ones.

Real data is read in exact rational arithmetic and rounded to the nearest step of a fine grid; what
that adds to the gauge of a move is charged for.  Whole data has whole coordinates in a basis of its
lattice, and nothing is charged.  docs/explanation/knorm.md gives the argument step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.bodies.exact import readable
from affinedp.bodies.lattice import whole_solution
from affinedp.bodies.noise import SumPart
from affinedp.errors import AffineDPError
from affinedp.promise.coordinates import Coordinates
from affinedp.promise.shared import SharedPart, shared_part
from affinedp.record import MechanismRecord
from affinedp.release.fixed_point import BigIntegers
from affinedp.release.knorm_grid import Grid, PartNoise, Row
from affinedp.release.sampler.cone import ConeNoise
from affinedp.release.sampler.one_sum import OneSumNoise


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
        for i, (row, exponent) in enumerate(zip(self.rows, self.exponents.tolist())):
            if self.start is None and list(row.values()) == [1]:
                ((j, _),) = row.items()
                near = np.rint(np.ldexp(entries[:, j], -exponent))
                steps[i] = [int(value) for value in near.tolist()]
            elif row:
                steps[i] = [self._step(i, point) for point in entries]
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
    grid = Grid.of(mechanism, rows, hidden, bound)
    finest = int(min(grid.exponents.tolist()))
    return KNormPlan(
        read=hidden, rows=rows, exponents=grid.exponents, parts=grid.parts, sums=_sums(mechanism),
        basis=mechanism.basis, offset=np.asarray(mechanism.query @ manifold.point).ravel(),
        shared=shared, free=free, kernel=dense(mechanism.query @ manifold.kernel)
        if shared is not None else np.zeros((0, 0)), start=None,
        largest=math.ldexp(1.0, min(1000, 1000 + finest)), bound=bound, charge=grid.charge,
        rate=grid.rate,
        noise_factor=mechanism.rate / float(grid.rate) * (1 + 2.0**-30),
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
