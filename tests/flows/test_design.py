"""Whole designs on power networks: exact, certified, or refused with the ways out."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import cache

import networkx as nx
import numpy as np
import pytest
from flow_oracles import circuits_by_brute_force, cycles_with_outside, null_space, scaled

import affinedp as adp
from affinedp import flows
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.rational import exact_circuit

pandapower = pytest.importorskip("pandapower", reason="needs the extra [flows]")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pandapower's own files

PROMISE = {"epsilon": 1.0, "delta": 1e-6}
LIMIT = adp.gaussian_sensitivity(1.0, 1e-6)


@cache
def _loaded(name: str):
    import pandapower.networks

    return getattr(pandapower.networks, name)()


def net_of(name: str):
    return deepcopy(_loaded(name))


# ---------------------------------------------------------------------- Definition 4


@pytest.mark.parametrize("laws", ["full", "balance"])
@pytest.mark.parametrize("publish", ["all", "flows"])
def test_case9_exactly(laws, publish):
    """Every circuit, found by brute force, is within the limit, and the worst one is at it."""
    flow = flows.from_pandapower(net_of("case9"), laws=laws)
    m = flows.design_flow_noise(flow, **PROMISE, publish=publish)
    assert m.gap <= 1e-8
    assert m.guarantee.exact
    assert m.guarantee.holds(**PROMISE)
    query = np.eye(15) if publish == "all" else np.eye(15)[:9]
    circuits = scaled(circuits_by_brute_force(null_space(np.asarray(flow.manifold.D))))
    whitened = np.linalg.pinv(np.asarray(m.noise_matrix)) @ query @ circuits.T
    assert np.linalg.norm(whitened, axis=0).max() == pytest.approx(LIMIT, rel=1e-8)
    iid = adp.iid_noise(
        flow.manifold, law="gaussian", **PROMISE, query=list(m.output_names), adjacency=m.adjacency
    )
    assert m.expected_squared_error < 0.5 * iid.expected_squared_error
    assert ("ONLY" in m.guarantee.neighbours) == (laws == "balance")
    assert m.notes[0] == flow.assumes


def test_noise_for_node_balance_breaks_under_the_line_laws():
    """The design that ignores reactances does not keep its promise against who knows them."""
    net = net_of("case9")
    naive = flows.from_pandapower(net, laws="balance")
    m = flows.design_flow_noise(naive, **PROMISE)
    full = flows.from_pandapower(net)
    truth = adp.verify(full.manifold, m.noise_matrix, adjacency=full.circuits())
    assert truth.sensitivity > 4 * LIMIT
    assert not truth.holds(4.0, 1e-6)
    assert truth.neighbours_key != m.guarantee.neighbours_key
    with pytest.raises(AffineDPError, match="different neighbours"):
        adp.compose([truth, m.guarantee])


@pytest.mark.slow
def test_case30_node_balance_exactly():
    """43,153 cycles, listed; each of them counted by NetworkX too."""
    net = net_of("case30")
    flow = flows.from_pandapower(net, laws="balance")
    m = flows.design_flow_noise(flow, **PROMISE, tol=0.2)
    assert m.guarantee.exact
    assert m.gap <= 0.2
    assert m.guarantee.sensitivity <= LIMIT
    assert "line 12: bus 8→10" in m.notes[1]  # public: it leads to where nothing is connected
    graph = nx.DiGraph(zip(flow.network.tail.tolist(), flow.network.head.tolist()))
    place = {edge: i for i, edge in enumerate(zip(flow.network.tail, flow.network.head))}
    order = [place[edge] for edge in graph.edges] + list(range(41, 65))
    cycles = cycles_with_outside(graph, flow.network.private.tolist())
    assert len(cycles) == 43_153 == flow.circuits().count()
    inverse = np.linalg.pinv(np.asarray(m.noise_matrix))
    kernel = np.asarray(flow.manifold.kernel)
    chosen = sorted(map(sorted, cycles))[::200]
    for cycle in chosen:  # the vector of a cycle, from its support
        support = [order[i] for i in cycle]
        others = np.setdiff1d(np.arange(65), support)
        v = kernel @ null_space(kernel[others])[:, 0]
        assert np.linalg.norm(inverse @ (v / np.abs(v).max())) <= LIMIT * (1 + 1e-9)


@pytest.mark.slow
def test_case118_node_balance_is_certified():
    flow = flows.from_pandapower(net_of("case118"), laws="balance")
    m = flows.design_flow_noise(flow, **PROMISE)
    assert m.guarantee.holds(**PROMISE)
    assert not m.guarantee.exact
    assert m.gap < 10
    assert "ONLY" in m.guarantee.neighbours


@pytest.mark.parametrize("name", ["case30", "case118"])
def test_definition_4_under_the_full_laws_is_refused(name):
    flow = flows.from_pandapower(net_of(name))
    with pytest.raises(TooManyCircuitsError) as refused:
        flows.design_flow_noise(flow, **PROMISE)
    words = str(refused.value)
    assert all(way in words for way in ("injection_neighbours", "FreeSet", "laws='balance'"))
    assert refused.value.estimate > 1e15
    with pytest.raises(AffineDPError):
        flows.design_flow_noise(flow, epsilon=1.0, law="laplace")


def test_circuits_of_case30_under_the_full_laws_differ_wildly():
    """Why no imbalance can be given: a circuit, exact, whose entries differ by a million."""
    flow = flows.from_pandapower(net_of("case30"))
    kernel = np.asarray(flow.manifold.kernel)
    generator = np.random.default_rng(0)
    from scipy.linalg import qr

    ratio, support = 0.0, None
    for _ in range(200):
        order = qr((kernel * generator.uniform(0.01, 1, (65, 1))).T, mode="r", pivoting=True)[1]
        circuits = kernel @ np.linalg.inv(kernel[order[:23]])
        size = np.where(np.abs(circuits) > 1e-9, np.abs(circuits), np.nan)
        spread = np.nanmax(size, axis=0) / np.nanmin(size, axis=0)
        if spread.max() > ratio:
            ratio = float(spread.max())
            support = np.flatnonzero(np.abs(circuits[:, spread.argmax()]) > 1e-9)
    circuit = exact_circuit([flow.manifold.exact_column(int(i)) for i in support])
    sizes = [abs(value) for value in circuit]
    assert max(sizes) / min(sizes) == pytest.approx(ratio, rel=1e-3)
    assert ratio > 1e4


def test_wild_neighbours_are_remarked_upon():
    """A ring in which one line hardly takes part: its flow moves by μ, the others far more."""
    ring = nx.cycle_graph(4)
    nx.set_edge_attributes(ring, {(0, 1): 0.001, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0}, "x")
    flow = flows.from_graph(ring, reactance="x")
    m = flows.design_flow_noise(flow, **PROMISE)
    assert any("times as far" in note for note in m.notes)


# ---------------------------------------------------------------------- injection neighbours


@pytest.mark.parametrize(
    ("name", "balance"), [("case9", "slack"), ("case30", "any"), ("case118", "slack")]
)
def test_full_laws_with_injection_neighbours(name, balance):
    flow = flows.from_pandapower(net_of(name))
    adjacency = flows.injection_neighbours(flow, 1.0, balance=balance)
    m = flows.design_flow_noise(flow, **PROMISE, adjacency=adjacency)
    assert m.gap <= 1e-8
    assert m.guarantee.exact
    assert m.guarantee.holds(**PROMISE)
    lengths = np.linalg.norm(
        np.linalg.pinv(np.asarray(m.noise_matrix)) @ adjacency.directions(), axis=0
    )
    assert lengths.max() == pytest.approx(LIMIT, rel=1e-8)
    # the least noise is about that of one number, on each of hundreds of flows
    rms = math.sqrt(m.expected_squared_error / flow.manifold.n)
    assert rms < 1.5 * adp.gaussian_sigma(1.0, 1e-6)
    assert "balance" in m.guarantee.neighbours
    assert "line laws" in m.guarantee.neighbours


def test_release_obeys_both_laws(tmp_path):
    net = net_of("case30")
    flow = flows.from_pandapower(net)
    m = flows.design_flow_noise(flow, **PROMISE, adjacency=flows.injection_neighbours(flow))
    x = flows.dc_flows(flow, net)
    m.save(tmp_path / "case30.json")
    again = adp.Mechanism.load(tmp_path / "case30.json")
    assert again.notes == m.notes
    assert again.fingerprint == m.fingerprint
    words = "the slack (bus 0) balances; everyone knows node balance and the line laws"
    assert words in again.guarantee.neighbours
    for mechanism in (m, again):
        y = mechanism.release(x)
        assert y[12] == 0.0
        assert np.abs(y - x).max() > 0.1
        assert np.abs(flow.manifold.D @ y + flow.manifold.b).max() < 1e-9


@pytest.mark.slow
def test_laplace_and_weights():
    flow = flows.from_pandapower(net_of("case9"))
    adjacency = flows.injection_neighbours(flow, balance="any")
    m = flows.design_flow_noise(flow, epsilon=1.0, law="laplace", adjacency=adjacency)
    assert m.guarantee.epsilon() <= 1.0
    names = ["line 2: bus 4→5", "line 7: bus 7→8"]
    plain = flows.design_flow_noise(flow, **PROMISE, adjacency=adjacency, publish=names)
    tilted = flows.design_flow_noise(
        flow, **PROMISE, adjacency=adjacency, publish=names, weights=[100.0, 1.0]
    )
    assert tilted.expected_squared_errors[0] < plain.expected_squared_errors[0]


def test_refusals():
    flow = flows.from_pandapower(net_of("case9"))
    adjacency = flow.circuits()
    for arguments, words in (
        ({"publish": "lines"}, "publish must be"),
        ({"publish": []}, "nothing to publish"),
        ({"publish": ["line 99"]}, "line 99"),
        ({"mu": 1.0, "adjacency": adjacency}, "not both"),
        ({"law": "cauchy"}, "law must be"),
        ({"law": "laplace"}, "leave delta out"),
    ):
        with pytest.raises(AffineDPError, match=words):
            flows.design_flow_noise(flow, **PROMISE, **arguments)
    with pytest.raises(AffineDPError, match="from_pandapower"):
        flows.design_flow_noise(net_of("case9"), **PROMISE)
