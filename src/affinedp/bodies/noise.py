"""K-norm noise as a mechanism keeps it: a matrix of points, a rate, and whether on integers.

The columns of ``root`` are points of K, up to sign; blocks of rows and columns that have nothing to
do with each other are independent noises, since the gauge of their joint hull is the sum of theirs.
One column with several entries s stands for one public sum: K = {s·z = 0, ‖z‖₁ ≤ 2 |s_i|}, the hull
of all |s_i| (e_i ± e_j) on it, which is far too long to list for many entries.  Coordinates that no
point ties to others are independent noises: a diagonal root is a cross-polytope.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_sparse
from affinedp.bodies import one_sum
from affinedp.bodies.axes import AxesPart
from affinedp.bodies.cones import MOST_LISTED, LatticeCones
from affinedp.bodies.polytope import Gauges, Polytope, polytope_of
from affinedp.bodies.stairs import StairsPart
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import readable

# Entries of a public sum whose cones are listed: C(2n − 2, n − 1) of them.
MOST_HULL = 7


@dataclass(frozen=True, eq=False)
class HullPart:
    """Noise e^(−rate ‖z‖_K) with K a polytope.

    Attributes
    ----------
    rows : array of int
        Its coordinates.
    body : Polytope
        K.
    rate : float
        The rate.
    integers : bool
        Whether z is drawn from the lattice of whole coordinates, or from R^r.
    """

    rows: IntArray
    body: Polytope
    rate: float
    integers: bool

    @cached_property
    def cones(self) -> LatticeCones:
        """The lattice in cones over the boundary of K."""
        return LatticeCones(self.body)

    @cached_property
    def moment(self) -> FloatArray:
        """E zzᵀ."""
        if self.integers:
            return self.cones.second_moment(self.rate)
        return self.body.second_moment() / self.rate**2

    def errors(self, basis: Matrix) -> FloatArray:
        """Return the variances of ``basis @ z``."""
        columns = dense(basis)
        return np.asarray(np.einsum("ij,jk,ik->i", columns, self.moment, columns))

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        return self.body.gauges(moves, doubt)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        return self.body.near_gauge(move)

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw for simulation, shape (size, r)."""
        if not self.integers:
            return self.body.sample(size, generator) / self.rate
        cones = self.cones
        if cones.total > MOST_LISTED:
            raise AffineDPError("the lattice is too fine to simulate: treat the data as real")
        step = self.rate * float(cones.unit)
        weights = np.exp(-step * np.concatenate([sums for _, _, sums in cones.boxes]))
        boxes = np.concatenate([points for _, points, _ in cones.boxes])
        owner = np.repeat(np.arange(len(cones.boxes)), [len(p) for _, p, _ in cones.boxes])
        generators = np.stack([generators for generators, _, _ in cones.boxes])
        chosen = generator.choice(len(weights), size, p=weights / weights.sum())
        further = generator.geometric(-math.expm1(-step), (size, len(self.rows))) - 1
        lengths = boxes[chosen] + further
        drawn = np.einsum("na,nai->ni", lengths, generators[owner[chosen]])
        return np.asarray(np.rint(drawn))


@dataclass(frozen=True, eq=False)
class SumPart:
    """Noise under one public sum, of any number of entries.

    Attributes
    ----------
    rows : array of int
        Its coordinates: one per entry, bound by ``signs · z = 0``.
    signs : array
        ±1.
    width : float
        How far one entry moves between the vertices of K.
    rate : float
        The rate.
    integers : bool
        Whether z is whole.
    """

    rows: IntArray
    signs: FloatArray
    width: float
    rate: float
    integers: bool

    @cached_property
    def variance(self) -> float:
        """σ² with E zzᵀ = σ² (I − ssᵀ/n)."""
        n, rate = len(self.rows), self.rate / self.width
        error = one_sum.integer_error if self.integers else one_sum.continuous_error
        return error(n, rate) / (n - 1)

    @property
    def moment(self) -> FloatArray:
        """E zzᵀ."""
        n = len(self.rows)
        return np.asarray(self.variance * (np.eye(n) - np.outer(self.signs, self.signs) / n))

    def errors(self, basis: Matrix) -> FloatArray:
        """Return the variances of ``basis @ z``."""
        squares = basis.multiply(basis) if is_sparse(basis) else basis * basis
        along = np.asarray(basis @ self.signs).ravel()
        total = np.asarray(squares.sum(axis=1)).ravel()
        return np.asarray(self.variance * (total - along**2 / len(self.rows)))

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        sums = np.abs(moves).sum(axis=0) / (2 * self.width)
        off = doubt.sum(axis=0) / (2 * self.width) + (len(self.rows) + 4) * 2.0**-52 * sums
        return Gauges(np.maximum(sums - off, 0.0), sums + off)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        return sum((abs(c) for c in move), Fraction(0)) / (2 * readable(self.width))

    @cached_property
    def hull(self) -> HullPart | None:
        """The same noise in all coordinates but the last, as a listed body; None if it is large."""
        n = len(self.rows)
        if n > MOST_HULL:
            return None
        first, second = np.triu_indices(n, 1)
        points = np.zeros((n, len(first)))
        points[first, np.arange(len(first))] = self.width * self.signs[first]
        points[second, np.arange(len(first))] = -self.width * self.signs[second]
        return HullPart(self.rows[:-1], polytope_of(points[:-1]), self.rate, self.integers)

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw for simulation, shape (size, n)."""
        rate = self.rate / self.width
        drawn = one_sum.sample(len(self.rows), rate, self.integers, size, generator)
        return np.asarray(drawn * self.signs)


Part = HullPart | SumPart | AxesPart | StairsPart
# Laws whose noise is drawn in coordinates, from a body or from stairs.
BODY_LAWS = ("knorm", "staircase")


class KNormNoise:
    """Independent parts of K-norm noise.

    Parameters
    ----------
    root : matrix, shape (r, p)
        Points of K as columns, up to sign; see the module.
    rate : float
        The density is ∝ e^(−rate ‖z‖_K).
    integers : bool
        Whether z has whole coordinates.

    Examples
    --------
    >>> hexagon = KNormNoise(np.array([[1.0, 0, 1], [0, 1, -1]]), 2.0)
    >>> round(float(hexagon.moment.trace()), 6)                # 6.67 / 2² in these coordinates
    1.666667
    """

    def __init__(self, root: Matrix, rate: float = 1.0, integers: bool = False) -> None:
        self.size = int(root.shape[0])
        self.rate, self.integers = float(rate), bool(integers)
        self.parts: list[Part] = []
        known: dict[bytes, Polytope] = {}  # equal blocks are one body
        alone: list[tuple[int, float]] = []
        for rows, columns in _spanned_parts(root):
            points = dense(root[rows][:, columns])
            if len(rows) == 1:
                alone.append((int(rows[0]), float(np.abs(points).max())))
                continue
            if len(rows) > 1 and len(columns) == 1:
                self.parts.append(self._sum(rows, points[:, 0]))
                continue
            key = points.tobytes() + repr(points.shape).encode()
            if key not in known:
                known[key] = polytope_of(points)
            self.parts.append(HullPart(rows, known[key], self.rate, self.integers))
        if alone:
            axes, widths = np.array([row for row, _ in alone]), np.array([w for _, w in alone])
            self.parts.append(AxesPart(axes, widths, self.rate, self.integers))

    def _sum(self, rows: IntArray, column: FloatArray) -> SumPart:
        width = float(np.abs(column).max())
        if not np.all(np.abs(column) == width):
            raise AffineDPError("one point cannot span a body of several dimensions")
        return SumPart(rows, np.sign(column), width, self.rate, self.integers)

    @cached_property
    def moment(self) -> Matrix:
        """E zzᵀ, dense for one part, in blocks for several."""
        if len(self.parts) == 1:
            order = np.argsort(self.parts[0].rows)
            return self.parts[0].moment[order][:, order]
        import scipy.sparse as sparse

        blocks: Any = sparse.csr_array(sparse.block_diag([part.moment for part in self.parts]))
        order = np.argsort(np.concatenate([part.rows for part in self.parts]))
        return blocks[order][:, order]

    def depths(self, points: FloatArray) -> FloatArray:
        """Return how far the logarithm of the density has fallen, in units of the rate.

        Parameters
        ----------
        points : array, shape (r, K)
            One per column.
        """
        return self.gauges(points)

    def errors(self, basis: Matrix) -> FloatArray:
        """Return the variance of every row of ``basis @ z``.

        Parameters
        ----------
        basis : matrix, shape (m, r)
            What makes outputs of z.
        """
        total = np.zeros(basis.shape[0])
        for part in self.parts:
            total += part.errors(basis[:, part.rows])
        return total

    def gauges(self, moves: FloatArray) -> FloatArray:
        """Return the gauges of many vectors, in floating point.

        Parameters
        ----------
        moves : array, shape (r, K)
            One per column.
        """
        total = np.zeros(moves.shape[1])
        for part in self.parts:
            own = moves[part.rows]
            bounds = part.gauges(own, np.zeros_like(own))
            total += (bounds.lower + bounds.upper) / 2
        return total

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw z for simulation, shape (size, r).

        Parameters
        ----------
        size : int
            How many.
        generator : Generator
            NumPy's.
        """
        drawn = np.zeros((size, self.size))
        for part in self.parts:
            drawn[:, part.rows] = part.sample(size, generator)
        return drawn


class StairsNoise(KNormNoise):
    """Independent staircase noise in every coordinate.

    Parameters
    ----------
    root : matrix, shape (r, 2r)
        In row i the width of a step and that of the first one, and nothing else but zeros.
    rate : float
        By how much the logarithm of the density falls at every step.
    integers : bool
        Whether z has whole coordinates.

    Examples
    --------
    >>> round(float(StairsNoise(np.array([[1.0, 0.4]]), 1.0).moment[0, 0]), 4)
    1.9184
    """

    def __init__(self, root: Matrix, rate: float = 1.0, integers: bool = False) -> None:
        self.size = int(root.shape[0])
        self.rate, self.integers = float(rate), bool(integers)
        steps = np.sort(np.abs(dense(root)), axis=1)[:, -2:]
        if root.shape[1] < 2 or np.any(steps <= 0) or (dense(root) != 0).sum() != 2 * self.size:
            raise AffineDPError("stairs need the width of a step and of the first one")
        if self.integers and np.any(steps != np.rint(steps)):
            raise AffineDPError("stairs on whole numbers have whole widths")
        firsts, widths = steps.T
        rows = np.arange(self.size)
        self.stairs = StairsPart(rows, widths, firsts, self.rate, self.integers)
        self.parts = [self.stairs]

    def depths(self, points: FloatArray) -> FloatArray:
        """Return how many steps down the columns are.

        Parameters
        ----------
        points : array, shape (r, K)
            One per column.
        """
        return self.stairs.depths(points)


def noise_of(law: str, root: Matrix, rate: float, integers: bool) -> KNormNoise:
    """Return the noise of a law in coordinates.

    Parameters
    ----------
    law : {"knorm", "staircase"}
        Which.
    root, rate, integers
        As for :class:`KNormNoise` or :class:`StairsNoise`.
    """
    return (StairsNoise if law == "staircase" else KNormNoise)(root, rate, integers)


def free_coordinates(root: Matrix) -> IntArray:
    """Return the coordinates that no other ones determine: all but the last of every public sum.

    Parameters
    ----------
    root : matrix, shape (r, p)
        As for :class:`KNormNoise`.
    """
    last = [int(rows[-1]) for rows, _ in _sums(root)]
    return np.setdiff1d(np.arange(root.shape[0]), last)


def noise_span(root: Matrix) -> Matrix | None:
    """Return few vectors that span the noise, as columns; None if all coordinates are free.

    Parameters
    ----------
    root : matrix, shape (r, p)
        As for :class:`KNormNoise`.
    """
    import scipy.sparse as sparse

    sums = list(_sums(root))
    if not sums:
        return None
    kept = free_coordinates(root)
    place = {int(row): i for i, row in enumerate(kept)}
    entries = [(row, i, 1.0) for row, i in place.items()]
    for rows, signs in sums:  # the last entry follows from the others
        pairs = zip(rows[:-1].tolist(), signs[:-1].tolist())
        entries += [(int(rows[-1]), place[row], -sign * float(signs[-1])) for row, sign in pairs]
    i, j, values = zip(*entries)
    return sparse.csr_array((values, (i, j)), shape=(root.shape[0], len(kept)))


def body_points(root: Matrix) -> Matrix:
    """Return points of the body, up to sign, as columns: also those under public sums.

    Parameters
    ----------
    root : matrix, shape (r, p)
        As for :class:`KNormNoise`.
    """
    import scipy.sparse as sparse

    sums = list(_sums(root))
    if not sums:
        return root
    widths = np.abs(dense(root[[rows[0] for rows, _ in sums]])).max(axis=1)
    whole = sparse.csc_array(root)
    used = {int(whole[[rows[0]]].nonzero()[1][0]) for rows, _ in sums}
    parts = [whole[:, [j for j in range(root.shape[1]) if j not in used]]]
    for (rows, signs), width in zip(sums, widths.tolist()):
        first, second = np.triu_indices(len(rows), 1)
        columns = np.tile(np.arange(len(first)), 2)
        place = np.concatenate([rows[first], rows[second]])
        values = width * np.concatenate([signs[first], -signs[second]])
        parts.append(
            sparse.csc_array((values, (place, columns)), shape=(root.shape[0], len(first)))
        )
    return sparse.csr_array(sparse.hstack(parts))


def _sums(root: Matrix) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows and signs of the public sums."""
    for rows, columns in _spanned_parts(root):
        if len(rows) > 1 and len(columns) == 1:
            yield rows, np.sign(dense(root[rows][:, columns])[:, 0])


def _spanned_parts(root: Matrix) -> Iterator[tuple[IntArray, IntArray]]:
    """Coordinates and points that belong together."""
    for rows, columns in connected_parts(root):
        if not len(columns):
            raise AffineDPError("a coordinate of the noise has no point of the body: no noise")
        if len(rows):
            yield rows, columns


def connected_parts(matrix: Matrix) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows and columns of a matrix that are connected by entries; one may be empty.

    Parameters
    ----------
    matrix : matrix
        Dense or sparse.
    """
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import connected_components

    links = sparse.csr_array(matrix)
    count = links.shape[0]
    both = sparse.block_array([[None, links], [links.T, None]], format="csr")
    label = connected_components(both, directed=False)[1]
    order = np.argsort(label, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        yield group[group < count], group[group >= count] - count
