"""Check in modular arithmetic that the entries a circuit does not move are truly zero.

Circuits are searched in floating point, where a coefficient below 10⁻¹² counts as zero.  Weak
couplings multiply over the steps of a trajectory, so that a true coefficient may be that small.
Here every circuit's zeros are tested with the exact numbers modulo a prime: the kernel rows of its
zeros must have rank k − 1.  A true zero always passes; anything else is noticed unless the prime
divides it, and two primes are drawn from the problem itself.
"""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.control.trajectory.dynamics import Dynamics
from affinedp.errors import DoubtfulZeroError

Integers = NDArray[np.int64]
PRIMES = 2
CHUNK_NUMBERS = 4_000_000


class ZeroCheck:
    """Tests the zeros of circuits of the manifold of trajectories.

    Parameters
    ----------
    dynamics : Dynamics
        The system and its horizon.
    decimal : bool
        Whether a coefficient such as 0.1 is read as one tenth, as the manifold does where it is
        exact, or as the double that it is.
    """

    def __init__(self, dynamics: Dynamics, decimal: bool) -> None:
        generator = random.Random(dynamics.fingerprint)
        self._kernels = [_kernel(dynamics, decimal, generator) for _ in range(PRIMES)]
        self._generator = generator

    def check(self, directions: FloatArray) -> None:
        """Refuse directions with a zero that is none.

        Parameters
        ----------
        directions : array, shape (horizon · n, K)
            Circuits, one per column.
        """
        size = max(1, CHUNK_NUMBERS // len(directions))
        for start in range(0, directions.shape[1], size):
            fixed = (directions[:, start : start + size] == 0).T
            for kernel, prime in self._kernels:
                if not _truly_fixed(kernel, prime, fixed, self._generator):
                    raise DoubtfulZeroError(
                        "some coefficient of a neighbour direction is below 1e-12 of the others, "
                        "but not zero: floating point cannot tell who is a neighbour here. Leave "
                        "out couplings that weak, rescale, or use neighbours='time-local'",
                        1e-12,
                    )


def _kernel(dynamics: Dynamics, decimal: bool, generator: random.Random) -> tuple[Integers, int]:
    """The kernel rows modulo a prime, in random coordinates, and the prime."""
    n = dynamics.states
    prime = _random_prime(generator)
    mix = _random(generator, (n, n), prime)
    rows = np.empty((dynamics.horizon * n, n), dtype=np.int64)
    rows[:n] = mix
    constant = _modular(dynamics.A, prime, decimal) if dynamics.A.ndim == 2 else None
    for t in range(1, dynamics.horizon):
        factor = _modular(dynamics.A[t - 1], prime, decimal) if constant is None else constant
        rows[t * n : (t + 1) * n] = _product(factor, rows[(t - 1) * n : t * n], prime)
    return rows, prime


def _truly_fixed(
    kernel: Integers, prime: int, fixed: NDArray[np.bool_], generator: random.Random
) -> bool:
    """Whether one kernel vector vanishes at all fixed entries, for every row of ``fixed``."""
    entries, k = kernel.shape
    if k == 1:
        return not np.any(kernel[fixed.any(axis=0), 0])
    weights = _random(generator, (entries, k - 1), prime)
    # random combinations of the fixed rows: exact in doubles, being sums of 31-bit numbers
    products = (weights[:, :, None] * kernel[:, None, :]) % prime
    sums = fixed.astype(np.float64) @ products.reshape(entries, -1).astype(np.float64)
    combined = (sums.astype(np.int64) % prime).reshape(-1, k - 1, k)
    vectors = _null_vectors(combined, prime)
    moved = _product(vectors, np.ascontiguousarray(kernel.T), prime)
    return not np.any(moved[fixed])


def _null_vectors(matrices: Integers, prime: int) -> Integers:
    """Vectors that (k−1)×k matrices map to zero; the last entry is 1 in random coordinates."""
    count, rows, k = matrices.shape
    left = matrices.copy()
    for i in range(rows):
        left[:, i] = left[:, i] * _inverse(left[:, i, i], prime)[:, None] % prime
        for j in range(rows):
            if j != i:
                left[:, j] = (left[:, j] - left[:, j, i, None] * left[:, i]) % prime
    vectors = np.ones((count, k), dtype=np.int64)
    vectors[:, :rows] = -left[:, :, k - 1] % prime
    return vectors


def _inverse(values: Integers, prime: int) -> Integers:
    """Inverses by Fermat's theorem."""
    result, power, exponent = np.ones_like(values), values.copy(), prime - 2
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result


def _product(left: Integers, right: Integers, prime: int) -> Integers:
    """A product modulo the prime, by halves that doubles hold exactly."""
    exact = right.astype(np.float64)
    high = ((left >> 16).astype(np.float64) @ exact).astype(np.int64) % prime
    low = ((left & 0xFFFF).astype(np.float64) @ exact).astype(np.int64) % prime
    return np.asarray(((high << 16) + low) % prime)


def _modular(matrix: FloatArray, prime: int, decimal: bool) -> Integers:
    """Exact numbers modulo the prime."""
    found = np.empty(matrix.shape, dtype=np.int64)
    for place, value in np.ndenumerate(matrix):
        exact = Fraction(repr(float(value))) if decimal else Fraction(float(value))
        found[place] = exact.numerator * pow(exact.denominator, -1, prime) % prime
    return found


def _random(generator: random.Random, shape: tuple[int, int], prime: int) -> Integers:
    numbers = [generator.randrange(1, prime) for _ in range(shape[0] * shape[1])]
    return np.array(numbers, dtype=np.int64).reshape(shape)


def _random_prime(generator: random.Random) -> int:
    """A prime of 31 bits."""
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
