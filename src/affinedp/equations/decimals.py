"""How numbers are read: a short decimal is that decimal, any other double the number that it is."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

# A float with at most this many significant decimal digits is taken as that decimal.
EXACT_DIGITS = 12


def short_decimals(values: Iterable[float]) -> list[Fraction] | None:
    """Return integers and short decimals as rationals, or None if any number is neither.

    Parameters
    ----------
    values : iterable of float
        The numbers.

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
    """Return a number as a rational: as a decimal if it is short, else as the double it is.

    Parameters
    ----------
    value : float
        The number.
    """
    return exact_numbers([value])[0]


def exact_numbers(values: Iterable[float]) -> list[Fraction]:
    """Return numbers as rationals: as decimals if all are short, else as the doubles they are.

    Parameters
    ----------
    values : iterable of float
        The numbers.
    """
    given = list(values)
    decimals = short_decimals(given)
    return [Fraction(value) for value in given] if decimals is None else decimals
