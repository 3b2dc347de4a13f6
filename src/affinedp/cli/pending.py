"""A release counts as done in the ledger only when its results are on the disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from affinedp.budget.events import LedgerError
from affinedp.budget.ledger import Ledger, LedgerWarning, why
from affinedp.errors import AffineDPError


class PendingLedger(Ledger):
    """A ledger that charges at once, and notes down what to settle later."""

    def __init__(self, path: str, same_secret: bool) -> None:
        super().__init__(path, create=False, same_secret=same_secret)
        self.waiting: list[int] = []
        self.left: float | None = None

    def settle(self, entry: int) -> None:
        """Note that the noise of a charge was drawn."""
        self.waiting.append(entry)

    def settle_all(self) -> None:
        """Record every release that was noted, and note down what is left.

        The results are on the disk, so a server that cannot be reached any more is no failure: who
        took it for one would release again, and pay twice.  A ledger that no longer has the charge
        is one.
        """
        try:
            while self.waiting:
                super().settle(self.waiting[-1])
                self.waiting.pop()
            self.left = self.remaining
        except LedgerError as error:
            if not error.unreachable:
                raise AffineDPError(
                    f"the results are published, but the ledger does not confirm what they cost: "
                    f"{why(error)}. Charge it again before anything else is released"
                ) from None
            entries = f"entry {', '.join(map(str, self.waiting))} stays charged, not confirmed"
            told = entries if self.waiting else "what is left cannot be asked"
            warnings.warn(
                f"the results are published, but {told}: {why(error)}",
                LedgerWarning,
                stacklevel=4,
            )


@contextmanager
def settled_in_the_end(path: str | None, same_secret: bool = False) -> Iterator[Any]:
    """Open a ledger; what is charged inside is recorded as released when all went well.

    What is left then is its ``left``, or None if it could not be asked any more.
    If something went wrong it stays charged, without a release, as after a crash: noise was drawn.
    """
    if path is None:
        yield None
        return
    ledger = PendingLedger(path, same_secret)
    with ledger:
        try:
            yield ledger
        except AffineDPError as error:
            if not ledger.waiting:
                raise
            entries = ", ".join(map(str, ledger.waiting))
            raise AffineDPError(
                f"{error}.  Nothing was published, but noise was drawn: entry {entries} of "
                f"{ledger.name} stays charged, not confirmed"
            ) from None
        ledger.settle_all()


def budget_of(path: str | None, same_secret: bool) -> AbstractContextManager[Ledger | None]:
    """Return a ledger that exists, to be opened; nothing where none is named."""
    if path is None:
        return nullcontext()
    return Ledger(path, create=False, same_secret=same_secret)


def budget_left(ledger: PendingLedger | None) -> dict[str, float | None]:
    """Return what is left, for programs: nothing is said without a ledger."""
    if ledger is None:
        return {"budget_left": None, "budget_delta": None}
    return {"budget_left": ledger.left, "budget_delta": ledger.delta}
