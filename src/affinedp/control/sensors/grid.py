"""Which grid readings lie on: an approximate greatest common divisor of their differences.

A sensor rounds to its step, and whatever the step is, doubles near its multiples come out.  Numbers
that were computed have no common step down to their rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# What doubles near multiples of a step may be off, relative to the largest reading.
ROUNDING = 2.0**-48
# A step this many times larger than rounding is a step; smaller ones are rounding itself.
SURE = 2.0**14
# Among so many different readings all are even multiples by chance once in eight million.
ENOUGH = 24


def common_step(readings: Sequence[float]) -> float | None:
    """Return the largest step of which all differences of readings are multiples, or None.

    Parameters
    ----------
    readings : sequence of float
        Finite numbers; fewer than two different ones have no step.

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

    Parameters
    ----------
    declared : float
        The grid on which readings should lie; 0 for exact ones.

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
        self._done = False

    def take(self, reading: float) -> float | None:
        """Look at a reading; return the coarser step once, when it is certain.

        Parameters
        ----------
        reading : float
            A finite number.
        """
        if self._done or reading in self._readings:
            return None
        self._readings.add(reading)
        if len(self._readings) < ENOUGH:
            return None
        step = common_step(tuple(self._readings))
        self._readings.clear()
        if step is None or step <= self._declared * (1 + 1e-6):
            return None  # as fine as declared; the next ones are looked at anew
        self._done = True
        return step
