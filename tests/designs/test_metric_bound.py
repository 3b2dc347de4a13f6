"""The bound for metric privacy against the values of the theory and against brute force."""

import numpy as np
import pytest

import affinedp as adp
from affinedp.designs.metric_bound import least_metric_error, least_on_cone
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
    assert found == pytest.approx(60, rel=1e-8)  # with the best way to cut facets into simplices


def test_weights_and_blocks():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    heavy = least_metric_error(M, epsilon=1.0, weights=[1, 1, 100])
    assert heavy == pytest.approx(230.354847, rel=1e-6)  # the dual; order gives less here
    with pytest.raises(AffineDPError, match="free"):
        least_metric_error(M, epsilon=1.0, weights=[1, 0, 0])
    both = adp.AffineManifold.from_equations(["a + b = c", "d + e = f"])
    assert least_metric_error(both, epsilon=1.0) == pytest.approx(20, rel=1e-8)


@pytest.mark.parametrize(("a", "b", "mixed"), [(1, 1, -0.6), (4, 1, -1.5), (1, 2, -0.2), (2, 1, 1)])
def test_cones_cost_what_the_minorant_costs(a, b, mixed):
    """Simulate the least of the cost beyond each point, which grows along the cone."""
    s, t = np.random.default_rng(0).exponential(size=(2, 2_000_000))
    further = np.maximum(s, -mixed / a * t), np.maximum(t, -mixed / b * s)
    least = np.minimum(
        a * further[0] ** 2 + 2 * mixed * further[0] * t + b * t**2,
        a * s**2 + 2 * mixed * s * further[1] + b * further[1] ** 2,
    )
    found = least_on_cone(np.array([[a, mixed], [mixed, b]], dtype=float))
    assert found == pytest.approx(least.mean(), rel=1e-2)


def test_obtuse_cones_in_three_dimensions_are_bounded_by_a_ball():
    products = np.eye(3) - 0.3 * (np.ones((3, 3)) - np.eye(3))
    found = least_on_cone(products)
    t = np.random.default_rng(0).exponential(size=(200_000, 3))
    assert 0 < found <= np.einsum("ni,ij,nj->n", t, products, t).mean()
    assert found == pytest.approx(6 * 0.4)
