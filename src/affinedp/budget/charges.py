"""What one charge is: what it costs, whom it is about, and why it may be refused."""

from __future__ import annotations

import math
import numbers
from typing import Any, Literal

from affinedp.budget.filters import Losses, multiplied, spent_epsilon
from affinedp.budget.state import MOST_RELEASES, LedgerError, State, now
from affinedp.errors import AffineDPError
from affinedp.promise.guarantee import Guarantee

Rows = Literal["same", "different"]

MOST_TEXT = {
    "label": 1000,
    "law": 1000,
    "fingerprint": 1000,
    "neighbours": 10_000,
    "neighbours_key": 1000,
    "unit": 1000,
    "protects": 1000,
}


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


class OtherUnitError(LedgerError):
    """A release about other neighbours than those that the ledger adds up; nothing was charged.

    Attributes
    ----------
    unit : str or None
        What moves between the ledger's neighbours; None if an older version did not record it.
    given : str
        What moves between the neighbours of the release.
    """

    def __init__(self, message: str, *, unit: str | None, given: str) -> None:
        self.unit = unit
        self.given = given
        super().__init__(message)


def checked_rows(rows: str | None) -> Rows | None:
    """Return whom rows are about, if that was said, or refuse what it cannot be."""
    if rows is None:
        return None
    if rows == "same":
        return "same"
    if rows == "different":
        return "different"
    raise AffineDPError(f"rows must be 'same' or 'different', not {rows!r}")


def charged_releases(count: int, rows: str | None) -> int:
    """Return how many releases a batch is for one secret; it is said, never guessed.

    Parameters
    ----------
    count : int
        How many rows get noise of their own.
    rows : {"same", "different"} or None
        ``"same"``: a change of the secret may move every row, so each one is charged.
        ``"different"``: it moves one row at most, so the batch is charged once.  Not needed for
        one row.

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


def losses_of(guarantee: Guarantee, releases: int) -> Losses:
    """Return what a guarantee costs; one without a promise is refused.

    Parameters
    ----------
    guarantee : Guarantee
        What the release promises.
    releases : int
        How many releases with fresh noise.
    """
    if not isinstance(guarantee, Guarantee):
        raise AffineDPError(f"a ledger charges a Guarantee, not {type(guarantee).__name__}")
    if isinstance(releases, bool) or not isinstance(releases, numbers.Integral):
        raise AffineDPError(f"releases must be a whole number, not {releases!r}")
    if not 1 <= releases <= MOST_RELEASES:
        raise AffineDPError(f"releases must be 1 to {MOST_RELEASES}, not {releases!r}")
    losses = guarantee.curve.losses()
    if guarantee.leak is not None or not losses or not all(math.isfinite(s) for _, s in losses):
        raise BudgetExceededError(
            "this guarantee promises nothing (some output has no noise): no budget allows it",
            requested=math.inf,
            remaining=0.0,
        )
    return multiplied(losses, int(releases))


def charge_event(
    guarantee: Guarantee, fingerprint: str, label: str | None, releases: int
) -> dict[str, Any]:
    """Return what is written down of a charge, checked.

    Parameters
    ----------
    guarantee : Guarantee
        What the release promises.
    fingerprint : str
        Which mechanism it is.
    label : str or None
        A name for people.
    releases : int
        How many releases with fresh noise.
    """
    return {
        "kind": "charge",
        "time": now(),
        "label": None if label is None else checked_text(label, "label"),
        "law": checked_text(guarantee.law, "law"),
        "losses": [[law, float(s).hex()] for law, s in guarantee.curve.losses()],
        "neighbours": checked_text(guarantee.neighbours, "neighbours"),
        "neighbours_key": checked_text(guarantee.neighbours_key, "neighbours_key"),
        "unit": checked_text(guarantee.unit, "unit"),
        "fingerprint": checked_text(fingerprint, "fingerprint"),
        "releases": int(releases),
    }


def exceeded(state: State, losses: Losses) -> BudgetExceededError:
    """Return the refusal of a charge that passes the cap.

    Parameters
    ----------
    state : State
        What was charged.
    losses : Losses
        What this charge costs.
    """
    requested = spent_epsilon(losses, state.delta, state.adaptive)
    remaining = max(0.0, state.epsilon - state.spent())
    hint = ""
    mixed = len({law == "gaussian" for law, _ in state.losses + losses}) > 1
    if mixed and requested <= remaining:
        hint = ". Gaussian and other noise cost more together than alone: stay with one law"
    return BudgetExceededError(
        f"this charge alone costs ε = {requested:.6g} at δ = {state.delta:g}, and together with "
        f"the earlier ones it passes the cap ε = {state.epsilon:g}, of which "
        f"{round(remaining, 12):.6g} is left; nothing was charged{hint}",
        requested=requested,
        remaining=remaining,
    )


def other_unit(ledger: str, state: State, guarantee: Guarantee) -> OtherUnitError:
    """Return the refusal of a release about other neighbours than the ledger's.

    Parameters
    ----------
    ledger : str
        The name of the file.
    state : State
        What was charged.
    guarantee : Guarantee
        What the release promises.
    """
    known = state.unit
    about = f"neighbours of the unit {known!r}" if known else "neighbours of an unknown unit"
    return OtherUnitError(
        f"{ledger} adds up {about}, but this release is about {guarantee.unit!r}: "
        f"{guarantee.neighbours}. If a change of what the ledger protects ({state.protects}) moves "
        "the data of this release by at most one of these neighbours, say so with "
        "same_secret=True, in charge or when the ledger is opened (--same-secret on the command "
        "line); it then adds up like the others. If not, it belongs to another ledger. Nothing was "
        "charged",
        unit=known,
        given=guarantee.unit,
    )


def several_kinds(ledger: str) -> str:
    """Return what is to be said of a ledger in which version 1 kept several caps.

    Parameters
    ----------
    ledger : str
        The name of the file.
    """
    return (
        f"{ledger} was charged by an older version, which gave each kind of neighbours a cap of "
        "its own: all of its charges add up now, and may pass the cap together (this is said "
        "until the next charge)"
    )


def checked_text(value: str, name: str) -> str:
    """Return text that can be written down, or refuse it by ``name``."""
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
