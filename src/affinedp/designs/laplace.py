"""Laplace design: Algorithm 2 of the paper, and less noise than it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, within_range
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian import (
    assemble,
    largest_sensitivity,
    refuse_too_small,
)
from affinedp.designs.laplace_strategy import LaplaceStrategy, least_laplace
from affinedp.designs.separate import (
    NOTHING_TO_HIDE,
    Block,
    checked_weights,
    given_basis,
    split,
    with_floor,
)
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.choose import adjacency_of
from affinedp.privacy.verification import resolve_query
from affinedp.progress import Progress

if TYPE_CHECKING:
    import scipy.sparse as sparse


@within_range
def design_laplace(
    manifold: AffineManifold,
    *,
    epsilon: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    seed: int | np.random.Generator = 0,
    starts: int | None = None,
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
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix Q for ``E eᵀQe``.
    seed : int or Generator
        For the starts of the search; the same seed gives the same design on one machine
        (other processors round in another order).
    starts : int, optional
        Random starts; by default as many as were found to agree.
    method : {"optimal", "algorithm2"}
        ``"algorithm2"`` is the paper's, with ``basis`` as it is.
    basis : array_like, shape (m, r), optional
        For Algorithm 2: the paper's Λ̄, by default an orthonormal basis.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.discovery.forgotten.ForgottenEquationWarning` says so.  Nothing else
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
    limit = _epsilon(epsilon)
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    warn_of_forgotten(manifold, check_against)
    if method == "algorithm2":
        return _algorithm_2(neighbours, matrix, names, limit, basis).keeping(limit)
    if method != "optimal":
        raise AffineDPError(f"method must be 'optimal' or 'algorithm2', not {method!r}")
    if basis is not None:
        raise AffineDPError("basis goes with method='algorithm2'")
    checked = checked_weights(weights, matrix.shape[0])
    try:
        np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise AffineDPError(f"seed must be a whole number or a Generator, not {seed!r}") from None
    blocks = list(split(neighbours, matrix, checked))
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    solved: dict[str, LaplaceStrategy] = {}
    notes: list[str] = []
    with Progress("Laplace strategy") as progress:
        for i, block in enumerate(blocks):
            if block.key in solved:
                continue

            def show(done: int, total: int, i: int = i) -> None:
                progress.update((i + done / total) / len(blocks))

            solved[block.key] = _strategy(block, seed, starts, show)
            floor = with_floor(block.weight, np.abs(block.directions).max(axis=0))[1]
            if floor and not notes:
                notes.append(
                    f"the weights leave some combination free; a floor of {floor:.2g} was added"
                )
    found = [solved[block.key] for block in blocks]
    roots = [_reconstruction(one.strategy) / limit for one in found]
    notes.append(
        f"a local optimum: {found[0].start}, one of {found[0].starts} starts, of which "
        f"{found[0].agreement:.0%} agree within 1 %"
        + (f" (first of {len(solved)} different blocks)" if len(solved) > 1 else "")
    )
    basis_matrix, root = assemble(blocks, roots, matrix.shape[0])
    mechanism = at_the_limit(
        build(neighbours, matrix, basis_matrix, root, "laplace", names, notes=tuple(notes)), limit
    )
    return with_least(mechanism.keeping(limit), checked, dual_value(blocks), limit)


def along_the_moves(
    neighbours: Adjacency, query: Matrix, names: tuple[str, ...], limit: float, weights: Matrix
) -> Mechanism | None:
    """Return independent Laplace noise along every move, where the moves are independent.

    That is K-norm noise with the hull of the moves, a cross-polytope, in any dimension, and takes
    no search.  None where there are more moves than dimensions.

    Parameters
    ----------
    neighbours : Adjacency
        Whom it protects.
    query : matrix, shape (m, n)
        F.
    names : tuple of str
        Names of the outputs.
    limit : float
        ε.
    weights : matrix, shape (m, m)
        What squared error costs.
    """
    blocks = list(split(neighbours, query, weights))
    roots = []
    for block in blocks:
        moves = block.directions[np.abs(block.directions).max(axis=1) > 0]
        if len(moves) != block.basis.shape[1]:
            return None
        roots.append(moves.T / limit)
    if not blocks:
        return None
    basis, root = assemble(blocks, roots, query.shape[0])
    note = "independent noise along every move, which is K-norm noise with their hull"
    return at_the_limit(
        build(neighbours, query, basis, root, "laplace", names, notes=(note,)), limit
    )


@within_range
def iid_noise(
    manifold: AffineManifold,
    *,
    law: Literal["gaussian", "laplace"],
    epsilon: float,
    delta: float = 0.0,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
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
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    check_against : DataFrame, mapping of columns, or array, optional
        Private data: if it obeys equations within a row that were not given, a
        :class:`~affinedp.discovery.forgotten.ForgottenEquationWarning` says so.  Nothing else
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
    import scipy.sparse as sparse

    if law == "gaussian":
        limit = largest_sensitivity(epsilon, delta)
    elif law == "laplace":
        if delta != 0.0:
            raise AffineDPError("Laplace noise is calibrated for δ = 0; delta must be 0")
        limit = _epsilon(epsilon)
    else:
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    warn_of_forgotten(manifold, check_against)
    found = neighbours.sensitivity(matrix, norm=2 if law == "gaussian" else 1)
    if found.upper == 0.0:
        raise AffineDPError(NOTHING_TO_HIDE)
    identity = sparse.csr_array(sparse.eye_array(matrix.shape[0]))
    mechanism = build(
        neighbours, matrix, identity, identity * (found.upper / limit), law, names,
        notes=("independent noise of one scale on every output",),
    )  # fmt: skip
    return at_the_limit(mechanism, limit).keeping(epsilon, delta)


def _epsilon(epsilon: float) -> float:
    value = float(real_array(epsilon, "epsilon", 0))
    if value <= 0:
        raise AffineDPError(f"epsilon must be positive for Laplace noise, not {epsilon!r}")
    return value


def _strategy(
    block: Block,
    seed: int | np.random.Generator,
    starts: int | None,
    progress: Callable[[int, int], None],
) -> LaplaceStrategy:
    """The best strategy for a block; noise on all its outputs is one of the starts."""
    weight, _ = with_floor(block.weight, np.abs(block.directions).max(axis=0))
    tall = [block.basis] if len(block.basis) > block.basis.shape[1] else []
    triangle = np.linalg.qr(block.basis)[1]  # stands for an orthonormal basis of the outputs
    return least_laplace(
        block.directions,
        weight,
        tall_starts=tall,
        orthonormal=triangle,
        seed=seed,
        starts=starts,
        progress=progress,
    )


def _reconstruction(strategy: FloatArray) -> FloatArray:
    """Least squares: how noise on ``S ξ`` becomes noise on ξ."""
    if strategy.shape[0] == strategy.shape[1]:
        return np.asarray(np.linalg.inv(strategy))
    return np.asarray(np.linalg.pinv(strategy))


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
