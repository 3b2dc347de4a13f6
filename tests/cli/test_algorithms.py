"""Algorithms 1 and 2 of the paper from the command line, with one's own Λ̄ and Σ."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import affinedp as adp
from affinedp.cli.app import app

PROBLEM = """
equations = ["a + b = t"]
[privacy]
epsilon = 1.0
mu = 1.0
"""
# a + b = t: columns along the manifold, and one that leaves it
BASIS = [[1, 0], [0, 2], [1, 2]]


def write(folder, name, rows):
    np.savetxt(folder / name, np.array(rows), delimiter=",", fmt="%.17g")
    return str(folder / name)


def run(folder, *options, problem=PROBLEM):
    (folder / "p.toml").write_text(problem)
    arguments = ["design", str(folder / "p.toml"), "-o", str(folder / "m.json"), *options]
    return CliRunner().invoke(app, arguments)


def test_algorithm_1_with_files(tmp_path):
    basis = write(tmp_path, "basis.csv", BASIS)
    sigma = write(tmp_path, "sigma.csv", 40 * np.eye(2))
    options = ["--method", "algorithm1", "--delta", "1e-3", "--basis", basis]
    result = run(tmp_path, *options, "--covariance", sigma, "--json")
    assert result.exit_code == 0, result.output
    m = adp.Mechanism.load(tmp_path / "m.json")
    assert np.allclose(m.covariance, 40 * np.array(BASIS) @ np.array(BASIS).T)
    assert json.loads(result.output)["expected_squared_error"] == pytest.approx(40 * 10)
    # without a Σ: the same shape, scaled to the promise
    assert run(tmp_path, *options).exit_code == 0
    scaled = adp.Mechanism.load(tmp_path / "m.json")
    assert scaled.guarantee.epsilon(1e-3) == pytest.approx(1.0, rel=1e-8)
    share = scaled.covariance[0, 0] / m.covariance[0, 0]
    assert np.allclose(scaled.covariance, share * m.covariance)


def test_algorithm_2_with_files(tmp_path):
    basis = write(tmp_path, "basis.csv", BASIS)
    result = run(tmp_path, "--method", "algorithm2", "--basis", basis)
    assert result.exit_code == 0, result.output
    m = adp.Mechanism.load(tmp_path / "m.json")
    # neighbours along (1, 0, 1), (0, 1, 1), (1, −1, 0): in Λ̄ (1, 0), (0, ½), (1, −½)
    assert np.allclose(m.noise_matrix, 1.5 * np.array(BASIS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "algorithm3"], "is not one of 'optimal', 'algorithm1', 'algorithm2'"),
        (["--method", "algorithm2", "--law", "gaussian"], "designs laplace noise"),
        (["--basis", "basis.csv"], "goes with --method"),
        (["--method", "algorithm2", "--covariance", "basis.csv"], "is for algorithm1"),
        (["--method", "algorithm2", "--basis", "none.csv"], "none.csv"),
        (["--method", "algorithm2", "--basis", "thin.csv"], "does not span"),
        (["--method", "algorithm1", "--delta", "1e-3", "--basis", "thin.csv"], "does not span"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "basis.csv", BASIS)
    write(tmp_path, "thin.csv", [[1], [0], [1]])
    result = run(tmp_path, *options)
    assert result.exit_code != 0
    said = " ".join(result.output.replace("│", " ").split())  # without the frame of the terminal
    assert message in f"{result.exception} {said}"


def test_a_basis_that_does_not_span_is_called_that():
    M = adp.AffineManifold.from_equations(["a + b = t"])
    with pytest.raises(adp.AffineDPError, match="does not span .* come out without noise"):
        adp.design_gaussian(M, epsilon=1, delta=1e-3, method="algorithm1", basis=[[1], [0], [1]])
