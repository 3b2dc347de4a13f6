"""Laplace noise on trajectories: Theorem 2 by hand, by the generic path, and what it costs."""

import itertools
import math

import numpy as np
import pytest

import affinedp as adp
from affinedp.control import (
    ClosedLoop,
    Gateway,
    design_output_noise,
    independent_output_noise,
    noise_by_time,
    verify_output_noise,
)
from affinedp.control.given_noise import verify_trajectory_noise
from plants import recorded

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


def differences(horizon):
    back = np.linalg.inv(np.array(VEHICLE[0]))
    powers = (np.linalg.matrix_power(back, t) for t in range(horizon))
    return np.array([p[:, k] for p in powers for k in range(2)])


@pytest.mark.parametrize("neighbours", ["time-local", "manifold"])
@pytest.mark.parametrize("system", [([[1]], [[1]]), VEHICLE, ([[0.9, 0.2], [0, 1.1]], [[1, 1]])])
def test_a_design_keeps_its_promise_tightly(system, neighbours):
    m = design_output_noise(system, 5, 1.0, adjacency=neighbours, law="laplace")
    assert m.law == "laplace"
    assert 1 - 1e-8 < m.guarantee.epsilon() <= 1.0
    generic = verify_trajectory_noise(
        system, 5, m.noise_matrix, law="laplace", adjacency=neighbours
    )
    assert generic.epsilon() == pytest.approx(1.0, rel=1e-7)
    assert recorded(m).guarantee.epsilon() == pytest.approx(1.0, rel=1e-7)
    # δ > 0 is exact too
    assert m.guarantee.delta(0.3) == pytest.approx(generic.delta(0.3), rel=1e-6)
    assert "Theorem 2" in m.guarantee.basis


def test_a_scalar_is_the_papers_rule():
    m = design_output_noise(([[1]], [[1]]), 100, 0.5, mu=2.0, law="laplace")
    assert abs(m.strategy.start[0, 0]) == pytest.approx(4.0, rel=1e-8)  # μ/ε
    assert np.allclose(noise_by_time(m), 4 * math.sqrt(2))
    assert m.expected_squared_error == pytest.approx(100 * 2 * 16, rel=1e-7)


def test_given_roots_are_theorem_2():
    root = np.array([[5.0, 1.0], [-2.0, 8.0]])
    given = verify_output_noise(VEHICLE, 6, root=root, law="laplace")
    expected = np.abs(np.linalg.inv(root) @ differences(6).T).sum(axis=0).max()
    assert given.guarantee.epsilon() == pytest.approx(expected, rel=1e-9)
    for bad in ({"covariance": np.eye(2)}, {"root": np.ones((2, 3))}):
        with pytest.raises(adp.AffineDPError):
            verify_output_noise(VEHICLE, 6, law="laplace", **bad)


def test_independent_noise_of_one_draw_is_refused():
    with pytest.raises(adp.AffineDPError, match="Gaussian or Laplace"):
        independent_output_noise(([[1.0]], [[1.0]]), 5, epsilon=1.0, law="knorm")


def test_independent_noise_adds_up_over_time():
    noise = independent_output_noise(([[1]], [[1]]), 30, 1.0, law="laplace")
    assert noise.strategy.sigma == pytest.approx(30.0, rel=1e-9)
    assert np.allclose(noise_by_time(noise), 30 * math.sqrt(2))
    vehicle = independent_output_noise(VEHICLE, 6, 1.0, law="laplace")
    outputs = np.vstack(
        [VEHICLE[1] @ np.linalg.matrix_power(np.array(VEHICLE[0]), t) for t in range(6)]
    )
    largest = np.abs(differences(6) @ outputs.T).sum(axis=1).max()
    assert vehicle.strategy.sigma == pytest.approx(largest, rel=1e-9)
    generic = verify_trajectory_noise(VEHICLE, 6, vehicle.strategy.sigma, law="laplace")
    assert generic.epsilon() == pytest.approx(1.0, rel=1e-9)


def test_no_square_basis_on_a_grid_is_much_better():
    """Two states: over rotations and shears, the search is at most a little above the best."""
    m = design_output_noise(VEHICLE, 5, 1.0, law="laplace")
    moves = differences(5)
    outputs = np.vstack(
        [VEHICLE[1] @ np.linalg.matrix_power(np.array(VEHICLE[0]), t) for t in range(5)]
    )
    best = math.inf
    angles = np.linspace(0, np.pi, 61)[:-1]
    for one, two, ratio in itertools.product(angles, angles, np.geomspace(0.01, 100, 25)):
        root = np.array([[np.cos(one), ratio * np.cos(two)], [np.sin(one), ratio * np.sin(two)]])
        if abs(np.linalg.det(root)) < 1e-6 * ratio:
            continue
        scale = np.abs(np.linalg.solve(root, moves.T)).sum(axis=0).max()
        best = min(best, 2 * np.linalg.norm(outputs @ root) ** 2 * scale**2)
    assert m.expected_squared_error <= best * 1.02


def test_loops_follow_the_variance():
    loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[0.0])
    system = ([[1.0]], [[1.0]])
    for design in (design_output_noise, independent_output_noise):
        gaussian = design(system, 20, 1.0, 0.01)
        laplace = design(system, 20, 1.0, law="laplace")
        exact = loop.mean_square_error(laplace, 20)[-1, 0]
        share = laplace.expected_squared_error / gaussian.expected_squared_error
        assert exact == pytest.approx(share * loop.mean_square_error(gaussian, 20)[-1, 0])
        runs = loop.simulate(laplace, 20, 4000, 0)
        errors = runs.states[:, -1, 0] - runs.references[-1, 0]
        assert np.mean(errors**2) == pytest.approx(exact, rel=0.15)
        assert laplace.sample(5000, 0).var() == pytest.approx(
            laplace.expected_squared_error / 20, rel=0.1
        )


def test_files_reports_and_gateways(tmp_path):
    m = design_output_noise(VEHICLE, 5, 1.0, law="laplace")
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == m.fingerprint
    assert again.law == "laplace"
    assert again.guarantee.epsilon() == m.guarantee.epsilon()
    trusted = adp.Mechanism.load(tmp_path / "m.json", reverify=False)
    assert trusted.guarantee.epsilon() == pytest.approx(1.0)
    assert "Laplace" in str(m.report())
    with pytest.raises(adp.AffineDPError, match="Gaussian"):
        Gateway(m, state=tmp_path / "s", resolution="exact")
    gaussian = verify_output_noise(VEHICLE, 5, root=m.strategy.start)
    assert gaussian.fingerprint != m.fingerprint
    assert m.release([0.0, 1.0]).shape == (5, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be"),
        ({"epsilon": 0.0}, "positive"),
        ({"epsilon": math.nan}, "epsilon"),
    ],
)
def test_refused(arguments, message):
    for design in (design_output_noise, independent_output_noise):
        with pytest.raises(adp.AffineDPError, match=message):
            design(VEHICLE, 5, law="laplace", **arguments)
        with pytest.raises(adp.AffineDPError, match="law must be"):
            design(VEHICLE, 5, 1.0, law="cauchy")
        with pytest.raises(adp.AffineDPError, match="Gaussian, which needs δ > 0"):
            design(VEHICLE, 5, 1.0)
    with pytest.raises(adp.AffineDPError, match="Gaussian, which needs δ > 0"):
        design_output_noise(VEHICLE, 5, 1.0, adjacency="forward")
