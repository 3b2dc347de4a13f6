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
from numpy.typing import NDArray

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
    tied: Sequence[int] = (),
    possible: NDArray[np.bool_] | None = None,
) -> tuple[Widths, FloatArray] | None:
    """Return widths of intervals, and rates of (locally) least weighted squared error.

    ``cost`` is that of all that a margin asks for; ``tied`` are attributes in rules, which say what
    is possible.  Nothing is returned where that is not known, values are too many, or
    intervals do not pay.
    """
    grouped = [j for j, one in enumerate(workloads) if one is not None or j in tied]
    own = [(sizes[j], workloads[j] is not None) for j in grouped]
    if len(tied) > 0 and possible is None:
        return None
    if math.prod(n for n, _ in own) > MOST_VALUES or math.prod(map(float, sizes)) > MOST_CELLS:
        return None
    able = slice(None) if possible is None else np.flatnonzero(possible)
    asked = _asked(sizes, workloads, grouped, wanted, cost)[able][:, able]

    def swept(widths: Widths, sweeps: int) -> tuple[float, FloatArray]:
        each = [grouping([n for n, _ in own], row)[:, able] for row in widths]
        return _swept([G.T @ G for G in each], asked, budget, sweeps)

    best = min(_candidates(own), key=lambda widths: swept(widths, 1)[0])
    y = swept(best, SWEEPS)[1]
    if np.count_nonzero(y) == 1:  # noise on cells alone is compared anyway
        return None
    return [row for row, rate in zip(best, y.tolist()) if rate], y[y > 0]


def _asked(
    sizes: Sequence[int],
    workloads: Sequence[Workload | None],
    grouped: Sequence[int],
    wanted: Sets,
    cost: FloatArray,
) -> FloatArray:
    """C: the Gram matrices of all margins, by what their mean error costs."""
    total = np.zeros(())
    for A, weight in zip(wanted.tolist(), cost.tolist()):
        grams = []
        for j in grouped:
            one, n = workloads[j], sizes[j]
            own = np.eye(n) / n if one is None else one.gram / one.rows
            grams.append(own if A >> j & 1 else np.ones((n, n)))
        out = sum(1 << j for j in range(len(sizes)) if j not in grouped and not A >> j & 1)
        total = total + weight * cells_of(sizes, out) * crossed_rows(grams)
    return total


def _candidates(own: Sequence[tuple[int, bool]]) -> Iterator[Widths]:
    """All combinations of widths along every attribute; values are the first.

    Attributes have a number of values, and intervals or not.
    """
    seen = []
    values = math.prod(n for n, _ in own)
    steps = max(LEAST_STEPS, min(MOST_STEPS, 4 * MOST_VALUES // values))
    for levels, step in itertools.product((2, 3), range(steps)):
        each = []
        for n, wide in own:
            branches = math.ceil((1 + step / steps) * n ** (1 / levels))
            each.append([1, *(branches**k for k in range(1, levels) if wide and branches**k < n)])
        found = list(itertools.product(*each))
        if found not in seen:
            seen.append(found)
            yield found


def _swept(
    grams: Sequence[FloatArray], asked: FloatArray, budget: float, sweeps: int
) -> tuple[float, FloatArray]:
    """The error and the rates of so many steps."""
    y = np.full(len(grams), budget / len(grams))
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
