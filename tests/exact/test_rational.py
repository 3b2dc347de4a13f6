"""Rational matrices against elimination in Fractions."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.exact.rational import (
    Echelon,
    RationalMatrix,
    adjugates,
    exact_circuit,
    positive_definite,
    reduce_exactly,
)


def test_positive_definite_against_fractions() -> None:
    """Elimination in Fractions is the oracle; singular and barely indefinite ones among them."""

    def by_elimination(rows: list[list[Fraction]]) -> bool:
        for k in range(len(rows)):
            if rows[k][k] <= 0:
                return False
            for i in range(k + 1, len(rows)):
                share = rows[i][k] / rows[k][k]
                rows[i] = [a - share * b for a, b in zip(rows[i], rows[k])]
        return True

    rng = np.random.default_rng(2)
    answers = []
    for n in (2, 4, 9, 14):
        for shift in (0.0, 1e-3, 1e-12, -1e-12, -1e-3):
            root = np.round(rng.normal(size=(n, n - 1)) * 2**20) / 2**20  # singular
            exact = RationalMatrix.of(root)
            given = exact @ exact.T + RationalMatrix.identity(n).times(Fraction(shift))
            rows = [[given.entry(i, j) for j in range(n)] for i in range(n)]
            assert positive_definite(given) == by_elimination(rows)
            answers.append(positive_definite(given))
    assert answers == [False, True, True, False, False] * 4
    wide = rng.normal(size=(40, 40))
    assert positive_definite(
        RationalMatrix.of(wide) @ RationalMatrix.of(wide).T + RationalMatrix.identity(40)
    )


def test_inverses_are_exact() -> None:
    rng = np.random.default_rng(3)
    for n in (0, 1, 2, 5):
        given = RationalMatrix.of(rng.normal(size=(n, n))).times(Fraction(-2, 3))
        back = given.inverse()
        assert back is not None
        product = given @ back
        assert all(product.entry(i, j) == (i == j) for i in range(n) for j in range(n))
    assert RationalMatrix.of(np.ones((2, 2))).inverse() is None


@pytest.mark.parametrize("longest", [1, 30, 10**5, 10**30])
def test_many_adjugates_are_exact(longest):
    """Sums over permutations are the oracle; places of zeros make rows change places."""
    rng = np.random.default_rng(longest % 97)
    size, matrices = 4, []
    while len(matrices) < 60:
        small = rng.integers(-1, 2, (size, size))
        matrix = small.astype(object) * (longest // int(rng.integers(1, 4)) or 1)
        if abs(np.linalg.det(small)) > 0.5:
            matrices.append(matrix)
    determinants, adjoints = adjugates(np.array(matrices))
    assert (determinants.dtype == object) == (longest > 30)
    for matrix, determinant, adjoint in zip(matrices, determinants.tolist(), adjoints):
        total = 0
        for order in itertools.permutations(range(size)):
            turned = sum(a > b for a, b in itertools.combinations(order, 2))
            term = (-1) ** turned
            for i, j in enumerate(order):
                term *= matrix[i, j]
            total += term
        assert determinant == total
        assert ((matrix @ adjoint.astype(object)) == np.eye(size, dtype=object) * total).all()


def test_rational_circuits():
    third = Fraction(1, 3)
    columns = [{0: Fraction(1)}, {0: Fraction(1), 1: third}, {1: Fraction(2)}]
    assert exact_circuit(columns) in ([6, -6, 1], [-6, 6, -1])
    assert exact_circuit(columns[:2]) is None
    assert exact_circuit([*columns, {}]) is None
    assert exact_circuit([{0: third}, {}, {}]) is None


@given(st.integers(0, 2**32 - 1))
def test_elimination_keeps_the_row_space(seed):
    """Reduced rows lie in the space of the given ones and the other way round, and are as many."""
    rng = np.random.default_rng(seed)
    q, n = rng.integers(1, 6, 2)
    table = rng.integers(-3, 4, (q, n)) * (rng.random((q, n)) < 0.6)
    rows = [{j: Fraction(int(v), 3) for j, v in enumerate(row) if v} for row in table]
    reduced = reduce_exactly([row for row in rows if row])
    given_space, found_space = Echelon(int(n)), Echelon(int(n))
    rank = sum(given_space.add(row) for row in rows)
    assert rank == len(reduced) == np.linalg.matrix_rank(table.astype(float))
    assert all(not given_space.rest(row) and row[pivot] == 1 for pivot, row in reduced)
    assert all(found_space.add(row) for _, row in reduced)
    assert not any(found_space.rest(row) for row in rows)
    pivots = {pivot for pivot, _ in reduced}
    assert all(pivots & row.keys() == {pivot} for pivot, row in reduced)
