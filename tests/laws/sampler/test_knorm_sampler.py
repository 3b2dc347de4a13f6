"""Exact coins, cones and sums against high precision, and drawn noise against its law."""

import collections
import itertools
import math
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

from affinedp.laws import polytope as lattices
from affinedp.laws.polytope import LatticeCones, Polytope
from affinedp.laws.sampler import one_sum as sums
from affinedp.laws.sampler.bodies import ConeNoise
from affinedp.laws.sampler.coins import (
    ExponentialChoice,
    Geometric,
    below,
    bernoulli_exp,
    ratio_threshold,
)
from affinedp.laws.sampler.one_sum import OneSumNoise, composition

# Nothing is seeded: a law that is right fails this once in a million runs.
SURE = 1e-6


def digits(value, count):
    """A source of the binary digits of a number in [0, 1), then of zeros."""
    state = {"rest": F(value)}

    def source(bits):
        state["rest"] *= 1 << bits
        head = int(state["rest"])
        state["rest"] -= head
        count[0] += bits
        return head

    return source


def near(probability, distance):
    """Uniform numbers on both sides of a threshold."""
    return [probability - distance, probability + distance]


@pytest.mark.parametrize("y", [F(1, 10**6), F(1, 30), F(1), F(7, 2), F(50)])
@pytest.mark.parametrize("bits", [20, 60, 100, 300])
def test_a_coin_falls_as_the_real_number_says(y, bits):
    with mpmath.workdps(200):
        p = mpmath.exp(-mpmath.mpf(y.numerator) / y.denominator)
        exact = F(int(p * 2**500), 2**500)
    for uniform, falls in zip(near(exact, exact / 2**bits), (True, False)):
        if 0 <= uniform < 1:
            count = [0]
            assert bernoulli_exp(y, digits(uniform, count)) is falls
            assert count[0] <= bits + 72 + 192


@pytest.mark.parametrize("size", [0, 1, 40, 1500])
@pytest.mark.parametrize("bits", [10, 70, 200])
def test_a_ratio_with_growth_is_not_decided_too_early(size, bits):
    """(num/den) e^(−y) with y of either sign and far beyond double precision."""
    for y in (F(size), F(-size)):
        with mpmath.workdps(1500):
            power = mpmath.exp(-mpmath.mpf(int(y)))
            ratio = F(int(mpmath.mpf(2) ** 4000 / power / 3), 2**4000)  # makes p about 1/3
            exact = F(int(mpmath.mpf(ratio.numerator) / ratio.denominator * power * 2**600), 2**600)
        for uniform, falls in zip(near(exact, F(1, 2**bits)), (True, False)):
            if 0 <= uniform < 1:
                source = digits(uniform, [0])
                threshold = ratio_threshold(ratio.numerator, ratio.denominator, y)
                assert below(threshold, source) is falls


def test_a_choice_falls_as_the_real_numbers_say():
    counts, exponents = [2, 5, 1, 7], [F(0), F(1, 3), F(2), F(5)]
    choice = ExponentialChoice(counts, exponents)
    with mpmath.workdps(200):
        weights = [
            c * mpmath.exp(-mpmath.mpf(y.numerator) / y.denominator)
            for c, y in zip(counts, exponents)
        ]
        total = sum(weights)
        ends = [F(int(sum(weights[: i + 1]) / total * 2**500), 2**500) for i in range(4)]
    for bits in (20, 64, 150, 290):
        for place, end in enumerate(ends[:-1]):
            below, above = near(end, F(1, 2**bits))
            assert choice.draw(digits(below, [0])) == place
            assert choice.draw(digits(above, [0])) == place + 1
    assert choice.draw(digits(0, [0])) == 0
    assert choice.draw(lambda bits: (1 << bits) - 1) == 3


def fits(drawn, law, least=8):
    """The p-value of draws under a law {point: probability}; what is not listed is one more."""
    seen = collections.Counter(drawn)
    size = len(drawn)
    statistic, cells, rest, mass = 0.0, 0, size, 1.0
    for point, p in law.items():
        if p * size >= least:
            statistic += (seen[point] - p * size) ** 2 / (p * size)
            cells, rest, mass = cells + 1, rest - seen[point], mass - p
    if mass * size >= least:
        statistic += (rest - mass * size) ** 2 / (mass * size)
        cells += 1
    return chi2.sf(statistic, cells - 1)


def lattice_law(body, rate, reach):
    """P(z) in a box, from the gauge and the normaliser alone."""
    box = list(itertools.product(range(-reach, reach + 1), repeat=body.dimension))
    gauges = (body.normals @ np.array(box, dtype=float).T).max(axis=0)
    weights = np.exp(-rate * gauges) / LatticeCones(body).normaliser(rate)
    return dict(zip(box, weights.tolist()))


def table_moves():
    """Circuits of 3×3 tables with public margins, in four of their cells."""
    moves = []
    for rows, columns in itertools.product(itertools.combinations(range(3), 2), repeat=2):
        move = np.zeros((3, 3), dtype=int)
        move[np.ix_(rows, columns)] = [[1, -1], [-1, 1]]
        moves.append(move)
    places = [np.eye(3, dtype=int)[list(order)] for order in itertools.permutations(range(3))]
    for one, other in itertools.combinations(places, 2):
        if not (one * other).any():
            moves.append(one - other)
    assert len(moves) == 15
    return [tuple(map(F, move[:2, :2].ravel().tolist())) for move in moves]


BODIES = {
    "hexagon": ([(1, 0), (0, 1), (1, -1)], F(1), 12),
    "not unimodular": ([(3, 1), (1, 2), (-2, 3), (2, 2)], F(3, 2), 12),
    "one move inside": ([(5, 0), (3, 4), (1, 1), (-4, 3)], F(3), 12),
    "fractions": ([(F(3, 2), 1), (F(1, 3), 2)], F(1), 12),
    "three dimensions": ([(2, 0, 1), (0, 3, 1), (1, 1, -2), (1, -1, 1)], F(2), 5),
    "geometric": ([(1,)], F(1, 2), 30),
    "3×3 table": (table_moves(), F(2), 2),
}


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "thinned"])
@pytest.mark.parametrize("name", BODIES)
def test_noise_in_cones_has_its_law(name, listed, monkeypatch):
    if not listed:
        monkeypatch.setattr(lattices, "MOST_LISTED", 0)
    moves, rate, reach = BODIES[name]
    body = Polytope([tuple(map(F, move)) for move in moves])
    drawn = ConeNoise(LatticeCones(body), rate).draw(6_000 if listed else 2_000)
    assert (
        fits([tuple(row) for row in drawn.tolist()], lattice_law(body, float(rate), reach)) > SURE
    )


@pytest.mark.parametrize(
    ("n", "rate", "reach"),
    [(2, F(1), 12), (3, F(1), 9), (3, F(1, 4), 20), (4, F(3, 2), 5)],
)
def test_noise_under_a_sum_has_its_law(n, rate, reach):
    e = float(rate)
    total = sum(math.comb(s + n - 1, n - 1) ** 2 * math.exp(-e * s) for s in range(int(200 / e)))
    total *= (1 - math.exp(-e)) ** n
    law = {}
    for z in itertools.product(range(-reach, reach + 1), repeat=n - 1):
        point = (*z, -sum(z))
        law[point] = math.exp(-e * sum(map(abs, point)) / 2) / total
    drawn = OneSumNoise(n, rate).draw(6_000)
    assert not drawn.sum(axis=1).any()
    assert fits([tuple(row) for row in drawn.tolist()], law) > SURE


def test_sizes_under_a_sum_have_their_law_on_fine_grids():
    n, rate, reach = 4, F(1, 4), 40
    axis = np.arange(-reach, reach + 1)
    z = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    sizes = (np.abs(z).sum(axis=1) + np.abs(z.sum(axis=1))) // 2
    counts = np.bincount(sizes[sizes <= reach])  # all points of these sizes are in the box
    total = sum(math.comb(s + n - 1, n - 1) ** 2 * math.exp(-s / 4) for s in range(900))
    total *= (1 - math.exp(-1 / 4)) ** n
    law = {d: c * math.exp(-d / 4) / total for d, c in enumerate(counts.tolist())}
    drawn = OneSumNoise(n, rate).draw(5_000)
    assert fits((np.abs(drawn).sum(axis=1) // 2).tolist(), law) > SURE


@pytest.mark.parametrize("way", ["keys", "distinct", "floyd"])
def test_compositions_are_uniform(way, monkeypatch):
    if way != "keys":
        monkeypatch.setattr(sums, "MOST_KEYS", 0)
        # small numbers of places are for keys
        monkeypatch.setattr(sums, "_subset_by_keys", sums._distinct)
    if way == "floyd":
        pick = lambda places, size, random: np.array(sorted(sums._floyd(places, size)))  # noqa: E731
        monkeypatch.setattr(sums, "_subset_by_keys", pick)
    s, n = 4, 3
    every = [c for c in itertools.product(range(s + 1), repeat=n) if sum(c) == s]
    drawn = [tuple(composition(s, n).tolist()) for _ in range(4_000)]
    assert fits(drawn, {c: 1 / len(every) for c in every}) > SURE


def test_geometric_numbers_have_their_law():
    drawn = Geometric(F(1, 3)).draw(6_000).tolist()
    q = math.exp(-1 / 3)
    assert fits(drawn, {t: (1 - q) * q**t for t in range(60)}) > SURE


@pytest.mark.parametrize("rate", [F(1), F(1, 10**4), F(1, 2**44)])
def test_large_sums_are_drawn(rate):
    n = 3_000
    drawn = OneSumNoise(n, rate).draw(2).astype(float)
    assert not drawn.sum(axis=1).any()
    expected = 4 * (n - 1) * (2 * n - 1) / (n + 1) / float(rate) ** 2
    assert ((drawn**2).sum(axis=1) / expected).tolist() == pytest.approx([1.0, 1.0], abs=0.3)


def test_the_mode_is_the_largest_term():
    for n, rate in ((3, F(1)), (50, F(1, 3)), (7, F(9))):
        logs = [math.log(math.comb(s + n - 1, n - 1)) - float(rate) * s / 2 for s in range(2_000)]
        assert sums._mode(n, rate) == int(np.argmax(logs))
