"""One matroid component of a manifold: entries that equations bind to each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.equations.elimination import balancing_units

if TYPE_CHECKING:
    import scipy.sparse as sparse


@dataclass(frozen=True)
class Component:
    """One matroid component, in local numbering.

    Attributes
    ----------
    entries : array of int
        The entries of x it is made of.
    equations : sparse matrix, CSC
        The columns of D for these entries.
    pivots, free : arrays of int
        Local positions of the basis and of the free entries.
    reduced : q×k matrix
        X of the row-equivalent form ``[I | X]``, sparse.
    """

    entries: IntArray
    equations: sparse.csc_array
    pivots: IntArray
    free: IntArray
    reduced: sparse.csr_array

    @property
    def rank(self) -> int:
        """Number of independent equations in the component."""
        return len(self.pivots)

    @property
    def dim(self) -> int:
        """Number of free entries."""
        return len(self.free)

    def kernel(self) -> FloatArray:
        """Dense kernel basis of the component, entries × free."""
        basis = np.zeros((len(self.entries), self.dim))
        basis[self.free] = np.eye(self.dim)
        basis[self.pivots] = -self.reduced.toarray()
        return basis

    def entry_units(self) -> FloatArray:
        """Powers of two that, multiplied with the entries, make circuits well balanced.

        ``x[pivots] = -X x[free]``: dividing every row and column of X by the geometric mean of its
        largest and smallest coefficient, again and again, removes the units of the entries.
        """
        units = np.ones(len(self.entries))
        if self.rank and self.dim:
            row, column = balancing_units(self.reduced)
            units[self.pivots], units[self.free] = row, 1 / column
        return units

    def restricted(self, keep: IntArray) -> Component:
        """The component without some entries that hang on a kept parallel entry."""
        position = np.full(len(self.entries), -1)
        position[keep] = np.arange(len(keep))
        free = position[self.free] >= 0
        return Component(
            self.entries[keep],
            self.equations[:, keep],
            position[self.pivots],
            position[self.free[free]],
            self.reduced[:, free],
        )


def parallel_columns(equations: sparse.csc_array) -> tuple[IntArray, FloatArray]:
    """Group the columns that are multiples of each other: group and factor of each column."""
    groups: dict[Any, int] = {}
    group = np.zeros(equations.shape[1], dtype=np.intp)
    factor = np.ones(equations.shape[1])
    pointers = equations.indptr.tolist()
    for j, (start, stop) in enumerate(pairwise(pointers)):
        values = equations.data[start:stop]
        if stop > start:
            factor[j] = values[np.argmax(np.abs(values))]
        # bit for bit: columns that are only nearly parallel are not
        key = (equations.indices[start:stop].tobytes(), (values / factor[j]).tobytes())
        group[j] = groups.setdefault(key, len(groups))
    return group, factor
