"""What is special about a ledger on a PostgreSQL server: every transaction is durable and alone."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

import affinedp as adp
from affinedp.budget import events, postgres
from affinedp.budget.address import without_password
from affinedp.budget.ledger import LedgerError
from ledgers import CAP, QUARTER, charge, opened
from servers import Server, set_on_server, why_not

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


def count(url: str) -> int:
    with opened(url) as ledger:
        return sum(entry.releases for entry in ledger.history())


# ---------------------------------------------------------------------- names and addresses


def test_a_ledger_is_told_from_those_that_are_there(server, database):
    address, _ = database
    with pytest.raises(LedgerError, match="nor any other"):
        opened(f"{address}#staff")
    with adp.Ledger(f"{address}#staff", **CAP) as one, adp.Ledger(f"{address}#2", **CAP) as two:
        charge(one, "laplace", 0.5)
        assert (one.spent, two.spent) == (0.5, 0.0)
    with pytest.raises(LedgerError, match="did you mean 'staff'"):
        opened(f"{address}#staf")
    with pytest.raises(LedgerError, match=r"those that are there: '2', 'staff'.*NEW budget"):
        adp.Ledger(f"{address}#zzz")
    for nowhere in ("127.0.0.1:1/postgres", f"127.0.0.1:{server.port}/nothing"):
        with pytest.raises(LedgerError, match="cannot be reached"):
            adp.Ledger(f"postgresql://postgres@{nowhere}", **CAP)


def test_no_password_is_shown(server, database, tmp_path):
    address, _ = database
    secret = address.replace("postgres@", "postgres:hunter2@")
    with adp.Ledger(secret, **CAP) as ledger:
        assert "hunter2" not in repr(ledger)
    assert without_password(secret) == address
    with pytest.raises(LedgerError) as refused:
        opened(f"{secret}#other")
    assert "hunter2" not in str(refused.value)
    name = address.rpartition("/")[2]
    given = f"postgresql:///{name}?host=127.0.0.1&port={server.port}&user=postgres"
    hidden = f"{given}&password=hunter2#moved"
    assert without_password(hidden) == f"{given}#moved"
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        ledger.export(hidden)
    assert b"hunter2" not in (tmp_path / "l.db").read_bytes()
    with opened(hidden) as ledger:
        assert "hunter2" not in repr(ledger) + ledger.name
        assert ledger.check() == ()


def _encoding(name: str) -> str:
    return f"ENCODING '{name}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"


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
    with opened(f"{database[0]}?client_encoding=latin1#{name}") as ledger:
        assert (ledger.spent, ledger.history()[0].label) == (0.25, "é 日本 \U0001f600")
    if name == "é":
        with pytest.raises(LedgerError, match="no equivalent"):
            adp.Ledger(f"{database[0]}#日本", **CAP)


def test_two_schemas_are_not_two_budgets(database):
    """The same address by a user with another search_path would be a ledger with nothing spent."""
    address, connection = database
    adp.Ledger(address, **CAP).close()
    connection.execute("CREATE SCHEMA elsewhere")
    for schema in ("elsewhere", "nowhere"):
        for more in (CAP, {"create": False}):
            with pytest.raises(LedgerError, match="schema 'public'.*search_path"):
                adp.Ledger(f"{address}?options=-csearch_path%3D{schema}", **more)


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


# ---------------------------------------------------------------------- rights


@pytest.fixture
def roles(database):
    """A ledger, and the roles of docs/howto/budget.md with its grants."""
    address, connection = database
    adp.Ledger(address, **CAP).close()
    page = Path(__file__).parents[2] / "docs" / "howto" / "budget.md"
    for role in ("program", "auditor"):
        connection.execute(f"CREATE ROLE {role} LOGIN")
    for grant in re.findall(r"GRANT [^;\"]*", page.read_text("utf-8")):
        connection.execute(grant)
    yield (address.replace("postgres@", f"{role}@") for role in ("program", "auditor"))
    for role in ("program", "auditor"):
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


FORBIDDEN = [
    "UPDATE affinedp_ledger SET header = ''",
    "INSERT INTO affinedp_ledger VALUES ('new', '', 0, '')",
    "DELETE FROM affinedp_ledger",
    "UPDATE affinedp_event SET body = ''",
    "DELETE FROM affinedp_event",
]


def test_a_user_needs_no_more_rights_than_the_manual_says(roles):
    program, auditor = roles
    with opened(program) as ledger:
        ledger.settle(charge(ledger, "laplace", 0.1))
        assert (len(ledger.history()), ledger.check()) == (1, ())
    with opened(auditor) as ledger:
        assert (len(ledger.history()), ledger.check()) == (1, ())
        with pytest.raises(LedgerError, match="permission denied"):
            charge(ledger, "laplace", 0.1)
    with psycopg.connect(program, autocommit=True) as connection:
        for change in FORBIDDEN:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change)
    with pytest.raises(LedgerError, match="permission denied"):
        adp.Ledger(f"{program}#new", **CAP)


def test_a_row_that_nobody_can_hold_is_not_charged(database):
    address, connection = database
    adp.Ledger(address, **CAP).close()
    connection.execute("DROP ROLE IF EXISTS reader")
    connection.execute("CREATE ROLE reader LOGIN")
    connection.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO reader")
    connection.execute("ALTER TABLE affinedp_ledger ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY look ON affinedp_ledger FOR SELECT USING (true)")
    with opened(address.replace("postgres@", "reader@")) as ledger:
        assert ledger.spent == 0.0
        with pytest.raises(LedgerError, match="cannot be held"):
            charge(ledger, "laplace", 0.1)
        assert ledger.check() == ()


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
            charge(ledger, "laplace", 0.1)
        connection.execute(f"DROP TRIGGER swallow ON {table}")
        charge(ledger, "laplace", 0.1)
        assert ledger.check() == ()


# ---------------------------------------------------------------------- what may be forgotten


@pytest.mark.parametrize("table", ["affinedp_ledger", "affinedp_event"])
def test_tables_that_a_crash_empties_are_not_charged(database, table):
    address, connection = database
    with adp.Ledger(address, **CAP) as ledger:
        if table == "affinedp_ledger":
            connection.execute("ALTER TABLE affinedp_event SET UNLOGGED")  # it refers to the other
        connection.execute(f"ALTER TABLE {table} SET UNLOGGED")
        for refused in (
            lambda: charge(ledger, "laplace", 0.1),
            lambda: adp.Ledger(f"{address}#new", **CAP),
            lambda: opened(address),
        ):
            with pytest.raises(LedgerError, match="is emptied"):
                refused()
        connection.execute(f"ALTER TABLE {table} SET LOGGED")
        connection.execute("ALTER TABLE affinedp_event SET LOGGED")
        charge(ledger, "laplace", 0.1)
    assert connection.execute("SELECT count(*) FROM affinedp_ledger").fetchone() == (1,)


def test_a_server_that_becomes_unsafe_is_not_charged(database):
    address, connection = database
    with adp.Ledger(address, **CAP) as ledger:
        set_on_server(connection, "fsync", "off")
        try:
            for refused in (
                lambda: charge(ledger, "laplace", 0.1),
                lambda: adp.Ledger(f"{address}#new", **CAP),
                lambda: opened(address),
            ):
                with pytest.raises(LedgerError, match="fsync"):
                    refused()
        finally:
            set_on_server(connection, "fsync", "on")
        assert ledger.spent == 0.0
    assert connection.execute("SELECT count(*) FROM affinedp_ledger").fetchone() == (1,)


@contextlib.contextmanager
def _no_replica(address: str, way: str = "cancel"):
    """A server that waits for a replica that never answers, and is told not to, again and again."""
    with psycopg.connect(address, autocommit=True) as connection:
        set_on_server(connection, "synchronous_standby_names", "absent")
        done = threading.Event()

        def stop_waiting() -> None:
            ways = [way]
            with psycopg.connect(address, autocommit=True) as other:
                while not done.wait(0.02):
                    found = other.execute(
                        f"SELECT pg_{ways[-1]}_backend(pid) FROM pg_stat_activity "
                        "WHERE wait_event = 'SyncRep'"
                    ).fetchall()
                    if found and way == "terminate":
                        ways.append("cancel")  # the look for the event waits, too

        thread = threading.Thread(target=stop_waiting)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30)
            set_on_server(connection, "synchronous_standby_names", "")


@pytest.mark.parametrize("way", ["cancel", "terminate"])
def test_a_charge_that_no_replica_has_is_not_answered(database, tmp_path, way):
    """The server warns, and confirms; nobody can ask not to hear of it."""
    address, _ = database
    deaf = f"{address}?options=-cclient_min_messages%3Derror"
    with adp.Ledger(deaf, **CAP) as ledger, adp.Ledger(tmp_path / "l.db", **CAP) as file:
        with _no_replica(address, way):
            with pytest.raises(LedgerError, match="synchronous replication.*it counts"):
                charge(ledger, "laplace", 0.25)
            if way == "cancel":
                with pytest.raises(LedgerError, match="synchronous replication.*try again"):
                    adp.Ledger(f"{deaf}#new", **CAP)
                with pytest.raises(LedgerError, match="synchronous replication.*try again"):
                    file.export(f"{deaf}#moved")
        assert ledger.spent == 0.25
        if way == "cancel":
            with pytest.raises(LedgerError, match="it is this one"):
                file.export(f"{deaf}#moved")


# ---------------------------------------------------------------------- servers that crash


@pytest.mark.slow
def test_a_killed_server_forgets_nothing():
    server = Server()
    try:
        with adp.Ledger(server.url(), **(CAP | {"epsilon": 100.0})) as ledger:
            told = []
            for _ in range(3):
                told += [charge(ledger, "laplace", 1 / 512) for _ in range(20)]
                server.kill()
                with pytest.raises(LedgerError):
                    charge(ledger, "laplace", 1 / 512)
                server.start()
                assert len(ledger.history()) == len(told)  # it finds the server again
            assert {entry.id for entry in ledger.history()} == set(told)
            assert ledger.check() == ()
    finally:
        server.stop()


class Relay:
    """Passes everything on to the server, until the client says a word."""

    def __init__(self, port: int, word: bytes, cut: bool, forward: bool = False) -> None:
        self._port, self._word, self._cut, self._forward = port, word, cut, forward
        self.armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not (self.armed and self._word in data):
                    other.sendall(data)
                elif self._cut:
                    self.armed = False
                    one.shutdown(socket.SHUT_RDWR)  # the answer never arrives
                    if self._forward:
                        other.sendall(data)
                        time.sleep(0.5)
                    break
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def through(self, address: str) -> str:
        """The same address by way of this relay."""
        return address.replace(str(self._port), str(self.port))

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_connection_that_breaks_in_the_commit(server, database, arrives):
    adp.Ledger(database[0], **CAP).close()
    relay = Relay(server.port, b"COMMIT\0", cut=True, forward=arrives)
    try:
        with opened(relay.through(database[0])) as ledger:
            relay.armed = True
            if arrives:  # the charge was kept though nobody heard so: it counts, and it is known
                ledger.settle(charge(ledger, "laplace", 0.25))
            else:
                with pytest.raises(LedgerError, match="nothing was charged"):
                    charge(ledger, "laplace", 0.25)
            assert ledger.spent == (0.25 if arrives else 0.0)
            assert ledger.check() == ()
    finally:
        relay.close()


def test_a_program_that_falls_silent_does_not_hold_the_ledger(server, database, monkeypatch):
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 2)
    adp.Ledger(database[0], **CAP).close()
    relay = Relay(server.port, b"INSERT INTO affinedp_event", cut=False)
    refused: list[str] = []

    def silent() -> None:
        try:
            with opened(relay.through(database[0])) as ledger:
                relay.armed = True
                ledger.charge(QUARTER, fingerprint="lost")
        except LedgerError as error:
            refused.append(str(error))

    thread = threading.Thread(target=silent, daemon=True)
    thread.start()
    while not relay.armed:
        time.sleep(0.01)
    time.sleep(0.3)
    with opened(database[0]) as ledger:
        ledger.charge(QUARTER, fingerprint="waited")  # the silent one is cut off in time
        thread.join(30)
        assert refused
        assert "lost" not in {entry.fingerprint for entry in ledger.history()}
    relay.close()


def test_a_fate_that_cannot_be_found_out_may_count(database, monkeypatch):
    """The connection breaks in the commit, and again while the event is looked for."""
    with adp.Ledger(database[0], **CAP) as ledger:

        def broken(*_):
            raise psycopg.OperationalError("gone\n\tfor good")

        with monkeypatch.context() as patch:
            patch.setattr(postgres, "commit", broken)
            patch.setattr(postgres.ServerTransaction, "is_there", broken)
            with pytest.raises(LedgerError, match="gone for good.*may have been kept") as refused:
                charge(ledger, "laplace", 0.1)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("words", ["ROLLBACK", "SELECT 1/0"])
def test_a_transaction_that_others_ended_is_no_charge(database, monkeypatch, words):
    with adp.Ledger(database[0], **CAP) as ledger:
        add = postgres.ServerTransaction.add

        def ended(self, row) -> None:
            add(self, row)
            with contextlib.suppress(psycopg.Error):
                self._connection.execute(words)

        with monkeypatch.context() as patch:
            patch.setattr(postgres.ServerTransaction, "add", ended)
            with pytest.raises(LedgerError, match="nothing was charged"):
                charge(ledger, "laplace", 0.25)
        assert ledger.spent == 0.0
        charge(ledger, "laplace", 0.25)
    assert count(database[0]) == 1


def test_a_silent_network_is_noticed_unless_the_address_says_otherwise(database):
    for words, expected in (
        ("", ("30000", "10")),
        ("?tcp_user_timeout=5000&keepalives_idle=7", ("5000", "7")),
    ):
        with postgres.connected(database[0] + words, "name") as connection:
            used = connection.info.get_parameters()
        assert (used["tcp_user_timeout"], used["keepalives_idle"]) == expected


# ---------------------------------------------------------------------- nobody waits for ever


@pytest.mark.parametrize("what", ["open", "look", "create", "export", "tables"])
def test_no_lock_is_waited_for_without_end(database, monkeypatch, tmp_path, what):
    monkeypatch.setattr(events, "LOCK_SECONDS", 1)
    address, connection = database
    with adp.Ledger(tmp_path / "l.db", **CAP) as file:
        if what == "tables":  # somebody makes them
            connection.execute(f"SELECT pg_advisory_lock({0x61644450})")
        else:
            ledger = adp.Ledger(address, **CAP)
            connection.execute("BEGIN")
            connection.execute("LOCK TABLE affinedp_ledger IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="try again"):
            {
                "open": lambda: opened(address),
                "look": lambda: ledger.spent,
                "create": lambda: adp.Ledger(f"{address}#new", **CAP),
                "export": lambda: file.export(f"{address}#new"),
                "tables": lambda: adp.Ledger(address, **CAP),
            }[what]()
        assert file.moved_to is None


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
            charge(ledger, "laplace", 0.25)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert "under way" in refused[0]
        assert ledger.spent == 0.25


@pytest.mark.parametrize("where", ["connected", "commit", "roll_back"])
def test_a_signal_at_the_edge_of_a_transaction_is_refused(database, monkeypatch, where):
    with adp.Ledger(database[0], **CAP) as ledger:
        refused: list[str] = []

        def handler(*_) -> None:
            try:
                charge(ledger, "laplace", 0.1)
            except LedgerError as error:
                refused.append(str(error))

        real = getattr(postgres, where)

        def interrupted(*given, **more):
            with monkeypatch.context() as patch:
                patch.setattr(postgres, where, real)
                signal.raise_signal(signal.SIGUSR1)
            return real(*given, **more)

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(postgres, where, interrupted)
                charge(ledger, "laplace", 0.25)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert refused
        assert all("under way" in words for words in refused)
        assert ledger.spent == 0.25
