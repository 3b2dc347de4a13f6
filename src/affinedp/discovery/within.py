"""Relations between the numbers of one row: constants, copies, totals, balances, conversions.

Large tables are looked at in blocks of neighbouring columns, tables with gaps in views whose
rows are complete; what was not looked at is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.chance import log10_chance
from affinedp.discovery.exact_relations import (
    MARGIN,
    exact_relations,
    lift,
    residue_matrix,
    span_of,
    vector_of,
)
from affinedp.discovery.relation import MOST_MISSES, Found, Relation, Terms, check, inside
from affinedp.discovery.rounded_relations import enough_rows, nearly_relations
from affinedp.errors import counted
from affinedp.exact.modular import PRIME, inverses, null_space

# Columns that are looked at together.
BLOCK = 600
# Where there are more, in blocks of this size that overlap by half.
SMALL_BLOCK = 200
# Neighbours that are looked at by themselves for relations which a few per cent of rows break.
WINDOW = 24
# With fewer rows than columns, all short relations are searched only up to this many columns.
FEW_ROWS_TERMS = 100
MOST_VIEWS = 12
PAIR_SAMPLE = 64
# In so many rows a column with one value is told as a fact; shuffling says nothing about it.
ROWS_OF_A_CONSTANT = 20
# Nobody would recognise a doubtful equation with more digits.
DOUBTFUL_DIGITS = 12.0


@dataclass(eq=False)
class SearchResult:
    """Relations that were found, those that may be chance, and what was not looked at."""

    found: list[Found] = field(default_factory=list)
    doubtful: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def relations(self) -> list[Relation]:
        """The relations that were found."""
        return [one.relation for one in self.found]

    def note(self, text: str) -> None:
        """Say once what was not looked at."""
        if text not in self.notes:
            self.notes.append(text)


def search_within(
    terms: Terms, rng: np.random.Generator, limit: float, known: Sequence[Relation] = ()
) -> SearchResult:
    """Return the relations between terms; those likelier than ``10**limit`` are doubtful.

    What follows from known relations is not found again.
    """
    out = SearchResult()
    size = len(terms)
    span = span_of(known, size)
    candidates: list[Found] = []
    left = list(range(size))
    if terms.constant:
        easy = [*_constants(terms), *_pairs(terms)]
        candidates = [one for one in easy if span.rest(vector_of(one.relation, size)).any()]
        done = {one.relation.support[-1] for one in candidates}
        left = [j for j in left if j not in done]

    def look(chosen: list[int], rows: NDArray[np.intp], thorough: bool) -> None:
        here = inside([*known, *(one.relation for one in candidates)], chosen)
        part = terms.subset(chosen)
        if thorough:
            found = _search_block(part, rows, rng, here, out)
        else:
            exact = exact_relations(part, rows, rng, here)
            found = [*exact.every, *exact.mostly]
        place = dict(enumerate(chosen))
        candidates.extend(replace(one, relation=one.relation.moved(place)) for one in found)

    for columns, rows in _views(terms, left, out):
        for block in _blocks(columns, len(rows), out):
            look(block, rows, thorough=True)
        if 2 * WINDOW < len(columns) <= BLOCK:
            # relations between neighbours that more rows break: few columns need few rows
            for start in range(0, len(columns) - WINDOW // 2, WINDOW // 2):
                look(columns[start : start + WINDOW], rows, thorough=False)
    # exact ones first, then those that fewest rows break, then the shortest
    candidates.sort(key=lambda one: (not one.exact, one.missed, one.relation.complexity))
    for one in candidates:
        if not span.add(vector_of(one.relation, size)):
            continue
        chance = log10_chance(one, terms)
        fixed = len(one.relation.coefficients) == 1 and one.rows >= ROWS_OF_A_CONSTANT
        if chance <= limit or fixed:
            out.found.append(replace(one, log10_chance=chance))
        elif one.relation.digits <= DOUBTFUL_DIGITS:
            out.doubtful.append(replace(one, log10_chance=chance))
    return out


def _search_block(
    terms: Terms,
    rows: NDArray[np.intp],
    rng: np.random.Generator,
    known: list[Relation],
    out: SearchResult,
) -> list[Found]:
    """Exact relations, then rounded ones, between some columns."""
    exact = exact_relations(terms, rows, rng, known)
    found = [*exact.every, *exact.mostly]
    between = f"between the {len(terms)} columns from {terms.names[0]} to {terms.names[-1]}"
    if exact.seen and terms.constant:
        seen = min(exact.seen, MOST_MISSES)
        out.note(f"equations that more than {seen:.1%} of the rows break may have been missed")
    if exact.unread:
        out.note(
            f"{_more(exact.unread)} {between} hold, with coefficients too long to be read",
        )
    needed = enough_rows(len(terms))
    if len(rows) < needed:
        out.note(
            f"rounded relations: not looked for, {len(rows)} complete rows are too few for "
            f"{len(terms)} columns ({needed} are needed)",
        )
        return found
    told = [*known, *(one.relation for one in found)]
    nearly, unread = nearly_relations(terms, rows, rng, told)
    if unread > exact.unread:
        out.note(
            f"{_more(unread)} {between} may hold up to rounding, with coefficients that are not "
            "simple",
        )
    return [*found, *nearly]


def _more(count: int) -> str:
    return counted(count, "more equation")


# ---------------------------------------------------------------------- what is easy to see


def _constants(terms: Terms) -> Iterator[Found]:
    """Columns with one value."""
    for j, column in enumerate(terms.columns):
        there = np.flatnonzero(~column.missing)
        first = column.source[there[0]]
        if np.all(column.source[there] == first):
            value = int(column.whole_at(there[:1])[0]) * column.unit
            yield check(Relation({j: Fraction(1)}, -value), terms)


def _pairs(terms: Terms) -> Iterator[Found]:
    """Columns that are copies of others, or others in another unit."""
    kinds: dict[bytes, list[int]] = {}
    for j, column in enumerate(terms.columns):
        kinds.setdefault(np.packbits(column.missing).tobytes(), []).append(j)
    for group in kinds.values():
        there = np.flatnonzero(~terms.columns[group[0]].missing)
        if len(there) < 3 or len(group) < 2:
            continue
        sample = there[np.unique(np.linspace(0, len(there) - 1, PAIR_SAMPLE).astype(int))]
        part = terms.subset(group)
        values = residue_matrix(part, sample)[:, :-1]
        moved = values[1:] - values[0]
        lead = moved[(moved != 0).argmax(axis=0), np.arange(len(group))]
        keys = moved * inverses(lead % PRIME) % PRIME
        first: dict[bytes, int] = {}
        for i in np.flatnonzero(lead):
            other = first.setdefault(keys[:, i].tobytes(), int(i))
            if other != i:
                yield from _pair(terms, group[other], group[int(i)], sample)


def _pair(terms: Terms, j: int, k: int, sample: NDArray[np.intp]) -> Iterator[Found]:
    """The relation between two columns that move alike, if all rows obey it."""
    both = terms.subset([j, k])
    space = null_space(residue_matrix(both, sample))
    if len(space) != 1:
        return
    relation = lift(space[0], both, sample)
    if relation is None or len(relation.coefficients) != 2:
        return
    values = relation.coefficients
    found = check(Relation({j: values[0], k: values[1]}, relation.offset), terms)
    if found.exact:
        yield found


# ---------------------------------------------------------------------- which rows and columns


def _views(
    terms: Terms, columns: list[int], out: SearchResult
) -> Iterator[tuple[list[int], NDArray[np.intp]]]:
    """Sets of columns with enough rows in which none is missing; every column is in one."""
    missing = np.stack([terms.columns[j].missing for j in columns], axis=1) if columns else None
    if missing is None:
        return
    waiting = set(range(len(columns)))
    counts = missing.sum(axis=0)
    for _ in range(MOST_VIEWS):
        if not waiting:
            return
        # the column with most gaps among those waiting comes first, unless nothing is missing
        seed = min(waiting, key=lambda i: (counts[i], i))
        complete = ~missing[:, seed]
        chosen = [seed]
        for i in sorted(range(len(columns)), key=lambda i: (i not in waiting, counts[i], i)):
            if i == seed:
                continue
            both = complete & ~missing[:, i]
            enough = max(0.5 * complete.sum(), len(chosen) + 2 + MARGIN)
            if both.sum() >= enough or both.sum() == complete.sum():
                complete = both
                chosen.append(i)
        waiting -= set(chosen)
        if len(chosen) > 1:
            yield [columns[i] for i in sorted(chosen)], np.flatnonzero(complete)
    if waiting:
        names = ", ".join(terms.names[columns[i]] for i in sorted(waiting)[:5])
        out.note(f"{len(waiting)} columns with many gaps were not looked at: {names}, …")


def _blocks(columns: list[int], rows: int, out: SearchResult) -> Iterator[list[int]]:
    """All columns at once, or neighbouring ones where there are too many, or too few rows."""
    room = rows - 1 - MARGIN
    if len(columns) <= min(BLOCK, max(room, 0)):
        yield columns
        return
    size = min(SMALL_BLOCK, max(room, 0)) if len(columns) > BLOCK else max(room, 0)
    if size < len(columns):
        if rows < len(columns) + 1 + MARGIN:
            out.note(
                f"{rows} complete rows for {len(columns)} columns: chance cannot be told from law "
                f"for equations between many columns ({len(columns) + 1 + MARGIN} rows are needed)",
            )
        if size >= 4:
            out.note(
                f"{len(columns)} columns were looked at in blocks of {size} neighbours: equations "
                "between columns that stand further apart are not found, unless between two",
            )
    if size >= 4:
        step = max(1, size // 2)
        starts = range(0, max(len(columns) - size, 0) + step, step)
        for start in starts:
            yield columns[min(start, max(len(columns) - size, 0)) :][:size]
    if rows <= len(columns) + MARGIN and len(columns) <= FEW_ROWS_TERMS:
        yield columns
