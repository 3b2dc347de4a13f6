"""What was published of margins, in one place or at the nodes of a tree, put together on demand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import members, subsets
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.strategies.contrasts import residual


@dataclass(frozen=True, eq=False)
class MarginTables(Mapping[tuple[int, ...], FloatArray]):
    """Noisy residuals, of which every margin is put together: margins agree with each other.

    A mapping from tuples of attributes, in rising order, to tables with one axis for each.

    Attributes
    ----------
    sizes : tuple of int
        Values of every attribute.
    margins : tuple of tuples of int
        What was released; smaller margins follow from them.
    parts : mapping
        From a set of attributes, as bits, to its residual; exact where it is public.
    whole : bool
        Whether every estimate is a whole number, but for rounding of doubles.
    """

    sizes: tuple[int, ...]
    margins: tuple[tuple[int, ...], ...] = field(repr=False)
    parts: Mapping[int, FloatArray] = field(repr=False)
    whole: bool = False

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self.margins)

    def __len__(self) -> int:
        return len(self.margins)

    def __contains__(self, attributes: Any) -> bool:
        return attributes in self.margins

    def __getitem__(self, attributes: Iterable[int]) -> FloatArray:
        chosen = checked_margin(attributes, len(self.sizes))
        return self._table(chosen, self._part)

    def _part(self, B: int) -> FloatArray:
        return self.parts[B]

    def _table(self, chosen: tuple[int, ...], part: Any, lead: tuple[int, ...] = ()) -> FloatArray:
        """A margin, from the residuals of its subsets."""
        A = sum(1 << j for j in chosen)
        if any(B not in self.parts for B in subsets(A)):
            raise AffineDPError(f"the margin {chosen} was not released")
        out = np.zeros([*lead, *(self.sizes[j] for j in chosen)])
        for B in subsets(A):
            shape = [self.sizes[j] if B >> j & 1 else 1 for j in chosen]
            spread = math.prod(self.sizes[j] for j in members(A & ~B))
            out += np.reshape(part(B), [*lead, *shape]) / spread
        return np.rint(out) if self.whole else out


@dataclass(frozen=True, eq=False)
class PlaceTables(MarginTables):
    """Noisy contrasts at every node of a tree: margins add up over places and over attributes.

    A mapping from tuples of attributes to arrays of shape (nodes, n_j, …), nodes in the given
    order.

    Attributes
    ----------
    sizes, margins, whole
        As for :class:`MarginTables`.
    parts : mapping
        From a set of attributes, as bits, to contrasts at the nodes, breadth first.
    tree : Totals or None
        The places.
    """

    tree: Totals | None = field(default=None, repr=False)

    def __getitem__(self, attributes: Iterable[int]) -> FloatArray:
        return self.at(attributes)

    def at(self, attributes: Iterable[int], nodes: ArrayLike | None = None) -> FloatArray:
        """Return the tables of one margin at some nodes; at all by default.

        Parameters
        ----------
        attributes : iterable of int
            Which, in rising order.
        nodes : array of int, optional
            In the given order.
        """
        assert self.tree is not None
        place = np.empty(self.tree.n, np.int64)
        place[self.tree.order] = np.arange(self.tree.n)
        rows = place if nodes is None else place[np.asarray(nodes)]

        def part(B: int) -> FloatArray:
            sides = tuple(self.sizes[j] - 1 for j in members(B))
            return residual(self.parts[B][rows].reshape(-1, *sides), first=1)

        return self._table(checked_margin(attributes, len(self.sizes)), part, (len(rows),))


def checked_margin(attributes: Any, d: int) -> tuple[int, ...]:
    """Return a margin as a tuple of attributes in rising order, or refuse it."""
    try:
        chosen = tuple(attributes)
    except TypeError:
        raise AffineDPError(f"a margin is a tuple of attributes, not {attributes!r}") from None
    if list(chosen) != sorted(set(chosen)) or not all(j in range(d) for j in chosen):
        raise AffineDPError(f"attributes must be different and in rising order: {chosen}")
    return chosen
