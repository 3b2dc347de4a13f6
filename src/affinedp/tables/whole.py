"""Whole numbers that add up, near what was released, and at least 0 if asked: from the top down.

Everything here is computed from what is published: it costs no budget.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.strategies.tree import Tree, public_below

Integers = NDArray[np.int64]
# Beyond it doubles are no longer next to each other in whole numbers.
LARGEST = 2.0**53


def whole(mechanism: Mechanism, y: Any, *, nonnegative: bool = False) -> Any:
    """Return whole numbers near a release that add up exactly, as the true numbers do.

    They are rounded from the top down, with one uniform shift for every split: given the total,
    what comes out for every branch has its target as expectation.

    Parameters
    ----------
    mechanism : Mechanism
        Noise on a tree of totals.
    y : array
        What it released.
    nonnegative : bool
        Whether nothing below 0 comes out; cells are then biased, small ones upwards.

    Returns
    -------
    array of int
        In the order of ``y``; :func:`rounding_reach` says how far from it.

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6)
    >>> numbers = whole(m, m.release([0, 30, 41, 29]))          # the total is not read
    >>> int(numbers[0]) == int(numbers[1:].sum())
    True
    """
    strategy = mechanism.strategy
    if not isinstance(strategy, Tree):
        raise AffineDPError(f"{mechanism.domain.words} are not made whole here: round them")
    tree = strategy.domain
    estimates = strategy.flat(y)
    if estimates.ndim != 1:
        raise AffineDPError("one release is made whole at a time")
    if np.abs(estimates).max() >= LARGEST:
        raise AffineDPError("numbers beyond 2^53 are not known to the last digit")
    given = estimates[tree.order][:, None]
    known = tree.known[:, None]
    fixed = np.where(known, np.rint(given), 0).astype(np.int64)
    below = public_below(tree, fixed)  # is known, and stays as it is
    left = np.where(known, fixed - below, 0)
    coins = np.random.default_rng().random((tree.n + 1, 1))  # public coins, not those of the noise
    if not tree.known[0]:
        left[0, 0] = math.floor(float(given[0, 0] - below[0, 0]) + coins[0, 0])
        left[0, 0] = max(left[0, 0], 0) if nonnegative else left[0, 0]
    found = whole_tables(tree, strategy.inverse**2, given - below, left, coins, nonnegative)
    return np.asarray(tree.outside(np.where(known, fixed, found + below))[:, 0])


def rounding_reach(mechanism: Mechanism) -> float:
    """Return how far whole numbers are from what was released, at most: 1 / (1 − r).

    Parameters
    ----------
    mechanism : Mechanism
        Noise on a tree of totals; numbers may be negative.
    """
    strategy = mechanism.strategy
    if mechanism.noise.whole or not isinstance(strategy, Tree):
        return 0.0
    tree = strategy.domain
    s, S = _spreads(tree, strategy.inverse**2)
    private = ~tree.known
    counts = np.bincount(tree.parent[1:][private[1:]], minlength=tree.n)
    chosen = np.flatnonzero(private & (tree.parent >= 0))
    chosen = chosen[counts[tree.parent[chosen]] > 1]
    if not len(chosen):
        return 1.0
    r = float((s[chosen] / S[tree.parent[chosen]]).max())
    return min(1.0 / max(1.0 - r, 1e-12), float(tree.depth.max() + 1))


def whole_tables(
    tree: Totals,
    y: FloatArray,
    estimates: FloatArray,
    totals: Integers,
    coins: FloatArray,
    at_least_zero: bool,
) -> Integers:
    """Return whole numbers near the estimates; every column adds up over the tree.

    Parameters
    ----------
    tree : Totals
        The places.
    y : array
        Precisions of the nodes, breadth first; 0 where nothing was measured.
    estimates : array, shape (nodes, columns)
        Breadth first, without the public numbers below.
    totals : array of int, shape (nodes, columns)
        What comes out at the root and at public nodes.
    coins : array, shape (nodes + 1, columns)
        Uniform numbers in [0, 1).
    at_least_zero : bool
        Whether nothing below 0 comes out.
    """
    s, _ = _spreads(tree, y)
    out = totals.astype(np.int64)
    seen = np.ascontiguousarray(estimates, dtype=float)
    _down(tree.first, tree.children, tree.known, s, seen, coins, at_least_zero, out)
    return out


def _spreads(tree: Totals, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    s, S = np.zeros((2, tree.n))
    passes.up(*tree.arrays, y, s, S)
    return s, S


@compiled
def split(total, targets, spread, u, at_least_zero, out):  # type: ignore[no-untyped-def]
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
def _down(first, children, known, spread, estimates, coins, at_least_zero, out):  # type: ignore[no-untyped-def]
    """Split the number of every node among its private children, from the top down."""
    n, columns = estimates.shape
    most = children.max() + 1
    place = np.empty(most, np.int64)
    targets = np.empty(most)
    spreads = np.empty(most)
    found = np.empty(most, np.int64)
    for v in range(n):
        m = 0
        for i in range(first[v], first[v] + children[v]):
            if not known[i]:
                place[m] = i
                m += 1
        if m == 0:
            continue
        for k in range(columns):
            for j in range(m):
                targets[j] = estimates[place[j], k]
                spreads[j] = spread[place[j]]
            split(out[v, k], targets[:m], spreads[:m], coins[1 + v, k], at_least_zero, found[:m])
            for j in range(m):
                out[place[j], k] = found[j]
