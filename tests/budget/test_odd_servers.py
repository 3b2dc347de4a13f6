"""A ledger on servers that are set up in other ways, behind pools, and at odd addresses."""

from __future__ import annotations

import threading
import time

import pytest

import affinedp as adp
from affinedp.budget.ledger import LedgerError
from servers import why_not

psycopg = pytest.importorskip("psycopg")
on_a_server = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
pytestmark = pytest.mark.xdist_group("postgresql")

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}
QUARTER = adp.verify(adp.AffineManifold([[1, -1]]), 8.0, law="laplace")


def _encoding(name: str) -> str:
    return f"ENCODING '{name}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"


@on_a_server
@pytest.mark.parametrize(
    ("database", "name"),
    [
        (_encoding("SQL_ASCII"), "staff"),
        (_encoding("SQL_ASCII"), "日本"),
        (_encoding("LATIN1"), "é"),
    ],
    indirect=["database"],
)
def test_any_encoding_of_the_server_will_do(database, name):
    url = f"{database[0]}#{name}"
    with adp.Ledger(url, **CAP) as ledger:
        ledger.settle(ledger.charge(QUARTER, fingerprint="f", label="é 日本 \U0001f600"))
        assert ledger.check() == ()
    # whatever the programs ask for, the name is one name
    with adp.Ledger(f"{database[0]}?client_encoding=latin1#{name}", create=False) as ledger:
        assert (ledger.spent, ledger.history()[0].label) == (0.25, "é 日本 \U0001f600")


@on_a_server
@pytest.mark.parametrize("database", [_encoding("LATIN1")], indirect=True)
def test_a_name_that_the_server_cannot_write_is_refused(database):
    with pytest.raises(LedgerError, match="no equivalent"):
        adp.Ledger(f"{database[0]}#日本", **CAP)


@on_a_server
def test_a_pool_that_changes_connections_is_no_trouble(database):
    """As pgbouncer does between transactions: what was prepared is gone."""
    with adp.Ledger(database[0], **CAP) as ledger:
        for _ in range(8):
            assert ledger.spent == 0.0
        ledger._store._open.pgconn.exec_(b"DISCARD ALL")
        ledger.charge(QUARTER, fingerprint="f")
        assert ledger.spent == 0.25


@on_a_server
def test_a_connection_that_was_dropped_is_not_a_fault_of_the_ledger(database):
    address, connection = database
    ledger = adp.Ledger(address, **CAP)
    for call in (ledger.check, ledger.acknowledge_move, lambda: ledger.spent):
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        time.sleep(0.1)
        assert not call()
    ledger.close()


@on_a_server
def test_two_users_who_make_the_tables_at_once_do_not_get_two_budgets(database):
    address, connection = database
    connection.execute("CREATE SCHEMA one")
    connection.execute("CREATE SCHEMA two")
    connection.execute(f"SELECT pg_advisory_lock({0x61644450})")  # both wait here
    made: list[str] = []

    def make(schema: str) -> None:
        try:
            adp.Ledger(f"{address}?options=-csearch_path%3D{schema}", **CAP).close()
        except LedgerError as error:
            made.append(str(error))
        else:
            made.append("made")

    threads = [threading.Thread(target=make, args=(schema,)) for schema in ("one", "two")]
    for thread in threads:
        thread.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    while connection.execute(waiting).fetchone() != (2,):
        time.sleep(0.02)
    connection.execute(f"SELECT pg_advisory_unlock({0x61644450})")
    for thread in threads:
        thread.join(30)
    assert made.count("made") == 1
    assert any("search_path" in words for words in made)


@on_a_server
@pytest.mark.parametrize("table", ["affinedp_ledger", "affinedp_event"])
def test_a_charge_that_the_tables_swallow_is_refused(database, table):
    address, connection = database
    event = "UPDATE" if table == "affinedp_ledger" else "INSERT"
    with adp.Ledger(address, **CAP) as ledger:
        connection.execute(
            "CREATE FUNCTION swallow() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql"
        )
        connection.execute(
            f"CREATE TRIGGER swallow BEFORE {event} ON {table} FOR EACH ROW "
            "EXECUTE FUNCTION swallow()"
        )
        with pytest.raises(LedgerError, match="nothing was charged"):
            ledger.charge(QUARTER, fingerprint="f")
        connection.execute(f"DROP TRIGGER swallow ON {table}")
        ledger.charge(QUARTER, fingerprint="f")
        assert ledger.check() == ()


@on_a_server
def test_a_row_that_nobody_can_hold_is_not_charged(database):
    address, connection = database
    adp.Ledger(address, **CAP).close()
    connection.execute("DROP ROLE IF EXISTS reader")
    connection.execute("CREATE ROLE reader LOGIN")
    connection.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reader")
    connection.execute("ALTER TABLE affinedp_ledger ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY look ON affinedp_ledger FOR SELECT USING (true)")
    with adp.Ledger(address.replace("postgres@", "reader@"), create=False) as ledger:
        assert ledger.spent == 0.0
        with pytest.raises(LedgerError, match="cannot be held"):
            ledger.charge(QUARTER, fingerprint="f")
        assert ledger.check() == ()


@on_a_server
def test_tables_that_a_crash_empties_are_refused(database):
    address, connection = database
    adp.Ledger(address, **CAP).close()
    connection.execute("ALTER TABLE affinedp_event SET UNLOGGED")
    with pytest.raises(LedgerError, match="affinedp_event is emptied"):
        adp.Ledger(address, **CAP)


@on_a_server
@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_charge_that_no_replica_has_is_not_answered(database, how):
    """Told not to wait any more, the server warns, and confirms; a replica would not know it."""
    address, connection = database
    waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    ledger = adp.Ledger(address, **CAP)
    connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
    connection.execute("SELECT pg_reload_conf()")
    while connection.execute("SHOW synchronous_standby_names").fetchone() != ("absent",):
        time.sleep(0.02)

    def stop_waiting() -> None:
        with psycopg.connect(address, autocommit=True) as other:
            for way in (how, "cancel")[: 1 if how == "cancel" else 2]:
                while not other.execute(f"SELECT pg_{way}_backend(pid) {waiting}").fetchall():
                    time.sleep(0.02)
                while other.execute(f"SELECT 1 {waiting}").fetchall() and way == "terminate":
                    time.sleep(0.02)

    thread = threading.Thread(target=stop_waiting)
    thread.start()
    try:
        with pytest.raises(LedgerError, match="synchronous replication.*it counts"):
            ledger.charge(QUARTER, fingerprint="f")
        thread.join(30)
        assert ledger.spent == 0.25
    finally:
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")
        ledger.close()


@on_a_server
def test_a_ledger_that_the_server_lost_is_not_moved_there_again(database, tmp_path):
    """The file would forget what was charged on the server."""
    address, connection = database
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        ledger.charge(QUARTER, fingerprint="f")
        ledger.export(address)
        with adp.Ledger(address) as moved:
            moved.charge(QUARTER, fingerprint="f")
        connection.execute("TRUNCATE affinedp_ledger, affinedp_event")
        with pytest.raises(LedgerError, match="not there any more"):
            ledger.export(address)
    with pytest.raises(LedgerError, match="there is no ledger"):
        adp.Ledger(address, create=False)
