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
from affinedp.strategies.margins import OfMargins
from affinedp.strategies.places import OfPlaces
from affinedp.strategies.product import Product
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
        Noise on a tree of totals, or on margins, also in many places.
    y : array, or mapping
        What it released.
    nonnegative : bool
        Whether nothing below 0 comes out; cells are then biased, small ones upwards.

    Returns
    -------
    array of int, or mapping from margins to arrays
        In the form of ``y``; for trees :func:`rounding_reach` says how far from it.  Every margin
        adds up by itself and over places; margins agree with each other before rounding only.

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6)
    >>> numbers = whole(m, m.release([0, 30, 41, 29]))          # the total is not read
    >>> int(numbers[0]) == int(numbers[1:].sum())
    True
    """
    strategy = mechanism.strategy
    if isinstance(strategy, OfMargins | OfPlaces):
        rows = {chosen: (-1, math.prod(strategy.shape(chosen))) for chosen in strategy.margins}
        return {
            chosen: whole_margin(
                strategy, np.reshape(y[chosen], rows[chosen]), nonnegative
            ).reshape(np.shape(y[chosen]))
            for chosen in strategy.margins
        }
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

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6, law="gaussian")
    >>> 1 <= rounding_reach(m) <= 2
    True
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


def whole_margin(
    strategy: OfMargins | OfPlaces, estimates: FloatArray, nonnegative: bool
) -> Integers:
    """Return whole numbers near the estimates of one margin; every cell adds up over places.

    The table of the root is rounded first, so that it adds up to its total, and then every
    cell is split among the children of a node, from the top down.

    Parameters
    ----------
    strategy : OfMargins or OfPlaces
        What was measured.
    estimates : array, shape (nodes, cells)
        In the given order; one row if there are no places.
    nonnegative : bool
        Whether nothing below 0 comes out.
    """
    if isinstance(strategy, OfMargins):
        tree, y = Totals.of([-1]), np.ones(1)
    else:
        tree = strategy.tree
        y = strategy.y if isinstance(strategy, Product) else tree.leaf.astype(float)
    seen = np.asarray(tree.inside(estimates), dtype=float)
    generator = np.random.default_rng()  # public coins, not those of the noise
    total = float(seen[0].sum())
    nearest = round(total)
    # a public total is whole up to rounding, and stays as it is
    top = nearest if abs(total - nearest) < 1e-6 else math.floor(total + generator.random())
    coins = generator.random((tree.n + 1, seen.shape[1]))
    totals = np.zeros(seen.shape, np.int64)
    top = max(top, 0) if nonnegative else top
    split(top, seen[0].copy(), np.ones(seen.shape[1]), coins[0, 0], nonnegative, totals[0])
    found = whole_tables(tree, y, seen, totals, coins, nonnegative)
    return np.asarray(tree.outside(found), dtype=np.int64)


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
