"""A symmetric polytope by orbits of its facets under its symmetries.

The hull of the moves of a table has few facets that differ by more than a symmetry.  One facet of
every orbit is kept, in simplices, and the whole matrices that take it to all others.

Symmetries are found from the points alone, in exact arithmetic: all whole matrices that take
± points to ± points, or those of them that also fix some points; either is a group.  Facets are
found by adjacency decomposition: from one facet across all its ridges, and on from those that are
in no orbit yet.  Such steps join any two facets, so none is missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, semidefinite_root
from affinedp.exact.rational import Echelon, Vector, adjugate, independent, primitive
from affinedp.laws.polytope import (
    CHUNK,
    MOST_SIMPLICES,
    SAFE,
    Facets,
    Polytope,
    Surface,
    TooLargeBodyError,
    check_dimensions,
    dual_axes,
    is_vertex,
    one_of_each_pair,
    primitive_planes,
    size_of,
    whole_points,
)
from affinedp.laws.sampler.coins import narrowed
from affinedp.progress import Progress

# So many simplices are quick one by one, and intervals are known from them.
FEW_SIMPLICES = 20_000
# In more dimensions one facet alone is too large.
MOST_DIMENSIONS = 10
# Points among which symmetries are looked for, and the largest number in these and in those.
MOST_POINTS = 500
MOST_NUMBER = 10_000
# A facet takes as long as so many simplices, however few it has.
LEAST_FACET = 300
# Symmetries up to sign that are listed.
MOST_SYMMETRIES = 5_000
LONG = "the planes of the body have too long numbers"


def hull_of(points: Sequence[Sequence[Fraction]], limit: int = MOST_SIMPLICES) -> Polytope:
    """Return hull(± points), by orbits of its facets where it has many simplices."""
    check_dimensions(len(points[0]) if points else 0, MOST_DIMENSIONS)
    with suppress(TooLargeBodyError):
        return Polytope(points, min(limit, FEW_SIMPLICES))
    with suppress(TooLargeBodyError):
        found = OrbitPolytope.of(points, limit)
        if found is not None:
            return found
    return Polytope(points, limit)


class OrbitPolytope(Polytope):
    """hull(± points) in exact arithmetic: one facet of every orbit, and its symmetries."""

    group: IntArray

    def __init__(
        self, denominator: int | Fraction, facets: Facets, counts: IntArray, group: IntArray
    ) -> None:
        self.denominator, self.facets, self.counts, self.group = denominator, facets, counts, group

    @classmethod
    def of(cls, points: Sequence[Sequence[Fraction]], limit: int) -> OrbitPolytope | None:
        """Return the hull of points; None if nothing but −1 is known to be a symmetry."""
        denominator, whole = whole_points(points)
        content = math.gcd(*(c for point in whole for c in point)) or 1
        chosen = one_of_each_pair([tuple(c // content for c in point) for point in whole])
        if not 0 < len(chosen) <= MOST_POINTS or size_of(np.array(chosen)) > MOST_NUMBER:
            return None
        while True:
            array = np.array(chosen, dtype=np.int64)
            group = symmetries(array)
            if len(group) <= 2:
                return None
            facets, counts = facet_orbits(array, group, limit)
            vertices = _vertices(chosen, facets)
            if len(vertices) == len(chosen):
                return cls(Fraction(denominator, content), facets, counts, group)
            chosen = vertices  # others would refine simplices for nothing

    def in_steps(self, step: Fraction) -> OrbitPolytope:
        """Return the body in steps of a grid, its points rounded up to them all alike."""
        times = -(-1 // (self.denominator * step))
        return OrbitPolytope(Fraction(1, times), self.facets, self.counts, self.group)

    @property
    def _whole_vertices(self) -> list[Vector]:
        return self.facets.points[: len(self.facets.points) // 2]

    def second_moment(self) -> FloatArray:
        """Return E zzᵀ of the law e^(−‖z‖_K) on R^r: the mean over all symmetries."""
        found = self.group @ super().second_moment() @ self.group.swapaxes(1, 2)
        return np.asarray(found.mean(axis=0))

    def moment_root(self) -> FloatArray:
        """Return R with RᵀR = E zzᵀ."""
        return semidefinite_root(self.second_moment())

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw from the law e^(−‖z‖_K) on R^r for simulation, shape (size, r)."""
        turns: IntArray = generator.integers(len(self.group), size=size)
        drawn = super().sample(size, generator)
        return np.asarray(np.einsum("nij,nj->ni", self.group[turns], drawn))


# ---------------------------------------------------------------------- symmetries


def symmetries(points: IntArray, most: int = MOST_SYMMETRIES) -> IntArray:
    """Return the whole matrices that take ± points to ± points, shape (order, r, r).

    Where they are too many, those that fix some points, up to sign.
    """
    both = np.vstack([points, -points])
    size = points.shape[1]
    identity = np.eye(size, dtype=np.int64)[None]
    if len(independent(points.tolist(), size)) < size:
        return np.concatenate([identity, -identity])
    products = _invariant_products(points)
    base = _base(points, products)
    images = next(
        found
        for fixed in range(size + 1)
        if (found := _images(products, base, fixed, most)) is not None
    )
    found = _matrices(both, base, images)
    return np.concatenate([found, -found])


def _invariant_products(points: IntArray) -> IntArray:
    """Numbers for pairs of ± points, equal where xᵀ(Σ zzᵀ)⁻¹y is, which no symmetry changes."""
    exact = points.astype(object)
    adjoint = np.array(adjugate((exact.T @ exact).tolist())[1], dtype=object)
    products = exact @ adjoint @ exact.T
    sizes = np.unique(np.abs(products), return_inverse=True)[1].reshape(products.shape) + 1
    one = np.where(products == 0, 0, np.where(products > 0, sizes, -sizes))
    return np.block([[one, -one], [-one, one]])


def _base(points: IntArray, products: IntArray) -> list[int]:
    """Independent points, each with few others that look like it from those before."""
    space = Echelon(points.shape[1])
    base: list[int] = []
    seen = np.sort(products, axis=1)
    while len(base) < points.shape[1]:
        _, alike, counts = np.unique(seen, axis=0, return_inverse=True, return_counts=True)
        rarest = np.argsort(counts[alike.ravel()][: len(points)], kind="stable").tolist()
        base.append(next(i for i in rarest if space.add(dict(enumerate(points[i].tolist())))))
        seen = np.column_stack([alike, products[:, base[-1]]])
    return base


def _images(products: IntArray, base: list[int], fixed: int, most: int) -> IntArray | None:
    """Where symmetries that fix some of the base may take all of it, the first point up to sign."""
    count = len(products)
    found = np.zeros((1, 0), dtype=np.intp)
    for i, point in enumerate(base):
        may_be = np.ones((len(found), count), dtype=bool)
        may_be &= np.diagonal(products) == products[point, point]
        if i == 0:
            may_be[:, count // 2 :] = False
        if i < fixed:
            may_be &= np.arange(count) == point
        for image, before in zip(found.T, base):
            may_be &= products[image] == products[before, point]
        row, place = np.nonzero(may_be)
        if len(row) > most:
            return None
        found = np.column_stack([found[row], place])
    return found


def _matrices(both: IntArray, base: list[int], images: IntArray) -> IntArray:
    """The whole matrices that take a base to images of it, and every point to a point."""
    determinant, rows = adjugate(both[base].T.tolist())
    adjoint = narrowed(rows)
    targets = both[images].swapaxes(1, 2)
    if adjoint.dtype == object or not _fits(adjoint, targets):
        targets = targets.astype(object)
    times = targets @ adjoint
    whole = times[(times % determinant == 0).all(axis=(1, 2))] // determinant
    if size_of(whole) > MOST_NUMBER:
        raise TooLargeBodyError(LONG)
    found = whole.astype(np.int64)
    generator = np.random.default_rng(0)
    while True:  # numbers that tell the points apart, modulo 2^64
        spread = generator.integers(1, 2**62, both.shape[1])
        codes = both @ spread
        order = np.argsort(codes)
        if np.all(np.diff(codes[order]) != 0):
            break
    kept = np.ones(len(found), dtype=bool)
    step = max(1, CHUNK // both.size)
    for start in range(0, len(found), step):
        moved = both[: len(both) // 2] @ found[start : start + step].swapaxes(1, 2)
        place = np.searchsorted(codes, moved @ spread, sorter=order)
        nearest = both[order[np.minimum(place, len(order) - 1)]]
        kept[start : start + step] = (nearest == moved).all(axis=(1, 2))
    return np.asarray(found[kept])


# ---------------------------------------------------------------------- facets


def facet_orbits(points: IntArray, group: IntArray, limit: int) -> tuple[Facets, IntArray]:
    """Return one facet of every orbit in simplices, all planes, and orbits' sizes by simplex."""
    both = np.vstack([points, -points])
    metric = np.linalg.inv(points.T @ points)  # symmetries keep it
    known: dict[Vector, int] = {}  # planes as normal and offset, and their places
    waiting, simplices, own, counts = [_first_plane(both)], [], [], []
    left = limit
    with Progress("facets of the body") as progress:
        while waiting:
            plane = waiting.pop()
            key = tuple(plane.tolist())
            if key in known:
                continue
            _check_length(group, plane)
            images = np.unique(plane[:-1] @ group, axis=0)
            for normal in images.tolist():
                known[(*normal, key[-1])] = len(known)
            on = np.flatnonzero(both @ plane[:-1] == plane[-1])
            corners, ridges = _facet(both[on], metric, limit)
            left -= max(len(corners), LEAST_FACET)
            progress.update(1 - max(left, 0) / limit, f"{len(known):,} planes")
            if left < 0 or len(known) > limit:
                raise TooLargeBodyError(
                    f"the body has more than {limit:,} simplices, up to symmetry"
                )
            simplices.append(np.sort(on[corners]))
            own.append(np.full(len(corners), known[key]))
            counts.append(np.full(len(corners), len(images)))
            waiting += [
                one for one in _beyond(both, plane, ridges) if tuple(one.tolist()) not in known
            ]
    planes = [(plane[:-1], plane[-1]) for plane in known]
    facets = Facets(
        [tuple(p) for p in both.tolist()], np.concatenate(simplices), planes, np.concatenate(own)
    )
    return facets, np.concatenate(counts)


def _first_plane(both: IntArray) -> IntArray:
    """Some facet: a plane that is turned about what it touches until it touches enough."""
    size = both.shape[1]
    axes = np.eye(size, dtype=np.int64)
    plane = np.append(axes[0], both[:, 0].max())
    while True:
        on = both[both @ plane[:-1] == plane[-1]]
        spanning = [*on.tolist(), *axes.tolist()]
        chosen = independent(spanning, size)
        if chosen[-1] < len(on):
            return plane
        free = primitive(dual_axes([tuple(spanning[i]) for i in chosen])[1][-1].tolist())[0]
        (plane,) = _beyond(both, plane, narrowed([free]))


def _facet(points: IntArray, metric: FloatArray, limit: int) -> tuple[IntArray, IntArray]:
    """A facet in simplices, and for each of its ridges the plane through it and 0."""
    from_centre = points - points.mean(axis=0)
    far = np.einsum("ni,ij,nj->n", from_centre, metric, from_centre)
    order = np.argsort(-far.round(9), kind="stable")  # fewer simplices than the other way round
    rows = [tuple(point) for point in points[order].tolist()]
    start = independent(rows, points.shape[1])
    # of its boundary about half is seen from an apex, and kept
    surface = Surface.cone([rows[i] for i in start], 2 * limit)
    places = np.array(start + [i for i in range(len(rows)) if i not in start])
    for place in range(len(start), len(rows)):
        surface.insert(place, rows[places[place]])
    _check_length(surface.normals, points)
    # the facet is the cone with an apex, one of its points, over all ridges that do not contain it
    touches = surface.normals @ points.T == 0
    apex = int(np.argmax(touches.sum(axis=0)))
    beside = order[places[surface.corners[~touches[:, apex]]]]
    corners = np.column_stack([np.full(len(beside), apex), beside])
    return corners, np.unique(surface.normals, axis=0)


def _beyond(both: IntArray, plane: IntArray, ridges: IntArray) -> Iterator[IntArray]:
    """The facets on the other sides of ridges: the plane turned until it touches more points."""
    below = plane[-1] - both @ plane[:-1]
    _check_length(both, both, plane, ridges)
    step = max(1, CHUNK // len(both))
    for first in range(0, len(ridges), step):
        some = ridges[first : first + step]
        rises = some @ both.T
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.argmin(np.where(rises > 0, below / rises, np.inf), axis=1)
        rise = rises[np.arange(len(some)), at][:, None]
        normals = rise * plane[:-1] + below[at][:, None] * some
        normals, offsets = primitive_planes(normals, rise[:, 0] * plane[-1])
        if np.any(normals @ both.T > offsets[:, None]):  # so close that floats could not tell
            raise TooLargeBodyError(LONG)
        yield from np.unique(np.column_stack([normals, offsets]), axis=0)


def _fits(*factors: NDArray[Any]) -> bool:
    """Whether products, summed over dimensions for each factor, fit in 64 bits."""
    return math.prod(16.0 * size_of(factor) for factor in factors) < SAFE


def _check_length(*factors: NDArray[Any]) -> None:
    if not _fits(*factors):
        raise TooLargeBodyError(LONG)


def _vertices(points: list[Vector], facets: Facets) -> list[Vector]:
    """The points in which facets of all directions meet."""
    normals = [normal for normal, _ in facets.planes]
    offsets = np.array([offset for _, offset in facets.planes])
    meeting = np.array(points) @ np.array(normals).T == offsets
    return [
        point
        for point, at in zip(points, meeting)
        if is_vertex([normals[i] for i in np.flatnonzero(at).tolist()])
    ]
