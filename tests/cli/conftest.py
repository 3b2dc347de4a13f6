"""The command line as the shell runs it, in a folder of its own."""

import shlex

import pytest

from affinedp.cli import app as cli


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run words in ``tmp_path``, after files were written there; exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(words, **files):
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8")
        monkeypatch.setattr("sys.argv", ["affinedp", *shlex.split(words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code or 0, said.out, said.err

    return call
