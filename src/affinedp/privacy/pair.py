"""What noise promises for one pair of data sets: Lemma 1 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning, real_array
from affinedp.laws.named import LawName
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.privacy.guarantee import Guarantee
from affinedp.privacy.verification import verify

if TYPE_CHECKING:
    import scipy.sparse as sparse


def verify_pair(
    manifold: AffineManifold,
    x: ArrayLike,
    y: ArrayLike,
    noise_matrix: float | ArrayLike | sparse.sparray | None = None,
    *,
    covariance: ArrayLike | None = None,
    law: LawName = "gaussian",
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
) -> Guarantee:
    """Return how well ``F x + Λ η`` hides which of two data sets it was given.

    Lemma 1 of the paper for one pair: at each ε the least δ with
    ``P(M(x) ∈ R) ≤ e^ε P(M(y) ∈ R) + δ`` for all sets R.  Both laws are symmetric, so the same
    holds with x and y exchanged.  The pair need not be neighbours; a promise about neighbours is
    the worst such number over all of them.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    x, y : array_like, shape (n,)
        Two data sets that obey them.
    noise_matrix : float or array_like, shape (m, r), optional
        Λ, as for :func:`affinedp.verify`.
    covariance : array_like, shape (m, m), optional
        Covariance of Gaussian noise, in place of ``noise_matrix``.
    law : {"gaussian", "laplace"}
        The law of η.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.

    Returns
    -------
    Guarantee
        About this pair and no other.

    Examples
    --------
    Example 1 of the paper, k = 4: the pair decides.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -4]])
    >>> for y in ([1, 0.25], [4, 1]):
    ...     print(f'{adp.verify_pair(M, [0, 0], y, 1.0, law="laplace").epsilon():.6f}')
    1.250000
    5.000000
    """
    if not isinstance(manifold, AffineManifold):
        raise AffineDPError(f"the first argument must be an AffineManifold, not {manifold!r}")
    points = [real_array(x, "x", 1), real_array(y, "y", 1)]
    for name, point in zip("xy", points):
        if not manifold.contains(point):
            raise AffineDPError(f"{name} does not obey the equations, so it is no data at all")
    # rounded once, relatively; what the adjacency allows for rounding covers that too
    pairs = zip(*(point.tolist() for point in points))
    difference = np.array([float(meaning(a) - meaning(b)) for a, b in pairs])
    pair = DirectionAdjacency(manifold, difference[:, None], unit="this pair of data sets")
    return verify(
        manifold, noise_matrix, covariance=covariance, law=law, query=query, adjacency=pair
    )
