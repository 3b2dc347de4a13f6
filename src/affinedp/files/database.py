"""A file of ours that SQLite keeps: durable, never replaced, known by its mark and its tables.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the file and the
removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the journal back,
and it would undo what was committed).  Not a write-ahead log: a copy of the file without the log
beside it would have forgotten commits.

Every look and every change has a connection of its own, so that a fork shares none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from affinedp.errors import AffineDPError

STOP = "; do not release"
# fullfsync is for macOS; the last two because the file may come from a stranger
SETTINGS = ("synchronous=EXTRA", "fullfsync=ON", "trusted_schema=OFF", "cell_size_check=ON")
# The second where SQLite quotes damaged text in its message: it has no code.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_DAMAGE = (0, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REASONS = {
    sqlite3.SQLITE_BUSY: "another program is using it; try again",
    sqlite3.SQLITE_CANTOPEN: f"it is gone, or cannot be opened{STOP}",
    sqlite3.SQLITE_FULL: "the disk is full, and nothing was recorded; make room",
}


class Database:
    """One file at a real path."""

    what: ClassVar[str]  # what it is called in refusals
    error: ClassVar[Callable[..., AffineDPError]]  # how it is refused; ``damaged`` if it is
    mark: ClassVar[int]  # the application's number in its header
    tables: ClassVar[tuple[str, ...]]
    settings: ClassVar[tuple[str, ...]] = SETTINGS
    patience: ClassVar[float]  # seconds to wait for others

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(os.path.realpath(path))
        except (TypeError, ValueError) as error:
            raise self.error(f"{path!r} is not a path: {error}") from None
        if not self.path.parent.is_dir():
            raise self.error(f"there is no directory {self.path.parent} for the {self.what}")
        self._file: tuple[int, int] | None = None  # which one it must be, if that matters

    def look(self) -> None:
        """Refuse what is not a file of this kind, before anything is locked, recovered or written.

        Through SQLite, since closing the file in any other way would drop this process's locks.
        """
        self._refuse_unusual()
        try:
            with closing(self.connected("mode=ro&immutable=1")) as connection:
                self._refuse_foreign(connection)
        except _ERRORS as error:
            # perhaps only being written now: looked at again under a lock
            if _code(error) != sqlite3.SQLITE_CORRUPT:
                raise self._refusal_of(error) from None

    @contextmanager
    def begun(self, write: bool) -> Iterator[sqlite3.Connection]:
        """All at one moment; with the only right to write, all of it is kept or nothing."""
        process, file = os.getpid(), self._file or self.identity()
        with self._refusals():
            connection = self.connected()
            try:
                connection.execute(f"BEGIN {'IMMEDIATE' if write else 'DEFERRED'}")
                if self.identity() != file:
                    raise self._gone()
                if write:
                    self._refuse_other_journal(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if os.getpid() == process:
                    connection.close()  # what was not committed is undone
                else:
                    leave_to_the_parent(connection)

    def connected(self, options: str = "mode=rw", path: Path | None = None) -> sqlite3.Connection:
        """Return a connection to a file that exists, without looking at what it is."""
        connection = sqlite3.connect(
            f"{(path or self.path).as_uri()}?{options}",
            uri=True,
            timeout=self.patience,
            isolation_level=None,
        )
        try:
            for setting in self.settings:
                connection.execute(f"PRAGMA {setting}")
        except BaseException:
            connection.close()
            raise
        return connection

    def make(self, fill: Callable[[sqlite3.Connection, Path], object]) -> None:
        """Make a complete file beside its path and give it its name: never half a file.

        If another process was faster, its file stays.
        """
        part: Path | None = None
        try:
            handle, name = tempfile.mkstemp(".part", f".{self.path.name}.", self.path.parent)
            part = Path(name)
            os.close(handle)
            with self._refusals(), closing(self.connected(path=part)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for table in self.tables:
                    connection.execute(table)
                fill(connection, part)
                connection.execute(f"PRAGMA application_id = {self.mark}")
                connection.execute("COMMIT")
            os.link(part, self.path)
            _sync_directory(self.path.parent)
        except FileExistsError:
            return
        except OSError as error:
            raise self.error(
                f"{self.path} cannot be created ({error.strerror}): put it on a local disk whose "
                "file system has hard links"
            ) from None
        finally:
            if part is not None:
                part.unlink(missing_ok=True)

    def check(self, connection: sqlite3.Connection) -> None:
        """Refuse a mark, tables, a journal or pages that are not as they should be."""
        self._refuse_foreign(connection)
        self.refuse_other_tables(connection)
        self._refuse_other_journal(connection)
        damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            reason = str(damage).splitlines()[-1]
            raise self.error(
                f"{self.path} cannot be trusted: it is damaged ({reason})", damaged=True
            )

    def refuse_other_tables(self, connection: sqlite3.Connection) -> None:
        """Refuse anything beside its tables: a trigger could undo a commit."""
        found = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        if found != [(text,) for text in self.tables]:
            raise self.error(
                f"{self.path} cannot be trusted: its tables are not those of a {self.what}",
                damaged=True,
            )

    def identity(self, path: Path | None = None) -> tuple[int, int]:
        """Return device and inode."""
        try:
            found = (path or self.path).stat()
        except OSError:
            raise self._gone() from None
        return found.st_dev, found.st_ino

    def _gone(self) -> AffineDPError:
        return self.error(
            f"{self.path} is gone, or was moved or replaced by another file while it was open"
        )

    def _refuse_unusual(self) -> None:
        try:
            found = self.path.stat()
        except OSError as error:
            raise self.error(f"{self.path} cannot be opened: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise self.error(f"{self.path} is not a file")
        if found.st_size == 0:
            raise self.error(
                f"{self.path} is an empty file: the {self.what} that was there is lost (if there "
                "was none, delete it)",
                damaged=True,
            )
        if not found.st_mode & 0o222 or not os.access(self.path, os.W_OK):
            raise self.error(f"{self.path} is read-only: nothing could be recorded")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != self.mark:
            raise self.error(
                f"{self.path} belongs to another program, or is damaged; it is left as it is"
            )

    def _refuse_other_journal(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "delete":
            raise self.error(f"{self.path} was changed to a write-ahead log by another program")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn SQLite's errors into refusals."""
        try:
            yield
        except _ERRORS as error:
            raise self._refusal_of(error) from None

    def _refusal_of(self, error: BaseException) -> AffineDPError:
        code = _code(error)
        if code in _DAMAGE:
            return self.error(
                f"{self.path} is damaged, or is not a {self.what} ({error})", damaged=True
            )
        return self.error(f"{self.path}: {_REASONS.get(code, f'{error}{STOP}')}")


def leave_to_the_parent(connection: object) -> None:
    """Never free a connection that a forked child has a copy of: that would close the parent's.

    Only a signal handler that forks in the middle of a change gets here.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


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
