"""Staircase noise on whole numbers, exactly: how far down, which part of the step, where on it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.laws.sampler.coins import ExponentialChoice, Geometric
from affinedp.laws.sampler.many import NARROW, narrowed, uniform_below
from affinedp.laws.sampler.words import Random, Source, system_bytes


class StairsNoise:
    """Independent whole numbers whose probability falls by e^(−rate) every ``width``.

    |z| = k · width + j has the weight e^(−rate k) for j < first, and e^(−rate (k + 1)) for the
    other j < width.  The law is exact.

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

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r)."""
        drawn: NDArray[Any] = np.empty((count, len(self._steps)), dtype=object)
        places: dict[tuple[int, int], list[int]] = {}
        for i, step in enumerate(self._steps):
            places.setdefault(step, []).append(i)
        for (width, first), own in places.items():
            numbers = self._numbers(count * len(own), width, first, source)
            drawn[:, own] = numbers.reshape(count, len(own))
        return drawn

    def _numbers(self, count: int, width: int, first: int, source: Source) -> NDArray[Any]:
        parts: list[NDArray[Any]] = [np.zeros(0, dtype=np.int64)]
        missing, random = count, Random(source)
        while missing:
            down = self._down.draw_narrow(missing, source)
            low = np.zeros(missing, dtype=np.intp)
            if first < width:
                low = self._part[width, first].draw_many(missing, random)
            inside = narrowed([0, first])[low]
            inside = inside + uniform_below(narrowed([first, width - first or 1])[low], random)
            negative = random.long_words(missing) & np.uint64(1) == 1
            parts.append(signed(down, inside, negative, width))
            missing -= len(parts[-1])
        return np.concatenate(parts)


def signed(
    down: NDArray[Any], inside: NDArray[Any], negative: NDArray[np.bool_], width: int
) -> NDArray[Any]:
    """Return ± (down · width + inside); 0 has one sign only, and who would be −0 is left out."""
    if (int(down.max(initial=0)) + 1) * width >> NARROW:
        down = down.astype(object)
    far = down * width + inside
    return np.asarray(np.where(negative, -far, far)[~negative | (far != 0)])
