"""Margins of several attributes, and the blocks that they consist of.

A margin A (a set of attributes, written as bits) is the sum of residuals of all B ⊆ A, each
centred in every attribute of B.  White noise of precision t_B on the residual of B, seen from the
cells, has the precision matrix ``Σ_B t_B ⊗_{j∈B} (I − J/n_j) ⊗_{j∉B} J``, J all ones; its entry
between two cells depends on the set T of attributes in which they differ:

    G(T) = Σ_B t_B Π_{j∈B} (−1/n_j if j ∈ T else 1 − 1/n_j).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.compiling import compiled
from affinedp.errors import AffineDPError

Sets = NDArray[np.int64]
MarginNeighbours = Literal["person", "replace", "swaps"]
# Attributes with fewer in a block than this are public under these neighbours.
LEAST = {"person": 0, "replace": 1, "swaps": 2}
MOST_ATTRIBUTES = {"person": 60, "replace": 20, "swaps": 17}
MOST_BLOCKS = 200_000


def checked_sizes(sizes: Sequence[int], neighbours: str) -> tuple[int, ...]:
    """Return how many values every attribute has.

    Parameters
    ----------
    sizes : sequence of int
        Each at least 2.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    """
    if neighbours not in LEAST:
        raise AffineDPError(f"neighbours must be one of {', '.join(LEAST)}, not {neighbours!r}")
    try:
        found = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise AffineDPError("sizes must be whole numbers, one per attribute") from None
    if not found or min(found) < 2:
        raise AffineDPError(
            "every attribute needs at least 2 values; leave out those that have only one"
        )
    if len(found) > MOST_ATTRIBUTES[neighbours]:
        raise AffineDPError(
            f"{len(found)} attributes are too many for neighbours={neighbours!r}: the worst pair "
            f"is looked for among all sets of up to {MOST_ATTRIBUTES[neighbours]} attributes"
        )
    if neighbours == "swaps" and len(found) < 2:
        raise AffineDPError("people who swap values need at least two attributes")
    return found


def margin_sets(d: int, margins: str | int | Iterable[Iterable[int]]) -> Sets:
    """Return margins as sets of bits.

    Parameters
    ----------
    d : int
        How many attributes there are.
    margins : str, int or iterable
        ``"<=3"`` for all of up to three attributes, ``3`` for all of exactly three, or tuples
        of attributes.

    Examples
    --------
    >>> margin_sets(3, "<=1").tolist(), margin_sets(3, [(0, 2)]).tolist()
    ([0, 1, 2, 4], [5])
    """
    if isinstance(margins, str):
        text = margins.replace(" ", "")
        if not (text.startswith("<=") and text[2:].isdigit()):
            raise AffineDPError(f"margins must be such as '<=3', not {margins!r}")
        ways: range = range(0, min(int(text[2:]), d) + 1)
    elif isinstance(margins, int | np.integer):
        ways = range(int(margins), int(margins) + 1)
    else:
        sets = set()
        for attributes in margins:
            chosen = [operator.index(j) for j in attributes]
            if len(set(chosen)) < len(chosen) or not all(0 <= j < d for j in chosen):
                raise AffineDPError(f"a margin must name attributes 0 to {d - 1} once: {chosen}")
            sets.add(sum(1 << j for j in chosen))
        if not sets:
            raise AffineDPError("there are no margins")
        return np.array(sorted(sets, key=lambda one: (one.bit_count(), one)), np.int64)
    if not 0 <= ways.start < ways.stop <= d + 1:
        raise AffineDPError(f"margins of {margins} attributes cannot be formed from {d}")
    if sum(math.comb(d, k) for k in ways) > MOST_BLOCKS:
        raise AffineDPError(f"more than {MOST_BLOCKS:,} margins; name those that are wanted")
    found = [
        sum(1 << j for j in chosen) for k in ways for chosen in itertools.combinations(range(d), k)
    ]
    return np.array(sorted(found, key=lambda one: (one.bit_count(), one)), np.int64)


def subsets(A: int) -> Iterable[int]:
    """Return all subsets of a set of bits.

    Parameters
    ----------
    A : int
        The set.
    """
    B = A
    while True:
        yield B
        if B == 0:
            return
        B = (B - 1) & A


def members(A: int) -> tuple[int, ...]:
    """Return the attributes of a set of bits.

    Parameters
    ----------
    A : int
        The set.
    """
    return tuple(j for j in range(A.bit_length()) if A >> j & 1)


def cells_of(sizes: Sequence[int], A: int) -> int:
    """Return how many cells a margin has.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    A : int
        The margin.
    """
    return math.prod(sizes[j] for j in members(A))


def blocks_of(margins: Sets, neighbours: str) -> Sets:
    """Return the blocks of these margins that carry noise.

    Parameters
    ----------
    margins : array of int
        The margins.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    """
    found = {B for A in margins.tolist() for B in subsets(A)}
    if len(found) > MOST_BLOCKS:
        raise AffineDPError(f"these margins have {len(found):,} blocks; at most {MOST_BLOCKS:,}")
    least = LEAST[neighbours]
    kept = [B for B in found if B.bit_count() >= least]
    if not kept:
        raise AffineDPError("all of these margins are public: there is nothing to protect")
    return np.array(sorted(kept, key=lambda one: (one.bit_count(), one)), np.int64)


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
