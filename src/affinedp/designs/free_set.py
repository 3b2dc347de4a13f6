"""Numbers from which all others follow: independent noise on these alone."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.designs.effort import Budget
from affinedp.designs.laplace_strategy import best_scales, strategy_norms

# All sets are tried up to so many multiply-adds, and the best of them get scales of their own.
MOST_TRIED = 1e7
SCALED = 2
ROUNDS, POWER = 10, 4
# Of more moves the longest are looked at.
MOST_MOVES = 20_000
# A number that is so near to a combination of the others, as a share, is one.
DEPENDENT = 1e-9
# Relative gain below which a set is left as it is.
WORTHWHILE = 1e-9


def best_free_set(
    rows: FloatArray, directions: FloatArray, weight: FloatArray, budget: Budget
) -> tuple[IntArray, FloatArray]:
    """Return which rows, as many as there are dimensions, and scales of (locally) least error.

    All sets are tried where they are few; else one number after the other is exchanged as long as
    that pays.

    Examples
    --------
    Two parts and their sum: noise on both parts, less on that which matters most.

    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> moves = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    >>> weight = rows.T @ np.diag([9.0, 1.0, 0.5]) @ rows
    >>> chosen, scales = best_free_set(rows, moves, weight, Budget.of("quick"))
    >>> chosen.tolist(), scales.round(2).tolist()
    ([0, 1], [0.65, 0.35])
    """
    values, vectors = np.linalg.eigh(weight)
    root = vectors * np.sqrt(values.clip(min=0.0))
    count, size = rows.shape
    if len(directions) > MOST_MOVES:
        longest = np.argsort(-strategy_norms(rows, directions), kind="stable")
        directions = directions[longest[:MOST_MOVES]]
    moved = np.abs(rows @ directions.T)
    reach = np.maximum(moved.max(axis=1), DEPENDENT * moved.max())
    each = ROUNDS * moved.shape[1] * size + 2 * size**3
    if (work := math.comb(count, size) * each) <= MOST_TRIED and budget.allows(work):
        sets = _best_of_all(rows, moved, root)
    else:
        price = np.sqrt(np.einsum("ij,jk,ik->i", rows, weight, rows))
        starts = [_first(rows * by[:, None]) for by in (1 / reach, price / reach**2)]
        sets = np.array([_exchanged(rows, moved, root, start, budget) for start in starts])
    found = []
    for chosen in sets:
        error, scales = best_scales(rows[chosen][:, None], directions, weight, np.ones((1, size)))
        found.append((error, chosen, scales))
    return min(found, key=lambda one: one[0])[1:]


def _first(rows: FloatArray) -> IntArray:
    """Independent rows, the longest first."""
    from scipy.linalg import qr

    return np.asarray(qr(rows.T, mode="r", pivoting=True)[1][: rows.shape[1]])


def _best_of_all(rows: FloatArray, moved: FloatArray, root: FloatArray) -> IntArray:
    """The sets of least error under noise of one scale, or of scales that are nearly the best."""
    sets = np.array(list(combinations(range(len(rows)), rows.shape[1])))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    independent = np.abs(np.linalg.det(unit[sets])) > DEPENDENT
    if not independent.any():
        return _first(unit)[None]
    sets = sets[independent]
    prices = ((root.T @ np.linalg.inv(rows[sets])) ** 2).sum(axis=1)
    prices = np.maximum(prices, DEPENDENT * prices.max(axis=1, keepdims=True))
    lengths = moved[sets]
    scales, tight = np.ones(prices.shape), np.ones((len(sets), moved.shape[1]))
    least = np.full(len(sets), np.inf)
    for _ in range(ROUNDS):
        norms = (scales[:, None] @ lengths)[:, 0]
        reach = norms.max(axis=1)
        least = np.minimum(least, reach**2 * (prices / scales**2).sum(axis=1))
        # moves that are long count for more, and these are the best scales if they count so much
        tight = tight * (norms / reach[:, None]) ** POWER
        tight = tight / tight.sum(axis=1, keepdims=True)
        mean = (lengths @ tight[:, :, None])[:, :, 0]
        scales = np.cbrt(prices / np.maximum(mean, DEPENDENT * mean.max()))
    return np.asarray(sets[np.argsort(least, kind="stable")[:SCALED]])


def _exchanged(
    rows: FloatArray, moved: FloatArray, root: FloatArray, chosen: IntArray, budget: Budget
) -> IntArray:
    """The set after exchanges of one number for another, always that which pays most."""
    chosen, work = chosen.copy(), float(moved.size * len(chosen))
    with budget.keeping("numbers that say all others"):
        while budget.allows(work):
            budget.spend(work)
            better = _better_exchange(rows, moved, root, chosen)
            if better is None:
                break
            enters, leaves = better
            chosen[leaves] = enters
    return chosen


def _better_exchange(
    rows: FloatArray, moved: FloatArray, root: FloatArray, chosen: IntArray
) -> tuple[int, int] | None:
    """Which number should enter the set, and at which place, or None where none pays."""
    inverse = np.linalg.inv(rows[chosen])
    follow = rows @ inverse  # every number in terms of the chosen ones
    spread = inverse.T @ root @ root.T @ inverse
    norms = moved[chosen].sum(axis=0)
    # errors after an exchange, by the formula for the inverse after a change of one row
    own, total = np.diagonal(spread), np.trace(spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = own * ((follow**2).sum(axis=1)[:, None] + 1 - 2 * follow) / follow**2
        error += total - 2 * (follow @ spread - own) / follow
    reach = np.array([(norms - moved[one] + moved).max(axis=1) for one in chosen]).T
    error = error * reach**2
    error[np.abs(follow) <= DEPENDENT * np.abs(follow).max()] = np.inf
    error[chosen] = np.inf
    enters, leaves = np.unravel_index(np.argmin(error), error.shape)
    if not error[enters, leaves] < total * norms.max() ** 2 * (1 - WORTHWHILE):
        return None
    return int(enters), int(leaves)
