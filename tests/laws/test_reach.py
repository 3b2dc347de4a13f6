"""How far sums of stairs reach, against laws that are added up term by term."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

import affinedp as adp
from affinedp.laws.reach import Steps, laplace_spread, sum_reach
from affinedp.laws.staircase import real_variance

GEOMETRIC = Steps(1.0, 1.0, 1.0, True)
STAIRS = Steps(4.0, 2.0, 0.8, True)
REAL = Steps(1.0, 0.4, 1.0, False)
REAL_VARIANCE = real_variance(1.0, 0.4, 1.0)


def law(steps, far=80):
    """Probabilities of whole numbers from the definition."""
    depth = lambda z: 0 if abs(z) < steps.first else 1 + (abs(z) - steps.first) // steps.width  # noqa: E731
    weights = {z: math.exp(-steps.rate * depth(z)) for z in range(-far * 5, far * 5 + 1)}
    total = math.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


@pytest.mark.parametrize("level", [0.3, 0.5, 0.9, 0.95, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("steps", [GEOMETRIC, STAIRS])
def test_one_whole_number(steps, level):
    reach = sum_reach({(steps, 2.5): 1}, 1 - level)
    t = round(reach / 2.5)
    assert reach == pytest.approx(2.5 * t, rel=1e-12)
    inside = lambda t: math.fsum(p for z, p in law(steps).items() if abs(z) <= t)  # noqa: E731
    assert inside(t) >= level - 1e-14
    assert t == 0 or inside(t - 1) < level


@pytest.mark.parametrize("level", [0.2, 0.5, 0.95, 0.999999])
def test_one_real_number(level):
    t = sum_reach({(REAL, 3.0): 1}, 1 - level) / 3
    edges = np.concatenate([[0.0], 0.4 + np.arange(60)])
    mass = np.diff(edges) * np.exp(-np.arange(60.0))
    inside = float(np.interp(t, edges, np.append(0, mass.cumsum())) / mass.sum())
    assert level <= inside + 1e-15
    assert inside == pytest.approx(level, rel=1e-11)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
@pytest.mark.parametrize(
    "terms",
    [
        {(GEOMETRIC, 1.0): 2},
        {(GEOMETRIC, 1.0): 1, (STAIRS, 1.0): 1},
        {(GEOMETRIC, 1 / 3): 1, (STAIRS, 0.5): 1},
        {(GEOMETRIC, 2.0): 1, (GEOMETRIC, 3.0): 1},
    ],
)
def test_two_whole_numbers_by_enumeration(terms, level):
    listed = [(steps, size) for (steps, size), times in terms.items() for _ in range(times)]
    (first, a), (second, b) = listed
    sums = sorted(
        (abs(a * y + b * z), p * q)
        for (y, p), (z, q) in itertools.product(law(first, 30).items(), law(second, 30).items())
    )
    sizes, total = np.array([s for s, _ in sums]), np.cumsum([p for _, p in sums])
    t = sum_reach(terms, 1 - level)
    at = lambda t: total[np.searchsorted(sizes, t, side="right") - 1]  # noqa: E731
    assert at(t) >= level
    assert at(t * (1 - 1e-9)) < level  # nothing shorter does


def test_many_alike_are_added_up_one_after_the_other():
    one = np.array([law(GEOMETRIC)[z] for z in range(-60, 61)])
    total = np.ones(1)
    for _ in range(12):
        total = np.convolve(total, one)
    middle = len(total) // 2
    inside = lambda t: float(total[middle - t : middle + t + 1].sum())  # noqa: E731
    for level in (0.5, 0.95, 0.9999):
        t = round(sum_reach({(GEOMETRIC, 1.0): 12}, 1 - level))
        assert inside(t) >= level > inside(t - 1)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_two_real_stairs_by_a_fine_sum(level):
    """Step functions convolved on a fine grid; never too short, and hardly too long."""
    size = 2_000
    x = (np.arange(-40 * size, 40 * size) + 0.5) / size
    depth = np.where(np.abs(x) < 0.4, 0, 1 + np.floor(np.abs(x) - 0.4))
    one = np.exp(-depth)
    one /= one.sum()
    total = np.fft.irfft(np.fft.rfft(one, 4 * len(one)) ** 2, 4 * len(one))[: 2 * len(one) - 1]
    places = (np.arange(len(total)) - (len(one) - 1)) / size
    t = sum_reach({(REAL, 1.0): 2}, 1 - level)
    assert total[np.abs(places) <= t + 1 / size].sum() >= level
    assert total[np.abs(places) <= t * (1 - 3e-3) - 1 / size].sum() < level


def test_coefficients_in_no_proportion():
    terms = {(GEOMETRIC, 1.0): 1, (GEOMETRIC, math.sqrt(2)): 1}
    pairs = itertools.product(law(GEOMETRIC, 10).items(), repeat=2)
    sums = [(abs(y + math.sqrt(2) * z), p * q) for (y, p), (z, q) in pairs]
    t = sum_reach(terms, 0.05)
    assert math.fsum(p for s, p in sums if s <= t) >= 0.95
    assert math.fsum(p for s, p in sums if s <= t * 0.99) < 0.95


def test_sums_too_large_for_a_lattice():
    wide = sum_reach({(Steps(1.0, 1.0, 1e-9, True), 1.0): 2}, 0.05) * 1e-9
    outside = (1 + wide / 2) * math.exp(-wide)  # of two Laplace numbers
    assert 0.0495 < outside <= 0.05
    many = {(REAL, 1.0 + 0.01 * i): 1 for i in range(200)}
    deviation = math.sqrt(REAL_VARIANCE * sum(c * c for _, c in many))
    assert 1.955 < sum_reach(many, 0.05) / deviation < 1.99  # nearly normal


def exact_outside(steps, t, far):
    """P(|y + 2 z| > t) for two numbers, term by term with 60 digits."""
    with mpmath.workdps(60):
        q = mpmath.exp(-mpmath.mpf(steps.rate))
        depth = [
            0 if z < steps.first else int(1 + (z - steps.first) // steps.width) for z in range(far)
        ]
        one = [q**d for d in depth]
        beyond = [mpmath.mpf(0)]
        for weight in reversed(one):
            beyond.append(beyond[-1] + weight)
        beyond.reverse()  # the weight of z, z + 1, …
        total = 2 * beyond[0] - one[0]
        upper = lambda z: beyond[z] if z >= 0 else total - beyond[1 - z]  # noqa: E731
        parts = (one[abs(z)] * upper(t - 2 * z + 1) for z in range(-far // 3, far // 3))
        return 2 * mpmath.fsum(parts) / total**2


@pytest.mark.parametrize("outside", [1e-12, 1e-15, 1e-40])
@pytest.mark.parametrize("steps", [GEOMETRIC, STAIRS])
def test_rare_sums_have_a_bound(steps, outside):
    """Where no transform says anything any more."""
    t = sum_reach({(steps, 1.0): 1, (steps, 2.0): 1}, outside)
    far = 4 * int(t)
    assert exact_outside(steps, math.floor(t), far) <= outside
    assert exact_outside(steps, math.floor(t / 1.2), far) > outside


@pytest.mark.parametrize("rate", [1e-15, 1e-16, 1e-17, 1e-30, 1e-300])
def test_noise_wider_than_whole_doubles(rate):
    """No double lies between two that are one apart; the search ends nevertheless."""
    t = Steps(1.0, 1.0, rate, True).reach(0.05)
    with mpmath.workdps(40):
        far = mpmath.exp(-mpmath.mpf(rate) * (mpmath.mpf(t) + 1))
        outside = 2 * far / (1 + mpmath.exp(-mpmath.mpf(rate)))
        assert outside <= 0.05
        assert outside >= 0.05 * (1 - mpmath.mpf("1e-9"))


FREE = adp.AffineManifold(np.zeros((0, 3)))


def test_intervals_of_stairs_and_axes_are_not_simulated():
    pair = adp.AffineManifold([[1.0, -1.0]])
    for m in (
        adp.design(FREE, epsilon=1.0, integers=True),
        adp.design(FREE, epsilon=1.0, law="staircase"),
        adp.design(pair, epsilon=1.0),
        adp.design(FREE, epsilon=1.0, law="knorm"),
    ):
        y = np.zeros(len(m.output_names))
        both = np.ones(len(y))
        assert "simulated" not in m.interval(y).how
        assert "simulated" not in m.interval(y, combination=both).how
        drawn = m.sample(40_000, np.random.default_rng(0))
        for level in (0.5, 0.95):
            for question in (None, both):
                high = m.interval(y, combination=question, level=level).high
                errors = np.abs(drawn if question is None else drawn @ both)
                least = stats.binom.ppf(1e-6, len(drawn), level) / len(drawn)
                assert (np.mean(errors <= high, axis=0) >= least).all()


def test_numbers_that_share_no_noise_hold_together_exactly():
    m = adp.design(FREE, epsilon=1.0, integers=True)
    together = m.interval(np.zeros(3), level=0.95, simultaneous=True)
    assert "simulated" not in together.how
    t = round(float(together.high[0]))
    inside = lambda t: math.fsum(p for z, p in law(GEOMETRIC).items() if abs(z) <= t)  # noqa: E731
    assert inside(t) ** 3 >= 0.95 > inside(t - 1) ** 3
    shared = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    assert "simulated" in m.interval(np.zeros(3), combination=shared, simultaneous=True).how


def test_many_sizes_without_a_common_lattice():
    """The law of a lattice is left out where its unit would be too small for any double."""
    law = Steps(1.0, 1.0, 0.5, True)
    sizes = np.random.default_rng(0).random(120) + 0.5
    variance = (sizes**2).sum() * 0.5 / math.sinh(0.25) ** 2
    reach = sum_reach({(law, size): 1.0 for size in sizes.tolist()}, 0.05)
    assert 1.95 < reach / math.sqrt(variance) < 2.0


@pytest.mark.parametrize("outside", [0.3, 0.05, 1e-3, 1e-9])
@pytest.mark.parametrize("terms", [1, 2, 5, 40])
def test_a_bound_from_the_variance_holds_for_sums_of_laplace_numbers(terms, outside):
    """A sum of Laplace numbers of one scale is the difference of two gamma variables."""
    t = laplace_spread(outside) * math.sqrt(2 * terms)  # scale 1

    def beyond(x):
        return stats.gamma.pdf(x, terms) * stats.gamma.sf(x + t, terms)

    exact = 2 * integrate.quad(beyond, 0, np.inf, epsabs=0, epsrel=1e-10)[0]
    assert 0 < exact <= outside


def test_the_fourth_moment_bounds_what_the_variance_leaves_open():
    """E X⁴ is at most 6 for variance 1, so that 0.05 lies beyond no more than (6/0.05)^¼."""
    assert laplace_spread(0.05) == pytest.approx(120**0.25)
