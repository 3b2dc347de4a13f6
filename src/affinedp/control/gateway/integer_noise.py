"""Integer noise of a gateway: one draw for a trajectory, and fresh numbers for every step."""

from __future__ import annotations

import math
from fractions import Fraction

from affinedp.release.plan import GRID_BITS
from affinedp.release.sampler import IntegerNoise, draw_integers


def drawn_once(factor: float, count: int) -> tuple[int, ...]:
    """Return η for a whole trajectory, in units of its grid.

    Parameters
    ----------
    factor : float
        Standard deviation of η.
    count : int
        How many numbers.
    """
    scale = math.ceil(Fraction(factor) * (1 << GRID_BITS))
    return tuple(draw_integers("gaussian", scale, count).tolist())


class FreshNoise:
    """Independent noise of unit scale, in units of its grid.

    Nothing is drawn ahead: a process that forks does not take its noise with it.
    """

    def __init__(self) -> None:
        self._noise = IntegerNoise("gaussian", 1 << GRID_BITS)

    def take(self, count: int) -> list[int]:
        """Return numbers that nobody has seen.

        Parameters
        ----------
        count : int
            How many.
        """
        return list(self._noise.draw(count))
