"""Many draws look like the law: a deterministic source, so that a failure is not bad luck."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from affinedp.laws.sampler import draw_integers
from affinedp.laws.sampler import noise as bulk
from affinedp.laws.sampler.reference import IntegerLaw
from affinedp.laws.sampler.words import Random

COUNT = 400_000
# One of some sixty tests may be so unlikely; the draws are always the same.
UNLIKELY = 1e-4


@functools.cache
def drawn(name, scale):
    """Draws from NumPy's generator: for tests only."""
    law = IntegerLaw.of(name, scale)
    rng = np.random.default_rng(2)
    return bulk.draws(
        law,
        bulk.Thresholds.of(law),
        COUNT,
        Random(rng.bytes),
    )


def probabilities(name, scale, sizes):
    """The law straight from its definition."""
    reach = math.ceil(45 * max(float(scale), 1))
    everything = np.arange(-reach, reach + 1) / float(scale)
    weights = np.exp(-(everything**2) / 2 if name == "gaussian" else -np.abs(everything))
    return weights[np.asarray(sizes) + reach] / weights.sum()


def continuous(name):
    return stats.norm if name == "gaussian" else stats.laplace


def moment(name, power):
    """E xⁿ of the continuous law with unit scale."""
    if power % 2:
        return 0
    return math.prod(range(1, power, 2)) if name == "gaussian" else math.factorial(power)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "scale", [Fraction(1, 20), Fraction(3, 10), 1, Fraction(7, 3), 7, 1000], ids=str
)
def test_frequencies(name, scale):
    numbers = drawn(name, scale).astype(np.int64)
    reach = math.ceil(12 * float(scale)) + 2
    sizes = np.arange(-reach, reach + 1)
    expected = probabilities(name, scale, sizes) * COUNT
    counts = np.bincount(np.clip(numbers, -reach, reach) + reach, minlength=len(sizes))
    common = expected >= 10
    found = np.append(counts[common], COUNT - counts[common].sum())
    wanted = np.append(expected[common], COUNT - expected[common].sum())
    if wanted[-1] < 5:
        wanted[-2] += wanted[-1]
        found[-2] += found[-1]
        wanted, found = wanted[:-1], found[:-1]
    if len(found) == 1:  # a scale so small that all draws are 0
        assert found[0] == COUNT
        return
    assert stats.chisquare(found, wanted).pvalue > UNLIKELY


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [2**20, 2**32, 2**56, 2**62, 10**30, 2**100, 2**200], ids=str)
class TestLargeScales:
    def test_shape(self, name, scale):
        """On a fine grid the law is the continuous one, to far more digits than can be seen."""
        values = drawn(name, scale).astype(float) / float(scale)
        assert stats.kstest(values, continuous(name).cdf).pvalue > UNLIKELY

    def test_moments(self, name, scale):
        values = drawn(name, scale).astype(float) / float(scale)
        for power in (1, 2, 3, 4):
            mean, square = moment(name, power), moment(name, 2 * power)
            error = (np.mean(values**power) - mean) / math.sqrt((square - mean**2) / COUNT)
            assert 2 * stats.norm.sf(abs(error)) > UNLIKELY

    def test_tails(self, name, scale):
        """Nothing piles up anywhere: beyond 3, 4, 5, … scales there are as many as there should."""
        values = np.abs(drawn(name, scale).astype(float)) / float(scale)
        for reach in (3, 3.5, 4, 5, 8, 10):
            count = int(np.count_nonzero(values >= reach))
            share = 2 * continuous(name).sf(reach)
            assert stats.binomtest(count, COUNT, share).pvalue > UNLIKELY

    def test_low_bits_and_distinct_values(self, name, scale):
        numbers = drawn(name, scale)[:100_000]
        counts = np.bincount((numbers % 61).astype(np.int64), minlength=61)
        assert stats.chisquare(counts).pvalue > UNLIKELY
        if scale >= 2**56:  # else some coincide
            assert len(set(numbers.tolist())) == len(numbers)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [1, 7, 1000, 2**40, 2**56], ids=str)
def test_like_opendp(name, scale):
    """Where OpenDP's sampler does not clamp, the two cannot be told apart."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    count = 20_000
    domain = vector_domain(atom_domain(T="i64"), size=count)
    if name == "gaussian":
        theirs = make_gaussian(domain, l2_distance(T=float), scale=float(scale))([0] * count)
    else:
        theirs = make_laplace(domain, l1_distance(T=float), scale=float(scale))([0] * count)
    ours = draw_integers(name, scale, count)
    # both are random: this may fail once in a million runs
    if scale == 1:
        cut = [np.clip(np.array(z, dtype=int), -3, 3) + 3 for z in (ours, theirs)]
        pair = [np.bincount(z, minlength=7) for z in cut]
        assert stats.chi2_contingency(pair).pvalue > 1e-6
    else:
        pair = [np.array(z, dtype=float) for z in (ours, theirs)]
        assert stats.ks_2samp(*pair).pvalue > 1e-6


def test_what_opendp_clamps_is_drawn_here():
    """A unit of 2^80 steps: all of OpenDP's 64-bit numbers would be ±2^63."""
    numbers = draw_integers("gaussian", 2**80, 20_000)
    beyond = np.abs(numbers) > 2**63
    assert beyond.mean() > 0.999
    assert len(set(numbers.tolist())) == len(numbers)
    values = numbers.astype(float) / 2.0**80
    assert stats.kstest(values, stats.norm.cdf).pvalue > 1e-6
