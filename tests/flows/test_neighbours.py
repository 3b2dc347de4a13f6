"""Injection neighbours against pandapower run again, potentials, and free sets."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from flow_oracles import random_network, same_space

import affinedp as adp
from affinedp import flows
from affinedp.errors import AffineDPError


def grid_with_reactances(rows: int, columns: int, seed: int = 0) -> nx.Graph:
    generator = np.random.default_rng(seed)
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
    for _, _, data in graph.edges(data=True):
        data["x"] = float(generator.integers(1, 99)) / 100
    return graph


def transfer_by_pseudoinverse(graph: nx.DiGraph) -> np.ndarray:
    """Flows (rows) per unit injected at each node (columns), up to a common shift."""
    A = -nx.incidence_matrix(graph, oriented=True).toarray()
    weight = np.array([1 / data["x"] for *_, data in graph.edges(data=True)])
    return weight[:, None] * A.T @ np.linalg.pinv(A @ (weight[:, None] * A.T))


@pytest.mark.parametrize("seed", range(4))
def test_one_node_balances(seed):
    graph = random_network(8, seed)
    flow = flows.from_graph(graph, reactance="x")
    order = list(graph.nodes)
    adjacency = flows.injection_neighbours(flow, 2.0, balance=order[3])
    factors = transfer_by_pseudoinverse(graph)
    moved = [i for i in range(8) if i != 3]
    expected = 2.0 * (factors[:, moved] - factors[:, [3]])
    found = adjacency.directions()
    edges = graph.number_of_edges()
    assert np.allclose(found[:edges], expected, atol=1e-12)
    injected = np.zeros((8, 7))
    injected[moved, range(7)] = 2.0
    injected[3] = -2.0
    assert np.array_equal(found[edges:], injected)
    # Definition 4 for the free set of all other injections
    free = [f"injection at node {order[i]}" for i in moved]
    same = adp.FreeSetAdjacency(flow.manifold, [free], 2.0).directions()
    assert np.allclose(np.sort(same, axis=1), np.sort(found, axis=1), atol=1e-10)


def test_any_other_node_balances():
    graph = random_network(6, 1)
    flow = flows.from_graph(graph, reactance="x")
    mu = {node: float(i + 1) for i, node in enumerate(graph)}
    found = flows.injection_neighbours(flow, mu, balance="any").directions()
    factors = transfer_by_pseudoinverse(graph)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    expected = np.array([(factors[:, i] - factors[:, j]) * (j + 1) for i, j in pairs]).T
    assert found.shape[1] == 15
    assert np.allclose(found[: graph.number_of_edges()], expected, atol=1e-12)


def test_any_is_definition_4_on_the_injections_alone():
    """x = injections with one equation, flows as the query: the same sensitivity."""
    graph = grid_with_reactances(3, 3)
    flow = flows.from_graph(graph, reactance="x")
    adjacency = flows.injection_neighbours(flow, balance="any")
    edges = graph.number_of_edges()
    query = transfer_by_pseudoinverse(graph)
    injections = adp.AffineManifold(np.ones((1, 9)))
    expected = adp.CircuitAdjacency(injections).sensitivity(query, 2).value
    found = adjacency.sensitivity(np.eye(flow.manifold.n)[:edges], 2).value
    assert found == pytest.approx(expected, rel=1e-12)


def test_shares_are_those_of_the_others():
    graph = random_network(5, 2)
    flow = flows.from_graph(graph, reactance="x")
    order = list(graph.nodes)
    shares = {order[0]: 1.0, order[2]: 3.0}
    adjacency = flows.injection_neighbours(flow, balance=shares)
    found = adjacency.directions()[graph.number_of_edges() :]
    expected = np.array(
        [
            [1, -0.25, -1, -0.25, -0.25],
            [0, 1, 0, 0, 0],
            [-1, -0.75, 1, -0.75, -0.75],
            [0, 0, 0, 1, 0],
            [0, 0, 0, 0, 1],
        ]
    )
    assert np.allclose(found, expected)
    assert "balance in given proportions" in adjacency.words
    whole = flows.injection_neighbours(flow, balance={order[0]: 0.3}).directions()
    alone = flows.injection_neighbours(flow, balance=order[0]).directions()
    assert np.array_equal(whole, alone)


def ladder(rungs: int):
    graph = nx.ladder_graph(rungs)
    for u, v, data in graph.edges(data=True):
        data["x"] = 0.01 if abs(u - v) == rungs else 1.0
    return flows.from_graph(graph, reactance="x")


def test_far_away_flows_keep_their_digits():
    """Down a ladder flows fall by a factor of 200 per rung; the laws hold among the least."""
    flow = ladder(9)
    adjacency = flows.injection_neighbours(flow, balance=9)
    move = adjacency.directions()[:, 0]  # injected at one end of the first rung, out at the other
    least = np.abs(move[: len(flow.flows)]).min()
    assert 1e-21 < least < 1e-17
    law = np.abs(flow.manifold.D @ move)
    assert np.all(law <= 1e-14 * (np.abs(flow.manifold.D) @ np.abs(move)))
    with pytest.raises(AffineDPError, match="cannot be told from zero"):
        flows.injection_neighbours(ladder(20), balance=20)


def test_zeros_are_zeros():
    """A balanced bridge carries nothing, and neither does a spur."""
    graph = nx.Graph()
    for u, v in ("sa", "sb", "at", "bt", "ab", "tu"):
        graph.add_edge(u, v, x=0.1)
    flow = flows.from_graph(graph, reactance="x")
    move = flows.injection_neighbours(flow, balance="t").directions()[:, 0]  # s moves
    names = dict(zip(flow.manifold.names, move))
    assert names["edge a→b"] == 0.0
    assert names["edge t→u"] == 0.0
    assert names["edge s→a"] == 0.5


def test_islands_balance_within_themselves():
    graph = nx.disjoint_union(grid_with_reactances(2, 2), grid_with_reactances(2, 3, 1))
    flow = flows.from_graph(graph, reactance="x")
    everywhere = flows.injection_neighbours(flow, balance="any")
    assert everywhere.directions().shape[1] == 6 + 15
    assert flow.manifold.dim == 3 + 5
    with pytest.raises(AffineDPError, match="nothing balances node 4"):
        flows.injection_neighbours(flow, balance=0)
    both = flows.injection_neighbours(flow, balance={0: 1.0, 5: 1.0})
    assert both.directions().shape[1] == 8
    assert same_space(both.directions(), flow.manifold.kernel)


def test_negative_reactances():
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, {(0, 1): 0.3, (1, 2): -0.1, (2, 3): 0.2, (0, 3): 0.5}, "x")
    flow = flows.from_graph(graph, reactance="x")
    moved = flows.injection_neighbours(flow, balance=1).directions()
    # from 0 the direct way drops 0.3, the other way 0.5 + 0.2 − 0.1 = 0.6
    share = Fraction(6, 9)
    assert moved[flow.flows.index("edge 0→1"), 0] == pytest.approx(float(share))
    nx.set_edge_attributes(graph, {(0, 1): 0.3, (1, 2): -0.1, (2, 3): 0.2, (0, 3): -0.4}, "x")
    singular = flows.from_graph(graph, reactance="x")
    with pytest.raises(AffineDPError, match="Correct the reactances"):
        flows.injection_neighbours(singular, balance=1)


def test_refusals():
    graph = grid_with_reactances(2, 3)
    flow = flows.from_graph(graph, reactance="x", public_injections={5: 1.0})
    for arguments, words in (
        ({}, "there is no slack"),
        ({"balance": 9}, "no node 9"),
        ({"balance": 5}, "node 5 cannot balance"),
        ({"balance": {0: -1.0, 1: 2.0}}, "must not be negative"),
        ({"mu": 0.0, "balance": 0}, "mu must be positive"),
        ({"mu": {0: 1.0}, "balance": 0}, "mu is missing for node 1"),
        ({"mu": dict.fromkeys(range(6), 1.0), "balance": 0}, "mu names node 5"),
        ({"mu": np.nan, "balance": 0}, "finite"),
    ):
        with pytest.raises(AffineDPError, match=words):
            flows.injection_neighbours(flow, **arguments)
    balance = flows.from_graph(graph, laws="balance")
    with pytest.raises(AffineDPError, match="needs laws='full'"):
        flows.injection_neighbours(balance, balance=0)
    with pytest.raises(AffineDPError, match="takes a FlowManifold"):
        flows.injection_neighbours(graph, balance=0)


# ---------------------------------------------------------------------- power networks

pandapower = pytest.importorskip("pandapower", reason="needs the extra [flows]")


def case30():
    import pandapower.networks

    return pandapower.networks.case30()


def test_a_load_that_changes_is_a_neighbour():
    """pandapower solves the net again with one load changed; the slack takes it up."""
    net = case30()
    flow = flows.from_pandapower(net)
    adjacency = flows.injection_neighbours(flow, 3.0)
    assert "the slack (bus 0) balances" in adjacency.words
    assert "line laws" in adjacency.words
    before = flows.dc_flows(flow, net)
    columns = adjacency.directions()
    assert columns.shape == (65, 23)
    moved = [i for i in flow.network.private if i != 0]
    for load in (0, 5, 19):
        net.load.loc[load, "p_mw"] -= 3.0
        change = flows.dc_flows(flow, net) - before
        net.load.loc[load, "p_mw"] += 3.0
        column = moved.index(flow.network.position_of(net.load.bus[load]))
        assert np.allclose(change, columns[:, column], atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_several_slack_buses_share_as_the_laws_say():
    net = case30()
    pandapower.create_ext_grid(net, 21, va_degree=-2.0)
    flow = flows.from_pandapower(net)
    before = flows.dc_flows(flow, net)
    adjacency = flows.injection_neighbours(flow)
    net.load.loc[4, "p_mw"] -= 1.0
    change = flows.dc_flows(flow, net) - before
    moved = [i for i in flow.network.private if i not in flow.network.references]
    column = moved.index(flow.network.position_of(net.load.bus[4]))
    assert np.allclose(change, adjacency.directions()[:, column], atol=1e-9)
    with pytest.raises(AffineDPError, match="balance must be 'slack'"):
        flows.injection_neighbours(flow, balance="any")


def test_a_public_slack_cannot_balance():
    flow = flows.from_pandapower(case30(), public_injections=[0])
    with pytest.raises(AffineDPError, match="bus 0 should balance, but the injection"):
        flows.injection_neighbours(flow)
    other = flows.injection_neighbours(flow, balance=1)
    assert "bus 1 balances" in other.words
