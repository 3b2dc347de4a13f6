"""A release from the page: a preview of its price, the release itself, functions of what came out.

They run in processes of their own, with the limits of every computation: tables and ledgers are
read nowhere else.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from affinedp.budget.ledger import BudgetExceededError, Ledger, LedgerWarning
from affinedp.errors import AffineDPError
from affinedp.files.data import as_published, reach_of, read_table
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.studio.looking import check_untied
from affinedp.studio.question import Publication
from affinedp.studio.uploads import Held

LEVEL = 0.95
# Rows of a published table whose functions the page shows.
MOST_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Offer:
    """What a preview shows, and what would be done."""

    publication: Publication
    design: bytes
    held: Held
    ticket: str
    until: float


def preview(offer: Offer) -> dict[str, Any]:
    """Return what a release would spend, and the ticket that confirms it if the budget allows."""
    publication = offer.publication
    with Progress("the preview") as bar:
        bar.update(0.1, "reading the file")
        mechanism, table = _read(offer)
        bar.update(0.8, "asking the ledger")
        charges = len(table) if publication.rows == "same" else 1
        with _ledger(publication.ledger) as ledger:
            fits = ledger.fits(mechanism.guarantee, releases=charges)
            return {
                "rows": len(table),
                "charges": charges,
                "epsilon": mechanism.guarantee.epsilon(publication.question.delta),
                "ledger": ledger.name,
                "protects": ledger.protects,
                "cap": ledger.epsilon,
                "cap_delta": ledger.delta,
                "spent": ledger.spent,
                "remaining": ledger.remaining,
                "fits": fits,
                **({"ticket": offer.ticket} if fits else {}),
            }


def publish(offer: Offer) -> dict[str, Any]:
    """Charge the ledger, draw the noise, and return the table.

    Whoever ends this in between may lose what was charged; no noise is shown that was not.
    """
    with Progress("publishing") as bar:
        bar.update(0.1, "reading the file")
        mechanism, table = _read(offer)
        bar.update(0.3, "drawing the noise")
        reach = reach_of(mechanism)
        with (
            warnings.catch_warnings(record=True) as told,
            _ledger(offer.publication.ledger) as ledger,
        ):
            warnings.simplefilter("always", LedgerWarning)
            try:
                published = mechanism.release(
                    table[list(mechanism.manifold.names)],
                    ledger=ledger,
                    label=offer.publication.label or "studio",
                    rows=offer.publication.rows,
                )
            except BudgetExceededError as error:
                raise AffineDPError(f"nothing was published: {error}") from None
            return {
                "csv": as_published(mechanism, published, reach, table).to_csv(index=False),
                "names": list(published.columns),
                **_left(ledger, told),
            }


def function(asked: tuple[bytes, bytes, str]) -> dict[str, Any]:
    """Return a function of what a design published, row by row, with intervals."""
    design, answer, formula = asked
    with Progress("the function") as bar:
        bar.update(0.1, "reading what was published")
        published = json.loads(answer)["csv"].encode()
        table = read_table(Path("published.csv"), content=published)
        bar.update(0.3, "looking for intervals")
        mechanism = _mechanism(design)
        shown = table[list(mechanism.output_names)][:MOST_SHOWN]
        found = mechanism.function(shown, formula, level=LEVEL)
        return {
            "rows": len(table),
            "values": [str(found[row]) for row in range(len(found.value))],
            "how": found.how,
            "warnings": list(found.warnings),
        }


def _left(ledger: Ledger, told: list[warnings.WarningMessage]) -> dict[str, Any]:
    """What is spent now; that it cannot be asked any more does not take back what was published."""
    words = [str(each.message) for each in told if issubclass(each.category, LedgerWarning)]
    try:
        spent, remaining = ledger.spent, ledger.remaining
    except AffineDPError as error:
        words.append(f"what is left could not be asked: {error}")
        return {"spent": None, "remaining": None, "warnings": words}
    return {"spent": spent, "remaining": remaining, "warnings": words}


def _ledger(path: str) -> Ledger:
    """A ledger that exists; the page makes none, so that nobody makes a second by mistake."""
    if path.startswith("~"):  # as shells read it
        try:
            path = str(Path(path).expanduser())
        except RuntimeError:
            raise AffineDPError(f"there is no user {path.split('/')[0]} on this machine") from None
    return Ledger(path, create=False)


def _read(offer: Offer) -> tuple[Mechanism, Any]:
    """The mechanism, and the columns that are published, in the order of the file."""
    mechanism = _mechanism(offer.design)
    held = offer.held
    table = read_table(Path(held.name), content=held.content)
    names = [*offer.publication.question.labels, *mechanism.manifold.names]
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise AffineDPError(
            f"{held.name} has no column {missing[0]!r}, which the equations speak of: choose the "
            "file with the numbers to publish"
        )
    check_untied(table, mechanism.manifold.names, held.name)
    return mechanism, table[[name for name in table if name in names]]


def _mechanism(design: bytes) -> Mechanism:
    text = json.loads(design)["files"]["mechanism.json"]
    with TemporaryDirectory() as folder:  # a mechanism is public
        file = Path(folder, "mechanism.json")
        file.write_text(text, encoding="utf-8")
        return Mechanism.load(file)
