"""What holds of every transaction: it is alone, durable, heard to its end, and never endless."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time

import pytest

import affinedp as adp
from affinedp.budget import server as server_store
from affinedp.budget import transactions
from affinedp.budget.ledger import LedgerError
from servers import why_not

psycopg = pytest.importorskip("psycopg")
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("postgresql"),
]

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}
QUARTER = adp.verify(adp.AffineManifold([[1, -1]]), 8.0, law="laplace")
INNER = {
    "charge": lambda ledger: ledger.charge(QUARTER, fingerprint="inner"),
    "settle": lambda ledger: ledger.settle(1),
    "look": lambda ledger: ledger.spent,
    "history": lambda ledger: ledger.history(),
    "move": lambda ledger: ledger.acknowledge_move(),
}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("where", ["begin", "commit", "roll_back"])
def test_a_call_from_a_signal_handler_is_refused(database, monkeypatch, inner, where):
    """Its commit would be that of the charge in the middle of which it is."""
    with adp.Ledger(database[0], **CAP) as ledger:
        ledger.charge(QUARTER, fingerprint="first")
        refused: list[str] = []

        def handler(*_) -> None:
            try:
                INNER[inner](ledger)
            except LedgerError as error:
                refused.append(str(error))

        real = getattr(transactions, where)

        def interrupted(*given, **more):
            with monkeypatch.context() as patch:
                patch.setattr(server_store, where, real)
                signal.raise_signal(signal.SIGUSR1)
            return real(*given, **more)

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(server_store, where, interrupted)
                entry = ledger.charge(QUARTER, fingerprint="outer") if where != "roll_back" else 0
                assert ledger.spent == (0.5 if entry else 0.25)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert refused
        assert all("under way" in words for words in refused)
        kept = [entry.fingerprint for entry in ledger.history()]
        assert kept == ["first", "outer"][: len(kept)]
        assert len(kept) == (2 if entry else 1)


def test_a_handler_does_not_wait_for_the_lock_of_its_own_call(database):
    """A signal in the middle of a statement: psycopg's lock is held by the call below."""
    address, connection = database
    with adp.Ledger(address, **CAP) as ledger:
        refused: list[str] = []

        def handler(*_) -> None:
            try:
                _ = ledger.spent
            except LedgerError as error:
                refused.append(str(error))
            connection.execute("ROLLBACK")

        before = signal.signal(signal.SIGALRM, handler)
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM affinedp_ledger FOR UPDATE")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            ledger.charge(QUARTER, fingerprint="f")
        finally:
            signal.signal(signal.SIGALRM, before)
        assert "under way" in refused[0]
        assert ledger.spent == 0.25


@contextlib.contextmanager
def _no_replica(address: str):
    """A server that waits for a replica that never answers, and is told not to, again and again."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != ("absent",):
            time.sleep(0.02)
        done = threading.Event()

        def stop_waiting() -> None:
            with psycopg.connect(address, autocommit=True) as other:
                while not done.wait(0.02):
                    other.execute(
                        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                        "WHERE wait_event = 'SyncRep'"
                    )

        thread = threading.Thread(target=stop_waiting)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30)
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            while connection.execute("SHOW synchronous_standby_names").fetchone() != ("",):
                time.sleep(0.02)


def test_nobody_can_ask_not_to_hear_that_a_replica_is_missing(database, tmp_path):
    address, _ = database
    deaf = f"{address}?options=-cclient_min_messages%3Derror"
    with adp.Ledger(deaf, **CAP) as ledger, adp.Ledger(tmp_path / "l.db", **CAP) as file:
        with _no_replica(address):
            with pytest.raises(LedgerError, match="synchronous replication.*it counts"):
                ledger.charge(QUARTER, fingerprint="f")
            with pytest.raises(LedgerError, match="synchronous replication.*try again"):
                adp.Ledger(f"{deaf}#new", **CAP)
            with pytest.raises(LedgerError, match="synchronous replication.*try again"):
                file.export(f"{deaf}#moved")
        assert ledger.spent == 0.25
        with pytest.raises(LedgerError, match="it is this one"):
            file.export(f"{deaf}#moved")


@pytest.mark.parametrize("table", ["affinedp_ledger", "affinedp_event"])
def test_tables_that_become_unsafe_are_not_charged(database, table):
    address, connection = database
    with adp.Ledger(address, **CAP) as ledger:
        if table == "affinedp_ledger":
            connection.execute("ALTER TABLE affinedp_event SET UNLOGGED")  # it refers to the other
        connection.execute(f"ALTER TABLE {table} SET UNLOGGED")
        with pytest.raises(LedgerError, match="is emptied"):
            ledger.charge(QUARTER, fingerprint="f")
        with pytest.raises(LedgerError, match="is emptied"):
            adp.Ledger(f"{address}#new", **CAP)
        connection.execute(f"ALTER TABLE {table} SET LOGGED")
        connection.execute("ALTER TABLE affinedp_event SET LOGGED")
        ledger.charge(QUARTER, fingerprint="f")
    assert connection.execute("SELECT count(*) FROM affinedp_ledger").fetchone() == (1,)


def _charge_often(ledger: adp.Ledger) -> None:
    for _ in range(1000):
        ledger.charge(QUARTER, fingerprint="f")


def test_a_server_that_becomes_unsafe_is_not_charged(database):
    address, connection = database

    def turn(value: str) -> None:
        connection.execute(f"ALTER SYSTEM SET fsync = {value}")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW fsync").fetchone() != (value,):
            time.sleep(0.02)

    with adp.Ledger(address, epsilon=1e9, protects="one person") as ledger:
        turn("off")
        try:
            with pytest.raises(LedgerError, match="fsync"):
                _charge_often(ledger)  # each process of the server reads its settings by itself
            with pytest.raises(LedgerError, match="fsync"):
                adp.Ledger(f"{address}#new", **CAP)
        finally:
            turn("on")
    assert connection.execute("SELECT count(*) FROM affinedp_ledger").fetchone() == (1,)


@pytest.mark.parametrize("what", ["open", "look", "create", "export"])
def test_no_lock_is_waited_for_without_end(database, monkeypatch, tmp_path, what):
    monkeypatch.setattr(transactions, "LOCK_SECONDS", 1)
    address, connection = database
    with adp.Ledger(address, **CAP) as ledger, adp.Ledger(tmp_path / "l.db", **CAP) as file:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE affinedp_ledger IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="try again"):
            {
                "open": lambda: adp.Ledger(address),
                "look": lambda: ledger.spent,
                "create": lambda: adp.Ledger(f"{address}#new", **CAP),
                "export": lambda: file.export(f"{address}#new"),
            }[what]()
        connection.execute("ROLLBACK")
        assert file.moved_to is None


def test_who_makes_the_tables_is_not_waited_for_without_end(database, monkeypatch):
    monkeypatch.setattr(transactions, "LOCK_SECONDS", 1)
    address, connection = database
    connection.execute(f"SELECT pg_advisory_lock({0x61644450})")
    with pytest.raises(LedgerError, match="try again"):
        adp.Ledger(address, **CAP)


class Silent:
    """A relay to the server that stops in the middle without a word to either side."""

    def __init__(self, port: int, word: bytes) -> None:
        self._word, self._port = word, port
        self.armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not (self.armed and self._word in data):
                    other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_a_program_that_falls_silent_does_not_hold_the_ledger(server, database, monkeypatch):
    monkeypatch.setattr(transactions, "IDLE_SECONDS", 2)
    address, _ = database
    adp.Ledger(address, **CAP).close()
    relay = Silent(server.port, b"INSERT INTO affinedp_event")
    refused: list[str] = []

    def silent() -> None:
        try:
            through = address.replace(str(server.port), str(relay.port))
            with adp.Ledger(through, create=False) as ledger:
                relay.armed = True
                ledger.charge(QUARTER, fingerprint="lost")
        except LedgerError as error:
            refused.append(str(error))

    thread = threading.Thread(target=silent, daemon=True)
    thread.start()
    while not relay.armed:
        time.sleep(0.01)
    time.sleep(0.3)
    with adp.Ledger(address, create=False) as ledger:
        ledger.charge(QUARTER, fingerprint="waited")  # the silent one is cut off in time
        thread.join(30)
        assert refused
        assert "lost" not in {entry.fingerprint for entry in ledger.history()}
    relay.close()


def test_a_silent_network_is_noticed_unless_the_address_says_otherwise(database):
    address, _ = database
    with adp.Ledger(address, **CAP) as ledger:
        used = ledger._store._open.info.get_parameters()
        assert used["tcp_user_timeout"] == "30000"
        assert used["keepalives_idle"] == "10"
    with adp.Ledger(f"{address}?tcp_user_timeout=5000&keepalives_idle=7") as ledger:
        used = ledger._store._open.info.get_parameters()
        assert (used["tcp_user_timeout"], used["keepalives_idle"]) == ("5000", "7")


def test_a_fate_that_cannot_be_found_out_may_count(database, monkeypatch):
    """The connection breaks in the commit, and again while the event is looked for."""
    with adp.Ledger(database[0], **CAP) as ledger:

        def broken(connection):
            connection.close()
            raise psycopg.OperationalError("gone\n\tfor good")

        with monkeypatch.context() as patch:
            patch.setattr(server_store, "commit", broken)
            patch.setattr(ledger._store, "_is_there", lambda _: broken(ledger._store._open))
            with pytest.raises(LedgerError, match="gone for good.*may have been kept") as refused:
                ledger.charge(QUARTER, fingerprint="f")
        assert "\n" not in str(refused.value)


def test_entries_are_numbers(database):
    with adp.Ledger(database[0], **CAP) as ledger:
        assert ledger.charge(QUARTER, fingerprint="f") == 1
        with pytest.raises(LedgerError, match="no entry True"):
            ledger.settle(True)
        assert ledger.history()[0].status == "charged"


def test_a_ledger_that_is_not_there_is_told_from_those_that_are(database):
    address, _ = database
    with pytest.raises(LedgerError, match="nor any other"):
        adp.Ledger(f"{address}#staff", create=False)
    adp.Ledger(f"{address}#staff", **CAP).close()
    with pytest.raises(LedgerError, match="did you mean 'staff'"):
        adp.Ledger(f"{address}#staf", create=False)
    with pytest.raises(LedgerError, match=r"those that are there: 'staff'.*NEW budget"):
        adp.Ledger(f"{address}#zzz")


def test_a_search_path_that_leads_nowhere_is_named(database):
    address, _ = database
    adp.Ledger(address, **CAP).close()
    with pytest.raises(LedgerError, match="search_path"):
        adp.Ledger(f"{address}?options=-csearch_path%3Dnowhere", create=False)
