"""Decide zeros modulo primes, inside the compiled searches.

Residues modulo primes of 31 bits are carried beside the tableau in floating point.  Rows may be
multiplied by anything that is not zero, so elimination needs no inverses: a row becomes a
difference of two products, reduced by Montgomery's method, which leaves a factor 2⁻³² everywhere.

A number is zero if it is zero modulo every prime that is still ``live``.  A prime that vanishes
where another does not cannot serve as a pivot; it rests until the search has gone back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from affinedp.compiling import Compiled
from affinedp.exact.modular import Residues as Table

# residues below 2³¹; primes and their inverses in 64 bits; marks
Residues = NDArray[np.uint32]
Words = NDArray[np.uint64]
Marks = NDArray[np.bool_]
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
# a column is no combination of the chosen ones, of some of them only, or of all of them
INDEPENDENT, PARTLY, CLOSES = 0, 1, 2


def prime_words(primes: list[int]) -> Words:
    """Return every prime with what Montgomery's method needs: −1/p modulo 2³²."""
    return np.array([[p, -pow(p, -1, 2**32) % 2**32] for p in primes], dtype=np.uint64)


def first_shadow(depths: int, tables: list[Table]) -> Residues:
    """Return room for residues at every depth, with the given ones at depth 0."""
    shadow = np.zeros((depths, len(tables), *tables[0].shape), dtype=np.uint32)
    shadow[0] = tables
    return shadow


@Compiled
def _reduced(product: np.uint64, prime: np.uint64, inverse: np.uint64) -> np.uint64:
    """Montgomery's reduction of a sum of two products of residues."""
    reduced = (product + ((product * inverse) & LOW) * prime) >> HALF
    return reduced - prime if reduced >= prime else reduced


@Compiled
def project(
    shadow: Residues,
    t: int,
    j: int,
    left: int,
    primes: Words,
    live: Marks,
    nonzero: Marks,
) -> bool:
    """Project all members along member ``j``, and mark those that are not its multiples.

    ``shadow[t, s]`` has ``left`` coordinates as rows, the next depth gets one less.  False if no
    prime can tell.
    """
    members = nonzero.shape[0]
    nonzero[:] = False
    told = False
    for s in range(primes.shape[0]):
        live[t + 1, s] = False
        if not live[t, s]:
            continue
        pivot = -1
        for l in range(left):
            if shadow[t, s, l, j] != 0:
                pivot = l
                break
        if pivot < 0:
            continue
        live[t + 1, s] = True
        told = True
        prime, inverse = primes[s, 0], primes[s, 1]
        keep = np.uint64(shadow[t, s, pivot, j])
        to = 0
        for l in range(left):
            if l == pivot:
                continue
            take = prime - np.uint64(shadow[t, s, l, j])
            for i in range(members):
                product = np.uint64(shadow[t, s, l, i]) * keep
                product += np.uint64(shadow[t, s, pivot, i]) * take
                rest = np.uint32(_reduced(product, prime, inverse))
                shadow[t + 1, s, to, i] = rest
                nonzero[i] |= rest != 0
            to += 1
    return told


@Compiled
def relation(
    shadow: Residues, t: int, j: int, live: Marks, used: Marks, pivot_row: Residues
) -> int:
    """How column ``j`` relates to the t chosen ones: INDEPENDENT, PARTLY or CLOSES a circuit.

    ``shadow[t, s, j]`` is column j modulo prime s after t steps.
    """
    primes, q = shadow.shape[1], shadow.shape[3]
    if t < q:
        for s in range(primes):
            if live[t, s]:
                for i in range(q):
                    if shadow[t, s, j, i] != 0 and not used[t, s, i]:
                        return INDEPENDENT
    for c in range(t):
        zero = True
        for s in range(primes):
            if live[t, s] and shadow[t, s, j, pivot_row[c, s]] != 0:
                zero = False
                break
        if zero:
            return PARTLY
    return CLOSES


@Compiled
def eliminate(
    shadow: Residues,
    t: int,
    j: int,
    primes: Words,
    live: Marks,
    used: Marks,
    pivot_row: Residues,
    take: Words,
) -> bool:
    """Clear column ``j`` with an unused row in all columns after it.  False if no prime can."""
    n, q = shadow.shape[2], shadow.shape[3]
    told = False
    for s in range(primes.shape[0]):
        live[t + 1, s] = False
        if not live[t, s]:
            continue
        prime, inverse = primes[s, 0], primes[s, 1]
        now = shadow[t, s]
        below = shadow[t + 1, s]
        pivot = -1
        for i in range(q):
            used[t + 1, s, i] = used[t, s, i]
            take[i] = prime - np.uint64(now[j, i])
            if pivot < 0 and now[j, i] != 0 and not used[t, s, i]:
                pivot = i
        if pivot < 0:
            continue
        live[t + 1, s] = True
        told = True
        used[t + 1, s, pivot] = True
        pivot_row[t, s] = pivot
        keep = np.uint64(now[j, pivot])
        for l in range(j + 1, n):
            other = np.uint64(now[l, pivot])
            for i in range(q):
                product = np.uint64(now[l, i]) * keep + other * take[i]
                below[l, i] = np.uint32(_reduced(product, prime, inverse))
            below[l, pivot] = now[l, pivot]
    return told
