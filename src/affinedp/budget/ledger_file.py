"""The ledger's file: SQLite that is durable, verified when it is opened, and never replaced.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the
file and the removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the
journal back, and it would undo the charge).  Not a write-ahead log: a copy of the file without the
log beside it would have forgotten charges.  Events are only ever added, and each holds a hash of
itself and its predecessor.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import numbers
import os
import sqlite3
import stat
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from affinedp.budget.filters import Losses, allows, multiplied, spent_epsilon
from affinedp.errors import AffineDPError

FORMAT = "affinedp ledger"
VERSION = 1
APPLICATION_ID = 0x61644450  # "adDP"
BUSY_SECONDS = 30.0
MOST_RELEASES = 10**9

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)

# The second where SQLite quotes damaged text in its message.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class LedgerError(AffineDPError):
    """A ledger that cannot be trusted or written: do not release."""


@dataclass(frozen=True)
class LedgerEntry:
    """One charge.

    Attributes
    ----------
    id : int
        Grows from charge to charge, with gaps.
    time : str
        When it was charged, UTC, ISO 8601.
    label : str or None
        What the caller called it.
    losses : tuple of (str, float)
        Law and sensitivity of the scalar mechanisms that dominate one release.
    neighbours, neighbours_key : str
        Whom the guarantee is about.
    fingerprint : str
        Which mechanism it was.
    releases : int
        How many releases with fresh noise were charged.
    status : {"charged", "released"}
        ``"charged"`` means that the release was not confirmed; it counts all the same.
    """

    id: int
    time: str
    label: str | None
    losses: tuple[tuple[str, float], ...]
    neighbours: str
    neighbours_key: str
    fingerprint: str
    releases: int
    status: Literal["charged", "released"] = "charged"


@dataclass
class State:
    """What the header and the events so far say."""

    header: str
    epsilon: float
    delta: float
    adaptive: bool
    place: str
    head: str
    events: int = 0
    problem: str = ""
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    losses: dict[str, Losses] = field(default_factory=dict)
    neighbours: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_header(cls, header: str) -> State:
        """Return the state before the first event."""
        record = json.loads(header)
        return cls(
            header,
            checked_cap(float.fromhex(record["epsilon"]), "epsilon", math.inf),
            checked_cap(float.fromhex(record["delta"]), "delta", 1.0),
            bool(record["adaptive"]),
            str(record["place"]),
            hashlib.sha256(header.encode()).hexdigest(),
        )

    def allows(self, key: str, more: Losses) -> bool:
        """Whether the cap holds with ``more`` charged to these neighbours."""
        losses = self.losses.get(key, Counter()) + more
        return allows(losses, self.epsilon, self.delta, self.adaptive)

    def spent(self, key: str) -> float:
        """Return ε spent on these neighbours, at the cap's δ."""
        losses = self.losses.get(key, Counter())
        spent = spent_epsilon(losses, self.delta, self.adaptive)
        # rounded up it may pass a cap that holds
        return min(spent, self.epsilon) if self.allows(key, Counter()) else spent

    def catch_up(self, connection: sqlite3.Connection) -> str:
        """Take in the new events; return what is wrong, now or earlier, in words."""
        self.problem = self.problem or self._catch_up(connection)
        return self.problem

    def _catch_up(self, connection: sqlite3.Connection) -> str:
        if not _has_our_tables(connection):
            return "its tables are not those of a ledger"
        query = "SELECT number, body, hash FROM event WHERE number > ? ORDER BY number"
        for number, body, link in connection.execute(query, (self.events,)):
            if not isinstance(body, str) or link != chained(self.head, number, body):
                return f"event {number} does not follow event {self.events}: one was altered"
            try:
                self._take(number, json.loads(body))
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                return f"event {number} cannot be read ({type(error).__name__}: {error})"
            self.events, self.head = number, link
        stated = connection.execute("SELECT header, events, head FROM ledger").fetchall()
        if stated != [(self.header, self.events, self.head)]:
            return "the events are not those that the ledger counted: some were removed"
        return ""

    def _take(self, number: int, body: Mapping[str, Any]) -> None:
        kind = body["kind"]
        if kind == "charge":
            losses = tuple((str(law), float.fromhex(s)) for law, s in body["losses"])
            entry = LedgerEntry(
                id=number,
                time=str(body["time"]),
                label=None if body["label"] is None else str(body["label"]),
                losses=losses,
                neighbours=str(body["neighbours"]),
                neighbours_key=str(body["neighbours_key"]),
                fingerprint=str(body["fingerprint"]),
                releases=int(body["releases"]),
            )
            if not (losses and 1 <= entry.releases <= MOST_RELEASES):
                raise ValueError("it charges nothing")
            charged = multiplied(list(losses), entry.releases)
            self.losses.setdefault(entry.neighbours_key, Counter()).update(charged)
            self.neighbours.setdefault(entry.neighbours_key, entry.neighbours)
            self.entries[number] = entry
        elif kind == "release":
            entry = self.entries[body["entry"]]
            self.entries[entry.id] = replace(entry, status="released")
        elif kind == "move":
            self.place = str(body["place"])
        else:
            raise ValueError(f"unknown kind {kind!r}")


def chained(previous: str, number: int, body: str) -> str:
    """Return the hash of an event and all before it."""
    return hashlib.sha256(f"{previous}\n{number}\n{body}".encode()).hexdigest()


def _has_our_tables(connection: sqlite3.Connection) -> bool:
    """Whether the file holds our tables and nothing else; a trigger could undo a charge."""
    schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    return schema == [(text,) for text in _SCHEMA]


def read_ledger(path: Path, connection: sqlite3.Connection) -> State:
    """Read and verify everything."""
    if not _has_our_tables(connection):
        raise LedgerError(f"{path} cannot be trusted: its tables are not those of a ledger")
    damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        reason = str(damage).splitlines()[-1]
        raise LedgerError(f"{path} cannot be trusted: it is damaged ({reason})")
    headers = connection.execute("SELECT header FROM ledger").fetchall()
    try:
        ((header,),) = headers
        state = State.from_header(header)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise LedgerError(f"{path} cannot be trusted: no header ({error})") from None
    problem = state.catch_up(connection)
    if problem:
        raise LedgerError(f"{path} cannot be trusted: {problem}")
    return state


def create_file(path: Path, epsilon: float, delta: float, adaptive: bool) -> None:
    """Make a complete ledger beside ``path`` and link it into place: never half a ledger.

    If another process was faster, its ledger stays.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise LedgerError(f"{path} cannot be created: {error.strerror}") from None
    os.close(handle)  # mkstemp lets only the owner read and write
    try:
        header = json.dumps(
            {
                "format": FORMAT,
                "id": uuid.uuid4().hex,
                "created": now(),
                "epsilon": epsilon.hex(),
                "delta": delta.hex(),
                "adaptive": adaptive,
                "place": place_of(path, Path(name)),
            }
        )
        with refusals(path), closing(_connect(Path(name))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for text in _SCHEMA:
                connection.execute(text)
            head = State.from_header(header).head
            connection.execute("INSERT INTO ledger VALUES (?, 0, ?)", (header, head))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        try:
            os.link(name, path)
        except FileExistsError:
            return
        except OSError as error:
            raise LedgerError(
                f"{path} cannot be created ({error.strerror}): put it on a local disk whose file "
                "system has hard links"
            ) from None
        sync_directory(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def open_file(path: Path) -> sqlite3.Connection:
    """Open a file that is a ledger; anything else is refused and left as it is."""
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{path} is not a file")
    if found.st_size == 0:
        raise LedgerError(f"{path} is an empty file and no ledger; delete it if it never was one")
    if not found.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise LedgerError(f"{path} is read-only: a charge could not be recorded")
    _refuse_foreign(path)
    with refusals(path):
        connection = _connect(path)
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                raise LedgerError(f"{path} was changed to a write-ahead log by another program")
            connection.execute("PRAGMA journal_mode = DELETE")
        except BaseException:
            connection.close()
            raise
    return connection


def _refuse_foreign(path: Path) -> None:
    """Look at the marks of the format without locking, recovering or writing anything.

    Through SQLite, since closing the file in any other way would drop this process's locks.
    """
    try:
        with closing(_connect(path, "mode=ro&immutable=1")) as connection:
            mark = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
    except _SQLITE_ERRORS as error:
        if _primary_code(error) == sqlite3.SQLITE_CORRUPT:
            return  # perhaps only being written now: looked at again under a lock
        raise LedgerError(f"{path} is not a ledger: {error}") from None
    if mark != APPLICATION_ID:
        raise LedgerError(f"{path} belongs to another program, or is damaged; it is left as it is")
    if version > VERSION:
        raise LedgerError(
            f"{path} has version {version} of the format, this affinedp knows {VERSION}: install a "
            "newer affinedp"
        )
    if version < 1:
        raise LedgerError(f"{path} has no version of the format: it is damaged")


def _connect(path: Path, options: str = "mode=rw") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    # EXTRA: see the top of this file; fullfsync is the same for macOS
    for setting in ("synchronous=EXTRA", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}")
    # the file may come from a stranger
    for setting in ("trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals."""
    try:
        yield
    except _SQLITE_ERRORS as error:
        reasons = {
            sqlite3.SQLITE_BUSY: f"another process has held it for {BUSY_SECONDS:g} s; try again",
            sqlite3.SQLITE_FULL: "the disk is full; nothing was charged",
            sqlite3.SQLITE_CORRUPT: f"it is damaged ({error})",
            sqlite3.SQLITE_NOTADB: "it is not a ledger",
        }
        reason = reasons.get(_primary_code(error), f"{error}; do not release")
        raise LedgerError(f"{path}: {reason}") from None


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


def sync_directory(directory: Path) -> None:
    """Make sure that the names of new files in a directory are on the disk."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except PermissionError:  # Windows, which has no such thing
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise LedgerError(f"{directory} cannot be written: {error.strerror}") from None
    finally:
        os.close(handle)


def checked_cap(value: float, name: str, limit: float) -> float:
    """Return a cap as a float, or refuse it by ``name``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise AffineDPError(f"{name} must be a number, not {value!r}")
    try:
        cap = float(value)
    except OverflowError:
        cap = math.inf
    if not 0.0 <= cap < limit:
        raise AffineDPError(f"{name} must be at least 0 and below {limit:g}, not {value!r}")
    if 0.0 < cap < sys.float_info.min:
        raise AffineDPError(f"{name} = {value!r} is too small to compute with; take 0")
    return cap


def now() -> str:
    """Return the time, UTC."""
    return datetime.now(UTC).isoformat()
