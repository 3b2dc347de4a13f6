"""Facets of a symmetric polytope in exact arithmetic: beneath-beyond from a cross-polytope.

A point that lies in the plane of a facet does not see it, so coplanar points are triangulated
and nothing is joggled.  Simplices of one geometric facet share the same primitive plane.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.rational import Vector, adjugate, independent

MOST_SIMPLICES = 200_000
MOST_DIMENSIONS = 9
# Points fewer than this are added as they come, without a look at which are on the outside.
FEW_POINTS = 64
DIRECTIONS = 2_000
# Heights of points over planes that are computed at once.
CHUNK = 1 << 18
# Whole numbers below this are computed in 64 bits, sums of a few products included.
SAFE = 2.0**61
EPS = float(np.finfo(float).eps)


class TooLargeBodyError(AffineDPError):
    """A polytope with too many dimensions or facets for exact arithmetic."""


@dataclass(frozen=True, eq=False)
class Facets:
    """The boundary of hull(± points) in simplices."""

    points: list[Vector]  # vertices of the polytope, both of each pair
    simplices: list[tuple[int, ...]]  # places of the r vertices of every simplex
    # ``normal · z = offset > 0`` on the simplex, and at most that on the polytope; primitive
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
    check_dimensions(size)
    found = _build(_outside_first(chosen), limit)
    vertices = _vertices(found, size)
    if len(vertices) == len(found.points):
        return found
    kept = {found.points[place] for place in vertices}  # in the order of the moves, as if alone
    return _build(_outside_first([move for move in chosen if move in kept]), limit)


def _vertices(found: Facets, size: int) -> list[int]:
    """The places of points in which facets of all directions meet."""
    planes = list(dict.fromkeys(found.planes))
    number = {plane: i for i, plane in enumerate(planes)}
    own = np.array([number[plane] for plane in found.planes])
    corners = np.array(found.simplices)
    count = len(planes)
    meeting = np.unique(corners * count + own[:, None])  # corner by corner
    places, first = np.unique(meeting // count, return_index=True)
    kept = []
    for place, at in zip(places.tolist(), np.split(meeting % count, first[1:])):
        normals = [planes[i][0] for i in at.tolist()]
        if len(normals) >= size and any(
            len(independent([normals[i] for i in order], size)) == size
            for order in (_likely(normals, size), range(len(normals)))
        ):
            kept.append(place)
    return kept


def _likely(normals: list[Vector], size: int) -> list[int]:
    """So many normals that floats take for independent."""
    from scipy.linalg import qr

    return [int(i) for i in qr(_relative(normals).T, mode="r", pivoting=True)[1][:size]]


def check_dimensions(size: int) -> None:
    """Refuse a body in so many dimensions that its facets are too many."""
    if size > MOST_DIMENSIONS:
        raise TooLargeBodyError(
            f"the body has {size} dimensions, more than {MOST_DIMENSIONS}: its facets are too many"
        )


def _one_of_each_pair(moves: Sequence[Vector]) -> list[Vector]:
    """Different moves up to sign, the longest first."""
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
    surface = _Surface(order[:size], limit)
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


class _Surface:
    """Simplices with their planes and neighbours: integers of 64 bits, longer if needed."""

    def __init__(self, axes: list[Vector], limit: int) -> None:
        size = len(axes)
        determinant, adjoint = adjugate(axes)
        sign = 1 if determinant > 0 else -1
        dual = np.array([[row[i] * sign for row in adjoint] for i in range(size)], dtype=object)
        signs = np.array(list(itertools.product((0, 1), repeat=size)))
        self._corners: IntArray = 2 * np.arange(size) + signs
        self._normals, self._offsets = _primitive(
            (1 - 2 * signs).astype(object) @ dual,
            np.full(len(signs), abs(determinant), dtype=object),
        )
        flipped = 1 << np.arange(size)[::-1]  # the neighbour opposite to a corner has its negative
        self._beside: IntArray = np.arange(len(signs))[:, None] ^ flipped
        self._limit = limit
        if _size(self._normals, self._offsets) < SAFE:
            self._normals = self._normals.astype(np.int64)
            self._offsets = self._offsets.astype(np.int64)

    @property
    def is_long(self) -> bool:
        """Whether planes have numbers beyond 64 bits, so that floats are much faster."""
        return self._normals.dtype == object

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
        if _size(above, below) * _size(self._normals, self._offsets) >= SAFE / 4:
            self._widen()
            above, below = above.astype(object), below.astype(object)
        normals, offsets = _primitive(
            above[:, None] * self._normals[far] + below[:, None] * self._normals[near],
            above * self._offsets[far] + below * self._offsets[near],
        )
        kept = np.flatnonzero(~sees)
        if len(kept) + len(near) > self._limit:
            raise TooLargeBodyError(f"the body has more than {self._limit:,} simplices")
        number = np.full(len(sees), -1)
        number[kept] = np.arange(len(kept))
        new = len(kept) + np.arange(len(near))
        corners = self._corners[near].copy()
        corners[np.arange(len(near)), corner] = place
        slot = np.argmax(self._beside[far] == near[:, None], axis=1)
        old = number[self._beside]
        old[far, slot] = new
        self._beside = np.vstack([old[kept], _fan(corners, corner, new, number[far])])
        self._corners = np.vstack([self._corners[kept], corners])
        self._normals = np.concatenate([self._normals[kept], normals])
        self._offsets = np.concatenate([self._offsets[kept], offsets])

    def _heights(self, point: Vector) -> NDArray[Any]:
        """How far a point is beyond every plane, exactly."""
        largest = max(abs(c) for c in point)
        size = len(point) * float(largest) + 1.0
        if not self.is_long and size * _size(self._normals, self._offsets) >= SAFE:
            self._widen()
        return np.asarray(
            self._normals @ np.array(point, dtype=self._normals.dtype) - self._offsets
        )

    def _widen(self) -> None:
        self._normals = self._normals.astype(object)
        self._offsets = self._offsets.astype(object)

    def certainly_has(self, near: FloatArray, unit: int) -> NDArray[np.bool_]:
        """Whether points, in a unit, are inside, by floats with a bound on their error."""
        planes = set(self._planes())
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
        simplices = [tuple(s) for s in np.sort(self._corners).tolist()]
        return Facets(points, simplices, self._planes())

    def _planes(self) -> list[tuple[Vector, int]]:
        return [(tuple(h), d) for h, d in zip(self._normals.tolist(), self._offsets.tolist())]


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


def _size(*arrays: NDArray[Any]) -> float:
    """The largest size of a number."""
    return max(float(np.abs(array).max(initial=0)) for array in arrays)


def _primitive(normals: NDArray[Any], offsets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Planes without common factors."""
    content = np.gcd(np.gcd.reduce(normals, axis=1), offsets)
    return normals // content[:, None], offsets // content
