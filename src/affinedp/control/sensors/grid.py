"""Which grid readings lie on: an approximate greatest common divisor of their differences.

A sensor rounds to its step, and whatever the step is, doubles near its multiples come out.  Numbers
that were computed have no common step down to their rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

# What doubles near multiples of a step may be off, relative to the largest reading.
ROUNDING = 2.0**-48
# A step this many times larger than rounding is a step; smaller ones are rounding itself.
SURE = 2.0**14
# Among so many different readings all are even multiples by chance once in four million.
ENOUGH, CHANCE = 24, 2.0**-22
# A sensor with far coarser steps than declared shows among fewer.
FEWEST = 6


def common_step(readings: Sequence[float]) -> float | None:
    """Return the largest step of which all differences of readings are multiples, or None.

    Examples
    --------
    >>> round(common_step([20.1, 20.4, 19.9, 21.0]), 9)
    0.1
    >>> import math
    >>> common_step([math.sin(t) for t in range(20)]) is None
    True
    """
    values = sorted(set(readings))
    if len(values) < 2:
        return None
    size = max(abs(values[0]), abs(values[-1]), values[-1] - values[0])
    noise = size * ROUNDING
    span = step = values[-1] - values[0]
    for value in values[1:]:
        step = _divisor(step, value - values[0], noise)
        if step < SURE * noise:
            return None
        # the widest difference tells the step best, and errors do not pile up
        step = span / round(span / step)
    return step


def _divisor(first: float, second: float, noise: float) -> float:
    """Euclid on doubles that are near multiples of something."""
    a, b = max(first, second), min(first, second)
    while b > SURE * noise / 4:
        a, b = b, abs(math.remainder(a, b))
    return a


class GridWatch:
    """Notices when readings lie on a coarser grid than was declared.

    What it finds belongs into a log that only the owner of the readings sees: whether there is an
    alarm depends on the data.

    Examples
    --------
    >>> watch = GridWatch(0.001)
    >>> found = [watch.take(0.1 * n) for n in range(40)]
    >>> [round(step, 6) for step in found if step]
    [0.1]
    """

    def __init__(self, declared: float) -> None:
        self._declared = declared
        self._readings: set[float] = set()
        self._taken = 0
        self._done = False

    def take(self, reading: float) -> float | None:
        """Look at a reading; return the coarser step once, when it is certain."""
        self._taken += 1
        again = reading in self._readings and self._taken != 2 * len(self._readings)
        if self._done or again:
            return None
        self._readings.add(reading)
        if len(self._readings) < FEWEST or not self._telling():
            return None
        step = self._coarser(sorted(self._readings))
        if step is not None:
            self._done = True
        elif len(self._readings) >= ENOUGH:
            self._readings.clear()  # as fine as declared; the next ones are looked at anew
            self._taken = 0
        return step

    def _telling(self) -> bool:
        """Whether a common step would say something: the first numbers of a simulation have one.

        0.9 · 5 is a short decimal, and so are the next few; but a sensor's readings come again.
        """
        different = len(self._readings)
        return self._declared > 0 or different >= ENOUGH or self._taken >= 2 * different

    def _coarser(self, values: Sequence[float]) -> float | None:
        """A coarser step than declared, if chance makes one as coarse no oftener than CHANCE."""
        span, free = values[-1] - values[0], len(values) - 2
        finest = max(self._declared, max(abs(values[0]), abs(values[-1]), span) * ROUNDING * SURE)
        if not 0 < finest < math.inf:
            return None
        step = common_step(values)
        # one of k numbers is a multiple of k, and the first two readings only set the grid
        if step is not None and step > 1.5 * finest and (finest / step) ** free <= CHANCE:
            return step
        # steps that were printed with some digits, or carried in single precision, are multiples of
        # those alone; but readings come again, and no two of them are closer than about a step
        apart = least_distance(values)
        crowded = (1 - min(1.0, apart / (span / (free + 1)))) ** free
        if self._taken >= 2 * len(values) and apart > 2 * finest and crowded <= CHANCE:
            return apart
        return None


def least_distance(values: Sequence[float]) -> float:
    """Return the least distance of two numbers.

    Examples
    --------
    >>> least_distance([1.0, 1.5, 2.75])
    0.5
    """
    return min(b - a for a, b in itertools.pairwise(values))
