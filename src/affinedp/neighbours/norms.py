"""Norms of images of directions: in floating point with a bound, and in rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, Matrix, Norm, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import nonzeros

EPS = float(np.finfo(float).eps)
# Nonzero numbers in a matrix up to which norms are computed in rational arithmetic.
EXACT_NUMBERS = 20_000
# Directions that are measured again exactly because floating point cannot tell them apart.
MEASURED_AGAIN = 64
# Norms that differ by less than this share are equal: the direction that came first is shown.
TIED = 1e-11


@dataclass(frozen=True)
class ExactMatrix:
    """A matrix of doubles, which are rational numbers."""

    rows: list[dict[int, int]]  # column to integer
    unit: Fraction  # what the integers are multiples of

    @classmethod
    def of(cls, matrix: Matrix) -> ExactMatrix | None:
        """Return the matrix in exact numbers, or None if it has too many."""
        if (matrix.nnz if is_sparse(matrix) else matrix.size) > EXACT_NUMBERS:
            return None
        row, column, values = (part.tolist() for part in nonzeros(matrix))
        ratios = [value.as_integer_ratio() for value in values]
        unit = max((down for _, down in ratios), default=1)  # all are powers of two
        rows: dict[int, dict[int, int]] = {}
        for i, j, (up, down) in zip(row, column, ratios):
            rows.setdefault(i, {})[j] = up * (unit // down)
        return cls(list(rows.values()), Fraction(1, unit))

    @classmethod
    def of_rationals(cls, rows: Sequence[Mapping[int, Fraction]]) -> ExactMatrix:
        """Return a matrix of rational numbers."""
        unit = math.lcm(*(value.denominator for row in rows for value in row.values()))
        whole = [
            {j: value.numerator * (unit // value.denominator) for j, value in row.items() if value}
            for row in rows
        ]
        return cls(whole, Fraction(1, unit))

    def part(self, columns: Sequence[int]) -> ExactMatrix:
        """Return some of the columns, in this order."""
        place = {j: c for c, j in enumerate(columns)}
        rows = [{place[j]: a for j, a in row.items() if j in place} for row in self.rows]
        return ExactMatrix([row for row in rows if row], self.unit)

    def floats(self, columns: int) -> FloatArray:
        """Return the matrix in floating point."""
        found = np.zeros((len(self.rows), columns))
        for i, row in enumerate(self.rows):
            for j, a in row.items():
                found[i, j] = as_float(a * self.unit)
        return found

    def norm(self, vector: Mapping[int, int], scale: Fraction, norm: Norm) -> tuple[float, float]:
        """Return the norm of ``scale * matrix @ vector``, and the next float not below it."""
        total = 0
        for row in self.rows:
            entry = sum(a * vector[j] for j, a in row.items() if j in vector)
            total += abs(entry) if norm == 1 else entry * entry
        return rounded_root(total * (self.unit * scale) ** norm, norm)


def rounded_root(power: Fraction, norm: Norm) -> tuple[float, float]:
    """Return the norm-th root of a rational number as a float, and the next float not below it."""
    try:
        value = upper = float(power) if norm == 1 else _square_root(power)
    except OverflowError:
        return math.inf, math.inf
    while Fraction(upper) ** norm < power:
        upper = math.nextafter(upper, math.inf)
        if upper == math.inf:
            break
    return value, upper


def _square_root(square: Fraction) -> float:
    """The square root of a rational number of any size, to the last bit or next to it."""
    if square == 0:
        return 0.0
    # 120 bits or more in the integer root, whatever the size of the number
    shift = 120 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(2) ** (2 * shift)
    return math.ldexp(math.isqrt(scaled.numerator // scaled.denominator), -shift)


def column_norms(matrix: FloatArray, norm: Norm) -> FloatArray:
    """Return the norm of every column, also where its square leaves the range of floats."""
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(np.linalg.norm(matrix / unit, ord=norm, axis=0) * unit)


def first_largest(values: FloatArray) -> int:
    """Return the place of the largest value; of those equal up to rounding, the first."""
    return int(np.flatnonzero(values >= values.max() * (1 - TIED))[0])


def norm_with_bound(matrix: FloatArray, vector: FloatArray, norm: Norm) -> tuple[float, float]:
    """Return the norm of ``matrix @ vector``, and what it is at most in view of rounding.

    Products and sums are carried in extended precision, so what remains is the rounding
    of the vector itself (a few eps per entry, also in its scale) and of the result.
    """
    wide = matrix.astype(np.longdouble) @ vector.astype(np.longdouble)
    value = float(np.abs(wide).sum() if norm == 1 else np.sqrt((wide * wide).sum()))
    spread = float(np.linalg.norm(np.abs(matrix) @ np.abs(vector), ord=norm))
    return value, value * (1 + 2 * EPS) + 4 * EPS * spread


@dataclass(frozen=True)
class LargestNorm:
    """The largest norm over some directions."""

    value: float  # value, upper: the norm, and what it is certainly at most
    upper: float
    place: int  # the direction that attains it up to rounding; of several, the first


def largest_norm(
    matrix: Matrix,
    directions: FloatArray,
    off: FloatArray,
    norm: Norm,
    exact: Callable[[int], Mapping[int, Fraction] | None],
    numbers: ExactMatrix | None,
) -> LargestNorm:
    """Return the largest norm of ``matrix @ v`` over the columns of ``directions``."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = column_norms(matrix @ directions, norm)
        spread = column_norms(abs(matrix) @ np.abs(directions), norm)
        error = 2 * (len(directions) + 2) * EPS * spread
        if off.any():
            error = error + 2 * column_norms(abs(matrix) @ off, norm)
    if not np.all(np.isfinite(lengths + error)):
        raise overflow()
    low, high = lengths.copy(), lengths + error
    # those that may be the worst, in view of rounding
    doubtful = np.flatnonzero(high >= (lengths - error).max())
    if numbers is not None:
        for k in doubtful[np.argsort(-high[doubtful], kind="stable")][:MEASURED_AGAIN].tolist():
            if high[k] <= low.max():
                continue
            vector = exact(k)
            if vector is not None:
                low[k], high[k] = numbers.norm(*in_integers(vector), norm)
    if not np.all(np.isfinite(high)):
        raise overflow()
    place = first_largest(low)
    return LargestNorm(float(low[place]), float(max(high.max(), low[place])), place)


def in_integers(vector: Mapping[int, Fraction]) -> tuple[dict[int, int], Fraction]:
    """Return a rational vector as integers, and what they are multiples of."""
    unit = math.lcm(*(value.denominator for value in vector.values())) if vector else 1
    whole = {i: value.numerator * (unit // value.denominator) for i, value in vector.items()}
    return whole, Fraction(1, unit)


def as_float(value: Fraction) -> float:
    """Return a rational as a float that is zero only if the rational is, or refuse."""
    try:
        number = float(value)
    except OverflowError:
        raise overflow() from None
    if value and number == 0.0:
        raise AffineDPError(
            "the entries of a neighbour direction differ so much in size that they leave the "
            "range of floating point. Rescale the entries"
        )
    return number


def overflow() -> AffineDPError:
    """A refusal where the differences of neighbours are too large for floating point."""
    return AffineDPError(
        "the neighbours' differences overflow floating point: the coefficients of the "
        "equations or of the noise differ too much in size. Rescale the entries"
    )
