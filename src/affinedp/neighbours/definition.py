"""Ask the definition: are these two data sets neighbours, and which entry says so?

Everything is decided in rational arithmetic.  A float is read as the decimal that it prints as,
just as the coefficients of the equations are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import exact_number, meaning
from affinedp.exact.rational import Echelon, reduce_exactly

# A difference this small against its terms looks like rounding, and the reason says so.
ROUNDING = Fraction(1, 10**9)
# Coefficients times equations up to which a basis is completed in rational arithmetic.
MOST_WORK = 400_000
SHOWN = 6

Vector = Mapping[int, Fraction]


@dataclass(frozen=True)
class NeighbourAnswer:
    """Whether two data sets are neighbours, and why; true or false as a condition.

    Attributes
    ----------
    neighbours : bool
        The answer.
    reason : str
        Why, in a sentence.
    moved : tuple of str
        The entries in which the two differ.
    entry : str or None
        The free entry that moves first (or, if they are no neighbours, the one that comes closest
        to being allowed); None where there is none.
    distance : Fraction or None
        How far that entry moves; for given directions, the multiple of the direction.
    limit : Fraction or None
        How far it may move: its μ, or 1 for a given direction.
    free_set : tuple of str or None
        Free entries of which only ``entry`` moves, while all others follow from the equations;
        None where there is none (or where completing it is too much work).
    direction : int or None
        Which given direction it is, counted from 0.

    Examples
    --------
    >>> import affinedp as adp
    >>> adjacency = adp.CircuitAdjacency(adp.AffineManifold([[1, -2, 0]]))
    >>> answer = adjacency.are_neighbours([0, 0, 0], [2, 1, 0])       # Example 2 of the paper, (ii)
    >>> bool(answer), answer.entry, answer.free_set
    (True, 'x2', ('x2', 'x3'))
    """

    neighbours: bool
    reason: str
    moved: tuple[str, ...] = ()
    entry: str | None = None
    distance: Fraction | None = None
    limit: Fraction | None = None
    free_set: tuple[str, ...] | None = None
    direction: int | None = None

    def __bool__(self) -> bool:
        return self.neighbours

    def __str__(self) -> str:
        return f"{'neighbours' if self.neighbours else 'no neighbours'}: {self.reason}"


def among_circuits(
    manifold: AffineManifold, mu: FloatArray, x: Iterable[Any], y: Iterable[Any]
) -> NeighbourAnswer:
    """Return whether Definition 4 calls x and y neighbours.

    They are if their difference is a vector of ``ker D`` with minimal support, some entry of which
    moves by at most its μ.
    """
    moves, moved, early = _asked(manifold, x, y)
    if early is not None:
        return early
    rows = [{j: row[j] for j in row if j in moves} for row in manifold.rational_rows]
    reduced = reduce_exactly([row for row in rows if row])
    if len(reduced) < len(moves) - 1:
        alone = _smaller(reduced, sorted(moves))
        return NeighbourAnswer(
            False,
            f"{_some(moved)} move, but {_some(_names(manifold, alone))} can move without the "
            "others: whatever the basis, more than one free entry moves",
            moved,
        )
    entry, distance, limit = _nearest(moves, mu)
    if limit == 0 or distance > limit:
        return _too_far(manifold, moved, entry, distance, limit)
    free = _free_set(manifold, set(moves) - {entry})
    return _first_mover(manifold, moved, entry, distance, limit, free)


def among_free_sets(
    manifold: AffineManifold,
    free_sets: Sequence[IntArray],
    mu: FloatArray,
    x: Iterable[Any],
    y: Iterable[Any],
) -> NeighbourAnswer:
    """Return whether one entry of a chosen free set makes x and y neighbours."""
    moves, moved, early = _asked(manifold, x, y)
    if early is not None:
        return early
    best: tuple[tuple[int, Fraction], int, int, Fraction, Fraction] | None = None
    for place, entries in enumerate(free_sets):
        free = {int(i): moves[int(i)] for i in entries if int(i) in moves}
        entry, distance, limit = _nearest(free, mu)
        over = distance / limit if limit else Fraction(10) ** 300
        score = (len(free), over)
        if best is None or score < best[0]:
            best = (score, place, entry, distance, limit)
    assert best is not None
    (count, _), place, entry, distance, limit = best
    free_names = tuple(manifold.names[int(i)] for i in free_sets[place])
    if count > 1:
        also = [manifold.names[int(i)] for i in free_sets[place] if int(i) in moves]
        every = "the free set" if len(free_sets) == 1 else "every free set, also"
        return NeighbourAnswer(
            False,
            f"more than one entry of {every} {{{_some(free_names)}}} moves: {_some(also)}",
            moved,
        )
    if limit == 0 or distance > limit:
        return _too_far(manifold, moved, entry, distance, limit, free_names)
    return _first_mover(manifold, moved, entry, distance, limit, free_names)


def among_directions(
    manifold: AffineManifold, directions: Sequence[Vector], x: Iterable[Any], y: Iterable[Any]
) -> NeighbourAnswer:
    """Return whether x and y differ by at most one of the given directions."""
    moves, moved, early = _asked(manifold, x, y)
    if early is not None:
        return early
    parallel: tuple[Fraction, int] | None = None
    nearly = None
    for k, vector in enumerate(directions):
        lead = max(moves, key=lambda j: abs(moves[j]))
        if set(vector) != set(moves):
            continue
        multiple = moves[lead] / vector[lead]
        off = max(abs(moves[j] - multiple * vector[j]) / abs(moves[j]) for j in moves)
        if off == 0:
            parallel = min(parallel or (abs(multiple), k), (abs(multiple), k))
        elif off < ROUNDING:
            nearly = k
    if parallel is None:
        reason = "the difference is a multiple of none of the given directions"
        if nearly is not None:
            reason += (
                f"; of direction {nearly + 1} (counting from 1) it is one up to rounding. Give "
                "exact numbers (integers, decimals or fractions)"
            )
        return NeighbourAnswer(False, reason, moved)
    multiple, k = parallel
    enough = multiple <= 1
    return NeighbourAnswer(
        enough,
        f"the difference is {_number(multiple, Fraction(1))} times direction {k + 1} (counting "
        f"from 1), {'at most' if enough else 'more than'} once",
        moved,
        distance=multiple,
        limit=Fraction(1),
        direction=k,
    )


def _asked(
    manifold: AffineManifold, x: Iterable[Any], y: Iterable[Any]
) -> tuple[Vector, tuple[str, ...], NeighbourAnswer | None]:
    """The nonzero entries of y − x, their names, and the answer where it is clear from them."""
    pair = [_read(manifold, data, name) for data, name in ((x, "x"), (y, "y"))]
    moves = {i: b - a for i, (a, b) in enumerate(zip(*pair)) if a != b}
    moved = _names(manifold, moves)
    return moves, moved, _settled(manifold, moves, moved)


def _read(manifold: AffineManifold, data: Iterable[Any], name: str) -> list[Fraction]:
    try:
        values = [exact_number(value) for value in data]
    except TypeError:
        raise AffineDPError(f"{name} must be a list of numbers, not {data!r:.40}") from None
    if len(values) != manifold.n:
        raise AffineDPError(f"{name} has {len(values)} entries, but x has {manifold.n}")
    if not manifold.contains([float(value) for value in values]):
        raise AffineDPError(
            f"{name} does not obey the equations, so it is no data at all. Correct it, or give the "
            "manifold the offset b that it was made with"
        )
    return values


def _settled(
    manifold: AffineManifold, moves: Vector, moved: tuple[str, ...]
) -> NeighbourAnswer | None:
    """The answer for data that is equal, or whose difference leaves the manifold."""
    if not moves:
        return NeighbourAnswer(True, "the two are equal")
    for i, row in enumerate(manifold.rational_rows):
        terms = [row[j] * moves[j] for j in row if j in moves]
        miss = sum(terms, Fraction(0))
        if miss == 0:
            continue
        reason = f"their difference leaves the manifold: {manifold.equations()[i]} is missed by "
        reason += _number(abs(miss))
        if abs(miss) < ROUNDING * max(abs(term) for term in terms):
            reason += (
                ", which looks like rounding. Give exact numbers (integers, decimals or fractions)"
            )
        return NeighbourAnswer(False, reason, moved)
    return None


def _nearest(moves: Vector, mu: FloatArray) -> tuple[int, Fraction, Fraction]:
    """The entry that moves least in units of its μ, how far, and how far it may."""
    limits = {i: meaning(float(mu[i])) for i in moves}
    allowed = [i for i in moves if limits[i]] or list(moves)
    entry = min(allowed, key=lambda i: (abs(moves[i]) / (limits[i] or 1), i))
    return entry, abs(moves[entry]), limits[entry]


def _too_far(
    manifold: AffineManifold,
    moved: tuple[str, ...],
    entry: int,
    distance: Fraction,
    limit: Fraction,
    free: tuple[str, ...] | None = None,
) -> NeighbourAnswer:
    name = manifold.names[entry]
    if limit == 0:
        reason = f"none of the entries that move may move first: {name} and the others have μ = 0"
    else:
        least = "" if free is not None or len(moved) == 1 else ", and the others are no closer"
        reason = (
            f"{name} moves by {_number(distance, limit)}, more than μ = {_number(limit)}{least}"
        )
    return NeighbourAnswer(False, reason, moved, name, distance, limit, free)


def _smaller(reduced: list[tuple[int, Mapping[int, Fraction]]], entries: list[int]) -> list[int]:
    """Support of a kernel vector with fewer entries: one entry outside the basis, and its row."""
    pivots = {column for column, _ in reduced}
    first = next(j for j in entries if j not in pivots)
    return sorted([first, *(column for column, row in reduced if first in row)])


def _free_set(manifold: AffineManifold, follow: set[int]) -> tuple[str, ...] | None:
    """The free entries of a basis that contains these entries, by exact exchange."""
    rows = manifold.rational_rows
    if len(rows) * sum(map(len, rows)) > MOST_WORK:
        return None
    space = Echelon(len(rows))
    order = [*sorted(follow), *(j for j in range(manifold.n) if j not in follow)]
    basis = {j for j in order if space.add(manifold.exact_column(j))}
    return tuple(name for i, name in enumerate(manifold.names) if i not in basis)


def _first_mover(
    manifold: AffineManifold,
    moved: tuple[str, ...],
    entry: int,
    distance: Fraction,
    limit: Fraction,
    free: tuple[str, ...] | None,
) -> NeighbourAnswer:
    """They are neighbours: one free entry moves no farther than it may, and the rest follows."""
    name = manifold.names[entry]
    reason = f"{name} moves by {_number(distance)}, at most μ = {_number(limit)}"
    others = [other for other in moved if other != name]
    if free is not None and len(free) > 1:
        reason += f"; of the free {{{_some(free)}}} no other"
    if others:
        reason += f"; {_some(others)} follow{'s' if len(others) == 1 else ''}"
    return NeighbourAnswer(True, reason, moved, name, distance, limit, free)


def _names(manifold: AffineManifold, entries: Iterable[int]) -> tuple[str, ...]:
    return tuple(manifold.names[i] for i in sorted(entries))


def _number(value: Fraction, against: Fraction | None = None) -> str:
    """A number in a few digits; where it would look equal to another, by how much it is not."""
    short = f"{float(value):g}"
    if against is None or value <= against or short != f"{float(against):g}":
        return short
    return f"{short} + {float(value - against):.1e}"


def _some(names: Sequence[str]) -> str:
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
