"""Noise on margins at every node of a tree: its size, its release, in blocks that fit in memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, paying
from affinedp.designs.structured.contrasts import contrasts, squared_lengths
from affinedp.designs.structured.integer_noise import (
    BLOCK,
    SPARE,
    Integers,
    noisy,
    noisy_whole,
    whole_share,
)
from affinedp.designs.structured.intervals import half_widths, whole_reach
from affinedp.designs.structured.margin_blocks import Sets, members, subsets, variance_shares
from affinedp.designs.structured.released_margins import ReleasedTreeMargins
from affinedp.designs.structured.reports import noise_report
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices, Totals
from affinedp.errors import AffineDPError
from affinedp.intervals import Interval
from affinedp.laws.named import LawName
from affinedp.privacy.guarantee import Guarantee
from affinedp.show.page import Report
from affinedp.strategies.rounded_plan import GRID_BITS

LEAST_Q = 1 << 20
# Numbers that are still held as integers of any size.
MOST_WIDE = 3_000_000


@dataclass(frozen=True, eq=False)
class TreeMarginMechanism:
    """Gaussian noise of precision ``y_v t_B`` on the residual of every block B at every node v.

    Or whole Laplace noise on the cells of the leaves, which are added up.
    :func:`~affinedp.designs.structured.tree_margins.design_tree_margins` makes one.

    Attributes
    ----------
    tree : Totals
        The places.
    sizes : tuple of int
        Values of every attribute.
    margins, blocks : arrays of int
        Sets of attributes, as bits: what is released, and what it consists of.
    t : array
        Precisions of blocks.
    y : array
        Precisions of nodes, breadth first.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    guarantee : Guarantee
        What is promised.
    gap : float or None
        Computed distance, relative, to what no Gaussian mechanism goes below.
    alternatives : tuple of (str, float)
        What other ways to keep the same promise cost, as multiples of this one.
    notes : tuple of str
        What a reader should know about the design.
    cell_scale : int or None
        For Laplace noise: q of the cells of the leaves, for noise of scale 2⁵⁶/q.
    """

    tree: Totals = field(repr=False)
    sizes: tuple[int, ...]
    margins: Sets = field(repr=False)
    blocks: Sets = field(repr=False)
    t: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    neighbours: str
    household: int
    guarantee: Guarantee
    gap: float | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    cell_scale: int | None = None

    @property
    def law(self) -> LawName:
        """Law of the noise."""
        return "gaussian" if self.cell_scale is None else "laplace"

    @cached_property
    def leaves_below(self) -> Indices:
        """How many leaves are below every node, or are it, in the given order."""
        count = self.tree.leaf.astype(np.int64)[:, None].copy()
        passes.added_up(self.tree.parent, count)
        return np.asarray(self.tree.outside(count[:, 0]), dtype=np.int64)

    def cells_in(self, attributes: Iterable[int]) -> Indices:
        """Return how many cells of leaves every cell of a margin adds up, by node.

        Parameters
        ----------
        attributes : iterable of int
            The margin.
        """
        chosen = set(attributes)
        return self.leaves_below * math.prod(n for j, n in enumerate(self.sizes) if j not in chosen)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is released."""
        digest = hashlib.sha256(self.guarantee.neighbours_key.encode())
        for array in (self.blocks.astype("<i8"), self.t.astype("<f8"), self.y.astype("<f8")):
            digest.update(array.tobytes())
        if self.cell_scale is not None:
            digest.update(f"cells {self.cell_scale}".encode())
        return digest.hexdigest()

    def _known(self, block: int) -> NDArray[np.bool_]:
        """The number of people is public where nobody joins or leaves."""
        known = self.tree.known.copy()
        known[0] = block == 0 and self.neighbours == "replace"
        return known

    def variances(self, attributes: Iterable[int]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order.

        Parameters
        ----------
        attributes : iterable of int
            The margin.
        """
        A = sum(1 << j for j in set(attributes))
        shares = variance_shares(self.sizes, np.array([A]), self.blocks)
        parts = np.asarray(shares.toarray()[0]) / self.t
        if any(B not in self.blocks for B in subsets(A)):
            raise AffineDPError(f"the margin {members(A)} is not released")
        if self.cell_scale is not None:
            inverse = self.cell_scale / 2.0**GRID_BITS
            each = 2.0 / inverse**2 * whole_share(inverse)
            return self.cells_in(members(A)).astype(float) * each
        total = np.zeros(self.tree.n)
        for root_known in {bool(self._known(B)[0]) for B in self.blocks.tolist()}:
            known = np.zeros(self.tree.n, bool)
            known[0] = root_known
            node = passes.variances(self.tree.parent, self.tree.leaf, known, self.y)
            same = np.array([self._known(B)[0] == root_known for B in self.blocks.tolist()])
            total += node * float(parts[same].sum())
        return np.asarray(self.tree.outside(total), dtype=float)

    def report(self) -> Report:
        """Return what people want to read: the promise, the noise by margin at the leaf cells."""
        leaves = self.tree.order[self.tree.leaf]
        noise = (
            (
                f"margin of {', '.join(map(str, members(A))) or 'nothing'}, leaves",
                math.sqrt(float(self.variances(members(A))[leaves].mean())),
            )
            for A in self.margins.tolist()
        )
        law = "Gaussian" if self.law == "gaussian" else "Laplace"
        title = f"{law} noise on {len(self.margins):,} margins at {self.tree.n:,} nodes of a tree"
        return noise_report(title, self.guarantee, noise, self.gap, self.alternatives, self.notes)

    def __str__(self) -> str:
        return str(self.report())

    def interval(
        self,
        released: ReleasedTreeMargins,
        attributes: Iterable[int],
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> Interval:
        """Return where the true cells of a margin lie, at every node.

        Parameters
        ----------
        released : ReleasedTreeMargins
            What was published.
        attributes : iterable of int
            The margin.
        level : float
            With which probability.
        simultaneous : bool
            Whether for all cells of this margin at all nodes at once.
        """
        chosen = tuple(attributes)
        center = released.margin(chosen)
        cells = math.prod(self.sizes[j] for j in chosen)
        together = cells * self.tree.n if simultaneous else 1
        reach = self.half_widths(chosen, level, together).reshape(-1, *[1] * len(chosen))
        return Interval(center - reach, center + reach, level, simultaneous)

    def half_widths(
        self, attributes: Iterable[int], level: float = 0.95, together: int = 1
    ) -> FloatArray:
        """Return how far a cell of a margin is from the truth at every node, in the given order.

        Šidák's inequality for Gaussian noise, and the law of sums of Laplace numbers with
        Bonferroni's: never too short.

        Parameters
        ----------
        attributes : iterable of int
            The margin.
        level : float
            With which probability.
        together : int
            How many numbers are to hold at once.
        """
        chosen = tuple(attributes)
        variances = self.variances(chosen)
        if self.cell_scale is None:
            return half_widths("gaussian", variances, level, together)
        terms, where = np.unique(self.cells_in(chosen), return_inverse=True)
        scale = 2.0**GRID_BITS / self.cell_scale
        each = [whole_reach(scale, int(one), level, together) for one in terms]
        return np.asarray(each)[where]

    def holds(self, most: int) -> bool:
        """Return whether tables of so many people can be released without any overflow.

        Parameters
        ----------
        most : int
            A public bound on the number of people.
        """
        narrow = most * math.prod(n - 1 for n in self.sizes) < 1 << 63
        return narrow or self.tree.n * math.prod(self.sizes) <= MOST_WIDE

    def release(
        self,
        counts: ArrayLike,
        *,
        most: int | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
    ) -> ReleasedTreeMargins:
        """Publish the tables of all places: charge the ledger, then draw exact integer noise.

        Parameters
        ----------
        counts : array of integers, shape (leaves, n_1, n_2, …)
            The tables of the leaf cells, in the order of their numbers.  Large ones must have at
            most 32 bits, or ``most``: either bounds what they can hold, so that no sum overflows,
            whatever the data.
        most : int, optional
            A public bound on the number of people, which the counts must keep.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger; put no data in it.
        """
        totals = self._totals(counts, most)
        with paying(ledger, self.guarantee, fingerprint=self.fingerprint, label=label):
            if self.cell_scale is None:
                found = {B: self._block(totals, i) for i, B in enumerate(self.blocks.tolist())}
            else:
                found = self._cells(totals)
        return ReleasedTreeMargins(self.tree, self.sizes, found, self.cell_scale is not None)

    def _totals(self, counts: ArrayLike, most: int | None) -> NDArray[Any]:
        """The tables of all nodes, breadth first."""
        given, tree = np.asarray(counts), self.tree
        leaves = np.flatnonzero(tree.leaf)
        if given.shape != (len(leaves), *self.sizes) or given.dtype.kind not in "iu":
            raise AffineDPError(f"counts must be integers of shape {(len(leaves), *self.sizes)}")
        cells = math.prod(self.sizes)
        # what the type can hold, summed over leaves and cells, times the longest contrast
        reach = int(max(abs(int(np.iinfo(given.dtype).min)), np.iinfo(given.dtype).max))
        reach *= len(leaves) * cells
        reach = reach if most is None else min(reach, most)
        narrow = reach * math.prod(n - 1 for n in self.sizes) < 1 << 63
        if not narrow and tree.n * cells > MOST_WIDE:
            raise AffineDPError(
                f"counts of type {given.dtype} could overflow in a table of this size: give "
                "integers of at most 32 bits (the type is a public bound on them), or most"
            )
        ranks = np.argsort(np.argsort(tree.order[leaves]))
        totals = np.zeros((tree.n, cells), np.int64 if narrow else object)
        totals[leaves] = given.reshape(len(leaves), cells)[ranks]
        if narrow:
            passes.added_up(tree.parent, totals)
            return totals
        for start, stop in reversed(tree.level_slices[1:]):
            np.add.at(totals, tree.parent[start:stop], totals[start:stop])
        return totals

    def _cells(self, totals: NDArray[Any]) -> dict[int, FloatArray]:
        """Contrasts of all blocks from noisy cells of leaves, which are added up."""
        leaves = np.flatnonzero(self.tree.leaf)
        assert self.cell_scale is not None
        seen = np.zeros(totals.shape)
        step = max(1, BLOCK // totals.shape[1])
        for start in range(0, len(leaves), step):
            rows = leaves[start : start + step]
            seen[rows] = noisy_whole(totals[rows], self.cell_scale)
        passes.added_up(self.tree.parent, seen)
        tables = seen.reshape(-1, *self.sizes)
        found = {}
        for B in self.blocks.tolist():
            out = tuple(1 + j for j in range(len(self.sizes)) if not B >> j & 1)
            found[B] = contrasts(tables.sum(axis=out), first=1).reshape(self.tree.n, -1)
        return found

    def _block(self, totals: NDArray[Any], place: int) -> FloatArray:
        """Noisy contrasts of one block at all nodes, after least squares along the tree."""
        B, n = int(self.blocks[place]), self.tree.n
        out = tuple(1 + j for j in range(len(self.sizes)) if not B >> j & 1)
        columns = math.prod(self.sizes[j] - 1 for j in members(B))
        known = self._known(B)
        seen = np.empty((n, columns))
        step = max(1, BLOCK // math.prod(self.sizes))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            margin = totals[rows].reshape(-1, *self.sizes).sum(axis=out)
            exact = contrasts(margin, first=1)
            q = node_scales(self, place, rows)
            seen[rows] = noisy("gaussian", exact.reshape(-1, columns), q)
        if known[0]:
            seen[0] = float(totals[0].sum())
        passes.estimates(self.tree.parent, self.tree.leaf, known, self.y, seen)
        return seen


def node_scales(mechanism: TreeMarginMechanism, place: int, rows: slice | Indices) -> Integers:
    """Return q of the contrasts of one block at some nodes: noise of scale 2⁵⁶/q.

    ``q² |h|² ≤ 4⁵⁶ y_v t_B`` holds exactly: all roundings on the way are together less than a part
    in 2⁴⁹, and q is made smaller by a part in 2⁴⁶ before it is rounded down.

    Parameters
    ----------
    mechanism : TreeMarginMechanism
        What is released.
    place : int
        The number of the block.
    rows : slice or array of int
        The nodes, breadth first.
    """
    B = int(mechanism.blocks[place])
    sides = tuple(mechanism.sizes[j] - 1 for j in members(B))
    along = np.sqrt(mechanism.t[place] / squared_lengths(sides)).ravel() * (1 - SPARE)
    inverse = np.sqrt(mechanism.y[rows])[:, None] * along
    return np.asarray(np.floor(np.ldexp(inverse, GRID_BITS)), dtype=np.int64)
