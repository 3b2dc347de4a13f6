"""How far combinations of K-norm noise reach, from their law.

On the cone over a boundary simplex with vertices a_1..a_r the noise is Σ a_i E_i with independent
exponential E_i, so a combination of it is X = Σ s_i E_i with s_i = c·a_i: a mixture over the cones.
The positive terms are the time that a chain of states takes, with the generator T of exponential
stages; negative ones average over a later start: P(X > t) = e₁ᵀ e^(Tt) Π_j (I − |s_j| T)⁻¹ 1.
All of this has nonnegative numbers only, so that nothing cancels and small tails keep their digits.

Given the point of a unit box, noise on a lattice is Σ (λ_i + t_i) a_i with geometric t_i that are
independent (see :mod:`affinedp.laws.polytope`).  So the characteristic function of a combination is
a sum over cones of products, and one discrete Fourier transform makes probabilities of it; all that
wraps around or is rounded is counted against them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix
from affinedp.laws.bodies import AxesPart, Bodies, HullPart, SumPart
from affinedp.laws.polytope import LatticeCones
from affinedp.laws.reach import (
    END,
    Reach,
    Stairs,
    Steps,
    WholeLaw,
    WholeTerm,
    lattice_reach,
    proportions,
    sparse_rows,
)

# Components of a mixture, and terms of each.
MOST_COMPONENTS = 20_000
MOST_TERMS = 16
# Terms so much smaller than the largest of their component are taken larger: the reach grows.
LEAST = 2.0**-16
# Scales are rounded up to so many bits, so that equal ones are found equal.
BITS = 2.0**30
# Beyond so many times the largest scale nothing is left that a double could hold.
NOTHING = 800.0
TAYLOR = 30


@dataclass(frozen=True, eq=False)
class Mixture:
    """A symmetric law: with probability ``shares[i]`` it is Σ_j scales[i, j] E_j."""

    shares: FloatArray  # they add up to 1; shape (N,)
    scales: FloatArray  # of either sign; zeros are no terms; shape (N, d)

    def plus(self, other: Mixture) -> Mixture | None:
        """Return the law of the sum of two independent ones; None if it has too many components."""
        size = len(self.shares) * len(other.shares)
        if size > MOST_COMPONENTS or self.scales.shape[1] + other.scales.shape[1] > MOST_TERMS:
            return None
        first = np.repeat(self.scales, len(other.shares), axis=0)
        second = np.tile(other.scales, (len(self.shares), 1))
        shares = np.outer(self.shares, other.shares).ravel()
        return Mixture(shares, np.concatenate([first, second], axis=1)).folded()

    def folded(self) -> Mixture:
        """Return the same with equal components as one; rounding makes it reach no less far."""
        scales = np.sort(_rounded_up(self.scales), axis=1)
        different, where = np.unique(scales, axis=0, return_inverse=True)
        shares = np.bincount(where.ravel(), self.shares)
        return Mixture(np.asarray(shares, dtype=float), different)

    def tail(self, t: float) -> float:
        """Return P(|X| > t), rounded up."""
        total = 1e-300
        counts = (self.scales > 0).sum(axis=1)
        for count in np.unique(counts[counts > 0]).tolist():
            own = counts == count
            total += float(self.shares[own] @ _tails(self.scales[own], count, t))
        # the law is symmetric, whatever its components are
        return 2 * total * (1 + 64 * EPS)

    def reach(self, outside: float) -> float:
        """Return a t with P(|X| > t) ≤ outside, longer than needed by 1e-8 of itself at most."""
        from scipy.optimize import brentq

        high = float(np.abs(self.scales).max(initial=0.0))
        if high == 0.0:
            return 0.0
        while self.tail(high) > outside:
            high *= 2
        wanted = math.log(outside)
        t = float(
            brentq(
                lambda t: math.log(self.tail(t)) - wanted, 0.0, high, xtol=1e-11 * high, rtol=1e-10
            )
        )
        more = 1e-10
        while self.tail(t) > outside:
            t, more = t * (1 + more), 2 * more
        return t * (1 + 1e-9)


def laplace_mixture(scale: float) -> Mixture:
    """Return Laplace noise: the difference of two exponential numbers."""
    return Mixture(np.ones(1), np.array([[scale, -scale]]))


def _rounded_up(scales: FloatArray) -> FloatArray:
    """Larger where that makes X larger: terms above 0 grow, those below 0 shrink."""
    mantissa, exponent = np.frexp(scales)
    rounded = np.ldexp(np.ceil(mantissa * BITS) / BITS, exponent)
    least = LEAST * rounded.max(axis=1, keepdims=True)
    return np.asarray(np.where(rounded > 0, np.maximum(rounded, least), rounded))


def _tails(scales: FloatArray, count: int, t: float) -> FloatArray:
    """P(X > t) of components with so many positive terms, rounded up."""
    order = np.sort(scales, axis=1)
    stages = order[:, -count:]
    found = np.zeros(len(scales))
    near = t < NOTHING * stages[:, -1]
    if not near.any():
        return found
    rates = 1 / stages[near]
    later = _averaged(rates, -order[near, :-count])
    moved, times = _exponential(rates, t)
    found[near] = np.einsum("ni,ni->n", moved[:, 0, :], later)
    return found * (1 + (4.0 * count + TAYLOR + 40) * 2.0**times * EPS)


def _averaged(rates: FloatArray, delays: FloatArray) -> FloatArray:
    """Π_j (I − d_j T)⁻¹ 1: from which state it is how probable to outlast the delays."""
    size = rates.shape[1]
    values = np.ones_like(rates)
    for delay in delays.T:
        share = np.maximum(delay, 0.0)[:, None] * rates
        after = np.zeros(len(rates))
        for i in range(size - 1, -1, -1):
            after = (values[:, i] + share[:, i] * after) / (1 + share[:, i])
            values[:, i] = after
    return values


def _exponential(rates: FloatArray, t: float) -> tuple[FloatArray, int]:
    """e^(Tt) for the stages, by squaring nonnegative matrices; and how many squarings it took."""
    fastest = rates.max(axis=1)
    times = max(0, math.ceil(math.log2(max(2 * t * float(fastest.max()), 1.0))))
    size = rates.shape[1]
    short = t / 2.0**times
    step = np.zeros((*rates.shape, size))
    place: IntArray = np.arange(size)
    step[:, place, place] = (fastest[:, None] - rates) * short
    step[:, place[:-1], place[1:]] = rates[:, :-1] * short
    power = np.broadcast_to(np.eye(size), step.shape)
    for k in range(TAYLOR, 0, -1):
        power = np.eye(size) + step @ power / k
    power = power * np.exp(-fastest * short)[:, None, None]
    for _ in range(times):
        power = power @ power
    return power, times


# ---------------------------------------------------------------------- combinations

# Mixtures over cones that are computed for one question.
MOST_MIXTURES = 60
# Corners of cones are rounded, and combinations of them may cancel: what is as small as these
# roundings is none, and 80 times that (more than Σ E_i is in all but 1e-20) goes to the reach.
CORNERS = 4e-15

Known = dict[Any, float | None]


def body_reach(bodies: Bodies, free: IntArray, given_rows: Matrix, outside: float) -> Reach | None:
    """Return half widths of combinations of K-norm noise; None where that is too much work."""
    parts, rows = _listed_parts(bodies), sparse_rows(given_rows)
    if parts is None:
        return None
    whole = all(part.whole for part in parts)
    owner = {row: i for i, part in enumerate(parts) for row in part.rows.tolist()}
    known: Known = {}
    found = np.zeros(rows.shape[0])
    for i, (start, end) in enumerate(zip(rows.indptr[:-1].tolist(), rows.indptr[1:].tolist())):
        given = dict(zip(free[rows.indices[start:end]].tolist(), rows.data[start:end].tolist()))
        touched = [parts[k] for k in sorted({owner[row] for row in given})]
        one = _whole_reach if whole else _real_reach
        reach = one(touched, given, outside, known)
        if reach is None or len(known) > MOST_MIXTURES:
            return None
        found[i] = reach
    return found * END, "from the law of the noise, cone by cone; never too short"


def _listed_parts(bodies: Bodies) -> list[HullPart | AxesPart] | None:
    """The parts with their cones; None if there are sums of many entries, or orbits of cones."""
    found: list[HullPart | AxesPart] = []
    for part in bodies.parts:
        listed = part.hull if isinstance(part, SumPart) else part
        if listed is None or (isinstance(listed, HullPart) and listed.body.group is not None):
            return None
        found.append(listed)
    return found


def _real_reach(
    parts: list[HullPart | AxesPart], given: dict[int, float], outside: float, known: Known
) -> float | None:
    total: Mixture | None = Mixture(np.ones(1), np.zeros((1, 0)))
    doubt = 0.0
    for part in parts:
        if isinstance(part, HullPart) and len(part.body.shares) > MOST_COMPONENTS:
            return None
        mixtures, off = _mixtures(part, given)
        doubt += off
        for one in mixtures:
            total = None if total is None else total.plus(one)
    if total is None:
        return None
    key = total.shares.round(12).tobytes() + total.scales.tobytes()
    if key not in known:
        known[key] = total.reach(outside)
    reach = known[key]
    return None if reach is None else reach + doubt


def _mixtures(part: HullPart | AxesPart, given: dict[int, float]) -> tuple[list[Mixture], float]:
    """The laws of what a part adds, one or one for every axis; and what roundings may add."""
    row = np.array([given.get(coordinate, 0.0) for coordinate in part.rows.tolist()])
    if isinstance(part, AxesPart):
        scales = np.abs(row) * part.widths / part.rate
        return [laplace_mixture(scale) for scale in scales[row != 0].tolist()], 0.0
    corners = part.body.corners
    rounding = CORNERS * (np.abs(corners) @ np.abs(row))
    scales = corners @ row
    scales = np.where(np.abs(scales) <= rounding, 0.0, scales) / part.rate
    return [Mixture(part.body.shares, scales)], 80 * float(rounding.max()) / part.rate


def _whole_reach(
    parts: list[HullPart | AxesPart], given: dict[int, float], outside: float, known: Known
) -> float | None:
    places = [row for row, c in given.items() if c]
    if not places:
        return 0.0
    found = proportions([abs(given[row]) for row in places])
    if found is None:
        return None
    multiples, unit, off = found
    whole = {row: m if given[row] > 0 else -m for row, m in zip(places, multiples)}
    key = tuple(sorted((_part_key(part), _row(part, whole)) for part in parts))
    if key not in known:
        laws = [law for part in parts for law in _whole_laws(part, whole)]
        known[key] = lattice_reach(laws, outside)
    reach = known[key]
    if reach is None:
        return None
    # coefficients have these proportions but for a rounding, which the noise multiplies; it is
    # log-concave, so that 40 deviations are out of the question
    far = sum(
        40 * d * abs(m) for part in parts for d, m in zip(_deviations(part), _row(part, whole))
    )
    return (reach + off * far) * unit


def _deviations(part: HullPart | AxesPart) -> list[float]:
    variances = part.variance_of_each if isinstance(part, AxesPart) else np.diag(part.moment)
    return np.sqrt(variances).tolist()  # type: ignore[no-any-return]


def _part_key(part: HullPart | AxesPart) -> tuple[int, ...]:
    """Return what is equal for parts of the same law."""
    if isinstance(part, HullPart):
        return (id(part.body),)
    return tuple(part.rows.tolist())


def _row(part: HullPart | AxesPart, whole: dict[int, int]) -> tuple[int, ...]:
    return tuple(whole.get(coordinate, 0) for coordinate in part.rows.tolist())


def _whole_laws(part: HullPart | AxesPart, whole: dict[int, int]) -> list[WholeLaw]:
    row = _row(part, whole)
    if isinstance(part, HullPart):
        return [cone_law(part.cones, part.rate, np.array(row, dtype=np.int64))]
    pairs = zip((part.rate / part.widths).tolist(), row)
    laws = ((Steps(1.0, 1.0, rate, True), abs(multiple)) for rate, multiple in pairs if multiple)
    return [Stairs(law, 1.0, 1).on_lattice(multiple) for law, multiple in laws]


def cone_law(cones: LatticeCones, rate: float, combination: IntArray) -> WholeLaw:
    """Return the law of a whole combination of noise on a lattice."""
    step = rate * float(cones.unit)
    terms = []
    for generators, points, sums in cones.boxes:
        starts = np.rint(points @ generators).astype(np.int64) @ combination
        steps = generators.astype(np.int64) @ combination
        terms.append(WholeTerm(steps, starts, -step * sums))
    return WholeLaw(step, tuple(terms))
