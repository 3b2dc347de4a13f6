"""The state of one draw: a SQLite file that holds the secret draw and all that was sent with it.

A step is written before it is sent, so none can come out twice with different values.  The file is
its owner's only, locked while it is open; the last steps may lie in a log beside it (``…-wal``).

Waiting for the disk at every step would be slow.  So a few steps are *reserved* on the disk ahead
of time, with the name of the running system, and are then written without waiting: if only the
process dies, the system still has them.  If the system died (the name differs), the reserved
steps of which nothing is known may have been sent, and count as skipped.  Who cannot go on after
skipped steps waits for the disk at each, or draws for them ahead (``until``).

The next steps are reserved while half of them are left, in one transaction with all that was drawn
for them.  It counts once another thread has put the log onto the disk.

The draw is committed to by a hash; its path and every step sent are sealed with the salt as key.  A
bit that changed by accident is noticed before anything depends on it.
"""

from __future__ import annotations

import hmac
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from affinedp.files.connections import Connection
from affinedp.files.held import identity
from affinedp.files.processes import this_process
from affinedp.files.sqlite import (
    check_content,
    log_of,
    open_existing,
    refusals,
    version_of,
)
from affinedp.once.log import LogNumber
from affinedp.once.owner import KNOWS_ITS_LOG, Owner
from affinedp.once.record import Draw, Head, from_text, sealed, to_text
from affinedp.once.syncing import BackgroundSync
from affinedp.once.system import running_system

# Steps that are reserved at a time at most, and how many seconds' worth of them.
MOST_RESERVED = 256
RESERVED_SECONDS = 0.25
# Bytes after which the log is copied into the file: seldom, since who sends waits for that.
LONGEST_LOG = 1 << 24
# What a step adds to it at least: three pages.
STEP_BYTES = 3 * 4096
# Up to this version nothing was drawn ahead, and older programs would draw it again.
DREW_NOTHING_AHEAD = 1


class DrawnState:
    """A state that is open, and locked against all others.

    Parameters
    ----------
    owner : Owner
        Whose state it must be.
    path : Path
        An existing state, its real path.
    """

    def __init__(self, owner: Owner, path: Path) -> None:
        self.owner = owner
        self.path = path
        self._process = this_process()
        self._lock = threading.RLock()
        self._inside, self._close_asked = 0, False
        self._names = os.fspath(path), os.fspath(log_of(path))  # looked at in every step
        self._file = identity(self._names[0])
        # what counts, when more is due, what is said
        self._reserved = self._due = self._written = 0
        self._waits = True  # as every connection begins
        self._sync = BackgroundSync(log_of(path))
        self._connection: Connection | None = open_existing(owner.kind, path)
        self._log = identity(self._names[1])
        try:
            # how long the log is, and whether the next step begins one
            self._logged, self._begins = log_of(path).stat().st_size, True
            with refusals(owner.kind, path):
                check_content(owner.kind, path, self._connection)
                version = version_of(self._connection)
                self._is_older = version <= DREW_NOTHING_AHEAD < owner.kind.version
                self._number = (
                    LogNumber(owner, path, self._connection) if version >= KNOWS_ITS_LOG else None
                )
                self.draw = _read_draw(owner, path, self._connection)
                self.head = self._read_head(self._connection)
                # what the system before this one may have sent without a trace
                reserved, lost, system = self._read_reserved(self._connection)
                self._lost = lost if system == running_system() else max(lost, reserved)
                self._since = (self.head.next_step, time.monotonic())
        except OSError as error:
            self._end(as_it_is=True)
            raise owner.error(f"{path} cannot be opened: {error.strerror}") from None
        except BaseException:
            self._end(as_it_is=True)
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
            raise self.owner.damaged(f"{self.path}: what it holds about step {step} was altered")
        return outputs

    def last(self) -> int | None:
        """Return the last step of which something was sent, or None."""
        with self._use() as connection:
            (found,) = connection.execute("SELECT MAX(step) FROM sent").fetchone()
        return None if found is None else int(found)

    def forget(self, before: int) -> None:
        """Remove what was sent before a step; it cannot be sent again.

        Parameters
        ----------
        before : int
            The first step that is kept.
        """
        with self._use() as connection:
            connection.execute("DELETE FROM sent WHERE step < ?", (before,))

    def record(
        self, step: int, outputs: bytes, head: Head, *, wait: bool = False, until: int | None = None
    ) -> None:
        """Put a step on the disk; send it only afterwards.

        Parameters
        ----------
        step : int
            The step.
        outputs : bytes
            What will be sent.
        head : Head
            How far the owner has come with it.
        wait : bool
            Wait until it is on the disk; otherwise a power cut may turn it into a skipped step.
        until : int, optional
            The first step for which ``head`` does not hold what must be on the disk before it is
            sent; at least the next one.  By default there is no such step.
        """
        with self._use() as connection:
            self._sync.done(wait=step >= self._reserved)
            self._shorten(connection)
            ahead, at_once = 0, wait or self._begins or step >= self._reserved
            if not wait and not self._sync.busy and step >= self._due:
                ahead = self._ahead(step, until)
            self._set_waiting(connection, at_once)
            connection.execute("BEGIN IMMEDIATE")
            self._write(connection, step, outputs, head)
            if ahead:
                self._reserve(connection, ahead)
            connection.execute("COMMIT")
            self._begun()
            if ahead and at_once:
                self._is_reserved(step, ahead)
            elif ahead:
                self._sync.begin(lambda: self._is_reserved(step, ahead))
        self.head = head

    def restart(self, head: Head, outputs: bytes) -> None:
        """Forget all steps and keep the draw, for owners whose steps follow from public numbers.

        Parameters
        ----------
        head : Head
            Where to begin again.
        outputs : bytes
            What to hold about step 0.
        """
        if self.owner.copies_leak:
            raise self.owner.error(
                f"{self.path}: a {self.owner.name} does not begin again with the same draw, since "
                "two runs would give its noise away"
            )
        with self._use() as connection:
            self._set_waiting(connection, True)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM sent")
            self._write(connection, 0, outputs, head)
            connection.execute("COMMIT")
            self._begun()
        self.head = head

    def _write(self, connection: Connection, step: int, outputs: bytes, head: Head) -> None:
        numbers, seal = to_text(head.numbers), self._seal("sent", step, outputs)
        if self._begins and self._number is not None:
            self._number.begin(connection)
        moved = (head.next_step, numbers, self._seal_of_path(head.next_step, numbers))
        connection.execute("INSERT INTO sent VALUES (?, ?, ?)", (step, outputs, seal))
        connection.execute("UPDATE path SET next_step = ?, numbers = ?, seal = ?", moved)
        if self._is_older:  # from now on programs of that version would misread it
            connection.execute(f"PRAGMA user_version = {DREW_NOTHING_AHEAD + 1}")
            self._is_older = False
        self._logged += STEP_BYTES + len(outputs) + len(numbers)

    def _set_waiting(self, connection: Connection, waits: bool) -> None:
        """Whether a commit waits for the disk from now on; to say it again takes time."""
        if waits != self._waits:
            connection.execute(f"PRAGMA synchronous={'FULL' if waits else 'NORMAL'}")
            self._waits = waits

    def _begun(self) -> None:
        """The first step of a log is on the disk."""
        if self._begins and self._number is not None:
            self._number.begun()
        self._begins = False

    def _shorten(self, connection: Connection) -> None:
        """Copy a long log into the file; the next step begins another one."""
        if self._logged >= LONGEST_LOG:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._logged, self._begins = 0, True

    def _ahead(self, step: int, until: int | None) -> int:
        """Up to which step to reserve: what about a quarter of a second takes at this rate."""
        (first, begun), self._since = self._since, (step, time.monotonic())
        rate = (step - first) / max(self._since[1] - begun, 1e-6)
        ahead = step + min(MOST_RESERVED, max(1, int(RESERVED_SECONDS * rate)))
        return max(self._reserved, step + 1, ahead if until is None else min(ahead, until))

    def _reserve(self, connection: Connection, step: int) -> None:
        """Write that steps below this one may be sent."""
        system = running_system()
        seal = self._seal("reserved", step, f"{self._lost} {system}".encode())
        row = (step, self._lost, system, seal)
        connection.execute("UPDATE reserved SET step = ?, lost = ?, system = ?, seal = ?", row)
        self._written = step

    def _is_reserved(self, step: int, ahead: int) -> None:
        """It is on the disk that steps below ``ahead`` may be sent; the next are due half way."""
        self._reserved, self._due = ahead, (step + ahead) // 2

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let no other thread in until one thing is done, such as sending a step.

        A close that interrupts it on its own thread, from a signal handler, waits for its end.
        """
        self._refuse_fork()  # another thread may have had the lock when the fork came
        with self._lock:
            if self._inside:
                raise self.owner.error(
                    f"the {self.owner.name} on {self.path} is in the middle of a step: what "
                    "interrupts it (a signal handler) may close it, and nothing else"
                )
            self._inside += 1
            try:
                yield
            finally:
                self._left()

    def close(self) -> None:
        """Close the file and let others open it."""
        if this_process() != self._process:
            return  # after a fork the file, its locks and its log belong to the parent
        with self._lock:
            if self._inside:
                self._close_asked = True
            else:
                self._end()

    def _end(self, *, as_it_is: bool = False) -> None:
        """Close the file, or leave file and log as they are, as a crash would."""
        connection, self._connection = self._connection, None
        self._sync.close()
        if connection is None:
            return
        if as_it_is:
            connection.leave(log_of(self.path))
            return
        with suppress(sqlite3.Error):  # then the reservation stays, which is safe
            if self._written and self._written > self.head.next_step:
                self._set_waiting(connection, True)
                self._reserve(connection, self.next_step)
        connection.close()

    def _left(self) -> None:
        self._inside -= 1
        if self._close_asked and not self._inside:
            self.close()

    @contextmanager
    def _use(self) -> Iterator[Connection]:
        """The connection; after an error it is closed, since only the disk knows what is on it."""
        if self._connection is None:
            raise self.owner.error(f"the {self.owner.name} on {self.path} is closed: open it again")
        self._refuse_fork()
        self._refuse_changed()
        self._inside += 1
        try:
            with refusals(self.owner.kind, self.path):
                yield self._connection
        except OSError as error:
            self._end(as_it_is=True)
            why = f"cannot be put onto the disk: {error.strerror}; {self.owner.kind.otherwise}"
            raise self.owner.error(f"{self.path} {why}") from None
        except self.owner.error:
            self._end(as_it_is=True)
            raise
        except BaseException:
            self._end()
            raise
        finally:
            self._left()

    def _refuse_fork(self) -> None:
        if this_process() != self._process:
            raise self.owner.error(
                f"{self.path} was opened before a fork, and belongs to the process that opened it: "
                "open it after the fork, or in a program of its own"
            )

    def _refuse_changed(self) -> None:
        """Refuse to go on in a file, or a log, that nobody would find again."""
        if identity(self._names[0]) != self._file:
            self._end()
            raise self.owner.error(f"{self.path} was moved or replaced while it was open")
        found = identity(self._names[1])
        if found != self._log:
            # SQLite still has all of a log that was removed, and copies it into the file
            self._end(as_it_is=found is not None)
            raise self.owner.error(
                f"{self._names[1]} was moved or replaced while {self.path} was open, and "
                f"nothing more is sent: open the {self.owner.name} again"
            )

    def _read_head(self, connection: sqlite3.Connection) -> Head:
        try:
            ((step, text, seal),) = connection.execute("SELECT * FROM path").fetchall()
            if seal == self._seal_of_path(step, text):
                return Head(int(step), from_text(text))
        except (ValueError, TypeError, AttributeError):
            pass
        raise self.owner.damaged(f"{self.path}: how far it has come was altered")

    def _read_reserved(self, connection: sqlite3.Connection) -> tuple[int, int, str]:
        try:
            ((step, lost, system, seal),) = connection.execute("SELECT * FROM reserved").fetchall()
            if seal == self._seal("reserved", step, f"{lost} {system}".encode()):
                return int(step), int(lost), system
        except (ValueError, TypeError, AttributeError):
            pass
        raise self.owner.damaged(f"{self.path}: what was reserved was altered")

    def _seal_of_path(self, step: int, numbers: str) -> bytes:
        """The seal of how far it has come, and in which log."""
        log = b"" if self._number is None else self._number.number
        return self._seal("path", step, numbers.encode() + log)

    def _seal(self, what: str, step: int, content: bytes) -> bytes:
        return sealed(self.draw.salt, what, step, content)


def _read_draw(owner: Owner, path: Path, connection: sqlite3.Connection) -> Draw:
    """The draw, if it is the one that was committed to."""
    try:
        ((header, salt, text, commitment),) = connection.execute("SELECT * FROM draw").fetchall()
        draw = Draw(header, salt, from_text(text))
        if hmac.compare_digest(draw.commitment, commitment):
            return draw
    except (ValueError, TypeError, AttributeError):
        pass
    raise owner.damaged(f"{path}: the draw is not the one that was committed to")
