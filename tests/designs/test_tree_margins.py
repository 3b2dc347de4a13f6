"""Trees of margins against dense matrices."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg as sl

import dense
from affinedp.budget.ledger import Ledger
from affinedp.designs.margins import design_margins
from affinedp.designs.places import design_tree_margins
from affinedp.designs.tree import design_tree
from affinedp.errors import AffineDPError
from affinedp.laws.reach import whole_reach

PARENT = np.array([3, 3, 4, 6, 6, 4, -1])  # leaves 0, 1, 2, 5; the root is node 6
LEAVES = [0, 1, 2, 5]
SIZES = [2, 3]
PROMISE = {"epsilon": 1.0, "delta": 1e-6, "law": "gaussian"}


def helmert(n):
    return np.array([[1.0] * k + [-k] + [0.0] * (n - k - 1) for k in range(1, n)])


def precision(m):
    """Of the noise seen from (leaf, cell), from q as it is drawn."""
    K, _ = dense.indicators(PARENT)
    size = K.shape[1] * math.prod(SIZES)
    P = np.zeros((size, size))
    unit = m.prepared().unit
    for B in m.strategy.blocks.tolist():
        C = np.ones((1, 1))
        for j, n in enumerate(SIZES):
            C = np.kron(C, helmert(n) if B >> j & 1 else np.ones((1, n)))
        q = m.strategy.scales(B, slice(None))
        for v, scales in zip(m.domain.places.order.tolist(), q):
            if B == 0 and v == 6 and m.domain.fixed:
                continue  # the number of people is public
            A = np.kron(K[v][None, :], C)
            P += A.T @ ((scales / unit)[:, None] ** 2 * A)
    return P


@pytest.mark.parametrize("neighbours", ["person", "replace"])
def test_promise_and_variances(neighbours):
    weights = np.array([1, 2, 1, 1, 3, 1, 5.0])
    m = design_tree_margins(PARENT, SIZES, adjacency=neighbours, node_weights=weights, **PROMISE)
    P = precision(m)
    total = len(P)
    if neighbours == "person":
        worst = P.diagonal().max()
    else:
        pairs = itertools.combinations(range(total), 2)
        worst = max(P[i, i] + P[j, j] - 2 * P[i, j] for i, j in pairs)
    assert m.guarantee.sensitivity == pytest.approx(math.sqrt(worst), rel=1e-6)
    assert m.guarantee.sensitivity >= math.sqrt(worst) * (1 - 1e-13)
    assert m.guarantee.holds(1.0, 1e-6, tolerance=0.0)
    kept = np.ones((1, total)) if neighbours == "replace" else np.zeros((0, total))
    covariance = inverse(P, kept)
    K, _ = dense.indicators(PARENT)
    for attributes in ((), (0,), (1,), (0, 1)):
        parts = [np.eye(n) if j in attributes else np.ones((1, n)) for j, n in enumerate(SIZES)]
        M = np.kron(parts[0], parts[1])
        full = np.kron(K, M)
        expected = np.diag(full @ covariance @ full.T).reshape(len(PARENT), -1)
        found = variances(m, attributes)
        np.testing.assert_allclose(expected, found[:, None] * np.ones_like(expected), rtol=1e-5,
                                   atol=1e-7)  # fmt: skip


def variances(m, attributes):
    return m.strategy.node_variances(m.noise, attributes)


def inverse(P, kept):
    basis = sl.null_space(kept) if len(kept) else np.eye(len(P))
    return basis @ np.linalg.inv(basis.T @ P @ basis) @ basis.T


def test_the_optimum_of_the_product_is_the_product_of_the_optima():
    m = design_tree_margins(PARENT, SIZES, **PROMISE)
    tree = design_tree(PARENT, **PROMISE)
    margins = design_margins(SIZES, "<=2", **PROMISE)
    cost = sum(
        float(variances(m, a).sum()) * math.prod(SIZES[j] for j in a)
        for a in ((), (0,), (1,), (0, 1))
    )
    s = m.guarantee.sensitivity
    product = tree.expected_squared_error * margins.expected_squared_error * s**4
    assert cost * s**2 == pytest.approx(product, rel=1e-4)
    K, _ = dense.indicators(PARENT)
    W = sum(
        np.kron(*[np.eye(n) if j in a else np.ones((n, n)) for j, n in enumerate(SIZES)])
        for a in ((), (0,), (1,), (0, 1))
    )
    low, high = dense.least_error(np.kron(K.T @ K, W), np.eye(K.shape[1] * 6))
    assert cost * s**2 <= high * (1 + m.gap + 1e-4)
    assert cost * s**2 / (1 + m.gap) <= high * (1 + 1e-5)
    assert low > 0


@pytest.mark.parametrize("neighbours", ["person", "replace"])
def test_releases_add_up_both_ways(neighbours, tmp_path):
    rng = np.random.default_rng(0)
    m = design_tree_margins(PARENT, SIZES, adjacency=neighbours, **PROMISE)
    counts = rng.integers(0, 50, (4, 2, 3)).astype(np.int32)
    with Ledger(tmp_path / "l.db", epsilon=1.0, delta=1e-5, protects="one person") as ledger:
        out = m.release(counts, ledger=ledger)
        assert ledger.spent > 0
    full = out[0, 1]
    np.testing.assert_allclose(full[3], full[0] + full[1], atol=1e-8)
    np.testing.assert_allclose(full[4], full[2] + full[5], atol=1e-8)
    np.testing.assert_allclose(full[6], full[3] + full[4], atol=1e-8)
    np.testing.assert_allclose(full.sum(axis=2), out[(0,)], atol=1e-8)
    np.testing.assert_allclose(out.at((1,), nodes=[6, 2]), out[(1,)][[6, 2]])
    if neighbours == "replace":
        assert out[()][6] == pytest.approx(counts.sum(), abs=1e-9)
    K, _ = dense.indicators(PARENT)
    truth = np.tensordot(K, counts, 1)
    z = []
    for _ in range(200):
        error = m.release(counts)[0, 1] - truth
        z.append((error[0, 1, 2] / math.sqrt(variances(m, (0, 1))[0])) ** 2)
    assert np.mean(z) == pytest.approx(1.0, abs=0.5)
    wide = m.release(counts.astype(np.int64) + 2**60)[(0,)]
    assert np.isfinite(wide).all()
    found = m.interval(out, simultaneous=True)
    assert found[(0,)].low.shape == (7, 2)


def test_refusals():
    with pytest.raises(AffineDPError, match="adjacency"):
        design_tree_margins(PARENT, SIZES, adjacency="swaps", **PROMISE)
    with pytest.raises(AffineDPError, match="delta"):
        design_tree_margins(PARENT, SIZES, epsilon=1.0, delta=0.0, law="gaussian")
    m = design_tree_margins(PARENT, SIZES, "<=1", **PROMISE)
    with pytest.raises(AffineDPError, match="shape"):
        m.release(np.zeros((3, 2, 3), np.int32))
    out = m.release(np.zeros((4, 2, 3), np.int32))
    with pytest.raises(AffineDPError, match="not released"):
        out[0, 1]


@pytest.mark.parametrize("law", ["gaussian", "laplace", "auto"])
def test_one_place_has_no_public_number_to_protect(law):
    promise = {"epsilon": 1.0, "delta": 0.0 if law == "laplace" else 1e-6, "law": law}
    with pytest.raises(AffineDPError, match="nothing to protect"):
        design_tree_margins([-1, 0, 1], [3, 2], [()], adjacency="replace", **promise)


def weighted(m, weights):
    """Weighted squared error of both margins at all nodes, from the variances of their cells."""
    return sum(
        2 ** len(chosen) * float(m.strategy.node_variances(m.noise, chosen) @ weights)
        for chosen in ((), (0,))
    )


@pytest.mark.parametrize("weights", [(2.43, 2.76, 7.35, 0.92), (1, 0.3, 3, 3), (1, 1e-6, 1, 1)])
def test_what_is_best_left_out_fits_the_grid(weights):
    """Where who moves is seen below only, least noise measures nothing above: it costs nothing."""
    tree, promise = [-1, 0, 1, 1], {"adjacency": "replace", "epsilon": 1.0, "delta": 1e-6}
    m = design_tree_margins(tree, [2], "<=2", law="gaussian", node_weights=weights, **promise)
    assert m.guarantee.holds(1.0, 1e-6)
    # the two nodes on top are one: their numbers are the same, and the same noise keeps the promise
    once, merged = [-1, 0, 0], [sum(weights[:2]), *weights[2:]]
    best = design_tree_margins(once, [2], "<=2", law="gaussian", node_weights=merged, **promise)
    found, least = (weighted(one, w) for one, w in ((m, weights), (best, merged)))
    assert found <= least * (1 + 1e-3)


@pytest.mark.parametrize("neighbours", ["person", "replace"])
def test_never_worse_than_laplace_noise_on_the_cells(neighbours):
    """A small table: every cell gets whole noise, with which Gaussian noise cannot compete."""
    m = design_tree_margins(PARENT, SIZES, adjacency=neighbours, epsilon=1.0, delta=1e-6)
    assert m.law == "geometric"
    assert m.gap is None
    assert m.guarantee.epsilon(0.0) <= 1.0
    p = math.exp(-1.0 if neighbours == "person" else -0.5)
    each = 2 * p / (1 - p) ** 2
    # the number of all 24 cells is public where people move, and cells are projected on it
    left = (lambda k: k) if neighbours == "person" else (lambda k: k * (1 - k / 24))
    np.testing.assert_allclose(variances(m, (0, 1))[LEAVES], each * left(1), rtol=1e-9)
    np.testing.assert_allclose(variances(m, ())[6], each * left(24), rtol=1e-9)
    assert min(other.error for other in m.alternatives) == m.design.error
    assert m.alternatives[-1].words == "cells and add up (Gaussian)"
    counts = np.arange(24, dtype=np.int32).reshape(4, 2, 3)
    out = m.release(counts)
    np.testing.assert_allclose(out[(0,)][6], out[(0,)][LEAVES].sum(axis=0))


def test_laplace_cells_are_covered_as_stated():
    m = design_tree_margins(PARENT, SIZES, epsilon=1.0)
    counts = np.zeros((4, 2, 3), np.int32)
    inside = []
    for _ in range(400):
        out = m.release(counts)
        low, high = m.interval(out, level=0.9)[(0,)]
        inside.append((low <= 0) & (high >= 0))
    share = np.mean(inside, axis=0)
    assert share.min() > 0.9 - 4 * math.sqrt(0.09 / 400)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_widths_of_whole_sums_are_those_of_their_law(epsilon, level):
    """The law of a sum, by convolution: never too small, and a step or two too large at most."""
    p = math.exp(-epsilon)
    ends = np.arange(-400, 401)
    one = (1 - p) / (1 + p) * p ** np.abs(ends)
    law = np.ones(1)
    for terms in range(1, 13):
        law = np.convolve(law, one)
        middle = len(law) // 2
        inside = [law[middle - k : middle + k + 1].sum() for k in range(400)]
        least = int(np.argmax(np.array(inside) >= level))
        found = whole_reach(1 / epsilon, terms, 1 - level)
        assert least <= found <= least + (1 if epsilon <= 1 else 2)
