"""Calibration against mpmath: every answer is safe, and within 1e-12 of the truth."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from affinedp.errors import AffineDPError
from affinedp.laws.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sensitivity,
    gaussian_sigma,
    gaussian_sigma_bound,
)

TOLERANCE = mp.mpf("1e-12")
EPSILONS = [0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0, 2.0, 5.0, 30.0, 200.0, 1e3]
SENSITIVITIES = [1e-12, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9, 0.99999, 1.0]
SENSITIVITIES += [1.1, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 17.0, 25.0, 35.0, 44.0, 45.0, 60.0, 1e3]
DELTAS = [2.3e-308, 1e-300, 1e-200, 1e-100, 1e-50, 1e-20, 1e-12, 1e-8, 1e-5, 1e-3, 0.01, 0.1, 0.3]
DELTAS += [0.5, 0.5 + 2**-53, 0.7, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12]


def kappa(epsilon, sensitivity):
    """κ from its definition, with enough digits for the cancellation at any sensitivity."""
    if sensitivity == 0:
        return mp.mpf(0)
    lost = max(0, -math.floor(mp.log10(sensitivity)))
    with mp.workdps(60 + 2 * lost if lost < 20 else 700):
        first = mp.erfc((epsilon / sensitivity - sensitivity / 2) / mp.sqrt(2)) / 2
        second = mp.erfc((epsilon / sensitivity + sensitivity / 2) / mp.sqrt(2)) / 2
        return first - mp.exp(epsilon) * second


def exact(*values):
    return [mp.mpf(float(value)) for value in values]


def grid(*axes):
    return [column.ravel() for column in np.meshgrid(*axes, indexing="ij")]


def random_epsilon_and_sensitivity(size, seed):
    """ε from 1e-12 to 1e3, and s that put κ anywhere between 1e-300 and almost 1."""
    rng = np.random.default_rng(seed)
    epsilon = 10.0 ** rng.uniform(-12, 3, size)
    quantile = rng.uniform(-8, 37, size)
    root = np.sqrt(quantile**2 + 2 * epsilon)
    below = 2 * epsilon / (root + np.maximum(quantile, 0))
    return epsilon, np.where(quantile > 0, below, root - quantile)


def assert_delta_is_exact(epsilon, sensitivity):
    for e, s, computed in zip(epsilon, sensitivity, gaussian_delta(epsilon, sensitivity)):
        true = kappa(*exact(e, s))
        assert true <= computed <= 1, (e, s)
        assert computed <= max(true * (1 + TOLERANCE), mp.mpf("1e-300")), (e, s)


def assert_sensitivity_is_exact(epsilon, delta):
    for e, d, computed in zip(epsilon, delta, gaussian_sensitivity(epsilon, delta)):
        e, d, s = exact(e, d, computed)
        assert kappa(e, s) <= d <= kappa(e, s * (1 + TOLERANCE)), (e, d)


def assert_epsilon_is_exact(delta, sensitivity):
    for d, s, computed in zip(delta, sensitivity, gaussian_epsilon(delta, sensitivity)):
        d, s, e = exact(d, s, computed)
        assert kappa(e, s) <= d, (d, s)
        less = e - TOLERANCE * max(e, min(s, 1))
        assert less <= 0 or kappa(less, s) >= d, (d, s)


def test_delta_on_the_grid():
    assert_delta_is_exact(*grid(EPSILONS, SENSITIVITIES))


def test_delta_at_random_points():
    assert_delta_is_exact(*random_epsilon_and_sensitivity(1500, seed=1))


def test_delta_where_the_method_changes():
    rng = np.random.default_rng(2)
    nudge = 1 + rng.choice([-1e-15, 0, 1e-15], 200)
    for ratio, half in [
        (np.full(200, 2.5) * nudge, rng.uniform(0, 0.8, 200)),
        (rng.uniform(0, 37, 200), None),
    ]:
        half = (0.5 + ratio / 8) * nudge if half is None else half
        assert_delta_is_exact(2 * ratio * half, 2 * half)
    sensitivity = rng.uniform(1, 44, 200)
    assert_delta_is_exact(sensitivity**2 / 2 * nudge, sensitivity)  # a = 0


def test_delta_below_the_smallest_number_is_not_zero():
    tiny = np.finfo(float).tiny
    assert gaussian_delta(1e3, 1e-12) == tiny
    assert gaussian_delta(1e308, 1e-300) == tiny
    assert gaussian_delta(0.0, 5e-324) == tiny


def test_delta_at_the_ends():
    assert gaussian_delta(1, 2) == gaussian_delta(1.0, np.int32(2))
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(5.0, 0.0) == 0.0
    assert gaussian_delta(5.0, math.inf) == 1.0
    assert gaussian_delta(1e308, 1e308) == 1.0
    assert gaussian_delta(0.0, 1e3) == 1.0


@pytest.mark.parametrize("epsilon", [1e6, 1e12, 1e18, 1e24, 1e33])
def test_delta_stays_safe_for_huge_epsilon(epsilon):
    base = math.sqrt(2 * epsilon)
    for shift in (-1e-9, -20.0, -1.0, -0.1, 0.0, 0.1, 1.0, 1e-9, 1e-15 * base):
        with mp.workdps(120):
            assert gaussian_delta(epsilon, base + shift) >= kappa(*exact(epsilon, base + shift))


def test_sensitivity_on_the_grid():
    assert_sensitivity_is_exact(*grid(EPSILONS, DELTAS))


@pytest.mark.slow
def test_sensitivity_where_epsilon_is_about_delta():
    rng = np.random.default_rng(3)
    delta = 10.0 ** rng.uniform(-300, -0.1, 150)
    assert_sensitivity_is_exact(delta * 10.0 ** rng.uniform(-3, 5, 150), delta)


@pytest.mark.parametrize("epsilon", [1e5, 2e10, 0.99e12, 1.01e12, 1e18])
def test_inverses_for_huge_epsilon(epsilon):
    with mp.workdps(120):
        epsilons = np.full(len(DELTAS), epsilon)
        assert_sensitivity_is_exact(epsilons, np.array(DELTAS))
        assert_epsilon_is_exact(np.array(DELTAS), np.sqrt(2 * epsilons))


def test_sigma_on_the_grid():
    epsilon, delta = grid(EPSILONS[::2], DELTAS[::2])
    for distance in (1.0, 0.3):
        for e, d, sigma in zip(epsilon, delta, gaussian_sigma(epsilon, delta, distance)):
            e, d = exact(e, d)
            with mp.workdps(60):
                ratio = mp.mpf(distance) / mp.mpf(float(sigma))
            assert kappa(e, ratio) <= d <= kappa(e, ratio / (1 - TOLERANCE)), (e, d)


@pytest.mark.slow
def test_sigma_bound_on_the_grid():
    epsilon, delta = grid(EPSILONS, DELTAS)
    for e, d, sigma in zip(epsilon, delta, gaussian_sigma_bound(epsilon, delta)):
        if e == 0 and d <= 0.5:
            assert sigma == math.inf
            continue
        e, d, s = exact(e, d, sigma)
        with mp.workdps(330):
            s = 1 / s
            first_term = [mp.ncdf(t / 2 - e / t) for t in (s, s / (1 - TOLERANCE))]
        assert first_term[0] <= d <= first_term[1], (e, d)


def test_sigma_bound_is_an_upper_bound():
    epsilon, delta = grid(EPSILONS, DELTAS)
    bound = gaussian_sigma_bound(epsilon, delta)
    assert np.all(gaussian_sigma(epsilon, delta) <= bound * (1 + 1e-12))


def test_epsilon_on_the_grid():
    assert_epsilon_is_exact(*grid(DELTAS, SENSITIVITIES))


def test_epsilon_at_random_points():
    epsilon, sensitivity = random_epsilon_and_sensitivity(500, seed=4)
    delta = gaussian_delta(epsilon, sensitivity)
    possible = (delta >= 1e-300) & (delta < 1)
    assert_epsilon_is_exact(delta[possible], sensitivity[possible])


def test_epsilon_where_it_is_almost_zero():
    rng = np.random.default_rng(5)
    sensitivity = 10.0 ** rng.uniform(-12, 1.1, 200)
    delta = gaussian_delta(0.0, sensitivity) * (1 - 10.0 ** rng.uniform(-17, -1, 200))
    assert_epsilon_is_exact(delta, sensitivity)


def test_epsilon_at_the_ends():
    assert gaussian_epsilon(1e-10, 0.0) == 0.0
    assert gaussian_epsilon(0.4, 1.0) == 0.0  # κ(0, 1) = 0.383
    assert gaussian_epsilon(0.99, 2.0) == 0.0
    assert gaussian_epsilon(0.5, math.inf) == math.inf
    assert gaussian_epsilon(0.5, 1e200) == math.inf


@pytest.mark.parametrize(
    ("epsilon", "tight", "bound"),
    [
        (1.0, 1.8778755609, 2.5244),
        (0.1, 9.5418230888, 23.4765),
        (0.01, 27.7008824556, 232.8495),
    ],
)
def test_the_numbers_of_the_paper(epsilon, tight, bound):
    assert round(gaussian_sigma(epsilon, 0.01), 10) == tight
    assert round(gaussian_sigma_bound(epsilon, 0.01), 4) == bound


def test_sigma_scales_with_the_sensitivity():
    assert gaussian_sigma(1.0, 1e-6, 0.0) == 0.0
    assert gaussian_sigma_bound(0.0, 0.01, 0.0) == 0.0
    assert gaussian_sigma(1.0, 1e-6, math.inf) == math.inf
    assert gaussian_sigma(1.0, 1e-6, 7.0) == pytest.approx(7 * gaussian_sigma(1.0, 1e-6), rel=1e-14)
    assert gaussian_sigma(0.0, 1e-300, 1e10) == math.inf  # too large for a float: safe
    assert gaussian_sigma(1e3, 0.9, 5e-324) > 0.0


FUNCTIONS = {
    gaussian_delta: ("epsilon", "sensitivity"),
    gaussian_sensitivity: ("epsilon", "delta"),
    gaussian_sigma: ("epsilon", "delta", "sensitivity"),
    gaussian_sigma_bound: ("epsilon", "delta", "sensitivity"),
    gaussian_epsilon: ("delta", "sensitivity"),
}
GOOD = {"epsilon": 0.7, "delta": 0.01, "sensitivity": 1.5}
each_function = pytest.mark.parametrize(("function", "names"), FUNCTIONS.items())


@each_function
def test_numbers_and_arrays(function, names):
    one = function(**{name: GOOD[name] for name in names})
    assert type(one) is float
    assert type(function(**{name: np.float64(GOOD[name]) for name in names})) is float
    none = function(**{name: np.array(GOOD[name]) for name in names})
    assert none.shape == ()
    assert none == one
    assert function(**{name: np.empty((0, 3)) for name in names}).shape == (0, 3)
    rows, columns = names[:2]
    down, across = np.array([[0.1], [0.2], [0.3]]), [0.02, 0.5]
    result = function(**{rows: down, columns: across})
    assert (result.dtype, result.shape) == (np.float64, (3, 2))
    for i, j in np.ndindex(3, 2):
        assert result[i, j] == function(**{rows: down[i, 0], columns: across[j]})
    assert down.ravel().tolist() == [0.1, 0.2, 0.3]  # not changed


BAD = {
    "epsilon": [-1e-300, -1, math.nan, math.inf],
    "delta": [0.0, 1.0, -0.5, 1.5, math.nan, 1e-310],
    "sensitivity": [-1.0, -math.inf, math.nan],
}
NOT_NUMBERS = [None, "1", 1j, True, [[1.0], [1.0, 2.0]], np.array([1 + 0j]), [True], object()]
NOT_NUMBERS += [np.longdouble("0.1")] if np.dtype(np.longdouble).itemsize > 8 else []


@each_function
def test_numbers_out_of_range_are_refused(function, names):
    for name in names:
        for value in BAD[name]:
            arguments = {n: GOOD[n] for n in names}
            with pytest.raises(AffineDPError, match=f"^{name} must be .*got {float(value)!r}$"):
                function(**{**arguments, name: value})
            with pytest.raises(AffineDPError, match=rf"^{name} .*{float(value)!r} at index \(1,\)"):
                function(**{**arguments, name: [0.5, value, 0.5]})


@each_function
def test_what_is_not_a_real_number_is_refused(function, names):
    for name in names:
        for value in NOT_NUMBERS:
            with pytest.raises(AffineDPError, match=f"^{name} "):
                function(**{**{n: GOOD[n] for n in names}, name: value})


@each_function
def test_shapes_that_do_not_broadcast_are_refused(function, names):
    first, second = names[:2]
    with pytest.raises(AffineDPError, match=rf"{first} has \(2,\), {second} has \(3,\)"):
        function(**{first: [0.1, 0.1], second: [0.1, 0.1, 0.1]})
