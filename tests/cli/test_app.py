import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from affinedp.cli import app as cli

CELLS = """
equations = ["cells_in + cells_out = cells_total"]
[privacy]
mu = 1.0
[noise]
law = "laplace"
scale = 2.0          # i.i.d.
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line as the shell would; returns (exit code, stdout, stderr)."""

    def call(*arguments, problem=None, name="problem.toml"):
        if problem is not None:
            (tmp_path / name).write_text(problem)
        words = [str(tmp_path / name) if word == "PROBLEM" else word for word in arguments]
        monkeypatch.setattr("sys.argv", ["affinedp", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


def test_verify(run):
    code, out, err = run("verify", "PROBLEM", problem=CELLS)
    assert code == 0, err
    for piece in ("Laplace", "ε = 1 at δ = 0", "cells_in", "Theorem 2", "Definition 4"):
        assert piece in out


def test_verify_json(run):
    code, out, _ = run("verify", "PROBLEM", "--json", "--epsilon", "1", problem=CELLS)
    answer = json.loads(out)
    assert code == 0
    assert answer["epsilon_at_delta"]["0"] == 1.0
    assert answer["asked"] == {"epsilon": 1.0, "delta": 0.0, "holds": True}
    assert set(answer["worst_direction"]) <= {"cells_in", "cells_out", "cells_total"}


def test_exit_code_says_whether_the_promise_holds(run):
    assert run("verify", "PROBLEM", "--epsilon", "0.999", problem=CELLS)[0] == 1
    assert run("verify", "PROBLEM", "--epsilon", "0.999", "--delta", "0.01", problem=CELLS)[0] == 0
    asked_in_file = CELLS.replace("mu = 1.0", "mu = 1.0\nepsilon = 0.5")
    code, out, _ = run("verify", "PROBLEM", problem=asked_in_file)
    assert code == 1
    assert "does NOT hold" in out


def test_delta_of_the_file_goes_with_the_epsilon_option(run):
    gaussian = CELLS.replace("laplace", "gaussian").replace("mu = 1.0", "mu = 1.0\ndelta = 0.5")
    assert run("verify", "PROBLEM", "--epsilon", "1", problem=gaussian)[0] == 0
    assert run("verify", "PROBLEM", problem=gaussian)[0] == 2


def test_leak_is_shown(run):
    problem = CELLS.replace("scale = 2.0", "matrix = [[1, 0], [0, 1], [0, 1]]")
    code, out, _ = run("verify", "PROBLEM", "--epsilon", "100", problem=problem)
    assert code == 1
    assert "NONE" in out
    assert "cells" in out
    answer = json.loads(run("verify", "PROBLEM", "--json", problem=problem)[1])
    assert answer["promise"] is False
    assert answer["sensitivity"] is None


def test_all_ways_to_write_a_problem(run):
    gaussian = """
D = [[1, -2, 0]]
[privacy]
mu = [1, 1, 2]
[query]
outputs = ["x1", "x3"]
[noise]
law = "gaussian"
covariance = [[4, 0], [0, 1]]
"""
    answer = json.loads(run("verify", "PROBLEM", "--json", problem=gaussian)[1])
    assert answer["sensitivity"] == pytest.approx(2.0)
    free = CELLS.replace("mu = 1.0", 'mu = 1.0\nfree_sets = [["cells_in", "cells_out"]]')
    answer = json.loads(run("verify", "PROBLEM", "--json", problem=free)[1])
    assert "free set" in answer["neighbours"]
    directions = CELLS.replace("mu = 1.0", "directions = [[1, 0, 1]]")
    answer = json.loads(run("verify", "PROBLEM", "--json", problem=directions)[1])
    assert answer["epsilon_at_delta"]["0"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("problem", "message"),
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
    ],
)
def test_bad_problems_give_one_clear_error(run, problem, message):
    code, out, err = run("verify", "PROBLEM", problem=problem)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("affinedp: ")
    assert "Traceback" not in err


def test_bad_options(run):
    assert run("verify", "nowhere.toml")[0] == 2
    assert run("verify", "PROBLEM", "--delta", "0.1", problem=CELLS)[0] == 2
    assert run("verify", "PROBLEM", "--epsilon", "-1", problem=CELLS)[0] == 2
    assert run("verify", "PROBLEM", "--epsilon", "nan", problem=CELLS)[0] == 2
    assert run("nonsense")[0] == 2


def test_help_and_version(run):
    assert "verify" in run("--help")[1]
    assert run("--version")[1].startswith("affinedp ")
    result = CliRunner().invoke(cli.app, ["verify", "--help"], env={"COLUMNS": "80"})
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.slow
def test_design_takes_the_law_with_the_least_error(run, tmp_path):
    saved = str(tmp_path / "m.json")
    problem = CELLS.split("[noise]")[0].replace("mu = 1.0", "mu = 1.0\nepsilon = 1.0\ndelta = 1e-6")
    few, many = (
        json.loads(run("design", "PROBLEM", "-o", saved, "--json", *more, problem=problem)[1])
        for more in ((), ("--releases", "50"))
    )
    assert few["law"] == "knorm"
    assert many["law"] == "gaussian"
    assert {other["law"] for other in few["alternatives"]} >= {"gaussian"}
    assert few["lower_bound"] <= few["expected_squared_error"] < 15 < many["lower_bound"]
    code, out, _ = run("report", saved)
    assert code == 0
    assert "one of 50 planned releases" in " ".join(out.split())
    for wrong in (("--law", "cauchy"), ("--releases", "0"), ("--objective", "median")):
        assert run("design", "PROBLEM", "-o", saved, *wrong, problem=problem)[0] == 2
    largest = ("--objective", "largest", "--law", "gaussian", "--confined", "--json")
    answer = json.loads(run("design", "PROBLEM", "-o", saved, *largest, problem=problem)[1])
    assert 9.69 < answer["excess"] < 9.71
    assert few["bound_certified"]
    assert not answer["bound_certified"]
    whole = ("--integers", "--delta", "0", "--json")
    answer = json.loads(run("design", "PROBLEM", "-o", saved, *whole, problem=problem)[1])
    assert answer["law"] == "knorm"
    assert answer["expected_squared_error"] == pytest.approx(9.48898, abs=1e-5)
    assert answer["excess"] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
def test_design_report_and_release(run, tmp_path):
    pandas = pytest.importorskip("pandas")
    saved, page, budget = tmp_path / "m.json", tmp_path / "m.html", tmp_path / "budget.db"
    problem = CELLS.split("[noise]")[0].replace("mu = 1.0", "mu = 1.0\nepsilon = 1.0\ndelta = 1e-6")
    design = ("design", "PROBLEM", "-o", str(saved), "--law", "gaussian")
    code, out, err = run(*design, problem=problem)
    assert code == 0, err
    assert "certified" in out
    assert "9.70 times the least that any mechanism" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    answer = json.loads(run(*design, "--json", problem=problem)[1])
    assert answer["gap"] <= 1e-8
    assert 9.69 < answer["excess"] < 9.70
    assert run("report", str(saved))[0] == 0
    assert run("report", str(saved), "--html", str(page))[0] == 0
    assert page.read_text().startswith("<!doctype html>")
    data, results = tmp_path / "data.csv", tmp_path / "out.csv"
    data.write_text("cells_total,cells_in,cells_out\n10,4,6\n7,3,4\n")
    code, out, err = run("release", str(saved), str(data), "-o", str(results))
    assert code == 0, err
    assert "no ledger" in err
    published = pandas.read_csv(results)
    total = published.cells_in + published.cells_out
    assert (abs(total - published.cells_total) < 1e-6).all()
    parquet = tmp_path / "out.parquet"
    assert run("release", str(saved), str(data), "-o", str(parquet))[0] == 0
    assert len(pandas.read_parquet(parquet)) == 2
    reference = ("release", str(saved), str(data), "-o", str(tmp_path / "r.csv"), "--sampler")
    assert run(*reference, "numpy")[0] == 2
    assert run(*reference, "opendp")[0] == 0
    assert len(pandas.read_csv(tmp_path / "r.csv")) == 2
    # a budget that allows one of these
    create = ("ledger", "create", str(budget), "--epsilon", "1.2", "--delta", "1e-6")
    assert run(*create)[0] == 2, "whom it protects must be said"
    made = run(*create, "--protects", "one person")
    assert made[0] == 0, made[2]
    assert "for one person" in made[1]
    assert run(*create, "--protects", "one person")[0] == 2
    spend = ("release", str(saved), str(data), "-o", str(results), "--ledger", str(budget))
    assert "exists already" in run(*spend)[2]
    spend = (*spend, "--force")
    code, _, err = run(*spend)
    assert code == 2
    assert "whom they are about" in err
    assert run(*spend, "--rows", "same")[0] == 3, "two rows of ε = 1 pass ε = 1.2"
    assert run(*spend, "--rows", "each")[0] == 2
    spend = (*spend, "--rows", "different")
    code, _, err = run(*spend, "--label", "first")
    assert code == 0, err
    history = run("ledger", "history", str(budget))[1]
    assert "first" in history
    assert "(Definition 4): Definition 4: one free entry" in history
    shown = json.loads(run("ledger", "show", str(budget), "--json")[1])
    assert 0.999 < shown["spent"] < 1.0 + 1e-9
    assert shown["protects"] == "one person"
    assert [(kind["unit"], kind["releases"]) for kind in shown["neighbours"]] == [
        (shown["unit"], 1)
    ]
    code, out, _ = run("ledger", "show", str(budget))
    assert code == 0
    assert "protects    one person" in out
    assert "1 × Definition 4" in out
    assert run("ledger", "check", str(budget))[0] == 0
    assert run("ledger", "show", str(tmp_path / "none.db"))[0] == 2
    audited = run("audit", str(saved), "--runs", "2000", "--confidence", "0.999999")
    assert audited[0] == 0, audited[2]
    before = results.read_bytes()
    code, _, err = run(*spend)
    assert code == 3
    assert "passes the cap" in err
    assert results.read_bytes() == before
    data.write_text("cells_total,cells_in,cells_out\n10,4,5\n")
    code, _, err = run(*spend)
    assert code == 2
    assert "row 0" in err
    assert run("release", str(saved), "nothing.csv", "-o", str(results))[0] == 2
    assert run("release", str(saved), str(data), "-o", "nowhere/out.csv")[0] == 2


@pytest.mark.slow
def test_design_needs_a_promise(run, tmp_path):
    saved = str(tmp_path / "m.json")
    assert run("design", "PROBLEM", "-o", saved, problem=CELLS)[0] == 2
    assert run("design", "PROBLEM", "-o", saved, "--epsilon", "1", problem=CELLS)[0] == 0
    gaussian = ("design", "PROBLEM", "-o", saved, "--law", "gaussian", "--epsilon", "1")
    assert run(*gaussian, problem=CELLS)[0] == 2
    assert run(*gaussian, "--delta", "1e-6", problem=CELLS)[0] == 0
    assert (
        run("design", "PROBLEM", "-o", saved, "--law", "x", "--epsilon", "1", problem=CELLS)[0] == 2
    )
    assert run("report", str(tmp_path / "none.json"))[0] == 2


def test_a_ledger_asks_about_other_neighbours(run, tmp_path):
    problem = 'equations = ["a + b = t"]\n[privacy]\nmu = 1.0\nepsilon = 0.5\ndelta = 1e-6\n'
    (tmp_path / "circuits.toml").write_text(problem)
    (tmp_path / "cells.toml").write_text(problem + 'free_sets = [["a", "b"]]\n')
    (tmp_path / "data.csv").write_text("a,b,t\n1,2,3\n")
    budget = str(tmp_path / "budget.db")
    create = ("ledger", "create", budget, "--epsilon", "1", "--delta", "1e-6")
    assert run(*create, "--protects", "one person")[0] == 0
    for name in ("circuits", "cells"):
        files = (str(tmp_path / f"{name}.toml"), "-o", str(tmp_path / f"{name}.json"))
        made = run("design", *files, "--law", "gaussian")
        assert made[0] == 0, made[2]

    def release(name, *options):
        files = (str(tmp_path / f"{name}.json"), str(tmp_path / "data.csv"))
        words = ("-o", str(tmp_path / "o.csv"), "--force", "--ledger", budget, *options)
        return run("release", *files, *words)

    code, _, err = release("circuits")
    assert code == 0, err
    code, _, err = release("cells")
    assert code == 2
    assert "--same-secret" in err
    assert "one person" in err
    code, _, err = release("cells", "--same-secret")
    assert code == 0, err
    assert "same secret, as was said" in run("ledger", "history", budget)[1]
    assert "same secret, as was said" in run("ledger", "show", budget)[1]
    entries = json.loads(run("ledger", "history", budget, "--json")[1])
    assert [entry["same_secret"] for entry in entries] == [False, True]
    shown = json.loads(run("ledger", "show", budget, "--json")[1])
    assert shown["unit"] == entries[0]["unit"] != entries[1]["unit"]
    assert 0.5 < shown["spent"] < 1.0
    table = 'columns = ["a"]\n[privacy]\nmu = 1\nepsilon = 1\n'
    (tmp_path / "table.toml").write_text(table)
    said = run("release", str(tmp_path / "table.toml"), "x.csv", "-o", "y.csv", "--rows", "same")
    assert said[0] == 2
    assert "[privacy] rows in table.toml" in said[2]


HULL = CELLS.replace('law = "laplace"\nscale = 2.0          # i.i.d.', 'law = "knorm"\nhull = 2.0')
POINTS = HULL.replace("hull = 2.0", "matrix = [[2, 0, 2], [0, 2, -2], [2, 2, 0]]")


def test_verify_reads_bodies(run):
    """Twice the hexagon of the moves, as such and by its points; one without a corner."""
    for problem in (HULL, POINTS):
        code, out, err = run("verify", "PROBLEM", "--json", "--epsilon", "0.5", problem=problem)
        assert code == 0, err
        answer = json.loads(out)
        assert answer["law"] == "knorm"
        assert answer["epsilon_at_delta"]["0"] == 0.5
    two = HULL.replace("hull = 2.0", "matrix = [[2, 0], [0, 2], [2, 2]]")
    assert run("verify", "PROBLEM", "--epsilon", "0.5", problem=two)[0] == 1


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("hull = 2.0", "scale = 2.0", "has a body"),
        ("hull = 2.0", "hull = 0.0", "positive"),
        ('"knorm"', '"laplace"', "hull goes with"),
        ("hull = 2.0", "hull = 2.0\nscale = 1.0", "exactly one"),
    ],
)
def test_bodies_that_are_none_are_refused(run, old, new, reason):
    code, _, err = run("verify", "PROBLEM", problem=HULL.replace(old, new))
    assert code == 2
    assert reason in err


def test_whole_numbers_are_written_whole(run, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("cells_in,cells_out,cells_total\n3,4,7\n5,6,11\n")
    asked = CELLS.partition("[noise]")[0].replace("mu = 1.0", "mu = 1.0\nepsilon = 1.0")
    gaussian = ("--law", "gaussian", "--delta", "1e-6")
    for options, whole in ((gaussian, False), (("--law", "knorm", "--integers"), True)):
        mechanism, out = tmp_path / f"{whole}.json", tmp_path / f"{whole}.csv"
        code, _, err = run("design", "PROBLEM", "-o", str(mechanism), *options, problem=asked)
        assert code == 0, err
        code, _, err = run("release", str(mechanism), str(data), "-o", str(out))
        assert code == 0, err
        lines = out.read_text().split()[1:]
        assert all("." in line for line in lines) != whole
        if whole:
            assert all(a + b == c for a, b, c in (map(int, line.split(",")) for line in lines))


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


def test_a_misspelt_file_is_answered_with_the_one_that_was_meant(run, tmp_path):
    (tmp_path / "cells.toml").write_text(CELLS)
    code, _, err = run("verify", str(tmp_path / "cell.toml"))
    assert code == 2
    assert "did you mean 'cells.toml'?" in err
