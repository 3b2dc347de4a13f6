"""Independent whole numbers with a law of their own in every coordinate: stairs and Laplace."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.laws.sampler.coins import (
    NARROW,
    ExponentialChoice,
    Geometric,
    narrowed,
    uniform_below,
)
from affinedp.laws.sampler.noise import IntegerNoise
from affinedp.laws.sampler.words import Random, Source, system_bytes


class StairsNoise:
    """Independent whole numbers whose probability falls by e^(−rate) every ``width``.

    |z| = k · width + j has the weight e^(−rate k) for j < first, and e^(−rate (k + 1)) for the
    other j < width.  The law is exact.

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


class AxesNoise:
    """Independent vectors z of whole numbers with P(z) ∝ exp(−Σ |z_i| / scale_i).

    Examples
    --------
    >>> AxesNoise([Fraction(1), Fraction(1), Fraction(7, 2)]).draw(5).shape
    (5, 3)
    """

    def __init__(self, scales: Sequence[Fraction]) -> None:
        places: dict[Fraction, list[int]] = {}
        for i, scale in enumerate(scales):
            places.setdefault(scale, []).append(i)
        self._dimension = len(scales)
        self._noises = [(own, IntegerNoise("laplace", scale)) for scale, own in places.items()]

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return vectors as rows, Python integers in an object array of shape (count, r)."""
        drawn: NDArray[Any] = np.empty((count, self._dimension), dtype=object)
        for places, noise in self._noises:
            drawn[:, places] = noise.draw((count, len(places)), source)
        return drawn
