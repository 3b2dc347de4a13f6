"""Whole numbers that add up, near the estimates, and at least 0 if asked: from the top down.

Everything here is computed from what is published: it costs no budget.
"""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.designs.structured.integer_noise import Integers
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Totals


@compiled
def _whole(parent, leaf, known, first, children, y, seen, totals, u, at_least_zero):  # type: ignore[no-untyped-def]
    n = len(parent)
    s = np.zeros(n)
    S = np.zeros(n)
    z = seen.copy()
    Z = np.zeros(n)
    for v in range(n - 1, -1, -1):
        if known[v]:
            continue
        if leaf[v]:
            s[v] = 1.0 / y[v]
        else:
            s[v] = 1.0 / (y[v] + 1.0 / S[v])
            z[v] = s[v] * (y[v] * seen[v] + Z[v] / S[v])
        if v > 0:
            S[parent[v]] += s[v]
            Z[parent[v]] += z[v]
    out = np.zeros(n, np.int64)
    x = np.empty(children.max() + 1)
    below = np.empty(children.max() + 1)
    for v in range(n):
        if known[v]:
            out[v] = totals[v]
        elif v == 0:
            out[v] = math.floor(z[v] + u[n])
            if at_least_zero and out[v] < 0:
                out[v] = 0
        if leaf[v] or S[v] == 0.0:
            continue
        a = first[v]
        b = a + children[v]
        R = out[v]
        theta = (R - Z[v]) / S[v]
        last = -1
        least = 0.0
        for i in range(a, b):
            if known[i]:
                continue
            last = i
            x[i - a] = z[i] + s[i] * theta
            least = min(least, x[i - a])
        bounded = at_least_zero and R >= 0
        if bounded and least < 0.0:
            # x = max(0, z + s θ) with the θ for which they add up to R: sort where terms begin
            m = 0
            for i in range(a, b):
                if not known[i]:
                    below[m] = -z[i] / s[i]
                    x[m] = i
                    m += 1
            rank = np.argsort(below[:m])
            sum_z = 0.0
            sum_s = 0.0
            for j in range(m):
                i = int(x[rank[j]])
                sum_z += z[i]
                sum_s += s[i]
                theta = (R - sum_z) / sum_s
                if j == m - 1 or theta <= below[rank[j + 1]]:
                    break
            for i in range(a, b):
                x[i - a] = max(0.0, z[i] + s[i] * theta)
        run = 0.0
        before = 0
        for i in range(a, b):
            if known[i]:
                continue
            run += x[i - a]
            if i == last:
                now = R
            else:
                now = math.floor(run + u[v])
                if bounded:
                    now = min(max(now, before), R)
            out[i] = now - before
            before = now
    return out


def whole_numbers(
    tree: Totals, y: FloatArray, seen: FloatArray, fixed: Integers, at_least_zero: bool
) -> Integers:
    """Return whole numbers that add up exactly, each within 1 of its target.

    Sums that are rounded with one uniform shift for every split are unbiased: given the total,
    what is published of every branch has its target as expectation.

    Parameters
    ----------
    tree : Totals
        The numbers.
    y : array
        Precisions.
    seen : array
        Noisy numbers, without the public cells below them.
    fixed : array of int
        What the private cells under every public total add up to; used at public nodes only.
    at_least_zero : bool
        Whether nothing below 0 is published; cells are then no longer unbiased.
    """
    u = np.random.default_rng().random(tree.n + 1)  # public coins, not those of the noise
    parts = (*tree.arrays, tree.first, tree.children, y, seen, fixed, u, at_least_zero)
    return np.asarray(_whole(*parts))


def public_below(tree: Totals, totals: Integers) -> Integers:
    """Return what public numbers strictly below every node add up to: the part without noise.

    Parameters
    ----------
    tree : Totals
        The numbers.
    totals : array of int
        All numbers; only public ones are looked at.
    """
    part = np.zeros(tree.n, totals.dtype)
    for start, stop in reversed(tree.level_slices[1:]):
        nodes = slice(start, stop)
        whole = np.where(tree.known[nodes], totals[nodes], part[nodes])
        np.add.at(part, tree.parent[nodes], whole)
    return part


def rounding_reach(tree: Totals, y: FloatArray) -> float:
    """Return how far whole numbers are from the estimates, at most: 1 / (1 − r).

    Parameters
    ----------
    tree : Totals
        The numbers.
    y : array
        Precisions.
    """
    s, S = np.zeros((2, tree.n))
    passes.up(*tree.arrays, y, s, S)
    private = ~tree.known
    counts = np.bincount(tree.parent[1:][private[1:]], minlength=tree.n)
    chosen = np.flatnonzero(private & (tree.parent >= 0))
    chosen = chosen[counts[tree.parent[chosen]] > 1]
    if not len(chosen):
        return 1.0
    r = float((s[chosen] / S[tree.parent[chosen]]).max())
    return min(1.0 / max(1.0 - r, 1e-12), float(tree.depth.max() + 1))
