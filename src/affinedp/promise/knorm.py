"""What K-norm noise promises: the largest gauge of a move, in exact arithmetic where it can be.

Noise of density e^(−rate ‖z‖_K) is purely private by the triangle inequality, with ε = rate times
the largest ‖n‖_K over the moves n; on the cones over the facets that contain n / ‖n‖_K the loss is
exactly that, so nothing less is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law, Moves
from affinedp.laws.bodies import AxesPart, SumPart
from affinedp.laws.curves import EPS, NoPromise
from affinedp.laws.knorm import KNorm
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.whole import whole_steps
from affinedp.promise.coordinates import Coordinates
from affinedp.promise.exact_moves import exact_move, whole_part
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.largest_gauge import LISTED, largest_gauge
from affinedp.promise.one_sum import exchange_gauge
from affinedp.promise.whitening import combination_without_noise

MOST_WHOLE_MOVES = 200_000
# Whole moves under sums of so many entries are listed.
FEW_ENTRIES = 100


def knorm_promise(
    adjacency: Adjacency,
    query: Matrix,
    basis: Matrix,
    law: Law,
    output_names: tuple[str, ...],
) -> Guarantee:
    """Return the guarantee of ``F x + basis z`` with z of a law that is bound to its coordinates.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about; its directions can be listed, unless all noise is under
        public sums.
    query, basis : matrices, shapes (m, n) and (m, r)
        F, and independent vectors that span the noise.
    law : Law
        Of z; if it is whole, so is data.
    output_names : tuple of str
        Names of the m outputs.
    """
    shared: dict[str, Any] = {
        "law": law.kind,
        "neighbours": neighbours_of(adjacency, law.whole),
        "neighbours_key": neighbours_key_of(adjacency, law.whole),
        "unit": adjacency.unit,
        "names": adjacency.manifold.names,
        "output_names": output_names,
    }
    exchange = None
    if isinstance(law, KNorm):
        exchange = exchange_gauge(adjacency, query, basis, law.points)
    if exchange is None:
        span = law.span()
        leak = combination_without_noise(adjacency, basis if span is None else basis @ span, query)
    else:
        leak = None  # noise on everything that the sum leaves open
    if leak is not None:
        return Guarantee(
            sensitivity=math.inf, exact=True, curve=NoPromise(), leak=leak,
            basis="the noise does not cover the range of the query", **shared,
        )  # fmt: skip
    if exchange is None:
        found = _largest(adjacency, Coordinates.of(query, basis, law), law)
    else:
        found = _exchanged(adjacency, exchange, law)
    upper = _rounded_up(found.upper)
    lower = math.nextafter(float(found.lower), 0.0)
    moves = Moves(
        steps=found.steps, on_axes=found.on_axes, one_step=found.one_step, largest=found.upper
    )
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=max(0.0, min(lower, upper)),
        exact=True,
        basis=law.theorem,
        curve=law.curve(upper, moves),
        worst_direction=found.direction,
        method=found.method,
        **shared,
    )


def neighbours_of(adjacency: Adjacency, integers: bool) -> str:
    """Return whom a promise is about, in words: whole neighbours only, if data is whole."""
    return adjacency.words + ("; whole numbers" if integers else "")


def neighbours_key_of(adjacency: Adjacency, integers: bool) -> str:
    """Return a hash of whom a promise is about."""
    return adjacency.key + (" integers" if integers else "")


# ---------------------------------------------------------------------- the largest gauge


@dataclass(frozen=True, eq=False)
class _Found:
    lower: float | Fraction
    upper: float | Fraction
    direction: FloatArray | None
    method: str
    steps: dict[int, float]
    # Whole moves: whether all are along one axis of independent noise, where discrete Laplace
    # noise is the law itself; and whether one of the longest is a single step there, where its
    # loss is that of randomised response.
    on_axes: bool = False
    one_step: bool = False


def _largest(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> _Found:
    if isinstance(law, KNorm) and type(adjacency) is CircuitAdjacency:
        sums = law.bodies.sums
        long = law.whole and any(part.width != 1 for part in sums)
        # a list gives a better curve
        if len(sums) == len(law.parts) and not (long and law.size <= FEW_ENTRIES):
            return _largest_sum(adjacency, coordinates, law)
    return _listed_moves(adjacency, coordinates, law)


def _exchanged(adjacency: Adjacency, gauge: Fraction, law: Law) -> _Found:
    """One public sum: all moves are alike."""
    assert isinstance(law, KNorm)
    signs = np.sign(np.array([adjacency.manifold.D[0, 0], adjacency.manifold.D[0, 1]]))
    direction = np.zeros(adjacency.manifold.n)
    (part,) = law.bodies.sums
    length, steps = gauge * part.width, {}
    if law.whole:
        times = math.floor(length)
        length, gauge = Fraction(times), times / part.width
        steps = {times: _rounded_up(gauge * Fraction(law.rate))} if times else {}
    direction[:2] = float(length) * signs * [1, -1]
    gauge = gauge * Fraction(law.rate)
    return _Found(gauge, gauge, direction, "one public sum, closed form", steps)


def _largest_sum(adjacency: Adjacency, coordinates: Coordinates, law: KNorm) -> _Found:
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
    return _Found(min(low, high) * rate, high * rate, direction, found.method, {})


def _gauge_of_sums(move: list[Fraction], sums: tuple[SumPart, ...]) -> Fraction:
    return sum((part.gauge([move[i] for i in part.rows.tolist()]) for part in sums), Fraction(0))


def _listed_moves(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> _Found:
    if law.whole:
        return _whole_moves(adjacency, coordinates, law)
    found = largest_gauge(adjacency, coordinates.matrix, law, coordinates.exact)
    method = f"listed {found.count:,} moves"
    return _Found(found.lower, found.upper, found.direction, method, {})


def _whole_moves(adjacency: Adjacency, coordinates: Coordinates, law: Law) -> _Found:
    """Whole multiples of lattice steps that are no longer than a move."""
    parts = law.parts if isinstance(law, KNorm) else ()
    axes = [part.rows.tolist() for part in parts if isinstance(part, AxesPart)]
    single = {row for rows in axes for row in rows}
    top, worst, on_axes, one_step, count = Fraction(0), None, True, False, 0
    steps: dict[int, float] = {}
    for listed in adjacency.moves(LISTED):
        count += listed.values.shape[1]
        if count > MOST_WHOLE_MOVES:
            raise AffineDPError(
                f"more than {MOST_WHOLE_MOVES:,} moves on whole numbers: treat the data as real"
            )
        for column in listed.values.T:
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
            steps[times] = max(steps.get(times, 0.0), _rounded_up(gauge))
            moved = [i for i, c in enumerate(step) if c]
            along = len(moved) == 1 and moved[0] in single
            on_axes = on_axes and along
            one_step = (one_step and gauge <= top) or (gauge >= top and along and times == 1)
            if gauge > top:
                top, worst = gauge, whole_part(move, column)
    method = f"listed {count:,} moves on whole numbers"
    return _Found(top, top, worst, method, steps, on_axes, one_step)


def _rounded_up(gauge: float | Fraction) -> float:
    near = float(gauge)
    return near if Fraction(near) >= gauge else math.nextafter(near, math.inf)
