import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.designs import interior_point
from affinedp.designs.interior_point import evaluate, hessian
from affinedp.designs.least_trace import least_trace
from affinedp.errors import AffineDPError


def random_problem(r, K, seed):
    rng = np.random.default_rng(seed)
    square = rng.normal(size=(r, r))
    return rng.normal(size=(K, r)), square @ square.T / r + 0.01 * np.eye(r)


def rotation(r, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(r, r)))[0]


def check_exactly(directions, weight, best):
    """Feasibility, value and dual bound with 50 digits, from the definitions."""
    with mp.workdps(50):
        rows = [mp.matrix([row]) for row in directions.tolist()]
        inverse = mp.matrix(best.covariance.tolist()) ** -1
        inverse_root = mp.matrix(best.root.tolist()) ** -1
        by_covariance = max((row * inverse * row.T)[0] for row in rows)
        by_root = max(mp.norm(inverse_root * row.T) ** 2 for row in rows)
        exact_weight = mp.matrix(weight.tolist())
        product = exact_weight * mp.matrix(best.covariance.tolist())
        value = sum(product[i, i] for i in range(len(weight)))
        moment = mp.zeros(len(weight))
        for w, row in zip(best.weights.tolist(), rows, strict=True):
            moment += mp.mpf(w) * row.T * row
        factor = mp.cholesky(exact_weight)
        eigenvalues = mp.eigsy(factor.T * moment * factor, eigvals_only=True)
        total = mp.fsum(map(mp.mpf, best.weights.tolist()))
        dual = sum(mp.sqrt(max(e, 0)) for e in eigenvalues) ** 2 / total
        assert by_covariance <= 1
        assert by_root <= 1
        assert value <= best.value <= value * (1 + mp.mpf(10) ** -9)
        assert best.lower_bound <= dual
        assert best.lower_bound <= value
        assert abs(best.gap - (best.value / best.lower_bound - 1)) <= 1e-15
        return float(by_covariance)


def check_in_floats(directions, weight, best, tol):
    lengths = np.einsum("ki,ik->k", directions, np.linalg.solve(best.covariance, directions.T))
    assert lengths.max() == pytest.approx(1.0, abs=1e-9)
    assert np.trace(weight @ best.covariance) == pytest.approx(best.value, rel=1e-11)
    assert np.array_equal(best.covariance, best.covariance.T)
    np.testing.assert_allclose(best.root @ best.root.T, best.covariance, rtol=1e-12, atol=1e-300)
    assert best.weights.shape == (len(directions),)
    assert np.all(best.weights >= 0.0)
    assert best.weights.sum() == pytest.approx(1.0, abs=1e-12)
    values, vectors = np.linalg.eigh(weight)
    half = vectors * np.sqrt(values) @ vectors.T
    moment = (directions.T * best.weights) @ directions
    dual = np.sum(np.sqrt(np.linalg.eigvalsh(half @ moment @ half))) ** 2
    assert best.lower_bound == pytest.approx(dual, rel=1e-9)
    assert 0.0 <= best.gap <= tol


# --- against closed forms -------------------------------------------------------------------------


def test_one_dimension_is_the_largest_square():
    best = least_trace(np.array([[3.0], [-4.0], [0.0]]), np.array([[2.0]]))
    assert best.value == pytest.approx(32.0, rel=1e-13)
    assert best.covariance[0, 0] == pytest.approx(16.0, rel=1e-13)
    assert best.weights.tolist() == [0.0, 1.0, 0.0]
    assert best.iterations == 0


def test_orthogonal_directions():
    lengths = np.array([1.0, 3.0, 0.2, 7.0])
    best = least_trace(lengths[:, None] * rotation(4, 0))
    assert best.value == pytest.approx(np.sum(lengths**2), rel=1e-8)
    np.testing.assert_allclose(best.weights, lengths**2 / np.sum(lengths**2), rtol=1e-4)


@pytest.mark.parametrize("angle", [0.1, 0.7, 1.5])
def test_two_directions_at_an_angle(angle):
    best = least_trace(np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]))
    assert best.value == pytest.approx(1.0 + np.sin(angle), rel=1e-8)


@pytest.mark.parametrize("r", [2, 3, 6])
def test_symmetric_sets(r):
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=r)))
    assert least_trace(corners).value == pytest.approx(r * r, rel=1e-8)
    # neighbours under one sum constraint on r + 1 entries: Σ is twice the projection
    basis = np.linalg.svd(np.ones((1, r + 1)))[2][1:]
    edges = [
        np.eye(r + 1)[i] - np.eye(r + 1)[j] for i, j in itertools.combinations(range(r + 1), 2)
    ]
    best = least_trace(np.array(edges) @ basis.T)
    assert best.value == pytest.approx(2.0 * r, rel=1e-8)
    np.testing.assert_allclose(best.covariance, 2.0 * np.eye(r), atol=1e-4)


@pytest.mark.parametrize(("n", "total"), [(64, 282.201421), (256, 1631.403045)])
def test_prefix_sums(n, total):
    columns = np.tril(np.ones((n, n))).T  # the columns of the workload, one per row
    best = least_trace(columns, tol=1e-9)
    assert best.value == pytest.approx(total, abs=2e-6)
    check_in_floats(columns, np.eye(n), best, 1e-9)


# --- against a generic solver ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r", "K", "seed"), [(2, 2, 0), (2, 30, 1), (3, 7, 2), (4, 40, 3), (6, 6, 4)]
)
def test_agrees_with_clarabel(r, K, seed):
    import cvxpy as cp

    directions, weight = random_problem(r, K, seed)
    covariance = cp.Variable((r, r), symmetric=True)
    precision = cp.Variable((r, r), symmetric=True)
    identity = np.eye(r)
    constraints = [
        cp.bmat([[covariance, identity], [identity, precision]]) >> 0,
        cp.sum(cp.multiply(directions @ precision, directions), axis=1) <= 1,
    ]
    peer = cp.Problem(cp.Minimize(cp.trace(weight @ covariance)), constraints)
    peer.solve(solver=cp.CLARABEL)
    best = least_trace(directions, weight)
    assert best.value == pytest.approx(peer.value, rel=1e-5)
    scale = np.linalg.norm(covariance.value)
    assert np.linalg.norm(best.covariance - covariance.value) <= 2e-3 * scale


# --- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "K"), [(2, 5000), (5, 5), (20, 200), (30, 1000), (60, 60)])
def test_certificate_in_floats(r, K):
    directions, weight = random_problem(r, K, r + K)
    check_in_floats(directions, np.eye(r), least_trace(directions), 1e-8)
    check_in_floats(directions, weight, least_trace(directions, weight), 1e-8)


@pytest.mark.parametrize(("r", "K"), [(1, 4), (2, 2), (2, 40), (3, 12), (5, 30), (8, 8)])
def test_certificate_in_50_digits(r, K):
    directions, weight = random_problem(r, K, r * K)
    worst = check_exactly(directions, weight, least_trace(directions, weight))
    assert worst >= 1.0 - 1e-9


def test_tighter_tolerance():
    directions, weight = random_problem(10, 60, 5)
    best = least_trace(directions, weight, tol=1e-10)
    assert best.gap <= 1e-10
    check_in_floats(directions, weight, best, 1e-10)


@pytest.mark.parametrize("K", [3, 50, 20_000])
def test_only_the_convex_hull_matters(K):
    """Points inside the ellipsoid of others change nothing, however many there are."""
    rng = np.random.default_rng(K)
    outer, weight = random_problem(3, 12, 6)
    inner = rng.dirichlet(np.ones(12), size=K) @ outer
    best = least_trace(np.vstack([inner, outer, -inner]), weight)
    assert best.value == pytest.approx(least_trace(outer, weight).value, rel=2e-8)
    check_in_floats(np.vstack([inner, outer, -inner]), weight, best, 1e-8)


# --- invariance -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_change_of_basis(seed):
    r = 5
    directions, weight = random_problem(r, 25, seed)
    change = rotation(r, seed) * np.geomspace(1.0, 30.0, r) @ rotation(r, seed + 10)
    back = np.linalg.inv(change)
    moved_weight = back.T @ weight @ back
    best = least_trace(directions, weight)
    moved = least_trace(directions @ change.T, 0.5 * (moved_weight + moved_weight.T))
    assert moved.value == pytest.approx(best.value, rel=2e-8)
    np.testing.assert_allclose(
        back @ moved.covariance @ back.T, best.covariance, atol=1e-3 * best.value
    )


@pytest.mark.parametrize("scale", [1e-130, 1e-12, 1e12, 1e130])
def test_overall_scale(scale):
    directions, weight = random_problem(4, 20, 1)
    best, scaled = least_trace(directions, weight), least_trace(scale * directions, weight)
    assert scaled.value / scale**2 == pytest.approx(best.value, rel=2e-8)
    other = least_trace(directions, scale * weight)
    assert other.value / scale == pytest.approx(best.value, rel=2e-8)


def test_units_of_single_coordinates_do_no_harm():
    directions, _ = random_problem(4, 20, 2)
    units = np.array([1e-6, 1.0, 1e6, 1e3])
    best = least_trace(directions * units)
    check_exactly(directions * units, np.eye(4), best)
    same = least_trace(directions, np.diag(units**2))
    assert best.value == pytest.approx(same.value, rel=2e-8)


def test_deterministic():
    directions, weight = random_problem(8, 400, 3)
    first, second = least_trace(directions, weight), least_trace(directions, weight)
    assert np.array_equal(first.covariance, second.covariance)
    assert np.array_equal(first.weights, second.weights)


def test_input_is_left_alone():
    directions, weight = random_problem(3, 10, 3)
    copies = directions.copy(), weight.copy()
    least_trace(directions, weight)
    assert np.array_equal(directions, copies[0])
    assert np.array_equal(weight, copies[1])


def answer_or_refusal(directions, weight, tol):
    try:
        return least_trace(directions, weight, tol=tol), ""
    except AffineDPError as refusal:
        return None, str(refusal)


# --- degenerate and ill-conditioned input ---------------------------------------------------------


@st.composite
def degenerate_directions(draw):
    """Small integers (many repeats, opposites, zeros, dependent rows), rows on several scales."""
    r = draw(st.integers(1, 4))
    K = draw(st.integers(1, 12))
    entry = st.integers(-2, 2)
    rows = draw(st.lists(st.lists(entry, min_size=r, max_size=r), min_size=K, max_size=K))
    exponents = draw(st.lists(st.integers(-2, 2), min_size=K, max_size=K))
    return np.array(rows, dtype=float) * 10.0 ** np.array(exponents)[:, None]


@settings(max_examples=150)
@given(degenerate_directions(), st.sampled_from([1e-12, 1.0, 1e12]))
def test_degenerate_directions(directions, scale):
    r = directions.shape[1]
    directions = scale * directions
    rows = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    if np.linalg.matrix_rank(rows) < r:
        with pytest.raises(AffineDPError, match="span only"):
            least_trace(directions)
        return
    check_exactly(directions, np.eye(r), least_trace(directions, tol=1e-6))


@settings(max_examples=150)
@given(
    st.integers(2, 4),
    st.integers(0, 12),
    st.sampled_from([1e-10, 1e-8, 1e-6]),
    st.sampled_from(["directions", "units", "weight", "rows"]),
    st.integers(0, 10**6),
)
def test_ill_conditioned_is_right_or_refused(r, decades, tol, where, seed):
    rng = np.random.default_rng(seed)
    directions, weight = rng.normal(size=(3 * r, r)), np.eye(r)
    spread = np.geomspace(1.0, 10.0**-decades, r)
    turn = rotation(r, seed)
    if where == "directions":
        directions = directions * spread @ turn
    elif where == "units":
        directions = directions * spread
    elif where == "rows":
        directions[r:] *= 10.0 ** -rng.uniform(0, decades, size=(2 * r, 1))
    else:
        weight = turn * spread @ turn.T
        weight = 0.5 * (weight + weight.T)
    best, refusal = answer_or_refusal(directions, weight, tol)
    if best is None:
        assert "relative gap" in refusal or "span only" in refusal
        assert tol < 1e-6 or decades > 11  # a loose tolerance copes with all but singular input
    else:
        check_exactly(directions, weight, best)
        assert best.gap <= tol


# --- working set and progress ---------------------------------------------------------------------


def test_small_working_set_is_enough_or_refused(monkeypatch):
    directions, weight = random_problem(4, 2000, 9)
    full = least_trace(directions, weight)
    support = np.count_nonzero(full.weights > 1e-6)
    monkeypatch.setattr(interior_point, "WORKING_SET_LIMIT", 60)
    best = least_trace(directions, weight)
    assert np.count_nonzero(best.weights) <= 60
    assert best.value == pytest.approx(full.value, rel=2e-8)
    assert support <= 10


def test_working_set_that_is_too_small_is_refused(monkeypatch):
    directions = random_problem(12, 2000, 9)[0]
    monkeypatch.setattr(interior_point, "WORKING_SET_LIMIT", 10)
    with pytest.raises(AffineDPError, match="working set"):
        least_trace(directions)


def test_progress_is_reported():
    reports = []
    directions, weight = random_problem(5, 300, 4)
    best = least_trace(directions, weight, progress=lambda stage, gap: reports.append((stage, gap)))
    stages = [stage for stage, _ in reports]
    assert set(stages) == {"interior point", "all directions"}
    assert stages.count("interior point") == best.iterations
    assert stages[-1] == "all directions"
    assert reports[-1][1] <= 1e-8


# --- refusals -------------------------------------------------------------------------------------

EYE = np.eye(2)


@pytest.mark.parametrize(
    ("directions", "weight", "message"),
    [
        (np.array([[1.0, np.nan], [0.0, 1.0]]), None, r"directions\[0, 1\] is nan"),
        (np.array([[1.0, 0.0], [np.inf, 1.0]]), None, r"directions\[1, 0\] is inf"),
        (np.ones(3), None, "directions must be a matrix"),
        (np.ones((2, 2, 2)), None, "directions must be a matrix"),
        (np.empty((0, 2)), None, "directions are empty"),
        (np.empty((2, 0)), None, "directions are empty"),
        (np.array([["a", "b"]]), None, "real numbers"),
        (np.array([[1j, 0.0]]), None, "real numbers"),
        (np.array([[1.0, 2.0]]), None, "span only 1 of 2"),
        (np.array([[1.0, 2.0], [-2.0, -4.0]]), None, "span only 1 of 2"),
        (np.zeros((3, 2)), None, "span only 0 of 2"),
        (np.array([[1.0, 0.0], [2.0, 0.0]]), None, "span only 1 of 2"),
        (EYE, np.eye(3), r"weight has shape \(3, 3\)"),
        (EYE, np.ones(2), "weight must be a matrix"),
        (EYE, np.array([[1.0, np.nan], [np.nan, 1.0]]), r"weight\[0, 1\] is nan"),
        (EYE, np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (EYE, np.ones((2, 2)), "not positive definite"),
        (EYE, np.diag([1.0, -1.0]), "not positive definite"),
        (EYE, np.diag([1.0, 0.0]), "not positive definite"),
        (EYE, -EYE, "not positive definite"),
        (EYE, 0.0 * EYE, "not positive definite"),
        (1e200 * EYE, None, "range of double precision"),
        (1e-200 * EYE, None, "range of double precision"),
    ],
)
def test_refusals(directions, weight, message):
    with pytest.raises(AffineDPError, match=message):
        least_trace(directions, weight)


@pytest.mark.parametrize("tol", [0.0, -1.0, 1.0, 1e-15, np.nan, np.inf])
def test_refuses_tolerances_that_mean_nothing(tol):
    with pytest.raises(AffineDPError, match="relative gap"):
        least_trace(EYE, tol=tol)


def test_says_which_gap_was_reached():
    directions, _ = random_problem(5, 20, 0)
    with pytest.raises(AffineDPError, match=r"certified down to \d\.\de-1\d only.*1\.0e-14"):
        least_trace(directions, tol=1e-14)


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "K"), [(1, 3), (4, 9), (12, 20)])
def test_hessian_is_the_derivative_of_the_lengths(r, K, monkeypatch):
    monkeypatch.setattr(interior_point, "KERNEL_TRUNCATION", 1e-13)
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(K, r)), rng.uniform(0.5, 1.5, size=K)
    found = hessian(points, evaluate(points, weights, lift=0.0))
    step = 1e-6
    for j in range(K):
        shift = step * np.eye(K)[j]
        up = evaluate(points, weights + shift, lift=0.0).lengths
        down = evaluate(points, weights - shift, lift=0.0).lengths
        np.testing.assert_allclose(found[:, j], (down - up) / (2.0 * step), rtol=1e-5, atol=1e-7)


def test_both_factorisations_agree():
    points = random_problem(7, 30, 1)[0]
    weights = np.full(30, 1.0 / 30.0)
    fast, accurate = evaluate(points, weights, lift=0.0), evaluate(points, weights, lift=1e-12)
    np.testing.assert_allclose(np.sort(fast.root_values), np.sort(accurate.root_values), rtol=1e-12)
    np.testing.assert_allclose(fast.lengths, accurate.lengths, rtol=1e-11)
