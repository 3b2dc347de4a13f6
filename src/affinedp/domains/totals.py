"""A tree of totals: every number is the sum of those below it; some are public."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray
from affinedp.domains import tree_passes as passes
from affinedp.domains.base import Cells, Counts, Numbered
from affinedp.domains.reading import Wrap
from affinedp.errors import AffineDPError, IdentifiableEntriesError
from affinedp.exact.numbers import real_array, whole_array
from affinedp.parts import frozen

Indices = NDArray[np.int64]
Marks = NDArray[np.bool_]
TreeNeighbours = Literal["person", "replace", "circuits"]
NEIGHBOURS = ("person", "replace", "circuits")
SHOWN = 5
# Numbers of a matrix with one column per cell.
MOST_NUMBERS = 1e8


@dataclass(frozen=True, eq=False)
class Totals(Counts):
    """Counts of people in the leaf cells of a tree, and all totals of them.

    Arrays that people give and get have the nodes in their own order.  The arrays ``parent``,
    ``known``, ``first`` and ``children``, and all that is computed from them, have the nodes
    breadth first, with children side by side.

    Attributes
    ----------
    above : array of int
        The node above every node, −1 for the root, in the given order.
    public : array of bool, or None
        Which nodes are public, in the given order.
    labels : tuple of str
        Names of the nodes in the given order; they are numbered if left out.
    order : array of int
        The place of every node in the order that was given.
    parent : array of int
        The parent of every node, −1 for the root, which is node 0.
    known : array of bool
        Nodes that are public, or that public totals determine.
    first, children : arrays of int
        Where the children of a node begin, and how many there are.
    """

    kind = "totals"
    table = "the table"
    follows = "; all totals above it follow"
    above: Any = field(repr=False)
    public: Any = field(default=None, repr=False)
    labels: tuple[str, ...] = field(default=(), repr=False)
    order: Indices = field(init=False, repr=False)
    parent: Indices = field(init=False, repr=False)
    known: Marks = field(init=False, repr=False)
    first: Indices = field(init=False, repr=False)
    children: Indices = field(init=False, repr=False)

    def __post_init__(self) -> None:
        above = _whole_numbers(self.above, "parent")
        n = len(above)
        if n == 0 or above.max() >= n or above.min() < -1 or (above < 0).sum() != 1:
            raise AffineDPError(
                "parent must give one number per node, the node above it, and -1 for exactly one "
                "root"
            )
        declared = _public_marks(self.public, n)
        if self.labels and len(self.labels) != n:
            raise AffineDPError(f"there are {len(self.labels)} names for {n} nodes")
        order, parent, first, children = _breadth_first(above)
        known = declared[order]
        passes.closed_known(parent, children == 0, known)
        self._set(
            above=above, public=declared if declared.any() else None, order=order, parent=parent,
            known=known, first=first, children=children,
        )  # fmt: skip
        _refuse_identifiable(self, declared[order])

    def __repr__(self) -> str:
        return f"Totals(nodes={len(self.above)}, public={int(self.known.sum())})"

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, None if value is None else frozen(value))

    @classmethod
    def of(
        cls,
        parent: ArrayLike,
        public: ArrayLike | None = None,
        neighbours: str = "person",
        names: tuple[str, ...] | None = None,
    ) -> Totals:
        """Return the tree whose root is public if people only move.

        Parameters
        ----------
        parent : array of int
            The parent of every node; −1 for the one root.
        public : array of bool or of int, optional
            Which nodes are public: one mark per node, or their numbers.
        neighbours : {"person", "replace", "circuits"}
            With ``"replace"`` the number of people, which is the root, is public too.
        names : tuple of str, optional
            Of the nodes.
        """
        if neighbours not in NEIGHBOURS:
            raise AffineDPError(f"adjacency must be one of {NEIGHBOURS}, not {neighbours!r}")
        found = cls(parent, public, tuple(names or ()))
        if neighbours != "replace" or found.known[0]:
            return found
        marks = _public_marks(found.public, found.n)
        marks[found.order[0]] = True
        return cls(parent, marks, found.labels)

    @property
    def names(self) -> Any:  # type: ignore[override]
        """One name per node, in the given order."""
        return self.labels or Numbered("node", self.n)

    @property
    def words(self) -> str:
        """What data is, in a few words."""
        return f"a tree of {self.n:,} numbers"

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

    def inside(self, values: ArrayLike) -> NDArray[Any]:
        """Return an array in the given order breadth first.

        Parameters
        ----------
        values : array
            One row per node.
        """
        return np.asarray(values)[self.order]

    def outside(self, values: ArrayLike) -> NDArray[Any]:
        """Return an array that is breadth first in the given order.

        Parameters
        ----------
        values : array
            One row per node.
        """
        inner = np.asarray(values)
        outer = np.empty_like(inner)
        outer[self.order] = inner
        return outer

    def add_up(self, totals: NDArray[Any]) -> NDArray[Any]:
        """Return numbers of the cells with all totals of them, breadth first, in place.

        Parameters
        ----------
        totals : array, shape (n, columns)
            Of 64 bits, which must be enough, or of Python's integers; 0 where there is a total.
        """
        if totals.dtype.kind != "O":
            passes.added_up(self.parent, totals)
            return totals
        for start, stop in reversed(self.level_slices[1:]):
            np.add.at(totals, self.parent[start:stop], totals[start:stop])
        return totals

    @cached_property
    def leaves_below(self) -> Indices:
        """How many leaves are below every node, or are it, in the given order."""
        return self.outside(self.add_up(self.leaf.astype(np.int64)[:, None])[:, 0])

    # -------------------------------------------------------------- about people

    @property
    def fixed_people(self) -> bool:
        """Whether the number of people is public."""
        return bool(self.known[0])

    @property
    def public_words(self) -> str:
        """Which totals are public besides the number of people."""
        public = int(self.known.sum()) - int(self.known[0])
        if not public:
            return ""
        return (
            f"; {public:,} numbers are public, and below a public total people only move between "
            "the cells under it (exchanges between two public totals are not covered)"
        )

    def cells(self, limit: int) -> Cells:
        """Return the private leaf cells: a person counts in a cell and in all totals above it.

        Parameters
        ----------
        limit : int
            Refuse more than so many.
        """
        import scipy.sparse as sparse

        cells = np.flatnonzero(self.leaf & ~self.known)
        if len(cells) > limit:
            raise AffineDPError(f"{len(cells):,} cells are not listed, but {limit:,} at most")
        rows, columns = [], []
        at, place = cells, np.arange(len(cells))
        while len(at):
            rows.append(self.order[at])
            columns.append(place)
            above = self.parent[at]
            at, place = above[above >= 0], place[above >= 0]
        where = np.concatenate(rows), np.concatenate(columns)
        ones = np.ones(len(where[0]))
        top = self.component[cells]
        return Cells(
            sparse.csc_array((ones, where), shape=(self.n, len(cells))), top, ~self.known[top]
        )

    # -------------------------------------------------------------- data

    def read(self, x: Any) -> tuple[NDArray[Any], Wrap]:
        """Return all numbers, added up from the leaf cells; totals are not read.

        No count is compared with a range, clamped or refused: that would tell neighbours apart.
        64 bits are taken where they are enough for every number of the type, and Python's integers
        elsewhere.

        Parameters
        ----------
        x : array of int, shape (n,) or (rows, n)
            One whole number per node, in the given order.
        """
        given = whole_array(x, "counts")
        if given.ndim not in (1, 2) or given.shape[-1] != self.n:
            raise AffineDPError(f"counts must be {self.n:,} whole numbers, one per node")
        rows = np.atleast_2d(given)
        cells = self.order[self.leaf]
        narrow = given.dtype.kind != "O" and given.dtype.itemsize <= 4 and self.n < 2**31
        totals = np.zeros((self.n, len(rows)), np.int64 if narrow else object)
        totals[self.leaf] = rows[:, cells].T
        single = given.ndim == 1
        return self.outside(self.add_up(totals)).T, lambda y, names: y[0] if single else y


def checked_weights(tree: Totals, weights: ArrayLike | None) -> FloatArray:
    """Return what squared error costs at every node, breadth first; nothing at known nodes."""
    given = np.ones(tree.n) if weights is None else real_array(weights, "weights")
    if given.shape != (tree.n,) or given.min() < 0:
        raise AffineDPError(f"weights must be {tree.n:,} numbers, at least 0, one per node")
    cost = np.where(tree.known, 0.0, given[tree.order])
    if not cost.any():
        raise AffineDPError("all weights of private numbers are 0: there is nothing to minimise")
    return np.asarray(cost / cost.max())


def _breadth_first(above: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """Order, parents, first children and how many, of a tree with one root."""
    n = len(above)
    kids = np.argsort(above, kind="stable")[1:]  # the root comes first
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(above[above >= 0], minlength=n), out=starts[1:])
    order = passes.breadth_first(above, starts, kids)
    if len(order) < n:
        raise AffineDPError(f"{n - len(order):,} nodes hang below each other in a circle")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    parent = np.where(above[order] < 0, -1, place[above[order]])
    children = np.bincount(parent[1:], minlength=n).astype(np.int64)
    first = np.r_[1, 1 + np.cumsum(children)[:-1]].astype(np.int64)
    return order, parent, first, children


def _refuse_identifiable(tree: Totals, declared: Marks) -> None:
    """A cell that public totals determine, and that nobody declared public, cannot be protected."""
    hit = np.flatnonzero(tree.leaf & tree.known & ~declared)
    if len(hit):
        names = [tree.names[int(i)] for i in np.sort(tree.order[hit])[:SHOWN]]
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
