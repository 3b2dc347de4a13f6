"""A server for the tests of the ledger, and an empty file or database for one test."""

from __future__ import annotations

import time

import pytest

from servers import Server, why_not

on_a_server = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    running.kill()  # in order it would first write all databases to the disk
    running.stop()


@pytest.fixture
def database(server, request):
    """The address of an empty database, and a connection to it."""
    psycopg = pytest.importorskip("psycopg")
    made = getattr(request, "param", "")
    with psycopg.connect(server.url().split("#")[0], autocommit=True) as first:
        name = f"d{time.monotonic_ns()}"
        first.execute(f"CREATE DATABASE {name} {made}")
    address = f"postgresql://postgres@127.0.0.1:{server.port}/{name}"
    with psycopg.connect(address, autocommit=True) as connection:
        yield address, connection


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture(params=["file", pytest.param("server", marks=on_a_server)])
def address(request):
    """Where a ledger may be made: what holds for one holds for the other."""
    if request.param == "file":
        return str(request.getfixturevalue("path"))
    return request.getfixturevalue("database")[0]
