"""A table of attributes at every place of a tree: geography × age × sex."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.domains.base import Cells, Counts, Numbered
from affinedp.domains.crossed import MOST_LISTED, Crossed
from affinedp.domains.reading import Wrap
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError


@dataclass(frozen=True, eq=False)
class Placed(Counts):
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
    def names(self) -> Any:  # type: ignore[override]
        """Names of the cells, where they can be listed."""
        return Numbered("cell", self.size) if self.size <= MOST_LISTED else ()

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
        if self.size > limit:
            raise AffineDPError(f"the {self.size:,} cells of all places are not listed")
        inside = np.zeros(self.size, np.int64)
        return Cells(np.eye(self.size), inside, np.full(self.size, not self.fixed))

    def read(self, x: Any) -> tuple[tuple[NDArray[Any]], Wrap]:
        """Return the tables of the leaves.

        Parameters
        ----------
        x : array of integers, shape (leaves, n_1, n_2, …)
            In the order of the leaves' numbers.
        """
        given, shape = np.asarray(x), (self.leaves, *self.crossed.sizes)
        if given.shape != shape or given.dtype.kind not in "iu":
            raise AffineDPError(f"counts must be integers of shape {shape}")
        return (given,), lambda y, names: y
