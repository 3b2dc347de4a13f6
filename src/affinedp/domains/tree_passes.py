"""Two passes over a tree: variances, their gradient, estimates, heaviest branches; all in O(n).

Nodes come breadth first, so that a parent stands before its children.  Node v carries independent
noise of precision y_v; a *known* node is public, and no noise is added to it.  What lies below a
known node does not depend on what lies above it.
"""

from __future__ import annotations

import numpy as np

from affinedp.compiling import compiled_later


@compiled_later
def breadth_first(parent, first, kids):  # type: ignore[no-untyped-def]
    """Return the nodes breadth first, children side by side; fewer than all if there is a cycle."""
    n = len(parent)
    order = np.empty(n, np.int64)
    filled = 0
    for v in range(n):
        if parent[v] < 0:
            order[filled] = v
            filled += 1
    at = 0
    while at < filled:
        v = order[at]
        at += 1
        for i in range(first[v], first[v + 1]):
            order[filled] = kids[i]
            filled += 1
    return order[:filled]


@compiled_later
def closed_known(parent, leaf, known):  # type: ignore[no-untyped-def]
    """Mark what public totals determine: nodes with none or all of the cells of their class."""
    n = len(parent)
    free = np.zeros(n, np.int64)  # children that are not known
    for v in range(n - 1, -1, -1):
        if not leaf[v] and free[v] == 0:
            known[v] = True
        if v > 0 and not known[v]:
            free[parent[v]] += 1
    for v in range(1, n):
        p = parent[v]
        if known[p] and not known[v] and free[p] == 1:
            known[v] = True
    return free


@compiled_later
def up(parent, leaf, known, y, s, S):  # type: ignore[no-untyped-def]
    """Fill the variance s of the estimate from below, and its sum S over the children."""
    n = len(parent)
    S[:] = 0.0
    for v in range(n - 1, -1, -1):
        if known[v]:
            s[v] = 0.0
            continue
        s[v] = 1.0 / (y[v] if leaf[v] else y[v] + 1.0 / S[v])
        if v > 0:
            S[parent[v]] += s[v]


@compiled_later
def largest_children(parent, known, s, top, rest):  # type: ignore[no-untyped-def]
    """Fill the child with the largest s of every node, and the sum of s over its other children.

    1 − r of that child is rest / S; where one child has nearly all of S, 1 − s / S is lost to
    rounding, and a number with noise would seem to have none.
    """
    top[:] = -1
    rest[:] = 0.0
    for v in range(1, len(parent)):
        if known[v]:
            continue
        p = parent[v]
        if top[p] < 0:
            top[p] = v
        elif s[v] > s[top[p]]:
            rest[p] += s[top[p]]
            top[p] = v
        else:
            rest[p] += s[v]


@compiled_later
def passed_on(parent, known, s, S, top, rest, kept, variance):  # type: ignore[no-untyped-def]
    """Fill 1 − r and the variance of every node, from the top down."""
    for v in range(len(parent)):
        if known[v]:
            continue
        if v == 0:
            variance[v] = s[v]
            continue
        p = parent[v]
        r = s[v] / S[p]
        kept[v] = rest[p] / S[p] if v == top[p] else 1.0 - r
        variance[v] = s[v] * kept[v] + r * r * variance[p]


@compiled_later
def both_passes(parent, leaf, known, y):  # type: ignore[no-untyped-def]
    """Return what the passes up and down leave at every node: s, S, top, kept, variance."""
    n = len(parent)
    s = np.empty(n)
    S = np.empty(n)
    top = np.empty(n, np.int64)
    rest = np.empty(n)
    kept = np.zeros(n)
    variance = np.zeros(n)
    up(parent, leaf, known, y, s, S)
    largest_children(parent, known, s, top, rest)
    passed_on(parent, known, s, S, top, rest, kept, variance)
    return s, S, top, kept, variance


@compiled_later
def variances(parent, leaf, known, y):  # type: ignore[no-untyped-def]
    """Return the variance of every node after weighted least squares."""
    _, _, _, _, variance = both_passes(parent, leaf, known, y)
    return variance


@compiled_later
def cost_and_gains(parent, leaf, known, y, c):  # type: ignore[no-untyped-def]
    """Return f = Σ c_v Var_v and the gains −∂f/∂y_v = Σ_u c_u Cov(u, v)², by reversed passes."""
    n = len(parent)
    s, S, top, kept, variance = both_passes(parent, leaf, known, y)
    f = 0.0
    for v in range(n):
        f += c[v] * variance[v]
    by_variance = c.copy()
    by_s = np.zeros(n)
    by_S = np.zeros(n)  # without the child with the largest s
    by_top = np.zeros(n)
    for v in range(n - 1, 0, -1):
        if known[v]:
            continue
        p = parent[v]
        r = s[v] / S[p]
        b = by_variance[v]
        if not known[p]:
            by_variance[p] += b * r * r
        share = variance[p] / S[p]
        # what a node does to itself, S included, as a sum of terms that do not cancel
        by_s[v] += b * kept[v] * (kept[v] + 2.0 * r * share)
        by_others = b * r * r * (1.0 - 2.0 * share)
        if v == top[p]:
            by_top[p] = by_others
        else:
            by_S[p] += by_others
            by_s[v] -= by_others
    gains = np.zeros(n)
    for v in range(n):
        if known[v]:
            continue
        if v == 0:
            by_s[v] += by_variance[v]
        else:
            p = parent[v]
            by_s[v] += by_S[p]
            if v != top[p]:
                by_s[v] += by_top[p]
        gains[v] = s[v] * s[v] * by_s[v]
        if not leaf[v]:
            by_S[v] += gains[v] / (S[v] * S[v])
    return f, gains


@compiled_later
def estimates(parent, leaf, known, y, seen):  # type: ignore[no-untyped-def]
    """Weighted least squares for many columns that share precisions, in place."""
    n, columns = seen.shape
    s = np.empty(n)
    S = np.zeros(n)
    Z = np.zeros((n, columns))
    for v in range(n - 1, -1, -1):
        if known[v]:
            s[v] = 0.0
            continue
        if leaf[v]:
            s[v] = 1.0 / y[v]
        else:
            s[v] = 1.0 / (y[v] + 1.0 / S[v])
            for i in range(columns):
                seen[v, i] = s[v] * (y[v] * seen[v, i] + Z[v, i] / S[v])
        if v > 0:
            p = parent[v]
            S[p] += s[v]
            for i in range(columns):
                Z[p, i] += seen[v, i]
    for v in range(1, n):
        if known[v]:
            continue
        p = parent[v]
        r = s[v] / S[p]
        for i in range(columns):
            seen[v, i] += r * (seen[p, i] - Z[p, i])


@compiled_later
def added_up(parent, values):  # type: ignore[no-untyped-def]
    """Add every node to its parent, from the bottom up, in place."""
    for v in range(len(parent) - 1, 0, -1):
        for i in range(values.shape[1]):
            values[parent[v], i] += values[v, i]


@compiled_later
def passed_down(parent, values):  # type: ignore[no-untyped-def]
    """Add every node's parent to it, from the top down, in place: sums over ancestors."""
    for v in range(1, len(parent)):
        values[v] += values[parent[v]]


@compiled_later
def heaviest(parent, known, weight, pairs):  # type: ignore[no-untyped-def]
    """Return the heaviest path from a private root, and the heaviest two branches below a node.

    Notes
    -----
    A branch of weight 0 counts as one: who moves between two cells is on both branches.
    """
    n = len(parent)
    one = np.zeros(n)
    two = np.zeros(n)
    branches = np.zeros(n, np.int64)
    below_known = np.zeros(n, np.bool_)
    for v in range(n):
        below_known[v] = known[v] or (v > 0 and below_known[parent[v]])
    path = 0.0
    pair = 0.0
    for v in range(n - 1, -1, -1):
        if branches[v] >= 2 and (pairs or below_known[v]) and one[v] + two[v] > pair:
            pair = one[v] + two[v]
        if known[v]:
            continue
        height = one[v] + weight[v]
        if v == 0:
            path = height
            continue
        p = parent[v]
        branches[p] += 1
        if height > one[p]:
            two[p] = one[p]
            one[p] = height
        elif height > two[p]:
            two[p] = height
    return path, pair
