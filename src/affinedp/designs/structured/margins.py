"""Design noise for margins of tables whose cells cannot be listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.structured.integer_noise import check_grid
from affinedp.designs.structured.least_margins import Goal, least_blocks
from affinedp.designs.structured.margin_blocks import (
    LEAST,
    MarginNeighbours,
    Sets,
    blocks_of,
    cells_of,
    checked_sizes,
    margin_sets,
    members,
    variance_shares,
)
from affinedp.designs.structured.margin_mechanism import LEAST_Q, MarginMechanism
from affinedp.designs.structured.margin_promise import exact_square, margin_guarantee, scaled_to
from affinedp.designs.structured.tree_promise import largest_household
from affinedp.errors import AffineDPError

# The dual is computed in doubles: the gap is widened by this.
WIDENED = 1e-6


@within_range
def design_margins(
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] = "<=2",
    *,
    epsilon: float,
    delta: float,
    neighbours: MarginNeighbours = "person",
    household: int = 1,
    goal: Goal = "sum",
    weights: ArrayLike | None = None,
) -> MarginMechanism:
    """Design the least Gaussian noise for margins of a table of all attributes.

    The table itself, which may have 10¹⁷ cells, is never formed.  White noise on the residuals of
    the margins contains an optimum over all Gaussian mechanisms, and a dual certifies it.

    Parameters
    ----------
    sizes : sequence of int
        How many values every attribute has, each at least 2.
    margins : str, int or iterable of tuples
        ``"<=3"`` for all of up to three attributes, ``3`` for all of exactly three, or tuples of
        attributes.
    epsilon, delta : float
        The promise.
    neighbours : {"person", "replace", "swaps"}
        One person joins or leaves; one person has other values (the number of people is public);
        or two people exchange values, which keeps all one-way margins: they are published
        exactly.
    household : int
        How many people, or pairs of people, may move at once.
    goal : {"sum", "largest"}
        Least sum of squared errors over all cells, or least largest variance of a cell.
    weights : array, optional
        One per margin: what squared error costs there; 1 by default.

    Returns
    -------
    MarginMechanism

    Examples
    --------
    >>> from affinedp.designs.structured.margin_mechanism import counts_of_records
    >>> m = design_margins([3, 2, 4], "<=2", epsilon=1.0, delta=1e-6)
    >>> m.gap < 1e-5, m.guarantee.holds(1.0, 1e-6)
    (True, True)
    >>> out = m.release(counts_of_records([[0, 1, 3], [2, 0, 1]], [3, 2, 4]))
    >>> bool(abs(out.margin((0, 1)).sum(axis=1) - out.margin((0,))).max() < 1e-9)
    True
    """
    shape = checked_sizes(sizes, neighbours)
    people = largest_household(household)
    if goal not in ("sum", "largest"):
        raise AffineDPError(f"goal must be 'sum' or 'largest', not {goal!r}")
    if not delta > 0:
        raise AffineDPError("margins are released with Gaussian noise: give a delta above 0")
    limit = largest_sensitivity(epsilon, delta)
    wanted = margin_sets(len(shape), margins)
    blocks = blocks_of(wanted, neighbours)
    shares = variance_shares(shape, wanted, blocks)
    cells = np.array([float(cells_of(shape, A)) for A in wanted.tolist()])
    cost = _margin_costs(wanted, weights, cells, goal)
    noisy = np.array([A.bit_count() >= LEAST[neighbours] for A in wanted.tolist()])
    plan = least_blocks(shape, blocks, shares[noisy], cost[noisy], neighbours, goal)
    t = plan.t
    if not t.min() > 0:  # blocks that cost nothing still need some noise
        t = np.maximum(t, t.max() * 1e-12)
    changed = people * sum(_product(shape[j] - 1 for j in members(B)) for B in blocks.tolist())
    check_grid("gaussian", epsilon, delta, changed)
    t = scaled_to(shape, blocks, t, neighbours, people, limit)
    guarantee = margin_guarantee(shape, blocks, t, neighbours, people)
    others = _alternatives(shape, wanted, blocks, shares, cost, neighbours, goal, plan.value)
    mechanism = MarginMechanism(
        shape, wanted, blocks, t, neighbours, people, guarantee,
        gap=max(plan.value / plan.bound - 1, 0.0) + WIDENED,
        alternatives=others,
        notes=("white noise on residuals of margins",),
    )  # fmt: skip
    for B in blocks.tolist():
        last = mechanism.scales(B).flat[-1]  # the longest contrast has the smallest q
        if last < LEAST_Q:
            raise AffineDPError(
                f"the noise of the attributes {members(B)} is too large for its grid: epsilon is "
                "too small, or a weight"
            )
    return mechanism


def _margin_costs(
    wanted: Sets, weights: ArrayLike | None, cells: FloatArray, goal: Goal
) -> FloatArray:
    """What the variance of a cell of every margin counts."""
    given = np.ones(len(wanted)) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != (len(wanted),) or not np.isfinite(given).all() or not given.min() > 0:
        raise AffineDPError(f"weights must be {len(wanted):,} positive numbers, one per margin")
    return given * cells if goal == "sum" else given


def _alternatives(
    sizes: tuple[int, ...],
    wanted: Sets,
    blocks: Sets,
    shares: FloatArray,
    cost: FloatArray,
    neighbours: MarginNeighbours,
    goal: Goal,
    value: float,
) -> tuple[tuple[str, float], ...]:
    """Standard practice with Gaussian noise under the same promise, as multiples of the design."""
    noisy = np.array([A.bit_count() >= LEAST[neighbours] for A in wanted.tolist()])
    t = whole_margin_precisions(sizes, wanted[noisy], blocks, np.ones(int(noisy.sum())))
    square = float(exact_square(sizes, blocks, t, neighbours))

    def total(variances: FloatArray) -> float:
        weighted = cost * variances
        return float(weighted.sum() if goal == "sum" else weighted.max()) / value

    projected = total((shares @ (1 / t)) * square)
    independent = total(np.where(noisy, square, 0.0))
    found = [("equal noise on all margins, projected", projected), ("independent", independent)]
    if neighbours == "person":
        everything = float(np.prod(np.array(sizes, dtype=float)))
        add_up = [everything / cells_of(sizes, A) for A in wanted.tolist()]
        found.insert(0, ("cells and add up", total(np.array(add_up))))
    return tuple(found)


def whole_margin_precisions(
    sizes: Sequence[int], margins: Sets, blocks: Sets, y: FloatArray
) -> FloatArray:
    """Return the precisions of blocks when whole margins get noise of precision y.

    ``t_B = Σ_{A ⊇ B} y_A / Π_{A∖B} n_j``.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    margins, blocks : arrays of int
        Sets of attributes.
    y : array
        Precisions of the margins.
    """
    found = np.zeros(len(blocks))
    for A, value in zip(margins.tolist(), y.tolist()):
        inside = (blocks & ~A) == 0
        for i in np.flatnonzero(inside):
            found[i] += value / cells_of(sizes, A & ~int(blocks[i]))
    return found


def _product(values: Iterable[int]) -> int:
    total = 1
    for value in values:
        total *= value
    return total
