"""People who join, leave, are counted elsewhere or exchange places in counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from affinedp.arrays import dense
from affinedp.domains.base import Counts
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import whole_number
from affinedp.neighbours.adjacency import LISTED, Adjacency, Columns

Move = Literal["person", "replace", "circuits", "swaps"]
MOST_PEOPLE = 10**6
BLOCK = 4096
PUBLIC_NUMBER = "; the number of people is public and the same in both"
UNITS = {
    "person": "one person joins or leaves",
    "replace": "one person is counted elsewhere",
    "circuits": "one person joins, leaves or is counted elsewhere",
    "public": "one person joins or leaves, or moves where totals are public",
    "swaps": "two people of a table exchange places",
}


@dataclass(frozen=True, eq=False)
class People(Adjacency):
    """One person, or the people of one household, in counts.

    Attributes
    ----------
    domain : Counts
        The counts.
    move : {"person", "replace", "circuits", "swaps"}
        A person joins or leaves; is counted in another cell, the number of people being public;
        either; or exchanges some values with another person.  Below a public total people only
        move between its cells.
    household : int
        How many people, or pairs of people, may move at once.
    at_most : int or None
        In how many cells a person is counted at most; None if it is one.
    amount : int
        What a person counts for at most.

    Examples
    --------
    >>> from affinedp.domains.totals import Totals
    >>> print(People(Totals.of([-1, 0, 0])).words)
    one person more or less, in one cell of the table; all totals above it follow; a person counts \
for at most 1 in a number
    >>> People(Totals.of([-1, 0, 0]), household=3).directions().tolist()
    [[3.0, 3.0], [3.0, 0.0], [0.0, 3.0]]
    """

    kind = "people"
    is_whole = True
    domain: Counts
    move: Move = "person"
    household: int = 1
    at_most: int | None = None
    amount: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Counts):
            raise AffineDPError(f"people are counted in tables, not in {self.domain!r:.60}")
        if self.move not in get_args(Move):
            raise AffineDPError(f"adjacency must be one of {get_args(Move)}, not {self.move!r}")
        if self.move == "replace" and not self.domain.fixed_people:
            raise AffineDPError("people who only move need a public number of people")
        for name in ("household", "at_most", "amount"):
            given = getattr(self, name)
            if given is not None or name != "at_most":
                object.__setattr__(self, name, whole_number(given, name, most=MOST_PEOPLE))
        together = "household times at_most times what a person counts for"
        whole_number(self.size, together, most=MOST_PEOPLE)

    @property
    def size(self) -> int:
        """How many times the move of one person by 1 is made, at most."""
        return self.household * (self.at_most or 1) * self.amount

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        text = self._swaps() if self.move == "swaps" else self._people()
        return f"{text}; {amount_words(self.amount)}"

    def _people(self) -> str:
        many, table = self.household > 1, self.domain.table
        who = f"a household of up to {self.household} people" if many else "one person"
        where = "one cell" if self.at_most is None else f"at most {self.at_most} cells"
        counted = f"{'each ' if many else ''}in {where} of {table}"
        moves = f"{who} counted in another cell of {table}"
        if self.domain.fixed_people:
            return moves + PUBLIC_NUMBER + self.domain.public_words
        if self.move == "circuits":
            text = f"{who} more or less, {counted}, or {moves} (Definition 4 on one tree of totals)"
        else:
            text = f"{who} more or less, {counted}{self.domain.follows}"
        return text + self.domain.public_words

    def _swaps(self) -> str:
        pairs = "two people exchange"
        if self.household > 1:
            pairs = f"up to {self.household} pairs exchange"
        return (
            f"{pairs} their values of some attributes; every one-way margin is public, exact and "
            "the same in both (larger exchanges are not covered)"
        )

    @property
    def unit(self) -> str:
        """What moves between neighbours, in a few words."""
        kind: str = self.move
        if self.move != "swaps" and self.domain.fixed_people:
            kind = "replace"
        elif self.move != "swaps" and self.domain.public_words:
            kind = "public"
        return unit_of(kind, self.household)

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the moves of all people of a household alike, which are the longest there are.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        if self.move == "swaps":
            raise AffineDPError("exchanges are not listed")
        cells = self.domain.cells(limit)
        columns, count = cells.columns, cells.columns.shape[1]
        joins = np.flatnonzero(cells.open)
        moving = np.ones(count, bool) if self.move == "circuits" else ~np.asarray(cells.open)
        groups = [np.flatnonzero(moving & (cells.group == g)) for g in np.unique(cells.group)]
        total = len(joins) + sum(math.comb(len(group), 2) for group in groups)
        if total > limit:
            raise TooManyCircuitsError(f"{total:,} moves of people are not listed", total, limit)
        for start in range(0, len(joins), BLOCK):
            yield self._columns(columns[:, joins[start : start + BLOCK]])
        pairs = itertools.chain.from_iterable(itertools.combinations(g, 2) for g in groups)
        while block := list(itertools.islice(pairs, BLOCK)):
            first, second = np.array(block).T
            yield self._columns(columns[:, first] - columns[:, second])

    def _columns(self, ones: Any) -> Columns:
        return Columns.given(dense(ones) * float(self.size))


def unit_of(kind: str, household: int = 1) -> str:
    """Return what moves between neighbours, in a few words."""
    words = UNITS[kind]
    if household == 1:
        return words
    return words.replace("one person", f"a household of up to {household}")


def amount_words(amount: Any) -> str:
    """Say what a person counts for."""
    return f"a person counts for at most {amount} in a number"
