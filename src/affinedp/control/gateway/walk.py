"""The noise of a gateway, step by step in integers: memory in, noise and the next memory out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from affinedp.control.gateway.facts import STREAM_BITS
from affinedp.control.gateway.plan import GatewayPlan
from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.strategies.causal import Path


class Walk:
    """How the noise goes on from the memory at a step; it holds nothing secret.

    ``scale`` is the standard deviation of what is drawn, in units of ``2**-bits``.
    """

    def __init__(self, path: Path, plan: GatewayPlan, scale: Fraction, bits: int) -> None:
        self._path, self._bits, self._grids = path, bits, plan.grid_exponents
        self._scale = math.ceil(scale)
        self._drawn = IntegerNoise("gaussian", self._scale) if path.each else None

    def begin(self, drawn: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the memory at step 0, of what is drawn once."""
        if drawn is None:
            drawn = draw_integers("gaussian", self._scale, self._path.once).tolist()
        return self._path.begin(drawn, self._bits)

    def draw(self, steps: int) -> list[list[int]]:
        """Return what is drawn for each of the steps that follow, skipped ones too.

        A noise that stood still while the plant went on would be another one.
        """
        if self._drawn is None:
            return [[]] * steps
        rows: list[list[int]] = self._drawn.draw((steps, self._path.each)).tolist()
        return rows

    def noise(self, step: int, memory: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
        """Return the noise of a step, entry i in units of the grid of output i."""
        return self._path.row(step, memory, drawn, self._bits, self._grids)

    def advance(self, step: int, memory: Sequence[int], drawn: Sequence[int]) -> tuple[int, ...]:
        """Return the memory at the next step."""
        return self._path.advance(step, memory, drawn, self._bits)


def draw_bits(scale: float) -> int:
    """Return the grid of ζ: its steps are at most 2⁻⁹⁶ of the scale.

    Examples
    --------
    >>> draw_bits(1.5), 2.0 ** -draw_bits(0.3) <= 0.3 * 2.0**-96
    (96, True)
    """
    return STREAM_BITS + 1 - math.frexp(scale)[1]
