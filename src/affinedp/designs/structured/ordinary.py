"""The noise of a small tree as an ordinary mechanism, with matrices."""

from __future__ import annotations

import itertools

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.domains import tree_passes as passes
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.given_directions import DirectionAdjacency

MOST_NODES = 1000


def ordinary_tree(mechanism: TreeMechanism, names: tuple[str, ...] | None = None) -> Mechanism:
    """Return the same noise as an ordinary mechanism; its guarantee is computed anew.

    Parameters
    ----------
    mechanism : TreeMechanism
        Of at most 1,000 nodes.
    names : tuple of str, optional
        Of the nodes, in the given order.

    Examples
    --------
    >>> from affinedp.designs.structured.trees import design_tree
    >>> m = design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6, law="gaussian")
    >>> ordinary = ordinary_tree(m, ("all", "women", "men"))
    >>> bool(abs(ordinary.guarantee.sensitivity / m.guarantee.sensitivity - 1) < 1e-8)
    True
    """
    tree = mechanism.tree
    if tree.n > MOST_NODES:
        raise AffineDPError(
            f"a tree of {tree.n:,} nodes is too large for matrices (at most {MOST_NODES:,}); "
            "release it as it is"
        )
    labels = names or tuple(f"node {v}" for v in range(tree.n))
    moves = _directions(tree, mechanism.neighbours == "circuits") * mechanism.household
    measured = np.flatnonzero(mechanism.scales > 0)
    noise = np.zeros((tree.n, len(measured)))
    unit = 1.0 if mechanism.law == "gaussian" else 2.0
    noise[measured, np.arange(len(measured))] = 1 / np.sqrt(unit * mechanism.precisions[measured])
    passes.estimates(*tree.arrays, mechanism.precisions, noise)
    outside = np.asarray(tree.outside(noise), dtype=float)
    left, sizes, _ = np.linalg.svd(outside, full_matrices=False)
    basis = left[:, sizes > 1e-12 * sizes[0]]
    manifold = AffineManifold(_equations(tree), names=list(labels))
    adjacency = DirectionAdjacency(manifold, np.asarray(tree.outside(moves), dtype=float))
    return build(
        adjacency, np.eye(tree.n), basis, basis.T @ outside, mechanism.law, labels,
        gap=mechanism.gap, notes=mechanism.notes,
    )  # fmt: skip


def _equations(tree: Totals) -> FloatArray:
    """Every total is the sum of its children, in the given order."""
    rows = np.zeros((int((~tree.leaf).sum()), tree.n))
    for row, v in enumerate(np.flatnonzero(~tree.leaf)):
        rows[row, tree.order[v]] = -1
        rows[row, tree.order[tree.first[v] : tree.first[v] + tree.children[v]]] = 1
    return rows


def _directions(tree: Totals, both: bool) -> FloatArray:
    """What neighbours differ by, breadth first, one column each."""
    cells = np.flatnonzero(tree.leaf & ~tree.known)
    paths = np.zeros((tree.n, len(cells)))
    for column, v in enumerate(cells.tolist()):
        while v >= 0:
            paths[v, column] = 1.0
            v = int(tree.parent[v])
    top = tree.component[cells]
    found = []
    for i in range(len(cells)):
        if not tree.known[top[i]]:
            found.append(paths[:, i])
    for i, j in itertools.combinations(range(len(cells)), 2):
        if top[i] == top[j] and (tree.known[top[i]] or both):
            found.append(paths[:, i] - paths[:, j])
    return np.array(found).T
