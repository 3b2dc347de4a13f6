"""Equations as they were given: which of their numbers are exact, and what is refused at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse, some
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import short_decimals

# Up to this many coefficients exact elimination takes well under a second.
EXACT_COEFFICIENTS = 20_000


def rational_rows(matrix: Matrix) -> list[dict[int, Fraction]] | None:
    """The rows as exact rationals if every coefficient is an integer or a short decimal."""
    row, column, values = nonzeros(matrix)
    if len(values) > EXACT_COEFFICIENTS:
        return None
    exact = short_decimals(values.tolist())
    if exact is None:
        return None
    rows: list[dict[int, Fraction]] = [{} for _ in range(matrix.shape[0])]
    for i, j, value in zip(row.tolist(), column.tolist(), exact):
        rows[i][j] = value
    return rows


def nonzeros(matrix: Matrix) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows, columns and values of the nonzero coefficients."""
    if is_sparse(matrix):
        entries = matrix.tocoo()
        kept = entries.data != 0
        return entries.row[kept], entries.col[kept], entries.data[kept]
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column]


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


def refuse_rounded(values: Any, name: str) -> None:
    """Refuse fractions, decimals and long doubles that a double would change."""
    if values is None or is_sparse(values):
        return
    try:
        given = np.asarray(values)
    except ValueError:
        return  # no array at all, which is said elsewhere
    if given.dtype.kind != "O" and given.dtype != np.longdouble:
        return
    for place, value in np.ndenumerate(given):
        if isinstance(value, Fraction | Decimal | np.longdouble) and np.isfinite(float(value)):
            number = float(value)
            same = Fraction(*value.as_integer_ratio()) == Fraction(number)
            written = isinstance(value, Decimal) and value == Decimal(repr(number))
            if not (same or written):
                at = ", ".join(map(str, place))
                raise AffineDPError(
                    f"{name}[{at}] = {value} is no double, and rounding it would change the "
                    "equation. Give the equations as text to AffineManifold.from_equations, which "
                    "reads fractions such as 1/3 and long decimals exactly"
                )
