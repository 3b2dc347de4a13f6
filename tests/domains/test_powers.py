"""Products over long horizons against mpmath and exact fractions."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.domains.dynamics import Dynamics, dynamics_of
from affinedp.domains.powers import (
    HorizonTooLongError,
    growth_exponent,
    scan_inverse_transitions,
    scan_transitions,
)
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def transitions(dynamics: Dynamics, scan=scan_transitions) -> tuple[np.ndarray, float]:
    found = np.zeros((dynamics.horizon, dynamics.states, dynamics.states))

    def keep(start: int, block: np.ndarray) -> None:
        found[start : start + len(block)] = block

    return found, scan(dynamics, keep).error


def inverse_transitions(dynamics: Dynamics) -> tuple[np.ndarray, float]:
    return transitions(dynamics, scan_inverse_transitions)


def exact_product(dynamics: Dynamics, t: int) -> mpmath.matrix:
    product = mpmath.eye(dynamics.states)
    for k in range(t):
        step = [[meaning(value) for value in row] for row in dynamics.state_matrix(k).tolist()]
        exact = [[mpmath.mpf(v.numerator) / v.denominator for v in row] for row in step]
        product = mpmath.matrix(exact) * product
    return product


def off(found: np.ndarray, truth: mpmath.matrix, error: float) -> float:
    """How far beyond the stated error the worst entry is, in units of it."""
    worst = 0.0
    for (i, j), value in np.ndenumerate(found):
        allowed = mpmath.mpf(error) + abs(truth[i, j]) * mpmath.mpf(2) ** -52
        worst = max(worst, float(abs(truth[i, j] - mpmath.mpf(float(value))) / allowed))
    return worst


@pytest.mark.parametrize("varying", [False, True])
def test_products_and_inverses_are_within_their_stated_errors(varying: bool) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(39, 3, 3)) if varying else rng.normal(size=(3, 3))
    dynamics = dynamics_of((A, np.eye(3)), 40)
    with mpmath.workdps(120):
        for t in (0, 1, 7, 39):
            truth = exact_product(dynamics, t)
            found, error = transitions(dynamics)
            assert off(found[t], truth, error) <= 1
            inverses, error = inverse_transitions(dynamics)
            assert error < 1e-20
            assert off(inverses[t], truth**-1, error) <= 1


def test_a_long_horizon_keeps_its_accuracy() -> None:
    A = np.zeros((3, 3))
    A[:2, :2] = rotation(0.3)
    A[2, 2] = -1.0
    mix = np.random.default_rng(1).normal(size=(3, 3))
    A = mix @ A @ np.linalg.inv(mix)
    dynamics = dynamics_of((A, np.eye(3)), 60_000)
    inverses, error = inverse_transitions(dynamics)
    assert error < 1e-15
    with mpmath.workdps(60):
        inverse = exact_product(dynamics, 1) ** -1
        for t in (1023, 1024, 1025, 59_999):
            assert off(inverses[t], inverse**t, error) <= 1


def test_a_stable_system_is_exact_down_to_tiny_products() -> None:
    dynamics = dynamics_of(([[0.5]], [[1]]), 300)
    inverses, _ = inverse_transitions(dynamics)
    assert inverses[299, 0, 0] == 2.0**299


def test_growth_bounds_every_product_from_any_time_on() -> None:
    rng = np.random.default_rng(2)
    A = rng.normal(size=(19, 2, 2))
    bound = 2.0 ** growth_exponent(dynamics_of((A, np.eye(2)), 20))
    for start in range(20):
        product = np.eye(2)
        for t in range(start, 19):
            product = A[t] @ product
            assert np.linalg.norm(product, 2) <= bound


@pytest.mark.parametrize(("A", "inverse"), [(0.5, True), (2.0, False)])
def test_products_that_overflow_name_the_horizon_that_works(A: float, inverse: bool) -> None:
    run = inverse_transitions if inverse else transitions
    with pytest.raises(HorizonTooLongError, match="works") as refused:
        run(dynamics_of(([[A]], [[1]]), 5000))
    works = refused.value.horizon
    assert 400 < works < 600
    run(dynamics_of(([[A]], [[1]]), works))


def test_singular_state_matrices_have_no_inverse() -> None:
    with pytest.raises(AffineDPError, match="singular"):
        inverse_transitions(dynamics_of(([[1, 1], [1, 1]], [[1, 0]]), 5))


@given(st.integers(1, 3), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_random_products_agree_with_fractions(n: int, horizon: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = np.ldexp(rng.normal(size=(n, n)), rng.integers(-6, 7, size=(n, n)))
    dynamics = dynamics_of((A, np.eye(n)), horizon)
    found, error = transitions(dynamics)
    product = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    exact = [[meaning(float(v)) for v in row] for row in A]
    for t in range(horizon):
        for i in range(n):
            for j in range(n):
                difference = abs(product[i][j] - Fraction(float(found[t, i, j])))
                assert difference <= Fraction(error) + abs(product[i][j]) / 2**52
        product = [
            [sum(exact[i][k] * product[k][j] for k in range(n)) for j in range(n)] for i in range(n)
        ]
