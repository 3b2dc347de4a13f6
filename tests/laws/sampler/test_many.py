"""Many draws at once: every decision is that of the reference, and the laws are exact."""

import itertools
import math
import os
from collections import Counter
from fractions import Fraction as F
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from affinedp.laws.polytope import LatticeCones, Polytope
from affinedp.laws.sampler import coins as many
from affinedp.laws.sampler import one_sum
from affinedp.laws.sampler.bodies import ConeNoise, StairsNoise, signed
from affinedp.laws.sampler.coins import (
    ExponentialChoice,
    bernoulli_exp,
    exp_threshold,
    ratio_threshold,
)
from affinedp.laws.sampler.one_sum import OneSumNoise, compositions
from affinedp.laws.sampler.words import SYSTEM

TOP = 1 << 64


def around(values, width=6):
    """Words around real numbers in [0, 1], and the ends."""
    places = {int(v * TOP) + d for v in values for d in range(-width, width)}
    return np.array(
        sorted({min(max(p, 0), TOP - 1) for p in places | {0, TOP - 1}}), dtype=np.uint64
    )


def fits(drawn, law, least=1e-6):
    """A χ² test of what was drawn against probabilities; the rest is one class."""
    seen = Counter(drawn)
    kept = [z for z, p in law.items() if p * len(drawn) >= 5]
    counts = [seen[z] for z in kept]
    expected = [law[z] * len(drawn) for z in kept]
    counts.append(len(drawn) - sum(counts))
    expected.append(len(drawn) - math.fsum(expected))
    if expected[-1] < 5:
        counts[-2:], expected[-2:] = [sum(counts[-2:])], [sum(expected[-2:])]
    return stats.chisquare(counts, expected).pvalue > least


def follow(head, digits):
    """Random bits: the given head, then the binary digits of a fixed number."""
    words = iter([head, *digits])
    return lambda bits: next(words)


@pytest.mark.parametrize("rest", [0, TOP - 1])
@pytest.mark.parametrize("y", [F(0), F(1, 10**12), F(1, 3), F(7), F(60)])
def test_coins_fall_as_one_at_a_time(y, rest):
    words = around([math.exp(-y)])
    which = np.zeros(len(words), dtype=int)
    found = many.tossed([exp_threshold(y)], which, words, lambda bits: rest)
    one = [bernoulli_exp(y, follow(word, itertools.repeat(rest, 50))) for word in words.tolist()]
    assert found.tolist() == one


def test_a_ratio_that_is_certain_is_tossed_too():
    threshold = ratio_threshold(5, 5, F(0))
    words = np.array([0, 1, TOP - 2, TOP - 1], dtype=np.uint64)
    assert many.tossed([threshold], np.zeros(4, dtype=int), words).all()


@pytest.mark.parametrize("exponents", [[F(0), F(1)], [F(0), F(0), F(50), F(1, 7)], [F(0), F(300)]])
def test_places_are_those_of_one_draw(exponents):
    counts = [3, 1, 4, 10**9][: len(exponents)]
    choice = ExponentialChoice(counts, exponents)
    weights = np.array([c * math.exp(-y) for c, y in zip(counts, exponents)])
    words = around(weights.cumsum()[:-1] / weights.sum())
    rng = np.random.default_rng(0)
    words = np.concatenate([words, rng.integers(0, TOP, 500, dtype=np.uint64)])
    found = choice.places(words)
    first, end = choice._certain
    certain = (words >= first[found]) & (words < end[found])
    assert certain.sum() > 0.9 * len(words) - 20
    for word, place, sure in zip(words.tolist(), found.tolist(), certain.tolist()):
        for rest in (0, TOP - 1):  # whatever follows, a certain word falls on the same place
            if sure:
                assert choice.draw(follow(word, itertools.repeat(rest, 50))) == place


def test_uniform_numbers_below_limits_take_all_values_alike():
    """All words of 3 bits, once each: values below the limit come once, others are redrawn."""
    words = np.arange(8, dtype=np.uint64) << np.uint64(61)
    for limit in range(5, 9):
        rows = np.full(8, limit, dtype=np.int64)
        calls = []

        def source(count, calls=calls):
            calls.append(count)
            return words[:count]  # what is left over is given the first words, which are small

        drawn = many.uniform_below(rows, SimpleNamespace(long_words=source))
        assert sorted(drawn[:limit].tolist()) == list(range(limit))
        assert calls[:2] == [8, 8 - limit][: 1 + (limit < 8)]
    mixed = np.array([1, 2, 3, 2**62 - 1, 2**53 + 1] * 400)
    drawn = many.uniform_below(mixed)
    assert (drawn >= 0).all()
    assert (drawn < mixed).all()
    wide = many.uniform_below(np.array([1, 2**200] * 5, dtype=object))
    assert max(wide.tolist()) > 2**150


@pytest.mark.parametrize(("s", "n"), [(0, 3), (1, 4), (3, 3), (2, 5)])
def test_compositions_are_uniform_by_enumeration(s, n, monkeypatch):
    """All choices that can be drawn, each as often: every composition comes equally often."""
    choices = list(itertools.product(*(range(s + i + 1) for i in range(n - 1))))
    columns = iter(np.array(choices, dtype=np.int64).T)
    monkeypatch.setattr(one_sum, "uniform_below", lambda limits, random: next(columns))
    found = Counter(map(tuple, compositions(np.full(len(choices), s), n).tolist()))
    assert len(found) == math.comb(s + n - 1, n - 1)
    assert len(set(found.values())) == 1
    assert all(sum(parts) == s and min(parts) >= 0 for parts in found)


@pytest.mark.parametrize(("width", "first"), [(1, 1), (3, 2), (4, 4), (5, 1)])
def test_stairs_have_their_law_by_enumeration(width, first):
    """Every way to a number, with its exact weight in powers of q: the law of the definition."""
    deep = 4
    ways = [
        (down, inside, negative)
        for down in range(deep)
        for inside in range(width)
        for negative in (False, True)
    ]
    law = Counter()
    for down, inside, negative in ways:
        numbers = signed(np.array([down]), np.array([inside]), np.array([negative]), width)
        # q^down for the period, q if the part is low; places on a part are alike
        law.update((z, down + (inside >= first)) for z in numbers.tolist())
    levels = dict(law.keys())
    assert set(law.values()) == {1}  # one way each: −0 is left out
    assert sorted(levels) == list(range(-deep * width + 1, deep * width))
    for z, level in levels.items():
        assert level == (0 if abs(z) < first else 1 + (abs(z) - first) // width)


@pytest.mark.parametrize(("width", "first", "rate"), [(4, 1, F(1)), (7, 5, F(1, 3))])
def test_many_stairs_have_their_law(width, first, rate):
    drawn = StairsNoise([width, width], [first, first], rate).draw(100_000)
    level = lambda z: 0 if abs(z) < first else 1 + (abs(z) - first) // width  # noqa: E731
    weights = {z: math.exp(-rate * level(z)) for z in range(-300 * width, 300 * width + 1)}
    total = math.fsum(weights.values())
    law = {z: weight / total for z, weight in weights.items()}
    for column in drawn.T:
        assert fits(column.tolist(), law)
    assert abs(np.corrcoef(drawn.astype(float).T)[0, 1]) < 0.02


def test_stairs_wider_than_words_are_drawn():
    drawn = StairsNoise([2**70], [2**69 + 5], F(1)).draw(200)[:, 0]
    assert {type(z) for z in drawn.tolist()} == {int}
    assert max(drawn.tolist()) > 2**69
    assert min(drawn.tolist()) < -(2**69)


@pytest.mark.parametrize(("n", "rate"), [(2, F(1, 2)), (3, F(1)), (5, F(2))])
def test_many_sums_have_their_law(n, rate):
    drawn = OneSumNoise(n, rate).draw(100_000)
    assert not drawn.sum(axis=1).any()
    reach = math.ceil(30 / (n * rate)) + 4
    sizes = range(-reach, reach + 1)
    points = (z for z in itertools.product(sizes, repeat=n - 1) if abs(sum(z)) <= reach)
    weights = {z: math.exp(-rate * (sum(map(abs, z)) + abs(sum(z))) / 2) for z in points}
    total = math.fsum(weights.values())
    law = {z: weight / total for z, weight in weights.items()}
    assert fits([tuple(z) for z in drawn[:, :-1].tolist()], law)


def test_sizes_on_fine_grids_are_accepted_as_one_at_a_time():
    n, s = 6, 40
    exact = math.prod((s + j) / (s + n - 1 + j) for j in range(1, n))
    words = around([exact, 1 - (n - 1) ** 2 / (s + n)])
    found = one_sum._accepted_fine(np.full(len(words), s), n, words)
    for word, kept in zip(words.tolist(), found.tolist()):
        if abs(word / TOP - exact) > 2**-50:
            assert kept == (word / TOP < exact)


HEXAGON = [(F(1), F(0)), (F(0), F(1)), (F(1), F(-1))]
LONG = [(F(5), F(0)), (F(1), F(7)), (F(3), F(-2))]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("vertices", [HEXAGON, LONG])
def test_many_cones_have_their_law(vertices, listed, monkeypatch):
    if not listed:
        monkeypatch.setattr("affinedp.laws.polytope.MOST_LISTED", 0)
    body = Polytope(vertices)
    drawn = ConeNoise(LatticeCones(body), F(3)).draw(100_000)
    reach = 40
    points = list(itertools.product(range(-reach, reach + 1), repeat=2))
    gauges = body.gauges(np.array(points, dtype=float).T, np.zeros((2, len(points))))
    weights = np.exp(-3 * (gauges.lower + gauges.upper) / 2)
    law = dict(zip(points, (weights / weights.sum()).tolist()))
    assert fits([tuple(z) for z in drawn.tolist()], law)


def test_proposals_in_cones_are_accepted_as_one_at_a_time(monkeypatch):
    monkeypatch.setattr("affinedp.laws.polytope.MOST_LISTED", 0)
    noise = ConeNoise(LatticeCones(Polytope(LONG)), F(2))
    cone, point = noise._proposed(40, SYSTEM)
    for c, p in zip(cone, point):
        total = F(int(p.sum()), int(noise._determinants[c]))
        exact = math.exp(-noise._step * total)
        words = around([exact], 3)
        words = np.concatenate([words, around([exact * (1 - 2e-9), exact + 2e-9], 1)])
        rows = np.repeat(c, len(words)), np.tile(p, (len(words), 1))
        for word, kept in zip(words.tolist(), noise._accepted(*rows, words).tolist()):
            if abs(word / TOP - exact) > 2**-50:
                assert kept == (word / TOP < exact)


@pytest.mark.parametrize(
    "noise",
    [
        StairsNoise([2**40], [2**39], F(1)),
        OneSumNoise(3, F(1, 2**40)),
        OneSumNoise(5, F(1)),
        ConeNoise(LatticeCones(Polytope(HEXAGON)), F(1)),
    ],
)
def test_many_rows_ask_for_randomness_a_few_times(noise):
    """A loop over rows would ask for each of them."""
    calls = []
    noise.draw(20_000, lambda count: (calls.append(count), os.urandom(count))[1])
    assert len(calls) < 500


@pytest.mark.parametrize("places", [11, 2**63 + 5, 2**64, 2**70 + 3])
def test_wide_places_are_distinct_and_uniform(places):
    size = 3
    drawn = [one_sum._distinct_wide(places, size).tolist() for _ in range(3_000)]
    assert all(0 <= a < b < c < places for a, b, c in drawn)
    if places == 11:
        subsets = list(itertools.combinations(range(places), size))
        assert fits([tuple(found) for found in drawn], dict.fromkeys(subsets, 1 / len(subsets)))
    for power in (3, 1):  # the largest of three is below a share x with probability x³
        shares = [found[-1 if power == 3 else 0] / places for found in drawn]
        law = (lambda x: x**3) if power == 3 else (lambda x: 1 - (1 - x) ** 3)
        assert places == 11 or stats.kstest(shares, law).pvalue > 1e-6


def test_a_wide_sum_asks_for_randomness_a_few_times():
    calls = []
    noise = OneSumNoise(5_000, F(1, 2**60))
    drawn = noise.draw(1, lambda count: (calls.append(count), os.urandom(count))[1])
    assert drawn.sum() == 0
    assert len(calls) < 100
