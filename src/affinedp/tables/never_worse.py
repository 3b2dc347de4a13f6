"""Standard practice, in the same units: what any design for a table is compared with.

Noise on every number, brought back onto the equations by least squares; noise on the cells, added
up; one weight per level.  Each keeps the same promise to the same neighbours, and each is a
mechanism that could be released, so the best of all is never worse than any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.designs.fit import at_the_limit
from affinedp.designs.knorm import at_the_rate
from affinedp.designs.separate import range_basis
from affinedp.errors import AffineDPError
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.joint import JointAdjacency

# Moves times entries up to which a baseline is computed.
MOST_NUMBERS = 4e7
MOST_MOVES = 20_000

INDEPENDENT = "independent noise on every number"
PROJECTED = "independent noise on every number, made to add up"
CELLS = "noise on the cells, added up"
GEOMETRIC = "geometric noise on the cells, added up"
LEVELS = "one weight per level"
DESIGNED = "the design"


@dataclass(frozen=True)
class Compared:
    """What one way to add noise costs for the same promise.

    Attributes
    ----------
    name : str
        Which way.
    law : {"gaussian", "laplace", "knorm"}
        Law of its noise.
    error : float
        Weighted expected squared error of one data set, with noise for all releases.
    """

    name: str
    law: str
    error: float


def weighted_error(mechanism: Mechanism, weights: FloatArray | None) -> float:
    """Return what the noise costs under the weights.

    Parameters
    ----------
    mechanism : Mechanism
        The noise.
    weights : array or None
        One per output; 1 by default.
    """
    errors = mechanism.expected_squared_errors
    return math.fsum(errors if weights is None else errors * weights)


def independent_error(
    adjacency: Adjacency, law: LawName, limit: float, weights: FloatArray | None
) -> float:
    """Return what independent noise on every number costs, which does not add up.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    law : {"gaussian", "laplace"}
        Law of the noise.
    limit : float
        The sensitivity that the promise allows.
    weights : array or None
        One per entry; 1 by default.
    """
    own = own_units(adjacency)
    apart = np.diag(1 / own)
    scale = adjacency.sensitivity(apart, norm=2 if law == "gaussian" else 1).upper / limit
    unit = scale**2 * (1.0 if law == "gaussian" else 2.0)
    return unit * math.fsum(own**2 if weights is None else own**2 * weights)


def own_units(adjacency: Adjacency) -> FloatArray:
    """Return how far neighbours move every entry, and 1 for those that stay.

    Whoever adds noise number by number adds it in the unit of each: people beside incomes.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
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
    """Yield standard practice as mechanisms that keep the promise.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    law : {"gaussian", "laplace"}
        Law of the noise.
    limit : float
        The sensitivity that the promise allows.
    cells : array of bool
        Which entries are no totals.
    weights : array or None
        One per entry; 1 by default.
    """
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

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about; its moves are whole.
    limit : float
        ε.
    cells : array of bool
        Which entries are no totals.
    weights : array or None
        One per entry; 1 by default.
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
        yield GEOMETRIC, at_the_rate(found, limit)
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
    """Return independent noise of weight y on every entry, brought onto the equations.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    law : {"gaussian", "laplace"}
        Law of the noise: variance 1/y or scale 1/y in units of how far neighbours move the entry,
        up to a common factor.
    limit : float
        The sensitivity that the promise allows.
    y : array
        One per entry, 0 for no noise of its own; only ratios count.
    weights : array or None
        What squared error costs, by which the promise is shared out to parts that move apart.
    """
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
    """Return what makes, of independent draws, noise on the basis: least squares of each entry's.

    Parameters
    ----------
    basis : array, shape (n, r)
        What the noise lives in.
    y : array, shape (n,)
        Weight of the noise on every entry.
    law : {"gaussian", "laplace"}
        Law of the draws.
    """
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

    Parameters
    ----------
    adjacency : JointAdjacency
        One move in each part.
    law : {"gaussian", "laplace"}
        Law of the noise.
    limit : float
        The sensitivity that the promise allows.
    weights : array or None
        One per entry; 1 by default.
    design : callable
        From the neighbours of one part to noise that keeps the whole limit.
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
