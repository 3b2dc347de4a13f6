"""A ledger on a PostgreSQL server, for programs on many machines.

Whoever charges locks the ledger's row first (``SELECT … FOR UPDATE``).  A row lock rather than
SERIALIZABLE transactions: every charge must see all earlier ones anyway, so transactions that run
side by side would only fail and be repeated, while those that queue for a row are each done once.
The commit waits for the disk whatever the server's default is (``synchronous_commit``).

If the connection breaks while a commit is under way, nobody knows whether it happened.  Then the
row is locked over a new connection, which waits for the old transaction to end, and the event is
looked for.  Found, it counts as charged; not found, it is refused.  Both are safe: noise is drawn
only after a charge that was seen.

Two threads, or a call in the middle of another (as from a signal handler), would be in one
transaction, and the end of one would end the other's: PostgreSQL commits nothing then and does not
say so.  Both are refused, from before the first word to the server until after the last.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from affinedp.budget.address import parts_of, without_password
from affinedp.budget.server_tables import place_on_server, version_of_tables
from affinedp.budget.state import LedgerError, Row, State, Stated
from affinedp.budget.store import Store
from affinedp.budget.transactions import (
    begin,
    check_durable,
    commit,
    connected,
    refusals,
    roll_back,
    words_of,
)

if TYPE_CHECKING:
    import psycopg

Found = TypeVar("Found")
Added = tuple[int, str]  # number and hash of an event
_MAY_COUNT = "The charge may have been kept; if so, it counts though nothing was released"
_STOP = "; do not release"


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
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._busy = False
        # inside writing: its connection, which is never another one, and what it added
        self._writes: tuple[psycopg.Connection[Any], list[Added]] | None = None
        self._open: psycopg.Connection[Any] | None = connected(self._address, self.name)
        try:
            with refusals(self.name, _STOP):
                check_durable(self._open, self.name)
            self.state = self.verified()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Know every event so far; what others add meanwhile does not matter."""
        with self._alone():
            self._take_in(self._read(lambda connection: self._rows(connection, self.state.events)))
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""
        with self._alone():
            connection = self._begun()
            added: list[Added] = []
            try:
                self._hold(connection)
                self._take_in(self._rows(connection, self.state.events))
                self._writes = (connection, added)
                try:
                    yield
                finally:
                    self._writes = None
                self._commit(connection, added)
            except BaseException:  # an interrupt, too, may come before the commit
                roll_back(connection)  # nobody waits for a lock that is not used
                raise

    def add_row(self, number: int, body: str, link: str) -> None:
        """Write one event, inside :meth:`writing`."""
        if self._writes is None:
            raise LedgerError(f"{self.name}: no charge is under way")
        connection, written = self._writes
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
        written.append((number, link))

    def verified(self) -> State:
        """Read and verify everything anew."""
        with self._alone():
            events, stated = self._read(lambda connection: self._rows(connection, 0))
        if not stated:
            raise LedgerError(f"there is no ledger {self.name}")
        try:
            return State.verified(stated[0][0], events, stated)
        except LedgerError as error:
            raise LedgerError(f"{self.name} cannot be trusted: {error}") from None

    def place(self) -> str:
        """Where it is, as a hash: another one means that it was moved or copied."""
        with self._alone():
            return self._read(lambda connection: place_on_server(connection, self._ledger))

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None and os.getpid() == self._process:  # a fork's is its parent's
            self._open.close()
        self._open = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call from its first word to the server to its last; its errors are refusals."""
        self._check_owner()
        if self._busy:
            raise LedgerError(f"{self.name}: a charge or a look is under way{_STOP}")
        self._busy = True
        try:
            with refusals(self.name, _STOP):
                yield
        finally:
            self._busy = False

    def _check_owner(self) -> None:
        if self._open is None:
            raise LedgerError(f"{self.name} is closed")
        if os.getpid() != self._process:
            raise LedgerError(f"{self.name} was opened before a fork: open it again here")
        if threading.get_ident() != self._thread:
            raise LedgerError(f"{self.name} was opened by another thread: open it again here")

    def _ready(self) -> psycopg.Connection[Any]:
        """The connection, without a transaction; opened again if it broke between two calls."""
        import psycopg

        self._check_owner()
        assert self._open is not None
        if self._open.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._open.close()  # it was left in the middle
        if self._open.closed:
            self._open = connected(self._address, self.name)
        return self._open

    def _begun(self, reading: bool = False) -> psycopg.Connection[Any]:
        """The connection in a new transaction."""
        import psycopg

        connection = self._ready()
        try:
            begin(connection, reading=reading)
        except psycopg.OperationalError:
            # the server was restarted since the last call; nothing was begun, so begin again
            connection.close()
            connection = self._ready()
            begin(connection, reading=reading)
        return connection

    def _read(self, look: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        """What a look at one moment finds."""
        connection = self._begun(reading=True)
        try:
            return look(connection)
        finally:
            roll_back(connection)

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

    def _hold(self, connection: psycopg.Connection[Any]) -> None:
        """Lock the ledger's row, and look whether what is written now will last."""
        held = connection.execute(
            "SELECT 1 FROM affinedp_ledger WHERE name = %s FOR UPDATE", (self._ledger,)
        )
        if held.fetchall() != [(1,)]:  # removed, or a row policy: nobody would wait
            raise LedgerError(f"{self.name} cannot be held by this user; do not release")
        version_of_tables(connection, self.name)  # a newer affinedp may have changed them meanwhile
        check_durable(connection, self.name)

    def _commit(self, connection: psycopg.Connection[Any], added: list[Added]) -> None:
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
            if not self._was_kept(added):
                raise LedgerError(
                    f"{self.name}: the connection broke before the charge was kept "
                    f"({words_of(error)}); nothing was charged"
                ) from None

    def _committed(self, connection: psycopg.Connection[Any]) -> bool:
        """Commit; False if there was nothing to commit any more."""
        done, warning = commit(connection)
        if done and warning:
            raise LedgerError(f"{self.name}: {warning}. {_MAY_COUNT}")
        return done

    def _was_kept(self, added: list[Added]) -> bool:
        """Whether the events of the broken transaction are there; wait until that is certain."""
        if not added:
            return False
        try:
            with refusals(self.name):
                return self._is_there(added[-1])
        except LedgerError as error:
            words = str(error)
            raise LedgerError(words if _MAY_COUNT in words else f"{words}. {_MAY_COUNT}") from None

    def _is_there(self, event: Added) -> bool:
        connection = self._begun()
        try:
            self._hold(connection)
            found = connection.execute(
                "SELECT 1 FROM affinedp_event WHERE ledger = %s AND number = %s AND hash = %s",
                (self._ledger, *event),
            ).fetchone()
            if found is None:
                return False
            # seen is not yet safe: what is committed after it is kept no longer than it is
            connection.execute(
                "UPDATE affinedp_ledger SET head = head WHERE name = %s", (self._ledger,)
            )
            return self._committed(connection)
        finally:
            roll_back(connection)
