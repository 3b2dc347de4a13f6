"""Flow manifolds from NetworkX graphs and from incidence matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from affinedp.domains.manifold import PublicEntries
from affinedp.errors import AffineDPError, listed
from affinedp.exact.numbers import real_array, real_matrix
from affinedp.flows.flow_manifold import FlowManifold, Laws, build
from affinedp.flows.flow_network import FlowNetwork


def from_graph(
    graph: Any,
    *,
    laws: Laws = "full",
    reactance: str | ArrayLike | None = None,
    public_injections: Mapping[Any, float] | None = None,
    node_names: Sequence[str] | None = None,
    branch_names: Sequence[str] | None = None,
    public_entries: PublicEntries = "refuse",
) -> FlowManifold:
    """Return the flows on the edges of a graph and the private injections at its nodes.

    Node balance: what leaves a node minus what enters it is its injection (section II-C of the
    paper, whose D is the incidence matrix).  The circuits under node balance alone are the simple
    cycles of the graph with one more node, the outside, to which every node with a private
    injection is linked.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph or multigraph; or matrix, shape (nodes, branches)
        The flow on an edge is positive in the direction of the edge; of an undirected graph, in
        the order in which ``graph.edges`` gives its ends.  In an incidence matrix −1 is where a
        branch leaves a node and +1 where it enters one, as
        ``networkx.incidence_matrix(graph, oriented=True)`` has it.
    laws : {"full", "balance"}
        ``"full"``: flows also obey line laws (potential = reactance × flow), and everyone knows
        the reactances.  ``"balance"``: no such laws hold, or nobody knows them.
    reactance : str or array_like, optional
        The edge attribute that holds the reactances, or one reactance for each branch of a
        matrix, for ``laws="full"``.
    public_injections : mapping, optional
        Nodes (rows of a matrix, from 0) whose injection is public, with its value; 0 for a node
        that only passes flow on.  All other injections are private, and entries of x.
    node_names, branch_names : sequences of str, optional
        Names for a matrix; by default ``0``, ``1``, … and ``branch 0: 0→1``, ….
    public_entries : {"refuse", "allow"}
        What to do with entries that follow from the laws and the public injections alone.

    Returns
    -------
    FlowManifold

    Examples
    --------
    A triangle into which everything may flow: three flows, three injections, three balances.

    >>> import networkx as nx
    >>> from affinedp import flows
    >>> flow = flows.from_graph(nx.cycle_graph(3), laws="balance")
    >>> flow.manifold.dim, flow.flows
    (3, ('edge 0→1', 'edge 0→2', 'edge 1→2'))

    >>> ring = [[-1, 0, 1], [1, -1, 0], [0, 1, -1]]
    >>> flows.from_graph(ring, reactance=[1, 1, 2]).manifold.equations()[-1]
    '`branch 0: 0→1` + `branch 1: 1→2` + 2*`branch 2: 2→0` = 0'

    Whoever publishes flows that obey line laws must say so; they are asked for by default.

    >>> flows.from_graph(nx.cycle_graph(3))
    Traceback (most recent call last):
        ...
    affinedp.errors.AffineDPError: laws='full' needs reactances: name the edge attribute that \
holds them (reactance='x'). If the flows obey no line laws, or nobody knows them, say laws='balance'
    """
    if hasattr(graph, "edges") and hasattr(graph, "nodes"):
        if node_names is not None or branch_names is not None:
            raise AffineDPError(
                "a graph names its nodes: node_names and branch_names are for matrices"
            )
        read, given = _graph(graph, reactance)
    else:
        read, given = _incidence(graph, node_names, branch_names), reactance
    if laws == "full" and given is None:
        raise AffineDPError(
            "laws='full' needs reactances: name the edge attribute that holds them "
            "(reactance='x'). If the flows obey no line laws, or nobody knows them, say "
            "laws='balance'"
        )
    values = None
    if given is not None:
        values = real_array(given, "reactance", 1)
        if len(values) != len(read.branches):
            raise AffineDPError(
                f"there are {len(values)} reactances for {len(read.branches)} branches"
            )
    if not isinstance(public_injections, Mapping | None):
        raise AffineDPError("public_injections maps nodes to their injections")
    known = dict(public_injections or {})
    unknown = [repr(node) for node in known if node not in read.place]
    if unknown:
        raise AffineDPError(f"public_injections names {listed(unknown)}, which is no node")
    declared = np.array([read.place[node] for node in known], dtype=np.intp)
    injected = np.zeros(len(read.nodes))
    injected[declared] = real_array(list(known.values()), "public_injections", 1)
    network = FlowNetwork(
        nodes=tuple(f"node {label}" for label in read.nodes),
        branches=tuple(read.branches),
        tail=np.asarray(read.tail, dtype=np.intp),
        head=np.asarray(read.head, dtype=np.intp),
        private=np.setdiff1d(np.arange(len(read.nodes)), declared),
        public_injection=injected,
        reactance=values,
        angle=np.zeros(len(read.branches)),
        place=read.place,
    )
    return build(network, laws, tuple(known), public_entries)


class _Read(NamedTuple):
    """What was given: nodes by label, names, and the ends of the branches."""

    place: Mapping[Hashable, int]
    nodes: list[str]
    branches: list[str]
    tail: ArrayLike
    head: ArrayLike


def _graph(graph: Any, reactance: Any) -> tuple[_Read, ArrayLike | None]:
    """Read a NetworkX graph, and the attribute that holds its reactances."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    if graph.is_multigraph():
        edges = [(u, v, f" ({key})", data) for u, v, key, data in graph.edges(keys=True, data=True)]
    else:
        edges = [(u, v, "", data) for u, v, data in graph.edges(data=True)]
    branches = [f"edge {u}→{v}{key}" for u, v, key, _ in edges]
    read = _Read(
        place,
        [str(node) for node in graph.nodes],
        branches,
        [place[edge[0]] for edge in edges],
        [place[edge[1]] for edge in edges],
    )
    if reactance is None:
        return read, None
    if not isinstance(reactance, str):
        raise AffineDPError("reactance names the edge attribute that holds the reactances")
    missing = [name for name, edge in zip(branches, edges) if reactance not in edge[3]]
    if missing:
        raise AffineDPError(f"{listed(missing)} has no attribute {reactance!r}")
    return read, [edge[3][reactance] for edge in edges]


def _incidence(
    incidence: Any, node_names: Sequence[str] | None, branch_names: Sequence[str] | None
) -> _Read:
    """Read an incidence matrix."""
    import scipy.sparse as sparse

    entries = sparse.coo_array(real_matrix(incidence, "incidence"))
    (row, column), (nodes, branches) = entries.coords, entries.shape
    ends = np.zeros((2, branches), dtype=np.intp)
    counts = [np.bincount(column[entries.data != 0], minlength=branches) - 1]
    for end, sign in zip(ends, (-1.0, 1.0)):
        at = entries.data == sign
        end[column[at]] = row[at]
        counts.append(np.bincount(column[at], minlength=branches))
    wrong = np.flatnonzero(np.any(np.array(counts) != 1, axis=0))
    if len(wrong):
        raise AffineDPError(
            f"column {wrong[0]} of incidence (counted from 0) is no branch: it must hold one −1 "
            "where the branch leaves and one +1 where it enters. Flows to the outside are "
            "injections, not columns"
        )
    labels = _named(node_names, [str(i) for i in range(nodes)], "node_names")
    default = [f"branch {i}: {labels[t]}→{labels[h]}" for i, (t, h) in enumerate(ends.T)]
    names = _named(branch_names, default, "branch_names")
    return _Read({i: i for i in range(nodes)}, labels, names, *ends)


def _named(given: Sequence[str] | None, default: list[str], what: str) -> list[str]:
    """The names that were given, one for each, or the default ones."""
    if given is None:
        return default
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != len(default):
        raise AffineDPError(f"{what} must be {len(default)} names, not {given!r}")
    return [str(name) for name in given]
