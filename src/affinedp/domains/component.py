"""One matroid component of a manifold: entries that equations bind to each other, and networks.

Equations in which every entry occurs at most twice can be the node balances of a graph:
one node per equation, one more for the outside, one edge per entry.  One tree of totals
(a total equals its parts, which are totals of their parts) is of this kind too.  The
circuits of such equations are the simple cycles of the graph, and every one of them has
entries ±1 up to the entries' own scales: the matrix is totally unimodular after scaling.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.exact.canonical import balancing_units
from affinedp.exact.modular import ModularForm, Residues, inverses

if TYPE_CHECKING:
    import scipy.sparse as sparse


@dataclass(frozen=True)
class Component:
    """One matroid component, in local numbering."""

    entries: IntArray  # the entries of x it is made of
    equations: sparse.csc_array  # the columns of D for these entries
    pivots: IntArray  # pivots, free: local positions of the basis and of the free entries
    free: IntArray
    reduced: sparse.csr_array  # X of the row-equivalent form ``[I | X]``, sparse
    modular: ModularForm  # X modulo primes, which says where it is zero
    error: float = EPS  # about how much of X is rounding

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
        return self._kernel_of(self.reduced.toarray())

    def _kernel_of(self, reduced: NDArray[Any]) -> NDArray[Any]:
        basis = np.zeros((len(self.entries), self.dim), dtype=reduced.dtype)
        basis[self.free] = np.eye(self.dim)
        basis[self.pivots] = -reduced
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
        return [(prime, self._kernel_of(form) % prime) for prime, form in self.modular.dense()]

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


# ---------------------------------------------------------------------- networks


RELATIVE = 1e-12
SMALLEST = 1e-100
# Terms that are looked at when equations are added up.
MOST_TERMS = 1e6


@dataclass(frozen=True)
class Network:
    """A graph whose node balances are the equations, up to scales."""

    tail: IntArray  # tail, head: the ends of each entry's edge; node ``nodes - 1`` is the outside
    head: IntArray
    # the entry's coefficient at its ends after the equations were scaled: a cycle v has ``v_i = ±1
    # / coefficient_i``
    coefficient: FloatArray
    nodes: int  # number of nodes, the outside included
    # whether all coefficients are of one size, so that a cycle is ±1; decided exactly
    even: bool = False

    @cached_property
    def side(self) -> IntArray:
        """The side of every node, 0 or 1: every edge goes from one to the other, or all are 0."""
        import scipy.sparse as sparse
        from scipy.sparse.csgraph import breadth_first_order

        links = (np.ones(len(self.tail)), (self.tail, self.head))
        graph = sparse.csr_array(links, shape=(self.nodes, self.nodes))
        order, before = breadth_first_order(graph, int(self.tail[0]), directed=False)
        side = np.zeros(self.nodes, dtype=np.intp)
        for node in order[1:].tolist():
            side[node] = 1 - side[before[node]]
        return side if np.all(side[self.tail] != side[self.head]) else np.zeros_like(side)

    @property
    def longest(self) -> int:
        """How many edges a cycle has at most: it meets no node twice, and the sides in turn."""
        across = int(self.side.sum())
        return 2 * min(across, self.nodes - across) if across else self.nodes


def network_of(component: Component) -> Network | None:
    """Return the graph behind the equations of a component, or None; decided exactly.

    Floating point finds the graph.  That its cycles are the circuits is then a statement about the
    reduced form X: its signs must be those of paths in the graph, and its entries ``±c_j / c_i``,
    which is checked modulo primes.  Only where they are, and the equations are no node balances as
    they are written, are these looked for by adding them up.
    """
    network = recognise_network(component.equations)
    signs = component.reduced.tocsr().copy()
    signs.eliminate_zeros()
    signs.sort_indices()
    signs.data = np.sign(signs.data).astype(np.int64)
    if network is not None and not _are_paths(component, network, signs):
        return None
    forms = component.modular.pairs()
    if any(residues.nnz != signs.nnz for _, residues in forms):  # a prime divides some entry
        return None
    ratios = [residues.data * signs.data % prime for prime, residues in forms]
    even = all(np.all(ratio == 1) for ratio in ratios)
    if not even and not all(_are_ratios(*form, ratio) for form, ratio in zip(forms, ratios)):
        return None
    if network is None:
        network = recognise_network(_sparser(component.equations))
        if network is None or not _are_paths(component, network, signs):
            return None
    return replace(network, even=even)


def _are_paths(component: Component, network: Network, signs: sparse.csr_array) -> bool:
    """Whether the signs of X are those of the paths between the ends of the free entries."""
    import scipy.sparse as sparse

    n, own = len(network.tail), np.sign(network.coefficient).astype(np.int64)
    ends = np.concatenate([network.tail, network.head])
    balances = sparse.csc_array(
        (np.concatenate([own, -own]), (ends, np.tile(np.arange(n), 2))), shape=(network.nodes, n)
    )
    off = balances[:, component.pivots] @ signs - balances[:, component.free]
    return not np.any(off.data)


def _sparser(equations: sparse.csc_array) -> sparse.csc_array:
    """Equations that say the same in fewer terms: a total of cells becomes one of subtotals."""
    import scipy.sparse as sparse

    by_row = equations.tocsr()
    rows = [
        dict(zip(by_row.indices[start:stop].tolist(), by_row.data[start:stop].tolist()))
        for start, stop in pairwise(by_row.indptr.tolist())
    ]
    columns = np.split(equations.indices, equations.indptr[1:-1])
    within = [set(column.tolist()) for column in columns]
    steps, changed = 0, True
    while changed:
        changed = False
        for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
            if steps > MOST_TERMS:
                break
            ratios: dict[int, Counter[float]] = {}
            for j, value in rows[i].items():
                for other in within[j] - {i}:
                    ratios.setdefault(other, Counter())[value / rows[other][j]] += 1
                steps += len(within[j])
            gain, other = max(
                ((max(of.values()) + of.total() - len(rows[k]), k) for k, of in ratios.items()),
                default=(0, 0),
            )
            if gain <= 0:
                continue
            changed, ratio = True, ratios[other].most_common(1)[0][0]
            for j, value in rows[other].items():
                left = rows[i].pop(j, 0.0) - ratio * value
                within[j].discard(i)
                if abs(left) > RELATIVE * abs(ratio * value):
                    rows[i][j] = left
                    within[j].add(i)
    places = [(i, j) for i, row in enumerate(rows) for j in row]
    values = [value for row in rows for value in row.values()]
    return sparse.csc_array((values, tuple(np.transpose(places))), shape=equations.shape)


def _are_ratios(prime: int, residues: sparse.csr_array, ratio: Residues) -> bool:
    """Whether X modulo a prime, times its signs, is ``c_j / c_i`` for some c."""
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import breadth_first_order

    q, k = residues.shape
    row = np.repeat(np.arange(q), np.diff(residues.indptr))
    places = sparse.csr_array(
        (np.arange(1, len(ratio) + 1), residues.indices, residues.indptr), shape=(q, k)
    )
    links = sparse.block_array([[None, places], [places.T, None]], format="csr")
    order, before = breadth_first_order(links, 0, directed=False)
    c = [0] * (q + k)
    c[0] = 1
    values = ratio.tolist()
    where = {(i, j): v for i, j, v in zip(row.tolist(), residues.indices.tolist(), values)}
    for node in order[1:].tolist():
        parent = int(before[node])
        if node >= q:  # c_j = ratio · c_i
            c[node] = where[parent, node - q] * c[parent] % prime
        else:
            c[node] = pow(where[node, parent - q], -1, prime) * c[parent] % prime
    scale = np.array(c, dtype=np.int64)
    return bool(np.all(ratio * scale[row] % prime == scale[q + residues.indices]))


def recognise_network(equations: sparse.csc_array) -> Network | None:
    """Return the graph behind ``equations`` (one column per entry), or None."""
    q, n = equations.shape
    count = np.diff(equations.indptr)
    if n == 0 or count.max() > 2 or count.min() == 0:
        return None
    start = equations.indptr[:-1]
    first, last = equations.indices[start], equations.indices[equations.indptr[1:] - 1]
    at_first, at_last = equations.data[start], equations.data[equations.indptr[1:] - 1]
    double = count == 2
    scale = _row_scales(q, first[double], last[double], at_first[double], at_last[double])
    if scale is None:
        return None
    tail, head = first.astype(np.intp), np.where(double, last, q).astype(np.intp)
    return Network(tail, head, scale[first] * at_first, q + 1)


def _row_scales(
    q: int, first: IntArray, last: IntArray, at_first: FloatArray, at_last: FloatArray
) -> FloatArray | None:
    """Factors for the equations that make every entry's two coefficients opposite."""
    neighbours: list[list[tuple[int, float]]] = [[] for _ in range(q)]
    for i, j, a, c in zip(first.tolist(), last.tolist(), at_first.tolist(), at_last.tolist()):
        neighbours[i].append((j, -a / c))
        neighbours[j].append((i, -c / a))
    scale = np.zeros(q)
    reached = np.zeros(q, dtype=bool)
    for root in range(q):
        if reached[root]:
            continue
        scale[root], reached[root] = 1.0, True
        queue = [root]
        while queue:
            i = queue.pop()
            for j, ratio in neighbours[i]:
                if not reached[j]:
                    scale[j], reached[j] = float(scale[i]) * ratio, True
                    queue.append(j)
    if not np.all((np.abs(scale) > SMALLEST) & (np.abs(scale) < 1 / SMALLEST)):
        return None  # out of the range of floating point
    mismatch = np.abs(scale[first] * at_first + scale[last] * at_last)
    if np.any(mismatch > RELATIVE * np.abs(scale[first] * at_first)):
        return None
    return scale
