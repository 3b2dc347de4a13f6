"""How a path divides its budget: every node takes a share of what is left, leaf cells the rest.

    y_v = offset_v + φ_v R_v,    R_child = R_v − φ_v R_v,    φ = 1 at a leaf cell,

so that every path from the top of a class spends the same, whatever the shares φ.  The budget R and
the offset at the tops depend on who is a neighbour: see ``tops``.
"""

from __future__ import annotations

import numpy as np

from affinedp.compiling import compiled

JOIN, REPLACE, BOTH = 0, 1, 2


@compiled
def tops(parent, known, kind, heavy, extra, budget, offset):  # type: ignore[no-untyped-def]
    """Fill in what the paths of every class may spend, and what its top has beside.

    A person who joins is seen on one path: it may spend 1.  One who moves is seen on two branches:
    they may spend 1 together, so ½ each; or the heavy branch ½ + e, of which e at its top (so that
    two branches inside it spend ½ each), and all others ½ − e.  For both kinds of neighbours at
    once the root takes 1 − b, and every path below it b ≤ ½.

    Parameters
    ----------
    parent, known : arrays
        The tree.
    kind : int
        Who is a neighbour in the class of a private root: JOIN or BOTH.
    heavy : array of int
        For every known node the child with the heavy branch, or −1.
    extra : array
        For every known node e; for a private root and BOTH, ½ − b.
    budget, offset : arrays
        Filled at the tops of classes.
    """
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
    """Fill y from the shares; ``budget`` is filled below the tops.

    Parameters
    ----------
    parent, leaf, known : arrays
        The tree.
    phi : array
        Shares, 0 at a root whose offset is all it has.
    budget, offset : arrays
        As :func:`tops` left them.
    y : array
        Filled.
    """
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
    """Fill H, what a unit of budget gains in the branch of v, and B, its sum over the children.

    Parameters
    ----------
    parent, leaf, known : arrays
        The tree.
    phi : array
        Shares.
    gains : array
        What a unit of y_v gains.
    H, B : arrays
        Filled.
    """
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

    The second result is what a unit of budget below the root gains.

    Parameters
    ----------
    parent, leaf, known : arrays
        The tree.
    y : array
        Precisions.
    gains : array
        What a unit of y_v gains.
    """
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
