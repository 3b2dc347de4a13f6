"""Searches one after another, and their findings as equations in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.discovery.costs import Promise, cost_over_rows
from affinedp.discovery.equation import (
    DiscoveredEquation,
    Scope,
    kind_of,
    pattern_of,
)
from affinedp.discovery.fields import conserved_atoms, network_laws
from affinedp.errors import AffineDPError
from affinedp.exact.modular import Span
from affinedp.relations.chance import log10_chance
from affinedp.relations.columns import ExactTable
from affinedp.relations.exact import vector_of
from affinedp.relations.lags import (
    Order,
    is_counter,
    known_twice,
    lagged_terms,
    orders,
    stands_still,
)
from affinedp.relations.relation import Checked, Relation, Terms
from affinedp.relations.within import BLOCK, Search, note, search_within
from affinedp.relations.written import quoted, written_equation

FEWEST_ROWS_LAGGED = 8


def equation_of(
    found: Checked,
    chance: float,
    names: Sequence[str],
    columns: Sequence[str],
    row_names: Sequence[str],
    *,
    pattern: str,
    scope: Scope = "row",
    written: Sequence[str] | None = None,
    alone: int | None = None,
    after: str = "",
) -> DiscoveredEquation:
    """Return a relation as an equation in words.

    Parameters
    ----------
    found : Checked
        The relation and how rows obey it.
    chance : float
        log10 of its chance.
    names : sequence of str
        One per term.
    columns : sequence of str
        The columns it is about.
    row_names : sequence of str
        Names of the rows that miss it most, in the order of ``found.worst``.
    pattern : str
        What it is.
    scope : str
        What it ties.
    written : sequence of str, optional
        Names as they are to be written; quoted by default.
    alone : int, optional
        The term that stands on the left by itself.
    after : str
        What follows the equation, such as "for each state".
    """
    relation = found.relation
    kind = kind_of(found)
    shown = [quoted(name) for name in names] if written is None else written
    misses = tuple((name, float(miss)) for name, (_, miss) in zip(row_names, found.worst))
    return DiscoveredEquation(
        text=written_equation(relation, shown, alone) + after,
        coefficients={names[j]: relation.coefficients[j] for j in relation.support},
        offset=relation.offset,
        pattern=pattern,
        kind=kind,
        scope=scope,
        rows=found.rows,
        rows_that_hold=found.zero if kind == "exact" else max(found.zero, found.within),
        rows_exactly=found.zero,
        largest_miss=float(found.largest_miss),
        rounding=float(found.rounding),
        misses=misses if kind == "mostly" else (),
        log10_chance=chance,
        columns=tuple(columns),
    )


def within_rows(
    table: ExactTable, terms: Terms, search: Search, promise: Promise
) -> tuple[list[DiscoveredEquation], list[DiscoveredEquation]]:
    """Return the equations within a row that a search found, with their costs, and doubtful ones.

    Parameters
    ----------
    table : ExactTable
        The table.
    terms : Terms
        Its columns.
    search : Search
        What was found.
    promise : Promise
        Whose loss is told.
    """

    def said(found: Checked, chance: float) -> DiscoveredEquation:
        support = [terms.names[j] for j in found.relation.support]
        rows = [table.row_name(row) for row, _ in found.worst]
        pattern = pattern_of(found.relation)
        return equation_of(found, chance, terms.names, support, rows, pattern=pattern)

    certain = []
    for found, chance in search.found:
        one = said(found, chance)
        cost = promise.cost([(one.coefficients, one.offset)])
        as_if = "as if it were exact" if one.kind != "exact" else ""
        certain.append(replace(one, cost=cost.epsilon, cost_note=cost.note or as_if))
    return certain, [said(found, chance) for found, chance in search.doubtful]


def field_laws(
    terms: Terms,
    limit: float,
    known: Sequence[Relation],
    graph: Any,
    injections: Mapping[Any, str] | None,
    formulas: Mapping[str, str] | None,
) -> list[tuple[str, Checked, float]]:
    """Return independent laws of a field that hold, with names and log10 of their chance.

    Parameters
    ----------
    terms : Terms
        Columns.
    limit : float
        log10 of the chance beyond which a law is not told.
    known : sequence of Relation
        What need not be told again.
    graph, injections, formulas : optional
        As for :func:`affinedp.discover`.
    """
    named: list[tuple[str, Checked]] = []
    if graph is None and injections is not None:
        raise AffineDPError("injections are for the nodes of a graph: give graph too")
    if graph is not None:
        named += network_laws(terms, graph, injections)
    named += conserved_atoms(terms, formulas)
    choices = math.log10(max(4 * len(named), 1))
    span = Span(len(terms) + 1)
    for relation in known:
        span.add(vector_of(relation, len(terms)))
    laws = [(name, one, log10_chance(one, terms, choices=choices)) for name, one in named]
    return [
        law for law in laws if law[2] <= limit and span.add(vector_of(law[1].relation, len(terms)))
    ]


def between_times(
    table: ExactTable,
    terms: Terms,
    within: Search,
    known: Sequence[Relation],
    lag: int,
    by: Sequence[str] | None,
    order: np.ndarray[Any, np.dtype[np.intp]],
    rng: np.random.Generator,
    limit: float,
    promise: Promise,
    notes: list[str],
) -> list[DiscoveredEquation]:
    """Return the equations between a row and the one a lag earlier.

    Parameters
    ----------
    table : ExactTable
        The table.
    terms : Terms
        Its columns.
    within : Search
        What is known within rows.
    known : sequence of Relation
        What else is known within rows.
    lag : int
        How many rows lie between.
    by : sequence of str, optional
        Label columns that must agree.
    order : array of int
        The rows in the order of time.
    rng : Generator
        For the search.
    limit : float
        log10 of the chance beyond which an equation is not told.
    promise : Promise
        Whose loss is told.
    notes : list of str
        Where to say what was not looked at.
    """
    easy = {one.relation.support[-1] for one, _ in within.found if len(one.relation.support) < 3}
    kept = [j for j in range(len(terms)) if j not in easy]
    out: list[DiscoveredEquation] = []
    for way in orders(table, lag, by, order):
        if len(way.now) < FEWEST_ROWS_LAGGED:
            continue
        moving = [j for j in kept if not is_counter(terms.columns[j], way)]
        if not moving or 2 * len(moving) > BLOCK:
            if moving:
                note(notes, f"equations with earlier rows: not looked for in {len(moving)} columns")
            continue
        part = terms.subset(moving)
        place = {j: i for i, j in enumerate(moving)}
        inside = [
            Relation({place[j]: c for j, c in one.coefficients.items()}, one.offset)
            for one in [*known, *within.relations]
            if set(one.coefficients) <= set(place)
        ]
        both = lagged_terms(part, way, lag)
        found = search_within(both, rng, limit, known_twice(inside))
        for text in found.notes[:1]:
            if "may have been missed" not in text:
                note(notes, f"with earlier rows: {text}")
        for one, chance in found.found:
            if not one.exact and stands_still(one, both):
                continue
            said = _lagged(table, part, both, one, chance, way, lag, promise)
            if said is not None and all(said.text != other.text for other in out):
                out.append(said)
    return out


def _lagged(
    table: ExactTable,
    part: Terms,
    both: Terms,
    one: Checked,
    chance: float,
    way: Order,
    lag: int,
    promise: Promise,
) -> DiscoveredEquation | None:
    support = one.relation.support
    if len({j % 2 for j in support}) == 1:
        return None  # within one row after all: constants that only the first row breaks
    columns = list(dict.fromkeys(part.names[j // 2] for j in support))
    times = [(quoted(name), time) for name in part.names for time in ("(t)", f"(t-{lag})")]
    pattern, alone = _lag_pattern(one.relation)
    said = equation_of(
        one,
        chance,
        both.names,
        columns,
        [table.row_name(int(way.now[row])) for row, _ in one.worst],
        pattern=pattern,
        alone=alone,
        scope="earlier row",
        written=[name + time for name, time in times],
        after="" if way.words == "row by row" else f", {way.words}",
    )
    named = {
        f"{part.names[j // 2]}@{j % 2}": value for j, value in one.relation.coefficients.items()
    }
    cost = cost_over_rows(promise, (named, one.relation.offset), lag, way.longest)
    return replace(said, cost=cost.epsilon, cost_note=cost.note)


def _lag_pattern(relation: Relation) -> tuple[str, int | None]:
    """What a relation between two times is, and which term stands by itself on the left."""
    now = {j // 2 for j in relation.support if j % 2 == 0}
    before = {j // 2 for j in relation.support if j % 2 == 1}
    values = relation.coefficients
    if before <= now and len(before) == 1:
        level = next(iter(before))
        if values[2 * level] == -values[2 * level + 1]:
            if len(now) == 2:
                return "change", 2 * next(iter(now - before))
            return "carried forward" if len(now) > 2 else "steady change", 2 * level
    if len(relation.support) == 2:
        return "copy of an earlier row", None
    return "between rows in time", None


def changes_of(found: Sequence[DiscoveredEquation]) -> dict[str, str]:
    """Return the columns that are changes of others since the row before, as table files say it.

    Parameters
    ----------
    found : sequence of DiscoveredEquation
        Equations between times.
    """
    out: dict[str, str] = {}
    for one in found:
        for column, of in itertools.permutations(one.columns, 2):
            level = quoted(of)
            # as it stands: not within groups, which a table file has no word for
            if one.text == f"{quoted(column)}(t) = {level}(t) - {level}(t-1)":
                out.setdefault(column, of)
    return out


def independent_columns(search: Search, terms: Terms) -> frozenset[str]:
    """Return columns that none of the relations makes of others.

    Parameters
    ----------
    search : Search
        What is known within rows.
    terms : Terms
        The columns.
    """
    dependent: set[int] = set()
    for one, _ in search.found:
        fresh = [j for j in one.relation.support if j not in dependent]
        if fresh:
            dependent.add(fresh[-1])
    return frozenset(name for j, name in enumerate(terms.names) if j not in dependent)


def zero_offset(relation: Relation, count: int) -> Relation:
    """Return a relation with its constant as a multiple of the number of rows.

    Parameters
    ----------
    relation : Relation
        Within a row.
    count : int
        The term that counts rows.
    """
    values = dict(relation.coefficients)
    if relation.offset:
        values[count] = relation.offset
    return Relation(values, Fraction(0))
