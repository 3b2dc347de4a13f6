"""Subtractive dither: a secret offset before the converter that is taken off again behind it.

With d = j q/2^b, j uniform among 2^b levels, fresh, independent of everything and secret for ever,

    Q(y + d) − d = q' ⌊y/q'⌋ + q' (2^(b−1) − m),     q' = q/2^b,   m uniform, independent of y,

for a converter Q that rounds halves up.  So the reading has the error of a converter with steps of
q' and noise that depends on nothing.  That needs the offset *before* the converter: in software,
behind it, dither does nothing.  And it needs the offset secret: who sees it, or the raw code, sees
the reading as if there were no dither.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

MOST_BITS = 40


@dataclass(frozen=True)
class Dither:
    """A converter with subtractive dither (docs/explanation/sensors.md).

    Conditions, which nothing here can check: the offset is added before the converter, which
    rounds halves up and is not saturated by ``y + d``; neither offset nor raw code is sent, logged
    in the open, or used by a local loop.  At run time readings that do not lie on the finer grid
    raise an alarm in the gateway's own log.

    Attributes
    ----------
    bits : int
        b: the offset has 2^b equally likely levels within one step.
    step : float
        q, the step of the converter.
    nonlinearity : float
        The largest distance of a threshold of the converter from its place (integral nonlinearity).

    Examples
    --------
    >>> dither = Dither(bits=6, step=0.1)
    >>> dither.declared                                # as good as a step of 0.1 / 64
    0.0015625
    >>> offset = dither.draw(1)                        # secret: add it before the converter
    >>> code = np.floor((21.34 + offset) / 0.1 + 0.5) * 0.1
    >>> bool(abs(dither.subtract(code, offset) - 21.34) <= 0.05 + 0.0016)
    True
    """

    bits: int
    step: float
    nonlinearity: float = 0.0

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= MOST_BITS:
            raise AffineDPError(f"bits must be a whole number from 1 to {MOST_BITS}: {self.bits!r}")
        for name, value in (("step", self.step), ("nonlinearity", self.nonlinearity)):
            number = real_array(value, name)
            if number.shape or number < 0 or (name == "step" and number == 0):
                raise AffineDPError(f"{name} of a dithered converter must be a positive number")

    @property
    def declared(self) -> float:
        """The step that readings then count as having: q/2^b + 2 · nonlinearity."""
        return math.ldexp(float(self.step), -self.bits) + 2 * float(self.nonlinearity)

    @property
    def grid(self) -> float:
        """The grid on which readings lie after the offset is taken off."""
        return math.ldexp(float(self.step), -self.bits)

    def draw(self, count: int = 1) -> FloatArray:
        """Return fresh offsets for one step, from the operating system's randomness.  Secret.

        Parameters
        ----------
        count : int
            One for each output.
        """
        half = 1 << (self.bits - 1)
        levels = [secrets.randbelow(2 * half) - half for _ in range(count)]
        return np.array([float(level * self._unit) for level in levels])

    def subtract(self, reading: ArrayLike, offset: ArrayLike) -> FloatArray:
        """Return the reading with the offset taken off, exact on the finer grid.

        Parameters
        ----------
        reading : array_like
            What the converter gave, a multiple of its step.  Secret.
        offset : array_like
            What :meth:`draw` returned for this reading.
        """
        codes = real_array(reading, "reading") / float(self.step)
        levels = real_array(offset, "offset") / self.grid
        if codes.shape != levels.shape or np.any(np.abs(levels - np.rint(levels)) > 1e-6):
            raise AffineDPError("each reading goes with the offset that was drawn for it")
        whole = zip(np.rint(codes).ravel(), np.rint(levels).ravel())
        left = [float(((int(c) << self.bits) - int(j)) * self._unit) for c, j in whole]
        return np.reshape(left, codes.shape)

    @property
    def _unit(self) -> Fraction:
        return Fraction(float(self.step)) / (1 << self.bits)
