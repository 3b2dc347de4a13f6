"""One public sum of so many entries that their exchanges are not listed."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency

# One sum of more entries has no list of its exchanges.
MOST_LISTED_SUM = 500


def is_one_sum(adjacency: Adjacency, query: Matrix) -> bool:
    """Whether all entries of one equation with coefficients ±c are published, and move alike.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbours.
    query : matrix, shape (m, n)
        F.
    """
    manifold = adjacency.manifold
    if type(adjacency) is not CircuitAdjacency or manifold.D.shape[0] != 1 or manifold.n < 3:
        return False
    size = np.abs(dense(manifold.D)).ravel()
    if np.any(size != size[0]) or np.any(adjacency.mu != adjacency.mu[0]) or not adjacency.mu[0]:
        return False
    square = query.shape == (manifold.n, manifold.n)
    return square and int((query != identity(manifold.n)).nnz) == 0


def identity(size: int) -> Matrix:
    """Return the identity.

    Parameters
    ----------
    size : int
        Rows.
    """
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.eye_array(size))


def large_sum(
    adjacency: Adjacency, query: Matrix, names: tuple[str, ...], limit: float, integers: bool
) -> Mechanism:
    """Return the hull's noise at rate ``limit``, not yet scaled, without a list of the moves.

    Parameters
    ----------
    adjacency : CircuitAdjacency
        Of one sum.
    query : matrix, shape (n, n)
        The identity.
    names : tuple of str
        Names of the outputs.
    limit : float
        ε.
    integers : bool
        Whether data is whole.
    """
    import scipy.sparse as sparse

    assert isinstance(adjacency, CircuitAdjacency)
    width = float(adjacency.mu[0])
    if integers:
        width = math.floor(width)
        if width == 0:
            raise AffineDPError("whole numbers do not move by less than 1: enlarge mu")
    signs = np.sign(dense(adjacency.manifold.D)).ravel()
    points = sparse.csr_array((signs * signs[-1] * width)[:, None])
    found = build(
        adjacency, query, identity(len(names)), points, "knorm", names, rate=limit,
        integers=integers, notes=("the hull of the moves, not compared with other noise",),
    )  # fmt: skip
    return found


def dual_of_sum(adjacency: Adjacency, weights: Matrix, integers: bool) -> float | None:
    """Return the least Gaussian cost of one sum at sensitivity 1: 2 (n - 1) μ², rounded down.

    Equal weights on all exchanges prove it.  None where outputs are weighted.

    Parameters
    ----------
    adjacency : CircuitAdjacency
        Of one sum.
    weights : matrix, shape (n, n)
        What squared error costs.
    integers : bool
        Whether data is whole, and moves by the whole part of μ at most.
    """
    assert isinstance(adjacency, CircuitAdjacency)
    width = float(adjacency.mu[0])
    if integers:
        width = math.floor(width)
    if (abs(weights - identity(weights.shape[0]))).max() != 0:
        return None
    return 2.0 * (adjacency.manifold.n - 1) * width**2 * (1 - 1e-15)
