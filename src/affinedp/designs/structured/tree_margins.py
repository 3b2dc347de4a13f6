"""A tree of places times margins of attributes: geography × age × sex × race.

Every node of the tree has the whole table of attributes.  Noise of precision ``y_v t_B`` on the
residual of block B at node v makes the precision matrix a sum of Kronecker products, so that every
block is the same tree problem, and every node the same margin problem.  For product workloads and
one person who joins, costs multiply, and so do the bounds over all Gaussian mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.problem import checked_releases, gaussian_share, pure_share
from affinedp.designs.structured.integer_noise import LARGEST_Q, SHARE, check_grid
from affinedp.designs.structured.least_margins import least_blocks
from affinedp.designs.structured.least_tree import (
    LEAST_WEIGHT,
    least_precisions,
    level_precisions,
)
from affinedp.designs.structured.margin_blocks import (
    Sets,
    blocks_of,
    cells_of,
    checked_sizes,
    margin_sets,
    members,
    variance_shares,
)
from affinedp.designs.structured.place_promise import (
    CrossNeighbours,
    cell_guarantee,
    cross_guarantee,
    cross_square,
)
from affinedp.designs.structured.tree_bound import lower_bound
from affinedp.designs.structured.tree_margin_mechanism import (
    LEAST_Q,
    TreeMarginMechanism,
    node_scales,
)
from affinedp.designs.structured.tree_promise import (
    changed_numbers,
    squared_sensitivity,
)
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals, checked_weights
from affinedp.errors import AffineDPError
from affinedp.neighbours.people import checked_people
from affinedp.privacy.guarantee import keeping
from affinedp.strategies.rounded_plan import GRID_BITS

WIDENED = 1e-6
ADD_UP = "cells and add up"


@within_range
def design_tree_margins(
    parent: ArrayLike,
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: CrossNeighbours = "person",
    household: int = 1,
    node_weights: ArrayLike | None = None,
    margin_weights: ArrayLike | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    releases: int = 1,
) -> TreeMarginMechanism:
    """Design noise for margins of attributes at every node of a tree of places.

    Parameters
    ----------
    parent : array of int
        The node above every node, −1 for the root.
    sizes : sequence of int
        How many values every attribute has, each at least 2.
    margins : str, int or iterable of tuples, optional
        Which margins count, as for :func:`~affinedp.designs.structured.margins.design_margins`;
        all of them by default.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    neighbours : {"person", "replace"}
        One person joins or leaves; or one person has other values or another place (the number
        of people is public).
    household : int
        How many people may join or move at once.
    node_weights, margin_weights : arrays, optional
        What squared error costs at every node, and in the cells of every margin: weights
        multiply.  1 by default.
    law : {"auto", "gaussian", "laplace"}
        Law of the noise; the better one by default.  Laplace noise is put on the cells of the
        leaves, and added up.
    releases : int
        How many releases about the same people are planned.  The noise is for one of them, and all
        together keep (ε, δ).

    Returns
    -------
    TreeMarginMechanism
        Its gap is over all Gaussian mechanisms for ``"person"``; None for ``"replace"``, and
        for Laplace noise.

    Examples
    --------
    >>> import numpy as np
    >>> m = design_tree_margins([-1, 0, 0], [3, 2], epsilon=1.0, delta=1e-6)
    >>> out = m.release(np.full((2, 3, 2), 10, np.int32))          # one row per leaf
    >>> bool(abs(out.margin((0,))[0] - out.margin((0,))[1:].sum(axis=0)).max() < 1e-8)
    True
    """
    if neighbours not in ("person", "replace"):
        raise AffineDPError(f"neighbours must be 'person' or 'replace', not {neighbours!r}")
    if law not in ("auto", "gaussian", "laplace"):
        raise AffineDPError(f"law must be 'auto', 'gaussian' or 'laplace', not {law!r}")
    if law == "gaussian" and not delta > 0:
        raise AffineDPError("Gaussian noise keeps no promise at delta = 0: give a delta above 0")
    shape = checked_sizes(sizes, neighbours)
    people = checked_people(household)
    count = checked_releases(releases)
    tree = Totals.of(parent)
    cost = checked_weights(tree, node_weights)
    wanted = margin_sets(len(shape), f"<={len(shape)}" if margins is None else margins)
    given = _margin_weights(wanted, margin_weights)
    ask = _Question(tree, shape, wanted, cost, given, neighbours, people)
    found = []
    if law != "gaussian":
        found.append(_laplace(ask, pure_share(epsilon, count)))
    if law != "laplace" and delta > 0:
        try:
            check_grid("gaussian", epsilon, delta, count * _changed(ask))
            found.append(_gaussian(ask, gaussian_share(epsilon, delta, count)))
        except AffineDPError:
            if not found:
                raise
    values = [ask.value(one) for one in found]
    best = found[int(np.argmin(values))]
    others = [
        (one.notes[0] + f", {one.law}", value / min(values)) for one, value in zip(found, values)
    ]
    if delta > 0:
        unit = (people / gaussian_share(epsilon, delta, count)) ** 2
        moved = 1 if neighbours == "person" else 2
        cells = ask.value_of(lambda A: ask.cells_in(A) * (unit * moved))
        others.append((f"{ADD_UP}, gaussian", cells / min(values)))
    return keeping(replace(best, alternatives=tuple(others)), epsilon, delta, count)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked for, apart from the promise."""

    tree: Totals
    sizes: tuple[int, ...]
    wanted: Sets
    cost: FloatArray
    margin_weights: FloatArray
    neighbours: CrossNeighbours
    household: int

    def cells_in(self, A: int) -> FloatArray:
        """How many cells of leaves a cell of margin A adds up, by node, breadth first."""
        below = self.tree.leaf.astype(float)[:, None].copy()
        passes.added_up(self.tree.parent, below)
        rest = cells_of(self.sizes, (1 << len(self.sizes)) - 1 & ~A)
        return np.asarray(below[:, 0] * float(rest))

    def value_of(self, variances: Callable[[int], FloatArray]) -> float:
        """Weighted squared error, from the variances of a cell of every margin, breadth first."""
        return math.fsum(
            weight * cells_of(self.sizes, A) * float(self.cost @ variances(A))
            for A, weight in zip(self.wanted.tolist(), self.margin_weights.tolist())
        )

    def value(self, mechanism: TreeMarginMechanism) -> float:
        """Weighted squared error of a mechanism."""
        return self.value_of(
            lambda A: np.asarray(self.tree.inside(mechanism.variances(members(A))), dtype=float)
        )


def _changed(ask: _Question) -> int:
    """How many noisy numbers two neighbours can change."""
    moved = ask.household * (1 if ask.neighbours == "person" else 2)
    return moved * changed_numbers(ask.tree, "person") * math.prod(ask.sizes)


def _gaussian(ask: _Question, limit: float) -> TreeMarginMechanism:
    """Noise of this sensitivity on residuals of margins at the nodes."""
    tree, shape, people = ask.tree, ask.sizes, ask.household
    y, tree_gap = _tree_part(tree, ask.cost)
    t, blocks, margin_gap = _margin_part(shape, ask.wanted, ask.margin_weights)
    joins = ask.neighbours == "person"
    gap = (1 + tree_gap) * (1 + margin_gap) - 1 + WIDENED if joins else None
    y = _scaled(tree, shape, blocks, t, y, ask.neighbours, people, limit)
    guarantee = cross_guarantee(tree, shape, blocks, t, y, ask.neighbours, people)
    found = TreeMarginMechanism(
        tree, shape, ask.wanted, blocks, t, y, ask.neighbours, people, guarantee, gap,
        notes=("precisions of nodes times precisions of blocks of margins",),
    )  # fmt: skip
    for place in range(len(blocks)):
        if node_scales(found, place, slice(None))[:, -1].min() < LEAST_Q:
            raise AffineDPError(
                "the noise of some node is too large for its grid: epsilon or a weight is too small"
            )
    return found


def _laplace(ask: _Question, epsilon: float) -> TreeMarginMechanism:
    """Laplace noise on the cells of the leaves, added up."""
    moved = 1 if ask.neighbours == "person" else 2
    times = moved * ask.household
    q = math.floor(Fraction(epsilon) * (1 << GRID_BITS) / times)
    if not LEAST_Q <= q < LARGEST_Q:
        raise AffineDPError(f"epsilon = {epsilon:g} is too small or too large for Laplace noise")
    blocks = blocks_of(ask.wanted, "person")
    guarantee = cell_guarantee(ask.tree, ask.sizes, ask.neighbours, ask.household, q)
    found = TreeMarginMechanism(
        ask.tree, ask.sizes, ask.wanted, blocks, np.ones(len(blocks)), np.ones(ask.tree.n),
        ask.neighbours, ask.household, guarantee, notes=(ADD_UP,), cell_scale=q,
    )  # fmt: skip
    return found


def _tree_part(tree: Totals, cost: FloatArray) -> tuple[FloatArray, float]:
    """Precisions of nodes for one person who joins, sensitivity 1, and their gap."""
    y, _ = least_precisions(tree, cost, "person")
    levels = level_precisions(tree, cost, lambda one: squared_sensitivity(tree, "person", one))
    values = []
    for one in (y, levels):
        unit = squared_sensitivity(tree, "person", one)
        values.append(float(cost @ passes.variances(*tree.arrays, one)) * unit)
    floor = np.maximum(cost, LEAST_WEIGHT * cost.mean())
    bound = lower_bound(tree, cost, "person", y, floor)
    best = y if values[0] <= values[1] else levels
    # every node keeps some noise of its own, so that no precision is zero
    best = np.maximum(best, best.max() * 1e-9)
    return best, max(min(values) / bound - 1, 0.0)


def _margin_part(
    sizes: tuple[int, ...], wanted: Sets, weights: FloatArray
) -> tuple[FloatArray, Sets, float]:
    """Precisions of blocks for one person who joins, sensitivity 1, the blocks, and the gap."""
    blocks = blocks_of(wanted, "person")
    shares = variance_shares(sizes, wanted, blocks)
    cells = np.array([float(cells_of(sizes, A)) for A in wanted.tolist()])
    plan = least_blocks(sizes, blocks, shares, weights * cells, "person", "sum")
    return plan.t, blocks, max(plan.value / plan.bound - 1, 0.0)


def _margin_weights(wanted: Sets, weights: ArrayLike | None) -> FloatArray:
    given = np.ones(len(wanted)) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != (len(wanted),) or not np.isfinite(given).all() or not given.min() > 0:
        raise AffineDPError(f"margin_weights must be {len(wanted):,} positive numbers")
    return given


def _scaled(
    tree: Totals,
    sizes: tuple[int, ...],
    blocks: Sets,
    t: FloatArray,
    y: FloatArray,
    neighbours: CrossNeighbours,
    household: int,
    sensitivity: float,
) -> FloatArray:
    allowed = (Fraction(sensitivity) * (1 - Fraction(1, 1 << 50)) / (1 + SHARE) / household) ** 2
    for _ in range(20):
        square = cross_square(tree, sizes, blocks, t, y, neighbours)
        if square <= allowed and float(square) >= float(allowed) * (1 - 1e-9):
            return y
        y = y * (float(allowed / square) * (1 - 2.0**-46))
    raise AffineDPError("the noise could not be scaled to the promise; the problem is degenerate")
