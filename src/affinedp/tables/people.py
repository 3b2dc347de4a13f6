"""Who is a neighbour in a table: one person, one who is counted elsewhere, swaps, circuits.

A person is counted once in a cell that is no total, and in every total above it: a set of
entries of which every total holds exactly one part.  Several splits of one total count the same
person once each.  Where totals are public, a person cannot come or go below them; then they are
counted in another cell with the same public totals, or, where that is not possible either,
two people exchange places.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import LinearEquations
from affinedp.errors import IdentifiableEntriesError, counted
from affinedp.exact.numbers import meaning, real_number, rounded_up
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.people import amount_words, unit_of
from affinedp.tables.describe import TableDescription, amounts_of
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import TableError, listed
from affinedp.tables.relations import Relation, column_relations

LARGER = "exchanges of more people than named, which keep what is public too, are not covered"
KINDS = {"joins": "person", "replaces": "replace", "swaps": "swaps"}
Person = frozenset[int]
Move = dict[int, int]

MOST_PEOPLE = 200_000
MOST_MOVES = 200_000
MOST_PAIRS = 1_000_000
MOST_NUMBERS = 1e8


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
    _refuse_unmoved(description, layout)
    if description.has_values:
        return _row_neighbours(description, layout, manifold)
    if isinstance(description.mu, Mapping):
        mu = layout.by_column(description.mu, math.nan, "mu")
        size = "its column's μ"
    else:
        mu = np.full(manifold.n, real_number(description.mu, "mu"))
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


def _refuse_unmoved(description: TableDescription, layout: Layout) -> None:
    """Refuse private columns that no neighbour moves: they would have no noise."""
    sizes = description.mu if isinstance(description.mu, Mapping) else {}
    own = set(layout.private.tolist()) - set(layout.totals)
    cells = {layout.columns[entry % len(layout.columns)] for entry in own}
    for name, size in sizes.items():
        if name in cells and not any(amounts_of(size)):
            raise TableError(
                f"mu is 0 for {name!r}, so nobody moves it and it would be published as it is: "
                "name it in public if that is meant, or say how far a person moves it",
                "",
                name,
            )


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
    """How much of a person is counted: only this tells sums of values from counts."""
    if isinstance(description.mu, Mapping):
        return "; " + amount_words("its column's μ")
    if description.adjacency == "replace" and float(description.mu) != 1:
        most = f"{float(description.mu):.10g}"
        return f", with the same amount (at most {most}) in both; the sum of all amounts is public"
    return f"; {amount_words(f'{float(description.mu):.10g}')}"


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


# ---------------------------------------------------------------------- what one person moves


@dataclass(frozen=True)
class PeopleMoves:
    """What one person moves, table by table."""

    tables: tuple[tuple[Move, ...], ...] = field(repr=False)
    leaves: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)
    kinds: frozenset[str]  # joins, replaces, swaps, unbound

    def directions(self, layout: Layout, reach: FloatArray) -> list[FloatArray]:
        """Return the moves of every table as columns over the private entries."""
        place = {int(entry): i for i, entry in enumerate(layout.private)}
        found = []
        for moves, leaves in zip(self.tables, self.leaves):
            if len(moves) * float(len(place)) > MOST_NUMBERS:
                raise TableError(
                    "the table has too many cells for a list of moves: release parts of it by "
                    "themselves, or use MarginRelease, which needs no list"
                )
            columns = np.zeros((len(place), len(moves)))
            for k, (move, own) in enumerate(zip(moves, leaves)):
                size = max(float(reach[place[entry]]) for entry in own)
                for entry, value in move.items():
                    columns[place[entry], k] = value * size
            columns = columns[:, columns.any(axis=0)]
            if columns.shape[1]:
                found.append(columns)
        return found


def people_moves(layout: Layout, neighbours: str) -> PeopleMoves | None:
    """Return the moves of one person, or None where equations are not totals of counts."""
    private = frozenset(int(entry) for entry in layout.private)
    sums = [sum_of(relation, place, private) for place, relation in enumerate(layout.relations)]
    if any(one is None for one in sums):
        return None
    known = [one for one in sums if one is not None]
    tables, leaves, found = [], [], set()
    for entries, own in _tables(layout, known):
        people = [one for one in _people(entries, own) if not one & layout.impossible]
        if neighbours == "swaps":
            moves, kinds = _swaps(people, private), {"swaps"}
        else:
            moves, kinds = _moves(people, private, neighbours == "replace")
            if entries - private or not is_tree(own):
                unbound = neighbours == "replace" and "unbound" in kinds
                freedom = _freedom(entries & private, own) - unbound
                if _rank(moves) < freedom:
                    moves += _swaps(people, private)
                    kinds.add("swaps")
                    if _rank(moves) < freedom:
                        raise _not_moved(layout, entries & private, moves)
        if not moves:
            continue
        totals = {total for total, _ in own}
        tables.append(tuple(moves))
        leaves.append(
            tuple(tuple(e for e in move if e not in totals) or tuple(move) for move in moves)
        )
        found |= kinds
    if not tables:
        raise TableError("no person can move without changing what is public: nothing is private")
    return PeopleMoves(tuple(tables), tuple(leaves), frozenset(found))


Sum = tuple[int, tuple[int, ...]]


def value_moves(layout: Layout, mu: Mapping[str, Any], rows: int, replace: bool) -> FloatArray:
    """Return what up to so many rows move where columns are sums of values, as columns.

    A row is counted in one place, in every column with a value between its bounds: the corners are
    listed, and all else lies between them.  A total moves as its parts do.
    """
    width = len(layout.columns)
    height = layout.cells // width
    people = rows_of_people(layout)
    # the bounds of so many rows, rounded outwards
    ends = {
        layout.columns.index(name): sorted({-rounded_up(-low * rows), rounded_up(high * rows)})
        for name, (low, high) in layout.amounts(mu).items()
        if name in mu
    }
    corners = np.zeros((math.prod(map(len, ends.values())), width))
    corners[:, list(ends)] = list(itertools.product(*ends.values()))
    corners = with_totals(layout, corners)
    pairs = [(one, one) for one in people]
    if replace:
        pairs += itertools.combinations(people, 2)
    count = len(pairs) * len(corners) ** (2 if replace else 1)
    if count > MOST_MOVES or count * float(height * width) > MOST_NUMBERS:
        raise TableError(
            f"rows of people have {count:,} ways to move the table, more than can be listed: "
            "publish fewer columns or rows at a time (TableRelease.together)"
        )
    found = []
    for one, other in pairs:
        for after in corners:
            for before in corners if replace else np.zeros((1, width)):
                move = np.zeros((height, width))
                move[other] += after
                move[one] -= before
                found.append(move.ravel())
    moves = np.unique(found, axis=0)
    return np.asarray(moves[moves.any(axis=1)].T[layout.private])


def rows_of_people(layout: Layout) -> list[list[int]]:
    """Return the rows that count somebody, for every place to be counted in."""
    width = len(layout.columns)
    down = [r for r in layout.relations if all(entry % width == 0 for entry in r.coefficients)]
    sums = [sum_of(relation, place, frozenset()) for place, relation in enumerate(down)]
    splits = [(one[0] // width, tuple(p // width for p in one[1])) for one in sums if one]
    empty = {entry // width for entry in layout.impossible}
    people = _people(range(layout.cells // width), splits)
    return [sorted(person) for person in people if not person & empty]


def with_totals(layout: Layout, values: FloatArray) -> FloatArray:
    """Return values by column, one row each, with the columns that are totals of others."""
    found = values.copy()
    for _ in layout.in_row:
        for relation in layout.in_row:
            parts = [place for place in relation.coefficients if place != relation.total]
            found[:, relation.total] = found[:, parts].sum(axis=1)
    return found


def sum_of(relation: Relation, place: int, private: Person) -> Sum | None:
    """Return (total, parts) of an equation that says so, or None.

    Parts whose sum is a constant have a public total of their own, with a negative number.
    """
    if relation.ambiguous(private):
        return None
    sides: dict[bool, list[int]] = {True: [], False: []}
    for entry, value in relation.coefficients.items():
        sides[value > 0].append(entry)
    if len({abs(value) for value in relation.coefficients.values()}) != 1:
        return None
    if not sides[True] or not sides[False]:
        return (-1 - place, tuple(sides[True] or sides[False]))
    for one, other in ((sides[True], sides[False]), (sides[False], sides[True])):
        if len(one) == 1 and relation.total in (None, one[0]):
            return one[0], tuple(other)
    return None


def _tables(layout: Layout, sums: Sequence[Sum]) -> Iterator[tuple[frozenset[int], list[Sum]]]:
    """Entries that equations tie together, and those equations."""
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import connected_components

    every = [*range(len(layout.is_private)), *(total for total, _ in sums if total < 0)]
    place = {entry: i for i, entry in enumerate(every)}
    tied = [(place[total], place[part]) for total, parts in sums for part in parts]
    graph = sparse.coo_array(
        (np.ones(len(tied)), tuple(zip(*tied)) or ((), ())), shape=(len(every),) * 2
    )
    group = connected_components(graph, directed=False)[1].tolist()
    members: dict[int, list[int]] = {}
    for entry, own in zip(every, group):
        members.setdefault(own, []).append(entry)
    equations: dict[int, list[Sum]] = {own: [] for own in members}
    for one in sums:
        equations[group[place[one[0]]]].append(one)
    for own, entries in members.items():
        yield frozenset(entries), equations[own]


def _people(entries: Iterable[int], sums: Sequence[Sum]) -> Iterator[Person]:
    """Every way to count one person: sets that hold one part of each total in them."""
    above: dict[int, list[Sum]] = {}
    below: dict[int, list[Sum]] = {}
    for one in sums:
        below.setdefault(one[0], []).append(one)
        for part in one[1]:
            above.setdefault(part, []).append(one)
    seen: set[Person] = set()
    for leaf in sorted(entries):
        if leaf in below:
            continue
        stack: list[tuple[frozenset[int], tuple[int, ...]]] = [(frozenset([leaf]), (leaf,))]
        while stack:
            inside, waiting = stack.pop()
            if not waiting:
                if inside not in seen:
                    seen.add(inside)
                    yield inside
                if len(seen) > MOST_PEOPLE:
                    raise TableError(
                        f"one person can be counted in more than {MOST_PEOPLE:,} ways: release the "
                        "splits as tables of their own (TableRelease.together), or MarginRelease"
                    )
                continue
            entry, rest = waiting[0], waiting[1:]
            stack += _grown(inside, rest, entry, above.get(entry, ()), below.get(entry, ()))


def _grown(
    inside: Person, rest: tuple[int, ...], entry: int, above: Iterable[Sum], below: Iterable[Sum]
) -> Iterator[tuple[Person, tuple[int, ...]]]:
    """What must be counted too if an entry is: its totals, and one part of it in each split."""
    forced = []
    for total, parts in above:
        if any(part in inside for part in parts if part != entry):
            return
        if total not in inside:
            forced.append(total)
    open_splits = []
    for _, parts in below:
        counted = sum(part in inside for part in parts)
        if counted > 1:
            return
        if counted == 0:
            open_splits.append(parts)
    for choice in itertools.product(*open_splits):
        more = tuple(dict.fromkeys((*forced, *choice)))
        yield inside | frozenset(more), (*rest, *more)


def _moves(people: Sequence[Person], private: Person, replace: bool) -> tuple[list[Move], set[str]]:
    """People who come or go, and people who are counted elsewhere under the same public totals."""
    classes: dict[Person, list[Person]] = {}
    for person in people:
        classes.setdefault(person - private, []).append(person)
    moves: dict[tuple[tuple[int, int], ...], Move] = {}
    kinds = set()
    for public, members in classes.items():
        if not public:
            kinds.add("unbound")
        if not public and not replace:
            for person in members:
                _add(moves, dict.fromkeys(person, 1))
            kinds.add("joins")
            continue
        count = len(members) * (len(members) - 1) / 2
        if count + len(moves) > MOST_MOVES:
            raise TableError(f"there are more than {MOST_MOVES:,} ways to count a person elsewhere")
        for one, other in itertools.combinations(members, 2):
            _add(moves, _difference([one], [other], private))
            kinds.add("replaces")
    return list(moves.values()), kinds


def _swaps(people: Sequence[Person], private: Person) -> list[Move]:
    """Two people who together are counted under the same public totals before and after."""
    too_large = TableError(
        "the table is too large for a list of swaps: MarginRelease(attributes=…, margins=2, "
        "adjacency='swaps') needs none"
    )
    if len(people) ** 2 / 2 > MOST_PAIRS:
        raise too_large
    public = [tuple(person - private) for person in people]
    pairs: dict[tuple[int, ...], list[tuple[Person, Person]]] = {}
    for one, other in itertools.combinations(range(len(people)), 2):
        key = tuple(sorted(public[one] + public[other]))
        pairs.setdefault(key, []).append((people[one], people[other]))
    moves: dict[tuple[tuple[int, int], ...], Move] = {}
    for group in pairs.values():
        for before, after in itertools.combinations(group, 2):
            _add(moves, _difference(before, after, private))
            if len(moves) > MOST_MOVES:
                raise too_large
    return list(moves.values())


def _difference(before: Iterable[Person], after: Iterable[Person], private: Person) -> Move:
    count: Counter[int] = Counter()
    for person in before:
        count.update(person & private)
    for person in after:
        count.subtract(person & private)
    return {entry: value for entry, value in count.items() if value}


def _add(moves: dict[tuple[tuple[int, int], ...], Move], move: Move) -> None:
    """Keep one of every pair ±v."""
    if not move:
        return
    items = sorted(move.items())
    if items[0][1] < 0:
        items = [(entry, -value) for entry, value in items]
    moves.setdefault(tuple(items), dict(items))


def is_tree(sums: Sequence[Sum]) -> bool:
    """Return whether every number is part of one total at most, and every total split once."""
    parts = [part for _, parts in sums for part in parts]
    totals = [total for total, _ in sums]
    return len(set(parts)) == len(parts) and len(set(totals)) == len(totals)


def _freedom(entries: Person, sums: Sequence[Sum]) -> int:
    """Dimension of what is private here: entries less independent equations."""
    rows = []
    for total, parts in sums:
        row = {part: -1 for part in parts if part in entries}
        if total in entries:
            row[total] = 1
        rows.append(row)
    return len(entries) - _rank(rows)


def _rank(rows: Sequence[Move]) -> int:
    """Rank of sparse whole-number vectors."""
    columns = {entry: i for i, entry in enumerate(dict.fromkeys(e for row in rows for e in row))}
    if not columns:
        return 0
    gram = np.zeros((len(columns), len(columns)))
    for row in rows:
        places = [columns[entry] for entry in row]
        values = np.array(list(row.values()), dtype=float)
        gram[np.ix_(places, places)] += np.outer(values, values)
    scale = np.sqrt(np.maximum(np.diagonal(gram), 1.0))
    return int(np.linalg.matrix_rank(gram / scale[:, None] / scale, hermitian=True))


def _not_moved(layout: Layout, entries: Iterable[int], moves: Sequence[Move]) -> TableError:
    moved = {entry for move in moves for entry in move}
    still = [layout.name(entry) for entry in sorted(entries) if entry not in moved]
    if still:
        return TableError(
            f"{listed(still)} cannot change by one person, nor by two who exchange places, while "
            "what is public stays the same: it would come out without noise. Declare it public "
            "too, declare less public, or use adjacency='circuits', which covers larger exchanges",
            "",
            still[0],
        )
    return TableError(
        "what is public leaves combinations of cells that no exchange of two people changes: they "
        "would come out without noise. Declare less public, or use adjacency='circuits', which "
        "covers larger exchanges"
    )
