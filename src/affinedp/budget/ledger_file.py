"""The ledger's file: SQLite that is durable, verified when it is opened, and never replaced.

It has a rollback journal and ``synchronous=EXTRA``: the commit returns after the
file and the removal of the journal are on the disk (with ``FULL`` alone a power cut can bring the
journal back, and it would undo the charge).  Not a write-ahead log: a copy of the file without the
log beside it would have forgotten charges.  Events are only ever added, and each holds a hash of
itself and its predecessor.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import os
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from affinedp.budget.filters import Losses, allows, multiplied, spent_epsilon
from affinedp.errors import AffineDPError
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

FORMAT = "affinedp ledger"
VERSION = 2  # 1 had a cap for each kind of neighbours; its charges all add up now
APPLICATION_ID = 0x61644450  # "adDP"
BUSY_SECONDS = 30.0
MOST_RELEASES = 10**9
NOT_SAID = "(not said)"  # what version 1 did not write down

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)


class LedgerError(AffineDPError):
    """A ledger that cannot be trusted or written: do not release."""


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
        Whom the guarantee is about, in words and as a hash.
    unit : str
        What moves between these neighbours.
    same_secret : bool
        Whether they are of another unit than the ledger's, and the caller said that a change of
        the secret is one of them too.
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
    unit: str = NOT_SAID
    same_secret: bool = False
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
    protects: str = NOT_SAID
    events: int = 0
    problem: str = ""
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    losses: Losses = field(default_factory=Counter)
    unit: str | None = None  # that of the first charge that says one
    first_key: str | None = None  # the neighbours of the first charge

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
            str(record.get("protects", NOT_SAID)),
        )

    def allows(self, more: Losses) -> bool:
        """Whether the cap holds with ``more`` charged."""
        return allows(self.losses + more, self.epsilon, self.delta, self.adaptive)

    def spent(self) -> float:
        """Return ε spent, at the cap's δ."""
        spent = spent_epsilon(self.losses, self.delta, self.adaptive)
        # rounded up it may pass a cap that holds
        return min(spent, self.epsilon) if self.allows(Counter()) else spent

    def is_own(self, unit: str, key: str) -> bool:
        """Whether neighbours are of the ledger's unit, or the very ones of its first charge."""
        return not self.entries or unit == self.unit or key == self.first_key

    @property
    def several_kinds(self) -> bool:
        """Whether version 1 wrote down several kinds of neighbours, and nobody spoke since."""
        return self.unit is None and len({e.neighbours_key for e in self.entries.values()}) > 1

    def catch_up(self, connection: sqlite3.Connection) -> str:
        """Take in the new events; return what is wrong, now or earlier, in words."""
        self.problem = self.problem or self._catch_up(connection)
        return self.problem

    def _catch_up(self, connection: sqlite3.Connection) -> str:
        if not has_its_tables(LEDGER, connection):
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
                unit=str(body.get("unit", NOT_SAID)),
                same_secret=bool(body.get("same_secret", False)),
            )
            if not (losses and 1 <= entry.releases <= MOST_RELEASES):
                raise ValueError("it charges nothing")
            self.losses.update(multiplied(list(losses), entry.releases))
            if self.first_key is None:
                self.first_key = entry.neighbours_key
            if self.unit is None and entry.unit != NOT_SAID:
                self.unit = entry.unit
            self.entries[number] = entry
        elif kind == "release":
            entry = self.entries[body["entry"]]
            self.entries[entry.id] = replace(entry, status="released")
        elif kind == "move":
            self.place = str(body["place"])
        elif kind == "protects":
            if self.protects != NOT_SAID:
                raise ValueError("it renames the secret")
            self.protects = str(body["protects"])
        else:
            raise ValueError(f"unknown kind {kind!r}")


def chained(previous: str, number: int, body: str) -> str:
    """Return the hash of an event and all before it."""
    return hashlib.sha256(f"{previous}\n{number}\n{body}".encode()).hexdigest()


def read_ledger(path: Path, connection: sqlite3.Connection) -> State:
    """Read and verify everything."""
    check_content(LEDGER, path, connection)
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


def create_file(path: Path, epsilon: float, delta: float, adaptive: bool, protects: str) -> None:
    """Make a complete ledger beside ``path`` and link it into place: never half a ledger.

    If another process was faster, its ledger stays.
    """
    with building(LEDGER, path) as folder:
        if os.path.lexists(path):
            return

        def fill(connection: sqlite3.Connection) -> None:
            header = json.dumps(
                {
                    "format": FORMAT,
                    "id": uuid.uuid4().hex,
                    "created": now(),
                    "epsilon": epsilon.hex(),
                    "delta": delta.hex(),
                    "adaptive": adaptive,
                    "protects": protects,
                    "place": place_of(path, folder / BUILT),
                }
            )
            head = State.from_header(header).head
            connection.execute("INSERT INTO ledger VALUES (?, 0, ?)", (header, head))

        put_into_place(LEDGER, write_whole(LEDGER, folder, path, fill), path)


def open_file(path: Path) -> sqlite3.Connection:
    """Open a file that is a ledger; anything else is refused and left as it is."""
    return open_existing(LEDGER, path)


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
