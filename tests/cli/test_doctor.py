"""``affinedp doctor``: what is there, what is missing, and what keeps affinedp from working."""

import json
import socket
from importlib import metadata

import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app


def diagnosed(*brokers):
    """Status and detail of everything that was looked at, and the exit code."""
    words = [word for address in brokers for word in ("--broker", address)]
    told = CliRunner().invoke(app, ["doctor", "--json", *words])
    rows = json.loads(told.stdout)
    areas = [row["area"] for row in rows]
    assert areas == sorted(areas, key=["core", "extras", "parallel", "brokers"].index)
    return {row["what"]: (row["status"], row["detail"]) for row in rows}, told.exit_code


def test_here_everything_that_is_needed_is_there():
    found, code = diagnosed()
    assert code == 0
    assert {"numpy", "numba", "tables", "studio"} <= set(found)
    assert not {"test", "all", "dev"} & set(found)
    assert found["trial release"][0] == found["embedded"][0] == "fine"


@pytest.mark.parametrize(
    ("package", "what", "status"),
    [("scipy", "scipy", "problem"), ("pandapower", "flows", "missing"), ("ray", "ray", "missing")],
)
def test_missing_packages(monkeypatch, package, what, status):
    installed = metadata.version

    def version(name):
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    found, code = diagnosed()
    assert found[what][0] == status
    assert code == (status == "problem")


def broken(*args, **settings):
    raise OSError("no randomness")


@pytest.mark.parametrize(
    ("target", "value", "what", "status", "words"),
    [
        ("affinedp.mechanism.publish", broken, "trial release", "problem", "no randomness"),
        ("affinedp.cli.doctor.shutil.which", lambda name: None, "mosquitto", "missing",
         "apt install"),
        ("affinedp.mqtt.local_broker.has_embedded", lambda: False, "embedded", "missing",
         "[broker"),
    ],
)  # fmt: skip
def test_what_fails_is_told_with_what_to_do(monkeypatch, target, value, what, status, words):
    monkeypatch.setattr(target, value)
    found, code = diagnosed()
    assert found[what][0] == status
    assert words in found[what][1]
    assert code == (status == "problem")


def test_no_place_for_compiled_code(monkeypatch):
    from affinedp.neighbours.circuits import compiled

    nowhere = type("NoCache", (), {"cache_path": None})
    monkeypatch.setattr(compiled.column_side.fast, "_cache", nowhere)
    status, detail = diagnosed()[0]["compiled cache"]
    assert (status, "NUMBA_CACHE_DIR" in detail) == ("missing", True)


def test_brokers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert diagnosed(there)[0][there] == ("fine", "answers")
    found, code = diagnosed(there, "http://somewhere")
    assert code == 1
    assert found[there][0] == "problem"
    assert "cannot be reached" in found[there][1]
    assert "host:port" in found["http://somewhere"][1]
