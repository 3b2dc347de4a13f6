"""One matroid component of a manifold: entries that equations bind to each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.exact.canonical import EPS, balancing_units
from affinedp.exact.modular import ModularForm, Residues, inverses

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
    modular : ModularForm
        X modulo primes, which says where it is zero.
    error : float
        About how much of X is rounding.
    """

    entries: IntArray
    equations: sparse.csc_array
    pivots: IntArray
    free: IntArray
    reduced: sparse.csr_array
    modular: ModularForm
    error: float = EPS

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
            self.modular.part(np.arange(self.rank), np.flatnonzero(free)),
            self.error,
        )

    def modular_kernel(self) -> list[tuple[int, Residues]]:
        """Every prime with the kernel basis modulo it, entries × free."""
        found = []
        for prime, reduced in self.modular.dense():
            basis = np.zeros((len(self.entries), self.dim), dtype=np.int64)
            basis[self.free] = np.eye(self.dim, dtype=np.int64)
            basis[self.pivots] = -reduced % prime
            found.append((prime, basis))
        return found

    def modular_equations(self) -> list[tuple[int, Residues]]:
        """Every prime with ``[I | X]`` modulo it, in the order of the entries."""
        found = []
        for prime, reduced in self.modular.dense():
            rows = np.zeros((self.rank, len(self.entries)), dtype=np.int64)
            rows[:, self.pivots] = np.eye(self.rank, dtype=np.int64)
            rows[:, self.free] = reduced
            found.append((prime, rows))
        return found


def parallel_columns(component: Component) -> tuple[IntArray, FloatArray]:
    """Group the columns that are multiples of each other: group and factor of each column.

    Whether they are is decided modulo the primes; the factor is the first coefficient.
    """
    n = len(component.entries)
    keys: list[list[bytes]] = [[] for _ in range(n)]
    for prime, residues in zip(component.modular.primes, component.modular.residues):
        columns = residues.tocsc()
        columns.sort_indices()
        starts = columns.indptr[:-1]  # every free entry follows from some pivot
        unit = np.repeat(inverses(columns.data[starts], prime), np.diff(columns.indptr))
        scaled = columns.data * unit % prime
        for j, (start, stop) in enumerate(pairwise(columns.indptr.tolist())):
            place = columns.indices[start:stop].tobytes() + scaled[start:stop].tobytes()
            keys[int(component.free[j])].append(place)
        single = np.ones(1, dtype=scaled.dtype).tobytes()
        for i, pivot in enumerate(component.pivots.tolist()):
            keys[pivot].append(np.array([i], dtype=columns.indices.dtype).tobytes() + single)
    groups: dict[tuple[bytes, ...], int] = {}
    group = np.array([groups.setdefault(tuple(key), len(groups)) for key in keys], dtype=np.intp)
    factor = np.asarray(component.equations.data[component.equations.indptr[:-1]], dtype=float)
    return group, factor
