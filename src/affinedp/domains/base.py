"""What every domain has: names of its entries, and a way to read data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.domains.reading import Wrap, read_rows
from affinedp.errors import AffineDPError
from affinedp.parts import Part


class Domain(Part):
    """What data is, what everyone knows about it, and which data is refused.

    Attributes
    ----------
    names : tuple of str
        One name per entry.
    """

    names: tuple[str, ...]

    @property
    def offset(self) -> Any:
        """What releases depend on beside the key: public constants, to be hashed."""
        return ()

    @property
    def words(self) -> str:
        """What data is, in a few words, such as "a tree of 7 numbers"."""
        return f"{len(self.names):,} numbers"

    @property
    def covers(self) -> str:
        """What a promise about this data covers, and what it does not."""
        return "an equation that the public knows and that was left out is not covered"

    def read(self, x: Any) -> tuple[Any, Wrap]:
        """Return data as rows, and how results are handed back in its form.

        All that is refused because of the data is refused here, before anything is charged.
        """
        found: tuple[FloatArray, Wrap] = read_rows(self.names, x)
        return found


@dataclass(frozen=True, eq=False)
class Cells:
    """Where people may be counted."""

    columns: Matrix  # what one person in a cell adds to every entry; shape (n, cells)
    group: IntArray  # people who are counted elsewhere stay in the group of their cell
    # whether people may join or leave the cell; where they may not, the group has a public total
    open: Any


class Counts(Domain):
    """Counts of people in cells: what :class:`~affinedp.neighbours.people.People` are about.

    Attributes
    ----------
    table : str
        Of what the cells are, in words.
    follows : str
        What else changes with a cell, in words that follow a semicolon.
    """

    table: ClassVar[str] = "the table"
    follows: ClassVar[str] = ""

    @property
    def covers(self) -> str:
        """What a promise about this data covers, and what it does not."""
        return f"counts of people in {self.table}; an equation that was left out is not covered"

    @property
    def fixed_people(self) -> bool:
        """Whether the number of people is public."""
        return False

    @property
    def public_words(self) -> str:
        """What else is public, in words that follow a semicolon; empty if nothing is."""
        return ""

    def cells(self, limit: int) -> Cells:
        """Return all cells, or refuse more than so many."""
        raise AffineDPError(f"the cells of {self.table} are not listed")

    def _each_cell(self, size: int, limit: int) -> Cells:
        """So many cells, which are the entries themselves."""
        if size > limit:
            raise AffineDPError(f"the {size:,} cells of {self.table} are not listed")
        together = np.zeros(size, np.intp)
        return Cells(np.eye(size), together, np.full(size, not self.fixed_people))


class MadeNames(Sequence[str]):
    """Names that are made when they are asked for: a million of them take no memory."""

    def name(self, place: int) -> str:
        """Return the name of one place."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        places = range(len(self))[place]
        return tuple(map(self.name, places)) if isinstance(places, range) else self.name(places)


@dataclass(frozen=True)
class Numbered(MadeNames):
    """Names that only count, such as "node 5".

    Examples
    --------
    >>> names = Numbered("node", 3)
    >>> names[2], list(names[1:]), len(names)
    ('node 2', ['node 1', 'node 2'], 3)
    """

    word: str  # what is counted
    size: int  # how many there are, from 0

    def __len__(self) -> int:
        return self.size

    def name(self, place: int) -> str:
        """Return the name of one place."""
        return f"{self.word} {place}"
