"""Standard practice, in the same units: what any design for a table is compared with.

Noise on every number, brought back onto the equations by least squares; noise on the cells, added
up; one weight per level.  Each keeps the same promise to the same neighbours, and each is a
mechanism that could be released, so the best of all is never worse than any.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Norm, dense, rank_of
from affinedp.designs.fit import at_the_limit
from affinedp.designs.separate import range_basis
from affinedp.errors import AffineDPError
from affinedp.laws.base import LawName
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.progress import Progress

# Moves times entries up to which a baseline is computed.
MOST_NUMBERS = 4e7
MOST_MOVES = 20_000

INDEPENDENT = "independent noise on every number"
PROJECTED = "independent noise on every number, made to add up"
CELLS = "noise on the cells, added up"
CENTRED = "noise on the cells, values taken from the middle of their bounds, added up"
GEOMETRIC = "geometric noise on the cells, added up"
LEVELS = "one weight per level"
DESIGNED = "the design"


def weighted_error(mechanism: Mechanism, weights: FloatArray | None) -> float:
    """Return what the noise costs under the weights."""
    errors = mechanism.expected_squared_errors
    return math.fsum(errors if weights is None else errors * weights)


def independent_error(
    adjacency: Adjacency, law: LawName, limit: float, weights: FloatArray | None
) -> float:
    """Return what independent noise on every number costs, which does not add up."""
    own = own_units(adjacency)
    apart = np.diag(1 / own)
    scale = adjacency.sensitivity(apart, norm=2 if law == "gaussian" else 1).upper / limit
    unit = scale**2 * (1.0 if law == "gaussian" else 2.0)
    return unit * math.fsum(own**2 if weights is None else own**2 * weights)


def own_units(adjacency: Adjacency) -> FloatArray:
    """Return how far neighbours move every entry, and 1 for those that stay.

    Whoever adds noise number by number adds it in the unit of each: people beside incomes.
    """
    mu: FloatArray | None = getattr(adjacency, "mu", None)
    moved = np.abs(dense(adjacency.span())).max(axis=1) if mu is None else mu
    return np.where(moved > 0, moved, 1.0)


def baseline_mechanisms(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    cells: FloatArray,
    weights: FloatArray | None,
) -> Iterator[tuple[str, Mechanism]]:
    """Yield standard practice as mechanisms that keep the promise."""
    for name, y in ((PROJECTED, np.ones(len(cells))), (CELLS, cells.astype(float))):
        try:
            yield name, diagonal_noise(adjacency, law, limit, y, weights)
        except (AffineDPError, np.linalg.LinAlgError):
            continue  # noise on these entries does not cover the rest


def geometric_cells(
    adjacency: Adjacency, limit: float, cells: FloatArray, weights: FloatArray | None
) -> Iterator[tuple[str, Mechanism]]:
    """Yield discrete Laplace (geometric) noise on whole cells, added up, if persons are in one.

    This is what general libraries do with counts.
    """
    parts = adjacency.parts if isinstance(adjacency, JointAdjacency) else (adjacency,)
    listed = [dense(part.directions(MOST_MOVES)) for part in parts]
    # one move in each part: all choices are verified
    if math.prod(2 * moves.shape[1] + 1 for moves in listed) > 2 * MOST_MOVES:
        return
    bases, widths, costs = [], [], []
    price = np.ones(len(cells)) if weights is None else weights
    for moves in listed:
        own = moves[cells]
        if np.any((own != 0).sum(axis=0) != 1):
            return
        size = own.sum(axis=0)
        basis, longest = _by_cell(moves / size, np.abs(size))
        bases.append(basis)
        widths.append(longest)
        costs.append(float(price @ (basis**2 @ longest**2)))
    import scipy.sparse as sparse

    sizes = np.maximum(costs, 1e-300) ** (1 / 3)  # shares of ε of least cost, as for Laplace noise
    root = np.concatenate([w * (sizes.sum() / s) for w, s in zip(widths, sizes)])
    columns = sparse.csr_array(np.hstack(bases))
    names = adjacency.manifold.names
    identity = sparse.csr_array(sparse.eye_array(adjacency.manifold.n))
    points = sparse.csr_array(sparse.diags_array(root))
    try:
        found = build(adjacency, identity, columns, points, "knorm", names, rate=limit, whole=True)
        yield GEOMETRIC, at_the_limit(found, limit)
    except AffineDPError:
        return  # noise on the cells does not cover the rest


def _by_cell(steps: FloatArray, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Equal directions once, with the longest of their lengths."""
    columns, place = np.unique(steps, axis=1, return_inverse=True)
    longest = np.zeros(columns.shape[1])
    np.maximum.at(longest, place.ravel(), sizes)
    return columns, longest


def diagonal_noise(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    y: FloatArray,
    weights: FloatArray | None = None,
) -> Mechanism:
    """Return independent noise of weight y on every entry, brought onto the equations."""
    import scipy.sparse as sparse

    if isinstance(adjacency, JointAdjacency):
        return shared_out(
            adjacency, law, limit, weights, lambda part: diagonal_noise(part, law, limit, y)
        )
    span = dense(adjacency.span())
    if span.size > MOST_NUMBERS:
        raise AffineDPError("too many moves for a comparison")
    basis = range_basis(span)
    root = projected_root(basis, y / own_units(adjacency) ** (2 if law == "gaussian" else 1), law)
    identity = sparse.csr_array(sparse.eye_array(adjacency.manifold.n))
    names = adjacency.manifold.names
    return at_the_limit(build(adjacency, identity, basis, root / limit, law, names), limit)


def projected_root(basis: FloatArray, y: FloatArray, law: LawName) -> FloatArray:
    """Return what makes noise on the basis, by least squares, of independent draws."""
    if law == "gaussian":
        precision = basis.T @ (y[:, None] * basis)
        return np.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
    kept = (y > 0) & basis.any(axis=1)  # draws that reach no output are not made
    precision = basis.T @ ((y**2)[:, None] * basis)
    return np.asarray(np.linalg.solve(precision, basis[kept].T * y[kept]))


def shared_out(
    adjacency: JointAdjacency,
    law: LawName,
    limit: float,
    weights: FloatArray | None,
    design: Callable[[Adjacency], Mechanism],
) -> Mechanism:
    """Return noise for moves in several parts at once, the promise shared out to the least cost.

    With F the cost of a part at the whole limit, Gaussian shares s² ∝ √F and Laplace shares
    ε ∝ F^⅓ cost the least.
    """
    import scipy.sparse as sparse

    found = [design(part) for part in adjacency.parts]
    costs = np.array([weighted_error(one, weights) for one in found])
    power = 0.25 if law == "gaussian" else 1 / 3
    sizes = np.maximum(costs, 1e-300) ** power
    total = math.sqrt(float((sizes**2).sum())) if law == "gaussian" else float(sizes.sum())
    basis = sparse.csr_array(np.hstack([dense(one.dense.basis) for one in found]))
    roots = [dense(one.dense.root) * (total / size) for one, size in zip(found, sizes)]
    names = adjacency.manifold.names
    gaps = [one.gap for one in found]
    root, query = sparse.csr_array(sparse.block_diag(roots)), found[0].dense.query
    unit = build(
        adjacency, query, basis, root, law, names,
        gap=None if None in gaps else max(gap for gap in gaps if gap is not None),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )  # fmt: skip
    return at_the_limit(unit, limit)


ROUNDS = 60
# A move that passes the limit by less than this is taken care of by scaling the noise.
SLACK = 1e-5
# The least weight: precisions, which are squares of weights for Laplace noise, stay invertible.
LEAST = {"gaussian": 1e-12, "laplace": 1e-6}
# Levels, and dimensions, up to which all sets of levels are tried.
MOST_SETS = 5
MOST_SETS_OF = 60


def symmetric_noise(
    adjacency: Adjacency,
    law: LawName,
    limit: float,
    levels: Sequence[Hashable],
    weights: FloatArray | None,
) -> Mechanism:
    """Return a mechanism with one weight per level, with its exact guarantee."""
    import scipy.sparse as sparse

    manifold = adjacency.manifold
    kinds = {level: i for i, level in enumerate(dict.fromkeys(levels))}
    level_of = np.array([kinds[level] for level in levels])
    # what neighbours differ in, every entry in its own unit; all of the kernel, unless they share
    # a part of it
    units = own_units(adjacency)
    kernel = range_basis(dense(adjacency.span()) / units[:, None])
    cost = np.ones(manifold.n) if weights is None else weights
    chosen = _least_weights(adjacency, law, kernel, cost * units**2, level_of, units)
    root = projected_root(kernel, chosen[level_of], law)
    identity = sparse.csr_array(sparse.eye_array(manifold.n))
    note = f"one weight for each of {len(kinds)} levels of the table; less noise may do"
    basis = kernel * units[:, None]
    mechanism = build(adjacency, identity, basis, root / limit, law, manifold.names, notes=(note,))
    return at_the_limit(mechanism, limit)


def _least_weights(
    adjacency: Adjacency,
    law: LawName,
    kernel: FloatArray,
    cost: FloatArray,
    level_of: IntArray,
    units: FloatArray,
) -> FloatArray:
    """Weights of least squared error such that no move is larger than 1."""
    count = int(level_of.max()) + 1
    moment = kernel.T @ (cost[:, None] * kernel)
    # a first move through every level, so that no weight can grow without limit
    starts = [(np.arange(count) == i) + 1e-6 for i in range(count)] + [np.ones(count)]
    moves = [_worst(adjacency, law, level_of, units, start) for start in starts]
    best, least = np.ones(count), math.inf
    with Progress("weights of the levels") as progress:
        for kept in _kept_levels(law, kernel, level_of):
            y = np.where(kept, 1.0, LEAST[law]) / max(float(move[kept].sum()) for move in moves)
            for turn in range(ROUNDS):
                y = _solve(kernel, moment, level_of, law, np.array(moves), y)
                worst = _worst(adjacency, law, level_of, units, y)
                if float(worst @ y) <= 1 + SLACK:
                    break
                moves.append(worst)
                progress.update(turn / ROUNDS)
            y = np.where(kept, y, 0.0)
            precision = (y if law == "gaussian" else y**2)[level_of]
            error = float(
                np.trace(np.linalg.solve(kernel.T @ (precision[:, None] * kernel), moment))
            )
            if error < least:
                best, least = y, error
    return best


def _kept_levels(
    law: LawName, kernel: FloatArray, level_of: IntArray
) -> Iterator[NDArray[np.bool_]]:
    """All levels; for Laplace noise, which is no convex problem, every set that tells all cells."""
    count = int(level_of.max()) + 1
    few = law == "laplace" and count <= MOST_SETS and kernel.shape[1] <= MOST_SETS_OF
    for kept in itertools.product((True, False), repeat=count):
        chosen = np.array(kept)
        if chosen.all() or (
            few and chosen.any() and rank_of(kernel[chosen[level_of]]) == kernel.shape[1]
        ):
            yield chosen
        if not few:
            return


def _worst(
    adjacency: Adjacency, law: LawName, level_of: IntArray, units: FloatArray, y: FloatArray
) -> FloatArray:
    """What the worst move for these weights adds up to in every level."""
    import scipy.sparse as sparse

    norm: Norm = 2 if law == "gaussian" else 1
    scale = np.sqrt(y[level_of]) if law == "gaussian" else y[level_of]
    found = adjacency.sensitivity(sparse.csr_array(sparse.diags_array(scale / units)), norm)
    size = np.abs(found.direction) / units
    moved = size**2 if law == "gaussian" else size
    return np.bincount(level_of, weights=moved, minlength=len(y)).astype(float)


def _solve(
    kernel: FloatArray,
    moment: FloatArray,
    level_of: IntArray,
    law: LawName,
    moves: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Least squared error over positive weights with all these moves at most 1."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    power = 1.0 if law == "gaussian" else 2.0

    def value_and_slope(logs: FloatArray) -> tuple[float, FloatArray]:
        precision = np.exp(power * logs)[level_of]
        factor = cho_factor(kernel.T @ (precision[:, None] * kernel))
        spread = cho_solve(factor, moment)
        total = float(np.trace(spread))
        both = kernel @ cho_solve(factor, spread.T)
        slope = -power * precision * np.einsum("ij,ij->i", both, kernel) / total
        by_level = np.bincount(level_of, weights=slope, minlength=len(logs))
        return math.log(total), by_level.astype(float)

    # within the limit to start with, whatever the last cut was
    begin = np.log(np.maximum(start / max(1.0, float((moves @ start).max())), LEAST[law]))
    # no weight is larger than where its own level alone is at the limit
    most = np.maximum(-np.log(np.maximum(moves.max(axis=0), 1e-300)), begin)
    found = minimize(
        value_and_slope,
        begin,
        jac=True,
        method="SLSQP",
        bounds=[(np.log(LEAST[law]), own) for own in most.tolist()],
        constraints=[
            {
                "type": "ineq",
                "fun": lambda logs: 1.0 - moves @ np.exp(logs),
                "jac": lambda logs: -moves * np.exp(logs),
            }
        ],
        options={"maxiter": 100, "ftol": 1e-9},
    )
    y = np.exp(found.x)
    return np.asarray(y / max(1.0, float((moves @ y).max())))
