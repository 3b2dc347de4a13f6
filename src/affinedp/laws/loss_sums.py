"""Sums of privacy losses that take a few values each: releases together, in closed form.

The loss of one pair of three atoms is +ε, 0 or −ε, so that of k of them is jε with −k ≤ j ≤ k, and
of several kinds a sum of such numbers.  With any further, independent release of curve δ,

    δ(ε) = Σ_l P(l) δ(ε − l),

where δ(−e) = 1 − e^(−e) + e^(−e) δ(e) for a symmetric pair.  Losses are rounded up, and so are
their probabilities: both only make δ larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.laws.pure_curves import EPS, ThreeAtoms

# Losses are multiples of about the largest one times 2^-GRID_BITS, so that equal ones meet.
GRID_BITS = 40
# Sums of so many values are added up, and so many of one kind.
MOST_VALUES = 1 << 20
MOST_ALIKE = 3000
# With another release there is more to compute for each value.
MOST_WITH_OTHERS = 1 << 16
# Relative, for sums by pairs of up to 2^20 terms of a few roundings each; and what underflows.
ROUNDING = 1e-12
LOST = 1e-290

# δ of a further release at ε ≥ 0, for an array.
Others = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class LossSum:
    """The law of a sum of losses, from above.

    Attributes
    ----------
    values : array
        The losses, none below the true one.
    weights : array
        Their probabilities, none below the true one.
    """

    values: FloatArray
    weights: FloatArray

    def delta(self, epsilon: float, others: Others | None = None) -> float:
        """Return δ at ε, never below the true one.

        Examples
        --------
        >>> from affinedp.laws.calibration import gaussian_delta
        >>> ten = loss_sum({ThreeAtoms(0.5): 10})
        >>> round(ten.delta(3.0), 4), round(ten.delta(3.0, lambda e: gaussian_delta(e, 0.2)), 4)
        (0.041, 0.0525)
        """
        if others is None:
            kept = self.values > epsilon
            terms = self.weights[kept] * -np.expm1(epsilon - self.values[kept])
        else:
            left = epsilon - self.values
            curve = others(np.abs(left))
            with np.errstate(under="ignore"):
                below = -np.expm1(np.minimum(left, 0.0)) + np.exp(np.minimum(left, 0.0)) * curve
            terms = self.weights * below  # at ε − l ≥ 0 this is the curve
        return min(1.0, float(terms.sum()) * (1 + ROUNDING) + LOST)


def loss_sum(pairs: Mapping[ThreeAtoms, int], most: int = MOST_VALUES) -> LossSum | None:
    """Return the law of the sum of all losses, or None where it has too many values."""
    if not pairs or max(pairs.values()) > MOST_ALIKE:
        return None
    total = sum((Fraction(pair.sensitivity) * count for pair, count in pairs.items()), Fraction(0))
    if not 0 < total < 10**9:
        return None
    unit = Fraction(2) ** (math.frexp(float(total))[1] - GRID_BITS)
    places: IntArray = np.zeros(1, dtype=np.int64)
    weights: FloatArray = np.ones(1)
    # the kinds with few values first, while sums may still meet
    for pair, count in sorted(pairs.items(), key=lambda item: item[1]):
        step = Fraction(pair.sensitivity) / unit
        own = np.array([math.ceil(j * step) for j in range(-count, count + 1)], dtype=np.int64)
        if len(places) * len(own) > 4 * most:
            return None
        sums = (places[:, None] + own).ravel()
        products = np.outer(weights, _power(_atoms(pair), count)).ravel()
        places, where, times = np.unique(sums, return_inverse=True, return_counts=True)
        rounding = 1 + (int(times.max()) + 4) * EPS
        weights = np.asarray(np.bincount(where.ravel(), products) * rounding, dtype=float)
        if len(places) > most:
            return None
    return LossSum(np.asarray(places * float(unit), dtype=float), weights)


def _atoms(pair: ThreeAtoms) -> FloatArray:
    """Probabilities of −ε, 0 and ε, from above."""
    top = pair.probability
    low = top * math.exp(-pair.sensitivity) * (1 + 8 * EPS)
    middle = 0.0 if pair.top is None else max(0.0, 1 - top - low) + 8 * EPS
    return np.array([low, middle, top])


def _power(atoms: FloatArray, count: int) -> FloatArray:
    """The law of the sum of ``count`` losses, from above: convolutions of what is not negative."""
    found, power, left = np.ones(1), atoms, count
    while True:
        if left % 2:
            found = _convolved(found, power)
        left //= 2
        if not left:
            return found
        power = _convolved(power, power)


def _convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    # an entry is a sum of so many products, each rounded once
    terms = min(len(first), len(second))
    return np.asarray(np.convolve(first, second) * (1 + (terms + 4) * EPS))
