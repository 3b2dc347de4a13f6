"""Definition 4 asked about one pair, against the definition spelled out; Δ_i; Lemma 1."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import affinedp as adp
from oracles import gridded_laplace_delta


def spelled_out(D, mu, difference):
    """Definition 4 as printed: over all bases d_j and free entries i, in fractions."""
    q, n = len(D), len(D[0])
    if not any(difference):
        return True
    for basis in itertools.combinations(range(n), q):
        square = [[Fraction(D[r][c]) for c in basis] for r in range(q)]
        if determinant(square) == 0:
            continue
        free = [i for i in range(n) if i not in basis]
        moved = [i for i in free if difference[i]]
        if len(moved) > 1 or any(abs(difference[i]) > mu[i] for i in moved):
            continue
        if all(sum(Fraction(D[r][j]) * difference[j] for j in range(n)) == 0 for r in range(q)):
            return True
    return False


def determinant(square):
    if not square:
        return Fraction(1)
    return sum(
        (-1) ** j * a * determinant([row[:j] + row[j + 1 :] for row in square[1:]])
        for j, a in enumerate(square[0])
    )


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    q, n = int(rng.integers(1, 3)), 5
    D = rng.integers(-2, 3, (q, n))
    try:
        manifold = adp.AffineManifold(D, public_entries="allow")
    except adp.AffineDPError:
        pytest.skip("not a manifold")
    D = manifold.D.astype(int).tolist()
    mu = rng.integers(0, 4, n).astype(float) + (seed % 2)
    if not mu.any():
        mu[0] = 1.0
    adjacency = adp.CircuitAdjacency(manifold, mu)
    kernel = manifold.kernel
    seen = set()
    for _ in range(60):
        # sparse combinations, so that circuits are met; multiples of 1/2
        step = rng.integers(-3, 4, manifold.dim) * (rng.random(manifold.dim) < 0.5) / 2
        moved = [Fraction(float(v)) for v in kernel @ step]
        if any(sum(Fraction(a) * v for a, v in zip(row, moved)) for row in D):
            continue  # the kernel has thirds, which floats round
        answer = adjacency.are_neighbours([0] * n, moved)
        assert bool(answer) == spelled_out(D, mu.tolist(), moved), (D, mu, moved, answer)
        seen.add(bool(answer))
        if answer and any(moved):
            assert answer.free_set is not None
            assert answer.entry in answer.free_set
            assert [name for name in answer.free_set if name in answer.moved] == [answer.entry]
            free = [i for i, name in enumerate(manifold.names) if name in answer.free_set]
            basis = [i for i in range(n) if i not in free]
            assert determinant([[Fraction(row[c]) for c in basis] for row in D]) != 0
    assert seen


def test_example_2_of_the_paper():
    M = adp.AffineManifold([[1, -2, 0]])
    adjacency = adp.CircuitAdjacency(M)
    origin = [0, 0, 0]
    for other, entry in (([1, "1/2", 0], "x2"), ([2, 1, 0], "x2"), ([0, 0, 1], "x3")):
        answer = adjacency.are_neighbours(origin, other)
        assert answer
        assert answer.entry == entry
    both = adjacency.are_neighbours(origin, [1, 0.5, 0.25])
    assert not both
    assert "x1, x2 can move without the others" in both.reason
    far = adjacency.are_neighbours(origin, [4, 2, 0])
    assert not far
    assert far.entry == "x2"
    assert far.distance == 2
    assert far.limit == 1
    assert adjacency.are_neighbours(origin, origin)


def test_decimals_are_decimals_and_rounding_is_called_that():
    M = adp.AffineManifold.from_equations(["q = p + 0.1*v"])
    adjacency = adp.CircuitAdjacency(M)
    assert adjacency.are_neighbours([0.03, 0, 0.3], [0.01, 0, 0.1])  # 0.1 * 0.3 is 0.03
    answer = adjacency.are_neighbours([0, 0, 0], [0.1 * 3, 0, 3])
    assert not answer
    assert "rounding" in answer.reason
    assert adjacency.are_neighbours([0, 0, 0], ["0.1", 0, 1])


def test_free_sets_and_directions():
    M = adp.AffineManifold.from_equations(["a + b = t"])
    people = adp.FreeSetAdjacency(M, [["a", "b"]], mu=[2, 0, 1])
    assert people.are_neighbours([1, 1, 2], [3, 1, 4]).entry == "a"
    assert not people.are_neighbours([1, 1, 2], [4, 1, 5])
    still = people.are_neighbours([1, 1, 2], [1, 2, 3])
    assert not still
    assert "μ = 0" in still.reason
    two = adp.FreeSetAdjacency(M, [["a", "b"], ["a", "t"]])
    answer = two.are_neighbours([1, 1, 2], [2, 0, 2])
    assert answer
    assert answer.free_set == ("a", "t")
    assert answer.moved == ("a", "b")
    third = adp.DirectionAdjacency(M, [[1 / 3], [2 / 3], [1]])
    assert third.are_neighbours([0, 0, 0], ["1/6", "1/3", "1/2"]).distance == Fraction(1, 2)
    computed = adp.DirectionAdjacency(M, [[0.1 + 0.2], [0.7], [1]])
    nearly = computed.are_neighbours([0, 0, 0], [0.3, 0.7, 1])
    assert not nearly
    assert "rounding" in nearly.reason
    beyond = adp.DirectionAdjacency(M, [[0.1 + 0.2], [0], [0.1 + 0.2]])
    far = "0.30000000000000005"
    assert "1 + 1.9e-17 times" in beyond.are_neighbours([0, 0, 0], [far, 0, far]).reason
    given = adp.DirectionAdjacency(M, [[1, 0], [-1, 2], [0, 2]])
    assert given.are_neighbours([0, 0, 0], [0, -1, -1]).direction == 1


@pytest.mark.parametrize(
    "bad", [[1, 1], [1, 1, 3], [1, 1, float("nan")], ["one", 1, 2], [True, 1, 2], 3]
)
def test_what_is_no_data_is_refused(bad):
    M = adp.AffineManifold.from_equations(["a + b = t"])
    with pytest.raises(adp.AffineDPError):
        adp.CircuitAdjacency(M).are_neighbours(bad, [1, 1, 2])


@pytest.mark.parametrize("norm_order", [1, 2])
def test_sensitivity_by_entry_is_the_papers_delta_i(norm_order):
    rng = np.random.default_rng(norm_order)
    D = np.array([[1, 2, -1, 0, 1], [0, 1, 1, -3, 0]])
    A = rng.integers(-3, 4, (3, 5)).astype(float)
    mu = np.array([1.0, 0.5, 0.0, 2.0, 1.0])
    M = adp.AffineManifold(D)
    expected = np.zeros(5)
    for basis in itertools.combinations(range(5), 2):
        square = D[:, basis]
        if round(np.linalg.det(square)) == 0:
            continue
        for i in set(range(5)) - set(basis):
            direction = np.zeros(5)
            direction[i] = 1.0
            direction[list(basis)] = -np.linalg.solve(square, D[:, i])
            size = np.linalg.norm(A @ direction, ord=norm_order) * mu[i]
            expected[i] = max(expected[i], size)
    adjacency = adp.CircuitAdjacency(M, mu)
    found = adjacency.sensitivity_by_entry(A, norm_order)
    assert np.allclose([one.value for one in found], expected, rtol=1e-12)
    assert all(one.upper >= value * (1 - 1e-15) for one, value in zip(found, expected))
    whole = adjacency.sensitivity(A, norm_order)
    assert max(one.value for one in found) == pytest.approx(whole.value, rel=1e-14)
    assert (adjacency.mu == mu).all()


def test_sensitivity_by_entry_of_free_sets():
    M = adp.AffineManifold.from_equations(["a + b = t"])
    adjacency = adp.FreeSetAdjacency(M, [["a", "b"], ["a", "t"]], mu=[1, 2, 3])
    found = adjacency.sensitivity_by_entry(np.eye(3), 1)
    assert [one.value for one in found] == [2.0, 4.0, 6.0]
    with pytest.raises(adp.AffineDPError, match="which entry"):
        adp.DirectionAdjacency(M, [[1], [-1], [0]]).sensitivity_by_entry(np.eye(3), 1)


def test_lemma_1_for_a_pair_against_an_integral():
    M = adp.AffineManifold([[1, -4]])
    shift = np.array([1.0, 0.25])
    g = adp.verify_pair(M, [3, 0.75], [4, 1], np.diag([2.0, 0.5]))
    s = float(np.hypot(shift[0] / 2, shift[1] / 0.5))
    for epsilon in (0.0, 0.3, 1.0):
        # ∫ (f − e^ε f')₊ along the only direction that matters
        edge = s / 2 + epsilon / s
        ours, theirs = (quad(norm(m).pdf, edge, edge + 40)[0] for m in (s, 0.0))
        assert g.delta(epsilon) == pytest.approx(ours - math.exp(epsilon) * theirs, rel=1e-7)
    laplace = adp.verify_pair(M, [3, 0.75], [4, 1], 1.0, law="laplace")
    assert laplace.delta(0.4) == pytest.approx(gridded_laplace_delta(shift, 0.4), rel=1e-3)


def test_a_pair_that_noise_does_not_hide_and_one_that_is_equal():
    M = adp.AffineManifold([[1, -4]])
    assert adp.verify_pair(M, [0, 0], [4, 1], [[1.0], [1.0]]).leak is not None
    assert adp.verify_pair(M, [4, 1], [4, 1], 1.0).delta(0.0) == 0.0
    with pytest.raises(adp.AffineDPError, match="y does not obey"):
        adp.verify_pair(M, [0, 0], [1, 1], 1.0)


def test_the_worst_pair_is_the_promise():
    M = adp.AffineManifold.from_equations(["a + b = t", "b + c = s"])
    noise = np.diag([1.0, 2.0, 0.7, 1.5, 1.1])
    whole = adp.verify(M, noise)
    worst = max(
        adp.verify_pair(M, np.zeros(5), v, noise).delta(0.5)
        for v in adp.CircuitAdjacency(M).directions().T
    )
    assert whole.delta(0.5) == pytest.approx(worst, rel=1e-12)
