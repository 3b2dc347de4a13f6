"""A symmetric polytope K = hull(± points): its gauge, and the law e^(−rate ‖z‖_K) on R^r.

On the cone over a boundary simplex with vertices a_1..a_r the gauge is linear, so the law there is
Σ a_i E_i with E_i independent and exponential, and the cone has probability ∝ |det(a_1..a_r)|.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.lattice import hermite_diagonal
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import Vector, adjugate, common_denominator
from affinedp.laws.base import Gauges
from affinedp.laws.hull import CHUNK, EPS, MOST_SIMPLICES, Facets, symmetric_hull

# A determinant is off by so many roundings of the product of its rows, and shares by this in all.
DETERMINANT = 200
CERTAIN = 2e-11


class Polytope:
    """hull(± points) in exact arithmetic.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> hexagon = Polytope([(F(1), F(0)), (F(0), F(1)), (F(1), F(-1))])
    >>> hexagon.gauge((F(2), F(1))), round(float(hexagon.second_moment().trace()), 9)
    (Fraction(3, 1), 6.666666667)
    """

    def __init__(self, points: Sequence[Sequence[Fraction]], limit: int = MOST_SIMPLICES) -> None:
        self.denominator = common_denominator(c for point in points for c in point)
        whole = [tuple(int(c * self.denominator) for c in point) for point in points]
        self.facets: Facets = symmetric_hull(whole, limit)

    @property
    def dimension(self) -> int:
        """r."""
        return len(self.facets.points[0])

    @cached_property
    def planes(self) -> list[tuple[Vector, int]]:
        """Geometric facets: ``normal · z ≤ offset`` in units of 1/denominator."""
        return sorted(set(self.facets.planes))

    @cached_property
    def vertices(self) -> FloatArray:
        """The vertices, one of each pair, as rows."""
        used = {place for simplex in self.facets.simplices for place in simplex}
        kept = [point for i, point in enumerate(self.facets.points) if i in used and i % 2 == 0]
        return np.array([[c / self.denominator for c in point] for point in kept])

    @cached_property
    def exact_vertices(self) -> list[tuple[Fraction, ...]]:
        """The vertices, one of each pair, as rationals."""
        used = {place for simplex in self.facets.simplices for place in simplex}
        return [
            tuple(Fraction(c, self.denominator) for c in point)
            for i, point in enumerate(self.facets.points)
            if i in used and i % 2 == 0
        ]

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
        found = np.abs(np.linalg.det(corners))
        lengths = np.sqrt(np.einsum("cai,cai->ca", corners, corners))
        doubt = DETERMINANT * EPS * np.prod(lengths, axis=1)
        if not doubt.sum() <= CERTAIN * found.sum():  # thin simplices: exactly
            points = self.facets.points
            exact = [abs(adjugate([points[i] for i in s])[0]) for s in self.facets.simplices]
            total = sum(exact)
            return np.array([d / total for d in exact])
        return np.asarray(found / found.sum())

    @cached_property
    def corners(self) -> FloatArray:
        """Vertices of the simplices, shape (simplices, r, r), one vertex per row."""
        points = np.array([[c / self.denominator for c in p] for p in self.facets.points])
        return np.asarray(points[np.array(self.facets.simplices, dtype=np.intp)])

    def second_moment(self) -> FloatArray:
        """Return E zzᵀ of the law e^(−‖z‖_K) on R^r: Σ p_C (Σ a_i a_iᵀ + s sᵀ), s = Σ a_i."""
        corners, shares = self.corners, self.shares
        sums = corners.sum(axis=1)
        rows = corners.reshape(-1, self.dimension)
        inner = (rows * np.repeat(shares, self.dimension)[:, None]).T @ rows
        return np.asarray(inner + (sums * shares[:, None]).T @ sums)

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw from the law e^(−‖z‖_K) on R^r for simulation, shape (size, r)."""
        cones: IntArray = generator.choice(len(self.shares), size, p=self.shares)
        lengths = generator.exponential(1.0, (size, self.dimension))
        return np.asarray(np.einsum("na,nai->ni", lengths, self.corners[cones]))


def polytope_of(points: FloatArray) -> Polytope:
    """Return the hull of points that are given as columns of doubles, up to sign."""
    return Polytope([tuple(map(meaning, point)) for point in points.T.tolist()])


# ---------------------------------------------------------------------- the lattice in cones


# Points of unit boxes that are listed, so that no proposal is rejected.
MOST_LISTED = 50_000
# … and that are still added up for the moments of the law.
MOST_ADDED = 2_000_000


@dataclass(frozen=True, eq=False)
class Cone:
    """A half-open simplicial cone with whole generators."""

    generators: tuple[Vector, ...]  # a_1..a_r
    determinant: int  # |det|: how many lattice points a unit box has
    adjoint: list[list[int]]  # determinant × inverse of the matrix with the generators as columns
    is_open: tuple[bool, ...]  # where λ_i runs through (0, 1] in place of [0, 1)
    # Π [0, cosets_i) has one point of every coset of the lattice that the generators span
    cosets: tuple[int, ...]

    def box_point(self, coset: tuple[int, ...]) -> list[int]:
        """Return determinant × λ of the point of the unit box in a coset."""
        size = self.determinant
        inside = [sum(map(int.__mul__, row, coset)) % size for row in self.adjoint]
        return [size if o and c == 0 else c for c, o in zip(inside, self.is_open)]

    def box_points(self) -> list[list[int]]:
        """Return determinant × λ for all lattice points of the unit box."""
        return [self.box_point(c) for c in itertools.product(*map(range, self.cosets))]


class LatticeCones:
    """The lattice Z^r in half-open cones over the boundary of a polytope."""

    def __init__(self, body: Polytope) -> None:
        points = body.facets.points
        content = math.gcd(*(c for s in body.facets.simplices for i in s for c in points[i]))
        self.unit = Fraction(body.denominator, content)
        self.dimension = body.dimension
        whole = [tuple(c // content for c in point) for point in points]
        chosen = [tuple(whole[i] for i in simplex) for simplex in body.facets.simplices]
        solved = [adjugate(list(zip(*generators))) for generators in chosen]
        signs = _general_position(solved, self.dimension)
        self.cones = [
            _cone(generators, determinant, adjoint, is_open)
            for generators, (determinant, adjoint), is_open in zip(chosen, solved, signs)
        ]
        self.total = sum(cone.determinant for cone in self.cones)

    @cached_property
    def listed(self) -> dict[Fraction, list[tuple[Cone, list[int]]]] | None:
        """All points of the unit boxes by Σ λ_i; None where they are too many."""
        if self.total > MOST_LISTED:
            return None
        found: dict[Fraction, list[tuple[Cone, list[int]]]] = {}
        for cone in self.cones:
            for point in cone.box_points():
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
        mean = 1 / math.expm1(step)
        variance = math.exp(step) * mean * mean
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
        if self.total > MOST_ADDED:
            raise AffineDPError(
                f"the lattice is fine compared with the body ({self.total:,} points to add up, "
                f"more than {MOST_ADDED:,}): treat the data as real numbers"
            )
        found = []
        for cone in self.cones:
            points = np.array(cone.box_points(), dtype=float) / cone.determinant
            generators = np.array(cone.generators, dtype=float)
            found.append((generators, points, points.sum(axis=1)))
        return found


def _general_position(
    solved: list[tuple[int, list[list[int]]]], size: int
) -> list[tuple[bool, ...]]:
    """Where the cones are open, for the first direction that lies on none of their faces."""
    for attempt in itertools.count(1):
        y = [(attempt * 2_654_435_761 * (j + 1) ** 3 + j) % 1_000_003 + 1 for j in range(size)]
        signs = []
        for determinant, adjoint in solved:
            side = [sum(map(int.__mul__, row, y)) for row in adjoint]
            if not all(side):
                break
            signs.append(tuple((c < 0) == (determinant > 0) for c in side))
        else:
            return signs
    raise AssertionError("unreachable")


def _cone(
    generators: tuple[Vector, ...],
    determinant: int,
    adjoint: list[list[int]],
    is_open: tuple[bool, ...],
) -> Cone:
    size, sign = abs(determinant), 1 if determinant > 0 else -1
    cosets = tuple(hermite_diagonal(generators)) if size > 1 else (1,) * len(generators)
    oriented = [[sign * c for c in row] for row in adjoint]
    return Cone(generators, size, oriented, is_open, cosets)
