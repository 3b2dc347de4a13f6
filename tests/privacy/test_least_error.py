"""The least error of one number, against linear programs, known laws and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from affinedp.errors import AffineDPError
from affinedp.privacy.least_error import (
    least_sum_of_three,
    least_variance,
)


def programme(epsilon, delta, reach, offsets):
    """Least variance of a mixture of laws on shifted lattices and their mirror images: an LP.

    Half the time the law, half the time its mirror image, keeps (ε, δ) if both δ do on average.
    """
    m, e = 2 * reach + 1, math.exp(epsilon)
    before = sparse.eye_array(m + 1, m)  # p(i), zero beyond the ends
    after = sparse.eye_array(m + 1, m, k=-1)
    steps = sparse.vstack([before - e * after, after - e * before])
    losses = sparse.block_diag([steps] * len(offsets))
    count = losses.shape[0]
    average = sparse.csr_array(np.full((1, count), 0.5))
    A = sparse.block_array([[losses, -sparse.eye_array(count)], [None, average]])
    z = np.concatenate([np.arange(-reach, reach + 1) + u for u in offsets])
    return linprog(
        np.append(z**2, np.zeros(count)),
        A_ub=A,
        b_ub=np.append(np.zeros(count), delta),
        A_eq=np.append(np.ones(len(z)), np.zeros(count))[None],
        b_eq=[1.0],
        method="highs",
    ).fun


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1.0, 0.01), (0.5, 0.1), (2.0, 0.05), (0.3, 0.05), (1.0, 0.4), (0.0, 0.2), (1.0, 1e-4)],
)
def test_bound_is_what_the_linear_program_finds(epsilon, delta):
    bound = least_variance(epsilon, delta)
    found = programme(epsilon, delta, 16, np.linspace(0, 0.5, 21))
    assert found * (1 - 2e-3) <= bound <= found + 1e-9


def test_known_values():
    assert least_variance(1.0) == pytest.approx(1 / (2 * math.sinh(0.5) ** 2), rel=1e-12)
    assert least_variance(0.0, 0.5) == pytest.approx(0.25, rel=1e-8)  # a fair coin between x ± ½
    assert least_variance(0.0, 0.1) == pytest.approx((10**2 - 1) / 12, rel=1e-8)  # ten points
    Q = math.e
    exact = 12 * Q * (Q**2 + 3 * Q + 1) / ((Q - 1) ** 2 * (Q**2 + 4 * Q + 1))
    assert least_sum_of_three(1.0) == pytest.approx(exact, rel=1e-12)
    assert least_sum_of_three(1.0) <= exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_staircase_is_the_best_step(epsilon):
    """The closed form against the variance of staircases with all kinds of steps."""
    b, k = math.exp(-epsilon), np.arange(int(80 / epsilon) + 10)

    def variance(step):
        height = (1 - b) / (2 * (step + b * (1 - step)))
        inner = ((k + step) ** 3 - k**3) / 3
        outer = ((k + 1) ** 3 - (k + step) ** 3) / 3
        return 2 * height * float((b**k * (inner + b * outer)).sum())

    best = min(variance(step) for step in np.linspace(0, 1, 4001))
    assert best * (1 - 1e-6) <= least_variance(epsilon, data="real") <= best


@settings(max_examples=100)
@given(st.floats(1e-5, 50), st.floats(1e-12, 0.99))
def test_order(epsilon, delta):
    """More privacy costs more, and a promise for more neighbours too."""
    value = least_variance(epsilon, delta)
    assert 0 < value <= least_variance(epsilon) <= least_variance(epsilon, data="real")
    assert value <= least_variance(epsilon, delta / 2) * (1 + 1e-6)
    assert value <= least_variance(epsilon / 2, delta) * (1 + 1e-6)
    assert value <= 2 / epsilon**2  # Laplace noise


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.05, 3.0))
def test_no_law_goes_below(seed, epsilon):
    """Random laws on a lattice with any offset, at the δ that they really have."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 12))
    law = rng.dirichlet(np.ones(size) * rng.choice([0.3, 1, 10]))
    if rng.random() < 0.5:  # also laws near the optimum
        law = np.exp(-epsilon * np.abs(np.arange(size) - size // 2)) * rng.uniform(0.9, 1, size)
        law /= law.sum()
    place = np.arange(size)
    wide = np.concatenate([[0.0], law, [0.0]])
    e = math.exp(epsilon)
    delta = max(
        np.maximum(wide[:-1] - e * wide[1:], 0).sum(), np.maximum(wide[1:] - e * wide[:-1], 0).sum()
    )
    if not delta < 1:
        return
    mean = law @ place
    assert law @ (place - mean) ** 2 >= least_variance(epsilon, float(delta)) - 1e-12


def test_tiny_epsilon_and_delta_go_through_longer_steps():
    """The limit of fine steps: V ε² depends on δ/ε only, and ε = 0 is a uniform law."""
    coarse, fine = least_variance(1e-3, 1e-6) * 1e-6, least_variance(1e-6, 1e-9) * 1e-12
    assert fine == pytest.approx(coarse, rel=1e-3)
    assert least_variance(0.0, 1e-8) == pytest.approx(1e16 / 12, rel=1e-3)
    assert least_variance(0.0, 1e-8) <= 1e16 / 12


@pytest.mark.parametrize(
    ("epsilon", "delta", "data"),
    [
        (0.0, 0.0, "any"),
        (-1.0, 0.0, "any"),
        (math.nan, 0.1, "any"),
        (1.0, 1.0, "any"),
        (1.0, 0.0, "x"),
    ],
)
def test_refusals(epsilon, delta, data):
    with pytest.raises(AffineDPError):
        least_variance(epsilon, delta, data)
