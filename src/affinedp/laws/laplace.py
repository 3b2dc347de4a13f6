"""Laplace noise (Theorem 2), and its like on whole numbers, geometric noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import EPS, FloatArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.laws.base import NOTHING_KNOWN, Gauges, Law, Moves, Sampler
from affinedp.laws.curves import Curve, LaplaceCurve, ThreeAtoms
from affinedp.laws.reach import Reach, Steps, independent_reach, laplace_spread
from affinedp.laws.sampler.noise import IntegerNoise, StackedNoise


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
        return independent_reach(np.ones(rows.shape[1]), rows, outside)

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
    """P(z) ∝ e^(−rate |z|) on whole numbers."""

    kind = "geometric"
    words, theorem = "geometric", "the triangle inequality"
    norm = 1
    whole = True
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1e6:
            raise AffineDPError("the rate of geometric noise must be positive")

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


# ----------------------------------------------------------------- geometric noise of several rates


@dataclass(frozen=True, eq=False)
class Geometrics(Law):
    """Independent whole numbers with P(z) ∝ e^(−rate |z|), one rate for each part."""

    kind = "geometrics"
    words, theorem = "geometric", "the triangle inequality"
    whole = True
    rates: tuple[float, ...]  # one per part, positive
    times: tuple[int, ...]  # how many coordinates each part has; they stand side by side

    def __post_init__(self) -> None:
        rates, times = tuple(map(float, self.rates)), tuple(map(int, self.times))
        if len(rates) != len(times) or not rates or min(times) < 1:
            raise AffineDPError("geometric noise needs a rate for each of its parts")
        if not all(0 < rate < 1e6 for rate in rates):
            raise AffineDPError("the rates of geometric noise must be positive")
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "times", times)

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many coordinates there are."""
        return sum(self.times)

    @cached_property
    def by_coordinate(self) -> FloatArray:
        """The rate of every coordinate."""
        return np.repeat(self.rates, self.times)

    def gauges(self, columns: FloatArray, doubt: FloatArray | None = None) -> Gauges:
        """Return 1-norms with the rates as weights."""
        found = self.by_coordinate @ np.abs(columns)
        off = 0.0 if doubt is None else self.by_coordinate @ doubt
        more = (off + (len(columns) + 8) * EPS * found) * (1 + 1e-9)
        return Gauges(np.maximum(found - more, 0.0), found + more)

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return the same exactly."""
        return sum((Fraction(r) * abs(v) for r, v in zip(self.by_coordinate, move)), Fraction(0))

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return randomised response: nothing that is purely ε-private is above it."""
        return ThreeAtoms(sensitivity, exact=moves.one_step)

    def depths(self, points: FloatArray) -> FloatArray:
        """Return 1-norms with the rates as weights."""
        return np.asarray(self.by_coordinate @ np.abs(points))

    def at_rate(self, rate: float) -> Geometrics:
        """Return the same law with rates that are so many times as large."""
        return replace(self, rates=tuple(rate * one for one in self.rates))

    def each_variance(self, p: int) -> FloatArray:
        """Return the variance of every coordinate."""
        return np.repeat([geometric_variance(rate) for rate in self.rates], self.times)

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of sums of geometric noise."""
        laws = {i: Steps(1.0, 1.0, rate, True) for i, rate in enumerate(self.by_coordinate)}
        return independent_reach(laws, rows, outside, most=math.inf)

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        return geometric_sample(generator, self.by_coordinate, size)

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws all parts."""
        noise = (IntegerNoise("laplace", unit / Fraction(rate)) for rate in self.rates)
        return StackedNoise(tuple(zip(noise, self.times)))
