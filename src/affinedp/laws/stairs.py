"""Formulas of one staircase: variance, best first step, and probability of the largest loss."""

from __future__ import annotations

import math

import numpy as np

# Widths on whole numbers up to which every first step is tried.
MOST_TRIED = 4096


def real_variance(width: float, first: float, rate: float) -> float:
    """Return the variance on real numbers.

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

    Examples
    --------
    >>> from affinedp.laws.laplace import geometric_variance
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
    """Return the first step of least variance on real numbers."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda g: real_variance(1.0, g, rate), bounds=(1e-9, 1.0), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    return float(found.x) * width


def best_whole_first(width: int, rate: float) -> int:
    """Return the first step of least variance on whole numbers."""
    tried = np.arange(1, width + 1)
    if width > MOST_TRIED:
        near = round(best_first(float(width), rate))
        tried = np.clip(np.arange(near - 3, near + 4), 1, width)
    return int(min(tried.tolist(), key=lambda first: whole_variance(width, first, rate)))


def real_top(width: float, first: float, rate: float) -> float:
    """Return the probability of the loss +rate under a shift by ``width``, on real numbers."""
    b, g = math.exp(-rate), first / width
    density = -math.expm1(-rate) / (2 * (g + b * (1 - g)))
    return 0.5 + density * min(g, 1 - g)


def whole_top(width: int, first: int, rate: float) -> float:
    """Return the same on whole numbers.

    Examples
    --------
    One step is randomised response.

    >>> abs(whole_top(1, 1, 1.0) - 1 / (1 + math.exp(-1))) < 1e-15
    True
    """
    zero = _at_zero(width, first, rate)
    return (1 + zero) / 2 + zero * min(first - 1, width - first)
