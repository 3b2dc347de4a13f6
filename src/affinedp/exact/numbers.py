"""How numbers are read: as the short decimal or fraction they stand for, else as what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from affinedp.arrays import Matrix, dense

# Rows of a matrix: column to nonzero coefficient.
Rows = Sequence[Mapping[int, Fraction]]

# A float with at most this many significant decimal digits is taken as that decimal.
EXACT_DIGITS = 12
# Doubles nearest to a fraction with at most this denominator are read as that fraction.
MOST_DENOMINATOR = 10_000


def readable(value: float) -> Fraction:
    """Return the number that a double stands for: a short fraction or decimal, else itself.

    Examples
    --------
    >>> readable(1 / 3), readable(-0.07), readable(2.0**-60) == Fraction(1, 2**60)
    (Fraction(1, 3), Fraction(-7, 100), True)
    """
    exact = Fraction(value)
    short = exact.limit_denominator(MOST_DENOMINATOR)
    if float(short) == value:
        return short
    decimal = Fraction(repr(float(value)))
    return decimal if decimal.denominator <= 10**12 else exact


def readable_rows(matrix: Matrix) -> Rows:
    """Return the rows of a matrix of doubles as the numbers that they stand for."""
    return [{int(j): readable(float(row[j])) for j in np.flatnonzero(row)} for row in dense(matrix)]


def short_decimals(values: Iterable[float]) -> list[Fraction] | None:
    """Return integers and short decimals as rationals, or None if any number is neither.

    Examples
    --------
    >>> short_decimals([0.1, 3.0])
    [Fraction(1, 10), Fraction(3, 1)]
    >>> short_decimals([1 / 3]) is None
    True
    """
    known: dict[float, Fraction] = {}
    found = []
    for value in values:
        if value not in known:
            text = repr(value)
            digits = text.split("e")[0].replace(".", "").replace("-", "").strip("0")
            if len(digits) > EXACT_DIGITS and not value.is_integer():
                return None
            known[value] = Fraction(text)
        found.append(known[value])
    return found


@lru_cache(maxsize=4096)
def decimal_or_double(value: float) -> Fraction:
    """Return a number as a rational: as a decimal if it is short, else as the double it is."""
    return exact_numbers([value])[0]


def exact_numbers(values: Iterable[float]) -> list[Fraction]:
    """Return numbers as rationals: as decimals if all are short, else as the doubles they are."""
    given = list(values)
    decimals = short_decimals(given)
    return [Fraction(value) for value in given] if decimals is None else decimals
