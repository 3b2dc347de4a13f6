"""The best body of every block: the hull of the moves, one found by search, or axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.axes import best_axes
from affinedp.designs.body_search import MOST_SEARCHED, better_bodies
from affinedp.designs.effort import Budget
from affinedp.designs.knorm_blocks import Cell, as_one_sum
from affinedp.designs.separate import Block
from affinedp.exact.numbers import meaning
from affinedp.laws.knorm import KNorm
from affinedp.laws.polytope import (
    MOST_DIMENSIONS,
    LatticeCones,
    Polytope,
    TooLargeBodyError,
    check_dimensions,
    farthest,
)
from affinedp.progress import Progress

# Extra points of a body have so many digits of the moves' size.
DIGITS = 4
# Moves beyond this number that are not whole are rounded, and stick out of their hull by so much.
FEW_MOVES = 200
STICKS_OUT = 1e-3
# Random starts of the search for a body, and what must be left for one.
STARTS = 6
LEAST_WORK = 2e8
# Which body was chosen, in words.
HULL = "the hull of the moves"
SEARCHED = "a local optimum: a body found by search around the hull of the moves"
AXES = "independent geometric noise on the axes of a lattice"


@dataclass(frozen=True, eq=False)
class Chosen:
    """The body of one block, and what it costs."""

    outputs: IntArray  # outputs of the block
    basis: FloatArray  # what makes outputs of the coordinates; shape (outputs, r)
    points: FloatArray  # points of the body, up to sign; or the signs of a public sum; shape (r, p)
    words: str  # which body it is
    error: float  # the cost of its noise
    charge: float = 1.0  # the largest gauge of a move: 1, unless the body was rounded
    polytope: Polytope | None = None  # the body, where it is a hull of points


def best_bodies(
    cells: list[tuple[Block, Cell]],
    strategies: Mapping[str, FloatArray],
    limit: float,
    integers: bool,
    generator: np.random.Generator,
    budget: Budget,
) -> list[Chosen]:
    """Return the best body of every block; Laplace strategies of blocks, by key, are starts."""
    solved: dict[str, Chosen] = {}
    found = []
    with Progress("K-norm bodies") as progress:
        for i, (block, cell) in enumerate(cells):
            if block.key not in solved:
                known = _square_strategy(block, cell, strategies.get(block.key))
                solved[block.key] = _body(cell, known, limit, integers, generator, budget)
            found.append(replace(solved[block.key], outputs=block.outputs))
            progress.update((i + 1) / len(cells))
    return found


def _body(
    cell: Cell,
    known: list[FloatArray],
    limit: float,
    integers: bool,
    generator: np.random.Generator,
    budget: Budget,
) -> Chosen:
    """The best body of a block: the hull of its moves, one with further points, or axes."""
    if not integers:
        return _hull_or_better(cell, known, limit, integers, generator, budget)
    axes = best_axes(cell.moves, cell.cost, limit)
    alone = Chosen(cell.outputs, cell.basis @ axes.basis, np.diag(axes.widths), AXES, axes.error)
    size = cell.moves.shape[1]
    if size == 1 or (size > MOST_DIMENSIONS and as_one_sum(cell.moves) is None):
        return alone
    try:
        best = _hull_or_better(cell, known, limit, integers, generator, budget)
    except TooLargeBodyError as error:
        budget.note(f"K-norm noise was not designed: {error}")
        return alone
    return alone if axes.error <= best.error * (1 + 1e-12) else best


def _hull_or_better(
    cell: Cell,
    known: list[FloatArray],
    limit: float,
    integers: bool,
    generator: np.random.Generator,
    budget: Budget,
) -> Chosen:
    """The hull of the moves, or a body with further points."""
    one_sum = as_one_sum(cell.moves)
    exchanged = None
    if one_sum is not None:
        points = (one_sum.width * one_sum.signs)[:, None]
        cost = one_sum.spread_cost(cell.cost) * KNorm(points, limit, integers).moment
        exchanged = Chosen(
            cell.outputs, one_sum.spread(cell.basis), points, HULL, float(cost.sum())
        )
        if cell.moves.shape[1] > MOST_SEARCHED or one_sum.treats_alike(cell.cost):
            return exchanged
    hull = _hull(cell.moves, integers, budget)
    best, error = hull, hull.error(cell, limit, integers)
    starts = STARTS if budget.left >= LEAST_WORK else 0
    for extra in better_bodies(
        hull.vertices, cell.cost, known if starts else [], starts, generator, budget
    ):
        rounded = _whole_shares(extra) if integers else _short(extra, hull.vertices)
        body = _Body.over(np.vstack([hull.vertices, rounded]), cell.moves, budget)
        own = body.error(cell, limit, integers)
        if own < error * (1 - 1e-9):
            best, error = body, own
    if best is hull and exchanged is not None:
        return exchanged
    words = HULL if best is hull else SEARCHED
    return Chosen(
        cell.outputs, cell.basis, best.vertices.T, words, error, best.charge, best.polytope
    )


@dataclass(frozen=True, eq=False)
class _Body:
    """A polytope, and upper bounds on the gauges of all moves: 1, unless it was rounded."""

    polytope: Polytope
    gauges: FloatArray

    @classmethod
    def over(cls, points: FloatArray, moves: FloatArray, budget: Budget) -> _Body:
        """Return the hull of some points, charged for all moves."""
        used = points[np.any(points != 0, axis=1)]
        lead = used[np.arange(len(used)), np.argmax(used != 0, axis=1)]
        kept = np.unique(used * np.sign(lead)[:, None], axis=0)
        read = [tuple(map(meaning, row)) for row in kept.tolist()]
        polytope = Polytope(read, budget.simplices)
        return cls(polytope, polytope.gauges(moves.T, np.zeros(moves.T.shape)).upper)

    @property
    def charge(self) -> float:
        """The largest of them."""
        return float(self.gauges.max())

    @property
    def vertices(self) -> FloatArray:
        """One of each pair, as rows in the order of the points: their hull is this very body."""
        return np.unique(self.polytope.vertices, axis=0)

    def error(self, cell: Cell, limit: float, integers: bool) -> float:
        """Return the cost of noise with this body that keeps ε."""
        rate = limit / self.charge
        if integers:
            return float((LatticeCones(self.polytope).second_moment(rate) * cell.cost).sum())
        return float((self.polytope.second_moment() * cell.cost).sum()) / rate**2


def _hull(moves: FloatArray, integers: bool, budget: Budget) -> _Body:
    """The hull of the moves; of many long ones the hull of a few, rounded.

    Few digits of the points that lie farthest in some direction are quick in exact arithmetic, and
    what moves then stick out is charged.
    """
    size = moves.shape[1]
    check_dimensions(size)  # before any number is read
    if integers or len(moves) <= FEW_MOVES or np.all(moves == np.rint(moves)):
        return _Body.over(moves, moves, budget)
    chosen = farthest(moves)
    for points in (_short(moves, moves), moves):
        while True:
            body = _Body.over(points[sorted(chosen)], moves, budget)
            outside = set(np.flatnonzero(body.gauges > 1 + STICKS_OUT).tolist()) - chosen
            if not outside:
                break
            chosen |= outside
        if body.charge <= 1 + 2 * STICKS_OUT:  # else so few digits are too few for this body
            break
    return body


def _whole_shares(extra: FloatArray) -> FloatArray:
    """Extra points on a part of the lattice so coarse that the cones have few lattice points."""
    shares = {2: 16, 3: 4}.get(extra.shape[1], 1)
    return np.asarray(np.rint(extra * shares) / shares)


def _short(extra: FloatArray, vertices: FloatArray) -> FloatArray:
    """Extra points with few digits: any points do, and short ones are quick in exact arithmetic."""
    size = np.abs(vertices).max(axis=0)
    unit = 10.0 ** (np.floor(np.log10(np.where(size > 0, size, 1.0))) - DIGITS)
    return np.asarray(np.vectorize(lambda v: float(f"{v:.12g}"))(np.rint(extra / unit) * unit))


def _square_strategy(block: Block, cell: Cell, strategy: FloatArray | None) -> list[FloatArray]:
    """The points of a Laplace design with as many noises as dimensions: it is a K-norm."""
    if strategy is None or len(strategy) > 2 * cell.basis.shape[1] + 2:
        return []
    return [(np.linalg.pinv(cell.basis) @ block.basis @ np.linalg.pinv(strategy)).T]
