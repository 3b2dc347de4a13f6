"""Integer noise of a gateway, from OpenDP's discrete Gaussian and the system's randomness."""

from __future__ import annotations

import math

from affinedp.release.integer_noise import integer_sampler
from affinedp.release.plan import GRID_BITS

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
    sampler = integer_sampler("gaussian", math.ldexp(factor, GRID_BITS), count)
    return tuple(int(number) for number in sampler([0] * count))


class FreshNoise:
    """Independent noise of unit scale, in units of its grid, a few numbers ahead.

    Parameters
    ----------
    outputs : int
        How many numbers a step takes.
    """

    def __init__(self, outputs: int) -> None:
        self._zeros = [0] * max(BATCH, outputs)
        self._sampler = integer_sampler("gaussian", math.ldexp(1.0, GRID_BITS), len(self._zeros))
        self._ahead: list[int] = []

    def take(self, count: int) -> list[int]:
        """Return numbers that nobody has seen, and forget them.

        Parameters
        ----------
        count : int
            How many, at most ``outputs``.
        """
        if len(self._ahead) < count:
            self._ahead.extend(int(number) for number in self._sampler(self._zeros))
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken
