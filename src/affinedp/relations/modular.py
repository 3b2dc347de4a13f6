"""Linear algebra over whole numbers modulo a prime: fast, without growth, and without rounding.

What is found here is a conjecture; :mod:`affinedp.relations.check` verifies it in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Residues = NDArray[np.int64]

# Products of two residues fit into 64 bits.
PRIME = 2**31 - 1


def primes(count: int) -> Iterator[int]:
    """Yield the largest primes below 2^31, the largest first.

    Parameters
    ----------
    count : int
        How many.
    """
    yield from _primes(count)


@cache
def _primes(count: int) -> tuple[int, ...]:
    divisors = np.arange(3, isqrt(2**31) + 1, 2)
    found: list[int] = []
    candidate = PRIME
    while len(found) < count:
        if np.all(candidate % divisors):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def residues(whole: NDArray[np.generic], prime: int = PRIME) -> Residues:
    """Return whole numbers of any length modulo the prime.

    Parameters
    ----------
    whole : array of int64 or object
        The whole numbers.
    prime : int
        The modulus.
    """
    if whole.dtype == object:
        return np.array([int(x) % prime for x in whole.ravel()], dtype=np.int64).reshape(
            whole.shape
        )
    return np.asarray(np.mod(whole, prime), dtype=np.int64)


def reduced(
    matrix: Residues, order: Sequence[int] | NDArray[np.intp] | None = None, prime: int = PRIME
) -> tuple[Residues, list[int]]:
    """Return the reduced echelon form with unit pivots, and the pivot columns.

    Parameters
    ----------
    matrix : array, shape (m, n)
        Residues.
    order : sequence of int, optional
        Which columns are tried as pivots, the first first.
    prime : int
        The modulus.

    Examples
    --------
    >>> form, pivots = reduced(np.array([[2, 4, 6], [1, 1, 1]]))
    >>> pivots, (form[:, 2] - PRIME).tolist()
    ([0, 1], [-1, -2147483645])
    """
    work = np.array(matrix, dtype=np.int64)
    rows = work.shape[0]
    pivots: list[int] = []
    for column in range(work.shape[1]) if order is None else order:
        place = len(pivots)
        if place == rows:
            break
        candidates = np.flatnonzero(work[place:, column])
        if not len(candidates):
            continue
        chosen = place + int(candidates[0])
        if chosen != place:
            work[[place, chosen]] = work[[chosen, place]]
        # in natural order everything left of a pivot is zero already
        live = slice(column if order is None else 0, None)
        lead = work[place, live] * pow(int(work[place, column]), -1, prime) % prime
        work[place, live] = lead
        factors = prime - work[:, column]
        factors[place] = 0
        block = work[:, live]
        block += factors[:, None] * lead
        if prime == PRIME:
            _fold(block)
        else:
            block %= prime
        pivots.append(int(column))
    return work[: len(pivots)], pivots


def _fold(values: Residues) -> None:
    """Reduce numbers below 2^63 modulo 2^31 - 1 in place, without a division: 2^31 is 1."""
    for _ in range(2):
        high = values >> 31
        values &= PRIME
        values += high
    values -= (values >= PRIME) * np.int64(PRIME)


def product(left: Residues, right: Residues) -> Residues:
    """Return a matrix product modulo the first prime, in halves that do not overflow.

    Parameters
    ----------
    left, right : arrays
        Residues; the sum has at most 2^15 terms.

    Examples
    --------
    >>> product(np.array([PRIME - 1]), np.array([[5]])).tolist()
    [2147483642]
    """
    high, low = left >> 16, left & 0xFFFF
    return np.asarray(((high @ right % PRIME) * 65536 + low @ right) % PRIME)


def null_space(matrix: Residues, prime: int = PRIME) -> Residues:
    """Return a basis of the vectors that the rows of a matrix annihilate, one per row.

    Parameters
    ----------
    matrix : array, shape (m, n)
        Residues.
    prime : int
        The modulus.

    Examples
    --------
    >>> null_space(np.array([[1, 1, PRIME - 1]])).tolist()
    [[2147483646, 1, 0], [1, 0, 1]]
    """
    form, pivots = reduced(matrix, None, prime)
    n = matrix.shape[1]
    free = np.setdiff1d(np.arange(n), pivots)
    basis = np.zeros((len(free), n), dtype=np.int64)
    basis[np.arange(len(free)), free] = 1
    if pivots:
        basis[:, pivots] = (-form[:, free].T) % prime
    return basis


def rational(residue: int, modulus: int) -> Fraction | None:
    """Return the fraction of least size with this residue, or None if there is no clear one.

    Parameters
    ----------
    residue, modulus : int
        The residue, and a prime or a product of primes.

    Examples
    --------
    >>> rational(pow(3, -1, PRIME) * 2 % PRIME, PRIME)
    Fraction(2, 3)
    """
    bound = isqrt(modulus // 2)
    a, b, u, v = modulus, residue % modulus, 0, 1
    while b > bound:
        quotient = a // b
        a, b, u, v = b, a - quotient * b, v, u - quotient * v
    if v == 0 or abs(v) > bound:
        return None
    return Fraction(b, v)
