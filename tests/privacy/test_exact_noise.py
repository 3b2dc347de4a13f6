"""Theorems 1 and 2 are necessary and sufficient: tight noise holds, a little less does not."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space

import affinedp as adp
from affinedp.errors import AffineDPError
from oracles import exact_directions


@pytest.mark.parametrize("k", [0.5, 1, 2, 3, 4, 0.1, 0.3, -1.7])
def test_correlated_noise_of_example_1_is_tight(k):
    """Λ = μ max(1, |k|)⁻¹… along the manifold: ‖Λ⁺v‖₁ = 1 for the longest neighbours."""
    M = adp.AffineManifold([[1, -k]])
    longest = [[k], [1]] if abs(k) >= 1 else [[1], [1 / k]]
    g = adp.verify(M, longest, law="laplace")
    if abs(k) >= 1 or k == 0.5:  # 1/k is a short decimal
        assert g.epsilon() == 1.0
        assert g.holds(1.0, tolerance=0.0)
    assert g.holds(1.0)
    assert not g.holds(1.0 - 1e-9)
    assert g.sensitivity_lower <= 1.0 <= g.sensitivity * (1 + 1e-12)


def test_noise_of_theorem_4_is_tight():
    M = adp.AffineManifold(np.eye(9, 10) - np.eye(9, 10, 1))
    g = adp.verify(M, np.ones((10, 1)), law="laplace")
    assert g.epsilon() == 1.0
    assert g.holds(1.0, tolerance=0.0)
    assert adp.verify(M, np.ones((10, 1))).sensitivity == 1.0


def test_a_small_leak_is_a_leak():
    """The noise misses the manifold by 10⁻¹¹ of its size: the difference comes out bare."""
    M = adp.AffineManifold([[1, -4]])
    g = adp.verify(M, [[4], [1.00000000001]], law="laplace")
    assert g.leak is not None
    assert abs(g.leak @ [4, 1.00000000001]) < 1e-15
    assert g.epsilon() == np.inf


def test_more_ties_than_the_search_remembers():
    """190 equally bad pairs: none of them costs a rounding."""
    M = adp.AffineManifold(np.ones((1, 20)))
    assert adp.verify(M, 2.0, law="laplace").epsilon() == 1.0


def test_decimals_of_noise_and_distance():
    M = adp.AffineManifold([[1, -0.3]])
    assert adp.verify(M, [[0.03], [0.1]], law="laplace", mu=[0.03, 0.1]).holds(1.0, tolerance=0.0)


@st.composite
def rational_problems(draw):
    n = draw(st.integers(2, 5))
    number = st.sampled_from([0, 0, 1, -1, 2, 0.5, 0.3, -1.7])
    D = np.array([draw(st.lists(number, min_size=n, max_size=n))])
    r = draw(st.integers(1, n))
    noise = np.array(
        draw(st.lists(st.lists(number, min_size=r, max_size=r), min_size=n, max_size=n))
    )
    return D, noise, draw(st.sampled_from([1.0, 0.1]))


@pytest.mark.slow
@settings(max_examples=150)
@given(rational_problems())
def test_verify_is_the_theorem_in_rational_arithmetic(problem):
    D, noise, mu = problem
    if np.linalg.matrix_rank(noise) < noise.shape[1] or not D.any():
        return
    try:
        M = adp.AffineManifold(D, public_entries="allow")
    except AffineDPError:
        return
    g = adp.verify(M, noise, law="laplace", mu=mu)
    exact = [[Fraction(repr(float(x))) for x in row] for row in noise.tolist()]
    worst, leaks = Fraction(0), False
    for v in exact_directions(D, [Fraction(repr(mu))] * M.n).values():
        x = [v.get(i, Fraction(0)) for i in range(M.n)]
        z = _least_squares(exact, x)
        leaks |= any(sum(a * c for a, c in zip(row, z)) != xi for row, xi in zip(exact, x))
        worst = max(worst, sum(map(abs, z)))
    if leaks:
        assert g.leak is not None
        return
    assert g.leak is None
    assert g.sensitivity >= worst
    assert np.nextafter(g.sensitivity, 0) <= worst
    assert g.sensitivity_lower <= worst


def _least_squares(rows, right):
    """(ΛᵀΛ)⁻¹Λᵀx over the rationals."""
    r = len(rows[0])
    table = [
        [sum(row[a] * row[b] for row in rows) for b in range(r)]
        + [sum(row[a] * x for row, x in zip(rows, right))]
        for a in range(r)
    ]
    for c in range(r):
        pivot = next(i for i in range(c, r) if table[i][c] != 0)
        table[c], table[pivot] = table[pivot], table[c]
        table[c] = [x / table[c][c] for x in table[c]]
        for i in range(r):
            if i != c:
                table[i] = [x - table[i][c] * y for x, y in zip(table[i], table[c])]
    return [row[-1] for row in table]


@pytest.mark.parametrize("bits", range(20, 53, 2))
def test_nearly_dependent_draws_are_read_exactly_or_refused(bits):
    """Two draws that differ in the last bits hide x3 by 3, whatever rounding takes them for."""
    near = 1 - 2.0**-bits
    M = adp.AffineManifold([[2, -3, 0]])
    noise, query = [[1.5, 1], [1.5 * near, 1]], [[1, 0, 1], [near, 0, 1]]

    def ask():
        return adp.verify(M, noise, query=query, mu=[1, 1, 3], law="laplace")

    if bits <= 30:
        assert ask().epsilon() == pytest.approx(3)
    else:
        with pytest.raises(AffineDPError, match=r"last digits|ill-conditioned"):
            ask()


def test_noise_that_covers_up_to_rounding_says_so():
    """A basis that was computed is off the manifold in its last digits: that is said."""
    D = np.array([[1.0, -2, 3, 1], [0, 1, 1, -1]])
    M = adp.AffineManifold(D)
    computed = adp.verify(M, null_space(D))
    assert math.isfinite(computed.sensitivity)
    assert "up to the rounding" in computed.warnings[0]
    assert not adp.verify(M, [[5, -1], [-1, 1], [-2, 0], [-1, 3]]).warnings
    last = adp.verify(adp.AffineManifold([[1, -1]]), [[1.0], [1 + 5 * 2.0**-52]])
    assert "up to the rounding" in last.warnings[0]
    assert adp.verify(adp.AffineManifold([[1, -1]]), [[1.0], [1 + 2.0**-40]]).leak is not None
