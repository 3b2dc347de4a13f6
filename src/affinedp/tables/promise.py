"""What a release of a table promises, in words that say what a row is and what is public."""

from __future__ import annotations

from dataclasses import replace

from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import Guarantee, compose
from affinedp.tables.broken_totals import replaced_entries
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.neighbours import TableNeighbours
from affinedp.tables.refusals import listed

WHOLE = "; whole numbers"


def table_guarantee(
    description: TableDescription,
    layout: Layout,
    mechanism: Mechanism,
    releases: int,
    who: TableNeighbours,
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
    who : TableNeighbours
        What moves between neighbours.
    """
    one = mechanism.guarantee
    if mechanism.noise.whole and description.household * (description.at_most or 1) > 1:
        # several people in several cells are between the listed moves: their ε is, too, but a
        # curve on whole numbers need not be, and only randomised response covers all
        one = replace(one, curve=ThreeAtoms(one.sensitivity))
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
        neighbours=neighbour_words(description, layout, releases, who.words) + whole_words(one),
        basis=basis,
        worst_direction=one.worst_direction,
        names=one.names,
        output_names=one.output_names,
        warnings=(*one.warnings, *who.warnings, *_warnings(description, layout)),
    )


def charge_words(description: TableDescription, layout: Layout, move: str) -> str:
    """Return who counts as a neighbour in one data set: what a ledger writes down.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    layout : Layout
        Its entries.
    move : str
        What moves between neighbours.
    """
    if layout.row_names is not None:
        return neighbour_words(description, layout, 1, move)
    public = _public_words(description, layout)
    kept = f"; {public} the same in both and not protected" if public else ""
    return f"in a row about them, {move}{kept}"


def whole_words(guarantee: Guarantee) -> str:
    """Return what is said of neighbours where only whole numbers are covered.

    Parameters
    ----------
    guarantee : Guarantee
        Of the noise.
    """
    return WHOLE if guarantee.neighbours.endswith(WHOLE) else ""


def neighbour_words(description: TableDescription, layout: Layout, releases: int, move: str) -> str:
    """Return who counts as a neighbour.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    layout : Layout
        Its entries.
    releases : int
        How many rows may differ at once.
    move : str
        What moves between neighbours.
    """
    if layout.row_names is not None:
        text = f"tables that differ by {move}"
    elif releases > 1:
        text = f"tables that may differ in all {releases:,} rows, in each by {move}"
    else:
        text = f"each row is a data set of its own: tables that differ in one row, by {move}"
    public = _public_words(description, layout)
    return f"{text}; {public} the same in both and not protected" if public else text


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
