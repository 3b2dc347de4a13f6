"""The integer kernel lattice, against brute force over minors and small vectors."""

import itertools
from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.exact.lattice import (
    _nearest_quotient,
    hermite_diagonal,
    image_lattice,
    kernel_lattice,
    shortened,
    whole_kernel,
    whole_solution,
)
from affinedp.exact.rational import adjugate


@st.composite
def integer_equations(draw):
    q = draw(st.integers(0, 3))
    n = draw(st.integers(q + 1, 5))
    entry = st.integers(-6, 6)
    return draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=q, max_size=q)), n


def sparse(rows):
    return [{j: value for j, value in enumerate(row) if value} for row in rows]


def determinant(square):
    """Exact, by elimination over the rationals."""
    rows = [[Fraction(int(value)) for value in row] for row in square]
    result = Fraction(1)
    for i in range(len(rows)):
        pivot = next((r for r in range(i, len(rows)) if rows[r][i]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            rows[i], rows[pivot] = rows[pivot], rows[i]
            result = -result
        result *= rows[i][i]
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return result


@given(integer_equations())
def test_the_basis_generates_every_whole_vector_of_the_kernel(problem):
    rows, n = problem
    basis = kernel_lattice(sparse(rows), n).short_basis()
    k = basis.shape[1]
    D = np.array(rows, dtype=object).reshape(len(rows), n)
    assert not (D @ basis).any()
    assert k == n - (np.linalg.matrix_rank(D.astype(float)) if len(rows) else 0)
    # a sublattice misses no whole vector exactly if its maximal minors have no common divisor
    minors = [abs(int(determinant(basis[list(chosen)]))) for chosen in
              itertools.combinations(range(n), k)]  # fmt: skip
    assert gcd(*minors) == 1


@given(integer_equations(), st.data())
def test_whole_solutions_are_found_exactly_where_they_exist(problem, data):
    rows, n = problem
    lattice = kernel_lattice(sparse(rows), n)
    D = np.array(rows, dtype=object).reshape(len(rows), n)
    x = np.array(data.draw(st.lists(st.integers(-50, 50), min_size=n, max_size=n)), dtype=object)
    found = lattice.solve((D @ x)[None])
    assert found is not None
    assert not (D @ found[0] - D @ x).any()


@pytest.mark.parametrize(
    ("rows", "right"), [([[2, 4]], [3]), ([[1, 1], [2, 2]], [1, 3]), ([[2, 0], [0, 3]], [2, 2])]
)
def test_no_whole_solution(rows, right):
    assert kernel_lattice(sparse(rows), 2).solve(np.array([right])) is None


@given(integer_equations())
@settings(max_examples=40)
def test_shorter_vectors_of_the_same_lattice(problem):
    rows, n = problem
    basis = kernel_lattice(sparse(rows), n).short_basis()
    k = basis.shape[1]
    # a detour that makes it worse, undone by the reduction
    twisted = basis.copy()
    for j in range(1, k):
        twisted[:, j] += 7 * twisted[:, j - 1]
    again = shortened(sparse(twisted.T.tolist()), n)
    found = np.array([[vector.get(i, 0) for i in range(n)] for vector in again]).T
    change = np.linalg.lstsq(basis.astype(float), found.astype(float), rcond=None)[0]
    assert np.allclose(change, np.rint(change), atol=1e-6)
    assert abs(determinant(np.rint(change).astype(int))) == 1
    assert np.linalg.norm(found) <= np.linalg.norm(twisted) + 1e-9


def test_a_large_tree_is_quick_and_small():
    """1 + 10 + 100 + 1000 nodes: every vector of the basis has entries −1, 0, 1."""
    equations, first = [], 1
    for level in (1, 10, 100):
        for node in range(level):
            parts = range(first + 10 * node, first + 10 * (node + 1))
            equations.append({first - level + node: 1, **dict.fromkeys(parts, -1)})
        first += 10 * level
    basis = kernel_lattice(equations, 1111).short_basis()
    assert basis.shape == (1111, 1000)
    assert np.abs(basis).max() == 1


@given(st.integers(-100, 100), st.integers(-20, 20).filter(bool))
def test_nearest_quotient(value, divisor):
    assert abs(2 * (value - _nearest_quotient(value, divisor) * divisor)) <= abs(divisor)


def test_lattices_of_whole_points():
    rows = np.array([[2.0, 4.0, -6.0, 1.0], [0.0, 3.0, 3.0, 3.0]])
    kernel = np.array(whole_kernel(rows, None)).T
    assert not (rows @ kernel).any()
    # saturated: every whole point of the kernel is a whole combination
    for x in itertools.product(range(-6, 7), repeat=4):
        if not (rows @ x).any():
            weights = np.linalg.lstsq(kernel, np.array(x, dtype=float), rcond=None)[0]
            np.testing.assert_allclose(weights, np.rint(weights), atol=1e-9)
    image = image_lattice([[1, 0], [0, 1]], [{0: Fraction(2)}, {0: Fraction(1), 1: Fraction(3)}])
    assert abs(adjugate([[int(c) for c in column] for column in image])[0]) == 6
    solution = whole_solution(rows, np.array([-3.0, -6.0]), None)
    assert solution is not None
    assert (rows @ [float(c) for c in solution]).tolist() == [3.0, 6.0]
    assert whole_solution(np.array([[2.0, 4.0]]), np.array([-3.0]), None) is None
    assert hermite_diagonal([(1, 0), (0, 1)]) == [1, 1]
