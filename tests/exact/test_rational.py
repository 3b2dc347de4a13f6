"""Rational matrices against elimination in Fractions."""

from fractions import Fraction

import numpy as np

from affinedp.exact.rational import RationalMatrix, positive_definite


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
