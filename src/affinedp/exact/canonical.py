"""The canonical form of equations: ``D x + b = 0`` becomes ``x[pivots] = -X x[free] - offset``.

Three ways to the same canonical form.  Rational coefficients of moderate size are
eliminated exactly, so that no tolerance decides the rank; large sparse ones with a
fill-reducing pivot rule in floating point; dense ones by LAPACK's pivoted QR.  In
floating point the rank is decided by the widest gap in the pivots, never by a fixed
cut, and a system with no clear gap is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, dense, is_sparse
from affinedp.errors import AffineDPError, InconsistentEquationsError, listed
from affinedp.exact.numbers import Rows
from affinedp.exact.rational import Pairs, Tableau, WholeTableau, coprime, unit_row

if TYPE_CHECKING:
    import scipy.sparse as sparse

# A pivot below SMALL (relative to its equation) is put off until only such pivots are left.  A
# pivot above CLEAR is an equation, one below the rounding error is none, and between is a refusal.
SMALL = 1e-4
CLEAR = 1e-7
# A difference this small against its terms is a zero that was rounded.
DUST = 1e-12
# Every equation must hold on the kernel to this relative accuracy.
RESIDUAL = 1e-12
# A pivot that is dropped is at most this many times the rounding error of the elimination.
DROPPED = 1e3
BALANCING_ROUNDS = 40
OUT_OF_RANGE = (
    "the coefficients of the equations differ so much in size that they leave the range of "
    "floating point. Rescale the entries"
)
SMALLEST = 1e-150


@dataclass(frozen=True)
class Canonical:
    """``x[pivots] = -reduced @ x[free] - offset``, and how it was found."""

    pivots: IntArray  # pivots, free: a column basis, and the entries that parametrise the solutions
    free: IntArray
    # the matrix X of the row-equivalent form ``[I | X]``; exact zeros are structural
    reduced: FloatArray | sparse.csr_array
    rows: IntArray  # a maximal independent subset of the given equations
    # the relative pivot at which the rank was cut: 0 when the arithmetic was exact
    tolerance: float
    # about how much of ``reduced`` is rounding, relatively: 0 when the arithmetic was exact
    error: float = 0.0
    # the rows of X in rational arithmetic, entry to coefficient, where they were computed so
    exact_rows: tuple[Mapping[int, Fraction], ...] | None = None
    exact_offset: tuple[Fraction, ...] | None = None  # the offset in rational arithmetic


def eliminate_exactly(
    rows: Rows, offsets: Sequence[Fraction], n: int
) -> tuple[Canonical, tuple[int, ...]]:
    """Canonical form in rational arithmetic; no tolerance is involved.

    Also returns the equations that contradict earlier ones: what is left of them is 0 = c.
    """
    tableau = WholeTableau(coprime({**row, n: b}) for row, b in zip(rows, offsets))
    order, left = tableau.reduce(barred=[n])
    contradicting = tuple(sorted(i for i in left if tableau.rows[i]))
    pivots = _indices(column for _, column in order)
    free = np.setdiff1d(np.arange(n), pivots)
    place = {int(column): j for j, column in enumerate(free)}
    matrix = np.zeros((len(pivots), len(free)))
    offset, reduced = [], []
    for i, (row, column) in enumerate(order):
        unit = unit_row(tableau.rows[row], column)
        del unit[column]
        offset.append(unit.pop(n, Fraction(0)))
        reduced.append(unit)
        for j, value in unit.items():
            matrix[i, place[j]] = in_float_range(value)
    kept = np.sort(_indices(row for row, _ in order))
    exact = tuple(reduced), tuple(offset)
    return Canonical(pivots, free, matrix, kept, 0.0, 0.0, *exact), contradicting


def in_float_range(value: Fraction) -> float:
    """Return a nonzero rational as a float, or refuse one that is too large or too small."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if value and not SMALLEST < abs(number) < 1 / SMALLEST:
        raise AffineDPError(OUT_OF_RANGE)
    return number


def eliminate_sparse(matrix: sparse.csr_array, tolerance: float | None) -> Canonical:
    """Canonical form of a large sparse matrix, which stays sparse."""
    import scipy.sparse as sparse

    n = matrix.shape[1]
    row_unit, column_unit = balancing_units(matrix)
    balanced = sparse.diags_array(row_unit) @ matrix @ sparse.diags_array(column_unit)
    balanced = sparse.csr_array(balanced)
    rows: list[dict[int, float]] = []
    for i in range(balanced.shape[0]):
        span = slice(balanced.indptr[i], balanced.indptr[i + 1])
        pairs = zip(balanced.indices[span].tolist(), balanced.data[span].tolist())
        rows.append({j: value for j, value in pairs if value != 0.0})
    tableau = _FloatTableau(rows)
    order, postponed = tableau.reduce(SMALL)
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
    if tolerance is None:
        _check_residual(balanced, Canonical(pivots, free, reduced_matrix, kept, cut))
    reduced_matrix = sparse.csr_array(
        sparse.diags_array(column_unit[pivots])
        @ reduced_matrix
        @ sparse.diags_array(1 / column_unit[free])
    )
    return Canonical(pivots, free, reduced_matrix, kept, cut, RESIDUAL)


def eliminate_dense(
    matrix: FloatArray, tolerance: float | None, keep_dust: bool = False
) -> Canonical:
    """Canonical form of a dense matrix by pivoted QR of the equilibrated equations.

    What is zero up to rounding is set to zero, unless the caller can tell and keeps it.
    """
    from scipy.linalg import qr, solve_triangular

    q, n = matrix.shape
    row_unit, column_unit = balancing_units(matrix)
    scaled = matrix * row_unit[:, None] * column_unit
    triangle, order = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank, cut = _rank_by_gap(diagonal, max(q, n), tolerance)
    pivots, free = order[:rank], np.sort(order[rank:])
    where = np.argsort(order[rank:])
    reduced = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])[:, where]
    # rounding leaves dust where the exact solution has zeros, about eps times the condition
    condition = np.linalg.cond(triangle[:rank, :rank]) if rank else 1.0
    dust = 64 * EPS * max(float(condition), 4.0)
    if not keep_dust:
        reduced[np.abs(reduced) <= dust] = 0.0
    rows = np.sort(qr(scaled.T, mode="r", pivoting=True)[1][:rank])
    pivots, free = pivots.astype(np.intp), free.astype(np.intp)
    if tolerance is None:
        _check_residual(scaled, Canonical(pivots, free, reduced, rows, cut))
    with np.errstate(over="ignore"):  # numbers beyond the range are refused where they are used
        reduced = reduced * column_unit[pivots, None] / column_unit[free]
    return Canonical(pivots, free, reduced, rows, cut, dust)


def exchange_work(canonical: Canonical, entries: IntArray) -> float:
    """Return about how many rational operations the directions of a free set take."""
    leaving = len(set(canonical.pivots.tolist()) & set(entries.tolist()))
    return (leaving + 1.0) * len(canonical.pivots) * len(canonical.free)


def exact_directions(
    canonical: Canonical, entries: IntArray
) -> dict[int, Mapping[int, Fraction]] | None:
    """Return, for every entry of a free set, how all entries follow when it moves by 1.

    None if the equations tie them to each other: then all others do not follow.
    """
    assert canonical.exact_rows is not None
    pivots = canonical.pivots.tolist()
    tableau = WholeTableau(
        coprime({p: Fraction(1), **row}) for p, row in zip(pivots, canonical.exact_rows)
    )
    order, _ = tableau.reduce(barred=entries.tolist())
    if len(order) < len(pivots):
        return None
    found: dict[int, dict[int, Fraction]] = {i: {i: Fraction(1)} for i in entries.tolist()}
    for i, pivot in order:
        row = tableau.rows[i]
        for j, value in row.items():
            if j != pivot:
                found[j][pivot] = Fraction(-value, row[pivot])
    return dict(found)


def solve_basis(
    matrix: Matrix, canonical: Canonical, right: FloatArray, transposed: bool = False
) -> FloatArray:
    """Solve with the square basis ``D[:, pivots]`` of independent equations, or its transpose."""
    basis: Any = matrix[:, canonical.pivots]
    if is_sparse(basis):
        import scipy.sparse as sparse
        from scipy.sparse.linalg import splu

        return np.asarray(splu(sparse.csc_array(basis)).solve(right, "T" if transposed else "N"))
    return np.linalg.solve(basis.T if transposed else basis, right)


def check_consistent(
    matrix: Matrix,
    offsets: FloatArray,
    canonical: Canonical,
    contradicting: tuple[int, ...] | None,
    tolerance: float,
) -> None:
    """Refuse an equation whose left side follows from others but whose offset does not."""
    kept = canonical.rows
    dropped = np.setdiff1d(np.arange(matrix.shape[0]), kept)
    if len(dropped) == 0:
        return
    independent: Any = matrix[kept]
    left = dense(matrix[dropped][:, canonical.pivots])
    factors = solve_basis(independent, canonical, left.T, transposed=True) if len(kept) else left.T
    # an equation that takes no part comes out with a factor that is rounding of the others
    size = dense(abs(independent).max(axis=1)).reshape(-1, 1)
    share = np.abs(factors) * size
    factors = np.where(share > 1e-13 * share.max(axis=0, initial=0.0), factors, 0.0)
    residual = offsets[dropped] - factors.T @ offsets[kept]
    scale = np.abs(offsets[dropped]) + np.abs(factors.T) @ np.abs(offsets[kept])
    # factors that should be zero are off by a rounding of the largest
    dust = 1e3 * EPS * np.abs(factors).max(axis=0, initial=0.0)
    dust = dust * np.abs(offsets[kept]).max(initial=0.0)
    wrong = np.abs(residual) > tolerance * scale + dust
    if contradicting is not None:
        wrong = np.isin(dropped, contradicting)
    for d in np.flatnonzero(wrong):
        share = np.abs(factors[:, d])
        involved = [*kept[share > 1e-9 * share.max(initial=0.0)], dropped[d]]
        numbers = sorted(int(j) for j in involved)
        which = listed([str(j + 1) for j in numbers])
        does = "contradicts itself" if len(numbers) == 1 else "contradict each other"
        raise InconsistentEquationsError(
            f"equation{'s' if len(numbers) > 1 else ''} {which} (counting from 1) {does} "
            f"(residual {residual[d]:.6g}). Correct or drop one of them",
            numbers,
            float(residual[d]),
        )


def _indices(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.intp)


class _FloatTableau(Tableau[float]):
    """Rows in floating point; a difference that is small against its terms is a rounded zero."""

    def lead(self, i: int, pivot: int) -> dict[int, float]:
        """Scale row ``i`` to a unit pivot."""
        unit = self.rows[i][pivot]
        self.rows[i] = {j: value / unit for j, value in self.rows[i].items()}
        return self.rows[i]

    def combined(
        self, target: dict[int, float], row: dict[int, float], pivot: int
    ) -> dict[int, float]:
        """Return the target without the pivot column."""
        factor = target[pivot]
        for j, value in row.items():
            before, change = target.get(j, 0.0), factor * value
            after = before - change
            if j == pivot or abs(after) <= DUST * max(abs(before), abs(change)):
                target.pop(j, None)
            else:
                target[j] = after
        return target


def _settle_postponed(
    tableau: _FloatTableau,
    order: Pairs,
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
        tableau.clear(remaining[r], pivot)
        order.append((remaining[r], pivot))
    return cut


def balancing_units(matrix: Matrix) -> tuple[FloatArray, FloatArray]:
    """Powers of two for rows and columns that bring the coefficients near 1.

    Every row and column is divided by the geometric mean of its largest and smallest
    coefficient, again and again, so that the units of entries and equations do not matter.
    """
    import scipy.sparse as sparse

    entries = sparse.coo_array(matrix)
    i, j = entries.row[entries.data != 0], entries.col[entries.data != 0]
    size = np.log2(np.abs(entries.data[entries.data != 0]))
    row, column = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
    for _ in range(BALANCING_ROUNDS):
        row -= _middle(size + row[i] + column[j], i, len(row))
        change = _middle(size + row[i] + column[j], j, len(column))
        column -= change
        if np.abs(change).max(initial=0.0) < 0.5:
            break
    if np.abs(row).max(initial=0.0) > 900 or np.abs(column).max(initial=0.0) > 900:
        raise AffineDPError(OUT_OF_RANGE)
    return np.exp2(np.rint(row)), np.exp2(np.rint(column))


def _middle(size: FloatArray, group: IntArray, count: int) -> FloatArray:
    """Half-way between the smallest and the largest size in each group; 0 for empty ones."""
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, group, size)
    np.maximum.at(high, group, size)
    empty = low > high
    low[empty], high[empty] = 0.0, 0.0
    return np.asarray((low + high) / 2)


def _rank_by_gap(pivots: FloatArray, size: int, tolerance: float | None) -> tuple[int, float]:
    """Cut decreasing ``pivots`` at the gap above rounding; refuse when one lies in the gap."""
    if len(pivots) == 0 or pivots[0] == 0.0:
        return 0, 0.0
    relative = pivots / pivots[0]
    if tolerance is not None:
        return int((relative > tolerance).sum()), tolerance
    rounding = DROPPED * size * EPS
    doubtful = relative[(relative > rounding) & (relative < CLEAR)]
    if len(doubtful):
        raise _ambiguous(CLEAR, float(doubtful[-1]))
    rank = int((relative >= CLEAR).sum())
    kept = float(relative[rank - 1])
    return rank, float(np.sqrt(kept * max(float(relative[rank]), EPS))) if (
        rank < len(relative)
    ) else rounding


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


def _ambiguous(above: float, below: float) -> AffineDPError:
    return AffineDPError(
        "the equations are neither clearly dependent nor clearly independent (relative sizes "
        f"{above:.1e} and {below:.1e} around the cut). Give exact (integer, decimal or text) "
        "coefficients, drop the nearly dependent equation, or set rank_tolerance"
    )
