"""Laplace design: Algorithm 2 of the paper, and less noise than it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix, one_thread, within_range
from affinedp.designs.choose import least_noise, positive_epsilon, pure_problem
from affinedp.designs.effort import Effort
from affinedp.designs.fit import at_the_limit, independent_noise
from affinedp.designs.gaussian import largest_sensitivity, refuse_too_small
from affinedp.designs.separate import given_basis
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import generator_of
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.privacy.verification import resolve_query

if TYPE_CHECKING:
    import scipy.sparse as sparse


@within_range
@one_thread()
def design_laplace(
    manifold: AffineManifold,
    *,
    epsilon: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    seed: int | np.random.Generator = 0,
    effort: Effort = "default",
    method: Literal["optimal", "algorithm2"] = "optimal",
    basis: ArrayLike | None = None,
    check_against: Any = None,
) -> Mechanism:
    """Return a Laplace mechanism of small expected squared error that keeps ε.

    The noise is drawn on a strategy: coordinates ``S ξ`` of what the query reveals, as many
    as its rank (Algorithm 2 of the paper with an optimised basis) or more (then projected,
    which is post-processing).  The problem is not convex: the result is a local optimum,
    never worse than Algorithm 2 with an orthonormal basis nor than projected i.i.d. noise.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    epsilon : float
        The promise to keep, with δ = 0.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix Q for ``E eᵀQe``.
    seed : int or Generator
        For the starts of the search; the same seed gives the same design on one machine
        (other processors round in another order).
    effort : {"quick", "default", "thorough"} or float
        How long is searched, as for :func:`design`.
    method : {"optimal", "algorithm2"}
        ``"algorithm2"`` is the paper's, with ``basis`` as it is.
    basis : array_like, shape (m, r), optional
        For Algorithm 2: the paper's Λ̄, by default an orthonormal basis.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Mechanism

    Examples
    --------
    Example 1 of the paper: σ = max(1, 1/k) μ/ε on one common draw.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -4]])
    >>> m = adp.design_laplace(M, epsilon=1.0)
    >>> abs(m.noise_matrix).round(6).tolist()
    [[4.0], [1.0]]
    """
    limit = positive_epsilon(epsilon, "Laplace")
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    warn_of_forgotten(manifold, check_against)
    if method == "algorithm2":
        return _algorithm_2(neighbours, matrix, names, limit, basis).keeping(limit)
    if method != "optimal":
        raise AffineDPError(f"method must be 'optimal' or 'algorithm2', not {method!r}")
    if basis is not None:
        raise AffineDPError("basis goes with method='algorithm2'")
    generator_of(seed)  # refused here, also where nothing starts at random
    problem = pure_problem(neighbours, (matrix, names), weights, limit, "Laplace")
    return least_noise(problem, ("laplace",), seed, effort=effort)


@within_range
def iid_noise(
    manifold: AffineManifold,
    *,
    law: Literal["gaussian", "laplace"],
    epsilon: float,
    delta: float = 0.0,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
    check_against: Any = None,
) -> Mechanism:
    """Return independent noise of one scale on every output that truly keeps the promise.

    The baseline: what everyone uses, calibrated over the manifold (Theorems 1 and 2).

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    law : {"gaussian", "laplace"}
        Law of the noise.
    epsilon, delta : float
        The promise to keep; δ must be 0 for Laplace and positive for Gaussian noise.
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
    Mechanism

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.iid_noise(adp.AffineManifold([[1, -4]]), law="laplace", epsilon=1.0)
    >>> m.noise_matrix.toarray().round(6).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """
    if law == "gaussian":
        limit = largest_sensitivity(epsilon, delta)
    elif law == "laplace":
        if delta != 0.0:
            raise AffineDPError("Laplace noise is calibrated for δ = 0; delta must be 0")
        limit = positive_epsilon(epsilon, "Laplace")
    else:
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    warn_of_forgotten(manifold, check_against)
    made = independent_noise(neighbours, matrix, names, law, limit)
    return made.keeping(epsilon, delta)


def _algorithm_2(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    basis: ArrayLike | None,
) -> Mechanism:
    chosen = given_basis(adjacency, query, basis)
    unit = build(adjacency, query, chosen, np.eye(chosen.shape[1]), "laplace", names)
    refuse_too_small(unit)
    return at_the_limit(unit, limit)
