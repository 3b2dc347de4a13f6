"""Many proposals at once give what the reference gives, row by row, or leave the row to it."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.laws.sampler import noise as bulk
from affinedp.laws.sampler.reference import IntegerLaw, proposal, row_length

SCALES = [
    Fraction(1, 20),
    Fraction(3, 10),
    1,
    Fraction(5, 3),  # one integer per cell, as wide as cells get
    Fraction(10, 7),
    7,
    1000,
    2**20,
    2**32,
    2**33 - 1,
    2**56,
    Fraction(2**57 * 10, 7),  # the narrowest cells of 2^57, the last that fit in 64 bits
    Fraction(2**58 * 10, 7),
    2**64 + 1,
    10**30,
    2**100,
    2**200,
    Fraction(3 * 2**200, 7**60),
]
CASES = [(name, scale) for name in ("gaussian", "laplace") for scale in SCALES]
FIRST = [0, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2, 2**31 - 2, 2**30, 2**31 + 2**30]
EDGES = [0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]


class Words:
    """Stands for the randomness of a draw: words from a function."""

    def __init__(self, words):
        self.words = words


def prepared(name, scale):
    law = IntegerLaw.of(name, scale)
    return law, bulk.Thresholds.of(law)


def forbidden(count=1):
    raise AssertionError("a decided row took further words")


def random_rows(law, count, seed):
    """Rows of random words, and of words at the edges; uniforms near their thresholds."""
    rng = np.random.default_rng(seed)
    shape = (count, row_length(law))
    rows = rng.integers(0, 2**32, shape, dtype=np.uint32)
    third = count // 3
    rows[:third] = rng.choice(np.array(EDGES, dtype=np.uint32), (third, shape[1]))
    rows[:third, 0] = rng.choice(np.array(FIRST, dtype=np.uint32), third)
    # cells of all numbers: so many ones, then a zero
    ones = rng.integers(0, 31, third)
    rows[third : 2 * third, 0] = ((1 << 31) - (1 << (31 - ones))).astype(np.uint32)
    k, _, x = bulk.places(law, rows)
    near = bulk.Thresholds.of(law).at(np.minimum(k, np.uint64(30)), x).astype(np.int64)
    near += rng.integers(-600, 600, count)
    chosen = rng.random(count) < 0.5
    rows[chosen, -1] = np.clip(near, 0, 2**32 - 1)[chosen].astype(np.uint32)
    return rows


def compare(name, scale, rows):
    """Every row, by both; how many were accepted, and how many left open."""
    law, thresholds = prepared(name, scale)
    keep, left_open = bulk.decided(law, thresholds, rows, *bulk.places(law, rows))
    assert not (keep & left_open).any()
    words = np.random.default_rng(1).integers(0, 2**32, 10**4).tolist()
    expected = []
    stream = iter(words)
    for row, kept, is_open in zip(rows.tolist(), keep, left_open):
        more = (lambda: next(stream)) if is_open else forbidden
        number = proposal(law, row, more)
        assert is_open or kept == (number is not None)
        if number is not None:
            expected.append(number)
    stream = iter(words)
    found = bulk.accepted(law, thresholds, rows, Words(lambda count: np.array([next(stream)])))
    assert found.tolist() == expected
    assert {type(number) for number in found.tolist()} <= {int}
    return len(expected), int(left_open.sum())


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_same_integers_as_the_reference(name, scale):
    law = IntegerLaw.of(name, scale)
    kept, left_open = compare(name, scale, random_rows(law, 900, seed=7))
    assert kept > 20
    assert left_open > 20


@settings(max_examples=60)
@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.one_of(st.integers(1, 2**80), st.fractions(min_value=Fraction(1, 10**6), max_value=10**12)),
    st.integers(0, 2**32),
)
def test_same_integers_for_any_scale(name, scale, seed):
    compare(name, scale, random_rows(IntegerLaw.of(name, scale), 60, seed))


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_thresholds_are_within_their_error(name, scale):
    """Less than 200 units, as the page says, also at the ends of what a word can stand for."""
    law, thresholds = prepared(name, scale)
    rng = np.random.default_rng(3)
    k = rng.integers(0, bulk.CELLS, 600).astype(np.uint64)
    k[:300] = rng.integers(0, 5, 300)
    rows = rng.integers(0, 2**32, (600, row_length(law)), dtype=np.uint32)
    rows[:200, 1:] = rng.choice(np.array(EDGES, dtype=np.uint32), (200, rows.shape[1] - 1))
    _, _, x = bulk.places(law, rows)
    found = thresholds.at(k, x)
    bits = law.cell_bits
    with mpmath.workdps(40):
        limit = mpmath.mpf(law.limit.numerator) / law.limit.denominator
        for cell, place, threshold in zip(k.tolist(), x.tolist(), found.tolist()):
            first = place << bits >> 32
            last = first if bits <= 32 else ((place + 1) << bits >> 32) - 1
            for j in (first, last):
                y = law.exponent((cell << bits) + j)
                exact = mpmath.exp(-mpmath.mpf(y.numerator) / y.denominator)
                assert abs(exact * 2 ** (cell + 32) / limit - threshold) < 200
    assert bulk.SLACK > 200


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_thresholds_do_not_wrap(name, scale):
    """The same formula in Python integers, at the largest words."""
    _, thresholds = prepared(name, scale)
    for k in range(bulk.CELLS):
        for x in (2**32 - 1, 2**32 - 2**27, 2**31, 0):
            part = x * int(thresholds.half) >> 32
            g = (part * x >> 32) + part * 2 * k if thresholds.quadratic else 2 * part
            power = bulk.SERIES[-1]
            for coefficient in bulk.SERIES[-2::-1]:
                power = coefficient - (power * (g % 2**27) >> 32)
                assert power > 0
            power = power * int(bulk.FALLING[min(g >> 27, bulk.PARTS - 1)]) >> 32
            expected = power * int(thresholds.tops[k]) >> 32
            found = thresholds.at(np.array([k], dtype=np.uint64), np.array([x], dtype=np.uint64))
            assert int(found[0]) == expected


@pytest.mark.parametrize("scale", [Fraction(2**57 * 10, 7), Fraction(2**58 * 10, 7), 2**200])
def test_the_largest_sizes_of_known_cells(scale):
    """All bits of j are 1, in the last cell: nothing wraps on either side of 64 bits."""
    law, thresholds = prepared("laplace", scale)
    rows = np.full((2, row_length(law)), 2**32 - 1, dtype=np.uint32)
    rows[:, 0] = [2**31 - 2, 2**32 - 2]
    rows[:, -1] = 0
    size = (31 << law.cell_bits) - 1
    assert bulk.accepted(law, thresholds, rows, Words(forbidden)).tolist() == [size, -size]
    # and a cell that the first word does not tell: 31 ones, then 10 more and a zero
    rows[:, 0] = [2**31 - 1, 2**32 - 1]
    found = bulk.accepted(law, thresholds, rows, Words(lambda count: np.array([2**32 - 2**22])))
    size = (42 << law.cell_bits) - 1
    assert found.tolist() == [size, -size]


def test_blocks_do_not_change_the_draws(monkeypatch):
    """The first draws from the words, however they are cut."""
    law, thresholds = prepared("gaussian", 2**56)

    def drawn(count):
        rng = np.random.default_rng(5)
        return bulk.draws(
            law, thresholds, count, Words(lambda n: rng.integers(0, 2**32, n, dtype=np.uint32))
        )

    long = drawn(5000)
    monkeypatch.setattr(bulk, "BLOCK", 64)
    assert drawn(5000).tolist() == long.tolist()
    assert drawn(100).tolist() == long[:100].tolist()
    assert drawn(0).shape == (0,)
