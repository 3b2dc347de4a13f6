"""Flow manifolds from NetworkX graphs and from incidence matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import PublicEntries
from affinedp.errors import AffineDPError, listed
from affinedp.exact.numbers import real_array, real_matrix
from affinedp.flows.flow_manifold import FlowManifold, Laws, build
from affinedp.flows.flow_network import FlowNetwork

if TYPE_CHECKING:
    import scipy.sparse as sparse


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
    if not hasattr(graph, "edges") or not hasattr(graph, "nodes"):
        return _from_incidence(
            graph, laws, reactance, public_injections, node_names, branch_names, public_entries
        )
    if node_names is not None or branch_names is not None:
        raise AffineDPError("a graph names its nodes: node_names and branch_names are for matrices")
    place: dict[Hashable, int] = {node: i for i, node in enumerate(graph.nodes)}
    if graph.is_multigraph():
        edges = [(u, v, data) for u, v, _, data in graph.edges(keys=True, data=True)]
        keys = [f" ({key})" for _, _, key in graph.edges(keys=True)]
    else:
        edges = list(graph.edges(data=True))
        keys = [""] * len(edges)
    branches = [f"edge {u}→{v}{key}" for (u, v, _), key in zip(edges, keys)]
    values = None
    if reactance is not None:
        if not isinstance(reactance, str):
            raise AffineDPError("reactance names the edge attribute that holds the reactances")
        missing = [name for name, (*_, data) in zip(branches, edges) if reactance not in data]
        if missing:
            raise AffineDPError(f"{listed(missing)} has no attribute {reactance!r}")
        values = [data[reactance] for *_, data in edges]
    return _flow_manifold(
        [str(node) for node in graph.nodes], branches,
        [place[u] for u, _, _ in edges], [place[v] for _, v, _ in edges],
        place, laws, values, public_injections, public_entries,
    )  # fmt: skip


def _from_incidence(
    incidence: ArrayLike | sparse.sparray,
    laws: Laws,
    reactance: ArrayLike | None,
    public_injections: Mapping[int, float] | None,
    node_names: Sequence[str] | None,
    branch_names: Sequence[str] | None,
    public_entries: PublicEntries,
) -> FlowManifold:
    """The flows and private injections of the network with this incidence matrix."""
    import scipy.sparse as sparse

    matrix = sparse.csc_array(real_matrix(incidence, "incidence"))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    nodes, branches = matrix.shape
    ends = matrix.data.reshape(-1, 2) if np.all(np.diff(matrix.indptr) == 2) else None
    if ends is None or not np.array_equal(
        np.sort(ends, axis=1), np.tile([-1.0, 1.0], (branches, 1))
    ):
        wrong = _first_wrong_column(matrix)
        raise AffineDPError(
            f"column {wrong} of incidence (counted from 0) is no branch: it must hold one −1 where "
            "the branch leaves and one +1 where it enters. Flows to the outside are injections, "
            "not columns"
        )
    rows = matrix.indices.reshape(-1, 2)
    leaves = ends[:, 0] < 0
    tail = np.where(leaves, rows[:, 0], rows[:, 1])
    head = np.where(leaves, rows[:, 1], rows[:, 0])
    labels = _named(node_names, [str(i) for i in range(nodes)], "node_names")
    default = [f"branch {i}: {labels[t]}→{labels[h]}" for i, (t, h) in enumerate(zip(tail, head))]
    names = _named(branch_names, default, "branch_names")
    place: dict[Hashable, int] = {i: i for i in range(nodes)}
    return _flow_manifold(
        labels, names, tail, head, place, laws, reactance, public_injections, public_entries
    )


def _named(given: Sequence[str] | None, default: list[str], what: str) -> list[str]:
    """The names that were given, one for each, or the default ones."""
    if given is None:
        return default
    if isinstance(given, str) or len(given) != len(default):
        raise AffineDPError(f"{what} has {len(given)} names for {len(default)}")
    return [str(name) for name in given]


def _first_wrong_column(matrix: sparse.csc_array) -> int:
    for j in range(matrix.shape[1]):
        values = matrix.data[matrix.indptr[j] : matrix.indptr[j + 1]]
        if sorted(values.tolist()) != [-1.0, 1.0]:
            return j
    raise AssertionError("every column is a branch")


def _flow_manifold(
    labels: Sequence[str],
    branches: Sequence[str],
    tail: ArrayLike,
    head: ArrayLike,
    place: Mapping[Hashable, int],
    laws: Laws,
    reactance: ArrayLike | None,
    public_injections: Mapping[Any, float] | None,
    public_entries: PublicEntries,
) -> FlowManifold:
    """Put together what both builders have read."""
    if laws == "full" and reactance is None:
        raise AffineDPError(
            "laws='full' needs reactances: name the edge attribute that holds them "
            "(reactance='x'). If the flows obey no line laws, or nobody knows them, say "
            "laws='balance'"
        )
    known = dict(public_injections or {})
    values: FloatArray | None = None
    if reactance is not None:
        values = real_array(reactance, "reactance", 1)
        if len(values) != len(branches):
            raise AffineDPError(f"there are {len(values)} reactances for {len(branches)} branches")
    unknown = [repr(node) for node in known if node not in place]
    if unknown:
        raise AffineDPError(f"public_injections names {listed(unknown)}, which is no node")
    declared = np.array([place[node] for node in known], dtype=np.intp)
    injected = np.zeros(len(labels))
    injected[declared] = real_array(list(known.values()), "public_injections", 1)
    network = FlowNetwork(
        nodes=tuple(f"node {label}" for label in labels),
        branches=tuple(branches),
        tail=np.asarray(tail, dtype=np.intp),
        head=np.asarray(head, dtype=np.intp),
        private=np.setdiff1d(np.arange(len(labels)), declared),
        public_injection=injected,
        reactance=values,
        angle=np.zeros(len(branches)),
        place=place,
    )
    return build(network, laws, tuple(known), public_entries)
