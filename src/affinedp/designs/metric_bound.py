"""What no mechanism with metric privacy can go below: ε|α| for a move of α n_k, every real α.

Continuous Laplace and K-norm noise keep this stronger promise.  For it two bounds are known: that
of the Gaussian dual with ``V = 2/ε²``, and that from order.  Privacy makes ``p(z) e^(ε‖z‖)`` grow
along every cone over the boundary of the hull of the moves; on a cone with corners a_i the law
e^(-ε‖z‖) is a product of exponential ones, so by Harris' inequality a cost that grows along the
cone costs at least ``q/ε²`` there, ``q = Σ|a_i|² + |Σ a_i|²``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.designs.bounds import dual_value
from affinedp.designs.knorm_blocks import real_cell
from affinedp.designs.separate import Block, checked_weights, split
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning, real_array
from affinedp.laws.polytope import Polytope, TooLargeBodyError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.privacy.least_error import least_metric_variance
from affinedp.privacy.verification import resolve_query

if TYPE_CHECKING:
    import scipy.sparse as sparse

DOWN = 1 - 1e-9
# Ways to cut the facets of a body of few moves into simplices.
ORDERS = 12
FEW_MOVES = 40


@within_range
def least_metric_error(
    manifold: AffineManifold,
    *,
    epsilon: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
) -> float:
    """Return squared error that no mechanism with metric privacy can go below.

    The loss is to be at most ε|α| for a difference of α n_k, for every α: a stronger promise than
    ε for |α| ≤ 1, which some mechanisms keep with less error.

    Examples
    --------
    For a total and its two parts K-norm noise, which costs 10, is optimal.

    >>> import affinedp as adp
    >>> from affinedp.designs.metric_bound import least_metric_error
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> round(least_metric_error(M, epsilon=1.0), 6)
    10.0
    """
    value = float(real_array(epsilon, "epsilon", 0))
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, _ = resolve_query(manifold, query)
    scale = least_metric_variance(value)
    total = 0.0
    for block in split(neighbours, matrix, checked_weights(weights, matrix.shape[0])):
        dual = dual_value([block])
        if dual is None:
            raise AffineDPError("the weights leave some combination of outputs free: no bound")
        total += max(dual.value, _from_order(block) / 2.0 * DOWN)
    return total * scale


def _from_order(block: Block) -> float:
    """The bound from order at ε = 1, or 0 where the hull is too large."""
    cell = real_cell(block)
    kept = np.unique(cell.moves[np.any(cell.moves != 0, axis=1)], axis=0)
    moves = [tuple(map(meaning, move)) for move in kept.tolist()]
    generator, best = np.random.default_rng(0), dict[tuple[tuple[int, ...], int], float]()
    try:
        for attempt in range(ORDERS if len(moves) <= FEW_MOVES else 1):
            # facets are cut into simplices by the order of the points, and any way will do
            order = generator.permutation(len(moves)) if attempt else np.arange(len(moves))
            body = Polytope([moves[i] for i in order])
            for plane, least in _by_facet(body, cell.cost).items():
                best[plane] = max(best.get(plane, 0.0), least)
    except TooLargeBodyError:
        return 0.0
    return min(best.values())


def _by_facet(body: Polytope, cost: FloatArray) -> dict[tuple[tuple[int, ...], int], float]:
    """The least mean of the cost on the cones over every facet, by its plane."""
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for place, corners in zip(body.facets.own.tolist(), body.corners):
        plane, least = body.facets.planes[place], least_on_cone(corners @ cost @ corners.T)
        found[plane] = min(found.get(plane, math.inf), least)
    return found


def least_on_cone(products: FloatArray) -> float:
    """Return the least mean of the cost on a cone, at ε = 1.

    Where corners are at an obtuse angle the cost does not grow, and something below it that does
    is taken: the least of it beyond each point in two dimensions, a ball's cost in more.
    """
    size = np.diagonal(products)
    lowest = float((products / np.sqrt(np.outer(size, size))).min())
    if lowest >= -1e-12:
        return float(size.sum() + products.sum())
    if len(products) > 2:
        return 2.0 * len(products) * max(0.0, float(np.linalg.eigvalsh(products)[0]))
    mixed = float(products[0, 1])
    lost = [2.0 * own * (-mixed / own) ** 3 / (1.0 - mixed / own) for own in size.tolist()]
    return float(size.sum() + products.sum() - sum(lost))
