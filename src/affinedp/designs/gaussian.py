"""Gaussian design: Algorithm 1 of the paper, and the least noise it can be brought to.

Over one public sum all entries have a closed form, and few rows follow from few pairs.  The
largest variance is the least through weights.  For weights q ≥ 0 of sum 1 the largest variance is
at least the weighted one, so the certified least weighted trace is a lower bound.  At the optimum
the weights sit on outputs with equal variances: weights grow where the variance is above the
average, until bound and variance meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix, dense, is_identity, one_thread, within_range
from affinedp.designs.bounds import COORDINATES, LeastGaussian, proof_of, with_least
from affinedp.designs.fit import Candidate, at_the_limit
from affinedp.designs.least_trace import LeastTrace, least_trace
from affinedp.designs.separate import (
    NOTHING_TO_HIDE,
    UNITS,
    Block,
    checked_weights,
    floor_note,
    given_basis,
    range_basis,
    split,
    together,
    with_floor,
)
from affinedp.designs.symmetry import symmetric_noise
from affinedp.discovery.forgotten import warn_of_forgotten
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import check_squares, dimensions, real_array
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency, adjacency_of
from affinedp.privacy.design import LeastProof
from affinedp.privacy.verification import resolve_query
from affinedp.progress import Progress
from affinedp.strategies.one_sum import dual_of_sum, is_exchange

# Moves that are listed before symmetries are looked for.
FEW_LISTED = 50_000

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import scipy.sparse as sparse


@within_range
@one_thread()
def design_gaussian(
    manifold: AffineManifold,
    *,
    epsilon: float,
    delta: float,
    mu: float | ArrayLike | None = None,
    query: ArrayLike | sparse.sparray | Sequence[str] | None = None,
    adjacency: Adjacency | str | None = None,
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
    adjacency : Adjacency or "person", optional
        Other neighbours than those of Definition 4 with ``mu``; ``"person"`` where equations are
        totals and their parts: one cell moves by up to ``mu``, and its totals follow.
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
    found, dual = least_gaussian(neighbours, matrix, names, limit, checked, tol, imbalance)
    return with_least(found.made().keeping(epsilon, delta), checked, dual, epsilon, delta)


def least_gaussian(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    weights: Matrix,
    tol: float = 1e-8,
    imbalance: float | None = None,
) -> tuple[Candidate, LeastProof | None]:
    """Return the least Gaussian noise at a sensitivity, and what none costs less than at 1."""
    cause = None
    if imbalance is not None:
        imbalance = float(real_array(imbalance, "imbalance", 0))
    else:
        try:
            found = _certified(adjacency, query, limit, weights, tol)
            return found.candidate(adjacency, query, names, limit), found.dual
        except TooManyCircuitsError as error:
            cause = error
    from affinedp.designs.without_list import design_unlisted

    made, dual = design_unlisted(adjacency, query, names, limit, weights, imbalance, cause)
    return Candidate(made), dual


def _certified(
    adjacency: Adjacency, query: Matrix, limit: float, weights: Matrix, tol: float
) -> LeastGaussian:
    """The least noise: of one number, over one sum, from a list of moves or from symmetries."""
    if query.shape[0] == 1:
        return of_one_number(adjacency.sensitivity(query, 2), limit, weights)
    found = least_over_sum(adjacency, query, limit, weights, tol)
    if found is not None:
        return found
    try:
        blocks = list(split(adjacency, query, weights, FEW_LISTED))
    except TooManyCircuitsError:
        found = symmetric_noise(adjacency, query, weights, limit)
        if found is not None:
            return found
        blocks = list(split(adjacency, query, weights))
    return _optimal(query.shape[0], limit, blocks, tol)


def of_one_number(farthest: Sensitivity, limit: float, weights: Matrix) -> LeastGaussian:
    """Return the least noise on one number: its farthest move decides, and nothing is listed."""
    import scipy.sparse as sparse

    if farthest.upper == 0:
        raise AffineDPError(NOTHING_TO_HIDE)
    check_squares(np.array([farthest.upper]), "neighbours move an output by", UNITS)
    least = farthest.value**2 * float(weights.diagonal()[0])
    proof = LeastProof(
        least * COORDINATES, sparse.csc_array(farthest.direction[:, None]), np.ones(1)
    )
    gap = (farthest.upper / farthest.value) ** 2 - 1
    return LeastGaussian(np.ones((1, 1)), np.full((1, 1), farthest.upper / limit), proof, gap)


def largest_sensitivity(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity that keeps (ε, δ), as one number."""
    if dimensions(epsilon, "epsilon") or dimensions(delta, "delta"):
        raise AffineDPError("epsilon and delta must be single numbers")
    if delta == 0:
        raise AffineDPError("this noise is Gaussian, which needs δ > 0: give delta")
    return float(gaussian_sensitivity(epsilon, delta))


def _optimal(outputs: int, limit: float, blocks: list[Block], tol: float) -> LeastGaussian:
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
    basis, root = together(blocks, roots, outputs)
    # a floor on the weights is not what the user's weights cost
    dual = None if notes else proof_of(blocks, solved, limit)
    return LeastGaussian(basis, root, dual, max(0.0, value / lower_bound - 1), tuple(notes))


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


# ---------------------------------------------------------------------- one public sum


# Beyond these sizes matrices of all entries, or of all pairs, take too long.
MOST_ENTRIES = 2_000
MOST_PAIRED = 20_000
MOST_RANK = 30
# Below, moves are listed as for any other manifold.
FEWEST_ENTRIES = 30
CHUNK = 4_000_000
# What scaling the closed form to the promise may cost.
SCALED = 4e-9


def least_over_sum(
    adjacency: Adjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    tol: float,
) -> LeastGaussian | None:
    """Return the least Gaussian noise over one public sum, or None for other problems."""
    if not is_exchange(adjacency) or not FEWEST_ENTRIES < adjacency.manifold.n <= MOST_PAIRED:
        return None
    assert isinstance(adjacency, CircuitAdjacency)
    signs = np.sign(dense(adjacency.manifold.D)).ravel()
    width = float(adjacency.mu[0])
    if is_identity(query, len(signs)):
        return _all_entries(adjacency, query, limit, weights, signs, width)
    if query.shape[0] > MOST_RANK:
        return None
    return _few_rows(adjacency, query, limit, weights, tol, signs, width)


def _all_entries(
    adjacency: CircuitAdjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    signs: FloatArray,
    width: float,
) -> LeastGaussian | None:
    """Equal noise on all that obeys the sum: the variance of an exchange is what decides."""
    from scipy.linalg import helmert

    dual = dual_of_sum(adjacency, weights, False)
    if dual is None or len(signs) > MOST_ENTRIES:
        return None
    basis = signs[:, None] * helmert(len(signs)).T
    root = np.eye(len(signs) - 1) * (math.sqrt(2) * width / limit)
    return LeastGaussian(basis, root, LeastProof(dual), SCALED)


def _few_rows(
    adjacency: CircuitAdjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    tol: float,
    signs: FloatArray,
    width: float,
) -> LeastGaussian | None:
    """Noise for the pairs that are farthest apart, until no other pair is."""
    rows = dense(query) * signs
    rows = rows - rows.mean(axis=1, keepdims=True)
    unit = np.ldexp(1.0, np.frexp(np.abs(rows).max(axis=1))[1])
    unit[~rows.any(axis=1)] = 1.0
    orthonormal = range_basis(rows / unit[:, None])
    if not orthonormal.shape[1]:
        return None
    basis = orthonormal * unit[:, None]
    places = (orthonormal.T @ (rows / unit[:, None])).T * (width / limit)
    weight, floor = with_floor(basis.T @ dense(weights @ basis), np.ptp(places, axis=0))
    ends = zip(places.argmax(axis=0).tolist(), places.argmin(axis=0).tolist())
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in ends)
    metric = np.linalg.inv(np.linalg.cholesky(np.cov(places.T).reshape(2 * (basis.shape[1],))))
    pairs.update(dict.fromkeys(_farthest(places @ metric.T, 3 * basis.shape[1])[1]))
    with Progress("least noise") as progress:
        while True:
            first, second = np.array(list(pairs)).T
            found = least_trace(places[first] - places[second], weight, tol=tol / 4)
            reach, worst = _farthest(places @ np.linalg.inv(found.root).T, 3 * basis.shape[1])
            progress.update(0.0, f"(gap {max(reach**2 - 1, 0.0):.0e})")
            new = [pair for pair in worst if pair not in pairs]
            if reach <= 1 + tol / 4 or not new:
                break
            pairs.update(dict.fromkeys(new))
    gap = max(0.0, found.value * max(reach, 1.0) ** 2 / found.lower_bound - 1)
    notes = (floor_note(floor),) if floor else ()
    proof = None
    if not floor:
        value = found.lower_bound * limit**2 * COORDINATES
        proof = LeastProof(value, _exchanges(first, second, signs * width), found.weights).kept()
    return LeastGaussian(basis, found.root, proof, gap, notes)


def _farthest(places: FloatArray, count: int) -> tuple[float, list[tuple[int, int]]]:
    """The largest distance, and the pairs that are farthest from the first in each row of them."""
    squares = (places**2).sum(axis=1)
    best: list[tuple[float, int, int]] = []
    step = max(1, CHUNK // len(places))
    for start in range(0, len(places), step):
        part = slice(start, start + step)
        apart = squares[part, None] + squares - 2 * places[part] @ places.T
        other = apart.argmax(axis=1)
        far = apart[np.arange(len(other)), other]
        for row in np.argsort(-far, kind="stable")[: 2 * count].tolist():
            pair = sorted((start + row, int(other[row])))
            best.append((float(far[row]), pair[0], pair[1]))
    best = sorted(set(best), reverse=True)
    pairs = list(dict.fromkeys((i, j) for _, i, j in best))[:count]
    return math.sqrt(max(best[0][0], 0.0)), pairs


def _exchanges(first: FloatArray, second: FloatArray, amounts: FloatArray) -> Matrix:
    """The moves of pairs of entries, one per column."""
    import scipy.sparse as sparse

    count = len(first)
    values = np.concatenate([amounts[first], -amounts[second]])
    place = np.concatenate([first, second]), np.tile(np.arange(count), 2)
    return sparse.csc_array((values, place), shape=(len(amounts), count))


# ---------------------------------------------------------------------- the largest variance


ROUNDS = 120
STEP = 0.7
# Weights smaller than this share of the largest are kept there: the problem stays well posed.
SMALLEST = 1e-7


def least_largest(
    outputs: int, limit: float, blocks: list[Block], tol: float = 1e-4
) -> tuple[LeastGaussian, FloatArray]:
    """Return the Gaussian noise of least largest variance, and the weights that prove it.

    There is one weight per output; those of a block sum to 1, and are 0 where nothing moves.  The
    dual value bounds the largest variance.
    """
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    solved: dict[str, _Balanced] = {}
    with Progress("least largest variance") as progress:
        for i, block in enumerate(blocks):

            def show(gap: float, i: int = i) -> None:
                progress.update(i / len(blocks), f"(gap {gap:.0e})")

            if block.key not in solved:
                solved[block.key] = _balance(block, limit, tol, show)
    found = [solved[block.key] for block in blocks]
    weights = np.zeros(outputs)
    for block, one in zip(blocks, found):
        weights[block.outputs] = one.weights
    basis, root = together(blocks, [one.root for one in found], outputs)
    worst = max(range(len(found)), key=lambda i: found[i].bound)
    bound = found[worst].bound
    alone = np.zeros(outputs)
    alone[blocks[worst].outputs] = found[worst].weights
    proof = LeastProof(
        bound * limit**2 * COORDINATES, blocks[worst].moves, found[worst].shares, alone
    ).kept()
    gap = max(0.0, max(one.largest for one in found) / bound - 1)
    return LeastGaussian(basis, root, proof, gap), weights


@dataclass(frozen=True)
class _Balanced:
    root: FloatArray
    weights: FloatArray
    shares: FloatArray
    bound: float
    largest: float


def _balance(block: Block, limit: float, tol: float, report: Callable[[float], None]) -> _Balanced:
    """Weights on the outputs of one block until all that count have equal variances."""
    moved = np.abs(block.basis).max(axis=1) > 0
    weights = np.where(moved, 1.0, 0.0) / moved.sum()
    bound, best = 0.0, None
    for _ in range(ROUNDS):
        cost = block.basis.T @ (weights[:, None] * block.basis)
        one = least_trace(block.directions / limit, (cost + cost.T) / 2, tol=tol / 10)
        variances = ((block.basis @ one.root) ** 2).sum(axis=1)
        largest = float(variances.max()) * (1 + 1e-13)
        lower = one.lower_bound / float(weights.sum()) * (1 - 1e-14)
        proof = (weights, one.weights)
        if best is not None and lower <= bound:
            proof = (best.weights, best.shares)
        bound = max(bound, lower)
        if best is None or largest < best.largest:
            best = _Balanced(one.root, *proof, bound, largest)
        best = _Balanced(best.root, *proof, bound, best.largest)
        report(best.largest / bound - 1)
        if best.largest <= bound * (1 + tol):
            break
        weights = weights * (variances / float(weights @ variances)) ** STEP
        weights = np.where(moved, np.maximum(weights, SMALLEST * weights.max()), 0.0)
        weights /= weights.sum()
    assert best is not None
    return best
