"""Laplace noise on whole margins: pure promises, and few margins, where it is the better law.

People are counted, so the noise is drawn whole (geometric on both sides).  Independent noise of
scale 1/y_A on margin A, of precision p(y) = 2 sinh²(y/2), then least squares: blocks get the
precisions ``t_B = Σ_{A ⊇ B} p(y_A) / Π_{A∖B} n_j``.  A person who joins is seen once in every
margin, so that ε = Σ y_A; one who moves twice in all but the total, so that ε = 2 Σ_{A ≠ ∅} y_A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import Sets, cells_of
from affinedp.errors import AffineDPError
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.margins import spreads

SWEEPS = 400
# Margins with a smaller share than this are not measured.
LEAST_SHARE = 1e-6
MOST_SETS = 1000
# Below this, precisions leave the range of doubles.
LEAST_BUDGET = 1e-60
MOST_CELLS = 2_000_000
# A scale below 2⁻⁶ adds no noise.
MOST_BUDGET = 64.0


def measurable(sizes: Sequence[int], blocks: Sets) -> Sets | None:
    """Return the margins that may be measured: the blocks, and the table itself if it is small."""
    if len(blocks) > MOST_SETS:
        return None
    full = (1 << len(sizes)) - 1
    if full in blocks or cells_of(sizes, full) > MOST_CELLS:
        return blocks
    return np.append(blocks, full)


def least_whole(
    sizes: Sequence[int],
    measured: Sets,
    blocks: Sets,
    shares: Any,
    weights: FloatArray,
    budget: float,
) -> FloatArray:
    """Return y with this sum of (locally) least weighted squared error, from several starts."""
    Z = spreads(sizes, measured, blocks)
    cost = np.asarray(weights @ shares)
    largest = np.array([not any(A & ~C == 0 and A != C for C in measured.tolist())
                        for A in measured.tolist()])  # fmt: skip
    cells = np.array([float(cells_of(sizes, A)) for A in measured.tolist()])
    starts = [np.ones(len(measured)), np.where(largest, 1.0, 1e-2),
              np.where(cells == cells.max(), 1.0, 1e-3)]  # fmt: skip
    best, value = starts[0], math.inf
    for start in starts:
        y = start * (budget / start.sum())
        for _ in range(SWEEPS if budget > LEAST_BUDGET else 0):
            t = Z.T @ (2 * np.sinh(y / 2) ** 2)
            gain = np.sinh(y) * (Z @ (cost / t**2))
            y = y * np.cbrt(gain / float(y @ gain))
            y = y * (budget / y.sum())
        for one in (start, y, np.where(y > LEAST_SHARE * y.max(), y, 0.0)):
            scaled = one * (budget / one.sum())
            t = Z.T @ (2 * np.sinh(scaled / 2) ** 2)
            if t.min() > 0 and float((cost / t).sum()) < value:
                best, value = scaled, float((cost / t).sum())
    return best


def scaled_rates(y: FloatArray, budget: Fraction) -> tuple[float, ...]:
    """Return rates in these proportions that add up to a budget at most, checked in fractions."""
    if not float(budget) < MOST_BUDGET:
        raise AffineDPError("the noise is too small for its grid: epsilon is too large")
    shrink = 1.0
    while True:
        # whole multiples of 2⁻⁵⁶, as scales of other noise are
        rates = np.floor(np.ldexp(y / y.sum() * (float(budget) * shrink), GRID_BITS))
        found = np.ldexp(rates, -GRID_BITS).tolist()
        if sum(map(Fraction, found)) <= budget:
            return tuple(found)
        shrink *= 1 - 2.0**-44
