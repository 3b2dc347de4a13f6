"""Facets of a symmetric polytope in exact arithmetic: beneath-beyond from a cross-polytope.

A point that lies in the plane of a facet does not see it, so coplanar points are triangulated
and nothing is joggled.  Simplices of one geometric facet share the same primitive plane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.rational import Vector, adjugate, independent

MOST_SIMPLICES = 200_000
MOST_DIMENSIONS = 9
# Points fewer than this are added as they come, without asking qhull which are on the outside.
FEW_POINTS = 64
EPS = float(np.finfo(float).eps)


class TooLargeBodyError(AffineDPError):
    """A polytope with too many dimensions or facets for exact arithmetic."""


@dataclass(frozen=True, eq=False)
class Facets:
    """The boundary of hull(± points) in simplices.

    Attributes
    ----------
    points : list of vectors of int
        Vertices of the polytope, both of each pair.
    simplices : list of tuples of int
        Places of the r vertices of every simplex.
    planes : list of (normal, offset)
        ``normal · z = offset > 0`` on the simplex, and at most that on the polytope; primitive.
    """

    points: list[Vector]
    simplices: list[tuple[int, ...]]
    planes: list[tuple[Vector, int]]


def symmetric_hull(moves: Sequence[Vector], limit: int = MOST_SIMPLICES) -> Facets:
    """Return the facets of hull(± moves), in terms of its vertices only.

    A move inside a facet would refine its triangulation for nothing.

    Examples
    --------
    >>> found = symmetric_hull([(1, 0), (0, 1), (1, -1)])       # the hexagon of a + b = c
    >>> len(found.points), len(found.simplices), sorted(set(found.planes))[:2]
    (6, 6, [((-1, -1), 1), ((-1, 0), 1)])
    """
    chosen = _one_of_each_pair(moves)
    size = len(chosen[0]) if chosen else 0
    if size > MOST_DIMENSIONS:  # first of all: in so many dimensions qhull takes hours
        raise TooLargeBodyError(
            f"the body has {size} dimensions, more than {MOST_DIMENSIONS}: its facets are too many"
        )
    found = _build(_outside_first(chosen), limit)
    meeting: dict[int, set[tuple[Vector, int]]] = {}
    for simplex, plane in zip(found.simplices, found.planes):
        for place in simplex:
            meeting.setdefault(place, set()).add(plane)
    vertices = [
        place
        for place, planes in meeting.items()
        if len(planes) >= size and len(independent([h for h, _ in planes], size)) == size
    ]
    if len(vertices) == len(meeting):
        return found
    return _build(_one_of_each_pair([found.points[place] for place in vertices]), limit)


def _one_of_each_pair(moves: Sequence[Vector]) -> list[Vector]:
    """Different moves up to sign, the longest first."""
    found: dict[Vector, None] = {}
    for move in moves:
        lead = next((c for c in move if c), 0)
        if lead:
            found[tuple(move) if lead > 0 else tuple(-c for c in move)] = None
    return sorted(found, key=lambda v: -sum(c * c for c in v))


def _outside_first(points: list[Vector]) -> list[Vector]:
    """Points that qhull takes for vertices first; a guess that only saves time."""
    from scipy.spatial import ConvexHull, QhullError

    if len(points) < FEW_POINTS or len(points[0]) < 2:
        return points
    largest = max(abs(c) for point in points for c in point)
    near = np.array([[c / largest for c in point] for point in points])
    try:
        vertices = set(ConvexHull(np.vstack([near, -near])).vertices.tolist())
    except QhullError:
        return points
    count = len(points)
    outside = [i for i in range(count) if i in vertices or i + count in vertices]
    rest = sorted(set(range(count)) - set(outside))
    return [points[i] for i in outside + rest]


class _Surface:
    """Simplices with their planes, and which of them share a ridge."""

    def __init__(self, limit: int) -> None:
        self.facets: dict[int, tuple[frozenset[int], Vector, int]] = {}
        self._ridges: dict[frozenset[int], set[int]] = {}
        self._next, self._limit = 0, limit

    def add(self, places: frozenset[int], normal: Sequence[int], offset: int) -> None:
        content = math.gcd(offset, *normal)
        plane = tuple(c // content for c in normal), offset // content
        self.facets[self._next] = (places, *plane)
        for place in places:
            self._ridges.setdefault(places - {place}, set()).add(self._next)
        self._next += 1
        if len(self.facets) > self._limit:
            raise TooLargeBodyError(f"the body has more than {self._limit:,} simplices")

    def remove(self, key: int) -> None:
        places = self.facets.pop(key)[0]
        for place in places:
            sharing = self._ridges[places - {place}]
            sharing.discard(key)
            if not sharing:
                del self._ridges[places - {place}]

    def beyond(self, key: int, place: int) -> tuple[frozenset[int], int]:
        """The ridge opposite to a vertex, and the simplex on its other side."""
        ridge = self.facets[key][0] - {place}
        (other,) = self._ridges[ridge] - {key}
        return ridge, other


def _build(points: list[Vector], limit: int) -> Facets:
    """Beneath-beyond: each new plane is the combination of two old ones through the new point."""
    size = len(points[0]) if points else 0
    start = independent(points, size)
    if size == 0 or len(start) < size:
        raise AffineDPError("the moves do not span the space of the noise")
    order = [points[i] for i in start] + [p for i, p in enumerate(points) if i not in set(start)]
    both = [v for point in order for v in (point, tuple(-c for c in point))]
    surface = _cross_polytope(order[:size], limit)
    for place in _those_outside(surface, both, 2 * size):
        _insert(surface, place, both[place])
    facets = surface.facets.values()
    return Facets(both, [tuple(sorted(f[0])) for f in facets], [(f[1], f[2]) for f in facets])


def _cross_polytope(axes: list[Vector], limit: int) -> _Surface:
    size = len(axes)
    determinant, adjoint = adjugate(axes)
    unit = abs(determinant)
    dual = [[row[i] * (1 if determinant > 0 else -1) for row in adjoint] for i in range(size)]
    surface = _Surface(limit)
    for signs in itertools.product((0, 1), repeat=size):
        places = frozenset(2 * i + s for i, s in enumerate(signs))
        normal = [sum((1 - 2 * s) * dual[i][j] for i, s in enumerate(signs)) for j in range(size)]
        surface.add(places, normal, unit)
    return surface


def _those_outside(surface: _Surface, points: list[Vector], first: int) -> list[int]:
    """Points that may lie outside the body so far, by floats with a bound on their error.

    The body only grows, so a point that is inside stays inside.
    """
    if len(points) - first < FEW_POINTS:
        return list(range(first, len(points)))
    inside = np.zeros(len(points), dtype=bool)
    inside[:first] = True
    for place in range(first, len(points)):
        # look again at powers of two: most of the points are inside by then
        if (place - first) & (place - first - 1) == 0:
            rows = slice(place, None)
            largest = max(abs(c) for point in points for c in point) or 1
            near = np.array([[c / largest for c in point] for point in points[rows]])
            inside[rows] |= _certainly_inside(surface, near, largest)
        if not inside[place]:
            _insert(surface, place, points[place])
    return []


def _certainly_inside(surface: _Surface, near: FloatArray, unit: int) -> FloatArray:
    normals = np.array([[c * unit / d for c in h] for _, h, d in surface.facets.values()])
    inside = np.ones(len(near), dtype=bool)
    slack = 8 * (near.shape[1] + 4) * EPS
    for start in range(0, len(near), 4096):
        part = near[start : start + 4096].T
        values = normals @ part + slack * (np.abs(normals) @ np.abs(part))
        inside[start : start + 4096] = (values < 1).all(axis=0)
    return inside


def _insert(surface: _Surface, place: int, point: Vector) -> None:
    """Replace the simplices that the point sees by those that it spans with their horizon."""
    sees = {}
    for key, (_, normal, offset) in surface.facets.items():
        height = sum(map(int.__mul__, normal, point)) - offset
        if height > 0:
            sees[key] = height
    new = []
    for key, height in sees.items():
        places, normal, offset = surface.facets[key]
        for other_place in places:
            ridge, other = surface.beyond(key, other_place)
            if other in sees:
                continue
            _, other_normal, other_offset = surface.facets[other]
            depth = other_offset - sum(map(int.__mul__, other_normal, point))
            plane = [height * b + depth * a for a, b in zip(normal, other_normal)]
            new.append((ridge | {place}, plane, height * other_offset + depth * offset))
    for key in sees:
        surface.remove(key)
    for simplex in new:
        surface.add(*simplex)
