"""A tree of totals: every number is the sum of those below it; some are public."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.designs.structured import passes
from affinedp.errors import AffineDPError, IdentifiableEntriesError

Indices = NDArray[np.int64]
Marks = NDArray[np.bool_]
TreeNeighbours = Literal["person", "replace", "circuits"]
NEIGHBOURS = ("person", "replace", "circuits")
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes breadth first, children side by side, and which of them are public.

    Made by ``tree_of``.  Arrays that people give and get have the nodes in their own order;
    arrays in here have them breadth first.

    Attributes
    ----------
    parent : array of int
        The parent of every node, −1 for the root, which is node 0.
    order : array of int
        The place of every node in the order that was given.
    known : array of bool
        Nodes that are public, or that public totals determine.
    first, children : arrays of int
        Where the children of a node begin, and how many there are.
    """

    parent: Indices = field(repr=False)
    order: Indices = field(repr=False)
    known: Marks = field(repr=False)
    first: Indices = field(repr=False)
    children: Indices = field(repr=False)

    @property
    def n(self) -> int:
        """How many numbers there are."""
        return len(self.parent)

    @cached_property
    def leaf(self) -> Marks:
        """Which nodes are leaf cells."""
        return np.asarray(self.children == 0)

    @cached_property
    def depth(self) -> Indices:
        """How many totals stand above a node."""
        depth = (np.arange(self.n) > 0).astype(np.int64)
        passes.passed_down(self.parent, depth)
        return depth

    @property
    def arrays(self) -> tuple[Indices, Marks, Marks]:
        """What every pass takes: parents, leaf cells, known nodes."""
        return self.parent, self.leaf, self.known

    @cached_property
    def component(self) -> Indices:
        """Which class of cells a node belongs to: the known node above it, or the root."""
        top = np.where(self.known, np.arange(self.n), 0)
        for start, stop in self.level_slices[1:]:
            above = top[self.parent[start:stop]]
            top[start:stop] = np.where(self.known[start:stop], top[start:stop], above)
        return top

    @cached_property
    def level_slices(self) -> list[tuple[int, int]]:
        """The nodes of every level, which stand side by side."""
        ends = np.cumsum(np.bincount(self.depth))
        return list(zip([0, *ends[:-1].tolist()], ends.tolist()))

    def inside(self, values: ArrayLike) -> NDArray[np.generic]:
        """Return an array in the given order breadth first.

        Parameters
        ----------
        values : array
            One row per node, in the given order.
        """
        return np.asarray(values)[self.order]

    def outside(self, values: ArrayLike) -> NDArray[np.generic]:
        """Return an array that is breadth first in the given order.

        Parameters
        ----------
        values : array
            One row per node, breadth first.
        """
        inner = np.asarray(values)
        outer = np.empty_like(inner)
        outer[self.order] = inner
        return outer

    @cached_property
    def key(self) -> str:
        """A hash of the tree and of what is public in it."""
        digest = hashlib.sha256(self.parent.astype("<i8").tobytes())
        digest.update(self.order.astype("<i8").tobytes() + np.packbits(self.known).tobytes())
        return digest.hexdigest()


def tree_of(
    parent: ArrayLike,
    public: ArrayLike | None = None,
    neighbours: str = "person",
) -> Tree:
    """Return the tree, with everything marked that public totals determine.

    Parameters
    ----------
    parent : array of int
        The parent of every node; −1, or the node itself, for the one root.
    public : array of bool or of int, optional
        Which nodes are public: one mark per node, or their numbers.
    neighbours : {"person", "replace", "circuits"}
        With ``"replace"`` the number of people, which is the root, is public too.
    """
    if neighbours not in NEIGHBOURS:
        raise AffineDPError(f"neighbours must be one of {NEIGHBOURS}, not {neighbours!r}")
    above = _whole_numbers(parent, "parent")
    n = len(above)
    above = np.where(above == np.arange(n), -1, above)
    if n == 0 or above.max() >= n or above.min() < -1 or (above < 0).sum() != 1:
        raise AffineDPError(
            "parent must give one number per node, the node above it, and -1 for exactly one root"
        )
    kids = np.argsort(above, kind="stable")[1:]  # the root comes first
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(above[above >= 0], minlength=n), out=first[1:])
    order = passes.breadth_first(above, first, kids)
    if len(order) < n:
        raise AffineDPError(f"{n - len(order):,} nodes hang below each other in a circle")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    inner = np.where(above[order] < 0, -1, place[above[order]])
    children = np.bincount(inner[1:], minlength=n)
    known = _public_marks(public, n)[order]
    known[0] |= neighbours == "replace"
    passes.closed_known(inner, children == 0, known)
    starts = np.r_[1, 1 + np.cumsum(children)[:-1]]
    tree = Tree(inner, order, known, starts.astype(np.int64), children.astype(np.int64))
    _refuse_identifiable(tree, public)
    return tree


def _refuse_identifiable(tree: Tree, public: ArrayLike | None) -> None:
    """A cell that public totals determine, and that nobody declared public, cannot be protected."""
    declared = _public_marks(public, tree.n)[tree.order]
    hit = np.flatnonzero(tree.leaf & tree.known & ~declared)
    if len(hit):
        names = [f"node {i}" for i in np.sort(tree.order[hit])[:SHOWN]]
        more = f" and {len(hit) - SHOWN:,} more" if len(hit) > SHOWN else ""
        raise IdentifiableEntriesError(
            f"public totals determine {', '.join(names)}{more}: no noise can protect a cell that "
            "is alone under its public total. Declare it public too, or make the total private",
            names,
        )
    if tree.known.all():
        raise AffineDPError("every number is public: there is nothing to protect")


def _whole_numbers(values: ArrayLike, name: str) -> Indices:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise AffineDPError(f"{name} must be one list of whole numbers")
    return array.astype(np.int64)


def _public_marks(public: ArrayLike | None, n: int) -> Marks:
    marks = np.zeros(n, bool)
    if public is None:
        return marks
    given = np.asarray(public)
    if given.dtype == bool and given.shape == (n,):
        return given.copy()
    if given.size == 0:
        return marks
    if given.ndim != 1 or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n:
        raise AffineDPError("public must be one mark per node, or numbers of nodes")
    marks[given] = True
    return marks


def checked_weights(tree: Tree, weights: ArrayLike | None) -> FloatArray:
    """Return what squared error costs at every node, breadth first; nothing at known nodes.

    Parameters
    ----------
    tree : Tree
        The numbers.
    weights : array or None
        One per node in the given order; all 1 by default.
    """
    given = np.ones(tree.n) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != (tree.n,) or not np.isfinite(given).all() or given.min() < 0:
        raise AffineDPError(f"weights must be {tree.n:,} numbers, at least 0, one per node")
    cost = np.where(tree.known, 0.0, given[tree.order])
    if not cost.any():
        raise AffineDPError("all weights of private numbers are 0: there is nothing to minimise")
    return np.asarray(cost / cost.max())
