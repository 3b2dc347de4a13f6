"""Integer noise of a gateway: one draw for a trajectory, and fresh numbers for every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.files.processes import this_process
from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.strategies.rounded_plan import GRID_BITS

# Steps for which fresh numbers are drawn together.
BLOCK = 64


def drawn_once(factor: float | Fraction, count: int) -> tuple[int, ...]:
    """Return η for a whole trajectory, in units of its grid.

    Parameters
    ----------
    factor : float or Fraction
        Standard deviation of η, in units of 2⁵⁶ steps of its grid.
    count : int
        How many numbers.
    """
    scale = math.ceil(Fraction(factor) * (1 << GRID_BITS))
    return tuple(draw_integers("gaussian", scale, count).tolist())


class FreshNoise:
    """Independent noise for every output, in units of the grid of each.

    Numbers are drawn for :data:`BLOCK` steps at a time: that takes hardly longer than one.  What
    was drawn ahead stays with the process and the object that drew it: forks and copies draw anew.

    Parameters
    ----------
    scales : sequence of int
        Standard deviations, or scales of Laplace noise, in units of the grid.
    law : {"gaussian", "laplace"}
        Which law.
    """

    def __init__(self, scales: Sequence[int], law: str = "gaussian") -> None:
        self._count = len(scales)
        places: dict[int, list[int]] = {}
        for place, scale in enumerate(scales):
            places.setdefault(scale, []).append(place)
        # numbers of one scale are drawn together, which is quicker
        self._noise = [(IntegerNoise(law, s), found) for s, found in places.items()]
        self._ahead: list[list[int]] = []
        self._process = this_process()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy takes with it: nothing that was drawn."""
        return {**self.__dict__, "_ahead": []}

    def take(self) -> list[int]:
        """Return numbers that nobody has seen, one for each output."""
        if self._process != this_process():
            self._ahead, self._process = [], this_process()
        if not self._ahead:
            self._ahead = self._block()
        return self._ahead.pop()

    def _block(self) -> list[list[int]]:
        block = np.empty((BLOCK, self._count), dtype=object)
        for noise, places in self._noise:
            block[:, places] = noise.draw((BLOCK, len(places)))
        drawn: list[list[int]] = block.tolist()
        return drawn
