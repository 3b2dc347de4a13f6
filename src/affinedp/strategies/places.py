"""Noise on margins at every node of a tree: on residuals, or whole on the cells of the leaves.

Every node of the tree has the whole table of attributes.  Noise of precision ``y_v t_B`` on the
residual of block B at node v makes the precision matrix a sum of Kronecker products, so that every
block is the same tree problem, and every node the same margin problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains import tree_passes as passes
from affinedp.domains.crossed import Placed, members, subsets
from affinedp.domains.totals import Indices, Totals
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import Integers, Scaled
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Geometric
from affinedp.laws.reach import whole_reach
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
    largest_listed,
)
from affinedp.strategies.margin_blocks import (
    UNIT_BITS,
    PlaceTables,
    contrasts,
    exact_square,
    rounded_root,
    squared_lengths,
    variance_shares,
)
from affinedp.strategies.margins import SPARE, MarginOutputs

# Numbers that are still held as wide integers.
MOST_WIDE = 3_000_000


@dataclass(frozen=True, eq=False)
class OfPlaces(MarginOutputs):
    """Margins of tables at every node of a tree."""

    domain: Placed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of every attribute."""
        return self.domain.crossed.sizes

    @property
    def tree(self) -> Totals:
        """The places."""
        return self.domain.places

    @property
    def lead(self) -> tuple[int, ...]:
        """How many places there are."""
        return (self.tree.n,)

    def noise_by_group(self, law: Law) -> Iterator[tuple[str, int, float]]:
        """Yield every margin at the leaves, how many numbers, and their root mean square noise."""
        leaves = self.tree.order[self.tree.leaf]
        for chosen in self.margins:
            name = f"margin of {', '.join(map(str, chosen)) or 'nothing'}, leaves"
            count = len(leaves) * math.prod(self.sizes[j] for j in chosen)
            yield name, count, math.sqrt(float(self.node_variances(law, chosen)[leaves].mean()))

    def tables(self, coordinates: Mapping[int, FloatArray], whole: bool = False) -> PlaceTables:
        """Return margins that are put together from contrasts at the nodes, breadth first."""
        return PlaceTables(self.sizes, self.margins, coordinates, whole, tree=self.tree)

    # -------------------------------------------------------------- data

    def holds(self, most: int) -> bool:
        """Return whether tables of so many people can be released without any overflow."""
        narrow = most * math.prod(n - 1 for n in self.sizes) < 1 << 63
        return narrow or self.tree.n * math.prod(self.sizes) <= MOST_WIDE

    def totals(self, given: NDArray[Any], most: float | None) -> NDArray[Any]:
        """Return the tables of all nodes, breadth first, or refuse what could overflow."""
        tree, cells = self.tree, math.prod(self.sizes)
        leaves = np.flatnonzero(tree.leaf)
        # what the type can hold, summed over leaves and cells, times the longest contrast
        reach = int(max(abs(int(np.iinfo(given.dtype).min)), np.iinfo(given.dtype).max))
        reach *= len(leaves) * cells
        reach = reach if most is None else min(reach, math.ceil(most))
        narrow = reach * math.prod(n - 1 for n in self.sizes) < 1 << 63
        if not narrow and tree.n * cells > MOST_WIDE:
            raise AffineDPError(
                f"counts of type {given.dtype} could overflow in a table of this size: give "
                "integers of at most 32 bits (the type is a public bound on them), or bound"
            )
        totals = np.zeros((tree.n, cells), np.int64 if narrow else object)
        totals[leaves] = given.reshape(len(leaves), cells)[self.ranks]
        if narrow:
            passes.added_up(tree.parent, totals)
            return totals
        for start, stop in reversed(tree.level_slices[1:]):
            np.add.at(totals, tree.parent[start:stop], totals[start:stop])
        return totals

    @cached_property
    def ranks(self) -> Indices:
        """Where the leaves stand among those that are given, breadth first."""
        return np.argsort(np.argsort(self.tree.order[self.tree.leaf]))

    def _nodes_of(self, moves: Matrix) -> NDArray[Any]:
        """Differences of the cells of leaves at all nodes, one layer per move."""
        given = dense(moves)
        shape = (self.domain.leaves, *self.sizes)
        layers = [self.added(column.reshape(shape)) for column in given.T]
        return np.array(layers)

    def added(self, given: FloatArray) -> FloatArray:
        """Return the tables of all nodes, breadth first, from noisy ones of the leaves."""
        seen = np.zeros((self.tree.n, math.prod(self.sizes)))
        seen[self.tree.leaf] = given.reshape(len(given), -1)[self.ranks]
        passes.added_up(self.tree.parent, seen)
        return seen

    def outside_axes(self, B: int) -> tuple[int, ...]:
        """Return the axes of tables at nodes that a block adds up."""
        return tuple(1 + j for j in range(len(self.sizes)) if not B >> j & 1)


# Numbers of a block that are worked on at once.
BLOCK = 1 << 19


@dataclass(frozen=True, eq=False)
class Product(OfPlaces):
    """Noise of precision ``y_v t_B`` on the residual of every block B at every node v."""

    kind = "product"
    # precisions of blocks of margins, in their order (``blocks``)
    t: Any = field(repr=False)
    # precisions of nodes, breadth first
    y: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, shape in (("t", self.blocks.shape), ("y", (self.tree.n,))):
            values = np.asarray(frozen(np.asarray(getattr(self, name), dtype=float)))
            if values.shape != shape or not (values > 0).all() or not np.isfinite(values).all():
                raise AffineDPError("every block and every node needs a positive precision")
            object.__setattr__(self, name, values)

    def sides(self, B: int) -> tuple[int, ...]:
        """Return how many contrasts a block has along each of its attributes."""
        return tuple(self.sizes[j] - 1 for j in members(B))

    def first(self, B: int) -> int:
        """Return the first node with noise: the number of all people may be public."""
        return 1 if B == 0 and self.domain.fixed else 0

    def known(self, B: int) -> NDArray[np.bool_]:
        """Return the nodes at which a block is public."""
        known = np.zeros(self.tree.n, bool)
        known[0] = self.first(B) == 1
        return known

    @property
    def coordinates(self) -> int:
        """How many contrasts there are at all nodes."""
        each = sum(math.prod(self.sides(B)) for B in self.blocks.tolist())
        return self.tree.n * each - sum(map(self.first, self.blocks.tolist()))

    def _inverse(self, B: int) -> FloatArray:
        """One over the deviation of the noise on the contrasts of a block at a node of y = 1."""
        t = float(self.t[self.blocks.tolist().index(B)])
        return np.sqrt(t / squared_lengths(self.sides(B))).ravel()

    # -------------------------------------------------------------- the promise

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return scaled contrasts at all nodes of differences of the cells of the leaves."""
        layers = self._nodes_of(moves)
        parts = []
        for B in self.blocks.tolist():
            tables = layers.reshape(-1, *self.sizes).sum(axis=self.outside_axes(B))
            found = contrasts(tables, first=1, absolute=absolute)
            found = found.reshape(len(layers), self.tree.n, -1)
            scaled = found * np.sqrt(self.y)[:, None] * self._inverse(B)
            parts.append(scaled[:, self.first(B) :].reshape(len(layers), -1).T)
        return np.vstack(parts)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm of the move of people, in integers; else moves are listed."""
        if type(adjacency) is not People and self.domain.fixed:
            raise AffineDPError(
                "the number of people is published as it is, and these neighbours could move it"
            )
        known = type(adjacency) is People and adjacency.move in ("person", "replace")
        if not known or type(law) is not Gaussian:
            return largest_listed(self, adjacency, law)
        assert isinstance(adjacency, People)
        upper = rounded_root(self.square()) * adjacency.size
        return Largest(
            upper, upper, True, "heaviest path or pair of branches, in integers",
            because=" for white noise on residuals of margins at the nodes of a tree; all numbers "
            "are computed from what is published",
        )  # fmt: skip

    def square(self) -> Fraction:
        """Return the squared sensitivity to one person exactly.

        A person is seen at all nodes of one path, G(∅) at each.  Who moves is seen on two branches,
        and at the shared nodes above them as far as attributes differ: 2 (G(∅) − min G) at each.
        """
        weight = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in self.y.tolist()]
        alone = exact_square(self.sizes, self.blocks, self.t, "person")
        n, parent = self.tree.n, self.tree.parent.tolist()
        one, two = [0] * n, [-1] * n
        if not self.domain.fixed:
            for v in range(n - 1, 0, -1):
                one[parent[v]] = max(one[parent[v]], one[v] + weight[v])
            return Fraction(one[0] + weight[0]) * alone / (1 << UNIT_BITS)
        shared = exact_square(self.sizes, self.blocks, self.t, "replace")
        # over one denominator, so that all that follows is in whole numbers
        scale = math.lcm(alone.denominator, shared.denominator)
        apart, common = int(alone * scale), int(shared * scale)
        branches = [0] * n
        for v in range(n - 1, 0, -1):
            p, height = parent[v], max(one[v], 0) + weight[v]
            branches[p] += 1
            if branches[p] == 1 or height > one[p]:
                two[p] = one[p] if branches[p] > 1 else -1
                one[p] = height
            elif height > two[p]:
                two[p] = height
        best, above = 0, [0] * n
        for v in range(n):
            above[v] = weight[v] * common + (above[parent[v]] if v else 0)
            best = max(best, above[v])  # the same place, or both below v
            if two[v] >= 0:
                best = max(best, above[v] + (one[v] + two[v]) * apart)
        return Fraction(best, scale << UNIT_BITS)

    # -------------------------------------------------------------- the errors

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on contrasts combinations are made.

        Least squares along the tree are a projection in the metric y: its adjoint takes c to
        ``y P(c / y)``.
        """
        rows = []
        for combination in self._every(combinations):
            shapes = {B: self.lead + self.shape(members(B)) for B in self.blocks.tolist()}
            total = {B: np.zeros(shape) for B, shape in shapes.items()}
            for A, part in self._split(combination):
                inner = self.tree.inside(part)
                for B in subsets(A):
                    out = tuple(1 + i for i, j in enumerate(members(A)) if not B >> j & 1)
                    total[B] = total[B] + inner.mean(axis=out)
            parts = []
            for B, sums in total.items():
                own = contrasts(sums, first=1).reshape(self.tree.n, -1)
                own = own / squared_lengths(self.sides(B)).ravel() / self.y[:, None]
                own[: self.first(B)] = 0.0
                own = np.ascontiguousarray(own)
                passes.estimates(self.tree.parent, self.tree.leaf, self.known(B), self.y, own)
                found = own * np.sqrt(self.y)[:, None] / self._inverse(B)
                parts.append(found[self.first(B) :].ravel())
            rows.append(np.concatenate(parts))
        return np.array(rows)

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        found = []
        for row in drawn:
            coordinates, start = {}, 0
            for B in self.blocks.tolist():
                seen = np.zeros((self.tree.n, math.prod(self.sides(B))))
                own = seen[self.first(B) :]
                stop = start + own.size
                own[:] = row[start:stop].reshape(own.shape)
                seen /= np.sqrt(self.y)[:, None] * self._inverse(B)
                passes.estimates(self.tree.parent, self.tree.leaf, self.known(B), self.y, seen)
                coordinates[B], start = seen, stop
            found.append(self.flat(self.tables(coordinates)))
        return np.array(found)

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order."""
        A = sum(1 << j for j in chosen)
        shares = variance_shares(self.sizes, np.array([A]), self.blocks).toarray()[0] / self.t
        total = np.zeros(self.tree.n)
        for first in {self.first(B) for B in self.blocks.tolist()}:
            same = np.array([self.first(B) == first for B in self.blocks.tolist()])
            known = np.zeros(self.tree.n, bool)
            known[:first] = True
            node = passes.variances(self.tree.parent, self.tree.leaf, known, self.y)
            total += node * float(shares[same].sum())
        return np.asarray(law.variance * self.tree.outside(total), dtype=float)

    def scaled(self, factor: float) -> Product:
        """Return the same with noise that is larger by a factor."""
        return replace(self, t=self.t / factor**2)

    # -------------------------------------------------------------- releases

    def scales(self, B: int, rows: slice) -> Integers:
        """Return q of the contrasts of one block at some nodes: noise of scale 2⁵⁶/q.

        ``q² |h|² ≤ 4⁵⁶ y_v t_B`` holds exactly: all roundings on the way are together less than a
        part in 2⁴⁹, and q is made smaller by a part in 2⁴⁶ before it is rounded down.
        """
        inverse = np.sqrt(self.y[rows])[:, None] * (self._inverse(B) * (1 - SPARE))
        return np.asarray(np.floor(np.ldexp(inverse, GRID_BITS)), dtype=np.int64)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        if law.whole or law.size is not None:
            raise AffineDPError(f"contrasts of margins are not released with {law.words} noise")
        heaviest = math.sqrt(float(self.y.max()))
        for B in self.blocks.tolist():
            own = self._inverse(B)
            if not heaviest * own.max() * 2.0**GRID_BITS < 2.0**62:
                raise AffineDPError("the noise is too small for its grid: epsilon is too large")
            if self.scales(B, slice(None)).min() < 1:
                raise AffineDPError("the noise of some node is too large for its grid")
        return ProductPlan(self, law, bound, 1.0 + SHARE)


@dataclass(frozen=True, eq=False)
class NodeSteps:
    """q times the contrasts of every block at every node; scales are made when they are needed."""

    # what is measured
    strategy: Product
    # contrasts by block, shape (nodes, contrasts)
    exact: Mapping[int, NDArray[Any]] = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the integers."""
        return (sum(part.size for part in self.exact.values()), 1)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        parts = []
        for B, counts in self.exact.items():
            q = self.strategy.scales(B, slice(self.strategy.tree.n - len(counts), None))
            parts.append(np.asarray(Scaled(counts.reshape(-1, 1), q.reshape(-1, 1))))
        return np.concatenate(parts)

    def __add__(self, drawn: NDArray[Any]) -> dict[int, FloatArray]:
        """Return noisy contrasts by block, some nodes at a time."""
        found, place = {}, 0
        for B, counts in self.exact.items():
            seen, first = np.empty(counts.shape), self.strategy.tree.n - len(counts)
            step = max(1, BLOCK // counts.shape[1])
            for start in range(0, len(counts), step):
                own = counts[start : start + step]
                q = self.strategy.scales(B, slice(first + start, first + start + len(own)))
                noise = drawn[place : place + own.size, 0].reshape(own.shape)
                seen[start : start + step] = Scaled(own, q) + noise
                place += own.size
            found[B] = seen
        return found


@dataclass(frozen=True, eq=False)
class ProductPlan(CountsPlan):
    """Releases of contrasts at the nodes of a tree."""

    strategy: Product

    def steps(self, data: tuple[NDArray[Any]]) -> Any:
        """Return q times the contrasts of every block at every node."""
        own = self.strategy
        totals, exact = own.totals(data[0], self.bound), {}
        step = max(1, BLOCK // totals.shape[1])
        for B in own.blocks.tolist():
            columns = math.prod(own.sides(B))
            found = np.empty((len(totals), columns), totals.dtype)
            for start in range(0, len(totals), step):
                rows = totals[start : start + step].reshape(-1, *own.sizes)
                margin = rows.sum(axis=own.outside_axes(B))
                found[start : start + step] = contrasts(margin, first=1).reshape(-1, columns)
            exact[B] = found[own.first(B) :]
        return NodeSteps(own, exact)

    def shared(self, data: tuple[NDArray[Any]]) -> FloatArray:
        """Return the number of people, where it is public."""
        return np.array([float(data[0].sum(dtype=object))] if self.strategy.domain.fixed else [])

    def reconstruct(self, noisy: Any, shared: FloatArray) -> PlaceTables:
        """Return the tables of all places, after least squares along the tree."""
        own, found = self.strategy, {}
        for B, part in noisy.items():
            seen = part
            if own.first(B):
                seen = np.vstack([shared[None], part])
            passes.estimates(own.tree.parent, own.tree.leaf, own.known(B), own.y, seen)
            found[B] = seen
        return own.tables(found)


@dataclass(frozen=True, eq=False)
class LeafCells(OfPlaces):
    """Whole noise of one rate on the cells of the leaves, which are added up."""

    kind = "leaf cells"

    @property
    def coordinates(self) -> int:
        """How many cells all leaves have."""
        return self.domain.size

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return differences as they are."""
        return moves

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return how many cells people change, times the rate."""
        known = type(adjacency) is People and adjacency.move in ("person", "replace")
        if not known or type(law) is not Geometric:
            return largest_listed(self, adjacency, law)
        assert isinstance(adjacency, People)
        upper = Fraction(law.rate) * adjacency.size * (2 if self.domain.fixed else 1)
        return Largest(
            upper, upper, True, "one cell, or two, in fractions",
            because=" for independent whole noise on cells; all numbers are computed from what is "
            "published",
        )  # fmt: skip

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return how often combinations count the cells of leaves."""
        rows, tree = [], self.tree
        for combination in self._every(combinations):
            total = np.zeros((tree.n, *self.sizes))
            for A, part in self._split(combination):
                shape = [self.sizes[j] if A >> j & 1 else 1 for j in range(len(self.sizes))]
                total += tree.inside(part).reshape(tree.n, *shape)
            below = np.empty((self.domain.leaves, self.domain.crossed.size))
            for v in range(1, tree.n):
                total[v] += total[tree.parent[v]]
            below[self.ranks] = total.reshape(tree.n, -1)[tree.leaf]
            rows.append(below.ravel())
        return np.array(rows)

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        shape = (self.domain.leaves, *self.sizes)
        rows = [self.flat(self.tables_of(self.added(row.reshape(shape)))) for row in drawn]
        return np.array(rows)

    def tables_of(self, seen: FloatArray, whole: bool = False) -> PlaceTables:
        """Return margins from the tables of all nodes, breadth first."""
        tables, found = seen.reshape(-1, *self.sizes), {}
        for B in self.blocks.tolist():
            margin = tables.sum(axis=self.outside_axes(B))
            found[B] = contrasts(margin, first=1).reshape(self.tree.n, -1)
        return self.tables(found, whole)

    @cached_property
    def leaves_below(self) -> Indices:
        """How many leaves are below every node, or are it, in the given order."""
        count = self.tree.leaf.astype(np.int64)[:, None].copy()
        passes.added_up(self.tree.parent, count)
        return np.asarray(self.tree.outside(count[:, 0]), dtype=np.int64)

    def cells_in(self, chosen: tuple[int, ...]) -> Indices:
        """Return how many cells of leaves every cell of a margin adds up, by node."""
        return self.leaves_below * math.prod(n for j, n in enumerate(self.sizes) if j not in chosen)

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order."""
        return np.asarray(self.cells_in(chosen) * law.variance, dtype=float)

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of one margin is from the truth at every node."""
        terms, where = np.unique(self.cells_in(chosen), return_inverse=True)
        if type(law) is not Geometric:
            return law.reach_by_variance(self.node_variances(law, chosen), outside)
        scale = 1 / law.rate * (1 + 2.0**-52)
        each = [whole_reach(scale, int(one), outside) for one in terms]
        return np.asarray(each)[where]

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        if not law.whole or law.size is not None:
            raise AffineDPError(f"cells of leaves have geometric noise, not {law.words} noise")
        return LeafPlan(self, law, bound)


@dataclass(frozen=True, eq=False)
class LeafPlan(CountsPlan):
    """Releases of the cells of leaves with whole noise, added up."""

    strategy: LeafCells
    unit = None

    def steps(self, data: tuple[NDArray[Any]]) -> NDArray[Any]:
        """Return the cells of the leaves."""
        return data[0].astype(np.int64).reshape(-1, 1)

    def reconstruct(self, noisy: NDArray[Any], shared: FloatArray) -> PlaceTables:
        """Return the tables of all places, added up."""
        own = self.strategy
        given = noisy.astype(float).reshape(own.domain.leaves, *own.sizes)
        return own.tables_of(own.added(given), whole=True)
