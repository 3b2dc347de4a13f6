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
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Totals

SWEEPS = 40
ITERATIONS = 200
# Gains of 1/y and of 1/y² balance where shares are multiplied by these powers of them.
POWERS = {1: 1 / 2, 2: 1 / 3}
LEAST_SHARE = 1e-12
# Weights of 0 are taken for this share of the mean, so that every cell has some precision.
LEAST_WEIGHT = 1e-9
# Where the heavy branch, or what is below the root, starts from.
FIRST_EXTRA = 0.05

# Levels above the cells of which all sets are tried, and nodes up to which they are.
MOST_LEVELS = 6
FEW_NODES = 5_000
LEAST_LOG = -60.0

JOIN, BOTH = 0, 1


@compiled
def tops(parent, known, kind, heavy, extra, budget, offset):  # type: ignore[no-untyped-def]
    """Fill in what the paths of every class may spend, and what its top has beside.

    A person who joins is seen on one path: it may spend 1.  One who moves is seen on two branches:
    they may spend 1 together, so ½ each; or the heavy branch ½ + e, of which e at its top (so that
    two branches inside it spend ½ each), and all others ½ − e.  For both kinds of neighbours at
    once the root takes 1 − b, and every path below it b ≤ ½."""
    for v in range(len(parent)):
        if known[v]:
            continue
        if v == 0:
            if kind == BOTH:
                budget[0] = 0.5 - extra[0]
                offset[0] = 0.5 + extra[0]
            else:
                budget[0] = 1.0
        elif known[parent[v]]:
            p = parent[v]
            if heavy[p] == v:
                budget[v] = 0.5
                offset[v] = extra[p]
            else:
                budget[v] = 0.5 - (extra[p] if heavy[p] >= 0 else 0.0)


@compiled
def spend(parent, leaf, known, phi, budget, offset, y):  # type: ignore[no-untyped-def]
    """Fill y from the shares; ``budget`` is filled below the tops."""
    for v in range(len(parent)):
        if known[v]:
            y[v] = 0.0
            continue
        if v > 0 and not known[parent[v]]:
            p = parent[v]
            budget[v] = budget[p] * (1.0 - phi[p])
        y[v] = offset[v] + (budget[v] if leaf[v] else phi[v] * budget[v])


@compiled
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


@compiled
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
        inner = private & ~tree.leaf
        if self.kind == BOTH:
            inner[0] = False  # the root has what its offset gives
        self.inner = np.flatnonzero(inner)
        self.extras = np.zeros(0, np.int64)
        if self.kind == BOTH and private[0]:
            self.extras = np.array([0])
            self.extra[0] = FIRST_EXTRA
        self.y, self.budget, self.offset, self.H, self.B = np.zeros((5, n))

    def evaluate(self) -> tuple[float, FloatArray]:
        """Return the cost and the gains of y."""
        arrays = self.tree.arrays
        tops(
            self.tree.parent, self.tree.known, self.kind, self.heavy, self.extra, self.budget,
            self.offset,
        )  # fmt: skip
        spend(*arrays, self.phi, self.budget, self.offset, self.y)
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

        inner, extras = self.inner, self.extras
        split = len(inner)

        def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
            self.phi[inner] = np.clip(_sigmoid(x[:split]), LEAST_SHARE, 1 - LEAST_SHARE)
            self.extra[extras] = 0.5 * _sigmoid(x[split:])
            f, gains = self.evaluate()
            phi, extra = self.phi[inner], self.extra[extras]
            slope = self.budget[inner] * (gains[inner] - self.B[inner]) * phi * (1 - phi)
            more = self._extra_gains(gains) * extra * (1 - 2 * extra)
            return math.log(f), -np.concatenate([slope, more]) / f

        start = np.concatenate([_logit(self.phi[inner]), _logit(2 * self.extra[extras])])
        if len(start) == 0:
            return self.evaluate()[0]
        options: dict[str, Any] = {
            "maxiter": iterations, "maxcor": 20, "ftol": tolerance, "gtol": 1e-14,
        }  # fmt: skip
        found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options)
        return math.exp(value_and_slope(found.x)[0])

    def _extra_gains(self, gains: FloatArray) -> FloatArray:
        """What a unit of every extra gains."""
        found = np.empty(len(self.extras))
        for i, top in enumerate(self.extras):
            if not self.tree.known[top]:
                found[i] = gains[0] - self.B[0]
            else:
                branch = self.heavy[top]
                found[i] = gains[branch] - (self.B[top] - self.H[branch])
        return found

    def find_heavy(self) -> bool:
        """Look for classes in which one branch gains more than all others lose."""
        _, gains = self.evaluate()
        top = np.flatnonzero(~self.tree.known & (self.tree.parent >= 0))
        top = top[self.tree.known[self.tree.parent[top]]]
        above = self.tree.parent[top]
        better = gains[top] > self.B[above] - self.H[top]
        if not better.any():
            return False
        # at most one branch of a class can outweigh all others, but for ties
        self.heavy[above[better]] = top[better]
        chosen = np.unique(above[better])
        self.extra[chosen] = FIRST_EXTRA
        self.extras = np.concatenate([self.extras, chosen])
        return True


def least_precisions(
    tree: Totals, cost: FloatArray, both: bool, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return precisions of (nearly) least cost with sensitivity 1, and their shares."""
    state = Shares(tree, cost, both)
    first = equal_shares(tree) if start is None else start
    state.phi[state.inner] = np.clip(first[state.inner], 1e-6, 1 - 1e-6)
    state.sweep(SWEEPS)
    plain = state.descend(ITERATIONS)
    state.sweep(SWEEPS)
    plain, _ = state.evaluate()
    best = (plain, state.y.copy(), state.phi.copy())
    if state.find_heavy():
        state.descend(ITERATIONS)
        state.sweep(SWEEPS)
        heavier = state.descend(ITERATIONS)
        if heavier < plain:
            best = (heavier, state.y.copy(), state.phi.copy())
    return best[1], best[2]


def least_scales(tree: Totals, cost: FloatArray, both: bool, gaussian: FloatArray) -> FloatArray:
    """Return y of Laplace noise of scale 1/y, with ε = 1; a local optimum, the best of three."""
    best: tuple[float, Shares] | None = None
    starts: tuple[Callable[[], FloatArray], ...] = (
        lambda: equal_shares(tree),
        lambda: np.full(tree.n, 0.01),
        lambda: gaussian,
    )
    for start in starts:
        state = Shares(tree, cost, both, power=2)
        state.phi[state.inner] = np.clip(start()[state.inner], 1e-6, 1 - 1e-6)
        state.sweep(SWEEPS // 2)
        found, _ = state.evaluate()
        if best is None or found < best[0]:
            best = (found, state)
    assert best is not None
    state = best[1]
    state.descend(ITERATIONS // 4, 1e-8)
    if state.find_heavy():
        state.descend(ITERATIONS // 4, 1e-8)
    return state.y


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


def level_precisions(tree: Totals, cost: FloatArray) -> FloatArray:
    """Return precisions with one weight per level, of least cost, up to a factor: convex."""
    return _one_per_level(tree, cost, 1, np.unique(tree.depth[~tree.known]))


def level_scales(tree: Totals, cost: FloatArray, both: bool) -> FloatArray:
    """Return y of Laplace noise of scale 1/y with one weight per level, some of them 0.

    The problem is not convex where levels are left out: every set of levels that determines the
    cells is tried, or, of many, what is left when one level after the other goes.
    """
    used = np.unique(tree.depth[~tree.known]).tolist()
    cells = set(np.unique(tree.depth[tree.leaf & ~tree.known]).tolist())
    inner = [level for level in used if level not in cells]

    def best_of(sets: Iterable[tuple[int, ...]]) -> tuple[float, tuple[int, ...], FloatArray]:
        found = []
        for kept in sets:
            y = _one_per_level(tree, cost, 2, np.array(sorted({*kept, *cells})))
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


def _one_per_level(tree: Totals, cost: FloatArray, power: int, used: Indices) -> FloatArray:
    """Weights of some levels of (locally) least cost, up to a factor, and 0 of all others."""
    from scipy.optimize import minimize

    place = np.minimum(np.searchsorted(used, tree.depth), len(used) - 1)
    kept = ~tree.known & (used[place] == tree.depth)

    def weights(x: FloatArray) -> FloatArray:
        w = np.exp(np.maximum(x - x.max(), LEAST_LOG))  # squares of weights stay above 0
        return np.where(kept, (w / w.sum())[place], 0.0)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        y = weights(x)
        f, gains = passes.cost_and_gains(*tree.arrays, y if power == 1 else y**2 / 2, cost)
        by_level = np.bincount(place, gains * y**power, len(used))
        w = np.exp(x - x.max())
        return math.log(f), -(by_level - w / w.sum() * by_level.sum()) / f

    start = np.zeros(len(used))
    return weights(minimize(value_and_slope, start, jac=True, method="L-BFGS-B").x)


def _sigmoid(x: FloatArray) -> FloatArray:
    from scipy.special import expit

    return np.asarray(expit(x))


def _logit(p: FloatArray) -> FloatArray:
    inside = np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)
    return np.asarray(np.log(inside) - np.log1p(-inside))
