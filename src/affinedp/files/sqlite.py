"""SQLite files that are made whole or not at all, and checked before they are believed.

Ledgers, gateways and agents keep what must not be lost in such files.  This module makes them, for
their owner only, opens them, and refuses what is foreign, damaged or in use, in the words and with
the errors of the one whose file it is.

A file is built in a folder beside its place, ``.<name>.part``, which one process at a time may use,
and is then linked into place: a crash leaves that folder at most, and the next one who builds there
empties it first.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from affinedp.errors import AffineDPError
from affinedp.files.connections import Connection
from affinedp.files.held import PAUSE, fcntl, hold, is_still, lock

# The second where SQLite quotes damaged text in its message.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# What SQLite puts beside a file.
_BESIDE = ("-wal", "-shm", "-journal")
# What a file is called while it is built.
BUILT = "file"


@dataclass(frozen=True)
class SqliteKind:
    """A kind of file: its marks, its tables, and the words of the one whose file it is.

    Attributes
    ----------
    noun : str
        What such a file is, with an article: "a ledger", "the state of a gateway".
    application_id : int
        The mark of the format.
    schemas : mapping of int to tuple of str
        For each version of the format, its tables in the order of their names.
    journal : {"delete", "wal"}
        Which journal it has; another program may have changed that.
    exclusive : bool
        Whether one connection at a time may have it open.
    secret : bool
        Whether nobody but the owner may have read it.
    settings : tuple of str
        Pragmas of a connection, such as ``synchronous=FULL``.
    busy_seconds : float
        How long to wait for another process.
    error, damaged : type
        What is raised, and what is raised where the content cannot be trusted.
    busy, full, otherwise : str
        What to say when another process has it, when the disk is full, and after any other error.
    """

    noun: str
    application_id: int
    schemas: Mapping[int, tuple[str, ...]]
    journal: Literal["delete", "wal"]
    exclusive: bool
    secret: bool
    settings: tuple[str, ...]
    busy_seconds: float
    error: type[AffineDPError]
    damaged: type[AffineDPError]
    busy: str
    full: str
    otherwise: str

    @property
    def version(self) -> int:
        """The newest version of the format, which new files get."""
        return max(self.schemas)


# ---------------------------------------------------------------------- making


@contextmanager
def building(
    kind: SqliteKind, path: Path, rescue: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """Have a folder beside ``path`` to oneself; what a crash left there before is removed.

    Parameters
    ----------
    kind : SqliteKind
        Whose file it will be.
    path : Path
        Where it will be, a real path.
    rescue : callable, optional
        Called with a file that a crash left, before it is removed: it may be whole.

    Yields
    ------
    Path
        An empty folder for the owner only, on the same disk.  It is gone afterwards.
    """
    folder = path.with_name(f".{path.name}.part")
    handle = _claimed(kind, path, folder)
    try:
        if rescue is not None and (folder / BUILT).is_file():
            rescue(folder / BUILT)
        for left in folder.iterdir():
            left.unlink()
        _remove_old_parts(path)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def write_whole(
    kind: SqliteKind, folder: Path, path: Path, fill: Callable[[sqlite3.Connection], None]
) -> Path:
    """Write a complete file into a folder, onto the disk, and return its path.

    Parameters
    ----------
    kind : SqliteKind
        Its tables and marks are written.
    folder : Path
        From :func:`building`.
    path : Path
        Where the file will be, for messages.
    fill : callable
        Fills the tables.
    """
    file = folder / BUILT
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise kind.error(f"{path} cannot be created: {error.strerror}") from None
    with refusals(kind, path), closing(connect(kind, file)) as connection:
        connection.execute(f"PRAGMA journal_mode={kind.journal}")
        connection.execute("BEGIN IMMEDIATE")
        for table in kind.schemas[kind.version]:
            connection.execute(table)
        fill(connection)
        connection.execute(f"PRAGMA application_id = {kind.application_id}")
        connection.execute(f"PRAGMA user_version = {kind.version}")
        connection.execute("COMMIT")
    return file


def put_into_place(kind: SqliteKind, file: Path, path: Path) -> None:
    """Give a complete file its name, which nothing may have yet.

    Parameters
    ----------
    kind : SqliteKind
        Whose file it is.
    file : Path
        From :func:`write_whole`.
    path : Path
        Where to.
    """
    try:
        os.link(file, path)
    except OSError as error:
        raise kind.error(
            f"{path} cannot be created ({error.strerror}): put it on a local disk whose file "
            "system has hard links, and let one process create it"
        ) from None
    sync_directory(path.parent, kind.error)


def sync_directory(directory: Path, refusal: type[AffineDPError]) -> None:
    """Make sure that the names of new files in a directory are on the disk.

    Parameters
    ----------
    directory : Path
        Where they are.
    refusal : type
        What to raise if that fails.
    """
    try:
        handle = os.open(directory, os.O_RDONLY)
    except PermissionError:  # Windows, which has no such thing
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise refusal(f"{directory} cannot be written: {error.strerror}") from None
    finally:
        os.close(handle)


def _claimed(kind: SqliteKind, path: Path, folder: Path) -> int | None:
    """Make the folder, or take over one that nobody holds any more, and hold it."""
    deadline = time.monotonic() + kind.busy_seconds
    while True:
        try:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        except OSError as error:
            raise kind.error(f"{path} cannot be created: {error.strerror}") from None
        if fcntl is None:  # Windows: there the link alone decides who was first
            return None
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # whoever held it has just removed it
        except OSError as error:
            raise kind.error(f"{path} cannot be created: {error.strerror}") from None
        try:
            if os.fstat(handle).st_uid != os.geteuid():
                raise kind.error(f"{path} cannot be created: {folder.name} is somebody else's")
            if lock(handle) and is_still(folder, handle):
                os.fchmod(handle, 0o700)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > deadline:
            raise kind.error(f"{path}: {kind.busy}")
        time.sleep(PAUSE)


def _remove_old_parts(path: Path) -> None:
    """Remove what a crash left before there was one folder for it."""
    ending = f"({'|'.join(_BESIDE)})?"
    old = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.part{ending}")
    for name in os.listdir(path.parent):
        if old.fullmatch(name):
            path.with_name(name).unlink(missing_ok=True)


# ---------------------------------------------------------------------- opening


def open_existing(kind: SqliteKind, path: Path) -> Connection:
    """Open a file of a kind; anything else is refused and left as it is.

    Parameters
    ----------
    kind : SqliteKind
        What it must be.
    path : Path
        Where it is, a real path.
    """
    _refuse_unusual(kind, path)
    _look(kind, path)
    if not kind.exclusive:
        return _opened(kind, path)
    log = log_of(path)
    ours = not log.exists()
    held = _held(kind, path, log)
    try:
        connection = _opened(kind, path)
    except BaseException as error:
        if held is not None:
            # made for the lock, and SQLite never took it; an older affinedp that has the file open
            # knows no such lock, and writes to a log that may still be empty
            if ours and kind.busy not in str(error) and not os.fstat(held).st_size:
                log.unlink(missing_ok=True)
            os.close(held)
        raise
    if held is not None:
        connection.keep(held)
    return connection


def log_of(path: Path) -> Path:
    """Return the log beside a file, which holds what was written last.

    Parameters
    ----------
    path : Path
        The file.
    """
    return path.with_name(path.name + "-wal")


def _held(kind: SqliteKind, path: Path, log: Path) -> int | None:
    """Lock the log, beside SQLite's lock on the file: that one is dropped too easily."""
    try:
        return hold(log, kind.busy_seconds)
    except BlockingIOError:
        raise kind.error(f"{path}: {kind.busy}") from None
    except OSError as error:
        raise kind.error(f"{log} cannot be opened: {error.strerror}") from None


def _opened(kind: SqliteKind, path: Path) -> Connection:
    with refusals(kind, path):
        connection = connect(kind, path)
        try:
            if kind.exclusive:
                # kept until the connection is closed
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
            journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
            if (journal == "wal") != (kind.journal == "wal"):
                name = "a write-ahead log" if journal == "wal" else "another kind of journal"
                raise kind.error(f"{path} was changed to {name} by another program")
            connection.execute(f"PRAGMA journal_mode={kind.journal}")
        except BaseException:
            connection.close()
            raise
    return connection


def check_content(kind: SqliteKind, path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file whose marks, tables or pages are not as they should be.

    Parameters
    ----------
    kind : SqliteKind
        What it must be.
    path : Path
        Where it is.
    connection : sqlite3.Connection
        With a lock, so that nothing is being written.
    """
    _refuse_foreign(kind, path, connection)
    if not has_its_tables(kind, connection):
        raise kind.damaged(f"{path} cannot be trusted: its tables are not those of {kind.noun}")
    damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        reason = str(damage).splitlines()[-1]
        raise kind.damaged(f"{path} cannot be trusted: it is damaged ({reason})")


def has_its_tables(kind: SqliteKind, connection: sqlite3.Connection) -> bool:
    """Whether the file holds the tables of its version and nothing else: a trigger could undo.

    Parameters
    ----------
    kind : SqliteKind
        What it is.
    connection : sqlite3.Connection
        To the file.
    """
    version = version_of(connection)
    schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    return schema == [(text,) for text in kind.schemas.get(version, ())]


def connect(kind: SqliteKind, path: Path, options: str = "mode=rw") -> Connection:
    """Connect to a file that exists, without looking at what it is.

    Parameters
    ----------
    kind : SqliteKind
        Its settings are used.
    path : Path
        Where it is.
    options : str
        Of the URI.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=kind.busy_seconds,
        isolation_level=None,
        check_same_thread=not kind.exclusive,  # then its owner lets one thread in at a time
        factory=Connection,
    )
    # fullfsync is for macOS; the others because the file may come from a stranger
    for setting in (*kind.settings, "fullfsync=ON", "trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def refusals(kind: SqliteKind, path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals.

    Parameters
    ----------
    kind : SqliteKind
        Whose errors and words.
    path : Path
        Where the file is.
    """
    try:
        yield
    except SQLITE_ERRORS as error:
        code = _primary_code(error)
        if code in _DAMAGE or isinstance(error, UnicodeDecodeError):
            raise kind.damaged(f"{path} is damaged, or is not {kind.noun} ({error})") from None
        words = {sqlite3.SQLITE_BUSY: kind.busy, sqlite3.SQLITE_FULL: kind.full}
        reason = words.get(code, f"{error}; {kind.otherwise}")
        raise kind.error(f"{path}: {reason}") from None


def _refuse_unusual(kind: SqliteKind, path: Path) -> None:
    try:
        found = path.stat()
    except OSError as error:
        raise kind.error(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise kind.error(f"{path} is not a file")
    if found.st_size == 0:
        raise kind.damaged(
            f"{path} is an empty file and not {kind.noun}; delete it if it never was one"
        )
    if kind.secret and os.name == "posix" and found.st_mode & 0o077:
        raise kind.error(
            f"{path} holds a secret draw, but others than its owner may use it: chmod 600 it, "
            "and think about who may have read it"
        )
    if not found.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise kind.error(f"{path} is read-only: nothing could be recorded")


def _look(kind: SqliteKind, path: Path) -> None:
    """Look at the marks of the format without locking, recovering or writing anything.

    Through SQLite, since closing the file in any other way would drop this process's locks.
    """
    try:
        with closing(connect(kind, path, "mode=ro&immutable=1")) as connection:
            _refuse_foreign(kind, path, connection)
    except SQLITE_ERRORS as error:
        if _primary_code(error) == sqlite3.SQLITE_CORRUPT:
            return  # perhaps only being written now: looked at again under a lock
        raise kind.damaged(f"{path} is damaged, or is not {kind.noun} ({error})") from None


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the format of a file.

    Parameters
    ----------
    connection : sqlite3.Connection
        To the file.
    """
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_foreign(kind: SqliteKind, path: Path, connection: sqlite3.Connection) -> None:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = version_of(connection)
    if mark != kind.application_id:
        raise kind.error(f"{path} belongs to another program, or is damaged; it is left as it is")
    if version > kind.version:
        raise kind.error(
            f"{path} has version {version} of the format, this affinedp knows {kind.version}: "
            "install a newer affinedp"
        )
    if version not in kind.schemas:
        raise kind.damaged(f"{path} has no version of the format: it is damaged")


def _primary_code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
