"""Whole noise on the cells of the leaves of a tree of tables, which are added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix
from affinedp.domains import tree_passes as passes
from affinedp.domains.totals import Indices
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.laplace import Geometric
from affinedp.laws.reach_whole import whole_reach
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.people import People
from affinedp.strategies.base import (
    Drawer,
    Largest,
    Prepared,
    Promised,
    largest_listed,
)
from affinedp.strategies.contrasts import contrasts
from affinedp.strategies.margin_tables import PlaceTables
from affinedp.strategies.places import OfPlaces


@dataclass(frozen=True, eq=False)
class LeafCells(OfPlaces):
    """Whole noise of one rate on the cells of the leaves, which are added up.

    Attributes
    ----------
    domain : Placed
        The places, and the table of all attributes.
    margins : tuple of tuples of int
        The margins that are published at every node.
    """

    kind = "leaf cells"

    @property
    def coordinates(self) -> int:
        """How many cells all leaves have."""
        return self.domain.size

    def measure(self, moves: Matrix, absolute: bool = False) -> Matrix:
        """Return differences as they are."""
        return moves

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return how many cells people change, times the rate."""
        known = type(adjacency) is People and adjacency.move in ("person", "replace")
        if not known or type(law) is not Geometric:
            return largest_listed(self, adjacency, law)
        assert isinstance(adjacency, People)
        upper = Fraction(law.rate) * adjacency.size * (2 if self.domain.fixed else 1)
        return Largest(
            upper, upper, True, "one cell, or two, in fractions",
            because=" for independent whole noise on cells; all numbers are computed from what is "
            "published",
        )  # fmt: skip

    def loadings(self, combinations: Matrix | None = None) -> Matrix:
        """Return how often combinations count the cells of leaves."""
        rows, tree = [], self.tree
        for combination in self._every(combinations):
            total = np.zeros((tree.n, *self.sizes))
            for A, part in self._split(combination):
                shape = [self.sizes[j] if A >> j & 1 else 1 for j in range(len(self.sizes))]
                total += tree.inside(part).reshape(tree.n, *shape)
            below = np.empty((self.domain.leaves, self.domain.crossed.size))
            for v in range(1, tree.n):
                total[v] += total[tree.parent[v]]
            below[self.ranks] = total.reshape(tree.n, -1)[tree.leaf]
            rows.append(below.ravel())
        return np.array(rows)

    def spread(self, drawn: FloatArray) -> FloatArray:
        """Return outputs of noise for simulation, one row per row of η."""
        shape = (self.domain.leaves, *self.sizes)
        rows = [self.flat(self.tables_of(self.added(row.reshape(shape)))) for row in drawn]
        return np.array(rows)

    def tables_of(self, seen: FloatArray, whole: bool = False) -> PlaceTables:
        """Return margins from the tables of all nodes, breadth first."""
        tables, found = seen.reshape(-1, *self.sizes), {}
        for B in self.blocks.tolist():
            margin = tables.sum(axis=self.outside_axes(B))
            found[B] = contrasts(margin, first=1).reshape(self.tree.n, -1)
        return self.tables(found, whole)

    @cached_property
    def leaves_below(self) -> Indices:
        """How many leaves are below every node, or are it, in the given order."""
        count = self.tree.leaf.astype(np.int64)[:, None].copy()
        passes.added_up(self.tree.parent, count)
        return np.asarray(self.tree.outside(count[:, 0]), dtype=np.int64)

    def cells_in(self, chosen: tuple[int, ...]) -> Indices:
        """Return how many cells of leaves every cell of a margin adds up, by node."""
        return self.leaves_below * math.prod(n for j, n in enumerate(self.sizes) if j not in chosen)

    def node_variances(self, law: Law, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of one margin at every node, in the given order."""
        return np.asarray(self.cells_in(chosen) * law.variance, dtype=float)

    def node_reaches(self, law: Law, chosen: tuple[int, ...], outside: float) -> FloatArray:
        """Return how far a cell of one margin is from the truth at every node."""
        terms, where = np.unique(self.cells_in(chosen), return_inverse=True)
        if type(law) is not Geometric:
            return law.reach_by_variance(self.node_variances(law, chosen), outside)
        scale = 1 / law.rate * (1 + 2.0**-52)
        each = [whole_reach(scale, int(one), outside) for one in terms]
        return np.asarray(each)[where]

    def scaled(self, factor: float) -> LeafCells:
        """Refuse: whole noise is made larger by its rate."""
        raise AffineDPError("whole noise has a rate in place of a scale")

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        if not law.whole or law.size is not None:
            raise AffineDPError(f"cells of leaves have geometric noise, not {law.words} noise")
        return LeafPlan(self, law, bound)


@dataclass(frozen=True, eq=False)
class LeafPlan(Prepared):
    """Releases of the cells of leaves with whole noise, added up.

    Attributes
    ----------
    strategy : LeafCells
        What is measured.
    law : Law
        Of the noise.
    bound : float or None
        A public bound on the number of people.
    """

    strategy: LeafCells
    law: Law
    bound: float | None = None
    factor: float = 1.0

    def steps(self, data: tuple[NDArray[Any]]) -> NDArray[Any]:
        """Return the cells of the leaves."""
        return data[0].astype(np.int64).reshape(-1, 1)

    def shared(self, data: tuple[NDArray[Any]]) -> FloatArray:
        """Return nothing."""
        return np.zeros(0)

    def draw(self, count: int, drawer: Drawer) -> NDArray[Any]:
        """Return whole noise."""
        return drawer.narrow(self.law, 1, (self.strategy.coordinates, count))

    def reconstruct(self, noisy: NDArray[Any], shared: FloatArray) -> PlaceTables:
        """Return the tables of all places, added up."""
        own = self.strategy
        given = noisy.astype(float).reshape(own.domain.leaves, *own.sizes)
        return own.tables_of(own.added(given), whole=True)
