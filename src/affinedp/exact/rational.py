"""Linear algebra in whole and rational numbers: small matrices, nothing rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray

Vector = tuple[int, ...]
Rationals = Sequence[Fraction]
BigIntegers = NDArray[Any]  # Python integers in an object array

# Matrices up to FEW are decided by their minors, which grow long beyond MOST_ELIMINATED rows.
FEW = 3
MOST_ELIMINATED = 20


def common_denominator(values: Iterable[Fraction]) -> int:
    """Return the least number that makes all of them whole."""
    return math.lcm(1, *(value.denominator for value in values))


def primitive(vector: Sequence[int]) -> tuple[Vector, int]:
    """Return the vector divided by the greatest common divisor of its entries, and that divisor."""
    content = math.gcd(*vector)
    if content == 0:
        return tuple(vector), 0
    return tuple(c // content for c in vector), content


def adjugate(matrix: Sequence[Sequence[int]]) -> tuple[int, list[list[int]]]:
    """Return the determinant and determinant × inverse; (0, []) for a singular matrix.

    Gauss–Jordan without fractions (Bareiss): every division is exact.

    Examples
    --------
    >>> adjugate([[2, 1], [1, 3]])
    (5, [[3, -1], [-1, 2]])
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


def inverse(matrix: Sequence[Rationals]) -> list[list[Fraction]] | None:
    """Return the inverse of a square rational matrix, or None if there is none."""
    scale = common_denominator(c for row in matrix for c in row)
    determinant, adjoint = adjugate([[int(c * scale) for c in row] for row in matrix])
    if determinant == 0:
        return None
    return [[Fraction(c * scale, determinant) for c in row] for row in adjoint]


def independent(vectors: Sequence[Sequence[int]], most: int) -> list[int]:
    """Return the places of the first vectors that are independent of those before, up to most."""
    echelon: list[tuple[int, list[int]]] = []
    found: list[int] = []
    for place, vector in enumerate(vectors):
        left = list(vector)
        for pivot, row in echelon:
            if left[pivot]:
                a, b = row[pivot], left[pivot]
                left = [a * x - b * y for x, y in zip(left, row)]
        lead = next((j for j, c in enumerate(left) if c), None)
        if lead is not None:
            echelon.append((lead, list(primitive(left)[0])))
            found.append(place)
            if len(found) == most:
                break
    return found


@dataclass(frozen=True, eq=False)
class RationalMatrix:
    """A matrix of integers over one common denominator.

    Attributes
    ----------
    values : array of Python integers, shape (p, q)
        The numerators.
    over : int
        Their common denominator, positive.

    Examples
    --------
    >>> half = RationalMatrix.of(np.array([[0.5, 0.0], [0.25, 1.0]]))
    >>> (half @ half).floats().tolist()
    [[0.25, 0.0], [0.375, 1.0]]
    """

    values: BigIntegers
    over: int = 1

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

    @property
    def power_of_two(self) -> bool:
        """Whether every entry is a whole number times one power of two."""
        return self.over & (self.over - 1) == 0


def positive_definite(matrix: RationalMatrix) -> bool:
    """Whether a symmetric matrix is positive definite, strictly: decided without rounding.

    A root L from floating point is taken as exact.  If ``M − L Lᵀ``, computed exactly, has in every
    row a diagonal entry that is larger than the sum of the others' sizes, it is positive definite,
    and so is M.  Where that does not decide, all leading minors do (Sylvester's criterion), by
    Bareiss's elimination in integers.

    Examples
    --------
    >>> positive_definite(RationalMatrix.of(np.array([[2.0, 1.0], [1.0, 1.0]])))
    True
    >>> positive_definite(RationalMatrix.of(np.ones((2, 2))))
    False
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
