"""What noise on the blocks of margins promises, in integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.structured.integer_noise import SHARE
from affinedp.designs.structured.margin_blocks import MarginNeighbours, Sets, members, worst_swap
from affinedp.errors import AffineDPError
from affinedp.laws.curves import GaussianCurve
from affinedp.neighbours.people import unit_of
from affinedp.privacy.guarantee import Guarantee

# Precisions are taken for whole multiples of this, rounded up.
UNIT_BITS = 120
WORDS = {
    "person": "more or less, in one cell of the table of all attributes",
    "replace": "counted in another cell of the table of all attributes; the number of people is "
    "public and the same in both",
}


def exact_square(
    sizes: Sequence[int], blocks: Sets, t: FloatArray, neighbours: MarginNeighbours
) -> Fraction:
    """Return the squared sensitivity: exact, but for swaps, where it is rounded up.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes.
    t : array
        Precisions.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    """
    units = [math.ceil(Fraction(value) * (1 << UNIT_BITS)) for value in t.tolist()]
    if neighbours == "person":
        total = Fraction(0)
        for B, value in zip(blocks.tolist(), units):
            up = math.prod(sizes[j] - 1 for j in members(B))
            total += Fraction(value * up, math.prod(sizes[j] for j in members(B)))
        return total / (1 << UNIT_BITS)
    g = _integer_table(sizes, blocks, units)
    scale = Fraction(1, math.prod(sizes) << UNIT_BITS)
    if neighbours == "replace":
        return Fraction(2 * (int(g[0]) - min(map(int, g)))) * scale
    # the entries in doubles, each rounded once; a sum of four of them is off by less than the slack
    doubles = np.array([float(value * scale) for value in map(int, g)])
    best = worst_swap(len(sizes), doubles, np.inf, np.empty((1, 2), np.int64))[0]
    slack = Fraction(float(np.abs(doubles).max())) / (1 << 48)
    return 4 * (Fraction(float(best)) + slack)


def _integer_table(sizes: Sequence[int], blocks: Sets, units: list[int]) -> FloatArray:
    """G(T) for all T, times the number of all cells: whole numbers, by butterflies."""
    d = len(sizes)
    g = np.zeros(1 << d, dtype=object)
    g[:] = 0
    g[blocks] = units
    for j, n in enumerate(sizes):
        pairs = g.reshape(-1, 2, 1 << j)
        without, has = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0] = n * without + (n - 1) * has
        pairs[:, 1] = n * without - has
    return g


def scaled_to(
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    neighbours: MarginNeighbours,
    household: int,
    sensitivity: float,
) -> FloatArray:
    """Return precisions that keep a sensitivity, checked exactly.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes.
    t : array
        Precisions up to a factor.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    household : int
        How many people, or pairs of people, may move at once.
    sensitivity : float
        Of all of them.
    """
    allowed = (Fraction(sensitivity) * (1 - Fraction(1, 1 << 50)) / (1 + SHARE) / household) ** 2
    found = t
    for _ in range(60):
        square = exact_square(sizes, blocks, found, neighbours)
        if square <= allowed and float(square) >= float(allowed) * (1 - 1e-9):
            return found
        found = found * float(allowed / square) * (1 - 2.0**-46)
    raise AffineDPError("the noise could not be scaled to the promise; the problem is degenerate")


def margin_guarantee(
    sizes: Sequence[int],
    blocks: Sets,
    t: FloatArray,
    neighbours: MarginNeighbours,
    household: int,
) -> Guarantee:
    """Return what white noise of these precisions on the blocks promises.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    blocks : array of int
        Sets of attributes.
    t : array
        Precisions; the noise that is drawn is never less.
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    household : int
        How many people, or pairs of people, may move at once.
    """
    if not (t > 0).all() or not np.isfinite(t).all():
        raise AffineDPError("every block needs a positive precision")
    square = exact_square(sizes, blocks, t, neighbours)
    units = square * (1 << 2 * UNIT_BITS)
    root = math.isqrt(math.ceil(units)) + 1
    exact = Fraction(root, 1 << UNIT_BITS) * household * (1 + SHARE)
    sensitivity = float(exact)
    if Fraction(sensitivity) < exact:
        sensitivity = math.nextafter(sensitivity, math.inf)
    text = ",".join(map(str, sizes))
    return Guarantee(
        law="gaussian",
        sensitivity=sensitivity,
        exact=True,
        neighbours=neighbour_words(neighbours, household),
        basis="Theorem 1 for white noise on the residuals of margins; margins are computed from "
        "what is published",
        curve=GaussianCurve(sensitivity),
        method="all sets of differing attributes, in integers",
        neighbours_key=f"margins {neighbours} {household} {text}",
        unit=unit_of(neighbours, household),
    )


def neighbour_words(neighbours: str, household: int) -> str:
    """Return who counts as a neighbour.

    Parameters
    ----------
    neighbours : {"person", "replace", "swaps"}
        Who is a neighbour.
    household : int
        How many people, or pairs of people, may move at once.
    """
    if neighbours == "swaps":
        pairs = "two people exchange" if household == 1 else f"up to {household} pairs exchange"
        return (
            f"{pairs} their values of some attributes; every one-way margin is public, exact and "
            "the same in both (larger exchanges are not covered)"
        )
    who = "one person" if household == 1 else f"a household of up to {household} people, each"
    return f"{who} {WORDS[neighbours]}"
