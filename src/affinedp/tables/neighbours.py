"""Who is a neighbour in a table: one person, one who is counted elsewhere, swaps, circuits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import LinearEquations
from affinedp.errors import IdentifiableEntriesError, counted
from affinedp.exact.numbers import meaning
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.people import unit_of
from affinedp.strategies.base import rounded_up
from affinedp.tables.describe import TableDescription, amounts_of, number
from affinedp.tables.layout import Layout
from affinedp.tables.people import PeopleMoves, people_moves, value_moves
from affinedp.tables.refusals import TableError, listed
from affinedp.tables.relations import column_relations

LARGER = "exchanges of more people than named, which keep what is public too, are not covered"
KINDS = {"joins": "person", "replaces": "replace", "swaps": "swaps"}


def manifold_of(layout: Layout) -> AffineManifold:
    """Return what is secret: the private entries, under equations in which the rest is known."""
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
    """Return the equations between the columns of a row, whatever else ties rows."""
    relations = tuple(column_relations(description, columns))
    equations = LinearEquations(
        tuple(columns),
        tuple(relation.coefficients for relation in relations),
        tuple(relation.offset for relation in relations),
    )
    return AffineManifold.from_equations(equations, public_entries="allow")


@dataclass(frozen=True)
class TableNeighbours:
    """Whom the promise about one data set is about."""

    adjacency: Adjacency
    words: str
    warnings: tuple[str, ...] = ()


def neighbours_of(
    description: TableDescription, layout: Layout, manifold: AffineManifold
) -> TableNeighbours:
    """Return the neighbours that were asked for."""
    if description.has_values:
        return _row_neighbours(description, layout, manifold)
    if isinstance(description.mu, Mapping):
        mu = layout.by_column(description.mu, math.nan, "mu")
        size = "its column's μ"
    else:
        mu = np.full(manifold.n, number(description.mu, "mu"))
        size = f"μ = {float(description.mu):g}"
    if description.adjacency == "circuits":
        words = (
            f"a move of one free number of any basis by at most {size}, which the others follow "
            "by the equations (Definition 4)"
        )
        return TableNeighbours(CircuitAdjacency(manifold, mu), words)
    people = description.household * (description.at_most or 1)
    reach = np.array([rounded_up(meaning(size) * people) for size in mu.tolist()])
    replace = description.adjacency == "replace"
    moves = None
    if description.cells is None:
        moves = people_moves(layout, description.adjacency)
    if moves is None:
        if description.adjacency != "person":
            raise TableError(
                f"adjacency={description.adjacency!r} needs a table of counts whose equations "
                "are totals, and said to be: give them as totals, or use adjacency='circuits'"
            )
        cells = _basic_cells(description, layout, manifold)
        words = f"{_who(description, 'one person')} more or less, in one number that is no total"
        words += f"{_counted(description)}; the totals follow"
        unit = unit_of("person", description.household)
        found = _cell_adjacency(manifold, cells, reach, unit)
        if description.changes:
            found = _with_first_changes(description, layout, manifold, found)
            words += ", and so do changes, those of the first row with or without its levels"
        return TableNeighbours(found, words)
    unit = unit_of(_kind(moves.kinds), description.household)
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
            "at_most (a person is then counted in every part), or use adjacency='person'"
        )
    words = _people_words(description, moves, len(parts))
    exchanges = "swaps" in moves.kinds or ("replaces" in moves.kinds and not replace)
    warnings = (LARGER,) if exchanges else ()
    if len(parts) == 1 or description.at_most is not None:
        columns = np.hstack([part.span() for part in parts])
        return TableNeighbours(DirectionAdjacency(manifold, columns, unit=unit), words, warnings)
    return TableNeighbours(JointAdjacency(parts, unit=unit), words, warnings)


def _row_neighbours(
    description: TableDescription, layout: Layout, manifold: AffineManifold
) -> TableNeighbours:
    """One person has one row, or at most so many, with a value between bounds in every column."""
    rows, mu = description.at_most or 1, description.mu
    assert isinstance(mu, Mapping)
    replace = description.adjacency == "replace"
    moves = value_moves(layout, mu, rows * description.household, replace)
    if not moves.size:
        raise TableError("no person moves anything: all bounds are 0")
    who = _who(description, "one person")
    what = "with other labels and values" if replace else "more or less"
    own = "with one row" if rows == 1 else f"with at most {rows} rows"
    each = "each " if description.household > 1 else ""
    amounts = " and ".join(f"{name!r} {_between(size)}" for name, size in mu.items())
    words = f"{who} {what}, {each}{own}, which counts in one cell of every column ({amounts})"
    unit = unit_of(description.adjacency, description.household)
    return TableNeighbours(DirectionAdjacency(manifold, moves, unit=unit), words)


def _between(size: Any) -> str:
    low, high = (f"{float(end):,.10g}" for end in amounts_of(size))
    return f"by {high}" if low == high else f"between {low} and {high}"


def _kind(kinds: frozenset[str]) -> str:
    """What a ledger may add up: the same kinds of moves."""
    own = [KINDS[kind] for kind in kinds if kind in KINDS]
    return own[0] if len(own) == 1 else "public"


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
    if description.adjacency == "replace":
        return f", with the same amount (at most {most}) in both; the sum of all amounts is public"
    return f", who counts for at most {most}"


def _people_words(description: TableDescription, moves: PeopleMoves, tables: int) -> str:
    where = "in one cell of the table"
    if description.at_most is not None:
        where = f"in at most {counted(description.at_most, 'cell')} of the table"
    elif tables > 1:
        where = f"in one cell of each of its {tables} parts that no equation ties"
    who = _who(description, "one person")
    if description.household > 1:
        where = f"each {where}"
    kinds = []
    if "joins" in moves.kinds:
        kinds.append(f"{who} more or less, {where}")
    if "replaces" in moves.kinds:
        kinds.append(f"{who} counted in another cell")
    if "swaps" in moves.kinds:
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


def _with_first_changes(
    description: TableDescription, layout: Layout, manifold: AffineManifold, cells: Adjacency
) -> Adjacency:
    """The same and more: a change of the first row is no cell, it follows its level.

    The row before the table is not in it, so no equation says so.  Whoever is counted in the first
    row moves the change since then too; whoever was counted before it moves the change alone.
    """
    place = {int(entry): i for i, entry in enumerate(layout.private)}
    columns = {name: place.get(i) for i, name in enumerate(layout.columns)}
    pairs = ((columns[c], columns[x]) for c, x in (description.changes or {}).items())
    tied = [(c, x) for c, x in pairs if c is not None and x is not None]
    moves = cells.directions()
    alone = {}
    for change, _ in tied:
        own = [v for v in moves.T if v[change] and not any(v[level] for _, level in tied)]
        if own:
            alone[change] = own[0] / own[0][change]
    more = []
    for v in moves.T:
        follows = [v[level] * alone[change] for change, level in tied if change in alone]
        if np.any(follows):
            more.append(v + np.sum(follows, axis=0))
    if not more:
        return cells
    return DirectionAdjacency(manifold, np.column_stack([moves, *more]), unit=cells.unit)


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
            "adjacency='person' needs to know in which numbers a person is counted, and the "
            f"equation {unclear[0]} does not say it: each of its numbers may follow from the "
            "others. Give sums as totals, name the columns in which a person is counted in cells, "
            "or use adjacency='circuits', which covers every reading"
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
            "adjacency='person' needs to know in which numbers a person is counted: those that "
            f"are no totals ({listed(names) if names else 'none'}) do not determine the table, or "
            "are determined by each other. Name such columns in cells, or use "
            "adjacency='circuits'"
        )
    return found
