"""The ledger's file: SQLite that is durable, verified when it is opened, and never replaced.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the
file and the removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the
journal back, and it would undo the charge).  Not a write-ahead log: a copy of the file without the
log beside it would have forgotten charges.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from affinedp.budget.state import LedgerError, Row, State, Stated, new_header
from affinedp.budget.store import Store
from affinedp.files.processes import this_process
from affinedp.files.sqlite import (
    BUILT,
    SqliteKind,
    building,
    check_content,
    has_its_tables,
    open_existing,
    put_into_place,
    write_whole,
)
from affinedp.files.sqlite import refusals as refusals_of

VERSION = 2  # 1 had a cap for each kind of neighbours; its charges all add up now
APPLICATION_ID = 0x61644450  # "adDP"
BUSY_SECONDS = 30.0

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)


LEDGER = SqliteKind(
    noun="a ledger",
    application_id=APPLICATION_ID,
    schemas=dict.fromkeys(range(1, VERSION + 1), _SCHEMA),
    journal="delete",
    exclusive=False,
    secret=False,
    settings=("synchronous=EXTRA",),  # see the top of this file
    busy_seconds=BUSY_SECONDS,
    error=LedgerError,
    damaged=LedgerError,
    busy=f"another process has held it for {BUSY_SECONDS:g} s; try again",
    full="the disk is full; nothing was charged",
    otherwise="do not release",
)


class FileStore(Store):
    """A ledger in a file, open.

    Parameters
    ----------
    path : Path
        Where it is, links followed.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.address = path, path.name, str(path)
        self._connection: sqlite3.Connection | None = open_existing(LEDGER, path)
        self._process = this_process()
        try:
            self.state = self.verified()
            self._file = identity_of(path)
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file."""
        if self._connection is None:
            raise LedgerError(f"{self.name} is closed")
        return self._connection

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Know every event so far; what others add meanwhile does not matter."""
        with self._transaction("DEFERRED"):
            self._catch_up()
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""
        with self._transaction("IMMEDIATE") as connection:
            self._catch_up()
            if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
                # an older affinedp would give other neighbours a cap of their own
                connection.execute(f"PRAGMA user_version = {VERSION}")
            yield

    def add_row(self, number: int, body: str, link: str) -> None:
        """Write one event, inside :meth:`writing`."""
        self.connection.execute("INSERT INTO event VALUES (?, ?, ?)", (number, body, link))
        self.connection.execute("UPDATE ledger SET events = ?, head = ?", (number, link))

    def verified(self) -> State:
        """Read and verify everything anew."""
        with self._transaction("DEFERRED") as connection:
            check_content(LEDGER, self.path, connection)
            headers = connection.execute("SELECT header FROM ledger").fetchall()
            header = headers[0][0] if len(headers) == 1 else None
            try:
                return State.verified(header, *self._rows(0))
            except LedgerError as error:
                raise LedgerError(f"{self.path} cannot be trusted: {error}") from None

    def rows(self) -> list[Row]:
        """Return all events as they are written down."""
        with self._transaction("DEFERRED"):
            return list(self._rows(0)[0])

    def place(self) -> str:
        """Where it is, as a hash: another one means that it was moved or copied."""
        return place_of(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with refusals(self.path):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """Commit what is done inside, or nothing of it."""
        connection = self.connection
        if this_process() != self._process:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self.name} was opened before a fork: open it again here")
        with refusals(self.path):
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _catch_up(self) -> None:
        if identity_of(self.path) != self._file:
            raise LedgerError(f"{self.path} was replaced by another file while it was open")
        problem = "its tables are not those of a ledger"
        if has_its_tables(LEDGER, self.connection):
            problem = self.state.catch_up(*self._rows(self.state.events))
        if problem:
            raise LedgerError(f"{self.path} was altered while it was open: {problem}")

    def _rows(self, after: int) -> tuple[Iterator[Row], Stated]:
        query = "SELECT number, body, hash FROM event WHERE number > ? ORDER BY number"
        stated = self.connection.execute("SELECT header, events, head FROM ledger").fetchall()
        return self.connection.execute(query, (after,)), stated


def create_file(path: Path, epsilon: float, delta: float, adaptive: bool, protects: str) -> None:
    """Make a complete ledger beside ``path`` and link it into place: never half a ledger.

    If another process was faster, its ledger stays.
    """
    with building(LEDGER, path) as folder:
        if os.path.lexists(path):
            return

        def fill(connection: sqlite3.Connection) -> None:
            place = place_of(path, folder / BUILT)
            header = new_header(epsilon, delta, adaptive, protects, place)
            head = State.from_header(header).head
            connection.execute("INSERT INTO ledger VALUES (?, 0, ?)", (header, head))

        put_into_place(LEDGER, write_whole(LEDGER, folder, path, fill), path)


def refusals(path: Path) -> AbstractContextManager[None]:
    """Turn SQLite's errors into refusals."""
    return refusals_of(LEDGER, path)


def identity_of(path: Path) -> tuple[int, int]:
    """Return device and inode."""
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} is gone: {error.strerror}") from None
    return found.st_dev, found.st_ino


def place_of(path: Path, file: Path | None = None) -> str:
    """Where the ledger is: a hash of its path, and its inode (a device may be renumbered)."""
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()}:{identity_of(file or path)[1]}"
