"""One public sum whose entries are all published: everything in closed form, at any size."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from affinedp.arrays import Matrix, dense, is_identity
from affinedp.exact.numbers import meaning
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency


def is_one_sum(adjacency: Adjacency, query: Matrix) -> bool:
    """Whether all entries of one equation with coefficients ±c are published, and move alike."""
    return is_exchange(adjacency) and is_identity(query, adjacency.manifold.n)


def is_exchange(adjacency: Adjacency) -> bool:
    """Whether there is one equation with coefficients ±c, and all entries move alike."""
    if type(adjacency) is not CircuitAdjacency:
        return False
    manifold = adjacency.manifold
    if manifold.D.shape[0] != 1 or manifold.n < 3:
        return False
    size = np.abs(dense(manifold.D)).ravel()
    alike = np.all(size == size[0]) and np.all(adjacency.mu == adjacency.mu[0])
    return bool(alike and adjacency.mu[0])


def exchange_gauge(
    adjacency: Adjacency, query: Matrix, basis: Matrix, root: Matrix
) -> Fraction | None:
    """Return the gauge that all moves of one public sum have, if the noise is under that sum.

    A move takes μ from one entry and gives it to another, or adds it to both where their signs
    differ.  None for any other problem or noise.
    """
    size = adjacency.manifold.n
    if root.shape != (size, 1) or not is_identity(basis, size):
        return None
    if not is_one_sum(adjacency, query):
        return None
    assert isinstance(adjacency, CircuitAdjacency)
    points = dense(root).ravel()
    signs = np.sign(dense(adjacency.manifold.D)).ravel()
    width = abs(float(points[0]))
    if not width or np.any(points != signs * (signs[0] * points[0])):
        return None
    return meaning(float(adjacency.mu[0])) / meaning(width)


def dual_of_sum(adjacency: Adjacency, weights: Matrix, integers: bool) -> float | None:
    """Return the least Gaussian cost of one sum at sensitivity 1: 2 (n - 1) μ², rounded down.

    Equal weights on all exchanges prove it.  None where outputs are weighted.
    """
    assert isinstance(adjacency, CircuitAdjacency)
    width = float(adjacency.mu[0])
    if integers:
        width = math.floor(width)
    if not is_identity(weights, adjacency.manifold.n):
        return None
    return 2.0 * (adjacency.manifold.n - 1) * width**2 * (1 - 1e-15)
