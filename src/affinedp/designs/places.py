"""A tree of places times margins of attributes: geography × age × sex × race.

Every node of the tree has the whole table of attributes.  Noise of precision ``y_v t_B`` on the
residual of block B at node v makes the precision matrix a sum of Kronecker products, so that every
block is the same tree problem, and every node the same margin problem.  For product workloads and
one person who joins, costs multiply, and so do the bounds over all Gaussian mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, one_thread, within_range
from affinedp.designs.least_margins import (
    LEAST_SHARE,
    least_blocks,
    least_whole,
    measurable,
    scaled_rates,
)
from affinedp.designs.least_tree import (
    LEAST_WEIGHT,
    heaviest_sum,
    least_precisions,
    level_precisions,
)
from affinedp.designs.margins import ADD_UP, counted_law, scaled_to
from affinedp.designs.margins import margin_weights as checked_margin_weights
from affinedp.designs.problem import (
    check_grid,
    check_law,
    checked_promise,
    checked_releases,
    gaussian_share,
    pure_share,
)
from affinedp.designs.tree_bound import lower_bound
from affinedp.domains import tree_passes as passes
from affinedp.domains.crossed import (
    Crossed,
    Placed,
    Sets,
    blocks_of,
    cells_of,
    margin_sets,
    members,
)
from affinedp.domains.totals import Totals, checked_weights
from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import geometric_variance
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.privacy.design import Alternative, Design
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.margin_blocks import check_attributes, variance_shares
from affinedp.strategies.margins import chosen_margins, spreads
from affinedp.strategies.places import LEAVES, CountedPlaces, OfPlaces, Product, level_nodes

CrossNeighbours = Literal["person", "replace"]
LEAST_Q = 1 << 20
WIDENED = 1e-6
# A scale below 2⁻⁶ adds no noise.
MOST_RATE = 64.0
# Sweeps of the search for rates, fewer where trees and blocks are many; and how much of the rates
# inner levels have at first.
SWEEPS, MOST_WORK = 200, 5e6
STARTS = (1.0, 0.1)
# Shares of blocks and levels that are tried for one person who moves, fewer in large trees.
MOST_TRIED, MOST_TRIED_NODES = 400, 40_000
# Precision beside the largest of what is not worth measuring.
LEFT_OUT = 1e-9
# Steps of rates below this share of the budget end a search; and how many levels and margins are
# also added one by one.
SETTLED, MOST_GROWN = 1e-7, 8


@within_range
@one_thread()
def design_tree_margins(
    parent: ArrayLike,
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: CrossNeighbours = "person",
    household: int = 1,
    at_most: int | None = None,
    node_weights: ArrayLike | None = None,
    margin_weights: ArrayLike | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    releases: int = 1,
) -> Mechanism:
    """Design noise for margins of attributes at every node of a tree of places.

    Parameters
    ----------
    parent : array of int
        The node above every node, −1 for the root.
    sizes : sequence of int
        How many values every attribute has, each at least 2.
    margins : str, int or iterable of tuples, optional
        Which margins count, as for :func:`~affinedp.designs.margins.design_margins`;
        all of them by default.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    adjacency : {"person", "replace"}
        One person joins or leaves; or one person has other values or another place (the number
        of people is public).
    household : int
        How many people may join or move at once.
    at_most : int, optional
        In how many cells a person is counted at most; 1 by default.
    node_weights, margin_weights : arrays, optional
        What squared error costs at every node, and in the cells of every margin: weights
        multiply.  1 by default.
    law : {"auto", "gaussian", "laplace"}
        Law of the noise; the better one by default.  Whole Laplace noise is put on the margins
        that pay, at the leaves and at levels above them.
    releases : int
        How many releases about the same people are planned.  The noise is for one of them, and all
        together keep (ε, δ).

    Returns
    -------
    Mechanism
        Its releases are mappings from tuples of attributes to tables of all nodes.  Its gap is
        over all Gaussian mechanisms for ``"person"``; None for ``"replace"``, and for Laplace
        noise.

    Examples
    --------
    >>> import numpy as np
    >>> m = design_tree_margins([-1, 0, 0], [3, 2], epsilon=1.0, delta=1e-6)
    >>> out = m.release(np.full((2, 3, 2), 10, np.int32))          # one row per leaf
    >>> bool(abs(out[(0,)][0] - out[(0,)][1:].sum(axis=0)).max() < 1e-8)
    True
    """
    if adjacency not in ("person", "replace"):
        raise AffineDPError(f"adjacency must be 'person' or 'replace', not {adjacency!r}")
    table = Crossed(tuple(sizes))
    check_attributes(len(table.sizes), adjacency)
    domain = Placed(Totals.of(parent), table, fixed=adjacency == "replace")
    return tree_margins_noise(
        People(domain, adjacency, household, at_most), margins, epsilon=epsilon, delta=delta,
        node_weights=node_weights, margin_weights=margin_weights, law=law,
        releases=releases,
    )  # fmt: skip


def tree_margins_noise(
    people: People,
    margins: str | int | Iterable[Iterable[int]] | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    node_weights: ArrayLike | None = None,
    margin_weights: ArrayLike | None = None,
    law: str = "auto",
    releases: int = 1,
) -> Mechanism:
    """Return noise for people in tables at all places; see :func:`design_tree_margins`."""
    epsilon, delta = checked_promise(epsilon, delta)
    check_law(law, epsilon, delta)
    domain: Any = people.domain
    count = checked_releases(releases)
    cost = checked_weights(domain.places, node_weights)
    heaviest = 1.0 if node_weights is None else float(np.asarray(node_weights).max())
    d = len(domain.crossed.sizes)
    wanted = margin_sets(d, f"<={d}" if margins is None else margins)
    if domain.fixed and domain.leaves == 1:
        blocks_of(wanted.tolist(), 1)  # refuses margins that are public as a whole
    costs = checked_margin_weights(wanted, margin_weights, "margin_weights")
    ask = _Question(people, domain, wanted, cost, costs, heaviest)
    found: list[Mechanism] = []
    if law != "gaussian":
        found.extend(_laplace(ask, pure_share(epsilon, count)))
    if law != "laplace" and delta > 0:
        try:
            check_grid(epsilon, delta, count * _changed(ask))
            found.append(_gaussian(ask, gaussian_share(epsilon, delta, count)))
        except AffineDPError:
            if not found:
                raise
    best = min(found, key=ask.value)
    others = [Alternative(one.noise.words, ask.value(one), reason=one.notes[0]) for one in found]
    if delta > 0:
        unit = (people.size / gaussian_share(epsilon, delta, count)) ** 2
        cells = ask.value_of(lambda A: ask.variances_of_cells(A) * unit)
        others.append(Alternative(Gaussian.words, cells, reason=ADD_UP))
    best = best.with_design(alternatives=tuple(others), error=ask.value(best))
    return best.keeping(epsilon, delta, count)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked for, apart from the promise."""

    people: People
    domain: Placed
    wanted: Sets
    cost: FloatArray
    margin_weights: FloatArray
    heaviest: float  # the largest weight of a node, in whose units the costs are

    @property
    def tree(self) -> Totals:
        """The places."""
        return self.domain.places

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of every attribute."""
        return self.domain.crossed.sizes

    @cached_property
    def blocks(self) -> Sets:
        """What margins are made of."""
        return blocks_of(self.wanted.tolist(), 0)

    @cached_property
    def shares(self) -> Any:
        """What the variance of every block adds to that of a cell of every margin."""
        return variance_shares(self.sizes, self.wanted, self.blocks)

    @cached_property
    def by_margin(self) -> FloatArray:
        """What the variance of a cell of every margin counts at one node."""
        cells = np.array([float(cells_of(self.sizes, A)) for A in self.wanted.tolist()])
        return np.asarray(self.margin_weights * cells)

    @cached_property
    def by_block(self) -> FloatArray:
        """What one over the precision of every block costs at one node."""
        return np.asarray(self.by_margin @ self.shares).ravel()

    def block_parts(self, precisions: FloatArray) -> Iterator[tuple[int, float, FloatArray]]:
        """Yield the place of every block, what precisions at the nodes cost, and their gains."""
        tree = self.tree
        for k, (B, cost) in enumerate(zip(self.blocks.tolist(), self.by_block.tolist())):
            if cost > 0:
                known = np.zeros(tree.n, bool)
                known[0] = self.domain.fixed and not B  # the number of all people is public
                f, gains = passes.cost_and_gains(
                    tree.parent, tree.leaf, known, precisions[k], self.cost
                )
                yield k, cost * f, cost * gains

    def variances_of_cells(self, A: int) -> FloatArray:
        """Variances of a cell of margin A, by node, with noise of sensitivity 1 on all cells."""
        below = self.tree.leaf.astype(float)[:, None].copy()
        passes.added_up(self.tree.parent, below)
        rest = cells_of(self.sizes, (1 << len(self.sizes)) - 1 & ~A)
        added = below[:, 0] * float(rest)
        if not self.domain.fixed:
            return np.asarray(added)
        # who moves is seen in two cells, and all of them add up to the public number of people
        return np.asarray(2 * added * (1 - added / (below[0, 0] * math.prod(self.sizes))))

    def value_of(self, variances: Callable[[int], FloatArray]) -> float:
        """Weighted squared error, from the variances of a cell of every margin, breadth first."""
        return self.heaviest * math.fsum(
            weight * cells_of(self.sizes, A) * float(self.cost @ variances(A))
            for A, weight in zip(self.wanted.tolist(), self.margin_weights.tolist())
        )

    def value(self, mechanism: Mechanism) -> float:
        """Weighted squared error of a mechanism."""
        strategy = mechanism.strategy
        assert isinstance(strategy, OfPlaces)
        return self.value_of(
            lambda A: self.tree.inside(strategy.node_variances(mechanism.noise, members(A)))
        )


def _changed(ask: _Question) -> int:
    """How many noisy numbers two neighbours can change."""
    moved = ask.people.size * (2 if ask.domain.fixed else 1)
    return moved * (int(ask.tree.depth.max()) + 1) * math.prod(ask.sizes)


def _gaussian(ask: _Question, limit: float) -> Mechanism:
    """Noise of this sensitivity on residuals of margins at the nodes."""
    y, tree_gap = _tree_part(ask.tree, ask.cost)
    plan = least_blocks(ask.sizes, ask.blocks, ask.shares, ask.by_margin, "person", "sum")
    margin_gap = max(plan.value / plan.bound - 1, 0.0)
    gap = None if ask.domain.fixed else (1 + tree_gap) * (1 + margin_gap) - 1 + WIDENED
    first = Product(ask.domain, chosen_margins(ask.wanted.tolist()), plan.t, y)
    if ask.domain.fixed:
        first = _for_moves(ask, first)

    def square(one: FloatArray) -> Fraction:
        return replace(first, y=one).square()

    found = replace(first, y=scaled_to(first.y, square, Fraction(limit) / ask.people.size))
    for B in found.blocks.tolist():
        if found.scales(B, slice(None))[:, -1].min() < LEAST_Q:
            raise AffineDPError(
                "the noise of some node is too large for its grid: epsilon or a weight is too small"
            )
    note = "precisions of nodes times precisions of blocks of margins"
    return Mechanism(ask.people, found, Gaussian(), design=Design(gap, (note,)))


def _for_moves(ask: _Question, first: Product) -> Product:
    """Precisions for one person who moves: other shares of blocks by their size, and of levels."""
    from scipy.optimize import minimize

    sizes = np.array([B.bit_count() for B in ask.blocks.tolist()])
    levels = np.unique(ask.tree.depth, return_inverse=True)[1]
    count = int(sizes.max()) + 1

    def scaled(x: FloatArray) -> Product:
        t, y = first.t * np.exp(x[:count])[sizes], first.y * np.exp(x[count:])[levels]
        # a level that is best left out keeps a share that costs nothing and fits the grid
        return replace(
            first, t=np.maximum(t, LEFT_OUT * t.max()), y=np.maximum(y, LEFT_OUT * y.max())
        )

    def value(x: FloatArray) -> float:
        one = scaled(x)
        cost = math.fsum(f for _, f, _ in ask.block_parts(one.t[:, None] * one.y))
        return math.log(cost * float(one.square()))

    start = np.zeros(count + int(levels.max()) + 1)
    most = int(min(MOST_TRIED, MOST_TRIED_NODES / ask.tree.n))
    if most < 2 * len(start):
        return first
    options = {"maxfev": most, "fatol": 1e-6, "xatol": 1e-4}
    found = minimize(value, start, method="Nelder-Mead", options=options)
    return scaled(found.x) if found.fun < value(start) else first


def _laplace(ask: _Question, epsilon: float) -> list[Mechanism]:
    """Whole noise on the cells of leaves; on margins of leaves; on margins at all levels."""
    budget = Fraction(epsilon) / (ask.people.size * (2 if ask.domain.fixed else 1))
    if not LEAST_Q * 2.0**-GRID_BITS <= float(budget) < MOST_RATE:
        raise AffineDPError(f"epsilon = {epsilon:g} is too small or too large for Laplace noise")
    full = (1 << len(ask.sizes)) - 1
    made = [_whole_noise(ask, ADD_UP, [(LEAVES, full)], np.ones(1), budget)]
    measured = measurable(ask.sizes, ask.blocks)
    if measured is None:
        return [one for one in made if one is not None]
    y = least_whole(ask.sizes, measured, ask.blocks, ask.shares, ask.by_margin, float(budget))
    leaves = [(LEAVES, int(A)) for A in measured]
    made.append(_whole_noise(ask, "margins of leaves, added up", leaves, y, budget))
    below = np.bincount(ask.tree.parent[1:], minlength=ask.tree.n)
    # a place with only one below it has the same table
    depths = np.unique(ask.tree.depth[below > 1]).tolist()
    groups = leaves + [(int(depth), int(A)) for depth in depths for A in ask.blocks]

    def searched(inner: tuple[int, ...], share: float) -> tuple[float, FloatArray]:
        first = np.zeros(len(groups))
        first[list(inner)] = share * y.max()
        first[: len(y)] = np.maximum(y, 1e-3 * y.max())
        return _least_levels(ask, groups, first, float(budget))

    every = tuple(range(len(y), len(groups)))
    tried = [searched(every, share) for share in STARTS]
    chosen: tuple[int, ...] = ()
    least = math.inf
    # no convex problem: levels and margins are added one by one, too, as long as it pays
    while len(every) <= MOST_GROWN and len(chosen) < len(every):
        more = [(*chosen, one) for one in every if one not in chosen]
        grown = [searched(inner, STARTS[0]) for inner in more]
        best = min(range(len(more)), key=lambda i: grown[i][0])
        if not grown[best][0] < least * (1 - 1e-6):
            break
        chosen, least = more[best], grown[best][0]
        tried.append(grown[best])
    _, rates = min(tried, key=lambda one: one[0])
    made.append(_whole_noise(ask, "margins at all levels", groups, rates, budget))
    return [one for one in made if one is not None]


def _least_levels(
    ask: _Question,
    groups: list[tuple[int, int]],
    y: FloatArray,
    budget: float,
) -> tuple[float, FloatArray]:
    """The (locally) least squared error of rates with this sum, by multiplicative steps."""
    tree = ask.tree
    nodes = [level_nodes(tree, level) for level, _ in groups]
    Z = spreads(ask.sizes, np.array([A for _, A in groups]), ask.blocks)
    best, value = y, math.inf
    y = y * (budget / y.sum())
    sweeps = int(min(SWEEPS, max(MOST_WORK / (tree.n * len(ask.blocks)), 5)))
    for _ in range(sweeps):
        precision = 2 * np.sinh(y / 2) ** 2
        now, gain = 0.0, np.zeros(len(groups))
        at = np.zeros((len(ask.blocks), tree.n))
        for own, shares in zip(nodes, Z * precision[:, None]):
            at[:, own] += shares[:, None]
        for k, f, gains in ask.block_parts(at):
            now += f
            gain += Z[:, k] * np.array([gains[own].sum() for own in nodes])
        if now < value:
            best, value = y, now
        gain = np.sinh(y) * gain
        stepped = y * np.cbrt(gain / float(y @ gain))
        stepped = stepped * (budget / stepped.sum())
        if np.abs(stepped - y).max() < SETTLED * budget:
            break
        y = stepped
    return value, np.where(best > LEAST_SHARE * best.max(), best, 0.0)


def _whole_noise(
    ask: _Question,
    name: str,
    groups: list[tuple[int, int]],
    y: FloatArray,
    budget: Fraction,
) -> Mechanism | None:
    """Whole noise of these rates, if its grid holds it and leaves are determined."""
    kept = [(level, A, rate) for (level, A), rate in zip(groups, y.tolist()) if rate > 0]
    rates = scaled_rates(np.array([rate for _, _, rate in kept]), budget)
    if min(rates) < LEAST_Q * 2.0**-GRID_BITS:
        return None
    strategy = CountedPlaces(
        ask.domain,
        chosen_margins(ask.wanted.tolist()),
        tuple(level for level, _, _ in kept),
        tuple(members(A) for _, A, _ in kept),
        np.array([1 / geometric_variance(rate) for rate in rates]),
    )
    law = counted_law(rates, strategy.cells)
    return Mechanism(ask.people, strategy, law, design=Design(None, (name,)))


def _tree_part(tree: Totals, cost: FloatArray) -> tuple[FloatArray, float]:
    """Precisions of nodes for one person who joins, sensitivity 1, and their gap."""
    y, _ = least_precisions(tree, cost, False)
    levels = level_precisions(tree, cost, False)
    values = []
    for one in (y, levels):
        unit = heaviest_sum(tree, False, one)
        values.append(float(cost @ passes.variances(*tree.arrays, one)) * unit)
    floor = np.maximum(cost, LEAST_WEIGHT * cost.mean())
    bound = lower_bound(tree, cost, False, y, floor)
    best = y if values[0] <= values[1] else levels
    # every node keeps some noise of its own, so that no precision is zero
    best = np.maximum(best, best.max() * LEFT_OUT)
    return best, max(min(values) / bound - 1, 0.0)
