"""Gaussian design: Algorithm 1 of the paper, and the least noise it can be brought to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, within_range
from affinedp.designs.bounds import proof_of, with_least
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian_sum import least_over_sum
from affinedp.designs.least_trace import LeastTrace, least_trace
from affinedp.designs.separate import (
    NOTHING_TO_HIDE,
    Block,
    checked_weights,
    floor_note,
    given_basis,
    split,
    together,
    with_floor,
)
from affinedp.designs.symmetry import symmetric_noise
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import real_array
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.privacy.design import LeastProof
from affinedp.privacy.verification import resolve_query
from affinedp.progress import Progress

# Moves that are listed before symmetries are looked for.
FEW_LISTED = 50_000

if TYPE_CHECKING:
    from collections.abc import Sequence

    import scipy.sparse as sparse


@within_range
def design_gaussian(
    manifold: AffineManifold,
    *,
    epsilon: float,
    delta: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | None = None,
    weights: ArrayLike | sparse.sparray | None = None,
    tol: float = 1e-8,
    method: Literal["optimal", "algorithm1"] = "optimal",
    basis: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
    imbalance: float | None = None,
    check_against: Any = None,
) -> Mechanism:
    """Return the Gaussian mechanism of least expected squared error that keeps (ε, δ).

    Algorithm 1 of the paper with the Σ that minimises its trace, found through the dual
    problem: ``gap`` certifies, over all neighbour directions, how far the result can be
    from the optimum.  Releases obey every equation that ``F x`` obeys.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    epsilon, delta : float
        The promise to keep: ε ≥ 0 and 0 < δ < 1.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    query : array_like, shape (m, n), or sequence of names, optional
        F, or the names of the entries to publish; the identity by default.
    adjacency : Adjacency, optional
        Other neighbours than those of Definition 4 with ``mu``.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix Q for ``E eᵀQe``.
    tol : float
        Relative gap to certify.
    method : {"optimal", "algorithm1"}
        ``"algorithm1"`` takes a Σ that satisfies the paper's inequality, in place of the best.
    basis : array_like, shape (m, r), optional
        For Algorithm 1: the paper's Λ̄, by default an orthonormal basis.
    covariance : array_like, shape (r, r), optional
        For Algorithm 1: Σ; by default the least multiple of the identity that will do.
    imbalance : float, optional
        For neighbours that cannot be listed: what the entries of a circuit differ by at most
        (as a factor).  Network equations have 1 and are recognised.
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
    >>> M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
    >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    >>> m.guarantee.holds(1.0, 1e-6), m.gap <= 1e-8
    (True, True)
    >>> iid = adp.iid_noise(M, law="gaussian", epsilon=1.0, delta=1e-6)
    >>> round(m.expected_squared_error / iid.expected_squared_error, 3)
    0.667
    """
    neighbours = adjacency_of(manifold, adjacency, mu)
    matrix, names = resolve_query(manifold, query)
    limit = largest_sensitivity(epsilon, delta)
    warn_of_forgotten(manifold, check_against)
    if method == "algorithm1":
        given = _algorithm_1(neighbours, matrix, names, limit, basis, covariance)
        return given.keeping(epsilon, delta)
    if method != "optimal":
        raise AffineDPError(f"method must be 'optimal' or 'algorithm1', not {method!r}")
    if basis is not None or covariance is not None:
        raise AffineDPError("basis and covariance go with method='algorithm1'")
    checked = checked_weights(weights, matrix.shape[0])
    tol = float(real_array(tol, "tol", 0))
    found = least_gaussian(neighbours, matrix, names, limit, checked, tol, imbalance)
    made = found.mechanism.keeping(epsilon, delta)
    return with_least(made, checked, found.dual, epsilon, delta)


@dataclass(frozen=True)
class LeastGaussian:
    """The least Gaussian noise at a sensitivity."""

    mechanism: Mechanism  # the noise
    # what Gaussian noise costs at least at sensitivity 1; None where nothing is certified
    dual: LeastProof | None


def least_gaussian(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    tol: float = 1e-8,
    imbalance: float | None = None,
) -> LeastGaussian:
    """Return the least Gaussian noise whose sensitivity is at most ``limit``."""
    cause = None
    if imbalance is not None:
        imbalance = float(real_array(imbalance, "imbalance", 0))
    else:
        over_sum = least_over_sum(adjacency, query, limit, weights, tol)
        if over_sum is not None:
            made = build(
                adjacency, query, over_sum.basis, over_sum.root, "gaussian", names,
                gap=over_sum.gap, notes=over_sum.notes,
            )  # fmt: skip
            return LeastGaussian(at_the_limit(made, limit), over_sum.dual)
        try:
            try:
                blocks = list(split(adjacency, query, weights, FEW_LISTED))
            except TooManyCircuitsError:
                alike = symmetric_noise(adjacency, query, weights)
                if alike is not None:
                    made = build(
                        adjacency, query, alike.basis, alike.root / limit, "gaussian", names,
                        gap=alike.gap,
                    )  # fmt: skip
                    return LeastGaussian(at_the_limit(made, limit), alike.dual)
                blocks = list(split(adjacency, query, weights))
            return _optimal(adjacency, query, names, limit, blocks, tol)
        except TooManyCircuitsError as error:
            cause = error
    from affinedp.designs.without_list import design_unlisted

    return LeastGaussian(
        *design_unlisted(adjacency, query, names, limit, weights, imbalance, cause)
    )


def largest_sensitivity(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity that keeps (ε, δ), as one number."""
    if np.ndim(epsilon) or np.ndim(delta):
        raise AffineDPError("epsilon and delta must be single numbers")
    return float(gaussian_sensitivity(epsilon, delta))


def _optimal(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    blocks: list[Block],
    tol: float,
) -> LeastGaussian:
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    solved: dict[str, LeastTrace] = {}
    roots: list[FloatArray] = []
    notes: list[str] = []
    value = lower_bound = 0.0
    with Progress("least noise") as progress:
        for i, block in enumerate(blocks):
            floored, floor = with_floor(block.weight, np.abs(block.directions).max(axis=0))
            if floor and not notes:
                notes.append(floor_note(floor))
            key = block.key
            if key not in solved:
                start = i / len(blocks)

                def show(stage: str, gap: float, start: float = start) -> None:
                    progress.update(start, f"(gap {gap:.0e})")

                solved[key] = least_trace(block.directions / limit, floored, tol=tol, progress=show)
            roots.append(solved[key].root)
            value += solved[key].value
            lower_bound += solved[key].lower_bound
    basis, root = together(blocks, roots, query.shape[0])
    mechanism = at_the_limit(
        build(
            adjacency, query, basis, root, "gaussian", names,
            gap=max(0.0, value / lower_bound - 1), notes=tuple(notes),
        ),
        limit,
    )  # fmt: skip
    # a floor on the weights is not what the user's weights cost
    return LeastGaussian(mechanism, None if notes else proof_of(blocks, solved, limit))


def refuse_too_small(mechanism: Mechanism) -> None:
    """Refuse a given basis that misses something which the query reveals about neighbours."""
    if mechanism.guarantee.leak is not None:
        bare = dict(mechanism.guarantee.summary())["leak"].partition(" (")[0]
        raise AffineDPError(
            f"basis does not span what the query reveals on the manifold: {bare} would come out "
            "without noise. Add a column that covers it"
        )


def _algorithm_1(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    basis: ArrayLike | None,
    covariance: ArrayLike | None,
) -> Mechanism:
    """Algorithm 1 with the Σ that was given, checked against the paper's inequality."""
    chosen = given_basis(adjacency, query, basis)
    rank = chosen.shape[1]
    if covariance is None:
        unit = build(adjacency, query, chosen, np.eye(rank), "gaussian", names)
        refuse_too_small(unit)
        return at_the_limit(unit, limit)
    given = real_array(covariance, "covariance", 2)
    if given.shape != (rank, rank) or np.abs(given - given.T).max() > 1e-12 * np.abs(given).max():
        raise AffineDPError(f"covariance must be a symmetric {rank}×{rank} matrix")
    try:
        root = np.linalg.cholesky(given)
    except np.linalg.LinAlgError:
        raise AffineDPError("covariance is not positive definite") from None
    mechanism = build(adjacency, query, chosen, root, "gaussian", names)
    found = mechanism.guarantee
    refuse_too_small(mechanism)
    if found.sensitivity > limit * (1 + 1e-12):
        moves = dict(found.summary())["worst pair"]
        raise AffineDPError(
            f"Σ is too small: {moves} have distance {found.sensitivity:.6g}, but at most "
            f"{limit:.6g} keeps the promise. Scale Σ by {(found.sensitivity / limit) ** 2:.6g}"
        )
    if found.sensitivity > limit:  # tight up to rounding, which must fall on the safe side
        mechanism = at_the_limit(mechanism, limit).with_design(notes=("scaled up by rounding",))
    return mechanism
