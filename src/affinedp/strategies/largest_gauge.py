"""How far neighbours are apart in any gauge: the list of moves, closed forms, whole moves.

Bounds in floating point are taken for all moves, and those on top are computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, connected_parts, dense, is_identity
from affinedp.errors import AffineDPError
from affinedp.exact.canonical import eliminate_exactly
from affinedp.exact.numbers import given_rows, meaning, meant_numbers, rounded_up
from affinedp.exact.rational import combination, dot, inverse
from affinedp.laws.base import Gauges, Law, Moves
from affinedp.laws.bodies import AxesPart, SumPart
from affinedp.laws.knorm import KNorm
from affinedp.laws.staircase import Staircase
from affinedp.neighbours.adjacency import Adjacency, Sensitivity
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.whole import known_moves, whole_move, whole_part, whole_steps
from affinedp.strategies.base import (
    MOST_EXACT,
    MOST_LISTED,
    Largest,
    on_top,
)
from affinedp.strategies.coverage import NOT_COVERED, Span
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.one_sum import exchange_gauge

Piece = tuple[IntArray, list[list[Fraction]] | None, list[dict[int, Fraction]]]

# Numbers of points that are still eliminated in rational arithmetic.
MOST_POINTS = 2_000
DEPENDENT = "the vectors that span the noise are dependent"


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates z of a difference of data v: z = matrix @ v."""

    # in doubles; shape (r, n)
    matrix: Matrix
    # the same exactly: rows of z are ``left @ (right @ v)`` with rational left and right
    pieces: list[Piece]

    @classmethod
    def of(cls, query: Matrix, basis: Matrix, law: Law) -> Coordinates:
        """Solve ``F v = basis z`` for z, from as many outputs as there are coordinates."""
        import scipy.sparse as sparse

        bound = law.bodies.sums if isinstance(law, KNorm) else ()
        size = int(basis.shape[1])
        extra = sparse.csr_array((len(bound), size))
        if bound:
            place = np.concatenate([np.full(len(p.rows), i) for i, p in enumerate(bound)])
            values = np.concatenate([part.signs for part in bound])
            rows = np.concatenate([part.rows for part in bound])
            extra = sparse.csr_array((values, (place, rows)), shape=(len(bound), size))
        left = sparse.csr_array(sparse.vstack([sparse.csr_array(basis), extra]))
        left.eliminate_zeros()
        empty = sparse.csr_array((len(bound), query.shape[1]))
        right = sparse.csr_array(sparse.vstack([sparse.csr_array(query), empty]))
        pieces: list[Piece] = []
        blocks, order = [], []
        for rows, outputs in _pieces(left):
            square = sparse.csr_array(left[outputs][:, rows])
            seen = sparse.csr_array(right[outputs])
            numbers = given_rows(seen)
            if is_identity(square, len(rows)):
                blocks.append(seen)
                pieces.append((rows, None, numbers))
            else:
                exact = inverse([[meaning(c) for c in row] for row in dense(square).tolist()])
                if exact is None:
                    raise AffineDPError(DEPENDENT)
                pieces.append((rows, exact, numbers))
                # rounded once from exact numbers, however ill-conditioned the basis is
                blocks.append(rounded_rows(_combined(exact, numbers), query.shape[1]))
            order.append(rows)
        stacked = sparse.csr_array(sparse.vstack(blocks))
        return cls(stacked[np.argsort(np.concatenate(order))], pieces)

    @property
    def is_exact(self) -> bool:
        """Whether the doubles are the exact numbers."""
        return all(meaning(value) == value for value in set(self.matrix.data.tolist()))

    def rows(self) -> list[dict[int, Fraction]]:
        """Return the exact matrix by rows."""
        found: list[dict[int, Fraction]] = [{} for _ in range(self.matrix.shape[0])]
        for rows, left, right in self.pieces:
            combined = right if left is None else _combined(left, right)
            for row, values in zip(rows.tolist(), combined):
                found[row] = values
        return found

    def exact(self, moved: Mapping[int, Fraction]) -> list[Fraction]:
        """Return z of one difference in rational numbers."""
        found = [Fraction(0)] * self.matrix.shape[0]
        for rows, left, right in self.pieces:
            outputs = [dot(row, moved) for row in right]
            if not any(outputs):
                continue
            for i, row in enumerate(rows.tolist()):
                found[row] = (
                    outputs[i]
                    if left is None
                    else sum((a * b for a, b in zip(left[i], outputs)), Fraction(0))
                )
        return found


def _combined(
    left: list[list[Fraction]], right: list[dict[int, Fraction]]
) -> list[dict[int, Fraction]]:
    """The product of exact matrices, by rows."""
    return [combination((w, row) for w, row in zip(weights, right) if w) for weights in left]


def rounded_rows(rows: list[dict[int, Fraction]], width: int) -> Matrix:
    """Return exact rows as a sparse matrix, each number rounded once."""
    import scipy.sparse as sparse

    place = [i for i, row in enumerate(rows) for _ in row]
    columns = [j for row in rows for j in row]
    values = [float(c) for row in rows for c in row.values()]
    found: Matrix = sparse.csr_array((values, (place, columns)), shape=(len(rows), width))
    return found


def _pieces(left: Any) -> Iterator[tuple[IntArray, IntArray]]:
    """Coordinates that are read together, and as many independent outputs that show them."""
    from scipy.linalg import qr

    ones = np.diff(left.indptr) == 1
    ones[ones] = left.data[left.indptr[:-1][ones]] == 1.0
    places = np.flatnonzero(ones)[::-1]
    alone = dict(zip(left.indices[left.indptr[places]].tolist(), places.tolist()))
    shown: list[int] = []  # coordinates that are outputs themselves
    for outputs, columns in connected_parts(left):
        if all(j in alone for j in columns.tolist()):
            shown.extend(columns.tolist())
            continue
        if len(outputs) < len(columns):
            raise AffineDPError(DEPENDENT)
        block = dense(left[outputs][:, columns])
        _, triangle, order = qr(block.T, mode="economic", pivoting=True)
        diagonal = np.abs(np.diagonal(triangle))
        if diagonal[-1] <= 1e-10 * diagonal[0]:
            raise AffineDPError(DEPENDENT)
        yield columns, outputs[np.sort(order[: len(columns)])]
    if shown:
        shown.sort()
        yield np.array(shown), np.array([alone[j] for j in shown])


def moves_of(adjacency: Adjacency, query: Matrix) -> FloatArray:
    """Return how neighbours move the outputs, as columns: their hull is the hull of the moves."""
    moves = dense(query @ adjacency.directions())
    return np.asarray(moves[:, moves.any(axis=0)])


def points_on_outputs(points: Matrix) -> tuple[Matrix, Matrix]:
    """Return a basis that is the identity on some outputs, and the points on those outputs."""
    from scipy.linalg import qr

    whole = dense(points)
    if not whole.any():
        raise AffineDPError("noise_matrix is zero: there is no noise")
    if whole.size <= MOST_POINTS and meant_numbers(whole):
        return _exactly_on_outputs(whole)
    size = np.abs(whole).max(axis=1)
    unit = np.where(size > 0, size, 1.0)[:, None]
    _, triangle, order = qr((whole / unit).T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > 1e-10 * diagonal[0]).sum())
    places = np.sort(order[:rank])
    chosen = whole[places]
    basis = np.linalg.lstsq((chosen / unit[places]).T, (whole / unit).T, rcond=None)[0].T
    basis[np.abs(basis) < 1e-13 * np.abs(basis).max()] = 0.0
    basis = basis * unit / unit[places].T
    basis[places] = np.eye(rank)
    return basis, chosen


def _exactly_on_outputs(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for numbers that were given: which outputs depend on others is no rounding."""
    outputs, count = points.shape
    canonical, _ = eliminate_exactly(given_rows(points.T), [Fraction(0)] * count, outputs)
    order = np.argsort(canonical.pivots)
    places = canonical.pivots[order]
    basis = np.zeros((outputs, len(places)))
    basis[places] = np.eye(len(places))
    basis[canonical.free] = dense(canonical.reduced).T[:, order]
    return basis, points[places]


MOST_WHOLE_MOVES = 200_000
# Whole moves under sums of so many entries are listed.
FEW_ENTRIES = 100

Exact = Callable[[Mapping[int, Fraction]], list[Fraction]]


def largest_of_gauge(strategy: Matrices, adjacency: Adjacency, law: Law) -> Largest:
    """Return the largest gauge of a move of ``F x + basis z``, in exact arithmetic if it can be."""
    query, basis = strategy.query, strategy.noise
    if isinstance(law, KNorm):
        exchange = exchange_gauge(adjacency, query, basis, law.points)
        if exchange is not None:  # noise on everything that the sum leaves open
            return _exchanged(adjacency, exchange, law)
    leak = strategy.leak(law, Span.of(adjacency))
    if leak is not None:
        return Largest(math.inf, math.inf, True, "", because=f": {NOT_COVERED}", leak=leak)
    coordinates = Coordinates.of(query, basis, law)
    if isinstance(law, KNorm) and type(adjacency) is CircuitAdjacency:
        sums = law.bodies.sums
        long = law.whole and any(part.width != 1 for part in sums)
        # a list gives a better curve
        if len(sums) == len(law.parts) and not (long and law.size <= FEW_ENTRIES):
            return _largest_sum(adjacency, coordinates, law)
    if isinstance(law, Staircase) and law.size == 1:
        found = _farthest(adjacency, coordinates, law)
        if found is not None:
            return found
    if law.whole:
        return _whole_moves(adjacency, coordinates, law)
    return largest_gauge(adjacency, coordinates.matrix, law, coordinates.exact)


class Body(Protocol):
    """Noise that can tell the gauge of its coordinates: a law, or bodies on a grid."""

    def gauges(self, columns: FloatArray, doubt: FloatArray, /) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""

    def gauge(self, move: list[Fraction], /) -> Fraction:
        """Return the gauge exactly."""


def largest_gauge(
    adjacency: Adjacency,
    matrix: Matrix,
    body: Body,
    exact: Exact,
    enough: float = 0.0,
) -> Largest:
    """Return the largest gauge of all moves: bounds for all, exactly for those on top."""

    def measure(moves: Matrix, absolute: bool) -> Matrix:
        return (abs(matrix) if absolute else matrix) @ moves

    def found(low: float | Fraction, high: float | Fraction, worst: FloatArray | None) -> Largest:
        return Largest(low, high, True, top.method, worst, moves=Moves(largest=high))

    top = on_top(adjacency, measure, body.gauges)
    if not len(top.upper):
        return found(0.0, 0.0, None)
    if len(top.upper) > MOST_EXACT or top.above <= top.best * (1 + enough):
        return found(top.best, top.above, top.worst)
    known = [one() for one in top.exact]
    values = [None if move is None else body.gauge(exact(move)) for move in known]
    # a move that is rounded is off, and what it cancels to by far more: only its bound holds
    most = [Fraction(high) if v is None else v for v, high in zip(values, top.upper.tolist())]
    highest = max(most)
    lowest = max([Fraction(top.best), *(value for value in values if value is not None)])
    return found(lowest, highest, top.columns[:, most.index(highest)])


def _farthest(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> Largest | None:
    """Of one coordinate the farthest move has the largest gauge; None where a list must tell it."""
    found = adjacency.sensitivity(coordinates.matrix, 1)
    low, high = _of_one_norm(adjacency, coordinates.is_exact, coordinates.matrix, found)
    direction = found.direction
    if law.whole:
        exact = isinstance(adjacency, CircuitAdjacency) and adjacency.exact_direction(direction)
        move = whole_move(exact) if exact else {}
        low = abs(coordinates.exact(move)[0])
        direction = whole_part(move, direction) if move else direction
    gauge = law.gauge([high])
    if law.gauge([low]) != gauge:
        return None
    return Largest(gauge, gauge, True, found.method, direction, moves=Moves(largest=gauge))


def _of_one_norm(
    adjacency: Adjacency, is_exact: bool, matrix: Matrix, found: Sensitivity
) -> tuple[Fraction, Fraction]:
    """Bounds on the largest 1-norm, of which one was found for a matrix that may be rounded."""
    import scipy.sparse as sparse

    low, high = Fraction(found.value), Fraction(found.upper)
    if not is_exact:
        spread = sparse.diags_array(np.asarray(abs(matrix).sum(axis=0)).ravel())
        off = Fraction(8 * EPS * adjacency.sensitivity(sparse.csr_array(spread), 1).upper)
        low, high = max(Fraction(0), low - off), high + off
    return low, high


def _exchanged(adjacency: Adjacency, gauge: Fraction, law: KNorm) -> Largest:
    """One public sum: all moves are alike."""
    signs = np.sign(np.array([adjacency.manifold.D[0, 0], adjacency.manifold.D[0, 1]]))
    direction = np.zeros(adjacency.manifold.n)
    (part,) = law.bodies.sums
    length, steps = gauge * part.width, {}
    if law.whole:
        times = math.floor(length)
        length, gauge = Fraction(times), times / part.width
        steps = {times: rounded_up(gauge * Fraction(law.rate))} if times else {}
    direction[:2] = float(length) * signs * [1, -1]
    gauge = gauge * Fraction(law.rate)
    moves, method = Moves(steps=steps, largest=gauge), "one public sum, closed form"
    return Largest(gauge, gauge, True, method, direction, moves=moves)


def _largest_sum(adjacency: CircuitAdjacency, coordinates: Coordinates, law: KNorm) -> Largest:
    """Under public sums the gauge is a 1-norm, and nothing need be listed."""
    import scipy.sparse as sparse

    sums, rate = law.bodies.sums, Fraction(law.rate)
    widths = {part.width for part in sums}
    # half the 1-norm of a move, in units of the common width if there is one
    unit = 2 * next(iter(widths)) if len(widths) == 1 else Fraction(1)
    scale = np.ones(coordinates.matrix.shape[0])
    if len(widths) > 1:
        for part in sums:
            scale[part.rows] = 1 / (2 * float(part.width))
    matrix = sparse.csr_array(sparse.diags_array(scale) @ coordinates.matrix)
    found = adjacency.sensitivity(matrix, 1)
    is_exact = len(widths) == 1 and coordinates.is_exact
    low, high = (c / unit for c in _of_one_norm(adjacency, is_exact, matrix, found))
    direction, move = found.direction, adjacency.exact_direction(found.direction)
    if law.whole:
        # half the 1-norm of a whole move is whole
        low = Fraction(0)
        if len(widths) == 1:
            (width,) = widths
            high = Fraction(math.floor(high * width)) / width
    if move is not None:
        if law.whole:
            move, direction = whole_move(move), whole_part(move, direction)
        z = coordinates.exact(move)
        low = max(low, _gauge_of_sums(z, sums))
    low, high = min(low, high) * rate, high * rate
    # rounding aside, the bound for whole moves is attained or too large
    certain = not law.whole or low == high
    return Largest(low, high, certain, found.method, direction, moves=Moves(largest=high))


def _gauge_of_sums(move: list[Fraction], sums: tuple[SumPart, ...]) -> Fraction:
    return sum((part.gauge([move[i] for i in part.rows.tolist()]) for part in sums), Fraction(0))


def _whole_moves(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> Largest:
    """Whole multiples of lattice steps that are no longer than a move."""
    parts = law.parts if isinstance(law, KNorm) else ()
    axes = [part.rows.tolist() for part in parts if isinstance(part, AxesPart)]
    single = {row for rows in axes for row in rows}
    top, worst, on_axes, one_step, count = Fraction(0), None, True, False, 0
    steps: dict[int, float] = {}
    for move, column in known_moves(adjacency, MOST_LISTED):
        count += 1
        if count > MOST_WHOLE_MOVES:
            raise AffineDPError(
                f"more than {MOST_WHOLE_MOVES:,} moves on whole numbers: treat the data as real"
            )
        step, times = whole_steps(coordinates.exact(whole_move(move)))
        if times == 0:
            continue
        # of the whole multiple: a staircase's steps do not add up
        gauge = law.gauge([Fraction(times * c) for c in step])
        steps[times] = max(steps.get(times, 0.0), rounded_up(gauge))
        moved = [i for i, c in enumerate(step) if c]
        along = len(moved) == 1 and moved[0] in single
        on_axes = on_axes and along
        one_step = (one_step and gauge <= top) or (gauge >= top and along and times == 1)
        if gauge > top:
            top, worst = gauge, whole_part(move, column)
    method = f"listed {count:,} moves on whole numbers"
    moves = Moves(steps=steps, on_axes=on_axes, one_step=one_step, largest=top)
    return Largest(top, top, True, method, worst, moves=moves)
