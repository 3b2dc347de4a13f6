"""All eigenvectors of a Laplacian, also where some differences hardly die out.

Two groups that are joined by a weight of 1e-14 have a second eigenvalue of that size, and LAPACK
does not tell its eigenvector from the constant one.  So the constant vector is moved to the upper
end of the spectrum first, and the eigenvalues of slow modes are found again on their own subspace:
there λ = σ² for the singular values σ of √w_ij (u_i − u_j), one row for each link, which loses half
as many digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.network.network import Network

# Modes slower than this share of the fastest are refined; the same again among them.
SLOW = 1e-3
# Rows of the links that are put through one QR at a time.
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes of a network that is not too large.

    Attributes
    ----------
    values : array, shape (n − 1,)
        The eigenvalues λ of the Laplacian without the zero of the average, ascending.
    vectors : array, shape (n, n − 1)
        Their orthonormal eigenvectors, all of mean zero.
    """

    values: FloatArray = field(repr=False)
    vectors: FloatArray = field(repr=False)

    def powers(self, times: FloatArray) -> FloatArray:
        """Return (1 − λ)^t, shape (times, n − 1).

        Parameters
        ----------
        times : array, shape (times,)
            Whole numbers, at least 0.
        """
        left = 1.0 - self.values
        with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
            # log1p, since 1 − λ itself drops the digits of a small λ
            logs = np.where(left > 0.5, np.log1p(-self.values), np.log(np.abs(left)))
            exponents = times[:, None] * logs  # 0 · −∞ where λ = 1 and t = 0
        sizes = np.exp(np.where(times[:, None] == 0, 0.0, exponents))
        odd = (times % 2 == 1)[:, None] & (left < 0)
        return np.asarray(np.where(odd, -sizes, sizes))


def modes_of(network: Network) -> Modes:
    """Return all modes of a connected network.

    Parameters
    ----------
    network : Network
        Small enough for a dense matrix.

    Examples
    --------
    >>> from affinedp.consensus.network.weights import network_from_edges
    >>> pair = network_from_edges(4, [0, 1, 2], [1, 2, 3], weights=[0.25, 1e-16, 0.25])
    >>> f"{modes_of(pair).values[0]:.6g}"  # one link of weight w between pairs: λ₂ ≈ w
    '1e-16'
    """
    n = network.n
    rows, columns, weights = network.links()
    matrix = np.zeros((n, n))
    matrix[rows, columns] = -weights
    matrix[np.arange(n), np.arange(n)] = network.weight_sums
    # λ_n is at most twice the largest weight sum, so this is the upper end
    matrix += 3 * network.weight_sums.max() / n
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[:-1].copy(), vectors[:, :-1].copy()
    vectors -= vectors.mean(axis=0)
    once = rows < columns
    links = (rows[once], columns[once], np.sqrt(weights[once]))
    scale, slow = float(values[-1]), n - 1
    while True:
        # the modes are ascending, so the slow ones come first
        fewer = int(np.sum(values[:slow] < SLOW * scale))
        if fewer in (0, slow):
            break
        slow = fewer
        values[:slow], vectors[:, :slow] = _refined(vectors[:, :slow], links)
        scale = float(values[slow - 1])
    return Modes(np.maximum(values, 0.0), vectors)


def _refined(
    vectors: FloatArray, links: tuple[IntArray, IntArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors within a subspace, ascending."""
    rows, columns, roots = links
    rank = vectors.shape[1]
    triangle: FloatArray = np.zeros((rank, rank))
    for first in range(0, len(roots), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        steps = roots[some, None] * (vectors[rows[some]] - vectors[columns[some]])
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, steps]), mode="r"))
    _, sizes, turned = np.linalg.svd(triangle, full_matrices=False)
    order = np.arange(rank)[::-1]
    return np.asarray(sizes[order] ** 2), np.asarray(vectors @ turned[order].T)
