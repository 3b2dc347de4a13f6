"""Bounds on rounding against rational arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from affinedp.exact.rounding import (
    careful_product,
    checked_inverse,
    difference_bound,
    factor_below,
)


@pytest.mark.parametrize("r", [1, 2, 7, 33])
def test_difference_bound_is_a_close_upper_bound(r):
    rng = np.random.default_rng(r)
    left, right = (
        rng.normal(size=(r, r)),
        rng.normal(size=(r, r)) * 10.0 ** rng.uniform(-9, 9, (r, 1)),
    )
    product = left @ right.T
    bound = difference_bound(product, left, right)
    with mp.workdps(60):
        exact = mp.matrix(left.tolist()) * mp.matrix(right.tolist()).T
        for i, j in itertools.product(range(r), repeat=2):
            difference = abs(mp.mpf(product[i, j]) - exact[i, j])
            assert difference <= bound[i, j]
            magnitude = np.abs(left[i]) @ np.abs(right[j])
            assert bound[i, j] <= difference + 1e-21 * r * r * magnitude + 1e-31 * abs(exact[i, j])


def test_checked_inverse_bounds_its_errors():
    directions = np.random.default_rng(2).normal(size=(6, 6))
    factor = np.linalg.cholesky(directions @ directions.T) * np.geomspace(1e-8, 1e8, 6)[:, None]
    product = factor @ factor.T
    inverse = checked_inverse(factor, product)
    with mp.workdps(60):
        X, C, S = (mp.matrix(a.tolist()) for a in (inverse.matrix, factor, product))
        residual = max(mp.svd_r(X * C - mp.eye(6), compute_uv=False))
        difference = max(mp.svd_r(X * (S - C * C.T) * X.T, compute_uv=False))
    assert residual <= inverse.residual <= 1e-9
    assert difference <= inverse.difference <= 1e-9


@pytest.mark.parametrize("decades", [0, 6, 12])
def test_factor_below_stays_below(decades):
    turn = np.linalg.qr(np.random.default_rng(decades).normal(size=(5, 5)))[0]
    matrix = turn * np.geomspace(1.0, 10.0**-decades, 5) @ turn.T
    matrix = 0.5 * (matrix + matrix.T)
    factor = factor_below(matrix)
    with mp.workdps(60):
        left = mp.matrix(factor.tolist())
        eigenvalues = mp.eigsy(mp.matrix(matrix.tolist()) - left * left.T, eigvals_only=True)
    assert min(eigenvalues) >= 0
    assert max(eigenvalues) <= 1e-13
    assert factor_below(np.ones((3, 3))) is None


def test_products_that_cancel():
    generator = np.random.default_rng(0)
    left = generator.standard_normal((4, 6)) * 10.0 ** generator.integers(0, 12, (4, 6))
    right = generator.standard_normal((6, 3))
    right[5] = -(left[0, :5] @ right[:5]) / left[0, 5]  # the first row nearly vanishes
    found = careful_product(left, right)
    for i, j in np.ndindex(4, 3):
        exact = sum(Fraction(a) * Fraction(b) for a, b in zip(left[i], right[:, j]))
        assert found[i, j] == pytest.approx(float(exact), rel=1e-9)
