"""The least noise for margins: precisions of blocks, with a dual that certifies them.

For weights w of the types of neighbours (and ω of the margins, if the largest variance is to be
least), Σ_B √(c_B e_B) with c = Sᵀω and e = Eᵀw is jointly concave, and its square is what no
Gaussian mechanism goes below.  docs/explanation/trees-and-margins.md has the proof.

Laplace noise on whole margins, for pure promises and few margins, is searched for too.  People are
counted, so the noise is drawn whole (geometric on both sides).  Independent noise of scale 1/y_A
on margin A, of precision p(y) = 2 sinh²(y/2), then least squares: blocks get the precisions ``t_B
= Σ_{A ⊇ B} p(y_A) / Π_{A∖B} n_j``.  A person who joins is seen once in every margin, so that ε = Σ
y_A; one who moves twice in all but the total, so that ε = 2 Σ_{A ≠ ∅} y_A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import Sets, cells_of
from affinedp.errors import AffineDPError
from affinedp.privacy.design import Objective
from affinedp.progress import Progress
from affinedp.strategies.base import GRID_BITS
from affinedp.strategies.margin_blocks import (
    MarginNeighbours,
    energies,
    entry_table,
    worst_swap,
)
from affinedp.strategies.margins import spreads

ROUNDS = 40
TOLERANCE = 1e-6
# Swaps are many: a gap that nobody notices ends the search.
SWAP_TOLERANCE = 1e-4
ITERATIONS = 3000
# Of a type or margin that need not count, beside 1.
LEAST_WEIGHT = 1e-12
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
    objective: Objective,
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
            t, low, w = _dual(shares, E, weights, objective, seed)
            bound = max(bound, low)
            squared, worse = _worst_types(d, inverse, blocks, t, adjacency, turn)
            t = t / squared
            variances = weights * (shares @ np.where(t > 0, 1 / np.maximum(t, TINY), 0.0))
            value = float(variances.sum() if objective == "sum" else variances.max())
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
    shares: Any, E: FloatArray, weights: FloatArray, objective: Objective, seed: int
) -> tuple[FloatArray, float, FloatArray]:
    """Precisions, a lower bound and the weights of types, by bounded descent."""
    from scipy.optimize import minimize

    types, margins = len(E), shares.shape[0]
    scaled = shares.multiply(weights[:, None]).tocsr()
    largest = objective == "largest"
    turned = scaled.T.tocsr()
    total = np.asarray(scaled.sum(axis=0)).ravel()

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        """Minus the logarithm of what no mechanism goes below, whatever the weights add up to."""
        w, o = x[:types], x[types:]
        c = np.maximum(turned @ o if largest else total, TINY)
        e = np.maximum(E.T @ w, TINY)
        value = float(np.sqrt(c * e).sum())
        f, slopes = math.log(w.sum()) / 2, [0.5 / w.sum() - E @ (0.5 * np.sqrt(c / e)) / value]
        if largest:
            f += math.log(o.sum()) / 2
            slopes.append(0.5 / o.sum() - scaled @ (0.5 * np.sqrt(e / c)) / value)
        return f - math.log(value), np.concatenate(slopes)

    x = np.ones(types + (margins if largest else 0))
    if seed:
        x = np.exp(np.random.default_rng(seed).normal(size=len(x)) * 0.3)
    if len(x) > 1:
        options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "maxcor": 30,
                   "ftol": 1e-16, "gtol": 1e-11}  # fmt: skip
        bounds = [(LEAST_WEIGHT, None)] * len(x)
        x = minimize(
            value_and_slope, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
    w, o = x[:types] / x[:types].sum(), x[types:]
    c = np.maximum(turned @ (o / o.sum()), 0.0) if largest else total
    e = E.T @ w
    t = np.where(c > TINY, np.sqrt(c / np.maximum(e, TINY)), 0.0)
    return t / float((E @ t).max()), float(np.sqrt(c * e).sum()) ** 2, w


# ---------------------------------------------------------------------- whole noise


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
            # blocks that nothing asks for may lose all their noise
            gain = np.sinh(y) * (Z @ (cost / np.where(cost > 0, t, 1.0) ** 2))
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
