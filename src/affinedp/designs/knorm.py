"""K-norm design: pure privacy with less noise than independent Laplace coordinates can have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import within_range
from affinedp.designs.choose import least_noise
from affinedp.designs.effort import Effort
from affinedp.designs.problem import checked_problem
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.privacy.verification import resolve_query

if TYPE_CHECKING:
    import scipy.sparse as sparse


@within_range
def design_knorm(
    manifold: AffineManifold,
    *,
    epsilon: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    integers: bool = False,
    seed: int | np.random.Generator = 0,
    effort: Effort = "default",
    check_against: Any = None,
) -> Mechanism:
    """Return K-norm noise of small expected squared error that keeps ε, with δ = 0.

    The density is ∝ e^(−ε‖z‖_K), K a symmetric polytope that contains every move.  The hull of the
    moves is one; a search looks for better ones.  In networks and tables the product of the bodies
    of public sums is compared, at any size.  The result is a local optimum, never worse than
    the hull nor than :func:`design_laplace`, whose noise is returned where it is better, or where
    the hull has too many facets for exact arithmetic (the notes say so).

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
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix Q for ``E eᵀQe``.
    integers : bool
        Data is whole, and so is what is published: less noise, and no charge for rounding.  The
        promise is about whole neighbours.
    seed : int or Generator
        For the starts of the searches.
    effort : {"quick", "default", "thorough"} or float
        How long is searched, as for :func:`design`; ``"quick"`` takes the hull of the moves, or
        what has a closed form.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.errors.AffineDPWarning` says so.  Nothing else
        depends on it.

    Returns
    -------
    Mechanism

    Examples
    --------
    One sum of three entries: squared error 10 where Laplace strategies need 14.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> m = adp.design_knorm(M, epsilon=1.0)
    >>> round(m.expected_squared_error, 6), m.guarantee.epsilon()
    (10.0, 1.0)
    """
    limit = float(real_array(epsilon, "epsilon", 0))
    if limit <= 0:
        raise AffineDPError(f"epsilon must be positive for K-norm noise, not {epsilon!r}")
    problem = checked_problem(
        adjacency_of(manifold, adjacency, mu), resolve_query(manifold, query), weights, limit, 0.0,
        1, "sum", integers, None,
    )  # fmt: skip
    warn_of_forgotten(manifold, check_against)
    return least_noise(replace(problem, is_told=False), ("knorm",), seed, effort=effort)
