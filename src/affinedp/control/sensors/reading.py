"""The readings of one step as doubles: refused for their form, never for their value."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number


def readings_of(y: Any, count: int) -> FloatArray:
    """Return one double for each output.

    Numbers that no double holds are rounded to the nearest: to refuse them would tell of them.

    Parameters
    ----------
    y : array_like, shape (count,)
        Real numbers.
    count : int
        How many outputs there are.

    Examples
    --------
    >>> readings_of([3, 2**60 + 1], 2).tolist()
    [3.0, 1.152921504606847e+18]
    """
    if np.ma.is_masked(y):
        raise AffineDPError("y has masked values: fill them or leave them out")
    try:
        given = np.array(y, dtype=object)
    except ValueError:
        raise AffineDPError("y is not an array of numbers") from None
    if given.shape != (count,):
        raise AffineDPError(
            f"y has shape {given.shape}, but must have one number for each of {count} outputs"
        )
    return np.array([_double(item, i) for i, item in enumerate(given)])


def _double(item: Any, place: int) -> float:
    if not is_number(item):
        raise AffineDPError(f"y[{place}] is not a real number but {type(item).__name__}")
    try:
        value = float(item)
    except OverflowError:
        return sys.float_info.max if item > 0 else -sys.float_info.max
    except ValueError:  # Decimal knows a NaN that no float can be
        value = math.nan
    if math.isinf(value) and item != value:  # a finite Decimal or longdouble
        return math.copysign(sys.float_info.max, value)
    if not math.isfinite(value):
        raise AffineDPError(f"y[{place}] is no finite number")
    return value
