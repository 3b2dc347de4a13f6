"""The law e^(−rate ‖z‖_K) on the lattice Z^r, cone by cone, for cones of any determinant.

Take a direction y in general position.  The cone with generators a_1..a_r and y = Σ c_i a_i is
closed where c_i > 0 and open where c_i < 0; these half-open cones are a partition of R^r.  Each
lattice point of one is Σ (λ_i + t_i) a_i with t_i = 0, 1, 2, … and λ in the half-open unit box, so
its weight is e^(−rate Σ λ_i) Π e^(−rate t_i).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.lattice import hermite_diagonal
from affinedp.exact.rational import Vector, adjugate
from affinedp.laws.polytope import Polytope

# Points of unit boxes that are listed, so that no proposal is rejected.
MOST_LISTED = 50_000
# … and that are still added up for the moments of the law.
MOST_ADDED = 2_000_000


@dataclass(frozen=True, eq=False)
class Cone:
    """A half-open simplicial cone with whole generators.

    Attributes
    ----------
    generators : tuple of vectors of int
        a_1..a_r.
    determinant : int
        |det|: how many lattice points a unit box has.
    adjoint : list of lists of int
        determinant × inverse of the matrix with the generators as columns.
    is_open : tuple of bool
        Where λ_i runs through (0, 1] in place of [0, 1).
    cosets : tuple of int
        Π [0, cosets_i) has one point of every coset of the lattice that the generators span.
    """

    generators: tuple[Vector, ...]
    determinant: int
    adjoint: list[list[int]]
    is_open: tuple[bool, ...]
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
    """The lattice Z^r in half-open cones over the boundary of a polytope.

    Parameters
    ----------
    body : Polytope
        K.  Its vertices need not be lattice points.

    Attributes
    ----------
    unit : Fraction
        The gauge of every generator: generators are the vertices of ``unit`` K.
    cones : list of Cone
        They partition R^r.
    total : int
        Lattice points of all unit boxes.
    """

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
