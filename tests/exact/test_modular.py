"""Linear algebra modulo primes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from affinedp.exact.modular import PRIME, largest_primes, null_space, rational, reduced


def test_primes():
    found = largest_primes(5)
    assert found[0] == PRIME
    assert all(all(p % k for k in range(2, 2000)) for p in found)
    assert sorted(found, reverse=True) == list(found)


@given(st.fractions(max_denominator=10_000), st.sampled_from(largest_primes(3)))
def test_rational_reconstruction(value, prime):
    if max(abs(value.numerator), value.denominator) ** 2 * 2 < prime:
        residue = value.numerator * pow(value.denominator, -1, prime) % prime
        assert rational(residue, prime) == value


@given(st.integers(0, 2**32 - 1))
def test_null_space(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, PRIME, (4, 3)) @ rng.integers(0, 2, (3, 7)) % PRIME
    space = null_space(matrix)
    exact = [[int(x) for x in row] for row in matrix]
    for vector in space:
        for row in exact:
            assert sum(a * int(b) for a, b in zip(row, vector)) % PRIME == 0
    assert len(space) == 7 - len(reduced(matrix)[1])
