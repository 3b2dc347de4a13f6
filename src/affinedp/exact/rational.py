"""Linear algebra in whole and rational numbers: nothing rounds.

Sparse rows are eliminated as whole numbers without a common divisor, each row up to a factor; small
square matrices by Bareiss's rule; products and certificates with one common denominator.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.exact.numbers import Rows, over_one_denominator

Vector = tuple[int, ...]
WholeRow = dict[int, int]  # column to nonzero coefficient
Pairs = list[tuple[int, int]]
Number = TypeVar("Number", bound=float)
Rationals = Sequence[Fraction]
BigIntegers = NDArray[Any]  # Python integers in an object array

# Matrices up to FEW are decided by their minors, which grow long beyond MOST_ELIMINATED rows.
FEW = 3
MOST_ELIMINATED = 20
# Two products of minors of so many bits add up in 64.
MINOR_BITS = 30


def common_denominator(values: Iterable[Fraction]) -> int:
    """Return the least number that makes all of them whole."""
    return math.lcm(1, *(value.denominator for value in values))


def primitive(vector: Sequence[int]) -> tuple[Vector, int]:
    """Return the vector divided by the greatest common divisor of its entries, and that divisor."""
    content = math.gcd(*vector)
    if content == 0:
        return tuple(vector), 0
    return tuple(c // content for c in vector), content


# ---------------------------------------------------------------------- sparse rows


def transposed(rows: Rows, width: int) -> list[dict[int, Fraction]]:
    """Return the columns of a matrix that is given by its rows, without zeros."""
    columns: list[dict[int, Fraction]] = [{} for _ in range(width)]
    for i, row in enumerate(rows):
        for j, value in row.items():
            if value:
                columns[j][i] = value
    return columns


def combination(
    terms: Iterable[tuple[Fraction | int, Mapping[int, Fraction]]],
) -> dict[int, Fraction]:
    """Return the sum of multiples of rows, without zeros."""
    total: dict[int, Fraction] = {}
    for weight, row in terms:
        for j, value in row.items():
            total[j] = total.get(j, Fraction(0)) + weight * value
    return {j: value for j, value in total.items() if value}


def dot(row: Mapping[int, Fraction], vector: Mapping[int, Fraction]) -> Fraction:
    """Return the sum of the products of what stands in the same places."""
    return sum((value * vector[j] for j, value in row.items() if j in vector), Fraction(0))


def coprime(row: Mapping[int, Fraction | int]) -> WholeRow:
    """Return the multiple of a row that has whole coefficients without a common divisor."""
    unit = math.lcm(*(value.denominator for value in row.values()))
    whole = {j: v.numerator * (unit // v.denominator) for j, v in row.items() if v}
    content = math.gcd(*whole.values())
    return {j: value // content for j, value in whole.items()}


def subtract(row: WholeRow, other: WholeRow, times: int) -> None:
    """Take a multiple of another row off this one."""
    for j, value in other.items():
        after = row.get(j, 0) - times * value
        if after:
            row[j] = after
        else:
            row.pop(j, None)


def cleared(row: WholeRow, by: WholeRow, pivot: int) -> WholeRow:
    """Return a multiple of ``row`` minus one of ``by`` without the pivot column, coprime again."""
    common = math.gcd(row[pivot], by[pivot])
    keep, take = by[pivot] // common, row[pivot] // common
    found = dict(row) if keep == 1 else {j: keep * value for j, value in row.items()}
    subtract(found, by, take)
    content = math.gcd(*found.values())
    return found if content <= 1 else {j: value // content for j, value in found.items()}


class Tableau(Generic[Number]):
    """Rows under elimination, by row and by column; subclasses say how two rows are combined."""

    def __init__(self, rows: Iterable[dict[int, Number]]) -> None:
        self.rows: list[dict[int, Number]] = list(rows)
        self.columns: dict[int, set[int]] = {}
        for i, row in enumerate(self.rows):
            for j in row:
                self.columns.setdefault(j, set()).add(i)

    def clear(self, i: int, pivot: int) -> None:
        """Subtract row ``i`` from every other row with the pivot column, so that it vanishes."""
        row = self.lead(i, pivot)
        for other in self.columns[pivot] - {i}:
            after = self.rows[other] = self.combined(self.rows[other], row, pivot)
            for j in row:
                if j in after:
                    self.columns[j].add(other)
                else:
                    self.columns[j].discard(other)

    def lead(self, i: int, pivot: int) -> dict[int, Number]:
        """Return row ``i``, scaled for its pivot."""
        return self.rows[i]

    def combined(
        self, target: dict[int, Number], row: dict[int, Number], pivot: int
    ) -> dict[int, Number]:
        """Return the target without the pivot column."""
        raise NotImplementedError

    def reduce(self, small: float = 0.0, barred: Iterable[int] = ()) -> tuple[Pairs, list[int]]:
        """Bring the rows to ``[I | X]`` form: (row, pivot column) pairs, and the rows put off.

        The shortest row is taken first, and in it the large entry whose column is shortest, which
        keeps network matrices sparse.  Columns that are barred are never pivots.  A row whose
        other entries are all at most ``small`` is put off: in rounding it may be a dependent one.
        """
        never = set(barred)
        heap = [(len(row), i) for i, row in enumerate(self.rows)]
        heapq.heapify(heap)
        order: Pairs = []
        postponed: list[int] = []
        while heap:
            length, i = heapq.heappop(heap)
            row = self.rows[i]
            if len(row) != length:
                heapq.heappush(heap, (len(row), i))
                continue
            sizes = {j: abs(value) for j, value in row.items() if j not in never}
            largest = max(sizes.values(), default=0)
            if largest <= small:
                postponed.append(i)
                continue
            large = (j for j in sizes if 10 * sizes[j] >= largest)
            pivot = min(large, key=lambda j: (len(self.columns[j]), j))
            self.clear(i, pivot)
            order.append((i, pivot))
        return order, postponed


class WholeTableau(Tableau[int]):
    """Rows of coprime whole numbers, each up to a factor."""

    def combined(self, target: WholeRow, row: WholeRow, pivot: int) -> WholeRow:
        """Return a multiple of the target without the pivot column."""
        return cleared(target, row, pivot)


def reduce_exactly(rows: Rows) -> list[tuple[int, Mapping[int, Fraction]]]:
    """Return the reduced rows as (pivot column, row with a unit pivot) pairs."""
    tableau = WholeTableau(coprime(row) for row in rows)
    order, _ = tableau.reduce()
    return [(column, unit_row(tableau.rows[i], column)) for i, column in order]


def unit_row(row: WholeRow, pivot: int) -> dict[int, Fraction]:
    """Return a row divided by its pivot."""
    return {j: Fraction(value, row[pivot]) for j, value in row.items()}


def exact_circuit(columns: Sequence[Mapping[int, Fraction]]) -> list[int] | None:
    """Return nonzero integers that map these columns to zero, or None if they are no circuit."""
    height = max((i for column in columns for i in column), default=-1) + 1
    tableau = WholeTableau(coprime(row) for row in transposed(columns, height) if row)
    order, _ = tableau.reduce()
    (*free,) = set(range(len(columns))) - {pivot for _, pivot in order}
    if len(free) != 1:
        return None
    unit = math.lcm(*(tableau.rows[i][pivot] for i, pivot in order))
    found = [unit] * len(columns)
    for i, pivot in order:
        row = tableau.rows[i]
        found[pivot] = -row.get(free[0], 0) * (unit // row[pivot])
    return found if all(found) else None


class Echelon:
    """Independent rows in reduced form, one after another.

    Columns from ``width`` on are carried along and never lead: a row that brings a column of its
    own shows there which combination of rows it has become.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: dict[int, WholeRow] = {}  # by their leading columns

    def rest(self, row: Mapping[int, Fraction | int]) -> WholeRow:
        """Return a multiple of what remains of a row when the others are taken away."""
        left = coprime(row)
        for column in [j for j in left if j in self.rows]:
            left = cleared(left, self.rows[column], column)
        return left

    def add(self, row: Mapping[int, Fraction | int]) -> bool:
        """Add a row; say whether it was independent of those before."""
        left = self.rest(row)
        lead = max((j for j in left if j < self.width), default=None)
        if lead is None:
            return False
        for column, other in self.rows.items():
            if lead in other:
                self.rows[column] = cleared(other, left, lead)
        self.rows[lead] = left
        return True


# ---------------------------------------------------------------------- small matrices


def adjugate(matrix: Sequence[Sequence[int]]) -> tuple[int, list[list[int]]]:
    """Return the determinant and determinant × inverse; (0, []) for a singular matrix.

    Gauss–Jordan without fractions (Bareiss): every division is exact.
    """
    size = len(matrix)
    rows = [list(row) + [int(i == j) for j in range(size)] for i, row in enumerate(matrix)]
    sign, before = 1, 1
    for k in range(size):
        place = next((i for i in range(k, size) if rows[i][k]), None)
        if place is None:
            return 0, []
        if place != k:
            rows[k], rows[place] = rows[place], rows[k]
            sign = -sign
        lead = rows[k]
        pivot = lead[k]
        for i in range(size):
            if i != k:
                row, factor = rows[i], rows[i][k]
                rows[i] = [(pivot * a - factor * b) // before for a, b in zip(row, lead)]
        before = pivot
    # every diagonal entry is the determinant up to the sign of the exchanges
    return sign * before, [[sign * c for c in row[size:]] for row in rows]


def adjugates(matrices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the same for many matrices with an inverse, in 64 bits where all numbers fit."""
    count, size, _ = matrices.shape
    # all numbers on the way are minors of the rows, beside the identity: Hadamard bounds them
    largest = int(np.abs(matrices).max(initial=1))
    bits = size * (math.log2(largest) + math.log2(size) / 2)
    kind = np.int64 if bits < MINOR_BITS else object
    beside = np.broadcast_to(np.eye(size, dtype=np.int64).astype(kind), matrices.shape)
    rows = np.concatenate([matrices.astype(kind), beside], axis=2)
    each = np.arange(count)
    before = signs = np.ones(count, dtype=np.int64).astype(kind)
    for k in range(size):
        place = k + np.argmax(rows[:, k:, k] != 0, axis=1)
        lead = rows[each, place]
        rows[each, place] = rows[:, k]
        signs = np.where(place == k, signs, -signs)
        pivot = lead[:, k]
        rows = pivot[:, None, None] * rows - rows[:, :, k, None] * lead[:, None, :]
        rows //= before[:, None, None]
        rows[:, k] = lead
        before = pivot
    return signs * before, signs[:, None, None] * rows[:, :, size:]


def inverse(matrix: Sequence[Rationals]) -> list[list[Fraction]] | None:
    """Return the inverse of a square rational matrix, or None if there is none."""
    scale = common_denominator(c for row in matrix for c in row)
    determinant, adjoint = adjugate([[int(c * scale) for c in row] for row in matrix])
    if determinant == 0:
        return None
    return [[Fraction(c * scale, determinant) for c in row] for row in adjoint]


def independent(vectors: Sequence[Sequence[int]], most: int) -> list[int]:
    """Return the places of the first vectors that are independent of those before, up to most."""
    space = Echelon(len(vectors[0]) if vectors else 0)
    found: list[int] = []
    for place, vector in enumerate(vectors):
        if len(found) < most and space.add(dict(enumerate(vector))):
            found.append(place)
    return found


@dataclass(frozen=True, eq=False)
class RationalMatrix:
    """A matrix of integers over one common denominator."""

    values: BigIntegers  # the numerators; shape (p, q)
    over: int = 1  # their common denominator, positive

    @classmethod
    def of(cls, matrix: FloatArray) -> RationalMatrix:
        """Return a matrix of finite doubles as the exact numbers that they are."""
        ratios = [[float(value).as_integer_ratio() for value in row] for row in matrix]
        over = max((below for row in ratios for _, below in row), default=1)
        values = np.empty(np.shape(matrix), dtype=object)
        for i, row in enumerate(ratios):
            for j, (whole, below) in enumerate(row):
                values[i, j] = whole * (over // below)  # both are powers of two
        return cls(values, over)

    @classmethod
    def meant(cls, matrix: FloatArray) -> RationalMatrix:
        """Return a matrix of finite doubles as the numbers that they stand for: 0.1 is 1/10."""
        values, over = over_one_denominator(matrix)
        return cls(values.astype(object), over)

    @classmethod
    def zeros(cls, rows: int, columns: int) -> RationalMatrix:
        """Return a matrix of zeros."""
        return cls(np.full((rows, columns), 0, dtype=object))

    @classmethod
    def identity(cls, n: int) -> RationalMatrix:
        """Return the identity."""
        found = cls.zeros(n, n)
        np.fill_diagonal(found.values, 1)
        return found

    @classmethod
    def block(cls, rows: Sequence[Sequence[RationalMatrix]]) -> RationalMatrix:
        """Return a matrix put together of blocks, as ``numpy.block`` does."""
        over = math.lcm(*(part.over for row in rows for part in row))
        parts = [[part.values * (over // part.over) for part in row] for row in rows]
        return cls(np.vstack([np.hstack(row) for row in parts]), over)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def T(self) -> RationalMatrix:
        """The transpose."""
        return RationalMatrix(self.values.T, self.over)

    def __matmul__(self, other: RationalMatrix) -> RationalMatrix:
        if 0 in (*self.shape, other.shape[1]):  # NumPy makes None of an empty sum
            return RationalMatrix.zeros(self.shape[0], other.shape[1])
        return RationalMatrix(self.values @ other.values, self.over * other.over)

    def __add__(self, other: RationalMatrix) -> RationalMatrix:
        if self.over == other.over:
            return RationalMatrix(self.values + other.values, self.over)
        left, right = self.values * other.over, other.values * self.over
        return RationalMatrix(left + right, self.over * other.over)

    def __neg__(self) -> RationalMatrix:
        return RationalMatrix(-self.values, self.over)

    def __sub__(self, other: RationalMatrix) -> RationalMatrix:
        return self + (-other)

    def times(self, factor: Fraction) -> RationalMatrix:
        """Return the matrix times a number."""
        return RationalMatrix(self.values * factor.numerator, self.over * factor.denominator)

    def entry(self, i: int, j: int) -> Fraction:
        """Return one entry."""
        return Fraction(int(self.values[i, j]), self.over)

    def floats(self) -> FloatArray:
        """Return the nearest doubles."""
        found = [[float(Fraction(int(v), self.over)) for v in row] for row in self.values]
        return np.array(found, dtype=float).reshape(self.shape)

    def inverse(self) -> RationalMatrix | None:
        """Return the inverse of a square matrix, or None if there is none."""
        determinant, adjoint = adjugate(self.values.tolist())
        if determinant == 0:
            return None
        whole: BigIntegers = np.array(adjoint, dtype=object).reshape(self.shape) * self.over
        common = math.gcd(determinant, *whole.ravel().tolist())
        sign = 1 if determinant > 0 else -1
        return RationalMatrix(whole // (sign * common), abs(determinant) // common)


def positive_definite(matrix: RationalMatrix) -> bool:
    """Whether a symmetric matrix is positive definite, strictly: decided without rounding.

    A root L from floating point is taken as exact.  If ``M − L Lᵀ``, computed exactly, has in every
    row a diagonal entry that is larger than the sum of the others' sizes, it is positive definite,
    and so is M.  Where that does not decide, all leading minors do (Sylvester's criterion), by
    Bareiss's elimination in integers.
    """
    n = len(matrix.values)
    values = matrix.values
    if not all(values[i, j] == values[j, i] for i in range(n) for j in range(i)):
        return False
    if any(values[i, i] <= 0 for i in range(n)):
        return False
    if n > FEW and _dominant_rest(matrix):
        return True
    return n <= MOST_ELIMINATED and _minors_positive(values)


def _dominant_rest(matrix: RationalMatrix) -> bool:
    """Whether a root in doubles leaves a diagonally dominant rest."""
    near = matrix.floats()
    # powers of two make the diagonal about one; that is exact
    exponents = [-(math.frexp(size)[1] // 2) for size in np.diagonal(near)]
    units = np.ldexp(1.0, exponents)
    scaled = near * units * units[:, None]
    least = float(np.linalg.eigvalsh(scaled)[0])
    if not least > 0:
        return False
    try:
        root = np.linalg.cholesky(scaled - least / 2 * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        return False
    turned = RationalMatrix.of(np.diag(units))
    given = RationalMatrix.of(np.asarray(root, dtype=np.float64))
    rest = (turned @ matrix @ turned - given @ given.T).values
    sizes = np.abs(rest)
    return all(2 * rest[i, i] > sizes[i].sum() for i in range(len(rest)))


def _minors_positive(values: BigIntegers) -> bool:
    work = values.copy()
    previous = 1
    for k in range(len(work)):
        pivot = work[k, k]
        if pivot <= 0:
            return False
        rest = work[k + 1 :, k + 1 :] * pivot - np.outer(work[k + 1 :, k], work[k, k + 1 :])
        work[k + 1 :, k + 1 :] = rest // previous
        previous = pivot
    return True
