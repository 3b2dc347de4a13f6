import socket
from importlib import metadata

import pytest

from affinedp.cli import doctor


def by_name(findings):
    return {finding.what: finding for finding in findings}


def test_here_everything_that_is_needed_is_there():
    findings = doctor.diagnose()
    assert doctor.healthy(findings)
    assert {"numpy", "numba", "tables", "studio"} <= set(by_name(findings))
    assert not {"test", "all", "dev"} & set(by_name(findings))
    assert [f.area for f in findings] == sorted(
        (f.area for f in findings), key=["core", "extras", "parallel", "brokers"].index
    )


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
    findings = doctor.diagnose()
    assert by_name(findings)[what].status == status
    assert doctor.healthy(findings) == (status != "problem")


def test_no_place_for_compiled_code(monkeypatch):
    from affinedp.neighbours.circuits import compiled as search

    class NoCache:
        cache_path = None

    monkeypatch.setattr(search.column_side.fast, "_cache", NoCache())
    found = by_name(doctor.diagnose())["compiled cache"]
    assert found.status == "missing"
    assert "NUMBA_CACHE_DIR" in found.detail


def test_a_release_that_fails(monkeypatch):
    def broken(*args, **settings):
        raise OSError("no randomness")

    monkeypatch.setattr("affinedp.mechanism.publish", broken)
    found = by_name(doctor.diagnose())["trial release"]
    assert found.status == "problem"
    assert "no randomness" in found.detail


def test_brokers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert by_name(doctor.diagnose([there]))[there].status == "fine"
    found = by_name(doctor.diagnose([there, "http://somewhere"]))
    assert found[there].status == "problem"
    assert "cannot be reached" in found[there].detail
    assert "host:port" in found["http://somewhere"].detail


def test_brokers_on_this_machine(monkeypatch):
    found = by_name(doctor.diagnose())["embedded"]
    assert (found.status, "for trials" in found.detail) == ("fine", True)
    monkeypatch.setattr("affinedp.cli.doctor.shutil.which", lambda name: None)
    monkeypatch.setattr("affinedp.mqtt.local_broker.has_embedded", lambda: False)
    found = by_name(doctor.diagnose())
    assert (found["mosquitto"].status, "apt install" in found["mosquitto"].detail) == (
        "missing",
        True,
    )
    assert (found["embedded"].status, "[broker" in found["embedded"].detail) == ("missing", True)
    assert doctor.healthy(found.values()), "a broker of one's own is no need"
