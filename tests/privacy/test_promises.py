"""Promises that were once too optimistic, or refused for no reason, and must never be again."""

import json
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sparse

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.neighbours.free_sets import FreeSetAdjacency

ORDINARY = adp.AffineManifold(np.zeros((0, 2)))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_units_of_entries_do_not_hide_leaks(convert):
    noise = convert(np.array([[1, 0], [1, 0], [0, 1e13]]))
    query = [[1, 0], [1, 1e-13], [0, 1]]
    assert adp.verify(ORDINARY, noise, query=query, mu=[1, 1e13]).leak is not None


def test_ill_conditioned_noise_does_not_hide_leaks():
    m = 10
    start = np.column_stack([np.ones(m), np.random.default_rng(0).standard_normal((m, m - 1))])
    Q = np.linalg.qr(start)[0][:, 1:]
    columns = [1e12 * Q[:, 0]] + [1e12 * Q[:, 0] + 5 * Q[:, i] for i in range(1, m - 1)]
    g = adp.verify(adp.AffineManifold(np.zeros((0, m))), np.column_stack(columns))
    assert g.leak == pytest.approx(np.ones(m), abs=1e-3)  # the sum has no noise


def test_hidden_near_dependence_of_exact_columns():
    D = np.zeros((2, 9))
    D[:, 0], D[:, 1] = (1, 0.9999999), (1.0000001, 1)
    D[:, 2:] = [[7, 6, 5, 3, 3, 1, 1], [1, 2, 7, 6, 8, 5, 5]]
    F = np.eye(9)
    F[0, 0] = F[1, 1] = 1e-4
    g = adp.verify(adp.AffineManifold(D), 1.0, query=F)
    assert g.sensitivity == pytest.approx(8.4852808085e10, rel=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_small_equations_are_not_dropped(convert):
    D = np.array([[np.pi, 1, 1, 1], [np.pi, 1 + 1e-11, 1 + 2e-10, 1 - 1e-10]])
    with pytest.raises(AffineDPError, match="neither clearly dependent"):
        adp.AffineManifold(convert(D))


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_units_of_entries_do_not_change_the_promise(convert):
    B = np.array([[2.85, 1.5, 0, 0], [0, 0, -0.86, 2.02], [0, -1.72, 0, -2.07]]) * np.pi
    plain = adp.verify(adp.AffineManifold(convert(B)), 1.0).sensitivity
    rng = np.random.default_rng(0)
    for _ in range(20):
        u = 10.0 ** rng.integers(-8, 9, 4)
        M = adp.AffineManifold(convert(B * u))
        g = adp.verify(M, 1.0, mu=1 / u, query=np.diag(u))
        assert plain * (1 - 1e-12) <= g.sensitivity <= plain * (1 + 1e-5)


def test_coefficients_of_very_different_size():
    D = [
        [-6585849.654823724, 0, -0.5893384675136657, -0.16754202943411578, -1129624895.9817915],
        [0, 1.235562510925802e-07, 1.2229426916072454, -0.04426543279957211, 0],
        [0, 1.5275278285156327e-07, -0.8532421916060575, 0, 0],
    ]
    g = adp.verify(adp.AffineManifold(D), 1.0)
    assert g.sensitivity == pytest.approx(8.058e14, rel=1e-3)


def test_certified_designs_do_not_hide_leaks():
    M = adp.AffineManifold(np.ones((1, 5)))
    F = np.diag([1, 1, 1, 1, 1e-14])[1:]
    with pytest.raises(AffineDPError):
        adp.design_gaussian(M, epsilon=1, delta=1e-6, imbalance=1.0, query=F)


def test_a_false_imbalance_is_noticed():
    M = adp.AffineManifold([[1, 1, -10, 0], [0, 1, 3, -1]])
    with pytest.raises(AffineDPError, match="imbalance"):
        adp.design_gaussian(M, epsilon=1, delta=1e-6, imbalance=1.0)
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, imbalance=40.0)
    assert "rests on imbalance" in m.guarantee.warnings[0]


def test_certificates_are_for_gaussian_noise(tmp_path):
    m = adp.design_gaussian(adp.AffineManifold([[1, -1]]), epsilon=1, delta=0.01, imbalance=1.0)
    m.save(tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    for value in ({"kind": "laplace"}, {"kind": "design"}):
        document["saved"]["noise"] = value
        (tmp_path / "n.json").write_text(json.dumps(document))
        with pytest.raises(AffineDPError):
            adp.Mechanism.load(tmp_path / "n.json")


def test_renyi_is_monotone_near_one():
    for scale in (1e4, 1e3, 1.0):
        g = adp.verify(adp.AffineManifold(np.zeros((0, 1))), scale, law="laplace")
        values = [g.renyi(1 + step) for step in (0, 1e-12, 1e-9, 1e-6, 1e-3, 1, 100)]
        assert min(values) == values[0]
        assert all(a <= b * (1 + 1e-2) for a, b in pairwise(values))
        assert values[0] > 0


def test_keys_tell_manifolds_apart():
    one = adp.AffineManifold(np.zeros((0, 2)), names=["x", "y\n0:1;1:1"])
    two = adp.AffineManifold([[1, 1]], names=["x", "y"])
    with pytest.raises(AffineDPError, match="different neighbours"):
        adp.compose([adp.verify(one, 1.0), adp.verify(two, 1.0)])
    close = [
        adp.AffineManifold.from_equations(["a+b+c=0", f"a+1.00000000000{i}*b+2*c=0"]).key
        for i in (2, 4)
    ]
    assert close[0] != close[1]
    for names in (["a|b", "c"], ["a", "b|c"]):
        close.append(adp.AffineManifold([[1, 1]], names=names).key)
    assert close[2] != close[3]


def test_integers_are_exact():
    big = 10**12
    M = adp.AffineManifold([[big + 1, big], [big, big - 1]], public_entries="allow")
    assert M.dim == 0
    with pytest.raises(AffineDPError, match="more digits"):
        adp.AffineManifold(np.array([[2**53 + 1, 1], [2**53, 1]]))


@pytest.mark.parametrize("scale", [1e-170, 1e-100, 1e100, 1e170])
def test_scale_of_equations(scale):
    F = np.eye(12)
    F[-1, -1] = 50
    g = adp.verify(adp.AffineManifold(scale * np.ones((1, 12))), 1.0, query=F)
    assert g.sensitivity == pytest.approx(np.hypot(50, 1))
    wide = np.diag([1.0] * 10 + [1e200] * 2)
    g = adp.verify(adp.AffineManifold(scale * np.ones((1, 12))), 1.0, query=wide)
    assert g.sensitivity == pytest.approx(np.sqrt(2) * 1e200)


def test_tiny_movements_count():
    M = adp.AffineManifold([[1, -1]])
    for adjacency in (
        adp.DirectionAdjacency(M, [[1e-170], [1e-170]]),
        adp.FreeSetAdjacency(M, [[0]], mu=1e-170),
    ):
        g = adp.verify(M, 1.0, adjacency=adjacency)
        assert g.sensitivity == pytest.approx(np.sqrt(2) * 1e-170)
    loose = adp.verify(adp.AffineManifold(np.zeros((0, 1))), 1e170)
    assert loose.sensitivity == pytest.approx(1e-170)


def test_cancelling_queries():
    M = adp.AffineManifold([[1, 0, -1e14], [0, 1, 3e14]])
    noise = np.array([[-1.416, -0.683], [-0.029, -0.412]])
    assert adp.verify(M, noise, query=[[39, 13, 13], [51, 17, 34]]).sensitivity >= 90.490


def test_constant_outputs_are_no_leaks():
    M = adp.AffineManifold([[0.1, 0.2, 0.3]])
    query = [[1, 0, 0], [0.1, 0.2, 0.3]]
    assert adp.verify(M, [[1.0], [0.0]], query=query).leak is None
    assert adp.design_gaussian(M, epsilon=1, delta=1e-6, query=query).guarantee.holds(1, 1e-6)


def test_full_noise_never_leaks():
    M = adp.AffineManifold([[1, 0, -(10**8)], [0, 1, 3 * 10**8]])
    g = adp.verify(M, [[1.0, 0.5], [0.3, 1.0]], query=[[3, 1, 1], [3, 1, 2]])
    assert g.leak is None


def test_components_that_do_not_move_need_no_noise():
    M = adp.AffineManifold([[1, -1, 0, 0], [0, 0, 1, -1]])
    m = adp.design_gaussian(M, epsilon=1, delta=1e-6, mu=[1, 1, 0, 0])
    assert m.guarantee.holds(1, 1e-6)
    assert m.dense.basis.shape == (4, 1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: adp.AffineManifold([[1e200, 1e-200]]),
        lambda: adp.AffineManifold([[5e-324, 1]]),
        lambda: adp.AffineManifold([[10**400, 1]]),
        lambda: adp.AffineManifold(np.array([[1, 2, np.pi]]) * 1e-310),
        lambda: adp.design_gaussian(
            adp.AffineManifold([[1, 1]]), query=[[1, 1]], epsilon=1, delta=1e-6, imbalance=1.0
        ),
        lambda: FreeSetAdjacency(adp.AffineManifold([[1]], public_entries="allow"), [[]]),
        lambda: FreeSetAdjacency(adp.AffineManifold([[1, -1]]), [1, 2]),
        lambda: FreeSetAdjacency(adp.AffineManifold([[1, -1]]), None),
    ],
)
def test_refusals_are_refusals(attempt):
    with pytest.raises(AffineDPError):
        attempt()
