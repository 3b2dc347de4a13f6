"""K-norm design: pure privacy with less noise than independent Laplace coordinates can have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, real_array, within_range
from affinedp.bodies.hull import TooLargeBodyError
from affinedp.bodies.polytope import Polytope
from affinedp.designs.body_search import better_bodies
from affinedp.designs.laplace import design_laplace
from affinedp.designs.separate import Block, checked_weights, split, with_floor
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.progress import Progress
from affinedp.promise.verification import resolve_adjacency, resolve_query
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
        Random starts of the search for a body; 0 takes the best of what is known without one.
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
    generator = np.random.default_rng(seed)
    count = STARTS if starts is None else int(starts)
    blocks = list(split(neighbours, matrix, checked))
    if not blocks:
        raise AffineDPError(
            "the query does not depend on what neighbours differ in: no noise needed"
        )
    laplace = None
    if max(block.basis.shape[1] for block in blocks) <= MOST_COMPARED:
        laplace = design_laplace(
            manifold, epsilon=limit, query=query, adjacency=neighbours, weights=weights, seed=seed
        )
    try:
        chosen = _bodies(blocks, laplace, limit, count, generator)
    except TooLargeBodyError as error:
        return _fall_back(laplace, str(error), manifold, limit, query, neighbours, weights, seed)
    found = _assembled(neighbours, matrix, names, blocks, chosen, limit)
    if laplace is not None and _cost(laplace, checked) < _cost(found, checked) * (1 - 1e-12):
        return replace(
            laplace, notes=(*laplace.notes, "less noise than the K-norm bodies that were tried")
        )
    return found


@dataclass(frozen=True, eq=False)
class Chosen:
    """The body of one block.

    Attributes
    ----------
    basis : array, shape (outputs, r)
        What makes outputs of the coordinates.
    points : array, shape (r, p)
        Points of the body, up to sign.
    searched : bool
        Whether it is more than the hull of the moves.
    """

    basis: FloatArray
    points: FloatArray
    searched: bool


def _bodies(
    blocks: list[Block],
    laplace: Mechanism | None,
    limit: float,
    starts: int,
    generator: np.random.Generator,
) -> list[Chosen]:
    solved: dict[str, Chosen] = {}
    with Progress("K-norm bodies") as progress:
        for i, block in enumerate(blocks):
            if block.key not in solved:
                solved[block.key] = _body(block, laplace, limit, starts, generator)
            progress.update((i + 1) / len(blocks))
    return [solved[block.key] for block in blocks]


def _body(
    block: Block,
    laplace: Mechanism | None,
    limit: float,
    starts: int,
    generator: np.random.Generator,
) -> Chosen:
    """The best body of a block: the hull of its moves, or one with further points."""
    basis, moves = readable_coordinates(block)
    hull = _polytope(moves)
    weight = basis.T @ _in_outputs(block) @ basis
    cost, _ = with_floor((weight + weight.T) / 2, np.abs(moves).max(axis=0))
    best, error = hull, float((hull.second_moment() * cost).sum())
    known = _square_strategy(block, basis, laplace, limit)
    candidates = better_bodies(hull.vertices, cost, known, starts, generator)
    for extra in candidates:
        body = _polytope(np.vstack([hull.vertices, _short(extra, hull.vertices)]))
        own = float((body.second_moment() * cost).sum())
        if own < error * (1 - 1e-9):
            best, error = body, own
    return Chosen(basis, best.vertices.T, best is not hull)


def _in_outputs(block: Block) -> FloatArray:
    """A cost of outputs that is the block's cost on what its basis spans."""
    back = np.linalg.pinv(block.basis)
    return np.asarray(back.T @ block.weight @ back)


def readable_coordinates(block: Block) -> tuple[FloatArray, FloatArray]:
    """Return a basis that is the identity on some outputs, and the moves on those, as rows.

    Coordinates are outputs, so that whole or decimal moves stay what they are.

    Parameters
    ----------
    block : Block
        In orthonormal coordinates.
    """
    from scipy.linalg import qr

    image = short_numbers(block.basis @ block.directions.T)
    _, _, order = qr(block.basis.T / np.abs(block.basis).max(), mode="economic", pivoting=True)
    places = np.sort(order[: block.basis.shape[1]])
    basis = short_numbers(block.basis @ np.linalg.inv(block.basis[places]))
    basis[places] = np.eye(len(places))
    return basis, image[places].T


def short_numbers(values: FloatArray) -> FloatArray:
    """Replace numbers that differ from a short fraction by rounding only.

    Parameters
    ----------
    values : array
        Computed numbers.
    """
    flat, place = np.unique(values, return_inverse=True)
    size = float(np.abs(flat).max(initial=0.0))
    found = np.array([_short_number(v, size) for v in flat.tolist()])
    return np.asarray(found[place].reshape(values.shape))


def _short_number(value: float, size: float) -> float:
    for most in (12, 1_000):
        near = float(Fraction(value).limit_denominator(most))
        if abs(near - value) <= 1e-13 * size:
            return near
    near = float(f"{value:.10g}")
    return near if abs(near - value) <= 1e-13 * size else value


def _short(extra: FloatArray, vertices: FloatArray) -> FloatArray:
    """Extra points with few digits: any points do, and short ones are quick in exact arithmetic."""
    size = np.abs(vertices).max(axis=0)
    unit = 10.0 ** (np.floor(np.log10(np.where(size > 0, size, 1.0))) - DIGITS)
    return np.asarray(np.vectorize(lambda v: float(f"{v:.12g}"))(np.rint(extra / unit) * unit))


def _polytope(rows: FloatArray) -> Polytope:
    from affinedp.bodies.exact import readable

    kept = np.unique(rows[np.any(rows != 0, axis=1)], axis=0)
    return Polytope([tuple(map(readable, row)) for row in kept.tolist()])


def _square_strategy(
    block: Block, basis: FloatArray, laplace: Mechanism | None, limit: float
) -> list[FloatArray]:
    """The points of a Laplace design with as many noises as dimensions: it is a K-norm."""
    if laplace is None:
        return []
    noise = dense(laplace.noise_matrix[block.outputs])
    used = noise[:, np.abs(noise).max(axis=0) > 0]
    if used.shape[1] > 2 * basis.shape[1] + 2:
        return []
    return [(np.linalg.pinv(basis) @ used * limit).T]


def _assembled(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    blocks: list[Block],
    chosen: list[Chosen],
    limit: float,
) -> Mechanism:
    basis, root = _together(
        [(b.outputs, c.basis, c.points) for b, c in zip(blocks, chosen)], query.shape[0]
    )
    searched = any(one.searched for one in chosen)
    note = (
        "a local optimum: a body found by search around the hull of the moves"
        if searched
        else "the hull of the moves"
    )
    return at_the_rate(
        build(adjacency, query, basis, root, "knorm", names, notes=(note,), rate=limit), limit
    )


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


def _cost(mechanism: Mechanism, weights: Matrix) -> float:
    if abs(weights - _diagonal(weights)).max() == 0:
        return float(mechanism.expected_squared_errors @ weights.diagonal())
    return float((dense(weights) * mechanism.covariance).sum())


def _diagonal(weights: Matrix) -> Matrix:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(weights.diagonal()))


def _fall_back(
    laplace: Mechanism | None,
    reason: str,
    manifold: AffineManifold,
    limit: float,
    query: Any,
    neighbours: Adjacency,
    weights: Any,
    seed: int | np.random.Generator,
) -> Mechanism:
    """Laplace strategies where the hull is out of reach."""
    if laplace is None:
        laplace = design_laplace(
            manifold, epsilon=limit, query=query, adjacency=neighbours, weights=weights, seed=seed
        )
    return replace(laplace, notes=(*laplace.notes, f"Laplace noise in place of K-norm: {reason}"))
