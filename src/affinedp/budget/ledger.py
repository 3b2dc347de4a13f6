"""The privacy budget: a file that knows every charge, and refuses the one that passes the cap.

A charge is on the disk before any noise is drawn, so a release that happened is always charged.
A crash between the two leaves a charge without a release; it stays charged and is marked so.
:mod:`affinedp.budget.ledger_file` is about the file, :mod:`affinedp.budget.filters` about
composition.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import sqlite3
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from affinedp.budget.filters import LedgerWarning as LedgerWarning
from affinedp.budget.filters import Losses, multiplied, spent_epsilon
from affinedp.budget.ledger_file import (
    MOST_RELEASES,
    State,
    chained,
    checked_cap,
    create_file,
    identity_of,
    now,
    open_file,
    place_of,
    read_ledger,
    refusals,
)
from affinedp.budget.ledger_file import LedgerEntry as LedgerEntry
from affinedp.budget.ledger_file import LedgerError as LedgerError
from affinedp.errors import AffineDPError
from affinedp.promise.guarantee import Guarantee

MOST_TEXT = {"label": 1000, "fingerprint": 1000, "neighbours": 10_000, "neighbours_key": 1000}


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
    >>> from affinedp.budget.ledger import Ledger
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
            epsilon = checked_cap(epsilon, "epsilon", math.inf)
        if delta is not None:
            delta = checked_cap(delta, "delta", 1.0)
        self._path = _real_path(path)
        if not os.path.lexists(self._path):
            if not create:
                raise LedgerError(f"there is no ledger {self._path}")
            if epsilon is None:
                raise LedgerError(f"there is no ledger {self._path}: give epsilon to create one")
            create_file(self._path, epsilon, delta or 0.0, adaptive is not False)
        self._connection: sqlite3.Connection | None = open_file(self._path)
        self._process = os.getpid()
        try:
            with self._transaction("DEFERRED") as connection:
                self._state = read_ledger(self._path, connection)
            self._file = identity_of(self._path)
            self._refuse_other_caps(epsilon=epsilon, delta=delta, adaptive=adaptive)
            if self._state.place != place_of(self._path):
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
            "time": now(),
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
            self._append({"kind": "release", "time": now(), "entry": known.id})

    def acknowledge_move(self) -> None:
        """Record that this file, where it is now, is the one ledger: the warning ends."""
        with self._writing():
            self._append({"kind": "move", "time": now(), "place": place_of(self._path)})

    def history(self) -> tuple[LedgerEntry, ...]:
        """Return all charges, the oldest first."""
        self._refresh()
        return tuple(self._state.entries.values())

    def check(self) -> tuple[str, ...]:
        """Read the whole file again and return what is wrong with it, in words."""
        try:
            with self._transaction("DEFERRED") as connection:
                state = read_ledger(self._path, connection)
        except LedgerError as error:
            return (str(error),)
        problems = [self._moved()] if state.place != place_of(self._path) else []
        for key, text in state.neighbours.items():
            if not state.allows(key, Counter()):
                problems.append(f"the charges about {text!r} pass the cap")
        return tuple(problems)

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        if self._connection is not None:
            with refusals(self._path):
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
        with refusals(self._path):
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
        if identity_of(self._path) != self._file:
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
        head = chained(self._state.head, number, text)
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", (number, text, head))
        self._connection.execute("UPDATE ledger SET events = ?, head = ?", (number, head))
        return number


def _losses_of(guarantee: Guarantee, releases: int) -> Losses:
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
    return multiplied(losses, int(releases))


def _exceeded(state: State, key: str, losses: Losses) -> BudgetExceededError:
    requested = spent_epsilon(losses, state.delta, state.adaptive)
    remaining = max(0.0, state.epsilon - state.spent(key))
    return BudgetExceededError(
        f"this charge alone costs ε = {requested:.6g} at δ = {state.delta:g}, and together with "
        f"the earlier ones it passes the cap ε = {state.epsilon:g}, of which {remaining:.6g} is "
        "left for these neighbours; nothing was charged",
        requested=requested,
        remaining=remaining,
    )


def _real_path(path: str | os.PathLike[str]) -> Path:
    try:
        real = Path(os.path.realpath(path))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise LedgerError(f"there is no directory {real.parent} for the ledger")
    return real


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
