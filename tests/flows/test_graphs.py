"""Manifolds of graphs against null spaces, brute force over cycles, and refusals."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from flow_oracles import (
    circuits_by_brute_force,
    cycles_with_outside,
    directions_by_potentials,
    random_network,
    same_space,
    scaled,
)

import affinedp as adp
from affinedp import flows
from affinedp.errors import AffineDPError, IdentifiableEntriesError


@pytest.mark.parametrize("seed", range(6))
def test_circuits_of_node_balance_are_the_cycles_of_the_graph(seed):
    graph = random_network(7, seed)
    private = [0, 2, 3, 5, 6]
    public = {node: 0.0 for node in graph if node not in private}
    place = list(graph.nodes)
    inside = [node for node in place if node in private]
    flow = flows.from_graph(graph, laws="balance", public_injections=public, public_entries="allow")
    assert flow.injections == tuple(f"injection at node {node}" for node in inside)
    directions = flow.circuits().directions()
    assert np.allclose(np.abs(directions[directions != 0]), 1.0, rtol=1e-12)
    supports = {frozenset(np.flatnonzero(v).tolist()) for v in directions.T}
    assert len(supports) == directions.shape[1]
    assert supports == cycles_with_outside(graph, inside)


@pytest.mark.parametrize("seed", range(6))
def test_full_laws_are_what_potentials_make(seed):
    graph = random_network(9, seed)
    private = [0, 1, 4, 5, 8]
    order = list(graph.nodes)
    public = {node: 0.0 for i, node in enumerate(order) if i not in private}
    flow = flows.from_graph(graph, reactance="x", public_injections=public, public_entries="allow")
    expected = directions_by_potentials(graph, private)
    assert flow.manifold.dim == len(private) - 1
    assert same_space(flow.manifold.kernel, expected)


def test_circuits_of_the_full_laws_by_brute_force():
    graph = random_network(5, 3)
    flow = flows.from_graph(graph, reactance="x")
    kernel = directions_by_potentials(graph, list(range(5)))
    circuits = scaled(circuits_by_brute_force(kernel))
    adjacency = flow.circuits()
    assert adjacency.count() == len(circuits)
    edges = graph.number_of_edges()
    on_flows = np.eye(edges + 5)[:edges]
    expected = np.linalg.norm(circuits[:, :edges], axis=1).max()
    assert adjacency.sensitivity(on_flows, 2).value == pytest.approx(expected, rel=1e-9)


def test_public_injections_set_the_offsets():
    graph = random_network(8, 1)
    order = list(graph.nodes)
    generator = np.random.default_rng(0)
    A = -nx.incidence_matrix(graph, nodelist=order, oriented=True).toarray()
    reactance = np.array([data["x"] for *_, data in graph.edges(data=True)])
    f = A.T @ generator.normal(size=8) / reactance
    injected = A @ f
    public = {order[i]: float(injected[i]) for i in (1, 3, 4)}
    flow = flows.from_graph(graph, reactance="x", public_injections=public, public_entries="allow")
    private = [i for i in range(8) if i not in (1, 3, 4)]
    assert flow.manifold.contains(np.concatenate([f, injected[private]]), 1e-12)
    assert "the injections at node" in flow.assumes
    assert same_space(flow.manifold.kernel, directions_by_potentials(graph, private))


def test_all_injections_public():
    """Under node balance the cycles remain; under the full laws nothing does."""
    graph = nx.cycle_graph(6)
    nx.set_edge_attributes(graph, 0.5, "x")
    public = dict(enumerate([1.0, 0.1, -0.4, 0.3, -0.7, -0.3]))
    flow = flows.from_graph(graph, laws="balance", public_injections=public)
    assert flow.manifold.dim == 1
    assert flow.circuits().sensitivity(np.eye(6), 2).value == pytest.approx(np.sqrt(6))
    assert "all injections" in flow.assumes
    with pytest.raises(IdentifiableEntriesError, match="fix every flow"):
        flows.from_graph(graph, reactance="x", public_injections=public)
    with pytest.raises(AffineDPError, match="add up to 1, not to 0"):
        flows.from_graph(graph, laws="balance", public_injections={**public, 0: 2.0})


def test_flows_that_public_injections_reveal_are_refused():
    graph = nx.cycle_graph(4)
    graph.add_edge(0, "leaf")
    graph.add_edge(1, "nothing")
    dead = flows.from_graph(graph, laws="balance", public_injections={"nothing": 0.0, "leaf": 0.0},
                            public_entries="allow")  # fmt: skip
    assert dead.known == ("edge 0→leaf", "edge 1→nothing")
    with pytest.raises(IdentifiableEntriesError, match="edge 0→leaf") as refused:
        flows.from_graph(graph, laws="balance", public_injections={"leaf": 3.0})
    assert refused.value.entries == ("edge 0→leaf",)


def test_an_injection_that_nothing_can_balance_is_refused():
    graph = nx.cycle_graph(3)
    graph.add_node("alone")
    with pytest.raises(IdentifiableEntriesError, match="injection at node alone"):
        flows.from_graph(graph, laws="balance")


def test_parallel_edges_and_islands():
    graph = nx.MultiGraph()
    graph.add_edge("a", "b", x=0.1)
    graph.add_edge("a", "b", x=0.3)
    graph.add_edge("c", "d", x=0.2)
    flow = flows.from_graph(graph, reactance="x")
    assert flow.flows == ("edge a→b (0)", "edge a→b (1)", "edge c→d (0)")
    assert flow.manifold.dim == 2
    # the smaller reactance takes three quarters
    x = [0.75, 0.25, -2.0, 1.0, -1.0, -2.0, 2.0]
    assert flow.manifold.contains(x)


def test_incidence_matrix_of_networkx():
    graph = random_network(8, 2)
    reactance = [data["x"] for *_, data in graph.edges(data=True)]
    incidence = nx.incidence_matrix(graph, oriented=True)
    one = flows.from_graph(graph, reactance="x").manifold
    for matrix in (incidence, sparse.csr_array(incidence), incidence.toarray()):
        other = flows.from_graph(matrix, reactance=reactance).manifold
        assert np.array_equal(other.D, one.D)


def test_irrational_reactances_are_taken_as_they_are():
    graph = random_network(6, 4)
    for _, _, data in graph.edges(data=True):
        data["x"] = float(np.sqrt(data["x"]))
    flow = flows.from_graph(graph, reactance="x")
    assert same_space(flow.manifold.kernel, directions_by_potentials(graph, list(range(6))))


def test_one_element_behind_a_bus_moves_it_by_as_much_as_itself():
    """Sensitivities are the same if a node's injection is split into two elements."""
    graph = random_network(5, 3)
    flow = flows.from_graph(graph, reactance="x")
    D = flow.manifold.D
    edges = graph.number_of_edges()
    twice = adp.AffineManifold(np.hstack([D, -D[:, [edges + 1]]]))  # a load beside the generator
    on_flows = np.eye(twice.n)[:edges]
    split = adp.CircuitAdjacency(twice).sensitivity(on_flows, 2).value
    assert split == flow.circuits().sensitivity(on_flows[:, :-1], 2).value


def test_refusals_name_what_is_wrong():
    ring = nx.cycle_graph(3)
    for arguments, words in (
        ({}, "laws='full' needs reactances"),
        ({"reactance": "x"}, "edge 0→1, edge 0→2 and edge 1→2 has no attribute 'x'"),
        ({"laws": "KCL"}, "laws must be"),
        ({"laws": "balance", "public_injections": {7: 0.0}}, "public_injections names 7"),
        ({"laws": "balance", "public_injections": {0: np.nan}}, "finite"),
    ):
        with pytest.raises(AffineDPError, match=words):
            flows.from_graph(ring, **arguments)
    nx.set_edge_attributes(ring, 0.0, "x")
    with pytest.raises(AffineDPError, match="reactance of edge 0→1, .* is zero"):
        flows.from_graph(ring, reactance="x")
    ring.add_edge(1, 1, x=1.0)
    with pytest.raises(AffineDPError, match="edge 1→1 is .*loop"):
        flows.from_graph(ring, laws="balance")
    with pytest.raises(AffineDPError, match="no branches"):
        flows.from_graph(nx.empty_graph(3), laws="balance")
    with pytest.raises(AffineDPError, match="a graph names its nodes"):
        flows.from_graph(ring, laws="balance", node_names=["a", "b", "c"])
    with pytest.raises(AffineDPError, match="names the edge attribute"):
        flows.from_graph(ring, reactance=[1.0, 1.0, 1.0])
    for bad in ([[1, 0], [1, -1]], [[1, 1], [0, -1]], [[2, 1], [-2, -1]]):
        with pytest.raises(AffineDPError, match="column 0 of incidence"):
            flows.from_graph(bad, laws="balance")
    good = [[1, 0], [-1, 1], [0, -1]]
    with pytest.raises(AffineDPError, match="3 reactances for 2 branches"):
        flows.from_graph(good, reactance=[1, 2, 3])
    with pytest.raises(AffineDPError, match="node_names must be 3 names"):
        flows.from_graph(good, laws="balance", node_names=["a", "b"])


@pytest.mark.parametrize("wrong", [True, "1", 3, [1], object()])
def test_wrong_types_are_refused(wrong):
    ring = nx.cycle_graph(3)
    nx.set_edge_attributes(ring, 0.1, "x")
    flow = flows.from_graph(ring, reactance="x")
    for call in (
        lambda: flows.from_graph(ring, laws="balance", public_injections=wrong),
        lambda: flows.from_graph([[-1], [1]], laws="balance", node_names=wrong),
        lambda: flows.injection_neighbours(flow, 1.0, balance=wrong),
        lambda: flows.design_flow_noise(flow, epsilon=1.0, delta=0.1, publish=wrong),
    ):
        with pytest.raises(AffineDPError):
            call()


def test_shares_of_very_different_sizes():
    ring = nx.cycle_graph(3)
    nx.set_edge_attributes(ring, 0.1, "x")
    flow = flows.from_graph(ring, reactance="x")
    moves = flows.injection_neighbours(flow, 1.0, balance={0: 1e-20, 1: 1.0}).directions()
    assert np.abs(moves[3:].sum(axis=0)).max() < 1e-12
    with pytest.raises(AffineDPError, match="leaves the manifold"):
        flows.injection_neighbours(flow, 1.0, balance={0: 1e-320, 1: 1.0})
