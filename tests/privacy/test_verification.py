"""Theorems 1 and 2 on any noise; the paper's examples; composition."""

import math

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError
from oracles import brute_force_sensitivity


@pytest.mark.parametrize("k", [0.25, 0.5, 1, 2, 3, 10, -4])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_example_1(k, epsilon):
    """I.i.d. Laplace noise of scale μ/ε really promises max(1+|k|, 1+1/|k|) ε."""
    mu = 2.0
    M = adp.AffineManifold([[1, -k]], b=[7])
    g = adp.verify(M, mu / epsilon, law="laplace", mu=mu)
    expected = max(1 + abs(k), 1 + 1 / abs(k)) * epsilon
    assert g.epsilon() == pytest.approx(expected, rel=1e-14)
    assert g.epsilon() >= expected * (1 - 1e-15)
    # the paper's correlated noise keeps ε
    scale = max(1, 1 / abs(k)) * mu / epsilon
    correlated = adp.verify(M, np.array([[k], [1]]) * scale, law="laplace", mu=mu)
    assert correlated.epsilon() == pytest.approx(epsilon, rel=1e-13)
    assert correlated.exact


def test_example_2():
    M = adp.AffineManifold([[1, -2, 0]])
    directions = adp.CircuitAdjacency(M, 0.5).directions()
    assert sorted(map(tuple, directions.T.tolist())) == [(0, 0, 0.5), (1, 0.5, 0)]
    g = adp.verify(M, 1.0, law="laplace", mu=0.5)
    assert g.epsilon() == 1.5
    np.testing.assert_array_equal(np.abs(g.worst_direction), [1, 0.5, 0])


@st.composite
def mechanisms(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(2, 6))
    q = draw(st.integers(0, n - 1))
    D = rng.integers(-2, 3, (q, n)).astype(float)
    while q and np.linalg.matrix_rank(D) < q:
        D = rng.integers(-2, 3, (q, n)).astype(float)
    F = rng.integers(-2, 3, (draw(st.integers(1, 4)), n)).astype(float)
    return D, F, rng


@pytest.mark.slow
@settings(max_examples=80)
@given(mechanisms())
def test_verify_is_the_theorem(mechanism):
    D, F, rng = mechanism
    M = adp.AffineManifold(D, public_entries="allow")
    square = rng.normal(size=(len(F), len(F)))
    for law, norm in (("gaussian", 2), ("laplace", 1)):
        g = adp.verify(M, square, law=law, query=F)
        expected, _ = brute_force_sensitivity(D, np.linalg.solve(square, F), norm, np.ones(M.n))
        assert g.sensitivity == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert g.sensitivity >= expected * (1 - 1e-12)
        if law == "laplace":
            assert g.epsilon() == g.sensitivity
        elif expected > 1e-9:
            assert g.delta(1.0) == pytest.approx(adp.gaussian_delta(1.0, expected), rel=1e-6)
    by_covariance = adp.verify(M, covariance=square @ square.T, query=F)
    assert by_covariance.sensitivity == pytest.approx(
        adp.verify(M, square, query=F).sensitivity, rel=1e-6, abs=1e-12
    )


@settings(max_examples=60)
@given(mechanisms())
def test_leak_is_bare(mechanism):
    """Noise of too low a rank leaves a combination that moves with x and has no noise."""
    D, F, rng = mechanism
    M = adp.AffineManifold(D, public_entries="allow")
    noise = rng.normal(size=(len(F), 1))
    g = adp.verify(M, noise, query=F)
    covers = np.linalg.matrix_rank(np.hstack([noise, F @ M.kernel]), tol=1e-9) == 1
    assert (g.leak is None) == covers
    if g.leak is not None:
        assert np.abs(g.leak @ noise).max() <= 1e-9 * np.abs(noise).max()
        assert np.abs(g.leak @ F @ M.kernel).max() > 1e-9
        assert g.epsilon(0.5) == math.inf
        assert g.delta(1000.0) == 1.0
        assert not g.holds(10.0, 0.9)
        assert "NONE" in str(g)


def test_leak_by_name():
    M = adp.AffineManifold.from_equations(["in + out = total"])
    g = adp.verify(M, [[1, 0], [0, 1], [1, 0]], law="laplace")
    assert "in" in str(g)
    np.testing.assert_allclose(g.leak @ [[1, 0], [0, 1], [1, 0]], 0, atol=1e-12)
    zero = adp.verify(M, np.diag([1.0, 0.0, 1.0]), law="laplace")
    assert zero.leak is not None


def test_public_part_needs_no_noise():
    """A combination that the equations fix may come out bare."""
    M = adp.AffineManifold.from_equations(["a + b = 10"])
    g = adp.verify(M, [[1], [-1]])
    assert g.leak is None
    assert g.sensitivity == pytest.approx(1.0)


def test_rank_deficient_noise():
    M = adp.AffineManifold([[1, -1, 0]])
    wide = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    gaussian = adp.verify(M, wide)
    assert gaussian.exact
    assert gaussian.sensitivity == pytest.approx(1 / np.sqrt(2))
    laplace = adp.verify(M, wide, law="laplace")
    assert not laplace.exact
    assert "promises at least" in laplace.basis
    # L(0,1) + L(0,1) shifted by 1 is dominated by one L(0,1): ε ≤ 1
    assert laplace.epsilon() == pytest.approx(1.0)


def test_other_neighbours():
    M = adp.AffineManifold([[1, -2, 0]])
    free = adp.FreeSetAdjacency(M, [["x1", "x3"]])
    g = adp.verify(M, 1.0, law="laplace", adjacency=free)
    assert g.epsilon() == pytest.approx(1.5)
    assert "moves alone" in g.neighbours
    given = adp.DirectionAdjacency(M, [[2], [1], [0]])
    assert adp.verify(M, [[2], [1], [0]], adjacency=given).leak is None
    assert adp.verify(M, [[2], [1], [0]]).leak is not None


def test_query_by_name_and_sparse():
    M = adp.AffineManifold.from_equations(["in + out = total"])
    named = adp.verify(M, 1.0, query=["total", "in"])
    matrix = adp.verify(M, 1.0, query=sparse.csr_array([[0, 0, 1], [1, 0, 0]]))
    assert named.sensitivity == matrix.sensitivity == pytest.approx(np.sqrt(2))
    assert named.output_names == ("total", "in")
    assert matrix.output_names == ("y1", "y2")


@pytest.mark.slow
def test_large_diagonal_noise_stays_sparse():
    n = 20_000
    M = adp.AffineManifold(sparse.csr_array(np.ones((1, n))))
    g = adp.verify(M, 2.0)
    assert g.sensitivity == pytest.approx(np.sqrt(2) / 2)


def test_stacking_is_exact_and_composition_a_bound():
    """Two sums of parts: the worst directions differ, so √Σs² = 3.606 is not attained."""
    M = adp.AffineManifold(np.ones((1, 3)))
    F1, F2 = np.array([[2.0, 0, 0]]), np.array([[0, 1.0, -2.0]])
    g1, g2 = adp.verify(M, 1.0, query=F1), adp.verify(M, 1.0, query=F2)
    bound = adp.compose([g1, g2])
    stacked = adp.verify(M, 1.0, query=np.vstack([F1, F2]))
    best = max(np.hypot(F1[0] @ v, F2[0] @ v) for v in adp.CircuitAdjacency(M).directions().T)
    assert stacked.sensitivity == pytest.approx(best)
    assert bound.sensitivity == pytest.approx(np.hypot(g1.sensitivity, g2.sensitivity))
    assert bound.sensitivity > stacked.sensitivity + 0.1
    assert stacked.exact
    assert not bound.exact
    assert "upper bound" in bound.basis


def test_composition_of_laws():
    pytest.importorskip("dp_accounting", reason="needs the extra [accounting]")
    M = adp.AffineManifold([[1, -1]])
    laplace, gaussian = adp.verify(M, 4.0, law="laplace"), adp.verify(M, 4.0)
    both = adp.compose([laplace, gaussian])
    assert both.epsilon() == math.inf
    assert adp.compose([laplace, laplace]).epsilon() == pytest.approx(1.0)
    assert both.delta(1.0) >= gaussian.delta(1.0)
    assert both.epsilon(1e-6) <= laplace.epsilon() + gaussian.epsilon(1e-6)
    assert "composed" in both.method
    nested = adp.compose([both, laplace])
    assert nested.epsilon(1e-6) > both.epsilon(1e-6)


def test_leaks_compose_to_leaks():
    M = adp.AffineManifold([[1, -4]])
    fine, leaking = adp.verify(M, 1.0), adp.verify(M, [[1], [1]])
    assert adp.compose([fine, leaking]).leak is not None


def test_different_neighbours_do_not_compose():
    M = adp.AffineManifold([[1, -2, 0]])
    with pytest.raises(AffineDPError, match="different neighbours"):
        adp.compose([adp.verify(M, 1.0), adp.verify(M, 1.0, mu=2.0)])
    other = adp.AffineManifold([[1, -3, 0]])
    with pytest.raises(AffineDPError, match="different neighbours"):
        adp.compose([adp.verify(M, 1.0), adp.verify(other, 1.0)])
    with pytest.raises(AffineDPError, match="nothing to compose"):
        adp.compose([])


def test_guarantee_reads_well():
    M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
    g = adp.verify(M, 2.0, law="laplace")
    text = str(g)
    assert max(map(len, text.splitlines())) <= 80
    for piece in ("Laplace", "Definition 4", "ε = 1 at δ = 0", "cells_in", "Theorem 2"):
        assert piece in text
    html = g._repr_html_()
    assert html.startswith("<table>")
    assert "cells_in" in html
    evil = adp.AffineManifold([[1, -4]], names=["<script>", "b"])
    assert "<script>" not in adp.verify(evil, 1.0)._repr_html_()


def test_guarantee_arguments():
    g = adp.verify(adp.AffineManifold([[1, -4]]), 1.0)
    assert g.delta([0.5, 1.0]).shape == (2,)
    assert g.rho == pytest.approx(g.sensitivity**2 / 2)
    assert g.renyi(2) == pytest.approx(g.sensitivity**2)
    for call in (
        lambda: g.epsilon(1.0),
        lambda: g.epsilon(-0.1),
        lambda: g.epsilon(math.nan),
        lambda: g.epsilon("x"),
        lambda: g.delta(-1.0),
        lambda: g.delta(math.nan),
        lambda: g.renyi(0.5),
        lambda: g.renyi(math.nan),
        lambda: g.delta("a"),
        lambda: g.delta(1j),
        lambda: g.holds(1.0, 2.0),
        lambda: g.holds("x", 0.1),
    ):
        with pytest.raises(AffineDPError):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either noise_matrix or covariance"),
        ({"noise_matrix": 1.0, "covariance": np.eye(2)}, "either"),
        ({"noise_matrix": 0.0}, "positive"),
        ({"noise_matrix": -1.0}, "positive"),
        ({"noise_matrix": np.nan}, "finite"),
        ({"noise_matrix": [1.0, 2.0]}, r"np\.diag"),
        ({"noise_matrix": np.eye(3)}, "one row per output"),
        ({"noise_matrix": np.zeros((2, 2))}, "no noise"),
        ({"noise_matrix": "big"}, "real number"),
        ({"covariance": np.zeros((2, 2))}, "no noise"),
        ({"covariance": [[1, 2], [0, 1]]}, "not symmetric"),
        ({"covariance": [[1, 2], [2, 1]]}, "positive semidefinite"),
        ({"covariance": [[0, 1], [1, 0]]}, "positive semidefinite"),
        ({"covariance": np.eye(3)}, "2 outputs"),
        ({"covariance": np.eye(2), "law": "laplace"}, "Gaussian"),
        ({"noise_matrix": 1.0, "law": "cauchy"}, "law must be one of 'gaussian', 'laplace'"),
        ({"noise_matrix": 1.0, "query": [[1, 2, 3]]}, "2 entries"),
        ({"noise_matrix": 1.0, "query": ["nope"]}, "'nope'"),
        ({"noise_matrix": 1.0, "mu": -1}, "mu"),
        ({"noise_matrix": 1.0, "adjacency": "person"}, "FreeSetAdjacency"),
        ({"noise_matrix": 1.0, "adjacency": "swaps"}, "Adjacency"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(AffineDPError, match=message):
        adp.verify(adp.AffineManifold([[1, -4]]), **arguments)


def test_adjacency_mistakes():
    M = adp.AffineManifold([[1, -4]])
    with pytest.raises(AffineDPError, match="not both"):
        adp.verify(M, 1.0, mu=1.0, adjacency=adp.CircuitAdjacency(M))
    with pytest.raises(AffineDPError, match="another manifold"):
        adp.verify(M, 1.0, adjacency=adp.CircuitAdjacency(adp.AffineManifold([[1, -5]])))
    with pytest.raises(AffineDPError, match="AffineManifold"):
        adp.verify([[1, -4]], 1.0)


@pytest.mark.parametrize("scale", [1e-200, 1e-150, 1e-12, 1e12, 1e150, 1e200])
def test_extreme_scales(scale):
    M = adp.AffineManifold([[1, -1]])
    assert adp.verify(M, scale, mu=scale, law="laplace").epsilon() == pytest.approx(2.0)
    assert adp.verify(M, np.eye(2) * scale, mu=scale).sensitivity == pytest.approx(np.sqrt(2))
    assert adp.verify(M, np.array([[1], [1]]) * scale, mu=scale).sensitivity == pytest.approx(1)


def test_units_do_not_hide_leaks():
    M = adp.AffineManifold(np.zeros((0, 1)))
    for unit in (1e-10, 1e-100, 1e100):
        g = adp.verify(M, [[1.0], [0.0]], query=[[1.0], [unit]], law="laplace")
        np.testing.assert_array_equal(g.leak, [0, 1])


def test_covariance_close_to_singular():
    mpmath = pytest.importorskip("mpmath")
    B = np.array([[4, 2, 2], [-1, 4, -4], [1, 2, 4], [0, -1, -2], [-1, 0, 2.0]])
    M = adp.AffineManifold(np.ones((1, 5)))
    for jitter in (1e-12, 1e-9, 1e-6, 1e-3):
        covariance = B @ B.T + jitter * np.eye(5)
        try:
            g = adp.verify(M, covariance=covariance)
        except AffineDPError:
            continue
        with mpmath.workdps(50):
            C = mpmath.matrix(covariance.tolist())
            worst = max(
                (mpmath.matrix(v).T * mpmath.lu_solve(C, mpmath.matrix(v)))[0]
                for v in adp.CircuitAdjacency(M).directions().T.tolist()
            )
            assert g.sensitivity >= mpmath.sqrt(worst)


def test_laplace_curve_agrees_with_the_sensitivity():
    D = [[5, 5, 0, -4, -8, -7, 3], [4998, 4998.001, -9, -4006, -8007, -6992, 2999]]
    g = adp.verify(adp.AffineManifold(D), 1.0, law="laplace")
    assert g.delta(g.sensitivity * (1 - 2e-12)) > 0


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e300])
def test_noise_far_from_the_data(scale):
    """Hardly any noise, or nothing but noise: an answer, not a hang."""
    g = adp.verify(adp.AffineManifold([[1, -1]]), scale)
    assert g.sensitivity == pytest.approx(np.sqrt(2) / scale, rel=1e-9)


def test_printed_numbers_are_rounded_up():
    M = adp.AffineManifold(np.zeros((0, 1)))
    for scale in np.random.default_rng(0).uniform(0.1, 10, 50):
        g = adp.verify(M, scale, law="laplace")
        printed = float(str(g).split("ε = ")[1].split(" at")[0])
        assert printed >= g.epsilon() * (1 - 1e-11)


def test_tiny_guarantees_compose():
    M = adp.AffineManifold([[1, -1]])
    g = adp.verify(M, 1e200)
    assert adp.compose([g, g]).sensitivity == pytest.approx(2e-200)


def test_guarantees_with_arrays_are_compared_and_hashed_without_an_error():
    M = adp.AffineManifold([[1, 1, -1]])
    one, other = adp.verify(M, 2.0), adp.verify(M, 2.0)
    assert one == one
    assert len({one, other}) == 2


def test_a_list_of_scales_is_refused_in_words_and_circuits_are_the_default():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    with pytest.raises(AffineDPError, match=r"one number .* np\.diag"):
        adp.verify(M, [2, 2, 2])
    with pytest.raises(AffineDPError, match="'circuits'"):
        adp.verify(M, 1.0, adjacency="replace")
    named = adp.verify(M, 1.0, adjacency="circuits", mu=2.0)
    assert named.neighbours_key == adp.verify(M, 1.0, mu=2.0).neighbours_key


def test_what_only_looks_like_an_argument_is_refused_in_words():
    manifold = adp.AffineManifold([[1, -4]])
    guarantee = adp.verify(manifold, 1.0)
    for huge in (10**400, 10**5000):  # Python writes no integer as long as the second
        for ask in (
            lambda n: guarantee.epsilon(n),
            lambda n: guarantee.holds(n, 0.1),
            lambda n: guarantee.holds(1.0, n),
        ):
            with pytest.raises(AffineDPError, match="leaves the range of floating point"):
                ask(huge)
    for law in (np.ones(3), np.array(["gaussian"]), None, 2):
        with pytest.raises(AffineDPError, match="law must be one of"):
            adp.verify(manifold, 1.0, law=law)
    for one in (np.array(1.0), 1, None):
        with pytest.raises(AffineDPError, match="compose takes a list of guarantees, not"):
            adp.compose(one)
        with pytest.raises(AffineDPError, match="equations must be a list of texts, not"):
            adp.AffineManifold.from_equations(one)
    with pytest.raises(AffineDPError, match="names must be a list of texts, not ndarray"):
        adp.AffineManifold.from_equations(["a = b"], names=np.array(1.0))
