"""What a release of a table promises, in words that say what a row is and what is public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from affinedp.mechanism import Mechanism
from affinedp.promise.guarantee import Guarantee, compose
from affinedp.tables.broken_totals import replaced_entries
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import listed


def table_guarantee(
    description: TableDescription, layout: Layout, mechanism: Mechanism, releases: int
) -> Guarantee:
    """Return the guarantee of one release of the whole table.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    layout : Layout
        Its entries.
    mechanism : Mechanism
        The noise on one data set.
    releases : int
        How many data sets neighbours may differ in.
    """
    one = mechanism.guarantee
    whole = compose([one] * releases) if releases > 1 else one
    basis = one.basis
    if releases > 1:
        basis += f", composed over {releases:,} rows with noise of their own"
    if description.round_to is not None:
        basis += f"; multiples of {description.round_to:g} are computed from what is published"
    # every row may move by its own worst move at once, so the composition is as exact as one row
    return replace(
        whole,
        exact=one.exact,
        neighbours=neighbour_words(description, layout, releases),
        basis=basis,
        worst_direction=one.worst_direction,
        names=one.names,
        output_names=one.output_names,
        warnings=(*one.warnings, *_warnings(description, layout)),
    )


def charge_words(description: TableDescription, layout: Layout) -> str:
    """Return who counts as a neighbour in one data set: what a ledger writes down.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    layout : Layout
        Its entries.
    """
    if layout.row_names is not None:
        return neighbour_words(description, layout, 1)
    public = _public_words(description, layout)
    kept = f"; {public} the same in both and not protected" if public else ""
    return f"in a row about them, {_move_words(description)}{kept}"


def neighbour_words(description: TableDescription, layout: Layout, releases: int) -> str:
    """Return who counts as a neighbour.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    layout : Layout
        Its entries.
    releases : int
        How many rows may differ at once.
    """
    move = _move_words(description)
    if layout.row_names is not None:
        text = f"the table is one data set, and {move}"
    elif releases > 1:
        text = f"tables that may differ in all {releases:,} rows, where in each row {move}"
    else:
        text = f"each row is a data set of its own: tables that differ in one row, where {move}"
    public = _public_words(description, layout)
    return f"{text}; {public} the same in both and not protected" if public else text


def _move_words(description: TableDescription) -> str:
    sizes = description.mu
    size = "its column's μ" if isinstance(sizes, Mapping) else f"μ = {float(sizes):g}"
    if description.neighbours == "cells":
        return f"one cell that is no total moves by at most {size} and the totals follow"
    if description.neighbours == "swaps":
        return (
            f"an amount of at most {size} changes places between two rows and two columns, which "
            "keeps every public sum"
        )
    return (
        f"one free number of any basis moves by at most {size} and the others follow the equations "
        "(Definition 4)"
    )


def _public_words(description: TableDescription, layout: Layout) -> str:
    parts = []
    if layout.roles.known:
        parts.append(f"public columns ({listed(layout.roles.known)})")
    if description.public_rows:
        parts.append(f"public rows ({listed(description.public_rows)})")
    if layout.sums:
        parts.append(f"{len(layout.sums):,} public sums")
    return f"{' and '.join(parts)} are" if parts else ""


def _warnings(description: TableDescription, layout: Layout) -> tuple[str, ...]:
    replaced = replaced_entries(description, layout)
    if not replaced:
        return ()
    width = len(layout.columns)
    if description.adjust == "totals" or description.unknown == "totals":
        names = "the totals"
    else:
        names = listed(dict.fromkeys(layout.columns[entry % width] for entry in replaced))
    if description.adjust:
        return (
            f"the promise is about the table after {names} were changed to fit the equations, by "
            f"at most {description.within:g}: neighbours are tables that differ after that",
        )
    return (f"recorded numbers of {names} are not read: the equations say what they are",)
