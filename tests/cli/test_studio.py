"""``affinedp studio``: its first line is the link, and what cannot be is refused in one line."""

import os
import re
import socket
import sys
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.errors import AffineDPError, MissingExtraError, install_command


@pytest.mark.skipif(os.name != "posix", reason="the browser is a shell script")
def test_the_token_is_on_no_command_line(monkeypatch, tmp_path):
    """Every user of a machine can read the words of every process."""
    serving = pytest.importorskip("affinedp.studio.serving", reason="needs the extra studio")
    seen, words = tmp_path / "seen", tmp_path / "words"
    browser = tmp_path / "browser"
    stats = 'stat -c %a "$file" "$(dirname "$file")"; cat "$file"'
    browser.write_text(
        f'#!/bin/sh\necho "$@" >> {words}\nfile="${{1#file://}}"\n({stats}) > {seen}\n'
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    monkeypatch.setattr(webbrowser, "_browsers", {})
    monkeypatch.setattr(serving, "warm", lambda jobs: None)
    ran = []
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda self, sockets: ran.append(sockets))
    first = CliRunner().invoke(app, ["studio"]).stdout.splitlines()[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{32}", first)
    (opened,) = words.read_text().splitlines()
    assert opened.startswith("file:///")
    assert first.partition("=")[2] not in opened
    file_mode, folder_mode, *page = seen.read_text().splitlines()
    assert (file_mode, folder_mode) == ("600", "700")
    assert f'content="0; url={first}"' in "".join(page)
    assert not Path(opened.removeprefix("file://")).parent.exists(), "nothing is left"
    again = CliRunner().invoke(app, ["studio", "--no-open"]).stdout.splitlines()[0]
    assert len(words.read_text().splitlines()) == 1
    assert again.partition("#")[2] != first.partition("#")[2]
    assert len(ran) == 2


def test_a_port_that_is_taken_is_refused():
    pytest.importorskip("affinedp.studio.serving", reason="needs the extra studio")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(app, ["studio", "--no-open", "--port", port])
    assert isinstance(result.exception, AffineDPError)
    assert f"port {port} cannot be used" in str(result.exception)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("affinedp.studio")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(app, ["studio", "--no-open"])
    assert isinstance(result.exception, MissingExtraError)
    assert str(result.exception).endswith(f"'uvicorn': {install_command('studio')}")
    assert '[studio]"' in str(result.exception)
