"""Independent discrete Laplace noise with a scale of its own in every coordinate, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.laws.sampler.noise import IntegerNoise
from affinedp.laws.sampler.words import Source, system_bytes


class AxesNoise:
    """Independent vectors z of whole numbers with P(z) ∝ exp(−Σ |z_i| / scale_i).

    Parameters
    ----------
    scales : sequence of Fraction
        One per coordinate, positive.

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
