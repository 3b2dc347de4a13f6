"""One-way links: who sends to whom, and what an agent gives to each.

In every round an agent keeps one part of what it holds and sends an equal part to each of those
that it sends to.  It needs to know how many they are, and nothing about who sends to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, is_sparse
from affinedp.consensus.network.network import Network, NetworkError, listed
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array


@dataclass(frozen=True, eq=False)
class DirectedNetwork(Network):
    """Agents and one-way links; ``transition`` is what one round without losses does.

    Attributes
    ----------
    sources, targets : arrays of int, shape (links,)
        The ends of every link.
    shares : array, shape (n,)
        The part that an agent keeps, and sends along each of its links.
    """

    sources: IntArray = field(repr=False, kw_only=True)
    targets: IntArray = field(repr=False, kw_only=True)
    shares: FloatArray = field(repr=False, kw_only=True)

    @property
    def links_count(self) -> int:
        """How many one-way links there are."""
        return len(self.sources)

    def check_connected(self) -> None:
        """Refuse a network in which some agents never hear of others."""
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(self.transition, directed=True, connection="strong")
        if count == 1:
            return
        across = label[self.sources] != label[self.targets]
        closed = np.setdiff1d(np.arange(count), label[self.sources[across]])
        inside = [self.names[int(i)] for i in np.flatnonzero(label == closed[0])]
        raise NetworkError(
            f"what {listed(inside)} {'holds' if len(inside) == 1 else 'hold'} never reaches the "
            "others: along the links there must be a way from every agent to every other",
            inside,
        )


def directed_network_of(graph: Any, names: Sequence[Hashable] | None = None) -> DirectedNetwork:
    """Return the network of a directed graph or of a matrix of links.

    Parameters
    ----------
    graph : networkx.Graph, networkx.DiGraph, sparse matrix or array
        A link of an undirected graph works both ways.  Entry (i, j) of a matrix that is not zero is
        a link from agent i to agent j, as in NetworkX.
    names : sequence, optional
        The agents, for a matrix; 0, 1, … by default.

    Examples
    --------
    >>> ring = directed_network_of([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    >>> ring.sources.tolist(), ring.targets.tolist(), ring.shares.tolist()
    ([0, 1, 2], [1, 2, 0], [0.5, 0.5, 0.5])
    """
    if hasattr(graph, "is_directed") and hasattr(graph, "edges"):
        if names is not None:
            raise AffineDPError("the nodes of the graph are the agents: leave names out")
        agents = tuple(graph.nodes)
        place = {name: i for i, name in enumerate(agents)}
        ends = [(place[a], place[b]) for a, b in graph.edges()]
        if not graph.is_directed():
            ends += [(b, a) for a, b in ends]
        pairs = np.array(ends, dtype=np.intp).reshape(-1, 2)
        return _assemble(pairs, _plain(agents))
    matrix = graph.toarray() if is_sparse(graph) else real_array(graph, "the matrix of links", 2)
    if matrix.shape[0] != matrix.shape[1]:
        raise AffineDPError(f"the matrix of links must be square, not {matrix.shape}")
    agents = tuple(range(len(matrix))) if names is None else tuple(names)
    if len(agents) != len(matrix) or len(set(agents)) != len(agents):
        raise AffineDPError(f"names must be {len(matrix)} different names, one for each agent")
    return _assemble(np.argwhere(matrix != 0), _plain(agents))


def _plain(agents: tuple[Hashable, ...]) -> Sequence[Hashable]:
    return range(len(agents)) if agents == tuple(range(len(agents))) else agents


def _assemble(pairs: IntArray, names: Sequence[Hashable]) -> DirectedNetwork:
    import scipy.sparse as sparse

    n = len(names)
    if n < 2:
        raise NetworkError(f"{n} agent(s) have nothing to average: a network needs at least two")
    between = pairs[:, 0] != pairs[:, 1]
    notes = () if between.all() else ("a link of an agent with itself is left out",)
    pairs = np.unique(pairs[between], axis=0)
    sources, targets = pairs[:, 0].astype(np.intp), pairs[:, 1].astype(np.intp)
    shares = np.asarray(1.0 / (1.0 + np.bincount(sources, minlength=n)))
    everyone = np.arange(n)
    step = sparse.csr_array(
        (
            np.concatenate([shares, shares[sources]]),
            (np.concatenate([everyone, targets]), np.concatenate([everyone, sources])),
        ),
        shape=(n, n),
    )
    made = DirectedNetwork(
        step, names, 1.0 - shares, notes, sources=sources, targets=targets, shares=shares
    )
    made.check_connected()
    return made
