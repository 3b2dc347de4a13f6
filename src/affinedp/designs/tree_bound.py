"""What no Gaussian mechanism on a tree of totals goes below.

For weights d of the neighbours, the dual of least noise is (Σ √λ)², with λ the eigenvalues of a
pencil of two quadratic forms that live on the tree.  Eigenvalues above t are counted by eliminating
the tree with one number per node; the counts give Σ √λ from below.
docs/explanation/trees-and-margins.md has the proof.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled_later
from affinedp.designs.least_tree import leaf_weights
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Marks, Totals
from affinedp.errors import AffineDPError

MOST_COUNTS = 3000
# Nodes up to which every bound for both kinds of neighbours is tried.
FEW = 20_000
# Counting is in double precision, not in intervals: the bound is lowered by this share.
COUNTING = 1e-6


class PoorDesignError(AffineDPError):
    """A tree for which noise per number is far from the least: a deep chain, most likely.

    Attributes
    ----------
    gap : float
        How far, relatively, above the lower bound.
    """

    def __init__(self, message: str, gap: float) -> None:
        self.gap = gap
        super().__init__(message)


@compiled_later
def count_above(parent, leaf, c, e, t, root_known):  # type: ignore[no-untyped-def]
    """Count the positive eigenvalues of Σ (c_v − t e_v) X_v² over the cells x."""
    n = len(parent)
    T = np.zeros(n)
    negative = np.zeros(n, np.int64)
    cells = 0
    bad = 0
    for v in range(n - 1, -1, -1):
        k = c[v] - t * e[v]
        if leaf[v]:
            cells += 1
        else:
            bad += negative[v] - (1 if T[v] < 0 else 0)
            if v == 0 and root_known:
                return cells - 1 - bad
            k += 1.0 / T[v] if T[v] != 0 else 1e300
        if v == 0:
            return cells - bad - (1 if k < 0 else 0)
        if k == 0:
            k = -1e-300
        if k < 0:
            negative[parent[v]] += 1
        T[parent[v]] += 1.0 / k
    return 0


@compiled_later
def without_twins(parent, leaf, c, e):  # type: ignore[no-untyped-def]
    """Take out children that are alike: their contrasts are eigenvectors, √(c/e) each."""
    n = len(parent)
    kept = np.ones(n, np.bool_)
    ends = leaf.copy()
    children = np.zeros(n, np.int64)
    alike = np.ones(n, np.bool_)
    child_c = np.zeros(n)
    child_e = np.zeros(n)
    extra = 0.0
    for v in range(n - 1, 0, -1):
        if not leaf[v] and alike[v]:
            k = children[v]
            extra += (k - 1) * np.sqrt(child_c[v] / child_e[v])
            c[v] += child_c[v] / k
            e[v] += child_e[v] / k
            ends[v] = True
        p = parent[v]
        if not ends[v] or e[v] <= 0.0:
            alike[p] = False
        elif children[p] == 0:
            child_c[p] = c[v]
            child_e[p] = e[v]
        else:
            close = abs(e[v] - child_e[p]) <= 1e-9 * child_e[p]
            alike[p] = alike[p] and close and abs(c[v] - child_c[p]) <= 1e-12 * child_c[p]
            # a smaller first form and a larger second one only lower the bound
            child_c[p] = min(child_c[p], c[v])
            child_e[p] = max(child_e[p], e[v])
        children[p] += 1
    for v in range(1, n):
        p = parent[v]
        if not kept[p] or (p > 0 and ends[p]):
            kept[v] = False
    return kept, ends, extra


@compiled_later
def sum_of_roots(parent, leaf, c, e, root_known, tolerance, most):  # type: ignore[no-untyped-def]
    """Return a lower bound of Σ √λ: areas under the counting function, halved where it matters."""
    cells = 0
    for v in range(len(leaf)):
        if leaf[v]:
            cells += 1
    dimension = cells - (1 if root_known else 0)
    high = 1.0
    while count_above(parent, leaf, c, e, high * high, root_known) > 0:
        high *= 2.0
    while high > 1e-150 and count_above(parent, leaf, c, e, high * high / 4, root_known) == 0:
        high /= 2.0
    left = np.empty(most + 50)
    right = np.empty(most + 50)
    at_left = np.empty(most + 50, np.int64)
    at_right = np.empty(most + 50, np.int64)
    used = 0
    before = 0.0
    count_before = dimension
    for i in range(24, -1, -1):
        u = high * 2.0**-i
        count = count_above(parent, leaf, c, e, u * u, root_known)
        left[used], right[used], at_left[used], at_right[used] = before, u, count_before, count
        used += 1
        before = u
        count_before = count
    for _ in range(most):
        low = 0.0
        slack = 0.0
        worst = 0
        most_slack = 0.0
        for i in range(used):
            low += (right[i] - left[i]) * at_right[i]
            mine = (right[i] - left[i]) * (at_left[i] - at_right[i])
            slack += mine
            if mine > most_slack:
                most_slack = mine
                worst = i
        if slack <= tolerance * low or most_slack <= 0:
            break
        middle = (left[worst] + right[worst]) / 2
        count = count_above(parent, leaf, c, e, middle * middle, root_known)
        left[used], right[used] = middle, right[worst]
        at_left[used], at_right[used] = count, at_right[worst]
        right[worst], at_right[worst] = middle, count
        used += 1
    low = 0.0
    for i in range(used):
        low += (right[i] - left[i]) * at_right[i]
    return low


def lower_bound(
    tree: Totals,
    cost: FloatArray,
    both: bool,
    y: FloatArray,
    cost_floor: FloatArray,
) -> float:
    """Return what no Gaussian mechanism with sensitivity 1 goes below in weighted squared error.

    It is computed, not proved in interval arithmetic, and lowered by 10⁻⁶ for that.
    """
    _, gains = passes.cost_and_gains(*tree.arrays, y, cost_floor)
    weights, below = leaf_weights(*tree.arrays, y, gains)
    tolerance = 2e-4 if tree.n > 50_000 else 2e-5
    component = tree.component
    order = np.argsort(component, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(component[order]) > 0])
    local = np.empty(tree.n, np.int64)
    total = 0.0
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), tree.n]):
        nodes = order[start:stop]
        if len(nodes) == 1 and tree.known[nodes[0]]:
            continue
        local[nodes] = np.arange(len(nodes))
        parent = np.r_[-1, local[tree.parent[nodes[1:]]]]
        parts = (parent, tree.leaf[nodes], cost[nodes], weights[nodes])
        if tree.known[nodes[0]]:
            total += _replace_bound(*parts, tolerance)
        else:
            found = 0.0
            if both:
                joins = min(1.0, float(gains[0] / below)) if below > 0 else 1.0
                found = _both_bound(*parts, joins, tolerance)
            if found == 0.0 or len(nodes) <= FEW:
                found = max(found, _join_bound(*parts, tolerance))
            if both and len(nodes) <= FEW:
                found = max(found, _replace_bound(*parts, tolerance))
            total += found
    return total * (1 - COUNTING)


def _sum_of_roots(
    parent: Indices, leaf: Marks, c: FloatArray, e: FloatArray, root_known: bool, tolerance: float
) -> float:
    """Σ √λ from below, children that are alike taken out first."""
    c, e = c.copy(), e.copy()
    kept, ends, extra = without_twins(parent, leaf, c, e)
    place = np.cumsum(kept) - 1
    above = np.where(parent[kept] >= 0, place[parent[kept]], -1)
    parts = (above, ends[kept], c[kept], e[kept], root_known, tolerance, MOST_COUNTS)
    return float(extra) + float(sum_of_roots(*parts))


def _join_bound(
    parent: Indices, leaf: Marks, c: FloatArray, d: FloatArray, tolerance: float
) -> float:
    """One person joins: weights d on the cells, which add up to 1."""
    weight = d / d[leaf].sum()
    e = np.where(leaf, 1 / weight, 0.0)
    return _sum_of_roots(parent, leaf, c, e, False, tolerance) ** 2


def _replace_bound(
    parent: Indices, leaf: Marks, c: FloatArray, d: FloatArray, tolerance: float
) -> float:
    """One person moves: weights on pairs of cells, in different branches or anywhere."""
    if leaf.sum() < 2:
        return 0.0  # nobody can move
    parent, leaf, c, d = _without_only_children(parent, leaf, c, d)
    below = c.copy()
    below[0] = 0.0  # x adds up to 0
    weight = d / d[leaf].sum()
    e = np.where(leaf, 1 / weight, 0.0)
    pairs = (1 - float((weight[leaf] ** 2).sum())) / 2
    found = _sum_of_roots(parent, leaf, below, e, True, tolerance) ** 2 / pairs
    top = np.flatnonzero(parent == 0)
    if len(top) < 2:
        return found
    branch = _branches(parent, top)
    load = branch_weights(d[top] / d[top].sum())
    scaled = d * np.r_[1.0, load / d[top]][branch]
    share = np.r_[0.0, load][branch]
    e = np.zeros(len(parent))
    e[leaf] = 1 / (scaled[leaf] * (1 - share[leaf]))
    e[top] -= 1 / (1 - load)
    pairs = (1 - float((load**2).sum())) / 2
    other = _sum_of_roots(parent, leaf, below, e, True, tolerance) ** 2 / pairs
    return max(found, other)


def _both_bound(
    parent: Indices, leaf: Marks, c: FloatArray, d: FloatArray, joins: float, tolerance: float
) -> float:
    """A share of people who join, d, and the rest who move between any two cells, d d'.

    ``α diag(d) + (1 − α)(diag(d) − d dᵀ)`` has the inverse ``diag(1/d) + (1 − α)/α 11ᵀ``: one more
    term, at the root.
    """
    if leaf.sum() < 2:
        return 0.0
    weight = d / d[leaf].sum()
    pairs = (1 - float((weight[leaf] ** 2).sum())) / 2
    best = 0.0
    for factor in (0.85, 1.0, 1.2):
        alpha = min(max(joins * factor, 1e-3), 1.0)
        e = np.where(leaf, 1 / weight, 0.0)
        e[0] += (1 - alpha) / alpha
        found = _sum_of_roots(parent, leaf, c, e, False, tolerance) ** 2
        best = max(best, found / (alpha + (1 - alpha) * pairs))
    return best


def _without_only_children(
    parent: Indices, leaf: Marks, c: FloatArray, d: FloatArray
) -> tuple[Indices, Marks, FloatArray, FloatArray]:
    """Where the root has one child, that child is the same number: start from it."""
    skip = 0
    while (parent == skip).sum() == 1 and not leaf[skip + 1]:
        skip += 1
    if skip == 0:
        return parent, leaf, c, d
    return np.maximum(parent[skip:] - skip, -1), leaf[skip:], c[skip:], d[skip:]


@compiled_later
def _branches(parent, top):  # type: ignore[no-untyped-def]
    """Return for every node the number of its top branch, from 1; 0 at the root."""
    branch = np.zeros(len(parent), np.int64)
    for i in range(len(top)):
        branch[top[i]] = i + 1
    for v in range(1, len(parent)):
        if parent[v] != 0:
            branch[v] = branch[parent[v]]
    return branch


def branch_weights(load: FloatArray) -> FloatArray:
    """Return q with q (1 − q) proportional to the load of every branch, and sum 1.

    Pairs of branches drawn with q q' then load the branches as asked; ½ for a branch that
    outweighs the rest.
    """
    if len(load) == 2:
        return np.array([0.5, 0.5])
    largest = int(load.argmax())
    relative = load / load[largest]
    if relative.sum() <= 2.0:
        q = relative / (relative.sum() - 1) / 2
        q[largest] = 0.5
        return np.asarray(q / q.sum())

    def q_of(k: float, other: bool) -> FloatArray:
        found = (1 - np.sqrt(1 - k * relative)) / 2
        if other:  # the heaviest branch takes the other root
            found[largest] = 1 - found[largest]
        return np.asarray(found)

    other = float(q_of(1.0, False).sum()) < 1
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if (float(q_of(middle, other).sum()) < 1) != other:
            low = middle
        else:
            high = middle
    q = q_of(high, other)
    return np.asarray(q / math.fsum(q))
