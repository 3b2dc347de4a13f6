"""Theorems 1 and 2 on any noise: what does it really promise under the equations?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import EPS, FloatArray, Matrix, within_range
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import dimensions, meaning, real_array, real_matrix
from affinedp.laws.base import Law, LawName, law_named
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.privacy.guarantee import Guarantee, promise
from affinedp.strategies.coverage import Span, covers_by_rounding
from affinedp.strategies.dense import Dense
from affinedp.strategies.matrices import ROUNDINGS

if TYPE_CHECKING:
    import scipy.sparse as sparse

ROUNDED = (
    "the noise is taken as computed, right up to the rounding of its numbers: as they stand, it "
    "misses a combination that neighbours move. What a mechanism releases has no such gap"
)


@within_range
def verify(
    manifold: AffineManifold,
    noise_matrix: float | ArrayLike | sparse.sparray | None = None,
    *,
    covariance: ArrayLike | None = None,
    law: str | Law = "gaussian",
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
    check_against: Any = None,
) -> Guarantee:
    """Return what ``F x + Λ η`` promises to someone who knows the equations.

    Theorem 1 (Gaussian) and Theorem 2 (Laplace) of the paper, which are necessary and
    sufficient: unless the result says that it is a bound, nothing stronger is true.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    noise_matrix : float or array_like, shape (m, r), optional
        Λ; η is i.i.d. standard Gaussian, or Laplace L(0, 1), which has variance 2.  A
        number is i.i.d. noise of that scale on every output.  For K-norm noise the columns are
        points whose hull with their negatives is K, and the density is ∝ e^(−‖z‖_K).
    covariance : array_like, shape (m, m), optional
        Covariance of Gaussian noise, in place of ``noise_matrix``.
    law : {"gaussian", "laplace", "knorm"} or Law
        The law of the noise.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Guarantee

    Examples
    --------
    Example 1 of the paper: i.i.d. Laplace noise for ε = 1 protects by 1 + k only.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -4]])
    >>> round(adp.verify(M, 1.0, law="laplace").epsilon(), 9)
    5.0

    Noise that misses a direction promises nothing, and the leak is shown.

    >>> adp.verify(M, [[1], [1]]).leak
    array([-1.,  1.])
    """
    if not isinstance(law, Law | str):
        law_named(law)  # refuses what is no name
    if law == "staircase":
        raise AffineDPError("staircase noise is not given by a matrix: design_staircase makes it")
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, output_names = resolve_query(manifold, query)
    name = law.kind if isinstance(law, Law) else law
    noise, error = _noise(noise_matrix, covariance, name, matrix.shape[0])
    if check_against is not None:
        warn_of_forgotten(manifold, check_against)
    if isinstance(law, Law):
        if law.whole:
            raise AffineDPError(f"{law.words} noise is for whole numbers: a matrix does not say so")
        return promise(neighbours, Dense(manifold, matrix, noise, output_names), law)
    made = law_named(law)
    basis, root = noise, None
    if made.of_root(np.eye(1)).size is not None:  # bound to its coordinates: these are its points
        from affinedp.strategies.largest_gauge import points_on_outputs

        basis, root = points_on_outputs(noise)
    strategy = Dense(manifold, matrix, basis, output_names, error=error)
    guarantee = promise(neighbours, strategy, made.of_root(noise if root is None else root))
    given = error == 0.0 and guarantee.leak is None
    if given and covers_by_rounding(noise, matrix, Span.of(neighbours)):
        return replace(guarantee, warnings=(*guarantee.warnings, ROUNDED))
    return guarantee


def resolve_query(
    manifold: AffineManifold, query: ArrayLike | sparse.sparray | Sequence[str] | None
) -> tuple[Matrix, tuple[str, ...]]:
    """Return F and the names of its outputs."""
    import scipy.sparse as sparse

    n = manifold.n
    if query is None:
        return sparse.csr_array(sparse.eye_array(n)), manifold.names
    if isinstance(query, Sequence) and query and all(isinstance(name, str) for name in query):
        place = {name: i for i, name in enumerate(manifold.names)}
        unknown = [str(name) for name in query if name not in place]
        if unknown:
            raise AffineDPError(f"the query names {unknown[0]!r}, which is no entry")
        rows = [place[str(name)] for name in query]
        return sparse.csr_array(sparse.eye_array(n, format="csr")[rows]), tuple(map(str, query))
    matrix = real_matrix(query, "query")
    if matrix.shape[1] != n or matrix.shape[0] == 0:
        raise AffineDPError(f"the query has shape {matrix.shape}, but x has {n} entries")
    return matrix, tuple(f"y{i + 1}" for i in range(matrix.shape[0]))


def _noise(
    noise_matrix: float | ArrayLike | sparse.sparray | None,
    covariance: ArrayLike | None,
    law: str,
    outputs: int,
) -> tuple[Matrix, float]:
    """Λ from what was given (diagonal noise stays sparse), and its relative error."""
    import scipy.sparse as sparse

    if (noise_matrix is None) == (covariance is None):
        raise AffineDPError("give either noise_matrix or covariance")
    if covariance is not None:
        if law != "gaussian":
            raise AffineDPError("covariance is for Gaussian noise: give noise_matrix")
        return _root(real_array(covariance, "covariance", 2), outputs)
    given = dimensions(noise_matrix, "noise_matrix")
    if given == 0:
        scale = float(real_array(noise_matrix, "noise_matrix"))  # type: ignore[arg-type]
        if scale <= 0:
            raise AffineDPError(f"the scale of the noise must be positive, not {scale}")
        return sparse.csr_array(scale * sparse.eye_array(outputs)), 0.0
    if given == 1:
        raise AffineDPError(
            "noise_matrix is a list of numbers: give one number for i.i.d. noise, or "
            "np.diag([...]) for one scale per output"
        )
    matrix = real_matrix(noise_matrix, "noise_matrix")
    if matrix.shape[0] != outputs or matrix.shape[1] == 0:
        raise AffineDPError(
            f"noise_matrix has shape {matrix.shape}, but there are {outputs} outputs: give one row "
            "per output, or one number for i.i.d. noise"
        )
    return matrix, 0.0


def _root(covariance: FloatArray, outputs: int) -> tuple[FloatArray, float]:
    """Λ with ΛΛᵀ equal to the covariance, and its relative error.

    Small eigenvalues are off by eps times the largest one.
    """
    if covariance.shape != (outputs, outputs):
        raise AffineDPError(
            f"covariance has shape {covariance.shape}, but there are {outputs} outputs"
        )
    deviation = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    unit = np.where(deviation > 0, deviation, 1.0)
    correlation = covariance / unit[:, None] / unit
    if np.abs(correlation - correlation.T).max() > 1e-9:
        raise AffineDPError("covariance is not symmetric")
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    # zero eigenvalues come out as rounding of either sign
    dust = 16 * outputs * EPS * max(float(values[-1]), 0.0)
    if values[0] < -max(dust, 1e-12) or np.any(covariance[deviation == 0]):
        raise AffineDPError(
            f"covariance is not positive semidefinite (relative eigenvalue {values[0]:.2g})"
        )
    kept = values > dust
    if not kept.any():
        raise AffineDPError("covariance is zero: there is no noise")
    error = ROUNDINGS * outputs * EPS * float(values[-1] / values[kept][0])
    if error > 1e-3:
        raise AffineDPError(
            "covariance is too close to singular to tell what it promises (relative eigenvalue "
            f"{values[kept][0] / values[-1]:.1e}). Give the noise_matrix that it was made from"
        )
    return unit[:, None] * vectors[:, kept] * np.sqrt(values[kept]), error


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
