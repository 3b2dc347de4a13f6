"""Noise on the numbers of a tree of totals, then weighted least squares, in linear time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense, is_sparse
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Totals
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import Scaled
from affinedp.laws.base import Law, Moves
from affinedp.laws.laplace import Geometric
from affinedp.laws.reach import Reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.parts import frozen
from affinedp.strategies.base import (
    GRID_BITS,
    SHARE,
    CountsPlan,
    Largest,
    Prepared,
    Promised,
    Strategy,
    largest_listed,
    sum_reaches,
)
from affinedp.strategies.matrices import MOST_NUMBERS

BECAUSE = " for independent noise on the numbers of a tree; the estimates are computed from what "
BECAUSE += "is published"
MOST_SCALE = 1 << 62


@dataclass(frozen=True, eq=False)
class Tree(Strategy):
    """Independent noise on the numbers of a tree, then weighted least squares, in O(n).

    A number X of scale q is measured as the integer ``q X``, in steps of which 2^bits are a unit
    of the noise.
    """

    kind = "tree"
    # the numbers, and which of them are public
    domain: Totals
    # q, in the given order; 0 where a number is not measured
    scales: Any = field(repr=False)
    # 56, or 0 for whole noise on whole numbers
    bits: int = GRID_BITS

    def __post_init__(self) -> None:
        q, tree = np.asarray(self.scales), self.domain
        if q.shape != (tree.n,) or q.dtype.kind not in "iu" or (q < 0).any():
            raise AffineDPError("scales must be one whole number per node, at least 0")
        if (q >= MOST_SCALE).any() or self.bits not in (0, GRID_BITS):
            raise AffineDPError("the noise is too small for its grid: epsilon is too large")
        object.__setattr__(self, "scales", frozen(q.astype(np.int64)))
        inside = self.scales[tree.order]
        if inside[tree.known].any():
            raise AffineDPError("no noise is added to a public number: its scale must be 0")
        if not (inside[tree.leaf & ~tree.known] > 0).all():
            raise AffineDPError("every leaf cell needs noise of its own")

    @property
    def names(self) -> Any:
        """One name per node, in the given order."""
        return self.domain.names

    @cached_property
    def measured(self) -> Indices:
        """Which numbers are measured, breadth first: the coordinates."""
        return np.flatnonzero(self.scales[self.domain.order])

    @cached_property
    def q(self) -> Indices:
        """The scales of the coordinates."""
        return np.asarray(self.scales[self.domain.order[self.measured]])

    @property
    def coordinates(self) -> int:
        """How many numbers are measured."""
        return len(self.measured)

    @cached_property
    def inverse(self) -> FloatArray:
        """One over the scale of the noise of every number, breadth first."""
        return np.asarray(np.ldexp(self.scales[self.domain.order].astype(float), -self.bits))

    @cached_property
    def cells_alike(self) -> bool:
        """Whether the private cells alone are measured, all alike."""
        cells = np.flatnonzero(self.domain.leaf & ~self.domain.known)
        return np.array_equal(self.measured, cells) and bool((self.q == self.q[0]).all())

    @cached_property
    def cells_alone(self) -> bool:
        """Whether totals are sums of equal noise on the cells: no public total is brought in."""
        return self.cells_alike and not self.domain.known.any()

    # -------------------------------------------------------------- the promise

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return ``q v / 2^bits`` of the measured numbers."""
        rows, unit = self.domain.order[self.measured], self.inverse[self.measured]
        if is_sparse(moves):
            import scipy.sparse as sparse

            return sparse.diags_array(unit) @ moves.tocsr()[rows]
        return unit[:, None] * moves[rows]

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the heaviest path or pair of branches, in integers; for others, from the list."""
        self._check(law)
        known = type(self) is Tree and type(adjacency) is People and adjacency.move != "swaps"
        if not known or law.norm is None or law.size is not None:
            return replace(largest_listed(self, adjacency, law), because=BECAUSE)
        assert isinstance(adjacency, People)
        weight = [q**law.norm for q in self.scales[self.domain.order].tolist()]
        best, cells = heaviest_move(self.domain, adjacency.move == "circuits", weight)
        below = math.isqrt(best) if law.norm == 2 else best
        above = below + (law.norm == 2 and below * below < best)
        unit = Fraction(adjacency.size, 1 << self.bits) * Fraction(law.rate)
        step = len(cells) == 1 and best == adjacency.size == 1 and self.bits == 0
        return Largest(
            below * unit,
            above * unit,
            True,
            "heaviest path in integers" if len(cells) == 1 else "heaviest branches in integers",
            self._direction(cells, adjacency.size),
            moves=Moves(one_step=step),
            because=BECAUSE,
        )

    def _check(self, law: Law) -> None:
        """Whole noise needs whole coordinates, and only they need it."""
        if law.whole != (self.bits == 0):
            raise AffineDPError(
                f"{law.words} noise on a tree needs bits = {0 if law.whole else GRID_BITS}"
            )

    def _direction(self, cells: tuple[int, ...], size: int) -> FloatArray:
        tree, direction = self.domain, np.zeros(self.domain.n)
        for sign, cell in zip((size, -size), cells):
            while cell >= 0:
                direction[tree.order[cell]] += sign
                cell = int(tree.parent[cell])
        return direction

    # -------------------------------------------------------------- the errors

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise combinations of numbers are made, in O(n) each.

        Estimates are ``P diag(y) seen`` with their covariance P and precisions y, and least squares
        of a/y on the cells and 0 elsewhere is P a.
        """
        tree = self.domain
        if combinations is None:
            if float(tree.n) * max(tree.n, self.coordinates) > MOST_NUMBERS:
                raise AffineDPError(
                    f"the noise matrix of {tree.n:,} numbers is not put together; "
                    "expected_squared_errors has the variances"
                )
            combinations = np.eye(tree.n)
        sums = np.ascontiguousarray(dense(combinations).T[tree.order])
        sums[tree.known] = 0.0  # they have no noise, and rounding would leave some
        for start, stop in tree.level_slices[1:]:
            sums[start:stop] += sums[tree.parent[start:stop]]
        cells, y = tree.leaf & ~tree.known, self.inverse**2
        seen = np.zeros(sums.shape)
        seen[cells] = sums[cells] / y[cells, None]
        passes.estimates(*tree.arrays, y, seen)
        return np.asarray((seen[self.measured] * self.inverse[self.measured, None]).T)

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every number, 0 where it is public, by two passes."""
        found = passes.variances(*self.domain.arrays, self.inverse**2)
        return np.asarray(law.variance * self.domain.outside(found), dtype=float)

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return how far numbers may be off; sums of equal whole noise from their law."""
        equal = type(law) is Geometric and self.cells_alone and self.q[0] == 1
        if combinations is not None or not equal:
            return super().reach(law, combinations, outside, together)
        each = law.each(outside, self.domain.n) if together else outside
        found = sum_reaches(law.rate, self.domain.leaves_below, each)
        return found, "from the law of sums; never too short"

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return estimates of noise for simulation."""
        seen = np.zeros((self.domain.n, len(drawn)))
        seen[self.measured] = drawn.T / self.inverse[self.measured, None]
        passes.estimates(*self.domain.arrays, self.inverse**2, seen)
        return np.asarray(self.domain.outside(seen).T, dtype=float)

    def scaled(self, factor: float) -> Tree:
        """Return the same with noise that is larger by a factor, or a little more."""
        if self.bits == 0:
            raise AffineDPError("whole noise has a rate: scale the law")
        return replace(self, scales=np.floor(self.scales / factor).astype(np.int64))

    # -------------------------------------------------------------- releases and reports

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases; the noise pays for its grid."""
        self._check(law)
        if law.size is not None:
            raise AffineDPError(f"{law.words} noise is not drawn on trees")
        # only the discrete Gaussian differs from its law on the line in what it promises
        return TreePlan(self, law, bound, 1.0 + SHARE if law.norm == 2 else 1.0)

    def groups(self) -> Iterator[tuple[str, Any]]:
        """Yield the private numbers of every level, from the top down."""
        tree = self.domain
        for level, (start, stop) in enumerate(tree.level_slices):
            places = tree.order[start:stop][~tree.known[start:stop]]
            yield f"level {level} ({len(places):,} numbers)", places


@dataclass(frozen=True, eq=False)
class TreePlan(CountsPlan):
    """Releases of a tree: ``q X`` in integers, and what is public."""

    strategy: Tree

    @property
    def unit(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.factor) * (1 << self.strategy.bits))

    def steps(self, data: NDArray[Any]) -> Any:
        """Return q X of the measured numbers, without the public numbers below them."""
        tree, measured = self.strategy.domain, self.strategy.measured
        left = data.T[tree.order]
        if tree.known.any():
            left = left - public_below(tree, left)
        counts = left[measured]
        return Scaled(counts, np.broadcast_to(self.strategy.q[:, None], counts.shape))

    def shared(self, data: NDArray[Any]) -> FloatArray:
        """Return what is public: what known numbers add up to below every number, and they."""
        tree = self.strategy.domain
        if not tree.known.any():
            return np.zeros((2, tree.n, len(data)))
        totals = data.T[tree.order]
        below = public_below(tree, totals)
        known = tree.known[:, None]
        own = np.where(known, totals - below, 0).astype(float)
        return np.stack([own, np.where(known, totals, below).astype(float)])

    def reconstruct(self, noisy: Any, shared: FloatArray) -> FloatArray:
        """Return estimates that add up, one row per data set."""
        tree, strategy = self.strategy.domain, self.strategy
        seen, public = shared[0].copy(), shared[1]
        seen[strategy.measured] = noisy
        if strategy.cells_alone:
            passes.added_up(tree.parent, seen)  # exactly, where the noise is whole
        else:
            passes.estimates(*tree.arrays, strategy.inverse**2, seen)
        estimates = np.where(tree.known[:, None], public, seen + public)
        return np.asarray(tree.outside(estimates).T, dtype=float)


def heaviest_branches(
    tree: Totals, weight: list[int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the two heaviest branches below every node, −1 for none, and where they end."""
    parent, known = tree.parent.tolist(), tree.known.tolist()
    one, two, to_one, to_two = ([-1] * tree.n for _ in range(4))
    for v in range(tree.n - 1, 0, -1):
        if known[v]:
            continue
        p, height = parent[v], weight[v] + max(one[v], 0)
        cell = v if to_one[v] < 0 else to_one[v]
        if height > one[p]:
            two[p], to_two[p] = one[p], to_one[p]
            one[p], to_one[p] = height, cell
        elif height > two[p]:
            two[p], to_two[p] = height, cell
    return one, two, to_one, to_two


def heaviest_move(tree: Totals, both: bool, weight: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return the heaviest sum that one move meets, in integers, and the cells that it changes."""
    one, two, to_one, to_two = heaviest_branches(tree, weight)
    class_known = tree.known[tree.component].tolist()
    best = 0
    moved: tuple[int, ...] = (0,)
    for v in range(tree.n - 1, -1, -1):
        if two[v] >= 0 and (both or class_known[v]) and one[v] + two[v] > best:
            best, moved = one[v] + two[v], (to_one[v], to_two[v])
    path = weight[0] + max(one[0], 0)
    if not tree.known[0] and path > best:
        best, moved = path, (max(to_one[0], 0),)
    return best, moved


def public_below(tree: Totals, totals: NDArray[Any]) -> NDArray[Any]:
    """Return what public numbers strictly below every node add up to: the part without noise."""
    part = np.zeros_like(totals)
    for start, stop in reversed(tree.level_slices[1:]):
        nodes = slice(start, stop)
        whole = np.where(tree.known[nodes, None], totals[nodes], part[nodes])
        np.add.at(part, tree.parent[nodes], whole)
    return part
