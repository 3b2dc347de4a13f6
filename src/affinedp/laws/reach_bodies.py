"""How far combinations of K-norm noise reach, from their law.

On the cone over a boundary simplex with vertices a_1..a_r the noise is Σ a_i E_i with independent
exponential E_i, so a combination of it is X = Σ s_i E_i with s_i = c·a_i: a mixture over the cones.
The positive terms are the time that a chain of states takes, with the generator T of exponential
stages; negative ones average over a later start: P(X > t) = e₁ᵀ e^(Tt) Π_j (I − |s_j| T)⁻¹ 1.
All of this has nonnegative numbers only, so that nothing cancels and small tails keep their digits.

Given the point of a unit box, noise on a lattice is Σ (λ_i + t_i) a_i with geometric t_i that are
independent (see :mod:`affinedp.laws.cones`).  So the characteristic function of a combination is
a sum over cones of products, and one discrete Fourier transform makes probabilities of it; all that
wraps around or is rounded is counted against them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.laws.bodies import AxesPart, Bodies, HullPart, SumPart
from affinedp.laws.cones import LatticeCones
from affinedp.laws.reach import END, Reach
from affinedp.laws.reach_sums import proportions, sparse_rows

EPS = float(np.finfo(float).eps)
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
    """A symmetric law: with probability ``shares[i]`` it is Σ_j scales[i, j] E_j.

    Attributes
    ----------
    shares : array, shape (N,)
        They add up to 1.
    scales : array, shape (N, d)
        Of either sign; zeros are no terms.
    """

    shares: FloatArray
    scales: FloatArray

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
        """Return P(|X| > t), rounded up.

        Examples
        --------
        >>> laplace = Mixture(np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]))
        >>> abs(laplace.tail(3.0) / math.exp(-3.0) - 1) < 1e-9
        True
        """
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


# ---------------------------------------------------------------------- on a lattice

# What may wrap around.
WHOLE_TAIL = 1e-15
# Numbers in the tables of one question.
MOST_WORK = 4e7
MOST_WRAPPED = 1 << 21
# Where the transform says nothing any more and too many simulated releases would be needed.
RARE = 1e-6
# Slopes for Chernoff's bound, as shares of the steepest.
WHOLE_SLOPES = np.concatenate([np.geomspace(1e-4, 0.1, 20), np.linspace(0.12, 0.98, 44)])


@dataclass(frozen=True, eq=False)
class WholeTerm:
    """What one cone adds: Σ_b weights[b] e^(iθ starts[b]) Π_i (1 − q) / (1 − q e^(iθ steps[i])).

    Attributes
    ----------
    steps : array of int
        The combination of the generators.
    starts : array of int
        The combination of the points of the unit box.
    logs : array
        Logarithms of the weights of these points, up to a number for all cones.
    """

    steps: IntArray
    starts: IntArray
    logs: FloatArray


@dataclass(frozen=True, eq=False)
class WholeLaw:
    """The law of a whole combination of one part of the noise.

    Attributes
    ----------
    rate : float
        −ln q.
    terms : tuple of WholeTerm
        One per cone.
    """

    rate: float
    terms: tuple[WholeTerm, ...]

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""
        return self.rate / max(int(np.abs(term.steps).max()) for term in self.terms)

    @property
    def work(self) -> int:
        """Numbers in a table for one frequency."""
        return sum(len(term.steps) + len(term.starts) for term in self.terms)

    @property
    def total(self) -> float:
        """The weight of all points of unit boxes."""
        return math.fsum(float(np.exp(term.logs).sum()) for term in self.terms)

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX)."""
        rest, found = -math.expm1(-self.rate), np.zeros(len(slopes))
        for term in self.terms:
            own = np.exp(np.outer(slopes, term.starts) + term.logs).sum(axis=1)
            stays = -np.expm1(np.outer(slopes, term.steps) - self.rate)
            found += own * (rest / stays).prod(axis=1)
        return np.asarray(np.log(found / self.total))

    def transform(self, places: int) -> FloatArray:
        """Return E e^(2πi k X / places) for k = 0 … places/2; real, since the law is symmetric."""
        turns = 2 * math.pi / places * np.arange(places)
        around = np.exp(1j * turns)
        # 1 − e^(iφ), without cancellation
        away = 2 * np.sin(turns / 2) ** 2 - 1j * np.sin(turns)
        rest, q = -math.expm1(-self.rate), math.exp(-self.rate)
        k = np.arange(places // 2 + 1)
        found = np.zeros(len(k), dtype=complex)
        for term in self.terms:
            own = np.zeros(len(k), dtype=complex)
            for start, log in zip(term.starts.tolist(), term.logs.tolist()):
                own += math.exp(log) * around[k * start % places]
            for step in term.steps.tolist():
                own *= rest / (rest + q * away[k * step % places])
            found += own
        return np.asarray(found.real / self.total)


def cone_law(cones: LatticeCones, rate: float, combination: IntArray) -> WholeLaw:
    """Return the law of a whole combination of noise on a lattice."""
    step = rate * float(cones.unit)
    terms = []
    for generators, points, sums in cones.boxes:
        starts = np.rint(points @ generators).astype(np.int64) @ combination
        steps = generators.astype(np.int64) @ combination
        terms.append(WholeTerm(steps, starts, -step * sums))
    return WholeLaw(step, tuple(terms))


def geometric_law(rate: float, multiple: int) -> WholeLaw:
    """Return the law of a multiple of two-sided geometric noise, a difference of two numbers."""
    steps = np.array([multiple, -multiple])
    return WholeLaw(rate, (WholeTerm(steps, np.zeros(1, dtype=np.int64), np.zeros(1)),))


def whole_law_reach(laws: list[WholeLaw], outside: float) -> int | None:
    """Return t with P(|Σ X| > t) ≤ outside for independent X; None if it is too much to compute.

    Examples
    --------
    >>> whole_law_reach([geometric_law(1.0, 1)], 0.05)       # 2 e^(−4) / (1 + e^(−1)) is 0.027
    3
    """
    safe, far = (_chernoff(laws, p) for p in (outside, WHOLE_TAIL))
    work = sum(law.work for law in laws)
    places = 1 << (2 * far + 2).bit_length()
    # entries are off by a few roundings each, and sums over places by √places of that
    doubt = 2 * WHOLE_TAIL + 64 * EPS * (work + 4 * math.log2(places)) * math.sqrt(places)
    if places > MOST_WRAPPED or places * float(work) > MOST_WORK or doubt > outside / 100:
        return safe if outside < RARE else None
    transform = np.ones(places // 2 + 1)
    for law in laws:
        transform *= law.transform(places)
    beyond = 2 * np.cumsum(np.fft.irfft(transform, places)[places // 2 - 1 : 0 : -1])[::-1]
    enough = np.flatnonzero(beyond + doubt <= outside)
    # beyond[t] is the probability of more than t
    return min(safe, int(enough[0])) if len(enough) else safe


def _chernoff(laws: list[WholeLaw], probability: float) -> int:
    """A t with P(|Σ X| > t) ≤ probability, at the best of many slopes."""
    slopes = WHOLE_SLOPES * min(law.steepest for law in laws)
    logs = np.sum([law.log_moments(slopes) for law in laws], axis=0) + 1e-12
    return math.ceil(float(((logs - math.log(probability / 2)) / slopes).min()))


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
    """The parts with their cones; None if there are sums of many entries."""
    found: list[HullPart | AxesPart] = []
    for part in bodies.parts:
        listed = part.hull if isinstance(part, SumPart) else part
        if listed is None:
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
        known[key] = whole_law_reach(laws, outside)
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
    rates = (part.rate / part.widths).tolist()
    return [geometric_law(rate, multiple) for rate, multiple in zip(rates, row) if multiple]
