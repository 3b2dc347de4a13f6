"""One public sum of so many entries that their exchanges are not listed."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency

# One sum of more entries is designed in closed form, without a list of its exchanges.
MOST_LISTED_SUM = 12


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
        whole=integers, notes=("the hull of the moves, not compared with other noise",),
    )  # fmt: skip
    return found
