"""Margins of several attributes, and the blocks that they consist of.

A margin A (a set of attributes, written as bits) is the sum of residuals of all B ⊆ A, each
centred in every attribute of B.  White noise of precision t_B on the residual of B, seen from the
cells, has the precision matrix ``Σ_B t_B ⊗_{j∈B} (I − J/n_j) ⊗_{j∉B} J``, J all ones; its entry
between two cells depends on the set T of attributes in which they differ:

    G(T) = Σ_B t_B Π_{j∈B} (−1/n_j if j ∈ T else 1 − 1/n_j).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.domains.crossed import Sets, members, subsets
from affinedp.errors import AffineDPError

MarginNeighbours = Literal["person", "replace", "swaps"]
# Blocks of fewer attributes than this are public under these neighbours.
LEAST = {"person": 0, "replace": 1, "swaps": 2}
MOST_ATTRIBUTES = {"person": 60, "replace": 20, "swaps": 17}
# Precisions are taken for whole multiples of this, rounded up.
UNIT_BITS = 120


def check_attributes(d: int, move: str) -> None:
    """Refuse more attributes than the worst pair of neighbours is looked for among."""
    if move not in LEAST:
        raise AffineDPError(f"neighbours must be one of {', '.join(LEAST)}, not {move!r}")
    if d > MOST_ATTRIBUTES[move]:
        raise AffineDPError(
            f"{d} attributes are too many for neighbours={move!r}: the worst pair is looked for "
            f"among all sets of up to {MOST_ATTRIBUTES[move]} attributes"
        )
    if move == "swaps" and d < 2:
        raise AffineDPError("people who swap values need at least two attributes")


def variance_shares(sizes: Sequence[int], margins: Sets, blocks: Sets) -> Any:
    """Return the sparse matrix S: a cell of margin A has the variance Σ_B S[A, B] / t_B.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    margins, blocks : arrays of int
        Sets of attributes.
    """
    import scipy.sparse as sparse

    place = {B: i for i, B in enumerate(blocks.tolist())}
    rows, columns, values = [], [], []
    for i, A in enumerate(margins.tolist()):
        for B in subsets(A):
            if B in place:
                share = 1.0
                for j in members(A):
                    n = sizes[j]
                    # residuals have Π (n − 1) dimensions, and are spread over the cells of A
                    share *= (n - 1) / n if B >> j & 1 else 1 / n**2
                rows.append(i)
                columns.append(place[B])
                values.append(share)
    shape = (len(margins), len(blocks))
    return sparse.csr_array((values, (rows, columns)), shape=shape)


def energies(
    sizes: Sequence[int], blocks: Sets, neighbours: str, types: Sequence[tuple[int, int]]
) -> FloatArray:
    """Return what one unit of t_B adds to the squared distance of neighbours, type by type.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    types : sequence of pairs
        The sets U and V in which neighbours differ; V is for swaps.
    """
    kind = list(LEAST).index(neighbours)
    inverse = 1 / np.array(sizes, float)
    found = np.empty((len(types), len(blocks)))
    for row, (U, V) in zip(found, types):
        _energies(kind, U, V, inverse, blocks, row)
    return found


@compiled
def _energies(kind, U, V, inverse, blocks, out):  # type: ignore[no-untyped-def]
    for i in range(len(blocks)):
        B = blocks[i]
        rest = 1.0
        same_u = 1.0
        other_u = 1.0
        same_v = 1.0
        other_v = 1.0
        for j in range(len(inverse)):
            if B >> j & 1:
                if kind > 0 and U >> j & 1:
                    same_u *= 1.0 - inverse[j]
                    other_u *= -inverse[j]
                elif kind == 2 and V >> j & 1:
                    same_v *= 1.0 - inverse[j]
                    other_v *= -inverse[j]
                else:
                    rest *= 1.0 - inverse[j]
        if kind == 0:
            out[i] = rest
        elif kind == 1:
            out[i] = 2.0 * rest * (same_u - other_u)
        else:
            out[i] = 4.0 * rest * (same_u - other_u) * (same_v - other_v)


@compiled
def entry_table(inverse, blocks, t):  # type: ignore[no-untyped-def]
    """Return G(T) for all sets T, by one butterfly for every attribute.

    Parameters
    ----------
    inverse : array
        1/n_j.
    blocks, t : arrays
        Sets of attributes and their precisions.
    """
    d = len(inverse)
    g = np.zeros(1 << d)
    for i in range(len(blocks)):
        g[blocks[i]] = t[i]
    for j in range(d):
        bit = 1 << j
        for m in range(1 << d):
            if not m & bit:
                a = g[m]
                c = g[m | bit]
                g[m] = a + (1.0 - inverse[j]) * c
                g[m | bit] = a - inverse[j] * c
    return g


@compiled
def worst_swap(d, g, threshold, out):  # type: ignore[no-untyped-def]
    """Return the largest G(∅) − G(U) − G(V) + G(U ∪ V) over disjoint U and V, and where it is.

    Parameters
    ----------
    d : int
        How many attributes there are.
    g : array
        The table G.
    threshold : float
        Pairs above it are written down.
    out : array, shape (k, 2)
        Where to, as far as they fit.
    """
    full = (1 << d) - 1
    best = -1e300
    best_u = 1
    best_v = 2
    found = 0
    for U in range(1, full):
        rest = full & ~U
        low = U & -U
        base = g[0] - g[U]
        V = rest
        while V:
            if low < (V & -V):
                value = base - g[V] + g[U | V]
                if value > best:
                    best = value
                    best_u = U
                    best_v = V
                if value > threshold and found < len(out):
                    out[found, 0] = U
                    out[found, 1] = V
                    found += 1
            V = (V - 1) & rest
    return best, best_u, best_v, found


def exact_square(sizes: Sequence[int], blocks: Sets, t: FloatArray, move: str) -> Fraction:
    """Return the squared sensitivity to one person: exact, but for swaps, where it is rounded up.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes.
    t : array
        Precisions.
    move : {"person", "replace", "swaps"}
        Who is a neighbour.
    """
    units = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in t.tolist()]
    if move == "person":
        total = Fraction(0)
        for B, value in zip(blocks.tolist(), units):
            up = math.prod(sizes[j] - 1 for j in members(B))
            total += Fraction(value * up, math.prod(sizes[j] for j in members(B)))
        return total / (1 << UNIT_BITS)
    check_attributes(len(sizes), move)
    g = _integer_table(sizes, blocks, units)
    scale = Fraction(1, math.prod(sizes) << UNIT_BITS)
    if move == "replace":
        return Fraction(2 * (int(g[0]) - min(map(int, g)))) * scale
    # the entries in doubles, each rounded once; a sum of four of them is off by less than the slack
    doubles = np.array([float(value * scale) for value in map(int, g)])
    best = worst_swap(len(sizes), doubles, np.inf, np.empty((1, 2), np.int64))[0]
    slack = Fraction(float(np.abs(doubles).max())) / (1 << 48)
    return 4 * (Fraction(float(best)) + slack)


def rounded_root(square: Fraction) -> Fraction:
    """Return a number whose square is not below, and barely above."""
    return Fraction(math.isqrt(math.ceil(square * (1 << 2 * UNIT_BITS))) + 1, 1 << UNIT_BITS)


def _integer_table(sizes: Sequence[int], blocks: Sets, units: list[int]) -> Any:
    """G(T) for all T, times the number of all cells: whole numbers, by butterflies."""
    d = len(sizes)
    g = np.zeros(1 << d, dtype=object)
    g[:] = 0
    g[blocks] = units
    for j, n in enumerate(sizes):
        pairs = g.reshape(-1, 2, 1 << j)
        without, has = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0] = n * without + (n - 1) * has
        pairs[:, 1] = n * without - has
    return g
