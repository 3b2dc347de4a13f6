"""A network of flows: nodes, branches, who injects, what is public, and its equations.

Sign convention: the flow on a branch is positive from its tail to its head, and an injection is
positive into the network.  Balance of a node: what leaves it minus what enters it equals its
injection.

Potentials are not entries: they are eliminated along a spanning forest.  What remains of
``potential(tail) − potential(head) = reactance · flow + angle`` is one equation for every branch
outside the forest, and one for every further node of known potential.  Every coefficient is a
reactance as it was given, so decimal reactances keep the arithmetic exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError, listed


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """Nodes and branches, with everything about them that is public.

    Attributes
    ----------
    nodes, branches : tuples of str
        Their names, such as ``"bus 4"`` and ``"line 3: bus 4→5"``.
    tail, head : arrays of int
        The ends of each branch.
    private : array of int
        The nodes whose injection is private, in ascending order.
    public_injection : array
        The public injection of every other node (0 where a node only passes flow on).
    reactance : array or None
        The potential that a branch drops per unit of flow; None if there are no line laws.
    angle : array
        The public part of each branch's potential difference (a phase shift): the potential of
        the tail minus that of the head is ``reactance * flow + angle``.
    references : mapping of int to float
        Nodes whose potential is public (slack buses), with that potential.
    place : mapping
        The caller's labels (bus numbers, graph nodes) to positions in ``nodes``.
    positions : array, shape (nodes, 2), or None
        Where to draw the nodes.
    left_out : tuple of str
        Branches that were given but carry no flow: out of service, or without supply.
    """

    nodes: tuple[str, ...]
    branches: tuple[str, ...]
    tail: IntArray = field(repr=False)
    head: IntArray = field(repr=False)
    private: IntArray = field(repr=False)
    public_injection: FloatArray = field(repr=False)
    reactance: FloatArray | None = field(repr=False)
    angle: FloatArray = field(repr=False)
    references: Mapping[int, float] = field(default_factory=dict, repr=False)
    place: Mapping[Hashable, int] = field(default_factory=dict, repr=False)
    positions: FloatArray | None = field(default=None, repr=False)
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.branches:
            raise AffineDPError("the network has no branches, so there are no flows to protect")
        loops = [self.branches[i] for i in np.flatnonzero(self.tail == self.head)]
        if loops:
            raise AffineDPError(
                f"{listed(loops)} {are(loops)} loops: a branch from a node to itself carries no "
                "flow that a law could bind. Leave them out"
            )
        self._check_reactances()

    def _check_reactances(self) -> None:
        if self.reactance is None:
            return
        unusable = ~np.isfinite(self.reactance) | (self.reactance == 0.0)
        named = [self.branches[i] for i in np.flatnonzero(unusable)]
        if named:
            raise AffineDPError(
                f"the reactance of {listed(named)} is zero or not finite, so no law says how much "
                "flow it takes. Merge its two ends into one node"
            )

    @property
    def injections(self) -> tuple[str, ...]:
        """Names of the private injections."""
        return tuple(f"injection at {self.nodes[i]}" for i in self.private)

    @cached_property
    def island(self) -> IntArray:
        """The island of every node: nodes that branches connect share a number."""
        import scipy.sparse as sparse
        from scipy.sparse.csgraph import connected_components

        count = len(self.nodes)
        links = sparse.coo_array((np.ones(len(self.tail)), (self.tail, self.head)), (count, count))
        return np.asarray(connected_components(links, directed=False)[1], dtype=np.intp)

    def position_of(self, label: Hashable) -> int:
        """Return the node that a caller's label means.

        Parameters
        ----------
        label : hashable
            A bus number or a node of the graph.
        """
        key = label.item() if isinstance(label, np.generic) else label
        if isinstance(key, bool) or not isinstance(key, Hashable) or key not in self.place:
            some = listed([repr(known) for known in self.place])
            raise AffineDPError(f"there is no node {label!r} in the network; there are {some}")
        return self.place[key]


def are(items: Sequence[str]) -> str:
    """The verb for one item or several."""
    return "is" if len(items) == 1 else "are"


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
