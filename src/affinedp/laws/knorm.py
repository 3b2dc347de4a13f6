"""K-norm noise (Hardt and Talwar): a density that falls with the gauge of a symmetric body K.

The columns of ``points`` are points of K, up to sign; blocks of rows and columns that have nothing
to do with each other are independent noises, since the gauge of their joint hull is the sum of
theirs.  One column with several entries s stands for one public sum: K = {s·z = 0, ‖z‖₁ ≤ 2 |s_i|},
the hull of all |s_i| (e_i ± e_j) on it, which is far too long to list for many entries.
Coordinates that no point ties to others are independent: diagonal points are a cross-polytope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, connected_parts, dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.base import NOTHING_KNOWN, Gauges, Law, Moves, Sampler
from affinedp.laws.bodies import (
    AxesPart,
    Bodies,
    BodyPart,
    HullPart,
    SumPart,
    largest_loss_probability,
)
from affinedp.laws.curves import Curve, LaplaceCurve, LatticeCurve, ThreeAtoms
from affinedp.laws.orbits import hull_of
from affinedp.laws.polytope import Polytope, polytope_of
from affinedp.laws.reach import Reach, Steps, each_of, independent_reach
from affinedp.laws.reach_bodies import body_reach
from affinedp.parts import frozen


class BodyLaw(Law):
    """Laws whose density falls with the gauge of a body: what a move costs is rate × its gauge."""

    bodies: Any  # its independent parts

    def gauges(self, columns: FloatArray, doubt: FloatArray | None = None) -> Gauges:
        """Return bounds on rate × the gauge."""
        found = self.bodies.gauges(columns, doubt)
        return Gauges(
            found.lower * self.rate * (1 - 2 * EPS), found.upper * self.rate * (1 + 2 * EPS)
        )

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return rate × the gauge exactly."""
        exact: Fraction = Fraction(self.rate) * self.bodies.gauge(move)
        return exact

    def box(self, p: int) -> float:
        """Return the largest gauge of one step in every coordinate, rounded up."""
        exact = Fraction(self.rate) * self.bodies.box([Fraction(1)] * p)
        return math.nextafter(float(exact), math.inf)

    def limit(self, epsilon: float, delta: float = 0.0) -> float:
        """Return ε at δ = 0."""
        return float(epsilon) if delta == 0.0 else super().limit(epsilon, delta)


@dataclass(frozen=True, eq=False)
class KNorm(BodyLaw):
    """Density ∝ e^(−rate ‖z‖_K), on R^r or on whole coordinates."""

    kind = "knorm"
    words = "K-norm"
    theorem = (
        "the theorem of the K-norm mechanism (Hardt and Talwar 2010): the triangle inequality of "
        "the gauge, with equality on the cones over its facets"
    )
    variance = 2.0  # in one dimension it is Laplace noise
    # points of K as columns, up to sign; see the module; shape (r, p)
    points: Any = field(repr=False)
    rate: float = 1.0  # how fast the density falls
    whole: bool = False  # whether z has whole coordinates

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", frozen(self.points))
        object.__setattr__(self, "rate", checked_rate(self.rate))

    @classmethod
    def of_root(cls, root: Matrix, rate: float = 1.0, whole: bool = False) -> KNorm:
        """Return noise whose root is the points of its body."""
        return cls(root, rate, whole)

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many coordinates it has."""
        return int(self.points.shape[0])

    @cached_property
    def bodies(self) -> Bodies:
        """Its independent parts."""
        parts: list[BodyPart] = []
        alone: list[tuple[int, float]] = []
        for rows, columns in self._blocks:
            points = dense(self.points[rows][:, columns])
            if len(rows) == 1:
                alone.append((int(rows[0]), float(np.abs(points).max())))
            elif len(columns) == 1:
                parts.append(self._sum(rows, points[:, 0]))
            else:
                parts.append(HullPart(rows, self._polytope(points), self.rate, self.whole))
        if alone:
            exact = {width: meaning(width) for width in {width for _, width in alone}}
            axes, ends = np.array([row for row, _ in alone]), tuple(exact[w] for _, w in alone)
            parts.append(AxesPart(axes, ends, self.rate, self.whole))
        return Bodies(tuple(parts))

    def _polytope(self, points: FloatArray) -> Polytope:
        """The hull of points, made once for equal blocks and for all rates."""
        key = _key(points)
        if key not in self._known:
            self._known[key] = polytope_of(points, Polytope if self.whole else hull_of)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[bytes, Polytope]:
        """Hulls by their points."""
        return {}

    def knowing(self, points: FloatArray, body: Polytope) -> KNorm:
        """Return the same noise, told the hull of some of its points."""
        self._known[_key(points)] = body
        return self

    def _sum(self, rows: IntArray, column: FloatArray) -> SumPart:
        width = float(np.abs(column).max())
        if not np.all(np.abs(column) == width):
            raise AffineDPError("one point cannot span a body of several dimensions")
        return SumPart(rows, np.sign(column), meaning(width), self.rate, self.whole)

    @property
    def parts(self) -> tuple[BodyPart, ...]:
        """Its independent parts."""
        return self.bodies.parts

    @cached_property
    def _blocks(self) -> list[tuple[IntArray, IntArray]]:
        """Coordinates and points that belong together."""
        found = []
        for rows, columns in connected_parts(self.points):
            if not len(columns):
                raise AffineDPError("a coordinate of the noise has no point of the body: no noise")
            if len(rows):
                found.append((rows, columns))
        return found

    @cached_property
    def _sums(self) -> list[tuple[IntArray, int, FloatArray]]:
        """Rows, column and signs of the public sums."""
        return [
            (rows, int(columns[0]), np.sign(dense(self.points[rows][:, columns])[:, 0]))
            for rows, columns in self._blocks
            if len(rows) > 1 and len(columns) == 1
        ]

    # -------------------------------------------------------------- what it promises

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return the curve below ε: on R^r one Laplace pair, on a lattice one for every move."""
        if not self.whole:
            # a log-concave density that is purely ε-private has at most Laplace's curve
            return LaplaceCurve(sensitivity)
        sums = self.bodies.sums if moves.largest is not None else ()
        one = moves.largest is not None and moves.largest <= Fraction(self.rate)
        if one and len(sums) == len(self.parts) and all(part.width == 1 for part in sums):
            # a whole move of gauge 1 takes 1 from one entry and gives it to another
            top = max(largest_loss_probability(len(part.rows), sensitivity) for part in sums)
            equal = len({len(part.rows) for part in sums}) == 1
            return ThreeAtoms(sensitivity, top, exact=equal)
        if moves.one_step:  # nothing purely ε-private is above it
            return ThreeAtoms(sensitivity, exact=True)
        return LatticeCurve(sensitivity, tuple(sorted(moves.steps.items())), exact=moves.on_axes)

    # -------------------------------------------------------------- how large it is

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

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ z``."""
        total = np.zeros(rows.shape[0])
        for part in self.parts:
            total += part.variances(rows[:, part.rows])
        return total

    def covariance(self, rows: Matrix) -> FloatArray:
        """Return the covariance of ``rows @ z``."""
        return dense(rows @ (self.moment @ rows.T))

    @property
    def free(self) -> IntArray:
        """The coordinates that no other ones determine: all but the last of every public sum."""
        last = [int(rows[-1]) for rows, _, _ in self._sums]
        return np.setdiff1d(np.arange(self.size), last)

    def span(self) -> Matrix | None:
        """Return few vectors that span the noise, one for every free coordinate."""
        import scipy.sparse as sparse

        if not self._sums:
            return None
        kept = self.free
        place = {int(row): i for i, row in enumerate(kept)}
        entries = [(row, i, 1.0) for row, i in place.items()]
        for rows, _, signs in self._sums:  # the last entry follows from the others
            pairs = zip(rows[:-1].tolist(), signs[:-1].tolist())
            entries += [
                (int(rows[-1]), place[row], -sign * float(signs[-1])) for row, sign in pairs
            ]
        i, j, values = zip(*entries)
        return sparse.csr_array((values, (i, j)), shape=(self.size, len(kept)))

    def spread(self, rows: Matrix) -> Matrix:
        """Return points of the body in outputs, in units in which the rate is 1."""
        return rows @ (self.hull_points() / self.rate)

    def at_rate(self, rate: float) -> KNorm:
        """Return the same noise with a density that falls so fast."""
        made = replace(self, rate=rate)
        made._known.update(self._known)
        return made

    def beside(self, others: Sequence[Law]) -> KNorm:
        """Return K-norm noise of all bodies, in units of the first rate."""
        import scipy.sparse as sparse

        parts = [self, *(other for other in others if isinstance(other, KNorm))]
        if any(part.whole != self.whole for part in parts):
            raise AffineDPError("noise for whole numbers is stacked with its like only")
        # equal numbers for equal rates
        points = [part.points * (self.rate / part.rate) for part in parts]
        return KNorm(sparse.csr_array(sparse.block_diag(points)), self.rate, self.whole)

    def hull_points(self) -> Matrix:
        """Return points of the body, up to sign, as columns: also those under public sums."""
        import scipy.sparse as sparse

        if not self._sums:
            return self.points
        whole = sparse.csc_array(self.points)
        used = {column for _, column, _ in self._sums}
        parts = [whole[:, [j for j in range(whole.shape[1]) if j not in used]]]
        for rows, column, signs in self._sums:
            width = float(np.abs(whole[:, [column]].data).max())
            first, second = np.triu_indices(len(rows), 1)
            columns = np.tile(np.arange(len(first)), 2)
            place = np.concatenate([rows[first], rows[second]])
            values = width * np.concatenate([signs[first], -signs[second]])
            shape = (self.size, len(first))
            parts.append(sparse.csc_array((values, (place, columns)), shape=shape))
        return sparse.csr_array(sparse.hstack(parts))

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of independent coordinates, or cone by cone."""
        found = self._independent(rows, outside)
        return body_reach(self.bodies, self.free, rows, outside) if found is None else found

    def known_together(self, rows: Matrix, outside: float, noisy: int) -> Reach | None:
        """Return half widths for numbers that share no noise."""
        return self._independent(rows, each_of(outside, noisy), apart=True)

    def _independent(self, rows: Matrix, outside: float, apart: bool = False) -> Reach | None:
        """Half widths where all coordinates are independent: stairs of one, or Laplace noise."""
        if not all(isinstance(part, AxesPart) for part in self.parts):
            return None
        widths = np.zeros(self.size)
        for part in self.parts:
            widths[part.rows] = 1 / part.steepest
        if not self.whole:
            return independent_reach(widths / self.rate, rows, outside, apart)
        laws = {i: Steps(1.0, 1.0, self.rate / w, True) for i, w in enumerate(widths.tolist())}
        return independent_reach(laws, rows, outside, apart)

    def depths(self, points: FloatArray) -> FloatArray:
        """Return rate × ‖z‖_K, in floating point."""
        found = self.gauges(points)
        return np.asarray((found.lower + found.upper) / 2)

    # -------------------------------------------------------------- how it is drawn

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw z for simulation."""
        drawn = np.zeros((size, p))
        for part in self.parts:
            drawn[:, part.rows] = part.sample(generator, size)
        return drawn

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws whole coordinates; real ones are drawn on a grid, by ``bodies``."""
        if not self.whole:
            raise AffineDPError("K-norm noise on real numbers is drawn on a grid: see on_grid")
        return self.bodies.drawn(Fraction(self.rate) / unit)


def checked_rate(rate: Any) -> float:
    """Return a rate as a double, which is positive."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating | np.integer):
        raise AffineDPError(f"a rate must be a number, not {rate!r}")
    if not 0 < rate < math.inf:
        raise AffineDPError(f"a rate of {rate} is not possible: it must be positive")
    return float(rate)


def _key(points: FloatArray) -> bytes:
    return np.ascontiguousarray(points).tobytes() + repr(points.shape).encode()
