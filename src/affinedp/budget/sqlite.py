"""A ledger in a file: SQLite that is durable, and never replaced.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the file and the
removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the journal back,
and it would undo the charge).  Not a write-ahead log: a copy of the file without the log beside it
would have forgotten charges.

Every look and every charge has a connection of its own, so that a fork shares none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from affinedp.budget import events
from affinedp.budget.events import (
    MAKE_ANEW,
    STOP,
    LedgerError,
    Row,
    State,
    Stated,
    Store,
    leave_to_the_parent,
)
from affinedp.budget.filters import Filter

VERSION = 2
APPLICATION_ID = 0x61644450  # "adDP"

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)
# fullfsync is for macOS; the last two because the file may come from a stranger
_SETTINGS = ("synchronous=EXTRA", "fullfsync=ON", "trusted_schema=OFF", "cell_size_check=ON")
# The second where SQLite quotes damaged text in its message.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class FileStore(Store):
    """A ledger in a file at a real path."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.address = path, path.name, str(path)
        _refuse_unusual(path)
        _look(path)
        self._file = _identity(path)

    @contextmanager
    def transaction(self, write: bool) -> Iterator[FileTransaction]:
        """All at one moment; with the only right to write, all of it is kept or nothing."""
        process = os.getpid()
        with _refusals(self.path):
            connection = connected(self.path)
            try:
                connection.execute(f"BEGIN {'IMMEDIATE' if write else 'DEFERRED'}")
                if _identity(self.path) != self._file:
                    raise LedgerError(f"{self.path} was replaced by another file while it was open")
                yield FileTransaction(self.path, connection)
                connection.execute("COMMIT")
            finally:
                if os.getpid() == process:
                    connection.close()  # what was not committed is undone
                else:
                    leave_to_the_parent(connection)


class FileTransaction(events.Transaction):
    """One look at a file, or one change of it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def rows(self, after: int) -> tuple[list[Row], Stated]:
        """Return the events after a number, and what is stated of all of them."""
        self._refuse_other_tables()
        query = "SELECT number, body, hash FROM event WHERE number > ? ORDER BY number"
        stated = self._connection.execute("SELECT header, events, head FROM ledger").fetchall()
        return self._connection.execute(query, (after,)).fetchall(), stated

    def add(self, row: Row) -> None:
        """Write one event."""
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", row)
        self._connection.execute("UPDATE ledger SET events = ?, head = ?", (row[0], row[2]))

    def place(self) -> str:
        """Where the ledger is, as a hash: another one means that it was moved or copied."""
        return _place(self._path, self._path)

    def check(self) -> None:
        """Refuse marks, tables or pages that are not as they should be."""
        _refuse_foreign(self._path, self._connection)
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            raise LedgerError(f"{self._path} was changed to a write-ahead log by another program")
        self._refuse_other_tables()
        damage = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            reason = str(damage).splitlines()[-1]
            raise LedgerError(f"{self._path} cannot be trusted: it is damaged ({reason})")

    def _refuse_other_tables(self) -> None:
        """Refuse anything beside the tables of a ledger: a trigger could undo a charge."""
        schema = self._connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        if schema != [(text,) for text in _SCHEMA]:
            raise LedgerError(
                f"{self._path} cannot be trusted: its tables are not those of a ledger"
            )


def create_file(path: Path, wanted: Filter, protects: str) -> None:
    """Make a complete ledger beside ``path`` and give it its name: never half a ledger.

    If another process was faster, its ledger stays.
    """
    part: Path | None = None
    try:
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        part = Path(name)
        os.close(handle)
        with _refusals(path), closing(connected(part)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _SCHEMA:
                connection.execute(table)
            header = events.new_header(wanted, protects, _place(path, part))
            head = State.from_header(header).head
            connection.execute("INSERT INTO ledger VALUES (?, 0, ?)", (header, head))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        os.link(part, path)
        _sync_directory(path.parent)
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be created ({error.strerror}): put it on a local disk whose file "
            "system has hard links"
        ) from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def connected(path: Path, options: str = "mode=rw") -> sqlite3.Connection:
    """Return a connection to a file that exists, without looking at what it is."""
    wait = events.LOCK_SECONDS
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=wait, isolation_level=None
    )
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals."""
    try:
        yield
    except _SQLITE_ERRORS as error:
        code = _primary_code(error)
        if code == sqlite3.SQLITE_BUSY:
            reason = f"another program has held it for {events.LOCK_SECONDS} s; try again"
        elif code == sqlite3.SQLITE_CANTOPEN:
            reason = f"it is gone, or cannot be opened{STOP}"
        elif code == sqlite3.SQLITE_FULL:
            reason = "the disk is full; nothing was charged"
        elif code in (0, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            reason = f"it is damaged, or is not a ledger ({error})"
        else:
            reason = f"{error}{STOP}"
        raise LedgerError(f"{path}: {reason}") from None


def _refuse_unusual(path: Path) -> None:
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{path} is not a file")
    if found.st_size == 0:
        raise LedgerError(
            f"{path} is an empty file and not a ledger; delete it if it never was one"
        )
    if not found.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise LedgerError(f"{path} is read-only: nothing could be recorded")


def _look(path: Path) -> None:
    """Refuse a foreign file before anything is locked, recovered or written.

    Through SQLite, since closing the file in any other way would drop this process's locks.
    """
    try:
        with closing(connected(path, "mode=ro&immutable=1")) as connection:
            _refuse_foreign(path, connection)
    except _SQLITE_ERRORS as error:
        # perhaps only being written now: looked at again under a lock
        if _primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise LedgerError(f"{path} is damaged, or is not a ledger ({error})") from None


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LedgerError(f"{path} belongs to another program, or is damaged; it is left as it is")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise LedgerError(
            f"{path} has version {version} of the format, this affinedp knows {VERSION}: install a "
            f"newer affinedp, or make an older ledger anew ({MAKE_ANEW})"
        )


def _sync_directory(directory: Path) -> None:
    """Make sure that the name of a new file is on the disk."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except PermissionError:  # Windows, which has no such thing
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(handle)


def _primary_code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode."""
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} is gone: {error.strerror}") from None
    return found.st_dev, found.st_ino


def _place(path: Path, file: Path) -> str:
    """Where the ledger is: a hash of its path, and its inode (a device may be renumbered)."""
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()}:{_identity(file)[1]}"
