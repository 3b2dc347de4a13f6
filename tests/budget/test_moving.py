"""A ledger moves from its file to a server, and there are never two that can be charged."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings

import pytest

import affinedp as adp
from affinedp.budget import postgres
from affinedp.budget.ledger import LedgerError, LedgerWarning
from ledgers import CAP, QUARTER, opened
from servers import set_on_server, why_not

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@pytest.fixture
def ledger(tmp_path):
    with adp.Ledger(tmp_path / "l.db", **CAP) as opened:
        opened.charge(QUARTER, fingerprint="f")
        yield opened


@pytest.fixture
def two(server, database):
    """An address without a database, and two databases that PGDATABASE may name."""
    _, connection = database
    names = [f"e{time.monotonic_ns()}{letter}" for letter in "ab"]
    for name in names:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://postgres@127.0.0.1:{server.port}#staff", *names


def _cut_short(ledger, url: str) -> None:
    """A move that fails after the file was closed, and before the copy is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "_copy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.export(url)


def _killed_before_arrival(path, url: str) -> None:
    """As by a power cut right after the server kept it."""
    child = os.fork()
    if child == 0:
        postgres._note_arrival = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        adp.Ledger(path, create=False).export(url)
        os._exit(0)
    os.waitpid(child, 0)


def test_one_address_in_other_surroundings_is_another_place(two, tmp_path, monkeypatch):
    url, first, second = two
    adp.Ledger(tmp_path / "l.db", **CAP).close()
    monkeypatch.setenv("PGDATABASE", first)
    _killed_before_arrival(tmp_path / "l.db", url)
    with adp.Ledger(url, create=False) as there:
        there.charge(QUARTER, fingerprint="there")
    monkeypatch.setenv("PGDATABASE", second)
    with adp.Ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(LedgerError, match="leads elsewhere"):
            ledger.export(url)
        with pytest.raises(LedgerError, match="there is no ledger"):
            adp.Ledger(url, create=False)
        monkeypatch.setenv("PGDATABASE", first)
        with pytest.raises(LedgerError, match="it is this one"):
            ledger.export(url)
        monkeypatch.setenv("PGDATABASE", second)
        with pytest.raises(LedgerError, match="before"):
            ledger.export(url)


def test_two_moves_at_once_to_one_address_in_other_surroundings(two, tmp_path):
    """Both have looked, and found no ledger, before one of them closes the file."""
    url, first, second = two
    path = tmp_path / "l.db"
    adp.Ledger(path, **CAP).close()
    ready, go = os.pipe(), os.pipe()
    children = []
    for name in (first, second):
        child = os.fork()
        if child == 0:
            os.environ["PGDATABASE"] = name
            close_file = postgres._close_file

            def wait(*arguments, close_file=close_file) -> None:
                os.write(ready[1], b".")
                os.read(go[0], 1)
                close_file(*arguments)

            postgres._close_file = wait
            try:
                adp.Ledger(path, create=False).export(url)
            except LedgerError:
                os._exit(1)
            os._exit(0)
        children.append(child)
    while len(os.read(ready[0], 1)) + len(os.read(ready[0], 1)) < 2:
        pass
    os.write(go[1], b"..")
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 1]


def test_a_move_that_was_cut_short_goes_on_to_the_same_address_only(database, ledger):
    """Another one, also if it is spelt otherwise, may be a copy of the whole server."""
    address, connection = database
    _cut_short(ledger, f"{address}#first")
    assert ledger.moved_to == f"{address}#first"
    for other in (f"{address}#second", f"{address.replace('127.0.0.1', 'localhost')}#first"):
        with pytest.raises(LedgerError, match="before"):
            ledger.export(other)
    with pytest.raises(LedgerError, match="was moved to"):
        ledger.charge(QUARTER, fingerprint="b")
    ledger.export(f"{address}#first")
    with opened(f"{address}#first") as moved:
        assert len(moved.history()) == 1
        assert moved.check() == ()
    assert connection.execute("SELECT name FROM affinedp_ledger").fetchall() == [("first",)]


RIGHTS = {"auditor": "SELECT", "newcomer": "", "half": "SELECT, INSERT"}


@pytest.mark.parametrize("what", [*RIGHTS, "read-only", "fsync", "unlogged", "no such database"])
def test_a_wrong_target_costs_nothing(database, ledger, what):
    address, connection = database
    if what != "newcomer":
        adp.Ledger(f"{address}#other", **CAP).close()
    wrong, role = address, f"{what}_of_move"
    if what in RIGHTS:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        if RIGHTS[what]:
            connection.execute(f"GRANT {RIGHTS[what]} ON ALL TABLES IN SCHEMA public TO {role}")
        wrong = address.replace("postgres@", f"{role}@")
    elif what == "read-only":
        wrong = f"{address}?options=-cdefault_transaction_read_only%3Don"
    elif what == "fsync":
        set_on_server(connection, "fsync", "off")
    elif what == "unlogged":
        connection.execute("ALTER TABLE affinedp_event SET UNLOGGED")
    else:
        wrong = f"{address}_not"
    try:
        with pytest.raises(LedgerError):
            ledger.export(f"{wrong}#staff")
    finally:
        set_on_server(connection, "fsync", "on")
        if what in RIGHTS:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")
    assert ledger.moved_to is None
    ledger.charge(QUARTER, fingerprint="goes on")
    if what == "unlogged":
        connection.execute("ALTER TABLE affinedp_event SET LOGGED")
    ledger.export(f"{address}#staff")


def test_who_comes_second_hears_that_it_is_there(database, ledger, tmp_path):
    """Not that it was lost, nor that another name is needed."""
    address, connection = database
    adp.Ledger(f"{address}#other", **CAP).close()
    told: list[str] = []

    def second() -> None:
        with adp.Ledger(tmp_path / "l.db") as other, pytest.raises(LedgerError) as refused:
            other.export(address)
        told.append(str(refused.value))

    thread = threading.Thread(target=second)
    copy = postgres._copy

    def slow(*given) -> None:
        copy(*given)
        thread.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not connection.execute(waits).fetchall():
            time.sleep(0.02)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "_copy", slow)
        ledger.export(address)
    thread.join(30)
    assert "it is this one, so open it there" in told[0]


def test_an_older_copy_of_what_is_there_is_not_sent_elsewhere(database, ledger, tmp_path):
    """Another name would make a second budget of it."""
    before = (tmp_path / "l.db").read_bytes()
    ledger.export(database[0])
    ledger.close()
    (tmp_path / "l.db").write_bytes(before)
    with adp.Ledger(tmp_path / "l.db") as old, pytest.raises(LedgerError, match="older copy"):
        old.export(database[0])


def test_a_restored_dump_is_not_where_the_file_went(server, database, tmp_path):
    """The name and the charges are there, too; but the file was moved to the other one."""
    url, connection = database
    copy = f"d{time.monotonic_ns()}"
    connection.execute(f"CREATE DATABASE {copy}")
    file = tmp_path / "l.db"
    adp.Ledger(file, **CAP).close()
    _killed_before_arrival(file, url)
    restored = f"{url.rpartition('/')[0]}/{copy}"
    adp.Ledger(f"{restored}#tables", **CAP).close()
    with psycopg.connect(restored, autocommit=True) as other:
        for table in ("affinedp_ledger", "affinedp_event"):
            for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                places = ", ".join(["%s"] * len(row))
                other.execute(f"INSERT INTO {table} VALUES ({places}) ON CONFLICT DO NOTHING", row)
    with adp.Ledger(file, create=False) as ledger:
        with pytest.raises(LedgerError, match="a copy of this ledger.*charge that one only"):
            ledger.export(restored)
        with pytest.raises(LedgerError, match="it is this one, so open it there"):
            ledger.export(url)
        assert ledger.moved_to is not None
        assert copy not in ledger.moved_to


def test_a_file_moves_to_the_server_without_a_gap(database, ledger):
    address, _ = database
    ledger.settle(1)
    history = ledger.history()
    ledger.export(address)
    with pytest.raises(LedgerError, match="was moved to"):
        ledger.charge(QUARTER, fingerprint="b")
    assert any("moved to" in problem for problem in ledger.check())
    with pytest.raises(LedgerError, match="there is a ledger"):
        ledger.export(address)
    with pytest.raises(LedgerError, match="before"):
        ledger.export(f"{address}#other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved = opened(address)
    assert moved.history() == history
    assert moved.check() == ()
    moved.charge(QUARTER, fingerprint="b")
    assert moved.spent == 0.5


def test_a_copy_does_not_become_an_original_by_moving(database, ledger, tmp_path):
    (tmp_path / "copy.db").write_bytes((tmp_path / "l.db").read_bytes())
    with pytest.warns(LedgerWarning, match="copied"):
        copy = adp.Ledger(tmp_path / "copy.db")
    with pytest.raises(LedgerError, match="acknowledge_move"):
        copy.export(database[0])
    copy.acknowledge_move()
    copy.export(database[0])


def test_a_ledger_that_the_server_lost_is_not_moved_there_again(database, ledger):
    """The file would forget what was charged on the server."""
    address, connection = database
    ledger.export(address)
    with opened(address) as moved:
        moved.charge(QUARTER, fingerprint="f")
    connection.execute("TRUNCATE affinedp_ledger, affinedp_event")
    with pytest.raises(LedgerError, match="not there any more"):
        ledger.export(address)
    with pytest.raises(LedgerError, match="there is no ledger"):
        opened(address)


def test_the_commands_say_where_it_went(database, ledger, tmp_path):
    from typer.testing import CliRunner

    from affinedp.cli.app import app

    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["ledger", *words])
        assert done.exit_code == 0, done.output
        return done.output

    path, url = str(tmp_path / "l.db"), f"{database[0]}#moved"
    assert "1 charge" in said("export", path, url)
    assert "protects    one person" in said("show", url)
    assert "moved " not in said("show", url)
    assert said("show", path).startswith("moved       to postgresql://")
    assert json.loads(said("show", path, "--json"))["moved_to"] == url
