"""Columns that move steadily are no evidence; what they leave is."""

import numpy as np
import pytest

import affinedp as adp
from affinedp.discovery.chance import least_surprises, log10_beyond_steady

SHAPES = [(8, 6, 0.0, 0), (12, 6, 0.3, 0), (40, 6, 0.03, 1), (20, 8, 0.1, 0), (30, 4, 0.0, 2)]


def trends(seed, rows, columns, noise, decimals):
    rng = np.random.default_rng(seed)
    line = np.linspace(0, 1, rows)[:, None] * rng.uniform(1, 20, columns)
    noisy = line + rng.normal(0, noise, (rows, columns)) + rng.uniform(50, 90, columns)
    return np.round(noisy, decimals)


def waves(seed, rows, columns, noise, decimals):
    rng = np.random.default_rng(seed)
    phase = 2 * np.pi * np.arange(rows)[:, None] / 12 + rng.uniform(0, 6, columns)
    wave = rng.uniform(50, 90, columns) + rng.uniform(1, 20, columns) * np.sin(phase)
    return np.round(wave + rng.normal(0, noise, (rows, columns)), decimals)


def curves(seed, rows, columns, noise, decimals):
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, rows)[:, None]
    grown = rng.uniform(50, 90, columns) * np.exp(time * rng.uniform(0.1, 2, columns))
    return np.round(grown + rng.normal(0, noise, (rows, columns)), decimals)


def walks(seed, rows, columns, noise, decimals):
    rng = np.random.default_rng(seed)
    steps = rng.normal(noise, 1, (rows, columns)) * rng.uniform(0.05, 2, columns)
    return np.round(np.cumsum(steps, axis=0) + rng.uniform(50, 90, columns), decimals)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [trends, waves, curves, walks])
def test_no_false_alarm(kind, shape):
    for seed in range(2):
        found = adp.discover(kind(seed, *shape))
        assert [one.text for one in found.equations] == []


@pytest.mark.parametrize(
    ("rows", "noise", "decimals"), [(48, 1.0, 0), (40, 0.3, 1), (40, 0.1, 1), (24, 1.0, 1)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_total_of_trends_is_found(rows, noise, decimals, seed):
    parts = trends(seed, rows, 4, noise, decimals)
    total = np.round(parts[:, 0] + parts[:, 1], decimals)
    (one,) = adp.discover(np.column_stack([parts, total]), between_rows=False).equations
    assert one.text == "x5 = x1 + x2"
    assert one.log10_chance < -10


def test_a_total_of_lines_without_noise_is_doubtful():
    parts = trends(0, 40, 2, 0.0, 0)
    found = adp.discover(np.column_stack([parts, parts.sum(axis=1)]), between_rows=False)
    assert found.equations == ()
    assert "x3 = x1 + x2" in {one.text for one in found.doubtful}


def test_a_total_row_of_trends_is_found():
    months = trends(3, 12, 5, 0.3, 1)
    table = np.vstack([months, months.sum(axis=0)]).round(1)
    (one,) = adp.discover(table).equations
    assert one.pattern == "total row"
    assert len(one.coefficients) in (2, 13)


def test_what_a_row_says_does_not_exceed_its_entropy():
    """Independent numbers of b values say log10(b), whatever line they stand on."""
    rng = np.random.default_rng(1)
    for values in (4, 30, 1000):
        numbers = rng.integers(0, values, 500)
        for line in (0, 17):
            says = log10_beyond_steady(numbers + line * np.arange(500), 1.0, 9.0)
            assert np.log10(values) - 0.25 < says <= np.log10(values) + 0.05


@pytest.mark.parametrize(
    "series",
    [
        np.arange(60) * 13 // 7,
        np.round(80 * np.sin(np.arange(60) / 3)).astype(int),
        np.round(50 * np.exp(np.arange(60) / 30)).astype(int),
        10**30 + np.arange(60).astype(object) ** 3,
    ],
)
def test_steady_series_say_nothing(series):
    assert log10_beyond_steady(series, 1.0, 2.0) < 0.03
    assert np.median(least_surprises(series)) <= 1
