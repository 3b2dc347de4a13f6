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
from affinedp.bodies.axes import AxesPart
from affinedp.bodies.noise import KNormNoise, StairsNoise, SumPart, noise_span
from affinedp.bodies.one_sum import largest_loss_probability
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import readable
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.whole import whole_steps
from affinedp.promise.coordinates import Coordinates
from affinedp.promise.curves import EPS, Curve, NoPromise
from affinedp.promise.exact_moves import exact_move, whole_part
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.knorm_curves import KNormCurve, LatticeCurve
from affinedp.promise.largest_gauge import LISTED, gauge_of, largest_gauge
from affinedp.promise.one_sum import exchange_gauge
from affinedp.promise.pure_pairs import ThreeAtoms
from affinedp.promise.whitening import combination_without_noise

MOST_WHOLE_MOVES = 200_000
# Whole moves under sums of so many entries are listed.
FEW_ENTRIES = 100
# The law on a grid has this much more of the largest loss, at most; releases check it.
ROUNDING = 1e-9
STEPS = "every move crosses so many steps of the staircase at most, and some points cross them"
BASIS = "the triangle inequality of the gauge, with equality on the cones over its facets"


def knorm_promise(
    adjacency: Adjacency,
    query: Matrix,
    basis: Matrix,
    root: Matrix,
    rate: float,
    integers: bool,
    output_names: tuple[str, ...],
    noise: KNormNoise | None = None,
) -> Guarantee:
    """Return the guarantee of ``F x + basis z`` with z of density e^(−rate ‖z‖_K).

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about; its directions can be listed, unless all noise is under
        public sums.
    query, basis, root : matrices, shapes (m, n), (m, r) and (r, p)
        F, independent vectors that span the noise, and points of K as columns, up to sign.
    rate : float
        The rate.
    integers : bool
        Whether data is whole, and z is drawn from whole coordinates.
    output_names : tuple of str
        Names of the m outputs.
    noise : KNormNoise, optional
        The body of ``root``, if it is known already.
    """
    shared: dict[str, Any] = {
        "law": "staircase" if isinstance(noise, StairsNoise) else "knorm",
        "neighbours": neighbours_of(adjacency, integers),
        "neighbours_key": neighbours_key_of(adjacency, integers),
        "unit": adjacency.unit,
        "names": adjacency.manifold.names,
        "output_names": output_names,
    }
    body = KNormNoise(root, rate, integers) if noise is None else noise
    stairs = isinstance(body, StairsNoise)
    exchange = None if stairs else exchange_gauge(adjacency, query, basis, root)
    if exchange is None:
        span = None if stairs else noise_span(root)
        leak = combination_without_noise(adjacency, basis if span is None else basis @ span, query)
    else:
        leak = None  # noise on everything that the sum leaves open
    if leak is not None:
        return Guarantee(
            sensitivity=math.inf, exact=True, curve=NoPromise(), leak=leak,
            basis="the noise does not cover the range of the query", **shared,
        )  # fmt: skip
    if exchange is None:
        found = _largest(adjacency, Coordinates.of(query, basis, body), body)
    else:
        found = _exchanged(adjacency, exchange, body)
    upper = _rounded_up(found.upper, rate)
    lower = math.nextafter(float(found.lower) * rate, 0.0)
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=max(0.0, min(lower, upper)),
        exact=True,
        basis=STEPS if stairs else BASIS,
        curve=_curve(body, upper, found, integers),
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


def _curve(body: KNormNoise, upper: float, found: _Found, integers: bool) -> Curve:
    """The curve below ε."""
    if isinstance(body, StairsNoise):
        # within one step the loss is ε, 0 or −ε; a move by all of a width is the worst
        one = found.upper <= 1
        return ThreeAtoms(upper, float(body.stairs.tops.max()) * (1 + ROUNDING) if one else None)
    if not integers:
        return KNormCurve(upper)
    sums = [part for part in body.parts if isinstance(part, SumPart)]
    if len(sums) == len(body.parts) and found.upper <= 1 and all(p.width == 1 for p in sums):
        # a whole move of gauge 1 takes 1 from one entry and gives it to another
        top = max(largest_loss_probability(len(part.rows), upper) for part in sums)
        equal = len({len(part.rows) for part in sums}) == 1
        return ThreeAtoms(upper, top, exact=equal)
    if found.one_step:  # nothing purely ε-private is above it
        return ThreeAtoms(upper, exact=True)
    return LatticeCurve(upper, tuple(sorted(found.steps.items())), exact=found.on_axes)


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


def _largest(adjacency: Adjacency, coordinates: Coordinates, body: KNormNoise) -> _Found:
    sums = [part for part in body.parts if isinstance(part, SumPart)]
    if len(sums) == len(body.parts) and type(adjacency) is CircuitAdjacency:
        long = body.integers and any(part.width != 1 for part in sums)
        if not (long and body.size <= FEW_ENTRIES):  # a list gives a better curve
            return _largest_sum(adjacency, coordinates, sums)
    return _listed_moves(adjacency, coordinates, body)


def _exchanged(adjacency: Adjacency, gauge: Fraction, body: KNormNoise) -> _Found:
    """One public sum: all moves are alike."""
    signs = np.sign(np.array([adjacency.manifold.D[0, 0], adjacency.manifold.D[0, 1]]))
    direction = np.zeros(adjacency.manifold.n)
    width = readable(body.parts[0].width) if isinstance(body.parts[0], SumPart) else Fraction(1)
    length, steps = gauge * width, {}
    if body.integers:
        times = math.floor(length)
        length, gauge = Fraction(times), times / width
        steps = {times: _rounded_up(gauge, body.rate)} if times else {}
    direction[:2] = float(length) * signs * [1, -1]
    return _Found(gauge, gauge, direction, "one public sum, closed form", steps)


def _largest_sum(adjacency: Adjacency, coordinates: Coordinates, sums: list[SumPart]) -> _Found:
    """Under public sums the gauge is a 1-norm, and nothing need be listed."""
    import scipy.sparse as sparse

    widths = {readable(part.width) for part in sums}
    # half the 1-norm of a move, in units of the common width if there is one
    unit = 2 * next(iter(widths)) if len(widths) == 1 else Fraction(1)
    scale = np.ones(coordinates.matrix.shape[0])
    if len(widths) > 1:
        for part in sums:
            scale[part.rows] = 1 / (2 * part.width)
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
    if sums[0].integers:
        # half the 1-norm of a whole move is whole
        step, times = whole_steps(z)
        low = _gauge_of_sums([Fraction(times * c) for c in step], sums)
        if len(widths) == 1:
            (width,) = widths
            high = Fraction(math.floor(high * width)) / width
        if known:
            direction = whole_part(move, found.direction)
    return _Found(min(low, high), high, direction, found.method, {})


def _gauge_of_sums(move: list[Fraction], sums: list[SumPart]) -> Fraction:
    return sum((part.gauge([move[i] for i in part.rows.tolist()]) for part in sums), Fraction(0))


def _listed_moves(adjacency: Adjacency, coordinates: Coordinates, body: KNormNoise) -> _Found:
    if body.integers:
        return _whole_moves(adjacency, coordinates, body)
    found = largest_gauge(adjacency, coordinates.matrix, body.parts, coordinates.exact)
    method = f"listed {found.count:,} moves"
    return _Found(found.lower, found.upper, found.direction, method, {})


def _whole_moves(adjacency: Adjacency, coordinates: Coordinates, body: KNormNoise) -> _Found:
    """Whole multiples of lattice steps that are no longer than a move."""
    axes = [part.rows.tolist() for part in body.parts if isinstance(part, AxesPart)]
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
            gauge = gauge_of([Fraction(times * c) for c in step], body.parts)
            steps[times] = max(steps.get(times, 0.0), _rounded_up(gauge, body.rate))
            moved = [i for i, c in enumerate(step) if c]
            along = len(moved) == 1 and moved[0] in single
            on_axes = on_axes and along
            one_step = (one_step and gauge <= top) or (gauge >= top and along and times == 1)
            if gauge > top:
                top, worst = gauge, whole_part(move, column)
    method = f"listed {count:,} moves on whole numbers"
    return _Found(top, top, worst, method, steps, on_axes, one_step)


def _rounded_up(gauge: float | Fraction, rate: float) -> float:
    product = Fraction(gauge) * Fraction(rate)
    near = float(product)
    return near if Fraction(near) >= product else math.nextafter(near, math.inf)
