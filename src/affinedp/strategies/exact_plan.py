"""Releases with noise of any gauge: exact coordinates on a grid, or whole ones.

Real data is read in exact rational arithmetic and rounded to the nearest step of a fine grid; what
that adds to the gauge of a move is charged for.  Whole data has whole coordinates in a basis of its
lattice, and nothing is charged.  docs/explanation/knorm.md gives the argument step by step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import RationalRow, nearest_steps
from affinedp.exact.lattice import whole_solution
from affinedp.exact.rational import BigIntegers
from affinedp.laws.base import Law
from affinedp.laws.bodies import PartsNoise
from affinedp.laws.knorm import KNorm
from affinedp.laws.staircase import Staircase
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Drawer, Promised
from affinedp.strategies.coordinates import Coordinates
from affinedp.strategies.dense_plan import DensePlan
from affinedp.strategies.grids import Grid, Row, body_grid, stairs_grid
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.shared import SharedPart, shared_part

NOTHING = Fraction(0)


@dataclass(frozen=True, eq=False)
class ExactPlan(DensePlan):
    """Releases whose coordinates are read exactly.

    Attributes
    ----------
    read : array of int
        The entries of x that are read.
    rows : list of dict
        Coordinates as exact combinations of the entries that are read.
    grid : Grid
        Steps of the coordinates, and what draws noise in them.
    sums : list of (rows, signs)
        Coordinates of which the last follows from the others.
    basis : matrix
        What makes outputs of coordinates.
    start : list of Fraction or None
        For whole data, coordinates of a public whole point.
    """

    draws_first: ClassVar[bool] = True
    read: IntArray
    rows: list[Row] = field(repr=False)
    grid: Grid
    sums: list[tuple[IntArray, IntArray]] = field(repr=False)
    basis: Matrix = field(repr=False)
    start: list[Fraction] | None = field(repr=False)

    @property
    def exponents(self) -> IntArray:
        """Coordinate i is read in steps of ``2**exponents[i]``."""
        return self.grid.exponents

    def draw(self, count: int, drawer: Drawer) -> BigIntegers:
        """Return noise in steps, shape (coordinates, count): draw it before data is read."""
        return self.grid.noise.draw((len(self.exponents), count), drawer.source)

    def steps(self, data: FloatArray) -> BigIntegers:
        """Return the coordinates in steps, one column per row of data."""
        entries = data[:, self.read]
        if self.start is not None and np.any(entries != np.rint(entries)):
            raise AffineDPError("this noise is for whole numbers, and x is not whole")
        steps: BigIntegers = np.zeros((len(self.exponents), len(data)), dtype=object)
        if self.start is not None and len(data) > 1:
            whole = self._whole_steps(entries)
            if whole is not None:
                return whole
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

    @cached_property
    def _entries_themselves(self) -> tuple[IntArray, IntArray]:
        """Coordinates that are entries of x, and which."""
        short = [(i, *next(iter(row.items()))) for i, row in enumerate(self.rows) if len(row) == 1]
        # a few coefficients stand for a million, and comparing fractions takes time
        ones = {id(c) for c in {id(c): c for _, _, c in short}.values() if c == 1}
        pairs = [(i, j) for i, j, c in short if id(c) in ones]
        if self.start is not None and any(self.start):
            pairs = [(i, j) for i, j in pairs if self.start[i].denominator == 1]
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
        start = self._whole_start
        return whole if start is None else np.asarray(whole - start[:, None])

    @cached_property
    def _whole_start(self) -> BigIntegers | None:
        """Where the coordinates that are entries start, or None if all start at 0."""
        if self.start is None or not any(self.start):
            return None
        places = self._entries_themselves[0].tolist()
        return np.array([int(self.start[i]) for i in places], dtype=object)

    def reconstruct(self, noisy: BigIntegers, shared: FloatArray) -> FloatArray:
        """Return the outputs from noisy steps: public quantities and nothing else."""
        values = np.ldexp(noisy.astype(np.float64), self.exponents[:, None])
        return np.asarray(shared + np.asarray(self.basis @ values).T)


def exact_plan(
    strategy: Matrices, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
) -> ExactPlan:
    """Prepare releases with noise that is bound to its coordinates.

    Parameters
    ----------
    strategy : Matrices
        F, and what makes outputs of coordinates.
    adjacency : Adjacency
        The neighbours.
    law : Law
        Of the coordinates.
    promised : Promised
        What releases must keep.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by the rounding of double
        precision; otherwise recorded neighbours differ exactly as the adjacency says.
    """
    manifold = strategy.domain
    shared = shared_part(strategy, adjacency, law)
    if shared is not None and (bound is not None or law.whole):
        raise AffineDPError(
            "some combinations are published without noise because neighbours agree in them "
            "exactly; this is not possible with bound= nor for whole numbers. Protect these "
            "combinations too (see Mechanism.published_without_noise)"
        )
    coordinates = Coordinates.of(strategy.query, strategy.noise, law)
    if law.whole:
        return _whole_plan(strategy, law, promised, coordinates)
    free = manifold.canonical.free
    hidden = free if shared is None else free[shared.hidden]
    given = coordinates.rows()
    sums = _sums(strategy, law, given)
    for following, _ in sums:
        given[following[-1]] = {}
    rows = _rows_on_free(strategy, given)
    if shared is not None:
        rows = _hidden_rows(rows, shared)
    if isinstance(law, Staircase):
        if shared is not None:
            raise AffineDPError("staircase noise must hide all that the query reveals")
        grid = stairs_grid(adjacency, law, promised, coordinates, rows, bound)
    elif isinstance(law, KNorm):
        grid = body_grid(adjacency, law, promised, rows, hidden, bound)
    else:
        raise AffineDPError(f"{law.words} noise has no grid: simulate with it, do not release")
    finest = int(min(grid.exponents.tolist()))
    kernel = np.zeros((0, 0)) if shared is None else dense(strategy.query @ manifold.kernel)
    return ExactPlan(
        factor=grid.factor,
        bound=bound,
        largest=math.ldexp(1.0, min(1000, 1000 + finest)),
        free=free,
        offset=np.asarray(strategy.query @ manifold.point).ravel(),
        kernel=kernel,
        common=shared,
        read=hidden,
        rows=rows,
        grid=grid,
        sums=sums,
        basis=strategy.noise,
        start=None,
    )


def _sums(strategy: Matrices, law: Law, rows: list[Row]) -> list[tuple[IntArray, IntArray]]:
    """Coordinates under public sums and their signs; the last one follows from the others.

    That is one that would have to be put together from many entries, if there is one.
    """
    pivots = set(strategy.domain.canonical.pivots.tolist())
    found = []
    for part in law.bodies.sums if isinstance(law, KNorm) else ():
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
    sums = _sums(strategy, law, rows)
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
    point = np.array([float(c) for c in start])
    return ExactPlan(
        factor=1.0,
        bound=None,
        largest=2.0**53,
        free=manifold.canonical.free,
        offset=np.asarray(strategy.query @ point).ravel(),
        kernel=np.zeros((0, 0)),
        common=None,
        read=np.arange(manifold.n),
        rows=rows,
        grid=grid,
        sums=sums,
        basis=strategy.noise,
        start=at_start,
    )


# ---------------------------------------------------------------------- real numbers


def _rows_on_free(strategy: Matrices, rows: list[Row]) -> list[Row]:
    """The coordinates as combinations of the free entries: the others follow from them."""
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
    total: Row = {}
    for entry, weight in row.items():
        parts = {free[entry]: Fraction(1)} if entry in free else follows[entry]
        for place, value in parts.items():
            total[place] = total.get(place, Fraction(0)) + weight * value
    return {place: value for place, value in total.items() if value}


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
