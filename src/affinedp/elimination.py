"""Gauss–Jordan elimination: ``D x + b = 0`` becomes ``x[pivots] = -X x[free] - offset``.

Three ways to the same canonical form.  Rational coefficients of moderate size are
eliminated exactly, so that no tolerance decides the rank; large sparse ones with a
fill-reducing pivot rule in floating point; dense ones by LAPACK's pivoted QR.  In
floating point the rank is decided by the widest gap in the pivots, never by a fixed
cut, and a system with no clear gap is refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp._arrays import FloatArray, IntArray, Matrix, dense
from affinedp.errors import AmbiguousRankError

if TYPE_CHECKING:
    import scipy.sparse as sparse

# one equation: column -> nonzero coefficient, a float or a Fraction
SparseRow = dict[int, Any]

# A pivot below SMALL (relative to its equation) is put off until only such pivots are left;
# between the last one accepted and the first one dropped there must be a factor of CLEAR_GAP.
SMALL = 1e-4
CLEAR_GAP = 1e3
# A difference this small against its terms is a zero that was rounded.
DUST = 1e-12
# Every equation must hold on the kernel to this relative accuracy.
RESIDUAL = 1e-10
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Canonical:
    """``x[pivots] = -reduced @ x[free] - offset``, and how it was found.

    Attributes
    ----------
    pivots, free : arrays of int
        A column basis, and the entries that parametrise the solutions.
    reduced : q×k matrix, dense or CSR
        The matrix X of the row-equivalent form ``[I | X]``; exact zeros are structural.
    rows : array of int
        A maximal independent subset of the given equations.
    tolerance : float
        The relative pivot at which the rank was cut: 0 when the arithmetic was exact.
    """

    pivots: IntArray
    free: IntArray
    reduced: FloatArray | sparse.csr_array
    rows: IntArray
    tolerance: float


def eliminate_exactly(
    rows: Sequence[Mapping[int, Fraction]], offsets: Sequence[Fraction], n: int
) -> tuple[Canonical, tuple[int, ...]]:
    """Canonical form in rational arithmetic; no tolerance is involved.

    Also returns the equations that contradict earlier ones: what is left of them is 0 = c.
    """
    constants = ({n: b} if b else {} for b in offsets)
    tableau = _Tableau([{**row, **constant} for row, constant in zip(rows, constants)])
    order, left = _gauss_jordan(tableau, constant=n)
    contradicting = tuple(sorted(i for i in left if tableau.rows[i]))
    pivots = _indices(column for _, column in order)
    free = np.setdiff1d(np.arange(n), pivots)
    place = {int(column): j for j, column in enumerate(free)}
    matrix = np.zeros((len(pivots), len(free)))
    for i, (row, column) in enumerate(order):
        for j, value in tableau.rows[row].items():
            if j not in (column, n):
                matrix[i, place[j]] = float(value)
    kept = np.sort(_indices(row for row, _ in order))
    return Canonical(pivots, free, matrix, kept, 0.0), contradicting


def reduce_exactly(
    rows: Sequence[Mapping[int, Fraction]],
) -> list[tuple[int, Mapping[int, Fraction]]]:
    """Return the reduced equations as (pivot column, row with a unit pivot) pairs."""
    tableau = _Tableau([dict(row) for row in rows])
    order, _ = _gauss_jordan(tableau)
    return [(column, tableau.rows[row]) for row, column in order]


def eliminate_sparse(matrix: sparse.csr_array, tolerance: float | None) -> Canonical:
    """Canonical form of a large sparse matrix, which stays sparse."""
    import scipy.sparse as sparse

    n = matrix.shape[1]
    rows: list[SparseRow] = []
    for i in range(matrix.shape[0]):
        span = slice(matrix.indptr[i], matrix.indptr[i + 1])
        values = matrix.data[span]
        scale = float(np.abs(values).max(initial=0.0))
        rows.append(dict(zip(matrix.indices[span].tolist(), (values / (scale or 1.0)).tolist())))
        rows[-1] = {j: value for j, value in rows[-1].items() if value != 0.0}
    tableau = _Tableau(rows, DUST)
    order, postponed = _gauss_jordan(tableau, SMALL)
    cut = _settle_postponed(tableau, order, postponed, tolerance)
    pivots = _indices(column for _, column in order)
    free = np.setdiff1d(np.arange(n), pivots)
    place = np.full(n, -1)
    place[free] = np.arange(len(free))
    entries = [
        (i, place[j], value)
        for i, (row, column) in enumerate(order)
        for j, value in tableau.rows[row].items()
        if j != column
    ]
    table = np.array(entries, dtype=float).reshape(-1, 3)
    reduced_matrix = sparse.csr_array(
        (table[:, 2], (table[:, 0].astype(int), table[:, 1].astype(int))),
        shape=(len(pivots), len(free)),
    )
    kept = np.sort(_indices(row for row, _ in order))
    canonical = Canonical(pivots, free, reduced_matrix, kept, cut)
    if tolerance is None:
        _check_residual(matrix, canonical)
    return canonical


def eliminate_dense(matrix: FloatArray, tolerance: float | None) -> Canonical:
    """Canonical form of a dense matrix by pivoted QR of the equilibrated equations."""
    from scipy.linalg import qr, solve_triangular

    q, n = matrix.shape
    scaled, column_scale = _equilibrated(matrix)
    triangle, order = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank, cut = _rank_by_gap(diagonal, max(q, n), tolerance)
    pivots, free = order[:rank], np.sort(order[rank:])
    where = np.argsort(order[rank:])
    reduced = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])[:, where]
    # rounding leaves dust where the exact solution has zeros, about eps times the condition
    condition = np.linalg.cond(triangle[:rank, :rank]) if rank else 1.0
    dust = 64 * EPS * max(float(condition), 4.0)
    reduced[np.abs(reduced) <= dust] = 0.0
    reduced = reduced * column_scale[pivots, None] / column_scale[free]
    rows = qr(scaled.T, mode="r", pivoting=True)[1][:rank]
    canonical = Canonical(pivots.astype(np.intp), free.astype(np.intp), reduced, np.sort(rows), cut)
    if tolerance is None:
        _check_residual(matrix, canonical)
    return canonical


def _indices(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.intp)


class _Tableau:
    """Equations under elimination, by row and by column."""

    def __init__(self, rows: list[SparseRow], dust: float = 0.0) -> None:
        self.rows = rows
        self.dust = dust  # a difference this small against its terms is a rounded zero
        self.columns: dict[int, set[int]] = {}
        for i, row in enumerate(rows):
            for j in row:
                self.columns.setdefault(j, set()).add(i)

    def clear_column(self, i: int, pivot: int) -> None:
        """Scale row ``i`` to a unit pivot and subtract it from every other row with it."""
        row = self.rows[i]
        unit = row[pivot]
        for j in row:
            row[j] /= unit
        for other in self.columns[pivot] - {i}:
            target = self.rows[other]
            factor = target[pivot]
            for j, value in row.items():
                before, change = target.get(j, 0), factor * value
                after = before - change
                if self.dust and abs(after) <= self.dust * max(abs(before), abs(change)):
                    after = 0
                if j == pivot or not after:
                    if target.pop(j, None) is not None:
                        self.columns[j].discard(other)
                else:
                    target[j] = after
                    self.columns[j].add(other)


def _gauss_jordan(
    tableau: _Tableau, small: float = 0.0, constant: int = -1
) -> tuple[list[tuple[int, int]], list[int]]:
    """Reduce the equations in place to ``[I | X]`` form.

    The shortest row is taken first, and in it the large entry whose column is shortest,
    which keeps network matrices sparse.  The column ``constant`` is never a pivot.  A row whose
    entries are all at most ``small`` is postponed: it may be a dependent one in rounding.
    Returns the (row, pivot column) pairs and the rows postponed.
    """
    rows, columns = tableau.rows, tableau.columns
    heap = [(len(row), i) for i, row in enumerate(rows)]
    heapq.heapify(heap)
    order: list[tuple[int, int]] = []
    postponed: list[int] = []
    while heap:
        length, i = heapq.heappop(heap)
        row = rows[i]
        if len(row) != length:
            heapq.heappush(heap, (len(row), i))
            continue
        sizes = {j: abs(value) for j, value in row.items() if j != constant}
        largest = max(sizes.values(), default=0)
        if largest <= small:
            postponed.append(i)
            continue
        pivot = min(
            (j for j in sizes if 10 * sizes[j] >= largest), key=lambda j: (len(columns[j]), j)
        )
        tableau.clear_column(i, pivot)
        order.append((i, pivot))
    return order, postponed


def _settle_postponed(
    tableau: _Tableau,
    order: list[tuple[int, int]],
    postponed: list[int],
    tolerance: float | None,
) -> float:
    """Decide by the gap which of the tiny remainders are equations, and eliminate those."""
    from scipy.linalg import qr

    rows = tableau.rows
    remaining = [i for i in postponed if rows[i]]
    if not remaining:
        return SMALL
    used = sorted({j for i in remaining for j in rows[i]})
    place = {j: c for c, j in enumerate(used)}
    values = np.zeros((len(remaining), len(used)))
    for r, i in enumerate(remaining):
        for j, value in rows[i].items():
            values[r, place[j]] = value
    diagonal = np.abs(np.diagonal(qr(values, mode="r", pivoting=True)[0]))
    rank, cut = _rank_by_gap(np.append(1.0, diagonal), len(used), tolerance)
    for r in qr(values.T, mode="r", pivoting=True)[1][: rank - 1]:
        row = rows[remaining[r]]
        pivot = max(row, key=lambda j: (abs(row[j]), -j))
        tableau.clear_column(remaining[r], pivot)
        order.append((remaining[r], pivot))
    return cut


def _equilibrated(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale rows and columns (by powers of two: no rounding) to largest entries near 1.

    Returns the scaled matrix and the factor that each column was multiplied by.
    """
    scaled = matrix.copy()
    column_scale = np.ones(matrix.shape[1])
    for _ in range(3):
        rows = _power_of_two(np.abs(scaled).max(axis=1, initial=0.0))
        scaled *= rows[:, None]
        columns = _power_of_two(np.abs(scaled).max(axis=0, initial=0.0))
        scaled *= columns
        column_scale *= columns
    return scaled, column_scale


def _power_of_two(size: FloatArray) -> FloatArray:
    exponent = np.frexp(np.where(size > 0, size, 1.0))[1]
    return np.asarray(np.ldexp(1.0, -exponent))


def _rank_by_gap(pivots: FloatArray, size: int, tolerance: float | None) -> tuple[int, float]:
    """Cut decreasing ``pivots`` at the widest gap below ``SMALL``; refuse when none is wide."""
    if len(pivots) == 0 or pivots[0] == 0.0:
        return 0, 0.0
    relative = pivots / pivots[0]
    if tolerance is not None:
        return int((relative > tolerance).sum()), tolerance
    floor = size * EPS
    padded = np.append(np.maximum(relative, floor), floor)
    ratio = padded[:-1] / padded[1:]
    candidates = np.flatnonzero(padded[1:] <= SMALL)
    place = int(candidates[np.argmax(ratio[candidates])])
    above, below = float(padded[place]), float(padded[place + 1])
    if ratio[place] < CLEAR_GAP:
        raise _ambiguous(above, below)
    return place + 1, float(np.sqrt(above * below))


def _check_residual(matrix: Matrix, canonical: Canonical) -> None:
    """Refuse unless every equation, the dropped ones too, holds on the kernel found."""
    if len(canonical.free) == 0 or matrix.shape[0] == 0:
        return
    basic, free = matrix[:, canonical.pivots], matrix[:, canonical.free]
    residual = abs(free - basic @ canonical.reduced)
    coefficient = dense(abs(matrix).max(axis=1)).ravel()
    movement = np.ones(len(canonical.free))
    if len(canonical.pivots):
        movement = np.maximum(movement, dense(abs(canonical.reduced).max(axis=0)).ravel())
    i, j = residual.nonzero()
    relative = residual[i, j] / (coefficient[i] * movement[j])
    if len(i) and relative.max() > RESIDUAL:
        raise _ambiguous(RESIDUAL, float(relative.max()))


def _ambiguous(above: float, below: float) -> AmbiguousRankError:
    return AmbiguousRankError(
        "the equations are neither clearly dependent nor clearly independent (relative sizes "
        f"{above:.1e} and {below:.1e} around the cut). Give exact (integer, decimal or text) "
        "coefficients, drop the nearly dependent equation, or set rank_tolerance",
        (above, below),
    )
