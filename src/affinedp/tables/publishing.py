"""Publish a table: check everything, charge, draw, and put the results into the table's shape."""

from __future__ import annotations

from typing import Any

from affinedp.arrays import FloatArray
from affinedp.budget.confirming import confirm
from affinedp.budget.ledger import Ledger
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.laws.sampler import Sampler, checked_sampler
from affinedp.tables.description import TableDescription
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.reading import read_points
from affinedp.tables.refusals import TableError
from affinedp.tables.table_rows import Published, TableRows, by_column, same_layout, shown
from affinedp.tables.tree_tables import tree_counts


def release_table(
    design: DesignedNoise,
    table: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    bound: float | None = None,
    sampler: Sampler = "bulk",
) -> Published:
    """Publish a table; see :meth:`TableRelease.release`."""
    checked_sampler(sampler)
    layout = same_layout(design, table)
    refuse_other_count(design, len(table))
    if isinstance(design.mechanism, TreeMechanism):
        points = read_points(design.description, layout, table, bound)
        return _release_tree(design, design.mechanism, table, points, ledger, label, sampler)
    rows = TableRows(design, bound, sampler)
    ready = rows.ready(table)
    entry = None if ledger is None else charge_table(design, label, ledger, len(table))
    published = rows.drawn(ready)
    confirm(ledger, entry)
    return published


def charge_table(design: DesignedNoise, label: str | None, ledger: Ledger, count: int) -> Any:
    """Charge a ledger for a table of so many rows, and return the entry.

    Parameters
    ----------
    design : DesignedNoise
        Says how often, and what.
    label : str or None
        For the ledger.
    ledger : Ledger
        Charged.
    count : int
        How many rows.
    """
    _refuse_unsaid_rows(design.description, count)
    return ledger.charge(
        design.charge,
        fingerprint=design.mechanism.fingerprint,
        label=label,
        releases=design.releases,
    )


def _release_tree(
    design: DesignedNoise,
    mechanism: TreeMechanism,
    table: Any,
    points: FloatArray,
    ledger: Ledger | None,
    label: str | None,
    sampler: Sampler,
) -> Published:
    """A hierarchy in linear time: integer noise, least squares, whole numbers."""
    layout, description = design.layout, design.description
    counts = tree_counts(layout, points)
    entry = None
    if ledger is not None:
        entry = ledger.charge(design.charge, fingerprint=mechanism.fingerprint, label=label)
    whole = description.round_to is not None or description.nonnegative
    found = mechanism.release(
        counts, whole=whole, nonnegative=description.nonnegative, sampler=sampler
    )
    confirm(ledger, entry)
    public = points[:, ~layout.is_private]
    private = layout.private
    estimates = by_column(layout, found.estimates[None, private], public)
    unrounded = dict(zip(layout.roles.private, estimates))
    numbers = unrounded
    if found.whole is not None:
        rounded = by_column(layout, found.whole[None, private], public)
        if description.round_to is None:
            rounded = rounded.astype(float)
        numbers = dict(zip(layout.roles.private, rounded))
    return shown(table, numbers, unrounded, public)


def _refuse_unsaid_rows(description: TableDescription, count: int) -> None:
    """A ledger is charged once or for each row; which of them must be said."""
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
