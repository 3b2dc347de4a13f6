"""Who is a neighbour in a table: one person, one who is counted elsewhere, swaps, circuits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import LinearEquations
from affinedp.errors import IdentifiableEntriesError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.people import unit_of
from affinedp.tables.description import TableDescription, number
from affinedp.tables.layout import Layout
from affinedp.tables.people import PeopleMoves, people_moves
from affinedp.tables.refusals import TableError, listed
from affinedp.tables.relations import column_relations

LARGER = "exchanges of more people than named, which keep what is public too, are not covered"
MOST_SWAPS = 200_000
MOST_NUMBERS = 1e8


def manifold_of(layout: Layout) -> AffineManifold:
    """Return what is secret: the private entries, under equations in which the rest is known.

    Parameters
    ----------
    layout : Layout
        Entries and equations.
    """
    place = {int(entry): i for i, entry in enumerate(layout.private)}
    rows: list[Mapping[int, Fraction]] = []
    for relation in layout.relations:
        row = {place[j]: value for j, value in relation.coefficients.items() if j in place}
        if row:
            rows.append(row)
    # constants and public entries only move the manifold, which changes no neighbour
    equations = LinearEquations(layout.names, tuple(rows), (Fraction(0),) * len(rows))
    try:
        return AffineManifold.from_equations(equations)
    except IdentifiableEntriesError as error:
        raise TableError(
            f"{listed(error.entries)} can be computed from the equations and what is public, so "
            "no noise can protect it: declare it public too, or drop it",
            "",
            error.entries[0],
        ) from None


def row_manifold(description: TableDescription, columns: Sequence[str]) -> AffineManifold:
    """Return the equations between the columns of a row, whatever else ties rows.

    Parameters
    ----------
    description : TableDescription
        What was said about the table.
    columns : sequence of str
        The columns of numbers.
    """
    relations = tuple(column_relations(description, columns))
    equations = LinearEquations(
        tuple(columns),
        tuple(relation.coefficients for relation in relations),
        tuple(relation.offset for relation in relations),
    )
    return AffineManifold.from_equations(equations, public_entries="allow")


@dataclass(frozen=True)
class TableNeighbours:
    """Whom the promise about one data set is about.

    Attributes
    ----------
    adjacency : Adjacency
        The moves.
    words : str
        The same as a person says it.
    warnings : tuple of str
        What is not covered.
    """

    adjacency: Adjacency
    words: str
    warnings: tuple[str, ...] = ()


def neighbours_of(
    description: TableDescription, layout: Layout, manifold: AffineManifold
) -> TableNeighbours:
    """Return the neighbours that were asked for.

    Parameters
    ----------
    description : TableDescription
        Says which.
    layout, manifold : Layout, AffineManifold
        The private entries.
    """
    if isinstance(description.mu, Mapping):
        mu = layout.by_column(description.mu, math.nan, "mu")
        size = "its column's μ"
    else:
        mu = np.full(manifold.n, number(description.mu, "mu"))
        size = f"μ = {float(description.mu):g}"
    if description.neighbours == "circuits":
        words = (
            f"a move of one free number of any basis by at most {size}, which the others follow "
            "by the equations (Definition 4)"
        )
        return TableNeighbours(CircuitAdjacency(manifold, mu), words)
    reach = mu * description.household * (description.at_most or 1)
    if description.neighbours == "swaps":
        words = f"{_who(description, 'two people')} who exchange places, which keeps public sums"
        unit = unit_of("swaps", description.household)
        swaps = DirectionAdjacency(manifold, _swap_directions(layout, reach), unit=unit)
        return TableNeighbours(swaps, words + _counted(description), (LARGER,))
    replace = description.neighbours == "replace"
    moves = None if description.cells is not None else people_moves(layout, replace=replace)
    if moves is None:
        if replace:
            raise TableError(
                "neighbours='replace' needs a table of counts whose equations are totals, and said "
                "to be: give them as totals, or use neighbours='circuits'"
            )
        cells = _basic_cells(description, layout, manifold)
        words = f"{_who(description, 'one person')} more or less, in one number that is no total"
        words += f"{_counted(description)}; the totals follow"
        unit = unit_of("person", description.household)
        return TableNeighbours(_cell_adjacency(manifold, cells, reach, unit), words)
    unit = unit_of(_kind(moves), description.household)
    parts = [
        DirectionAdjacency(manifold, columns, unit=unit)
        for columns in moves.directions(layout, reach)
    ]
    if not parts:
        raise TableError("no person moves anything: μ is 0 everywhere")
    if replace and description.at_most is not None and len(parts) > 1:
        raise TableError(
            "a person in one cell of the table may be counted in another of its parts that no "
            "equation ties, and totals that are published without noise would show it: leave out "
            "at_most (a person is then counted in every part), or use neighbours='person'"
        )
    words = _people_words(description, moves, len(parts))
    warnings = (LARGER,) if moves.swaps or (moves.replaces and not replace) else ()
    if len(parts) == 1 or description.at_most is not None:
        columns = np.hstack([part.span() for part in parts])
        return TableNeighbours(DirectionAdjacency(manifold, columns, unit=unit), words, warnings)
    return TableNeighbours(JointAdjacency(parts, unit=unit), words, warnings)


def _kind(moves: PeopleMoves) -> str:
    """What a ledger may add up: the same kinds of moves."""
    if moves.swaps:
        return "public" if moves.joins or moves.replaces else "swaps"
    if moves.replaces:
        return "public" if moves.joins else "replace"
    return "person"


def _who(description: TableDescription, one: str) -> str:
    if description.household == 1:
        return one
    return f"a household of up to {description.household} people"


def _counted(description: TableDescription) -> str:
    """How much of a person is counted, where it is not just once."""
    if isinstance(description.mu, Mapping):
        most = "its column's μ"
    elif float(description.mu) == 1:
        return ""
    else:
        most = f"μ = {float(description.mu):g}"
    if description.neighbours == "replace":
        return f", with the same amount (at most {most}) in both; the sum of all amounts is public"
    return f", who counts for at most {most}"


def _people_words(description: TableDescription, moves: PeopleMoves, tables: int) -> str:
    where = "in one cell of the table"
    if description.at_most is not None:
        plural = "s" if description.at_most > 1 else ""
        where = f"in at most {description.at_most} cell{plural} of the table"
    elif tables > 1:
        where = f"in one cell of each of its {tables} parts that no equation ties"
    who = _who(description, "one person")
    if description.household > 1:
        where = f"each {where}"
    kinds = []
    if moves.joins:
        kinds.append(f"{who} more or less, {where}")
    if moves.replaces:
        kinds.append(f"{who} counted in another cell")
    if moves.swaps:
        kinds.append(f"two people who exchange places ({who} each)" if description.household > 1
                     else "two people who exchange places")  # fmt: skip
    return " or ".join(kinds) + _counted(description)


def _cell_adjacency(
    manifold: AffineManifold, cells: list[int], mu: FloatArray, unit: str
) -> Adjacency:
    """One cell moves and the rest follows: exactly, where it follows by whole numbers."""
    free = FreeSetAdjacency(manifold, [cells], mu, unit=unit)
    moves = FreeSetAdjacency(manifold, [cells]).directions()
    whole = np.rint(moves)
    equations: Any = manifold.D
    # the cells determine the rest, so whole numbers that fit the equations are the moves
    fits = bool(np.all(whole[sorted(cells)] == np.eye(len(cells)))) and not (
        np.abs(moves - whole).max() > 1e-6
        or (equations != np.rint(equations)).sum()
        or np.abs(equations @ whole).max(initial=0.0)
    )
    if not fits:
        return free
    return DirectionAdjacency(manifold, whole * mu[sorted(cells)], unit=unit)


def _basic_cells(
    description: TableDescription, layout: Layout, manifold: AffineManifold
) -> list[int]:
    """Private entries that determine all others: what is no total, or the named columns."""
    width = len(layout.columns)
    chosen = description.cells
    private = frozenset(layout.private.tolist())
    unclear = [one.words for one in layout.relations if one.ambiguous(private)]
    if chosen is None and unclear:
        raise TableError(
            "neighbours='person' needs to know in which numbers a person is counted, and the "
            f"equation {unclear[0]} does not say it: each of its numbers may follow from the "
            "others. Give sums as totals, name the columns in which a person is counted in cells, "
            "or use neighbours='circuits', which covers every reading"
        )
    for name in chosen or ():
        if name not in layout.roles.private:
            raise TableError(f"cells names {name!r}, which is no private column", "", name)
    found = [
        place
        for place, entry in enumerate(layout.private.tolist())
        if (chosen is None or layout.columns[entry % width] in chosen)
        and (chosen is not None or entry not in layout.totals)
    ]
    if len(found) != manifold.dim:
        names = [layout.names[place] for place in found]
        raise TableError(
            "neighbours='person' needs to know in which numbers a person is counted: those that "
            f"are no totals ({listed(names) if names else 'none'}) do not determine the table, or "
            "are determined by each other. Name such columns in cells, or use "
            "neighbours='circuits'"
        )
    return found


def _swap_directions(layout: Layout, mu: FloatArray) -> FloatArray:
    """Moves of one person from here to there and another one back, all public sums kept."""
    private = {int(entry): place for place, entry in enumerate(layout.private)}
    sums_of: dict[int, list[int]] = {}
    for i, cells in enumerate(layout.sums):
        for cell in cells:
            sums_of.setdefault(cell, []).append(i)
    cell_at: dict[tuple[int, int], int] = {}
    for cell, sums in sums_of.items():
        if cell in private:
            if len(sums) != 2 or (sums[0], sums[1]) in cell_at:
                raise TableError(
                    "neighbours='swaps' needs a cross-tabulation with two public margins, and one "
                    "cell for each pair of categories. For more attributes: "
                    "MarginRelease(attributes=…, neighbours='swaps')"
                )
            cell_at[sums[0], sums[1]] = private[cell]
    columns: dict[int, dict[int, int]] = {}
    for (first, second), place in cell_at.items():
        columns.setdefault(first, {})[second] = place
    moves = []
    for one, other in itertools.combinations(columns, 2):
        shared = [second for second in columns[one] if second in columns[other]]
        for a, b in itertools.combinations(shared, 2):
            moves.append((columns[one][a], columns[one][b], columns[other][a], columns[other][b]))
            if len(moves) > MOST_SWAPS or len(moves) * float(len(private)) > MOST_NUMBERS:
                raise TableError(
                    "the table is too large for a list of swaps: MarginRelease(attributes=…, "
                    "margins=2, neighbours='swaps') needs none"
                )
    if not moves:
        raise TableError(
            "no two people can be exchanged: the public margins leave no freedom. Declare fewer of "
            "them public, or use neighbours='person'"
        )
    places = np.array(moves)
    directions = np.zeros((len(private), len(moves)))
    reach = mu[places].max(axis=1)
    for corner, sign in enumerate((1.0, -1.0, -1.0, 1.0)):
        directions[places[:, corner], np.arange(len(moves))] = sign * reach
    return directions
