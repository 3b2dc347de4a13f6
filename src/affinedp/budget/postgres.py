"""Ledgers on a PostgreSQL server, for programs on many machines.

Whoever charges locks the ledger's row first (``SELECT … FOR UPDATE``).  A row lock rather than
SERIALIZABLE transactions: every charge must see all earlier ones anyway, so transactions that run
side by side would only fail and be repeated, while those that queue for a row are each done once.

Every look and every charge has a connection of its own: none is shared by a fork or left in the
middle, and a server that was restarted between two calls is no trouble.  Nobody waits for ever.
Locks are waited for up to ``LOCK_SECONDS``; a program that falls silent in the middle of a
transaction is cut off before that; and a network that falls silent is noticed by both sides.

The commit waits for the disk and the replicas whatever the server's default is.  If the connection
breaks while it is under way, nobody knows whether it happened.  Then the row is locked over a new
connection, which waits for the old transaction to end, and the event is looked for.  Found, it
counts as charged; not found, it is refused.  Both are safe: noise is drawn only after a charge that
was seen.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from affinedp.budget import events
from affinedp.budget.address import ENCODE, is_server, parts_of, without_password
from affinedp.budget.events import (
    STOP,
    Events,
    LedgerError,
    Row,
    State,
    Stated,
    Store,
    next_row,
)
from affinedp.budget.filters import Filter
from affinedp.budget.sqlite import FileStore
from affinedp.errors import MissingExtraError
from affinedp.files.database import leave_to_the_parent

if TYPE_CHECKING:
    import psycopg

# Who falls silent while others wait is ended before they give up.
IDLE_SECONDS = 20
ATTEMPTS = 5
_STARTING = ("starting up", "recovery", "not yet accepting connections")
# libpq waits for a silent network for hours; what the address says comes first
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_TABLES = """
    CREATE TABLE IF NOT EXISTS affinedp_ledger (
        name text PRIMARY KEY, header text NOT NULL, events bigint NOT NULL, head text NOT NULL);
    CREATE TABLE IF NOT EXISTS affinedp_event (
        ledger text NOT NULL REFERENCES affinedp_ledger (name),
        number bigint NOT NULL, body text NOT NULL, hash text NOT NULL,
        PRIMARY KEY (ledger, number));
"""
_TABLES_LOCK = 0x61644450  # "adDP"
_FEW = 5  # names that a refusal lists
_MAY_COUNT = "The charge may have been kept; if so, it counts though nothing was released"


class ServerStore(Store):
    """A ledger on a server, at ``postgresql://…#name``."""

    def __init__(self, url: str) -> None:
        self._libpq, self._ledger, self.name = parts_of(url)
        self.address = without_password(url)

    def exists(self) -> bool:
        """Whether the server has this ledger."""
        with self.kept(reading=True) as found:
            return found.has_tables() and found.header() is not None

    def missing(self) -> str:
        """Say that the server does not have it, and which of its names may be meant."""
        missing = f"there is no ledger {self.address}"
        with self.kept(reading=True) as there:
            names = there.names()
        close = difflib.get_close_matches(self._ledger, names, _FEW)
        if close:
            return f"{missing}; did you mean {' or '.join(map(repr, close))}?"
        if names:
            more = ", …" if len(names) > _FEW else ""
            return f"{missing}; those that are there: {', '.join(map(repr, names[:_FEW]))}{more}"
        return f"{missing}, nor any other in this database"

    def create(self, wanted: Filter, protects: str) -> None:
        """Make the tables if need be, and a new ledger; one that exists stays as it is."""
        with self.kept() as new:
            new.make_tables()
            new.insert(events.new_header(wanted, protects, new.place()))

    @contextmanager
    def kept(self, *, reading: bool = False) -> Iterator[ServerTransaction]:
        """A transaction without the ledger's row: all of it is kept for good, or it is refused."""
        with session(self._libpq, self.name, reading=reading) as connection:
            yield ServerTransaction(connection, self._ledger, self.name)
            done, warning = commit(connection)
        if warning or not done:
            raise LedgerError(
                f"{self.name}: {warning or 'its transaction was ended by another hand'}. It may "
                "have been kept all the same, and be lost again if another server takes over: try "
                "again"
            )

    @contextmanager
    def transaction(self, write: bool) -> Iterator[ServerTransaction]:
        """All at one moment; with the only right to write, all of it is kept or nothing."""
        with session(self._libpq, self.name, reading=not write) as connection:
            found = ServerTransaction(connection, self._ledger, self.name)
            if write:
                found.hold()
            yield found
            if write:
                self._commit(connection, found.added)

    def _commit(self, connection: psycopg.Connection[Any], added: list[Row]) -> None:
        import psycopg

        nothing = f"{self.name}: its transaction was ended by another hand; nothing was charged"
        status = psycopg.pq.TransactionStatus
        if connection.info.transaction_status in (status.IDLE, status.INERROR):
            raise LedgerError(nothing)
        try:
            done, warning = commit(connection)
        except psycopg.OperationalError as error:
            connection.close()
            if not (added and self._was_kept(added[-1])):
                raise LedgerError(
                    f"{self.name}: the connection broke before the charge was kept "
                    f"({_words_of(error)}); nothing was charged"
                ) from None
            return
        if not done:
            raise LedgerError(nothing)
        if warning:
            raise LedgerError(f"{self.name}: {warning}. {_MAY_COUNT}")

    def _was_kept(self, row: Row) -> bool:
        """Whether the event of a broken transaction is there; wait until that is certain."""
        try:
            with self.transaction(write=True) as again:
                return again.is_there(row)
        except LedgerError as error:
            words = str(error)
            words = words if _MAY_COUNT in words else f"{words}. {_MAY_COUNT}"
            raise LedgerError(words, unreachable=error.unreachable) from None


class ServerTransaction(events.Transaction):
    """One look at a ledger on a server, or one change of it."""

    def __init__(self, connection: psycopg.Connection[Any], ledger: str, name: str) -> None:
        self._connection, self._ledger, self._name = connection, ledger, name
        self.added: list[Row] = []

    def _ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def hold(self) -> None:
        """Lock the ledger's row, and look whether what is written now will last."""
        query = "SELECT 1 FROM affinedp_ledger WHERE name = %s FOR UPDATE"
        if self._ask(query, self._ledger) != [(1,)]:  # removed, or a row policy: nobody would wait
            raise LedgerError(f"{self._name} cannot be held by this user{STOP}")
        self.check()

    def rows(self, after: int) -> tuple[list[Row], Stated]:
        """Return the events after a number, and what is stated of all of them."""
        query = "SELECT number, body, hash FROM affinedp_event WHERE ledger = %s AND number > %s "
        found: Any = self._ask(query + "ORDER BY number", self._ledger, after)
        query = "SELECT header, events, head FROM affinedp_ledger WHERE name = %s"
        stated: Any = self._ask(query, self._ledger)
        if not stated:
            raise LedgerError(f"there is no ledger {self._name}")
        return found, stated

    def add(self, *rows: Row) -> None:
        """Write events."""
        insert = "INSERT INTO affinedp_event VALUES (%s, %s, %s, %s)"
        with self._connection.cursor() as cursor:
            if len(rows) == 1:
                cursor.execute(insert, (self._ledger, *rows[0]))
            else:
                cursor.executemany(insert, [(self._ledger, *row) for row in rows])
            kept = cursor.rowcount
        counted = self._connection.execute(
            "UPDATE affinedp_ledger SET events = %s, head = %s WHERE name = %s",
            (rows[-1][0], rows[-1][2], self._ledger),
        )
        if (kept, counted.rowcount) != (len(rows), 1):  # a trigger or a rule of the tables
            raise LedgerError(f"{self._name}: the server kept no event; nothing was charged")
        self.added += rows

    def is_there(self, row: Row) -> bool:
        """Whether an event was kept."""
        query = "SELECT 1 FROM affinedp_event WHERE ledger = %s AND number = %s AND hash = %s"
        found = self._ask(query, self._ledger, row[0], row[2])
        # seen is not yet safe: what is committed after it is kept no longer than it is
        query = "UPDATE affinedp_ledger SET head = head WHERE name = %s"
        self._connection.execute(query, (self._ledger,))
        return bool(found)

    def _here(self, what: str) -> tuple[Any, ...]:
        """The cluster, the database, and something in it, as the server resolves them."""
        (row,) = self._ask(
            f"SELECT (SELECT system_identifier FROM pg_control_system()), oid, {what} "
            "FROM pg_database WHERE datname = current_database()"
        )
        return row

    def place(self) -> str:
        """The cluster, the database, the table and the ledger; a restored dump has another one."""
        row = self._here("to_regclass('affinedp_ledger')::oid")
        return hashlib.sha256(f"{row}\n{self._ledger}".encode()).hexdigest()

    def target(self) -> str:
        """Where a ledger would be; unlike its place it stays if the tables are made anew."""
        server, database, schema = self._here(
            "coalesce((SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = "
            "relnamespace WHERE pg_class.oid = to_regclass('affinedp_ledger')), current_schema())"
        )
        return f"server {server}, database {database}, schema {schema}, ledger {self._ledger}"

    def check(self) -> None:
        """Refuse a server, or tables, that may forget what was confirmed."""
        ((synced, lost),) = self._ask(
            "SELECT current_setting('fsync'), (SELECT min(relname::text) FROM pg_class WHERE oid "
            "IN (to_regclass('affinedp_ledger'), to_regclass('affinedp_event')) "
            "AND relpersistence <> 'p')"
        )
        if synced != "on":
            raise LedgerError(
                f"{self._name}: the server runs with fsync = off and may forget charges when it "
                "crashes; turn it on"
            )
        if lost is not None:
            raise LedgerError(
                f"{self._name}: the table {lost} is emptied when the server crashes, and charges "
                "with it: ALTER TABLE … SET LOGGED"
            )

    def try_to_add(self) -> None:
        """Add an event and take it back, to see whether this user may."""
        self._connection.execute("SAVEPOINT tried")
        self.add((1, "", ""))
        self._connection.execute("ROLLBACK TO SAVEPOINT tried")
        self.added.clear()

    def header(self) -> str | None:
        """The header of the ledger, or None if there is none."""
        found = self._ask("SELECT header FROM affinedp_ledger WHERE name = %s", self._ledger)
        return str(found[0][0]) if found else None

    def insert(self, header: str) -> bool:
        """Add a ledger without events; False if there is one, after waiting for who makes it."""
        made = self._connection.execute(
            "INSERT INTO affinedp_ledger VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING",
            (self._ledger, header, State.from_header(header).head),
        )
        return made.rowcount == 1

    def make_tables(self) -> None:
        """Make the tables, one program at a time; who finds them need not be allowed to."""
        self.check()
        if self.has_tables():
            return
        self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLES_LOCK,))
        if not self.has_tables():  # under the lock: another user may just have made them
            self._connection.execute(_TABLES)

    def has_tables(self) -> bool:
        """Whether there are tables; those that this user's search_path does not find are refused.

        New ones in another schema would be a second budget.
        """
        if self._ask("SELECT to_regclass('affinedp_ledger')") != [(None,)]:
            return True
        hidden = self._ask(
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relname = 'affinedp_ledger' AND relpersistence <> 't' AND NOT "
            "pg_table_is_visible(pg_class.oid) LIMIT 1"
        )
        if hidden:
            raise LedgerError(
                f"{self._name}: the schema {hidden[0][0]!r} of this database has ledgers, and the "
                "search_path of this user does not find them (new ones in another schema would "
                "not know their charges): put it into the search_path"
            )
        return False

    def names(self) -> list[str]:
        """The ledgers of this database, as far as this user finds them."""
        if not self.has_tables():
            return []
        found = self._ask("SELECT name FROM affinedp_ledger ORDER BY name LIMIT 1000")
        return [str(name) for (name,) in found]


# ---------------------------------------------------------------------- connections, transactions


@contextmanager
def session(libpq: str, name: str, *, reading: bool) -> Iterator[psycopg.Connection[Any]]:
    """A connection in a transaction, which is undone unless it was committed inside."""
    connection, process = connected(libpq, name), os.getpid()
    kind = "REPEATABLE READ READ ONLY" if reading else "READ COMMITTED"
    try:
        with _refusals(name):
            connection.execute(
                f"BEGIN ISOLATION LEVEL {kind}; SET LOCAL synchronous_commit = on; SET LOCAL "
                f"client_min_messages = warning; SET LOCAL lock_timeout = '{events.LOCK_SECONDS}s';"
                f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
            )
            yield connection
    finally:
        if os.getpid() == process:
            roll_back(connection)  # nobody waits for a lock that is not used
            connection.close()
        else:
            leave_to_the_parent(connection)


def connected(libpq: str, name: str) -> psycopg.Connection[Any]:
    """Return an open connection; a server that is just starting is waited for."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    failure = ""
    for attempt in range(ATTEMPTS):
        try:
            # autocommit: transactions are begun and ended in words, as for the file; nothing is
            # prepared, since behind a pool the next transaction may be on another connection;
            # and one encoding for all, or a name would be two names where the server has none
            settings: dict[str, Any] = {**_PATIENCE, **conninfo_to_dict(libpq)}
            settings["client_encoding"] = "UTF8"
            return psycopg.connect(autocommit=True, prepare_threshold=None, **settings)
        except psycopg.OperationalError as error:
            failure = _words_of(error)
            if not any(words in failure for words in _STARTING):
                break
            time.sleep(0.2 * 2**attempt)
        except psycopg.Error:  # its words may be those of the password
            failure = f"its address is not one. {ENCODE}"
            break
    raise LedgerError(f"{name} cannot be reached: {failure}", unreachable=True)


def commit(connection: psycopg.Connection[Any]) -> tuple[bool, str]:
    """Commit; return whether there was anything to commit, and what the server warns of.

    A server that gives up waiting for its replicas warns, and confirms: what it confirmed would be
    forgotten if one of them took over.
    """
    warned: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warned.append(str(notice.message_primary))

    connection.add_notice_handler(listen)
    done = connection.execute("COMMIT").statusmessage == "COMMIT"
    return done, warned[0] if warned else ""


def roll_back(connection: psycopg.Connection[Any]) -> None:
    """End a transaction, if there is one."""
    import psycopg

    try:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
    except psycopg.Error:
        pass  # it is closed next


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Turn the server's errors into refusals."""
    import psycopg

    try:
        yield
    except psycopg.errors.LockNotAvailable:
        raise LedgerError(
            f"{name}: another program has held it for {events.LOCK_SECONDS} s; try again",
            unreachable=True,
        ) from None
    except psycopg.OperationalError as error:
        raise LedgerError(f"{name}: {_words_of(error)}{STOP}", unreachable=True) from None
    except psycopg.Error as error:
        raise LedgerError(f"{name}: {_words_of(error)}{STOP}") from None


def _words_of(error: psycopg.Error) -> str:
    """What an error says, on one line."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__


# ---------------------------------------------------------------------- from a file to a server


def move_to_server(events: Events, url: str) -> None:
    """Move a ledger from its file to ``postgresql://…``: never two of them that can be charged.

    The name on the server is held first, in a transaction that tries everything that may be
    refused, so that a wrong address costs nothing.  Then the file is closed for charges, and says
    where it goes: not only by the address, which leaves much to the surroundings (PGDATABASE, a
    service), but by what the server itself says.  Then the copy is kept.  A crash in between leaves
    a ledger that nobody can charge, and moving it again to the same address goes on from there.
    """
    if not isinstance(events.store, FileStore) or not is_server(url):
        raise LedgerError("a ledger is moved from a file to a postgresql:// address")
    store = ServerStore(url)
    shown = store.address
    with store.kept() as tables:
        tables.make_tables()  # kept at once: another name may be held in the same database
    with store.kept() as now:
        now.check()
        target = now.target()
        if not now.insert(events.state.header):
            raise LedgerError(_already_there(events, now, target, shown))
        now.try_to_add()
        _close_file(events, target, shown)
        _copy(events, now)
    _note_arrival(events, target, shown)


def _already_there(events: Events, now: ServerTransaction, target: str, shown: str) -> str:
    """Why nothing moves: the ledger is there, perhaps by a move of which nobody heard the end."""
    there = "there is a ledger at this address; "
    if now.header() != events.state.header:
        return there + "name another one after #"
    with events.reading():
        exported, before = events.state.exported, events.state.target
    if exported is None:
        return there + (
            "it is this one, and the file is an older copy of it that does not know of its move: "
            "charge the one on the server only"
        )
    if before != target:
        return (
            f"there is a copy of this ledger at this address, and it was moved to {exported}: "
            "charge that one only"
        )
    _note_arrival(events, target, shown)
    return there + "it is this one, so open it there"


def _close_file(events: Events, target: str, shown: str) -> None:
    """Close the file for charges, for this one target.

    Another address is never taken instead: it may lead to a copy of the whole server.
    """
    with events.writing() as now:
        state, name = events.state, events.store.name
        if not state.arrived and state.place != now.place():
            raise LedgerError(
                f"{name} was moved or copied itself, and charges may be missing here: if they are "
                "not, call acknowledge_move() first"
            )
        if state.exported is None:
            events.append(now, "export", to=shown, target=target, arrived=False)
        elif (state.exported, state.target) != (shown, target):
            raise LedgerError(
                f"{name} was moved to {state.exported} before ({state.target}), and this address "
                f"leads elsewhere ({target}), or is written in another way"
            )
        elif state.arrived:
            raise LedgerError(
                f"{name} was moved to {state.exported}, and is not there any more: this file does "
                "not know what was charged there since, so bring back the server's own"
            )


def _copy(events: Events, there: ServerTransaction) -> None:
    """Write all events, and one that says where the ledger is from now on."""
    with events.reading() as now:
        last = next_row(events.state, "import", place=there.place())
        there.add(*now.rows(0)[0], last)


def _note_arrival(events: Events, target: str, shown: str) -> None:
    """From now on the server may know of charges that the file does not."""
    with events.writing() as now:
        if not events.state.arrived:
            events.append(now, "export", to=shown, target=target, arrived=True)
