"""Matrices of rational numbers: integers over one common denominator.

Certificates are decided here.  Doubles are taken as the exact numbers that they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

# Matrices up to FEW are decided by their minors, which grow long beyond MOST_ELIMINATED rows.
FEW = 3
MOST_ELIMINATED = 20


@dataclass(frozen=True, eq=False)
class Exact:
    """A rational matrix.

    Attributes
    ----------
    values : array of Python integers, shape (p, q)
        The numerators.
    over : int
        Their common denominator, positive.

    Examples
    --------
    >>> half = Exact.of(np.array([[0.5, 0.0], [0.25, 1.0]]))
    >>> (half @ half).floats().tolist()
    [[0.25, 0.0], [0.375, 1.0]]
    """

    values: NDArray[Any]
    over: int = 1

    @classmethod
    def of(cls, matrix: FloatArray) -> Exact:
        """Return a matrix of finite doubles as what it is.

        Parameters
        ----------
        matrix : array, shape (p, q)
            The doubles.
        """
        ratios = [[float(value).as_integer_ratio() for value in row] for row in matrix]
        over = max((below for row in ratios for _, below in row), default=1)
        values = np.empty(np.shape(matrix), dtype=object)
        for i, row in enumerate(ratios):
            for j, (whole, below) in enumerate(row):
                values[i, j] = whole * (over // below)  # both are powers of two
        return cls(values, over)

    @classmethod
    def block(cls, rows: Sequence[Sequence[Exact]]) -> Exact:
        """Return a matrix put together of blocks, as ``numpy.block`` does.

        Parameters
        ----------
        rows : sequence of sequences of Exact
            The blocks.
        """
        over = 1
        for row in rows:
            for part in row:
                over = math.lcm(over, part.over)
        parts = [[part.values * (over // part.over) for part in row] for row in rows]
        return cls(np.vstack([np.hstack(row) for row in parts]), over)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def T(self) -> Exact:
        """The transpose."""
        return Exact(self.values.T, self.over)

    def __matmul__(self, other: Exact) -> Exact:
        return Exact(_product(self.values, other.values), self.over * other.over)

    def __add__(self, other: Exact) -> Exact:
        if self.over == other.over:
            return Exact(self.values + other.values, self.over)
        left, right = self.values * other.over, other.values * self.over
        return Exact(left + right, self.over * other.over)

    def __neg__(self) -> Exact:
        return Exact(-self.values, self.over)

    def __sub__(self, other: Exact) -> Exact:
        return self + (-other)

    def times(self, factor: Fraction) -> Exact:
        """Return the matrix times a number.

        Parameters
        ----------
        factor : Fraction
            The number.
        """
        return Exact(self.values * factor.numerator, self.over * factor.denominator)

    def entry(self, i: int, j: int) -> Fraction:
        """Return one entry.

        Parameters
        ----------
        i, j : int
            Where.
        """
        return Fraction(int(self.values[i, j]), self.over)

    def floats(self) -> FloatArray:
        """Return the nearest doubles."""
        found = [[float(Fraction(int(v), self.over)) for v in row] for row in self.values]
        return np.array(found, dtype=float).reshape(self.shape)

    def inverse(self) -> Exact:
        """Return the inverse of a nonsingular square matrix."""
        n = self.shape[0]
        work = [[Fraction(int(v)) for v in row] for row in self.values]
        unit = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
        for k in range(n):
            pivot = next((i for i in range(k, n) if work[i][k] != 0), None)
            if pivot is None:
                raise AffineDPError("the noise filter passes some direction of its input on late")
            for rows in (work, unit):
                rows[k], rows[pivot] = rows[pivot], rows[k]
            factor = work[k][k]
            for rows in (work, unit):
                rows[k] = [v / factor for v in rows[k]]
            for i in range(n):
                if i != k and work[i][k] != 0:
                    share = work[i][k]
                    for rows in (work, unit):
                        rows[i] = [a - share * b for a, b in zip(rows[i], rows[k])]
        return _of_fractions([[self.over * v for v in row] for row in unit])

    @property
    def power_of_two(self) -> bool:
        """Whether every entry is a whole number times one power of two."""
        return self.over & (self.over - 1) == 0


def zeros(rows: int, columns: int) -> Exact:
    """Return a matrix of zeros."""
    return Exact(np.full((rows, columns), 0, dtype=object))


def identity(n: int) -> Exact:
    """Return the identity."""
    found = zeros(n, n)
    for i in range(n):
        found.values[i, i] = 1
    return found


def positive_definite(matrix: Exact) -> bool:
    """Whether a symmetric matrix is positive definite, strictly: decided without rounding.

    A root L from floating point is taken as exact.  If ``M − L Lᵀ``, computed exactly, has in every
    row a diagonal entry that is larger than the sum of the others' sizes, it is positive definite,
    and so is M.  Where that does not decide, all leading minors do (Sylvester's criterion), by
    Bareiss's elimination in integers.

    Parameters
    ----------
    matrix : Exact
        Symmetric.

    Examples
    --------
    >>> positive_definite(Exact.of(np.array([[2.0, 1.0], [1.0, 1.0]])))
    True
    >>> positive_definite(Exact.of(np.ones((2, 2))))
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


def _dominant_rest(matrix: Exact) -> bool:
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
    turned, given = Exact.of(np.diag(units)), Exact.of(np.asarray(root, dtype=np.float64))
    rest = (turned @ matrix @ turned - given @ given.T).values
    sizes = np.abs(rest)
    return all(2 * rest[i, i] > sizes[i].sum() for i in range(len(rest)))


def _minors_positive(values: NDArray[Any]) -> bool:
    work: NDArray[Any] = values.copy()
    previous = 1
    for k in range(len(work)):
        pivot = work[k, k]
        if pivot <= 0:
            return False
        rest = work[k + 1 :, k + 1 :] * pivot - np.outer(work[k + 1 :, k], work[k, k + 1 :])
        work[k + 1 :, k + 1 :] = rest // previous
        previous = pivot
    return True


def _product(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    if 0 in (*left.shape, right.shape[1]):
        return np.full((left.shape[0], right.shape[1]), 0, dtype=object)
    return np.asarray(left @ right)


def _of_fractions(rows: list[list[Fraction]]) -> Exact:
    over = 1
    for row in rows:
        for value in row:
            over = math.lcm(over, value.denominator)
    values = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            values[i, j] = value.numerator * (over // value.denominator)
    return Exact(values, over)
