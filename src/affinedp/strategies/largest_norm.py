"""How far neighbours are apart in a norm: Theorems 1 and 2 of the paper for ``F x + Λ η``."""

from __future__ import annotations

import math

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.errors import TooManyCircuitsError
from affinedp.laws.base import Law, Moves
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.norms import column_norms
from affinedp.strategies.base import EPS, Largest
from affinedp.strategies.exact_whitening import exact_whitening
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.whitening import Whitened, find_leak, normalised, output_units, whiten

# Up to this many directions the curve is computed for each of them.
LISTED_FOR_CURVE = 5_000
MOST_SIGN_VECTORS = 1e6
NOT_COVERED = "the noise does not cover the range of the query"
PROJECTED = " on all the noise that is drawn; its projection promises at least that"


def largest_of_norm(strategy: Matrices, adjacency: Adjacency, law: Law) -> Largest:
    """Return the largest norm of ``Λ⁺F v``, exact where the numbers are short.

    Parameters
    ----------
    strategy : Matrices
        F and Λ.
    adjacency : Adjacency
        The neighbours.
    law : Law
        With independent entries, and a norm.
    """
    assert law.norm is not None
    query, noise = strategy.query, strategy.noise
    unit = output_units(query, adjacency)
    whitened = whiten(unit @ noise, unit @ query)
    leak = find_leak(whitened, unit @ query, adjacency)
    exact = exact_whitening(strategy.domain, noise, query) if strategy.error == 0.0 else None
    everyone = type(adjacency) is CircuitAdjacency and bool(np.all(adjacency.mu > 0))
    if exact is not None and exact.bare is not None:
        bare: FloatArray | None = exact.bare
        if not everyone:
            bare = exact.bare_along(adjacency.manifold, adjacency.span())
        if bare is not None:
            leak = bare @ _inverse(unit)
    if leak is not None:
        shown = normalised(leak @ unit)
        return Largest(math.inf, math.inf, True, "", because=f": {NOT_COVERED}", leak=shown)
    rational = exact.query if exact is not None and exact.bare is None else None
    decided = adjacency.exact_sensitivity(rational, law.norm) if rational is not None else None
    if decided is not None:
        found, upper = decided, decided.upper
        lower = math.nextafter(decided.value, 0.0)
    else:
        found = adjacency.sensitivity(whitened.query, law.norm)
        lower, upper = _widened(found, whitened, law, strategy.error)
    because, certain = "", found.exact
    moves = Moves()
    if law.norm == 1:
        moves = Moves(_shifts(adjacency, whitened, upper))
        if not whitened.full_column_rank:
            because, certain = PROJECTED, False
    return Largest(
        lower, upper, certain, found.method, found.direction, found.warnings, moves, because
    )


def _widened(
    found: Sensitivity, whitened: Whitened, law: Law, noise_error: float
) -> tuple[float, float]:
    """Bounds on the truth: the error of Λ⁺F is relative to its terms, which may cancel along v."""
    assert law.norm is not None
    terms = np.asarray(abs(whitened.query) @ np.abs(found.direction)).ravel()
    spread = whitened.error * float(column_norms(terms[:, None], law.norm)[0])
    relative = whitened.error + noise_error
    lower = max(0.0, found.value * (1 - relative) - spread)
    return lower, found.upper * (1 + relative) + spread


def _inverse(diagonal: Matrix) -> Matrix:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(1 / diagonal.diagonal()))


def _shifts(adjacency: Adjacency, whitened: Whitened, upper: float) -> FloatArray | None:
    """|Λ⁺F v| for every direction, where there are few enough to list."""
    try:
        directions = adjacency.directions(LISTED_FOR_CURVE)
    except TooManyCircuitsError:
        return None
    if directions.shape[1] * 2.0 ** min(whitened.query.shape[0], 12) > MOST_SIGN_VECTORS:
        return None
    shifts = np.abs(np.asarray(whitened.query @ directions)).T
    # listed directions are less accurate than the worst one, which was evaluated again
    largest = float(shifts.sum(axis=1).max(initial=0.0))
    if largest > 0:
        shifts = shifts * max(1 + whitened.error + 4 * EPS * len(directions), upper / largest)
    return np.unique(np.sort(shifts, axis=1), axis=0)
