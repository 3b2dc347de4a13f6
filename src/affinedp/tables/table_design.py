"""A design, as people hold it: noise for tables of one shape, with conveniences."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, overload

from affinedp.budget.ledger import Ledger, checked_ledger
from affinedp.laws.sampler import Sampler
from affinedp.release.engines import in_parts
from affinedp.show.page import Report
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.frames import given_table
from affinedp.tables.in_parts import ReleasedInParts, release_in_parts
from affinedp.tables.level_summary import level_summary
from affinedp.tables.publishing import paying_for_table, ready_table
from affinedp.tables.released_table import ReleasedTable
from affinedp.tables.table_report import table_report
from affinedp.tables.table_rows import Published


@dataclass(frozen=True, eq=False)
class TableDesign(DesignedNoise):
    """Noise for tables of one shape, with what it promises.

    Nothing in it depends on private numbers.

    Attributes
    ----------
    description : TableDescription
        What was asked for.
    layout : Layout
        Entries and equations.
    mechanism : Mechanism
        The noise on the private entries of one data set.
    guarantee : Guarantee
        What a release of the whole table promises.
    releases : int
        How often the mechanism's guarantee is charged to a ledger for one table.
    multiples : Multiples or None
        How published numbers are rounded.
    """

    def report(self) -> Report:
        """Return what people want to read, compared with standard practice."""
        return table_report(self, None, None)

    def ready(
        self, table: Any, *, bound: float | None = None, sampler: Sampler = "bulk"
    ) -> ReadyTable:
        """Refuse a table that cannot be released with this noise; nothing is charged or drawn.

        Parameters
        ----------
        table : DataFrame
            The private table.
        bound : float, optional
            A public bound on the size of the numbers.
        sampler : {"bulk", "opendp"}
            Who draws.

        Returns
        -------
        ReadyTable
            Draws it.
        """
        given = given_table(self.description, table)
        drawn = ready_table(self, given.frame, bound=bound, sampler=sampler)
        return ReadyTable(self, len(given.frame), drawn, given.back)

    def levels(self, level: float = 0.95) -> Any:
        """Return how accurate every level of the table will be, before anything is spent.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        DataFrame
            By level: how many numbers, root mean square noise, the largest half width of a
            single interval, and of intervals that hold for all numbers of the level at once.
            They are around ``unrounded``, and around whole numbers that may be negative.
        """
        return level_summary(self, level, None, self.description.hierarchy)

    @overload
    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        into: None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTable: ...

    @overload
    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        into: str | os.PathLike[str],
        sampler: Sampler = "bulk",
    ) -> ReleasedInParts: ...

    def release(
        self,
        table: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        into: str | os.PathLike[str] | None = None,
        sampler: Sampler = "bulk",
    ) -> ReleasedTable | ReleasedInParts:
        """Publish a table of this shape; see :meth:`TableRelease.release`.

        Parameters
        ----------
        table : DataFrame
            The private table.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        bound : float, optional
            A public bound on the size of the numbers.
        into : str or Path, optional
            For tables in parts: a new folder that all workers share.
        sampler : {"bulk", "opendp"}
            Who draws.

        Returns
        -------
        ReleasedTable, or ReleasedInParts
        """
        if in_parts(table, into):
            return release_in_parts(
                self, table, into=into, ledger=ledger, label=label, bound=bound, sampler=sampler
            )
        checked_ledger(ledger)
        ready = self.ready(table, bound=bound, sampler=sampler)
        with paying_for_table(ledger, self, ready.count, label):
            return ready.draw()


@dataclass(frozen=True, eq=False)
class ReadyTable:
    """A private table in which all that can be refused was looked for.

    Attributes
    ----------
    design : TableDesign
        The noise.
    count : int
        How many rows it has.
    drawn : callable
        Draws the noise.
    back : callable
        From a frame to the shape that was given.
    """

    design: TableDesign
    count: int
    drawn: Callable[[], Published] = field(repr=False)
    back: Callable[[Any], Any] = field(repr=False)

    def draw(self) -> ReleasedTable:
        """Return the table with noise, after it was charged."""
        found = self.drawn()
        return ReleasedTable(replace(self.design, bound=found.bound), found, self.back)
