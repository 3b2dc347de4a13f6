"""A tree of places times margins of attributes: geography × age × sex × race.

Every node of the tree has the whole table of attributes.  Noise of precision ``y_v t_B`` on the
residual of block B at node v makes the precision matrix a sum of Kronecker products, so that every
block is the same tree problem, and every node the same margin problem.  For product workloads and
one person who joins, costs multiply, and so do the bounds over all Gaussian mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.structured import passes
from affinedp.designs.structured.integer_noise import SHARE, check_grid
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
    variance_shares,
)
from affinedp.designs.structured.margin_promise import UNIT_BITS, exact_square
from affinedp.designs.structured.tree import Tree, checked_weights, tree_of
from affinedp.designs.structured.tree_bound import lower_bound
from affinedp.designs.structured.tree_margin_mechanism import (
    LEAST_Q,
    TreeMarginMechanism,
    node_scales,
)
from affinedp.designs.structured.tree_promise import (
    changed_numbers,
    largest_household,
    squared_sensitivity,
    unit_of,
)
from affinedp.errors import AffineDPError
from affinedp.promise.curves import GaussianCurve
from affinedp.promise.guarantee import Guarantee, keeping

CrossNeighbours = Literal["person", "replace"]
WIDENED = 1e-6


@within_range
def design_tree_margins(
    parent: ArrayLike,
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] | None = None,
    *,
    epsilon: float,
    delta: float,
    neighbours: CrossNeighbours = "person",
    household: int = 1,
    node_weights: ArrayLike | None = None,
    margin_weights: ArrayLike | None = None,
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
        The promise.
    neighbours : {"person", "replace"}
        One person joins or leaves; or one person has other values or another place (the number
        of people is public).
    household : int
        How many people may join or move at once.
    node_weights, margin_weights : arrays, optional
        What squared error costs at every node, and in the cells of every margin: weights
        multiply.  1 by default.

    Returns
    -------
    TreeMarginMechanism
        Its gap is over all Gaussian mechanisms for ``"person"``, None for ``"replace"``.

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
    if not delta > 0:
        raise AffineDPError("trees of margins are released with Gaussian noise: give a delta")
    shape = checked_sizes(sizes, neighbours)
    people = largest_household(household)
    limit = largest_sensitivity(epsilon, delta)
    tree = tree_of(parent)
    cost = checked_weights(tree, node_weights)
    y, tree_gap = _tree_part(tree, cost)
    wanted = margin_sets(len(shape), f"<={len(shape)}" if margins is None else margins)
    t, blocks, margin_gap = _margin_part(shape, wanted, margin_weights)
    gap = (1 + tree_gap) * (1 + margin_gap) - 1 + WIDENED if neighbours == "person" else None
    moved = 1 if neighbours == "person" else 2
    check_grid(
        "gaussian", epsilon, delta,
        people * moved * changed_numbers(tree, "person") * math.prod(shape),
    )  # fmt: skip
    y = _scaled(tree, shape, blocks, t, y, neighbours, people, limit)
    guarantee = cross_guarantee(tree, shape, blocks, t, y, neighbours, people)
    found = TreeMarginMechanism(
        tree, shape, wanted, blocks, t, y, neighbours, people, guarantee, gap,
        ("precisions of nodes times precisions of blocks of margins",),
    )  # fmt: skip
    for place in range(len(blocks)):
        if node_scales(found, place, slice(None))[:, -1].min() < LEAST_Q:
            raise AffineDPError(
                "the noise of some node is too large for its grid: epsilon or a weight is too small"
            )
    return keeping(found, epsilon, delta)


def _tree_part(tree: Tree, cost: FloatArray) -> tuple[FloatArray, float]:
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
    sizes: tuple[int, ...], wanted: Sets, weights: ArrayLike | None
) -> tuple[FloatArray, Sets, float]:
    """Precisions of blocks for one person who joins, sensitivity 1, the blocks, and the gap."""
    blocks = blocks_of(wanted, "person")
    shares = variance_shares(sizes, wanted, blocks)
    cells = np.array([float(cells_of(sizes, A)) for A in wanted.tolist()])
    given = np.ones(len(wanted)) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != (len(wanted),) or not np.isfinite(given).all() or not given.min() > 0:
        raise AffineDPError(f"margin_weights must be {len(wanted):,} positive numbers")
    plan = least_blocks(sizes, blocks, shares, given * cells, "person", "sum")
    return plan.t, blocks, max(plan.value / plan.bound - 1, 0.0)


def cross_square(
    tree: Tree,
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    y: FloatArray,
    neighbours: CrossNeighbours,
) -> Fraction:
    """Return the squared sensitivity exactly.

    A person is seen at all nodes of one path, G(∅) at each.  Who moves is seen on two branches, and
    at the shared nodes above them as far as attributes differ: 2 (G(∅) − min G) at each.

    Parameters
    ----------
    tree : Tree
        The places.
    sizes : sequence of int
        Values of every attribute.
    blocks, t : arrays
        Blocks of margins and their precisions.
    y : array
        Precisions of nodes, breadth first.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    """
    weight = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in y.tolist()]
    alone = exact_square(sizes, blocks, t, "person")
    n, parent = tree.n, tree.parent.tolist()
    one, two = [0] * n, [-1] * n
    if neighbours == "person":
        for v in range(n - 1, 0, -1):
            one[parent[v]] = max(one[parent[v]], one[v] + weight[v])
        return Fraction(one[0] + weight[0]) * alone / (1 << UNIT_BITS)
    shared = exact_square(sizes, blocks, t, "replace")
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


def _scaled(
    tree: Tree,
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


def cross_guarantee(
    tree: Tree,
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    y: FloatArray,
    neighbours: CrossNeighbours,
    household: int,
) -> Guarantee:
    """Return what noise of precision ``y_v t_B`` promises, computed in integers.

    Parameters
    ----------
    tree : Tree
        The places.
    sizes : sequence of int
        Values of every attribute.
    blocks, t : arrays
        Blocks of margins and their precisions.
    y : array
        Precisions of nodes, breadth first.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    """
    square = cross_square(tree, sizes, blocks, t, y, neighbours)
    root = math.isqrt(math.ceil(square * (1 << 2 * UNIT_BITS))) + 1
    exact = Fraction(root, 1 << UNIT_BITS) * household * (1 + SHARE)
    sensitivity = float(exact)
    if Fraction(sensitivity) < exact:
        sensitivity = math.nextafter(sensitivity, math.inf)
    who = "one person" if household == 1 else f"a household of up to {household} people, each"
    words = {
        "person": f"{who} more or less, in one cell of the table of one place; all totals follow",
        "replace": f"{who} counted in another cell or another place; the number of people is "
        "public and the same in both",
    }[neighbours]
    return Guarantee(
        law="gaussian",
        sensitivity=sensitivity,
        exact=True,
        neighbours=words,
        basis="Theorem 1 for white noise on residuals of margins at the nodes of a tree; all "
        "numbers are computed from what is published",
        curve=GaussianCurve(sensitivity),
        method="heaviest path or pair of branches, in integers",
        neighbours_key=f"tree × margins {neighbours} {household} {','.join(map(str, sizes))} "
        f"{tree.key}",
        unit=unit_of(neighbours, household),
    )
