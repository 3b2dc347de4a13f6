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
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    leave_to_the_parent,
    next_row,
)
from affinedp.budget.filters import Filter
from affinedp.budget.sqlite import FileStore
from affinedp.errors import MissingExtraError

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

    def hold(self) -> None:
        """Lock the ledger's row, and look whether what is written now will last."""
        held = self._connection.execute(
            "SELECT 1 FROM affinedp_ledger WHERE name = %s FOR UPDATE", (self._ledger,)
        )
        if held.fetchall() != [(1,)]:  # removed, or a row policy: nobody would wait
            raise LedgerError(f"{self._name} cannot be held by this user{STOP}")
        self.check()

    def rows(self, after: int) -> tuple[list[Row], Stated]:
        """Return the events after a number, and what is stated of all of them."""
        found = self._connection.execute(
            "SELECT number, body, hash FROM affinedp_event WHERE ledger = %s AND number > %s "
            "ORDER BY number",
            (self._ledger, after),
        ).fetchall()
        stated = self._connection.execute(
            "SELECT header, events, head FROM affinedp_ledger WHERE name = %s", (self._ledger,)
        ).fetchall()
        if not stated:
            raise LedgerError(f"there is no ledger {self._name}")
        return found, stated

    def add(self, row: Row) -> None:
        """Write one event."""
        self.add_all([row])

    def add_all(self, rows: list[Row]) -> None:
        """Write several events."""
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
        found = self._connection.execute(
            "SELECT 1 FROM affinedp_event WHERE ledger = %s AND number = %s AND hash = %s",
            (self._ledger, row[0], row[2]),
        ).fetchone()
        # seen is not yet safe: what is committed after it is kept no longer than it is
        self._connection.execute(
            "UPDATE affinedp_ledger SET head = head WHERE name = %s", (self._ledger,)
        )
        return found is not None

    def place(self) -> str:
        """The cluster, the database, the table and the ledger; a restored dump has another one."""
        row = self._connection.execute(
            "SELECT (SELECT system_identifier FROM pg_control_system()), oid, "
            "to_regclass('affinedp_ledger')::oid FROM pg_database "
            "WHERE datname = current_database()"
        ).fetchone()
        return hashlib.sha256(f"{row}\n{self._ledger}".encode()).hexdigest()

    def target(self) -> str:
        """Where a ledger would be; unlike its place it stays if the tables are made anew."""
        row = self._connection.execute(
            "SELECT (SELECT system_identifier FROM pg_control_system()), oid, coalesce((SELECT "
            "nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE "
            "pg_class.oid = to_regclass('affinedp_ledger')), current_schema()) FROM pg_database "
            "WHERE datname = current_database()"
        ).fetchone()
        server, database, schema = row or ("", "", "")
        return f"server {server}, database {database}, schema {schema}, ledger {self._ledger}"

    def check(self) -> None:
        """Refuse a server, or tables, that may forget what was confirmed."""
        synced, lost = self._connection.execute(
            "SELECT current_setting('fsync'), (SELECT min(relname::text) FROM pg_class WHERE oid "
            "IN (to_regclass('affinedp_ledger'), to_regclass('affinedp_event')) "
            "AND relpersistence <> 'p')"
        ).fetchone() or ("", None)
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
        self.add_all([(1, "", "")])
        self._connection.execute("ROLLBACK TO SAVEPOINT tried")
        self.added.clear()

    def lock(self, key: int) -> bool:
        """Take a lock of this server and database until the end; False if another has it."""
        row = self._connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (key,)).fetchone()
        return row == (True,)

    def header(self) -> str | None:
        """The header of the ledger, or None if there is none."""
        query = "SELECT header FROM affinedp_ledger WHERE name = %s"
        row = self._connection.execute(query, (self._ledger,)).fetchone()
        return None if row is None else str(row[0])

    def insert(self, header: str) -> bool:
        """Add a ledger without events; False if there is one, after waiting for who makes it."""
        made = self._connection.execute(
            "INSERT INTO affinedp_ledger VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING",
            (self._ledger, header, State.from_header(header).head),
        )
        return made.rowcount == 1

    def make_tables(self) -> None:
        """Make the tables, one program at a time; who finds them need not be allowed to."""
        if self.has_tables():
            return
        self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLES_LOCK,))
        if not self.has_tables():  # under the lock: another user may just have made them
            self._connection.execute(_TABLES)

    def has_tables(self) -> bool:
        """Whether there are tables; those that this user's search_path does not find are refused.

        New ones in another schema would be a second budget.
        """
        found = self._connection.execute("SELECT to_regclass('affinedp_ledger')").fetchone()
        if found is not None and found[0] is not None:
            return True
        row = self._connection.execute(
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relname = 'affinedp_ledger' AND relpersistence <> 't' AND NOT "
            "pg_table_is_visible(pg_class.oid) LIMIT 1"
        ).fetchone()
        if row is not None:
            raise LedgerError(
                f"{self._name}: the schema {row[0]!r} of this database has ledgers, and the "
                "search_path of this user does not find them (new ones in another schema would "
                "not know their charges): put it into the search_path"
            )
        return False


# ---------------------------------------------------------------------- ledgers that are looked for


def exists_on_server(url: str) -> bool:
    """Return whether the server has this ledger."""
    with _at(url, reading=True) as found:
        return found.has_tables() and found.header() is not None


def missing_on_server(url: str) -> str:
    """Say that the server does not have a ledger, and which of its names may be meant."""
    libpq, ledger, name = parts_of(url)
    missing = f"there is no ledger {without_password(url)}"
    with session(libpq, name, reading=True) as connection:
        names: list[str] = []
        if ServerTransaction(connection, ledger, name).has_tables():
            found = connection.execute("SELECT name FROM affinedp_ledger ORDER BY name LIMIT 1000")
            names = [str(row[0]) for row in found]
    close = difflib.get_close_matches(ledger, names, _FEW)
    if close:
        return f"{missing}; did you mean {' or '.join(map(repr, close))}?"
    if names:
        more = ", …" if len(names) > _FEW else ""
        return f"{missing}; those that are there: {', '.join(map(repr, names[:_FEW]))}{more}"
    return f"{missing}, nor any other in this database"


def create_on_server(url: str, wanted: Filter, protects: str) -> None:
    """Make the tables if need be, and a new ledger; one that exists stays as it is."""
    with _at(url) as new:
        new.check()
        new.make_tables()
        new.insert(events.new_header(wanted, protects, new.place()))


@dataclass(frozen=True)
class NewLedger:
    """A name on a server that nobody else can take before this transaction ends."""

    # that transaction
    now: ServerTransaction
    # server, database, schema and name, as the server resolved them, whatever the address left to
    # the surroundings
    target: str
    # the header of the ledger that has this name already
    found: str | None


@contextmanager
def new_on_server(url: str, header: str) -> Iterator[NewLedger]:
    """Hold a name for a ledger that moves there; everything that may be refused is tried first."""
    with _at(url) as tables:
        tables.check()
        tables.make_tables()  # kept at once: another name may be held in the same database
    with _at(url) as now:
        now.check()
        found = None if now.insert(header) else now.header()
        if found is None:
            now.try_to_add()
        yield NewLedger(now, now.target(), found)


def target_on_server(url: str, new: NewLedger) -> tuple[str, bool]:
    """Return where an address leads now, and whether to the server of a name that is held.

    A copy of a whole server calls itself the same; but a lock that is held on one is free on the
    other.
    """
    key = secrets.randbits(62)
    new.now.lock(key)
    with _at(url, reading=True) as there:
        return there.target(), not there.lock(key)


# ---------------------------------------------------------------------- connections, transactions


@contextmanager
def _at(url: str, *, reading: bool = False) -> Iterator[ServerTransaction]:
    """A transaction at an address: all of it is kept for good, or it is refused."""
    libpq, ledger, name = parts_of(url)
    with session(libpq, name, reading=reading) as connection:
        yield ServerTransaction(connection, ledger, name)
        done, warning = commit(connection)
    if warning or not done:
        raise LedgerError(
            f"{name}: {warning or 'its transaction was ended by another hand'}. It may have "
            "been kept all the same, and be lost again if another server takes over: try again"
        )


@contextmanager
def session(libpq: str, name: str, *, reading: bool) -> Iterator[psycopg.Connection[Any]]:
    """A connection in a transaction, which is undone unless it was committed inside."""
    connection, process = connected(libpq, name), os.getpid()
    try:
        with _refusals(name):
            begin(connection, reading=reading)
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


def begin(connection: psycopg.Connection[Any], *, reading: bool) -> None:
    """Begin a transaction with all its settings, or a look at one moment."""
    kind = "REPEATABLE READ READ ONLY" if reading else "READ COMMITTED"
    connection.execute(
        f"BEGIN ISOLATION LEVEL {kind}; SET LOCAL synchronous_commit = on; SET LOCAL "
        f"client_min_messages = warning; SET LOCAL lock_timeout = '{events.LOCK_SECONDS}s'; "
        f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
    )


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


def move_to_server(events: Events, url: str) -> None:
    """Move a ledger from its file to ``postgresql://…``: never two of them that can be charged.

    The name on the server is held first, in a transaction that tries everything that may be
    refused, so that a wrong address costs nothing.  Then the file is closed for charges, and says
    where it goes: not only by the address, which leaves much to the surroundings (PGDATABASE, a
    service), but by what the server itself says.  Then the copy is kept.  A crash in between leaves
    a ledger that nobody can charge, and moving it again to the same place goes on from there.
    """
    if not isinstance(events.store, FileStore) or not is_server(url):
        raise LedgerError("a ledger is moved from a file to a postgresql:// address")
    shown = without_password(url)
    with new_on_server(url, events.state.header) as new:
        if new.found is not None:
            raise LedgerError(_already_there(events, new, shown))
        _close_file(events, new, shown)
        _copy(events, new)
    _note_arrival(events, new, shown)


def _already_there(events: Events, new: NewLedger, shown: str) -> str:
    """Why nothing moves: the ledger is there, perhaps by a move of which nobody heard the end."""
    if new.found != events.state.header:
        return "there is a ledger at this address; name another one after #"
    with events.reading():
        exported, target = events.state.exported, events.state.target
    if exported is None:
        return (
            "there is a ledger at this address; it is this one, and the file is an older copy of "
            "it that does not know of its move: charge the one on the server only"
        )
    if target != new.target:
        return (
            f"there is a copy of this ledger at this address, and it was moved to {exported}: "
            "charge that one only"
        )
    _note_arrival(events, new, shown)
    return "there is a ledger at this address; it is this one, so open it there"


def _close_file(events: Events, new: NewLedger, shown: str) -> None:
    """Close the file for charges, for this one target."""
    with events.writing() as now:
        state = events.state
        if state.arrived:
            raise LedgerError(_arrived_before(events, new))
        if state.place != now.place():
            raise LedgerError(
                f"{events.store.name} was moved or copied itself, and charges may be missing here: "
                "if they are not, call acknowledge_move() first"
            )
        if (state.exported, state.target) == (shown, new.target):
            return
        if state.exported is not None and (doubt := _doubt(state.exported, state, new)):
            raise LedgerError(
                f"{events.store.name} was moved to {state.exported} before ({state.target}): "
                "another target is taken only if the first one can be asked and does not have the "
                f"ledger, but {doubt}"
            )
        events.append(now, "export", to=shown, target=new.target, arrived=False)


def _arrived_before(events: Events, new: NewLedger) -> str:
    state, name = events.state, events.store.name
    if state.target != new.target:
        return f"{name} was moved to {state.exported} before ({state.target})"
    return (
        f"{name} was moved to {state.exported}, and is not there any more: this file does not know "
        "what was charged there since, so bring back the server's own"
    )


def _doubt(first: str, state: State, new: NewLedger) -> str:
    """Why the first target may have the ledger; nothing if it certainly does not.

    The file is held meanwhile, so that nobody goes on with the first move.
    """
    try:
        # looked at before it is held: it may be the new target, which is held already
        target, same_server = target_on_server(first, new)
        if target != state.target:
            return "that address leads elsewhere now"
        if same_server and target == new.target:
            return ""  # another spelling of it; a copy of a whole server is another one
        with new_on_server(first, state.header) as there:
            raise _Seen(there.found)
    except _Seen as seen:
        return "" if seen.found is None else "it is there: open it there"
    except LedgerError as error:
        return str(error)


class _Seen(Exception):
    """Ends the transaction that held a name without keeping anything."""

    def __init__(self, found: str | None) -> None:
        self.found = found


def _copy(events: Events, new: NewLedger) -> None:
    """Write all events, and one that says where the ledger is from now on."""
    with events.reading() as now:
        last = next_row(events.state, "import", place=new.now.place())
        new.now.add_all([*now.rows(0)[0], last])


def _note_arrival(events: Events, new: NewLedger, shown: str) -> None:
    """From now on the server may know of charges that the file does not."""
    with events.writing() as now:
        if not events.state.arrived:
            events.append(now, "export", to=shown, target=new.target, arrived=True)
