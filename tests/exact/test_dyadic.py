"""Products and rational combinations on a grid, against Python's own fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.exact.dyadic import FixedPoint, RationalRow
from affinedp.exact.numbers import meaning

KINDS = ["normal", "whole", "eighths", "all sizes", "zeros", "halves"]


def data(kind, rng):
    points = rng.normal(size=(20, 6)) * 10.0 ** rng.integers(-8, 9)
    if kind == "whole":
        return np.rint(points)
    if kind == "eighths":
        return rng.integers(-50, 50, (20, 6)) / 8
    if kind == "all sizes":
        return points * 10.0 ** rng.integers(-200, 200, (20, 6))
    if kind == "zeros":
        points[rng.random((20, 6)) < 0.5] = 0.0
    if kind == "halves":
        return rng.integers(-5, 5, (20, 6)) / 2
    return points


@pytest.mark.parametrize("kind", KINDS)
def test_every_double_is_read_as_it_is_meant(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(60):
        chosen = rng.permutation(6)[: rng.integers(1, 5)].tolist()
        row = {
            j: Fraction(int(rng.integers(1, 10)) * (-1) ** j, int(rng.integers(1, 6)))
            for j in chosen
        }
        start = Fraction(int(rng.integers(-9, 9)), 7) if rng.random() < 0.3 else None
        exponent = 0 if start is not None or kind == "halves" else int(rng.integers(-45, 3))
        points = data(kind, rng)
        found = RationalRow.of(row, start).rounded(points, exponent)
        exact = [sum(c * meaning(float(point[j])) for j, c in row.items()) for point in points]
        wanted = [(value - (start or 0)) / Fraction(2) ** exponent for value in exact]
        assert found.tolist() == [round(value) for value in wanted]
        assert {type(step) for step in found.tolist()} == {int}
        if exponent == 0:
            whole = all(value.denominator == 1 for value in wanted)
            read = RationalRow.of(row, start).whole(points)
            assert (read is not None) == whole
            assert read is None or read.tolist() == wanted


def test_a_value_far_below_the_grid_still_breaks_a_tie():
    row = RationalRow.of({0: Fraction(1, 2), 1: Fraction(1)})
    points = np.array([[2.0**1000, 5e-324], [2.0**1000, -5e-324], [2.0**1000, 0.0]])
    assert row.rounded(points, 1000).tolist() == [1, 0, 0]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([1e-30, 1e-3, 1.0, 1e9, 1e60]))
def test_fixed_point_products_are_exact(seed, scale):
    rng = np.random.default_rng(seed)
    matrix, steps = rng.normal(size=(3, 5)), np.rint(rng.normal(size=(5, 4)) * scale * 1e6)
    fixed = FixedPoint.rounded(matrix, -45)
    np.testing.assert_allclose(fixed.values(), matrix, atol=2.0**-46)
    product = fixed.times(steps)
    values = fixed.values()
    for i in range(3):
        for j in range(4):
            expected = sum(
                Fraction(float(values[i, k])) * Fraction(float(steps[k, j])) for k in range(5)
            )
            assert product[i, j] == expected * 2**45
    for exponent in (7, -1, -24, -45, -46, -300):
        moved = fixed.times(steps, exponent)
        for found, value in zip(moved.ravel(), product.ravel(), strict=True):
            assert found == math.floor(
                Fraction(value) * Fraction(2) ** exponent + Fraction(1, 2) * (exponent < 0)
            )


def test_products_of_many_columns_are_those_of_each():
    rng = np.random.default_rng(3)
    fixed = FixedPoint.rounded(rng.normal(size=(7, 20)), -60)
    steps = np.rint(rng.normal(size=(20, 5000)) * np.geomspace(1, 1e40, 5000))
    many = fixed.times(steps, -50)
    for column in (0, 1637, 1638, 1639, 4999):
        assert np.array_equal(many[:, [column]], fixed.times(steps[:, [column]], -50))
