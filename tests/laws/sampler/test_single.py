"""One number at a time: what the arrays accept is accepted here, from the same words."""

import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from affinedp.laws.sampler.noise import SingleNoise, Thresholds, accepted
from affinedp.laws.sampler.words import Random, hashed_bytes

SCALES = [2**56 + 12345, 3, 1, Fraction(1, 3), 2**31, 2**32 + 1, 2**90]


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_as_in_bulk(law, scale):
    one = SingleNoise(law, scale)
    size = one._row.size // 4
    words = np.random.default_rng(1).integers(0, 2**32, (4000, size), np.uint64).astype(np.uint32)
    zeros = lambda count: bytes(count)  # noqa: E731
    wanted = accepted(one._law, Thresholds.of(one._law), words, Random(zeros)).tolist()
    found = [one._proposal(tuple(row), zeros) for row in words.tolist()]
    assert [number for number in found if number is not None] == wanted


def test_the_law():
    one = SingleNoise("gaussian", 2**56)
    drawn = [one.draw(hashed_bytes(os.urandom(32))) / 2**56 for _ in range(2000)]
    assert stats.kstest(drawn, "norm").pvalue > 1e-6


def test_the_same_bytes_again():
    taken = [hashed_bytes(b"seed") for _ in range(2)]
    assert b"".join(taken[0](7) for _ in range(100)) == taken[1](700)
    assert hashed_bytes(b"other")(32) != hashed_bytes(b"seed")(32)
