"""Certified designs against every circuit, on graphs small enough to list them."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

import affinedp as adp
from affinedp.arrays import dense
from affinedp.designs.separate import checked_weights
from affinedp.designs.without_list import design_unlisted
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.laws.knorm import KNorm
from affinedp.mechanism import Mechanism
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.strategies.projected import Projected, cycles_of

LIMIT = gaussian_sensitivity(1.0, 1e-6)
GRAPHS = {
    "Petersen": nx.petersen_graph(),
    "4x4 grid": nx.grid_2d_graph(4, 4),
    "K5": nx.complete_graph(5),
}


def incidence(graph):
    return nx.incidence_matrix(nx.convert_node_labels_to_integers(graph), oriented=True)


def unlisted(M, mu=1.0, query=None, weights=None, imbalance=None):
    adjacency = CircuitAdjacency(M, mu)
    F = sparse.csr_array(sparse.eye_array(M.n)) if query is None else query
    names = tuple(f"y{i}" for i in range(F.shape[0]))
    checked = checked_weights(weights, F.shape[0])
    return design_unlisted(adjacency, F, names, LIMIT, checked, imbalance)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_holds_for_every_circuit_and_is_not_far_from_optimal(name):
    M = adp.AffineManifold(incidence(GRAPHS[name]))
    m = unlisted(M)
    true = adp.verify(M, m.noise_matrix)
    assert true.sensitivity <= m.guarantee.sensitivity <= LIMIT
    assert m.guarantee.sensitivity >= LIMIT * (1 - 1e-9)
    assert not m.guarantee.exact
    optimal = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    ratio = m.expected_squared_error / optimal.expected_squared_error
    assert 1 - 1e-9 <= ratio <= 1.4
    assert m.gap >= ratio - 1 - 1e-9  # the stated distance is never too small
    assert "conservative" in m.notes[0]


def test_scaled_networks_queries_weights_and_mu():
    rng = np.random.default_rng(2)
    D = incidence(nx.grid_2d_graph(3, 4)).toarray()[:-1]
    D = D * rng.choice([0.5, -2.0, 3.0], (len(D), 1)) * rng.choice([1.0, 4.0, 0.25], D.shape[1])
    M = adp.AffineManifold(np.hstack([D, np.zeros((len(D), 2))]))  # two loose entries
    mu = rng.uniform(0.2, 2, M.n)
    F = rng.normal(size=(5, M.n))
    for query, weights in ((None, None), (F, None), (None, rng.uniform(0.1, 3, M.n))):
        m = unlisted(M, mu, query, weights)
        true = adp.verify(M, m.noise_matrix, mu=mu, query=query)
        assert true.leak is None
        assert true.sensitivity <= m.guarantee.sensitivity <= LIMIT


def test_large_network_end_to_end():
    M = adp.AffineManifold(incidence(nx.grid_2d_graph(9, 9)))
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    assert m.guarantee.holds(1.0, 1e-6)
    assert "certified" in m.guarantee.basis
    cycles = nx.minimum_cycle_basis(nx.grid_2d_graph(9, 9))[:5]
    graph = nx.grid_2d_graph(9, 9)
    place = {frozenset(edge): i for i, edge in enumerate(graph.edges)}
    inverse = np.linalg.pinv(m.noise_matrix)
    for cycle in cycles:
        ring = nx.cycle_graph(0) if len(cycle) < 4 else graph.subgraph(cycle)
        support = [place[frozenset(edge)] for edge in ring.edges]
        v = np.zeros(M.n)
        D = M.D.toarray()[:, support]
        v[support] = np.linalg.svd(D)[2][-1]
        v /= np.abs(v).max()
        assert np.linalg.norm(inverse @ v) <= LIMIT


def test_imbalance_given_by_the_caller():
    """Overlapping totals: circuits with entries 1 and 2."""
    M = adp.AffineManifold([[1, 1, 0, 0, -1, 0], [0, 1, 1, 0, 0, -1], [1, 0, 1, 1, 0, 0]])
    directions = adp.CircuitAdjacency(M).directions()
    worst = max(np.abs(v).max() / np.abs(v[v != 0]).min() for v in directions.T)
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6, imbalance=worst)
    assert adp.verify(M, m.noise_matrix).sensitivity <= m.guarantee.sensitivity <= LIMIT
    for bad in (0.5, np.nan, np.inf):
        with pytest.raises(AffineDPError, match="imbalance"):
            adp.design_gaussian(M, epsilon=1.0, delta=1e-6, imbalance=bad)


def test_neither_listed_nor_network_is_refused():
    M = adp.AffineManifold(np.random.default_rng(0).integers(-9, 10, (20, 60)))
    with pytest.raises(TooManyCircuitsError, match="imbalance="):
        adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    with pytest.raises(AffineDPError):
        adp.design_laplace(M, epsilon=1.0)


def scaled_network(rows, columns, seed):
    """A grid of flows in units of their own, and two entries that nothing ties."""
    rng = np.random.default_rng(seed)
    D = incidence(nx.grid_2d_graph(rows, columns)).toarray()[:-1]
    D = D * rng.choice([0.5, -2.0, 3.0], (len(D), 1)) * rng.choice([1.0, 7.0, 0.25], D.shape[1])
    return adp.AffineManifold(np.hstack([D, np.zeros((len(D), 2))])), rng


@pytest.mark.parametrize("seed", range(4))
def test_the_length_of_circuits_bounds_noise_on_entries(monkeypatch, seed):
    """The bound is over the list of all circuits, which a small network has; the list is taken."""
    M, rng = scaled_network(3, 3, seed)
    mu, widths = rng.uniform(0.2, 2, M.n), rng.uniform(0.5, 2, M.n)
    adjacency = CircuitAdjacency(M, mu)
    law = KNorm(np.diag(widths), 1.0)
    K = dense(M.kernel)
    own = Projected(M, np.eye(M.n), K @ np.linalg.pinv(K), M.names, entries=np.arange(M.n))
    listed = (np.abs(adjacency.directions()) / widths[:, None]).sum(axis=0).max()
    assert Mechanism(adjacency, own, law).guarantee.sensitivity == pytest.approx(listed, rel=1e-6)
    monkeypatch.setattr("affinedp.strategies.projected.FEW_LISTED", 0)
    bound = Mechanism(adjacency, own, law).guarantee
    assert listed <= bound.sensitivity <= 10 * listed
    assert not bound.exact


@pytest.mark.parametrize("law", ["auto", "laplace"])
def test_networks_in_any_units_have_noise_without_delta(law):
    M, rng = scaled_network(9, 9, 5)
    mu = rng.uniform(0.2, 2, M.n)
    m = adp.design(M, epsilon=1.0, mu=mu, law=law)
    assert m.guarantee.epsilon() <= 1.0
    widths = np.abs(m.noise.points).sum(axis=0)
    graph = nx.grid_2d_graph(9, 9)
    place = {frozenset(edge): i for i, edge in enumerate(graph.edges)}
    for a, b in list(graph.edges)[:40]:  # the shortest cycles through a chord, and long ones
        tree = nx.dfs_tree(graph, a).to_undirected()
        path = nx.shortest_path(tree, a, b)
        ends = [*path, a] if len(path) > 2 else nx.cycle_basis(graph, a)[0]
        support = [place[frozenset(edge)] for edge in zip(ends, [*ends[1:], ends[0]])
                   if edge[0] != edge[1]]  # fmt: skip
        v = np.zeros(M.n)
        v[support] = np.linalg.svd(dense(M.D)[:, support])[2][-1]
        v *= np.max(mu[support] / np.abs(v[support]))
        assert np.abs(M.D @ v).max() < 1e-9
        assert np.sum(np.abs(v[m.strategy.entries]) / widths) <= 1.0
    assert np.abs(M.D @ m.sample(3, seed=0).T).max() < 1e-6


def table(rows, columns, written):
    """A table with totals, whose last equation may say what follows from the others."""
    place = np.arange((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    D = np.zeros((rows + columns + 1, place.size))
    for equation, line in zip(D, [*place, *place.T]):
        equation[line[:-1]], equation[line[-1]] = 1, -1
    if written == "cells":  # the total is that of all cells
        D[rows] = 0
        D[rows, place[:-1, :-1]], D[rows, place[-1, -1]] = 1, -1
    if written == "units":
        D *= np.resize([1.0, 2.0, 0.5, 3.0], (len(D), 1))
    return D


@pytest.mark.parametrize("written", ["cells", "units"])
def test_a_table_is_one_however_its_equations_are_written(written):
    M, plain = (adp.AffineManifold(table(5, 7, way)) for way in (written, "totals"))
    for settings in ({"epsilon": 1.0, "effort": "quick"}, {"epsilon": 1.0, "delta": 1e-6}):
        found, wanted = (adp.design(one, **settings) for one in (M, plain))
        assert found.law == wanted.law
        assert found.expected_squared_error == pytest.approx(wanted.expected_squared_error)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_known_of_cycles_is_true_of_all_circuits(seed):
    rng = np.random.default_rng(seed)
    D = incidence(nx.gnm_random_graph(5, 8, seed=seed)).toarray()
    if seed % 3 == 0:  # no network, but nearly
        D[rng.integers(len(D)), rng.integers(D.shape[1])] += rng.choice([1, -1])
    for _ in range(3):
        one, other = rng.choice(len(D), 2, replace=False)
        D[one] += rng.choice([1, -1, 2]) * D[other]
    D = D * rng.choice([0.5, 2.0, 3.0], (len(D), 1))
    if seed % 2:
        D = D * rng.choice([1.0, 4.0, 0.5], D.shape[1])
    adjacency = CircuitAdjacency(adp.AffineManifold(D, public_entries="allow"))
    for known in cycles_of(adjacency) or []:
        entries = frozenset().union(*known.sides[0])
        size = np.array([float(known.coefficients.get(i, 1)) for i in sorted(entries)])
        for move in dense(adjacency.directions()).T:
            own = np.abs(move[sorted(entries)]) * size
            assert np.count_nonzero(own) <= known.longest
            assert own.max() <= float(known.reach) * (1 + 1e-9)
            assert np.allclose(own[own > 0], own.max())
            for star in known.sides[0]:
                assert np.count_nonzero(move[sorted(star)]) in (0, 2) or len(entries) == 1


@pytest.mark.parametrize("objective", ["sum", "largest"])
def test_many_releases_of_a_table_take_no_more_than_independent_gaussian_noise(objective):
    """Of 7 rows and 9 columns a cycle meets 7 of each, and no more than 14 entries."""
    M = adp.AffineManifold(table(6, 8, "totals"))
    settings = {"epsilon": 1.0, "delta": 1e-2, "releases": 100, "effort": "quick"}
    m = adp.design(M, objective=objective, **settings)
    each = adp.gaussian_sigma(1.0, 1e-2, np.sqrt(14 * 100)) ** 2 * M.dim / M.n
    assert m.expected_squared_errors.max() <= each * 1.001
    assert m.guarantee.holds(m.guarantee.epsilon(1e-2), 1e-2)
