"""A gateway with K-norm noise: pure privacy step by step, from one exact draw."""

import functools
import math
from fractions import Fraction as F

import numpy as np
import pytest

from affinedp import AffineDPError, Ledger
from affinedp.control import Gateway, design_output_noise, noise_by_time
from affinedp.control.gateway_path import BodyOnGrid, Sending
from affinedp.control.gateway_plan import least_pure_noise
from affinedp.errors import AffineDPWarning
from affinedp.parts import restored

VEHICLE = ([[1, 0.1], [0, 1]], [[1, 0]])


@functools.cache
def vehicle(horizon=50):
    return design_output_noise(VEHICLE, horizon, epsilon=1.0, mu=[1, 0.1], law="knorm")


def test_a_drive_is_sent_without_delta(tmp_path):
    mechanism = vehicle()
    ledger = Ledger(tmp_path / "l.db", epsilon=1.0, delta=0.0, protects="a driver")
    with Gateway(mechanism, state=tmp_path / "g.db", ledger=ledger, resolution="exact") as gateway:
        sent = np.array([gateway.send([3.0 + 0.2 * t])[0] for t in range(50)])
        assert gateway.guarantee.epsilon() <= 1.0
        assert gateway.guarantee.law == "knorm"
    assert ledger.spent <= 1.0
    noise = sent - 3.0 - 0.2 * np.arange(50)
    # one line of noise, but for the fresh noise
    line = np.polyval(np.polyfit(np.arange(50), noise, 1), np.arange(50))
    assert np.abs(noise - line).max() < 0.05
    assert np.abs(noise).max() > 1e-6
    with Gateway(mechanism, state=tmp_path / "g.db", ledger=ledger, resolution="exact") as again:
        assert again.next_step == 50


def test_losses_add_up_to_epsilon():
    mechanism = vehicle()
    s = mechanism.guarantee.sensitivity
    for resolution in ("exact", 1e-3):
        plan = Sending.of(mechanism, resolution).plan()
        assert plan.fresh_law == "laplace"
        fresh = sum(2 * e / t for e, t in zip(plan.deviation, plan.fresh_noise))
        assert s / plan.noise_factor + 50 * fresh <= s
        assert restored(plan.record(), type(plan)) == plan
    assert plan.noise_factor > 1.001
    assert plan.noise_factor < 1.5


def test_the_draw_has_the_law_of_the_design():
    for mechanism in (
        vehicle(),
        design_output_noise(
            ([[0.9, 0.0], [0.0, 0.8]], np.eye(2)), 20, 1.0, adjacency="initial", law="knorm"
        ),
    ):
        grid = BodyOnGrid.of(mechanism.noise, mechanism.guarantee.sensitivity)
        assert (
            0
            < grid.charge / (F(mechanism.guarantee.sensitivity) / F(mechanism.noise.rate)) - 1
            < 1e-9
        )
        drawn = grid.noise(1.0, 1.0).draw(300).astype(float)
        drawn = np.ldexp(drawn, grid.exponent)
        expected = mechanism.noise.covariance(np.eye(2))
        whitened = np.linalg.solve(np.linalg.cholesky(expected), drawn.T)
        np.testing.assert_allclose(whitened @ whitened.T / 300, np.eye(2), atol=0.6)


def test_read_neighbours_stay_within_epsilon():
    """Rounded to the grid, every difference of x(0) has a gauge within the charge, exactly."""
    mechanism = vehicle()
    grid = BodyOnGrid.of(mechanism.noise, mechanism.guarantee.sensitivity)
    step = F(2) ** grid.exponent
    for difference in mechanism.adjacency.differences()[::7]:
        for start in ([F(1, 3), F(2, 7)], [F(-5, 11), F(1, 9)]):
            ends = [a + F(float(d)) for a, d in zip(start, difference)]
            moved = [F(round(b / step) - round(a / step)) for a, b in zip(start, ends)]
            assert grid.body.gauge(moved) <= grid.charge


def test_shares_are_least():
    differences = np.array([0.02, 0.1])
    tau = least_pure_noise(1.0, 400.0, 96, differences)
    fresh = 2 * (96 * float((differences ** (2 / 3)).sum())) ** 3
    best = 400.0 * (1 + (fresh / 400.0) ** (1 / 3)) ** 3

    def total(scales):
        share = 96 * float((differences / scales).sum())
        return 400.0 / (1 - share) ** 2 + 2 * 96 * float((scales**2).sum())

    assert total(tau) == pytest.approx(best)
    for change in ([1.01, 1.0], [1.0, 1.01], [0.99, 1.0], [1.0, 0.99]):
        assert total(tau * np.array(change)) > best


def test_laplace_noise_is_not_sent(tmp_path):
    laplace = design_output_noise(VEHICLE, 20, epsilon=1.0, law="laplace")
    with pytest.raises(AffineDPError, match="Gaussian or K-norm"):
        Gateway(laplace, state=tmp_path / "g.db", resolution="exact")


def test_directions_of_very_different_length_keep_their_variance(tmp_path):
    """A plant that contracts by 10¹³: squares of the long direction would swallow the short one."""
    plant = ([[0.9, 0.08], [0.02, 0.97]], [[0.9], [0]], [[1, 0]])
    words = {"horizon": 252, "epsilon": 1.0, "delta": 1e-4, "mu": 0.5, "resolution": 0.1}
    with pytest.warns(AffineDPWarning, match="uneven over time"):
        m = design_output_noise(plant, law="auto", **words)
    assert m.noise.kind == "knorm"
    A = [[F("0.9"), F("0.08")], [F("0.02"), F("0.97")]]
    row, (first, second) = [F(1), F(0)], m.noise.points.T.tolist()
    exact = []
    for _ in range(252):
        # a parallelogram: 2 (p₁p₁ᵀ + p₂p₂ᵀ) / rate²
        along = (sum(r * F(c) for r, c in zip(row, p)) for p in (first, second))
        exact.append(math.sqrt(2 * sum(a * a for a in along)) / m.noise.rate)
        row = [row[0] * A[0][j] + row[1] * A[1][j] for j in range(2)]
    assert m.strategy.deviations(m.noise, 252)[:, 0] == pytest.approx(exact, rel=1e-7)
    assert np.all(np.isfinite(noise_by_time(m)))
    with Gateway(m, state=tmp_path / "s") as gateway:
        assert np.isfinite(gateway.send([20.0]))
