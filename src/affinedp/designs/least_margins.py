"""The least noise for margins: precisions of blocks, with a dual that certifies them.

For weights w of the types of neighbours (and ω of the margins, if the largest variance is to be
least), Σ_B √(c_B e_B) with c = Sᵀω and e = Eᵀw is jointly concave, and its square is what no
Gaussian mechanism goes below.  docs/explanation/trees-and-margins.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import Sets
from affinedp.progress import Progress
from affinedp.strategies.margin_blocks import (
    MarginNeighbours,
    energies,
    entry_table,
    worst_swap,
)

Goal = Literal["sum", "largest"]
ROUNDS = 40
TOLERANCE = 1e-6
# Swaps are many: a gap that nobody notices ends the search.
SWAP_TOLERANCE = 1e-4
ITERATIONS = 3000
POLISH = 2000
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """Precisions of blocks at squared sensitivity 1, and how good they are."""

    t: FloatArray  # one precision per block
    value: float  # the weighted sum of squared errors, or the largest variance
    bound: float  # what no Gaussian mechanism goes below, as computed in doubles


def least_blocks(
    sizes: Sequence[int],
    blocks: Sets,
    shares: Any,
    weights: FloatArray,
    adjacency: MarginNeighbours,
    goal: Goal,
) -> BlockPlan:
    """Return the least noise for margins; worst types of neighbours are added as they show."""
    d = len(sizes)
    inverse = 1 / np.array(sizes, float)
    types = _first_types(d, adjacency)
    E = energies(sizes, blocks, adjacency, types)
    best: BlockPlan | None = None
    bound, seed = 0.0, 0
    tolerance = SWAP_TOLERANCE if adjacency == "swaps" else TOLERANCE
    with Progress("least noise for margins") as progress:
        for turn in range(ROUNDS):
            t, low, w = _dual(shares, E, weights, goal, seed)
            bound = max(bound, low)
            squared, worse = _worst_types(d, inverse, blocks, t, adjacency, turn)
            t = t / squared
            variances = weights * (shares @ np.where(t > 0, 1 / np.maximum(t, TINY), 0.0))
            value = float(variances.sum() if goal == "sum" else variances.max())
            if best is None or value < best.value:
                best = BlockPlan(t, value, bound)
            progress.update(turn / ROUNDS)
            if best.value / bound - 1 < tolerance or adjacency == "person":
                break
            new = [one for one in dict.fromkeys(worse) if one not in set(types)]
            if not new:
                seed += 1
                if seed > 4:
                    break
                continue
            keep = np.flatnonzero(w > 1e-9 * w.max()) if turn > 2 else np.arange(len(E))
            types = [types[i] for i in keep] + new
            E = np.vstack([E[keep], energies(sizes, blocks, adjacency, new)])
    assert best is not None
    return BlockPlan(best.t, best.value, bound)


def _first_types(d: int, adjacency: MarginNeighbours) -> list[tuple[int, int]]:
    full = (1 << d) - 1
    if adjacency == "person":
        return [(0, 0)]
    if adjacency == "replace":
        return list(dict.fromkeys([(full, 0), *((1 << j, 0) for j in range(d))]))
    pairs = [(1 << i, 1 << j) for i in range(d) for j in range(i + 1, d)]
    return list(dict.fromkeys([*pairs, *((1 << i, full & ~(1 << i)) for i in range(d))]))


def _worst_types(
    d: int, inverse: FloatArray, blocks: Sets, t: FloatArray, adjacency: str, turn: int
) -> tuple[float, list[tuple[int, int]]]:
    """The squared sensitivity of t, and types that are worse than those at hand."""
    if adjacency == "person":
        kept = np.array([math.prod(1 - inverse[j] for j in range(d) if B >> j & 1)
                         for B in blocks.tolist()])  # fmt: skip
        return float(t @ kept), []
    g = entry_table(inverse, blocks, t)
    if adjacency == "replace":
        f = 2 * (g[0] - g)
        worst = float(f.max())
        first = np.argsort(-f)[:40]
        return worst, [(int(T), 0) for T in first if f[T] > 1 + 0.3 * (worst - 1)]
    out = np.empty((4000, 2), np.int64)
    worst, U, V, _ = worst_swap(d, g, np.inf, out)
    worst *= 4
    found = worst_swap(d, g, (1 + 0.6 * (worst - 1)) / 4, out)[3]
    pick = np.random.default_rng(turn).permutation(found)[:60]
    return float(worst), [(int(U), int(V)), *((int(out[i, 0]), int(out[i, 1])) for i in pick)]


def _dual(
    shares: Any, E: FloatArray, weights: FloatArray, goal: Goal, seed: int
) -> tuple[FloatArray, float, FloatArray]:
    """Precisions, a lower bound and the weights of types, by L-BFGS on logarithms of weights."""
    from scipy.optimize import minimize

    types, margins = len(E), shares.shape[0]
    scaled = shares.multiply(weights[:, None]).tocsr()
    largest = goal == "largest"
    turned = scaled.T.tocsr()
    total = np.asarray(scaled.sum(axis=0)).ravel()

    def parts(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        w = _softmax(x[:types])
        o = _softmax(x[types:]) if largest else np.ones(margins)
        c = turned @ o if largest else total
        return w, o, np.maximum(c, TINY)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        w, o, c = parts(x)
        e = np.maximum(E.T @ w, TINY)
        value = float(np.sqrt(c * e).sum())
        by_w = E @ (0.5 * np.sqrt(c / e))
        slopes = [w * (by_w - w @ by_w)]
        if largest:
            by_o = scaled @ (0.5 * np.sqrt(e / c))
            slopes.append(o * (by_o - o @ by_o))
        return -math.log(value), -np.concatenate(slopes) / value

    x = np.zeros(types + (margins if largest else 0))
    if seed:
        x = np.random.default_rng(seed).normal(size=len(x)) * 0.3
    if len(x) > 1:
        options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "maxcor": 30,
                   "ftol": 1e-16, "gtol": 1e-11}  # fmt: skip
        x = minimize(value_and_slope, x, jac=True, method="L-BFGS-B", options=options).x
    w, o, c = parts(x)
    if largest:
        w, o = _polished(scaled, turned, E, w, o)
        c = np.maximum(turned @ o, 0.0)
    e = E.T @ w
    t = np.where(c > TINY, np.sqrt(c / np.maximum(e, TINY)), 0.0)
    return t / float((E @ t).max()), float(np.sqrt(c * e).sum()) ** 2, w


def _polished(
    scaled: Any, turned: Any, E: FloatArray, w: FloatArray, o: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Multiplicative steps from a mixed start: logarithms stand still where a weight is near 0."""
    best = float(np.sqrt((turned @ o) * (E.T @ w)).sum())
    kept = (w, o)
    w, o = 0.9 * w + 0.1 / len(w), 0.9 * o + 0.1 / len(o)
    for _ in range(POLISH):
        c, e = turned @ o, E.T @ w
        value = float(np.sqrt(c * e).sum())
        if value > best * (1 + 1e-13):
            best, kept = value, (w, o)
        by_w = E @ np.sqrt(c / np.maximum(e, TINY))
        by_o = scaled @ np.sqrt(e / np.maximum(c, TINY))
        if max(by_w.max(), by_o.max()) / value - 1 < 1e-9:
            return w, o
        w, o = w * by_w / value, o * by_o / value
        w, o = w / w.sum(), o / o.sum()
    return kept


def _softmax(x: FloatArray) -> FloatArray:
    w = np.exp(x - x.max())
    return np.asarray(w / w.sum())
