"""Whole numbers for one margin at all nodes of a tree: they add up over places, column by column.

Computed from what is published: it costs no budget.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals
from affinedp.exact.scaled import Integers


@compiled
def _shared(total, targets, spread, u, at_least_zero, out):  # type: ignore[no-untyped-def]
    """Write whole numbers near the targets, which add up to the whole number ``total``."""
    m = len(targets)
    off = float(total) - targets.sum()
    whole = spread.sum()
    least = 0.0
    for i in range(m):
        targets[i] += spread[i] * (off / whole)
        least = min(least, targets[i])
    if at_least_zero and total >= 0 and least < 0.0:
        # max(0, x + s θ) with the θ for which they add up: sort where terms begin
        begins = -targets / spread
        rank = np.argsort(begins)
        sum_x = 0.0
        sum_s = 0.0
        theta = 0.0
        for j in range(m):
            sum_x += targets[rank[j]]
            sum_s += spread[rank[j]]
            theta = (float(total) - sum_x) / sum_s
            if j == m - 1 or theta <= begins[rank[j + 1]]:
                break
        for i in range(m):
            targets[i] = max(0.0, targets[i] + spread[i] * theta)
    run = 0.0
    before = 0
    for i in range(m):
        run += targets[i]
        now = total if i == m - 1 else math.floor(run + u)
        if at_least_zero and total >= 0:
            now = min(max(now, before), total)
        out[i] = now - before
        before = now


@compiled
def _tables(first, children, spread, estimates, total, coins, at_least_zero):  # type: ignore[no-untyped-def]
    n, columns = estimates.shape
    out = np.zeros((n, columns), np.int64)
    _shared(total, estimates[0].copy(), np.ones(columns), coins[0, 0], at_least_zero, out[0])
    for v in range(n):
        if children[v] == 0:
            continue
        a, b = first[v], first[v] + children[v]
        for k in range(columns):
            targets = estimates[a:b, k].copy()
            _shared(
                out[v, k], targets, spread[a:b].copy(), coins[1 + v, k], at_least_zero, out[a:b, k]
            )
    return out


def whole_tables(
    tree: Totals, y: FloatArray, estimates: FloatArray, at_least_zero: bool
) -> Integers:
    """Return whole numbers near the estimates of one margin; every cell adds up over places.

    The table of the root is rounded first, so that it adds up to its total, and then every
    cell is split among the children of a node, from the top down.

    Parameters
    ----------
    tree : Totals
        The places.
    y : array
        Precisions of the nodes, breadth first; 0 where nothing was measured.
    estimates : array, shape (nodes, cells)
        Breadth first.
    at_least_zero : bool
        Whether nothing below 0 is published; cells are then no longer unbiased.

    Examples
    --------
    >>> from affinedp.domains.totals import Totals
    >>> tree = Totals.of([-1, 0, 0])
    >>> seen = np.array([[2.0, 3.5], [2.4, 0.5], [-0.4, 3.0]])
    >>> out = whole_tables(tree, np.ones(3), seen, True)
    >>> bool((out >= 0).all()), (out[0] == out[1] + out[2]).tolist()
    (True, [True, True])
    """
    s, S = np.zeros((2, tree.n))
    passes.up(*tree.arrays, y, s, S)
    generator = np.random.default_rng()  # public coins, not those of the noise
    total = float(estimates[0].sum())
    nearest = round(total)
    # a public total is whole up to rounding, and stays as it is
    whole = nearest if abs(total - nearest) < 1e-6 else math.floor(total + generator.random())
    coins = generator.random((tree.n + 1, estimates.shape[1]))
    seen = np.ascontiguousarray(estimates, dtype=float)
    if at_least_zero:
        whole = max(whole, 0)
    return np.asarray(_tables(tree.first, tree.children, s, seen, whole, coins, at_least_zero))
