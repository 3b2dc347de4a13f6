"""The law of a proposal, by going through all strings of bits.

With words of one, two or three bits the reference reads a tree of words.  Every leaf says which
integer is accepted, or that none is, and has a dyadic probability.  Each integer i must be
accepted with probability e^(−y(i)) / (4 · 2^m · limit): what is accepted then has the law.
"""

from collections import defaultdict
from fractions import Fraction

import mpmath
import pytest

from affinedp.laws.sampler.reference import IntegerLaw, Uniform, accepted, proposal, row_length

CASES = [
    (name, Fraction(scale), word_bits)
    for name in ("gaussian", "laplace")
    for scale, lengths in {
        "1/20": (1, 2, 3),
        "3/10": (1, 2, 3),
        "1": (1, 2, 3),
        "7/3": (1, 2, 3),
        "7": (1, 2),
        "20": (1,),
    }.items()
    for word_bits in lengths
]
DEPTH = 36


class MoreWanted(Exception):
    """The string of words has ended."""


def outcomes(run, word_bits, depth):
    """The probability of every outcome, and that of all strings that decide nothing yet.

    ``run(more)`` takes words from ``more``; strings are up to ``depth`` bits long.
    """
    found, undecided = defaultdict(Fraction), Fraction(0)
    strings = [()]
    while strings:
        string = strings.pop()
        words = iter(string)

        def more(words=words):
            for word in words:
                return word
            raise MoreWanted

        probability = Fraction(1, 1 << (word_bits * len(string)))
        try:
            found[run(more)] += probability
        except MoreWanted:
            if word_bits * (len(string) + 1) > depth:
                undecided += probability
            else:
                strings += [(*string, word) for word in range(1 << word_bits)]
    return found, undecided


def real(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale", "word_bits"), CASES)
def test_every_integer_is_accepted_in_proportion_to_the_law(name, scale, word_bits):
    law = IntegerLaw.of(name, scale)
    length = row_length(law, word_bits)

    def run(more):
        return proposal(law, [more() for _ in range(length)], more, word_bits)

    found, undecided = outcomes(run, word_bits, DEPTH)
    assert sum(found.values()) + undecided == 1
    assert undecided < Fraction(1, 10**6)
    found.pop(None)
    with mpmath.workdps(40):
        for i in set(found) | set(range(-3, 4)):
            share = mpmath.exp(-real(law.exponent(abs(i)))) / (
                4 * 2**law.cell_bits * real(law.limit)
            )
            assert real(found[i]) <= share <= real(found[i] + undecided), i


def test_the_whole_mass_is_accounted_for():
    """The accepted integers add up to what the sum over all integers says."""
    law = IntegerLaw.of("gaussian", 2)
    length = row_length(law, 1)
    found, undecided = outcomes(
        lambda more: proposal(law, [more() for _ in range(length)], more, 1), 1, DEPTH
    )
    rejected = found.pop(None)
    with mpmath.workdps(40):
        everything = mpmath.nsum(lambda i: mpmath.exp(-(i**2) / 8), [-mpmath.inf, mpmath.inf])
        share = everything / (4 * 2**law.cell_bits * real(law.limit))
        assert real(1 - rejected - undecided) <= share <= real(1 - rejected)


@pytest.mark.parametrize("word_bits", [1, 2, 5])
@pytest.mark.parametrize(("k", "size"), [(0, 0), (0, 5), (1, 9), (2, 23), (3, 24), (9, 79)])
def test_acceptance_has_its_probability(k, size, word_bits):
    """To many more digits: strings that decide nothing are a single path."""
    law = IntegerLaw.of("gaussian", 7)  # cells of 8
    found, undecided = outcomes(
        lambda more: accepted(law, k, size, Uniform(more(), more, word_bits)), word_bits, 120
    )
    assert undecided < Fraction(1, 10**33)
    with mpmath.workdps(60):
        share = 2**k * mpmath.exp(-real(law.exponent(size))) / real(law.limit)
        assert real(found[True]) <= share <= real(found[True] + undecided)


@pytest.mark.parametrize("word_bits", [1, 2, 3])
def test_digits_of_a_uniform(word_bits):
    """The cell is k with probability 2^(−k−1), whatever the words."""

    def ones(more):
        uniform = Uniform(more(), more, word_bits)
        k = 0
        while uniform.bit(k):
            k += 1
        return k

    found, undecided = outcomes(ones, word_bits, 24)
    assert undecided == Fraction(1, 1 << 24)
    assert all(found[k] == Fraction(1, 2 << k) for k in range(24))
