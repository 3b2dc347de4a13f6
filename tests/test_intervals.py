"""Half widths against closed forms and simulation."""

import functools
import math

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.intervals import checked_level
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Laplace
from affinedp.laws.reach import Laplaces, chernoff, laplace_total_reach
from affinedp.tables import TableRelease


def test_gaussian():
    found = Gaussian().reach(np.array([[3.0, 4.0], [0.0, 2.0]]), 1 - 0.99)[0]
    assert found == pytest.approx(stats.norm.ppf(0.995) * np.array([5.0, 2.0]))


def test_one_laplace_noise():
    found = Laplace().reach(np.array([[0.0, -3.0, 0.0]]), 1 - 0.9)[0][0]
    assert found == pytest.approx(stats.laplace(scale=3.0).ppf(0.95), rel=1e-8)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, 0.9999])
def test_two_equal_laplace_noises(level):
    """|sum| > t has probability e^{-t}(1 + t/2) for two unit Laplace noises."""
    t = Laplace().reach(np.array([[1.0, 1.0]]), 1 - level)[0][0]
    assert math.exp(-t) * (1 + t / 2) <= 1 - level
    assert math.exp(-t) * (1 + t / 2) == pytest.approx(1 - level, rel=1e-3)


@pytest.mark.parametrize("ratio", [0.5, 0.1, 1e-3])
def test_two_laplace_noises(ratio):
    """Partial fractions: weights 1/(1 − r²) and −r²/(1 − r²) of the two tails."""
    t = Laplace().reach(np.array([[1.0, ratio]]), 1 - 0.95)[0][0]
    tail = (math.exp(-t) - ratio**2 * math.exp(-t / ratio)) / (1 - ratio**2)
    assert tail <= 0.05
    assert tail == pytest.approx(0.05, rel=1e-3)


@given(st.lists(st.floats(0.01, 10.0), min_size=2, max_size=6), st.sampled_from([0.5, 0.9, 0.99]))
@settings(max_examples=10)
def test_simulated(scales, level):
    noise = np.array([scales])
    drawn = np.random.default_rng(0).laplace(size=(200_000, len(scales))) @ noise[0]
    reach = Laplace().reach(noise, 1 - level)[0][0]
    spread = math.sqrt(level * (1 - level) / 200_000)
    assert np.mean(np.abs(drawn) <= reach) == pytest.approx(level, abs=5 * spread)


def test_chernoff_is_never_too_small():
    drawn = np.random.default_rng(0).laplace(size=(200_000, 3)).sum(axis=1)
    for level in (0.5, 0.9, 0.99):
        assert (
            np.mean(np.abs(drawn) <= chernoff([Laplaces(np.ones(1), np.array([3.0]))], 1 - level))
            >= level
        )


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan, "95"])
def test_bad_levels(level):
    with pytest.raises(AffineDPError, match="level must"):
        checked_level(level)


def test_intervals_know_the_bound():
    """A public bound makes the noise larger, and all that is said about it."""
    t = pd.DataFrame({"a": [10.0] * 300, "b": [20.0] * 300, "c": [30.0] * 300})
    description = TableRelease(
        totals={"c": ["a", "b"]}, epsilon=1.0, delta=1e-6, law="gaussian", whole=False
    )
    out = description.release(t, bound=2.0**53)
    low, high = out.interval(0.95)
    assert (((low <= t) & (t <= high)).mean() > 0.88).all()
    real = (out.table - t).std()
    assert ((real / out.noise).between(0.8, 1.25)).all()
    assert "times larger" in str(out.report())
    assert (description.design(t).noise < out.noise / 2).all()


# ---------------------------------------------------------------------- intervals of mechanisms


def two_splits():
    """A total with two splits: correlated outputs, also for Laplace noise."""
    return adp.AffineManifold.from_equations(["women + men = all", "young + old = all"])


def mechanisms():
    M = two_splits()
    yield adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    yield adp.design_laplace(M, epsilon=1.0, effort="quick")
    yield adp.design_knorm(M, epsilon=1.0)


COMBINATIONS = np.array([[1.0, -1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, -2, 0.5, 0]])


@pytest.mark.parametrize("place", [0, 1, 2], ids=["gaussian", "laplace", "knorm"])
@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("combination", [None, COMBINATIONS], ids=["outputs", "combinations"])
def test_coverage_by_simulation(place, simultaneous, combination):
    """Fresh simulated releases; an exact binomial bound says whether the coverage can be true."""
    m = list(mechanisms())[place]
    truth = np.array([30.0, 70.0, 100.0, 45.0, 55.0])
    draws = 4000
    y = truth + m.sample(draws, seed=5)
    wanted = truth if combination is None else combination @ truth
    # y is one release after the other, each with an interval of its own
    width = m.interval(truth, combination=combination, level=0.9, simultaneous=simultaneous)
    center = y if combination is None else y @ combination.T
    inside = np.abs(center - wanted) <= (width.high - width.low) / 2
    if simultaneous:
        inside = inside.all(axis=1)[:, None]
    for hits in inside.sum(axis=0).tolist():
        # too little coverage is ruled out with probability 1 - 1e-4
        assert stats.binom.cdf(hits, draws, 0.9) > 1e-4
        if not simultaneous:  # and each by itself is sharp
            assert stats.binom.sf(hits, draws, 0.901) > 1e-4
        elif place:  # the rank of a simulation is a little longer
            assert stats.binom.sf(hits, draws, 0.905) > 1e-4


def test_rows_at_once_are_wider():
    m = next(mechanisms())
    y = np.zeros((10, 5))
    one, all_rows = (m.interval(rows, simultaneous=True) for rows in (y[0], y))
    assert (all_rows.high[0] > one.high).all()
    expected = stats.norm.ppf((1 + 0.95 ** (1 / 50)) / 2) * np.sqrt(m.expected_squared_errors)
    assert all_rows.high[3] == pytest.approx(expected, rel=1e-6)


def test_names_and_positions_agree():
    m = next(mechanisms())
    y = np.arange(5.0)
    series = pd.Series(y, index=m.output_names)[::-1]
    by_name = m.interval(series, combination={"women": 1, "all": -1})
    by_place = m.interval(y, combination=[1, 0, -1, 0, 0])
    assert (by_name.low, by_name.high) == (by_place.low, by_place.high)
    frame = pd.DataFrame([y, y + 1], columns=m.output_names)
    assert m.interval(frame).low.shape == (2, 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": [1.0, 2.0]}, "5 finite numbers"),
        ({"y": [1.0, 2, 3, 4, math.nan]}, "5 finite numbers"),
        ({"combination": {"boys": 1}}, "'boys', which is no output"),
        ({"combination": [1.0, 2.0]}, "5 coefficients"),
        ({"level": 1.0}, "level must lie"),
        ({"y": pd.Series([1.0] * 5, index=list("abcde"))}, "exactly the outputs"),
    ],
)
def test_bad_questions(arguments, words):
    y = arguments.pop("y", np.zeros(5))
    with pytest.raises(AffineDPError, match=words):
        next(mechanisms()).interval(y, **arguments)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999, 1 - 1e-7])
def test_sums_of_two_equal_laplace_numbers_have_a_closed_form(level):
    t = laplace_total_reach(np.array([3.0]), np.array([2.0]), 1 - level) / 3
    outside = (1 + t / 2) * math.exp(-t)
    assert outside <= (1 - level) * (1 + 1e-9)
    assert outside >= (1 - level) * (1 - 1e-3)


def test_sums_of_many_laplace_numbers_are_nearly_normal_and_never_too_short():
    scales = np.random.default_rng(0).random(3000)
    for each, times in ((scales, np.ones(3000)), (np.array([0.5]), np.array([1e5]))):
        deviation = math.sqrt(2 * float((times * each**2).sum()))
        found = laplace_total_reach(each, times, 1 - 0.95) / deviation
        assert 1.9599 < found < 1.9625
    few = np.random.default_rng(1).random(5)
    grouped = laplace_total_reach(np.repeat(few, 3), np.ones(15), 1 - 0.99)
    assert laplace_total_reach(few, np.full(5, 3.0), 1 - 0.99) == pytest.approx(grouped, rel=1e-8)
    assert laplace_total_reach(np.zeros(2), np.ones(2), 1 - 0.99) == 0.0


@pytest.mark.parametrize("simultaneous", [False, True])
def test_whole_noise_on_an_end_is_inside(simultaneous):
    """A half width of 4 that rounding makes 3.9999999999999996 would leave out all of ±4."""
    m = adp.design(adp.AffineManifold(np.zeros((0, 3))), epsilon=1.0, mu=[1, 2, 4], integers=True)
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        reach = m.interval(np.zeros(3), level=level, simultaneous=simultaneous).high
        near = np.abs(reach - np.rint(reach)) < 1e-9
        assert near.any()
        assert (reach[near] >= np.rint(reach[near])).all()


@functools.cache
def five_laws():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    return (
        adp.design_gaussian(M, epsilon=1.0, delta=1e-6),
        adp.design_laplace(M, epsilon=1.0, effort="quick"),
        adp.design_knorm(M, epsilon=1.0),
        adp.design_knorm(M, epsilon=1.0, integers=True),
        adp.design(adp.AffineManifold(np.zeros((0, 3))), epsilon=1.0, integers=True),
    )


@pytest.mark.parametrize("place", range(5), ids=["gaussian", "laplace", "knorm", "whole", "axes"])
@pytest.mark.parametrize("power", [-1000, -565, 531, 900])
@pytest.mark.parametrize("simultaneous", [False, True])
def test_coefficients_of_any_size(place, power, simultaneous):
    """Powers of two change nothing but the unit."""
    m = five_laws()[place]
    c, y = np.array([1.0, 0, 2]), np.array([3.0, 4, 7])
    plain = m.interval(y, combination=c, simultaneous=simultaneous)
    other = m.interval(y, combination=np.ldexp(c, power), simultaneous=simultaneous)
    assert plain.high > plain.low
    assert [math.ldexp(plain.low, power), math.ldexp(plain.high, power)] == [other.low, other.high]


@pytest.mark.parametrize("outside", [2.0**-53, 2.0**-50, 2.0**-30, 0.05])
def test_gaussian_levels_near_one(outside):
    m = five_laws()[0]
    deviation = math.sqrt(m.expected_squared_errors[0])
    for rows, simultaneous in ((1, False), (100, True)):
        y = np.zeros(3) if rows == 1 else np.zeros((rows, 3))
        found = m.interval(
            y, combination=[[1.0, 0, 0]], level=1 - outside, simultaneous=simultaneous
        )
        with mpmath.workdps(40):
            tail = mpmath.erfc(mpmath.mpf(found.high.flat[0]) / deviation / mpmath.sqrt(2))
            whole = (1 - tail) ** rows
            assert 1 - whole <= outside * (1 + mpmath.mpf("1e-9"))
            assert 1 - whole >= outside * (1 - mpmath.mpf("1e-6"))  # a release rounds noise up


def test_many_entries_of_a_sum_are_simulated_and_covered():
    """Beyond listed cones: the rank holds for this simulation, not only on average."""
    M = adp.AffineManifold.from_equations([" + ".join(f"x{i}" for i in range(9)) + " = total"])
    m = adp.design_knorm(M, epsilon=1.0)
    found = m.interval(np.zeros(10), level=0.9)
    assert "simulated" in found.how
    assert "1e-06" in found.how
    drawn = np.abs(m.sample(100_000, seed=123))
    for hits in (drawn <= found.high).sum(axis=0).tolist():
        assert stats.binom.cdf(hits, 100_000, 0.9) > 1e-4
        assert stats.binom.sf(hits, 100_000, 0.91) > 1e-4
    with pytest.raises(AffineDPError, match="lower level, or for fewer numbers"):
        m.interval(np.zeros(10), level=1 - 1e-12)


def test_whole_noise_at_rare_levels_is_bounded():
    m = five_laws()[4]
    found = m.interval(np.zeros(3), combination=[1, 1, 1], level=1 - 1e-12)
    assert found.how.startswith("from the law")
    assert 20 < found.high < 50


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_intervals_know_columns_by_their_names(frame):
    library = pytest.importorskip(frame)
    M = adp.AffineManifold(np.zeros((0, 2)), names=["small", "large"])
    m = adp.iid_noise(M, law="laplace", epsilon=1.0, query=[[1, 0], [0, 100]], mu=[1, 100])
    names = m.output_names
    rows = {names[1]: [1.0, 2.0], names[0]: [3.0, 4.0]}
    found = m.interval(library.DataFrame(rows))
    wanted = m.interval(np.array([[3.0, 1.0], [4.0, 2.0]]))
    assert np.array_equal(found.low, wanted.low)


def test_intervals_cover_the_rounding_of_what_is_published():
    """At 1e17 doubles are 16 apart: more than the noise."""
    M = adp.AffineManifold([[1, 1, -1]])
    m = adp.design_laplace(M, epsilon=1.0)
    x = np.array([1e17, 3e17, 4e17])
    inside = 0
    for _ in range(40):
        low, high = m.interval(m.release(x))
        inside += np.all((low <= x) & (x <= high))
    assert inside >= 36
    # a combination without noise has the width of its rounding
    low, high = m.interval(m.release(x), combination=[1, 1, -1])
    assert low <= 0 <= high


def test_an_interval_shows_its_ends():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    low, high = found = m.interval([1.0, 2.0, 3.0])
    assert repr(low) in repr(found)
    assert repr(high) in repr(found)
