"""What helps against sensors with steps: once, then predict; an observer's output; a recording."""

import math

import numpy as np
import pytest
import scipy.linalg
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.cli.sensor import read_limits, read_resolution
from affinedp.control import (
    Dither,
    Gateway,
    PredictOnce,
    design_output_noise,
    dynamics_of,
    observer_shares,
)
from affinedp.control.gateway.refusals import RepeatedStepError
from affinedp.control.sensors.recording import read_recording, study
from affinedp.errors import AffineDPError
from plants import building

STEP = 0.1


@pytest.fixture(scope="module")
def week():
    """A week of three zones in quarters of an hour, x(0) private by half a degree."""
    A, _, C, *_ = building()
    return design_output_noise((A, C), 672, 1.0, 1e-4, mu=0.5, neighbours="initial")


@pytest.fixture(scope="module")
def day():
    return design_output_noise(([[0.99]], [[1.0]]), 96, 1.0, 1e-4, neighbours="initial")


# ---------------------------------------------------------------------- once, then predict


def test_one_estimate_costs_a_fraction_of_all_readings(week, day, tmp_path):
    with PredictOnce(day, readings=1, state=tmp_path / "a", resolution=STEP) as once:
        assert once.cost == pytest.approx(1.21, abs=0.01)
    for readings, cost in ((12, 3.82), (24, 3.13)):
        path = tmp_path / f"{readings}"
        with PredictOnce(week, readings=readings, state=path, resolution=STEP) as once:
            assert once.cost == pytest.approx(cost, rel=0.01)  # 1864 for sending every reading
            assert once.gateway.guarantee.holds(1.0, 1e-4)


def test_the_estimate_keeps_the_promise_in_every_corner(tmp_path):
    """Σ of x̂(0) against all signs of the rounding errors of four readings."""
    A, C = np.array([[0.9, 0.1], [0.0, 0.7]]), np.array([[1.0, 0.0]])
    m = design_output_noise((A, C), 50, 1.0, 1e-4, neighbours="initial")
    with PredictOnce(m, readings=4, state=tmp_path / "s", resolution=STEP) as once:
        gateway, estimator = once.gateway, once._estimator
        common = gateway.noise_factor**2 * m.root @ m.root.T
        spread = estimator @ np.diag(gateway.fresh_noise**2) @ estimator.T
        inverse = np.linalg.inv(common + spread)
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1)
        worst = 0.0
        for direction in np.eye(2):
            shifts = direction[:, None] + estimator @ (STEP * signs)
            worst = max(worst, np.einsum("ij,ik,kj->j", shifts, inverse, shifts).max())
    assert worst <= m.guarantee.sensitivity**2
    # the total of the predictions is what is stated
    rows = np.array([C @ np.linalg.matrix_power(A, t) for t in range(50)])[:, 0]
    total = np.trace(rows @ (common + spread) @ rows.T)
    assert once.cost == pytest.approx(total / m.expected_squared_error, rel=1e-6)


def test_predictions_follow_from_what_was_published(tmp_path):
    A, B, C = np.array([[0.9, 0.1], [0.0, 0.7]]), np.array([0.0, 1.0]), np.array([[1.0, 0.0]])
    m = design_output_noise((A, C), 20, 1.0, 1e-4, mu=1e-6, neighbours="initial")
    x, readings = np.array([3.0, -1.0]), []
    offsets = np.array([B * math.sin(t) for t in range(19)])
    for t in range(20):
        readings.append(C @ x)
        if t < 19:
            x = A @ x + offsets[t]
    words = {"readings": 5, "state": tmp_path / "s", "resolution": 1e-9}
    with PredictOnce(m, **words) as once:
        x0 = once.send(np.array(readings[:5]), offsets[:4])
        np.testing.assert_allclose(x0, [3.0, -1.0], atol=1e-4)
        np.testing.assert_allclose(once.outputs(x0, 20, offsets), readings, atol=1e-4)
        assert np.array_equal(once.send(np.array(readings[:5]), offsets[:4]), x0)
        with pytest.raises(RepeatedStepError):
            once.send(np.zeros((5, 1)))
        for bad in (np.zeros((4, 1)), np.zeros(5)):
            with pytest.raises(AffineDPError, match="readings"):
                once.send(bad)
        with pytest.raises(AffineDPError, match="horizon"):
            once.outputs(x0, 21)


def test_once_then_predict_refuses(week, tmp_path):
    with pytest.raises(AffineDPError, match="do not determine"):
        PredictOnce(week, readings=1, state=tmp_path / "s", resolution=STEP)
    theorem3 = design_output_noise(([[1.0]], [[1.0]]), 10, 1.0, 1e-4)
    with pytest.raises(AffineDPError, match="initial"):
        PredictOnce(theorem3, readings=1, state=tmp_path / "s", resolution=STEP)
    with pytest.raises(AffineDPError, match="whole number"):
        PredictOnce(week, readings=0, state=tmp_path / "s", resolution=STEP)


# ---------------------------------------------------------------------- an observer's output


def observer(plant, covariance, weight):
    """The gain of a Kalman filter for measurement noise of this variance."""
    A, _, C, *_ = plant
    P = scipy.linalg.solve_discrete_are(A.T, C.T, covariance, weight * np.eye(len(C)))
    return P @ C.T @ np.linalg.inv(C @ P @ C.T + weight * np.eye(len(C)))


def test_what_an_observer_makes_of_a_coarse_sensor(week):
    """Noise of 14.6 °C in the readings; and at a noise worth having the sensor says nothing."""
    plant = building()
    A, E, C = plant[:3]
    disturbed = E @ E.T * 0.2**2
    alone = scipy.linalg.solve_discrete_lyapunov(A, disturbed)
    without = math.sqrt(np.trace(C @ alone @ C.T) / 3)
    assert without == pytest.approx(0.311, abs=1e-3)
    for weight, noise in ((0.1, 5.78), (10.0, 0.41)):
        found = observer_shares(week, STEP, observer(plant, disturbed, weight))
        assert found.raw_noise == pytest.approx(14.6, rel=0.01)
        assert found.noise == pytest.approx(noise, rel=0.1)
        assert not found.useful(without)
    fine = observer_shares(week, Dither(12, STEP), observer(plant, disturbed, 0.1))
    assert fine.useful(without)


def test_shares_for_an_observer_are_what_simulation_shows(day, tmp_path):
    """The stated noise of the observer's output against its covariance, put together in full."""
    gain = np.array([[0.2]])
    found = observer_shares(day, STEP, gain)
    with Gateway(
        day, state=tmp_path / "s", resolution=STEP, fresh_noise=found.fresh_noise
    ) as gateway:  # fmt: skip
        factor = gateway.noise_factor
    T = 96
    M = np.zeros((T, T))
    for k in range(T):
        estimate = 0.0
        for t in range(T):
            predicted = 0.99 * estimate if t else estimate
            estimate = predicted + 0.2 * (float(t == k) - predicted)
            M[t, k] = estimate
    v = 0.99 ** np.arange(T) * day.root[0, 0] * factor
    covariance = M @ (np.outer(v, v) + found.fresh_noise[0] ** 2 * np.eye(T)) @ M.T
    assert math.sqrt(np.trace(covariance) / T) == pytest.approx(found.noise, rel=1e-3)


def test_observer_refuses(day):
    with pytest.raises(AffineDPError, match="gain has shape"):
        observer_shares(day, STEP, np.zeros((2, 1)))
    with pytest.raises(AffineDPError, match="exact readings"):
        observer_shares(day, "exact", [[0.1]])
    assert dynamics_of(([[1]], [[1]]), 3).outputs == 1


# ---------------------------------------------------------------------- recordings


def test_steps_range_and_saturation_of_a_recording():
    t = np.arange(3000)
    room = 20 + 4 * np.sin(t / 90) + 0.3 * np.sin(t / 7)
    found = study("room", np.round(np.minimum(room, 22.5) * 4) / 4)
    assert found.step is None or found.step == pytest.approx(0.25)
    found = study("room", np.round(np.minimum(room, 22.5), 1))
    assert found.step == pytest.approx(0.1)
    assert (found.high, found.saturates) == (22.5, ("high",))
    assert "saturates" in str(found) or "saturate" in str(found)
    assert study("computed", room).step is None
    assert "computed?" in str(study("computed", room))
    assert "too few" in str(study("still", [1.0, 1.1] * 50))
    for bad in ([], [math.nan], [math.inf, 1.0]):
        with pytest.raises(AffineDPError):
            study("bad", bad)


@pytest.mark.parametrize("off", [0.0, 0.4])
def test_uneven_steps_of_a_recording(off):
    """A converter one of whose thresholds is off by a part of a step, and one without fault."""
    rng = np.random.default_rng(6)
    signal = rng.uniform(0, 20, 400_000)
    thresholds = np.arange(200) * 0.1 + 0.05
    thresholds[100] += off * 0.1
    readings = np.searchsorted(thresholds, signal) * 0.1
    found = study("adc", readings.round(6))
    assert found.nonlinearity is not None
    assert 0.1 * off * 0.8 < found.nonlinearity < 0.1 * off * 1.2 + 0.03


def test_sensor_command(tmp_path):
    file = tmp_path / "readings.csv"
    lines = [f"2026-05-01T{t // 60:02}:{t % 60:02},{20 + 3 * math.sin(t / 9):.1f},{t % 7}\n"
             for t in range(600)]  # fmt: skip
    file.write_text("time,room,mode\n" + "".join(lines))
    said = CliRunner().invoke(app, ["control", "sensor", str(file)])
    assert said.exit_code == 0, said.output
    assert "room: 600 readings" in said.output
    assert "--resolution 0.1" in said.output
    assert "time" not in said.output
    said = CliRunner().invoke(app, ["control", "sensor", str(file), "--json"])
    assert '"saturates"' in said.output
    assert [name for name, _ in read_recording(file)] == ["room", "mode"]
    file.write_text("1.0,2.0\n1.1,2.1\n")
    assert [name for name, _ in read_recording(file)] == ["y1", "y2"]
    for text in ("", "a,b\nx,y\n", "1,2\n3\n"):
        file.write_text(text)
        with pytest.raises(AffineDPError):
            list(read_recording(file))
    with pytest.raises(AffineDPError, match="cannot be read"):
        list(read_recording(tmp_path / "absent"))


def test_options_of_sensors(tmp_path):
    assert read_resolution("exact") == "exact"
    assert read_resolution("0.1") == 0.1
    assert read_resolution("0.1, dither:6:0.1:0.01") == [0.1, Dither(6, 0.1, 0.01)]
    for bad in ("fine", "dither:6", "dither:x:1", ""):
        with pytest.raises(AffineDPError, match="--resolution"):
            read_resolution(bad)
    assert read_limits(None) == {}
    file = tmp_path / "limits.toml"
    file.write_text("range = [0, 50]\nstart = [[10], [30]]\ninputs = [[0], [1]]\nB = [[0.1]]\n")
    found = read_limits(file)
    assert found["range"] == (0, 50)
    low, _ = found["reach"].outputs(dynamics_of(([[0.9]], [[1.0]]), 5))
    assert low[0] == pytest.approx(10 * 0.9**4)
    file.write_text("range = [0, 50]\n")
    assert read_limits(file) == {"range": (0, 50)}
    for text in ("start = [[1], [2]]", "range = [0, 1]\nstart = [[1], [2]]", "range = 7", "x = 1"):
        file.write_text(text)
        with pytest.raises(AffineDPError, match=r"limits\.toml"):
            read_limits(file)
