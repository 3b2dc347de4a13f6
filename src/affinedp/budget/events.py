"""What a ledger says: a header and a chain of events, wherever they are kept.

Events are only ever added, and each holds a hash of itself and its predecessor, so that an event
that was altered or removed is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from affinedp.budget.filters import Filter, Losses, multiplied
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_number
from affinedp.files.database import STOP as STOP

FORMAT = "affinedp ledger 2"
MOST_RELEASES = 10**9
MOST_TEXT = 1000
LOCK_SECONDS = 30  # how long to wait for others, whoever they are
MAKE_ANEW = "affinedp ledger create PATH --epsilon E --delta D --protects WHOM"

Row = tuple[int, str, str]  # number, body and hash of an event
Stated = list[tuple[str, int, str]]  # header, number of events and last hash
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError, AffineDPError)


class LedgerError(AffineDPError):
    """A ledger that cannot be trusted or written: do not release.

    Attributes
    ----------
    unreachable : bool
        Whether a server does not answer now: what it kept before, it has kept.
    damaged : bool
        Whether a file is damaged: what it kept may be lost.
    """

    def __init__(self, message: str, *, unreachable: bool = False, damaged: bool = False) -> None:
        self.unreachable, self.damaged = unreachable, damaged
        super().__init__(message)


@dataclass(frozen=True)
class LedgerEntry:
    """One charge."""

    # grows from charge to charge, with gaps
    id: int
    # when it was charged, UTC, ISO 8601
    time: str
    # what the caller called it
    label: str | None
    # which noise it was; ``losses`` says as what it is counted
    law: str
    # law and sensitivity of the scalar mechanisms that dominate one release
    losses: tuple[tuple[str, float], ...]
    # neighbours, neighbours_key: whom the guarantee is about, in words and as a hash
    neighbours: str
    neighbours_key: str
    # what moves between these neighbours
    unit: str
    # whether they are of another unit than the ledger's, and the caller said that a change of the
    # secret is one of them too
    same_secret: bool
    # which mechanism it was
    fingerprint: str
    # how many releases with fresh noise were charged
    releases: int
    # ``"charged"`` means that the release was not confirmed; it counts all the same
    status: Literal["charged", "released"] = "charged"


@dataclass
class State:
    """What the header and the events so far say."""

    header: str
    filter: Filter
    protects: str
    place: str
    head: str
    events: int = 0
    problem: str = ""
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    losses: Losses = field(default_factory=Counter)
    first: Losses = field(default_factory=Counter)  # of the first charge
    exported: str | None = None  # where it was moved: it is not charged here any more
    target: str | None = None  # the same as the server there calls it
    arrived: bool = False  # whether the server has it, and may know of later charges

    @classmethod
    def from_header(cls, header: Any) -> State:
        """Return the state before the first event; refuse, in words, what is no header."""
        try:
            record = json.loads(header)
            if record["format"] != FORMAT:
                raise LedgerError(
                    f"its format is {record['format']!r}, and this affinedp knows {FORMAT!r}: "
                    f"upgrade affinedp if it is newer, make it anew if it is older ({MAKE_ANEW})"
                )
            return cls(
                header,
                Filter(
                    checked_cap(float.fromhex(record["epsilon"]), "epsilon", math.inf),
                    checked_cap(float.fromhex(record["delta"]), "delta", 1.0),
                    bool(record["adaptive"]),
                ),
                str(record["protects"]),
                str(record["place"]),
                hashlib.sha256(header.encode()).hexdigest(),
            )
        except LedgerError:
            raise
        except _UNREADABLE as error:
            raise LedgerError(f"no header ({error})") from None

    @property
    def unit(self) -> str | None:
        """What moves between the neighbours of the first charge."""
        return next((entry.unit for entry in self.entries.values()), None)

    def allows(self, more: Losses) -> bool:
        """Whether the cap holds with ``more`` charged."""
        return self.filter.allows(self.losses + more, self.first or more)

    def spent(self) -> float:
        """Return ε spent, at the cap's δ."""
        spent = self.filter.spent(self.losses, self.first)
        # rounded up it may pass a cap that holds
        return min(spent, self.filter.epsilon) if self.allows(Counter()) else spent

    def is_own(self, unit: str, key: str) -> bool:
        """Whether neighbours are of the ledger's unit, or the very ones of its first charge."""
        first = next(iter(self.entries.values()), None)
        return first is None or unit == first.unit or key == first.neighbours_key

    def catch_up(self, events: list[Row], stated: Stated) -> str:
        """Take in the new events; return what is wrong, now or earlier, in words."""
        self.problem = self.problem or self._catch_up(events, stated)
        return self.problem

    def _catch_up(self, events: list[Row], stated: Stated) -> str:
        for number, body, link in events:
            if not isinstance(body, str) or link != chained(self.head, number, body):
                return f"event {number} does not follow event {self.events}: one was altered"
            try:
                self._take(number, json.loads(body))
            except _UNREADABLE as error:
                return f"event {number} cannot be read ({type(error).__name__}: {error})"
            self.events, self.head = number, link
        if stated != [(self.header, self.events, self.head)]:
            return "the events are not those that the ledger counted: some were removed"
        return ""

    def _take(self, number: int, body: Mapping[str, Any]) -> None:
        kind = body["kind"]
        if kind == "charge":
            self._take_charge(number, body)
        elif kind == "release":
            entry = self.entries[body["entry"]]
            self.entries[entry.id] = replace(entry, status="released")
        elif kind == "move":
            self.place = str(body["place"])
        elif kind == "export":
            self.exported, self.target = str(body["to"]), str(body["target"])
            self.arrived = bool(body["arrived"])
        elif kind == "import":
            self.exported = self.target = None
            self.arrived, self.place = False, str(body["place"])
        else:
            raise ValueError(f"unknown kind {kind!r}")

    def _take_charge(self, number: int, body: Mapping[str, Any]) -> None:
        losses = tuple((str(law), float.fromhex(s)) for law, s in body["losses"])
        names = ("time", "law", "neighbours", "neighbours_key", "unit", "fingerprint")
        texts: dict[str, Any] = {name: str(body[name]) for name in names}
        entry = LedgerEntry(
            id=number,
            label=None if body["label"] is None else str(body["label"]),
            losses=losses,
            same_secret=bool(body["same_secret"]),
            releases=int(body["releases"]),
            **texts,
        )
        if not (losses and 1 <= entry.releases <= MOST_RELEASES):
            raise ValueError("it charges nothing")
        counted = multiplied(list(losses), entry.releases)
        self.losses.update(counted)
        self.first = self.first or counted
        self.entries[number] = entry


class Transaction(ABC):
    """One look at a ledger, or one change of it."""

    @abstractmethod
    def rows(self, after: int) -> tuple[list[Row], Stated]:
        """Return the events after a number, and what is stated of all of them."""

    @abstractmethod
    def add(self, row: Row) -> None:
        """Write one event."""

    @abstractmethod
    def place(self) -> str:
        """Where the ledger is, as a hash: another one means that it was moved or copied."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what keeps the events, if it is damaged."""


class Closing:
    """What is open until it is closed, as by the end of a ``with``."""

    def close(self) -> None:
        """Refuse everything from now on."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class Store(ABC):
    """Where the events of a ledger are kept: its name in refusals, and its address to be shown."""

    name: str
    address: str

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a ledger, or anything else."""

    @abstractmethod
    def missing(self) -> str:
        """Say that there is none, and which one may be meant."""

    @abstractmethod
    def create(self, wanted: Filter, protects: str) -> None:
        """Make a new ledger; one that exists stays as it is."""

    @abstractmethod
    def transaction(self, write: bool) -> AbstractContextManager[Transaction]:
        """All at one moment; with the only right to write, all of it is kept or nothing."""


class Events:
    """The events of an open ledger, verified; one call at a time."""

    def __init__(self, store: Store) -> None:
        self.store, self.closed = store, False
        self._lock, self._inside = threading.Lock(), 0
        self.state, self.at_home = self.verified()

    def verified(self) -> tuple[State, bool]:
        """Read and verify everything anew; return it, and whether it is where it was."""
        with self._alone(), self.store.transaction(write=False) as now:
            now.check()
            events, stated = now.rows(0)
            try:
                state = State.from_header(stated[0][0] if len(stated) == 1 else None)
                if problem := state.catch_up(events, stated):
                    raise LedgerError(problem)
            except LedgerError as error:
                raise LedgerError(f"{self.store.address} cannot be trusted: {error}") from None
            return state, state.place == now.place()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Know every event so far; what others add meanwhile does not matter."""
        with self._alone(), self.store.transaction(write=False) as now:
            self._take_in(now)
            yield now

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Hold the only right to write, knowing every event so far; keep all of it or nothing."""
        with self._alone(), self.store.transaction(write=True) as now:
            self._take_in(now)
            yield now

    def append(self, now: Transaction, kind: str, **body: Any) -> int:
        """Add an event, inside :meth:`writing`, and return its number.

        It is read back by the next look, so that what is known is what was kept.
        """
        row = next_row(self.state, kind, **body)
        now.add(row)
        return row[0]

    def _take_in(self, now: Transaction) -> None:
        problem = self.state.catch_up(*now.rows(self.state.events))
        if problem:
            raise LedgerError(f"{self.store.address} was altered while it was open: {problem}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread in at a time, and no call in the middle of another one of its own."""
        if self.closed:
            raise LedgerError(f"{self.store.name} is closed")
        if self._inside == threading.get_ident():  # as from a signal handler
            raise LedgerError(f"{self.store.name}: a charge or a look is under way{STOP}")
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise LedgerError(f"{self.store.name}: another thread holds it{STOP}")
        try:
            self._inside = threading.get_ident()
            yield
        finally:
            self._inside = 0
            self._lock.release()


def next_row(state: State, kind: str, **body: Any) -> Row:
    """Return the event that follows all others."""
    number = state.events + 1
    text = json.dumps({"kind": kind, "time": now(), **body}, allow_nan=False)
    return number, text, chained(state.head, number, text)


def chained(previous: str, number: int, body: str) -> str:
    """Return the hash of an event and all before it."""
    return hashlib.sha256(f"{previous}\n{number}\n{body}".encode()).hexdigest()


def new_header(wanted: Filter, protects: str, place: str) -> str:
    """Return the header of a new ledger."""
    return json.dumps(
        {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "created": now(),
            "epsilon": wanted.epsilon.hex(),
            "delta": wanted.delta.hex(),
            "adaptive": wanted.adaptive,
            "protects": protects,
            "place": place,
        }
    )


def checked_cap(value: float, name: str, limit: float) -> float:
    """Return a cap as a float, or refuse it by ``name``."""
    cap = real_number(value, name, 0.0, limit)
    if 0.0 < cap < sys.float_info.min:
        raise AffineDPError(f"{name} = {value!r} is too small to compute with; take 0")
    return cap


def checked_text(value: str, name: str) -> str:
    """Return text that can be written down, or refuse it by ``name``."""
    most = 10 * MOST_TEXT if name == "neighbours" else MOST_TEXT
    if not isinstance(value, str):
        raise AffineDPError(f"{name} must be text, not {type(value).__name__}")
    if not value and name != "label":
        raise AffineDPError(f"{name} must not be empty")
    if len(value) > most:
        raise AffineDPError(f"{name} has {len(value)} characters, at most {most} fit")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise AffineDPError(f"{name} is not valid text at character {error.start}") from None
    return value


def now() -> str:
    """Return the time, UTC."""
    return datetime.now(UTC).isoformat()
