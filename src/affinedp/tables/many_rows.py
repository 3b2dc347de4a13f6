"""Sums over rows that are data sets of their own: how far their noise reaches together."""

from __future__ import annotations

import math
from typing import Any

from affinedp.intervals import checked_level
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.refusals import TableError


def half_width_of_sum(design: DesignedNoise, rows: int, level: float) -> Any:
    """Return how far the sum of so many rows is from the true sum, by column.

    Parameters
    ----------
    design : DesignedNoise
        The noise of one row.
    rows : int
        How many are added up.
    level : float
        With at least this probability.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise TableError(f"rows must be a whole number of at least 1, not {rows!r}")
    if design.description.nonnegative:
        raise TableError(
            "numbers that were moved up to 0 do not add up to a sum around the true one: release "
            "without nonnegative, or give the sums rows of their own"
        )
    level = checked_level(level)
    alone = design.half_width(level)
    if rows == 1:
        return alone
    # without rounding, whose error may be the same in every row: it is added as often
    plain = design.half_width(level, rounded=False)
    rounding = (alone - plain) * rows
    if design.mechanism.law == "gaussian":
        return plain * math.sqrt(rows) + rounding
    squares = design.mechanism.expected_squared_errors * design.enlargement**2
    most = design.shaped(squares) * (rows / (1 - level))
    return most**0.5 + rounding
