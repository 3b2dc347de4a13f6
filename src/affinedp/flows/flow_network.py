"""The plain record of a network: nodes, branches, who injects, and what is public about it.

Sign convention: the flow on a branch is positive from its tail to its head, and an injection is
positive into the network.  Balance of a node: what leaves it minus what enters it equals its
injection.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
        if isinstance(key, bool) or key not in self.place:
            some = listed([repr(known) for known in self.place])
            raise AffineDPError(f"there is no node {label!r} in the network; there are {some}")
        return self.place[key]


def are(items: Sequence[str]) -> str:
    """The verb for one item or several."""
    return "is" if len(items) == 1 else "are"
