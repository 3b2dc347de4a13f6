"""Several tables about the same people: one promise for all of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from affinedp.budget.ledger import Ledger, checked_ledger, paying
from affinedp.domains.reading import held
from affinedp.errors import AffineDPError
from affinedp.laws.base import LawName
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon, gaussian_sensitivity
from affinedp.privacy.guarantee import Asked, Guarantee, compose
from affinedp.tables.describe import TableDescription
from affinedp.tables.publish import refuse_rows
from affinedp.tables.refusals import TableError

# Shares of the budget are rounded down by this, so that all together stay within it.
SPARE = 1e-9


@dataclass(frozen=True, eq=False)
class SeveralTables:
    """Tables about the same people, released with independent noise under one promise.

    Attributes
    ----------
    releases : tuple of TableRelease
        The tables; their own ε and δ count only where ``epsilon`` is None.
    epsilon, delta : float or None
        The promise of all tables together.
    """

    releases: tuple[Any, ...]
    epsilon: float | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        given = self.releases
        if len(given) < 2 or any(not isinstance(one, TableDescription) for one in given):
            raise AffineDPError("together takes at least two TableReleases")
        if len({(one.adjacency, one.household) for one in given}) > 1:
            raise AffineDPError(
                "one promise is about one kind of neighbours: give all tables the same neighbours "
                "and household"
            )
        if any(one.releases > 1 for one in given):
            raise AffineDPError(
                "releases is for a table by itself: leave it out, and give together the ε and δ of "
                "one time (a ledger adds up what follows)"
            )
        if given[0].adjacency == "circuits":
            raise AffineDPError(
                "Definition 4 does not say what one person is in several tables: use "
                "adjacency='person'"
            )

    def design(self, tables: Sequence[Any]) -> SeveralDesigns:
        """Design the noise of all tables, the budget shared out to the least squared error.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per release, in their order; only what is public in them is used.

        Returns
        -------
        SeveralDesigns
        """
        if len(tables) != len(self.releases):
            raise TableError(f"there are {len(self.releases)} releases, but {len(tables)} tables")
        if self.epsilon is None:
            designs = (one.design(table) for one, table in zip(self.releases, tables))
            return SeveralDesigns(tuple(designs))
        laws: tuple[LawName, ...] = ("gaussian", "laplace") if self.delta > 0 else ("laplace",)
        found = [self._shared_out(tables, law) for law in laws]
        return min(found, key=lambda designs: designs.cost)

    def release(
        self,
        tables: Sequence[Any],
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> tuple[Any, ...]:
        """Publish all tables.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per release, in their order.
        ledger : Ledger, optional
            Charged once, for all tables together, before anything is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        tables = [held(table) for table in tables]  # computed once
        return self.design(tables).release(tables, ledger=ledger, label=label)

    def _shared_out(self, tables: Sequence[Any], law: LawName) -> SeveralDesigns:
        """Gaussian s² ∝ √cost or Laplace ε ∝ cost^⅓: the least sum for one promise."""
        assert self.epsilon is not None
        delta = self.delta if law == "gaussian" else 0.0
        # at δ = 0 the best pure law, whichever it is
        own: LawName | None = "gaussian" if law == "gaussian" else None
        whole = [replace(one, epsilon=self.epsilon, delta=delta, law=own) for one in self.releases]
        costs = [one.design(table).weighted_error for one, table in zip(whole, tables)]
        if law == "gaussian":
            limit = float(gaussian_sensitivity(self.epsilon, delta))
            sizes = [math.sqrt(cost) for cost in costs]
            shares = [limit * math.sqrt(size / math.fsum(sizes)) for size in sizes]
            budgets = [_pair(delta, s * (1 - SPARE)) for s in shares]
        else:
            sizes = [cost ** (1 / 3) for cost in costs]
            shares = [self.epsilon * size / math.fsum(sizes) for size in sizes]
            budgets = [(share * (1 - SPARE), 0.0) for share in shares]
        designs = tuple(
            replace(one, epsilon=epsilon, delta=part).design(table)
            for one, (epsilon, part), table in zip(whole, budgets, tables)
        )
        found = SeveralDesigns(designs, Asked(self.epsilon, self.delta))
        if not found.guarantee.holds(self.epsilon, self.delta):
            raise AffineDPError("the budget could not be shared out: choose a larger ε or δ")
        return found


@dataclass(frozen=True, eq=False)
class SeveralDesigns:
    """The noise of several tables, and what they promise together.

    Attributes
    ----------
    designs : tuple of TableDesign
        One per table.
    asked : Asked or None
        What was asked for all of them together.
    """

    designs: tuple[Any, ...] = field(repr=False)
    asked: Asked | None = None

    @property
    def cost(self) -> float:
        """Weighted expected squared error of all tables."""
        return math.fsum(design.weighted_error for design in self.designs)

    @property
    def guarantee(self) -> Guarantee:
        """What all tables promise together: one person more or less, in one cell of each."""
        parts = [design.guarantee for design in self.designs]
        words = "; ".join(dict.fromkeys(part.neighbours for part in parts))
        text = f"one person in each of {len(parts)} tables about the same people ({words})"
        same = [replace(part, neighbours=text, neighbours_key=text) for part in parts]
        unit = "; ".join(dict.fromkeys(part.unit for part in parts))
        return replace(compose(same), asked=self.asked, unit=unit)

    def release(
        self,
        tables: Sequence[Any],
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> tuple[Any, ...]:
        """Publish all tables, in one charge; see :meth:`SeveralTables.release`.

        Parameters
        ----------
        tables : sequence of DataFrames
            One per design, in their order.
        ledger : Ledger, optional
            Charged once, for all tables together, before anything is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        if len(tables) != len(self.designs):
            raise TableError(f"there are {len(self.designs)} designs, but {len(tables)} tables")
        checked_ledger(ledger)
        # what is checked is what is released
        ready = [design.ready(held(table)) for design, table in zip(self.designs, tables)]
        for one in ready:
            refuse_rows(ledger, one.design, one.count)
        names = "\n".join(design.mechanism.fingerprint for design in self.designs)
        fingerprint = hashlib.sha256(names.encode()).hexdigest()
        with paying(ledger, self.guarantee, fingerprint=fingerprint, label=label):
            return tuple(one.draw() for one in ready)


def _pair(delta: float, sensitivity: float) -> tuple[float, float]:
    """An (ε, δ) that Gaussian noise of this sensitivity just keeps."""
    epsilon = float(gaussian_epsilon(delta, sensitivity))
    if epsilon > 0:
        return epsilon, delta
    return 0.0, float(gaussian_delta(0.0, sensitivity))
