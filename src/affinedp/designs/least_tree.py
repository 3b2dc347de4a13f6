"""The least noise on a tree of totals: precisions of least weighted squared error.

The problem is convex in the precisions, and homogeneous.  Every node takes a share of the budget
that is left on its path, leaf cells the rest,

    y_v = offset_v + φ_v R_v,    R_child = R_v − φ_v R_v,    φ = 1 at a leaf cell,

so that every path from the top of a class spends the same, and lies at its limit, where the optimum
is.  The budget R and the offset at the tops depend on who is a neighbour: see ``tops``.
Multiplicative sweeps find the neighbourhood of the
optimum, L-BFGS on the logits of the shares finds the optimum, and sweeps polish it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled_later
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Totals

SWEEPS = 40
ITERATIONS = 200
# Gains of 1/y and of 1/y² balance where shares are multiplied by these powers of them.
POWERS = {1: 1 / 2, 2: 1 / 3}
LEAST_SHARE = 1e-12
# Weights of 0 are taken for this share of the mean, so that every cell has some precision.
LEAST_WEIGHT = 1e-9
# A share below the first is at its end; it gets the second where gains differ by the third.
STUCK, ROOM, UNEVEN = 1e-6, 1e-2, 1e-4
# Where the heavy branch, or what is below the root, starts from; and below which it is none.
FIRST_EXTRA = 0.05
LEAST_EXTRA = 1e-5
# Gains that differ by a smaller share are the same; and how often heavy branches are looked for.
TIES = 1e-9
MOST_PATHS = 12
# A search of a small tree ends where a descent gains a smaller share.
SETTLED = 1e-6

# Levels above the cells of which all sets are tried, and nodes up to which they are.
MOST_LEVELS = 6
FEW_NODES = 5_000
LEAST_LOG = -60.0
# Levels up to which several moves are weighed, and not the longest alone.
MOST_WEIGHED = 60

JOIN, BOTH = 0, 1


@compiled_later
def tops(parent, known, kind, heavy, extra, budget, offset):  # type: ignore[no-untyped-def]
    """Fill in what the paths of every class may spend, and what its top has beside.

    A person who joins is seen on one path: it may spend 1.  One who moves is seen on two branches:
    they may spend 1 together, so ½ each; or the heavy branch ½ + e, and all others ½ − e.  Within
    the heavy branch two branches spend 1 together, too: its top has all of e and they ½ each, or
    it has e − e' and one of them, heavy itself, ½ + e', and so on down a path.  For both kinds of
    neighbours at once the root has 1 less what the heaviest branch spends."""
    for v in range(len(parent)):
        offset[v] = 0.0
        if known[v]:
            continue
        if v == 0:
            if kind == BOTH:
                budget[0] = 0.0 if heavy[0] >= 0 else 0.5 - extra[0]
                offset[0] = 0.5 - extra[0] if heavy[0] >= 0 else 0.5 + extra[0]
            else:
                budget[0] = 1.0
            continue
        p = parent[v]
        if heavy[p] == v:
            budget[v] = 0.0 if heavy[v] >= 0 else 0.5
            offset[v] = extra[p] - extra[v] if heavy[v] >= 0 else extra[p]
        elif heavy[p] >= 0:
            budget[v] = 0.5 - extra[p]
        elif known[p]:
            budget[v] = 0.5


@compiled_later
def spend(parent, leaf, known, heavy, phi, budget, offset, y):  # type: ignore[no-untyped-def]
    """Fill y from the shares; ``budget`` is filled below the tops."""
    for v in range(len(parent)):
        if known[v]:
            y[v] = 0.0
            continue
        if v > 0 and not known[parent[v]] and heavy[parent[v]] < 0:
            p = parent[v]
            budget[v] = budget[p] * (1.0 - phi[p])
        y[v] = offset[v] + (budget[v] if leaf[v] else phi[v] * budget[v])


@compiled_later
def gains_below(parent, leaf, known, phi, gains, H, B):  # type: ignore[no-untyped-def]
    """Fill H, what a unit of budget gains in the branch of v, and B, its sum over the children."""
    B[:] = 0.0
    for v in range(len(parent) - 1, -1, -1):
        if known[v]:
            H[v] = 0.0
            continue
        H[v] = gains[v] if leaf[v] else phi[v] * gains[v] + (1.0 - phi[v]) * B[v]
        if v > 0:
            B[parent[v]] += H[v]


@compiled_later
def heavy_paths(parent, leaf, known, gains, H, B):  # type: ignore[no-untyped-def]
    """Return what more than ½ for the branch of every node gains within it, and through whom.

    Its top takes all, or passes it on to a child, whose siblings then have as much less."""
    n = len(parent)
    best = gains.copy()
    following = np.full(n, -1, np.int64)
    for v in range(n - 1, 0, -1):
        p = parent[v]
        if known[v] or known[p]:
            continue
        through = best[v] - (B[p] - H[v])
        if through > best[p] * (1.0 + TIES):
            best[p] = through
            following[p] = v
    return best, following


@compiled_later
def leaf_weights(parent, leaf, known, y, gains):  # type: ignore[no-untyped-def]
    """Return weights that add up in the tree, 1 at the top of every class, for the lower bound.

    The second result is what a unit of budget below the root gains."""
    n = len(parent)
    H = np.zeros(n)
    B = np.zeros(n)
    height = np.zeros(n)
    for v in range(n - 1, -1, -1):
        if known[v]:
            continue
        height[v] += y[v]
        share = y[v] / height[v]
        H[v] = gains[v] if leaf[v] else share * gains[v] + (1.0 - share) * B[v]
        if v > 0:
            p = parent[v]
            B[p] += H[v]
            height[p] = max(height[p], height[v])
    D = np.ones(n)
    for v in range(1, n):
        if not known[v]:
            D[v] = D[parent[v]] * H[v] / B[parent[v]]
    return D, B[0]


class Shares:
    """The state of the search: shares, extras, and what follows from them."""

    def __init__(self, tree: Totals, cost: FloatArray, both: bool, power: int = 1) -> None:
        self.tree, self.power = tree, power
        n = tree.n
        private = ~tree.known
        self.cost = np.where(private, np.maximum(cost, LEAST_WEIGHT * cost.sum() / n), 0.0)
        self.kind = BOTH if both else JOIN
        self.heavy = np.full(n, -1, np.int64)
        self.extra = np.zeros(n)
        self.phi = np.zeros(n)
        self.private = private
        if self.kind == BOTH and private[0]:
            self.extra[0] = FIRST_EXTRA
        self._choose()
        self.y, self.budget, self.offset, self.H, self.B = np.zeros((5, n))

    def _choose(self) -> None:
        """Note which shares and which extras there are, for these heavy branches."""
        inner = self.private & ~self.tree.leaf
        path = self.heavy >= 0
        if self.kind == BOTH and self.private[0]:
            path[0] = inner[0] = False  # the root has what its offset gives
            self.extras = np.r_[0, np.flatnonzero(path)]
        else:
            self.extras = np.flatnonzero(path)
        self.inner = np.flatnonzero(inner & (self.heavy < 0))
        place = np.full(self.tree.n, -1)
        place[self.extras] = np.arange(len(self.extras))
        # the extra that every extra is a share of; −1 for the tops
        above = np.maximum(self.tree.parent[self.extras], 0)
        self.above = np.where(self.heavy[above] == self.extras, place[above], -1)
        self.steps = []  # the extras of tops, then those that are shares of them, and so on
        step = np.flatnonzero(self.above < 0)
        while len(step):
            self.steps.append(step)
            step = np.flatnonzero((self.above >= 0) & np.isin(self.above, step))

    def evaluate(self) -> tuple[float, FloatArray]:
        """Return the cost and the gains of y."""
        arrays = self.tree.arrays
        tops(
            self.tree.parent, self.tree.known, self.kind, self.heavy, self.extra, self.budget,
            self.offset,
        )  # fmt: skip
        spend(*arrays, self.heavy, self.phi, self.budget, self.offset, self.y)
        if self.power == 1:
            f, gains = passes.cost_and_gains(*arrays, self.y, self.cost)
        else:
            f, gains = passes.cost_and_gains(*arrays, self.y**2 / 2, self.cost)
            gains = gains * self.y
        gains_below(*arrays, self.phi, gains, self.H, self.B)
        return f, gains

    def sweep(self, times: int) -> None:
        """Move every share towards where its own gain and the gain below it balance."""
        inner, power = self.inner, POWERS[self.power]
        for _ in range(times):
            _, gains = self.evaluate()
            own = self.phi[inner] * np.maximum(gains[inner], 0.0) ** power
            rest = (1 - self.phi[inner]) * np.maximum(self.B[inner], 1e-300) ** power
            self.phi[inner] = np.clip(own / (own + rest), LEAST_SHARE, 1 - LEAST_SHARE)

    def descend(self, iterations: int, tolerance: float = 1e-13) -> float:
        """Run L-BFGS on logits of the shares and extras; return the cost."""
        from scipy.optimize import minimize

        inner, extras, above = self.inner, self.extras, self.above
        split = len(inner)

        def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
            self.phi[inner] = np.clip(_sigmoid(x[:split]), LEAST_SHARE, 1 - LEAST_SHARE)
            part = np.clip(_sigmoid(x[split:]), LEAST_SHARE, 1 - LEAST_SHARE)
            for step in self.steps:
                whole = np.where(above[step] < 0, 0.5, self.extra[extras[above[step]]])
                self.extra[extras[step]] = part[step] * whole
            f, gains = self.evaluate()
            phi = self.phi[inner]
            slope = self.budget[inner] * (gains[inner] - self.B[inner]) * phi * (1 - phi)
            more = self._extra_gains(gains) * self.extra[extras]
            for step in reversed(self.steps[1:]):
                more[above[step]] += more[step]
            return math.log(f), -np.concatenate([slope, more * (1 - part)]) / f

        whole = np.where(above < 0, 0.5, self.extra[extras][above])
        start = np.concatenate([_logit(self.phi[inner]), _logit(self.extra[extras] / whole)])
        if len(start) == 0:
            return self.evaluate()[0]
        options: dict[str, Any] = {
            "maxiter": iterations, "maxcor": 20, "ftol": tolerance, "gtol": 1e-14,
        }  # fmt: skip
        found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
        return math.exp(value_and_slope(found.x)[0])

    def _extra_gains(self, gains: FloatArray) -> FloatArray:
        """What a unit of every extra gains."""
        top = self.extras
        branch = self.heavy[top]
        own = np.where(self.tree.known[top], 0.0, gains[top])
        heavy = gains[branch] - (self.B[top] - self.H[branch]) - own
        return np.where(branch < 0, own - self.B[top], heavy)

    def find_heavy(self) -> bool:
        """Look for branches in which more gains more than all others lose, and for longer paths."""
        _, gains = self.evaluate()
        parent, known = self.tree.parent, self.tree.known
        best, following = heavy_paths(*self.tree.arrays, gains, self.H, self.B)
        over = np.full(self.tree.n, -np.inf)
        below = np.flatnonzero(self.private & (parent >= 0))
        over[below] = best[below] - (self.B[parent[below]] - self.H[below])
        top = np.unique(parent[below[known[parent[below]]]])
        if self.kind == BOTH and self.private[0]:
            top = np.r_[0, top]
        most = np.full(self.tree.n, -np.inf)
        np.maximum.at(most, parent[below], over[below])
        top = top[(self.heavy[top] >= 0) | (most[top] > 0)]
        changed = False
        for start in top.tolist():
            at, least = start, 0.0
            while self.heavy[at] >= 0 and self.extra[at] > LEAST_EXTRA:
                at = int(self.heavy[at])
            stale = at  # what is left of a path whose extra went
            while self.heavy[stale] >= 0:
                self.heavy[stale], stale = -1, int(self.heavy[stale])
                changed = True
            children = slice(self.tree.first[at], self.tree.first[at] + self.tree.children[at])
            if children.start == children.stop:
                continue
            if not known[at]:
                least = float(gains[at])
            if at == 0 and self.kind == BOTH and self.extra[0] > 0.1 * FIRST_EXTRA:
                continue
            child = children.start + int(np.argmax(over[children]))
            if not over[child] > least * (1 + TIES):
                continue
            extra = 2 * FIRST_EXTRA if at == start else float(self.extra[parent[at]])
            while child >= 0:
                extra /= 2
                self.heavy[at], self.extra[at] = child, extra
                at, child = child, int(following[child])
            changed = True
        self._choose()
        return changed

    def unstick(self) -> bool:
        """Give shares that went to an end some room where that pays: slopes vanish at the ends."""
        _, gains = self.evaluate()
        own, rest = gains[self.inner], self.B[self.inner]
        phi = self.phi[self.inner]
        up = (phi < STUCK) & (own > rest * (1 + UNEVEN))
        down = (phi > 1 - STUCK) & (rest > own * (1 + UNEVEN))
        moved = (up | down) & (self.budget[self.inner] > STUCK)
        self.phi[self.inner[moved]] = np.where(up, ROOM, 1 - ROOM)[moved]
        return bool(moved.any())

    def search(self, iterations: int, tolerance: float, sweeps: int) -> tuple[float, FloatArray]:
        """Return the least cost and its y, with heavy branches wherever they pay."""
        least, kept = math.inf, self.y
        for _ in range(MOST_PATHS):
            self.descend(iterations, tolerance)
            self.sweep(sweeps)
            found, _ = self.evaluate()
            # a descent may end early: in trees where it takes no time it is made once more
            slow = self.tree.n <= FEW_NODES and found < least * (1 - SETTLED)
            if found < least:
                least, kept = found, self.y.copy()
            longer, freed = self.find_heavy(), self.unstick()
            if not (longer or freed or slow):
                break
        return least, kept


def least_precisions(
    tree: Totals, cost: FloatArray, both: bool, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return precisions of (nearly) least cost with sensitivity 1, and their shares."""
    state = Shares(tree, cost, both)
    first = equal_shares(tree) if start is None else start
    state.phi[state.inner] = np.clip(first[state.inner], 1e-6, 1 - 1e-6)
    state.sweep(SWEEPS)
    _, y = state.search(ITERATIONS, 1e-13, SWEEPS)
    return y, state.phi


def least_scales(tree: Totals, cost: FloatArray, both: bool, gaussian: FloatArray) -> FloatArray:
    """Return y of Laplace noise of scale 1/y, with ε = 1: a local optimum, the best of some."""
    best: tuple[float, Shares] | None = None
    starts = [equal_shares(tree), np.full(tree.n, 0.01), gaussian]
    levels = np.unique(tree.depth[~tree.known & ~tree.leaf])
    if len(levels) <= MOST_LEVELS and tree.n <= FEW_NODES:
        for kept in itertools.product((0.0, 0.5), repeat=len(levels)):
            share = np.zeros(int(tree.depth.max()) + 1)
            share[levels] = kept
            starts.append(share[tree.depth])
    for start in starts:
        state = Shares(tree, cost, both, power=2)
        state.phi[state.inner] = np.clip(start[state.inner], 1e-6, 1 - 1e-6)
        state.sweep(SWEEPS // 2)
        found, _ = state.evaluate()
        if best is None or found < best[0]:
            best = (found, state)
    assert best is not None
    state = best[1]
    return state.search(ITERATIONS // 4, 1e-8, 0)[1]


def heaviest_sum(tree: Totals, both: bool, y: FloatArray) -> float:
    """Return the heaviest sum of y that the move of one person meets, in doubles."""
    path, pair = passes.heaviest(tree.parent, tree.known, y, both)
    return float(max(path, pair))


def equal_shares(tree: Totals) -> FloatArray:
    """Shares that give every level of the longest path below a node the same."""
    height = np.zeros(tree.n)
    for start, stop in reversed(tree.level_slices[1:]):
        above = tree.parent[start:stop]
        np.maximum.at(height, above, height[start:stop] + 1)
    return np.asarray(1.0 / (height + 1.0))


def level_precisions(tree: Totals, cost: FloatArray, both: bool) -> FloatArray:
    """Return precisions with one weight per level, of least cost, up to a factor: convex."""
    moves = level_moves(tree, both)
    return _one_per_level(tree, cost, 1, np.unique(tree.depth[~tree.known]), moves)


def level_scales(tree: Totals, cost: FloatArray, both: bool) -> FloatArray:
    """Return y of Laplace noise of scale 1/y with one weight per level, some of them 0.

    The problem is not convex where levels are left out: every set of levels that determines the
    cells is tried, or, of many, what is left when one level after the other goes.
    """
    used = np.unique(tree.depth[~tree.known]).tolist()
    cells = set(np.unique(tree.depth[tree.leaf & ~tree.known]).tolist())
    inner = [level for level in used if level not in cells]
    moves = level_moves(tree, both)

    def best_of(sets: Iterable[tuple[int, ...]]) -> tuple[float, tuple[int, ...], FloatArray]:
        found = []
        for kept in sets:
            y = _one_per_level(tree, cost, 2, np.array(sorted({*kept, *cells})), moves)
            error = float(cost @ passes.variances(*tree.arrays, y**2 / 2))
            found.append((error * heaviest_sum(tree, both, y) ** 2, kept, y))
        return min(found, key=lambda one: one[0])

    if len(inner) <= MOST_LEVELS and tree.n <= FEW_NODES:
        counts = range(len(inner) + 1)
        return best_of(c for k in counts for c in itertools.combinations(inner, k))[2]
    best = best_of([tuple(inner), ()])
    kept = tuple(inner)
    while kept and tree.n <= FEW_NODES:
        following = best_of(tuple(one for one in kept if one != left) for left in kept)
        best, kept = min(best, following, key=lambda one: one[0]), following[1]
    return best[2]


def level_moves(tree: Totals, both: bool) -> FloatArray:
    """Return how many numbers of every level the moves of a person change, one move per row.

    Moves that change no more in any level than another one are left out.
    """
    deepest = np.where(tree.leaf & ~tree.known, tree.depth, -1)
    second = np.full(tree.n, -1)
    for start, stop in reversed(tree.level_slices[1:]):
        own = start + np.flatnonzero(~tree.known[start:stop])
        own = own[np.lexsort((-deepest[own], tree.parent[own]))]
        first = np.r_[True, np.diff(tree.parent[own]) > 0][: len(own)]
        following = np.r_[False, first[:-1] & ~first[1:]][: len(own)]
        deepest[tree.parent[own[first]]] = deepest[own[first]]
        second[tree.parent[own[following]]] = deepest[own[following]]
    moved = (second >= 0) & (both | tree.known[tree.component])
    ends = np.unique(np.stack([tree.depth, deepest, second])[:, moved], axis=1).T
    levels = np.arange(int(tree.depth.max()) + 1)
    inside = [(levels > d) * ((levels <= a) * 1.0 + (levels <= b)) for d, a, b in ends]
    if not tree.known[0]:
        inside.append((levels <= deepest[0]) * 1.0)
    return _undominated(np.array(inside))


def _undominated(rows: FloatArray) -> FloatArray:
    """The rows that are not at most another one."""
    rows = np.unique(rows, axis=0)
    most = [i for i, row in enumerate(rows) if (rows >= row).all(axis=1).sum() == 1]
    return np.asarray(rows[most])


def _one_per_level(
    tree: Totals, cost: FloatArray, power: int, used: Indices, moves: FloatArray
) -> FloatArray:
    """Weights of some levels of (locally) least cost, up to a factor, and 0 of all others."""
    from scipy.optimize import minimize

    place = np.minimum(np.searchsorted(used, tree.depth), len(used) - 1)
    kept = ~tree.known & (used[place] == tree.depth)
    rows = _undominated(moves[:, used])
    alone = len(rows) == 1 or len(used) > MOST_WEIGHED
    longest = rows[int(np.argmax(rows.sum(axis=1)))] if alone else np.ones(len(used))
    # the weights of one move add up to 1, or all weights, and the largest move is divided by
    share = np.maximum(longest, 1.0)

    def weights(x: FloatArray) -> FloatArray:
        w = np.exp(np.maximum(x - x.max(), LEAST_LOG))  # squares of weights stay above 0
        return np.where(kept, (w / w.sum() / share)[place], 0.0)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        y = weights(x)
        f, gains = passes.cost_and_gains(*tree.arrays, y if power == 1 else y**2 / 2, cost)
        by_level = np.bincount(place, gains * y**power, len(used))
        w = np.exp(x - x.max())
        return math.log(f), -(by_level - w / w.sum() * by_level.sum()) / f

    start = np.zeros(len(used))
    if alone:
        return weights(minimize(value_and_slope, start, jac=True, method="L-BFGS-B").x)

    def spent(x: FloatArray) -> FloatArray:
        w = np.exp(np.maximum(x - x.max(), LEAST_LOG))
        return np.asarray(rows * (w / w.sum()))

    def with_most(z: FloatArray) -> tuple[float, FloatArray]:
        value, slope = value_and_slope(z[:-1])
        return value + power * z[-1], np.r_[slope, power]

    def slack(z: FloatArray) -> FloatArray:
        return np.asarray(z[-1] - np.log(spent(z[:-1]).sum(axis=1)))

    def slack_slope(z: FloatArray) -> FloatArray:
        part = spent(z[:-1])
        w = np.exp(np.maximum(z[:-1] - z[:-1].max(), LEAST_LOG))
        slope = w / w.sum() - part / part.sum(axis=1)[:, None]
        return np.column_stack([slope, np.ones(len(rows))])

    begin = np.r_[start, math.log(float(spent(start).sum(axis=1).max()))]
    found = minimize(
        with_most, begin, jac=True, method="SLSQP", options={"maxiter": 200, "ftol": 1e-10},
        constraints={"type": "ineq", "fun": slack, "jac": slack_slope},
    ).x[:-1]  # fmt: skip

    def value(x: FloatArray) -> float:
        return value_and_slope(x)[0] + power * math.log(float(spent(x).sum(axis=1).max()))

    return weights(min((start, found), key=value))


def _sigmoid(x: FloatArray) -> FloatArray:
    from scipy.special import expit

    return np.asarray(expit(x))


def _logit(p: FloatArray) -> FloatArray:
    inside = np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)
    return np.asarray(np.log(inside) - np.log1p(-inside))
