"""Noise that someone already has, on trajectories: Theorems 1 and 2 by hand."""

import math
import tempfile
from dataclasses import replace

import numpy as np
import pytest

import affinedp as adp
from affinedp.control import (
    Gateway,
    design_output_noise,
    noise_by_time,
    verify_output_noise,
)
from affinedp.control.given_noise import verify_trajectory_noise
from affinedp.strategies.trajectory import Trajectory

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def largest(sigma, horizon, mu=1.0):
    """max ‖√Σ⁻¹ A^(−t) e_k‖ over the time-local differences of x(0)."""
    A = np.array(VEHICLE[0])
    inverse = np.linalg.inv(np.linalg.cholesky(sigma))
    powers = (np.linalg.matrix_power(np.linalg.inv(A), t) for t in range(horizon))
    return max(np.linalg.norm(inverse @ p[:, k]) * mu for p in powers for k in range(2))


@pytest.mark.parametrize("seed", range(3))
def test_any_covariance_has_the_promise_of_theorem_1(seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(2, 2)) * 5
    sigma = factor @ factor.T + np.eye(2)
    given = verify_output_noise(VEHICLE, 8, covariance=sigma)
    assert given.guarantee.sensitivity == pytest.approx(largest(sigma, 8), rel=1e-9)
    assert np.allclose(given.strategy.start @ given.strategy.start.T, sigma)
    # the same as any root of it, and as the noise matrix of all outputs
    wide = np.linalg.cholesky(sigma) @ np.linalg.qr(rng.normal(size=(3, 3)))[0][:2]
    again = verify_output_noise(VEHICLE, 8, root=wide)
    assert again.guarantee.sensitivity == pytest.approx(given.guarantee.sensitivity, rel=1e-9)
    generic = verify_trajectory_noise(VEHICLE, 8, given.noise_matrix)
    assert generic.sensitivity == pytest.approx(given.guarantee.sensitivity, rel=1e-9)


def test_a_design_verified_again_is_the_design(tmp_path):
    m = design_output_noise(VEHICLE, 20, epsilon=1.0, delta=0.01)
    again = verify_output_noise(VEHICLE, 20, root=m.strategy.start)
    assert again.guarantee.epsilon(0.01) == pytest.approx(1.0, rel=1e-9)
    assert again.fingerprint == m.fingerprint
    with (
        tempfile.TemporaryDirectory() as folder,
        Gateway(again, state=f"{folder}/s", resolution="exact") as gateway,
    ):
        assert gateway.send([1.0]).shape == (1,)
    again.save(tmp_path / "m.json")
    assert adp.Mechanism.load(tmp_path / "m.json").fingerprint == m.fingerprint


def test_definition_4_asks_for_more():
    sigma = 100 * np.eye(2)
    local, full = (
        verify_output_noise(VEHICLE, 5, covariance=sigma, adjacency=kind).guarantee.sensitivity
        for kind in ("time-local", "manifold")
    )
    assert local == pytest.approx(0.10770, rel=1e-4)
    assert full == pytest.approx(1.07703, rel=1e-4)


def test_states_that_outputs_do_not_reveal():
    apart = ([[1, 0], [0, 2]], [[1, 0]])  # the second state is never seen
    given = verify_output_noise(apart, 4, covariance=[[4.0, 1.0], [1.0, 9.0]])
    assert given.guarantee.sensitivity == pytest.approx(0.5, rel=1e-12)
    assert np.allclose(noise_by_time(given), 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either covariance or root"),
        ({"covariance": np.eye(2), "root": np.eye(2)}, "either"),
        ({"covariance": np.eye(3)}, "shape"),
        ({"covariance": [[1, 2], [0, 1]]}, "not symmetric"),
        ({"covariance": [[1, 2], [2, 1]]}, "semidefinite"),
        ({"root": [[1.0], [1.0]]}, "without noise"),
        ({"covariance": np.ones((2, 2))}, "without noise"),
        ({"covariance": np.eye(2), "mu": [1, 0]}, "public"),
    ],
)
def test_what_promises_nothing_is_refused(arguments, message):
    with pytest.raises(adp.AffineDPError, match=message):
        verify_output_noise(VEHICLE, 5, **arguments)


def test_laplace_noise_on_trajectories_is_theorem_2():
    rng = np.random.default_rng(0)
    A = np.array(VEHICLE[0])
    root = rng.normal(size=(2, 2)) * 3
    outputs = np.vstack([VEHICLE[1] @ np.linalg.matrix_power(A, t) for t in range(4)])
    g = verify_trajectory_noise(VEHICLE, 4, outputs @ root, law="laplace")
    inverse, back = np.linalg.inv(root), np.linalg.inv(A)
    expected = max(
        np.abs(inverse @ np.linalg.matrix_power(back, t)[:, k]).sum()
        for t in range(4)
        for k in range(2)
    )
    assert g.epsilon() == pytest.approx(expected, rel=1e-9)


def test_a_leak_is_shown():
    g = verify_trajectory_noise(VEHICLE, 4, [[2.5]] * 4)
    assert g.epsilon(0.01) == math.inf
    assert abs(g.leak.sum()) < 1e-12
    assert list(g.output_names) == ["y1(0)", "y1(1)", "y1(2)", "y1(3)"]


def test_noise_that_does_not_fit_is_no_mechanism():
    m = design_output_noise(VEHICLE, 5, epsilon=1.0, delta=0.01)
    other = design_output_noise(([[1, 0.2], [0, 1]], [[1, 0]]), 5, epsilon=1.0, delta=0.01)
    with pytest.raises(adp.AffineDPError, match="other data"):
        replace(m, adjacency=other.adjacency).guarantee  # noqa: B018
    for start in (np.eye(3), np.zeros((2, 0)), np.zeros((2, 2)), np.ones((2, 1))):
        with pytest.raises(adp.AffineDPError, match="entries"):
            Trajectory(m.domain, start)
    half = replace(m.with_design(asked=None), strategy=m.strategy.scaled(0.5))
    assert half.guarantee.sensitivity == pytest.approx(2 * m.guarantee.sensitivity, rel=1e-9)
