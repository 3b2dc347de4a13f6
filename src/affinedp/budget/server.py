"""A ledger on a PostgreSQL server, for programs on many machines.

Whoever charges locks the ledger's row first (``SELECT … FOR UPDATE``).  A row lock rather than
SERIALIZABLE transactions: every charge must see all earlier ones anyway, so transactions that run
side by side would only fail and be repeated, while those that queue for a row are each done once.
The commit waits for the disk whatever the server's default is (``synchronous_commit``).

If the connection breaks while a commit is under way, nobody knows whether it happened.  Then the
row is locked over a new connection, which waits for the old transaction to end, and the event is
looked for.  Found, it counts as charged; not found, it is refused.  Both are safe: noise is drawn
only after a charge that was seen.

Two threads, or a call in the middle of another, would be in one transaction, and the end of one
would end the other's: PostgreSQL commits nothing then and does not say so.  Both are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from affinedp.budget.server_tables import (
    connected,
    parts_of,
    place_on_server,
    version_of_tables,
    without_password,
)
from affinedp.budget.state import LedgerError, Row, State, Stated
from affinedp.budget.store import Store
from affinedp.files.processes import this_process

if TYPE_CHECKING:
    import psycopg

LOCK_SECONDS = 30
Found = TypeVar("Found")
_MAY_COUNT = "The charge may have been kept; if so, it counts though nothing was released"


class ServerStore(Store):
    """A ledger on a server, open.

    Parameters
    ----------
    url : str
        As libpq knows it, TLS settings and service included; the part after # names the ledger.
    """

    def __init__(self, url: str) -> None:
        self._address, self._ledger, self.name = parts_of(url)
        self.address = without_password(url)
        self._process, self._thread = this_process(), threading.get_ident()
        self._charging = False
        self._added: tuple[int, str] | None = None
        self._open: psycopg.Connection[Any] | None = connected(self._address, self.name)
        try:
            self._check_server()
            self.state = self.verified()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Know every event so far; what others add meanwhile does not matter."""
        with self._refusals():
            rows = self._read(lambda connection: self._rows(connection, self.state.events))
            self._take_in(rows)
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""
        with self._refusals():
            connection = self._locked()
            self._charging, self._added = True, None
            try:
                self._take_in(self._rows(connection, self.state.events))
                yield
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                self._charging = False
            self._commit(connection)

    def add_row(self, number: int, body: str, link: str) -> None:
        """Write one event, inside :meth:`writing`."""
        connection = self._ready()
        added = connection.execute(
            "INSERT INTO affinedp_event VALUES (%s, %s, %s, %s)",
            (self._ledger, number, body, link),
        )
        counted = connection.execute(
            "UPDATE affinedp_ledger SET events = %s, head = %s WHERE name = %s",
            (number, link, self._ledger),
        )
        if (added.rowcount, counted.rowcount) != (1, 1):  # a trigger or a rule of the tables
            raise LedgerError(f"{self.name}: the server kept no event; nothing was charged")
        self._added = (number, link)

    def verified(self) -> State:
        """Read and verify everything anew."""
        with self._refusals():
            events, stated = self._read(lambda connection: self._rows(connection, 0))
        if not stated:
            raise LedgerError(f"there is no ledger {self.name}")
        try:
            return State.verified(stated[0][0], events, stated)
        except LedgerError as error:
            raise LedgerError(f"{self.name} cannot be trusted: {error}") from None

    def place(self) -> str:
        """Where it is, as a hash: another one means that it was moved or copied."""
        with self._refusals():
            return self._read(lambda connection: place_on_server(connection, self._ledger))

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None and this_process() == self._process:  # a fork's is its parent's
            self._open.close()
        self._open = None

    def _ready(self) -> psycopg.Connection[Any]:
        """The connection, opened again if it broke between two calls."""
        if self._open is None:
            raise LedgerError(f"{self.name} is closed")
        if this_process() != self._process:
            raise LedgerError(f"{self.name} was opened before a fork: open it again here")
        if threading.get_ident() != self._thread:
            raise LedgerError(f"{self.name} was opened by another thread: open it again here")
        if self._open.closed:
            self._open = connected(self._address, self.name)
        return self._open

    def _idle(self) -> psycopg.Connection[Any]:
        """The connection without a transaction; one that was left in the middle is dropped."""
        import psycopg

        connection = self._ready()
        if self._charging:
            raise LedgerError(f"{self.name}: a charge is under way; do not release")
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
        return self._ready()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn the server's errors into refusals."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise LedgerError(f"{self.name}: {words[0]}; do not release") from None

    def _read(self, look: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        """What a look at one moment finds; it may be repeated."""
        import psycopg

        connection = self._idle()
        try:
            with _snapshot(connection):
                return look(connection)
        except psycopg.OperationalError:
            # the server was restarted since the last call
            connection.close()
            connection = self._idle()
            with _snapshot(connection):
                return look(connection)

    def _take_in(self, rows: tuple[list[Row], Stated]) -> None:
        problem = self.state.catch_up(*rows)
        if problem:
            raise LedgerError(f"{self.name} was altered while it was open: {problem}")

    def _rows(self, connection: psycopg.Connection[Any], after: int) -> tuple[list[Row], Stated]:
        events = connection.execute(
            "SELECT number, body, hash FROM affinedp_event WHERE ledger = %s AND number > %s "
            "ORDER BY number",
            (self._ledger, after),
        ).fetchall()
        stated = connection.execute(
            "SELECT header, events, head FROM affinedp_ledger WHERE name = %s", (self._ledger,)
        ).fetchall()
        return events, stated

    def _locked(self) -> psycopg.Connection[Any]:
        """A connection in a transaction that holds the ledger's row."""
        import psycopg

        connection = self._idle()
        try:
            self._lock(connection)
        except psycopg.errors.LockNotAvailable:
            raise LedgerError(
                f"{self.name}: another program has held it for {LOCK_SECONDS} s; try again"
            ) from None
        except psycopg.OperationalError:
            # the server was restarted since the last call; nothing was begun, so begin again
            connection.close()
            connection = self._idle()
            self._lock(connection)
        return connection

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        try:
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            connection.execute("SET LOCAL synchronous_commit = on")
            held = connection.execute(
                "SELECT 1 FROM affinedp_ledger WHERE name = %s FOR UPDATE", (self._ledger,)
            )
            if held.fetchall() != [(1,)]:  # removed, or a row policy: nobody would wait
                raise LedgerError(f"{self.name} cannot be held by this user; do not release")
            version_of_tables(connection)  # refuses those that a newer affinedp changed meanwhile
        except BaseException:
            _roll_back(connection)  # nobody waits for a lock that is not used
            raise

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        import psycopg

        nothing = f"{self.name}: its transaction was ended by another hand; nothing was charged"
        status = psycopg.pq.TransactionStatus
        if connection.info.transaction_status in (status.IDLE, status.INERROR):
            raise LedgerError(nothing)
        try:
            if not self._committed(connection):
                raise LedgerError(nothing)
        except psycopg.OperationalError as error:
            connection.close()
            if not self._was_kept():
                raise LedgerError(
                    f"{self.name}: the connection broke before the charge was kept ({error}); "
                    "nothing was charged"
                ) from None

    def _committed(self, connection: psycopg.Connection[Any]) -> bool:
        """Commit; False if there was nothing to commit any more.

        A server that gives up waiting for its replicas warns, and confirms: the charge would be
        forgotten if one of them took over.
        """
        warned: list[str] = []

        def listen(notice: psycopg.errors.Diagnostic) -> None:
            if notice.severity_nonlocalized == "WARNING":
                warned.append(str(notice.message_primary))

        connection.add_notice_handler(listen)
        try:
            done = connection.execute("COMMIT").statusmessage == "COMMIT"
        finally:
            connection.remove_notice_handler(listen)
        if done and warned:
            raise LedgerError(f"{self.name}: {warned[0]}. {_MAY_COUNT}")
        return done

    def _was_kept(self) -> bool:
        """Whether the event of the broken transaction is there; wait until that is certain."""
        if self._added is None:
            return False
        try:
            connection = self._locked()
        except LedgerError as error:
            raise LedgerError(f"{error}. {_MAY_COUNT}") from None
        try:
            found = connection.execute(
                "SELECT 1 FROM affinedp_event WHERE ledger = %s AND number = %s AND hash = %s",
                (self._ledger, *self._added),
            ).fetchone()
            if found is None:
                return False
            # seen is not yet safe: what is committed after it is kept no longer than it is
            connection.execute(
                "UPDATE affinedp_ledger SET head = head WHERE name = %s", (self._ledger,)
            )
            return self._committed(connection)
        finally:
            _roll_back(connection)

    def _check_server(self) -> None:
        """Refuse a server, or tables, that may forget what was confirmed."""
        with self._refusals():
            connection = self._ready()
            synced = connection.execute("SHOW fsync").fetchone()
            lost = connection.execute(
                "SELECT relname FROM pg_class WHERE oid IN (to_regclass('affinedp_ledger'), "
                "to_regclass('affinedp_event')) AND relpersistence <> 'p'"
            ).fetchone()
        if synced != ("on",):
            raise LedgerError(
                f"{self.name}: the server runs with fsync = off and may forget charges when it "
                "crashes; turn it on"
            )
        if lost is not None:
            raise LedgerError(
                f"{self.name}: the table {lost[0]} is emptied when the server crashes, and charges "
                "with it: ALTER TABLE … SET LOGGED"
            )


@contextmanager
def _snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Reads inside see one moment."""
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        _roll_back(connection)


def _roll_back(connection: psycopg.Connection[Any]) -> None:
    import psycopg

    try:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()
