"""Every ending has its own exit code: a crash never looks like a promise that is not kept."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import typer
from typer.testing import CliRunner

from affinedp.cli import exits
from affinedp.cli.app import app
from affinedp.cli.options import attended
from affinedp.cli.output import say_lines

PROBLEM = """
equations = ["a + b = c"]
[privacy]
mu = 1.0
[noise]
law = "laplace"
scale = 2.0
"""
AFFINEDP = [sys.executable, "-m", "affinedp"]


def ends(commands, capsys):
    """Exit code, stdout and stderr of what would run as the command line."""
    with pytest.raises(SystemExit) as stop:
        exits.run(commands)
    said = capsys.readouterr()
    return stop.value.code, said.out, said.err


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


def test_a_crash_inside_a_command(run, monkeypatch):
    monkeypatch.setattr("affinedp.files.problem.Problem.guarantee", lambda read: 1 / 0)
    assert run("verify p.toml", p_toml=PROBLEM)[0] == exits.UNEXPECTED


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("verify p.toml --epsilon 1", exits.KEPT),
        ("verify p.toml --epsilon 0.9", exits.NOT_KEPT),
        ("verify p.toml --epsilon x", exits.BAD_INPUT),
        ("verify p.toml --epsilon -1", exits.BAD_INPUT),
        ("verify p.toml --epsilon nan", exits.BAD_INPUT),
        ("verify p.toml --delta 0.1", exits.BAD_INPUT),
        ("verify nowhere.toml", exits.BAD_INPUT),
        ("nonsense", exits.BAD_INPUT),
        ("--help", exits.KEPT),
        ("--version", exits.KEPT),
    ],
)
def test_codes(run, words, code):
    assert run(words, p_toml=PROBLEM)[0] == code


def test_names_of_files_do_not_steer_the_terminal(run):
    code, _, err = run("verify 'no\x1b[31m.toml'")
    assert code == exits.BAD_INPUT
    assert r"no\x1b[31m.toml" in err


def test_interrupted(capsys):
    app = typer.Typer()
    app.command()(raising(KeyboardInterrupt()))
    assert ends(lambda: app([]), capsys)[0] == exits.INTERRUPTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_lock_of_the_event_is_held(number):
    """It comes between two instructions of the wait for it: setting it there waits for ever."""
    sent = []

    def within(frame, event, _):
        held = frame.f_code is threading.Condition.wait.__code__ and event == "call"
        if held and not sent:
            sent.append(number)
            signal.raise_signal(number)

    with attended() as stop:
        sys.setprofile(within)
        try:
            ended = stop.wait(60.0)
        finally:
            sys.setprofile(None)
    assert sent
    assert ended


def test_lines_end_between_words_at_a_terminal(monkeypatch, capsys):
    """A path that a terminal breaks cannot be copied; programs read whole lines."""
    line = "what it hides and costs says affinedp report a-trial/noise.json"
    monkeypatch.setenv("COLUMNS", "50")
    say_lines([line])
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say_lines([line])
    assert capsys.readouterr().out == f"{line}\n".replace("report ", "report\n")
    say_lines(["spent    for changes that are neighbours of all", "    3 × " + "word " * 9])
    assert capsys.readouterr().out.splitlines() == [
        "spent    for changes that are neighbours of all",
        "    3 × word word word word word word word word",
        "    word",
    ]
    say_lines(["spent    for changes that are neighbours of every release"])
    assert capsys.readouterr().out.splitlines()[1:] == ["         release"]


def test_warnings_go_to_standard_error(capsys):
    def command():
        warnings.warn("the state was moved: give moved=True", UserWarning, stacklevel=1)

    _, out, err = ends(command, capsys)
    assert (out, err) == ("", "affinedp: warning: the state was moved: give --moved\n")


# As processes.


@pytest.fixture
def process(tmp_path):
    (tmp_path / "p.toml").write_text(PROBLEM)

    def start(*words, shell=(), **options):
        return subprocess.run([*shell, *AFFINEDP, *words], cwd=tmp_path, **options)

    return start


@pytest.mark.slow
def test_a_closed_pipe(process):
    for words in (["--help"], ["verify", "p.toml", "--epsilon", "1"], ["verify", "--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = process(*words, stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        assert (done.returncode, done.stderr) == (exits.CLOSED_PIPE, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_nowhere_to_write_the_answer(process):
    for words in (["--help"], ["verify", "p.toml", "--json"]):
        with open("/dev/full", "w") as full:
            done = process(*words, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == exits.UNEXPECTED
        assert done.stderr.splitlines() == ["affinedp: No space left on device"]
    with open("/dev/full", "w") as full:  # the code says it even if nothing else can
        assert process("verify", "nowhere.toml", stderr=full).returncode == exits.BAD_INPUT


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
def test_standard_output_that_is_closed(process):
    closed = ("sh", "-c", '"$@" >&-', "sh")
    for words in (["--version"], ["verify", "p.toml"], ["verify", "p.toml", "--json"]):
        done = process(*words, shell=closed, stderr=subprocess.PIPE, text=True)
        assert done.returncode == exits.UNEXPECTED
        assert done.stderr.splitlines() == ["affinedp: Bad file descriptor"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "5"])
def test_a_terminal_without_columns(process, columns):
    """Some say so when nobody told them their size: the answer is shown all the same."""
    environment = {**os.environ, "COLUMNS": columns}
    done = process("verify", "p.toml", env=environment, capture_output=True, text=True)
    assert done.returncode == exits.KEPT
    assert "Laplace" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_console_without_greek(process, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for words in (["verify", "p.toml"], ["--help"]):
        done = process(*words, env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (exits.KEPT, b"")
    done = process("verify", "p.toml", "--json", env=environment, capture_output=True)
    assert "μ" in json.loads(done.stdout.decode("ascii"))["neighbours"]


def test_help_shows_the_tables_of_files(monkeypatch):
    """A table of a file looks like markup to Rich, which would leave it out."""
    monkeypatch.setenv("COLUMNS", "300")
    for group, command, table in (
        ("control", "gateway", "[sensors]"), ("consensus", "agent", "[values]"),
    ):  # fmt: skip
        said = CliRunner().invoke(app, [group, command, "--help"]).output
        assert f"that in {table}" in said or f"that of {table}" in said


@pytest.mark.parametrize(
    "command", ["", "control", "control design", "control plant", "consensus keys", "design"]
)
def test_help_fits_80_columns_and_names_no_type_of_a_flag(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    said = CliRunner().invoke(app, [*command.split(), "--help"]).output
    assert "<bool>" not in said
    assert "``" not in said
    # a choice that is folded cannot be read
    assert re.search(r"<[^>\n]*$", said, re.MULTILINE) is None
