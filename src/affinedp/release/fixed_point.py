"""Exact products of fixed-point matrices with floating-point data.

``A @ x`` for an integer matrix A and integers x of any size, computed exactly with ordinary
matrix products: both are cut into limbs so short that no partial sum rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

MANTISSA = 53
# Data larger than this many grid steps (2^LARGEST) would take thousands of limbs.
LARGEST = 2_000

BigIntegers = NDArray[Any]  # Python integers in an object array


@dataclass(frozen=True)
class FixedPoint:
    """A matrix of integers times ``2**exponent``.

    Attributes
    ----------
    limbs : tuple of arrays
        Integer-valued float arrays; the matrix is ``Σ limbs[i] · 2^(i·bits)``.
    bits : int
        Length of a limb.
    exponent : int
        Scale of the whole.
    """

    limbs: tuple[FloatArray, ...]
    bits: int
    exponent: int

    @classmethod
    def rounded(cls, matrix: FloatArray, exponent: int) -> FixedPoint:
        """Round a matrix to multiples of ``2**exponent``.

        Parameters
        ----------
        matrix : array, shape (p, k)
            What to round.
        exponent : int
            The grid: every entry is off by at most ``2**exponent / 2``.
        """
        # products of two limbs, summed over k, stay below 2^53
        bits = (MANTISSA - max(1, math.ceil(math.log2(matrix.shape[1] + 1)))) // 2
        return cls(tuple(_limbs(np.rint(np.ldexp(matrix, -exponent)), bits)), bits, exponent)

    def values(self) -> FloatArray:
        """Return the matrix, which is exact as long as it has at most 53 bits per entry."""
        total = np.zeros_like(self.limbs[0])
        for i, limb in enumerate(self.limbs):
            total = total + np.ldexp(limb, i * self.bits)
        return np.asarray(np.ldexp(total, self.exponent))

    def times(self, steps: FloatArray | BigIntegers) -> BigIntegers:
        """Return ``matrix @ steps`` without its scale, exactly, as Python integers.

        Parameters
        ----------
        steps : array, shape (k, columns)
            Integer-valued floats of any size, or Python integers.
        """
        data = _limbs(steps, self.bits) if steps.dtype != object else _cut(steps, self.bits)
        total: BigIntegers = np.zeros((self.limbs[0].shape[0], steps.shape[1]), dtype=object)
        for level in range(len(self.limbs) + len(data) - 1):
            # at most a thousand products below 2^53 each: they fit in 64 bits
            part = np.zeros(total.shape, dtype=np.int64)
            for i in range(max(0, level + 1 - len(data)), min(level + 1, len(self.limbs))):
                part += (self.limbs[i] @ data[level - i]).astype(np.int64)
            if part.any():
                total = total + part.astype(object) * (1 << (self.bits * level))
        return total


def _limbs(values: FloatArray, bits: int) -> list[FloatArray]:
    """Signed limbs of integer-valued floats, lowest first; every step is exact."""
    largest = float(np.abs(values).max(initial=0.0))
    length = math.frexp(largest)[1]
    if length > LARGEST:
        raise AffineDPError("a number is too large for exact arithmetic; rescale the data")
    sign, size = np.sign(values), np.abs(values)
    limbs = []
    for start in range(0, max(length, 1), bits):
        above = np.floor(np.ldexp(size, -start - bits))
        limb = np.ldexp(size, -start) - np.ldexp(above, bits)
        limbs.append(sign * np.floor(limb))
    return limbs


def _cut(values: BigIntegers, bits: int) -> list[FloatArray]:
    """Signed limbs of Python integers, lowest first."""
    length = max((abs(value).bit_length() for value in values.ravel()), default=0)
    if length > LARGEST:
        raise AffineDPError("a number is too large for exact arithmetic; rescale the data")
    sign = np.where(values < 0, -1.0, 1.0)
    size: BigIntegers = np.asarray(abs(values), dtype=object)
    mask = (1 << bits) - 1
    return [
        sign * ((size >> start) & mask).astype(np.float64)
        for start in range(0, max(length, 1), bits)
    ]


def shifted(values: BigIntegers, exponent: int) -> BigIntegers:
    """Return the integers times ``2**exponent``, rounded to integers (halves up).

    Parameters
    ----------
    values : array of Python integers
        What is scaled.
    exponent : int
        By which power of two.
    """
    if exponent >= 0:
        return values * (1 << exponent)
    half = 1 << (-exponent - 1)
    rounded: BigIntegers = (values + half) >> -exponent
    return rounded
