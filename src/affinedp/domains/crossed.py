"""Tables of all combinations of some attributes, which may have more cells than can be listed.

Margins are sets of attributes.  Inside, a set is written as bits: attribute j is the bit 2ʲ.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.domains.base import Cells, Counts, Numbered
from affinedp.domains.reading import Wrap
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import whole_array, whole_number

Sets = NDArray[np.int64]
# From a tuple of attributes to the integer counts of that margin.
Counted = Callable[[tuple[int, ...]], NDArray[Any]]
MOST_ATTRIBUTES = 60
MOST_MARGINS = 200_000
MOST_LISTED = 1_000_000
# People whom counts can hold; and rows of microdata, each of which takes 8 bytes and more.
MOST_PEOPLE = 1 << 53
MOST_RECORDS = 1 << 40


class CellCounts(Counts):
    """Counts of people in cells, each of which is an entry."""

    @property
    def size(self) -> int:
        """How many cells there are."""
        raise NotImplementedError

    @property
    def names(self) -> Any:  # type: ignore[override]
        """Names of the cells, where they can be listed."""
        return Numbered("cell", self.size) if self.size <= MOST_LISTED else ()


@dataclass(frozen=True, eq=False)
class Crossed(CellCounts):
    """The table of all combinations of some attributes; it is never formed.

    Attributes
    ----------
    sizes : tuple of int
        How many values every attribute has, each at least 2.
    public : {0, 1, 2}
        Margins of fewer attributes than this are public: none; the number of people; or every
        margin of one attribute, too.

    Examples
    --------
    >>> table = Crossed((3, 2), public=1)
    >>> table.fixed_people, table.size
    (True, 6)
    """

    kind = "crossed"
    table = "the table of all attributes"
    sizes: tuple[int, ...]
    public: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", checked_sizes(self.sizes))
        if self.public not in (0, 1, 2) or isinstance(self.public, bool):
            raise AffineDPError(f"public must be 0, 1 or 2, not {self.public!r}")

    @property
    def size(self) -> int:
        """How many cells the table has."""
        return math.prod(self.sizes)

    @property
    def words(self) -> str:
        """What data is, in a few words."""
        return f"a table of {len(self.sizes)} attributes"

    @property
    def fixed_people(self) -> bool:
        """Whether the number of people is public."""
        return self.public > 0

    def cells(self, limit: int) -> Cells:
        """Return all cells of a small table; every person is counted in one of them.

        Parameters
        ----------
        limit : int
            How many.
        """
        return self._each_cell(self.size, limit if self.public <= 1 else 0)

    def shape(self, A: int) -> tuple[int, ...]:
        """Return the sides of a margin.

        Parameters
        ----------
        A : int
            Its attributes, as bits.
        """
        return tuple(self.sizes[j] for j in members(A))

    def read(self, x: Any) -> tuple[tuple[Counted], Wrap]:
        """Return who counts the people of any margin.

        Parameters
        ----------
        x : callable or mapping
            From tuples of attributes, in rising order, to the integer counts of that margin, one
            axis for each: :func:`counts_of_records` makes one of microdata.  Margins that are not
            in a mapping are added up from those that are.
        """
        if isinstance(x, Mapping):
            counts: Counted = self._from_margins(x)
        elif callable(x):
            counts = x
        else:
            raise AffineDPError(
                "counts must be a mapping from tuples of attributes to counts, or a function "
                "from them: counts_of_records makes one of microdata"
            )
        return (lambda chosen: self._counted(counts(chosen), chosen),), lambda y, names: y

    def _counted(self, counts: Any, chosen: tuple[int, ...]) -> NDArray[Any]:
        name = f"counts of the attributes {chosen}"
        margin, shape = whole_array(counts, name), tuple(self.sizes[j] for j in chosen)
        if margin.shape != shape:
            raise AffineDPError(f"{name} must be {shape} integers")
        # beyond that, contrasts leave 64 bits
        if margin.dtype.kind != "O" and np.abs(margin.astype(float)).sum() > MOST_PEOPLE:
            raise AffineDPError(f"{name} are more than 2**53 people")
        return margin if margin.dtype.kind == "O" else margin.astype(np.int64)

    def _from_margins(self, given: Mapping[Any, Any]) -> Counted:
        """Margins from those that are given, which must agree with each other."""
        own = {}
        for name, table in given.items():
            chosen = tuple(name) if isinstance(name, Iterable) else (name,)
            (A,) = margin_sets(len(self.sizes), [chosen]).tolist()
            if chosen != members(A):
                raise AffineDPError(f"attributes must be in rising order: {chosen}")
            own[A] = self._counted(table, chosen).astype(object)

        def counts_of(B: int, A: int) -> NDArray[Any]:
            out = tuple(i for i, j in enumerate(members(A)) if not B >> j & 1)
            return np.asarray(own[A].sum(axis=out), dtype=object)

        for A, B in itertools.combinations(own, 2):
            if (counts_of(A & B, A) != counts_of(A & B, B)).any():
                raise AffineDPError(
                    f"the margins {members(A)} and {members(B)} count different people"
                )

        def counts(chosen: tuple[int, ...]) -> NDArray[Any]:
            B = bits_of(chosen)
            above = [A for A in own if B & ~A == 0]
            if not above:
                raise AffineDPError(f"there are no counts of the attributes {chosen}")
            return counts_of(B, above[0])

        return counts


def counts_of_records(
    records: ArrayLike, sizes: Iterable[int], times: ArrayLike | None = None
) -> Counted:
    """Return the function that counts people in any margin.

    Parameters
    ----------
    records : array of int, shape (people, attributes)
        Values as numbers from 0.
    sizes : iterable of int
        Values of every attribute.
    times : array of int, optional
        How many people every record stands for; 1 by default.  All together at most 2⁵³.

    Examples
    --------
    >>> counts_of_records([[0, 1], [1, 1], [1, 2]], [2, 3])((1,)).tolist()
    [0, 2, 1]
    """
    rows = np.asarray(records)
    shape = checked_sizes(sizes)
    if rows.size == 0:
        rows = np.zeros((0, len(shape)), np.int64)
    if rows.ndim != 2 or rows.shape[1] != len(shape) or rows.dtype.kind not in "iu":
        raise AffineDPError(f"records must be whole numbers in {len(shape)} columns")
    if len(rows) and ((rows < 0).any() or (rows >= np.array(shape)).any()):
        raise AffineDPError("records have values beyond the sizes of their attributes")
    columns = [np.ascontiguousarray(rows[:, j]) for j in range(len(shape))]
    each = None if times is None else _people_of(times, len(rows))

    def counts(attributes: tuple[int, ...]) -> NDArray[Any]:
        place = np.zeros(len(rows), np.int64)
        for j in attributes:
            place = place * shape[j] + columns[j]
        sides = [shape[j] for j in attributes]
        found = np.bincount(place, each, minlength=math.prod(sides))
        return found.astype(np.int64).reshape(sides)

    return counts


def _people_of(times: ArrayLike, count: int) -> NDArray[Any]:
    """How many people every record stands for, in doubles, which add up to 2^53 exactly."""
    people = whole_array(times, "times")
    if people.shape != (count,) or (people < 0).any():
        raise AffineDPError(f"times must be {count} whole numbers that are not negative")
    each = people.astype(float)
    if each.sum() > MOST_PEOPLE:
        raise AffineDPError("times are more than 2**53 people")
    return each


# ---------------------------------------------------------------------- sets of attributes


def checked_sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return how many values every attribute has, or refuse what is no such list."""
    try:
        found = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise AffineDPError("sizes must be whole numbers, one per attribute") from None
    if not found or min(found) < 2:
        raise AffineDPError(
            "every attribute needs at least 2 values; leave out those that have only one"
        )
    if len(found) > MOST_ATTRIBUTES or max(found) > 1 << 40:
        raise AffineDPError(f"there can be {MOST_ATTRIBUTES} attributes, of up to 2**40 values")
    return found


def margin_sets(d: int, margins: str | int | Iterable[Iterable[int]]) -> Sets:
    """Return margins of d attributes as sets of bits.

    Examples
    --------
    >>> margin_sets(3, "<=1").tolist(), margin_sets(3, [(0, 2)]).tolist()
    ([0, 1, 2, 4], [5])
    """
    if isinstance(margins, str):
        text = margins.replace(" ", "")
        if not (text.startswith("<=") and text[2:].isdigit()):
            raise AffineDPError(f"margins must be such as '<=3', not {margins!r}")
        ways: range = range(0, min(int(text[2:]), d) + 1)
    elif not isinstance(margins, Iterable) or getattr(margins, "ndim", 1) == 0:
        number = whole_number(margins, "margins", 0)
        ways = range(number, number + 1)
    else:
        sets = set()
        for attributes in margins:
            if not isinstance(attributes, Iterable):
                raise AffineDPError(f"a margin must be a list of attributes, not {attributes!r}")
            chosen = [whole_number(j, "an attribute of a margin", 0, d - 1) for j in attributes]
            if len(set(chosen)) < len(chosen):
                raise AffineDPError(f"a margin must name attributes 0 to {d - 1} once: {chosen}")
            sets.add(bits_of(chosen))
        if not sets:
            raise AffineDPError("there are no margins")
        return _in_order(sets)
    if not 0 <= ways.start < ways.stop <= d + 1:
        raise AffineDPError(f"margins of {margins} attributes cannot be formed from {d}")
    if sum(math.comb(d, k) for k in ways) > MOST_MARGINS:
        raise AffineDPError(f"more than {MOST_MARGINS:,} margins; name those that are wanted")
    return _in_order(bits_of(one) for k in ways for one in itertools.combinations(range(d), k))


def blocks_of(margins: Iterable[int], least: int) -> Sets:
    """Return the sets of at least so many attributes in these margins: what carries noise."""
    sets = list(margins)
    if sum(1 << A.bit_count() for A in sets) > 40 * MOST_MARGINS:
        raise AffineDPError(f"these margins have more than {MOST_MARGINS:,} parts")
    found = {B for A in sets for B in subsets(A)}
    if len(found) > MOST_MARGINS:
        raise AffineDPError(f"these margins have {len(found):,} blocks; at most {MOST_MARGINS:,}")
    kept = [B for B in found if B.bit_count() >= least]
    if not kept:
        raise AffineDPError("all of these margins are public: there is nothing to protect")
    return _in_order(kept)


def _in_order(sets: Iterable[int]) -> Sets:
    return np.array(sorted(sets, key=lambda one: (one.bit_count(), one)), np.int64)


def subsets(A: int) -> Iterable[int]:
    """Return all subsets of a set of bits."""
    B = A
    while True:
        yield B
        if B == 0:
            return
        B = (B - 1) & A


def members(A: int) -> tuple[int, ...]:
    """Return the attributes of a set of bits."""
    return tuple(j for j in range(A.bit_length()) if A >> j & 1)


def bits_of(chosen: Iterable[int]) -> int:
    """Return attributes as a set of bits."""
    return sum(1 << j for j in chosen)


def cells_of(sizes: Sequence[int], A: int) -> int:
    """Return how many cells a margin has."""
    return math.prod(sizes[j] for j in members(A))


# ---------------------------------------------------------------------- at every place


@dataclass(frozen=True, eq=False)
class Placed(CellCounts):
    """Counts of people by leaf of a tree and cell of a table, and all totals of them.

    Attributes
    ----------
    places : Totals
        The tree, of which no number is public.
    crossed : Crossed
        The table of all attributes at one place, of which no margin is public.
    fixed : bool
        Whether the number of all people is public.
    """

    kind = "placed"
    table = "the tables of all places"
    follows = "; all totals follow"
    places: Totals = field(repr=False)
    crossed: Crossed
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.places.known.any() or self.crossed.public:
            raise AffineDPError("numbers of some places cannot be public, but that of all people")

    @property
    def leaves(self) -> int:
        """How many places have no others below them."""
        return int(self.places.leaf.sum())

    @property
    def size(self) -> int:
        """How many cells all leaves have."""
        return self.leaves * self.crossed.size

    @property
    def words(self) -> str:
        """What data is, in a few words."""
        return f"{self.crossed.words} at {self.places.n:,} places"

    @property
    def fixed_people(self) -> bool:
        """Whether the number of people is public."""
        return self.fixed

    def cells(self, limit: int) -> Cells:
        """Return all cells of all leaves of a small tree.

        Parameters
        ----------
        limit : int
            How many.
        """
        return self._each_cell(self.size, limit)

    def read(self, x: Any) -> tuple[tuple[NDArray[Any]], Wrap]:
        """Return the tables of the leaves.

        Parameters
        ----------
        x : array of integers, shape (leaves, n_1, n_2, …)
            In the order of the leaves' numbers.
        """
        given, shape = whole_array(x, "counts"), (self.leaves, *self.crossed.sizes)
        if given.shape != shape or given.dtype.kind == "O":
            raise AffineDPError(f"counts must be integers of at most 64 bits, of shape {shape}")
        return (given,), lambda y, names: y
