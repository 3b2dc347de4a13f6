"""Publish a table: all that can be refused comes first, then the charge, then the draw."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, paying
from affinedp.laws.sampler import Sampler, checked_sampler
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import TableError
from affinedp.tables.table_rows import Published, TableRows, by_column, same_layout, shown
from affinedp.tables.tree_tables import tree_counts
from affinedp.tables.whole_numbers import whole


def ready_table(
    design: DesignedNoise, table: Any, *, bound: float | None = None, sampler: Sampler = "bulk"
) -> Callable[[], Published]:
    """Refuse whatever can be refused of a table, and return what draws it."""
    checked_sampler(sampler)
    layout = same_layout(design, table)
    refuse_other_count(design, len(table))
    if not design.tree:
        rows = TableRows(design, bound, sampler)
        return partial(rows.drawn, rows.ready(table))
    points = read_points(design.description, layout, table, bound)
    counts = tree_counts(layout, points)
    return partial(_drawn_tree, design, table, points, counts, sampler)


def paying_for_table(
    ledger: Ledger | None, design: DesignedNoise, count: int, label: str | None
) -> AbstractContextManager[None]:
    """Charge a ledger for a table of so many rows before it is drawn inside.

    Parameters
    ----------
    ledger : Ledger or None
        Charged.
    design : DesignedNoise
        Says how often, and what.
    count : int
        How many rows.
    label : str or None
        For the ledger.
    """
    if ledger is not None:
        refuse_unsaid_rows(design.description, count)
    fingerprint = design.mechanism.fingerprint
    return paying(
        ledger, design.charge, fingerprint=fingerprint, label=label, releases=design.releases
    )


def _drawn_tree(
    design: DesignedNoise, table: Any, points: FloatArray, counts: Any, sampler: Sampler
) -> Published:
    """A hierarchy in linear time: integer noise, least squares, whole numbers."""
    layout, description = design.layout, design.description
    found = design.mechanism.release(counts, sampler=sampler)
    public = points[:, ~layout.is_private]
    private = layout.private
    estimates = by_column(layout, found[None, private], public)
    unrounded = dict(zip(layout.roles.private, estimates))
    numbers = unrounded
    if description.round_to is not None or description.nonnegative:
        numbers_of = whole(design.mechanism, found, nonnegative=description.nonnegative)
        rounded = by_column(layout, numbers_of[None, private], public)
        if description.round_to is None:
            rounded = rounded.astype(float)
        numbers = dict(zip(layout.roles.private, rounded))
    return shown(table, numbers, unrounded, public)


def refuse_unsaid_rows(description: TableDescription, count: int) -> None:
    """Refuse rows of which nobody said whether a ledger is charged once or for each.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    count : int
        How many rows there are.
    """
    if count > 1 and description.rows is None and description.row_mode == "separate":
        raise TableError(
            f"the table has {count:,} rows, and a ledger must know whom they are about: "
            "rows='separate' if nobody is in two rows (it is charged once), rows='composed' if the "
            "same people may be in all of them (it is charged for each row, and the noise is "
            "designed for that); nothing was charged"
        )


def refuse_other_count(design: DesignedNoise, count: int) -> None:
    """Refuse a table of another size, where the promise is about all rows.

    Parameters
    ----------
    design : DesignedNoise
        Knows for how many rows it was made.
    count : int
        How many there are.
    """
    if design.description.row_mode == "composed" and count != design.releases:
        raise TableError(
            f"the noise was designed for {design.releases:,} rows about the same people, but the "
            f"table has {count:,}: design it again"
        )
