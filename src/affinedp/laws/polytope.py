"""A symmetric polytope K = hull(± points): its gauge, and the law e^(−rate ‖z‖_K) on R^r.

On the cone over a boundary simplex with vertices a_1..a_r the gauge is linear, so the law there is
Σ a_i E_i with E_i independent and exponential, and the cone has probability ∝ |det(a_1..a_r)|.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import Vector, adjugate, common_denominator
from affinedp.laws.base import Gauges
from affinedp.laws.hull import EPS, Facets, symmetric_hull

# Numbers in a table of planes × moves.
CHUNK = 4_000_000
# A determinant is off by so many roundings of the product of its rows, and shares by this in all.
DETERMINANT = 200
CERTAIN = 2e-11


class Polytope:
    """hull(± points) in exact arithmetic.

    Parameters
    ----------
    points : sequence of vectors of Fraction
        At most 9 numbers each; together they span the space.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> hexagon = Polytope([(F(1), F(0)), (F(0), F(1)), (F(1), F(-1))])
    >>> hexagon.gauge((F(2), F(1))), round(float(hexagon.second_moment().trace()), 9)
    (Fraction(3, 1), 6.666666667)
    """

    def __init__(self, points: Sequence[Sequence[Fraction]]) -> None:
        self.denominator = common_denominator(c for point in points for c in point)
        whole = [tuple(int(c * self.denominator) for c in point) for point in points]
        self.facets: Facets = symmetric_hull(whole)

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
        normals, size = self.normals, np.abs(self.normals)
        share = 4 * (self.dimension + 4) * EPS
        lower, upper = np.zeros(moves.shape[1]), np.zeros(moves.shape[1])
        width = max(1, CHUNK // len(normals))
        for start in range(0, moves.shape[1], width):
            part = slice(start, start + width)
            values = normals @ moves[:, part]
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
        doubt = DETERMINANT * EPS * np.prod(np.linalg.norm(corners, axis=2), axis=1)
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
        inner = np.einsum("c,cai,caj->ij", shares, corners, corners)
        return np.asarray(inner + np.einsum("c,ci,cj->ij", shares, sums, sums))

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw from the law e^(−‖z‖_K) on R^r for simulation, shape (size, r)."""
        cones: IntArray = generator.choice(len(self.shares), size, p=self.shares)
        lengths = generator.exponential(1.0, (size, self.dimension))
        return np.asarray(np.einsum("na,nai->ni", lengths, self.corners[cones]))


def polytope_of(points: FloatArray) -> Polytope:
    """Return the hull of points that are given as columns of doubles, up to sign."""
    return Polytope([tuple(map(meaning, point)) for point in points.T.tolist()])
