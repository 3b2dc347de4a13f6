"""The privacy budget of one secret: a ledger that knows every charge, and refuses beyond the cap.

Everything that is charged adds up, whatever the neighbours of each release: a change of the secret
that moves the data of each release by at most a neighbour of that release is hidden by all of
them together (docs/howto/budget.md has the theorem).
A charge is on the disk before any noise is drawn, so a release that happened is always charged.
A crash between the two leaves a charge without a release; it stays charged and is marked so.
"""

from __future__ import annotations

import math
import numbers
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from affinedp.arrays import yes_or_no
from affinedp.budget.address import is_server
from affinedp.budget.events import (
    MOST_RELEASES,
    STOP,
    Closing,
    Events,
    State,
    Store,
    Transaction,
    checked_cap,
    checked_text,
)
from affinedp.budget.events import LedgerEntry as LedgerEntry
from affinedp.budget.events import LedgerError as LedgerError
from affinedp.budget.filters import Filter, Losses, multiplied
from affinedp.budget.filters import LedgerWarning as LedgerWarning
from affinedp.budget.postgres import ServerStore, move_to_server
from affinedp.budget.sqlite import FileStore
from affinedp.errors import AffineDPError, left_words, outside
from affinedp.exact.numbers import whole_number
from affinedp.privacy.guarantee import Guarantee

Rows = Literal["same", "different"]


class BudgetExceededError(LedgerError):
    """A charge that would pass the cap; nothing was charged.

    Attributes
    ----------
    requested : float
        ε of the charge alone, at the ledger's δ.
    remaining : float
        The cap's ε minus what was spent.
    """

    def __init__(self, message: str, *, requested: float, remaining: float) -> None:
        self.requested = requested
        self.remaining = remaining
        super().__init__(message)


class Ledger(Closing):
    """A privacy budget (ε, δ) for one secret, in a file that many processes may charge at once.

    A ledger is about one secret: a person, a household, a vehicle.  All charges add up, and
    together they stay within the cap.  What that promises: a change of the secret that moves the
    data of each release by at most a neighbour of that release is (ε, δ)-hidden.  Releases whose
    neighbours have the ledger's unit (:attr:`affinedp.Guarantee.unit`, that of the first charge)
    are added without a word; another μ or other equations do not matter.  Other neighbours are
    refused unless the caller says that a change of the secret is one of them, too.  Two groups
    that have nothing in common have two ledgers.

    The cap also holds if the analyst chooses laws and sensitivities by what earlier releases
    showed; :mod:`affinedp.budget.filters` has the rules and the proof.

    Threads and forked processes may share an instance.

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
        if adaptive is not None:
            yes_or_no(adaptive, "adaptive")
        self._same_secret = yes_or_no(same_secret, "same_secret")
        if protects is not None:
            protects = checked_text(protects, "protects").strip()
            checked_text(protects, "protects")
        if epsilon is not None:
            epsilon = checked_cap(epsilon, "epsilon", math.inf)
        if delta is not None:
            delta = checked_cap(delta, "delta", 1.0)
        wanted = None if epsilon is None else Filter(epsilon, delta or 0.0, adaptive is not False)
        store, may_create = _store_at(path), yes_or_no(create, "create")
        if not store.exists():
            _create(store, wanted, protects, may_create)
        self._events = Events(store)
        given = {"epsilon": epsilon, "delta": delta, "adaptive": adaptive, "protects": protects}
        for name, value in given.items():
            stored = getattr(self, name)
            if value is not None and value != stored:
                raise LedgerError(
                    f"{self.name} was created with {name} = {stored!r}, not {value!r}, and that "
                    "does not change; another secret has a ledger of its own"
                )
        if not self._events.at_home:
            warnings.warn(self._moved(), LedgerWarning, stacklevel=outside())

    @property
    def _state(self) -> State:
        return self._events.state

    @property
    def name(self) -> str:
        """What refusals call it: the name of the file, or server, database and ledger."""
        return self._events.store.name

    @property
    def epsilon(self) -> float:
        """The cap's ε."""
        return self._state.filter.epsilon

    @property
    def delta(self) -> float:
        """The cap's δ."""
        return self._state.filter.delta

    @property
    def adaptive(self) -> bool:
        """Whether later charges may depend on what earlier releases showed."""
        return self._state.filter.adaptive

    @property
    def protects(self) -> str:
        """Whose budget it is, in words."""
        return self._state.protects

    @property
    def unit(self) -> str | None:
        """What moves between the neighbours that are added without a word; None before a charge."""
        return self._now().unit

    @property
    def head(self) -> str:
        """Number of events and the hash of the last: note it elsewhere to recognise the ledger."""
        state = self._now()
        return f"{state.events}:{state.head}"

    @property
    def moved_to(self) -> str | None:
        """The server that an exported file went to, where its charges go on; None for others."""
        return self._now().exported

    @property
    def spent(self) -> float:
        """ε of all charges together at the cap's δ (an upper bound)."""
        return self._now().spent()

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
        losses, state = _losses_of(guarantee, releases), self._now()
        own = state.is_own(guarantee.unit, guarantee.neighbours_key)
        return (own or self._declared(same_secret)) and state.allows(losses)

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
        LedgerError
            If the neighbours have another unit and nobody said that they are about the same
            secret.  Nothing is recorded.
        """
        losses, declared = _losses_of(guarantee, releases), self._declared(same_secret)
        about = ("law", "neighbours", "neighbours_key", "unit")
        body = {
            **{name: checked_text(getattr(guarantee, name), name) for name in about},
            "label": None if label is None else checked_text(label, "label"),
            "losses": [[law, float(s).hex()] for law, s in guarantee.curve.losses()],
            "fingerprint": checked_text(fingerprint, "fingerprint"),
            "releases": int(releases),
        }
        with self._writing() as now:
            own = self._state.is_own(guarantee.unit, guarantee.neighbours_key)
            if not own and not declared:
                raise self._other_unit(guarantee)
            if not self._state.allows(losses):
                raise self._exceeded(losses)
            return self._events.append(now, "charge", **body, same_secret=not own)

    def settle(self, entry: int) -> None:
        """Record that the release of a charge happened.

        Parameters
        ----------
        entry : int
            What :meth:`charge` returned.
        """
        with self._writing() as now:
            whole = isinstance(entry, numbers.Integral) and not isinstance(entry, bool)
            known = self._state.entries.get(entry) if whole else None
            if known is None:
                raise LedgerError(f"{self.name} has no entry {entry!r}")
            if known.status == "released":
                raise LedgerError(f"entry {entry} was released already; every release is charged")
            self._events.append(now, "release", entry=known.id)

    def acknowledge_move(self) -> None:
        """Record that this ledger, where it is now, is the only one: the warning ends."""
        with self._writing() as now:
            self._events.append(now, "move", place=now.place())

    def history(self) -> tuple[LedgerEntry, ...]:
        """Return all charges, the oldest first."""
        return tuple(self._now().entries.values())

    def check(self) -> tuple[str, ...]:
        """Read the whole ledger again and return what is wrong with it, in words."""
        try:
            state, at_home = self._events.verified()
        except LedgerError as error:
            return (str(error),)
        problems = [] if at_home else [self._moved()]
        if not state.allows(Counter()):
            problems.append(
                f"the charges pass the cap: ε = {state.spent():.6g} at δ = {self.delta:g}"
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
        move_to_server(self._events, url)

    def close(self) -> None:
        """Refuse everything from now on; nothing is open between two calls."""
        self._events.closed = True

    def __repr__(self) -> str:
        return (
            f"Ledger({self._events.store.address!r}, epsilon={self.epsilon!r}, "
            f"delta={self.delta!r}, protects={self.protects!r})"
        )

    def _declared(self, same_secret: bool | None) -> bool:
        return self._same_secret if same_secret is None else yes_or_no(same_secret, "same_secret")

    def _now(self) -> State:
        """What it says, with the events that others added."""
        with self._events.reading():
            return self._state

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        """Hold the only right to write, knowing every event so far."""
        with self._events.writing() as now:
            if self._state.exported is not None:
                raise LedgerError(
                    f"{self.name} was moved to {self._state.exported}: charge it there"
                )
            yield now

    def _moved(self) -> str:
        return (
            f"{self._events.store.address} was moved or copied: if the other one is still charged, "
            "or this is an old backup, charges are missing here; if neither, call "
            "acknowledge_move()"
        )

    def _exceeded(self, losses: Losses) -> BudgetExceededError:
        """The refusal of a charge that passes the cap: by which rules, and what would fit."""
        state, rules = self._state, self._state.filter
        requested = rules.spent(losses, losses)
        remaining = max(0.0, self.epsilon - state.spent())
        bounds = list(rules.bounds(state.losses + losses, state.first or losses))
        gives = ", ".join(f"{bound.rule} gives {bound.spent():.6g}" for bound in bounds)
        room = rules.room(state.losses, state.first, losses)
        fits = (
            f"of this noise at most ε = {left_words(room)} would fit"
            if room
            else "not even less of this noise fits"
        )
        if requested <= remaining and len(bounds) == 1 and self.adaptive and self.delta:
            fits += (
                " (all of δ is for one Gaussian, since the first charge had Gaussian noise: a "
                "ledger whose first charge is pure, or with adaptive=False, also adds pure and "
                "Gaussian noise apart)"
            )
        return BudgetExceededError(
            f"{'the budget is spent' if not room else 'the budget does not allow this release'}: "
            f"{left_words(remaining)} of ε = {self.epsilon:g} at δ = {self.delta:g} is left, and "
            f"this release needs {requested:.6g}. Nothing was charged. "
            f"({f'With it, {gives}' if gives else 'Gaussian noise needs δ > 0'}; {fits})",
            requested=requested,
            remaining=remaining,
        )

    def _other_unit(self, guarantee: Guarantee) -> LedgerError:
        """The refusal of a release about other neighbours than the ledger's."""
        return LedgerError(
            f"{self.name} adds up neighbours of the unit {self._state.unit!r}, but this release is "
            f"about {guarantee.unit!r}: {guarantee.neighbours}. If a change of what the ledger "
            f"protects ({self.protects}) moves the data of this release by at most one of these "
            "neighbours, say so with same_secret=True: it then adds up like the others. If not, it "
            "belongs to another ledger. Nothing was charged"
        )


# ---------------------------------------------------------------------- one charge for one release


@contextmanager
def paying(
    ledger: Ledger | None,
    guarantee: Guarantee,
    *,
    fingerprint: str,
    label: str | None = None,
    releases: int = 1,
) -> Iterator[None]:
    """Charge a release before it is drawn inside, and confirm it afterwards.

    If drawing fails, or the program dies, the entry stays charged.  A server that is away when the
    release is confirmed takes nothing back: the charge counts, and who did not get the result
    would release again, and pay twice.  A ledger that answers, and does not have the charge, was
    restored, replaced or altered: then nothing is handed out.
    """
    if ledger is None:
        yield
        return
    checked_ledger(ledger)
    entry = ledger.charge(guarantee, fingerprint=fingerprint, label=label, releases=releases)
    yield
    try:
        ledger.settle(entry)
    except LedgerError as error:
        if not error.unreachable:
            raise
        warnings.warn(
            f"the release is complete, but entry {entry} of its ledger stays charged, not "
            f"confirmed: {why(error)}",
            LedgerWarning,
            stacklevel=outside(),
        )


def checked_ledger(ledger: Ledger | None) -> None:
    """Refuse what is not a ledger, before data is looked at."""
    if not (ledger is None or isinstance(ledger, Ledger)):
        raise AffineDPError(
            f"ledger must be a Ledger, not {type(ledger).__name__}: open it with "
            "affinedp.Ledger(path)"
        )


def why(error: AffineDPError) -> str:
    """Return why a release that happened was not confirmed: "do not release" comes too late."""
    return str(error).removesuffix(STOP)


def checked_rows(rows: str | None) -> Rows | None:
    """Return whom rows are about, if that was said, or refuse what it cannot be."""
    if rows is None:
        return None
    if isinstance(rows, str) and rows == "same":
        return "same"
    if isinstance(rows, str) and rows == "different":
        return "different"
    raise AffineDPError(f"rows must be 'same' or 'different', not {rows!r}")


def charged_releases(count: int, rows: str | None) -> int:
    """Return how many releases a batch is for one secret; it is said, never guessed.

    Examples
    --------
    >>> charged_releases(24, "same"), charged_releases(24, "different"), charged_releases(1, None)
    (24, 1, 1)
    """
    if checked_rows(rows) is None and count > 1:
        raise AffineDPError(
            f"there are {count:,} rows, and a ledger must know whom they are about: rows='same' if "
            f"a change of the secret may move all of them (the ledger is charged {count:,} times), "
            "rows='different' if it moves one row at most (it is charged once); nothing was charged"
        )
    return count if rows == "same" else 1


def _losses_of(guarantee: Guarantee, releases: int) -> Losses:
    """What a guarantee costs; one without a promise is refused."""
    if not isinstance(guarantee, Guarantee):
        raise AffineDPError(f"a ledger charges a Guarantee, not {type(guarantee).__name__}")
    count = whole_number(releases, "releases", most=MOST_RELEASES)
    losses = guarantee.curve.losses()
    if guarantee.leak is not None or not losses or not all(math.isfinite(s) for _, s in losses):
        raise BudgetExceededError(
            "this guarantee promises nothing (some output has no noise): no budget allows it",
            requested=math.inf,
            remaining=0.0,
        )
    return multiplied(losses, count)


# ---------------------------------------------------------------------- where it is


def ledger_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a ledger, or anything else, at a path or address."""
    return _store_at(path).exists()


def missing(at: str | os.PathLike[str]) -> str:
    """Say that there is no ledger at a path or address, and which one may be meant."""
    return _store_at(at).missing()


def _store_at(path: str | os.PathLike[str]) -> Store:
    return ServerStore(str(path)) if is_server(path) else FileStore(path)


def _create(store: Store, wanted: Filter | None, protects: str | None, create: bool) -> None:
    """Make a new ledger where there is none, if one is wanted."""
    if not create:
        raise LedgerError(store.missing())
    if wanted is None:
        raise LedgerError(
            f"{store.missing()}. If this is the right name, and a NEW budget is to begin here, "
            "which knows of no earlier charge, give epsilon and protects"
        )
    if protects is None:
        raise LedgerError(
            f"{store.missing()}: say whom the new one protects, as in "
            "protects='one person'. All that is charged to it adds up for that one secret"
        )
    store.create(wanted, protects)
