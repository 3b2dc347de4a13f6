"""The path of the noise: exact products, and an error that stays below its bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.domains.dynamics import dynamics_of
from affinedp.domains.powers import growth_exponent
from affinedp.exact.numbers import meaning
from affinedp.exact.rational import RationalMatrix
from affinedp.strategies.causal import _rounded, _Rows, rounded
from affinedp.strategies.trajectory import LEAST_BITS, Trajectory


def path_bits(dynamics, growth, exponents):
    made = Trajectory(dynamics, np.eye(dynamics.states))
    made.__dict__["growth"] = growth
    return made.path_bits(exponents)


def exact_noise(dynamics, root, draw, draw_bits):
    """γ(t) for all t in rational arithmetic, straight from the definition."""
    exact = np.vectorize(lambda value: meaning(float(value)), otypes=[object])
    given = np.vectorize(lambda value: Fraction(float(value)), otypes=[object])
    state = given(root) @ np.array([Fraction(n, 2**draw_bits) for n in draw], dtype=object)
    found = []
    for t in range(dynamics.horizon):
        found.append(exact(dynamics.output_matrix(t)) @ state)
        if t + 1 < dynamics.horizon:
            state = exact(dynamics.state_matrix(t)) @ state
    return found


def followed(dynamics, root, draw, draw_bits, bits, exponents):
    path = Trajectory(dynamics, root).path(bits)
    numbers, found = path.begin(draw, draw_bits), []
    for t in range(dynamics.horizon):
        found.append(path.row(t, numbers, (), 0, exponents))
        if t + 1 < dynamics.horizon:
            numbers = path.advance(t, numbers, (), 0)
    return found


@given(st.integers(-(10**40), 10**40), st.integers(-80, 20))
def test_rounded_is_to_the_nearest(value, exponent):
    exact = Fraction(value) * Fraction(2) ** exponent
    assert abs(rounded(value, exponent) - exact) <= Fraction(1, 2)
    if exponent >= 0:
        assert rounded(value, exponent) == exact
    assert abs(_rounded(value, exponent, 15) - exact / 15) <= Fraction(1, 2)


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.integers(-(10**30), 10**30), min_size=3, max_size=3),
)
def test_products_are_exact_whatever_the_doubles(matrix, numbers):
    """Also subnormal numbers and those near the largest double."""
    rows = _Rows.of(RationalMatrix.of(np.array(matrix)))
    scale = Fraction(2) ** -rows.bits / rows.odd
    for row, found in zip(matrix, rows.times(numbers)):
        assert found * scale == sum(Fraction(a) * n for a, n in zip(row, numbers))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_path_follows_the_definition(seed, varying_state, varying_output):
    rng = np.random.default_rng(seed)
    n, m, horizon = rng.integers(1, 5), rng.integers(1, 4), 12
    A = rng.normal(size=(horizon - 1, n, n)) * 10.0 ** rng.integers(-2, 2)
    C = rng.normal(size=(horizon, m, n)) * 10.0 ** rng.integers(-6, 6)
    dynamics = dynamics_of((A if varying_state else A[0], C if varying_output else C[0]), horizon)
    root = rng.normal(size=(n, n)) * 10.0 ** rng.integers(-6, 6)
    draw = [int(v) for v in rng.integers(-(2**59), 2**59, size=n)]
    exponents = [int(e) for e in rng.integers(-120, 3, size=m)]
    bits = path_bits(dynamics, growth_exponent(dynamics), exponents)
    exact = exact_noise(dynamics, root, draw, 56)
    for found, expected in zip(followed(dynamics, root, draw, 56, bits, exponents), exact):
        for number, value, exponent in zip(found, expected, exponents):
            unit = Fraction(2) ** exponent
            # half a unit for the grid, and less than one for the path
            assert abs(number * unit - value) <= Fraction(3, 2) * unit


def test_error_bound_of_the_module():
    """‖n(t) − exact‖ ≤ T · 2^growth · √n · 2^(−bits−1), also with very few bits."""
    dynamics = dynamics_of(([[1.0, 0.1], [0.0, 0.97]], np.eye(2)), 400)
    growth, root, draw = growth_exponent(dynamics), np.eye(2), [12345678901, -98765432109]
    for bits in (4, 30, 100):
        path, worst = Trajectory(dynamics, root).path(bits), 0.0
        numbers = path.begin(draw, 32)
        for t, exact in enumerate(exact_noise(dynamics, root, draw, 32)):
            error = [float(Fraction(n, 2**bits) - x) for n, x in zip(numbers, exact)]
            worst = max(worst, math.hypot(*error))
            if t + 1 < dynamics.horizon:
                numbers = path.advance(t, numbers, (), 0)
        bound = 400 * 2.0**growth * math.sqrt(2) * 2.0 ** (-bits - 1)
        assert 0 < worst <= bound


def test_bits():
    vehicle = dynamics_of(([[1, 0.1], [0, 1]], [[1, 0]]), 1000)
    assert path_bits(vehicle, 8, [-60]) == LEAST_BITS
    fine = path_bits(vehicle, 8, [-400])
    assert fine >= 400 + 8 + 10
    assert path_bits(vehicle, 108, [-400]) == fine + 100
    assert path_bits(vehicle, 8, [-500]) == fine + 100
    # an output that sees nothing needs nothing
    assert path_bits(dynamics_of(([[1.0]], [[0.0]]), 5), 0, [-5000]) == LEAST_BITS


@pytest.mark.parametrize("factor", [1.5, 0.25])
def test_growing_and_contracting(factor):
    dynamics = dynamics_of(([[factor]], [[1.0]]), 200)
    bits = path_bits(dynamics, growth_exponent(dynamics), [-600])
    found = followed(dynamics, np.ones((1, 1)), [3], 0, bits, [-600])
    for t in (0, 1, 50, 199):
        assert abs(found[t][0] - 3 * Fraction(factor) ** t * 2**600) <= Fraction(3, 2)
