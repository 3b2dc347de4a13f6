"""Staircase noise: closed forms, the grid, the exact ratio, when it is chosen."""

import itertools
import math
from collections import Counter
from fractions import Fraction as F

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import affinedp as adp
from affinedp.audit import audit
from affinedp.laws.curves import ThreeAtoms
from affinedp.laws.sampler.bodies import StairsNoise
from affinedp.laws.staircase import (
    Staircase,
    best_first,
    best_whole_first,
    real_top,
    real_variance,
    whole_top,
    whole_variance,
)

PAIR = adp.AffineManifold([[1.0, -1.0]], names=["a", "b"])


def level(z, width, first):
    """How many steps down, from the definition: first, first + width, first + 2 width, …"""
    return 0 if abs(z) < first else 1 + (abs(z) - first) // width


def whole_law(width, first, rate, reach=None):
    reach = reach or width * math.ceil(60 / rate)
    weights = {z: math.exp(-rate * level(z, width, first)) for z in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


def alone(moves):
    manifold = adp.AffineManifold(np.zeros((0, len(moves[0]))))
    return manifold, adp.DirectionAdjacency(manifold, np.array(moves, dtype=float).T)


@pytest.mark.parametrize("rate", [0.05, 1.0, 5.0, 12.0])
def test_the_variance_is_that_of_geng_and_viswanath(rate):
    b = math.exp(-rate)
    least = (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2
    found = optimize.minimize_scalar(
        lambda g: real_variance(1.0, g, rate), bounds=(1e-6, 1), method="bounded",
        options={"xatol": 1e-13},
    )  # fmt: skip
    assert found.fun == pytest.approx(least, rel=1e-9)
    assert real_variance(1.0, best_first(1.0, rate), rate) == pytest.approx(least, rel=1e-9)
    first = 0.3
    pieces = [
        integrate.quad(
            lambda x, k=k: x * x * math.exp(-rate * k), max(0, first + k - 1), first + k
        )[0]
        for k in range(math.ceil(50 / rate))
    ]
    mass = math.fsum(
        (first + k - max(0, first + k - 1)) * math.exp(-rate * k)
        for k in range(math.ceil(50 / rate))
    )
    assert real_variance(1.0, first, rate) == pytest.approx(math.fsum(pieces) / mass, rel=1e-9)


@pytest.mark.parametrize(("width", "first", "rate"), [(1, 1, 1.0), (3, 2, 0.7), (7, 1, 2.0)])
def test_whole_numbers_have_their_variance_and_loss(width, first, rate):
    law = whole_law(width, first, rate)
    assert math.fsum(law.values()) == pytest.approx(1)
    assert whole_variance(width, first, rate) == pytest.approx(
        math.fsum(z * z * p for z, p in law.items())
    )
    highest = math.fsum(
        p for z, p in law.items() if level(z + width, width, first) > level(z, width, first)
    )
    assert whole_top(width, first, rate) == pytest.approx(highest)
    best = min(range(1, width + 1), key=lambda r: whole_variance(width, r, rate))
    assert best_whole_first(width, rate) == best


def test_fine_grids_approach_the_real_law():
    for rate in (0.5, 4.0):
        width, first = 2**20, round(0.37 * 2**20)
        assert whole_variance(width, first, rate) / width**2 == pytest.approx(
            real_variance(1.0, first / width, rate), rel=1e-5
        )
        assert whole_top(width, first, rate) == pytest.approx(
            real_top(1.0, first / width, rate), rel=1e-5
        )


@pytest.mark.parametrize(("width", "first"), [(1, 1), (4, 1), (4, 3), (5, 5)])
def test_no_shift_within_a_width_crosses_two_steps(width, first):
    """log P(z)/P(z+n) is −ε, 0 or ε for every z and every |n| ≤ width, in whole numbers."""
    for z in range(-6 * width, 6 * width + 1):
        for n in range(-width, width + 1):
            assert abs(level(z + n, width, first) - level(z, width, first)) <= 1
        crossed = level(z + 2 * width + 1, width, first) - level(z, width, first)
        assert crossed <= 3


@pytest.mark.parametrize(("width", "first"), [(1, 1), (3, 2), (4, 4)])
def test_what_is_drawn_has_the_exact_law(width, first):
    drawn = StairsNoise([width], [first], F(4, 5)).draw(6000)[:, 0]
    law = whole_law(width, first, 0.8)
    sizes = range(-2 * width, 2 * width + 1)
    seen = Counter(drawn.tolist())
    counts = [seen[z] for z in sizes]
    expected = [law[z] for z in sizes]
    counts.append(len(drawn) - sum(counts))
    expected.append(1 - math.fsum(expected))
    assert stats.chisquare(counts, np.array(expected) * len(drawn)).pvalue > 1e-6
    simulated = Staircase([width], [first], 0.8, True).sample(np.random.default_rng(0), 20_000, 1)
    seen = Counter(simulated[:, 0].tolist())
    counts = [seen[float(z)] for z in sizes]
    counts.append(len(simulated) - sum(counts))
    assert stats.chisquare(counts, np.array(expected) * len(simulated)).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_one_real_number_has_the_least_noise_there_is(epsilon):
    m = adp.design(PAIR, epsilon=epsilon)
    assert m.law == "staircase"
    b = math.exp(-epsilon)
    least = (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2
    assert m.expected_squared_errors == pytest.approx([least, least])
    assert m.excess == pytest.approx(1.0)
    assert m.guarantee.epsilon() == epsilon
    assert "staircase noise has the least squared error" in str(m.report())
    x = np.tile([3.25, 3.25], (4000, 1))
    noise = m.release(x) - x
    np.testing.assert_array_equal(noise[:, 0], noise[:, 1])
    inside = stats.kstest(np.abs(noise[:, 0]), lambda t: _cumulated(np.asarray(t), m)).pvalue
    assert inside > 1e-6


def _cumulated(t, m):
    """P(|z| ≤ t) by adding up the steps."""
    part = m.noise
    width, first, rate = part.widths[0], part.firsts[0], part.rate
    edges = np.concatenate([[0.0], first + width * np.arange(200)])
    mass = np.diff(edges) * np.exp(-rate * np.arange(200))
    return (
        np.interp(t * np.abs(m.dense.basis[0, 0]) ** -1, edges, np.append(0, mass.cumsum()))
        / mass.sum()
    )


def test_the_grid_pays_for_rounding_in_exact_arithmetic():
    """Rounded neighbours cross one step of the drawn law at most, whatever the data."""
    manifold, neighbours = alone([[0.7]])
    m = adp.design(manifold, epsilon=2.0, adjacency=neighbours, law="staircase")
    plan = m.prepared()
    ((width, first),) = plan.grid.noise.parts[0].sampler._steps
    unit = F(2) ** int(plan.exponents[0])
    scale = 1 / F(float(m.dense.basis[0, 0])).limit_denominator(1000)
    rng = np.random.default_rng(1)
    worst = 0
    for x in [*rng.uniform(-100, 100, 500).tolist(), 0.5 * float(unit), 0.7]:
        for times in (-1, 1, 0.5):
            apart = F(x) + F(times) * F(7, 10)
            steps = abs(round(F(x) * scale / unit) - round(apart * scale / unit))
            worst = max(worst, steps)
    assert worst <= width
    assert 1 <= first <= width
    assert plan.grid.rate == F(m.noise.rate) <= F(2.0)
    assert 1 <= plan.factor < 1 + 1e-6
    assert whole_top(width, first, 2.0) <= m.guarantee.curve.probability


def test_the_curve_is_that_of_three_losses():
    m = adp.design(PAIR, epsilon=1.5)
    curve = m.guarantee.curve
    assert isinstance(curve, ThreeAtoms)
    part = m.noise
    width, first = 1000, round(1000 * part.firsts[0] / part.widths[0])
    law = whole_law(width, first, 1.5, 40_000)
    values = np.array([law[z] for z in sorted(law)])
    for epsilon in (0.0, 0.5, 1.2):
        exact = np.maximum(values[width:] - math.exp(epsilon) * values[:-width], 0).sum()
        assert exact <= curve.delta(epsilon) * (1 + 1e-3)
        assert curve.delta(epsilon) == pytest.approx(exact, rel=5e-3)


def test_whole_numbers_that_move_by_several_steps():
    """Geometric noise is not the least there: the staircase is."""
    manifold, neighbours = alone([[4.0]])
    m = adp.design(manifold, epsilon=1.0, adjacency=neighbours, integers=True)
    assert m.law == "staircase"
    assert m.noise.whole
    geometric = adp.design(manifold, epsilon=1.0, adjacency=neighbours, integers=True, law="knorm")
    assert m.expected_squared_error < geometric.expected_squared_error
    best = min(whole_variance(4, r, 1.0) for r in range(1, 5))
    assert m.expected_squared_error == pytest.approx(best)
    noise = m.release(np.zeros((50, 1)))
    assert np.array_equal(noise, np.rint(noise))


def test_moves_along_several_axes():
    """Independent real numbers, each moved alone; and moves of two at once, which are refused."""
    manifold, neighbours = alone([[1.0, 0, 0], [0, 2.0, 0], [1.0, 0, 1.0]])
    m = adp.design(manifold, epsilon=4.0, adjacency=neighbours, law="staircase")
    assert m.guarantee.epsilon() == 4.0
    x = np.array([[1.5, 2.25, 3.0]])
    assert m.release(x).shape == (1, 3)
    with pytest.raises(adp.AffineDPError, match="bound"):
        m.release(x, bound=10.0)
    manifold, neighbours = alone([[1.0, 0], [0, 1.0], [1.0, 1.0]])
    with pytest.raises(adp.AffineDPError, match="axes"):
        adp.design(manifold, epsilon=4.0, adjacency=neighbours, law="staircase")


def test_files_ledgers_stacks_and_audits(tmp_path):
    m = adp.design(PAIR, epsilon=3.0)
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == m.fingerprint
    assert again.guarantee.epsilon() == 3.0
    trusted = adp.Mechanism.load(tmp_path / "m.json", reverify=False)
    assert trusted.guarantee.epsilon() == 3.0
    ledger = adp.Ledger(tmp_path / "l.db", epsilon=5.0, delta=0.0, protects=m.guarantee.unit)
    m.release([1.0, 1.0], ledger=ledger)
    with pytest.raises(adp.AffineDPError):
        m.release([1.0, 1.0], ledger=ledger)
    both = m.stack(again)
    assert both.guarantee.epsilon() == pytest.approx(6.0)
    with pytest.raises(adp.AffineDPError, match="same ε"):
        m.stack(adp.design(PAIR, epsilon=2.0, law="staircase"))
    with pytest.raises(adp.AffineDPError, match="in steps"):
        m.in_steps(state=tmp_path / "s.db")
    low, high = m.interval([1.0, 1.0])
    assert (low < 1).all()
    assert (high > 1).all()
    assert audit(m, runs=4000, seed=1).passed


def test_what_is_designed_can_be_released():
    """What neighbours share is published as it is, which stairs are not drawn for."""
    free = adp.AffineManifold(np.zeros((0, 3)))
    first = adp.DirectionAdjacency(free, [[1.0], [0.0], [0.0]])
    for m in (
        adp.design(free, epsilon=1.0, adjacency=first),
        adp.design(free, epsilon=1.0, mu=[1, 0, 1]),
    ):
        assert m.law != "staircase"
        assert m.release([1.0, 2.0, 3.0])[1] == 2.0
    with pytest.raises(adp.AffineDPError, match="neighbours share some of it"):
        adp.design(free, epsilon=1.0, adjacency=first, law="staircase")


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 20.0, 700.0])
def test_stairs_of_one_step_are_called_by_the_geometric_law(epsilon):
    """They are the same law; which of them is taken must not depend on rounding."""
    assert adp.design(PAIR, epsilon=epsilon, integers=True).law == "knorm"


def geng_viswanath(reach, epsilon):
    """The least variance for one real number that moves by so much, and for a whole one."""
    b = math.exp(-epsilon)
    least = (2 ** (-2 / 3) * (b * (1 + b)) ** (2 / 3) + b) / (1 - b) ** 2
    return least * reach**2


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("law", ["auto", "staircase"])
def test_one_number_needs_no_list_of_moves(law, integers):
    """A row over one sum of 1,000: of all pairs the farthest are the largest and the smallest."""
    row = np.random.default_rng(0).integers(-2, 3, 1000)
    D = np.r_[np.ones(999), -1.0]
    moved = row * D
    reach = int(max(moved.max() - moved.min(), 0))  # 4: one entry takes what another one gives
    M = adp.AffineManifold(D[None])
    m = adp.design(M, epsilon=10.0, query=row[None], law=law, integers=integers, effort="quick")
    assert m.law == "staircase"
    assert m.guarantee.epsilon() == 10.0
    assert m.guarantee.exact
    least = geng_viswanath(reach, 10.0)
    if integers:
        least = min(whole_variance(reach, first, 10.0) for first in range(1, reach + 1))
    else:
        assert m.excess == pytest.approx(1.0)
    assert m.expected_squared_error == pytest.approx(least)
    v = m.guarantee.worst_direction
    assert abs(row @ v) == pytest.approx(reach)
    assert abs(D @ v) < 1e-12
    m.release(np.zeros(1000))


def crossed(m, x, y):
    """How many steps of the law that is drawn lie between what is read of two data sets."""
    plan = m.prepared()
    ((width, first),) = plan.grid.noise.parts[0].sampler._steps
    read = [int(plan.steps(np.array(data)[None])[0, 0]) for data in (x, y)]
    most = 0
    for start in (0, -read[1] + read[0], first - 1, -first + 1 - read[1] + read[0]):
        apart = level(start, width, first) - level(start + read[1] - read[0], width, first)
        most = max(most, abs(apart))
    return most


@pytest.mark.parametrize("steps", [3, 50, 200])
@pytest.mark.parametrize("a", [0.9, 0.5, 1.1])
def test_chains_of_one_dimension_have_the_least_noise_there_is(steps, a):
    """x(t+1) = a x(t): one number says all, and powers that are long in doubles do not matter."""
    D = np.zeros((steps, steps + 1))
    np.fill_diagonal(D, -a)
    np.fill_diagonal(D[:, 1:], 1.0)
    M = adp.AffineManifold(D)
    powers = [F(str(a)) ** t for t in range(steps + 1)]
    reach = 1 / min(powers)  # of the first number, if some number moves by one
    least = geng_viswanath(1.0, 10.0) * float(reach**2 * sum(p * p for p in powers))
    for law in ("auto", "staircase"):
        m = adp.design(M, epsilon=10.0, law=law)
        assert m.law == "staircase"
        assert m.expected_squared_error == pytest.approx(least, rel=1e-8)
        assert m.excess == pytest.approx(1.0)
        assert m.guarantee.holds(10.0, tolerance=0.0)
        # in exact arithmetic no neighbour is farther than one step
        place = int(np.argmax(np.abs(m.dense.basis)))
        moved = reach * powers[place]
        shown = float(m.dense.basis[place, 0])  # short numbers are the decimals that they show
        exact = moved / (F(repr(shown)) if len(repr(shown)) < 16 else F(shown))
        assert exact <= F(float(m.noise.widths[0]))
    x = np.array([float(p) for p in powers])
    assert np.all(np.isfinite(m.release(x)))


@pytest.mark.parametrize("seed", range(6))
def test_grids_pay_for_rounding_without_a_list(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 6))
    row = rng.integers(-30, 30, size) / 10
    mu = float(rng.choice([1.0, 0.7, 0.3]))
    M = adp.AffineManifold(np.ones((1, size)))
    m = adp.design(M, epsilon=2.0, mu=mu, query=row[None], law="staircase")
    reach = max(abs(a - b) for a in row for b in row) * mu
    assert m.expected_squared_error == pytest.approx(geng_viswanath(reach, 2.0))
    for _ in range(60):
        x = rng.integers(-1000, 1000, size) / 64
        x[-1] = -x[:-1].sum()
        i, j = rng.choice(size, 2, replace=False)
        y = x.copy()
        y[i] += mu * 63 / 64 if mu != 1 else 1.0
        y[j] -= mu * 63 / 64 if mu != 1 else 1.0
        assert crossed(m, x, y) <= 1


def whole_neighbours(D, mu):
    """All differences of whole neighbours, by trying all small vectors: circuits of D times whole.

    A difference is along a circuit, and some entry of it is within its μ while it goes as far.
    """
    D = np.array(D)
    n = D.shape[1]
    supports = []
    for v in itertools.product(range(-5, 6), repeat=n):
        if any(v) and not (D @ v).any() and math.gcd(*v) == 1:
            supports.append((frozenset(np.flatnonzero(v).tolist()), v))
    found = []
    for support, v in supports:
        if any(other < support for other, _ in supports):
            continue
        far = max(F(str(mu[i])) / abs(v[i]) for i in support)
        found.append(np.array(v) * math.floor(far))
    return [v for v in found if v.any()]


@pytest.mark.parametrize(
    ("D", "mu", "Q"),
    [
        ([[2, -1, 2, 0, -1]], [2.99, 2.97, 0.42, 2.3, 1.56], [[0, -1, -2, -1, -2]]),
        (
            [[1, 0, 1, 1], [-1, 1, 0, -1]], [1.48, 2.54, 2.83, 1.92],
            [[-1, 2, 1, -1], [-2, -2, 1, 0], [1, 1, 2, 1]],
        ),
        ([[5, -3]], [4, 4], [[1, 0]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("law", ["auto", "staircase", "knorm"])
def test_whole_neighbours_move_by_whole_multiples_of_their_own_moves(D, mu, Q, law):
    """Not of what the query shows of them: 11.96 = 4 · 2.99 stands for 8, and not for 11."""
    m = adp.design(adp.AffineManifold(D), epsilon=0.3, mu=mu, query=Q, integers=True, law=law)
    moves = np.array([np.array(Q) @ v for v in whole_neighbours(D, mu)])
    row = int(np.argmax(np.abs(moves).sum(axis=0)))
    shown = np.array([np.array(Q[row]) @ v for v in itertools.product(range(-5, 6), repeat=len(mu))
                      if not (np.array(D) @ v).any()])  # fmt: skip
    unit = math.gcd(*shown.tolist())
    steps = int(np.abs(moves[:, row]).max()) // unit
    best = min(whole_variance(steps, first, 0.3) for first in range(1, steps + 1)) * unit**2
    error = m.expected_squared_errors[row]
    assert error >= best * (1 - 1e-9)
    geometric = unit**2 / (2 * math.sinh(0.15 / steps) ** 2)
    assert error <= geometric * (1 + 1e-9)
    assert m.guarantee.epsilon() == pytest.approx(0.3)
    assert m.guarantee.exact
    if law == "knorm":  # all moves within one step of a staircase are alike
        assert abs(np.array(Q[row]) @ m.guarantee.worst_direction) == pytest.approx(steps * unit)


def test_the_first_step_of_very_wide_stairs_is_found_without_a_list():
    width = 5 * 10**17
    assert best_whole_first(width, 1.0) / width == pytest.approx(best_first(1.0, 1.0), rel=1e-6)
