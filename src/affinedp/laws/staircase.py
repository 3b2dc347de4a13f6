"""Staircase noise (Geng and Viswanath): a density that falls by e^(−rate) every ``width``.

On |z| in [0, first) the density is highest, and it falls to e^(−rate) of that on
[first, first + width), and so on.  A move by at most ``width`` crosses one step at most, so the
loss is rate, 0 or −rate and nothing else; a longer move crosses ⌈|n| / width⌉.  Several
coordinates are independent.  On whole numbers width and first are whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.base import NOTHING_KNOWN, Gauges, Law, Moves, Sampler
from affinedp.laws.bodies import PartNoise, PartsNoise
from affinedp.laws.curves import Curve, ThreeAtoms
from affinedp.laws.knorm import checked_rate
from affinedp.laws.reach import Reach, Steps, each_of, independent_reach
from affinedp.laws.sampler.bodies import StairsNoise
from affinedp.parts import frozen

# The law on a grid has this much more of the largest loss, at most; releases check it.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Staircase(Law):
    """Independent staircase noise on every coordinate."""

    kind = "staircase"
    words = "staircase"
    theorem = (
        "the staircase mechanism: the density falls by one factor per step, and ε adds up the "
        "steps that a neighbour's move crosses at most"
    )
    variance = 2.0  # about, as that of Laplace noise
    # widths, firsts: of the steps: of all, and of the highest one from the middle; shape (r,)
    widths: Any = field(repr=False)
    firsts: Any = field(repr=False)
    rate: float = 1.0  # by how much the logarithm of the density falls at every step
    whole: bool = False  # whether z is whole

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", checked_rate(self.rate))
        for name in ("widths", "firsts"):
            steps = np.asarray(getattr(self, name), dtype=float)
            object.__setattr__(self, name, frozen(steps))
            if steps.ndim != 1 or not np.all((steps > 0) & np.isfinite(steps)):
                raise AffineDPError("stairs need the width of a step and of the first one")
            if self.whole and np.any(steps != np.rint(steps)):
                raise AffineDPError("stairs on whole numbers have whole widths")
        if self.widths.shape != self.firsts.shape or np.any(self.firsts > self.widths):
            raise AffineDPError("a first step is no wider than the others, and there are as many")

    @classmethod
    def of_root(cls, root: Matrix, rate: float = 1.0, whole: bool = False) -> Staircase:
        """Return noise whose root has the widths of a step and of the first one in every row."""
        steps = np.sort(np.abs(dense(root)), axis=1)[:, -2:]
        if root.shape[1] < 2 or (dense(root) != 0).sum() != 2 * root.shape[0]:
            raise AffineDPError("stairs need the width of a step and of the first one")
        return cls(steps[:, 1], steps[:, 0], rate, whole)

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many coordinates it has."""
        return len(self.widths)

    # -------------------------------------------------------------- what it promises

    @property
    def divisible(self) -> bool:
        """No: a part of a move may cross a step, too."""
        return False

    def gauges(self, columns: FloatArray, doubt: FloatArray | None = None) -> Gauges:
        """Return bounds on rate × how many steps columns cross at most."""
        width, size = self.widths[:, None], np.abs(columns)
        off = 8 * 2.0**-52 * size + (0.0 if doubt is None else doubt)
        lower = np.ceil(np.maximum(size - off, 0.0) / width * (1 - 2.0**-50))
        upper = np.ceil((size + off) / width * (1 + 2.0**-50))
        rate = self.rate
        return Gauges(
            lower.sum(axis=0) * rate * (1 - 2.0**-51), upper.sum(axis=0) * rate * (1 + 2.0**-51)
        )

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return rate × how many steps a move crosses at most, exactly."""
        pairs = zip(move, self.widths.tolist())
        return Fraction(self.rate) * sum(math.ceil(abs(c) / meaning(width)) for c, width in pairs)

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return three atoms: within one step the loss is ε, 0 or −ε."""
        if moves.largest is None or moves.largest > Fraction(self.rate):
            return ThreeAtoms(sensitivity)
        # a move by all of a width is the worst
        return ThreeAtoms(sensitivity, float(self.tops.max()) * (1 + ROUNDING))

    @property
    def tops(self) -> FloatArray:
        """Probability of the loss +rate when a coordinate moves by its width."""
        pairs = zip(self.widths.tolist(), self.firsts.tolist())
        if self.whole:
            return np.array([whole_top(int(w), int(f), self.rate) for w, f in pairs])
        return np.array([real_top(w, f, self.rate) for w, f in pairs])

    def depths(self, points: FloatArray) -> FloatArray:
        """Return rate × how many steps down the columns are."""
        down = (np.abs(points) - self.firsts[:, None]) / self.widths[:, None]
        return np.asarray(self.rate * (np.floor(down) + 1).sum(axis=0))

    # -------------------------------------------------------------- how large it is

    def beside(self, others: Sequence[Law]) -> Staircase:
        """Return staircase noise of all coordinates, which has one rate."""
        parts = [self, *(other for other in others if isinstance(other, Staircase))]
        if any(part.rate != self.rate or part.whole != self.whole for part in parts):
            raise AffineDPError("staircase noise is stacked with noise of the same ε only")
        widths = np.concatenate([part.widths for part in parts])
        firsts = np.concatenate([part.firsts for part in parts])
        return Staircase(widths, firsts, self.rate, self.whole)

    @cached_property
    def variance_of_each(self) -> FloatArray:
        """Variance of every coordinate."""
        pairs = zip(self.widths.tolist(), self.firsts.tolist())
        if self.whole:
            return np.array([whole_variance(int(w), int(f), self.rate) for w, f in pairs])
        return np.array([real_variance(w, f, self.rate) for w, f in pairs])

    def each_variance(self, p: int) -> FloatArray:
        """Return the variance of every coordinate."""
        return self.variance_of_each

    def known_reach(self, rows: Matrix, outside: float) -> Reach | None:
        """Return half widths from the law of sums of independent stairs."""
        return independent_reach(self._steps, rows, outside)

    def known_together(self, rows: Matrix, outside: float, noisy: int) -> Reach | None:
        """Return half widths for numbers that share no noise."""
        return independent_reach(self._steps, rows, each_of(outside, noisy), apart=True)

    @cached_property
    def _steps(self) -> dict[int, Steps]:
        """The laws of the coordinates."""
        pairs = zip(self.widths.tolist(), self.firsts.tolist())
        return {i: Steps(w, f, self.rate, self.whole) for i, (w, f) in enumerate(pairs)}

    # -------------------------------------------------------------- how it is drawn

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw for simulation."""
        drawn = np.zeros((size, p))
        stop, b = -math.expm1(-self.rate), math.exp(-self.rate)
        for i, (width, first) in enumerate(zip(self.widths.tolist(), self.firsts.tolist())):
            left = np.arange(size)
            while len(left):
                high = generator.random(len(left)) < first / (first + b * (width - first))
                inside = np.where(high, 0.0, first)
                inside += generator.random(len(left)) * np.where(high, first, width - first)
                if self.whole:
                    inside = np.floor(inside)
                far = (generator.geometric(stop, len(left)) - 1) * width + inside
                minus = generator.random(len(left)) < 0.5
                kept = ~(minus & (far == 0)) if self.whole else np.full(len(left), True)
                drawn[left[kept], i] = np.where(minus, -far, far)[kept]
                left = left[~kept]
        return drawn

    def sampler(self, unit: int | Fraction = 1) -> Sampler:
        """Return what draws whole numbers: wider steps, ``unit`` times."""
        steps = [
            [int(unit * meaning(c)) for c in own.tolist()] for own in (self.widths, self.firsts)
        ]
        if not self.whole or unit != int(unit):
            raise AffineDPError("staircase noise is drawn on whole numbers: give whole steps")
        noise = StairsNoise(steps[0], steps[1], Fraction(self.rate))
        return PartsNoise((PartNoise(np.arange(self.size), noise),))


# ---------------------------------------------------------------------- formulas of one staircase


# Widths on whole numbers up to which every first step is tried.
MOST_TRIED = 4096


def real_variance(width: float, first: float, rate: float) -> float:
    """Return the variance on real numbers."""
    b, rest = math.exp(-rate), -math.expm1(-rate)
    g = first / width
    # Σ b^k (3k² x + 3k y + z) over the two parts of the k-th period
    parts = []
    for low, high in ((0.0, g), (g, 1.0)):
        x, y, z = high - low, high**2 - low**2, high**3 - low**3
        parts.append(3 * x * b * (1 + b) / rest**3 + 3 * y * b / rest**2 + z / rest)
    density = rest / (2 * (g + b * (1 - g)))
    return 2 * density * (parts[0] + b * parts[1]) / 3 * width**2


def whole_variance(width: int, first: int, rate: float) -> float:
    """Return the variance on whole numbers."""
    b, rest = math.exp(-rate), -math.expm1(-rate)
    sums = [1 / rest, b / rest**2, b * (1 + b) / rest**3]  # Σ b^k k^p
    total = 0.0
    for low, high, weight in ((0, first, 1.0), (first, width, b)):
        count, line = high - low, (high * (high - 1) - low * (low - 1)) / 2
        square = ((high - 1) * high * (2 * high - 1) - (low - 1) * low * (2 * low - 1)) / 6
        total += weight * (
            count * float(width) ** 2 * sums[2] + 2 * width * line * sums[1] + square * sums[0]
        )
    return 2 * total * _at_zero(width, first, rate)


def _at_zero(width: int, first: int, rate: float) -> float:
    """P(0) on whole numbers."""
    b, rest = math.exp(-rate), -math.expm1(-rate)
    return rest / (2 * first + 2 * b * (width - first) - rest)


def best_first(width: float, rate: float) -> float:
    """Return the first step of least variance on real numbers."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda g: real_variance(1.0, g, rate), bounds=(1e-9, 1.0), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    return float(found.x) * width


def best_whole_first(width: int, rate: float) -> int:
    """Return the first step of least variance on whole numbers."""
    tried = range(1, width + 1)
    if width > MOST_TRIED:
        near = round(best_first(float(width), rate))
        tried = range(max(near - 3, 1), min(near + 3, width) + 1)
    return min(tried, key=lambda first: whole_variance(width, first, rate))


def real_top(width: float, first: float, rate: float) -> float:
    """Return the probability of the loss +rate under a shift by ``width``, on real numbers."""
    b, g = math.exp(-rate), first / width
    density = -math.expm1(-rate) / (2 * (g + b * (1 - g)))
    return 0.5 + density * min(g, 1 - g)


def whole_top(width: int, first: int, rate: float) -> float:
    """Return the same on whole numbers."""
    zero = _at_zero(width, first, rate)
    return (1 + zero) / 2 + zero * min(first - 1, width - first)
