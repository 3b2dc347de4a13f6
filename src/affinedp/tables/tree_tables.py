"""Tables that are one tree of totals: designed and released in time that grows with their size.

Large hierarchies, and those whose numbers are to be at least 0, are handed to
:mod:`affinedp.designs.tree`.  They hold counts of people, which are whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.tree import tree_noise
from affinedp.domains.totals import Totals
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.strategies.base import MOST_LOADINGS
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.people import is_tree, sum_of
from affinedp.tables.refusals import TableError

# Numbers up to which a hierarchy is designed move by move, for any numbers.
FEW = 150
# Where a person counts for more than 1, numbers may be decimals; beyond this size they are whole.
MANY = 1000
# Simulated numbers for intervals of Laplace noise, and releases: at least, and at most.
MOST_SIMULATED = 4e7
ENOUGH_SIMULATED = 4e6
RELEASES = 399, 20_000
# How probable it is that a simulated half width is too small.
DOUBT = 1e-4


def tree_parents(description: TableDescription, layout: Layout) -> IntArray | None:
    """Return the parent of every number, −1 at the top, if the table goes the way of trees.

    Only public things decide: the equations, the size, and what was asked for.

    Parameters
    ----------
    description : TableDescription
        What was asked for.
    layout : Layout
        The equations.
    """
    if layout.row_names is None or description.neighbours == "swaps" or description.cells:
        return None
    if amount(description) is None or not description.epsilon:
        return None
    if amount(description) != 1 and len(layout.private) <= MANY:
        return None  # numbers may be decimals
    if description.round_to not in (None, 1):
        return None
    if len(layout.private) <= FEW and not description.nonnegative:
        return None
    return parents_of(layout)


def amount(description: TableDescription) -> int | None:
    """Return what a person counts for at most, if that is one whole number.

    A person who brings or moves up to μ is like μ people who do the same.

    Parameters
    ----------
    description : TableDescription
        What was asked for.
    """
    if isinstance(description.mu, Mapping):
        return None
    size = float(description.mu)
    return int(size) if size >= 1 and size == int(size) else None


def parents_of(layout: Layout) -> IntArray | None:
    """Return the parent of every number, −1 at the top; None if it is not one tree of totals.

    Parameters
    ----------
    layout : Layout
        The equations.
    """
    sums = []
    private = frozenset(layout.private.tolist())
    for place, relation in enumerate(layout.relations):
        one = sum_of(relation, place, private)
        if one is None or one[0] < 0 or relation.offset:
            return None
        sums.append(one)
    if layout.sums or not is_tree(sums):
        return None
    parent = np.full(layout.cells, -1, dtype=np.int64)
    for total, parts in sums:
        parent[list(parts)] = total
    return parent if int((parent < 0).sum()) == 1 else None


def people_of(description: TableDescription, layout: Layout, parent: IntArray) -> People:
    """Return the people whom a promise about a tree of totals is about.

    Parameters
    ----------
    description : TableDescription
        What was asked for.
    layout : Layout
        The entries.
    parent : array of int
        From :func:`parents_of`.
    """
    move: Any = description.neighbours
    public = ~layout.is_private
    names = tuple(layout.name(entry) for entry in range(len(parent)))
    tree = Totals.of(parent, public if public.any() else None, move, names)
    at_most = description.at_most
    return People(tree, move, description.household, at_most, amount(description) or 1)


def design_tree_table(
    description: TableDescription, layout: Layout, parent: IntArray, weights: FloatArray | None
) -> Mechanism:
    """Return the noise of a table that is one tree of totals.

    Parameters
    ----------
    description : TableDescription
        What was asked for.
    layout : Layout
        The entries.
    parent : array of int
        From :func:`tree_parents`.
    weights : array or None
        What squared error costs, one per private entry.
    """
    cost = np.zeros(len(parent))
    cost[layout.private] = 1.0 if weights is None else weights
    return tree_noise(
        people_of(description, layout, parent), epsilon=description.epsilon,
        delta=description.delta, weights=cost, law=description.law or "auto",
        releases=description.releases,
    )  # fmt: skip


def tree_reach(mechanism: Mechanism, level: float) -> FloatArray:
    """Return half widths that hold for every number by itself with at least this probability.

    Of Laplace noise on many numbers a rank of simulated errors is taken that is too small with a
    probability of 1e-4 at most, and a tail bound where that many numbers cannot be simulated.

    Parameters
    ----------
    mechanism : Mechanism
        Noise on a tree of totals.
    level : float
        Such as 0.95.
    """
    numbers = len(mechanism.output_names)
    width = np.asarray(mechanism.interval(np.zeros(numbers), level=level).high, dtype=float)
    least, most = RELEASES
    releases = max(least, min(most, int(ENOUGH_SIMULATED / numbers)), math.ceil(20 / (1 - level)))
    known = mechanism.law != "laplace" or numbers**2 <= MOST_LOADINGS
    if known or releases * float(numbers) > MOST_SIMULATED:
        return width
    # the k-th smallest of n errors covers at least the level if at most k − 1 of n are within it
    rank = int(stats.binom.ppf(1 - DOUBT, releases, level)) + 1
    if rank > releases:
        return width
    errors = np.abs(mechanism.sample(releases, seed=0))
    simulated = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return np.asarray(np.minimum(width, simulated))


def tree_counts(layout: Layout, points: FloatArray) -> Any:
    """Return the numbers of the table as whole numbers, or refuse decimals by name.

    Parameters
    ----------
    layout : Layout
        The entries.
    points : array, shape (1, entries)
        As read.
    """
    values = points[0]
    decimal = np.flatnonzero(values != np.rint(values))
    if len(decimal):
        name = layout.name(int(decimal[0]))
        raise TableError(
            f"{name!r} is no whole number, but this table counts people (a hierarchy of more than "
            f"{FEW} numbers, or nonnegative=True). Count in smaller units, such as cents",
            "",
            name,
        )
    return values.astype(np.int64)
