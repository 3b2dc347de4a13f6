"""Laplace noise on whole margins: pure promises, and few margins, where it is the better law.

People are counted, so the noise is drawn whole (geometric on both sides).  Independent noise of
scale 1/y_A on margin A, of precision p(y) = 2 sinh²(y/2), then least squares: blocks get the
precisions ``t_B = Σ_{A ⊇ B} p(y_A) / Π_{A∖B} n_j``.  A person who joins is seen once in every
margin, so that ε = Σ y_A; one who moves twice in all but the total, so that ε = 2 Σ_{A ≠ ∅} y_A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.structured.integer_noise import (
    Integers,
    drawn_limit,
    stated_sensitivity,
    whole_precisions,
    whole_scales,
)
from affinedp.designs.structured.margin_blocks import MarginNeighbours, Sets, cells_of
from affinedp.designs.structured.margin_promise import neighbour_words
from affinedp.errors import AffineDPError
from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.neighbours.people import unit_of
from affinedp.privacy.guarantee import Guarantee

SWEEPS = 400
# Margins with a smaller share than this are not measured.
LEAST_SHARE = 1e-6
MOST_SETS = 1000
# Below this, precisions leave the range of doubles.
LEAST_BUDGET = 1e-60
MOST_CELLS = 2_000_000


def measurable(sizes: Sequence[int], blocks: Sets) -> Sets | None:
    """Return the margins that may be measured: the blocks, and the table itself if it is small.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes that carry noise.
    """
    if len(blocks) > MOST_SETS:
        return None
    full = (1 << len(sizes)) - 1
    if full in blocks or cells_of(sizes, full) > MOST_CELLS:
        return blocks
    return np.append(blocks, full)


def spreads(sizes: Sequence[int], measured: Sets, blocks: Sets) -> FloatArray:
    """Return Z[A, B] = 1 / Π_{A∖B} n_j where B ⊆ A, and 0 elsewhere.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    measured, blocks : arrays of int
        Sets of attributes.
    """
    found = np.zeros((len(measured), len(blocks)))
    for i, A in enumerate(measured.tolist()):
        for j in np.flatnonzero((blocks & ~A) == 0):
            found[i, j] = 1 / cells_of(sizes, A & ~int(blocks[j]))
    return found


def least_whole(
    sizes: Sequence[int],
    measured: Sets,
    blocks: Sets,
    shares: Any,
    weights: FloatArray,
    budget: float,
) -> FloatArray:
    """Return y with this sum of (locally) least weighted squared error, from several starts.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    measured, blocks : arrays of int
        Sets of attributes.
    shares : sparse matrix
        The variance of a cell of margin A is Σ_B shares[A, B] / t_B.
    weights : array
        What the variance of a cell of a margin costs.
    budget : float
        What one over the scales add up to.
    """
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


def whole_epsilon(neighbours: MarginNeighbours, q: Integers) -> int:
    """Return ε of one person in units of 2⁻⁵⁶.

    Parameters
    ----------
    neighbours : {"person", "replace"}
        Who is a neighbour; the total is not measured for ``"replace"``.
    q : array of int
        One over the scales, in the same units.
    """
    if neighbours == "swaps":
        raise AffineDPError("swaps are released with Gaussian noise: give a delta above 0")
    return (1 if neighbours == "person" else 2) * int(sum(q.tolist()))


def scaled_whole(
    neighbours: MarginNeighbours, y: FloatArray, epsilon: float, household: int
) -> Integers:
    """Return q of the noise that keeps ε, checked in integers.

    Parameters
    ----------
    neighbours : {"person", "replace"}
        Who is a neighbour.
    y : array
        One over the scales, up to a factor.
    epsilon : float
        The promise of the whole household.
    household : int
        How many people may join or move at once.
    """
    times = household * (1 if neighbours == "person" else 2)
    shrink = 1.0
    while True:
        q = whole_scales("laplace", y / y.sum() * (epsilon / times), shrink)
        if household * whole_epsilon(neighbours, q) <= drawn_limit("laplace", epsilon):
            return q
        shrink *= 1 - 2.0**-44


def whole_guarantee(
    sizes: Sequence[int], neighbours: MarginNeighbours, household: int, q: Integers
) -> Guarantee:
    """Return what Laplace noise on whole margins promises, in integers.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    neighbours : {"person", "replace"}
        Who is a neighbour.
    household : int
        How many people may join or move at once.
    q : array of int
        One over the scales, in units of 2⁻⁵⁶.
    """
    sensitivity = stated_sensitivity("laplace", whole_epsilon(neighbours, q), household)
    # as a curve, whole noise is worse than noise on the line: at worst randomised response
    return Guarantee(
        law="laplace",
        sensitivity=sensitivity,
        exact=True,
        neighbours=neighbour_words(neighbours, household),
        basis="Theorem 2 for independent whole Laplace noise on margins; the estimates are "
        "computed from what is published",
        curve=ThreeAtoms(sensitivity),
        method="sum over the margins, in integers",
        neighbours_key=f"margins {neighbours} {household} {','.join(map(str, sizes))}",
        unit=unit_of(neighbours, household),
    )


def block_precisions(sizes: Sequence[int], measured: Sets, blocks: Sets, q: Integers) -> FloatArray:
    """Return t of the blocks.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    measured, blocks : arrays of int
        Sets of attributes.
    q : array of int
        One over the scales, in units of 2⁻⁵⁶.
    """
    return np.asarray(spreads(sizes, measured, blocks).T @ whole_precisions(q))
