"""Integer noise of a gateway: one draw for a trajectory, and fresh numbers for every step."""

from __future__ import annotations

import math
from fractions import Fraction

from affinedp.release.plan import GRID_BITS
from affinedp.release.sampler import IntegerNoise, draw_integers

# A call costs about ten times as much as a number; larger batches would make some steps slow.
BATCH = 16


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
    """Independent noise of unit scale, in units of its grid, a few numbers ahead.

    Parameters
    ----------
    outputs : int
        How many numbers a step takes.
    """

    def __init__(self, outputs: int) -> None:
        self._batch = max(BATCH, outputs)
        self._noise = IntegerNoise("gaussian", 2**GRID_BITS)
        self._ahead: list[int] = []

    def take(self, count: int) -> list[int]:
        """Return numbers that nobody has seen, and forget them.

        Parameters
        ----------
        count : int
            How many, at most ``outputs``.
        """
        if len(self._ahead) < count:
            self._ahead.extend(self._noise.draw(self._batch).tolist())
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken
