"""A ledger in a file: a list of events that SQLite keeps."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from affinedp.budget import events
from affinedp.budget.address import checked_path
from affinedp.budget.events import (
    LOCK_SECONDS,
    MAKE_ANEW,
    LedgerError,
    Row,
    State,
    Stated,
    Store,
)
from affinedp.budget.filters import Filter
from affinedp.files.database import Database

VERSION = 2


class FileStore(Database, Store):
    """A ledger in a file."""

    what, error = "ledger", LedgerError
    mark = 0x61644450  # "adDP"
    tables = (
        "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
        "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
    )
    patience = LOCK_SECONDS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(checked_path(path))
        self.name, self.address, self._given = self.path.name, str(self.path), path

    def exists(self) -> bool:
        """Whether there is a ledger, or anything else."""
        return os.path.lexists(self.path)

    def missing(self) -> str:
        """Say that there is none."""
        return f"there is no ledger {self._given}"

    def create(self, wanted: Filter, protects: str) -> None:
        """Make a new ledger; one that exists stays as it is."""

        def fill(connection: sqlite3.Connection, part: Path) -> None:
            header = events.new_header(wanted, protects, self.place(part))
            head = State.from_header(header).head
            connection.execute("INSERT INTO ledger VALUES (?, 0, ?)", (header, head))
            connection.execute(f"PRAGMA user_version = {VERSION}")

        self.make(fill)

    @contextmanager
    def transaction(self, write: bool) -> Iterator[FileTransaction]:
        """All at one moment; with the only right to write, all of it is kept or nothing."""
        if self._file is None:
            self.look()
            self._file = self.identity()
        with self.begun(write) as connection:
            yield FileTransaction(self, connection)

    def place(self, file: Path) -> str:
        """Where the ledger is: a hash of its path, and its inode (a device may be renumbered)."""
        return f"{hashlib.sha256(os.fsencode(self.path)).hexdigest()}:{self.identity(file)[1]}"

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        super()._refuse_foreign(connection)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise LedgerError(
                f"{self.path} has version {version} of the format, this affinedp knows {VERSION}: "
                f"install a newer affinedp, or make an older ledger anew ({MAKE_ANEW})"
            )


class FileTransaction(events.Transaction):
    """One look at a file, or one change of it."""

    def __init__(self, file: FileStore, connection: sqlite3.Connection) -> None:
        self._file, self._connection = file, connection

    def rows(self, after: int) -> tuple[list[Row], Stated]:
        """Return the events after a number, and what is stated of all of them."""
        self._file.refuse_other_tables(self._connection)
        query = "SELECT number, body, hash FROM event WHERE number > ? ORDER BY number"
        stated = self._connection.execute("SELECT header, events, head FROM ledger").fetchall()
        return self._connection.execute(query, (after,)).fetchall(), stated

    def add(self, row: Row) -> None:
        """Write one event."""
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", row)
        self._connection.execute("UPDATE ledger SET events = ?, head = ?", (row[0], row[2]))

    def place(self) -> str:
        """Where the ledger is, as a hash: another one means that it was moved or copied."""
        return self._file.place(self._file.path)

    def check(self) -> None:
        """Refuse a file that is not as it should be."""
        self._file.check(self._connection)
