"""A symmetric polytope K = hull(± points): its gauge, and the law e^(−rate ‖z‖_K) on R^r.

On the cone over a boundary simplex with vertices a_1..a_r the gauge is linear, so the law there is
Σ a_i E_i with E_i independent and exponential, and the cone has probability ∝ |det(a_1..a_r)|.

Facets are found in exact arithmetic, beneath-beyond from a cross-polytope.  A point that lies in
the plane of a facet does not see it, so coplanar points are triangulated and nothing is joggled.
Simplices of one geometric facet share the same primitive plane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.lattice import hermite_diagonal
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import (
    Vector,
    adjugate,
    adjugates,
    common_denominator,
    independent,
)
from affinedp.laws.base import Gauges
from affinedp.laws.sampler.coins import narrowed
from affinedp.parts import Locked

MOST_SIMPLICES = 200_000
MOST_DIMENSIONS = 9
# Points fewer than this are added as they come, without a look at which are on the outside.
FEW_POINTS = 64
DIRECTIONS = 2_000
# Heights of points over planes that are computed at once.
CHUNK = 1 << 18
# Whole numbers below this are computed in 64 bits, sums of a few products included.
SAFE = 2.0**61


class TooLargeBodyError(AffineDPError):
    """A polytope with too many dimensions or facets for exact arithmetic."""


@dataclass(frozen=True, eq=False)
class Facets(Locked):
    """The boundary of hull(± points) in simplices."""

    points: list[Vector]  # vertices of the polytope, both of each pair
    simplices: IntArray  # places of the vertices of every simplex; shape (simplices, r)
    # ``normal · z = offset > 0`` on a geometric facet, at most that on the polytope; primitive
    planes: list[tuple[Vector, int]]
    own: IntArray  # which plane every simplex is in; shape (simplices,)


def symmetric_hull(moves: Sequence[Vector], limit: int = MOST_SIMPLICES) -> Facets:
    """Return the facets of hull(± moves), in terms of its vertices only.

    A move inside a facet would refine its triangulation for nothing.
    """
    chosen = one_of_each_pair(moves)
    size = len(chosen[0]) if chosen else 0
    check_dimensions(size)
    found = _build(_outside_first(chosen), limit)
    vertices = _vertices(found)
    if len(vertices) == len(found.points):
        return found
    kept = {found.points[place] for place in vertices}  # in the order of the moves, as if alone
    return _build(_outside_first([move for move in chosen if move in kept]), limit)


def _vertices(found: Facets) -> list[int]:
    """The places of points in which facets of all directions meet."""
    planes = found.planes
    count = len(planes)
    meeting = np.unique(found.simplices * count + found.own[:, None])  # corner by corner
    places, first = np.unique(meeting // count, return_index=True)
    known: dict[Vector, bool] = {}  # one of each pair: the other one is alike
    for place, at in zip(places.tolist(), np.split(meeting % count, first[1:])):
        point = found.points[place]
        if tuple(-c for c in point) not in known:
            known[point] = is_vertex([planes[i][0] for i in at.tolist()])
    alike = [known.get(point, known.get(tuple(-c for c in point))) for point in found.points]
    return [place for place in places.tolist() if alike[place]]


def is_vertex(normals: list[Vector]) -> bool:
    """Return whether facets with these normals meet in one point only."""
    size = len(normals[0]) if normals else 1
    return len(normals) >= size and any(
        len(independent([normals[i] for i in order], size)) == size
        for order in (_likely(_relative(normals), size), range(len(normals)))
    )


def _likely(normals: FloatArray, size: int) -> list[int]:
    """So many normals that floats take for independent."""
    from scipy.linalg import qr

    return [int(i) for i in qr(normals.T, mode="r", pivoting=True)[1][:size]]


def check_dimensions(size: int, most: int | None = None) -> None:
    """Refuse a body in so many dimensions that its facets are too many."""
    most = MOST_DIMENSIONS if most is None else most
    if size > most:
        raise TooLargeBodyError(
            f"the body has {size} dimensions, more than {most}: its facets are too many"
        )


def one_of_each_pair(moves: Sequence[Vector]) -> list[Vector]:
    """Return different moves up to sign, the longest first."""
    found: dict[Vector, None] = {}
    for move in moves:
        lead = next((c for c in move if c), 0)
        if lead:
            found[tuple(move) if lead > 0 else tuple(-c for c in move)] = None
    return sorted(found, key=lambda v: -sum(c * c for c in v))


def _outside_first(points: list[Vector]) -> list[Vector]:
    """Points that lie farthest in some direction first: they are vertices, which saves time."""
    if len(points) < FEW_POINTS:
        return points
    far = farthest(_relative(points))
    rest = [i for i in range(len(points)) if i not in far]
    return [points[i] for i in sorted(far) + rest]


def farthest(points: FloatArray) -> set[int]:
    """Return the places of points that lie farthest in some direction, and of some that span."""
    from scipy.linalg import qr

    size = np.abs(points).max(axis=0)
    rounded = np.linalg.qr(points / np.where(size > 0, size, 1.0))[0]  # long bodies have few ends
    looked = np.random.default_rng(0).normal(size=(rounded.shape[1], DIRECTIONS)).T
    spanning = qr(rounded.T, mode="r", pivoting=True)[1][: rounded.shape[1]]
    step = max(1, CHUNK // len(rounded))
    heights = (np.abs(looked[i : i + step] @ rounded.T) for i in range(0, len(looked), step))
    far = [place for part in heights for place in part.argmax(axis=1).tolist()]
    return {*far, *spanning.tolist()}


def _relative(points: Sequence[Vector]) -> FloatArray:
    """Whole points in units of their largest number."""
    largest = max(abs(c) for point in points for c in point) or 1
    return np.array([[c / largest for c in point] for point in points])


def _build(points: list[Vector], limit: int) -> Facets:
    """Beneath-beyond: each new plane is the combination of two old ones through the new point."""
    size = len(points[0]) if points else 0
    start = independent(points, size)
    if size == 0 or len(start) < size:
        raise AffineDPError("the moves do not span the space of the noise")
    first = set(start)
    order = [points[i] for i in start] + [p for i, p in enumerate(points) if i not in first]
    both = [v for point in order for v in (point, tuple(-c for c in point))]
    surface = Surface.around(order[:size], limit)
    near = _relative(both)
    largest = max(abs(c) for point in both for c in point)
    inside = np.zeros(len(both), dtype=bool)
    for place in range(2 * size, len(both)):
        count = place - 2 * size
        # look again at powers of two: the body only grows, and most points are inside by then
        if surface.is_long and count & (count - 1) == 0:
            inside[place:] |= surface.certainly_has(near[place:], largest)
        if not inside[place]:
            surface.insert(place, both[place])
    return surface.facets(both)


class Surface:
    """Simplices with their planes and neighbours: integers of 64 bits, longer if needed."""

    def __init__(
        self,
        corners: IntArray,
        normals: NDArray[Any],
        offsets: NDArray[Any],
        beside: IntArray,
        limit: int,
    ) -> None:
        self.corners, self._beside, self._limit = corners, beside, limit
        self.normals, self._offsets = primitive_planes(normals, offsets)
        if size_of(self.normals, self._offsets) < SAFE:
            self.normals = self.normals.astype(np.int64)
            self._offsets = self._offsets.astype(np.int64)

    @classmethod
    def around(cls, axes: list[Vector], limit: int) -> Surface:
        """Return the boundary of the cross-polytope with these axes, ± one after the other."""
        size = len(axes)
        determinant, dual = dual_axes(axes)
        signs = np.array(list(itertools.product((0, 1), repeat=size)))
        flipped = 1 << np.arange(size)[::-1]  # the neighbour opposite to a corner has its negative
        return cls(
            2 * np.arange(size) + signs,
            (1 - 2 * signs).astype(object) @ dual,
            np.full(len(signs), determinant, dtype=object),
            np.arange(len(signs))[:, None] ^ flipped,
            limit,
        )

    @classmethod
    def cone(cls, edges: list[Vector], limit: int) -> Surface:
        """Return the boundary of the cone over these edges: all its planes go through 0."""
        size = len(edges)
        others = np.array([[j for j in range(size) if j != i] for i in range(size)])
        return cls(others, -dual_axes(edges)[1], np.zeros(size, dtype=object), others, limit)

    @property
    def is_long(self) -> bool:
        """Whether planes have numbers beyond 64 bits, so that floats are much faster."""
        return self.normals.dtype == object

    def insert(self, place: int, point: Vector) -> None:
        """Replace the simplices that a point sees by those that it spans with their horizon."""
        height = self._heights(point)
        sees = height > 0
        if not sees.any():
            return
        seen = np.flatnonzero(sees)
        row, corner = np.nonzero(~sees[self._beside[seen]])
        near, far = seen[row], self._beside[seen[row], corner]  # on both sides of the horizon
        above, below = height[near], -height[far]
        if size_of(above, below) * size_of(self.normals, self._offsets) >= SAFE / 4:
            self._widen()
            above, below = above.astype(object), below.astype(object)
        normals, offsets = primitive_planes(
            above[:, None] * self.normals[far] + below[:, None] * self.normals[near],
            above * self._offsets[far] + below * self._offsets[near],
        )
        kept = np.flatnonzero(~sees)
        if len(kept) + len(near) > self._limit:
            raise TooLargeBodyError(f"the body has more than {self._limit:,} simplices")
        number = np.full(len(sees), -1)
        number[kept] = np.arange(len(kept))
        new = len(kept) + np.arange(len(near))
        corners = self.corners[near].copy()
        corners[np.arange(len(near)), corner] = place
        slot = np.argmax(self._beside[far] == near[:, None], axis=1)
        old = number[self._beside]
        old[far, slot] = new
        self._beside = np.vstack([old[kept], _fan(corners, corner, new, number[far])])
        self.corners = np.vstack([self.corners[kept], corners])
        self.normals = np.concatenate([self.normals[kept], normals])
        self._offsets = np.concatenate([self._offsets[kept], offsets])

    def _heights(self, point: Vector) -> NDArray[Any]:
        """How far a point is beyond every plane, exactly."""
        largest = max(abs(c) for c in point)
        size = len(point) * float(largest) + 1.0
        if not self.is_long and size * size_of(self.normals, self._offsets) >= SAFE:
            self._widen()
        return np.asarray(self.normals @ np.array(point, dtype=self.normals.dtype) - self._offsets)

    def _widen(self) -> None:
        self.normals = self.normals.astype(object)
        self._offsets = self._offsets.astype(object)

    def certainly_has(self, near: FloatArray, unit: int) -> NDArray[np.bool_]:
        """Whether points, in a unit, are inside, by floats with a bound on their error."""
        planes = dict.fromkeys(self._planes())
        normals = np.array([[c * unit / d for c in h] for h, d in planes])
        inside = np.ones(len(near), dtype=bool)
        slack = 8 * (near.shape[1] + 4) * EPS
        for start in range(0, len(near), 4096):
            part = near[start : start + 4096].T
            values = normals @ part + slack * (np.abs(normals) @ np.abs(part))
            inside[start : start + 4096] = (values < 1).all(axis=0)
        return inside

    def facets(self, points: list[Vector]) -> Facets:
        """Return what was found, as plain numbers."""
        number: dict[tuple[Vector, int], int] = {}
        own = [number.setdefault(plane, len(number)) for plane in self._planes()]
        return Facets(points, np.sort(self.corners), list(number), np.array(own))

    def _planes(self) -> Iterator[tuple[Vector, int]]:
        return zip(map(tuple, self.normals.tolist()), self._offsets.tolist())


def dual_axes(axes: list[Vector]) -> tuple[int, NDArray[Any]]:
    """Return |determinant| and rows d_i with d_i · axis_j = |determinant| where i = j, else 0."""
    determinant, adjoint = adjugate(axes)
    sign = 1 if determinant > 0 else -1
    return abs(determinant), sign * np.array(adjoint, dtype=object).T


def _fan(corners: IntArray, corner: IntArray, new: IntArray, far: IntArray) -> IntArray:
    """Neighbours of the simplices around one new point: across the horizon, and each other."""
    beside = np.full_like(corners, -1)
    beside[np.arange(len(corners)), corner] = far
    row, slot = np.nonzero(beside < 0)
    ridge = corners[row]
    ridge[np.arange(len(row)), slot] = -1
    order = np.lexsort(np.sort(ridge).T)  # the two simplices that share a ridge are side by side
    one, other = order[0::2], order[1::2]
    beside[row[one], slot[one]] = new[row[other]]
    beside[row[other], slot[other]] = new[row[one]]
    return beside


def size_of(*arrays: NDArray[Any]) -> float:
    """Return the largest size of a number."""
    return max(float(np.abs(array).max(initial=0)) for array in arrays)


def primitive_planes(
    normals: NDArray[Any], offsets: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return planes without common factors."""
    content = np.gcd(np.gcd.reduce(normals, axis=1), offsets)
    return normals // content[:, None], offsets // content


# ---------------------------------------------------------------------- polytopes and their cones


# A determinant is off by so many roundings of the product of its rows, and shares by this in all.
DETERMINANT = 200
CERTAIN = 2e-11


class Polytope(Locked):
    """hull(± points) in exact arithmetic."""

    # Whole matrices that take the facets whose simplices are kept to all others; None: all are.
    group: IntArray | None = None
    counts: Any = 1  # how many facets every simplex stands for, by its own

    def __init__(self, points: Sequence[Sequence[Fraction]], limit: int = MOST_SIMPLICES) -> None:
        self.denominator: int | Fraction  # points are whole numbers over it
        self.denominator, whole = whole_points(points)
        self.facets: Facets = symmetric_hull(whole, limit)

    @property
    def dimension(self) -> int:
        """r."""
        return len(self.facets.points[0])

    @cached_property
    def planes(self) -> list[tuple[Vector, int]]:
        """Geometric facets: ``normal · z ≤ offset`` in units of 1/denominator."""
        return sorted(self.facets.planes)

    @cached_property
    def vertices(self) -> FloatArray:
        """The vertices, one of each pair, as rows."""
        return np.array(
            [[float(c / self.denominator) for c in point] for point in self._whole_vertices]
        )

    @cached_property
    def exact_vertices(self) -> list[tuple[Fraction, ...]]:
        """The vertices, one of each pair, as rationals."""
        return [
            tuple(Fraction(c, self.denominator) for c in point) for point in self._whole_vertices
        ]

    @property
    def _whole_vertices(self) -> list[Vector]:
        used = np.unique(self.facets.simplices)
        return [self.facets.points[i] for i in used[used % 2 == 0].tolist()]

    def gauge(self, vector: Sequence[Fraction]) -> Fraction:
        """Return ‖v‖_K, exactly."""
        return self._gauge(vector, self.planes)

    def _gauge(self, vector: Sequence[Fraction], planes: Sequence[tuple[Vector, int]]) -> Fraction:
        scale = common_denominator(vector)
        whole = [int(c * scale) for c in vector]
        best = max(Fraction(sum(map(int.__mul__, h, whole)), d) for h, d in planes)
        return best * self.denominator / scale

    @cached_property
    def normals(self) -> FloatArray:
        """The planes as rows h with ``‖z‖_K = max h·z``, each number rounded once."""
        try:
            return np.array(
                [[float(Fraction(c * self.denominator, d)) for c in h] for h, d in self.planes]
            )
        except OverflowError:
            raise AffineDPError("the body is too small for double precision") from None

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on the gauges of many moves."""
        normals = self.normals[len(self.normals) // 2 :]  # sorted: the others are their negatives
        size = np.abs(normals)
        share = 4 * (self.dimension + 4) * EPS
        lower, upper = np.zeros(moves.shape[1]), np.zeros(moves.shape[1])
        width = max(1, CHUNK // len(normals))
        for start in range(0, moves.shape[1], width):
            part = slice(start, start + width)
            values = np.abs(normals @ moves[:, part])
            off = size @ (share * np.abs(moves[:, part]) + doubt[:, part])
            lower[part], upper[part] = (values - off).max(axis=0), (values + off).max(axis=0)
        return Gauges(np.maximum(lower, 0.0), upper)

    def near_gauge(self, vector: Sequence[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly, from the planes that floats cannot rule out."""
        near = np.array([float(c) for c in vector])
        values, size = self.normals @ near, np.abs(self.normals) @ np.abs(near)
        chosen = np.flatnonzero(values >= values.max() - 1e-9 * size.max())
        return self._gauge(vector, [self.planes[i] for i in chosen])

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of a point of the box Π [−w_i, w_i]."""
        scale = common_denominator(widths)
        whole = [int(c * scale) for c in widths]
        best = max(Fraction(sum(abs(a) * w for a, w in zip(h, whole)), d) for h, d in self.planes)
        return best * self.denominator / scale

    # ------------------------------------------------------------------ the law on R^r

    @cached_property
    def shares(self) -> FloatArray:
        """The probabilities of the cones, up to rounding: samplers have their own, exact."""
        corners = self.corners / np.abs(self.corners).max(axis=(0, 1))  # units change all alike
        found = np.abs(np.linalg.det(corners)) * self.counts
        lengths = np.sqrt(np.einsum("cai,cai->ca", corners, corners))
        doubt = DETERMINANT * EPS * np.prod(lengths, axis=1) * self.counts
        if not doubt.sum() <= CERTAIN * found.sum():  # thin simplices: exactly
            points = np.array(self.facets.points, dtype=object)
            exact = np.abs(adjugates(points[self.facets.simplices])[0]).astype(object) * self.counts
            total = exact.sum()
            return np.array([d / total for d in exact.tolist()])
        return np.asarray(found / found.sum())

    @cached_property
    def corners(self) -> FloatArray:
        """Vertices of the simplices, shape (simplices, r, r), one vertex per row."""
        points = np.array([[float(c / self.denominator) for c in p] for p in self.facets.points])
        return np.asarray(points[self.facets.simplices])

    def second_moment(self) -> FloatArray:
        """Return E zzᵀ of the law e^(−‖z‖_K) on R^r."""
        factor = self._moment_factor()
        return np.asarray(factor.T @ factor)

    def moment_root(self) -> FloatArray:
        """Return R with RᵀR = E zzᵀ, its small directions as precise as doubles can be.

        Products of long vectors would lose them: their squares are beyond double precision first.
        """
        return np.asarray(np.linalg.qr(self._moment_factor(), mode="r"))

    def _moment_factor(self) -> FloatArray:
        """Rows whose outer products add up to E zzᵀ: Σ p_C (Σ a_i a_iᵀ + s sᵀ), s = Σ a_i."""
        corners, roots = self.corners, np.sqrt(self.shares)[:, None]
        rows = (corners * roots[:, None]).reshape(-1, self.dimension)
        return np.vstack([rows, corners.sum(axis=1) * roots])

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw from the law e^(−‖z‖_K) on R^r for simulation, shape (size, r)."""
        cones: IntArray = generator.choice(len(self.shares), size, p=self.shares)
        lengths = generator.exponential(1.0, (size, self.dimension))
        return np.asarray(np.einsum("na,nai->ni", lengths, self.corners[cones]))


def whole_points(points: Sequence[Sequence[Fraction]]) -> tuple[int, list[Vector]]:
    """Return the common denominator of points, and their numerators."""
    denominator = common_denominator(c for point in points for c in point)
    return denominator, [tuple(int(c * denominator) for c in point) for point in points]


def polytope_of(
    points: FloatArray,
    hull: Callable[[list[tuple[Fraction, ...]]], Polytope] = Polytope,
) -> Polytope:
    """Return the hull of points that are given as columns of doubles, up to sign."""
    return hull([tuple(map(meaning, point)) for point in points.T.tolist()])


# ---------------------------------------------------------------------- the lattice in cones


# Points of unit boxes that are listed, so that no proposal is rejected.
MOST_LISTED = 50_000
# … and that are still added up for the moments of the law.
MOST_ADDED = 2_000_000


@dataclass(frozen=True, eq=False)
class Cone(Locked):
    """A half-open simplicial cone with whole generators."""

    generators: tuple[Vector, ...]  # a_1..a_r
    determinant: int  # |det|: how many lattice points a unit box has
    adjoint: list[list[int]]  # determinant × inverse of the matrix with the generators as columns
    is_open: tuple[bool, ...]  # where λ_i runs through (0, 1] in place of [0, 1)

    def box_points(self, cosets: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return determinant × λ of the points of the unit box, as rows: of all, or some cosets.

        Cosets are columns, of whole coordinates.
        """
        size = self.determinant
        if cosets is None:
            # Π [0, cosets_i) has one point of every coset of the lattice that the generators span
            counts = hermite_diagonal(self.generators) if size > 1 else [1] * len(self.generators)
            cosets = np.indices(counts).reshape(len(counts), -1)
        # such products are below r · size², which fits: boxes that are listed are small
        adjoint = np.array([[value % size for value in row] for row in self.adjoint])
        inside = adjoint @ (cosets % size) % size
        at_end = np.array(self.is_open)[:, None] & (inside == 0)
        return np.asarray(np.where(at_end, size, inside).T)


class LatticeCones(Locked):
    """The lattice Z^r in half-open cones over the boundary of a polytope.

    Of a body with a group these are the closed cones over one facet of every orbit.
    """

    def __init__(self, body: Polytope) -> None:
        points, simplices = body.facets.points, body.facets.simplices
        content = math.gcd(*(c for i in np.unique(simplices).tolist() for c in points[i]))
        self.unit = Fraction(body.denominator, content)
        self.dimension = body.dimension
        # by cone; 64-bit integers where they fit
        self.generators = narrowed([[c // content for c in point] for point in points])[simplices]
        determinants, adjoints = adjugates(self.generators.swapaxes(1, 2))
        signs = np.where(determinants > 0, 1, -1)
        self.determinants = narrowed(determinants * signs)
        self.adjoints = narrowed(adjoints * signs[:, None, None])
        self.group, self.counts = body.group, body.counts
        self.is_open: NDArray[np.bool_] = leading(self.adjoints) < 0
        if self.group is not None:
            self.is_open[:] = False
        self.total: int = sum(self.determinants.tolist())

    @cached_property
    def cones(self) -> list[Cone]:
        """The cones one by one."""
        parts = (self.generators, self.determinants, self.adjoints, self.is_open)
        return [
            Cone(tuple(map(tuple, generators)), determinant, adjoint, tuple(is_open))
            for generators, determinant, adjoint, is_open in zip(*(p.tolist() for p in parts))
        ]

    @cached_property
    def listed(self) -> dict[Fraction, list[tuple[Cone, list[int]]]] | None:
        """All points of the unit boxes by Σ λ_i; None where they are too many, or of a group."""
        if self.total > MOST_LISTED or self.group is not None:
            return None
        found: dict[Fraction, list[tuple[Cone, list[int]]]] = {}
        for cone in self.cones:
            for point in cone.box_points().tolist():
                found.setdefault(Fraction(sum(point), cone.determinant), []).append((cone, point))
        return dict(sorted(found.items()))

    def normaliser(self, rate: float) -> float:
        """Return Σ e^(−rate ‖z‖_K) over the lattice."""
        step = rate * float(self.unit)
        total = math.fsum(float(np.exp(-step * s).sum()) for _, _, s in self.boxes)
        return float(total / (-math.expm1(-step)) ** self.dimension)

    def second_moment(self, rate: float) -> FloatArray:
        """Return E zzᵀ of the law on the lattice.

        Given the box point, z = Σ (λ_i + t_i) a_i with t_i independent and geometric, of mean
        q/(1−q) and variance q/(1−q)².
        """
        step = rate * float(self.unit)
        mean = math.exp(-step) / -math.expm1(-step)
        variance = mean / -math.expm1(-step)
        moment = np.zeros((self.dimension, self.dimension))
        total = 0.0
        for generators, points, sums in self.boxes:
            weights = np.exp(-step * sums)
            z = (points + mean) @ generators
            moment += (weights[:, None] * z).T @ z
            moment += variance * weights.sum() * (generators.T @ generators)
            total += float(weights.sum())
        return np.asarray(moment / total)

    @cached_property
    def boxes(self) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Generators as rows, λ of the box points, and their sums, cone by cone."""
        if self.group is not None:
            raise AffineDPError("the cones are listed up to symmetry: treat the data as real")
        if self.total > MOST_ADDED:
            raise AffineDPError(
                f"the lattice is fine compared with the body ({self.total:,} points to add up, "
                f"more than {MOST_ADDED:,}): treat the data as real numbers"
            )
        found = []
        for cone in self.cones:
            points = cone.box_points() / cone.determinant
            generators = np.array(cone.generators, dtype=float)
            found.append((generators, points, points.sum(axis=1)))
        return found


def inverses(group: IntArray) -> IntArray:
    """Return the inverses of whole matrices that have whole ones."""
    found: IntArray = np.rint(np.linalg.inv(group)).astype(np.int64)
    if np.any(group @ found != np.eye(group.shape[1], dtype=np.int64)):
        raise AffineDPError("a symmetry of the body has no whole inverse")
    return found


def leading(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the first number of every row that is not 0: its sign is that of row · (1, δ, δ², …).

    With δ above 0 and smaller than any number, that direction lies on no face of any cone.
    """
    first = np.argmax(rows != 0, axis=-1)
    return np.take_along_axis(rows, first[..., None], axis=-1)[..., 0]
