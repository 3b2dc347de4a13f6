"""K-norm design: pure privacy with less noise than independent Laplace coordinates can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, within_range, yes_or_no
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.knorm_blocks import real_cell, whole_cells
from affinedp.designs.knorm_bodies import AXES, HULL, SEARCHED, Chosen, best_bodies
from affinedp.designs.laplace import design_laplace
from affinedp.designs.large_sum import MOST_LISTED_SUM, large_sum
from affinedp.designs.separate import NOTHING_TO_HIDE, checked_weights, split
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.hull import TooLargeBodyError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.choose import adjacency_of
from affinedp.neighbours.exact_moves import moves_are_whole
from affinedp.privacy.least_proof import LeastProof
from affinedp.privacy.verification import resolve_query
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum

if TYPE_CHECKING:
    import scipy.sparse as sparse

# Laplace strategies are compared with in so many dimensions; beyond, the search takes minutes.
MOST_COMPARED = 12
STARTS = 6


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
    starts: int | None = None,
    check_against: Any = None,
) -> Mechanism:
    """Return K-norm noise of small expected squared error that keeps ε, with δ = 0.

    The density is ∝ e^(−ε‖z‖_K), K a symmetric polytope that contains every move.  The hull of the
    moves is one; a search looks for better ones.  The result is a local optimum, never worse than
    the hull nor than :func:`design_laplace`, whose noise is returned where it is better, or where
    the hull has too many facets for exact arithmetic (the notes say so).  The promise is exact.

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
    starts : int, optional
        Random starts of the search for a body; 0 takes the hull of the moves, without a search
        and without a look at Laplace noise.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.discovery.forgotten.ForgottenEquationWarning` says so.  Nothing else
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
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    warn_of_forgotten(manifold, check_against)
    checked = checked_weights(weights, matrix.shape[0])
    count = STARTS if starts is None else starts
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise AffineDPError(f"starts must be a whole number from 0 on, not {starts!r}")
    whole = yes_or_no(integers, "integers")

    def strategies() -> Mechanism:
        return design_laplace(
            manifold, epsilon=limit, query=query, adjacency=neighbours, weights=weights, seed=seed
        )

    found = least_knorm(
        neighbours, matrix, names, limit, checked, strategies,
        integers=whole, seed=seed, starts=int(count),
    )  # fmt: skip
    made = found.mechanism.keeping(limit)
    return with_least(made, checked, found.dual, limit, data="integer" if whole else "any")


@dataclass(frozen=True)
class LeastKNorm:
    """K-norm noise, or the Laplace noise that is better.

    Attributes
    ----------
    mechanism : Mechanism
        The noise.
    dual : LeastProof or None
        Of :func:`~affinedp.designs.bounds.dual_value`, for the bound below all laws.
    """

    mechanism: Mechanism
    dual: LeastProof | None


def least_knorm(
    neighbours: Adjacency,
    matrix: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    strategies: Callable[[], Mechanism],
    *,
    integers: bool = False,
    seed: int | np.random.Generator = 0,
    starts: int = STARTS,
) -> LeastKNorm:
    """Return the K-norm noise of :func:`design_knorm`.

    Parameters
    ----------
    neighbours : Adjacency
        Whom it protects.
    matrix : matrix, shape (m, n)
        F.
    names : tuple of str
        Names of the outputs.
    limit : float
        ε.
    weights : matrix, shape (m, m)
        What squared error costs.
    strategies : callable
        Designs the Laplace noise to compare with, or to fall back to.
    integers, seed, starts
        As for :func:`design_knorm`.
    """
    generator = np.random.default_rng(seed)
    if len(names) > MOST_LISTED_SUM and is_one_sum(neighbours, matrix):
        whole = large_sum(neighbours, matrix, names, limit, integers)
        value = dual_of_sum(neighbours, weights, integers)
        proof = None if value is None else LeastProof(value)
        return LeastKNorm(at_the_rate(whole, limit), proof)
    blocks = list(split(neighbours, matrix, weights))
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    make = whole_cells(neighbours.manifold, matrix) if integers else real_cell
    small = max(block.basis.shape[1] for block in blocks) <= MOST_COMPARED
    laplace = strategies() if small and starts and not integers else None
    dual = None if integers and not moves_are_whole(neighbours) else dual_value(blocks)
    try:
        chosen = best_bodies(blocks, make, laplace, limit, starts, integers, generator)
    except TooLargeBodyError as error:
        found = laplace or strategies()
        note = f"Laplace noise in place of K-norm: {error}"
        return LeastKNorm(found.with_design(notes=(*found.notes, note)), dual)
    mechanism = _assembled(neighbours, matrix, names, chosen, limit, integers)
    if laplace is not None and _cost(laplace, weights) < _cost(mechanism, weights) * (1 - 1e-12):
        note = "less noise than the K-norm bodies that were tried"
        return LeastKNorm(laplace.with_design(notes=(*laplace.notes, note)), dual)
    return LeastKNorm(mechanism, dual)


def _assembled(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    chosen: list[Chosen],
    limit: float,
    integers: bool,
) -> Mechanism:
    parts = [(one.outputs, one.basis, one.points) for one in chosen]
    basis, root = together(parts, query.shape[0])
    words = {one.words for one in chosen}
    notes = tuple(note for note in (SEARCHED, HULL, AXES) if note in words)
    found = build(
        adjacency, query, basis, root, "knorm", names, notes=notes, rate=limit, whole=integers
    )
    return at_the_rate(found, limit)


def together(
    parts: list[tuple[IntArray, FloatArray, FloatArray]], outputs: int
) -> tuple[Matrix, Matrix]:
    """Return basis and root of all blocks.

    Parameters
    ----------
    parts : list of (outputs, basis, root)
        One per block.
    outputs : int
        How many outputs there are.
    """
    import scipy.sparse as sparse

    if len(parts) == 1:
        place, own, points = parts[0]
        basis = np.zeros((outputs, own.shape[1]))
        basis[place] = own
        return basis, points
    place = np.concatenate([rows for rows, _, _ in parts])
    spread = sparse.csr_array(
        (np.ones(len(place)), (place, np.arange(len(place)))), shape=(outputs, len(place))
    )
    stacked = sparse.csr_array(sparse.block_diag([own for _, own, _ in parts]))
    root = sparse.csr_array(sparse.block_diag([points for _, _, points in parts]))
    return sparse.csr_array(spread @ stacked), root


def at_the_rate(mechanism: Mechanism, limit: float) -> Mechanism:
    """Change the rate so that the verified ε is at most, and nearly, ``limit``.

    Parameters
    ----------
    mechanism : Mechanism
        K-norm or staircase noise.
    limit : float
        ε.
    """
    for _ in range(4):
        found = mechanism.guarantee.sensitivity
        if mechanism.guarantee.leak is not None or not 0 < found < math.inf:
            raise AffineDPError(
                "the noise that was designed does not cover the query in floating point; the "
                "problem is too ill-conditioned. Rescale the outputs"
            )
        if limit * (1 - 1e-9) <= found <= limit:
            return mechanism
        rate = mechanism.noise.rate * (limit / found)
        if found > limit:
            rate = min(rate, mechanism.noise.rate) * (1 - 4e-16)
        mechanism = replace(mechanism, noise=mechanism.noise.at_rate(rate))
    raise AffineDPError(
        f"the noise could not be scaled to the promise (ε = {found!r} for {limit!r}): the problem "
        "is too ill-conditioned"
    )


def _cost(mechanism: Mechanism, weights: Matrix) -> float:
    if abs(weights - _diagonal(weights)).max() == 0:
        return float(mechanism.expected_squared_errors @ weights.diagonal())
    return float((dense(weights) * mechanism.covariance).sum())


def _diagonal(weights: Matrix) -> Matrix:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(weights.diagonal()))
