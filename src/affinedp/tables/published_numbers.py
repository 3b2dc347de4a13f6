"""Published numbers beside their intervals, as texts; and intervals that end at whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from affinedp.intervals import whole_ends
from affinedp.show.page import PublishedNumbers, printable
from affinedp.tables.row_groups import has_no_label


def whole_frames(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Return the ends of intervals as whole numbers; what is known exactly stays as it is.

    Parameters
    ----------
    lower, upper : DataFrames
        The ends.
    """
    import pandas

    low, high = lower.to_numpy(dtype=float), upper.to_numpy(dtype=float)
    first, last = whole_ends(low, high)
    same = low == high
    found = []
    for ends, given in ((np.where(same, low, first), lower), (np.where(same, high, last), upper)):
        frame = pandas.DataFrame(ends, index=given.index, columns=given.columns)
        whole = (ends == np.rint(ends)).all(axis=0) & (np.abs(ends) < 2.0**62).all(axis=0)
        names = [name for name, one in zip(frame, whole.tolist()) if one]
        found.append(frame.astype(dict.fromkeys(names, np.int64)))
    return found[0], found[1]


def published_numbers(
    table: Any, ends: Mapping[Any, tuple[Any, Any]], level: float, most: int
) -> PublishedNumbers:
    """Return a published table as texts, numbers with their intervals.

    Parameters
    ----------
    table : DataFrame
        What was published.
    ends : mapping
        From the columns with noise to the ends of their intervals.
    level : float
        Of the intervals.
    most : int
        Rows that are written out.
    """
    shown = table.iloc[:most]
    headings, columns, labels = [], [], []
    if list(table.index) != list(range(len(table))):
        headings.append(" / ".join(str(one) for one in table.index.names if one is not None))
        columns.append([_label(one) for one in shown.index])
        labels.append(True)
    for name in table:
        values = shown[name].tolist()
        if name in ends:
            low, high = (one.iloc[:most].tolist() for one in ends[name])
            digits = _digits(low, high)
            texts = [with_interval(x, a, b, digits) for x, a, b in zip(values, low, high)]
        else:
            texts = [_label(value) for value in values]
        headings.append(str(name))
        columns.append(texts)
        labels.append(name not in ends)
    # labels first, in their order
    order = sorted(range(len(columns)), key=lambda place: not labels[place])
    return PublishedNumbers(
        f"Published numbers, with {level * 100:g} % intervals for the true ones",
        tuple(printable(headings[place]) for place in order),
        sum(labels),
        tuple(tuple(printable(columns[place][row]) for place in order)
              for row in range(len(shown))),
        len(table) - len(shown),
    )  # fmt: skip


def with_interval(value: float, low: float, high: float, digits: int) -> str:
    """Return a number and its interval as a text; ends are rounded outwards.

    Parameters
    ----------
    value, low, high : float
        Published.
    digits : int
        After the point, for what is not whole.

    Examples
    --------
    >>> with_interval(1448, 1440, 1456, 1), with_interval(3.283, -5.549, 12.11, 1)
    ('1,448 (1,440 to 1,456)', '3.3 (-5.6 to 12.2)')
    >>> with_interval(-0.3, -37.0, 36.0, 0)
    '0 (-37 to 36)'
    """
    step = 10.0**-digits
    ends = [low, high]
    if not isinstance(low, int):
        ends = [math.floor(low / step) * step, math.ceil(high / step) * step]
    first, last = (_number(one, digits) for one in ends)
    return f"{_number(value, digits)} ({first} to {last})"


def _number(value: float, digits: int) -> str:
    return f"{value:,d}" if isinstance(value, int) else f"{value:z,.{digits}f}"


def _digits(low: list[float], high: list[float]) -> int:
    """So many that the half width of a usual interval has two digits."""
    widths = sorted(b - a for a, b in zip(low, high) if b > a)
    if not widths:
        return 1
    return min(max(1 - math.floor(math.log10(widths[len(widths) // 2] / 2)), 0), 12)


def _label(value: Any) -> str:
    if isinstance(value, tuple):
        return " / ".join(_label(one) for one in value)
    return "" if has_no_label(value) else str(value)
