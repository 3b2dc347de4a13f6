"""The privacy budget: a file that knows every charge, and refuses the one that passes the cap.

A charge is on the disk before any noise is drawn, so a release that happened is always charged.
A crash between the two leaves a charge without a release; it stays charged and is marked so.

The file is SQLite with a rollback journal and ``synchronous=EXTRA``: the commit returns after the
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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from scipy import special

from affinedp.calibration import gaussian_delta, gaussian_epsilon
from affinedp.curves import EPS, ComposedCurve
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.guarantee import Guarantee

FORMAT = "affinedp ledger"
VERSION = 1
APPLICATION_ID = 0x61644450  # "adDP"
BUSY_SECONDS = 30.0
MOST_TEXT = {"label": 1000, "fingerprint": 1000, "neighbours": 10_000, "neighbours_key": 1000}
MOST_RELEASES = 10**9
# Privacy-loss accounting takes seconds beyond these; the other bounds serve then.
MOST_ACCOUNTED, MOST_ACCOUNTED_LOSS = 100, 20.0

_SCHEMA = (
    "CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE ledger (header TEXT NOT NULL, events INTEGER NOT NULL, head TEXT NOT NULL)",
)

# The second where SQLite quotes damaged text in its message.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

# How often each (law, sensitivity) was charged.
_Losses = Counter[tuple[str, float]]


class LedgerError(AffineDPError):
    """A ledger that cannot be trusted or written: do not release."""


class BudgetExceededError(LedgerError):
    """A charge that would pass the cap; nothing was charged.

    Attributes
    ----------
    requested : float
        ε of the charge alone, at the ledger's δ.
    remaining : float
        The cap's ε minus what was spent on these neighbours.
    """

    def __init__(self, message: str, *, requested: float, remaining: float) -> None:
        self.requested = requested
        self.remaining = remaining
        super().__init__(message)


class LedgerWarning(UserWarning):
    """Something that a person must judge: a moved or copied ledger, a second kind of neighbours."""


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


class Ledger:
    """A privacy budget (ε, δ) in a file that many processes may charge at once.

    All charges about the same neighbours together stay within the cap: the composition of
    Theorems 1 and 2.  Each kind of neighbours has the whole cap to itself.  The cap also holds if
    the analyst chooses laws and sensitivities by what earlier releases showed: only the sum of
    pure ε and the composition of Gaussian noise (Smith and Thakurta 2022) are used then, each
    Laplace release counting as the Gaussian one that dominates it.

    One instance belongs to the thread and the process that opened it.

    Parameters
    ----------
    path : str or Path
        The file.  It is created, for its owner only, if it does not exist.
    epsilon, delta : float, optional
        The cap; ε is needed to create a ledger, and δ is then 0 unless given.  For an existing
        ledger they must be what it was created with, or be left out.
    create : bool
        Whether a ledger that does not exist is created.
    adaptive : bool, optional
        False says that all laws and sensitivities are decided before the first release, whatever
        it shows.  Then privacy-loss accounting (the extra ``accounting``) makes room for more
        Laplace releases.  Fixed at creation; True unless given.

    Examples
    --------
    >>> import tempfile
    >>> import affinedp as adp
    >>> from affinedp.ledger import Ledger
    >>> g = adp.verify(adp.AffineManifold([[1, -1]]), 8.0, law="laplace")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger(f"{folder}/budget.db", epsilon=1.0) as ledger:
    ...         entry = ledger.charge(g, fingerprint="first", label="March")
    ...         ledger.settle(entry)  # the noise is drawn before this line
    ...         print(ledger.spent, ledger.remaining, ledger.history()[0].status)
    0.25 0.75 released
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        create: bool = True,
        adaptive: bool | None = None,
    ) -> None:
        if adaptive not in (None, True, False):
            raise AffineDPError(f"adaptive must be True or False, not {adaptive!r}")
        if epsilon is not None:
            epsilon = _cap(epsilon, "epsilon", math.inf)
        if delta is not None:
            delta = _cap(delta, "delta", 1.0)
        self._path = _real_path(path)
        if not os.path.lexists(self._path):
            if not create:
                raise LedgerError(f"there is no ledger {self._path}")
            if epsilon is None:
                raise LedgerError(f"there is no ledger {self._path}: give epsilon to create one")
            _create(self._path, epsilon, delta or 0.0, adaptive is not False)
        self._connection: sqlite3.Connection | None = _open(self._path)
        self._process = os.getpid()
        try:
            with self._transaction("DEFERRED") as connection:
                self._state = _read(self._path, connection)
            self._file = _identity(self._path)
            self._refuse_other_caps(epsilon=epsilon, delta=delta, adaptive=adaptive)
            if self._state.place != _place(self._path):
                warnings.warn(self._moved(), LedgerWarning, stacklevel=2)
        except BaseException:
            self.close()
            raise

    @property
    def epsilon(self) -> float:
        """The cap's ε."""
        return self._state.epsilon

    @property
    def delta(self) -> float:
        """The cap's δ."""
        return self._state.delta

    @property
    def adaptive(self) -> bool:
        """Whether later charges may depend on what earlier releases showed."""
        return self._state.adaptive

    @property
    def head(self) -> str:
        """Number of events and the hash of the last: note it elsewhere to recognise the ledger."""
        self._refresh()
        return f"{self._state.events}:{self._state.head}"

    @property
    def spent(self) -> float:
        """ε spent at the cap's δ (an upper bound): the largest over the kinds of neighbours."""
        return max(self.spent_by_neighbours.values(), default=0.0)

    @property
    def spent_by_neighbours(self) -> dict[str, float]:
        """ε spent at the cap's δ for each kind of neighbours, in words."""
        self._refresh()
        words = self._state.neighbours
        shared = {text for text, count in Counter(words.values()).items() if count > 1}
        return {
            f"{text} [{key}]" if text in shared else text: self._state.spent(key)
            for key, text in words.items()
        }

    @property
    def remaining(self) -> float:
        """The cap's ε minus ``spent``: a guide, since ε of Gaussian releases does not add up.

        ``fits`` says exactly whether a charge has room.
        """
        return max(0.0, self.epsilon - self.spent)

    def fits(self, guarantee: Guarantee, *, releases: int = 1) -> bool:
        """Whether a charge would be accepted now.

        Parameters
        ----------
        guarantee : Guarantee
            What the release promises.
        releases : int
            How many releases with fresh noise.
        """
        losses = _losses_of(guarantee, releases)
        self._refresh()
        return self._state.allows(guarantee.neighbours_key, losses)

    def charge(
        self,
        guarantee: Guarantee,
        *,
        fingerprint: str,
        label: str | None = None,
        releases: int = 1,
    ) -> int:
        """Record a charge on the disk, or refuse it; draw the noise only afterwards.

        Parameters
        ----------
        guarantee : Guarantee
            What the release promises.
        fingerprint : str
            Which mechanism it is, for example a hash of it.
        label : str, optional
            A name for people.  It is stored as it is: put no data in it.
        releases : int
            How many releases with fresh noise.

        Returns
        -------
        int
            The entry, for :meth:`settle`.

        Raises
        ------
        BudgetExceededError
            If the cap would be passed.  Nothing is recorded.
        """
        losses = _losses_of(guarantee, releases)
        key = guarantee.neighbours_key
        body = {
            "kind": "charge",
            "time": _now(),
            "label": None if label is None else _text(label, "label"),
            "losses": [[law, float(s).hex()] for law, s in guarantee.curve.losses()],
            "neighbours": _text(guarantee.neighbours, "neighbours"),
            "neighbours_key": key,
            "fingerprint": _text(fingerprint, "fingerprint"),
            "releases": int(releases),
        }
        with self._writing():
            state = self._state
            if not state.allows(key, losses):
                raise _exceeded(state, key, losses)
            if state.neighbours and key not in state.neighbours:
                warnings.warn(
                    f"{self._path.name} now holds charges about several kinds of neighbours; each "
                    "has the whole cap to itself, and nothing is promised about releases of one "
                    "kind to neighbours of another: keep one ledger for each body of data",
                    LedgerWarning,
                    stacklevel=2,
                )
            return self._append(body)

    def settle(self, entry: int) -> None:
        """Record that the release of a charge happened.

        Parameters
        ----------
        entry : int
            What :meth:`charge` returned.
        """
        with self._writing():
            known = self._state.entries.get(entry) if isinstance(entry, numbers.Integral) else None
            if known is None:
                raise LedgerError(f"{self._path.name} has no entry {entry!r}")
            if known.status == "released":
                raise LedgerError(f"entry {entry} was released already; every release is charged")
            self._append({"kind": "release", "time": _now(), "entry": known.id})

    def acknowledge_move(self) -> None:
        """Record that this file, where it is now, is the one ledger: the warning ends."""
        with self._writing():
            self._append({"kind": "move", "time": _now(), "place": _place(self._path)})

    def history(self) -> tuple[LedgerEntry, ...]:
        """Return all charges, the oldest first."""
        self._refresh()
        return tuple(self._state.entries.values())

    def check(self) -> tuple[str, ...]:
        """Read the whole file again and return what is wrong with it, in words."""
        try:
            with self._transaction("DEFERRED") as connection:
                state = _read(self._path, connection)
        except LedgerError as error:
            return (str(error),)
        problems = [self._moved()] if state.place != _place(self._path) else []
        for key, text in state.neighbours.items():
            if not state.allows(key, Counter()):
                problems.append(f"the charges about {text!r} pass the cap")
        return tuple(problems)

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        if self._connection is not None:
            with _refusals(self._path):
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r}, epsilon={self.epsilon!r}, delta={self.delta!r})"

    def _moved(self) -> str:
        return (
            f"{self._path} was moved or copied: if the other file is still charged, or this is an "
            "old backup, charges are missing here; if neither, call acknowledge_move()"
        )

    def _refuse_other_caps(self, **given: float | None) -> None:
        for name, value in given.items():
            stored = getattr(self._state, name)
            if value is not None and value != stored:
                raise LedgerError(
                    f"{self._path.name} was created with {name} = {stored!r}, not {value!r}; "
                    "the cap of a ledger does not change"
                )

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """Commit what is done inside, or nothing of it."""
        connection = self._connection
        if connection is None:
            raise LedgerError(f"{self._path.name} is closed")
        if os.getpid() != self._process:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self._path.name} was opened before a fork: open it again here")
        with _refusals(self._path):
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _refresh(self) -> None:
        """Read the events that other processes added."""
        with self._transaction("DEFERRED") as connection:
            self._catch_up(connection)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        if _identity(self._path) != self._file:
            raise LedgerError(f"{self._path} was replaced by another file while it was open")
        problem = self._state.catch_up(connection)
        if problem:
            raise LedgerError(f"{self._path} was altered while it was open: {problem}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far."""
        with self._transaction("IMMEDIATE") as connection:
            self._catch_up(connection)
            yield

    def _append(self, body: Mapping[str, Any]) -> int:
        assert self._connection is not None
        # read back by the next catch_up, so that what is known is what is on the disk
        number = self._state.events + 1
        text = json.dumps(body, allow_nan=False)
        head = _link(self._state.head, number, text)
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", (number, text, head))
        self._connection.execute("UPDATE ledger SET events = ?, head = ?", (number, head))
        return number


# ---------------------------------------------------------------------- composition


def _pure_and_gaussian(losses: _Losses) -> tuple[Fraction, float]:
    """Σε of the Laplace parts, without rounding, and √Σs² of the Gaussian ones, rounded up."""
    pure = sum((Fraction(s) * k for (law, s), k in losses.items() if law == "laplace"), Fraction())
    return pure, _root_of_squares({s: k for (law, s), k in losses.items() if law == "gaussian"})


def _as_gaussian(losses: _Losses) -> float:
    """The sensitivity of one Gaussian mechanism that dominates them all, rounded up."""
    parts: Counter[float] = Counter()
    for (law, s), count in losses.items():
        parts[_dominating_gaussian(s) if law == "laplace" else s] += count
    return _root_of_squares(parts)


def _root_of_squares(counts: Mapping[float, int]) -> float:
    # hypot neither overflows nor loses tiny parts, as a sum of squares would
    total = math.hypot(*(s * math.sqrt(count) for s, count in counts.items()))
    return math.nextafter(total * (1 + 8 * EPS), math.inf) if total else 0.0


def _dominating_gaussian(a: float) -> float:
    """The s with κ(0, s) = 1 − e^{−a/2}, rounded up: then κ(ε, s) is at least Laplace's δ(ε).

    For Laplace noise log(1 − δ) is the line (ε − a)/2 up to ε = a.  1 − κ is the integral of
    min(p, e^ε q) over two Gaussian densities, so log(1 − κ) is concave in ε (Prékopa); at ε = 0
    its slope is Φ(−s/2)/(1 − κ(0, s)) = 1/2 too, so it stays below the line.
    """
    if a < 1e-8:  # the limit √(π/2) a is an upper bound
        s = 1.2533141374 * a
    elif a < 1.0:
        s = 2 * math.sqrt(2.0) * float(special.erfinv(-math.expm1(-a / 2)))
    else:
        s = 2 * math.sqrt(2.0) * float(special.erfcinv(math.exp(-a / 2)))
    return math.nextafter(s * (1 + 1e-13), math.inf) if a else 0.0


def _allows(losses: _Losses, epsilon: float, delta: float, adaptive: bool) -> bool:
    """Whether all these releases together are (ε, δ)-private.

    For ``adaptive`` only two rules count: pure ε add up to ε at most, or the dominating Gaussian
    is (ε, δ)-private.  Both are privacy filters, and so is "either": along every course of events
    that passes by the first rule the likelihood ratio is at most e^ε, so it adds nothing to δ.
    The best bound for each course of events would be no filter: an analyst who picks the course
    by what was shown can double δ.
    """
    pure, gaussian = _pure_and_gaussian(losses)
    if gaussian == 0.0 and pure <= Fraction(epsilon):
        return True
    if delta == 0.0:
        return False
    if gaussian_delta(epsilon, _as_gaussian(losses)) <= delta:
        return True
    if adaptive:
        return False
    left = -_rounded_up(pure - Fraction(epsilon))
    if left >= 0.0 and gaussian_delta(left, gaussian) <= delta:
        return True
    return _accounted(losses, lambda curve: curve.delta(epsilon)) <= delta


def _spent(losses: _Losses, delta: float, adaptive: bool) -> float:
    """The least ε at δ by the rules of :func:`_allows`."""
    pure, gaussian = _pure_and_gaussian(losses)
    bounds = [_rounded_up(pure) if gaussian == 0.0 else math.inf]
    if delta > 0.0:
        bounds.append(float(gaussian_epsilon(delta, _as_gaussian(losses))))
    if delta > 0.0 and not adaptive:
        simple = _rounded_up(pure) + float(gaussian_epsilon(delta, gaussian))
        bounds.append(math.nextafter(simple, math.inf))
        bounds.append(_accounted(losses, lambda curve: curve.epsilon(delta)))
    return min(bounds)


def _accounted(losses: _Losses, ask: Callable[[ComposedCurve], float]) -> float:
    """What privacy-loss accounting answers; inf where it cannot."""
    pure, gaussian = _pure_and_gaussian(losses)
    laplace = [s for (law, s), k in losses.items() if law == "laplace" and s > 0.0]
    count = sum(losses["laplace", s] for s in laplace)
    if not laplace or count > MOST_ACCOUNTED or pure > MOST_ACCOUNTED_LOSS:
        return math.inf
    parts = [("laplace", s) for s in laplace for _ in range(losses["laplace", s])]
    try:
        return ask(ComposedCurve((("gaussian", gaussian), *parts)))
    except MissingExtraError as error:
        warnings.warn(f"simple composition is used instead: {error}", LedgerWarning, stacklevel=2)
    except AffineDPError:
        pass  # too weak for it
    return math.inf


def _rounded_up(value: Fraction) -> float:
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return number if Fraction(number) >= value else math.nextafter(number, math.inf)


def _losses_of(guarantee: Guarantee, releases: int) -> _Losses:
    """What a guarantee costs; one without a promise is refused."""
    if not isinstance(guarantee, Guarantee):
        raise AffineDPError(f"a ledger charges a Guarantee, not {type(guarantee).__name__}")
    if isinstance(releases, bool) or not isinstance(releases, numbers.Integral):
        raise AffineDPError(f"releases must be a whole number, not {releases!r}")
    if not 1 <= releases <= MOST_RELEASES:
        raise AffineDPError(f"releases must be 1 to {MOST_RELEASES}, not {releases!r}")
    _text(guarantee.neighbours_key, "neighbours_key")
    losses = guarantee.curve.losses()
    if guarantee.leak is not None or not losses or not all(math.isfinite(s) for _, s in losses):
        raise BudgetExceededError(
            "this guarantee promises nothing (some output has no noise): no budget allows it",
            requested=math.inf,
            remaining=0.0,
        )
    return _multiplied(losses, int(releases))


def _multiplied(losses: list[tuple[str, float]], releases: int) -> _Losses:
    """Count each loss once per release; what cannot be a loss is refused."""
    total: _Losses = Counter()
    for law, s in losses:
        if law not in ("gaussian", "laplace") or not 0.0 <= s < math.inf:
            raise AffineDPError(f"a loss of law {law!r} and sensitivity {s!r} cannot be charged")
        total[law, s] += releases
    return total


def _exceeded(state: _State, key: str, losses: _Losses) -> BudgetExceededError:
    requested = _spent(losses, state.delta, state.adaptive)
    remaining = max(0.0, state.epsilon - state.spent(key))
    return BudgetExceededError(
        f"this charge alone costs ε = {requested:.6g} at δ = {state.delta:g}, and together with "
        f"the earlier ones it passes the cap ε = {state.epsilon:g}, of which {remaining:.6g} is "
        "left for these neighbours; nothing was charged",
        requested=requested,
        remaining=remaining,
    )


# ---------------------------------------------------------------------- events


@dataclass
class _State:
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
    losses: dict[str, _Losses] = field(default_factory=dict)
    neighbours: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_header(cls, header: str) -> _State:
        """Return the state before the first event."""
        record = json.loads(header)
        return cls(
            header,
            _cap(float.fromhex(record["epsilon"]), "epsilon", math.inf),
            _cap(float.fromhex(record["delta"]), "delta", 1.0),
            bool(record["adaptive"]),
            str(record["place"]),
            hashlib.sha256(header.encode()).hexdigest(),
        )

    def allows(self, key: str, more: _Losses) -> bool:
        """Whether the cap holds with ``more`` charged to these neighbours."""
        losses = self.losses.get(key, Counter()) + more
        return _allows(losses, self.epsilon, self.delta, self.adaptive)

    def spent(self, key: str) -> float:
        """Return ε spent on these neighbours, at the cap's δ."""
        losses = self.losses.get(key, Counter())
        spent = _spent(losses, self.delta, self.adaptive)
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
            if not isinstance(body, str) or link != _link(self.head, number, body):
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
            charged = _multiplied(list(losses), entry.releases)
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


def _link(previous: str, number: int, body: str) -> str:
    """Return the hash of an event and all before it."""
    return hashlib.sha256(f"{previous}\n{number}\n{body}".encode()).hexdigest()


def _has_our_tables(connection: sqlite3.Connection) -> bool:
    """Whether the file holds our tables and nothing else; a trigger could undo a charge."""
    schema = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    return schema == [(text,) for text in _SCHEMA]


def _read(path: Path, connection: sqlite3.Connection) -> _State:
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
        state = _State.from_header(header)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise LedgerError(f"{path} cannot be trusted: no header ({error})") from None
    problem = state.catch_up(connection)
    if problem:
        raise LedgerError(f"{path} cannot be trusted: {problem}")
    return state


# ---------------------------------------------------------------------- the file


def _create(path: Path, epsilon: float, delta: float, adaptive: bool) -> None:
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
                "created": _now(),
                "epsilon": epsilon.hex(),
                "delta": delta.hex(),
                "adaptive": adaptive,
                "place": _place(path, Path(name)),
            }
        )
        with _refusals(path), closing(_connect(Path(name))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for text in _SCHEMA:
                connection.execute(text)
            head = _State.from_header(header).head
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
        _sync_directory(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
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
    with _refusals(path):
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
def _refusals(path: Path) -> Iterator[None]:
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


def _real_path(path: str | os.PathLike[str]) -> Path:
    try:
        real = Path(os.path.realpath(path))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise LedgerError(f"there is no directory {real.parent} for the ledger")
    return real


def _identity(path: Path) -> tuple[int, int]:
    """Return device and inode."""
    try:
        found = path.stat()
    except OSError as error:
        raise LedgerError(f"{path} is gone: {error.strerror}") from None
    return found.st_dev, found.st_ino


def _place(path: Path, file: Path | None = None) -> str:
    """Where the ledger is: a hash of its path, and its inode (a device may be renumbered)."""
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()}:{_identity(file or path)[1]}"


def _sync_directory(directory: Path) -> None:
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


# ---------------------------------------------------------------------- arguments


def _cap(value: float, name: str, limit: float) -> float:
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


def _text(value: str, name: str) -> str:
    if not isinstance(value, str):
        raise AffineDPError(f"{name} must be text, not {type(value).__name__}")
    if not value and name != "label":
        raise AffineDPError(f"{name} must not be empty")
    if len(value) > MOST_TEXT[name]:
        raise AffineDPError(f"{name} has {len(value)} characters, at most {MOST_TEXT[name]} fit")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise AffineDPError(f"{name} is not valid text at character {error.start}") from None
    return value


def _now() -> str:
    """Return the time, UTC."""
    return datetime.now(UTC).isoformat()
