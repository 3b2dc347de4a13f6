"""Recognise equations that are flows in a network.

Equations in which every entry occurs at most twice can be the node balances of a graph:
one node per equation, one more for the outside, one edge per entry.  One tree of totals
(a total equals its parts, which are totals of their parts) is of this kind too.  The
circuits of such equations are the simple cycles of the graph, and every one of them has
entries ±1 up to the entries' own scales: the matrix is totally unimodular after scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.component import Component

if TYPE_CHECKING:
    import scipy.sparse as sparse

RELATIVE = 1e-12
SMALLEST = 1e-100


@dataclass(frozen=True)
class Network:
    """A graph whose node balances are the equations, up to scales.

    Attributes
    ----------
    tail, head : arrays of int
        The ends of each entry's edge; node ``nodes - 1`` is the outside.
    coefficient : array of float
        The entry's coefficient at its ends after the equations were scaled: a cycle v
        has ``v_i = ±1 / coefficient_i``.
    nodes : int
        Number of nodes, the outside included.
    """

    tail: IntArray
    head: IntArray
    coefficient: FloatArray
    nodes: int


def network_of(component: Component) -> Network | None:
    """Return the graph behind the equations of a component, or None; decided exactly.

    Floating point finds the graph.  That its cycles are the circuits is then a statement about the
    reduced form X, whose entries must be ``±c_j / c_i``: it is checked modulo primes.
    """
    network = recognise_network(component.equations)
    if network is None:
        return None
    signs = component.reduced.tocsr().copy()
    signs.eliminate_zeros()
    signs.sort_indices()
    signs.data = np.sign(signs.data).astype(np.int64)
    return network if all(_are_ratios(form, signs) for form in component.modular.pairs()) else None


def _are_ratios(form: tuple[int, sparse.csr_array], signs: sparse.csr_array) -> bool:
    """Whether X modulo a prime is ``sign_ij · c_j / c_i`` for some c."""
    prime, residues = form
    ratio = residues.data * signs.data % prime
    if np.all(ratio == 1):
        return True
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
