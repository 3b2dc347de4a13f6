"""How far neighbours are apart in any gauge: the list of moves, closed forms, whole moves.

Bounds in floating point are taken for all moves, and those on top are computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.errors import AffineDPError
from affinedp.laws.base import Gauges, Law, Moves
from affinedp.laws.bodies import AxesPart, SumPart
from affinedp.laws.knorm import KNorm
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.exact_moves import exact_move, whole_part
from affinedp.neighbours.whole import whole_steps
from affinedp.strategies.base import EPS, MOST_EXACT, MOST_LISTED, Largest, rounded_up
from affinedp.strategies.coordinates import Coordinates
from affinedp.strategies.coverage import NOT_COVERED, Span, bare_combination, noise_range
from affinedp.strategies.matrices import Matrices
from affinedp.strategies.one_sum import exchange_gauge

MOST_WHOLE_MOVES = 200_000
# Whole moves under sums of so many entries are listed.
FEW_ENTRIES = 100

Exact = Callable[[Mapping[int, Fraction]], list[Fraction]]


def largest_of_gauge(strategy: Matrices, adjacency: Adjacency, law: Law) -> Largest:
    """Return the largest gauge of a move of ``F x + basis z``, in exact arithmetic if it can be.

    Parameters
    ----------
    strategy : Matrices
        F, and independent vectors that span the noise.
    adjacency : Adjacency
        The neighbours; their moves can be listed, unless all noise is under public sums.
    law : Law
        Of z; if it is whole, so is data.
    """
    query, basis = strategy.query, strategy.noise
    if isinstance(law, KNorm):
        exchange = exchange_gauge(adjacency, query, basis, law.points)
        if exchange is not None:  # noise on everything that the sum leaves open
            return _exchanged(adjacency, exchange, law)
    leak = bare_combination(noise_range(strategy, law), query, Span.of(adjacency))
    if leak is not None:
        return Largest(math.inf, math.inf, True, "", because=f": {NOT_COVERED}", leak=leak)
    coordinates = Coordinates.of(query, basis, law)
    if isinstance(law, KNorm) and type(adjacency) is CircuitAdjacency:
        sums = law.bodies.sums
        long = law.whole and any(part.width != 1 for part in sums)
        # a list gives a better curve
        if len(sums) == len(law.parts) and not (long and law.size <= FEW_ENTRIES):
            return _largest_sum(adjacency, coordinates, law)
    if law.whole:
        return _whole_moves(adjacency, coordinates, law)
    found = largest_gauge(adjacency, coordinates.matrix, law, coordinates.exact)
    method = f"listed {found.count:,} moves"
    moves = Moves(largest=found.upper)
    return Largest(found.lower, found.upper, True, method, found.direction, moves=moves)


class Body(Protocol):
    """Noise that can tell the gauge of its coordinates: a law, or bodies on a grid."""

    def gauges(self, columns: FloatArray, doubt: FloatArray, /) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""

    def gauge(self, move: list[Fraction], /) -> Fraction:
        """Return the gauge exactly."""


@dataclass(frozen=True, eq=False)
class LargestGauge:
    """The largest gauge of a move.

    Attributes
    ----------
    lower, upper : float or Fraction
        Certain bounds, rounding included; equal where it is known.
    direction : array, shape (n,), or None
        A move that has it.
    count : int
        How many moves were listed.
    """

    lower: float | Fraction
    upper: float | Fraction
    direction: FloatArray | None
    count: int


def largest_gauge(
    adjacency: Adjacency,
    matrix: Matrix,
    body: Body,
    exact: Exact,
    enough: float = 0.0,
) -> LargestGauge:
    """Return the largest gauge of all moves.

    Parameters
    ----------
    adjacency : Adjacency
        Its directions can be listed.
    matrix : matrix, shape (r, n)
        Coordinates of a move, each number rounded once.
    body : Body
        The noise.
    exact : callable
        Returns the coordinates of a move in rational numbers.
    enough : float
        Bounds that differ by less than this share will do, without exact arithmetic.
    """
    rounding = 8 * EPS * (adjacency.manifold.n + 8)
    best, count = 0.0, 0
    near: list[tuple[FloatArray, FloatArray]] = []
    for listed in adjacency.moves(MOST_LISTED):
        block, off = listed.values, listed.off
        count += block.shape[1]
        moves = dense(matrix @ block)
        doubt = dense(abs(matrix) @ (off + rounding * np.abs(block)))
        gauges = body.gauges(moves, doubt)
        best = max(best, float(gauges.lower.max(initial=0.0)))
        chosen = gauges.upper >= best
        near.append((block[:, chosen], gauges.upper[chosen]))
    upper = np.concatenate([part for _, part in near]) if near else np.zeros(0)
    if not len(upper):
        return LargestGauge(0.0, 0.0, None, count)
    columns = np.hstack([part for part, _ in near])[:, upper >= best]
    upper = upper[upper >= best]
    above, worst = float(upper.max()), columns[:, int(np.argmax(upper))]
    if columns.shape[1] > MOST_EXACT or above <= best * (1 + enough):
        return LargestGauge(best, above, worst, count)
    read = [exact_move(adjacency, column) for column in columns.T]
    values = [body.gauge(exact(move)) for move, _ in read]
    top = max(values)
    worst = columns[:, values.index(top)]
    # doubles that are not the move itself are off by their rounding, and what they cancel to by
    # far more: of those only the bounds hold
    unknown = [value for value, (_, known) in zip(upper.tolist(), read) if not known]
    if not unknown:
        return LargestGauge(top, top, worst, count)
    known = [value for value, (_, sure) in zip(values, read) if sure]
    highest = max([*known, Fraction(max(unknown))])
    return LargestGauge(max([*known, Fraction(best)]), highest, worst, count)


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


def _largest_sum(adjacency: Adjacency, coordinates: Coordinates, law: KNorm) -> Largest:
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
    low, high = Fraction(found.value) / unit, Fraction(found.upper) / unit
    if len(widths) > 1 or not coordinates.is_exact:
        spread = sparse.diags_array(np.asarray(abs(matrix).sum(axis=0)).ravel())
        off = 8 * EPS * adjacency.sensitivity(sparse.csr_array(spread), 1).upper
        low, high = max(Fraction(0), low - Fraction(off) / unit), high + Fraction(off) / unit
    direction = found.direction
    move, known = exact_move(adjacency, direction)
    z = coordinates.exact(move)
    if known:
        low = max(low, _gauge_of_sums(z, sums))
    if law.whole:
        # half the 1-norm of a whole move is whole
        step, times = whole_steps(z)
        low = _gauge_of_sums([Fraction(times * c) for c in step], sums)
        if len(widths) == 1:
            (width,) = widths
            high = Fraction(math.floor(high * width)) / width
        if known:
            direction = whole_part(move, found.direction)
    low, high = min(low, high) * rate, high * rate
    return Largest(low, high, True, found.method, direction, moves=Moves(largest=high))


def _gauge_of_sums(move: list[Fraction], sums: tuple[SumPart, ...]) -> Fraction:
    return sum((part.gauge([move[i] for i in part.rows.tolist()]) for part in sums), Fraction(0))


def _whole_moves(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> Largest:
    """Whole multiples of lattice steps that are no longer than a move."""
    parts = law.parts if isinstance(law, KNorm) else ()
    axes = [part.rows.tolist() for part in parts if isinstance(part, AxesPart)]
    single = {row for rows in axes for row in rows}
    top, worst, on_axes, one_step, count = Fraction(0), None, True, False, 0
    steps: dict[int, float] = {}
    for listed in adjacency.moves(MOST_LISTED):
        block = listed.values
        count += block.shape[1]
        if count > MOST_WHOLE_MOVES:
            raise AffineDPError(
                f"more than {MOST_WHOLE_MOVES:,} moves on whole numbers: treat the data as real"
            )
        for column in block.T:
            move, known = exact_move(adjacency, column)
            if not known:
                raise AffineDPError(
                    "the moves are no short fractions, so that whole neighbours cannot be told "
                    "exactly: treat the data as real"
                )
            step, times = whole_steps(coordinates.exact(move))
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
