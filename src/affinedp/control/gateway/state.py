"""The state of a gateway: one SQLite file that holds the secret draw and all that was sent.

A step is written before it is sent, so none can come out twice with different values.  The file is
for its owner only and locked while it is open.  While it is open, and after a crash, the last steps
lie in a log beside it (``…-wal``), which belongs to it.

Waiting for the disk at every step would be slow.  So a few steps are *reserved* on the disk ahead
of time, with the name of the running system, and are then written without waiting: if only the
process dies, the system still has them.  If the system died (the name differs), the reserved
steps of which nothing is known may have been sent, and count as skipped.

The draw is committed to by a hash; the noise's path and every step sent are sealed with the salt
as key.  A bit that changed by accident is noticed before anything depends on it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from affinedp.budget.ledger_file import sync_directory
from affinedp.errors import AffineDPError

VERSION = 1
APPLICATION_ID = 0x61644754  # "adGT"
# Twice the length of the hash: then also unlimited computing learns next to nothing from it.
SALT_BYTES = 64
# A gateway that is just being closed gets this long.
BUSY_SECONDS = 0.5

_SCHEMA = (
    "CREATE TABLE draw (header TEXT NOT NULL, salt BLOB NOT NULL, numbers TEXT NOT NULL, "
    "commitment TEXT NOT NULL)",
    "CREATE TABLE path (next_step INTEGER NOT NULL, numbers TEXT NOT NULL, seal BLOB NOT NULL)",
    "CREATE TABLE reserved (step INTEGER NOT NULL, lost INTEGER NOT NULL, system TEXT NOT NULL, "
    "seal BLOB NOT NULL)",
    "CREATE TABLE sent (step INTEGER PRIMARY KEY, outputs BLOB NOT NULL, seal BLOB NOT NULL)",
)
# Steps that are reserved at a time at most, and how many seconds' worth of them.
MOST_RESERVED = 256
RESERVED_SECONDS = 0.25
_THIS_PROCESS = secrets.token_hex(16)
# The second where SQLite quotes damaged text in its message.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class GatewayStateError(AffineDPError):
    """A state that is lost, in use, or of another gateway: nothing is sent."""


class DamagedStateError(GatewayStateError):
    """A state whose draw or path cannot be trusted any more."""


@dataclass(frozen=True)
class Draw:
    """The one draw of a gateway, and what it was drawn for.

    Attributes
    ----------
    header : str
        Public: the mechanism's fingerprint, grids, and scale, as JSON.
    salt : bytes
        Secret: hides the draw in its commitment, and is the key of the seals.
    numbers : tuple of int
        Secret: η on its grid.
    """

    header: str
    salt: bytes = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)

    @property
    def commitment(self) -> str:
        """A hash that can be shown: it fixes the draw without revealing it."""
        text = f"{len(self.header)} {self.header} {to_text(self.numbers)}"
        return hashlib.sha256(self.salt + text.encode()).hexdigest()


@dataclass(frozen=True)
class Head:
    """How far a gateway has come.

    Attributes
    ----------
    next_step : int
        The first step that was neither sent nor skipped.
    numbers : tuple of int
        Secret: the noise's path at the last step that was sent, or at 0.
    """

    next_step: int
    numbers: tuple[int, ...] = field(repr=False)

    @property
    def at(self) -> int:
        """The step at which the path is."""
        return max(self.next_step - 1, 0)


class GatewayState:
    """A state that is open, and locked against all others.

    Parameters
    ----------
    path : Path
        An existing state, its real path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _refuse_unusual(path)
        self._process = os.getpid()
        self._file = _identity(path)
        self._reserved = 0  # nothing yet, by this process
        with _refusals(path):
            self._connection: sqlite3.Connection | None = _connect(path)
        try:
            with _refusals(path):
                _lock(self._connection)
                _refuse_foreign(path, self._connection)
                self.draw = _read_draw(path, self._connection)
                self.head = self._read_head(self._connection)
                # what the system before this one may have sent without a trace
                reserved, lost, system = self._read_reserved(self._connection)
                self._lost = lost if system == running_system() else max(lost, reserved)
                self._since = (self.head.next_step, time.monotonic())
        except BaseException:
            self.close()
            raise

    @property
    def next_step(self) -> int:
        """The first step that can neither have been sent nor was skipped."""
        return max(self.head.next_step, self._lost)

    def sent(self, step: int) -> bytes | None:
        """Return what was sent at a step, or None if nothing was.

        Parameters
        ----------
        step : int
            Any step.
        """
        with self._use() as connection:
            query = "SELECT outputs, seal FROM sent WHERE step = ?"
            found = connection.execute(query, (step,)).fetchone()
        if found is None:
            return None
        outputs, seal = found
        if not isinstance(outputs, bytes) or seal != self._seal("sent", step, outputs):
            self.close()
            raise DamagedStateError(f"{self.path}: what it holds about step {step} was altered")
        return outputs

    def record(self, step: int, outputs: bytes, head: Head) -> None:
        """Put a step on the disk; send it only afterwards.

        Parameters
        ----------
        step : int
            The step.
        outputs : bytes
            What will be sent.
        head : Head
            How far the gateway has come with it.
        """
        numbers = to_text(head.numbers)
        moved = (head.next_step, numbers, self._seal("path", head.next_step, numbers.encode()))
        with self._use() as connection:
            if step >= self._reserved:
                self._reserve(connection, step + self._ahead(step))
            connection.execute("BEGIN IMMEDIATE")
            seal = self._seal("sent", step, outputs)
            connection.execute("INSERT INTO sent VALUES (?, ?, ?)", (step, outputs, seal))
            connection.execute("UPDATE path SET next_step = ?, numbers = ?, seal = ?", moved)
            connection.execute("COMMIT")
        self.head = head

    def _ahead(self, step: int) -> int:
        """How many steps to reserve: what about a quarter of a second takes at this rate."""
        first, begun = self._since
        self._since = (step, time.monotonic())
        rate = (step - first) / max(self._since[1] - begun, 1e-6)
        return min(MOST_RESERVED, max(1, int(RESERVED_SECONDS * rate)))

    def _reserve(self, connection: sqlite3.Connection, step: int) -> None:
        """Put on the disk, and wait for it, that steps below this one may be sent."""
        system = running_system()
        seal = self._seal("reserved", step, f"{self._lost} {system}".encode())
        row = (step, self._lost, system, seal)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("UPDATE reserved SET step = ?, lost = ?, system = ?, seal = ?", row)
        connection.execute("PRAGMA synchronous=NORMAL")
        self._reserved = step

    def close(self) -> None:
        """Close the file and let others open it."""
        if os.getpid() != self._process:
            return  # after a fork the file, its locks and its log belong to the parent
        if self._connection is not None:
            with suppress(sqlite3.Error):  # then the reservation stays, which is safe
                if self._reserved and self._reserved > self.head.next_step:
                    self._reserve(self._connection, self.next_step)
            self._connection.close()
            self._connection = None

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """The connection; after an error it is closed, since only the disk knows what is on it."""
        if self._connection is None:
            raise GatewayStateError(f"the gateway on {self.path} is closed: open it again")
        if os.getpid() != self._process:
            raise GatewayStateError(f"{self.path} was opened before a fork: open it again here")
        if _identity(self.path) != self._file:
            self.close()
            raise GatewayStateError(f"{self.path} was moved or replaced while it was open")
        try:
            with _refusals(self.path):
                yield self._connection
        except BaseException:
            self.close()
            raise

    def _read_head(self, connection: sqlite3.Connection) -> Head:
        try:
            ((step, text, seal),) = connection.execute("SELECT * FROM path").fetchall()
            if seal == self._seal("path", step, text.encode()):
                return Head(int(step), from_text(text))
        except (ValueError, TypeError, AttributeError):
            pass
        raise DamagedStateError(f"{self.path}: the path of the noise was altered")

    def _read_reserved(self, connection: sqlite3.Connection) -> tuple[int, int, str]:
        try:
            ((step, lost, system, seal),) = connection.execute("SELECT * FROM reserved").fetchall()
            if seal == self._seal("reserved", step, f"{lost} {system}".encode()):
                return int(step), int(lost), system
        except (ValueError, TypeError, AttributeError):
            pass
        raise DamagedStateError(f"{self.path}: what was reserved was altered")

    def _seal(self, what: str, step: int, content: bytes) -> bytes:
        return _sealed(self.draw.salt, what, step, content)


def create_state(
    path: Path, prepare: Callable[[], tuple[Draw, Head]], ready: Callable[[Draw], None]
) -> None:
    """Make a complete state beside ``path`` and link it into place: never half a state.

    Parameters
    ----------
    path : Path
        Where to; nothing may be there when it is linked.
    prepare : callable
        Draws; called when it is certain that the directory can be written.
    ready : callable
        Called with the draw when it is on the disk, just before it is linked.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise GatewayStateError(f"{path} cannot be created: {error.strerror}") from None
    os.close(handle)  # mkstemp lets only the owner read and write
    try:
        draw, head = prepare()
        with _refusals(path), closing(_connect(Path(name))) as connection:
            _fill(connection, draw, head)
        ready(draw)
        try:
            os.link(name, path)
        except OSError as error:
            raise GatewayStateError(
                f"{path} cannot be created ({error.strerror}): put it on a local disk whose file "
                "system has hard links, and let one process create it"
            ) from None
        sync_directory(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _fill(connection: sqlite3.Connection, draw: Draw, head: Head) -> None:
    # a log beside the file costs one sync per step, a rollback journal four
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN IMMEDIATE")
    for text in _SCHEMA:
        connection.execute(text)
    drawn = (draw.header, draw.salt, to_text(draw.numbers), draw.commitment)
    connection.execute("INSERT INTO draw VALUES (?, ?, ?, ?)", drawn)
    numbers = to_text(head.numbers)
    seal = _sealed(draw.salt, "path", head.next_step, numbers.encode())
    connection.execute("INSERT INTO path VALUES (?, ?, ?)", (head.next_step, numbers, seal))
    nothing = (0, 0, "", _sealed(draw.salt, "reserved", 0, b"0 "))
    connection.execute("INSERT INTO reserved VALUES (?, ?, ?, ?)", nothing)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # the gateway lets one thread in at a time
    )
    for setting in ("locking_mode=EXCLUSIVE", "synchronous=FULL", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}")
    # the file may come from a stranger
    for setting in ("trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _lock(connection: sqlite3.Connection) -> None:
    """Take the lock, which locking_mode=EXCLUSIVE keeps until the connection is closed."""
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")


def _refuse_unusual(path: Path) -> None:
    try:
        found = path.stat()
    except OSError as error:
        raise GatewayStateError(f"{path} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise GatewayStateError(f"{path} is not a file")
    if found.st_size == 0:
        raise DamagedStateError(f"{path} is empty")
    if os.name == "posix" and found.st_mode & 0o077:
        raise GatewayStateError(
            f"{path} holds the secret draw, but others than its owner may use it: chmod 600 it, "
            "and think about who may have read it"
        )
    if not os.access(path, os.W_OK):
        raise GatewayStateError(f"{path} is read-only: what is sent could not be recorded")


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        raise GatewayStateError(f"{path} was changed to another kind of journal by another program")
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != APPLICATION_ID:
        raise GatewayStateError(f"{path} belongs to another program; it is left as it is")
    if version > VERSION:
        raise GatewayStateError(
            f"{path} was made by a newer affinedp (format {version}): install it"
        )


def _read_draw(path: Path, connection: sqlite3.Connection) -> Draw:
    """The draw, if it is the one that was committed to."""
    schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    if schema != [(text,) for text in _SCHEMA]:  # a trigger could undo a step
        raise DamagedStateError(f"{path}: its tables are not those of a gateway")
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise DamagedStateError(f"{path} is damaged ({str(damage).splitlines()[-1]})")
    try:
        ((header, salt, text, commitment),) = connection.execute("SELECT * FROM draw").fetchall()
        draw = Draw(header, salt, from_text(text))
        if hmac.compare_digest(draw.commitment, commitment):
            return draw
    except (ValueError, TypeError, AttributeError):
        pass
    raise DamagedStateError(f"{path}: the draw is not the one that was committed to")


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into refusals."""
    try:
        yield
    except _SQLITE_ERRORS as error:
        code = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
        if code in _DAMAGE or isinstance(error, UnicodeDecodeError):
            raise DamagedStateError(f"{path} is damaged ({error})") from None
        reasons = {
            sqlite3.SQLITE_BUSY: "another gateway is using it: one state serves one gateway",
            sqlite3.SQLITE_FULL: "the disk is full; make room and open the gateway again",
        }
        reason = reasons.get(code, f"{error}; open the gateway again when this is mended")
        raise GatewayStateError(f"{path}: {reason}") from None


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def running_system() -> str:
    """Return a name of the running system that no other start of it has."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _THIS_PROCESS  # elsewhere every process counts as another system


def _sealed(salt: bytes, what: str, step: int, content: bytes) -> bytes:
    return hmac.digest(salt, f"{what} {step} ".encode() + content, "sha256")


def to_text(numbers: Sequence[int]) -> str:
    """Return integers of any size as text."""
    return " ".join(format(number, "x") for number in numbers)


def from_text(text: str) -> tuple[int, ...]:
    """Return the integers that :func:`to_text` wrote."""
    return tuple(int(word, 16) for word in text.split())
