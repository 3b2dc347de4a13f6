"""Bodies of K-norm noise: polytopes, public sums and axes, each on coordinates of its own.

A part knows the gauge of its body and the noise e^(−rate ‖z‖_K); those of a release have their
bodies in steps of a grid.  All numbers that a promise rests on are exact.

One public sum of n entries has K = hull(e_i − e_j); the gauge is half the 1-norm on Σ z = 0.  On
integers ``z = G − G'`` with G and G' uniform among the ways to write the same s as a sum of n
numbers, s with weight C(s+n−1, n−1)² e^(−rate s).  docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import (
    EPS,
    FloatArray,
    IntArray,
    Matrix,
    dense,
    semidefinite_root,
    squared,
    squares_across,
)
from affinedp.errors import AffineDPError
from affinedp.laws.base import Gauges
from affinedp.laws.laplace import geometric_sample, geometric_variance
from affinedp.laws.orbits import OrbitPolytope
from affinedp.laws.polytope import LatticeCones, Polytope, polytope_of
from affinedp.laws.sampler.bodies import AxesNoise, ConeNoise, StairsNoise
from affinedp.laws.sampler.one_sum import OneSumNoise
from affinedp.laws.sampler.words import Source, system_bytes
from affinedp.parts import Locked

# Entries of a public sum whose cones are listed: C(2n − 2, n − 1) of them.
MOST_HULL = 7
# Second moments of so many coordinates are kept as a dense matrix.
FEW = 1000
# A step in every coordinate has about this share of the largest gauge of a move.
GRID_BITS = 42
# Vertices are multiples of this many steps, so that few proposals are rejected.
SPLIT = 256
# Noise is drawn in batches of so many numbers, before data is read: time says little about one.
BATCH_NUMBERS = 128


@dataclass(frozen=True, eq=False)
class HullPart(Locked):
    """Noise e^(−rate ‖z‖_K) with K a polytope."""

    rows: IntArray  # its coordinates
    body: Polytope  # K
    rate: float
    whole: bool  # whether z is drawn from the lattice of whole coordinates, or from R^r

    @cached_property
    def cones(self) -> LatticeCones:
        """The lattice in cones over the boundary of K."""
        return LatticeCones(self.body)

    @cached_property
    def moment(self) -> FloatArray:
        """E zzᵀ."""
        if self.whole:
            return self.cones.second_moment(self.rate)
        return self.body.second_moment() / self.rate**2

    @cached_property
    def root(self) -> FloatArray:
        """R with RᵀR = E zzᵀ."""
        if self.whole:
            return semidefinite_root(self.moment)
        return self.body.moment_root() / self.rate

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ z``."""
        return np.asarray(((dense(rows) @ self.root.T) ** 2).sum(axis=1))

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        return self.body.gauges(moves, doubt)

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        return self.body.near_gauge(move)

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        return self.body.box(widths)

    @property
    def steepest(self) -> FloatArray:
        """The largest gauge of one step of every coordinate."""
        found = np.abs(self.body.normals).max(axis=0)
        # symmetries take a coordinate to others: all of them have one grid
        return np.full_like(found, found.max()) if self.body.group is not None else found

    def on_grid(self, exponents: IntArray) -> HullPart:
        """Return the part in steps of ``2**exponents``, its vertices rounded to them."""
        units = [Fraction(2) ** int(e) for e in exponents.tolist()]
        if isinstance(self.body, OrbitPolytope):
            assert len(set(units)) == 1  # by ``steepest``
            return HullPart(self.rows, self.body.in_steps(units[0]), 1.0, True)
        vertices = [
            tuple(Fraction(SPLIT * round(c / (SPLIT * u))) for c, u in zip(vertex, units))
            for vertex in self.body.exact_vertices
        ]
        return HullPart(self.rows, Polytope(vertices), 1.0, True)

    def drawn(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise on whole coordinates."""
        return PartNoise(self.rows, ConeNoise(self.cones, rate))

    def sample(self, generator: np.random.Generator, size: int) -> FloatArray:
        """Draw for simulation, shape (size, r)."""
        if not self.whole:
            return self.body.sample(size, generator) / self.rate
        drawn = ConeNoise(self.cones, Fraction(self.rate)).draw(size, generator.bytes)
        return np.asarray(drawn, dtype=float)


@dataclass(frozen=True, eq=False)
class SumPart(Locked):
    """Noise under one public sum, of any number of entries."""

    rows: IntArray  # its coordinates: one per entry, bound by ``signs · z = 0``
    signs: FloatArray  # ±1
    width: Fraction  # how far one entry moves between the vertices of K
    rate: float
    whole: bool  # whether z is whole

    @cached_property
    def variance(self) -> float:
        """σ² with E zzᵀ = σ² (I − ssᵀ/n)."""
        n, rate = len(self.rows), self.rate / float(self.width)
        error = integer_error if self.whole else continuous_error
        return error(n, rate) / (n - 1)

    @property
    def moment(self) -> FloatArray:
        """E zzᵀ."""
        n = len(self.rows)
        return np.asarray(self.variance * (np.eye(n) - np.outer(self.signs, self.signs) / n))

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ z``."""
        return np.asarray(self.variance * squares_across(rows, self.signs))

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        return _weighted(np.full(len(self.rows), 0.5 / float(self.width)), moves, doubt)

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        return sum(map(abs, move), Fraction(0)) / (2 * self.width)

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        # one coordinate, of least width, follows from the others, and is off by all they are off
        counts = Counter(map(id, widths))  # nearly all are one and the same number
        different = {id(width): width for width in widths}
        total = sum((counts[key] * width for key, width in different.items()), Fraction(0))
        return (total - min(different.values())) / self.width

    @property
    def steepest(self) -> FloatArray:
        """The largest gauge of one step of every coordinate."""
        return np.full(len(self.rows), 1 / float(self.width))

    def on_grid(self, exponents: IntArray) -> SumPart:
        """Return the part in steps, all of one size; its width is rounded up to them."""
        width = Fraction(math.ceil(self.width / Fraction(2) ** int(exponents[0])))
        return SumPart(self.rows, self.signs, width, 1.0, True)

    def drawn(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise on whole coordinates."""
        sampler = OneSumNoise(len(self.rows), rate / self.width)
        return PartNoise(self.rows, sampler, self.signs.astype(int))

    @cached_property
    def hull(self) -> HullPart | None:
        """The same noise in all coordinates but the last, as a listed body; None if it is large."""
        n, width = len(self.rows), float(self.width)
        if n > MOST_HULL:
            return None
        first, second = np.triu_indices(n, 1)
        points = np.zeros((n, len(first)))
        points[first, np.arange(len(first))] = width * self.signs[first]
        points[second, np.arange(len(first))] = -width * self.signs[second]
        return HullPart(self.rows[:-1], polytope_of(points[:-1]), self.rate, self.whole)

    def sample(self, generator: np.random.Generator, size: int) -> FloatArray:
        """Draw for simulation, shape (size, n)."""
        rate = self.rate / float(self.width)
        drawn = sum_sample(len(self.rows), rate, self.whole, size, generator)
        return np.asarray(drawn * self.signs)


@dataclass(frozen=True, eq=False)
class AxesPart(Locked):
    """Independent noise e^(−rate |z_i| / width_i): K is a cross-polytope, in any dimension."""

    rows: IntArray  # its coordinates
    ends: tuple[Fraction, ...]  # where the body ends on every axis
    rate: float
    whole: bool  # whether z is whole: geometric noise on every coordinate, or Laplace noise

    @cached_property
    def widths(self) -> FloatArray:
        """The ends as doubles."""
        return np.array([float(end) for end in self.ends])

    @cached_property
    def variance_of_each(self) -> FloatArray:
        """Variance of every coordinate."""
        rates = self.rate / self.widths
        if not self.whole:
            return np.asarray(2 / rates**2)
        known = {rate: geometric_variance(rate) for rate in np.unique(rates).tolist()}
        return np.array([known[rate] for rate in rates.tolist()])

    @property
    def moment(self) -> Matrix:
        """E zzᵀ."""
        if len(self.rows) <= FEW:
            return np.diag(self.variance_of_each)
        import scipy.sparse as sparse

        return sparse.csr_array(sparse.diags_array(self.variance_of_each))

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ z``."""
        return np.asarray(squared(rows) @ self.variance_of_each).ravel()

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        return _weighted(1 / self.widths, moves, doubt)

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        return sum((abs(c) / end for c, end in zip(move, self.ends) if c), Fraction(0))

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        return sum((w / end for w, end in zip(widths, self.ends)), Fraction(0))

    @property
    def steepest(self) -> FloatArray:
        """The largest gauge of one step of every coordinate."""
        return 1 / self.widths

    def on_grid(self, exponents: IntArray) -> AxesPart:
        """Return the part in steps of ``2**exponents``, its ends rounded up to them."""
        pairs = zip(self.ends, exponents.tolist())
        ends = tuple(Fraction(math.ceil(end / Fraction(2) ** int(e))) for end, e in pairs)
        return AxesPart(self.rows, ends, 1.0, True)

    def drawn(self, rate: Fraction) -> PartNoise:
        """Return what draws the noise on whole coordinates."""
        return PartNoise(self.rows, AxesNoise([end / rate for end in self.ends]))

    def sample(self, generator: np.random.Generator, size: int) -> FloatArray:
        """Draw for simulation, shape (size, r)."""
        if self.whole:
            return geometric_sample(generator, self.rate / self.widths, size)
        return generator.laplace(0.0, self.widths / self.rate, (size, len(self.rows)))


BodyPart = HullPart | SumPart | AxesPart


def _weighted(shares: FloatArray, moves: FloatArray, doubt: FloatArray) -> Gauges:
    """Bounds on weighted 1-norms of columns; a share is right to a few roundings."""
    sums = np.asarray(shares @ np.abs(moves))
    off = (shares @ doubt + (len(shares) + 8) * EPS * sums) * (1 + 1e-9)
    return Gauges(np.maximum(sums - off, 0.0), sums + off)


@dataclass(frozen=True, eq=False)
class PartNoise(Locked):
    """What draws the noise of one part on whole coordinates."""

    rows: IntArray  # its coordinates
    sampler: ConeNoise | OneSumNoise | AxesNoise | StairsNoise  # draws vectors as rows
    signs: IntArray | None = None  # under a public sum, the signs of the entries

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return noise, shape (coordinates, count), from a batch of at least a few draws."""
        batch = max(count, -(-BATCH_NUMBERS // len(self.rows)))
        drawn: NDArray[Any] = self.sampler.draw(batch, source)[:count].T
        return drawn if self.signs is None else drawn * self.signs.astype(object)[:, None]


@dataclass(frozen=True, eq=False)
class PartsNoise(Locked):
    """What draws the noise of all parts together."""

    parts: tuple[PartNoise, ...]

    def draw(self, size: int | tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Return noise, shape (coordinates, rows); a size is one of rows."""
        count = size[-1] if isinstance(size, tuple) else size
        rows = sum(len(part.rows) for part in self.parts)
        drawn: NDArray[Any] = np.zeros((rows, count), dtype=object)
        for part in self.parts:
            drawn[part.rows] = part.draw(count, source)
        return drawn


@dataclass(frozen=True, eq=False)
class Bodies(Locked):
    """Independent parts on their coordinates; the gauge of their joint hull is the sum of all."""

    parts: tuple[BodyPart, ...]  # each coordinate belongs to one of them

    @property
    def sums(self) -> tuple[SumPart, ...]:
        """The parts under public sums."""
        return tuple(part for part in self.parts if isinstance(part, SumPart))

    def gauges(self, moves: FloatArray, doubt: FloatArray | None = None) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""
        off = np.zeros_like(moves) if doubt is None else doubt
        lower, upper = np.zeros(moves.shape[1]), np.zeros(moves.shape[1])
        for part in self.parts:
            own = part.gauges(moves[part.rows], off[part.rows])
            lower, upper = lower + own.lower, upper + own.upper
        rounding = 4 * EPS * len(self.parts)
        return Gauges(lower * (1 - rounding), upper * (1 + rounding))

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return the gauge exactly."""
        total = Fraction(0)
        for part in self.parts:
            own = [move[i] for i in part.rows.tolist()]
            if any(own):
                total += part.gauge(own)
        return total

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        own = (part.box([widths[i] for i in part.rows.tolist()]) for part in self.parts)
        return sum(own, Fraction(0))

    def exponents(self, largest: float) -> IntArray:
        """Return grids on which a step of all coordinates has about 2^-GRID_BITS of a gauge."""
        found = np.zeros(sum(len(part.rows) for part in self.parts), dtype=np.intp)
        for part in self.parts:
            found[part.rows] = grid_exponents(part.steepest, largest)
        return found

    def on_grid(self, exponents: IntArray) -> Bodies:
        """Return the bodies in steps of ``2**exponents``, rounded to them."""
        return Bodies(tuple(part.on_grid(exponents[part.rows]) for part in self.parts))

    def drawn(self, rate: Fraction) -> PartsNoise:
        """Return what draws noise of this rate on whole coordinates."""
        return PartsNoise(tuple(part.drawn(rate) for part in self.parts))


def grid_exponents(steepest: FloatArray, largest: float) -> IntArray:
    """Return exponents of grids of which a step in all coordinates adds little to ``largest``."""
    step = largest / (steepest * len(steepest))
    return np.asarray(np.frexp(step)[1] - 1 - GRID_BITS, dtype=np.intp)


# ---------------------------------------------------------------------- one public sum


# Terms of a series that are still added up; beyond, the rate is too small for the integers.
MOST_TERMS = 20_000_000


def continuous_error(n: int, rate: float) -> float:
    """Return E |z|² of the law e^(−rate ‖z‖₁ / 2) on {z ∈ R^n, Σ z = 0}."""
    return 4 * (n - 1) * (2 * n - 1) / ((n + 1) * rate**2)


def integer_error(n: int, rate: float) -> float:
    """Return E |z|² of the law e^(−rate ‖z‖₁ / 2) on {z ∈ Z^n, Σ z = 0}.

    Given s, two uniform compositions have E|G − G'|² = 2 s (s+n) (n−1) / (n (n+1)).
    """
    if n == 2:  # geometric noise
        return 1 / math.sinh(rate / 2) ** 2
    weights, s = _sizes(n, rate)
    mean = float((weights * s * (s + n)).sum() / weights.sum())
    return 2 * mean * (n - 1) / (n * (n + 1.0))


def largest_loss_probability(n: int, rate: float) -> float:
    """Return, rounded up, the probability of the loss +rate between neighbours on integers.

    a = Σ C(k+n−2, n−2)² q^k / ((1−q)² Σ C(k+n−1, n−1)² q^k) with q = e^(−rate): the law has the
    loss +rate where z_i ≥ 0 ≥ z_j.
    """
    bound = 1 / (1 + math.exp(-rate))  # that of randomised response
    try:
        (upper, _), (lower, _) = (_sizes(m, rate) for m in (n - 1, n))
    except AffineDPError:
        return math.nextafter(bound, 1.0)
    log = _log_total(upper, n - 1, rate) - _log_total(lower, n, rate)
    found = math.exp(log - 2 * math.log(-math.expm1(-rate)))
    # sums of logarithms of gamma functions: relative 1e-13 each, and far fewer than 1e3 of them
    return min(found * (1 + 1e-10), math.nextafter(bound, 1.0))


def _log_weight(s: FloatArray, n: int, rate: float) -> FloatArray:
    from scipy.special import gammaln

    return np.asarray(2 * (gammaln(s + n) - gammaln(s + 1)) - rate * s)


def _top(n: int, rate: float) -> int:
    """Where C(s+n−1, n−1)² e^(−rate s) is about largest."""
    return max(0, int((n - 1) / math.expm1(rate / 2)))


def _sizes(n: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """Weights of the sizes s, the largest about 1, and s; what is left out is below 1e-20."""
    top = _top(n, rate)
    spread = math.sqrt((top + 1.0) * (top + n)) / math.sqrt(n)
    low = max(0, math.floor(top - 12 * spread - 60 / rate))
    high = top + math.ceil(14 * spread + 120 / rate)
    if high - low > MOST_TERMS:
        raise AffineDPError(
            f"noise of rate {rate:g} on {n:,} integers is spread too widely to add up its law; "
            "treat the data as real numbers"
        )
    s = np.arange(low, high + 1, dtype=float)
    logs = _log_weight(s, n, rate)
    return np.exp(logs - _log_weight(np.array([float(top)]), n, rate)[0]), s


def _log_total(weights: FloatArray, n: int, rate: float) -> float:
    """log Σ C(s+n−1, n−1)² e^(−rate s)."""
    at_top = float(_log_weight(np.array([float(_top(n, rate))]), n, rate)[0])
    return math.log(math.fsum(weights)) + at_top - 2 * math.lgamma(n)


def sum_sample(
    n: int, rate: float, integers: bool, size: int, generator: np.random.Generator
) -> FloatArray:
    """Draw z for simulation, shape (size, n)."""
    shares = generator.standard_exponential((2, size, n))
    shares /= shares.sum(axis=2, keepdims=True)
    if not integers:
        s = generator.gamma(2 * n - 1, 1 / rate, size)
        return np.asarray(s[:, None] * (shares[0] - shares[1]))
    weights, sizes = _sizes(n, rate)
    chosen = generator.choice(sizes, size, p=weights / weights.sum()).astype(np.int64)
    # uniform shares make a multinomial a uniform composition
    drawn = [generator.multinomial(chosen, part) for part in shares]
    return np.asarray(drawn[0] - drawn[1], dtype=float)
