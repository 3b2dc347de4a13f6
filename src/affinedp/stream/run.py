"""A run: all that must outlive a crash, as one row of an SQLite file, committed once a block.

The row holds the settings, how often the run was opened, ``until``, and the owner's memory at
``until``.  Before anything of a block of steps leaves, the row is advanced past the block and
committed; what was drawn for the block is in memory only.  So all steps below ``until`` may have
been sent, none from ``until`` on was, and a crash leaves nothing to decide: the rest of its block
is skipped.  Every commit names the opening that makes it: once a run is opened anew, the earlier
opening can commit nothing more.  docs/explanation/gateway.md says what copies and losses cost.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from affinedp.arrays import yes_or_no
from affinedp.budget.events import Closing, now
from affinedp.budget.ledger import Ledger, checked_ledger
from affinedp.errors import AffineDPError
from affinedp.files.database import SETTINGS, Database

# A block holds the steps of so many seconds, and so many at most.
BLOCK_SECONDS, BLOCK_STEPS = 0.25, 256
# What says in a folder which runs were drawn there: it outlives their files.
REGISTER = ".affinedp-runs"
_REGISTER = "CREATE TABLE IF NOT EXISTS runs (name TEXT, place TEXT, id TEXT, opened INTEGER, "
_REGISTER += "until INTEGER, PRIMARY KEY (name, place, id))"
_SEAL_BYTES = 16
# Twice the length of a hash: then also unlimited computing learns next to nothing from it.
_SALT_BYTES = 64

Memory = Mapping[str, Any]


class RunError(AffineDPError):
    """A run that is lost, damaged, opened elsewhere (``taken``) or another: nothing is sent."""

    def __init__(self, message: str, *, damaged: bool = False, taken: bool = False) -> None:
        self.damaged, self.taken = damaged, taken
        super().__init__(message)


class RunFile(Database):
    """The file of a run."""

    what, error = "state of a run", RunError
    mark = 0x61645232  # "adR2"
    tables = (
        "CREATE TABLE run "
        "(head TEXT, salt BLOB, opened INTEGER, until INTEGER, memory TEXT, seal BLOB)",
        "CREATE TABLE sent (step INTEGER PRIMARY KEY, outputs BLOB)",
    )
    settings = (*SETTINGS, "secure_delete=ON")
    patience = 5.0

    def _refuse_unusual(self) -> None:
        super()._refuse_unusual()
        if os.name == "posix" and self.path.stat().st_mode & 0o077:
            raise RunError(
                f"{self.path} holds a secret draw, but others than its owner may use it: chmod 600 "
                "it, and think about who may have read it"
            )


@dataclass(frozen=True)
class Owner:
    """Whose run it is: a name for messages and charges, what one draw is for, what copies cost."""

    name: str
    subject: str
    copies_leak: bool = True


@dataclass(frozen=True)
class Beginning:
    """What a run is drawn for: public settings, and what charges a ledger and draws its memory.

    ``draw`` is called with the ledger, or None if nothing is to be charged, and with the label of
    the charge.
    """

    settings: Mapping[str, Any]
    draw: Callable[[Ledger | None, str], Memory]
    until: int = 0

    @classmethod
    def charging(
        cls, mechanism: Any, settings: Mapping[str, Any], draw: Callable[[], Memory]
    ) -> Beginning:
        """Return the beginning of a run that is charged what a mechanism promises."""

        def charged(ledger: Ledger | None, label: str) -> Memory:
            if ledger is not None:
                guarantee, fingerprint = mechanism.guarantee, mechanism.fingerprint
                ledger.charge(guarantee, fingerprint=fingerprint, label=label)
            return draw()

        return cls(settings, charged)


@dataclass(frozen=True)
class Asked:
    """What a user says about charge and file, checked."""

    ledger: Ledger | None = None
    label: str | None = None
    redraw: bool = False
    moved: bool = False

    def __post_init__(self) -> None:
        if not (self.label is None or isinstance(self.label, str)):
            raise AffineDPError(f"label must be text, not {self.label!r}")
        checked_ledger(self.ledger)
        for name in ("redraw", "moved"):
            yes_or_no(getattr(self, name), name)


class Run:
    """An open run: drawn once and charged once, and fenced against every later opening."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        owner: Owner,
        begin: Callable[[], Beginning],
        check: Callable[[Mapping[str, Any], Memory], None],
        asked: Asked,
    ) -> None:
        self._set_up(path, owner, asked)
        if not os.path.lexists(self.path):
            self._make_new()
        try:
            self._open(begin, check)
        except RunError as error:
            if not error.damaged:
                raise
            if not _registered(self.path):
                raise RunError(f"{error}; it is left as it is", damaged=True) from None
            self._refuse_redraw(str(error))
            self._make_new()
            self._open(begin, check)
        self._since = (self.until, time.monotonic())
        _open_runs.add(self)

    @classmethod
    def look(cls, path: str | os.PathLike[str], owner: Owner) -> Run:
        """Return a run as it is, without taking it over: it tells, and commits nothing."""
        run = cls.__new__(cls)
        run._set_up(path, owner, Asked())
        run._file.look()
        with run._file.begun(write=False) as db:
            run._file.check(db)
            row = _row(run.path, db)
        if row.memory is None or row.head.get("owner") != owner.name:
            raise RunError(f"{run.path} is not the state of this kind of run: {owner.name}")
        run._take(row, row.memory)
        run._end("was only looked at")
        return run

    def _set_up(self, path: str | os.PathLike[str], owner: Owner, asked: Asked) -> None:
        self._file, self.owner, self._asked = RunFile(path), owner, asked
        self.path = self._file.path
        self._label = asked.label or f"{owner.name} {self.path.name}"
        self._lock, self._inside, self._closing = threading.RLock(), False, False
        self._ended = ""
        self._head: dict[str, Any] = {}
        self.opened, self.until = 0, 0
        self.memory: Memory = {}
        self._pending: dict[int, bytes] = {}
        self._aside: dict[Path, Path] = {}
        # what is given back when the run is closed: the next step, and the memory there
        self.rest: Callable[[], tuple[int, Memory]] | None = None

    def _take(self, row: _Row, memory: Memory) -> None:
        self._salt, self.opened, self.until = row.salt, row.opened, row.until
        self._head, self.memory = row.head, memory

    # ------------------------------------------------------------------ what it holds

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was drawn with: public."""
        found: Mapping[str, Any] = self._head["settings"]
        return found

    @property
    def commitment(self) -> str:
        """A hash that fixes what was drawn at the beginning without revealing it."""
        return str(self._head["commitment"])

    @property
    def warnings(self) -> list[str]:
        """What must be said beside the promise of one draw."""
        found = []
        if not self._head["charged"]:
            found.append("no ledger was charged for this draw: nothing keeps count of it")
        draws = len({known.id for known in _registered(self.path)})
        if draws > 1:
            found.append(
                f"{draws} draws were made for this state; this is the promise of one alone"
            )
        return found

    def digest(self, step: int, content: bytes) -> bytes:
        """Return a hash that only who has the file can compute."""
        return self._sealed("read", step, content)

    def hedged(self, step: int, content: bytes) -> bytes:
        """Return a seed of the system's randomness, this run's secret, the step and content."""
        return os.urandom(32) + self._sealed("fresh", step, content, 32)

    def sent(self, step: int) -> bytes | None:
        """Return what was kept of a step, or None."""
        if step in self._pending:
            return self._pending[step]
        with self._file.begun(write=False) as db:
            found = db.execute("SELECT outputs FROM sent WHERE step = ?", (step,)).fetchone()
        if found is None:
            return None
        outputs = found[0][:-_SEAL_BYTES] if isinstance(found[0], bytes) else b""
        if found[0] != outputs + self._sealed("sent", step, outputs):
            self._end("is damaged")
            message = f"{self.path}: what it holds about step {step} was altered"
            raise RunError(message, damaged=True)
        return outputs

    # ------------------------------------------------------------------ going on

    def keep(self, step: int, outputs: bytes) -> None:
        """Remember what is sent at a step; it is written with the next commit."""
        self._pending[step] = outputs

    def block(self, step: int, most: int | None = None) -> int:
        """Return up to which step to go with the next commit, if ``step`` is sent now."""
        (first, then), moment = self._since, time.monotonic()
        self._since = (step, moment)
        rate = (step - first) / max(moment - then, 1e-6)
        until = step + min(BLOCK_STEPS, max(1, int(BLOCK_SECONDS * rate)))
        return until if most is None else min(until, most)

    def commit(self, until: int, memory: Memory, forget: int | None = None) -> None:
        """Advance the row and put it on the disk; only then steps below ``until`` may leave."""
        self._refuse_ended()
        try:
            with self._file.begun(write=True) as db:
                if forget is not None:
                    db.execute("DELETE FROM sent WHERE step < ?", (forget,))
                self._write(db, until, memory, (self.opened, self.until))
        except BaseException:
            self._end("met an error when it was written, and only the disk knows what is on it")
            raise
        self.until, self.memory, self._pending = until, memory, {}

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread do one thing; a close that interrupts it waits for its end."""
        self._refuse_ended()  # first: another thread may have had the lock when a fork came
        with self._lock:
            self._refuse_ended()
            if self._inside:
                raise RunError(
                    f"the {self.owner.name} on {self.path} is in the middle of a step: what "
                    "interrupts it (a signal handler) may close it, and nothing else"
                )
            self._inside = True
            try:
                yield
            finally:
                self._inside = False
                if self._closing:
                    self.close()

    def close(self) -> None:
        """Give back the steps that were not sent, and end."""
        if self._ended:
            return
        with self._lock:
            if self._inside:
                self._closing = True
                return
            until, memory = (self.until, self.memory) if self.rest is None else self.rest()
            # if this fails the rest of the block is skipped, which is safe
            with suppress(RunError):
                if self._pending or until != self.until:
                    self.commit(until, memory)
                self._note(self.until)
            self._end("is closed")

    def _end(self, why: str) -> None:
        self._ended = self._ended or why

    def _refuse_ended(self) -> None:
        if self._ended:
            raise RunError(f"the {self.owner.name} on {self.path} {self._ended}: open it again")

    # ------------------------------------------------------------------ opening

    def _open(
        self,
        begin: Callable[[], Beginning],
        check: Callable[[Mapping[str, Any], Memory], None],
    ) -> None:
        """Take the run, or draw it, and count the opening."""
        self._file.look()
        with self._file.begun(write=True) as db:
            self._file.check(db)
            row = _row(self.path, db)
            before = (row.opened, row.until)
            self._take(row, row.memory or {})
            if row.memory is None:
                self._begin(begin)
            else:
                self._check(check)
            self.opened += 1
            self._write(db, self.until, self.memory, before)
        self._note(None)
        for entry in self._charges(re.escape(self._suffix)):
            if entry.status == "charged" and self._asked.ledger is not None:
                self._asked.ledger.settle(entry.id)

    def _begin(self, begin: Callable[[], Beginning]) -> None:
        """Charge and draw; what is refused without a charge leaves nothing behind."""
        # a copy of a file without a draw is another run, with a charge of its own
        identity = hashlib.sha256(self._salt + _place(self.path).encode()).hexdigest()[:32]
        if any(known.opened for known in _registered(self.path) if known.id == identity):
            raise RunError(_older(self.path))
        self._head = {"id": identity}
        paid = bool(self._charges(re.escape(self._suffix)))
        try:
            beginning = begin()
            self.until, self.memory = (
                beginning.until,
                beginning.draw(None if paid else self._asked.ledger, self._label + self._suffix),
            )
        except BaseException:
            with suppress(AffineDPError):  # of a ledger that cannot be asked: it may be charged
                if not self._charges(re.escape(self._suffix)):
                    self._undo()
            raise
        self._note(None)
        head = {"owner": self.owner.name, "created": now(), "settings": beginning.settings}
        text = json.dumps([head, self.memory])
        self._head = json.loads(json.dumps(head)) | {
            "id": identity,
            "charged": self._asked.ledger is not None,
            "commitment": hashlib.sha256(self._salt + text.encode()).hexdigest(),
        }

    def _check(self, check: Callable[[Mapping[str, Any], Memory], None]) -> None:
        """Refuse a run that is not the one that was asked for, was copied here, or is older."""
        if self._head["owner"] != self.owner.name:
            raise RunError(
                f"{self.path} is the state of another kind of run ({self._head['owner']}), not of "
                f"this {self.owner.name}; it is left as it is"
            )
        try:
            check(self.settings, self.memory)
        except RunError as error:
            raise error.located(str(self.path)) from None
        if self._asked.ledger is not None and not self._charges(re.escape(self._suffix)):
            raise RunError(
                f"{self.path} was never charged to this ledger: it was swapped, or drawn without "
                "one"
            )
        known = _registered(self.path)
        ours = [one for one in known if one.id == self._head["id"]]
        if known and not ours:
            raise RunError(
                f"{self.path} is not the state that {REGISTER} tells of: it was swapped. Put the "
                "right one there"
            )
        here = [one for one in ours if one.place == _place(self.path)]
        if not self.owner.copies_leak:
            return
        if not here and not self._asked.moved:
            raise RunError(
                f"{self.path} was not drawn here, or {REGISTER} is lost: a copy of a state that is "
                "used twice gives its noise away. If it was moved, and no other copy is in use, "
                "give moved=True"
            )
        for one in here:
            # a run that was closed goes on where it was closed
            until = self.until if one.until is None else one.until
            if (self.opened, self.until) < (one.opened, until):
                raise RunError(_older(self.path))

    def _make_new(self) -> None:
        """Make a file without a draw; one that was lost or damaged is made anew for a charge."""
        path = self.path
        beside = re.compile(re.escape(path.name) + r"(-journal|(-journal)?\.aside-[0-9]+)")
        traces = sorted(name for name in os.listdir(path.parent) if beside.fullmatch(name))
        if not os.path.lexists(path):
            if _registered(path):
                self._refuse_redraw(f"{path} is lost: {REGISTER} says that it was drawn")
            elif traces:
                self._refuse_redraw(f"{path} is lost: {traces[0]} tells of it")
            elif self._charges(re.escape(self._label) + r" \(run [0-9a-f]{32}\)"):
                self._refuse_redraw(
                    f"there is no state {path}, but the ledger was charged for {self._label!r} "
                    "(give another label if this is another run)"
                )
        aside = ".aside-" + re.sub(r"[^0-9]", "", now())[:20]
        for name in (path, path.with_name(path.name + "-journal")):
            if os.path.lexists(name):
                self._aside[name] = Path(os.fspath(name) + aside)
                os.rename(name, self._aside[name])
        salt = secrets.token_bytes(_SALT_BYTES)
        self._file.make(
            lambda db, part: db.execute("INSERT INTO run VALUES ('', ?, 0, 0, NULL, NULL)", (salt,))
        )

    def _undo(self) -> None:
        """Leave the folder as it was: nothing was charged, and nothing drawn."""
        with suppress(OSError):
            self.path.unlink()
            for name, aside in self._aside.items():
                os.rename(aside, name)

    def _refuse_redraw(self, reason: str) -> None:
        if self._asked.redraw and self._asked.ledger is not None:
            return
        raise RunError(
            f"{reason}. Drawing again for the same {self.owner.subject} is a second release: put "
            "the state back, or ask for a redraw (redraw=True) with a ledger, which is charged "
            "again"
        )

    @property
    def _suffix(self) -> str:
        """What the label of a charge ends with, to name the run that it pays for."""
        return f" (run {self._head['id']})"

    def _charges(self, pattern: str) -> list[Any]:
        if self._asked.ledger is None:
            return []
        found = re.compile(pattern + r"\Z")
        return [entry for entry in self._asked.ledger.history() if found.search(entry.label or "")]

    # ------------------------------------------------------------------ the file

    def _write(
        self, db: sqlite3.Connection, until: int, memory: Memory, before: tuple[int, int]
    ) -> None:
        """Advance the row and keep what was sent, if nobody else opened the run since."""
        head, text = json.dumps(self._head), json.dumps(memory)
        seal = _seal(self._salt, head, self.opened, until, text)
        done = db.execute(
            "UPDATE run SET head = ?, opened = ?, until = ?, memory = ?, seal = ? "
            "WHERE salt = ? AND opened = ? AND until = ?",
            (head, self.opened, until, text, seal, self._salt, *before),
        )
        if done.rowcount != 1:
            raise RunError(
                f"{self.path} was opened or replaced by another {self.owner.name} since: it goes "
                "on there, and nothing more is sent from here",
                taken=True,
            )
        rows = [(n, kept + self._sealed("sent", n, kept)) for n, kept in self._pending.items()]
        db.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?)", rows)

    def _sealed(self, what: str, step: int, content: bytes, length: int = _SEAL_BYTES) -> bytes:
        return hmac.digest(self._salt, f"{what} {step} ".encode() + content, "sha256")[:length]

    def _note(self, until: int | None) -> None:
        """Tell the register of the folder that this run was opened, or closed at a step."""
        row = (self.path.name, _place(self.path), self._head["id"], self.opened, until)
        file = self.path.with_name(REGISTER)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with RunFile(file).begun(write=True) as db:
            db.execute(_REGISTER)
            db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", row)

    def __reduce__(self) -> Any:
        raise AffineDPError(f"a {self.owner.name} is not copied: it holds the only draw")


class Held(Closing):
    """Who owns a run, and with it the only draw."""

    _run: Run

    @property
    def commitment(self) -> str:
        """A hash that fixes the draw without revealing it: note it elsewhere."""
        return self._run.commitment

    def close(self) -> None:
        """Close the state; it can be opened again, and goes on where it ended.

        Called by a signal handler in the middle of a step, it takes effect when that ends.
        """
        self._run.close()

    def __reduce__(self) -> NoReturn:
        owner = self._run.owner
        raise AffineDPError(
            f"what holds a draw is not copied: this {owner.name} has the only one for its "
            f"{owner.subject}"
        )


@dataclass(frozen=True)
class _Row:
    """What a file says; before the draw there is no memory."""

    head: dict[str, Any]
    salt: bytes
    opened: int
    until: int
    memory: Memory | None


def _row(path: Path, db: sqlite3.Connection) -> _Row:
    """The row as it is on the disk, or a refusal."""
    try:
        ((head, salt, opened, until, memory, seal),) = db.execute("SELECT * FROM run")
        if memory is None and (head, opened, until, seal) == ("", 0, 0, None):
            return _Row({}, bytes(salt), 0, 0, None)
        if hmac.compare_digest(seal, _seal(salt, head, opened, until, memory)):
            return _Row(json.loads(head), salt, opened, until, json.loads(memory))
    except (TypeError, ValueError, AttributeError):
        pass
    raise RunError(f"{path} is damaged: its row was altered", damaged=True)


def _seal(salt: bytes, head: str, opened: int, until: int, memory: str) -> bytes:
    content = f"row {opened} {until} {len(head)} {head} {memory}".encode()
    return hmac.digest(salt, content, "sha256")


@dataclass(frozen=True)
class _Known:
    """What the register tells of a run."""

    place: str
    id: str
    opened: int
    until: int | None


def _registered(path: Path) -> list[_Known]:
    """What the register of the folder tells of runs under this name."""
    file = path.with_name(REGISTER)
    if not os.path.lexists(file) or not file.stat().st_size:
        return []
    with RunFile(file).begun(write=False) as db:
        if not db.execute("SELECT 1 FROM sqlite_master").fetchall():
            return []  # whoever made it was killed
        query = "SELECT place, id, opened, until FROM runs WHERE name = ?"
        return [_Known(*row) for row in db.execute(query, (path.name,))]


def _place(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _older(path: Path) -> str:
    return (
        f"{path} is an older copy of its run ({REGISTER} tells of a later opening or step): steps "
        "would be sent again with the same noise. Put back the state that was there last"
    )


_open_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for run in list(_open_runs):
        run._end("belongs to the process that opened it before a fork")


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_leave_to_the_parent)
