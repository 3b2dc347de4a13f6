"""Noise on margins at the nodes of a tree: on residuals, or whole on cells at some levels.

Every node of the tree has the whole table of attributes.  Noise of precision ``y_v t_B`` on the
residual of block B at node v makes the precision matrix a sum of Kronecker products, so that every
block is the same tree problem, and every node the same margin problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains import tree_passes as passes
from affinedp.domains.crossed import Placed, bits_of, members, subsets
from affinedp.domains.totals import Indices, Totals
from affinedp.errors import AffineDPError
from affinedp.exact.dyadic import Integers, Scaled, SideBySide
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import geometric_variance
from affinedp.laws.reach import Alike, alike
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.strategies.base import (
    GRID_BITS,
    SHARE,
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
from affinedp.strategies.margin_workloads import along
from affinedp.strategies.margins import SPARE, MarginOutputs, MarginPlan, WholeCells
from affinedp.strategies.tree import heaviest_branches, heaviest_move

# Numbers that are still held as wide integers.
MOST_WIDE = 3_000_000
# Coefficients of the noise in a margin at all places; more have a bound, which takes no time.
MOST_SUMMED = 2_000_000


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

    def tables(self, parts: Mapping[int, FloatArray], whole: bool = False) -> PlaceTables:
        """Return margins that are put together from contrasts at the nodes, breadth first."""
        return PlaceTables(self.sizes, self.margins, parts, whole, tree=self.tree)

    def shared(self, data: NDArray[Any]) -> FloatArray:
        """Return the number of people, where it is public."""
        return np.array([float(data.sum(dtype=object))] if self.domain.fixed else [])

    def solved(self, B: int, y: FloatArray, seen: FloatArray) -> FloatArray:
        """Return least squares along the tree, in place."""
        passes.estimates(self.tree.parent, self.tree.leaf, self.known(B), y, seen)
        return seen

    def first(self, B: int) -> int:
        """Return the first node with noise: the number of all people may be public."""
        return 1 if B == 0 and self.domain.fixed else 0

    def known(self, B: int) -> NDArray[np.bool_]:
        """Return the nodes at which a block is public."""
        known = np.zeros(self.tree.n, bool)
        known[0] = self.first(B) == 1
        return known

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order."""
        A = bits_of(chosen)
        shares = variance_shares(self.sizes, np.array([A]), self.blocks).toarray()[0]
        share = dict(zip(self.blocks.tolist(), shares.tolist()))
        total = np.zeros(self.tree.n)
        for B, found in self.each_block(law, A):
            total += share[B] * found
        return total

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
        return tree.add_up(totals)

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
        return self.tree.add_up(seen)

    def _sums(self, combination: FloatArray) -> dict[int, FloatArray]:
        """What a combination of outputs takes of the residual of every block at every node."""
        shapes = {B: self.lead + self.shape(members(B)) for B in self.blocks.tolist()}
        total = {B: np.zeros(shape) for B, shape in shapes.items()}
        for A, part in self._split(combination):
            inner = self.tree.inside(part)
            for B in subsets(A):
                out = tuple(1 + i for i, j in enumerate(members(A)) if not B >> j & 1)
                total[B] = total[B] + inner.mean(axis=out)
        return total

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
        self._keep_positive("t", self.blocks.shape, "block needs a positive precision")
        self._keep_positive("y", (self.tree.n,), "node needs a positive precision")

    def sides(self, B: int) -> tuple[int, ...]:
        """Return how many contrasts a block has along each of its attributes."""
        return tuple(self.sizes[j] - 1 for j in members(B))

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
        if not self.domain.fixed:
            heaviest, _ = heaviest_move(self.tree, False, weight)
            return Fraction(heaviest) * alone / (1 << UNIT_BITS)
        shared = exact_square(self.sizes, self.blocks, self.t, "replace")
        # over one denominator, so that all that follows is in whole numbers
        scale = math.lcm(alone.denominator, shared.denominator)
        apart, common = int(alone * scale), int(shared * scale)
        parent, (one, two, _, _) = self.tree.parent.tolist(), heaviest_branches(self.tree, weight)
        best, above = 0, [0] * self.tree.n
        for v in range(self.tree.n):
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
            parts = []
            for B, sums in self._sums(combination).items():
                own = contrasts(sums, first=1).reshape(self.tree.n, -1)
                own = own / squared_lengths(self.sides(B)).ravel() / self.y[:, None]
                own[: self.first(B)] = 0.0
                own = self.solved(B, self.y, np.ascontiguousarray(own))
                found = own * np.sqrt(self.y)[:, None] / self._inverse(B)
                parts.append(found[self.first(B) :].ravel())
            rows.append(np.concatenate(parts))
        return np.array(rows).reshape(-1, self.coordinates)

    def parts_from(self, noise: FloatArray) -> dict[int, FloatArray]:
        """Return what one row of noise makes of the contrasts of every block at all nodes."""
        found, start = {}, 0
        for B in self.blocks.tolist():
            seen = np.zeros((self.tree.n, math.prod(self.sides(B))))
            own = seen[self.first(B) :]
            stop = start + own.size
            own[:] = noise[start:stop].reshape(own.shape)
            seen /= np.sqrt(self.y)[:, None] * self._inverse(B)
            found[B], start = self.solved(B, self.y, seen), stop
        return found

    def each_block(self, law: Law, A: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield one over the precision of every block of a margin at every node."""
        node: dict[int, FloatArray] = {}
        for B, t in zip(self.blocks.tolist(), self.t.tolist()):
            if B & ~A == 0:
                first = self.first(B)
                if first not in node:
                    arrays = self.tree.parent, self.tree.leaf, self.known(B), self.y
                    node[first] = law.variance * self.tree.outside(passes.variances(*arrays))
                yield B, node[first] / t

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
class ProductPlan(MarginPlan):
    """Releases of contrasts at the nodes of a tree."""

    strategy: Product

    def steps(self, data: tuple[NDArray[Any]]) -> Any:
        """Return q times the contrasts of every block at every node."""
        own = self.strategy
        totals, parts = own.totals(data[0], self.bound), []
        step = max(1, BLOCK // totals.shape[1])
        for B in own.blocks.tolist():
            columns = math.prod(own.sides(B))
            found = np.empty((len(totals), columns), totals.dtype)
            for start in range(0, len(totals), step):
                rows = totals[start : start + step].reshape(-1, *own.sizes)
                margin = rows.sum(axis=own.outside_axes(B))
                found[start : start + step] = contrasts(margin, first=1).reshape(-1, columns)
            parts.append(Scaled(found[own.first(B) :], partial(self._scales, B)))
        return SideBySide(tuple(parts))

    def _scales(self, B: int, rows: slice) -> Integers:
        """q of a block at some of the nodes that have noise."""
        first = self.strategy.first(B)
        return self.strategy.scales(B, slice(first + rows.start, first + rows.stop))

    def reconstruct(self, noisy: Any, shared: FloatArray) -> PlaceTables:
        """Return the tables of all places, after least squares along the tree."""
        own, found = self.strategy, {}
        for B, part in zip(own.blocks.tolist(), noisy):
            seen = np.vstack([shared[None], part]) if own.first(B) else part
            found[B] = own.solved(B, own.y, seen)
        return own.tables(found)


# The level of all leaves, whatever their depth.
LEAVES = -1


@dataclass(frozen=True, eq=False)
class CountedPlaces(WholeCells, OfPlaces):
    """Whole noise on the cells of some margins at some levels, and all others by least squares.

    Noise of variance 1/w_A on the cells of margin A at a node gives the residual of block B there
    the precision ``Σ_{A ⊇ B} w_A / Π_{A∖B} n_j``; every block is a tree problem of its own.
    """

    kind = "counted places"
    # what gets noise: depths of inner nodes, or LEAVES; and a margin for each
    levels: tuple[int, ...]
    measured: tuple[tuple[int, ...], ...]
    # one over the variance of the noise on each, but for a factor
    weights: Any = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_weights()
        if len(self.levels) != len(self.measured):
            raise AffineDPError("margins that are measured need a level each")
        if any(len(nodes) == 0 for nodes in self.nodes):
            raise AffineDPError("a level without nodes cannot be measured")
        if any(self.precisions(B)[self.tree.leaf].min() <= 0 for B in self.blocks.tolist()):
            raise AffineDPError("what is measured at leaves does not determine their margins")

    @cached_property
    def nodes(self) -> tuple[Indices, ...]:
        """The nodes of every measured level, breadth first."""
        return tuple(level_nodes(self.tree, level) for level in self.levels)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """How many cells get noise, by level and margin."""
        each = (math.prod(self.sizes[j] for j in A) for A in self.measured)
        return tuple(len(nodes) * count for nodes, count in zip(self.nodes, each))

    @property
    def leaf_cells(self) -> bool:
        """Whether only the cells of leaves get noise."""
        return self.levels == (LEAVES,) and len(self.measured[0]) == len(self.sizes)

    @property
    def cells_alone(self) -> bool:
        """Whether all numbers are sums of noisy cells, which no public total corrects."""
        return self.leaf_cells and not self.domain.fixed

    def shares(self, B: int) -> list[float]:
        """Return the precision that every level and margin gives to the residual of a block."""
        found = zip(self.measured, self.weights.tolist())
        return [
            weight / math.prod(self.sizes[j] for j in A if not B >> j & 1)
            if B & ~bits_of(A) == 0 else 0.0
            for A, weight in found
        ]  # fmt: skip

    def precisions(self, B: int) -> FloatArray:
        """Return the precision of a block at every node, breadth first."""
        y = np.zeros(self.tree.n)
        for nodes, share in zip(self.nodes, self.shares(B)):
            y[nodes] += share
        return y

    # -------------------------------------------------------------- the promise

    def _measured(self, tables: NDArray[Any]) -> NDArray[Any]:
        """What is measured of tables at all nodes, of shape (nodes, n_1, …, moves)."""
        found = []
        for nodes, A in zip(self.nodes, self.measured):
            own = tables[nodes].sum(axis=self.outside_axes(bits_of(A)))
            found.append(own.reshape(-1, tables.shape[-1]))
        return np.concatenate(found)

    def counted(self, data: NDArray[Any], bound: float | None) -> NDArray[Any]:
        """Return the cells of the measured margins at their levels."""
        if self.cells_alone:
            ranked = data.astype(np.int64).reshape(self.domain.leaves, -1)[self.ranks]
            return np.asarray(ranked.reshape(-1, 1))
        return self._measured(self.totals(data, bound).reshape(self.tree.n, *self.sizes, 1))

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return the measured margins of differences of the cells of the leaves."""
        layers = self._nodes_of(moves)
        tables = np.moveaxis(layers.reshape(len(layers), self.tree.n, *self.sizes), 0, -1)
        return self._measured(tables)

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the sum over levels and margins, in fractions; else moves are listed.

        A person is seen at one leaf and at most once at every depth above it; one who moves twice
        in all but the total of everybody.
        """
        known = type(adjacency) is People and adjacency.move in ("person", "replace")
        rates = self.rates(law)
        if not known or rates is None:
            return largest_listed(self, adjacency, law)
        assert isinstance(adjacency, People)
        fixed, measured = self.domain.fixed, zip(self.levels, self.measured, rates)
        seen = [
            Fraction(rate) for level, A, rate in measured if not (fixed and level == 0 == len(A))
        ]
        upper = sum(seen, Fraction(0)) * adjacency.size * (2 if fixed else 1)
        even = len(np.unique(self.tree.depth[self.tree.leaf])) == 1
        apart = not fixed or self.leaf_cells or int((self.tree.parent[1:] == 0).sum()) > 1
        return Largest(
            upper if even and apart else Fraction(0), upper, even and apart,
            "sum over levels and margins, in fractions",
            because=" for independent whole noise on margins; all numbers are computed from what "
            "is published",
        )  # fmt: skip

    # -------------------------------------------------------------- the errors

    def estimated(
        self, seen: Sequence[FloatArray], shared: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Return contrasts at all nodes, by least squares from noisy cells."""
        found = {}
        for B in self.blocks.tolist():
            y, sides = self.precisions(B), math.prod(self.sizes[j] - 1 for j in members(B))
            total = np.zeros((self.tree.n, sides))
            for nodes, A, share, part in zip(self.nodes, self.measured, self.shares(B), seen):
                if share:
                    table = part.reshape(len(nodes), *(self.sizes[j] for j in A))
                    out = tuple(1 + i for i, j in enumerate(A) if not B >> j & 1)
                    own = contrasts(table.sum(axis=out), first=1).reshape(len(nodes), -1)
                    total[nodes] += own * (share / y[nodes])[:, None]
            if self.first(B):
                total[0] = 0.0 if shared is None else shared
            found[B] = self.solved(B, y, total)
        return found

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return of which noise on measured cells combinations are made: the transpose of it."""
        rows = []
        for combination in self._every(combinations):
            parts = [np.zeros((len(nodes), *(self.sizes[j] for j in A)))
                     for nodes, A in zip(self.nodes, self.measured)]  # fmt: skip
            for B, sums in self._sums(combination).items():
                y = self.precisions(B)
                # nodes without noise of their own take part with next to none
                near = np.ascontiguousarray(np.maximum(y, 1e-13 * y.max()))
                own = contrasts(sums, first=1).reshape(self.tree.n, -1)
                lengths = squared_lengths(tuple(self.sizes[j] - 1 for j in members(B)))
                own = np.ascontiguousarray(own / lengths.ravel() / near[:, None])
                own[: self.first(B)] = 0.0
                found = self.solved(B, near, own)
                tables = residual_transpose(found, [self.sizes[j] for j in members(B)])
                for part, nodes, A, share in zip(parts, self.nodes, self.measured, self.shares(B)):
                    if share:
                        shape = [self.sizes[j] if B >> j & 1 else 1 for j in A]
                        kept = tables[nodes].reshape(len(nodes), *shape)
                        kept[: np.searchsorted(nodes, self.first(B))] = 0.0
                        part += share * kept
            rows.append(np.concatenate([part.ravel() for part in parts]))
        return np.array(rows).reshape(-1, self.coordinates)

    def each_block(self, law: Law, A: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield one over the precision of every block of a margin at every node."""
        each = np.array([geometric_variance(rate) for rate in self.known_rates(law)])
        unit = each * self.weights
        if unit.max() > unit.min() * (1 + 1e-9):
            raise AffineDPError("weights must be one over the variances of the noise")
        for B in self.blocks.tolist():
            if B & ~A == 0:
                arrays = self.tree.parent, self.tree.leaf, self.known(B), self.precisions(B)
                yield B, unit.max() * self.tree.outside(passes.variances(*arrays))

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of one margin is from the truth at every node."""
        if self.cells_alone:
            rest = math.prod(n for j, n in enumerate(self.sizes) if j not in chosen)
            return self.reach_of_sums(law, self.tree.leaves_below * rest, outside)
        bound = self.reach_of(law, self.node_variances(law, chosen), outside)
        if self.tree.n * float(max(self.outputs, self.coordinates)) > MOST_SUMMED:
            return bound
        key = chosen, self.known_rates(law), outside
        if key not in self._reaches:
            self._reaches[key] = np.minimum(bound, self._noise_of(law, chosen).reach(outside))
        return self._reaches[key].copy()

    def _noise_of(self, law: Law, chosen: tuple[int, ...]) -> Alike:
        """The sums of noise that a cell of a margin is off by at every node: all of its cells."""
        key = chosen, self.known_rates(law)
        if key not in self._alike:
            rates = np.repeat(key[1], self.cells)
            cells = np.zeros((self.tree.n, self.tree.n, *self.shape(chosen)))
            cells.reshape(self.tree.n, self.tree.n, -1)[..., 0] = np.eye(self.tree.n)
            rows = np.vstack([self.loadings(self.row({chosen: one})) for one in cells])
            self._alike[key] = alike(rates, np.ones(len(rates)), rows)
        return self._alike[key]

    @cached_property
    def _alike(self) -> dict[Any, Alike]:
        return {}

    @cached_property
    def _reaches(self) -> dict[Any, FloatArray]:
        return {}


def level_nodes(tree: Totals, level: int) -> Indices:
    """Return the leaves, or the inner nodes of a depth, breadth first."""
    if level == LEAVES:
        return np.flatnonzero(tree.leaf)
    return np.flatnonzero((tree.depth == level) & ~tree.leaf)


def residual_transpose(coordinates: FloatArray, sizes: list[int]) -> FloatArray:
    """Return what a sum over contrasts takes of the cells, one row per node."""
    found = coordinates.reshape(-1, *(n - 1 for n in sizes))
    for axis, n in enumerate(sizes, 1):
        k = np.arange(1, n)[:, None]
        helmert = (np.arange(n) < k) - k * (np.arange(n) == k)
        found = along(helmert.T.astype(float), found, axis)
    return found
