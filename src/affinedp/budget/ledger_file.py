"""The ledger's file: SQLite that is durable, verified when it is opened, and never replaced.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the
file and the removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the
journal back, and it would undo the charge).  Not a write-ahead log: a copy of the file without the
log beside it would have forgotten charges.

Every look and every charge has a connection of its own, so that a fork shares none.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from affinedp.budget.state import LedgerError, Row, State, Stated, new_header
from affinedp.budget.store import Store

VERSION = 2
APPLICATION_ID = 0x61644450  # "adDP"
BUSY_SECONDS = 30.0

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)
# fullfsync is for macOS; the last two because the file may come from a stranger
_SETTINGS = ("synchronous=EXTRA", "fullfsync=ON", "trusted_schema=OFF", "cell_size_check=ON")
# The second where SQLite quotes damaged text in its message.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class FileStore(Store):
    """A ledger in a file, open.

    Parameters
    ----------
    path : Path
        Where it is, links followed.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.address = path, path.name, str(path)
        self._closed, self._thread = False, threading.get_ident()
        _refuse_unusual(path)
        _look(path)
        self.state = self.verified()
        self._file = identity_of(path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Know every event so far; what others add meanwhile does not matter."""
        with self._transaction("DEFERRED") as connection:
            self._catch_up(connection)
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""
        with self._transaction("IMMEDIATE") as connection:
            self._catch_up(connection)
            self._writes = connection
            yield

    def add_row(self, number: int, body: str, link: str) -> None:
        """Write one event, inside :meth:`writing`."""
        self._writes.execute("INSERT INTO event VALUES (?, ?, ?)", (number, body, link))
        self._writes.execute("UPDATE ledger SET events = ?, head = ?", (number, link))

    def verified(self) -> State:
        """Read and verify everything anew."""
        with self._transaction("DEFERRED") as connection:
            _check_content(self.path, connection)
            headers = connection.execute("SELECT header FROM ledger").fetchall()
            header = headers[0][0] if len(headers) == 1 else None
            try:
                return State.verified(header, *_rows(connection, 0))
            except LedgerError as error:
                raise LedgerError(f"{self.path} cannot be trusted: {error}") from None

    def rows(self) -> list[Row]:
        """Return all events as they are written down."""
        with self._transaction("DEFERRED") as connection:
            return list(_rows(connection, 0)[0])

    def place(self) -> str:
        """Where it is, as a hash: another one means that it was moved or copied."""
        return place_of(self.path)

    def close(self) -> None:
        """Refuse everything from now on; no file is open between two calls."""
        self._closed = True

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """Commit what is done inside, or nothing of it."""
        if self._closed:
            raise LedgerError(f"{self.name} is closed")
        if threading.get_ident() != self._thread:
            raise LedgerError(f"{self.name} was opened by another thread: open it again here")
        process = os.getpid()
        with refusals(self.path):
            connection = connected(self.path)
            try:
                connection.execute(f"BEGIN {kind}")
                yield connection
                connection.execute("COMMIT")
            finally:
                if os.getpid() == process:
                    connection.close()  # what was not committed is undone
                else:  # a fork in a signal handler: the parent writes, and nothing here may undo it
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        if identity_of(self.path) != self._file:
            raise LedgerError(f"{self.path} was replaced by another file while it was open")
        problem = "its tables are not those of a ledger"
        if _has_its_tables(connection):
            problem = self.state.catch_up(*_rows(connection, self.state.events))
        if problem:
            raise LedgerError(f"{self.path} was altered while it was open: {problem}")


def create_file(path: Path, epsilon: float, delta: float, adaptive: bool, protects: str) -> None:
    """Make a complete ledger beside ``path`` and give it its name: never half a ledger.

    If another process was faster, its ledger stays.
    """
    try:
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as error:
        raise LedgerError(f"{path} cannot be created: {error.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        header = new_header(epsilon, delta, adaptive, protects, place_of(path, part))
        with refusals(path), closing(connected(part)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _SCHEMA:
                connection.execute(table)
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
        part.unlink(missing_ok=True)


def connected(path: Path, options: str = "mode=rw") -> sqlite3.Connection:
    """Return a connection to a file that exists, without looking at what it is."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals."""
    try:
        yield
    except _SQLITE_ERRORS as error:
        code = _primary_code(error)
        if code == sqlite3.SQLITE_BUSY:
            reason = f"another process has held it for {BUSY_SECONDS:g} s; try again"
        elif code == sqlite3.SQLITE_CANTOPEN:
            reason = "it is gone, or cannot be opened; do not release"
        elif code == sqlite3.SQLITE_FULL:
            reason = "the disk is full; nothing was charged"
        elif code in (0, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            reason = f"it is damaged, or is not a ledger ({error})"
        else:
            reason = f"{error}; do not release"
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
    if version > VERSION:
        raise LedgerError(
            f"{path} has version {version} of the format, this affinedp knows {VERSION}: "
            "install a newer affinedp"
        )
    if version < VERSION:
        raise LedgerError(
            f"{path} has version {version} of the format: it is damaged, or of an affinedp "
            "that was never released; affinedp ledger create makes a new one"
        )


def _check_content(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse marks, tables or pages that are not as they should be, under a lock."""
    _refuse_foreign(path, connection)
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        raise LedgerError(f"{path} was changed to a write-ahead log by another program")
    if not _has_its_tables(connection):
        raise LedgerError(f"{path} cannot be trusted: its tables are not those of a ledger")
    damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        reason = str(damage).splitlines()[-1]
        raise LedgerError(f"{path} cannot be trusted: it is damaged ({reason})")


def _has_its_tables(connection: sqlite3.Connection) -> bool:
    """Whether the file holds the tables of a ledger and nothing else: a trigger could undo."""
    schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    return schema == [(text,) for text in _SCHEMA]


def _rows(connection: sqlite3.Connection, after: int) -> tuple[list[Row], Stated]:
    query = "SELECT number, body, hash FROM event WHERE number > ? ORDER BY number"
    stated = connection.execute("SELECT header, events, head FROM ledger").fetchall()
    return connection.execute(query, (after,)).fetchall(), stated


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
