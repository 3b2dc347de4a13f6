"""Section V of the paper: its numbers, what we correct, and that the figures can be drawn."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from affinedp.control.output_noise import design_output_noise
from affinedp.errors import AffineDPError
from affinedp.paper import control as vehicle
from affinedp.paper.control import claims as all_claims
from affinedp.paper.control import figures


@pytest.fixture(scope="module")
def claims():
    return all_claims(runs=4_000)


@pytest.fixture(scope="module")
def by_name(claims):
    return {claim.what: claim for claim in claims}


def least_sigma(epsilon, delta):
    """The least σ for neighbours 1 apart, by bisection on the definition of κ."""
    low, high = 1e-3, 1e3
    for _ in range(200):
        s = 2 / (low + high)
        kappa = norm.cdf(s / 2 - epsilon / s) - math.exp(epsilon) * norm.cdf(-s / 2 - epsilon / s)
        low, high = (low, 1 / s) if kappa <= delta else (1 / s, high)
    return high


def test_printed_numbers_agree(by_name):
    for what, wanted in {
        "K_P, entry 1": 3.4240,
        "K_P, entry 2": 4.3095,
        "L, entry 1": 0.8266,
        "L, entry 2": 0.6973,
        "√Σ by the paper": 2.5244,
    }.items():
        claim = by_name[what]
        assert claim.paper == wanted
        assert claim.ours == pytest.approx(wanted, abs=5.1e-5)
        assert claim.verdict == "agrees"


def test_the_papers_scale_is_not_the_least(by_name):
    quantile = norm.ppf(0.01)
    assert by_name["√Σ by the paper"].ours == pytest.approx(
        1 / (quantile + math.sqrt(quantile**2 + 2)), rel=1e-9
    )
    claim = by_name["√Σ, the least"]
    assert claim.verdict == "corrected"
    assert claim.ours == pytest.approx(least_sigma(1.0, 0.01), rel=1e-9)
    assert claim.ours == pytest.approx(1.8778755609, rel=1e-9)


def test_mean_squares_at_the_end(by_name):
    for kind, rule, wanted, digits in (
        ("one draw", "paper's σ", 6.3825, 4),
        ("one draw", "least σ", 3.5320, 4),
        ("i.i.d.", "paper's σ", 75.66, 2),
        ("i.i.d.", "least σ", 41.87, 2),
    ):
        claim = by_name[f"E|p − p_r|² at t = 100, {kind}, {rule}"]
        assert round(claim.ours, digits) == wanted


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("sigma", [vehicle.PAPER_SIGMA, None])
def test_mean_squares_by_chance(structured, sigma):
    loop = vehicle.vehicle_loop()
    noise = vehicle.vehicle_noise(structured=structured, sigma=sigma)
    found = loop.simulate(noise, 100, 4_000, 0)
    apart = found.mean_square_error - loop.mean_square_error(noise, 100)
    assert np.all(np.abs(apart[-1]) <= 3 * found.standard_error[-1])


def test_what_the_paper_concludes(by_name):
    vanishing = by_name["E|v − v_r|² at t = 100, one draw, paper's σ"]
    assert vanishing.verdict == "agrees"
    assert 0 < vanishing.ours < 1e-3
    compared = [claim for what, claim in by_name.items() if claim.paper == "below 1"]
    assert len(compared) == 2
    assert all(claim.verdict == "agrees" and claim.ours < 1 for claim in compared)


def test_scalar_and_vehicle_designs_agree(by_name):
    claim = by_name["scalar design against the vehicle with public velocities"]
    assert claim.ours < 1e-10
    designed = design_output_noise(vehicle.VEHICLE, 100, 1.0, 0.01, mu=(1, 0))
    assert designed.strategy.start.shape == (2, 1)
    assert designed.strategy.start[1, 0] == 0.0


def test_the_papers_noise_reveals_velocities(by_name):
    assert by_name["ε that the paper's noise keeps for positions and velocities"].ours == math.inf
    (miss,) = [claim for what, claim in by_name.items() if "computed from ŷ and u" in what]
    assert miss.ours < 1e-9


def test_designs_that_hide_velocities_cost_more():
    designs = vehicle.protections(runs=200)
    ends = [design.exact[-1, 0] for design in designs]
    assert ends == sorted(ends)
    assert_allclose(ends, [3.53201, 4.72103, 380.704, 38070.4], rtol=1e-5)
    # brute force: every direction that must be hidden is at most s away in the whitened x(0)
    limit = 1 / least_sigma(1.0, 0.01)
    times = np.arange(100)
    for design, velocity in ((designs[1], 0.1), (designs[2], 1.0)):
        late = np.stack([-0.1 * times * velocity, np.full(100, velocity)])
        directions = np.column_stack([[1.0, 0.0], late])
        whitened = np.linalg.solve(design.noise.strategy.start, directions)
        assert np.linalg.norm(whitened, axis=0).max() <= limit * (1 + 1e-9)
        missed = vehicle.guessed_velocities(design.simulation)
        missed = missed - design.simulation.states[:, :99, 1]
        assert missed.std() > velocity
    # all of Definition 4: circuits leave out one entry, and the least entry moves by 1
    circuits = [[[1.0], [0.0]]]
    circuits += [np.array([[-0.1 * t], [1.0]]) * 10 for t in times]
    whitened = np.linalg.solve(designs[3].noise.strategy.start, np.hstack(circuits))
    assert np.linalg.norm(whitened, axis=0).max() == pytest.approx(limit, rel=1e-6)


def test_figure_3_uses_the_papers_rule():
    curves = {(curve.structured, curve.rule): curve.errors for curve in vehicle.tradeoff()}
    quantile = norm.ppf(0.01)
    unit = vehicle.vehicle_loop().mean_square_error(vehicle.vehicle_noise(sigma=1.0), 100)[-1]
    mean = vehicle.vehicle_loop().mean(100)[-1] ** 2
    for rule, sigmas in (
        ("paper", [1 / (quantile + math.sqrt(quantile**2 + 2 * e)) for e in vehicle.EPSILONS]),
        ("least", [least_sigma(e, 0.01) for e in vehicle.EPSILONS]),
    ):
        wanted = mean + np.square(sigmas)[:, None] * (unit - mean)
        assert_allclose(curves[True, rule], wanted, rtol=1e-8)
        assert np.all(curves[True, rule] < curves[False, rule])


def test_rows_for_a_table(claims):
    rows = [claim.row() for claim in claims]
    assert all(len(row) == 5 and all(isinstance(cell, str) for cell in row) for row in rows)
    assert {row[3] for row in rows} == {"agrees", "corrected", "added"}
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.slow
def test_figures_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.paper.drawing.RESOLUTION", 40)
    written = figures(tmp_path / "new", runs=20)
    assert len(written) == 6
    for path in written:
        start = path.read_bytes()[:8]
        assert start.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AffineDPError, match="cannot be written"):
        figures(tmp_path / "file" / "below", runs=5)
