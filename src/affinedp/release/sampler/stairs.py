"""Staircase noise on whole numbers, exactly: how far down, which part of the step, where on it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.release.sampler.coins import ExponentialChoice, Geometric


class StairsNoise:
    """Independent whole numbers whose probability falls by e^(−rate) every ``width``.

    |z| = k · width + j has the weight e^(−rate k) for j < first, and e^(−rate (k + 1)) for the
    other j < width.  The law is exact; randomness is the operating system's.

    Parameters
    ----------
    widths, firsts : sequences of int
        One per coordinate, 1 ≤ first ≤ width.
    rate : Fraction
        Positive.

    Examples
    --------
    >>> StairsNoise([3, 5], [2, 5], Fraction(1)).draw(4).shape
    (4, 2)
    """

    def __init__(self, widths: Sequence[int], firsts: Sequence[int], rate: Fraction) -> None:
        self._steps = list(zip(widths, firsts))
        self._down = Geometric(rate)
        self._part = {
            (width, first): ExponentialChoice([first, width - first], [Fraction(0), rate])
            for width, first in self._steps
            if first < width
        }

    def draw(self, count: int) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r).

        Parameters
        ----------
        count : int
            How many.
        """
        drawn: NDArray[Any] = np.empty((count, len(self._steps)), dtype=object)
        down = self._down.draw(drawn.size).reshape(drawn.shape)
        for i, (width, first) in enumerate(self._steps):
            for row in range(count):
                drawn[row, i] = self._number(int(down[row, i]), width, first)
        return drawn

    def _number(self, down: int, width: int, first: int) -> int:
        while True:
            low = first < width and self._part[width, first].draw() == 1
            inside = first + secrets.randbelow(width - first) if low else secrets.randbelow(first)
            far = down * width + inside
            if not secrets.randbits(1):
                return far
            if far:  # 0 has one sign only: who would be −0 is drawn again
                return -far
            down = int(self._down.draw(1)[0])
