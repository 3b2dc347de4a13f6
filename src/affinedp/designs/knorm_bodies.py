"""The best body of every block: the hull of the moves, one found by search, or axes.

A better body than the hull has extra points X, for the least E|z|² of hull(± moves, ± X).
With corners a_1..a_r of the boundary simplices C and s = Σ a_i, E|z|² = Σ p_C q(C) with
p_C ∝ |det C| and q(C) = Σ |a_i|² + |s|².  The problem is not convex, and floats are used freely:
what is found is built again in exact arithmetic, and kept only if it is better there too.

On a lattice there is independent geometric noise on the axes of a basis, too: standard practice
for whole data.  With the cells of a table as axes this is discrete Laplace noise on the cells,
added up.  There are no facets to list, so any dimension will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray, rank_of
from affinedp.designs.effort import Budget
from affinedp.designs.knorm_blocks import Cell, as_one_sum
from affinedp.designs.separate import Block
from affinedp.exact.numbers import meaning
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import geometric_variance
from affinedp.laws.orbits import FEW_SIMPLICES, hull_of
from affinedp.laws.orbits import MOST_DIMENSIONS as MOST_BY_ORBITS
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
MOST_TIMES = 100
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
    starts = STARTS if budget.allows(LEAST_WORK) else 0
    for extra in better_bodies(
        hull.vertices, cell.cost, known if starts else [], starts, generator, budget
    ):
        rounded = _whole_shares(extra) if integers else _short(extra, hull.vertices)
        body = _Body.over(np.vstack([hull.vertices, rounded]), cell.moves, integers, budget)
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
    def over(cls, points: FloatArray, moves: FloatArray, integers: bool, budget: Budget) -> _Body:
        """Return the hull of some points, charged for all moves."""
        used = points[np.any(points != 0, axis=1)]
        lead = used[np.arange(len(used)), np.argmax(used != 0, axis=1)]
        kept = np.unique(used * np.sign(lead)[:, None], axis=0)
        read = [tuple(map(meaning, row)) for row in kept.tolist()]
        make = hull_of if _has_orbits(integers, budget) else Polytope
        polytope = make(read, budget.simplices)
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
    # before any number is read
    check_dimensions(size, MOST_BY_ORBITS if _has_orbits(integers, budget) else None)
    if integers or len(moves) <= FEW_MOVES or _are_whole(moves):
        return _Body.over(moves, moves, integers, budget)
    chosen = farthest(moves)
    for points in (_short(moves, moves), moves):
        while True:
            body = _Body.over(points[sorted(chosen)], moves, integers, budget)
            outside = set(np.flatnonzero(body.gauges > 1 + STICKS_OUT).tolist()) - chosen
            if not outside:
                break
            chosen |= outside
        if body.charge <= 1 + 2 * STICKS_OUT:  # else so few digits are too few for this body
            break
    return body


def _are_whole(moves: FloatArray) -> bool:
    """Whether moves are whole, or small multiples of one number: then they are short."""
    with np.errstate(over="ignore"):
        times = moves / np.min(np.abs(moves), where=moves != 0, initial=np.inf)
    small = np.abs(times).max(initial=0.0) <= MOST_TIMES
    return bool(
        np.all(moves == np.rint(moves)) or (small and np.allclose(times, np.rint(times), atol=1e-9))
    )


def _has_orbits(integers: bool, budget: Budget) -> bool:
    """Whether hulls may be made by orbits of facets: for real numbers, and not in a hurry."""
    return not integers and budget.simplices > FEW_SIMPLICES


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


# ---------------------------------------------------------------------- the search of a body


# Extra points are searched for in so many dimensions; beyond, hulls take too long.
MOST_SEARCHED = 5
# Steps of a search: a hull is computed at each of them.
STEPS = 300
POLISH = 1_500
# What one evaluation costs before its first simplex, in multiply-adds.
CALL_WORK = 3e5


class Search:
    """The error of hull(± base, ± X) as a function of X, with its gradient."""

    def __init__(self, base: FloatArray, budget: Budget | None = None) -> None:
        self.budget = budget or Budget.of("thorough")
        self.base = np.vstack([base, -base])
        self.dimension = base.shape[1]
        if self.dimension > 1:
            self.base = self.base[_qhull(self.base)[0]]

    def value(self, flat: FloatArray) -> tuple[float, FloatArray]:
        """Return the error and its gradient with respect to the extra points."""
        extra = flat.reshape(-1, self.dimension)
        points = np.vstack([self.base, extra, -extra])
        try:
            simplices = _qhull(points)[1]
        except (ValueError, RuntimeError):
            return 1e300, np.zeros_like(flat)
        self.budget.spend(CALL_WORK + 100.0 * len(simplices) * self.dimension**2)
        corners = points[simplices]
        determinants = np.linalg.det(corners)
        # flat simplices of a facet that qhull triangulated carry no weight
        kept = np.abs(determinants) > 1e-12 * np.abs(determinants).max()
        corners, simplices, sizes = corners[kept], simplices[kept], np.abs(determinants[kept])
        sums = corners.sum(axis=1)
        costs = (corners**2).sum(axis=(1, 2)) + (sums**2).sum(axis=1)
        shares = sizes / sizes.sum()
        error = float(shares @ costs)
        inverse = np.linalg.inv(corners).transpose(0, 2, 1)
        slope = (costs - error)[:, None, None] * inverse + 2 * corners + 2 * sums[:, None, :]
        gradient = np.zeros_like(points)
        np.add.at(
            gradient,
            simplices.ravel(),
            (shares[:, None, None] * slope).reshape(-1, self.dimension),
        )
        first, count = len(self.base), len(extra)
        both = gradient[first : first + count] - gradient[first + count :]
        return error, np.asarray(both.ravel())

    def from_start(self, start: FloatArray) -> tuple[float, FloatArray]:
        """Return the least error found from a start, and the extra points; never worse than it."""
        from scipy.optimize import minimize

        best, chosen = self.value(start.ravel())[0], start
        found = minimize(
            self.value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}
        )
        if self.dimension == 2:  # corners appear and vanish: the slope jumps there
            found = minimize(
                lambda x: self.value(x)[0], found.x, method="Nelder-Mead",
                options={"maxiter": POLISH, "xatol": 1e-7, "fatol": 1e-10},
            )  # fmt: skip
        if found.fun < best:
            best, chosen = float(found.fun), found.x.reshape(-1, self.dimension)
        return best, chosen


def _qhull(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.spatial import ConvexHull, QhullError

    try:
        found = ConvexHull(points, qhull_options="Qt Pp" if points.shape[1] < 5 else "Qt Qx Pp")
    except QhullError as error:
        raise ValueError(str(error)) from None
    return found.vertices, found.simplices


def better_bodies(
    moves: FloatArray,
    cost: FloatArray,
    given: list[FloatArray],
    starts: int,
    generator: np.random.Generator,
    budget: Budget | None = None,
) -> Iterator[FloatArray]:
    """Yield sets of extra points whose hull with the moves has a small error, the best first."""
    size = moves.shape[1]
    if size < 2 or size > MOST_SEARCHED or not (starts or given):
        return
    root = np.linalg.cholesky(cost).T
    back = np.linalg.inv(root).T
    try:
        search = Search(moves @ root.T, budget)
    except ValueError:  # so flat that floats cannot tell: the hull will have to do
        return
    spread = np.linalg.cholesky(search.base.T @ search.base / len(search.base)).T
    points = [extra @ root.T for extra in given]
    for i in range(starts):
        count = (1, 2, 3, size, size + 1, 2 * size)[i % 6]
        points.append(1.3 * generator.normal(size=(count, size)) @ spread)
    found: list[tuple[float, FloatArray]] = []
    with search.budget.keeping("bodies"):
        hull = search.value(np.zeros(0))[0]
        for start in points:
            found.append(search.from_start(start))
    for error, extra in sorted(found, key=lambda pair: pair[0]):
        if error < hull * (1 - 1e-6):
            yield np.asarray(extra @ back)


# ---------------------------------------------------------------------- axes of a lattice


# Moves times dimensions up to which every axis has a rate of its own.
MOST_RATES = 20_000
# Lattices of more dimensions are given one basis only.
MOST_BASES = 2_000


@dataclass(frozen=True, eq=False)
class Axes:
    """A cross-polytope in a basis of the lattice."""

    basis: FloatArray  # the axes as columns, of whole numbers and determinant ±1; shape (r, r)
    widths: FloatArray  # where the body ends on every axis; every move is inside; shape (r,)
    error: float  # what the noise costs at rate ε


def best_axes(moves: FloatArray, cost: FloatArray, limit: float) -> Axes:
    """Return the axes of least cost, among the basis of the coordinates and those of moves.

    Examples
    --------
    Two cells and their sum; each person is in one cell.

    >>> found = best_axes(np.eye(2), np.array([[2.0, 1.0], [1.0, 2.0]]), 1.0)
    >>> found.widths.tolist(), round(found.error, 4)
    ([1.0, 1.0], 7.3654)
    """
    found = [
        _axes(basis, np.abs(moves @ back.T), cost, limit)
        for basis, back in lattice_bases(moves, cost)
    ]
    return min(found, key=lambda one: one.error)


def lattice_bases(moves: FloatArray, cost: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield bases of the lattice as columns, with their inverses."""
    size = moves.shape[1]
    unit = np.eye(size)
    yield unit, unit
    if size > MOST_BASES:
        return
    steps = moves / np.gcd.reduce(moves.astype(np.int64), axis=1)[:, None]
    price = np.einsum("ki,ij,kj->k", steps, cost, steps)
    for order in (np.argsort(price, kind="stable"), np.arange(len(steps))):
        chosen = _independent(steps[order])
        if chosen is None:
            continue
        basis = chosen.T
        back = np.rint(np.linalg.inv(basis))
        # products of small whole numbers are exact in doubles: this proves the determinant ±1
        if np.abs(basis).max() * np.abs(back).max() * size < 2.0**52 and np.array_equal(
            basis @ back, unit
        ):
            yield basis, back


def _independent(rows: FloatArray) -> FloatArray | None:
    """The first rows that are independent, as many as there are dimensions."""
    size = rows.shape[1]
    if len(rows) == size:
        return rows if rank_of(rows) == size else None
    if len(rows) * float(size) > MOST_RATES:
        return None
    kept: list[FloatArray] = []
    left = rows.astype(float)
    directions = np.zeros((0, size))
    for row in left:
        rest = row - directions.T @ (directions @ row)
        length = float(np.linalg.norm(rest))
        if length > 1e-9 * float(np.linalg.norm(row)):
            kept.append(row)
            directions = np.vstack([directions, rest / length])
        if len(kept) == size:
            return np.array(kept)
    return None


def _axes(basis: FloatArray, moved: FloatArray, cost: FloatArray, limit: float) -> Axes:
    """The best rates on given axes: Σ_i rate_i |n_i| ≤ ε for every move n."""
    price = np.maximum(np.einsum("ji,jk,ki->i", basis, cost, basis), 0.0)
    longest = moved.max(axis=0)
    if ((moved != 0).sum(axis=1) == 1).all():  # every move is along one axis
        rates = limit / longest
    else:
        rates = np.full(len(longest), limit / float(moved.sum(axis=1).max()))
        if moved.size <= MOST_RATES:
            rates = _better(rates, moved, price, limit)
    widths = np.array([float(f"{limit / rate:.10g}") for rate in rates.tolist()])
    # digits that were left out may put a move outside: all widths grow by as much
    most = float((moved / widths).sum(axis=1).max())
    if most > 1 + 1e-15:
        widths = widths * most
    costs = [c * geometric_variance(limit / w) for c, w in zip(price.tolist(), widths.tolist())]
    return Axes(basis, widths, float(sum(costs)))


def _better(rates: FloatArray, moved: FloatArray, price: FloatArray, limit: float) -> FloatArray:
    """Rates of least cost, a convex problem, or the given ones where the search fails."""
    from scipy.optimize import minimize

    rows = np.unique(moved[moved.any(axis=1)], axis=0)
    scale = float(price.max()) or 1.0

    def cost(h: FloatArray) -> float:
        return float((price / np.sinh(h / 2) ** 2).sum()) / scale

    def slope(h: FloatArray) -> FloatArray:
        return np.asarray(-price / (np.sinh(h / 2) ** 2 * np.tanh(h / 2))) / scale

    found = minimize(
        cost, rates, jac=slope, method="SLSQP", bounds=[(1e-6 * limit, limit)] * len(rates),
        constraints={
            "type": "ineq", "fun": lambda h: limit - rows @ h, "jac": lambda _: -rows,
        },
        options={"maxiter": 200, "ftol": 1e-12},
    )  # fmt: skip
    h = np.clip(np.nan_to_num(found.x, nan=1e-6 * limit), 1e-6 * limit, limit)
    h = h * (limit / float((moved @ h).max()))
    return h if cost(h) < cost(rates) else rates
