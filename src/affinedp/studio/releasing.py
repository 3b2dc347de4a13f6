"""Publish from the page: only with a ledger, after a preview, and each preview at most once."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from affinedp.budget.ledger import BudgetExceededError, Ledger
from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.mechanism import Mechanism
from affinedp.studio.jobs import Jobs
from affinedp.studio.question import Publication
from affinedp.studio.uploads import Held, Shelf

LONGEST_OFFER = 900.0
# Each holds a table: older previews are forgotten.
MOST_OFFERS = 4


@dataclass(frozen=True, eq=False)
class Offer:
    """What a preview showed, and would be done.

    Attributes
    ----------
    publication : Publication
        What was asked for.
    mechanism : Mechanism
        The noise.
    table : DataFrame
        The private numbers.
    until : float
        When the offer ends.
    """

    publication: Publication
    mechanism: Mechanism
    table: Any
    until: float


class Releases:
    """Previews that were shown and not used yet.

    Parameters
    ----------
    jobs : Jobs
        Knows the mechanisms that were designed.
    shelf : Shelf
        Holds the data.
    """

    def __init__(self, jobs: Jobs, shelf: Shelf) -> None:
        self._jobs = jobs
        self._shelf = shelf
        self._offers: dict[str, Offer] = {}
        self._lock = threading.Lock()

    def preview(self, publication: Publication) -> dict[str, Any]:
        """Return what a release would spend; nothing is charged or drawn.

        Parameters
        ----------
        publication : Publication
            What is asked for.
        """
        known = self._jobs.known("design", publication.question.model_dump_json())
        if known is None:
            raise AffineDPError("design the noise first (step 3)")
        mechanism = _loaded(known["files"]["mechanism.json"])
        table = _columns(self._shelf.get(publication.file), mechanism)
        charges = len(table) if publication.rows == "same" else 1
        question = publication.question
        with _ledger(publication.ledger) as ledger:
            fits = ledger.fits(mechanism.guarantee, releases=charges)
            answer: dict[str, Any] = {
                "rows": len(table),
                "charges": charges,
                "epsilon": mechanism.guarantee.epsilon(question.delta),
                "ledger": ledger.name,
                "protects": ledger.protects,
                "cap": ledger.epsilon,
                "cap_delta": ledger.delta,
                "spent": ledger.spent,
                "remaining": ledger.remaining,
                "fits": fits,
            }
        if not fits:
            return answer
        ticket = secrets.token_urlsafe(16)
        with self._lock:
            now = time.monotonic()
            self._offers = {key: one for key, one in self._offers.items() if one.until > now}
            for oldest in list(self._offers)[: 1 - MOST_OFFERS]:
                del self._offers[oldest]
            self._offers[ticket] = Offer(publication, mechanism, table, now + LONGEST_OFFER)
        return {**answer, "ticket": ticket}

    def publish(self, ticket: str) -> dict[str, Any]:
        """Charge the ledger, draw the noise, and return the table; once per preview.

        Parameters
        ----------
        ticket : str
            Which preview was confirmed.
        """
        with self._lock:
            offer = self._offers.pop(ticket, None)
        if offer is None or offer.until < time.monotonic():
            raise AffineDPError("this preview was used or is too old: look at a new one first")
        with _ledger(offer.publication.ledger) as ledger:
            try:
                published = offer.mechanism.release(
                    offer.table,
                    ledger=ledger,
                    label=offer.publication.label or "studio",
                    rows=offer.publication.rows,
                )
            except BudgetExceededError as error:
                raise AffineDPError(f"nothing was published: {error}") from None
            return {
                "csv": published.to_csv(index=False),
                "spent": ledger.spent,
                "remaining": ledger.remaining,
            }


def _ledger(path: str) -> Ledger:
    """A ledger that exists; the page makes none, so that nobody makes a second by mistake."""
    return Ledger(path, create=False)


def _loaded(text: str) -> Mechanism:
    with TemporaryDirectory() as folder:  # a mechanism is public
        file = Path(folder, "mechanism.json")
        file.write_text(text, encoding="utf-8")
        return Mechanism.load(file)


def _columns(held: Held, mechanism: Mechanism) -> Any:
    """The columns that are published, in the order of the mechanism."""
    table = read_table(Path(held.name), content=held.content)
    names = list(mechanism.manifold.names)
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise AffineDPError(
            f"{held.name} has no column {missing[0]!r}, which the equations speak of: choose the "
            "file with the numbers to publish"
        )
    return table[names]
