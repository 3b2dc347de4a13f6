"""Section VI of the paper: its numbers, what we correct, and that the figures can be drawn."""

import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

from affinedp.errors import AffineDPError
from affinedp.paper.consensus import (
    LINKS,
    VALUES,
    claims,
    converging,
    experiments,
    figures,
    ten_agents,
)


@pytest.fixture(scope="module")
def by_name():
    return {claim.what: claim for claim in claims()}


def test_the_network():
    graph = nx.Graph(LINKS)
    nx.set_edge_attributes(graph, 0.25, "weight")
    wanted = nx.laplacian_matrix(graph, nodelist=range(1, 11)).toarray()
    made = ten_agents()
    assert_allclose(made.laplacian.toarray(), wanted)
    assert list(made.agents) == list(range(1, 11))
    assert "agents 2, 5, 7 and 10" in made.notes[0]
    assert made.spectrum.lambda_n == pytest.approx(1.5757, abs=5e-5)
    assert made.alpha == pytest.approx(0.825694, abs=5e-7)


def test_what_is_corrected(by_name):
    wanted = {
        "x*, the average of x(0)": 15.0,
        "largest weight sum of an agent": 1.0,
        "σ, the least, ε = 1, δ = 0.01": 1.8778755609,
        "σ, the least, ε = 0.1, δ = 0.01": 9.5418230888,
        "σ, the least, ε = 0.01, δ = 0.01": 27.7008824556,
        "ε kept by Laplace draws of variance 1 (as in the public scripts) at σ = 1": math.sqrt(2),
    }
    assert {what for what, claim in by_name.items() if claim.verdict == "corrected"} == set(wanted)
    for what, value in wanted.items():
        assert by_name[what].ours == pytest.approx(value, rel=1e-9)


def test_printed_scales_come_from_the_bound(by_name):
    for epsilon, printed in ((1, 2.5244), (0.1, 23.4765), (0.01, 232.8495)):
        claim = by_name[f"σ by the paper, ε = {epsilon:g}, δ = 0.01"]
        assert claim.paper == printed
        assert claim.ours == pytest.approx(printed, abs=5.1e-5)
        assert claim.verdict == "agrees"
        kept = by_name[f"ε that σ = {printed:g} keeps at δ = 0.01"].ours
        assert kept < epsilon


def test_limits_and_bounds(by_name):
    found = {what: claim for what, claim in by_name.items() if "limit of E" in what}
    assert len(found) == 9
    paper = found["Fig. 6: limit of E‖x − 1x*‖², ε = 1, σ = 2.5244"]
    assert paper.ours == pytest.approx(57.35, abs=0.005)
    assert paper.paper == "below 63.726"
    message = by_name["the same for the message read-out, ε = 1, σ = 2.5244"].ours
    corrected = by_name["the same for the corrected read-out, ε = 1, σ = 2.5244"].ours
    assert (message, corrected) == pytest.approx((6.3726, 5.7353), abs=1e-4)
    for claim in found.values():
        off = float(claim.how.split(" are ")[1].split(" standard")[0])
        assert abs(off) < 4


def test_simulations_are_at_the_exact_values_and_below_the_bounds():
    for setting in experiments():
        assert setting.run.messages.shape == (500, 31, 10)
        mean, error = setting.run.mean_square_error()
        assert np.all(np.abs(mean - setting.exact())[1:] < 4.5 * error[1:])
        assert mean[-1] < setting.consensus.bound() + 3 * error[-1]
        assert setting.consensus.limit() < setting.consensus.bound()
        variance = setting.run.noise.var() / setting.sigma**2
        assert variance == pytest.approx(1 if setting.law == "gaussian" else 2, rel=0.12)
        assert setting.run.average == np.mean(VALUES) == 15.0


def test_mean_errors_vanish(by_name):
    assert by_name["Fig. 5: largest |E x_i(t) − x*| at t = 200"].ours < 1e-12
    claim = by_name["Fig. 5: largest |E x_i(t) − x*| at t = 30"]
    assert float(claim.how.split("at most ")[1].split(" ")[0]) < 4.5


def test_better_readouts_need_less_epsilon(by_name):
    for law in ("gaussian", "laplace"):
        found = [
            by_name[f"least ε for an error of 63.73, {law}, {readout}"].ours
            for readout in ("paper", "state", "message", "corrected")
        ]
        assert found == sorted(found, reverse=True)
        assert found[2] < found[0] / 3


def test_every_claim_is_a_row(by_name):
    for claim in by_name.values():
        row = claim.row()
        assert len(row) == 5
        assert all(isinstance(cell, str) and cell for cell in row)


@pytest.mark.slow
def test_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.paper.drawing.RESOLUTION", 40)
    monkeypatch.setattr("affinedp.paper.consensus.SNAPSHOTS", (0, 1, 2, 5, 20))
    written = figures(tmp_path / "new", runs=20, agents=400)
    names = {"figure_4", "figure_5", "figure_6", "figure_7", "readouts", "large"}
    assert {path.name for path in written} == {
        f"consensus_{name}{ending}" for name in names for ending in (".png", ".svg")
    }
    assert all(path.stat().st_size > 3000 for path in written)


def test_figures_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("affinedp.paper.consensus.SNAPSHOTS", (0, 1))
    (tmp_path / "file").touch()
    with pytest.raises(AffineDPError, match="cannot be written"):
        figures(tmp_path / "file", runs=10, agents=200)
    with pytest.raises(AffineDPError, match="at least 100"):
        converging(50)
