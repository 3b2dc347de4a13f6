"""The equations of a network: node balance (KCL), and the line laws (KVL) as laws of cycles.

Potentials are not entries: they are eliminated along a spanning forest.  What remains of
``potential(tail) − potential(head) = reactance · flow + angle`` is one equation for every branch
outside the forest, and one for every further node of known potential.  Every coefficient is a
reactance as it was given, so decimal reactances keep the arithmetic exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError, listed
from affinedp.flows.flow_network import FlowNetwork

if TYPE_CHECKING:
    import scipy.sparse as sparse

# Public injections of an island must cancel up to this share of their size.
CANCELS = 1e-9


def node_balance(network: FlowNetwork) -> tuple[sparse.csr_array, FloatArray]:
    """Return the balance of every node over flows and private injections, and its offsets."""
    import scipy.sparse as sparse

    nodes, branches = len(network.nodes), len(network.branches)
    count = len(network.private)
    row = np.concatenate([network.tail, network.head, network.private])
    column = np.concatenate([np.arange(branches), np.arange(branches), branches + np.arange(count)])
    value = np.concatenate([np.ones(branches), -np.ones(branches), -np.ones(count)])
    matrix = sparse.csr_array((value, (row, column)), shape=(nodes, branches + count))
    kept = np.setdiff1d(np.arange(nodes), _redundant(network))
    return sparse.csr_array(matrix[kept]), -network.public_injection[kept]


def _redundant(network: FlowNetwork) -> list[int]:
    """One node for each island in which every injection is public: its balance is implied."""
    found = []
    for island in np.setdiff1d(network.island, network.island[network.private]):
        members = np.flatnonzero(network.island == island)
        injected = network.public_injection[members]
        total = float(injected.sum())
        if abs(total) > CANCELS * float(np.abs(injected).sum()):
            names = listed([network.nodes[i] for i in members])
            raise AffineDPError(
                f"the public injections of the island {names} add up to {total:.6g}, not to 0: "
                "flows cannot balance. Correct them, or leave one of them private"
            )
        found.append(int(members[0]))
    return found


def line_laws(network: FlowNetwork) -> tuple[sparse.csr_array, FloatArray]:
    """Return the law of every independent cycle over flows and private injections."""
    import scipy.sparse as sparse

    if network.reactance is None:
        raise AffineDPError("the network has no reactances, so it has no line laws")
    forest = _spanning_forest(network)
    laws: list[tuple[dict[int, float], float]] = []
    inside = forest.branches
    for branch in range(len(network.branches)):
        if branch not in inside:
            tail, head = int(network.tail[branch]), int(network.head[branch])
            rise, offset = _difference(network, forest, head, tail)
            rise[branch] = float(network.reactance[branch])
            laws.append((rise, offset + float(network.angle[branch])))
    first: dict[int, int] = {}
    for node, potential in network.references.items():
        other = first.setdefault(int(network.island[node]), node)
        if other != node:  # the potential between two reference nodes is public
            rise, offset = _difference(network, forest, node, other)
            laws.append((rise, offset - potential + network.references[other]))
    places = [(i, branch) for i, (row, _) in enumerate(laws) for branch in row]
    values = np.array([value for row, _ in laws for value in row.values()], dtype=np.float64)
    row_of, column_of = np.array(places, dtype=np.intp).reshape(-1, 2).T
    shape = (len(laws), len(network.branches) + len(network.private))
    matrix = sparse.csr_array((values, (row_of, column_of)), shape=shape)
    return matrix, np.array([offset for _, offset in laws], dtype=np.float64)


@dataclass(frozen=True)
class _Forest:
    """A spanning forest: for each node the node before it, the branch between, the depth."""

    before: IntArray  # -1 at a root
    branch: IntArray
    depth: IntArray

    @property
    def branches(self) -> set[int]:
        """The branches inside the forest."""
        return set(self.branch[self.before >= 0].tolist())


def _spanning_forest(network: FlowNetwork) -> _Forest:
    """Trees in breadth-first order, whose cycles are short."""
    around: list[list[tuple[int, int]]] = [[] for _ in network.nodes]
    for branch, (tail, head) in enumerate(zip(network.tail.tolist(), network.head.tolist())):
        around[tail].append((head, branch))
        around[head].append((tail, branch))
    count = len(network.nodes)
    before, via, depth = np.full(count, -1), np.full(count, -1), np.full(count, -1)
    # a well connected root keeps the tree shallow
    for root in sorted(range(count), key=lambda node: -len(around[node])):
        if depth[root] >= 0:
            continue
        depth[root] = 0
        queue = [root]
        for node in queue:
            for other, branch in around[node]:
                if depth[other] < 0:
                    before[other], via[other], depth[other] = node, branch, depth[node] + 1
                    queue.append(other)
    return _Forest(before, via, depth)


def _difference(
    network: FlowNetwork, forest: _Forest, one: int, other: int
) -> tuple[dict[int, float], float]:
    """The potential of one node minus that of another: coefficients of flows, and a constant."""
    assert network.reactance is not None
    coefficients: dict[int, float] = {}
    constant = 0.0
    sign = 1.0
    while one != other:
        if forest.depth[one] < forest.depth[other]:
            one, other, sign = other, one, -sign
        branch, above = int(forest.branch[one]), int(forest.before[one])
        # potential(tail) − potential(head) = reactance · flow + angle
        towards = sign if int(network.tail[branch]) == one else -sign
        coefficients[branch] = towards * float(network.reactance[branch])
        constant += towards * float(network.angle[branch])
        one = above
    return coefficients, constant
