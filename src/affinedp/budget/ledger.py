"""The privacy budget of one secret: a file that knows every charge, and refuses beyond the cap.

Everything that is charged adds up, whatever the neighbours of each release: a change of the secret
that moves the data of each release by at most a neighbour of that release is hidden by all of
them together (docs/howto/budget.md has the theorem).
A charge is on the disk before any noise is drawn, so a release that happened is always charged.
A crash between the two leaves a charge without a release; it stays charged and is marked so.
:mod:`affinedp.budget.ledger_file` is about the file, :mod:`affinedp.budget.charges` about one
charge, :mod:`affinedp.budget.filters` about composition.
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

from affinedp.budget.charges import BudgetExceededError as BudgetExceededError
from affinedp.budget.charges import OtherUnitError as OtherUnitError
from affinedp.budget.charges import (
    charge_event,
    checked_text,
    exceeded,
    losses_of,
    other_unit,
    several_kinds,
)
from affinedp.budget.filters import LedgerWarning as LedgerWarning
from affinedp.budget.ledger_file import (
    NOT_SAID,
    VERSION,
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


class Ledger:
    """A privacy budget (ε, δ) for one secret, in a file that many processes may charge at once.

    A ledger is about one secret: a person, a household, a vehicle.  All charges add up, and
    together they stay within the cap.  What that promises: a change of the secret that moves the
    data of each release by at most a neighbour of that release is (ε, δ)-hidden.  Releases whose
    neighbours have the ledger's unit (:attr:`affinedp.Guarantee.unit`, that of the first charge)
    are added without a word; another μ or other equations do not matter.  Other neighbours are
    refused unless the caller says that a change of the secret is one of them, too.  Two groups
    that have nothing in common have two ledgers.

    The cap also holds if the analyst chooses laws and sensitivities by what earlier releases
    showed: only the sum of pure ε and the composition of Gaussian noise (Smith and Thakurta 2022)
    are used then, each Laplace release counting as the Gaussian one that dominates it.

    One instance belongs to the thread and the process that opened it.

    Parameters
    ----------
    path : str or Path
        The file.  It is created, for its owner only, if it does not exist.
    epsilon, delta : float, optional
        The cap; ε is needed to create a ledger, and δ is then 0 unless given.  For an existing
        ledger they must be what it was created with, or be left out.
    protects : str, optional
        Whose budget it is, in words such as "one person"; needed to create a ledger.
    create : bool
        Whether a ledger that does not exist is created.
    adaptive : bool, optional
        False says that all laws and sensitivities are decided before the first release, whatever
        it shows.  Then privacy-loss accounting (the extra ``accounting``) makes room for more
        Laplace releases.  Fixed at creation; True unless given.
    same_secret : bool
        Says of every charge through this instance what ``same_secret`` of :meth:`charge` says.

    Examples
    --------
    >>> import tempfile
    >>> import affinedp as adp
    >>> from affinedp.budget.ledger import Ledger
    >>> g = adp.verify(adp.AffineManifold([[1, -1]]), 8.0, law="laplace")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger(f"{folder}/budget.db", epsilon=1.0, protects="one person") as ledger:
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
        protects: str | None = None,
        create: bool = True,
        adaptive: bool | None = None,
        same_secret: bool = False,
    ) -> None:
        if adaptive not in (None, True, False):
            raise AffineDPError(f"adaptive must be True or False, not {adaptive!r}")
        self._same_secret = _yes_or_no(same_secret, "same_secret")
        protects = None if protects is None else _checked_protects(protects)
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
            if protects is None:
                raise LedgerError(
                    f"there is no ledger {self._path}: say whom the new one protects, as in "
                    "protects='one person'. All that is charged to it adds up for that one secret"
                )
            create_file(self._path, epsilon, delta or 0.0, adaptive is not False, protects)
        self._connection: sqlite3.Connection | None = open_file(self._path)
        self._process = os.getpid()
        try:
            with self._transaction("DEFERRED") as connection:
                self._state = read_ledger(self._path, connection)
            self._file = identity_of(self._path)
            self._refuse_other_caps(epsilon=epsilon, delta=delta, adaptive=adaptive)
            self._name_or_refuse(protects)
            if self._state.place != place_of(self._path):
                warnings.warn(self._moved(), LedgerWarning, stacklevel=2)
            if self._state.several_kinds:
                warnings.warn(several_kinds(self._path.name), LedgerWarning, stacklevel=2)
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
    def protects(self) -> str:
        """Whose budget it is, in words; "(not said)" in a file of an older version."""
        return self._state.protects

    @property
    def unit(self) -> str | None:
        """What moves between the neighbours that are added without a word; None before a charge."""
        self._refresh()
        return self._state.unit

    @property
    def head(self) -> str:
        """Number of events and the hash of the last: note it elsewhere to recognise the ledger."""
        self._refresh()
        return f"{self._state.events}:{self._state.head}"

    @property
    def spent(self) -> float:
        """ε of all charges together at the cap's δ (an upper bound)."""
        self._refresh()
        return self._state.spent()

    @property
    def remaining(self) -> float:
        """The cap's ε minus ``spent``: a guide, since ε of Gaussian releases does not add up.

        ``fits`` says exactly whether a charge has room.
        """
        return max(0.0, self.epsilon - self.spent)

    def fits(
        self, guarantee: Guarantee, *, releases: int = 1, same_secret: bool | None = None
    ) -> bool:
        """Whether a charge would be accepted now.

        Parameters
        ----------
        guarantee : Guarantee
            What the release promises.
        releases : int
            How many releases with fresh noise.
        same_secret : bool, optional
            As for :meth:`charge`.
        """
        losses = losses_of(guarantee, releases)
        self._refresh()
        own = self._state.is_own(guarantee.unit, guarantee.neighbours_key)
        return (own or self._declared(same_secret)) and self._state.allows(losses)

    def charge(
        self,
        guarantee: Guarantee,
        *,
        fingerprint: str,
        label: str | None = None,
        releases: int = 1,
        same_secret: bool | None = None,
    ) -> int:
        """Record a charge on the disk, or refuse it; draw the noise only afterwards.

        Several releases are one charge: all of them or none.

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
        same_secret : bool, optional
            True says, of neighbours of another unit than the ledger's, that a change of the secret
            is one of them, too; the history keeps that.  By default what the ledger was opened
            with, which is False unless given.

        Returns
        -------
        int
            The entry, for :meth:`settle`.

        Raises
        ------
        BudgetExceededError
            If the cap would be passed.  Nothing is recorded.
        OtherUnitError
            If the neighbours have another unit and nobody said that they are about the same
            secret.  Nothing is recorded.
        """
        losses = losses_of(guarantee, releases)
        body = charge_event(guarantee, fingerprint, label, releases)
        declared = self._declared(same_secret)
        with self._writing():
            state = self._state
            own = state.is_own(guarantee.unit, guarantee.neighbours_key)
            if not own and not declared:
                raise other_unit(self._path.name, state, guarantee)
            if not state.allows(losses):
                raise exceeded(state, losses)
            return self._append({**body, "same_secret": not own})

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
        if state.several_kinds:
            problems.append(several_kinds(self._path.name))
        if not state.allows(Counter()):
            problems.append(
                f"the charges pass the cap: ε = {state.spent():.6g} at δ = {state.delta:g}"
            )
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
        return (
            f"Ledger({str(self._path)!r}, epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"protects={self.protects!r})"
        )

    def _declared(self, same_secret: bool | None) -> bool:
        return self._same_secret if same_secret is None else _yes_or_no(same_secret, "same_secret")

    def _moved(self) -> str:
        return (
            f"{self._path} was moved or copied: if the other file is still charged, or this is an "
            "old backup, charges are missing here; if neither, call acknowledge_move()"
        )

    def _name_or_refuse(self, protects: str | None) -> None:
        """Write down whom a ledger of an older version protects; another name is refused."""
        if protects is not None and self._state.protects == NOT_SAID:
            with self._writing():
                if self._state.protects == NOT_SAID:
                    self._append({"kind": "protects", "time": now(), "protects": protects})
            self._refresh()
        if protects not in (None, self._state.protects):
            raise LedgerError(
                f"{self._path.name} protects {self._state.protects!r}, not {protects!r}: another "
                "secret has a ledger of its own"
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
            if connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
                # an older affinedp would give other neighbours a cap of their own
                connection.execute(f"PRAGMA user_version = {VERSION}")
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


def _yes_or_no(value: bool, name: str) -> bool:
    if not isinstance(value, bool):
        raise AffineDPError(f"{name} must be True or False, not {value!r}")
    return value


def _checked_protects(value: str) -> str:
    words = checked_text(value, "protects").strip()
    if words in ("", NOT_SAID):
        raise AffineDPError("protects must say whose budget it is, in words such as 'one person'")
    return words


def _real_path(path: str | os.PathLike[str]) -> Path:
    try:
        real = Path(os.path.realpath(path))
    except (TypeError, ValueError) as error:
        raise LedgerError(f"{path!r} is not a path: {error}") from None
    if not real.parent.is_dir():
        raise LedgerError(f"there is no directory {real.parent} for the ledger")
    return real
