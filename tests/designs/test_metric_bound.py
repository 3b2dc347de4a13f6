"""The bound for metric privacy against the values of the theory and against brute force."""

import numpy as np
import pytest

import affinedp as adp
from affinedp.designs.metric_bound import least_metric_error
from affinedp.errors import AffineDPError


@pytest.mark.parametrize(("n", "bound"), [(3, 10), (4, 16), (5, 22), (6, 28)])
def test_one_sum_is_6n_minus_8(n, bound):
    M = adp.AffineManifold(np.ones((1, n)))
    assert least_metric_error(M, epsilon=1.0) == pytest.approx(bound, rel=1e-8)
    assert least_metric_error(M, epsilon=2.0) == pytest.approx(bound / 4, rel=1e-8)


def test_tables_with_public_margins():
    small = np.vstack([np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))])
    assert least_metric_error(adp.AffineManifold(small), epsilon=1.0) == pytest.approx(20, rel=1e-8)
    wide = np.vstack([np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))])
    found = least_metric_error(adp.AffineManifold(wide), epsilon=1.0)
    assert 58 * (1 - 1e-8) <= found <= 60  # 60 with the best way to cut facets into simplices


def test_weights_and_blocks():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    heavy = least_metric_error(M, epsilon=1.0, weights=[1, 1, 100])
    assert heavy == pytest.approx(230.354847, rel=1e-6)  # the dual; order gives less here
    with pytest.raises(AffineDPError, match="free"):
        least_metric_error(M, epsilon=1.0, weights=[1, 0, 0])
    both = adp.AffineManifold.from_equations(["a + b = c", "d + e = f"])
    assert least_metric_error(both, epsilon=1.0) == pytest.approx(20, rel=1e-8)


def test_obtuse_cones_cost_what_the_minorant_costs():
    """Two moves at an obtuse angle: simulate the least of the cost beyond each point."""
    M = adp.AffineManifold(np.zeros((0, 2)), names=["x", "y"])
    moves = np.array([[1.0, -0.6], [0.0, 0.8]])
    found = least_metric_error(M, epsilon=1.0, adjacency=adp.DirectionAdjacency(M, moves))
    rng = np.random.default_rng(0)
    gram = moves.T @ moves

    def least_mean(signs):
        G = gram * np.outer(signs, signs)
        s, t = rng.exponential(size=(2, 400_000))
        s = np.maximum(s, -G[0, 1] / G[0, 0] * t) if G[0, 1] < 0 else s
        other = np.maximum(t, -G[0, 1] / G[1, 1] * s) if G[0, 1] < 0 else t
        return (G[0, 0] * s**2 + 2 * G[0, 1] * s * other + G[1, 1] * other**2).mean()

    simulated = min(least_mean([1, 1]), least_mean([1, -1]))
    dual = (
        2
        * adp.design_gaussian(
            M, epsilon=1.0, delta=1e-3, adjacency=adp.DirectionAdjacency(M, moves)
        ).least.dual
    )
    assert found == pytest.approx(max(simulated, dual), rel=5e-3)
