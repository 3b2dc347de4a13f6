"""``affinedp verify`` and ``design``: what a problem file says, promised and designed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import affinedp as adp
from affinedp.cli import exits

CELLS = """
equations = ["cells_in + cells_out = cells_total"]
[privacy]
mu = 1.0
[noise]
law = "laplace"
scale = 2.0
"""
ASKED = CELLS.partition("[noise]")[0].replace("mu = 1.0", "mu = 1.0\nepsilon = 1.0")
BOTH = ASKED.replace("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6")
HULL = CELLS.replace('"laplace"\nscale = 2.0', '"knorm"\nhull = 2.0')
GAUSSIAN = """
D = [[1, -2, 0]]
[privacy]
mu = [1, 1, 2]
[query]
outputs = ["x1", "x3"]
[noise]
law = "gaussian"
covariance = [[4, 0], [0, 1]]
"""


def with_noise(old, new, text=CELLS):
    assert old in text
    return text.replace(old, new)


def test_verify_says_it_to_people(run):
    code, out, err = run("verify p.toml", p_toml=CELLS)
    assert code == 0, err
    for piece in ("Laplace", "ε = 1 at δ = 0", "cells_in", "Theorem 2", "Definition 4"):
        assert piece in out


@pytest.mark.parametrize(
    ("text", "options", "code", "answer"),
    [
        (CELLS, "--epsilon 1", 0, {"asked": {"epsilon": 1.0, "delta": 0.0, "holds": True}}),
        (CELLS, "--epsilon 0.999", 1, {"promise": True}),
        (CELLS, "--epsilon 0.999 --delta 0.01", 0, {}),
        (with_noise("mu = 1.0", "mu = 1.0\nepsilon = 0.5"), "", 1, {}),
        (
            with_noise("mu = 1.0", "mu = 1.0\ndelta = 0.5").replace("laplace", "gaussian"),
            "--epsilon 1",
            0,
            {"law": "gaussian"},
        ),
        (
            with_noise("scale = 2.0", "matrix = [[1, 0], [0, 1], [0, 1]]"),
            "--epsilon 100",
            1,
            {"promise": False, "sensitivity": None},
        ),
        (GAUSSIAN, "", 0, {"sensitivity": pytest.approx(2.0)}),
        (with_noise("mu = 1.0", "directions = [[1, 0, 1]]"), "", 0, {"sensitivity": 1.0}),
        (
            with_noise("mu = 1.0", 'mu = 1.0\nfree_sets = [["cells_in", "cells_out"]]'),
            "",
            0,
            {"law": "laplace"},
        ),
        # twice the hexagon of the moves, as such and by its points; one without a corner
        (HULL, "--epsilon 0.5", 0, {"law": "knorm"}),
        (
            HULL.replace("hull = 2.0", "matrix = [[2, 0, 2], [0, 2, -2], [2, 2, 0]]"),
            "--epsilon 0.5",
            0,
            {"law": "knorm"},
        ),
        (HULL.replace("hull = 2.0", "matrix = [[2, 0], [0, 2], [2, 2]]"), "--epsilon 0.5", 1, {}),
    ],
)
def test_the_exit_code_says_whether_a_promise_holds(run, text, options, code, answer):
    found, out, err = run(f"verify p.toml --json {options}", p_toml=text)
    assert found == code, err
    said = json.loads(out)
    assert {key: said[key] for key in answer} == answer
    assert set(said["worst_direction"] or ()) <= {"cells_in", "cells_out", "cells_total"} or (
        text is GAUSSIAN
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("equations = 1 2", "line 1"),
        ("", "equations"),
        (CELLS.replace("law", "lwa"), "law"),
        (CELLS.replace("= cells_total", "= cells_total = 3"), "="),
        (CELLS.replace("2.0", "-2.0"), "scale"),
        (CELLS.replace("mu = 1.0", "mu = nan"), "mu"),
        (CELLS.split("[noise]")[0], "noise"),
        ('equations = ["a = 1", "a = 2"]\n' + CELLS.split("]", 1)[1], "contradict"),
        ('equations = ["a = 1", "b + c = a"]\n' + CELLS.split("]", 1)[1], "fixed by the equations"),
        (CELLS.replace("mu = 1.0", "mu = 1.0\ndelta = 0.5"), "only together with ε"),
        (HULL.replace("hull = 2.0", "scale = 2.0"), "has a body"),
        (HULL.replace("hull = 2.0", "hull = 0.0"), "positive"),
        (HULL.replace('"knorm"', '"laplace"'), "hull goes with"),
        (HULL.replace("hull = 2.0", "hull = 2.0\nscale = 1.0"), "exactly one"),
    ],
)
def test_bad_problems_give_one_clear_error(run, text, message):
    code, out, err = run("verify p.toml", p_toml=text)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert err.startswith("affinedp: ")
    assert message in err
    assert "Traceback" not in err


def test_a_rate_of_a_private_base_is_refused_with_a_way_out(run):
    rate = 'equations = ["a + b = c", "rate = a / c"]\n[privacy]\nmu = 1.0\n'
    code, out, err = run("verify p.toml", p_toml=rate)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert err.startswith("affinedp: p.toml: division by an entry is not linear")
    assert "divide what is published" in err
    place, caret = err.splitlines()[1:3]
    assert place[caret.index("^")] == "c"


@pytest.mark.slow
def test_design_takes_the_law_with_the_least_error(run):
    def design(*options):
        code, out, err = run(f"design p.toml -o m.json --json {' '.join(options)}", p_toml=BOTH)
        assert code == 0, err
        return json.loads(out)

    few, many = design(), design("--releases 50")
    assert (few["law"], many["law"]) == ("knorm", "gaussian")
    assert {other["law"] for other in few["alternatives"]} >= {"gaussian"}
    assert few["lower_bound"] <= few["expected_squared_error"] < 15 < many["lower_bound"]
    assert few["bound_certified"]
    code, out, _ = run("report m.json")
    assert code == 0
    assert "one of 50 planned releases" in " ".join(out.split())
    largest = design("--objective largest --law gaussian")
    assert 9.69 < largest["excess"] < 9.71
    whole = design("--integers --delta 0")
    assert whole["law"] == "knorm"
    assert whole["expected_squared_error"] == pytest.approx(9.48898, abs=1e-5)
    assert whole["excess"] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (CELLS, "", 2),
        (CELLS, "--epsilon 1", 0),
        (CELLS, "--law gaussian --epsilon 1", 2),
        (CELLS, "--law gaussian --epsilon 1 --delta 1e-6", 0),
        (BOTH, "--law cauchy", 2),
        (BOTH, "--releases 0", 2),
        (BOTH, "--objective median", 2),
    ],
)
def test_design_needs_a_promise_that_there_is(run, text, options, code):
    assert run(f"design p.toml -o m.json {options}", p_toml=text)[0] == code


# Algorithms 1 and 2 of the paper, with one's own Λ̄ and Σ.

TOTAL = 'equations = ["a + b = t"]\n[privacy]\nepsilon = 1.0\nmu = 1.0\n'
# a + b = t: columns along the manifold
BASIS = np.array([[1, 0], [0, 2], [1, 2]])
FILES = {"p_toml": TOTAL, "basis_csv": "1,0\n0,2\n1,2\n", "thin_csv": "1\n0\n1\n"}


def test_algorithm_1_with_files(run, tmp_path):
    words = "design p.toml -o m.json --json --method algorithm1 --delta 1e-3 --basis basis.csv"
    code, out, err = run(f"{words} --covariance sigma.csv", **FILES, sigma_csv="40,0\n0,40\n")
    assert code == 0, err
    m = adp.Mechanism.load(tmp_path / "m.json")
    assert np.allclose(m.covariance, 40 * BASIS @ BASIS.T)
    assert json.loads(out)["expected_squared_error"] == pytest.approx(40 * 10)
    # without a Σ: the same shape, scaled to the promise
    assert run(words)[0] == 0
    scaled = adp.Mechanism.load(tmp_path / "m.json")
    assert scaled.guarantee.epsilon(1e-3) == pytest.approx(1.0, rel=1e-8)
    share = scaled.covariance[0, 0] / m.covariance[0, 0]
    assert np.allclose(scaled.covariance, share * m.covariance)


def test_algorithm_2_with_files(run, tmp_path):
    code, _, err = run("design p.toml -o m.json --method algorithm2 --basis basis.csv", **FILES)
    assert code == 0, err
    # neighbours along (1, 0, 1), (0, 1, 1), (1, −1, 0): in Λ̄ (1, 0), (0, ½), (1, −½)
    assert np.allclose(adp.Mechanism.load(tmp_path / "m.json").noise_matrix, 1.5 * BASIS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method algorithm3", "is not one of 'optimal', 'algorithm1', 'algorithm2'"),
        ("--method algorithm2 --law gaussian", "designs laplace noise"),
        ("--basis basis.csv", "goes with --method"),
        ("--method algorithm2 --covariance basis.csv", "is for algorithm1"),
        ("--method algorithm2 --basis none.csv", "none.csv"),
        ("--method algorithm2 --basis thin.csv", "does not span"),
        ("--method algorithm1 --delta 1e-3 --basis thin.csv", "does not span"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(run, options, message):
    code, _, err = run(f"design p.toml -o m.json {options}", **FILES)
    assert code == exits.BAD_INPUT
    assert message in " ".join(err.replace("│", " ").split())  # without the frame of a terminal


def test_a_command_loads_no_other():
    """To build all commands takes longer than most of them."""
    program = (
        "import sys\n"
        "from affinedp.cli.app import app\n"
        "try:\n"
        "    app(['verify', 'examples/cells.toml', '--json'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print([name for name in ('control', 'consensus', 'ledger', 'studio', 'doctor')"
        " if f'affinedp.cli.{name}' in sys.modules])\n"
    )
    root = Path(__file__).parent.parent.parent
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip().endswith("[]")


def test_data_without_a_column_of_the_problem_is_not_checked_in_part(run):
    data = "cells_in,cells_ou,cells_total\n1,2,3\n"
    code, out, err = run("verify p.toml --check-against d.csv", p_toml=CELLS, d_csv=data)
    assert (code, out) == (2, "")
    assert "no column 'cells_out'" in err
    assert "cells_ou" in err.partition(";")[2]


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_tables_of_the_terminal_break_no_words(run, monkeypatch, width):
    words = ("durable_goods_manufacturing", "nondurable_goods", "manufacturing_of_all_goods")
    rows = [f"{i},{i * i % 97},{i + i * i % 97}" for i in range(40)]
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = run("discover d.csv", d_csv="\n".join([",".join(words), *rows]) + "\n")
    assert code == 0, err
    assert all(word in out for word in words)
    assert max(map(len, out.splitlines())) <= width
    told = "Found in private data: for whoever holds the data, not for publication."
    assert told in " ".join(out.split())
