"""Counts of people in margins, from microdata or from cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.errors import AffineDPError

# From a tuple of attributes to the integer counts of that margin.
Counts = Callable[[tuple[int, ...]], NDArray[Any]]
# People whom counts can hold; and rows of microdata, each of which takes 8 bytes and more.
MOST_PEOPLE = 1 << 53
MOST_RECORDS = 1 << 40


def counts_of_records(
    records: ArrayLike, sizes: Iterable[int], times: ArrayLike | None = None
) -> Counts:
    """Return the function that counts people in any margin.

    Parameters
    ----------
    records : array of int, shape (people, attributes)
        Values as numbers from 0.
    sizes : iterable of int
        Values of every attribute.
    times : array of int, optional
        How many people every record stands for; 1 by default.  All together at most 2⁵³.

    Examples
    --------
    >>> counts_of_records([[0, 1], [1, 1], [1, 2]], [2, 3])((1,)).tolist()
    [0, 2, 1]
    """
    rows = np.asarray(records)
    shape = tuple(sizes)
    if rows.size == 0:
        rows = np.zeros((0, len(shape)), np.int64)
    if rows.ndim != 2 or rows.shape[1] != len(shape) or rows.dtype.kind not in "iu":
        raise AffineDPError(f"records must be whole numbers in {len(shape)} columns")
    if len(rows) and ((rows < 0).any() or (rows >= np.array(shape)).any()):
        raise AffineDPError("records have values beyond the sizes of their attributes")
    columns = [np.ascontiguousarray(rows[:, j]) for j in range(len(shape))]
    # whole numbers up to 2^53 are added up exactly in doubles
    each = None if times is None else np.asarray(times, dtype=float)

    def counts(attributes: tuple[int, ...]) -> NDArray[Any]:
        place = np.zeros(len(rows), np.int64)
        for j in attributes:
            place = place * shape[j] + columns[j]
        sides = [shape[j] for j in attributes]
        found = np.bincount(place, each, minlength=math.prod(sides))
        return found.astype(np.int64).reshape(sides)

    return counts
