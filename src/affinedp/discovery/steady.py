"""What a column says beyond steady movement: trends, waves and curves agree by habit.

Two lines, rounded, obey an equation up to rounding whatever they are about, and rows of a table of
trends are sums of one another.  So a row is evidence only by the part of its number that the rows
around it do not foretell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# How likely two numbers are the same, if they spread by σ like a normal law: 1/(2 √π σ).
EQUAL_PAIRS = 2.0 * math.sqrt(math.pi)
# What is taken off every row's evidence (log10), because a spread is estimated.
DOUBT = 0.1
# Half of a normal law lies within so many σ of each other.
QUARTILES = 1.349
# Nine tenths of it, those nearest to the middle, spread by so many σ.
USUAL, USUAL_SPREAD = 0.9, 0.789
FEW_MOVE = 1.3
# Weights of the rows before and after, which foretell lines, and cubic curves.
AROUND = ((0.5,), (4 / 6, -1 / 6))
POWERS = 4
# Rows for each number that is fitted.
ROWS_PER_FIT = 3
# Longer columns are looked at in part, and in full only where that says little.
LONG = 4000
# Lines through two rows so near foretell a number.
SURPRISE_REACH = 3
SURPRISE_ROWS_PER_FIT = 2


def log10_beyond_steady(
    whole: NDArray[np.generic], width: float, enough: float, missed: int = 0
) -> float:
    """Return log10 of how many numbers a row tells apart, of those that its neighbours leave.

    ``whole`` is a column in units, in the order of its rows; ``width`` neighbouring numbers count
    as the same; more than ``enough`` need not be known; ``missed`` rows, those that say most, count
    for nothing.

    Examples
    --------
    A rounded line says nothing, numbers up to a hundred in any order nearly two digits.

    >>> rng = np.random.default_rng(0)
    >>> log10_beyond_steady(np.arange(40) * 7 // 3, 1.0, 2.0)
    0.0
    >>> round(log10_beyond_steady(rng.integers(0, 100, 40), 1.0, 2.0), 1)
    1.9
    """
    if len(whole) > LONG:
        start = (len(whole) - LONG // 2) // 2
        some = log10_beyond_steady(whole[start : start + LONG // 2], width, enough, missed)
        if some >= enough:
            return enough
    values = _from_first(whole)
    size = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(size):
        return enough
    if size == 0.0 or len(values) < 3:
        return 0.0 if size == 0.0 else enough
    told = min(_told(left / size, width / size, missed) for left in remainders(values))
    return min(told, enough)


def _from_first(whole: NDArray[np.generic]) -> FloatArray:
    """Differences from the first number: long numbers keep their last digits."""
    if whole.dtype.kind == "f":
        return np.asarray(whole - whole[0], dtype=float)
    first = int(whole[0])
    try:
        return np.array([int(x) - first for x in whole.tolist()], dtype=float)
    except OverflowError:
        return np.full(len(whole), np.inf)


def _told(left: FloatArray, width: float, missed: int) -> float:
    """log10 of how many numbers of this spread can be told apart; the better of two yardsticks."""
    low, high = np.percentile(left, [25.0, 75.0])
    usual = np.sort(np.abs(left))[: math.ceil(USUAL * len(left))]
    spread = float(np.sqrt(np.mean(usual * usual))) / USUAL_SPREAD
    # what moves in few rows only has no spread in this sense
    spread = min(spread, FEW_MOVE * float(high - low) / QUARTILES)
    apart = math.log10(max(EQUAL_PAIRS * spread / width, 1e-300)) - DOUBT
    # a column that seldom moves, but then by much, speaks in the rows where it does
    ordered = np.sort(left)
    wide = width * (1 + 1e-9)
    pairs = np.searchsorted(ordered, ordered + wide, side="right")
    pairs = pairs - np.searchsorted(ordered, ordered - wide, side="left")
    rows = np.sort(np.maximum(np.log10(len(left) / pairs) - DOUBT, 0.0))
    return max(apart, float(rows[: max(len(left) - missed, 0)].sum()) / len(left))


def remainders(values: FloatArray) -> list[FloatArray]:
    """Return what kinds of steady movement leave of a column, as large as noise would be."""
    rows = len(values)
    out = [values - values.mean()]
    for weights in AROUND:
        reach = len(weights)
        if rows < 2 * reach + 2:
            continue
        left = values[reach : rows - reach].copy()
        for step, weight in enumerate(weights, start=1):
            left -= weight * _both(values, step, reach)
        out.append(left / math.sqrt(1 + 2 * sum(weight**2 for weight in weights)))
    out += [left for _, left in _regressions(values, ROWS_PER_FIT)]
    return out


def _regressions(values: FloatArray, rows_per_fit: int) -> Iterator[tuple[slice, FloatArray]]:
    """Rows, and what curves and waves leave of them."""
    rows = len(values)
    time = np.linspace(-1.0, 1.0, rows)
    for power in range(1, POWERS):
        if rows >= rows_per_fit * (power + 1):
            yield slice(0, rows), _left(np.vander(time, power + 1), values)
    inner = slice(2, rows - 2)
    if rows - 4 >= rows_per_fit * 4:
        # one or two waves of any length
        around = [_both(values, step, 2) for step in (1, 2)]
        wave = np.column_stack([np.ones(rows - 4), time[inner], *around])
        yield inner, _left(wave, values[inner])


def _both(values: FloatArray, step: int, reach: int) -> FloatArray:
    rows = len(values)
    earlier = values[reach - step : rows - reach - step]
    return np.asarray(earlier + values[reach + step : rows - reach + step])


def _left(fit: FloatArray, values: FloatArray) -> FloatArray:
    """What a regression leaves, enlarged by what it took away of plain noise."""
    coefficients = np.linalg.lstsq(fit, values, rcond=None)[0]
    rows, count = fit.shape
    return np.asarray((values - fit @ coefficients) * math.sqrt(rows / (rows - count)))


def least_surprises(whole: NDArray[np.generic]) -> FloatArray:
    """Return how far each number is from what the numbers around it foretell, at least.

    Examples
    --------
    >>> least_surprises(np.array([10, 12, 14, 99, 18, 20])).round().tolist()
    [0.0, 0.0, 0.0, 74.0, 0.0, 0.0]
    """
    values = _from_first(whole)
    rows = len(values)
    size = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(size) or rows < 3:
        return np.abs(values)
    least = np.full(rows, np.inf)
    steps = np.arange(-SURPRISE_REACH, SURPRISE_REACH + 1)
    for first in steps[steps != 0]:
        for second in steps[steps > first]:
            if second == 0:
                continue
            # the line through two rows near by
            here = np.arange(max(0, -first), min(rows, rows - second))
            here = here[(here + first < rows) & (here + second >= 0)]
            a, b = values[here + first], values[here + second]
            line = a + (b - a) * (-first / (second - first))
            least[here] = np.minimum(least[here], np.abs(values[here] - line))
    for where, left in _regressions(values, SURPRISE_ROWS_PER_FIT):
        least[where] = np.minimum(least[where], np.abs(left))
    return least
