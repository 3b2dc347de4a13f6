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

import math
import numbers
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

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
from affinedp.budget.moving import move_to_server
from affinedp.budget.opening import open_store
from affinedp.budget.state import NOT_SAID, State, checked_cap, now
from affinedp.budget.state import LedgerEntry as LedgerEntry
from affinedp.budget.state import LedgerError as LedgerError
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
        The file.  It is created, for its owner only, if it does not exist.  Or the address of a
        ledger on a PostgreSQL server, ``postgresql://…#name``.
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
        wanted = (epsilon, delta or 0.0, adaptive is not False, protects) if create else None
        self._store = open_store(path, wanted)
        try:
            self._refuse_other_caps(epsilon=epsilon, delta=delta, adaptive=adaptive)
            self._name_or_refuse(protects)
            if self._state.place != self._store.place():
                warnings.warn(self._moved(), LedgerWarning, stacklevel=2)
            if self._state.several_kinds:
                warnings.warn(several_kinds(self._store.name), LedgerWarning, stacklevel=2)
        except BaseException:
            self.close()
            raise

    @property
    def _state(self) -> State:
        return self._store.state

    @property
    def name(self) -> str:
        """What refusals call it: the name of the file, or server, database and ledger."""
        return self._store.name

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
    def moved_to(self) -> str | None:
        """The server that an exported file went to, where its charges go on; None for others."""
        self._refresh()
        return self._state.exported

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
                raise other_unit(self._store.name, state, guarantee)
            if not state.allows(losses):
                raise exceeded(state, losses)
            return self._store.append({**body, "same_secret": not own})

    def settle(self, entry: int) -> None:
        """Record that the release of a charge happened.

        Parameters
        ----------
        entry : int
            What :meth:`charge` returned.
        """
        with self._writing():
            whole = isinstance(entry, numbers.Integral) and not isinstance(entry, bool)
            known = self._state.entries.get(entry) if whole else None
            if known is None:
                raise LedgerError(f"{self._store.name} has no entry {entry!r}")
            if known.status == "released":
                raise LedgerError(f"entry {entry} was released already; every release is charged")
            self._store.append({"kind": "release", "time": now(), "entry": known.id})

    def acknowledge_move(self) -> None:
        """Record that this ledger, where it is now, is the only one: the warning ends."""
        place = self._store.place()
        with self._writing():
            self._store.append({"kind": "move", "time": now(), "place": place})

    def history(self) -> tuple[LedgerEntry, ...]:
        """Return all charges, the oldest first."""
        self._refresh()
        return tuple(self._state.entries.values())

    def check(self) -> tuple[str, ...]:
        """Read the whole ledger again and return what is wrong with it, in words."""
        try:
            state = self._store.verified()
        except LedgerError as error:
            return (str(error),)
        problems = [self._moved()] if state.place != self._store.place() else []
        if state.several_kinds:
            problems.append(several_kinds(self._store.name))
        if not state.allows(Counter()):
            problems.append(
                f"the charges pass the cap: ε = {state.spent():.6g} at δ = {state.delta:g}"
            )
        if state.exported is not None:
            problems.append(f"it was moved to {state.exported}, and is not charged here any more")
        return tuple(problems)

    def export(self, url: str) -> None:
        """Move a ledger from its file to a server, without a gap.

        All that may be refused is tried first, then the file is closed for charges, then copied.
        Should the copy fail, call this again.

        Parameters
        ----------
        url : str
            ``postgresql://…``, where the ledger of this name does not exist yet.
        """
        move_to_server(self._store, url)

    def close(self) -> None:
        """Close it; the ledger cannot be used afterwards."""
        self._store.close()

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
            f"Ledger({self._store.address!r}, epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"protects={self.protects!r})"
        )

    def _declared(self, same_secret: bool | None) -> bool:
        return self._same_secret if same_secret is None else _yes_or_no(same_secret, "same_secret")

    def _moved(self) -> str:
        return (
            f"{self._store.address} was moved or copied: if the other one is still charged, or "
            "this is an old backup, charges are missing here; if neither, call acknowledge_move()"
        )

    def _name_or_refuse(self, protects: str | None) -> None:
        """Write down whom a ledger of an older version protects; another name is refused."""
        if protects is not None and self._state.protects == NOT_SAID:
            with self._writing():
                if self._state.protects == NOT_SAID:
                    self._store.append({"kind": "protects", "time": now(), "protects": protects})
            self._refresh()
        if protects not in (None, self._state.protects):
            raise LedgerError(
                f"{self._store.name} protects {self._state.protects!r}, not {protects!r}: another "
                "secret has a ledger of its own"
            )

    def _refuse_other_caps(self, **given: float | None) -> None:
        for name, value in given.items():
            stored = getattr(self._state, name)
            if value is not None and value != stored:
                raise LedgerError(
                    f"{self._store.name} was created with {name} = {stored!r}, not {value!r}; "
                    "the cap of a ledger does not change"
                )

    def _refresh(self) -> None:
        """Read the events that others added."""
        with self._store.reading():
            pass

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the only right to write, knowing every event so far."""
        with self._store.writing():
            if self._state.exported is not None:
                raise LedgerError(
                    f"{self._store.name} was moved to {self._state.exported}: charge it there"
                )
            yield


def _yes_or_no(value: bool, name: str) -> bool:
    if not isinstance(value, bool):
        raise AffineDPError(f"{name} must be True or False, not {value!r}")
    return value


def _checked_protects(value: str) -> str:
    words = checked_text(value, "protects").strip()
    if words in ("", NOT_SAID):
        raise AffineDPError("protects must say whose budget it is, in words such as 'one person'")
    return words
