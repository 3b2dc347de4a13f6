"""λ₂ and λ_n: against NumPy, and bounds that hold."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from affinedp.consensus import PrivateConsensus
from affinedp.consensus import eigenvalues as module
from affinedp.consensus.eigenvalues import (
    check_convergence,
    largest_eigenvalue_bound,
    spectrum_of,
)
from affinedp.consensus.graph import network_from_edges, network_of
from affinedp.errors import AffineDPError
from networks import bridged, precise_second

GRAPHS = {
    "regular": nx.random_regular_graph(6, 300, seed=1),
    "geometric": nx.random_geometric_graph(300, 0.14, seed=4),
    "path": nx.path_graph(120),
    "star": nx.star_graph(99),
    "complete": nx.complete_graph(60),
    "bipartite": nx.complete_bipartite_graph(40, 60),
    "barbell": nx.barbell_graph(40, 3),
}


def truth(network):
    values = np.linalg.eigvalsh(network.laplacian.toarray())
    return values[1], values[-1]


@pytest.mark.parametrize("name", GRAPHS)
def test_all_eigenvalues(name):
    network = network_of(GRAPHS[name])
    found = spectrum_of(network)
    second, last = truth(network)
    assert found.exact
    assert_allclose([found.lambda_2, found.lambda_n], [second, last], atol=1e-12)
    alpha = max(abs(1 - second), abs(1 - last))
    assert alpha <= found.alpha_bound <= alpha + 1e-9
    assert largest_eigenvalue_bound(network) >= last
    assert module._lambda_2_bound(network) <= second


@pytest.mark.parametrize("name", GRAPHS)
def test_lanczos_and_its_certificate(name, monkeypatch):
    monkeypatch.setattr(module, "DENSE_AGENTS", 10)
    network = network_of(GRAPHS[name])
    found = spectrum_of(network)
    second, last = truth(network)
    alpha = max(abs(1 - second), abs(1 - last))
    assert not found.exact
    assert found.method == "Lanczos"
    assert found.failure <= 1e-8
    assert_allclose(found.lambda_2, second, rtol=0.02)
    assert_allclose(found.lambda_n, last, rtol=0.02)
    assert alpha <= found.alpha_bound < 1
    # it is a bound that says something
    assert 1 - found.alpha_bound >= 0.3 * (1 - alpha)


def test_certificates_hold_for_any_guess():
    network = network_of(GRAPHS["geometric"])
    P = network.transition
    top = np.linalg.eigvalsh(P.toarray())[-2]
    for guess in (0.0, 0.5, 0.9 * top, top, 0.5 + 0.5 * top, None):
        for seed in range(3):
            bound = module._certified_top(
                lambda x: P @ x, network.n, -1.0, guess, np.random.default_rng(seed), 400
            )
            assert bound >= top


@pytest.mark.slow
def test_a_bound_where_lanczos_does_not_converge(monkeypatch):
    monkeypatch.setattr(module, "DENSE_AGENTS", 10)
    monkeypatch.setattr(module, "_lanczos", lambda *arguments: None)
    for name in ("geometric", "path", "regular"):
        network = network_of(GRAPHS[name])
        found = spectrum_of(network)
        second, last = truth(network)
        assert found.method == "bound"
        assert not found.exact
        assert 0 < found.lambda_2 <= second
        assert found.lambda_n >= last
        assert max(abs(1 - second), abs(1 - last)) <= found.alpha_bound < 1
    # with hardly any work allowed the simple bound is left, and it is still one
    monkeypatch.setattr(module, "MOST_PRODUCTS", 200)
    network = network_of(nx.path_graph(2000))
    found = spectrum_of(network)
    assert 0 < found.lambda_2 <= 2 / 3 * (1 - np.cos(np.pi / 2000))
    monkeypatch.setattr(module, "DENSE_AGENTS", 2000)


def test_lanczos_gives_up(monkeypatch):
    monkeypatch.setattr(module, "LANCZOS_ACCURACY", 1e-14)
    P = network_of(GRAPHS["path"]).transition
    start = np.random.default_rng(0).normal(size=120)
    assert module._lanczos(lambda x: P @ x, 120, "SA", start, 60) is None


def made(graph, **settings):
    return PrivateConsensus(graph, law="laplace", epsilon=1.0, **settings)


def test_weight_sums_of_one_are_reported():
    graph = nx.cycle_graph([1, 2, 3, 4, 5])
    found = made(graph, weights=0.5)
    assert "agents 1, 2, 3, 4 and 5 sum to 1 or more" in found.notes[0]
    assert "paper's condition" in found.notes[0]
    assert found.alpha < 1
    # heavier still, and convergent
    triangle = made(nx.complete_graph(3), weights=0.6)
    assert "λ_n = 1.8 < 2" in triangle.notes[0]
    assert made(graph).notes == ()


def test_networks_that_do_not_converge():
    even = nx.cycle_graph(["a", "b", "c", "d"])
    with pytest.raises(AffineDPError, match="swap sides for ever"):
        made(even, weights=0.5)
    with pytest.raises(AffineDPError, match="λ_n > "):
        made(even, weights=1e308)
    with pytest.raises(AffineDPError, match="λ_n = 2.4, and it must be below 2.*at agents? 'b'"):
        made(nx.Graph([("a", "b"), ("b", "c")]), weights=0.8)
    with pytest.raises(AffineDPError, match="weights='metropolis'"):
        made(nx.path_graph(3), weights=1.0)


@pytest.mark.parametrize("weight", [1e-6, 1e-12, 1e-14, 1e-16, 1e-20])
def test_light_bridges(weight):
    graph = bridged(weight)
    wanted = precise_second(graph)
    found = spectrum_of(network_of(graph))
    assert found.lambda_2 == pytest.approx(float(wanted), rel=1e-7)
    assert 0 < found.lambda_2_bound <= wanted
    assert found.alpha_bound <= 1
    assert found.alpha_bound >= 1 - wanted


def test_bridges_that_are_lost_in_rounding():
    """λ₂ ≈ 1e-300 is not known, and it is not called exact; the network is connected still."""
    found = spectrum_of(network_of(bridged(1e-300)))
    assert not found.exact
    assert found.alpha_bound == 1.0
    with pytest.raises(AffineDPError, match="α may be 1 within rounding"):
        made(bridged(1e-300)).steps_to(0.1)


def test_a_bridge_is_not_blamed_on_the_other_end():
    """Weight sums above 1 beside a light bridge: λ_n < 2 is what counts."""
    triangles = nx.Graph()
    for first in (0, 3):
        nx.add_cycle(triangles, range(first, first + 3), weight=0.6)
    triangles.add_edge(0, 3, weight=1e-16)
    found = made(triangles)
    assert "λ_n = 1.8 < 2" in found.notes[0]
    with pytest.raises(AffineDPError, match="α may be 1"):
        found.steps_to(0.1)


@pytest.mark.parametrize("name", ["path", "geometric", "barbell", "ladder"])
def test_factored_certificates(name, monkeypatch):
    """Bounds by the signs of pivots: true for any guess, and close to λ₂ for a good one."""
    graph = nx.ladder_graph(200) if name == "ladder" else GRAPHS[name]
    network = network_of(graph)
    second, _ = truth(network)
    generator = np.random.default_rng(0)
    assert module.is_thin(network)
    value = module.second_eigenvalue(network, generator.normal(size=network.n))
    assert value == pytest.approx(second, rel=1e-4)
    close = module.second_eigenvalue_bound(network, value, 1e-9, generator)
    assert 0.97 * second <= close <= second
    for factor in (0.01, 0.5, 1.01, 1.5, 10.0, 1e3):
        bound = module.second_eigenvalue_bound(network, factor * second, 1e-9, generator)
        assert bound is None or bound <= second


def test_long_rings():
    """λ₂ = (4/3) sin²(π/n) is known; news needs n²/10 steps, and the bound hardly any time."""
    n = 20_000
    ring = network_from_edges(n, np.arange(n), (np.arange(n) + 1) % n)
    found = spectrum_of(ring)
    second = 4 / 3 * np.sin(np.pi / n) ** 2
    assert found.lambda_2 == pytest.approx(second, rel=1e-6)
    assert 0.98 * second <= 1 - found.alpha_bound <= second
    assert 0.98 * second <= found.lambda_2_bound <= second


def test_two_agents():
    pair = made(nx.path_graph(2), weights=0.3)
    assert pair.alpha == pytest.approx(0.4)
    assert pair.spectrum.lambda_2 == pytest.approx(pair.spectrum.lambda_n)
    with pytest.raises(AffineDPError, match="swap sides"):
        made(nx.path_graph(2), weights=1.0)


def test_sums_above_one_that_are_no_rounding():
    """An even ring whose weights add up to 1 + 1e-12 but for one link has λ_n > 2."""
    weights = np.full(6, 0.5 + 4.5e-13)
    weights[0] = 0.5 - 2.2e-12
    ends = np.arange(6)
    network = network_from_edges(6, ends, (ends + 1) % 6, weights=weights)
    with pytest.raises(AffineDPError, match="must be below 2"):
        check_convergence(network)
    tenths = network_from_edges(11, np.zeros(10, int), np.arange(1, 11), weights=0.1)
    assert "no eigenvalue" in check_convergence(tenths)[0]
