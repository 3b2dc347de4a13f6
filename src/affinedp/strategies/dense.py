"""``F x + Λ η`` with matrices: the mechanism of the paper, and how far neighbours are apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import EPS, FloatArray
from affinedp.errors import TooManyCircuitsError
from affinedp.laws.base import Law, Moves
from affinedp.neighbours.adjacency import Adjacency, Sensitivity, column_norms
from affinedp.strategies.base import Largest, Prepared, Promised
from affinedp.strategies.coverage import NOT_COVERED, Span
from affinedp.strategies.matrices import (
    Matrices,
    Whitened,
    exact_whitening,
    in_output_units,
    whiten,
)

# Up to this many directions the curve is computed for each of them.
LISTED_FOR_CURVE = 5_000
MOST_SIGN_VECTORS = 1e6
PROJECTED = " on all the noise that is drawn; its projection promises at least that"


@dataclass(frozen=True, eq=False)
class Dense(Matrices):
    """Publish ``F x + Λ η``; what is measured is ``Λ⁺F x``."""

    kind = "dense"

    def largest(self, adjacency: Adjacency, law: Law) -> Largest:
        """Return the largest norm by a search, or the largest gauge from the list of moves."""
        if law.norm is not None and law.size is None:
            return largest_of_norm(self, adjacency, law)
        # bodies are a large part of the library, and most noise has none
        from affinedp.strategies.largest_gauge import largest_of_gauge

        return largest_of_gauge(self, adjacency, law)

    def prepare(
        self, adjacency: Adjacency, law: Law, promised: Promised, bound: float | None
    ) -> Prepared:
        """Return the public part of releases."""
        # plans are a large part of the library, and not needed to verify
        from affinedp.strategies.exact_plan import exact_plan
        from affinedp.strategies.rounded_plan import rounded_plan

        make = rounded_plan if law.norm is not None and law.size is None else exact_plan
        return make(self, adjacency, law, promised, bound)


def largest_of_norm(strategy: Matrices, adjacency: Adjacency, law: Law) -> Largest:
    """Return the largest norm of ``Λ⁺F v``, exact where the numbers are short."""
    assert law.norm is not None
    query, noise = strategy.query, strategy.noise
    leak = strategy.leak(law, Span.of(adjacency))
    if leak is not None:
        return Largest(math.inf, math.inf, True, "", because=f": {NOT_COVERED}", leak=leak)
    rational = exact_whitening(strategy.domain, noise, query) if strategy.error == 0.0 else None
    if rational is not None:
        whitened = Whitened(rational.floats(strategy.domain.n), EPS, True)
    else:
        whitened = whiten(*in_output_units(noise, query, adjacency))
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


def _shifts(adjacency: Adjacency, whitened: Whitened, upper: float) -> FloatArray | None:
    """|Λ⁺F v| for every direction, where there are few enough to list."""
    try:
        directions = adjacency.directions(LISTED_FOR_CURVE)
    except TooManyCircuitsError:
        return None
    if directions.shape[1] * 2.0 ** min(whitened.query.shape[0], 12) > MOST_SIGN_VECTORS:
        return None
    terms = np.asarray(abs(whitened.query) @ np.abs(directions))
    off = (whitened.error + 4 * EPS * len(directions)) * terms
    shifts = (np.abs(np.asarray(whitened.query @ directions)) + off).T
    # listed directions are less accurate than the worst one, which was evaluated again
    largest = float(shifts.sum(axis=1).max(initial=0.0))
    if largest > 0:
        shifts = shifts * max(1.0, upper / largest)
    return np.unique(np.sort(shifts, axis=1), axis=0)
