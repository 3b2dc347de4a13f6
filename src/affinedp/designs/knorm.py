"""K-norm design: pure privacy with less noise than independent Laplace coordinates can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import (
    FloatArray,
    IntArray,
    Matrix,
    dense,
    real_array,
    within_range,
    yes_or_no,
)
from affinedp.bodies.cones import LatticeCones
from affinedp.bodies.exact import readable
from affinedp.bodies.hull import TooLargeBodyError
from affinedp.bodies.polytope import Polytope
from affinedp.designs.body_search import MOST_SEARCHED, better_bodies
from affinedp.designs.bounds import dual_value, with_least
from affinedp.designs.knorm_blocks import Cell, as_one_sum, real_cell, whole_cells
from affinedp.designs.laplace import design_laplace
from affinedp.designs.large_sum import MOST_LISTED_SUM, large_sum
from affinedp.designs.separate import NOTHING_TO_HIDE, Block, checked_weights, split
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.progress import Progress
from affinedp.promise.exact_moves import moves_are_whole
from affinedp.promise.least_proof import LeastProof
from affinedp.promise.one_sum import dual_of_sum, is_one_sum
from affinedp.promise.verification import resolve_adjacency, resolve_query
from affinedp.record import weighted_error
from affinedp.relations.forgotten import warn_of_forgotten

if TYPE_CHECKING:
    import scipy.sparse as sparse

# Extra points of a body have so many digits of the moves' size.
DIGITS = 4
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
        :class:`~affinedp.relations.forgotten.ForgottenEquationWarning` says so.  Nothing else
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
    neighbours = resolve_adjacency(manifold, mu, adjacency)
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
    return with_least(
        found.mechanism, checked, found.dual, limit, data="integer" if whole else "any"
    )


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
        dual = None if value is None else LeastProof(value)
        return LeastKNorm(at_the_rate(whole, limit), dual)
    blocks = list(split(neighbours, matrix, weights))
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    make = whole_cells(neighbours.manifold, matrix) if integers else real_cell
    small = max(block.basis.shape[1] for block in blocks) <= MOST_COMPARED
    laplace = strategies() if small and starts and not integers else None
    dual = None if integers and not moves_are_whole(neighbours) else dual_value(blocks)
    try:
        chosen = _bodies(blocks, make, laplace, limit, starts, integers, generator)
    except TooLargeBodyError as error:
        found = laplace or strategies()
        note = f"Laplace noise in place of K-norm: {error}"
        return LeastKNorm(replace(found, notes=(*found.notes, note)), dual)
    mechanism = _assembled(neighbours, matrix, names, chosen, limit, integers)
    if laplace is not None and weighted_error(laplace, weights) < weighted_error(
        mechanism, weights
    ) * (1 - 1e-12):
        note = "less noise than the K-norm bodies that were tried"
        return LeastKNorm(replace(laplace, notes=(*laplace.notes, note)), dual)
    return LeastKNorm(mechanism, dual)


@dataclass(frozen=True, eq=False)
class Chosen:
    """The body of one block.

    Attributes
    ----------
    outputs : array of int
        Outputs of the block.
    basis : array, shape (outputs, r)
        What makes outputs of the coordinates.
    points : array, shape (r, p)
        Points of the body, up to sign; or the signs of a public sum.
    searched : bool
        Whether it is more than the hull of the moves.
    """

    outputs: IntArray
    basis: FloatArray
    points: FloatArray
    searched: bool


def _bodies(
    blocks: list[Block],
    make: Callable[[Block], Cell],
    laplace: Mechanism | None,
    limit: float,
    starts: int,
    integers: bool,
    generator: np.random.Generator,
) -> list[Chosen]:
    """The best body of every block, each kind of block once."""
    solved: dict[str, Chosen] = {}
    found = []
    with Progress("K-norm bodies") as progress:
        for i, block in enumerate(blocks):
            if block.key not in solved:
                cell = make(block)
                known = _square_strategy(cell, laplace, limit)
                solved[block.key] = _body(cell, known, limit, starts, integers, generator)
            found.append(replace(solved[block.key], outputs=block.outputs))
            progress.update((i + 1) / len(blocks))
    return found


def _body(
    cell: Cell,
    known: list[FloatArray],
    limit: float,
    starts: int,
    integers: bool,
    generator: np.random.Generator,
) -> Chosen:
    """The best body of a block: the hull of its moves, or one with further points."""
    one_sum = as_one_sum(cell.moves)
    exchanged = None
    if one_sum is not None:
        points = (one_sum.width * one_sum.signs)[:, None]
        exchanged = Chosen(cell.outputs, one_sum.spread(cell.basis), points, False)
        if cell.moves.shape[1] > MOST_SEARCHED:
            return exchanged
    hull = _polytope(cell.moves)
    best, error = hull, _error(hull, cell, limit, integers)
    candidates = better_bodies(hull.vertices, cell.cost, known, starts, generator)
    for extra in candidates:
        rounded = _whole_shares(extra) if integers else _short(extra, hull.vertices)
        body = _polytope(np.vstack([hull.vertices, rounded]))
        own = _error(body, cell, limit, integers)
        if own < error * (1 - 1e-9):
            best, error = body, own
    if best is hull and exchanged is not None:
        return exchanged
    return Chosen(cell.outputs, cell.basis, best.vertices.T, best is not hull)


def _error(body: Polytope, cell: Cell, limit: float, integers: bool) -> float:
    """The cost of noise with this body at rate ε."""
    if integers:
        return float((LatticeCones(body).second_moment(limit) * cell.cost).sum())
    return float((body.second_moment() * cell.cost).sum()) / limit**2


def _whole_shares(extra: FloatArray) -> FloatArray:
    """Extra points on a part of the lattice so coarse that the cones have few lattice points."""
    shares = {2: 16, 3: 4}.get(extra.shape[1], 1)
    return np.asarray(np.rint(extra * shares) / shares)


def _short(extra: FloatArray, vertices: FloatArray) -> FloatArray:
    """Extra points with few digits: any points do, and short ones are quick in exact arithmetic."""
    size = np.abs(vertices).max(axis=0)
    unit = 10.0 ** (np.floor(np.log10(np.where(size > 0, size, 1.0))) - DIGITS)
    return np.asarray(np.vectorize(lambda v: float(f"{v:.12g}"))(np.rint(extra / unit) * unit))


def _polytope(rows: FloatArray) -> Polytope:
    kept = np.unique(rows[np.any(rows != 0, axis=1)], axis=0)
    return Polytope([tuple(map(readable, row)) for row in kept.tolist()])


def _square_strategy(cell: Cell, laplace: Mechanism | None, limit: float) -> list[FloatArray]:
    """The points of a Laplace design with as many noises as dimensions: it is a K-norm."""
    if laplace is None:
        return []
    noise = dense(laplace.noise_matrix[cell.outputs])
    used = noise[:, np.abs(noise).max(axis=0) > 0]
    if used.shape[1] > 2 * cell.basis.shape[1] + 2:
        return []
    return [(np.linalg.pinv(cell.basis) @ used * limit).T]


def _assembled(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    chosen: list[Chosen],
    limit: float,
    integers: bool,
) -> Mechanism:
    parts = [(one.outputs, one.basis, one.points) for one in chosen]
    basis, root = _together(parts, query.shape[0])
    searched = any(one.searched for one in chosen)
    note = (
        "a local optimum: a body found by search around the hull of the moves"
        if searched
        else "the hull of the moves"
    )
    found = build(
        adjacency, query, basis, root, "knorm", names, notes=(note,), rate=limit, integers=integers
    )
    return at_the_rate(found, limit)


def _together(
    parts: list[tuple[IntArray, FloatArray, FloatArray]], outputs: int
) -> tuple[Matrix, Matrix]:
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
        K-norm noise.
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
        rate = mechanism.rate * (limit / found)
        if found > limit:
            rate = min(rate, mechanism.rate) * (1 - 4e-16)
        mechanism = build(
            mechanism.adjacency, mechanism.query, mechanism.basis, mechanism.root, "knorm",
            mechanism.output_names, notes=mechanism.notes, rate=rate, integers=mechanism.integers,
        )  # fmt: skip
    raise AffineDPError(
        f"the noise could not be scaled to the promise (ε = {found!r} for {limit!r}): the problem "
        "is too ill-conditioned"
    )
