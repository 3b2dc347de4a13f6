"""Staircase noise (Geng and Viswanath): a density that falls by e^(−rate) every ``width``.

On |z| in [0, first) the density is highest, and it falls to e^(−rate) of that on
[first, first + width), and so on.  A move by at most ``width`` crosses one step at most, so the
loss is rate, 0 or −rate and nothing else; a longer move crosses ⌈|n| / width⌉.  Several
coordinates are independent.  On whole numbers width and first are whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse
from affinedp.bodies.polytope import Gauges
from affinedp.exact.numbers import readable

# Widths on whole numbers up to which every first step is tried.
MOST_TRIED = 4096


def real_variance(width: float, first: float, rate: float) -> float:
    """Return the variance on real numbers.

    Parameters
    ----------
    width, first : float
        Of a step, and of the highest one from the middle.
    rate : float
        Positive.

    Examples
    --------
    >>> b = np.exp(-1.0)
    >>> least = (2 ** (-2 / 3) * b ** (2 / 3) * (1 + b) ** (2 / 3) + b) / (1 - b) ** 2
    >>> bool(abs(real_variance(1.0, best_first(1.0, 1.0), 1.0) / least - 1) < 1e-12)
    True
    """
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
    """Return the variance on whole numbers.

    Parameters
    ----------
    width, first : int
        Of a step, and how many of 0, 1, 2, … are on the highest one.
    rate : float
        Positive.

    Examples
    --------
    >>> from affinedp.bodies.axes import geometric_variance
    >>> abs(whole_variance(1, 1, 1.0) / geometric_variance(1.0) - 1) < 1e-12
    True
    """
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
    """Return the first step of least variance on real numbers.

    Parameters
    ----------
    width : float
        Of a step.
    rate : float
        Positive.
    """
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda g: real_variance(1.0, g, rate), bounds=(1e-9, 1.0), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    return float(found.x) * width


def best_whole_first(width: int, rate: float) -> int:
    """Return the first step of least variance on whole numbers.

    Parameters
    ----------
    width : int
        Of a step.
    rate : float
        Positive.
    """
    tried = np.arange(1, width + 1)
    if width > MOST_TRIED:
        near = round(best_first(float(width), rate))
        tried = np.clip(np.arange(near - 3, near + 4), 1, width)
    return int(min(tried.tolist(), key=lambda first: whole_variance(width, first, rate)))


def real_top(width: float, first: float, rate: float) -> float:
    """Return the probability of the loss +rate under a shift by ``width``, on real numbers.

    Parameters
    ----------
    width, first, rate : float
        Of the law.
    """
    b, g = math.exp(-rate), first / width
    density = -math.expm1(-rate) / (2 * (g + b * (1 - g)))
    return 0.5 + density * min(g, 1 - g)


def whole_top(width: int, first: int, rate: float) -> float:
    """Return the same on whole numbers.

    Parameters
    ----------
    width, first : int
        Of the law.
    rate : float
        Positive.

    Examples
    --------
    One step is randomised response.

    >>> abs(whole_top(1, 1, 1.0) - 1 / (1 + math.exp(-1))) < 1e-15
    True
    """
    zero = _at_zero(width, first, rate)
    return (1 + zero) / 2 + zero * min(first - 1, width - first)


@dataclass(frozen=True, eq=False)
class StairsPart:
    """Independent staircase noise on every coordinate.

    Attributes
    ----------
    rows : array of int
        Its coordinates.
    widths, firsts : arrays
        Of the steps.
    rate : float
        By how much the logarithm of the density falls at every step.
    integers : bool
        Whether z is whole.
    """

    rows: IntArray
    widths: FloatArray
    firsts: FloatArray
    rate: float
    integers: bool

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of every coordinate."""
        pairs = zip(self.widths.tolist(), self.firsts.tolist())
        if self.integers:
            return np.array([whole_variance(int(w), int(f), self.rate) for w, f in pairs])
        return np.array([real_variance(w, f, self.rate) for w, f in pairs])

    @property
    def tops(self) -> FloatArray:
        """Probability of the loss +rate when a coordinate moves by its width."""
        pairs = zip(self.widths.tolist(), self.firsts.tolist())
        if self.integers:
            return np.array([whole_top(int(w), int(f), self.rate) for w, f in pairs])
        return np.array([real_top(w, f, self.rate) for w, f in pairs])

    @property
    def moment(self) -> Matrix:
        """E zzᵀ."""
        return np.diag(self.variances)

    def errors(self, basis: Matrix) -> FloatArray:
        """Return the variances of ``basis @ z``."""
        squares = basis.multiply(basis) if is_sparse(basis) else basis * basis
        return np.asarray(squares @ self.variances).ravel()

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on how many steps columns cross at most; they may be off by ``doubt``."""
        width = self.widths[:, None]
        off = doubt + 8 * 2.0**-52 * np.abs(moves)
        lower = np.ceil(np.maximum(np.abs(moves) - off, 0.0) / width * (1 - 2.0**-50))
        upper = np.ceil((np.abs(moves) + off) / width * (1 + 2.0**-50))
        return Gauges(lower.sum(axis=0), upper.sum(axis=0))

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return how many steps a move crosses at most, exactly."""
        pairs = zip(move, self.widths.tolist())
        return Fraction(sum(math.ceil(abs(c) / readable(width)) for c, width in pairs))

    def depths(self, points: FloatArray) -> FloatArray:
        """Return how many steps down the columns are."""
        down = (np.abs(points) - self.firsts[:, None]) / self.widths[:, None]
        return np.asarray((np.floor(down) + 1).sum(axis=0))

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw for simulation, shape (size, r)."""
        drawn = np.zeros((size, len(self.rows)))
        stop, b = -math.expm1(-self.rate), math.exp(-self.rate)
        for i, (width, first) in enumerate(zip(self.widths.tolist(), self.firsts.tolist())):
            left = np.arange(size)
            while len(left):
                high = generator.random(len(left)) < first / (first + b * (width - first))
                inside = np.where(high, 0.0, first)
                inside += generator.random(len(left)) * np.where(high, first, width - first)
                if self.integers:
                    inside = np.floor(inside)
                far = (generator.geometric(stop, len(left)) - 1) * width + inside
                minus = generator.random(len(left)) < 0.5
                kept = ~(minus & (far == 0)) if self.integers else np.full(len(left), True)
                drawn[left[kept], i] = np.where(minus, -far, far)[kept]
                left = left[~kept]
        return drawn
