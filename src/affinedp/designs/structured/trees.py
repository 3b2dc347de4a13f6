"""Design noise for trees of totals: least squared error, or targets by level; never worse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.problem import checked_releases, gaussian_share, pure_share
from affinedp.designs.structured.integer_noise import (
    check_grid,
    drawn_limit,
    whole_scales,
    whole_share,
)
from affinedp.designs.structured.least_tree import (
    LEAST_WEIGHT,
    least_precisions,
    least_scales,
    level_precisions,
)
from affinedp.designs.structured.tree_bound import PoorDesignError, lower_bound
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.designs.structured.tree_promise import (
    changed_numbers,
    heaviest_move,
    household_limit,
    squared_sensitivity,
    tree_guarantee,
)
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals, TreeNeighbours, checked_weights
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_epsilon
from affinedp.laws.named import LawName
from affinedp.neighbours.people import checked_people
from affinedp.privacy.guarantee import keeping

TARGET_ROUNDS = 40
TARGET_TOLERANCE = 1e-4
ADD_UP = "cells and add up"
LEVELS = "one weight per level"


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to keep the promise.

    Attributes
    ----------
    name : str
        In words.
    law : {"gaussian", "laplace"}
        Law of the noise.
    y : array or None
        Precisions (Gaussian) or one over the scales (Laplace) for sensitivity 1; None where
        estimates are not formed by least squares, so that it is for comparison only.
    cost : float
        Weighted squared error under the promise.
    """

    name: str
    law: LawName
    y: FloatArray | None
    cost: float


@within_range
def design_tree(
    parent: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    weights: ArrayLike | None = None,
    neighbours: TreeNeighbours = "person",
    household: int = 1,
    public: ArrayLike | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    names: tuple[str, ...] | None = None,
    largest_gap: float = 0.25,
    releases: int = 1,
) -> TreeMechanism:
    """Design the least noise for a tree of totals, in O(n), with a lower bound beside it.

    Every number gets independent noise, and weighted least squares makes the numbers add up.  The
    design is compared with standard practice under the same promise (the cells added up, one
    weight per level, independent noise, both laws), and the best is returned: it is never worse.

    Parameters
    ----------
    parent : array of int
        The node above every node, −1 for the root.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    weights : array, optional
        What squared error costs at every node; 1 by default.
    neighbours : {"person", "replace", "circuits"}
        One person joins or leaves; one person is counted in another cell (the number of people
        is public); or either, which is Definition 4 of the paper on one tree of totals.
    household : int
        How many people may join or move at once.
    public : array of bool or int, optional
        Nodes that are published as they are.  People only move between cells under the same
        public totals then.
    law : {"auto", "gaussian", "laplace"}
        Law of the noise; the better one by default, for Laplace noise keeps (ε, δ) too.
    names : tuple of str, optional
        Of the nodes, for what the guarantee says.
    largest_gap : float
        Refuse noise that is farther than this above what no Gaussian noise goes below.
    releases : int
        How many releases about the same people are planned.  The noise is for one of them, and all
        together keep (ε, δ).

    Returns
    -------
    TreeMechanism

    Examples
    --------
    A country, two states, and two counties in each:

    >>> m = design_tree([-1, 0, 0, 1, 1, 2, 2], epsilon=1.0, delta=1e-6, law="gaussian")
    >>> m.guarantee.holds(1.0, 1e-6), m.gap < 0.01
    (True, True)
    >>> out = m.release([10, 4, 6, 1, 3, 2, 4], whole=True, nonnegative=True)
    >>> bool(out.whole[0] == out.whole[1] + out.whole[2]), bool((out.whole >= 0).all())
    (True, True)
    """
    tree = Totals.of(parent, public, neighbours)
    cost = checked_weights(tree, weights)
    people = checked_people(household)
    count = checked_releases(releases)
    limit = gaussian_share(epsilon, delta, count) if delta > 0 else 0.0
    _check_law(law, epsilon, delta)
    pure = pure_share(epsilon, count)
    found, bound = _candidates(tree, cost, neighbours, people, pure, limit, law)
    best = min((one for one in found if one.y is not None), key=lambda one: one.cost)
    assert best.y is not None
    gap = None if bound is None else max(best.cost / bound - 1, 0.0)
    if gap is not None and gap > largest_gap:
        raise PoorDesignError(
            f"noise on the numbers of this tree is {gap:.0%} above what Gaussian noise could do: "
            "it is a deep chain, for which sums along the chain need other noise. Leave totals "
            "out, use design_gaussian if it is small, or pass "
            f"largest_gap={math.ceil(gap * 10) / 10}",
            gap,
        )
    if best.law == "laplace":
        gap = None  # the bound is about Gaussian noise only
    notes = (f"the best of {len(found)} designs: {best.name}, {best.law} noise",)
    alternatives = tuple((f"{one.name}, {one.law}", one.cost / best.cost) for one in found)
    promise = pure if best.law == "laplace" else limit
    check_grid(best.law, epsilon, delta, count * people * changed_numbers(tree, neighbours))
    made = at_sensitivity(
        tree, neighbours, people, best.law, best.y, promise,
        names=names, gap=gap, alternatives=alternatives, notes=notes,
    )  # fmt: skip
    return keeping(made, epsilon, delta, count)


def at_sensitivity(
    tree: Totals,
    neighbours: TreeNeighbours,
    household: int,
    law: LawName,
    y: FloatArray,
    sensitivity: float,
    *,
    names: tuple[str, ...] | None = None,
    gap: float | None = None,
    alternatives: tuple[tuple[str, float], ...] = (),
    notes: tuple[str, ...] = (),
) -> TreeMechanism:
    """Return the mechanism with noise of these proportions, at a promise checked in integers.

    Parameters
    ----------
    tree : Totals
        The numbers.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    law : {"gaussian", "laplace"}
        Law of the noise.
    y : array
        Precisions or one over the scales, breadth first, up to a factor.
    sensitivity : float
        The promise of the whole household.
    names : tuple of str, optional
        Of the nodes.
    gap : float, optional
        Above the lower bound, at sensitivity 1.
    alternatives, notes : tuples
        For the reader.
    """
    unit = squared_sensitivity(tree, neighbours, y)
    scaled = y * (household_limit(law, sensitivity, household) / unit)
    times = household if law == "laplace" else household**2
    allowed = drawn_limit(law, sensitivity)
    shrink = 1.0
    while True:
        scales = whole_scales(law, scaled, shrink)
        weight = scales.tolist()
        heaviest, _ = heaviest_move(
            tree, neighbours, [q * q for q in weight] if law == "gaussian" else weight
        )
        if heaviest * times <= allowed:
            break
        shrink *= 1 - 2.0**-44
    guarantee = tree_guarantee(tree, neighbours, household, law, scales, names)
    return TreeMechanism(
        tree, neighbours, household, law, scales, guarantee, gap, alternatives, notes
    )


def _candidates(
    tree: Totals,
    cost: FloatArray,
    neighbours: TreeNeighbours,
    household: int,
    epsilon: float,
    limit: float,
    law: str,
) -> tuple[list[Candidate], float | None]:
    """All ways to keep the promise, and what no Gaussian noise goes below, if that is asked."""
    found: list[Candidate] = []
    flat = np.where(tree.known, 0.0, 1.0)
    cells = np.where(tree.leaf, flat, 0.0)
    changed = float(changed_numbers(tree, neighbours))
    private_cost = float(cost.sum())

    def measure(y: FloatArray) -> float:
        return squared_sensitivity(tree, neighbours, y)

    def add(name: str, kind: LawName, y: FloatArray) -> None:
        scaled = y / measure(y)
        unit = (household / (limit if kind == "gaussian" else epsilon)) ** 2
        spread = scaled if kind == "gaussian" else scaled**2 / 2
        value = float(cost @ passes.variances(*tree.arrays, spread)) * unit
        if kind == "laplace" and y is cells and not tree.known.any():  # drawn whole
            value *= whole_share(float(scaled.max()) * epsilon / household)
        found.append(Candidate(name, kind, scaled, value))

    y, phi = least_precisions(tree, cost, neighbours)
    bound = None
    if law != "laplace" and limit > 0:
        add("least noise", "gaussian", y)
        add(LEVELS, "gaussian", level_precisions(tree, cost, measure))
        add(ADD_UP, "gaussian", cells)
        add("independent, projected", "gaussian", flat)
        alone = changed * (household / limit) ** 2 * private_cost
        found.append(Candidate("independent", "gaussian", None, alone))
        floor = np.where(tree.known, 0.0, np.maximum(cost, LEAST_WEIGHT * cost.mean()))
        bound = lower_bound(tree, cost, neighbours, y, floor) * (household / limit) ** 2
    if law != "gaussian":
        add("least noise", "laplace", least_scales(tree, cost, neighbours, phi))
        add(ADD_UP, "laplace", cells)
        add("independent, projected", "laplace", flat)
        alone = 2 * (changed * household / epsilon) ** 2 * private_cost
        found.append(Candidate("independent", "laplace", None, alone))
    return found, bound


def _check_law(law: str, epsilon: float, delta: float) -> None:
    if law not in ("auto", "gaussian", "laplace"):
        raise AffineDPError(f"law must be 'auto', 'gaussian' or 'laplace', not {law!r}")
    if law == "gaussian" and not delta > 0:
        raise AffineDPError("Gaussian noise keeps no promise at delta = 0: give a delta")
    if not (math.isfinite(epsilon) and epsilon > 0 and 0 <= delta < 1):
        raise AffineDPError(f"epsilon = {epsilon!r} and delta = {delta!r} are no promise")


@within_range
def design_tree_for_targets(
    parent: ArrayLike,
    *,
    targets: Mapping[int, float] | ArrayLike,
    delta: float,
    neighbours: TreeNeighbours = "person",
    household: int = 1,
    public: ArrayLike | None = None,
    names: tuple[str, ...] | None = None,
) -> TreeMechanism:
    """Design Gaussian noise with the least budget that reaches an accuracy in every level.

    Parameters
    ----------
    parent : array of int
        The node above every node, −1 for the root.
    targets : mapping or array
        Root mean square noise that a level may have at most; level 0 is the root.  Levels that
        are not named may have any.
    delta : float
        δ at which the budget is stated.
    neighbours : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    public : array of bool or int, optional
        Nodes that are published as they are.
    names : tuple of str, optional
        Of the nodes.

    Returns
    -------
    TreeMechanism
        Its gap is that of the squared sensitivity: how much less budget might do.

    Examples
    --------
    >>> m = design_tree_for_targets(
    ...     [-1, 0, 0, 1, 1, 2, 2], targets={0: 5.0, 2: 10.0}, delta=1e-6
    ... )
    >>> [noise <= target * 1.0001 for (_, _, noise), target in zip(m.level_summary(), [5, 99, 10])]
    [True, True, True]
    """
    tree = Totals.of(parent, public, neighbours)
    people = checked_people(household)
    used, squares = _targets(tree, targets)
    levels = tree.depth
    private = ~tree.known
    count = np.bincount(levels[private], minlength=int(levels.max()) + 1)[used]
    place = np.full(int(levels.max()) + 1, -1)
    place[used] = np.arange(len(used))
    slot = np.where(private, place[levels], -1)
    share = np.ones(len(used)) / len(used)
    best, low, phi = math.inf, 0.0, None
    best_y = np.zeros(tree.n)
    for _ in range(TARGET_ROUNDS):
        cost = np.where(slot >= 0, (share / count / squares)[slot], 0.0)
        y, phi = least_precisions(tree, cost, neighbours, phi)
        unit = squared_sensitivity(tree, neighbours, y)
        variances = passes.variances(*tree.arrays, y) * unit
        mean = np.bincount(slot[slot >= 0], variances[slot >= 0], len(used)) / count / squares
        if float(mean.max()) < best:
            best, best_y = float(mean.max()), y
        now = float(share @ mean)
        if now > low:
            low, at = now, (cost, y)
        if best / low - 1 < TARGET_TOLERANCE:
            break
        share = share * mean / float(share @ mean)
    cost, y = at
    floor = np.where(tree.known, 0.0, np.maximum(cost, LEAST_WEIGHT * cost.mean()))
    bound = lower_bound(tree, cost, neighbours, y, floor)
    # grids and rounding make the noise larger than the design by this share at most
    sensitivity = math.sqrt(best) * people * (1 + 2.0**-28)
    epsilon = float(gaussian_epsilon(delta, sensitivity))
    check_grid("gaussian", epsilon, delta, people * changed_numbers(tree, neighbours))
    note = f"least budget for the targets: epsilon = {epsilon:.6g} at delta = {delta:g}"
    return at_sensitivity(
        tree, neighbours, people, "gaussian", best_y, sensitivity,
        names=names, gap=max(best / bound - 1, 0.0), notes=(note,),
    )  # fmt: skip


def _targets(
    tree: Totals, targets: Mapping[int, float] | ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The levels that have targets, and their squares."""
    deepest = int(tree.depth.max())
    pairs = targets if isinstance(targets, Mapping) else dict(enumerate(np.asarray(targets)))
    found = {}
    for level, value in pairs.items():
        if not isinstance(level, int | np.integer) or not 0 <= level <= deepest:
            raise AffineDPError(f"there is no level {level!r}: levels are 0 to {deepest}")
        if not (math.isfinite(float(value)) and float(value) > 0):
            raise AffineDPError(f"the target of level {level} must be positive, not {value!r}")
        start, stop = tree.level_slices[level]
        if not tree.known[start:stop].all():
            found[int(level)] = float(value)
    if not found:
        raise AffineDPError("targets names no level with private numbers")
    used = np.array(sorted(found))
    return used, np.array([found[level] ** 2 for level in used.tolist()])


def drawn_precisions(mechanism: TreeMechanism) -> FloatArray:
    """Return the precision of the noise on every number, in the given order.

    Parameters
    ----------
    mechanism : TreeMechanism
        Of any law.
    """
    return np.asarray(mechanism.tree.outside(mechanism.precisions), dtype=float)
