"""Integer noise of a gateway: one draw for a trajectory, and fresh numbers for every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from affinedp.release.plan import GRID_BITS
from affinedp.release.sampler import IntegerNoise, draw_integers


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

    Nothing is drawn ahead: a process that forks does not take its noise with it.

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

    def take(self) -> list[int]:
        """Return numbers that nobody has seen, one for each output."""
        taken = [0] * self._count
        for noise, places in self._noise:
            for place, number in zip(places, noise.draw(len(places))):
                taken[place] = int(number)
        return taken
