"""How numbers are read: as the short decimal or fraction they stand for, else as what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_sparse

# Rows of a matrix: column to nonzero coefficient.
Rows = Sequence[Mapping[int, Fraction]]

# A float with at most this many significant decimal digits is taken as that decimal.
EXACT_DIGITS = 12
# Doubles nearest to a fraction with at most this denominator are read as that fraction.
MOST_DENOMINATOR = 10_000


# A double m·2^e with an odd m below this is exactly that.
SHORT_BINARY = 2**32
# Decimals that a double stands for: people write up to 12 digits, and 15 always come back.
WRITTEN_DIGITS, KEPT_DIGITS = 12, 15
# Fractions that a double stands for.  No decimal of 12 digits has the same nearest double as
# another number p/q with q up to 4,000 (they differ by 1/(q·10^k), more than half a unit in the
# last place), and no two such fractions have, with p up to 10^12.
LARGEST_DENOMINATOR = 4_000
LARGEST_NUMERATOR = 10**12


@lru_cache(maxsize=1 << 16)
def meaning(value: float) -> Fraction:
    """Return the one number that a double stands for, whatever it is asked for.

    A short binary number is itself.  Otherwise a double stands for the decimal (up to 15 digits) or
    fraction (denominator up to 4,000) that it is the nearest double to, if there is one; and if
    there is none, for exactly the binary number that it is.

    Examples
    --------
    >>> meaning(0.1), meaning(1 / 3), meaning(2.5)
    (Fraction(1, 10), Fraction(1, 3), Fraction(5, 2))
    >>> meaning(0.1 + 0.2) == Fraction(0.1 + 0.2)
    True
    """
    exact = Fraction(value)
    odd = exact.numerator // (exact.numerator & -exact.numerator) if value else 0
    if exact.denominator == 1 or abs(odd) < SHORT_BINARY:
        return exact
    for digits in (WRITTEN_DIGITS, KEPT_DIGITS):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            return Fraction(text)
        if digits == WRITTEN_DIGITS:
            short = exact.limit_denominator(LARGEST_DENOMINATOR)
            if abs(short.numerator) <= LARGEST_NUMERATOR and float(short) == value:
                return short
    return exact


def nonzeros(matrix: Matrix) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows, columns and values of the nonzero coefficients."""
    if is_sparse(matrix):
        entries = matrix.tocoo()
        kept = entries.data != 0
        return entries.row[kept], entries.col[kept], entries.data[kept]
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column]


def given_rows(matrix: Matrix) -> list[dict[int, Fraction]]:
    """Return the rows of a matrix of doubles as the numbers that they stand for."""
    rows: list[dict[int, Fraction]] = [{} for _ in range(matrix.shape[0])]
    row, column, values = nonzeros(matrix)
    for i, j, value in zip(row.tolist(), column.tolist(), values.tolist()):
        rows[i][j] = meaning(value)
    return rows


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
