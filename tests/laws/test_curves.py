import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.errors import AffineDPError
from affinedp.laws.curves import (
    ComposedCurve,
    GaussianCurve,
    LaplaceCurve,
    NoPromise,
    laplace_delta,
)
from oracles import gridded_laplace_delta

SHIFTS = st.lists(st.floats(0.02, 3.0), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=40)
@given(SHIFTS, st.floats(0.0, 1.0))
def test_laplace_delta_is_the_convolution(shift, share):
    epsilon = share * sum(shift)
    exact = laplace_delta(np.array(shift), epsilon)
    assert exact == pytest.approx(gridded_laplace_delta(shift, epsilon), abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "epsilon", "why"),
    [
        ([1.0, float("nan")], 1.0, "shift"),
        ([[1.0]], 1.0, "a vector"),
        (["a"], 1.0, "shift"),
        ([1.0], -0.5, "epsilon must be at least 0"),
        ([1.0], float("nan"), "epsilon"),
    ],
)
def test_laplace_delta_refuses_what_is_no_shift(shift, epsilon, why):
    with pytest.raises(AffineDPError, match=why):
        laplace_delta(shift, epsilon)


@pytest.mark.parametrize("shift", [[1.0], [0.3, 2.0]])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.7])
def test_laplace_delta_by_integration(shift, epsilon):
    """E max(0, 1 − e^{ε−loss}) over the last coordinate, given exact curves of the others."""
    mpmath.mp.dps = 20

    def curve(shifts, eps):
        if not shifts:
            return max(mpmath.mpf(0), 1 - mpmath.exp(eps))
        a, rest = shifts[-1], shifts[:-1]
        low = mpmath.exp(-a) / 2 * curve(rest, eps + a)
        high = mpmath.mpf(1) / 2 * curve(rest, eps - a)
        points = sorted(
            {-a, a, *(p for p in (eps - sum(rest), eps, eps + sum(rest)) if abs(p) < a)}
        )
        middle = mpmath.quad(lambda l: mpmath.exp((l - a) / 2) / 4 * curve(rest, eps - l), points)
        return low + high + middle

    expected = float(curve(list(shift), mpmath.mpf(epsilon)))
    found = laplace_delta(np.array(shift), epsilon)
    assert found >= expected - 1e-15
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-13)


@given(SHIFTS, st.floats(0.0, 1.0))
def test_one_coordinate_dominates_many(shift, share):
    """The same total shift on one coordinate reveals at least as much."""
    epsilon = share * sum(shift)
    assert (
        laplace_delta(np.array(shift), epsilon)
        <= laplace_delta(np.array([sum(shift)]), epsilon) * (1 + 1e-12) + 1e-13
    )


def test_many_coordinates_are_merged_upwards():
    shift = np.full(20, 0.2)
    assert laplace_delta(shift, 1.0) >= gridded_laplace_delta(shift, 1.0) - 2e-3
    assert laplace_delta(shift, 1.0) < laplace_delta(np.array([4.0]), 1.0)


def test_worst_direction_changes_with_epsilon():
    shifts = np.array([[1.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.3, 0.3]])
    curve = LaplaceCurve(1.2, shifts)
    assert curve.delta(0.0) == pytest.approx(laplace_delta(shifts[0], 0.0))
    assert curve.delta(1.1) == pytest.approx(laplace_delta(shifts[1], 1.1))
    assert LaplaceCurve(1.2).delta(0.0) > curve.delta(0.0)


@given(st.floats(0.05, 8.0), st.floats(1e-9, 0.4))
def test_laplace_epsilon_inverts_delta(sensitivity, delta):
    curve = LaplaceCurve(sensitivity, np.array([[sensitivity]]))
    epsilon = curve.epsilon(delta)
    assert curve.delta(epsilon) <= delta
    assert epsilon == pytest.approx(max(0.0, sensitivity + 2 * math.log1p(-delta)), abs=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 10.0, math.inf])
def test_renyi_by_integration(alpha):
    a = 0.7
    p = lambda x: mpmath.exp(-abs(x)) / 2  # noqa: E731
    q = lambda x: mpmath.exp(-abs(x - a)) / 2  # noqa: E731
    points = [-60, 0, a, 60]
    if alpha == 1.0:
        expected = mpmath.quad(lambda x: p(x) * mpmath.log(p(x) / q(x)), points)
    elif alpha == math.inf:
        expected = a
    else:
        moment = mpmath.quad(lambda x: p(x) ** alpha * q(x) ** (1 - alpha), points)
        expected = mpmath.log(moment) / (alpha - 1)
    found = LaplaceCurve(a, np.array([[a]])).renyi(alpha)
    assert float(expected) * (1 - 1e-12) <= found <= float(expected) * (1 + 1e-9)


def test_gaussian_curve():
    curve = GaussianCurve(0.5)
    assert curve.rho() == pytest.approx(0.125, rel=1e-14)
    assert curve.renyi(3.0) == pytest.approx(0.375, rel=1e-14)
    assert curve.epsilon(0.0) == math.inf
    assert curve.delta(curve.epsilon(1e-6)) <= 1e-6 * (1 + 1e-12)
    assert GaussianCurve(0.0).epsilon(0.0) == 0.0
    assert GaussianCurve(0.0).delta(0.0) == 0.0


def test_composed_curve_is_an_upper_bound():
    pytest.importorskip("dp_accounting", reason="needs the extra [accounting]")
    two = ComposedCurve((("laplace", 0.5), ("laplace", 0.25)))
    assert two.epsilon(0.0) == pytest.approx(0.75)
    exact = laplace_delta(np.array([0.5, 0.25]), 0.3)
    assert exact <= two.delta(0.3) <= exact + 2e-4
    gaussian = ComposedCurve((("gaussian", 0.3), ("gaussian", 0.4)))
    assert gaussian.delta(1.0) >= GaussianCurve(0.5).delta(1.0)
    assert gaussian.delta(1.0) == pytest.approx(GaussianCurve(0.5).delta(1.0), rel=1e-2)
    assert gaussian.rho() == pytest.approx(0.125)


def test_no_promise():
    curve = NoPromise()
    assert (curve.delta(100.0), curve.epsilon(0.5), curve.rho()) == (1.0, math.inf, math.inf)
