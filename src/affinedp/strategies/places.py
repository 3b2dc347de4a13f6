"""What noise on margins at every node of a tree has in common: outputs, totals, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.domains import tree_passes as passes
from affinedp.domains.base import Numbered
from affinedp.domains.crossed import Sets, blocks_of, cells_of, margin_sets, members
from affinedp.domains.placed import Placed
from affinedp.domains.totals import Indices, Totals
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.reach import Reach
from affinedp.strategies.base import (
    Strategy,
)
from affinedp.strategies.margin_tables import PlaceTables, checked_margin
from affinedp.strategies.margins import MOST_NUMBERS

# Numbers that are still held as wide integers.
MOST_WIDE = 3_000_000


@dataclass(frozen=True, eq=False)
class OfPlaces(Strategy):
    """What strategies for margins in many places have in common: which, and their outputs.

    Attributes
    ----------
    domain : Placed
        The places, and the table of all attributes.
    margins : tuple of tuples of int
        The margins that are published at every node.
    """

    domain: Placed
    margins: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        sets = margin_sets(len(self.sizes), self.margins)
        object.__setattr__(self, "margins", tuple(members(A) for A in sets.tolist()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of every attribute."""
        return self.domain.crossed.sizes

    @property
    def tree(self) -> Totals:
        """The places."""
        return self.domain.places

    @cached_property
    def sets(self) -> Sets:
        """The margins as bits."""
        return margin_sets(len(self.sizes), self.margins)

    @cached_property
    def blocks(self) -> Sets:
        """All parts of the margins."""
        return blocks_of(self.sets.tolist(), 0)

    @property
    def outputs(self) -> int:
        """How many numbers are published."""
        return self.tree.n * sum(cells_of(self.sizes, A) for A in self.sets.tolist())

    @property
    def names(self) -> Any:
        """One name per number, of which there may be very many."""
        return Numbered("number", self.outputs)

    # -------------------------------------------------------------- outputs

    def shape(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sides of the table of a margin at one place."""
        return tuple(self.sizes[j] for j in chosen)

    def flat(self, y: Any) -> FloatArray:
        """Return all margins of a release in one row."""
        if not isinstance(y, Mapping):
            return np.asarray(y, dtype=float)
        missing = [A for A in self.margins if A not in y]
        if missing:
            raise AffineDPError(f"the margin {missing[0]} is missing")
        return self.row(y)

    def row(self, combination: Mapping[Any, Any]) -> FloatArray:
        """Return coefficients by margin, node and cell in one row, 0 where none are given."""
        self._check_outputs()
        own = {checked_margin(A, len(self.sizes)): v for A, v in combination.items()}
        unknown = [A for A in own if A not in self.margins]
        if unknown:
            raise AffineDPError(f"the margin {unknown[0]} is not released")
        parts = []
        for A in self.sets.tolist():
            shape = (self.tree.n, *self.domain.crossed.shape(A))
            part = np.asarray(own.get(members(A), np.zeros(shape)), dtype=float)
            if part.shape != shape:
                raise AffineDPError(
                    f"there must be one number per node and cell of the margin {members(A)}: "
                    f"{shape}"
                )
            parts.append(part.ravel())
        return np.concatenate(parts)

    def _check_outputs(self) -> None:
        if self.outputs > MOST_NUMBERS:
            raise AffineDPError(
                f"{self.outputs:,} numbers do not fit in memory at once: take one margin at a time"
            )

    def present(self, row: FloatArray) -> dict[tuple[int, ...], FloatArray]:
        """Return a row of outputs margin by margin, with nodes in the given order."""
        return {members(A): part for A, part in self._split(row)}

    def _split(self, row: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        start = 0
        for A in self.sets.tolist():
            shape = (self.tree.n, *self.domain.crossed.shape(A))
            stop = start + math.prod(shape)
            yield A, np.reshape(row[start:stop], shape)
            start = stop

    def noise_by_group(self, law: Law) -> Iterator[tuple[str, float]]:
        """Yield the root mean square noise of every margin at the leaves."""
        leaves = self.tree.order[self.tree.leaf]
        for chosen in self.margins:
            name = f"margin of {', '.join(map(str, chosen)) or 'nothing'}, leaves"
            yield name, math.sqrt(float(self.node_variances(law, chosen)[leaves].mean()))

    # -------------------------------------------------------------- the errors

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order."""
        raise NotImplementedError

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of one margin is from the truth at every node."""
        raise NotImplementedError

    def variances(self, law: Law) -> FloatArray:
        """Return the variance of every output."""
        self._check_outputs()
        parts = [
            np.repeat(self.node_variances(law, members(A)), cells_of(self.sizes, A))
            for A in self.sets.tolist()
        ]
        return np.concatenate(parts)

    def reach(self, law: Law, combinations: Matrix | None, outside: float, together: bool) -> Reach:
        """Return half widths of all numbers, or of combinations of them."""
        if combinations is not None:
            rows = self.loadings(combinations)
            return law.reach_together(rows, outside) if together else law.reach(rows, outside)
        self._check_outputs()
        each = law.each(outside, self.outputs if together else 1)
        parts = [
            np.repeat(self.node_reaches(law, members(A), each), cells_of(self.sizes, A))
            for A in self.sets.tolist()
        ]
        return np.concatenate(parts), "from the law of the noise; never too short"

    def _every(self, combinations: Matrix | None) -> FloatArray:
        """Combinations as rows; every output by itself if they are left out."""
        if combinations is not None:
            return np.atleast_2d(dense(combinations))
        if float(self.outputs) * float(self.coordinates) > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise of {self.outputs:,} numbers does not fit in memory as a matrix: ask "
                "for some combinations"
            )
        return np.eye(self.outputs)

    def tables(self, coordinates: Mapping[int, FloatArray], whole: bool = False) -> PlaceTables:
        """Return margins that are put together from contrasts at the nodes, breadth first.

        Parameters
        ----------
        coordinates : mapping
            From sets of attributes, as bits.
        whole : bool
            Whether all margins are whole numbers.
        """
        return PlaceTables(self.sizes, self.margins, coordinates, whole, self.tree)

    # -------------------------------------------------------------- data

    def holds(self, most: int) -> bool:
        """Return whether tables of so many people can be released without any overflow.

        Parameters
        ----------
        most : int
            A public bound on the number of people.
        """
        narrow = most * math.prod(n - 1 for n in self.sizes) < 1 << 63
        return narrow or self.tree.n * math.prod(self.sizes) <= MOST_WIDE

    def totals(self, given: NDArray[Any], most: float | None) -> NDArray[Any]:
        """Return the tables of all nodes, breadth first, or refuse what could overflow.

        Parameters
        ----------
        given : array of integers, shape (leaves, …)
            The tables of the leaves.
        most : float or None
            A public bound on the number of people.
        """
        tree, cells = self.tree, math.prod(self.sizes)
        leaves = np.flatnonzero(tree.leaf)
        # what the type can hold, summed over leaves and cells, times the longest contrast
        reach = int(max(abs(int(np.iinfo(given.dtype).min)), np.iinfo(given.dtype).max))
        reach *= len(leaves) * cells
        reach = reach if most is None else min(reach, math.ceil(most))
        narrow = reach * math.prod(n - 1 for n in self.sizes) < 1 << 63
        if not narrow and tree.n * cells > MOST_WIDE:
            raise AffineDPError(
                f"counts of type {given.dtype} could overflow in a table of this size: give "
                "integers of at most 32 bits (the type is a public bound on them), or bound"
            )
        totals = np.zeros((tree.n, cells), np.int64 if narrow else object)
        totals[leaves] = given.reshape(len(leaves), cells)[self.ranks]
        if narrow:
            passes.added_up(tree.parent, totals)
            return totals
        for start, stop in reversed(tree.level_slices[1:]):
            np.add.at(totals, tree.parent[start:stop], totals[start:stop])
        return totals

    @cached_property
    def ranks(self) -> Indices:
        """Where the leaves stand among those that are given, breadth first."""
        return np.argsort(np.argsort(self.tree.order[self.tree.leaf]))

    def _nodes_of(self, moves: Matrix) -> NDArray[Any]:
        """Differences of the cells of leaves at all nodes, one layer per move."""
        given = dense(moves)
        shape = (self.domain.leaves, *self.sizes)
        layers = [self.added(column.reshape(shape)) for column in given.T]
        return np.array(layers)

    def added(self, given: FloatArray) -> FloatArray:
        """Return the tables of all nodes, breadth first, from noisy ones of the leaves."""
        seen = np.zeros((self.tree.n, math.prod(self.sizes)))
        seen[self.tree.leaf] = given.reshape(len(given), -1)[self.ranks]
        passes.added_up(self.tree.parent, seen)
        return seen

    def outside_axes(self, B: int) -> tuple[int, ...]:
        """Return the axes of tables at nodes that a block adds up."""
        return tuple(1 + j for j in range(len(self.sizes)) if not B >> j & 1)
