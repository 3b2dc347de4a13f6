"""A server for the tests of one file, and an empty database for one test."""

from __future__ import annotations

import time

import pytest

from servers import Server


@pytest.fixture(scope="module")
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
