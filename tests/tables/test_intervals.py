"""Half widths against closed forms and simulation."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease
from affinedp.tables.intervals import _chernoff_reach, half_widths


def test_gaussian():
    found = half_widths(np.array([[3.0, 4.0], [0.0, 2.0]]), "gaussian", 0.99)
    assert found == pytest.approx(stats.norm.ppf(0.995) * np.array([5.0, 2.0]))


def test_one_laplace_noise():
    found = half_widths(np.array([[0.0, -3.0, 0.0]]), "laplace", 0.9)[0]
    assert found == pytest.approx(stats.laplace(scale=3.0).ppf(0.95), rel=1e-8)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, 0.9999])
def test_two_equal_laplace_noises(level):
    """|sum| > t has probability e^{-t}(1 + t/2) for two unit Laplace noises."""
    t = half_widths(np.array([[1.0, 1.0]]), "laplace", level)[0]
    assert math.exp(-t) * (1 + t / 2) <= 1 - level
    assert math.exp(-t) * (1 + t / 2) == pytest.approx(1 - level, rel=1e-3)


@pytest.mark.parametrize("ratio", [0.5, 0.1, 1e-3])
def test_two_laplace_noises(ratio):
    """Partial fractions: weights 1/(1 − r²) and −r²/(1 − r²) of the two tails."""
    t = half_widths(np.array([[1.0, ratio]]), "laplace", 0.95)[0]
    tail = (math.exp(-t) - ratio**2 * math.exp(-t / ratio)) / (1 - ratio**2)
    assert tail <= 0.05
    assert tail == pytest.approx(0.05, rel=1e-3)


@given(st.lists(st.floats(0.01, 10.0), min_size=2, max_size=6), st.sampled_from([0.5, 0.9, 0.99]))
@settings(max_examples=10)
def test_simulated(scales, level):
    noise = np.array([scales])
    drawn = np.random.default_rng(0).laplace(size=(200_000, len(scales))) @ noise[0]
    reach = half_widths(noise, "laplace", level)[0]
    spread = math.sqrt(level * (1 - level) / 200_000)
    assert np.mean(np.abs(drawn) <= reach) == pytest.approx(level, abs=5 * spread)


def test_chernoff_is_never_too_small():
    drawn = np.random.default_rng(0).laplace(size=(200_000, 3)).sum(axis=1)
    for level in (0.5, 0.9, 0.99):
        assert np.mean(np.abs(drawn) <= _chernoff_reach(np.ones(3), 1 - level)) >= level


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan, "95"])
def test_bad_levels(level):
    with pytest.raises(AffineDPError, match="level must"):
        half_widths(np.eye(2), "gaussian", level)


def test_intervals_know_the_bound():
    """A public bound makes the noise larger, and all that is said about it."""
    t = pd.DataFrame({"a": [10.0] * 300, "b": [20.0] * 300, "c": [30.0] * 300})
    description = TableRelease(totals={"c": ["a", "b"]}, epsilon=1.0, delta=1e-6)
    out = description.release(t, bound=2.0**53)
    low, high = out.interval(0.95)
    assert (((low <= t) & (t <= high)).mean() > 0.88).all()
    real = (out.table - t).std()
    assert ((real / out.noise).between(0.8, 1.25)).all()
    assert "times larger" in str(out.report())
    assert (description.design(t).noise < out.noise / 2).all()
