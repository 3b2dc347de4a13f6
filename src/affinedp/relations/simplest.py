"""The number that somebody would have written, somewhere in an interval."""

from __future__ import annotations

import math
from fractions import Fraction


def simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the number in an interval that is shortest to write, as a decimal or a quotient.

    Parameters
    ----------
    low, high : Fraction
        The ends, which belong to it.

    Examples
    --------
    >>> simplest(Fraction(19558, 10**4), Fraction(195584, 10**5))
    Fraction(9779, 5000)
    >>> simplest(Fraction(333, 1000), Fraction(334, 1000)), simplest(Fraction(-1, 9), Fraction(1))
    (Fraction(1, 3), Fraction(0, 1))
    """
    if low > high:
        low, high = high, low
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -simplest(-high, -low)
    quotient = _shortest_quotient(low, high)
    length = math.log2(quotient.numerator) + math.log2(quotient.denominator)
    # people write 1/3 and 1.95583, and seldom 487/249
    seldom = 3.0 if quotient.denominator > 1 else 0.0
    decimal = _shortest_decimal(low, high, length + seldom)
    return quotient if decimal is None else decimal


def _shortest_decimal(low: Fraction, high: Fraction, most: float) -> Fraction | None:
    """The decimal with the fewest digits, if these are shorter than so many binary ones."""
    places = -math.floor(math.log10(high.numerator) - math.log10(high.denominator)) - 1
    while True:
        unit = Fraction(10) ** places
        first = math.ceil(low * unit)
        if first <= high * unit:
            # the roundest of those that fit, then the nearest to the middle
            last = math.floor(high * unit)
            middle = min(max(round((low + high) / 2 * unit), first), last)
            return Fraction(middle) / unit if math.log2(max(middle, 1)) < most else None
        if math.log2(max(first, 1)) > most:
            return None
        places += 1


def _shortest_quotient(low: Fraction, high: Fraction) -> Fraction:
    """The quotient with the least denominator: walk down the Stern–Brocot tree."""
    whole = math.floor(low)
    if whole == low:
        return Fraction(whole) if whole else Fraction(1)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    rest = _shortest_quotient(1 / (high - whole), 1 / (low - whole))
    return whole + 1 / rest
