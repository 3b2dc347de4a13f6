"""Gaussian noise: Theorem 1."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.laws.base import NOTHING_KNOWN, Law, Moves, Sampler
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.laws.curves import Curve, GaussianCurve
from affinedp.laws.reach import Reach, each_of, normal_reach, norms
from affinedp.laws.sampler.noise import IntegerNoise


@dataclass(frozen=True, eq=False)
class Gaussian(Law):
    """N(0, 1)."""

    kind = "gaussian"
    words, theorem = "Gaussian", "Theorem 1"
    norm = 2
    variance = 1.0

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return κ of Theorem 1."""
        return GaussianCurve(sensitivity)

    def limit(self, epsilon: float, delta: float = 0.0) -> float:
        """Return the inverse of κ."""
        return float(gaussian_sensitivity(epsilon, delta))

    def depths(self, points: FloatArray) -> FloatArray:
        """Return half of the squared lengths."""
        return np.asarray((points * points).sum(axis=0) / 2)

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return quantiles of Gaussian numbers."""
        return normal_reach(outside) * norms(dense(rows)), "exact: Gaussian noise"

    def known_together(self, rows: Matrix, outside: float, noisy: int) -> Reach | None:
        """Return Šidák's intervals."""
        reach = normal_reach(each_of(outside, noisy)) * norms(dense(rows))
        return reach, "Šidák: holds for any correlation"

    def reach_by_variance(self, variances: FloatArray, outside: float) -> FloatArray:
        """Return quantiles: a sum of Gaussian numbers is one."""
        return np.asarray(normal_reach(outside) * np.sqrt(variances))

    def each(self, outside: float, count: int) -> float:
        """Return Šidák's share, for any correlation."""
        return each_of(outside, count)

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        return generator.standard_normal((size, p))

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws the discrete Gaussian."""
        return IntegerNoise("gaussian", unit)
