"""λ₂ of networks that news crosses slowly: long rings, paths, grids.

There Lanczos on P needs as many products as news needs steps.  But such networks are thin: with
linked agents next to each other the Laplacian L has a narrow band, and L − μI is factored as
G D Gᵀ at once, with G lower triangular and D diagonal.

Two things follow.  Lanczos on the inverse finds λ₂ in a few products.  And the signs of D prove a
bound: by Sylvester's law G D Gᵀ has as many negative eigenvalues as D.  If that is one, the second
eigenvalue of L − μI is at least −‖E‖, where E = L − μI − G D Gᵀ is what rounding left over; so
λ₂ ≥ μ − ‖E‖.  The norm is bounded by k vectors g of independent standard normal numbers:
‖E g‖ < τ ‖E‖ has probability at most τ √(2/π) for each of them, and the rounding of E g itself is
bounded by the products with absolute values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.consensus.network import Network

# Numbers between the diagonal and the first link of every row; the factor has no more.
MOST_IN_BAND = 2e7
PROBES = 8
# How far below the value of Lanczos a bound is tried.
SHARES = (1 - 1e-3, 0.98, 0.9, 0.5)
UNIT_ROUNDOFF = 2.0**-53


def is_thin(network: Network) -> bool:
    """Whether the Laplacian can be factored within little memory.

    >>> from affinedp.consensus.weights import network_from_edges
    >>> is_thin(network_from_edges(3, [0, 1], [1, 2]))
    True
    """
    matrix, _ = network.ordered
    first = matrix.indices[matrix.indptr[:-1]]  # its indices are sorted
    return float(np.sum(np.arange(network.n) - first, dtype=np.float64)) <= MOST_IN_BAND


def second_eigenvalue(network: Network, start: FloatArray) -> float | None:
    """Return λ₂ by Lanczos on the inverse, or None if it does not converge."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

    n, scale = network.n, float(network.weight_sums.max())
    shift = 1e-13 * scale  # without one the constant vector makes it singular
    try:
        factor = splu(_ordered_laplacian(network, shift), permc_spec="NATURAL", **_SYMMETRIC)
    except (RuntimeError, MemoryError):
        return None

    def solved(x: FloatArray) -> FloatArray:
        y = factor.solve(x - x.mean())
        return np.asarray(y - y.mean())

    operator = LinearOperator((n, n), matvec=solved, dtype=np.float64)
    try:
        (found,) = eigsh(
            operator, k=1, which="LA", v0=start - start.mean(), tol=1e-5, return_eigenvectors=False
        )
    except ArpackError:
        return None
    value = 1.0 / float(found) - shift
    return value if math.isfinite(value) and value > 0 else None


def second_eigenvalue_bound(
    network: Network, guess: float, failure: float, generator: np.random.Generator
) -> float | None:
    """Return a number that λ₂ is not below, close to the guess if that is right."""
    best = None
    for share in SHARES:
        found = _proved(network, share * guess, failure / len(SHARES), generator)
        if found is not None and (best is None or found > best):
            best = found
        if best is not None and best >= 0.95 * share * guess:
            return best
    return best


_SYMMETRIC: dict[str, Any] = {
    "diag_pivot_thresh": 0.0,
    "options": {"SymmetricMode": True, "Equil": False},
}


def _ordered_laplacian(network: Network, shift: float) -> Matrix:
    """L + shift · I with linked agents next to each other."""
    import scipy.sparse as sparse

    matrix, order = network.ordered
    off = sparse.csc_array(-matrix)
    off.setdiag(network.weight_sums[order] + shift)
    return off


def _proved(
    network: Network, mu: float, failure: float, generator: np.random.Generator
) -> float | None:
    """μ − ‖E‖ if L − μI has one negative pivot, else None."""
    from scipy.sparse.linalg import splu

    A = _ordered_laplacian(network, -mu)
    try:
        factor = splu(A, permc_spec="NATURAL", **_SYMMETRIC)
    except (RuntimeError, MemoryError):  # a pivot that is exactly zero
        return None
    if not np.array_equal(factor.perm_r, factor.perm_c):
        return None
    G, D = factor.L, factor.U.diagonal()
    if not np.isfinite(D).all() or not np.all(D != 0) or int(np.sum(D < 0)) != 1:
        return None
    place = np.argsort(factor.perm_c)
    A = A[place][:, place]
    terms = int(np.diff(G.indptr).max()) + int(np.diff(G.tocsr().indptr).max()) + 8
    gamma = terms * UNIT_ROUNDOFF / (1 - terms * UNIT_ROUNDOFF)
    seen = 0.0
    sizes, sure = abs(A), abs(G)
    for _ in range(PROBES):
        g = generator.normal(size=network.n)
        left = float(np.linalg.norm(A @ g - G @ (D * (G.T @ g))))
        rounding = sizes @ np.abs(g) + sure @ (np.abs(D) * (sure.T @ np.abs(g)))
        seen = max(seen, left + 4 * gamma * float(np.linalg.norm(rounding)))
    likely = failure ** (1 / PROBES) * math.sqrt(math.pi / 2)
    # the diagonal itself: sums of as many weights as an agent has links, and − μ
    links = int(np.diff(network.transition.indptr).max())
    diagonal = 4 * (links + 2) * UNIT_ROUNDOFF * float(network.weight_sums.max())
    found = mu - (seen / likely + diagonal) * (1 + 1e-9)
    return found if found > 0 else None
