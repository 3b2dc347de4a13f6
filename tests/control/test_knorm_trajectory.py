"""K-norm noise for trajectories: the vehicle, long horizons, files, recorded trajectories."""

import functools

import numpy as np
import pytest

from affinedp import AffineDPError
from affinedp.control import TrajectoryMechanism, design_output_noise, once_then_predict

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


@functools.cache
def vehicle(horizon=100, **options):
    return design_output_noise(VEHICLE, horizon, epsilon=1.0, mu=[1, 0.1], **options)


def test_the_vehicle_needs_less_noise_without_delta():
    pure = vehicle(law="knorm")
    assert pure.law == "knorm"
    assert pure.expected_squared_error <= 263.05
    assert 1 - 1e-9 <= pure.guarantee.epsilon() <= 1.0
    assert pure.guarantee.exact
    for delta, times in ((1e-2, 1.488), (1e-6, 7.53)):
        gaussian = vehicle(delta=delta)
        assert gaussian.expected_squared_error / pure.expected_squared_error >= times
    laplace = vehicle(law="laplace")
    assert pure.expected_squared_error <= laplace.expected_squared_error


def test_the_promise_covers_every_neighbour():
    """Every difference of x(0), listed and measured with the gauge itself."""
    for kind in ("time-local", "manifold"):
        pure = design_output_noise(VEHICLE, 12, 0.5, mu=[1, 0.1], law="knorm", neighbours=kind)
        gauges = pure.body.gauges(pure.neighbours.directions().T)
        assert pure.rate * gauges.max() == pytest.approx(0.5, rel=1e-9)
        assert pure.guarantee.epsilon() <= 0.5


@pytest.mark.slow
def test_long_horizons():
    pure = vehicle(10**6, law="knorm")
    assert pure.guarantee.epsilon() <= 1.0
    pure = vehicle(10**4, law="knorm")
    assert vehicle(10**4, delta=1e-2).expected_squared_error > 1.6 * pure.expected_squared_error


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3])
def test_auto_takes_the_least(delta):
    best = vehicle(delta=delta, law="auto")
    others = [vehicle(law="knorm"), vehicle(law="laplace")]
    if delta:
        others.append(vehicle(delta=delta))
    least = min(other.expected_squared_error for other in others)
    assert best.expected_squared_error == pytest.approx(least, rel=1e-9)
    assert best.law == ("gaussian" if delta == 0.3 else "knorm")
    assert best.guarantee.holds(1.0, delta)
    assert "the law of least cost" in best.notes[-1]


def test_samples_have_the_stated_noise():
    pure = vehicle(law="knorm")
    drawn = pure.sample(4000, seed=1)
    np.testing.assert_allclose(drawn.std(axis=0)[:, 0], pure.noise_by_time[:, 0], rtol=0.1)
    assert np.trace(pure.covariance) == pytest.approx(pure.expected_squared_error)


def test_files_and_recorded_trajectories(tmp_path):
    pure = vehicle(20, law="knorm")
    pure.save(tmp_path / "m.json")
    again = TrajectoryMechanism.load(tmp_path / "m.json")
    assert again.fingerprint == pure.fingerprint
    assert again.guarantee.epsilon() == pure.guarantee.epsilon()
    assert again.expected_squared_error == pytest.approx(pure.expected_squared_error)
    text = (tmp_path / "m.json").read_text()
    (tmp_path / "bad.json").write_text(text.replace(f'"rate": {pure.rate}', '"rate": 1.5'))
    with pytest.raises(AffineDPError, match="altered"):
        TrajectoryMechanism.load(tmp_path / "bad.json")
    recorded = pure.mechanism()
    assert recorded.law == "knorm"
    assert recorded.guarantee.epsilon() == pytest.approx(1.0)
    assert recorded.expected_squared_error == pytest.approx(pure.expected_squared_error)
    states = np.zeros((20, 2))
    states[:, 0], states[:, 1] = 3 + 0.1 * np.arange(20) * 2, 2
    published = recorded.release(states.ravel())
    # what is published is a trajectory again
    np.testing.assert_allclose(np.diff(published, 2), 0, atol=1e-9)


def test_reports_name_the_law():
    text = str(vehicle(law="knorm").report())
    asked, title, *_ = text.splitlines()
    assert asked == "Keeps ε = 1 at δ = 0, as was asked"
    assert title.startswith("K-norm noise on 1 output over 100 steps")
    assert "triangle inequality" in text


def test_the_state_once():
    noise = design_output_noise(([[0.9]], [[1.0]]), 50, 1.0, neighbours="initial", law="knorm")
    assert once_then_predict(noise).mechanism.guarantee.epsilon() == pytest.approx(1.0)


def test_delta_is_for_gaussian_noise():
    with pytest.raises(AffineDPError, match="K-norm noise is designed for δ = 0"):
        vehicle(law="knorm", delta=0.01)
    with pytest.raises(AffineDPError, match="law must be"):
        vehicle(law="cauchy")
