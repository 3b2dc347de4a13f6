"""Reading networks: weights as NetworkX has them, and refusals that name the agents."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from numpy.testing import assert_allclose, assert_array_equal

from affinedp.consensus import PrivateConsensus
from affinedp.consensus.graph import network_from_edges, network_of
from affinedp.errors import AffineDPError

RING = nx.cycle_graph(["a", "b", "c", "d", "e"])


def consensus(graph, **settings):
    return PrivateConsensus(graph, law="laplace", epsilon=1.0, **settings)


def weighted(graph, seed=0):
    generator = np.random.default_rng(seed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = generator.uniform(0.01, 0.1)
    return graph


@pytest.mark.parametrize("seed", range(3))
def test_laplacian_is_that_of_networkx(seed):
    graph = weighted(nx.gnp_random_graph(12, 0.4, seed=seed), seed)
    network = network_of(graph)
    assert_allclose(network.laplacian.toarray(), nx.laplacian_matrix(graph).toarray(), atol=1e-15)
    assert_allclose(network.weights.toarray(), nx.to_numpy_array(graph), atol=0)
    again = network_of(nx.to_scipy_sparse_array(graph))
    assert_array_equal(again.transition.toarray(), network.transition.toarray())
    ends = np.array(graph.edges)
    values = [data["weight"] for _, _, data in graph.edges(data=True)]
    listed = network_from_edges(12, ends[:, 0], ends[:, 1], values)
    assert_array_equal(listed.transition.toarray(), network.transition.toarray())


def test_metropolis_and_uniform_weights():
    star = nx.star_graph(3)
    star.add_edge(1, 2)
    degree = dict(star.degree)
    for a, b in star.edges:
        wanted = 1 / (1 + max(degree[a], degree[b]))
        assert consensus(star).weights[a, b] == pytest.approx(wanted, rel=1e-15)
    uniform = consensus(star, weights="uniform").weights
    assert set(uniform.data.tolist()) == {0.25}
    for kind in ("metropolis", "uniform"):
        assert consensus(star, weights=kind).network.weight_sums.max() < 1


def test_given_weights_and_what_replaces_them():
    graph = nx.Graph([(0, 1), (1, 2)])
    assert set(consensus(graph, weights=0.3).weights.data) == {0.3}
    nx.set_edge_attributes(graph, 0.2, "weight")
    assert set(consensus(graph).weights.data) == {0.2}
    assert_allclose(consensus(graph, weights="metropolis").weights.data, 1 / 3)
    matrix = sparse.csr_array(nx.to_scipy_sparse_array(graph))
    assert_allclose(consensus(matrix, weights="uniform").weights.data, 1 / 3)
    with pytest.raises(AffineDPError, match="weights already"):
        consensus(matrix, weights=0.2)


def test_diagonal_changes_nothing():
    """A doubly stochastic matrix and its weights are the same network."""
    graph = weighted(nx.complete_graph(4))
    P = consensus(graph).network.transition
    assert_allclose(consensus(P).network.transition.toarray(), P.toarray(), atol=1e-16)
    looped = nx.Graph([(0, 1), (1, 2), (2, 2)])
    found = consensus(looped)
    assert_allclose(found.weights.data, 1 / 3)  # the loop is no degree either
    assert "agent 2 with itself" in found.notes[0]


def test_repeated_links():
    twice = PrivateConsensus.from_edges(3, [0, 1, 1, 0], [1, 0, 2, 1], law="laplace", epsilon=1)
    assert_allclose(twice.weights.toarray()[0], [0, 1 / 3, 0])
    assert "2 links are given again" in twice.notes[0]
    with pytest.raises(AffineDPError, match="1 – 0 is given more than once"):
        network_from_edges(3, [0, 1, 1], [1, 0, 2], [0.1, 0.1, 0.1])
    parallel = nx.MultiGraph([("a", "b"), ("a", "b"), ("b", "c")])
    assert consensus(parallel).n == 3
    nx.set_edge_attributes(parallel, 0.1, "weight")
    with pytest.raises(AffineDPError, match="'a' – 'b' is given more than once"):
        consensus(parallel)


def linked(*links):
    """A graph from its links, with weights where they are given."""
    graph = nx.Graph()
    for a, b, *weight in links:
        graph.add_edge(a, b, **dict(zip(["weight"], weight)))
    return graph


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (linked(("a", "b", 0.3), ("b", "c", 0.0)), "agent 'c' has no link"),
        (linked(("a", "b", 0.2), ("b", "c")), "is no number: None.*metropolis"),
        (linked(("a", "b", "heavy"), ("b", "c", 0.2)), "'a' – 'b' is no number: 'heavy'"),
        (nx.DiGraph([(0, 1), (1, 0)]), "does not keep the average.*to_undirected"),
        (
            np.array([[0, 0.3, 0.1], [0.3, 0, 0.2], [0.1, 0.25, 0]]),
            "not symmetric.*1.*2.*differ by 0.05",
        ),
        (nx.laplacian_matrix(RING).astype(float), "of a Laplacian, give the weights"),
        (nx.union(RING, nx.empty_graph(["z"])), "agent 'z' has no link"),
        (
            nx.disjoint_union(nx.cycle_graph(4), nx.cycle_graph(3)),
            "4, 5 and 6 have no link to the others.*2 parts",
        ),
        (nx.empty_graph(1), "to average something.*at least 2"),
        (nx.empty_graph(0), "to average something.*at least 2"),
        (sparse.csr_array(np.ones((2, 3))), "square"),
        *((bad, None) for bad in ("ring", 3, None, [[0, 1]], np.ones((2, 2, 2)), np.eye(2) * 1j)),
        ([["a"]], None),
    ],
)
def test_graphs_that_are_refused(graph, words):
    with pytest.raises(AffineDPError, match=words):
        consensus(graph)


@pytest.mark.parametrize("size", [1e-13, 1e-20, 1e-300])
def test_light_links_that_go_one_way(size):
    """Each link is looked at by itself: beside heavy ones a light one is no rounding."""
    matrix = np.array([[0, 0.3, size], [0.3, 0, 0.2], [0, 0.2, 0]])
    with pytest.raises(AffineDPError, match="not symmetric: [02] hears [02] "):
        consensus(matrix)
    matrix[2, 0] = 2 * size
    with pytest.raises(AffineDPError, match="not symmetric"):
        consensus(sparse.csr_array(matrix))
    matrix[2, 0] = size
    assert consensus(matrix).weights[0, 2] == size


def test_rounding_is_no_asymmetry():
    matrix = np.array([[0, 0.3], [0.3 + 1e-17, 0]])
    matrix[1, 0] = np.nextafter(0.3, 1)
    P = consensus(matrix).network.transition.toarray()
    assert_array_equal(P, P.T)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1])
def test_weights_that_are_none(bad):
    graph = weighted(RING.copy())
    graph["b"]["c"]["weight"] = bad
    with pytest.raises(AffineDPError, match="'b' and 'c'|'c' and 'b'"):
        consensus(graph)
    with pytest.raises(AffineDPError):
        network_of(nx.to_scipy_sparse_array(graph))
    with pytest.raises(AffineDPError):
        network_from_edges(2, [0], [1], [bad])


def test_bad_lists_of_links():
    for n, sources, targets, what in [
        (3, [0, 1], [1], "2 sources but 1 targets"),
        (3, [0, 3], [1, 1], "names agent 3"),
        (3, [0, -1], [1, 1], "names agent -1"),
        (3, [0.5], [1], "whole numbers"),
        (True, [0], [1], "whole number"),
        (2.0, [0], [1], "whole number"),
    ]:
        with pytest.raises(AffineDPError, match=what):
            network_from_edges(n, sources, targets)
    with pytest.raises(AffineDPError, match="3 weights for 1 links"):
        network_from_edges(2, [0], [1], [0.1, 0.2, 0.3])
    with pytest.raises(AffineDPError, match="different names"):
        network_from_edges(2, [0], [1], names=["a", "a"])
    for weights in ("heavy", 0.0, -1.0, np.nan, [[0.1]]):
        with pytest.raises(AffineDPError):
            network_from_edges(2, [0], [1], weights)


def test_values_by_name():
    made = consensus(RING, mu={"a": 1, "c": 3, "b": 2, "e": 5, "d": 4})
    assert_array_equal(made.mu, [1, 2, 3, 4, 5])
    assert made.agents == ("a", "b", "c", "d", "e")
    with pytest.raises(AffineDPError, match="mu is missing for agents 'd' and 'e'"):
        consensus(RING, mu={"a": 1, "b": 2, "c": 3})
    with pytest.raises(AffineDPError, match="no agent 'x'"):
        consensus(RING, mu={"x": 1})
    with pytest.raises(AffineDPError, match="each of 5 agents"):
        consensus(RING, mu=[1, 2])


def test_names_of_numbered_agents():
    numbered = consensus(nx.path_graph(3))
    assert numbered.network.position(np.int64(2)) == 2
    for wrong in (3, -1, True, "1", 1.0, [1]):
        with pytest.raises(AffineDPError, match="no agent"):
            numbered.agent_guarantee(wrong)
    relabelled = consensus(nx.Graph([(2, 1), (1, 0)]))
    assert relabelled.agents == (2, 1, 0)
    assert relabelled.network.position(2) == 0


def test_names_that_cannot_be_looked_up():
    for names in ([["a"], "b"], [("a", ["b"]), "c"], [{}, "b"]):
        with pytest.raises(AffineDPError, match="cannot be the name of an agent"):
            PrivateConsensus.from_edges(2, [0], [1], law="laplace", epsilon=1.0, names=names)
    for names in (["a", "a"], ["a"], 5):
        with pytest.raises(AffineDPError, match="2 different names"):
            PrivateConsensus.from_edges(2, [0], [1], law="laplace", epsilon=1.0, names=names)
    with pytest.raises(AffineDPError, match="no agent"):
        consensus(RING).agent_guarantee(("a", ["b"]))


def test_it_does_not_change():
    made = consensus(RING)
    with pytest.raises(AttributeError, match="does not change"):
        made.noise = None
    for array in (made.sigma, made.mu, made.network.transition.data, made.network.weight_sums):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    graph = weighted(RING.copy())
    made = consensus(graph)
    before = made.weights.toarray()
    graph["a"]["b"]["weight"] = 9.0
    assert_array_equal(made.weights.toarray(), before)
    mu = np.ones(5)
    made = consensus(RING, mu=mu)
    mu[0] = 9.0
    assert made.mu[0] == 1.0
