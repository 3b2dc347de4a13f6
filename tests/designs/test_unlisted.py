import itertools
from fractions import Fraction

import cvxpy as cp
import mpmath as mp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space

from affinedp.designs.least_trace import least_trace
from affinedp.designs.without_list import certified_weights
from affinedp.errors import AffineDPError
from affinedp.privacy.without_list import domination_factor, top_sum

GRAPHS = {
    "petersen": nx.petersen_graph(),
    "grid": nx.grid_2d_graph(4, 4),
    "complete": nx.complete_graph(5),
    "wheel": nx.wheel_graph(7),
    "two cycles": nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]),
}


def flows(graph):
    """An orthonormal basis of the flows on the edges, and q + 1."""
    kernel = null_space(nx.incidence_matrix(graph, oriented=True).toarray())
    return kernel, len(kernel) - kernel.shape[1] + 1


def cycles(graph):
    """Every simple cycle as a vector of 0, 1 and −1 over the edges."""
    place = {}
    for i, (a, b) in enumerate(graph.edges):
        place[a, b], place[b, a] = (i, 1.0), (i, -1.0)
    found = []
    for nodes in nx.simple_cycles(graph):
        found.append(np.zeros(graph.number_of_edges()))
        for step in zip(nodes, nodes[1:] + nodes[:1]):
            i, sign = place[step]
            found[-1][i] = sign
    return np.array(found)


def random_cost(size, rank, seed):
    root = np.random.default_rng(seed).normal(size=(size, rank))
    return root @ root.T


def random_kernel(n, k, seed):
    return np.random.default_rng(seed).normal(size=(n, k))


def exact_moment(kernel, weights):
    rows = mp.matrix(kernel.tolist())
    return rows.T * mp.diag([mp.mpf(w) for w in weights.tolist()]) * rows


def exact_value(kernel, cost, weights):
    product = mp.matrix(cost.tolist()) * exact_moment(kernel, weights) ** -1
    return sum(product[i, i] for i in range(product.rows))


def exact_top_sum(weights, most):
    return sum(sorted(map(Fraction, weights.tolist()), reverse=True)[:most])


def clarabel_optimum(kernel, cost, most):
    values, vectors = np.linalg.eigh(cost)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    y = cp.Variable(len(kernel), nonneg=True)
    moment = kernel.T @ cp.diag(y) @ kernel
    problem = cp.Problem(
        cp.Minimize(cp.matrix_frac(root, (moment + moment.T) / 2)),
        [cp.sum_largest(y, min(most, len(kernel))) <= 1],
    )
    return problem.solve(solver=cp.CLARABEL)


def check(kernel, cost, most, best, tol):
    """Feasible and not worse than said, with exact or 40-digit arithmetic."""
    assert best.weights.shape == (len(kernel),)
    assert np.all(best.weights >= 0.0)
    assert exact_top_sum(best.weights, most) <= 1
    with mp.workdps(40):
        value = exact_value(kernel, cost, best.weights)
        assert value * (1 - mp.mpf(10) ** -13) <= best.value <= value * (1 + mp.mpf(10) ** -8)
    assert 0.0 < best.lower_bound <= best.value
    assert best.gap == pytest.approx(best.value / best.lower_bound - 1.0, abs=1e-14)
    assert best.gap <= tol


# --- the top sum ----------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_top_sum_is_an_upper_bound_and_close(weights, most):
    exact = exact_top_sum(np.array(weights), most)
    assert exact <= Fraction(top_sum(weights, most)) <= exact * (1 + Fraction(1, 2**51)) + 1e-300


def test_top_sum_refuses_what_overflows():
    with pytest.raises(AffineDPError, match="too large to be added"):
        top_sum([1e308, 1e308], 2)


# --- the promise for all circuits -----------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("rank", [2, None])
def test_every_cycle_is_covered(name, rank):
    kernel, most = flows(GRAPHS[name])
    size = kernel.shape[1]
    query = np.eye(size) if rank is None else np.random.default_rng(1).normal(size=(rank, size))
    best = certified_weights(kernel, query.T @ query, most)
    covariance = query @ np.linalg.inv((kernel.T * best.weights) @ kernel) @ query.T
    whitened = np.linalg.inv(np.linalg.cholesky(covariance)) @ query @ kernel.T
    factor = domination_factor(kernel, best.weights, whitened)
    assert factor == pytest.approx(1.0, abs=1e-8)
    for cycle in cycles(GRAPHS[name]):
        moved = query @ kernel.T @ cycle
        length = moved @ np.linalg.solve(covariance, moved)
        covered = best.weights @ cycle**2
        assert length <= covered * (1.0 + 1e-9)
        assert np.sum((whitened @ cycle) ** 2) <= factor * covered * (1.0 + 1e-12)
        assert covered <= top_sum(best.weights, most) <= 1.0


@pytest.mark.parametrize(
    ("name", "ratio"), [("petersen", 1.1111), ("grid", 1.3245), ("complete", 1.0)]
)
def test_against_the_optimum_over_listed_circuits(name, ratio):
    kernel, most = flows(GRAPHS[name])
    best = certified_weights(kernel, np.eye(kernel.shape[1]), most, tol=1e-6)
    listed = least_trace(cycles(GRAPHS[name]) @ kernel, tol=1e-6)
    assert best.value >= listed.lower_bound
    assert best.value / listed.value == pytest.approx(ratio, abs=1e-4)
    check(kernel, np.eye(kernel.shape[1]), most, best, 1e-6)


# --- the optimum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_against_clarabel(seed):
    n, k = [(5, 2), (8, 3), (12, 6), (7, 6)][seed % 4]
    kernel, most = random_kernel(n, k, seed), [1, 3, n, n + 5][(seed // 2) % 4]
    cost = random_cost(k, [k, 2][seed % 2], seed + 100)
    best = certified_weights(kernel, cost, most, tol=1e-5)
    check(kernel, cost, most, best, 1e-5)
    optimum = clarabel_optimum(kernel, cost, most)
    assert best.lower_bound <= optimum * (1.0 + 1e-6)
    assert optimum <= best.value * (1.0 + 1e-6)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_no_feasible_weights_beat_the_lower_bound(k, more, most, seed):
    kernel, cost = random_kernel(k + more, k, seed), random_cost(k, k, seed + 1)
    best = certified_weights(kernel, cost, most, tol=0.3)  # loose: both bounds far from the optimum
    tight = certified_weights(kernel, cost, most, tol=1e-6)
    check(kernel, cost, most, tight, 1e-6)
    assert best.lower_bound <= tight.value <= best.value * (1.0 + 1e-6)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        other = np.maximum(tight.weights * np.exp(rng.normal(scale=0.1, size=k + more)), 1e-6)
        other /= top_sum(other, most)
        value = np.trace(cost @ np.linalg.inv((kernel.T * other) @ kernel))
        assert tight.lower_bound <= value * (1.0 + 1e-9)


def test_closed_forms():
    one = certified_weights([[2.0]], [[3.0]], 1, tol=1e-6)
    assert one.weights.tolist() == [pytest.approx(1.0)]
    assert one.value == pytest.approx(0.75)
    cycle = certified_weights(np.ones((7, 1)), [[1.0]], 7, tol=1e-6)
    assert cycle.value == pytest.approx(1.0, rel=1e-6)
    # No equations: every entry may weigh 1.
    free = certified_weights(np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0]), 1, tol=1e-6)
    assert free.value == pytest.approx(10.0, rel=1e-6)
    # A simplex and an orthonormal kernel: (Σ √c)².
    simplex = certified_weights(np.eye(3), np.diag([1.0, 4.0, 9.0]), 3, tol=1e-6)
    assert simplex.value == pytest.approx(36.0, rel=1e-6)
    np.testing.assert_allclose(simplex.weights, [1 / 6, 1 / 3, 1 / 2], rtol=1e-3)


@pytest.mark.parametrize("most", [2, 3, 9])
def test_a_cost_that_sees_one_direction_only(most):
    """The infimum 1 is not attained; the weights stay usable."""
    best = certified_weights(np.eye(3), np.diag([1.0, 0.0, 0.0]), most, tol=1e-4)
    check(np.eye(3), np.diag([1.0, 0.0, 0.0]), most, best, 1e-4)
    assert best.lower_bound <= 1.0 < best.value
    assert np.all(best.weights > 0.0)
    assert domination_factor(np.eye(3), best.weights, np.eye(3)) > 1.0


def test_a_longer_circuit_costs_more():
    kernel, cost = random_kernel(9, 4, 3), random_cost(4, 3, 4)
    values = [certified_weights(kernel, cost, most, tol=1e-6) for most in range(1, 11)]
    for less, more in itertools.pairwise(values):
        assert less.lower_bound <= more.value
    assert values[-1].value == pytest.approx(values[-2].value, rel=1e-5)


def test_coordinates_and_units_do_not_matter():
    kernel, cost = random_kernel(9, 4, 5), random_cost(4, 4, 6)
    best = certified_weights(kernel, cost, 4, tol=1e-6)
    change = random_kernel(4, 4, 7)
    other = certified_weights(kernel @ change, change.T @ cost @ change, 4, tol=1e-6)
    assert other.value == pytest.approx(best.value, rel=2e-6)
    units = np.array([1e-80, 1.0, 1e50, 1e90])
    other = certified_weights(kernel * units, cost * np.outer(units, units) * 1e60, 4, tol=1e-6)
    assert other.value == pytest.approx(best.value * 1e60, rel=2e-6)


def test_a_cycle_space_given_by_fundamental_cycles():
    """An ill-conditioned basis of 0, 1 and −1, and a query of a few totals."""
    graph = nx.grid_2d_graph(8, 9)
    incidence = nx.incidence_matrix(graph, oriented=True).toarray()[:-1]
    tree = {frozenset(edge) for edge in nx.bfs_tree(graph, (0, 0)).edges}
    inside = np.array([frozenset(edge) in tree for edge in graph.edges])
    kernel = np.zeros((inside.size, np.count_nonzero(~inside)))
    kernel[~inside] = np.eye(kernel.shape[1])
    kernel[inside] = np.rint(-np.linalg.solve(incidence[:, inside], incidence[:, ~inside]))
    assert not np.any(incidence @ kernel)
    query = np.random.default_rng(8).integers(-1, 2, size=(6, len(kernel))) @ kernel
    most = len(incidence) + 1
    best = certified_weights(kernel, query.T @ query, most)
    assert best.gap <= 1e-3
    assert exact_top_sum(best.weights, most) <= 1
    moment = (kernel.T * best.weights) @ kernel
    assert best.value == pytest.approx(np.trace(query @ np.linalg.solve(moment, query.T)), rel=1e-8)


def test_the_reported_gap_never_grows():
    seen = []
    kernel, cost = random_kernel(12, 6, 9), random_cost(6, 2, 10)
    best = certified_weights(kernel, cost, 4, tol=1e-6, progress=lambda *args: seen.append(args))
    assert {stage for stage, _ in seen} == {"certified weights"}
    gaps = [gap for _, gap in seen]
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) == best.iterations + 1
    assert best.gap == pytest.approx(gaps[-1], abs=1e-7)


def test_the_search_stops_and_says_how_far_it_came(monkeypatch):
    monkeypatch.setattr("affinedp.designs.without_list.MOST_STEPS", 1)
    with pytest.raises(AffineDPError, match=r"certified down to .* pass a larger tol"):
        certified_weights(random_kernel(12, 6, 9), random_cost(6, 2, 10), 4, tol=1e-6)


# --- domination -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(1, 5), st.floats(0, 6), st.integers(0, 10**6)
)
def test_domination_bounds_the_generalised_eigenvalue(k, more, r, spread, seed):
    rng = np.random.default_rng(seed)
    kernel = random_kernel(k + more, k, seed) * 10.0 ** rng.uniform(-spread, spread, k)
    weights = 10.0 ** rng.uniform(-spread, 0, k + more)
    weights[:more] *= rng.integers(0, 2, more)  # some may vanish
    whitened = rng.normal(size=(r, k + more)) * 10.0 ** rng.uniform(-spread, spread)
    factor = domination_factor(kernel, weights, whitened)
    with mp.workdps(60):
        inverse = mp.cholesky(exact_moment(kernel, weights)) ** -1
        product = mp.matrix(whitened.tolist()) * mp.matrix(kernel.tolist()) * inverse.T
        exact = max(mp.eigsy(product * product.T, eigvals_only=True))
        assert exact <= factor <= exact * (1 + mp.mpf(10) ** -6)


def test_domination_in_extreme_units():
    kernel, whitened = random_kernel(6, 3, 1), random_kernel(2, 6, 2)
    weights = np.array([1.0, 0.5, 0.25, 0.0, 1.0, 2.0])
    factor = domination_factor(kernel, weights, whitened)
    scaled = domination_factor(kernel * 1e200, weights * 1e-150, whitened * 1e70)
    assert scaled == pytest.approx(factor * 1e290, rel=1e-9)
    with pytest.raises(AffineDPError, match="double precision"):
        domination_factor(kernel, weights * 1e-250, whitened * 1e70)


def test_domination_of_nothing_is_zero():
    assert domination_factor(np.eye(2), [1.0, 1.0], np.zeros((1, 2))) == 0.0
    assert domination_factor(np.eye(2), [1.0, 1.0], np.zeros((0, 2))) == 0.0


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 1e-320]])
def test_domination_refuses_singular_weights(weights):
    kernel = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(AffineDPError, match="singular to working precision"):
        domination_factor(kernel, weights, np.eye(3))


def test_domination_refuses_dependent_columns():
    with pytest.raises(AffineDPError, match="singular to working precision"):
        domination_factor(np.ones((3, 2)), np.ones(3), np.eye(3))


@pytest.mark.parametrize(
    ("kernel", "weights", "whitened", "message"),
    [
        (np.eye(2), [1.0, np.nan], np.eye(2), r"weights\[1\] is nan"),
        (np.eye(2), [1.0, -1.0], np.eye(2), r"weights\[1\] is -1.0"),
        (np.eye(2), [1.0], np.eye(2), "needs as many weights"),
        (np.eye(2), [1.0, 1.0], np.eye(3), "columns of the whitened query"),
        (np.eye(2), [1.0, 1.0], [[1.0, np.inf]], "must be finite"),
        (np.ones((1, 2)), [1.0], np.eye(1), "not more columns than rows"),
        (np.ones((2, 0)), [1.0, 1.0], np.eye(2), "at least one column"),
    ],
)
def test_domination_refuses(kernel, weights, whitened, message):
    with pytest.raises(AffineDPError, match=message):
        domination_factor(kernel, weights, whitened)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "cost", "most", "message"),
    [
        ([[1.0], [np.nan]], [[1.0]], 1, r"kernel\[1, 0\] is nan"),
        ([1.0, 2.0], [[1.0]], 1, "kernel must be a matrix"),
        (np.ones((3, 0)), np.ones((0, 0)), 1, "at least one column"),
        (np.ones((1, 2)), np.eye(2), 1, "not more columns than rows"),
        ([[1.0], [0.0]], [[1.0]], 1, "row 1 of kernel is zero"),
        (np.ones((3, 2)), np.eye(2), 1, "2 columns but rank 1"),
        ([[1.0, 0.0], [1.0, 0.0]], np.eye(2), 1, "2 columns but rank 1"),
        (np.eye(2), np.eye(3), 1, "cost has shape"),
        (np.eye(2), [[1.0, np.inf], [np.inf, 1.0]], 1, "must be finite"),
        (np.eye(2), [[1.0, 0.5], [0.0, 1.0]], 1, "not symmetric"),
        (np.eye(2), [[1.0, 2.0], [2.0, 1.0]], 1, "not positive semidefinite"),
        (np.eye(2), [[0.0, 1.0], [1.0, 0.0]], 1, "not positive semidefinite"),
        (np.eye(2), -np.eye(2), 1, "not positive semidefinite"),
        (np.eye(2), np.zeros((2, 2)), 1, "cost is zero"),
        (np.eye(2), np.eye(2), 0, "at least 1, not 0"),
        (np.eye(2), np.eye(2), 1.5, "most must be a whole number"),
    ],
)
def test_refuses(kernel, cost, most, message):
    with pytest.raises(AffineDPError, match=message):
        certified_weights(kernel, cost, most)


@pytest.mark.parametrize("tol", [0.0, 1.0, np.nan, 1e-12])
def test_refuses_a_tolerance(tol):
    with pytest.raises(AffineDPError, match="tol is a relative gap"):
        certified_weights(np.eye(2), np.eye(2), 1, tol=tol)


def test_refuses_what_leaves_the_range_of_doubles():
    with pytest.raises(AffineDPError, match="double precision"):
        certified_weights([[1e-200]], [[1.0]], 1)
