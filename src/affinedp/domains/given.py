"""Equations as they were given: which of their numbers are exact, and what is refused at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from affinedp.arrays import Matrix, some
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import given_rows, nonzeros, short_numbers

# Doubles below this have fewer digits, and may stand for several decimals.
SMALLEST = 2.0**-1022
# Up to this many coefficients exact elimination takes well under a second.
EXACT_COEFFICIENTS = 20_000


def rational_rows(matrix: Matrix) -> list[dict[int, Fraction]] | None:
    """The rows as rationals; None if some are binary numbers of full length, or too many."""
    values = nonzeros(matrix)[2]
    if len(values) > EXACT_COEFFICIENTS or np.any(np.abs(values) < SMALLEST):
        return None
    if short_numbers(values.tolist()) is None:
        return None
    return given_rows(matrix)


def transposed(
    columns: Sequence[Mapping[int, Fraction]], count: int
) -> list[Mapping[int, Fraction]]:
    """The rows of a matrix that is given by its columns."""
    rows: list[dict[int, Fraction]] = [{} for _ in range(count)]
    for j, column in enumerate(columns):
        for i, value in column.items():
            rows[i][j] = value
    return list(rows)


def checked_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """One name for each entry: those given, or x1, x2, …"""
    if names is None:
        return tuple(f"x{i + 1}" for i in range(n))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise AffineDPError("names must be a sequence of strings, one per entry")
    if len(names) != n:
        raise AffineDPError(f"there are {len(names)} names for {n} entries")
    repeated = (
        sorted({name for name in names if list(names).count(name) > 1})
        if (len(set(names)) < n)
        else []
    )
    if repeated:
        raise AffineDPError(f"names are used twice: {some(repeated)}")
    return tuple(names)
