"""Numbers and relations as somebody would write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from affinedp.discovery.relation import Relation


def simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the number in an interval that is shortest to write, as a decimal or a quotient.

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


def written_equation(relation: Relation, names: Sequence[str], alone: int | None = None) -> str:
    """Return a relation as somebody would write it: a total on the left, its parts on the right.

    Examples
    --------
    >>> one = Fraction(1)
    >>> written_equation(Relation({0: one, 1: one, 2: -one}), ["a", "b", "total"])
    'total = a + b'
    >>> written_equation(Relation({0: one, 1: one}, Fraction(-100)), ["yes", "no"])
    'yes + no = 100'
    >>> written_equation(Relation({0: Fraction(195583, 100000), 1: -one}), ["eur", "dem"])
    'dem = 1.95583*eur'
    """
    relation = relation.scaled()
    if alone is None:
        left, scale = _left_side(relation)
    else:
        left, scale = {alone}, relation.coefficients[alone]
    values = {j: value / scale for j, value in relation.coefficients.items()}
    offset = relation.offset / scale
    here = {j: value for j, value in values.items() if j in left}
    there = {j: -value for j, value in values.items() if j not in left}
    return f"{_side(here, Fraction(0), names)} = {_side(there, -offset, names)}"


def _left_side(relation: Relation) -> tuple[set[int], Fraction]:
    """Which terms stand on the left, and what everything is divided by."""
    values = relation.coefficients
    plus = {j for j, value in values.items() if value > 0}
    minus = set(values) - plus
    if not plus or not minus:
        return set(values), Fraction(1 if plus else -1)
    alone = [side for side in (plus, minus) if len(side) == 1]
    if len(alone) == 2:
        # a = 2 b rather than b = 0.5 a
        first, second = sorted(values)
        other = min(
            (second, first), key=lambda j: abs(values[first + second - j] / values[j]).denominator
        )
        return {other}, values[other]
    left = alone[0] if alone else min(plus, minus, key=lambda side: (len(side), min(side)))
    if alone:
        return left, values[next(iter(left))]
    return left, Fraction(1 if left is plus else -1)


def _side(values: Mapping[int, Fraction], constant: Fraction, names: Sequence[str]) -> str:
    text = ""
    for j in sorted(values, key=lambda j: (values[j] < 0, j)):
        size = written_number(abs(values[j]))
        term = names[j] if size == "1" else f"{size}*{names[j]}"
        sign = "-" if values[j] < 0 else "+"
        text += f" {sign} {term}" if text else f"{'-' if sign == '-' else ''}{term}"
    if not text:
        return written_number(constant)
    if constant:
        text += f" {'-' if constant < 0 else '+'} {written_number(abs(constant))}"
    return text


def written_number(value: Fraction) -> str:
    """Return an exact number as a decimal where it is one, otherwise as a quotient.

    Examples
    --------
    >>> written_number(Fraction(5, 4)), written_number(Fraction(-1, 3)), written_number(Fraction(7))
    ('1.25', '-1/3', '7')
    """
    for digits in range(1, 19):
        if value.denominator > 1 and 10**digits % value.denominator == 0:
            whole = str(abs(int(value * 10**digits))).rjust(digits + 1, "0")
            return f"{'-' if value < 0 else ''}{whole[:-digits]}.{whole[-digits:]}"
    return str(value)


def quoted(name: str) -> str:
    """Return a name as equations write it: in backticks unless it is an identifier."""
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
