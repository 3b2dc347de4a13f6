"""Integer noise for releases: many proposals at once, in whole numbers of 64 bits.

A proposal is a row of words, and all rows take the same steps.  The threshold 2ᵏ e^(−y) / limit is
computed in units of 2⁻³², with an error of less than ``SLACK`` units.  Where the uniform's
first word is further from it than that, the proposal is decided.  Otherwise, and where the first
word does not tell the cell, :func:`affinedp.laws.sampler.reference.proposal` decides, from the
same row and further words.  docs/explanation/noise-sampler.md adds up the errors.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from struct import Struct
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.sampler.reference import IntegerLaw, exp_minus, proposal, row_length
from affinedp.laws.sampler.words import WORD_BITS, Random, Source, Words, system_bytes
from affinedp.parts import Locked

Units = NDArray[np.uint64]  # multiples of 2^-32
Truths = NDArray[np.bool_]

UNIT = 1 << WORD_BITS
SHIFT = np.uint64(WORD_BITS)
# A product of this and 2^32 fits in 64 bits, so thresholds and tables stop here.
LARGEST = UNIT - 1
# The errors of a threshold add up to less than 200 units.
SLACK = 256
# The first bit of a word is the sign; the ones that follow say the cell, unless all 31 are ones.
CELLS = WORD_BITS - 1
# e^(−g) = e^(−a/32) e^(−r) with a whole number a and r < 1/32; at g ≥ 32 it is less than a unit.
REST_BITS = WORD_BITS - 5
PARTS = 32 * 32
# 1/n! for the series of e^(−r); the next term is about a unit.
SERIES = (UNIT, UNIT, UNIT // 2, UNIT // 6, UNIT // 24)
# (k + 1) 2^m ≤ 2^62 for the cells that are known here: such sizes fit in 64 bits.
NARROW = 57
# Temporary arrays of so many rows stay in the processor's cache.
BLOCK = 1 << 13


def _falling() -> Units:
    """e^(−a/32) for all a, too small by less than 2 units."""
    bits = 3 * WORD_BITS
    factor = exp_minus(Fraction(1, 32), bits)[0]
    value, values = 1 << bits, []
    for _ in range(PARTS):
        values.append(min(value >> (bits - WORD_BITS), LARGEST))
        value = value * factor >> bits
    return np.array(values, dtype=np.uint64)


FALLING = _falling()


@dataclass(frozen=True, eq=False)
class Thresholds(Locked):
    """What the rows of one law are compared with, in units.

    With x = j / 2^m and w = 2^m / scale, it is ``tops[k] · e^(−g)``, where
    g = (w²/2) x (2k + x) for the Gaussian and g = w x for the Laplace.
    """

    tops: Units  # 2ᵏ e^(−y) / limit at the first integer of cell k, too small by less than 5 units
    half: np.uint64  # w²/2 for the Gaussian, w/2 for the Laplace, rounded down; below 0.72
    quadratic: bool  # whether the law is the Gaussian

    @classmethod
    def of(cls, law: IntegerLaw) -> Thresholds:
        """Prepare a law."""
        tops = []
        for k in range(CELLS):
            low = exp_minus(law.exponent(k << law.cell_bits), WORD_BITS + k)[0]  # has the 2^k
            tops.append(min(int(low / law.limit), LARGEST))
        quadratic = law.name == "gaussian"
        half = law.exponent(1 << law.cell_bits) / (1 if quadratic else 2)
        # in a cell of one integer x is 0, and half is not used
        units = int(half * UNIT) if law.cell_bits else 0
        return cls(np.array(tops, dtype=np.uint64), np.uint64(units), quadratic)

    def at(self, k: Units, x: Units) -> Units:
        """Return thresholds, with an error of less than ``SLACK``."""
        # every product is one of two factors of at most 32 bits, or 2^32 and one below 2^32
        part = (x * self.half) >> SHIFT
        g = ((part * x) >> SHIFT) + part * (k + k) if self.quadratic else part + part
        r = g & np.uint64((1 << REST_BITS) - 1)
        power = np.full_like(r, SERIES[-1])
        for coefficient in SERIES[-2::-1]:
            power = np.uint64(coefficient) - ((power * r) >> SHIFT)
        a = np.minimum(g >> np.uint64(REST_BITS), np.uint64(PARTS - 1))
        power = (power * FALLING[a.astype(np.intp)]) >> SHIFT
        return np.asarray((power * self.tops[k.astype(np.intp)]) >> SHIFT)


def draws(law: IntegerLaw, thresholds: Thresholds, count: int, random: Random) -> NDArray[Any]:
    """Return integers of the law: of 64 bits if all of them fit, else Python integers."""
    length = row_length(law)
    parts = [np.zeros(0, dtype=np.int64)]
    missing = count
    while missing:
        rows = min(BLOCK, 8 + 4 * missing)
        words = random.words(rows * length).reshape(rows, length)
        parts.append(accepted(law, thresholds, words, random)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def accepted(law: IntegerLaw, thresholds: Thresholds, rows: Words, random: Random) -> NDArray[Any]:
    """Return the integers that are accepted, in the order of the rows."""
    k, negative, x = places(law, rows)
    keep, left_open = decided(law, thresholds, rows, k, negative, x)
    by_reference = {
        int(row): proposal(law, rows[row].tolist(), lambda: int(random.words(1)[0]))
        for row in np.flatnonzero(left_open)
    }
    for row, number in by_reference.items():
        keep[row] = number is not None
    chosen = np.flatnonzero(keep)
    numbers = _signed(law, k[chosen], negative[chosen], rows[chosen, 1:-1])
    known = {place: by_reference[int(chosen[place])] for place in np.flatnonzero(left_open[chosen])}
    if any(abs(number) >= 1 << 63 for number in known.values() if number is not None):
        numbers = numbers.astype(object)
    for place, number in known.items():
        numbers[place] = number
    return numbers


def places(law: IntegerLaw, rows: Words) -> tuple[Units, Truths, Units]:
    """Return the cell, at most ``CELLS``; whether the sign is −; and the first 32 bits of x."""
    first = rows[:, 0]
    zeros = ~first & np.uint32(LARGEST >> 1)
    # the ones before the first zero; a double holds 31 bits exactly
    k = (CELLS - np.frexp(zeros.astype(np.float64))[1]).astype(np.uint64)
    x = np.zeros_like(k)
    if law.cell_bits:
        unused = np.uint64(max(0, WORD_BITS - law.cell_bits))
        x = rows[:, 1].astype(np.uint64) >> unused << unused
    return k, first > LARGEST >> 1, x


def decided(
    law: IntegerLaw, thresholds: Thresholds, rows: Words, k: Units, negative: Truths, x: Units
) -> tuple[Truths, Truths]:
    """Return which rows are accepted for certain, and which are left open."""
    uniform = rows[:, -1].astype(np.uint64)
    threshold = thresholds.at(np.minimum(k, np.uint64(CELLS - 1)), x)
    keep = uniform + np.uint64(SLACK + 1) <= threshold
    left_open = ~keep & (uniform < threshold + np.uint64(SLACK))
    left_open |= k == CELLS
    # zero has one sign only; x = 0 is known for certain if one word holds all of j
    zero = negative & (k == 0) & (x == 0)
    if law.cell_bits <= WORD_BITS:
        return keep & ~left_open & ~zero, left_open & ~zero
    left_open |= zero
    return keep & ~left_open, left_open


def _signed(law: IntegerLaw, k: Units, negative: Truths, words: Words) -> NDArray[Any]:
    """± (k · 2^m + j), of 64 bits where that is wide enough."""
    unused = WORD_BITS * words.shape[1] - law.cell_bits
    if law.cell_bits <= NARROW:
        j = np.zeros_like(k)
        for word in words.T:
            j = (j << SHIFT) | word
        sizes = ((k << np.uint64(law.cell_bits)) | (j >> np.uint64(unused))).astype(np.int64)
    else:  # the cell and the words, one after the other, are the digits of the size
        digits = np.column_stack([k, words]).astype(">u4")
        strings = digits.view(f"V{digits.shape[1] * WORD_BITS // 8}").ravel().tolist()
        sizes = np.empty(len(k), dtype=object)
        sizes[:] = [int.from_bytes(string, "big") >> unused for string in strings]
    return np.where(negative, -sizes, sizes)


# Who draws: this room's sampler, or OpenDP's, which is the reference.
Sampler = Literal["bulk", "opendp"]


def checked_sampler(sampler: str) -> Sampler:
    """Return who draws, or refuse what is no sampler or not installed, before any charge."""
    if sampler == "bulk":
        return "bulk"
    if sampler == "opendp":
        if find_spec("opendp") is None:
            raise MissingExtraError("opendp", "opendp")
        return "opendp"
    raise AffineDPError(f"sampler must be 'bulk' or 'opendp', not {sampler!r}")


class IntegerNoise:
    """Independent integers with P(i) ∝ exp(−i² / (2 scale²)), or ∝ exp(−|i| / scale).

    The law is exact, over all integers, for every scale: no value is clamped, rounded or left
    out, and no branch is taken on doubt.  Randomness is the operating system's (``os.urandom``)
    unless another source is given; nothing is kept from one draw to the next.

    Numbers are drawn by rejection, in blocks whose size depends on how many are still missing
    and on nothing else.  How many proposals are rejected is independent of the numbers drawn, and
    all proposals take the same steps, except about one in eight million that is decided in
    exact arithmetic.  Building the Python integers takes longer for longer ones.  So time says
    how many proposals were made, which tells nothing, and very little more; it is not constant.
    """

    __slots__ = ("_law", "_thresholds")

    def __init__(self, law: str, scale: int | Fraction) -> None:
        self._law = IntegerLaw.of(law, scale)
        self._thresholds = Thresholds.of(self._law)

    def __repr__(self) -> str:
        return f"IntegerNoise({self._law.name!r}, {self._law.scale!r})"

    @property
    def law(self) -> IntegerLaw:
        """What is drawn."""
        return self._law

    def draw(self, size: int | tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Draw fresh numbers."""
        return self.draw_narrow(size, source).astype(object)

    def draw_narrow(
        self, size: int | tuple[int, ...], source: Source = system_bytes
    ) -> NDArray[Any]:
        """Draw fresh numbers, of 64 bits where all of them fit: for whom sums cannot overflow.

        Examples
        --------
        >>> IntegerNoise("gaussian", 2**40).draw_narrow(3).dtype
        dtype('int64')
        """
        shape = _shape(size)
        drawn = draws(self._law, self._thresholds, math.prod(shape), Random(source))
        return drawn.reshape(shape)


def drawn_integers(
    noise: Any, size: tuple[int, ...], source: Source, narrow: bool = False
) -> NDArray[Any]:
    """Draw with any sampler; with ``narrow`` in 64 bits, where it can and all numbers fit.

    What a law of one's own draws is added as it is: one number for all rows, which NumPy would
    repeat, tells how they differ, and what is not whole is off the grid.
    """
    by = getattr(noise, "draw_narrow", None) if narrow else None
    drawn = (by or noise.draw)(size, source)
    if type(drawn) is not np.ndarray or drawn.shape != size or not _are_integers(drawn):
        of = f" of {drawn.dtype}, shape {drawn.shape}" if isinstance(drawn, np.ndarray) else ""
        raise AffineDPError(
            f"{type(noise).__name__} must draw an array of integers, shape {size}, and drew "
            f"{type(drawn).__name__}{of}: nothing is published"
        )
    return drawn if by and drawn.dtype == np.int64 else drawn.astype(object, copy=False)


def _are_integers(drawn: NDArray[Any]) -> bool:
    if drawn.dtype == object:
        return set(map(type, drawn.ravel().tolist())) <= {int}
    return drawn.dtype.kind in "iu"


@dataclass(frozen=True)
class StackedNoise:
    """Noise of several samplers, one below the other."""

    # each with the number of rows that it draws
    parts: tuple[tuple[Any, int], ...]

    def draw(self, size: tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Draw fresh numbers."""
        return self.draw_narrow(size, source).astype(object)

    def draw_narrow(self, size: tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Draw fresh numbers, of 64 bits where all of them fit."""
        return np.concatenate(
            [drawn_integers(noise, (rows, *size[1:]), source, True) for noise, rows in self.parts]
        )


def draw_integers(
    law: str, scale: int | Fraction, size: int | tuple[int, ...], source: Source = system_bytes
) -> NDArray[Any]:
    """Draw integers once; who draws often keeps an :class:`IntegerNoise`, which is quicker."""
    return IntegerNoise(law, scale).draw(size, source)


def _shape(size: Any) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(n) for n in (size if isinstance(size, tuple) else (size,)))
    except TypeError:
        raise AffineDPError(f"size must be an int or a tuple of ints, not {size!r}") from None
    if min(shape, default=0) < 0:
        raise AffineDPError(f"size must not be negative: {size!r}")
    return shape


# ---------------------------------------------------------------------- one number at a time


_FALLING = tuple(int(value) for value in FALLING)


class SingleNoise:
    """Draws what :class:`~affinedp.laws.sampler.IntegerNoise` would from the same words of 32 bits.

    A few numbers take a tenth of the time that arrays do.  As there, how many proposals are
    rejected is independent of the number, and all take the same steps.
    """

    def __init__(self, law: str, scale: int | Fraction) -> None:
        self._law = IntegerLaw.of(law, scale)
        made = Thresholds.of(self._law)
        self._tops = tuple(int(value) for value in made.tops)
        self._half, self._quadratic = int(made.half), made.quadratic
        self._row = Struct(f"<{row_length(self._law)}I")

    def draw(self, source: Source) -> int:
        """Return one integer of the law."""
        while True:
            number = self._proposal(self._row.unpack(source(self._row.size)), source)
            if number is not None:
                return number

    def _proposal(self, row: tuple[int, ...], source: Source) -> int | None:
        first, bits = row[0], self._law.cell_bits
        k = CELLS - (~first & (LARGEST >> 1)).bit_length()
        j = 0
        for word in row[1:-1]:
            j = (j << WORD_BITS) | word
        j >>= WORD_BITS * (len(row) - 2) - bits
        x = j >> (bits - WORD_BITS) if bits >= WORD_BITS else j << (WORD_BITS - bits)
        threshold = self._threshold(min(k, CELLS - 1), x)
        size = (k << bits) + j
        if k == CELLS or size == 0 or abs(row[-1] - threshold) <= SLACK:
            return proposal(self._law, row, lambda: int.from_bytes(source(4), "little"))
        if row[-1] > threshold:
            return None
        return -size if first >> (WORD_BITS - 1) else size

    def _threshold(self, k: int, x: int) -> int:
        """As :meth:`Thresholds.at`."""
        part = (x * self._half) >> WORD_BITS
        g = ((part * x) >> WORD_BITS) + part * 2 * k if self._quadratic else 2 * part
        r = g & ((1 << REST_BITS) - 1)
        power = SERIES[-1]
        for coefficient in SERIES[-2::-1]:
            power = coefficient - ((power * r) >> WORD_BITS)
        power = (power * _FALLING[min(g >> REST_BITS, PARTS - 1)]) >> WORD_BITS
        return (power * self._tops[k]) >> WORD_BITS
