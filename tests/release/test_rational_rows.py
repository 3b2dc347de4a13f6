"""Rational combinations of doubles on a grid, against Python's own fractions."""

from fractions import Fraction as F

import numpy as np
import pytest

from affinedp.release.rational_rows import RationalRow

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
def test_every_double_is_read_as_python_reads_it(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(60):
        chosen = rng.permutation(6)[: rng.integers(1, 5)].tolist()
        row = {j: F(int(rng.integers(1, 10)) * (-1) ** j, int(rng.integers(1, 6))) for j in chosen}
        start = F(int(rng.integers(-9, 9)), 7) if rng.random() < 0.3 else None
        exponent = 0 if start is not None or kind == "halves" else int(rng.integers(-45, 3))
        points = data(kind, rng)
        found = RationalRow.of(row, start).rounded(points, exponent)
        exact = [sum(c * F(float(point[j])) for j, c in row.items()) for point in points]
        wanted = [(value - (start or 0)) / F(2) ** exponent for value in exact]
        assert found.tolist() == [round(value) for value in wanted]
        assert {type(step) for step in found.tolist()} == {int}
        if exponent == 0:
            whole = all(value.denominator == 1 for value in wanted)
            read = RationalRow.of(row, start).whole(points)
            assert (read is not None) == whole
            assert read is None or read.tolist() == wanted


def test_a_value_far_below_the_grid_still_breaks_a_tie():
    row = RationalRow.of({0: F(1, 2), 1: F(1)})
    points = np.array([[2.0**1000, 5e-324], [2.0**1000, -5e-324], [2.0**1000, 0.0]])
    assert row.rounded(points, 1000).tolist() == [1, 0, 0]
