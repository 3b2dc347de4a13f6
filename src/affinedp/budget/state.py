"""What a ledger says: a header and a chain of events, wherever they are kept.

Events are only ever added, and each holds a hash of itself and its predecessor, so that an event
that was altered or removed is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from affinedp.budget.filters import Losses, allows, multiplied, spent_epsilon
from affinedp.errors import AffineDPError

FORMAT = "affinedp ledger"
MOST_RELEASES = 10**9
NOT_SAID = "(not said)"  # what version 1 did not write down

Row = tuple[int, str, str]  # number, body and hash of an event
Stated = list[tuple[str, int, str]]  # header, number of events and last hash


class LedgerError(AffineDPError):
    """A ledger that cannot be trusted or written: do not release."""


class LedgerUnreachableError(LedgerError):
    """A server that does not answer now: what it kept before, it has kept."""


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
    law : str
        Which noise it was; ``losses`` says as what it is counted.
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
    law: str = NOT_SAID
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
    exported: str | None = None  # where it was moved: it is not charged here any more
    target: str | None = None  # the same as the server there calls it
    arrived: bool = False  # whether the server has it, and may know of later charges

    @classmethod
    def verified(cls, header: Any, events: Iterable[Row], stated: Stated) -> State:
        """Read everything; refuse, in words, what cannot be trusted."""
        try:
            state = cls.from_header(header)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise LedgerError(f"no header ({error})") from None
        problem = state.catch_up(events, stated)
        if problem:
            raise LedgerError(problem)
        return state

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

    def catch_up(self, events: Iterable[Row], stated: Stated) -> str:
        """Take in the new events; return what is wrong, now or earlier, in words."""
        self.problem = self.problem or self._catch_up(events, stated)
        return self.problem

    def _catch_up(self, events: Iterable[Row], stated: Stated) -> str:
        for number, body, link in events:
            if not isinstance(body, str) or link != chained(self.head, number, body):
                return f"event {number} does not follow event {self.events}: one was altered"
            try:
                self._take(number, json.loads(body))
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                return f"event {number} cannot be read ({type(error).__name__}: {error})"
            self.events, self.head = number, link
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
                law=str(body.get("law", NOT_SAID)),
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
        elif kind == "export":
            self.exported, self.target = str(body["to"]), body.get("target")
            self.arrived = bool(body.get("arrived", False))
        elif kind == "import":
            self.exported = self.target = None
            self.arrived, self.place = False, str(body["place"])
        elif kind == "protects":
            if self.protects != NOT_SAID:
                raise ValueError("it renames the secret")
            self.protects = str(body["protects"])
        else:
            raise ValueError(f"unknown kind {kind!r}")


def chained(previous: str, number: int, body: str) -> str:
    """Return the hash of an event and all before it."""
    return hashlib.sha256(f"{previous}\n{number}\n{body}".encode()).hexdigest()


def new_header(epsilon: float, delta: float, adaptive: bool, protects: str, place: str) -> str:
    """Return the header of a new ledger."""
    return json.dumps(
        {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "created": now(),
            "epsilon": epsilon.hex(),
            "delta": delta.hex(),
            "adaptive": adaptive,
            "protects": protects,
            "place": place,
        }
    )


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
