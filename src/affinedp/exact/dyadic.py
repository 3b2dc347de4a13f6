"""Exact products and combinations of floating-point data, rounded to a grid of powers of two.

``A @ x`` for an integer matrix A and integers x of any size, computed exactly with ordinary
matrix products: both are cut into limbs so short that no partial sum rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import over_one_denominator
from affinedp.exact.rational import BigIntegers

MANTISSA = 53
# Data larger than this many grid steps (2^LARGEST) would take thousands of limbs.
LARGEST = 2_000
AT_ONCE = 2**15
# Numbers that are scaled at once.
NUMBERS_AT_ONCE = 1 << 19
# Sums of 64-bit integers below this do not overflow.
_WORD = 62


@dataclass(frozen=True)
class FixedPoint:
    """A matrix of integers times ``2**exponent``."""

    # Integer-valued float arrays; the matrix is ``Σ limbs[i] · 2^(i·bits)``
    limbs: tuple[FloatArray, ...]
    bits: int  # length of a limb
    exponent: int  # scale of the whole

    @classmethod
    def rounded(cls, matrix: FloatArray, exponent: int) -> FixedPoint:
        """Round a matrix to multiples of ``2**exponent``."""
        # products of two limbs, summed over k, stay below 2^53
        bits = (MANTISSA - max(1, math.ceil(math.log2(matrix.shape[1] + 1)))) // 2
        return cls(tuple(_limbs(np.rint(np.ldexp(matrix, -exponent)), bits)), bits, exponent)

    def values(self) -> FloatArray:
        """Return the matrix, which is exact as long as it has at most 53 bits per entry."""
        total = np.zeros_like(self.limbs[0])
        for i, limb in enumerate(self.limbs):
            total = total + np.ldexp(limb, i * self.bits)
        return np.asarray(np.ldexp(total, self.exponent))

    def times(self, steps: FloatArray | BigIntegers, exponent: int = 0) -> BigIntegers:
        """Return ``2**exponent · matrix @ steps`` without its scale, exactly, as Python integers.

        A negative exponent rounds to integers, halves up.
        """
        # a few columns at a time: what is computed on the way stays in the processor's cache
        width = max(AT_ONCE // max(self.limbs[0].shape[0], steps.shape[0], 1), 1)
        product: BigIntegers = np.empty((self.limbs[0].shape[0], steps.shape[1]), dtype=object)
        for start in range(0, steps.shape[1], width):
            some = slice(start, start + width)
            product[:, some] = self._times(steps[:, some], exponent)
        return product

    def _times(self, steps: FloatArray | BigIntegers, exponent: int) -> BigIntegers:
        data = _limbs(steps, self.bits) if steps.dtype != object else _cut(steps, self.bits)
        parts = []
        for level in range(len(self.limbs) + len(data) - 1):
            # at most a thousand products below 2^53 each: they fit in 64 bits
            part = np.zeros((self.limbs[0].shape[0], steps.shape[1]), dtype=np.int64)
            for i in range(max(0, level + 1 - len(data)), min(level + 1, len(self.limbs))):
                part += (self.limbs[i] @ data[level - i]).astype(np.int64)
            parts.append(part)
        return _assembled(parts, self.bits, exponent)


def _assembled(parts: list[NDArray[np.int64]], bits: int, exponent: int) -> BigIntegers:
    """``Σ parts[i] · 2^(i·bits + exponent)``, rounded halves up, as Python integers.

    Everything but the last few sums happens in 64 bits, since Python integers are slow.
    """
    drop = max(-exponent, 0)
    digits = _carried(parts, bits, drop)
    whole, rest = divmod(drop, bits)
    digits = digits[whole:]
    digits[0] = digits[0] >> rest
    widths = [bits - rest, *[bits] * (len(digits) - 1)]
    total: BigIntegers | None = None
    word, length = digits[-1], 0
    for digit, width in zip(reversed(digits[:-1]), reversed(widths[:-1]), strict=True):
        if total is None:
            length = int(np.abs(word).max(initial=0)).bit_length()
        if length + width <= _WORD:
            word, length = (word << width) + digit, length + width
        else:
            total = _below(total, word, length)
            word, length = digit, width
    total = _below(total, word, length)
    return total * (1 << exponent) if exponent > 0 else total


def _carried(parts: list[NDArray[np.int64]], bits: int, drop: int) -> list[NDArray[np.int64]]:
    """Digits in [0, 2^bits), the last one with the sign; plus half of 2^drop."""
    spare = max(drop // bits + 1 - len(parts), 0) + 64 // bits + 1
    digits = [*parts, *[np.zeros_like(parts[0])] * spare]
    if drop:
        place, bit = divmod(drop - 1, bits)
        digits[place] = digits[place] + (1 << bit)
    for i in range(len(digits) - 1):
        digits[i + 1] = digits[i + 1] + (digits[i] >> bits)
        digits[i] = digits[i] & ((1 << bits) - 1)
    return digits


def _below(total: BigIntegers | None, word: NDArray[np.int64], length: int) -> BigIntegers:
    """``total · 2^length + word``."""
    if total is None:
        return np.asarray(word.astype(object))
    return np.asarray(total * (1 << length) + word.astype(object))


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


@dataclass(frozen=True, eq=False)
class RationalRow:
    """``(Σ_j numerators[j] x[places[j]] − start) / denominator``, all of it whole but x."""

    places: IntArray  # the entries that are read
    numerators: BigIntegers  # one per entry
    denominator: int  # positive
    start: int = 0  # what is taken off

    @classmethod
    def of(cls, row: Mapping[int, Fraction], start: Fraction | None = None) -> RationalRow:
        """Bring a row, and what is taken off the combination, to a common denominator."""
        off = Fraction(0) if start is None else start
        common = math.lcm(off.denominator, *(c.denominator for c in row.values()))
        numerators: BigIntegers = np.empty(len(row), dtype=object)
        numerators[:] = [int(c * common) for c in row.values()]
        return cls(np.array(list(row), dtype=np.intp), numerators, common, int(off * common))

    @property
    def weight(self) -> Fraction:
        """The sum of the absolute coefficients."""
        return Fraction(sum(map(abs, self.numerators.tolist())), self.denominator)

    def rounded(self, points: FloatArray, exponent: int) -> BigIntegers:
        """Return the nearest multiples of ``2**exponent``, ties to even, one per row of points."""
        total, divisor = self._quotient(points, exponent)
        whole, rest = total // divisor, total % divisor
        up = (2 * rest > divisor) | ((2 * rest == divisor) & (whole % 2 == 1))
        return np.asarray(whole + up, dtype=object)

    def whole(self, points: FloatArray) -> BigIntegers | None:
        """Return the combinations themselves if all of them are whole, else None."""
        total, divisor = self._quotient(points, 0)
        return None if np.any(total % divisor) else np.asarray(total // divisor, dtype=object)

    def _quotient(self, points: FloatArray, exponent: int) -> tuple[BigIntegers, int]:
        """Whole numbers and what to divide them by, for steps of ``2**exponent``."""
        values, below = over_one_denominator(points[:, self.places])
        divisor = self.denominator * below << max(exponent, 0)
        more = 1 << max(-exponent, 0)
        start = self.start * below * more
        largest = int(np.abs(values).max(initial=1)) * more
        weight = sum(map(abs, self.numerators.tolist()))
        small = values.dtype != object and (largest * weight + abs(start) + divisor) >> _WORD == 0
        kind: Any = np.int64 if small else object
        return (values.astype(kind) * more) @ self.numerators.astype(kind) - start, divisor


def nearest_steps(values: FloatArray, exponent: int) -> BigIntegers:
    """Return the multiples of ``2**exponent`` nearest to what doubles stand for, halves up."""
    whole, below = over_one_denominator(values)
    twice = whole.astype(object) << max(1 - exponent, 0)
    divisor = below << max(exponent - 1, 0)
    return np.asarray((twice // divisor + 1) // 2, dtype=object)


# ------------------------------------------------------------ whole numbers times whole scales


Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scaled:
    """The integers ``q X``, to which noise Z is added; what comes out is ``(q X + Z) / q``."""

    counts: NDArray[Any] = field(repr=False)  # X, exact: int64, or Python integers of any size
    # positive, of the same shape; or what makes those of some rows, where all would take memory
    q: Integers | Callable[[slice], Integers] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the integers."""
        return self.counts.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        q = self._scales(slice(0, len(self.counts)))
        return np.asarray(self.counts.astype(object) * q.astype(object))

    def __add__(self, drawn: NDArray[Any]) -> FloatArray:
        """Return ``(q X + Z) / q``, some rows at a time."""
        found = np.empty(self.shape)
        step = max(1, NUMBERS_AT_ONCE // max(1, math.prod(self.shape[1:])))
        for start in range(0, len(found), step):
            rows = slice(start, min(start + step, len(found)))
            found[rows] = _quotients(self.counts[rows], self._scales(rows), drawn[rows])
        return found

    def _scales(self, rows: slice) -> Integers:
        return self.q(rows) if callable(self.q) else self.q[rows]


def _quotients(counts: NDArray[Any], q: Integers, drawn: NDArray[Any]) -> FloatArray:
    """``(q X + Z) / q`` from its whole part and its remainder.

    They say no more than q X + Z does: with Z = a q + r and 0 ≤ r < q, the whole part is X + a and
    the remainder r, and nothing wider than X is formed.  (If X + a left the range of 64 bits it
    would wrap around, still as a function of q X + Z alone.)
    """
    below = q
    if counts.dtype.kind == "O" or drawn.dtype.kind == "O":
        counts, q, drawn = (part.astype(object) for part in (counts, q, drawn))
    whole = drawn // q
    rest = drawn - whole * q
    whole = whole + counts
    return np.asarray(whole.astype(float) + rest.astype(float) / below)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Several of them, in shapes of their own: those that need wide integers widen no others."""

    parts: tuple[Scaled, ...] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the integers, below each other."""
        return (sum(part.counts.size for part in self.parts), 1)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.concatenate([np.asarray(part).reshape(-1, 1) for part in self.parts])

    def __add__(self, drawn: NDArray[Any]) -> list[FloatArray]:
        """Return what comes out of every part."""
        ends = np.cumsum([part.counts.size for part in self.parts])[:-1]
        own = np.split(drawn[:, 0], ends)
        return [part + some.reshape(part.shape) for part, some in zip(self.parts, own)]


def wide_product(matrix: Integers, table: NDArray[Any], most: int) -> NDArray[Any]:
    """Return ``matrix @ table`` exactly, for whole numbers of at most ``most`` in the table.

    Wider numbers are taken some bits at a time, so that nothing overflows; how many times is said
    by the bound, and not by the table.

    Examples
    --------
    >>> wide_product(np.array([[3, -2]]), np.array([[2**80], [7]], dtype=object), 2**80).tolist()
    [[3626777458843887524118514]]
    """
    largest = int(np.abs(matrix).max(initial=1))
    step = 62 - largest.bit_length() - len(table).bit_length()
    bits = most.bit_length()
    if bits <= step:
        return np.asarray(matrix @ table.astype(np.int64))
    found: NDArray[Any] = np.zeros((len(matrix), table.shape[1]), dtype=object)
    wide = table.astype(object)
    for shift in range(0, bits, step):
        part = wide >> shift
        if shift + step < bits:
            part = part & ((1 << step) - 1)
        found = found + ((matrix @ part.astype(np.int64)).astype(object) << shift)
    return found
