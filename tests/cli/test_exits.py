"""Every ending has its own exit code: a crash never looks like a promise that is not kept."""

import errno
import json
import os
import subprocess
import sys

import pytest

import affinedp as adp
from affinedp.budget.events import LedgerUnreachableError
from affinedp.budget.ledger import Ledger, LedgerError
from affinedp.cli import app as cli
from affinedp.cli import exits

PROBLEM = """
equations = ["a + b = c"]
[privacy]
mu = 1.0
[noise]
law = "laplace"
scale = 2.0
"""
AFFINEDP = [sys.executable, "-m", "affinedp"]


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(PROBLEM)
    return path


def ends(commands, capsys):
    """Exit code, stdout and stderr of what would run as the command line."""
    with pytest.raises(SystemExit) as stop:
        exits.run(commands)
    said = capsys.readouterr()
    return stop.value.code, said.out, said.err


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["affinedp", *map(str, words)])
    return ends(cli.app, capsys)


def raising(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("division by zero"),
        RuntimeError("\x1b[2Jnothing"),
        MemoryError(),
        RecursionError(),
        KeyError("x"),
        OSError(errno.ENOSPC, "No space left on device"),
        PermissionError(errno.EACCES, "Permission denied", "file"),
        UnicodeEncodeError("charmap", "ε", 0, 1, "no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_unexpected(capsys, error):
    code, out, err = ends(raising(error), capsys)
    assert (code, out) == (exits.UNEXPECTED, "")
    assert err.startswith("affinedp: ")
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err


def test_where_it_happened_is_shown_on_demand(capsys, monkeypatch):
    monkeypatch.setenv(exits.SHOW_TRACEBACK, "1")
    code, _, err = ends(raising(ZeroDivisionError("division by zero")), capsys)
    assert code == exits.UNEXPECTED
    assert "Traceback" in err


def test_a_crash_inside_a_command(problem, monkeypatch, capsys):
    def broken(read):
        raise ArithmeticError("odd")

    monkeypatch.setattr("affinedp.cli.problems.verify_problem", broken)
    assert call(monkeypatch, capsys, "verify", problem)[0] == exits.UNEXPECTED


def test_kept_not_kept_and_bad_input(problem, monkeypatch, capsys):
    assert call(monkeypatch, capsys, "verify", problem, "--epsilon", "1")[0] == exits.KEPT
    assert call(monkeypatch, capsys, "verify", problem, "--epsilon", "0.9")[0] == exits.NOT_KEPT
    assert call(monkeypatch, capsys, "verify", "nowhere.toml")[0] == exits.BAD_INPUT
    assert call(monkeypatch, capsys, "verify", problem, "--epsilon", "x")[0] == exits.BAD_INPUT
    code, _, err = call(monkeypatch, capsys, "verify", "no\x1b[31m.toml")
    assert code == exits.BAD_INPUT
    assert r"no\x1b[31m.toml" in err


def test_interrupted(capsys):
    import typer

    app = typer.Typer()

    @app.command()
    def wait(how: str = "") -> None:
        raise KeyboardInterrupt

    assert ends(lambda: app([]), capsys)[0] == exits.INTERRUPTED


@pytest.mark.slow
def test_a_closed_pipe(problem):
    for words in (["--help"], ["verify", str(problem), "--epsilon", "1"], ["verify", "--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([*AFFINEDP, *words], stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        assert (done.returncode, done.stderr) == (exits.CLOSED_PIPE, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["verify", "P", "--json"]])
def test_nowhere_to_write_the_answer(problem, words):
    words = [str(problem) if word == "P" else word for word in words]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*AFFINEDP, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == exits.UNEXPECTED
    assert done.stderr.splitlines() == ["affinedp: No space left on device"]
    with open("/dev/full", "w") as full:  # the code says it even if nothing else can
        done = subprocess.run([*AFFINEDP, "verify", "nowhere.toml"], stderr=full)
    assert done.returncode == exits.BAD_INPUT


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
@pytest.mark.parametrize("words", [["--version"], ["verify", "P"], ["verify", "P", "--json"]])
def test_standard_output_that_is_closed(problem, words):
    words = [str(problem) if word == "P" else word for word in words]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *AFFINEDP, *words], stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == exits.UNEXPECTED
    assert done.stderr.splitlines() == ["affinedp: Bad file descriptor"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "1", "5"])
def test_a_terminal_without_columns(problem, columns):
    """Some say so when nobody told them their size: the answer is shown all the same."""
    environment = {**os.environ, "COLUMNS": columns}
    done = subprocess.run(
        [*AFFINEDP, "verify", str(problem)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == exits.KEPT
    assert "Laplace" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_without_greek(problem, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for words in (["verify", str(problem)], ["--help"], ["verify", "--help"]):
        done = subprocess.run([*AFFINEDP, *words], env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (exits.KEPT, b"")
    done = subprocess.run(
        [*AFFINEDP, "verify", str(problem), "--json"], env=environment, capture_output=True
    )
    assert "μ" in json.loads(done.stdout.decode("ascii"))["neighbours"]


# A release that cannot be written.


@pytest.fixture
def release(tmp_path):
    """Words of a release with a ledger, the folder and the ledger."""
    pytest.importorskip("pandas")
    saved, budget = tmp_path / "m.json", tmp_path / "budget.db"
    results = tmp_path / "results"
    results.mkdir()
    M = adp.AffineManifold.from_equations(["a + b = c"])
    adp.iid_noise(M, law="laplace", epsilon=1).save(saved)
    Ledger(budget, epsilon=5, protects="one person").close()
    data = tmp_path / "data.csv"
    data.write_text("a,b,c\n1,2,3\n")
    return ["release", saved, data, "--ledger", budget, "-o", results / "out.csv"], results, budget


def no_space(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["os.fsync", "pandas.DataFrame.to_csv", "os.replace"])
def test_a_full_disk_leaves_nothing_and_the_ledger_says_so(release, step, monkeypatch, capsys):
    words, results, budget = release
    with monkeypatch.context() as patch:
        patch.setattr(step, no_space)
        code, out, err = call(patch, capsys, *words)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert "No space left" in err
    assert "entry" in err
    assert list(results.iterdir()) == []
    with Ledger(budget, create=False) as ledger:
        assert [entry.status for entry in ledger.history()] == ["charged"]
    assert call(monkeypatch, capsys, *words)[0] == exits.KEPT
    with Ledger(budget, create=False) as ledger:
        assert [entry.status for entry in ledger.history()] == ["charged", "released"]
        assert ledger.check() == ()


@pytest.mark.slow
def test_a_table_on_a_full_disk(release, tmp_path, monkeypatch, capsys):
    words, results, budget = release
    description = tmp_path / "table.toml"
    description.write_text('[totals]\nc = ["a", "b"]\n[privacy]\nmu = 1\nepsilon = 1.0\n')
    words[1] = description
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_space)
        assert call(patch, capsys, *words)[0] == exits.BAD_INPUT
    assert list(results.iterdir()) == []
    with Ledger(budget, create=False) as ledger:
        assert [entry.status for entry in ledger.history()] == ["charged"]
    assert call(monkeypatch, capsys, *words)[0] == exits.KEPT


def test_a_full_disk_keeps_what_was_there(release, monkeypatch, capsys):
    words, results, _ = release
    words = [*words, "--force"]
    assert call(monkeypatch, capsys, *words)[0] == exits.KEPT
    before = (results / "out.csv").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_space)
        assert call(patch, capsys, *words)[0] == exits.BAD_INPUT
    assert [path.name for path in results.iterdir()] == ["out.csv"]
    assert (results / "out.csv").read_bytes() == before


# A release whose ledger is lost when it is on the disk: it happened, and is not repeated.


def lost(*arguments):
    raise LedgerUnreachableError("ledger: it cannot be reached; do not release")


@pytest.mark.parametrize(
    ("step", "as_it_is", "words"),
    [
        ("settle", lost, "entry 1 stays charged, not confirmed"),
        ("spent", property(lost), "what is left cannot be asked"),
    ],
)
def test_what_is_published_is_called_published(
    release, step, as_it_is, words, monkeypatch, capsys, tmp_path
):
    asked, results, budget = release
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, as_it_is)
        code, out, err = call(patch, capsys, *asked)
    assert code == exits.KEPT
    assert (results / "out.csv").exists()
    assert "released 1 rows" in out
    assert f"the results are published, but {words}" in err
    assert "Nothing was published" not in err
    assert "no ledger was given" not in err
    description = tmp_path / "table.toml"
    description.write_text('[totals]\nc = ["a", "b"]\n[privacy]\nmu = 1\nepsilon = 1.0\n')
    table = [*asked[:1], description, *asked[2:-1], results / "table.csv", "--same-secret"]
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, as_it_is)
        code, out, err = call(patch, capsys, *table)
    assert (code, (results / "table.csv").exists()) == (exits.KEPT, True)
    assert "the results are published" in err
    with Ledger(budget, create=False) as ledger:
        assert len(ledger.history()) == 2


def test_a_ledger_that_forgot_the_charge_is_no_success(release, monkeypatch, capsys):
    asked, results, _ = release

    def forgot(*arguments):
        raise LedgerError("b.db has no entry 1")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", forgot)
        code, _, err = call(patch, capsys, *asked)
    assert code == exits.BAD_INPUT
    assert (results / "out.csv").exists()
    assert "the results are published, but the ledger does not confirm what they cost" in err
    assert "stays charged" not in err


def test_a_refusal_of_a_server_does_not_look_like_an_option(release, monkeypatch, capsys):
    pytest.importorskip("psycopg")
    words, _, budget = release
    words[words.index(budget)] = "postgresql://nobody@127.0.0.1:1/db#staff"
    code, _, err = call(monkeypatch, capsys, *words)
    assert code == exits.BAD_INPUT
    assert "affinedp: 127.0.0.1:1/db#staff cannot be reached" in err


def test_what_rounding_left_is_nothing_to_people(release, monkeypatch, capsys):
    words, _, _ = release
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "remaining", property(lambda self: 2.9976e-15))
        assert "budget left: ε = 0 at" in call(patch, capsys, *words)[1]
        said = call(patch, capsys, *words, "--force", "--json")[1]
    assert json.loads(said)["budget_left"] == 2.9976e-15


def test_a_new_ledger_says_that_nothing_was_charged(release, monkeypatch, capsys):
    budget = release[2]
    shown = call(monkeypatch, capsys, "ledger", "show", budget)[1]
    assert "spent       ε = 0, no charges yet" in shown
    assert call(monkeypatch, capsys, "ledger", "history", budget)[1] == "no charges yet\n"
    assert call(monkeypatch, capsys, "ledger", "history", budget, "--json")[1] == "[]\n"


def test_a_history_says_which_noise_it_was(release, monkeypatch, capsys):
    budget = release[2]
    M = adp.AffineManifold.from_equations(["a + b = c"])
    with Ledger(budget) as ledger:
        ledger.charge(adp.design_knorm(M, epsilon=0.25).guarantee, fingerprint="k")
        ledger.charge(adp.iid_noise(M, law="laplace", epsilon=0.5).guarantee, fingerprint="l")
        assert [entry.law for entry in ledger.history()] == ["knorm", "laplace"]
    said = call(monkeypatch, capsys, "ledger", "history", budget)[1]
    assert "knorm, counted as laplace ε = 0.25 " in said
    assert "Z  laplace ε = 0.5 " in said
