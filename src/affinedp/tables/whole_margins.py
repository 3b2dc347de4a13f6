"""Whole numbers for margins, in one place or at all nodes of a tree."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.totals import Totals
from affinedp.strategies.margins import OfMargins
from affinedp.strategies.product import OfPlaces, Product
from affinedp.tables.whole_tables import whole_tables


def whole_margin(
    strategy: OfMargins | OfPlaces, estimates: FloatArray, nonnegative: bool
) -> IntArray:
    """Return whole numbers near the estimates of one margin, which add up over places.

    Parameters
    ----------
    strategy : OfMargins or OfPlaces
        What was measured.
    estimates : array, shape (nodes, cells)
        In the given order; one row if there are no places.
    nonnegative : bool
        Whether nothing below 0 is published; cells are then no longer unbiased.
    """
    if isinstance(strategy, OfMargins):
        tree, y = Totals.of([-1]), np.ones(1)
    else:
        tree = strategy.tree
        y = strategy.y if isinstance(strategy, Product) else tree.leaf.astype(float)
    found = whole_tables(tree, y, np.asarray(tree.inside(estimates), dtype=float), nonnegative)
    return np.asarray(tree.outside(found), dtype=np.int64)
