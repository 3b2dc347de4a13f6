"""Design noise for trees of totals: least squared error, or targets by level; never worse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, one_thread, within_range
from affinedp.designs.least_tree import (
    LEAST_WEIGHT,
    heaviest_sum,
    least_precisions,
    least_scales,
    level_precisions,
    level_scales,
)
from affinedp.designs.problem import (
    check_grid,
    check_law,
    checked_promise,
    checked_releases,
    gaussian_share,
    pure_share,
)
from affinedp.designs.tree_bound import PoorDesignError, lower_bound
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Totals, TreeNeighbours, checked_weights
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.calibration import gaussian_epsilon
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Geometric, Laplace, geometric_variance
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.privacy.design import Alternative, Design
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.tree import Tree, heaviest_move

TARGET_ROUNDS = 40
TARGET_TOLERANCE = 1e-4
# Rounding in doubles, before anything is checked in integers.
SPARE = 2.0**-46
ADD_UP = "cells and add up"
LEVELS = "one weight per level"
TreeLaw = Literal["gaussian", "laplace"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to keep the promise."""

    name: str  # in words
    law: TreeLaw  # law of the noise
    # precisions (Gaussian) or one over the scales (Laplace) for sensitivity 1; None where estimates
    # are not formed by least squares, so that it is for comparison only
    y: FloatArray | None
    cost: float  # weighted squared error under the promise


@within_range
@one_thread()
def design_tree(
    parent: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    weights: ArrayLike | None = None,
    adjacency: TreeNeighbours = "person",
    household: int = 1,
    public: ArrayLike | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    names: tuple[str, ...] | None = None,
    largest_gap: float = 0.25,
    releases: int = 1,
) -> Mechanism:
    """Design the least noise for a tree of totals, in O(n), with a lower bound beside it.

    Every number gets independent noise, and weighted least squares makes the numbers add up.  The
    design is compared with standard practice under the same promise (the cells added up, whole
    noise on them, one weight per level, independent noise, both laws), and the best is returned:
    it is never worse.

    Parameters
    ----------
    parent : array of int
        The node above every node, −1 for the root.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
    weights : array, optional
        What squared error costs at every node; 1 by default.
    adjacency : {"person", "replace", "circuits"}
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
    Mechanism

    Examples
    --------
    A country, two states, and two counties in each:

    >>> m = design_tree([-1, 0, 0, 1, 1, 2, 2], epsilon=1.0, delta=1e-6, law="gaussian")
    >>> m.guarantee.holds(1.0, 1e-6), m.gap < 0.01
    (True, True)
    >>> y = m.release([10, 4, 6, 1, 3, 2, 4])
    >>> bool(abs(y[0] - y[1] - y[2]) < 1e-9)
    True

    Whole numbers that add up, and are at least 0:

    >>> from affinedp.tables import whole
    >>> numbers = whole(m, y, nonnegative=True)
    >>> bool(numbers[0] == numbers[1] + numbers[2]), bool((numbers >= 0).all())
    (True, True)
    """
    people = People(Totals.of(parent, public, adjacency, names), adjacency, household)
    return tree_noise(
        people, epsilon=epsilon, delta=delta, weights=weights, law=law, largest_gap=largest_gap,
        releases=releases,
    )  # fmt: skip


def tree_noise(
    people: People,
    *,
    epsilon: float,
    delta: float = 0.0,
    weights: ArrayLike | None = None,
    law: str = "auto",
    largest_gap: float = 0.25,
    releases: int = 1,
) -> Mechanism:
    """Return the least noise for people in a tree of totals; see :func:`design_tree`."""
    tree: Any = people.domain
    cost = checked_weights(tree, weights)
    unit = 1.0 if weights is None else float(np.asarray(weights)[tree.order[~tree.known]].max())
    count = checked_releases(releases)
    epsilon, delta = checked_promise(epsilon, delta)
    check_law(law, epsilon, delta)
    if not epsilon:
        raise AffineDPError("a tree needs an epsilon above 0")
    limit = gaussian_share(epsilon, delta, count) if delta > 0 else 0.0
    pure = pure_share(epsilon, count)
    found, bound = _candidates(people, cost, pure, limit, law)
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
    if best.law == "gaussian":
        check_grid(epsilon, delta, count * people.size * changed_numbers(people))
    else:
        gap = None  # the bound is about Gaussian noise only
    others = (Alternative(one.law, one.cost * unit, True, one.name) for one in found)
    design = Design(
        gap=gap,
        notes=(f"the best of {len(found)} designs: {best.name}, {best.law} noise",),
        alternatives=tuple(others),
        error=best.cost * unit,
    )
    promise = limit if best.law == "gaussian" else pure
    made = at_sensitivity(people, best.law, best.y, promise, design)
    return made.keeping(epsilon, delta, count)


def at_sensitivity(
    people: People, law: TreeLaw, y: FloatArray, sensitivity: float, design: Design
) -> Mechanism:
    """Return the mechanism with noise of these proportions, at a promise checked in integers."""
    tree: Any = people.domain
    power = 2 if law == "gaussian" else 1
    both, one = people.move == "circuits", sensitivity / people.size
    inverse = (y * (one**power / heaviest_sum(tree, both, y))) ** (1 / power) * (1 - SPARE)
    # a root is rounded up when the promise is stated
    most = Fraction(sensitivity) * (1 - Fraction(power - 1, 1 << 50)) * (1 << GRID_BITS)
    while True:
        scales = whole_scales(inverse)
        weight = [q**power for q in scales.tolist()]
        heaviest, _ = heaviest_move(tree, both, weight)
        if heaviest * people.size**power <= most**power:
            break
        inverse = inverse * (1 - 2.0**-44)
    strategy, noise = Tree(tree, tree.outside(scales)), Gaussian() if power == 2 else Laplace()
    if power == 1 and strategy.cells_alike:
        return _on_cells(people, int(strategy.q[0]), design)
    made = Mechanism(people, strategy, noise, design=design)
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made


def _on_cells(people: People, q: int, design: Design) -> Mechanism:
    """Whole noise on the cells alone keeps the same promise as Laplace noise, and is less."""
    tree: Any = people.domain
    law: Law = Geometric(math.ldexp(float(q), -GRID_BITS))
    cells = (tree.leaf & ~tree.known).astype(np.int64)
    made = Mechanism(people, Tree(tree, tree.outside(cells), 0), law, design=design)
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made


def whole_scales(inverse: FloatArray) -> Indices:
    """Return one over the scales on the grid, rounded down: never less noise."""
    if not np.isfinite(inverse).all() or inverse.max(initial=0.0) * 2.0**GRID_BITS >= 2.0**62:
        raise AffineDPError("the noise is too small for its grid: epsilon is too large")
    return np.floor(np.ldexp(inverse, GRID_BITS)).astype(np.int64)


def changed_numbers(people: People) -> int:
    """Return how many private numbers the move of one person can change."""
    tree: Any = people.domain
    return round(heaviest_sum(tree, people.move == "circuits", np.where(tree.known, 0.0, 1.0)))


def _candidates(
    people: People, cost: FloatArray, epsilon: float, limit: float, law: str
) -> tuple[list[Candidate], float | None]:
    """All ways to keep the promise, and what no Gaussian noise goes below, if that is asked."""
    tree: Any = people.domain
    both, size = people.move == "circuits", people.size
    found: list[Candidate] = []
    flat = np.where(tree.known, 0.0, 1.0)
    cells = np.where(tree.leaf, flat, 0.0)
    changed = float(changed_numbers(people))
    private_cost = float(cost.sum())

    def add(name: str, kind: TreeLaw, y: FloatArray) -> None:
        scaled = y / heaviest_sum(tree, both, y)
        unit = (size / (limit if kind == "gaussian" else epsilon)) ** 2
        spread = scaled if kind == "gaussian" else scaled**2 / 2
        value = float(cost @ passes.variances(*tree.arrays, spread)) * unit
        if kind == "laplace" and y is cells:  # drawn whole
            rate = float(scaled.max()) * epsilon / size
            value *= geometric_variance(rate) * rate**2 / 2
        found.append(Candidate(name, kind, scaled, value))

    y, phi = least_precisions(tree, cost, both)
    bound = None
    if law != "laplace" and limit > 0:
        add("least noise", "gaussian", y)
        weights = level_precisions(tree, cost, both)
        add(LEVELS, "gaussian", weights)
        add(ADD_UP, "gaussian", cells)
        add("independent, projected", "gaussian", flat)
        alone = changed * (size / limit) ** 2 * private_cost
        found.append(Candidate("independent", "gaussian", None, alone))
        bound = lower_bound(tree, cost, both, y, _floor(tree, cost)) * (size / limit) ** 2
    if law != "gaussian":
        add("least noise", "laplace", least_scales(tree, cost, both, phi))
        add(LEVELS, "laplace", level_scales(tree, cost, both))
        add(ADD_UP, "laplace", cells)
        add("independent, projected", "laplace", flat)
        alone = 2 * (changed * size / epsilon) ** 2 * private_cost
        found.append(Candidate("independent", "laplace", None, alone))
    return found, bound


def _floor(tree: Totals, cost: FloatArray) -> FloatArray:
    """Costs that are positive at every private number."""
    return np.where(tree.known, 0.0, np.maximum(cost, LEAST_WEIGHT * cost.mean()))


@within_range
@one_thread()
def design_tree_for_targets(
    parent: ArrayLike,
    *,
    targets: Mapping[int, float] | ArrayLike,
    delta: float,
    adjacency: TreeNeighbours = "person",
    household: int = 1,
    public: ArrayLike | None = None,
    names: tuple[str, ...] | None = None,
) -> Mechanism:
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
    adjacency : {"person", "replace", "circuits"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    public : array of bool or int, optional
        Nodes that are published as they are.
    names : tuple of str, optional
        Of the nodes.

    Returns
    -------
    Mechanism
        Its gap is that of the squared sensitivity: how much less budget might do.

    Examples
    --------
    >>> m = design_tree_for_targets(
    ...     [-1, 0, 0, 1, 1, 2, 2], targets={0: 5.0, 2: 10.0}, delta=1e-6
    ... )
    >>> bool(m.expected_squared_errors[0] <= 25.01)
    True
    """
    people = People(Totals.of(parent, public, adjacency, names), adjacency, household)
    return tree_noise_for_targets(people, targets=targets, delta=delta)


def tree_noise_for_targets(
    people: People, *, targets: Mapping[int, float] | ArrayLike, delta: float
) -> Mechanism:
    """Return the noise of the least budget; see :func:`design_tree_for_targets`."""
    tree: Any = people.domain
    both = people.move == "circuits"
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
        y, phi = least_precisions(tree, cost, both, phi)
        unit = heaviest_sum(tree, both, y)
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
    bound = lower_bound(tree, cost, both, y, _floor(tree, cost))
    # grids and rounding make the noise larger than the design by this share at most
    sensitivity = math.sqrt(best) * people.size * (1 + 2.0**-28)
    epsilon = float(gaussian_epsilon(delta, sensitivity))
    check_grid(epsilon, delta, people.size * changed_numbers(people))
    note = f"least budget for the targets: epsilon = {epsilon:.6g} at delta = {delta:g}"
    design = Design(gap=max(best / bound - 1, 0.0), notes=(note,))
    return at_sensitivity(people, "gaussian", best_y, sensitivity, design)


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
