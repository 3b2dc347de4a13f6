"""Laplace noise (Theorem 2), and its like on whole numbers, geometric noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.laws.base import NOTHING_KNOWN, Law, Moves, Sampler
from affinedp.laws.curves import Curve, LaplaceCurve
from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.laws.reach import Reach
from affinedp.laws.reach_sums import Steps, independent_reach, laplace_rows_reach, laplace_spread
from affinedp.laws.sampler.noise import IntegerNoise


@dataclass(frozen=True, eq=False)
class Laplace(Law):
    """L(0, 1), which has variance 2."""

    kind = "laplace"
    words, theorem = "Laplace", "Theorem 2"
    norm = 1
    variance = 2.0

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return Theorem 2 at δ = 0, and what listed shifts or one dimension say above it."""
        return LaplaceCurve(sensitivity, moves.shifts)

    def limit(self, epsilon: float, delta: float = 0.0) -> float:
        """Return ε at δ = 0."""
        return float(epsilon) if delta == 0.0 else super().limit(epsilon, delta)

    def depths(self, points: FloatArray) -> FloatArray:
        """Return 1-norms."""
        return np.asarray(np.abs(points).sum(axis=0))

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of sums of Laplace noise."""
        reach = laplace_rows_reach(dense(rows), outside)
        return reach, "from the law of sums of Laplace noise; never too short"

    def reach_by_variance(self, variances: FloatArray, outside: float) -> FloatArray:
        """Return Chernoff's or Chebyshev's bound, whichever is less."""
        return np.asarray(laplace_spread(outside) * np.sqrt(variances))

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        return generator.laplace(0.0, 1.0, (size, p))

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws the discrete Laplace."""
        return IntegerNoise("laplace", unit)


@dataclass(frozen=True, eq=False)
class Geometric(Law):
    """P(z) ∝ e^(−rate |z|) on whole numbers.

    Attributes
    ----------
    rate : float
        Positive.

    Examples
    --------
    >>> round(Geometric(1.0).variance, 6)                      # Laplace noise has 2
    1.841347
    """

    kind = "geometric"
    words, theorem = "geometric", "the triangle inequality"
    norm = 1
    whole = True
    rate: float = 1.0

    @property
    def variance(self) -> float:  # type: ignore[override]
        """2q / (1 − q)² with q = e^(−rate)."""
        return geometric_variance(self.rate)

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return randomised response: nothing that is purely ε-private is above it."""
        return ThreeAtoms(sensitivity, exact=moves.one_step)

    def depths(self, points: FloatArray) -> FloatArray:
        """Return 1-norms times the rate."""
        return np.asarray(self.rate * np.abs(points).sum(axis=0))

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of sums of geometric noise."""
        one = Steps(1.0, 1.0, self.rate, True)
        return independent_reach(dict.fromkeys(range(rows.shape[1]), one), rows, outside)

    def reach_by_variance(self, variances: FloatArray, outside: float) -> FloatArray:
        """Return the bounds of Laplace noise, which is this noise and some more."""
        on_the_line = 2 / self.rate**2
        return np.asarray(
            laplace_spread(outside) * np.sqrt(variances * (on_the_line / self.variance))
        )

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        return geometric_sample(generator, np.full(p, self.rate), size)

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws it."""
        return IntegerNoise("laplace", unit / Fraction(self.rate))


def geometric_variance(rate: float) -> float:
    """Return the variance of geometric noise: 2q / (1 − q)², which is 1 / (2 sinh²(rate/2))."""
    return 0.5 / math.sinh(rate / 2) ** 2 if rate < 1400 else 0.0


def geometric_sample(generator: np.random.Generator, rates: FloatArray, size: int) -> FloatArray:
    """Draw geometric noise of these rates for simulation, one row per draw."""
    stop, shape = -np.expm1(-rates), (size, len(rates))
    drawn = generator.geometric(stop, shape) - generator.geometric(stop, shape)
    return np.asarray(drawn, dtype=float)
