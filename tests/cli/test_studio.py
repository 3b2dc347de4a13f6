"""``affinedp studio``: its first line is the link, and what cannot be is refused in one line."""

import re
import socket
import sys

import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.errors import AffineDPError, MissingExtraError, install_command


def test_the_first_line_is_the_link(monkeypatch):
    serving = pytest.importorskip("affinedp.studio.serving", reason="needs the extra studio")
    opened, ran = [], []
    monkeypatch.setattr(serving, "warm", lambda jobs: None)
    monkeypatch.setattr(serving.webbrowser, "open", opened.append)
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda self, sockets: ran.append(sockets))
    result = CliRunner().invoke(app, ["studio"])
    first = result.stdout.splitlines()[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{32}", first)
    assert opened == [first]
    assert len(ran) == 1
    again = CliRunner().invoke(app, ["studio", "--no-open"]).stdout.splitlines()[0]
    assert len(opened) == 1
    assert again.partition("#")[2] != first.partition("#")[2]


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
