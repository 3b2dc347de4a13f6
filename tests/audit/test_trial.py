"""Attacks on real releases: they catch what is wrong, and pass what we design.

Claims that are true are refuted with probability at most 1 − CONFIDENT per test.
"""

import math
from functools import partial

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binomtest

import affinedp as adp
from affinedp.arrays import dense
from affinedp.audit.attacks import clopper_pearson, distinguish
from affinedp.audit.trial import audit
from affinedp.errors import AffineDPError
from affinedp.mechanism import build
from oracles import trajectory_equations

CONFIDENT = 1 - 1e-7
RATIO_4 = adp.AffineManifold([[1, -4]])
NOISE = np.random.default_rng(0)
SUM = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])


def additive(mechanism, seed, scale=1.0, columns=slice(None)):
    """Return a release function in plain floating point, with noise as it should not be."""
    generator = np.random.default_rng(seed)
    query, noise = dense(mechanism.dense.query), scale * dense(mechanism.noise_matrix)[:, columns]

    def release(x):
        shape = (len(x), noise.shape[1])
        draw = generator.standard_normal if mechanism.law == "gaussian" else generator.laplace
        return x @ query.T + draw(size=shape) @ noise.T

    return release


# ---------------------------------------------------------------------- the bounds


@pytest.mark.parametrize("confidence", [0.9, 0.999, CONFIDENT])
@pytest.mark.parametrize(("count", "runs"), [(0, 50), (1, 50), (17, 50), (50, 50), (40, 10_000)])
def test_binomial_bounds_are_exact(count, runs, confidence):
    low, high = clopper_pearson(np.array(count), runs, confidence)
    exact = binomtest(count, runs).proportion_ci(confidence, method="exact")
    assert low == pytest.approx(exact.low, rel=1e-7)
    assert high == pytest.approx(exact.high, rel=1e-7)


def test_the_bound_is_wrong_no_more_often_than_stated():
    """Randomised response with ε = 1 is told apart at δ = 0 by exactly e."""
    generator = np.random.default_rng(5)
    truth = math.e / (1 + math.e)
    wrong = 0
    for seed in range(300):
        first = (generator.random((400, 1)) > truth).astype(float)
        second = (generator.random((400, 1)) < truth).astype(float)
        found = distinguish(first, second, delta=0.0, confidence=0.9, seed=seed)
        wrong += found.epsilon_lower > 1.0
    assert wrong <= 30


def test_patterns_are_learnt_on_other_runs():
    """Random patterns of two equal samples show nothing, however many there are."""
    first, second = np.random.default_rng(1).integers(0, 64, (2, 2_000, 40))
    found = distinguish(first, second, delta=0.0, confidence=CONFIDENT, seed=0, learns=True)
    assert found.epsilon_lower == 0.0
    assert found.advantage[0] < 0 < found.advantage[1]


def test_known_gaussians():
    noise = np.random.default_rng(2).standard_normal((2, 200_000, 1))
    for delta in (0.01, 0.05, 0.2):
        exact = float(adp.gaussian_epsilon(delta, 1.0))
        for sign in (1, -1):
            found = distinguish(
                sign * noise[0], sign * (noise[1] + sign), delta=delta, confidence=0.999, seed=0
            )
            assert 0.85 * exact < found.epsilon_lower < exact


# ---------------------------------------------------------------------- what must be caught


@pytest.mark.slow
@pytest.mark.parametrize(("k", "runs"), [(1.0, 10_000), (4.0, 50_000)])
def test_iid_noise_that_ignores_the_equations(k, runs):
    """Example 1 of the paper: noise for ε = 1 on each entry really has 1 + k."""
    manifold = adp.AffineManifold([[1, -k]])
    careless = build(
        adp.CircuitAdjacency(manifold), np.eye(2), np.eye(2), np.eye(2), "laplace", ("p", "q")
    )
    found = audit(careless, claim=(1.0, 0.0), runs=runs, confidence=CONFIDENT)
    assert not found.passed
    assert 0.6 * (1 + k) < found.epsilon_lower < 1 + k
    assert found.leak is None


def test_laplace_noise_of_variance_one():
    """L(0, 1) has variance 2: scaled to 1 its ε is √2 times what is claimed."""
    mechanism = adp.design_laplace(RATIO_4, epsilon=1.0)
    wrong = additive(mechanism, seed=3, scale=1 / math.sqrt(2))
    found = audit(mechanism, release=wrong, runs=100_000, confidence=CONFIDENT)
    assert not found.passed
    assert 1.25 < found.epsilon_lower < math.sqrt(2)
    assert audit(mechanism, release=additive(mechanism, seed=4), confidence=CONFIDENT).passed


def test_noise_of_too_low_rank():
    mechanism = adp.design_gaussian(SUM, epsilon=1.0, delta=0.01)
    noise = dense(mechanism.noise_matrix)
    found = audit(mechanism, release=additive(mechanism, 6, columns=[0]), runs=2_000)
    assert not found.passed
    assert found.epsilon_lower > 4
    assert found.leak @ noise[:, 0] == pytest.approx(0, abs=1e-9)
    # the leak moves with data that obeys the equation
    assert np.abs(found.leak @ dense(SUM.kernel)).max() > 0.1
    assert "without noise" in str(found)


def test_an_output_without_noise():
    """The leak need not lie in the pair that is worst for the assumed noise."""
    mechanism = adp.iid_noise(adp.AffineManifold([[1, -4, 0]]), law="laplace", epsilon=1.0)

    def release(x):
        return additive(mechanism, np.random.default_rng())(x) * [1, 1, 0] + x * [0, 0, 1]

    found = audit(mechanism, release=release, runs=500)
    assert not found.passed
    np.testing.assert_allclose(found.leak, [0, 0, 1], atol=1e-9)
    assert "differ by x3 +1" in found.attack


def test_a_leak_fails_even_where_the_claim_is_weak():
    mechanism = adp.design_gaussian(SUM, epsilon=1.0, delta=0.01)
    release = additive(mechanism, 7, columns=[1])
    found = audit(mechanism, release=release, claim=(50.0, 0.0), runs=500)
    assert found.epsilon_lower < 50
    assert not found.passed


def test_a_mechanism_that_promises_nothing():
    leaking = build(
        adp.CircuitAdjacency(RATIO_4), np.eye(2), np.ones((2, 1)), np.eye(1), "gaussian", ("p", "q")
    )
    with pytest.raises(AffineDPError, match="give the release function"):
        audit(leaking)
    found = audit(leaking, release=additive(leaking, 8), runs=500)
    np.testing.assert_allclose(np.abs(found.leak), [1, 1], rtol=1e-9)
    assert math.isinf(found.epsilon_stated)
    assert not found.passed


@pytest.fixture(scope="module")
def vehicle():
    """A double integrator over five steps, and Theorem 3's neighbours of it."""
    names = [f"{state}({t})" for t in range(5) for state in "pv"]
    manifold = adp.AffineManifold(trajectory_equations([[1, 0.1], [0, 1]], 5, 10), names=names)
    time_local = adp.FreeSetAdjacency(manifold, [[2 * t, 2 * t + 1] for t in range(5)])
    return manifold, adp.design_gaussian(manifold, epsilon=1.0, delta=0.01, adjacency=time_local)


@pytest.mark.slow
def test_theorem_3_is_not_definition_4(vehicle):
    manifold, mechanism = vehicle
    found = audit(mechanism, adjacency=adp.CircuitAdjacency(manifold), runs=10_000)
    assert not found.passed
    assert found.epsilon_lower > 4
    assert found.neighbours.startswith("Definition 4")
    # for its own neighbours it keeps what it says
    assert audit(mechanism, runs=10_000, confidence=CONFIDENT).passed


# ---------------------------------------------------------------------- what must pass


def petersen(**options):
    incidence = nx.incidence_matrix(nx.petersen_graph(), oriented=True).toarray()
    manifold = adp.AffineManifold(incidence)
    return adp.design_gaussian(manifold, epsilon=1.0, delta=0.01, **options)


def far_away():
    """Five entries with a total of a billion; Laplace noise on all, projected."""
    manifold = adp.AffineManifold(np.ones((1, 5)), b=[-1e9])
    mechanism = adp.design_laplace(manifold, epsilon=1.0)
    assert mechanism.dense.root.shape == (4, 5)
    return mechanism


QUERY = [[1, 0, 0], [0, 0, 1], [1, 1, 1], [2, 0, 1]]
# a mechanism, runs, and the share of ε that the attack must find
DESIGNS = {
    "laplace": (lambda: adp.design_laplace(RATIO_4, epsilon=1.0), 100_000, 0.85),
    "gaussian": (lambda: adp.design_gaussian(RATIO_4, epsilon=1.0, delta=0.01), 40_000, 0.3),
    "laplace sum": (lambda: adp.design_laplace(SUM, epsilon=2.0), 10_000, 0.3),
    "gaussian sum": (lambda: adp.design_gaussian(SUM, epsilon=2.0, delta=0.01), 20_000, 0.2),
    "small δ": (lambda: adp.design_gaussian(SUM, epsilon=1.0, delta=1e-6), 10_000, 0.0),
    "large offset": (far_away, 5_000, 0.0),
    "small μ": (lambda: adp.design_gaussian(SUM, epsilon=1.0, delta=0.01, mu=1e-7), 10_000, 0.0),
    "query": (
        lambda: adp.design_gaussian(SUM, epsilon=1.0, delta=0.01, query=QUERY), 10_000, 0.0,
    ),
    "i.i.d. laplace": (lambda: adp.iid_noise(SUM, law="laplace", epsilon=2.0), 10_000, 0.3),
    "i.i.d. gaussian": (
        lambda: adp.iid_noise(SUM, law="gaussian", epsilon=2.0, delta=0.01), 10_000, 0.1,
    ),
    "network": (petersen, 4_000, 0.0),
    "unlisted": (lambda: petersen(imbalance=1.0), 4_000, 0.0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_what_we_design_passes(name):
    make, runs, share = DESIGNS[name]
    found = audit(make(), runs=runs, confidence=CONFIDENT)
    assert found.passed, str(found)
    assert found.leak is None
    assert share * found.epsilon_stated <= found.epsilon_lower <= found.epsilon_stated


def test_the_worst_laplace_direction_depends_on_delta():
    """A shift of one noise by 1 is seen more easily than of four by 0.3."""
    manifold = adp.AffineManifold(np.zeros((0, 5)), names=list("abcde"))
    directions = np.array([[1, 0, 0, 0, 0], [0, 0.3, 0.3, 0.3, 0.3]]).T
    neighbours = adp.DirectionAdjacency(manifold, directions)
    mechanism = build(neighbours, np.eye(5), np.eye(5), np.eye(5), "laplace", manifold.names)
    release = additive(mechanism, 9)
    pure = audit(mechanism, release=release, runs=2_000, confidence=CONFIDENT)
    approximate = audit(mechanism, release=release, delta=0.2, runs=2_000, confidence=CONFIDENT)
    assert "b +0.3" in pure.attack
    assert "differ by a +1:" in approximate.attack
    assert pure.passed
    assert approximate.passed


# ---------------------------------------------------------------------- floating point


def test_naive_floating_point_tells_data_apart_by_its_last_bits():
    mechanism = adp.design_laplace(adp.AffineManifold([[1, -3]]), epsilon=0.1)
    options = {"attack": "low bits", "runs": 20_000, "confidence": CONFIDENT}
    naive = audit(mechanism, release=additive(mechanism, 10), **options)
    assert not naive.passed
    assert naive.epsilon_lower > 1
    ours = audit(mechanism, **options)
    assert ours.passed
    # ε = 0.1 allows an advantage of tanh(ε/2)
    assert ours.advantage[0] <= math.tanh(0.05)


@pytest.mark.slow
def test_amounts_in_cents():
    """Both add up, but in double precision one misses by one unit in the last place."""
    mechanism = adp.design_gaussian(SUM, epsilon=0.1, delta=0.01)
    data = [4017.3, 2215.4, 6232.7], [4018.2, 2215.4, 6233.6]
    options = {"attack": "low bits", "pair": data, "runs": 10_000, "confidence": CONFIDENT}
    naive = audit(mechanism, release=additive(mechanism, 11), **options)
    assert not naive.passed
    assert naive.advantage[0] > 0.6
    allowed = (math.expm1(0.1) + 0.02) / (math.exp(0.1) + 1)
    for bound in (None, 1e4):
        release = partial(mechanism.release, bound=bound)
        ours = audit(mechanism, release=release, **options)
        assert ours.passed
        assert ours.advantage[0] <= allowed


def test_low_bits_need_neighbours_on_the_manifold():
    mechanism = adp.design_gaussian(SUM, epsilon=1.0, delta=0.01)
    for pair, match in (
        (([1, 2, 3], [1, 2, 4]), r"pair\[1\] does not obey"),
        (([1, 2, 3], [3, 2, 5]), "further apart"),
        (([1, 2], [1, 2]), "3 entries"),
        (([1, 2, 3],), "two data sets"),
    ):
        with pytest.raises(AffineDPError, match=match):
            audit(mechanism, attack="low bits", pair=pair)
    with pytest.raises(AffineDPError, match="alone takes a pair"):
        audit(mechanism, pair=([1, 2, 3], [2, 2, 4]))


# ---------------------------------------------------------------------- how it is called


def test_claims():
    mechanism = adp.design_gaussian(SUM, epsilon=1.0, delta=1e-6)
    options = {"release": additive(mechanism, 12), "runs": 500}
    assert audit(mechanism, **options).delta == 0.01
    found = audit(mechanism, claim=mechanism.guarantee, delta=1e-6, **options)
    assert found.epsilon_stated == mechanism.guarantee.epsilon(1e-6)
    found = audit(mechanism, claim=(0.5, 1e-3), **options)
    assert (found.epsilon_stated, found.delta, found.runs, found.seed) == (0.5, 1e-3, 500, 0)


def test_the_text():
    mechanism = adp.design_gaussian(SUM, epsilon=1.0, delta=0.01)
    text = str(audit(mechanism, release=additive(mechanism, 13), runs=1_000, seed=4))
    assert "passed" in text
    assert "ε = 1 at δ = 0.01" in text
    assert "cells_in +1, cells_out -1" in text
    assert "confidence 0.999" in text
    assert "seed 4" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_seed_repeats_the_choice():
    mechanism = adp.design_laplace(RATIO_4, epsilon=1.0)
    found = [
        audit(mechanism, release=additive(mechanism, 14), runs=1_000, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert found[0].attack == found[1].attack != found[2].attack


@pytest.mark.slow
def test_workers():
    mechanism = adp.design_laplace(RATIO_4, epsilon=1.0)
    found = audit(mechanism, runs=10_000, confidence=CONFIDENT, n_jobs=2)
    assert found.passed
    assert found.epsilon_lower > 0.4
    # a generator that is shared, not copied: noise that repeats would show
    given = audit(mechanism, release=additive(mechanism, 15), runs=50_000, n_jobs=2)
    assert 0.7 < given.epsilon_lower < 1.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 99}, "runs"),
        ({"runs": 1e5}, "runs"),
        ({"runs": True}, "runs"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": math.nan}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"delta": 1.0}, "delta"),
        ({"claim": (1.0, 1.0)}, "claim"),
        ({"claim": (-1.0, 0.0)}, "claim"),
        ({"claim": (1.0,)}, "claim"),
        ({"claim": (math.inf, 0.0)}, "claim"),
        ({"claim": "strong"}, "claim"),
        ({"claim": (1.0, 0.0), "delta": 0.1}, "δ = 0.0"),
        ({"adjacency": "all"}, "Adjacency"),
        ({"adjacency": adp.CircuitAdjacency(SUM)}, "another manifold"),
        ({"release": lambda x: x[:, :1]}, "one row of outputs for every row"),
        ({"release": lambda x: x * math.nan}, "finite"),
        ({"release": lambda x: x}, "adds no noise"),
        ({"release": lambda x: x + NOISE.normal(size=x.shape[1])}, "all rows of one call the same"),
        (
            {"release": lambda x: x + np.random.default_rng(0).normal(size=x.shape)},
            "same seed in every call",
        ),
    ],
)
def test_bad_input_is_refused(options, message):
    mechanism = adp.design_laplace(RATIO_4, epsilon=1.0)
    with pytest.raises(AffineDPError, match=message):
        audit(mechanism, **options)


def test_only_mechanisms_are_audited():
    with pytest.raises(AffineDPError, match="Mechanism"):
        audit(RATIO_4)
