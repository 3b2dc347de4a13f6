"""Which intervals of values get whole noise, where prefixes, ranges or other sums are asked for.

Noise on n values adds up in a sum of many.  Where neighbouring values are added up in intervals,
too, a sum is put together from few numbers: values, and intervals on one or two levels above them,
share ε.  With p(y) = 2 sinh²(y/2), the precision of whole noise of the rate y, the errors add up
to ``tr(C X⁻¹)``, ``X = Σ p(yᵢ) GᵢᵀGᵢ``, where C adds up what is asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.crossed import Sets, cells_of
from affinedp.strategies.margin_intervals import crossed_rows, grouping
from affinedp.strategies.margin_workloads import Workload

# Combinations of values of all attributes with a workload, whose precision is inverted; and cells
# of the table of all attributes, which get noise.
MOST_VALUES, MOST_CELLS = 1000, 1_000_000
# Intervals are up to twice as wide as a root of the number of values, in so many steps.
LEAST_STEPS, MOST_STEPS = 3, 12
SWEEPS = 4
# What gets less than this share of the largest rate is not measured.
LEAST_SHARE = 1e-2

Widths = list[tuple[int, ...]]


def least_intervals(
    sizes: Sequence[int],
    workloads: Sequence[Workload | None],
    wanted: Sets,
    cost: FloatArray,
    budget: float,
) -> tuple[Widths, FloatArray] | None:
    """Return widths of intervals, and rates of (locally) least weighted squared error.

    ``cost`` is that of all that a margin asks for.  Nothing is returned where values are too many.
    """
    own = [n for n, one in zip(sizes, workloads) if one is not None]
    if math.prod(own) > MOST_VALUES or math.prod(map(float, sizes)) > MOST_CELLS:
        return None
    asked = _asked(sizes, workloads, wanted, cost)
    first = [
        (_swept(own, widths, asked, budget, 1)[0], place, widths)
        for place, widths in enumerate(_candidates(own))
    ]
    best = min(first)[-1]
    y = _swept(own, best, asked, budget, SWEEPS)[1]
    return [row for row, rate in zip(best, y.tolist()) if rate], y[y > 0]


def _asked(
    sizes: Sequence[int], workloads: Sequence[Workload | None], wanted: Sets, cost: FloatArray
) -> FloatArray:
    """C: the Gram matrices of all margins, by what their mean error costs."""
    total = np.zeros(())
    for A, weight in zip(wanted.tolist(), cost.tolist()):
        grams = [
            one.gram / one.rows if A >> j & 1 else np.ones((one.size, one.size))
            for j, one in enumerate(workloads) if one is not None
        ]  # fmt: skip
        out = sum(1 << j for j, one in enumerate(workloads) if one is None and not A >> j & 1)
        total = total + weight * cells_of(sizes, out) * crossed_rows(grams)
    return total


def _candidates(sizes: Sequence[int]) -> Iterator[Widths]:
    """All combinations of widths along every attribute; values are the first."""
    seen = []
    steps = max(LEAST_STEPS, min(MOST_STEPS, 4 * MOST_VALUES // math.prod(sizes)))
    for levels, step in itertools.product((2, 3), range(steps)):
        each = []
        for n in sizes:
            branches = math.ceil((1 + step / steps) * n ** (1 / levels))
            each.append([1, *(branches**k for k in range(1, levels) if branches**k < n)])
        found = list(itertools.product(*each))
        if found not in seen:
            seen.append(found)
            yield found


def _swept(
    sizes: Sequence[int], widths: Widths, asked: FloatArray, budget: float, sweeps: int
) -> tuple[float, FloatArray]:
    """The error and the rates of so many steps."""
    each = [grouping(sizes, row) for row in widths]
    grams = [np.asarray(G.T @ G) for G in each]
    y = np.full(len(widths), budget / len(widths))
    best, rates = math.inf, y
    for _ in range(sweeps):
        inverse = np.linalg.inv(sum(2 * np.sinh(r / 2) ** 2 * G for r, G in zip(y.tolist(), grams)))
        taken = inverse @ asked
        if np.trace(taken) < best:
            best, rates = float(np.trace(taken)), y
        if sweeps > 1:
            saved = taken @ inverse
            gain = np.sinh(y) * np.array([float((G * saved).sum()) for G in grams])
            y = y * np.cbrt(gain / float(y @ gain))
            small = y < LEAST_SHARE * y.max()
            small[0] = False  # without values nothing is determined
            y = np.where(small, 0.0, y)
            y = y * (budget / y.sum())
    return best, rates
