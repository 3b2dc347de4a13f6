"""Rational combinations of floating-point data, rounded to a grid in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.release.fixed_point import MANTISSA, BigIntegers

# Sums of 64-bit integers below this do not overflow.
WORD = 62


@dataclass(frozen=True, eq=False)
class RationalRow:
    """``(Σ_j numerators[j] x[places[j]] − start) / denominator``, all of it whole but x.

    Attributes
    ----------
    places : array of int
        The entries that are read.
    numerators : array of Python integers
        One per entry.
    denominator : int
        Positive.
    start : int
        What is taken off.
    """

    places: IntArray
    numerators: BigIntegers
    denominator: int
    start: int = 0

    @classmethod
    def of(cls, row: Mapping[int, Fraction], start: Fraction | None = None) -> RationalRow:
        """Bring a row to a common denominator.

        Parameters
        ----------
        row : mapping
            From entries to coefficients.
        start : Fraction, optional
            What is taken off the combination.
        """
        off = Fraction(0) if start is None else start
        common = math.lcm(off.denominator, *(c.denominator for c in row.values()))
        numerators: BigIntegers = np.empty(len(row), dtype=object)
        numerators[:] = [int(c * common) for c in row.values()]
        return cls(np.array(list(row), dtype=np.intp), numerators, common, int(off * common))

    def rounded(self, points: FloatArray, exponent: int) -> BigIntegers:
        """Return the nearest multiples of ``2**exponent``, ties to even, one per row of points.

        Parameters
        ----------
        points : array, shape (rows, k)
            Finite numbers.
        exponent : int
            The grid; 0 if something is taken off.

        Examples
        --------
        >>> row = RationalRow.of({0: Fraction(1, 2), 1: Fraction(1)})
        >>> row.rounded(np.array([[1.0, 2.0], [3.0, 0.25]]), 0).tolist()     # 2.5 and 1.75
        [2, 2]
        """
        total, divisor = self._quotient(points, exponent)
        whole, rest = total // divisor, total % divisor
        up = (2 * rest > divisor) | ((2 * rest == divisor) & (whole % 2 == 1))
        return np.asarray(whole + up, dtype=object)

    def whole(self, points: FloatArray) -> BigIntegers | None:
        """Return the combinations themselves if all of them are whole, else None.

        Parameters
        ----------
        points : array, shape (rows, k)
            Finite numbers.
        """
        total, divisor = self._quotient(points, 0)
        return None if np.any(total % divisor) else np.asarray(total // divisor, dtype=object)

    def _quotient(self, points: FloatArray, exponent: int) -> tuple[NDArray[Any], int]:
        """Whole numbers and what to divide them by, for steps of ``2**exponent``."""
        values = points[:, self.places]
        steps = np.ldexp(values, -exponent)
        largest = np.abs(steps).max(initial=1.0)
        weight = sum(map(abs, self.numerators.tolist())) + self.denominator
        # what is far below the grid comes out as 0
        kept = np.array_equal(steps, np.rint(steps)) and np.array_equal(steps == 0, values == 0)
        if largest < 2.0**WORD and kept:
            reach = (int(largest) + 1) * weight + abs(self.start)
            kind: Any = np.int64 if reach >> (WORD - 1) == 0 else object
            whole = steps.astype(np.int64).astype(kind)
            return whole @ self.numerators.astype(kind) - self.start, self.denominator
        # values are whole numbers of 53 bits, times powers of two
        mantissa, length = np.frexp(values)
        whole = np.ldexp(mantissa, MANTISSA).astype(np.int64).astype(object)
        lowest = int(length.min(where=values != 0, initial=2000)) - MANTISSA
        shift = np.maximum(length - MANTISSA - lowest, 0)
        total = (whole << shift.astype(object)) @ self.numerators
        finer = exponent - lowest
        total = (total << max(-finer, 0)) - (self.start << max(finer, 0))
        return total, self.denominator << max(finer, 0)
