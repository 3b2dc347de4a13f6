"""Geometric noise of several rates: one rate for each part of the coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Matrix, dense, is_sparse
from affinedp.errors import AffineDPError
from affinedp.laws.base import EPS, NOTHING_KNOWN, Gauges, Law, Moves, Sampler
from affinedp.laws.curves import Curve
from affinedp.laws.laplace import geometric_sample, geometric_variance
from affinedp.laws.pure_curves import ThreeAtoms
from affinedp.laws.reach import Reach
from affinedp.laws.reach_sums import sparse_rows
from affinedp.laws.reach_whole import whole_sum_reach
from affinedp.laws.sampler.noise import IntegerNoise
from affinedp.laws.sampler.words import Source, system_bytes


@dataclass(frozen=True, eq=False)
class Geometrics(Law):
    """Independent whole numbers with P(z) ∝ e^(−rate |z|), one rate for each part.

    Attributes
    ----------
    rates : tuple of float
        One per part, positive.
    times : tuple of int
        How many coordinates each part has; they stand side by side.

    Examples
    --------
    >>> law = Geometrics((1.0, 0.5), (2, 1))
    >>> law.size, law.gauge([Fraction(1), Fraction(0), Fraction(-2)])
    (3, Fraction(2, 1))
    """

    kind = "geometrics"
    words, theorem = "geometric", "the triangle inequality"
    whole = True
    rates: tuple[float, ...]
    times: tuple[int, ...]

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

    @cached_property
    def _variances(self) -> FloatArray:
        return np.repeat([geometric_variance(rate) for rate in self.rates], self.times)

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ η``."""
        squares = rows.multiply(rows) if is_sparse(rows) else rows * rows
        return np.asarray(squares @ self._variances).ravel()

    def covariance(self, rows: Matrix) -> FloatArray:
        """Return the covariance of ``rows @ η``."""
        wide = dense(rows)
        return np.asarray((wide * self._variances) @ wide.T)

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of sums of geometric noise."""
        given = sparse_rows(rows)
        found = np.zeros(given.shape[0])
        for i in range(given.shape[0]):
            own = slice(given.indptr[i], given.indptr[i + 1])
            pairs = np.abs(given.data[own]), self.by_coordinate[given.indices[own]]
            different, times = np.unique(np.array(pairs), axis=1, return_counts=True)
            found[i] = whole_sum_reach(different[0], different[1], times.astype(float), outside)
        return found, "from the law of sums of geometric noise; never too short"

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        return geometric_sample(generator, self.by_coordinate, size)

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws all parts."""
        return _Parts(
            [IntegerNoise("laplace", unit / Fraction(rate)) for rate in self.rates], self.times
        )


@dataclass(frozen=True)
class _Parts:
    """Draws every part by itself."""

    parts: list[IntegerNoise]
    times: tuple[int, ...]

    def draw(self, size: tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Return integers of any size, in an object array."""
        return self.draw_narrow(size, source).astype(object)

    def draw_narrow(self, size: tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Return integers of 64 bits where all of them fit."""
        drawn = [
            part.draw_narrow((count, *size[1:]), source)
            for part, count in zip(self.parts, self.times)
        ]
        return np.concatenate(drawn)
