"""Equations modulo primes: which coefficients are zero is decided without rounding.

Coefficients are rational numbers (a double is one too), so whether a combination of them vanishes
is a question about integers.  Modulo a prime it has a cheap answer: a true zero is always zero, and
anything else is zero only if the prime divides it.  Two primes of 31 bits are drawn for every set
of equations from a hash of them, so a number of a thousand bits passes for zero with probability
below 10⁻¹².
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray

Integers = NDArray[np.int64]
PRIMES = 2
MOST_DRAWS = 64
# a double is an integer of this many bits times a power of two
MANTISSA = 53


class VanishesError(ArithmeticError):
    """Modulo this prime a number vanishes that does not: another prime has to be drawn."""


def draw_primes(seed: bytes) -> Iterable[int]:
    """Yield primes of 31 bits, the same for the same seed.

    Parameters
    ----------
    seed : bytes
        What the primes are to depend on.
    """
    generator = random.Random(hashlib.sha256(seed).digest())
    for _ in range(MOST_DRAWS):
        yield _random_prime(generator)


def residues_of_rationals(values: Sequence[Fraction], prime: int) -> Integers:
    """Return rational numbers modulo a prime.

    Parameters
    ----------
    values : sequence of Fraction
        The numbers.
    prime : int
        The prime.
    """
    known: dict[Fraction, int] = {}
    found = np.empty(len(values), dtype=np.int64)
    for place, value in enumerate(values):
        residue = known.get(value)
        if residue is None:
            if value.denominator % prime == 0:
                raise VanishesError
            inverse = 1 if value.denominator == 1 else pow(value.denominator, -1, prime)
            residue = known[value] = value.numerator * inverse % prime
        found[place] = residue
    return found


def residues_of_floats(values: FloatArray, prime: int) -> Integers:
    """Return doubles, which are exact numbers, modulo a prime.

    Parameters
    ----------
    values : array
        The numbers.
    prime : int
        The prime.
    """
    mantissa, exponent = np.frexp(values)
    integer = np.ldexp(mantissa, MANTISSA).astype(np.int64) % prime
    met, place = np.unique(exponent, return_inverse=True)
    powers = [pow(2, e - MANTISSA, prime) for e in met.tolist()]
    shift = np.array(powers, dtype=np.int64)[place].reshape(values.shape)
    return np.asarray(integer * shift % prime)


def inverses(values: Integers, prime: int) -> Integers:
    """Return the inverses of nonzero residues, by Fermat's theorem.

    Parameters
    ----------
    values : array of int
        Residues.
    prime : int
        The prime.
    """
    result, power, exponent = np.ones_like(values), values.copy(), prime - 2
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result


def reduce_dense(rows: Integers, pivots: IntArray, prime: int) -> Integers:
    """Return X of the row-equivalent form ``[I | X]`` modulo a prime.

    Parameters
    ----------
    rows : array of int, shape (q, n)
        Independent equations modulo the prime.
    pivots : array of int, shape (q,)
        The columns that become the identity.
    prime : int
        The prime.

    Returns
    -------
    array of int, shape (q, n)
        Row i has a one in column ``pivots[i]``.
    """
    left = rows.copy()
    for i, column in enumerate(pivots.tolist()):
        candidates = np.flatnonzero(left[i:, column])
        if len(candidates) == 0:
            raise VanishesError
        first = i + int(candidates[0])
        if first != i:
            left[[i, first]] = left[[first, i]]
        unit = pow(int(left[i, column]), -1, prime)
        left[i] = left[i] * unit % prime
        others = np.flatnonzero(left[:, column])
        others = others[others != i]
        if len(others):
            left[others] = (left[others] - left[others, column, None] * left[i]) % prime
    return left


def reduce_sparse(
    rows: Iterable[Mapping[int, int]], pivots: Sequence[int], prime: int
) -> dict[int, dict[int, int]]:
    """Return X of ``[I | X]`` modulo a prime for large sparse equations.

    Parameters
    ----------
    rows : iterable of mappings
        Independent equations: column to residue.
    pivots : sequence of int
        The columns that become the identity.
    prime : int
        The prime.

    Returns
    -------
    dict
        For every pivot the nonzero rest of its row.
    """
    table = [dict(row) for row in rows]
    columns: dict[int, set[int]] = {}
    for i, row in enumerate(table):
        for j in row:
            columns.setdefault(j, set()).add(i)
    owner: dict[int, int] = {}
    open_rows = set(range(len(table)))
    for pivot in sorted(pivots, key=lambda j: len(columns.get(j, ()))):
        candidates = columns.get(pivot, set()) & open_rows
        if not candidates:
            raise VanishesError
        i = min(candidates, key=lambda r: (len(table[r]), r))
        open_rows.discard(i)
        owner[pivot] = i
        unit = pow(table[i][pivot], -1, prime)
        row = table[i] = {j: value * unit % prime for j, value in table[i].items()}
        for other in columns[pivot] - {i}:
            target = table[other]
            factor = target[pivot]
            for j, value in row.items():
                after = (target.get(j, 0) - factor * value) % prime
                if after:
                    target[j] = after
                    columns[j].add(other)
                elif target.pop(j, None) is not None:
                    columns[j].discard(other)
    return {
        pivot: {j: value for j, value in table[i].items() if j != pivot}
        for pivot, i in owner.items()
    }


def _random_prime(generator: random.Random) -> int:
    while True:
        candidate = generator.randrange(2**30, 2**31) | 1
        # these bases decide for all numbers below 3·10⁹ (Jaeschke 1993)
        if all(_probably_prime(candidate, base) for base in (2, 3, 5, 7)):
            return candidate


def _probably_prime(candidate: int, base: int) -> bool:
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    power = pow(base, odd, candidate)
    if power in (1, candidate - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % candidate
        if power == candidate - 1:
            return True
    return False
