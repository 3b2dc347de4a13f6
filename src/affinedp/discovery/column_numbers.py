"""Numbers as they were written: whole multiples of a unit, exactly.

A column of ``0.1, 0.2, 0.3`` is ``1, 2, 3`` times a tenth, although no double is a tenth.  Then
"holds in every row" is a statement about whole numbers, which has no tolerance.
"""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import counted

# Below this a double is a whole number exactly, and r / 10^k is rounded correctly.
WHOLE = 2**53
MOST_DECIMALS = 22  # 10^22 is the last power of ten that is a double
# A sum of a few decimals in doubles is off by a few units in the last place.
DUST_ULPS = 4.0
DUST_MARGIN = 1e3
# More digits than this were computed and not written.
WRITTEN_DIGITS = 15
MOST_BITS = 4096
DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# What computed numbers of so many bytes are worth: a few of their last digits less than they hold.
PRECISION = {2: Fraction(1, 100), 4: Fraction(1, 10**5), 8: Fraction(1, 10**9)}
SAMPLE = 256
TOO_LONG = "numbers too long to be kept exactly"

_TEXT = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)?(?:\.\d*)?(?:[eE][+-]?\d{1,3})?\s*%?")
_CODE = re.compile(r"[+-]?0\d")
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "-", ".", ".."})

Whole = NDArray[Any]  # int64, or Python integers where those are too short


@dataclass(frozen=True, eq=False)
class Numbers:
    """One column of numbers, each a whole multiple of ``unit``."""

    unit: Fraction  # a tenth, a thousand, or a power of two for computed doubles
    missing: NDArray[np.bool_]
    written: bool  # decimals that somebody wrote; False for computed doubles with all digits
    source: NDArray[Any]  # whole numbers, or doubles from which they are made when first needed
    # of computed numbers: the share of their column's size within which they are right
    precision: Fraction = Fraction(1, 10**9)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def whole(self) -> Whole:
        """The whole numbers; 0 where there is none."""
        return self.whole_at(slice(None))

    def whole_at(self, rows: Any) -> Whole:
        """Return the whole numbers of some rows."""
        if self.source.dtype.kind != "f":
            return np.asarray(self.source[rows])
        if isinstance(rows, slice) and rows == slice(None) and "whole" in self.__dict__:
            return np.asarray(self.__dict__["whole"])
        mantissa, exponent = np.frexp(self.source[rows])
        lowest = 1 - self.unit.denominator.bit_length() or self.unit.numerator.bit_length() - 1
        places = np.maximum(exponent - 53 - lowest, 0).tolist()
        return _objects(
            [m << s for m, s in zip((mantissa * 2.0**53).astype(np.int64).tolist(), places)]
        )

    def take(self, rows: NDArray[np.intp]) -> Numbers:
        """Return the numbers of some rows, in the same unit."""
        return replace(self, missing=self.missing[rows], source=self.source[rows])

    @cached_property
    def approximate(self) -> NDArray[np.float64]:
        """The numbers as doubles; 0 where there is none."""
        if self.source.dtype.kind == "f":
            return self.source
        if self.source.dtype == object:
            return np.array([_double(self.unit * value) for value in self.source], dtype=float)
        return np.asarray(self.source * float(self.unit), dtype=float)

    @cached_property
    def multiplicities(self) -> NDArray[np.intp]:
        """How often the number of each row that has one occurs in the column, in any order."""
        _, count = np.unique(self.source[~self.missing], return_counts=True)
        return np.asarray(np.repeat(count, count), dtype=np.intp)

    @cached_property
    def largest(self) -> int:
        """The largest whole number in size."""
        if self.source.dtype.kind == "f":
            return int(Fraction(float(np.abs(self.source).max(initial=0.0))) / self.unit)
        if not len(self.source):
            return 0
        return max(abs(int(self.source.max())), abs(int(self.source.min())))


def read_numbers(values: Any, missing: NDArray[np.bool_] | None = None) -> Numbers | str:
    """Read one column of any dtype, or say in a few words why it holds no numbers."""
    array = np.asarray(values)
    if array.ndim != 1:
        return "more than one value per row"
    gone = np.zeros(len(array), dtype=bool) if missing is None else np.asarray(missing, dtype=bool)
    kind = array.dtype.kind
    if kind in "biu":
        return _from_whole(array, gone, Fraction(1))
    if kind == "f":
        return _from_doubles(array.astype(np.float64), gone, array.dtype)
    if kind in "mM":
        return "dates or times"
    if kind == "c":
        return "complex numbers"
    return _from_objects(array.astype(object), gone)


def _from_whole(
    whole: Whole, missing: NDArray[np.bool_], unit: Fraction, notes: tuple[str, ...] = ()
) -> Numbers:
    """Whole numbers without their common divisor, which goes into the unit."""
    whole = np.where(missing, 0, whole) if missing.any() else whole
    # -2^63 has no absolute value of its own type
    long = max(abs(int(whole.min(initial=0))), int(whole.max(initial=0))) >= 2**62
    whole = _objects([int(x) for x in whole.tolist()]) if long else whole.astype(np.int64)
    # a few numbers usually settle it
    divisor = int(np.gcd.reduce(whole[:SAMPLE]))
    divisor = divisor if divisor == 1 else int(np.gcd.reduce(whole))
    if divisor > 1:
        whole, unit = whole // divisor, unit * divisor
    return Numbers(unit, missing, True, whole, notes=notes)


def _from_doubles(
    values: NDArray[np.float64], missing: NDArray[np.bool_], given: np.dtype[Any] = DOUBLE
) -> Numbers:
    endless = ~np.isfinite(values)
    notes: tuple[str, ...] = ()
    infinite = int((np.isinf(values) & ~missing).sum())
    if infinite:
        notes = (f"{counted(infinite, 'infinite value')} taken as missing",)
    missing = missing | endless
    values = np.where(missing, 0.0, values)
    hit = _decimals(values, given)
    if hit is None and given == DOUBLE:
        hit = _dusty_decimals(values)
        if hit is not None:
            notes += (f"rounding of doubles beyond {hit[1]} decimals removed",)
    if hit is not None:
        return _from_whole(hit[0], missing, Fraction(1, 10 ** hit[1]), notes)
    long = _long_decimals(values) if given == DOUBLE else None
    if long is not None:
        return _from_whole(long[0], missing, long[1], notes)
    exponent = np.frexp(values)[1]
    lowest = int(exponent[values != 0.0].min()) - 53
    unit = Fraction(2) ** lowest
    precision = PRECISION.get(given.itemsize, PRECISION[8])
    return Numbers(unit, missing, False, values, precision, notes)


def _decimals(values: NDArray[np.float64], given: np.dtype[Any]) -> tuple[Whole, int] | None:
    """Whole numbers and k such that every value is the double nearest to ``whole / 10^k``.

    Both are below 2^53 and 10^k is a double, so the division is rounded correctly.  Shorter
    numbers than doubles must be the nearest of their own kind.
    """
    most = 2.0 ** (np.finfo(given).nmant + 1) if given.itemsize < 8 else WHOLE
    some = values[:: max(1, len(values) // SAMPLE)]
    for part in (some, values):
        for k in range(MOST_DECIMALS + 1):
            with np.errstate(over="ignore"):
                scaled = np.rint(part * 10.0**k)
            if not np.abs(scaled).max(initial=0.0) < most:
                return None
            if np.array_equal((scaled / 10.0**k).astype(given), part.astype(given)):
                if part is values:
                    return scaled.astype(np.int64), k
                break
        else:
            return None
    return None


def _dusty_decimals(values: NDArray[np.float64]) -> tuple[Whole, int] | None:
    """The same for decimals that were added up in doubles: 0.1 + 0.2 is three tenths."""
    dust = DUST_ULPS * math.ulp(float(np.abs(values).max(initial=0.0)))
    for k in range(MOST_DECIMALS + 1):
        if DUST_MARGIN * dust > 10.0**-k:
            return None
        scaled = np.rint(values * 10.0**k)
        if np.all(np.abs(scaled / 10.0**k - values) <= dust):
            return scaled.astype(np.int64), k
    return None


def _long_decimals(values: NDArray[np.float64]) -> tuple[Whole, Fraction] | None:
    """Written decimals of any size, such as 6.022e23 and 1e-300."""
    some = values[:: max(1, len(values) // SAMPLE)]
    for part in (some, values):
        read = [Decimal(repr(x)) for x in part.tolist()]
        if any(len(x.as_tuple().digits) > WRITTEN_DIGITS and abs(x) < WHOLE for x in read):
            # repr writes large whole doubles with zeros, which are no digits of theirs
            return None
        if any(len(_significant(x)) > WRITTEN_DIGITS for x in read):
            return None
    return _common_unit([Fraction(x) for x in read])


def _significant(value: Decimal) -> str:
    return "".join(map(str, value.as_tuple().digits)).strip("0")


def _common_unit(exact: list[Fraction]) -> tuple[Whole, Fraction] | None:
    common = math.lcm(*(x.denominator for x in exact)) if exact else 1
    if common.bit_length() > MOST_BITS:
        return None
    whole = [int(x * common) for x in exact]
    if max((abs(x).bit_length() for x in whole), default=0) > MOST_BITS:
        return None
    return _objects(whole), Fraction(1, common)


def _from_objects(array: NDArray[Any], missing: NDArray[np.bool_]) -> Numbers | str:
    read: list[Any] = []
    texts = False
    for item, gone in zip(array.tolist(), missing.tolist()):
        value = None if gone else item.item() if isinstance(item, np.generic) else item
        if isinstance(value, str):
            value, texts = text_number(value), True
            if value is False:
                return "text"
        if value is None or _is_nothing(value):
            read.append(None)
        elif isinstance(value, bool | numbers.Rational):
            read.append(Fraction(value))
        elif isinstance(value, float):
            read.append(value)
        elif isinstance(value, Decimal):
            if abs(value.adjusted()) > MOST_BITS // 4:
                return TOO_LONG
            read.append(Fraction(value))
        else:
            return "text" if isinstance(item, str) else f"values of type {type(item).__name__}"
    gone = np.array([value is None for value in read])
    if gone.all():
        return "nothing but missing values"
    if not texts and not any(isinstance(value, Fraction) for value in read):
        return _from_doubles(np.array([value or 0.0 for value in read]), gone)
    found = _common_unit(
        [Fraction(repr(x)) if isinstance(x, float) else x or Fraction() for x in read]
    )
    if found is None:
        return TOO_LONG
    return _from_whole(found[0], gone, found[1], ("texts read as numbers",) if texts else ())


def text_number(text: str) -> Fraction | bool | None:
    """Read a number that was written as text; None if missing, False if it is no number.

    Examples
    --------
    >>> text_number("1,234.5"), text_number("n/a"), text_number("007"), text_number("B2")
    (Fraction(2469, 2), None, False, False)
    """
    plain = text.strip()
    if plain.lower() in MISSING_WORDS:
        return None
    if not _TEXT.fullmatch(plain) or not any(c.isdigit() for c in plain) or _CODE.match(plain):
        return False
    digits = plain.rstrip("% ").replace(",", "")
    if len(digits) > MOST_BITS // 4:
        return False
    try:
        return Fraction(digits)
    except ValueError:
        return False


def _is_nothing(value: Any) -> bool:
    """Whether this is one of the many ways to write that there is no number."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Decimal):
        return not value.is_finite()
    return type(value).__name__ in ("NAType", "NaTType")


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
