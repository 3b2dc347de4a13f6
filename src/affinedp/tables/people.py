"""One person in a table: the numbers that count them, and the moves that one person makes.

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
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.strategies.base import rounded_up
from affinedp.tables.layout import Layout
from affinedp.tables.refusals import TableError, listed
from affinedp.tables.relations import Relation

Person = frozenset[int]
Move = dict[int, int]

MOST_PEOPLE = 200_000
MOST_MOVES = 200_000
MOST_PAIRS = 1_000_000
MOST_NUMBERS = 1e8


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
    root = {entry: entry for entry in range(len(layout.is_private))}
    root.update({total: total for total, _ in sums})

    def find(entry: int) -> int:
        while root[entry] != entry:
            root[entry] = root[root[entry]]
            entry = root[entry]
        return entry

    for total, parts in sums:
        for part in parts:
            root[find(part)] = find(total)
    members: dict[int, set[int]] = {}
    for entry in root:
        members.setdefault(find(entry), set()).add(entry)
    equations: dict[int, list[Sum]] = {}
    for one in sums:
        equations.setdefault(find(one[0]), []).append(one)
    for top, entries in members.items():
        yield frozenset(entries), equations.get(top, [])


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
