"""No design is worse than standard practice, computed here from matrices, for random problems."""

import functools
import itertools
import math

import numpy as np
import pandas
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import affinedp as adp
from affinedp.arrays import dense
from affinedp.laws.laplace import geometric_variance
from affinedp.tables import TableRelease, with_total_rows

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


def table_equations(rows, columns, totals):
    """Cells with totals of rows and columns, or cells of which these totals are public."""
    if not totals:
        across = np.kron(np.eye(rows), np.ones((1, columns)))
        return np.vstack([across, np.kron(np.ones((1, rows)), np.eye(columns))])
    place = np.arange((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    D = np.zeros((rows + columns + 1, place.size))
    for equation, line in zip(D, [*place, *place.T]):
        equation[line[:-1]], equation[line[-1]] = 1, -1
    return D


def tree_equations(branches):
    """Every number that has parts is their sum."""
    parent = parents(branches)
    inner = sorted(set(parent[1:]))
    above = np.array([[float(p == node) for p in parent] for node in inner])
    return above - np.eye(len(parent))[inner]


@st.composite
def equations(draw):
    """Random ones, one sum with signs, tables, and trees of totals."""
    kind = draw(st.sampled_from(["random", "sum", "table", "public", "tree"]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    if kind == "random":
        columns = draw(st.integers(3, 6))
        rows = min(draw(st.integers(1, 3)), columns - 2)
        return rng.integers(-2, 3, size=(rows, columns)).astype(float)
    if kind == "sum":
        return rng.choice([-1.0, 1.0], size=(1, draw(st.integers(3, 40))))
    if kind == "tree":
        return tree_equations(draw(st.sampled_from([[3], [2, 2], [3, 2]])))
    rows, columns = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    return table_equations(rows, columns, kind == "table")


@settings(max_examples=30)
@given(
    equations(), st.integers(0, 10**6), EPSILONS, st.sampled_from(["one", "own"]),
    st.sampled_from([0.0, 1e-6]), st.sampled_from([1, 20]), st.sampled_from(["all", "one", "few"]),
)  # fmt: skip
def test_equations(D, seed, epsilon, kind, delta, releases, asked):
    """Independent noise of either law on every output, projected onto what obeys the equations."""
    rng, columns = np.random.default_rng(seed), D.shape[1]
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        moves = adp.CircuitAdjacency(M).directions(100_000)
    except adp.AffineDPError:
        return
    F = (
        np.eye(columns)
        if asked == "all"
        else rng.normal(size=(1 if asked == "one" else 2, columns))
    )
    weights = np.ones(len(F)) if kind == "one" else rng.uniform(0.1, 5, len(F))
    K = M.kernel.toarray() if hasattr(M.kernel, "toarray") else M.kernel
    P = F @ K @ np.linalg.pinv(F @ K)
    cost = float(weights @ (P * P).sum(axis=1))
    moved = F @ (moves.toarray() if hasattr(moves, "toarray") else moves)
    practice = 2 * (np.abs(moved).sum(axis=0).max() * releases / epsilon) ** 2 * cost
    if delta:
        size = np.linalg.norm(moved, axis=0).max() * math.sqrt(releases)
        practice = min(practice, float(adp.gaussian_sigma(epsilon, delta, size)) ** 2 * cost)
    m = adp.design(
        M, epsilon=epsilon, delta=delta, weights=weights, effort="quick", releases=releases,
        query=None if asked == "all" else F,
    )  # fmt: skip
    error = float(m.expected_squared_errors @ weights)
    assert error <= 1.001 * practice
    assert m.lower_bound is None or m.lower_bound <= error * (1 + 1e-9)
    if releases == 1:
        assert m.guarantee.holds(epsilon, delta)
    for other in m.alternatives:
        assert error <= other.error * (1 + 1e-6) or not other.designed


@settings(max_examples=30)
@given(
    equations(), st.integers(0, 10**6), EPSILONS, st.sampled_from([0.0, 1e-2]),
    st.sampled_from([1, 20]), st.sampled_from(["all", "one", "few"]),
)  # fmt: skip
@example(np.array([[4.0, -3.0, -9.0, -7.0, 0.0]]), 0, 0.1, 0.0, 1, "all")
@example(np.array([[1.0, 1.0, -1.0]]), 0, 0.1, 1e-2, 20, "one")
def test_largest_variance(D, seed, epsilon, delta, releases, asked):
    """The same of either law, and Laplace noise on numbers from which the others follow."""
    rng, columns = np.random.default_rng(seed), D.shape[1]
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        moves = dense(adp.CircuitAdjacency(M).directions(20_000))
    except adp.AffineDPError:
        return
    F = {"all": np.eye(columns)}.get(asked, rng.normal(size=(1 if asked == "one" else 2, columns)))
    K, moved = F @ dense(M.kernel), F @ moves
    P = K @ np.linalg.pinv(K)
    practice = 2 * (np.abs(moved).sum(axis=0).max() * releases / epsilon) ** 2 * np.diag(P).max()
    if delta:
        size = np.linalg.norm(moved, axis=0).max() * math.sqrt(releases)
        noise = float(adp.gaussian_sigma(epsilon, delta, size)) ** 2
        practice = min(practice, noise * np.diag(P).max())
    span = np.linalg.svd(K)[0][:, : np.linalg.matrix_rank(K)]
    for chosen in itertools.islice(itertools.combinations(range(len(F)), span.shape[1]), 500):
        if np.linalg.cond(span[list(chosen)]) < 1e6:
            back = span @ np.linalg.inv(span[list(chosen)])
            reach = np.abs(moved[list(chosen)]).sum(axis=0).max() * releases / epsilon
            practice = min(practice, 2 * reach**2 * (back**2).sum(axis=1).max())
    m = adp.design(
        M, epsilon=epsilon, delta=delta, objective="largest", effort="quick", releases=releases,
        query=None if asked == "all" else F,
    )  # fmt: skip
    largest = float(m.expected_squared_errors.max())
    assert largest <= 1.001 * practice
    assert m.lower_bound is None or m.lower_bound <= largest * (1 + 1e-9)
    if releases == 1:
        assert m.guarantee.holds(epsilon, delta)
    for other in m.alternatives:
        assert largest <= other.error * (1 + 1e-6) or not other.designed


@settings(max_examples=8)
@given(equations(), st.integers(0, 10**6), EPSILONS, st.sampled_from(["gaussian", "laplace"]))
def test_one_law(D, seed, epsilon, law):
    """The design of one law, against independent noise of that law, projected."""
    rng = np.random.default_rng(seed)
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        moves = dense(adp.CircuitAdjacency(M).directions(20_000))
    except adp.AffineDPError:
        return
    weights, K = rng.uniform(0.1, 5, M.n), dense(M.kernel)
    P = K @ np.linalg.pinv(K)
    cost = float(weights @ (P * P).sum(axis=1))
    if law == "gaussian":
        size = np.linalg.norm(moves, axis=0).max()
        practice = float(adp.gaussian_sigma(epsilon, 1e-6, size)) ** 2 * cost
        found = [adp.design_gaussian(M, epsilon=epsilon, delta=1e-6, weights=weights)]
    else:
        practice = 2 * (np.abs(moves).sum(axis=0).max() / epsilon) ** 2 * cost
        asked = {"epsilon": epsilon, "weights": weights, "effort": "quick"}
        found = [adp.design_laplace(M, **asked), adp.design_knorm(M, **asked)]
    for m in found:
        assert float(m.expected_squared_errors @ weights) <= 1.001 * practice
        assert m.guarantee.holds(epsilon, 1e-6 if law == "gaussian" else 0.0)


@settings(max_examples=15)
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=3), st.integers(1, 3), EPSILONS,
    st.sampled_from([0.0, 1e-6]), st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
def test_margins(sizes, k, epsilon, delta, weighted, seed):
    """Noise on cells, on all margins that are asked for, and on the largest of them, projected."""
    wanted = [
        A for size in range(min(k, len(sizes)) + 1)
        for A in itertools.combinations(range(len(sizes)), size)
    ]  # fmt: skip

    def rows(A):
        return functools.reduce(
            np.kron, [np.eye(n) if j in A else np.ones((1, n)) for j, n in enumerate(sizes)]
        )

    weights = np.random.default_rng(seed).uniform(0.1, 5, len(wanted))
    weights = weights if weighted else np.ones(len(wanted))

    def error(groups):
        each = geometric_variance(epsilon / len(groups))
        if delta:
            size = math.sqrt(len(groups))
            each = min(each, float(adp.gaussian_sigma(epsilon, delta, size)) ** 2)
        covariance = np.linalg.pinv(sum(rows(A).T @ rows(A) for A in groups), rcond=1e-10) * each
        return sum(w * np.trace(rows(A) @ covariance @ rows(A).T) for w, A in zip(weights, wanted))

    largest = [A for A in wanted if len(A) == min(k, len(sizes))]
    practice = min(error([tuple(range(len(sizes)))]), error(largest), error(wanted))
    m = adp.design_margins(
        sizes, f"<={min(k, len(sizes))}", epsilon=epsilon, delta=delta, weights=weights
    )
    each = np.repeat(weights, [len(rows(A)) for A in wanted])
    assert float(m.expected_squared_errors @ each) <= 1.001 * practice
    assert m.guarantee.holds(epsilon, delta)


@settings(max_examples=5)
@given(
    st.lists(st.integers(2, 3), min_size=1, max_size=2), st.integers(2, 3), EPSILONS,
    st.sampled_from([None, "levels"]), st.booleans(),
)  # fmt: skip
def test_tables(branches, parts, epsilon, weights, nonnegative):
    """A hierarchy with a total column: cells added up, and one weight per level and column."""
    names = [f"part {j}" for j in range(parts)]
    places = list(itertools.product(*(range(n) for n in branches)))
    columns = [f"level {i}" for i in range(len(branches))]
    cells = pandas.DataFrame(
        [["-".join(map(str, place[: i + 1])) for i in range(len(place))] for place in places],
        columns=columns,
    )
    rows = with_total_rows(cells.assign(**dict.fromkeys(names, 1)), columns, names)
    rows["all"] = rows[names].sum(axis=1)
    made = TableRelease(
        hierarchy=columns, totals={"all": names}, epsilon=epsilon, weights=weights,
        nonnegative=nonnegative,
    ).design(rows)  # fmt: skip
    levels = [
        np.kron(level, column)
        for level in levels_of(branches) for column in (np.ones((1, parts)), np.eye(parts))
    ]  # fmt: skip
    cost = [1 / len(A) if weights else 1.0 for A in levels]
    added = geometric_variance(epsilon) * sum(w * A.sum() for w, A in zip(cost, levels))
    own = math.fsum(made.mechanism.expected_squared_errors) if weights is None else None
    assert own is None or own == pytest.approx(made.weighted_error, rel=1e-9)
    assert made.weighted_error <= 1.001 * min(added, best_levels(levels, cost, epsilon))
    assert made.guarantee.holds(epsilon, 0.0)


def best_free_set(F, K, moves, weights, epsilon):
    """Laplace noise of one scale on entries from which all others follow: all such sets."""
    best = math.inf
    for chosen in map(list, itertools.combinations(range(len(K)), K.shape[1])):
        if np.linalg.matrix_rank(K[chosen]) < K.shape[1]:
            continue
        spread = F @ K @ np.linalg.inv(K[chosen])
        scale = np.abs(moves[chosen]).sum(axis=0).max() / epsilon
        best = min(best, 2 * scale**2 * float(weights @ (spread**2).sum(axis=1)))
    return best


@pytest.mark.parametrize("effort", ["quick", "default"])
@settings(max_examples=15)
@given(
    st.integers(3, 7), st.integers(1, 3), st.integers(0, 10**6), EPSILONS,
    st.sampled_from(["whole", "decimal", "sums"]), st.sampled_from(["all", "few", "many"]),
    st.sampled_from([0.0, 1e-6]),
)  # fmt: skip
def test_noise_on_a_free_set(effort, columns, rows, seed, epsilon, kind, asked, delta):
    """Random coefficients and weights from 0.01 to 100; the other entries follow."""
    rng = np.random.default_rng(seed)
    shape = (min(rows, columns - 2) or 1, columns)
    D = {
        "whole": rng.integers(-9, 10, size=shape).astype(float),
        "decimal": rng.integers(-30, 31, size=shape) / 10,
        "sums": rng.choice([-1.0, 0.0, 1.0], size=shape),
    }[kind]
    try:
        M = adp.AffineManifold(D, public_entries="allow")
        moves = adp.CircuitAdjacency(M).directions(100_000)
    except adp.AffineDPError:
        return
    count = {"all": columns, "few": 2, "many": columns}[asked]
    F = np.eye(columns) if asked == "all" else rng.integers(-3, 4, (count, columns)).astype(float)
    K, moves = (part.toarray() if hasattr(part, "toarray") else part for part in (M.kernel, moves))
    if not np.abs(F @ moves).max(initial=0.0):
        return
    weights = 10 ** rng.uniform(-2, 2, len(F))
    m = adp.design(
        M, epsilon=epsilon, delta=delta, weights=weights, effort=effort,
        query=None if asked == "all" else F,
    )  # fmt: skip
    practice = best_free_set(F, K, moves, weights, epsilon)
    assert float(m.expected_squared_errors @ weights) <= 1.001 * practice
    assert m.guarantee.holds(epsilon, delta)


@settings(max_examples=10)
@given(
    st.sampled_from([[3], [2, 2], [3, 2], [2, 3], [3, 3]]), st.integers(1, 7),
    st.integers(0, 10**6), EPSILONS, st.sampled_from([0.0, 1e-6]),
)  # fmt: skip
@example([3, 3], 7, 0, 1.0, 0.0)
@example([3, 3], 7, 1, 1.0, 1e-6)
def test_noise_on_a_free_set_of_a_tree(branches, asked, seed, epsilon, delta):
    """Sums of the numbers of a tree of totals do not tell them, and circuits differ in length."""
    rng = np.random.default_rng(seed)
    M = adp.AffineManifold(tree_equations(branches))
    moves = adp.CircuitAdjacency(M).directions(100_000)
    F = (rng.random((min(asked, M.dim), M.n)) < 0.3).astype(float)
    K, moves = (part.toarray() if hasattr(part, "toarray") else part for part in (M.kernel, moves))
    if not np.abs(F @ moves).max():
        return
    weights = 10 ** rng.uniform(-1, 1, len(F))
    m = adp.design(M, epsilon=epsilon, delta=delta, query=F, weights=weights, effort="quick")
    practice = best_free_set(F, K, moves, weights, epsilon)
    assert float(m.expected_squared_errors @ weights) <= 1.001 * practice
    assert m.guarantee.holds(epsilon, delta)


@pytest.mark.parametrize("effort", ["quick", "default"])
@pytest.mark.parametrize(("cells", "sums"), [(14, 12), (20, 12)])
def test_noise_on_cells_added_up(effort, cells, sums):
    """Random sums of cells do not tell the cells: noise on cells is none on the sums alone."""
    rng = np.random.default_rng(cells)
    M = adp.AffineManifold(np.append(np.ones(cells), -1.0)[None])
    F = np.column_stack([rng.random((sums, cells)) < 0.5, np.zeros(sums)]).astype(float)
    weights = 10 ** rng.uniform(-1, 1, sums)
    m = adp.design(M, epsilon=1.0, query=F, weights=weights, adjacency="person", effort=effort)
    practice = 2 * float(weights @ (F**2).sum(axis=1))
    assert float(m.expected_squared_errors @ weights) <= 1.001 * practice
    assert m.guarantee.epsilon() <= 1.0


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
    st.sampled_from(["person", "replace"]), st.sampled_from([0.0, 1e-6]),
)  # fmt: skip
def test_margins_at_places(branches, sizes, k, epsilon, adjacency, delta):
    """Noise on cells of leaves, or on all margins of leaves or of all levels, projected."""
    d, moved = len(sizes), 1 if adjacency == "person" else 2
    wanted = [A for size in range(min(k, d) + 1) for A in itertools.combinations(range(d), size)]
    largest = [A for A in wanted if len(A) == min(k, d)]
    levels = levels_of(branches)

    def rows(level, A):
        parts = [np.eye(n) if j in A else np.ones((1, n)) for j, n in enumerate(sizes)]
        return functools.reduce(np.kron, parts, level)

    def error(groups):
        each = geometric_variance(epsilon / moved / len(groups))
        if delta:
            size = math.sqrt(moved * len(groups))
            each = min(each, float(adp.gaussian_sigma(epsilon, delta, size)) ** 2)
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
        parents(branches), sizes, f"<={min(k, d)}", epsilon=epsilon, adjacency=adjacency,
        delta=delta,
    )  # fmt: skip
    assert m.expected_squared_error <= 1.001 * practice
    assert m.guarantee.epsilon(delta) <= epsilon * (1 + 1e-9)
    stated = min(one.error for one in m.alternatives)
    assert m.expected_squared_error <= stated * (1 + 1e-6)


def test_margins_at_places_where_cells_are_many():
    """1,000 cells at each of 12 places, of which one-way tables are asked for."""
    m = adp.design_tree_margins(parents([3, 4]), [10, 10, 10], 1, epsilon=1.0)
    at_leaves = 3 * 10 * 12 * 3 * geometric_variance(1 / 3)  # at leaves, districts and the top
    assert m.expected_squared_error <= 1.001 * at_leaves


@pytest.mark.parametrize("unit", [1.0, 1 / 3, math.pi, 1e22, 1e-30, 1e100])
@pytest.mark.parametrize("effort", ["quick", "default"])
def test_units_of_the_equations_change_no_design(unit, effort):
    """The query has rank 1 on the data, up to rounding errors that must not count as moves."""
    D = np.array([[-1, 1, -3, -3], [-3, 3, 0, 1]], float)
    F = [[1, -1, 1, -1], [0, 0, 2, 2]]
    found = adp.design(adp.AffineManifold((D * unit).tolist()), epsilon=0.1, query=F, effort=effort)
    plain = adp.iid_noise(adp.AffineManifold(D), law="laplace", epsilon=0.1, query=F)
    assert found.expected_squared_error <= 5777.78 * 1.001
    assert found.expected_squared_error < plain.expected_squared_error


def test_noise_that_costs_more_than_floats_said_does_not_end_the_search():
    """A move that is longer than a step by one rounding takes two steps, so steps are wider."""
    M = adp.AffineManifold([[-3 * math.pi, math.pi]])
    found = adp.design(M, epsilon=1.0, query=[[0, 0], [0, -1]])
    # the least of all noise for one number that moves by 3 (Geng and Viswanath)
    least = 9 * (2 ** (-2 / 3) * math.exp(-2 / 3) * (1 + math.exp(-1)) ** (2 / 3) + math.exp(-1))
    least /= (1 - math.exp(-1)) ** 2
    assert found.expected_squared_error == pytest.approx(least)
    assert found.guarantee.holds(1.0)


@pytest.mark.parametrize("law", ["auto", "laplace", "knorm", "gaussian"])
@pytest.mark.parametrize("mu", [(10, 1, 1e-3), (1e3, 1e-3, 1), (1e-3, 1e-3, 10)])
def test_people_who_count_in_units_of_their_own(law, mu):
    """The rounding of a total is long beside what the smallest part moves by."""
    M = adp.AffineManifold.from_equations(["a + b + c = t", "b + c = u"])
    delta = 1e-6 if law == "gaussian" else 0.0
    m = adp.design(
        M, epsilon=1.0, delta=delta, adjacency="person", mu=[*mu, 1, 1], law=law, effort="quick"
    )
    parts = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 1]]) * mu
    each = float(adp.gaussian_sigma(1.0, delta, 1.0)) ** 2 if delta else 2.0
    assert m.expected_squared_error <= 1.001 * each * (parts**2).sum()
    assert m.guarantee.holds(1.0, delta)


@pytest.mark.parametrize("unit", [0.9470809631292421, 0.04132597934724359, -1.1567758])
@pytest.mark.parametrize(("law", "delta"), [("auto", 0.0), ("laplace", 0.0), ("gaussian", 1e-6)])
def test_noise_with_short_numbers_covers_equations_with_long_ones(unit, law, delta):
    """3 and 4 times a double are off 3 to 4 by a rounding, and noise of 0.6 and 0.8 by another."""
    M = adp.AffineManifold([[3 * unit, 4 * unit]])
    m = adp.design(M, epsilon=1.0, delta=delta, law=law)
    least = 2.0 if not delta else float(adp.gaussian_sigma(1.0, delta, 1.0)) ** 2
    if law == "auto":  # the least law of all on a line, by its closed form
        b = math.exp(-1.0)
        least = (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2
    assert m.expected_squared_error == pytest.approx(least * (1 + (4 / 3) ** 2), rel=1e-6)
    assert m.guarantee.holds(1.0, delta)
    assert np.all(np.isfinite(m.release([4 * unit, -3 * unit])))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("law", "delta"), [("laplace", 0.0), ("gaussian", 1e-6)])
def test_coefficients_that_rounding_left_have_noise_and_a_word_about_them(seed, law, delta):
    """Mixed equations of sums: what mixing leaves of a zero ties entries that nothing ties."""
    rng = np.random.default_rng(seed)
    D = rng.choice([-1.0, 0.0, 1.0], size=(3, 6))
    try:
        M = adp.AffineManifold((rng.normal(size=(3, 3)) @ D).tolist(), public_entries="allow")
        plain = adp.iid_noise(M, law=law, epsilon=1.0, delta=delta)
    except adp.AffineDPError:
        return
    m = adp.design(M, epsilon=1.0, delta=delta, law=law, effort="quick")
    assert m.expected_squared_error <= 1.001 * plain.expected_squared_error
    assert m.guarantee.holds(1.0, delta)
    far = abs(adp.CircuitAdjacency(M).directions(10_000)).max() > 1e12
    assert far == any("as fractions, as text" in note for note in m.notes)


@pytest.mark.parametrize("mu", [1e-300, 1e-200, 1e300])
def test_moves_without_a_square_are_refused_at_once(mu):
    M = adp.AffineManifold.from_equations(["a + b = t"])
    for make in (adp.design, adp.design_knorm, adp.design_laplace):
        with pytest.raises(adp.AffineDPError, match="double precision"):
            make(M, epsilon=1.0, mu=mu)


def test_a_cell_beside_a_deep_branch_does_not_keep_levels_from_being_left_out():
    """Noise on the branch and on all cells; the lone cell spends its budget alone."""
    parent = [-1, 0, 0, 2, 2, 2, 2, *np.repeat([3, 4, 5, 6], 3), *np.repeat(range(7, 19), 2)]
    weights = np.repeat([12.0, 14.0, 6.0, 7.5, 1.5], [1, 2, 4, 12, 24])
    above = np.zeros((len(parent), len(parent)))
    for node in reversed(range(len(parent))):
        above[node, node] = 1
        for child in np.flatnonzero(np.array(parent) == node):
            above[node] += above[child]
    A = above[:, ~np.isin(range(len(parent)), parent)]
    cells = A.sum(axis=1) == 1

    def error(share):
        scale = np.where(cells, 1 - share, 0.0)
        scale[1], scale[2] = 1.0, share
        precision = A.T @ (scale[:, None] ** 2 / 2 * A)
        return weights @ np.einsum("ij,jk,ik->i", A, np.linalg.inv(precision), A)

    m = adp.design_tree(parent, epsilon=1.0, law="laplace", weights=weights)
    practice = min(error(share) for share in np.linspace(0.01, 0.99, 99))
    assert float(m.expected_squared_errors @ weights) <= 1.001 * practice


def test_equations_of_no_network_have_noise_where_the_worst_circuit_can_be_found():
    M = adp.AffineManifold(np.random.default_rng(0).integers(-2, 3, size=(8, 20)))
    m = adp.design(M, epsilon=1.0, effort="quick")
    alone = adp.iid_noise(M, law="laplace", epsilon=1.0)
    assert m.guarantee.holds(1.0, 0.0)
    assert m.expected_squared_error <= alone.expected_squared_error * M.dim / M.n * 1.001
    drawn = m.sample(3, seed=0)
    assert np.allclose(drawn @ M.D.T, 0, atol=1e-9 * np.abs(drawn).max())
