"""Functions of what a gateway sent, with intervals that know what the gateway adds."""

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from scipy.stats import norm

import affinedp as adp
from affinedp.control import (
    Gateway,
    design_input_noise,
    design_output_noise,
    independent_output_noise,
)

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])
ROOM = ([[0.99]], [[0.9]], [[1.0]])
STEPS = 6
NOISE = {
    "one draw": lambda: design_output_noise(VEHICLE, 20, 1.0, 0.01, mu=[1, 0.1]),
    "pure": lambda: design_output_noise(VEHICLE, 20, 1.0, mu=[1, 0.1], law="knorm"),
    "filter": lambda: design_input_noise(ROOM, 1.0, 1e-4, horizon=40),
    "fresh": lambda: independent_output_noise(VEHICLE, 20, 1.0, 0.01),
}


def sent_covariance(gateway: Gateway, every: int) -> np.ndarray:
    """Of the first outputs that are sent, from the matrices of the noise and the plan."""
    m, times = gateway.mechanism, np.arange(STEPS) * every
    fresh = gateway.fresh_noise[0] ** 2 * (1 + 1 / (4**2 * 12))  # rounded to a quarter of it
    strategy = m.strategy
    if strategy.kind == "fresh":
        return fresh * np.eye(STEPS)
    if strategy.kind == "trajectory":
        A, C = np.array(VEHICLE[0]), np.array(VEHICLE[1])
        rows = np.vstack([C @ np.linalg.matrix_power(A, t) for t in times]) @ strategy.start
        over_time = m.noise.covariance(rows)
    else:
        made = strategy.noise
        P = scipy.linalg.solve_discrete_lyapunov(made.A, made.B @ made.B.T)
        lags = [(made.C @ P @ made.C.T + made.D @ made.D.T).item()]
        reach = made.A @ P @ made.C.T + made.B @ made.D.T
        for k in range(1, times[-1] + 1):
            lags.append((made.C @ np.linalg.matrix_power(made.A, k - 1) @ reach).item())
        over_time = scipy.linalg.toeplitz(lags)[np.ix_(times, times)] * strategy.scale**2
    return gateway.noise_factor**2 * over_time + fresh * np.eye(STEPS)


@pytest.mark.parametrize(("kind", "every"), [("one draw", 1), ("filter", 1), ("filter", 3),
                                             ("fresh", 1)])  # fmt: skip
def test_means_of_what_was_sent(kind: str, every: int, tmp_path: Path) -> None:
    """Against the covariance by hand: exact for Gaussian noise."""
    with Gateway(NOISE[kind](), state=tmp_path / "run", resolution=0.5, every=every) as gateway:
        given = [gateway.send([20.0 + t]) for t in range(every * (STEPS - 1) + 1)]
        sent = np.array([y for y in given if y is not None])
        found = gateway.mechanism.function(sent, lambda rows: rows[:, 0].mean())
        assert found.value == pytest.approx(sent.mean())
        wanted = norm.isf(0.025) * np.sqrt(sent_covariance(gateway, every).mean())
        assert found.high - found.value == pytest.approx(wanted, rel=0.01)
        low, high = gateway.mechanism.interval(sent)
        each = norm.isf(0.025) * np.sqrt(np.diagonal(sent_covariance(gateway, every)))
        assert ((high - low) / 2).ravel() == pytest.approx(each, rel=0.01)
        last = f"y1({every * (STEPS - 1)})"
        ratio = gateway.mechanism.function(sent, f"`{last}` / `y1(0)`")
        assert ratio.warnings or ratio.low < sent[-1, 0] / sent[0, 0] < ratio.high


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one draw", "pure"])
def test_coverage(kind: str, tmp_path: Path) -> None:
    """Of draws of real gateways: as often as is stated, and not much oftener for Gaussian noise."""
    noise, level, runs = NOISE[kind](), 0.7, 40
    readings = np.round(20 + np.arange(STEPS) / 2, 1)
    errors = []
    for run in range(runs):
        with Gateway(noise, state=tmp_path / f"{run}", resolution=0.1) as gateway:
            sent = np.array([gateway.send([y]) for y in readings])
            errors.append(sent.mean() - readings.mean())
    found = gateway.mechanism.function(sent, lambda out: out[:, 0].mean(), level=level)
    held = int((np.abs(errors) <= (found.high - found.low) / 2).sum())
    spread = 5 * np.sqrt(runs * level * (1 - level))  # five deviations of a binomial number
    assert runs * level - spread <= held
    assert kind == "pure" or held < runs


def test_what_is_refused(tmp_path: Path) -> None:
    noise = NOISE["filter"]()
    with pytest.raises(adp.AffineDPError, match=r"gateway\.mechanism"):
        noise.function(np.ones((3, 1)), lambda out: out.mean())
    known = design_input_noise(ROOM, 1.0, 1e-4, horizon=40, resolution=0.1)
    with pytest.raises(adp.AffineDPError, match="one row for each step"):
        known.interval(np.ones(3))
    with pytest.raises(adp.AffineDPError, match="more than are ever sent"):
        known.interval(np.ones((41, 1)))
    with Gateway(known, state=tmp_path / "run") as gateway:
        assert gateway.mechanism.fingerprint == known.fingerprint
        same = [m.interval(np.zeros((4, 1))).high.ravel() for m in (known, gateway.mechanism)]
        assert same[0] == pytest.approx(same[1], rel=1e-9)
