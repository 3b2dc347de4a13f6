"""Designs against the theorems, against Clarabel, and against each other."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(2, 6))
    q = draw(st.integers(0, n - 1))
    D = rng.integers(-2, 3, (q, n)).astype(float)
    while q and np.linalg.matrix_rank(D) < q:
        D = rng.integers(-2, 3, (q, n)).astype(float)
    M = adp.AffineManifold(D, public_entries="allow")
    F = draw(st.sampled_from([None, rng.integers(-2, 3, (draw(st.integers(1, 4)), n)) * 1.0]))
    mu = draw(st.sampled_from([1.0, 0.5, rng.uniform(0.5, 2, n)]))
    return M, F, mu, rng


def published(M, F):
    """Whether the query reveals anything that neighbours differ in."""
    F = np.eye(M.n) if F is None else F
    return np.abs(F @ M.kernel).max(initial=0) > 0


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(), st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([1e-9, 1e-3, 0.3]))
def test_gaussian_keeps_its_promise_tightly(problem, epsilon, delta):
    M, F, mu, rng = problem
    if not published(M, F):
        return
    outputs = M.n if F is None else len(F)
    weights = rng.uniform(0.5, 2, outputs)
    m = adp.design_gaussian(M, epsilon=epsilon, delta=delta, mu=mu, query=F, weights=weights)
    limit = adp.gaussian_sensitivity(epsilon, delta)
    assert m.guarantee.exact
    assert limit * (1 - 1e-9) <= m.guarantee.sensitivity <= limit
    assert m.guarantee.holds(epsilon, delta)
    assert 0 <= m.gap <= 1e-8
    again = adp.verify(M, m.noise_matrix, mu=mu, query=F)
    assert again.sensitivity == pytest.approx(limit, rel=1e-9)
    iid = adp.iid_noise(M, law="gaussian", epsilon=epsilon, delta=delta, mu=mu, query=F)
    weighted = weights @ m.expected_squared_errors
    assert weighted <= weights @ iid.expected_squared_errors * (1 + 1e-7)


@settings(max_examples=12)
@given(problems())
def test_gaussian_optimum_is_clarabels(problem):
    cvxpy = pytest.importorskip("cvxpy")
    M, F, mu, _ = problem
    if not published(M, F):
        return
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-3, mu=mu, query=F)
    basis = np.asarray(m.dense.basis.toarray() if sparse.issparse(m.dense.basis) else m.dense.basis)
    query = np.eye(M.n) if F is None else F
    N = (np.linalg.pinv(basis) @ query @ adp.CircuitAdjacency(M, mu).directions()).T
    N = N / adp.gaussian_sensitivity(1.0, 1e-3)
    N = N[np.abs(N).max(axis=1) > 0]
    unit = np.abs(N).max()
    r = basis.shape[1]
    S, X = cvxpy.Variable((r, r), symmetric=True), cvxpy.Variable((r, r), symmetric=True)
    constraints = [cvxpy.bmat([[S, np.eye(r)], [np.eye(r), X]]) >> 0]
    constraints += [(v / unit) @ X @ (v / unit) <= 1 for v in N]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(basis.T @ basis @ S)), constraints)
    problem.solve(solver="CLARABEL")
    assert m.expected_squared_error == pytest.approx(problem.value * unit**2, rel=1e-4)


@settings(max_examples=10)
@given(problems(), st.sampled_from([0.1, 1.0, 5.0]))
def test_laplace_keeps_its_promise_tightly(problem, epsilon):
    M, F, mu, _ = problem
    if not published(M, F):
        return
    m = adp.design_laplace(M, epsilon=epsilon, mu=mu, query=F, effort="quick")
    assert epsilon * (1 - 1e-9) <= m.guarantee.epsilon() <= epsilon
    assert adp.verify(M, m.noise_matrix, law="laplace", mu=mu, query=F).epsilon() == pytest.approx(
        epsilon, rel=1e-9
    )
    plain = adp.design_laplace(M, epsilon=epsilon, mu=mu, query=F, method="algorithm2")
    assert plain.guarantee.epsilon() <= epsilon
    assert m.expected_squared_error <= plain.expected_squared_error * (1 + 1e-7)
    iid = adp.iid_noise(M, law="laplace", epsilon=epsilon, mu=mu, query=F)
    assert m.expected_squared_error <= iid.expected_squared_error * (1 + 1e-7)


@pytest.mark.parametrize("k", [0.25, 1, 4])
def test_example_1_by_design(k):
    """σ = max(1, 1/k) μ/ε on γ₁ = k γ₂."""
    M = adp.AffineManifold([[1, -k]])
    m = adp.design_laplace(M, epsilon=0.5, mu=2.0)
    sigma = max(1, 1 / k) * 2.0 / 0.5
    np.testing.assert_allclose(np.abs(m.noise_matrix), [[k * sigma], [sigma]], rtol=1e-9)


@pytest.mark.parametrize(("n", "most"), [(3, 14), (4, 24), (5, 32), (7, 48)])
def test_laplace_sum_constraint(n, most):
    m = adp.design_laplace(adp.AffineManifold(np.ones((1, n))), epsilon=1.0)
    assert m.expected_squared_error <= most * (1 + 1e-6)
    assert any("local optimum" in note for note in m.notes)


@pytest.mark.slow
def test_laplace_seeds_agree():
    M = adp.AffineManifold([[1, 2, -1, 0, 1], [0, 1, 1, -2, 1]])
    errors = [adp.design_laplace(M, epsilon=1.0, seed=s).expected_squared_error for s in (0, 1)]
    assert errors[0] == pytest.approx(errors[1], rel=5e-3)


def test_design_does_not_depend_on_how_equations_are_written():
    D = np.array([[1, 1, -1, 0], [0, 2, 1, 1]])
    T = np.array([[2, 1], [1, -3]])
    reference = adp.design_gaussian(adp.AffineManifold(D), epsilon=1, delta=1e-6)
    for other in (T @ D, D * [[7], [1e-3]], D[::-1], T @ D * np.pi):
        m = adp.design_gaussian(adp.AffineManifold(other), epsilon=1, delta=1e-6)
        np.testing.assert_allclose(m.covariance, reference.covariance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_scales(scale):
    M = adp.AffineManifold([[1, 1, -1]])
    small = adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=scale)
    plain = adp.design_gaussian(M, epsilon=1, delta=1e-6)
    assert small.expected_squared_error == pytest.approx(
        plain.expected_squared_error * scale**2, rel=1e-7
    )
    scaled = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=np.eye(3) * scale)
    assert scaled.expected_squared_error == pytest.approx(
        plain.expected_squared_error * scale**2, rel=1e-7
    )


def test_directions_that_span_less():
    M = adp.AffineManifold([[1, 1, -1, 0]])
    directions = np.array([[1, 0, 1, 0], [2, 0, 2, 0], [0, 0, 0, 0], [-1, 0, -1, 0]]).T
    m = adp.design_gaussian(
        M, epsilon=1, delta=1e-6, adjacency=adp.DirectionAdjacency(M, directions)
    )
    assert m.dense.basis.shape == (4, 1)
    assert m.guarantee.leak is None
    assert m.guarantee.sensitivity == pytest.approx(adp.gaussian_sensitivity(1, 1e-6), rel=1e-9)


def test_blocks_are_designed_apart():
    """Forty equal tables: one design, block-diagonal noise, the same as one alone."""
    one = adp.design_gaussian(adp.AffineManifold([[1, 1, -1]]), epsilon=1, delta=1e-6)
    D = sparse.kron(sparse.eye_array(40), [[1, 1, -1]], format="csr")
    many = adp.design_gaussian(adp.AffineManifold(D), epsilon=1, delta=1e-6)
    assert sparse.issparse(many.noise_matrix)
    assert many.expected_squared_error == pytest.approx(40 * one.expected_squared_error)
    coupled = adp.design_gaussian(
        adp.AffineManifold(D[:2, :6]), epsilon=1, delta=1e-6, query=np.ones((1, 6))
    )
    assert coupled.dense.basis.shape == (1, 1)


def test_weights():
    M = adp.AffineManifold([[1, 1, -1]])
    heavy = adp.design_gaussian(M, epsilon=1, delta=1e-6, weights=[100, 1, 1])
    plain = adp.design_gaussian(M, epsilon=1, delta=1e-6)
    assert heavy.expected_squared_errors[0] < plain.expected_squared_errors[0]
    as_matrix = adp.design_gaussian(M, epsilon=1, delta=1e-6, weights=np.diag([100, 1, 1]))
    np.testing.assert_allclose(heavy.covariance, as_matrix.covariance, rtol=1e-6)
    free = adp.design_gaussian(M, epsilon=1, delta=1e-6, weights=[1, 0, 0])
    assert "floor" in free.notes[0]
    assert free.guarantee.holds(1, 1e-6)
    for bad in ([1, 2], [-1, 1, 1], [0, 0, 0], np.array([[1, 2], [2, 1]]), [1, np.nan, 1]):
        with pytest.raises(AffineDPError, match="weights"):
            adp.design_gaussian(M, epsilon=1, delta=1e-6, weights=bad)


def test_algorithm_1():
    M = adp.AffineManifold([[1, -4]])
    plain = adp.design_gaussian(M, epsilon=1, delta=0.01, method="algorithm1")
    tight = adp.gaussian_sigma(1, 0.01)
    np.testing.assert_allclose(np.abs(plain.noise_matrix), [[4 * tight], [tight]], rtol=1e-9)
    basis = [[4.0], [1.0]]
    given = adp.design_gaussian(
        M, epsilon=1, delta=0.01, method="algorithm1", basis=basis, covariance=[[tight**2]]
    )
    assert given.guarantee.holds(1, 0.01)
    with pytest.raises(AffineDPError, match="x1 .* x2 .*Scale Σ by 4"):
        adp.design_gaussian(
            M, epsilon=1, delta=0.01, method="algorithm1", basis=basis,
            covariance=[[tight**2 / 4]],
        )  # fmt: skip
    with pytest.raises(AffineDPError, match="span"):
        adp.design_gaussian(
            M, epsilon=1, delta=0.01, method="algorithm1", basis=[[1.0], [1.0]],
            covariance=[[1e9]],
        )  # fmt: skip


def test_releases_obey_the_equations():
    M = adp.AffineManifold.from_equations(["a + b = total", "total + other = 100"])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6)
    assert len(m.equations) == 2
    noise = m.sample(5, seed=1)
    np.testing.assert_allclose(M.D @ noise.T, 0, atol=1e-9 * np.abs(noise).max())
    assert np.array_equal(noise, m.sample(5, seed=1))
    sums = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=["total", "other"])
    assert sums.equations == ("total + other = 100",)


def test_equations_are_those_that_releases_obey():
    """Noise in fewer directions than x has does not make x obey more equations."""
    M = adp.AffineManifold.from_equations(["x1 + x2 = x3"])
    adjacency = adp.DirectionAdjacency(M, [[1.0], [0.0], [1.0]])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, adjacency=adjacency)
    assert m.equations == ("x1 + x2 - x3 = 0",)
    off = adp.design_gaussian(
        M, epsilon=1, delta=1e-6, adjacency=adjacency, method="algorithm1",
        basis=[[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]],
    )  # fmt: skip
    assert off.equations == ()


def test_sample_has_the_covariance():
    M = adp.AffineManifold([[1, 2, -1]])
    for m in (
        adp.design_gaussian(M, epsilon=1, delta=1e-3),
        adp.design_laplace(M, epsilon=1, effort="quick"),
    ):
        noise = m.sample(200_000, seed=0)
        np.testing.assert_allclose(np.cov(noise.T), m.covariance, rtol=0.03, atol=0.03)
        assert m.expected_squared_error == pytest.approx(np.trace(m.covariance))


def test_stack_is_exact():
    M = adp.AffineManifold(np.ones((1, 3)))
    one = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=[[1.0, 0, 0]])
    two = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=[[0, 1.0, -1.0]])
    both = one.stack(two)
    bound = adp.compose([one.guarantee, two.guarantee])
    assert both.guarantee.exact
    assert both.guarantee.sensitivity <= bound.sensitivity * (1 + 1e-12)
    with pytest.raises(AffineDPError, match="same law"):
        one.stack(adp.design_laplace(M, epsilon=1, query=[[1.0, 0, 0]]))


def test_ill_conditioned_queries_are_right_or_refused():
    import mpmath

    M = adp.AffineManifold(np.zeros((0, 3)))
    for tilt in (1e-3, 1e-6, 1e-9, 1e-12, 1e-14):
        F = np.array([[1.0, 1, 1], [1, 1 + tilt, 1], [1, 1, 1 + tilt]])
        try:
            m = adp.design_gaussian(M, epsilon=1, delta=1e-6, query=F)
        except AffineDPError:
            continue
        with mpmath.workdps(50):
            noise = mpmath.matrix(np.asarray(m.noise_matrix).tolist())
            worst = max(
                mpmath.norm(mpmath.lu_solve(noise, mpmath.matrix(F[:, i].tolist())))
                for i in range(3)
            )
        assert float(worst) <= adp.gaussian_sensitivity(1, 1e-6) * (1 + 1e-12)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": -1, "delta": 1e-6},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1},
        {"epsilon": [1, 2], "delta": 1e-6},
        {"epsilon": 1, "delta": 1e-6, "tol": 0},
        {"epsilon": 1, "delta": 1e-6, "tol": "a"},
        {"epsilon": 1, "delta": 1e-6, "imbalance": "a"},
        {"epsilon": 1, "delta": 1e-6, "method": "best"},
        {"epsilon": 1, "delta": 1e-6, "basis": [[1], [1]]},
        {"epsilon": 1, "delta": 1e-6, "query": np.zeros((1, 2))},
    ],
)
def test_bad_gaussian_arguments(arguments):
    with pytest.raises(AffineDPError):
        adp.design_gaussian(adp.AffineManifold([[1, -4]]), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0},
        {"epsilon": np.nan},
        {"epsilon": 1, "method": "x"},
        {"epsilon": 1, "seed": "x"},
        {"epsilon": 1, "basis": [[1], [1]]},
        {"epsilon": 1, "method": "algorithm2", "basis": [[1.0], [1.0]]},
        {"epsilon": 1, "effort": -1, "query": np.eye(2)},
    ],
)
def test_bad_laplace_arguments(arguments):
    with pytest.raises(AffineDPError):
        adp.design_laplace(adp.AffineManifold([[1, -4]]), **arguments)


def test_bad_baselines():
    M = adp.AffineManifold([[1, -4]])
    for arguments in ({"law": "laplace", "epsilon": 1, "delta": 0.1}, {"law": "x", "epsilon": 1}):
        with pytest.raises(AffineDPError):
            adp.iid_noise(M, **arguments)


def test_outputs_of_very_different_size():
    """An unstable state over 100 steps, and coefficients 10¹⁶ apart."""
    D = np.eye(99, 100) * 1.2 - np.eye(99, 100, 1)
    for M in (adp.AffineManifold(D), adp.AffineManifold([[1, 1e8, -1e-8]])):
        m = adp.design_gaussian(M, epsilon=1, delta=1e-6)
        assert m.guarantee.holds(1, 1e-6)
        assert m.gap <= 1e-8
        assert m.notes == ()


@pytest.mark.parametrize("mu", [1e-320, 1e-300, 1e300, 1e308])
def test_moves_beyond_the_squares_of_doubles_are_refused_in_words(mu):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    with pytest.raises(adp.AffineDPError, match="change the units"):
        adp.design_gaussian(manifold, epsilon=1.0, delta=1e-6, mu=mu)
    with pytest.raises(adp.AffineDPError, match="change the units"):
        adp.design_laplace(manifold, epsilon=1.0, mu=mu)


def test_noise_for_people_in_several_parts_is_designed_in_any_order_of_their_moves():
    """Roots of designs are off by rounding where parts of a table have no noise in common."""
    M = adp.AffineManifold([[1, -1, -1, 0, 0, 0]])
    parts = itertools.product([(0, 0, 0), (1, 1, 0), (1, 0, 1)], [0, 1], [0, 1], [0, 1])
    moves = np.array([[*cell, *others] for cell, *others in parts][1:]).T
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(12):
        adjacency = adp.DirectionAdjacency(M, rng.permutation(moves, axis=1))
        noise = adp.design_gaussian(M, epsilon=1.0, delta=1e-6, adjacency=adjacency)
        errors.append(noise.expected_squared_error)
    np.testing.assert_allclose(errors, errors[0], rtol=1e-6)
