"""Confirm in the ledger that a release happened; a server that is away takes nothing back.

A ledger that answers, and does not have the charge, was restored, replaced or altered: nothing is
handed out then.
"""

from __future__ import annotations

import warnings

from affinedp.budget.ledger import Ledger, LedgerWarning
from affinedp.budget.state import LedgerUnreachableError
from affinedp.errors import AffineDPError


def confirm(ledger: Ledger | None, entry: int | None) -> None:
    """Settle an entry after its noise was drawn; if the server is away, say so and go on.

    The charge is kept and counts.  Who does not get the result would release again, and pay twice.

    Parameters
    ----------
    ledger : Ledger or None
        None if nothing was charged.
    entry : int or None
        What its ``charge`` returned.
    """
    if ledger is None or entry is None:
        return
    try:
        ledger.settle(entry)
    except LedgerUnreachableError as error:
        warnings.warn(
            f"the release is complete, but entry {entry} of its ledger stays charged, not "
            f"confirmed: {why(error)}",
            LedgerWarning,
            stacklevel=4,
        )


def why(error: AffineDPError) -> str:
    """Return why a release that happened was not confirmed: "do not release" comes too late.

    Parameters
    ----------
    error : AffineDPError
        What the ledger said.
    """
    return str(error).removesuffix("; do not release")
