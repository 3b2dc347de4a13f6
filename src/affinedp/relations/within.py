"""Relations between the numbers of one row: constants, copies, totals, balances, conversions.

Large tables are looked at in blocks of neighbouring columns, tables with gaps in views whose
rows are complete; what was not looked at is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.exact.modular import PRIME, Span, inverses, null_space
from affinedp.relations.chance import log10_chance
from affinedp.relations.exact import (
    MARGIN,
    MOST_MISSES,
    exact_relations,
    lift,
    residue_matrix,
    vector_of,
)
from affinedp.relations.nearly import enough_rows, nearly_relations
from affinedp.relations.relation import Checked, Relation, Terms, check

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
class Search:
    """What was found between terms, and what was not looked at.

    Attributes
    ----------
    found : list of (Checked, float)
        Relations, each with log10 of its chance.
    doubtful : list of (Checked, float)
        Relations that hold and may be chance.
    notes : list of str
        What was not looked at, and why.
    """

    found: list[tuple[Checked, float]] = field(default_factory=list)
    doubtful: list[tuple[Checked, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def relations(self) -> list[Relation]:
        """The relations that were found."""
        return [one.relation for one, _ in self.found]


def search_within(
    terms: Terms,
    rng: np.random.Generator,
    limit: float,
    known: Sequence[Relation] = (),
    tried: int | None = None,
) -> Search:
    """Return the relations between terms.

    Parameters
    ----------
    terms : Terms
        Columns, or columns of two times.
    rng : Generator
        Chooses rows and columns.
    limit : float
        log10 of the chance beyond which a relation is doubtful.
    known : sequence of Relation
        What need not be found again.
    tried : int, optional
        How many terms there were to choose from, for the chance.

    Examples
    --------
    >>> from affinedp.relations.columns import exact_table
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(0, 100, (2, 40))
    >>> table = exact_table({"a": a, "b": b, "c": 3 * a - b, "d": np.full(40, 7)})
    >>> found = search_within(Terms(table.names, table.columns), rng, -4.0)
    >>> [dict(one.relation.coefficients) for one, _ in found.found]
    [{3: Fraction(1, 1)}, {0: Fraction(3, 1), 1: Fraction(-1, 1), 2: Fraction(-1, 1)}]
    """
    out = Search()
    size = len(terms)
    candidates: list[Checked] = []
    given = Span(size + 1)
    for relation in known:
        given.add(vector_of(relation, size))
    left = list(range(size))
    if terms.constant:
        easy = [*_constants(terms), *_pairs(terms)]
        easy = [one for one in easy if given.rest(vector_of(one.relation, size)).any()]
        candidates += easy
        done = {one.relation.support[-1] for one in easy}
        left = [j for j in left if j not in done]
    for columns, rows in _views(terms, left, out.notes):
        for block in _blocks(columns, len(rows), out.notes):
            part = terms.subset(block)
            inside = _inside([*known, *_told(candidates)], block)
            candidates += [
                _outside(one, block) for one in _search_block(part, rows, rng, inside, out.notes)
            ]
        if 2 * WINDOW < len(columns) <= BLOCK:
            candidates += _in_windows(terms, columns, rows, rng, [*known, *_told(candidates)])
    span = given
    for one in sorted(candidates, key=_rank):
        if not span.add(vector_of(one.relation, size)):
            continue
        chance = log10_chance(one, terms, tried)
        fixed = len(one.relation.coefficients) == 1 and one.rows >= ROWS_OF_A_CONSTANT
        if chance <= limit or fixed:
            out.found.append((one, chance))
        elif one.relation.digits <= DOUBTFUL_DIGITS:
            out.doubtful.append((one, chance))
    return out


def _told(candidates: Sequence[Checked]) -> list[Relation]:
    return [one.relation for one in candidates]


def _in_windows(
    terms: Terms,
    columns: list[int],
    rows: NDArray[np.intp],
    rng: np.random.Generator,
    known: list[Relation],
) -> list[Checked]:
    """Relations between neighbours that more rows break: few columns need few rows to be seen."""
    out: list[Checked] = []
    for start in range(0, len(columns) - WINDOW // 2, WINDOW // 2):
        window = columns[start : start + WINDOW]
        inside = _inside([*known, *_told(out)], window)
        found = exact_relations(terms.subset(window), rows, rng, inside)
        out += [_outside(one, window) for one in [*found.exact, *found.mostly]]
    return out


def _rank(one: Checked) -> tuple[int, float, tuple[int, float]]:
    """Exact ones first, then those that fewest rows break, then the shortest."""
    return (0 if one.exact else 1, one.rows - max(one.zero, one.within), one.relation.complexity)


def _search_block(
    terms: Terms,
    rows: NDArray[np.intp],
    rng: np.random.Generator,
    known: list[Relation],
    notes: list[str],
) -> list[Checked]:
    found = exact_relations(terms, rows, rng, known)
    out = [*found.exact, *found.mostly]
    if found.seen and terms.constant:
        seen = min(found.seen, MOST_MISSES)
        note(notes, f"equations that more than {seen:.1%} of the rows break may have been missed")
    if found.unread:
        note(
            notes,
            f"{found.unread} more equation{'s' * (found.unread > 1)} between {_between(terms)} "
            "hold, with coefficients too long to be read",
        )
    if len(rows) >= enough_rows(len(terms)):
        nearly, unread = nearly_relations(
            terms, rows, rng, [*known, *(one.relation for one in out)]
        )
        out += nearly
        if unread > found.unread:
            note(
                notes,
                f"{unread} more equation{'s' * (unread > 1)} between {_between(terms)} may hold "
                "up to rounding, with coefficients that are not simple",
            )
    else:
        note(
            notes,
            f"rounded relations: not looked for, {len(rows)} complete rows are too few for "
            f"{len(terms)} columns ({enough_rows(len(terms))} are needed)",
        )
    return out


def _between(terms: Terms) -> str:
    first, last = terms.names[0], terms.names[-1]
    return f"the {len(terms)} columns from {first} to {last}"


def note(notes: list[str], text: str) -> None:
    """Add a note once.

    Parameters
    ----------
    notes : list of str
        The notes so far.
    text : str
        The note.
    """
    if text not in notes:
        notes.append(text)


def _inside(known: Sequence[Relation], block: Sequence[int]) -> list[Relation]:
    """Known relations that lie in a block, in its own counting."""
    place = {j: i for i, j in enumerate(block)}
    return [
        Relation({place[j]: value for j, value in one.coefficients.items()}, one.offset)
        for one in known
        if set(one.coefficients) <= set(place)
    ]


def _outside(one: Checked, block: Sequence[int]) -> Checked:
    relation = Relation(
        {block[j]: value for j, value in one.relation.coefficients.items()}, one.relation.offset
    )
    return Checked(
        relation, one.rows, one.zero, one.within, one.largest_miss, one.rounding, one.worst
    )


# ---------------------------------------------------------------------- what is easy to see


def _constants(terms: Terms) -> Iterator[Checked]:
    """Columns with one value."""
    for j, column in enumerate(terms.columns):
        there = np.flatnonzero(~column.missing)
        first = column.source[there[0]]
        if np.all(column.source[there] == first):
            value = int(column.whole_at(there[:1])[0]) * column.unit
            yield check(Relation({j: Fraction(1)}, -value), terms)


def _pairs(terms: Terms) -> Iterator[Checked]:
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


def _pair(terms: Terms, j: int, k: int, sample: NDArray[np.intp]) -> Iterator[Checked]:
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
    terms: Terms, columns: list[int], notes: list[str]
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
        note(notes, f"{len(waiting)} columns with many gaps were not looked at: {names}, …")


def _blocks(columns: list[int], rows: int, notes: list[str]) -> Iterator[list[int]]:
    """All columns at once, or neighbouring ones where there are too many, or too few rows."""
    room = rows - 1 - MARGIN
    if len(columns) <= min(BLOCK, max(room, 0)):
        yield columns
        return
    size = min(SMALL_BLOCK, max(room, 0)) if len(columns) > BLOCK else max(room, 0)
    if size < len(columns):
        if rows < len(columns) + 1 + MARGIN:
            note(
                notes,
                f"{rows} complete rows for {len(columns)} columns: chance cannot be told from law "
                f"for equations between many columns ({len(columns) + 1 + MARGIN} rows are needed)",
            )
        if size >= 4:
            note(
                notes,
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
