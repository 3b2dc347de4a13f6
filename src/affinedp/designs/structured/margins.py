"""Design noise for margins of tables whose cells cannot be listed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.problem import checked_releases, gaussian_share, pure_share
from affinedp.designs.structured.integer_noise import SHARE, check_grid
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
from affinedp.designs.structured.whole_margins import (
    block_precisions,
    least_whole,
    measurable,
    scaled_whole,
    spreads,
    whole_guarantee,
)
from affinedp.errors import AffineDPError
from affinedp.neighbours.people import checked_people
from affinedp.privacy.guarantee import keeping

# The dual is computed in doubles: the gap is widened by this.
WIDENED = 1e-6
DESIGNED = "least noise"
ADD_UP = "cells and add up"


@within_range
def design_margins(
    sizes: Sequence[int],
    margins: str | int | Iterable[Iterable[int]] = "<=2",
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: MarginNeighbours = "person",
    household: int = 1,
    goal: Goal = "sum",
    weights: ArrayLike | None = None,
    law: Literal["auto", "gaussian", "laplace"] = "auto",
    releases: int = 1,
) -> MarginMechanism:
    """Design the least noise for margins of a table of all attributes.

    The table itself, which may have 10¹⁷ cells, is never formed.  White noise on the residuals of
    the margins contains an optimum over all Gaussian mechanisms, and a dual certifies it.  Whole
    Laplace noise on margins (or on the cells, added up) is compared with it, and the better one
    is returned.

    Parameters
    ----------
    sizes : sequence of int
        How many values every attribute has, each at least 2.
    margins : str, int or iterable of tuples
        ``"<=3"`` for all of up to three attributes, ``3`` for all of exactly three, or tuples of
        attributes.
    epsilon, delta : float
        The promise; δ = 0 asks for Laplace noise.
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
    law : {"auto", "gaussian", "laplace"}
        Law of the noise; the better one by default.
    releases : int
        How many releases about the same people are planned.  The noise is for one of them, and all
        together keep (ε, δ).

    Returns
    -------
    MarginMechanism

    Examples
    --------
    >>> from affinedp.designs.structured.margin_counts import counts_of_records
    >>> m = design_margins([3, 2, 4], "<=2", epsilon=1.0, delta=1e-6, law="gaussian")
    >>> m.gap < 1e-5, m.guarantee.holds(1.0, 1e-6)
    (True, True)
    >>> out = m.release(counts_of_records([[0, 1, 3], [2, 0, 1]], [3, 2, 4]))
    >>> bool(abs(out.margin((0, 1)).sum(axis=1) - out.margin((0,))).max() < 1e-9)
    True
    """
    shape = checked_sizes(sizes, neighbours)
    people = checked_people(household)
    count = checked_releases(releases)
    if goal not in ("sum", "largest"):
        raise AffineDPError(f"goal must be 'sum' or 'largest', not {goal!r}")
    if law not in ("auto", "gaussian", "laplace"):
        raise AffineDPError(f"law must be 'auto', 'gaussian' or 'laplace', not {law!r}")
    if not delta > 0 and (law == "gaussian" or neighbours == "swaps"):
        raise AffineDPError("Gaussian noise keeps no promise at delta = 0: give a delta above 0")
    wanted = margin_sets(len(shape), margins)
    blocks = blocks_of(wanted, neighbours)
    shares = variance_shares(shape, wanted, blocks)
    cells = np.array([float(cells_of(shape, A)) for A in wanted.tolist()])
    cost = _margin_costs(wanted, weights, cells, goal)
    ask = _Question(shape, wanted, blocks, shares, cost, neighbours, people, goal)
    found = []
    if law != "laplace" and delta > 0:
        drawn = sum(math.prod(shape[j] - 1 for j in members(B)) for B in blocks.tolist())
        check_grid("gaussian", epsilon, delta, count * people * drawn)
        found.append((DESIGNED, _gaussian(ask, gaussian_share(epsilon, delta, count))))
    if law != "gaussian" and neighbours != "swaps":
        found.extend(_laplace(ask, pure_share(epsilon, count)))
    if not found:
        raise AffineDPError("there are too many margins for Laplace noise: give a delta above 0")
    best = min((one for _, one in found), key=ask.value)
    value = ask.value(best)
    others = tuple((f"{name}, {one.law}", ask.value(one) / value) for name, one in found)
    if delta > 0:
        others += _standard_practice(ask, gaussian_share(epsilon, delta, count), value)
    return keeping(replace(best, alternatives=others), epsilon, delta, count)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is asked for, apart from the promise."""

    sizes: tuple[int, ...]
    wanted: Sets
    blocks: Sets
    shares: Any
    cost: FloatArray
    neighbours: MarginNeighbours
    household: int
    goal: Goal

    @property
    def noisy(self) -> NDArray[np.bool_]:
        """Which margins are not public as a whole."""
        return np.array([A.bit_count() >= LEAST[self.neighbours] for A in self.wanted.tolist()])

    def total(self, variances: FloatArray) -> float:
        """What is to be least."""
        weighted = self.cost * variances
        return float(weighted.sum() if self.goal == "sum" else weighted.max())

    def value(self, mechanism: MarginMechanism) -> float:
        """What is to be least, of a mechanism."""
        return self.total(np.array(list(mechanism.variances.values())))


def _gaussian(ask: _Question, limit: float) -> MarginMechanism:
    """The least Gaussian noise of this sensitivity."""
    noisy = ask.noisy
    shape, blocks = ask.sizes, ask.blocks
    plan = least_blocks(shape, blocks, ask.shares[noisy], ask.cost[noisy], ask.neighbours, ask.goal)
    t = np.maximum(plan.t, plan.t.max() * 1e-12)  # a block that costs nothing needs noise too
    t = scaled_to(shape, blocks, t, ask.neighbours, ask.household, limit)
    guarantee = margin_guarantee(shape, blocks, t, ask.neighbours, ask.household)
    mechanism = MarginMechanism(
        shape, ask.wanted, blocks, t, ask.neighbours, ask.household, guarantee,
        gap=max(plan.value / plan.bound - 1, 0.0) + WIDENED,
        notes=("white noise on residuals of margins",),
    )  # fmt: skip
    for B in blocks.tolist():
        if mechanism.scales(B).flat[-1] < LEAST_Q:  # the longest contrast has the smallest q
            raise AffineDPError(
                f"the noise of the attributes {members(B)} is too large for its grid: epsilon is "
                "too small, or a weight"
            )
    return mechanism


def _laplace(ask: _Question, epsilon: float) -> list[tuple[str, MarginMechanism]]:
    """Laplace noise on whole margins, if there are not too many of them."""
    measured = measurable(ask.sizes, ask.blocks)
    if measured is None:
        return []
    budget = epsilon / (ask.household * (1 if ask.neighbours == "person" else 2))
    y = least_whole(ask.sizes, measured, ask.blocks, ask.shares, ask.cost, budget)
    found = [(DESIGNED, _whole_noise(ask, measured[y > 0], y[y > 0], epsilon))]
    full = np.array([(1 << len(ask.sizes)) - 1])
    if full[0] in measured and (y > 0).sum() > 1:
        # what people do today, compared by what is really to be least
        found.append((ADD_UP, _whole_noise(ask, full, np.array([budget]), epsilon)))
    return [(name, one) for name, one in found if one is not None]


def _whole_noise(
    ask: _Question, measured: Sets, y: FloatArray, epsilon: float
) -> MarginMechanism | None:
    """Whole Laplace noise on these margins, if its grid holds it."""
    q = scaled_whole(ask.neighbours, y, epsilon, ask.household)
    if q.min() < LEAST_Q:
        return None
    t = block_precisions(ask.sizes, measured, ask.blocks, q)
    guarantee = whole_guarantee(ask.sizes, ask.neighbours, ask.household, q)
    alone = measured.tolist() == [(1 << len(ask.sizes)) - 1]
    words = "the cells, which are added up" if alone else f"{len(measured)} margins"
    return MarginMechanism(
        ask.sizes, ask.wanted, ask.blocks, t, ask.neighbours, ask.household, guarantee,
        measured, q, notes=(f"whole Laplace noise on {words}",),
    )  # fmt: skip


def _margin_costs(
    wanted: Sets, weights: ArrayLike | None, cells: FloatArray, goal: Goal
) -> FloatArray:
    """What the variance of a cell of every margin counts."""
    given = np.ones(len(wanted)) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != (len(wanted),) or not np.isfinite(given).all() or not given.min() > 0:
        raise AffineDPError(f"weights must be {len(wanted):,} positive numbers, one per margin")
    return given * cells if goal == "sum" else given


def _standard_practice(ask: _Question, limit: float, value: float) -> tuple[tuple[str, float], ...]:
    """Standard practice with Gaussian noise under the same promise, as multiples of the design."""
    noisy = ask.noisy
    t = np.ones(int(noisy.sum())) @ spreads(ask.sizes, ask.wanted[noisy], ask.blocks)
    # as for the design, the grid of the noise takes its share
    unit = (ask.household / limit * float(1 + SHARE)) ** 2
    square = float(exact_square(ask.sizes, ask.blocks, t, ask.neighbours)) * unit
    projected = ask.total((ask.shares @ (1 / t)) * square) / value
    independent = ask.total(np.where(noisy, square, 0.0)) / value
    found = [("equal noise on all margins, projected", projected), ("independent", independent)]
    if ask.neighbours == "person":
        everything = math.prod(map(float, ask.sizes))
        add_up = [unit * everything / cells_of(ask.sizes, A) for A in ask.wanted.tolist()]
        found.insert(0, (ADD_UP, ask.total(np.array(add_up)) / value))
    return tuple((f"{name}, gaussian", ratio) for name, ratio in found)
