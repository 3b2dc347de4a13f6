"""No design is worse than standard practice, computed here from matrices, for random problems."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import affinedp as adp
from affinedp.laws.laplace import geometric_variance

EPSILONS = st.sampled_from([0.1, 0.5, 1.0, 3.0])


def parents(branches):
    """A tree in which all nodes of a level have as many children."""
    parent, level = [-1], [0]
    for count in branches:
        below = []
        for node in level:
            below += range(len(parent), len(parent) + count)
            parent += [node] * count
        level = below
    return parent


def levels_of(branches):
    """What makes the numbers of every level of the cells, one matrix per level."""
    cells = math.prod(branches)
    sizes = np.cumprod([1, *branches]).tolist()
    return [np.kron(np.eye(size), np.ones((1, cells // size))) for size in sizes]


def error_of_levels(levels, weights, shares, epsilon):
    """Laplace noise of scale 1/(share ε) on every number of a level, then least squares."""
    precision = sum((s * epsilon) ** 2 / 2 * A.T @ A for s, A in zip(shares, levels))
    covariance = np.linalg.inv(precision)
    return sum(w * np.trace(A @ covariance @ A.T) for w, A in zip(weights, levels))


def best_levels(levels, weights, epsilon):
    """The best weights of levels, over all sets of levels with the cells."""
    best = math.inf
    for kept in itertools.product((0.0, 1.0), repeat=len(levels) - 1):
        mask = np.array([*kept, 1.0])

        def value(x, mask=mask):
            share = np.exp(x - x.max()) * mask
            return math.log(error_of_levels(levels, weights, share / share.sum(), epsilon))

        found = minimize(value, np.zeros(len(levels)), method="Nelder-Mead",
                         options={"maxiter": 400, "fatol": 1e-6})  # fmt: skip
        best = min(best, math.exp(found.fun))
    return best


@settings(max_examples=12)
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=3), EPSILONS,
    st.lists(st.sampled_from([0.01, 0.1, 1.0, 5.0]), min_size=4, max_size=4),
)  # fmt: skip
def test_laplace_trees(branches, epsilon, weights):
    levels, weights = levels_of(branches), weights[: len(branches) + 1]
    cost = np.repeat(weights, [len(A) for A in levels])
    m = adp.design_tree(parents(branches), epsilon=epsilon, law="laplace", weights=cost)
    cells = sum(w * A.sum() for w, A in zip(weights, levels)) * geometric_variance(epsilon)
    practice = min(best_levels(levels, weights, epsilon), cells)
    assert float(m.expected_squared_errors @ cost) <= 1.001 * practice
    assert m.guarantee.epsilon() <= epsilon
    stated = {one.reason: one.error for one in m.alternatives}
    assert float(m.expected_squared_errors @ cost) <= min(stated.values()) * (1 + 1e-6)


@settings(max_examples=12)
@given(
    st.integers(1, 3), st.integers(3, 6), st.integers(0, 10**6), EPSILONS,
    st.sampled_from(["one", "own"]),
)  # fmt: skip
def test_equations(rows, columns, seed, epsilon, kind):
    """Independent noise on every entry, as it is and projected onto the equations."""
    rng = np.random.default_rng(seed)
    D = rng.integers(-2, 3, size=(min(rows, columns - 2), columns)).astype(float)
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        adjacency = adp.CircuitAdjacency(M)
        moves = adjacency.directions()
    except adp.AffineDPError:
        return
    weights = np.ones(columns) if kind == "one" else rng.uniform(0.1, 5, columns)
    K = M.kernel.toarray() if hasattr(M.kernel, "toarray") else M.kernel
    P = K @ np.linalg.pinv(K)
    scale = np.abs(moves).sum(axis=0).max() / epsilon
    projected = 2 * scale**2 * float(weights @ (P * P).sum(axis=1))
    m = adp.design(M, epsilon=epsilon, weights=weights, effort="quick")
    assert float(m.expected_squared_errors @ weights) <= 1.001 * projected
    assert m.guarantee.epsilon() <= epsilon
    for other in m.alternatives:
        if other.designed:
            assert float(m.expected_squared_errors @ weights) <= other.error * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 4)])
@pytest.mark.parametrize("equal", [True, False])
def test_cross_tabulations(shape, equal):
    """One weight per level of total, rows, columns and cells, over all sets of them."""
    rows, columns = shape
    levels = [
        np.ones((1, rows * columns)),
        np.kron(np.eye(rows), np.ones((1, columns))),
        np.kron(np.ones((1, rows)), np.eye(columns)),
        np.eye(rows * columns),
    ]
    cost = [1.0 if equal else 1 / len(A) for A in levels]
    m = adp.design_margins([rows, columns], "<=2", epsilon=0.5, weights=cost)
    each = np.repeat(cost, [len(A) for A in levels])
    error = float(m.expected_squared_errors @ each)
    assert error <= 1.001 * best_levels(levels, cost, 0.5)


@settings(max_examples=10)
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=2),
    st.lists(st.integers(2, 4), min_size=1, max_size=2), st.integers(1, 2), EPSILONS,
    st.sampled_from(["person", "replace"]),
)  # fmt: skip
def test_margins_at_places(branches, sizes, k, epsilon, adjacency):
    """Whole noise on cells of leaves, or on all margins of leaves or of all levels, projected."""
    d, rate = len(sizes), epsilon / (1 if adjacency == "person" else 2)
    wanted = [A for size in range(min(k, d) + 1) for A in itertools.combinations(range(d), size)]
    largest = [A for A in wanted if len(A) == min(k, d)]
    levels = levels_of(branches)

    def rows(level, A):
        parts = [np.eye(n) if j in A else np.ones((1, n)) for j, n in enumerate(sizes)]
        return functools.reduce(np.kron, parts, level)

    def error(groups):
        each = geometric_variance(rate / len(groups))
        precision = sum(rows(level, A).T @ rows(level, A) for level, A in groups) / each
        covariance = np.linalg.pinv(precision, rcond=1e-10)
        if adjacency == "replace":  # the number of all people is public
            with_all = covariance.sum(axis=1)
            covariance -= np.outer(with_all, with_all) / with_all.sum()
        return sum(np.trace(M @ covariance @ M.T) for M in map(rows, *zip(*asked)))

    asked = list(itertools.product(levels, wanted))
    full = tuple(range(d))
    practice = min(
        error([(levels[-1], full)]),
        error([(levels[-1], A) for A in largest]),
        error(list(itertools.product(levels, largest))),
        error(asked),
    )
    m = adp.design_tree_margins(
        parents(branches), sizes, f"<={min(k, d)}", epsilon=epsilon, adjacency=adjacency
    )
    assert m.expected_squared_error <= 1.001 * practice
    assert m.guarantee.epsilon() <= epsilon * (1 + 1e-12)
    stated = min(one.error for one in m.alternatives)
    assert m.expected_squared_error <= stated * (1 + 1e-6)


def test_margins_at_places_where_cells_are_many():
    """1,000 cells at each of 12 places, of which one-way tables are asked for."""
    m = adp.design_tree_margins(parents([3, 4]), [10, 10, 10], 1, epsilon=1.0)
    at_leaves = 3 * 10 * 12 * 3 * geometric_variance(1 / 3)  # at leaves, districts and the top
    assert m.expected_squared_error <= 1.001 * at_leaves
