"""Noise under several public sums at once: a density that falls with the largest of their gauges.

Every coordinate lies under one of k sums, ``s_g·z_g = 0``, and the gauge of a sum is
``½‖z_g‖₁ / width``.  The body of a block of sums is the product of theirs: neighbours that move
along all sums of it at once are as far apart as along one.  With d_g = n_g − 1, D = Σ d_g and T of
weight ``T^D e^(−rate T)`` every z_g is uniform in T times its own body; on whole numbers T has the
weight ``e^(−rate T) Π_g B_g(T)``, where B_g counts the points of the lattice in T times the body.
Blocks are independent: their gauges add up.  docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, squares_across
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import meaning
from affinedp.laws.base import NOTHING_KNOWN, Gauges, Moves
from affinedp.laws.bodies import Bodies, PartsNoise, SumPart, sum_sample
from affinedp.laws.curves import Curve, LaplaceCurve
from affinedp.laws.knorm import BodyLaw, checked_rate
from affinedp.laws.sampler.coins import ExponentialChoice, Geometric
from affinedp.laws.sampler.one_sum import composition
from affinedp.laws.sampler.words import Random, Source, system_bytes
from affinedp.parts import Locked, frozen

# Dimensions of a block up to which lattice points are counted for exact draws.
MOST_DIMENSIONS = 400


@dataclass(frozen=True, eq=False)
class ProductNorm(BodyLaw):
    """Density ∝ e^(−rate Σ_b max_g ‖z_g‖) on real coordinates under public sums g in blocks b."""

    kind = "productnorm"
    words = "product-norm"
    theorem = "the triangle inequality of the largest of several gauges"
    variance = 2.0  # in one dimension it is Laplace noise
    # one column per sum: its signs times the width of its block, 0 for other coordinates; shape (p,
    # k)
    points: Any = field(repr=False)
    rate: float = 1.0  # how fast the density falls
    # the block of every sum; all are in one if left out; shape (k,)
    blocks: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", frozen(self.points))
        object.__setattr__(self, "rate", checked_rate(self.rate))
        if self.blocks is not None:
            object.__setattr__(self, "blocks", frozen(np.asarray(self.blocks)))
        numbers, blocks = dense(self.points), self._blocks
        used = numbers != 0
        if (
            blocks.shape != (numbers.shape[1],)
            or not np.issubdtype(blocks.dtype, np.integer)
            or not np.isfinite(numbers).all()
            or np.any(used.sum(axis=1) != 1)
            or np.any(used.sum(axis=0) < 2)
            or any(len(np.unique(np.abs(numbers[used & (blocks == b)]))) != 1 for b in set(blocks))
        ):
            raise AffineDPError(
                "a product norm has one column per public sum of two or more coordinates, with "
                "numbers of one size in a block, and each coordinate lies under one of them"
            )

    @property
    def _blocks(self) -> IntArray:
        return np.zeros(self.points.shape[1], int) if self.blocks is None else self.blocks

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many coordinates it has."""
        return int(self.points.shape[0])

    @cached_property
    def bodies(self) -> Products:
        """The blocks, each the product of its sums."""
        numbers, found = dense(self.points), []
        for block in np.unique(self._blocks):
            sums = []
            for column in numbers[:, self._blocks == block].T:
                rows = np.flatnonzero(column)
                width = meaning(float(abs(column[rows[0]])))
                sums.append(SumPart(rows, np.sign(column[rows]), width, self.rate, False))
            found.append(ProductPart(tuple(sums)))
        return Products(tuple(found))

    # -------------------------------------------------------------- what it promises

    def curve(self, sensitivity: float, moves: Moves = NOTHING_KNOWN) -> Curve:
        """Return Laplace's curve: no log-concave density that is purely ε-private is above it."""
        return LaplaceCurve(sensitivity)

    # -------------------------------------------------------------- how large it is

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ z``."""
        total = np.zeros(rows.shape[0])
        for variance, part in self._sums:
            total += variance * squares_across(rows[:, part.rows], part.signs)
        return total

    def covariance(self, rows: Matrix) -> FloatArray:
        """Return the covariance of ``rows @ z``: sums are uncorrelated."""
        total = np.zeros((rows.shape[0],) * 2)
        for variance, part in self._sums:
            own = dense(rows[:, part.rows])
            along = own @ part.signs
            total += variance * (own @ own.T - np.outer(along, along) / len(part.rows))
        return total

    @cached_property
    def _sums(self) -> list[tuple[float, SumPart]]:
        """σ² with E z_g z_gᵀ = σ² (I − ssᵀ/n), and the sum."""
        return [
            (variance_in_product(len(one.rows), part.dimensions, self.rate / float(one.width)), one)
            for part in self.bodies.parts
            for one in part.sums
        ]

    def depths(self, points: FloatArray) -> FloatArray:
        """Return rate × the gauge, in floating point."""
        found = self.gauges(points)
        return np.asarray((found.lower + found.upper) / 2)

    # -------------------------------------------------------------- how it is drawn

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw z for simulation."""
        drawn = np.zeros((size, p))
        for part in self.bodies.parts:
            scale = generator.gamma(part.dimensions + 1, float(part.width) / self.rate, size)
            for one in part.sums:
                n = len(one.rows)
                shape = sum_sample(n, 1.0, False, size, generator)
                inside = generator.random(size) ** (1 / (n - 1)) * scale
                inside /= np.abs(shape).sum(axis=1) / 2
                drawn[:, one.rows] = shape * inside[:, None] * one.signs
        return drawn


def variance_in_product(n: int, dimensions: int, rate: float) -> float:
    """Return the variance of a coordinate under a sum of n, but for the factor 1 − 1/n.

    E T² = (D+1)(D+2)/rate², and a uniform point of the body of n coordinates has E|u|² =
    4 (n−1)(2n−1) / (n (n+1)²).

    Examples
    --------
    >>> from affinedp.laws.bodies import continuous_error
    >>> variance_in_product(3, 2, 1.0) * 2 == continuous_error(3, 1.0)
    True
    """
    return (dimensions + 1) * (dimensions + 2) * 4 * (2 * n - 1) / (n * (n + 1) ** 2 * rate**2)


@dataclass(frozen=True, eq=False)
class ProductPart(Locked):
    """One block: public sums of one width, of which the largest gauge counts."""

    sums: tuple[SumPart, ...]  # on coordinates of their own

    @cached_property
    def rows(self) -> IntArray:
        """Its coordinates."""
        return np.concatenate([one.rows for one in self.sums])

    @cached_property
    def places(self) -> list[slice]:
        """Where the coordinates of every sum are among its own."""
        ends = np.cumsum([len(one.rows) for one in self.sums]).tolist()
        return [slice(end - len(one.rows), end) for one, end in zip(self.sums, ends)]

    @property
    def width(self) -> Fraction:
        """The width of all sums."""
        return self.sums[0].width

    @property
    def dimensions(self) -> int:
        """D: coordinates less sums."""
        return len(self.rows) - len(self.sums)

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on the gauges of columns that may be off by ``doubt``."""
        own = [one.gauges(moves[at], doubt[at]) for one, at in zip(self.sums, self.places)]
        lower = np.max([found.lower for found in own], axis=0)
        return Gauges(lower, np.max([found.upper for found in own], axis=0))

    def gauge(self, move: Sequence[Fraction]) -> Fraction:
        """Return the gauge exactly."""
        return max(one.gauge(move[at]) for one, at in zip(self.sums, self.places))

    def box(self, widths: Sequence[Fraction]) -> Fraction:
        """Return the largest gauge of what is off by these widths at most."""
        return max(one.box(widths[at]) for one, at in zip(self.sums, self.places))

    @property
    def steepest(self) -> FloatArray:
        """The largest gauge of one step of every coordinate."""
        return np.full(len(self.rows), 1 / float(self.width))

    def on_grid(self, exponents: IntArray) -> ProductPart:
        """Return the part in steps, all of one size; its width is rounded up to them."""
        places = zip(self.sums, self.places)
        return ProductPart(tuple(one.on_grid(exponents[at]) for one, at in places))

    def drawn(self, rate: Fraction) -> ProductNoise:
        """Return what draws the noise on whole coordinates."""
        return ProductNoise(self, rate)


@dataclass(frozen=True, eq=False)
class Products(Bodies):
    """Independent blocks of public sums: their gauges add up."""

    parts: tuple[ProductPart, ...]  # type: ignore[assignment]

    @property
    def sums(self) -> tuple[SumPart, ...]:
        """The sums of all blocks."""
        return tuple(one for part in self.parts for one in part.sums)

    def on_grid(self, exponents: IntArray) -> Products:
        """Return the bodies in steps of ``2**exponents``, rounded to them."""
        return Products(tuple(part.on_grid(exponents[part.rows]) for part in self.parts))

    def drawn(self, rate: Fraction) -> PartsNoise:
        """Return what draws noise of this rate on whole coordinates."""
        return PartsNoise(tuple(part.drawn(rate) for part in self.parts))  # type: ignore[misc]


class ProductNoise(Locked):
    """Vectors of whole numbers under public sums with P(z) ∝ exp(−rate max_g ‖z_g‖), exactly."""

    def __init__(self, part: ProductPart, rate: Fraction) -> None:
        self._part, self.rows = part, part.rows
        if part.dimensions > MOST_DIMENSIONS:
            raise AffineDPError(
                f"product-norm noise of {part.dimensions:,} dimensions is not drawn, more than "
                f"{MOST_DIMENSIONS}: release fewer sums at once"
            )
        # Π B_g(T) = Σ_j series_j C(T−j+D, D), and Σ_T C(T−j+D, D) q^T = q^j / (1−q)^(D+1): so T is
        # j, of weight series_j q^j, and the sum of D + 1 geometric numbers
        step = rate / part.width
        series = _series([len(one.rows) for one in part.sums])
        self._choice = ExponentialChoice(series, [step * j for j in range(len(series))])
        self._geometric = Geometric(step)

    def draw(self, count: int, source: Source = system_bytes) -> NDArray[Any]:
        """Return noise, shape (coordinates, count)."""
        random, part = Random(source), self._part
        steps = self._geometric.draw(count * (part.dimensions + 1), source)
        more = self._choice.draw_many(count, random).astype(object)
        scales = steps.reshape(count, -1).sum(axis=1) + more
        drawn: NDArray[Any] = np.zeros((len(self.rows), count), dtype=object)
        for one, at in zip(part.sums, part.places):
            signs = one.signs.astype(int).astype(object)
            for i, scale in enumerate(scales.tolist()):
                drawn[at, i] = signs * uniform_in_ball(len(one.rows), scale, random)
        return drawn


@lru_cache(maxsize=64)
def _counted(n: int) -> tuple[tuple[int, ...], int]:
    """Coefficients of d! B(T), from the highest on, and d!: B(T) = Σ_k C(d,k)² C(T−k+d, d)."""
    d = n - 1
    total = [0] * (d + 1)
    for k in range(d + 1):
        product = [math.comb(d, k) ** 2]
        for i in range(1, d + 1):  # times (T − k + i)
            shifted = [0, *(c * (i - k) for c in product)]
            product = [a + b for a, b in zip([*product, 0], shifted)]
        total = [a + b for a, b in zip(total, product)]
    return tuple(total), math.factorial(d)


def points_in_ball(n: int, radius: int) -> int:
    """Return how many whole z of sum 0 have ½‖z‖₁ ≤ radius."""
    if radius < 0:
        return 0
    coefficients, divisor = _counted(n)
    total = 0
    for coefficient in coefficients:
        total = total * radius + coefficient
    return total // divisor


def _series(sizes: Sequence[int]) -> list[int]:
    """The numbers with Π B_g(T) = Σ_j series_j C(T−j+D, D)."""
    dimensions = sum(sizes) - len(sizes)
    values = [
        math.prod(points_in_ball(n, radius) for n in sizes) for radius in range(dimensions + 1)
    ]
    signs = [(-1) ** i * math.comb(dimensions + 1, i) for i in range(dimensions + 1)]
    # the series of the values, times (1 − q)^(D+1)
    return [sum(values[j - i] * signs[i] for i in range(j + 1)) for j in range(dimensions + 1)]


def uniform_in_ball(n: int, radius: int, random: Random) -> NDArray[Any]:
    """Return a uniform vector of n whole numbers of sum 0 with ½‖z‖₁ ≤ radius."""
    size = _uniform_size(n, radius, random)
    found: NDArray[Any] = np.zeros(n, dtype=object)
    if size == 0:
        return found
    # k entries are positive: a composition into k parts of at least 1, and one into n − k
    most = min(n - 1, size)
    weights = [
        math.comb(n, k) * math.comb(size - 1, k - 1) * math.comb(size + n - k - 1, n - k - 1)
        for k in range(1, most + 1)
    ]
    left, k = random.below(sum(weights)), 1
    while left >= weights[k - 1]:
        left -= weights[k - 1]
        k += 1
    order = list(range(n))
    for i in range(k):
        j = i + random.below(n - i)
        order[i], order[j] = order[j], order[i]
    found[order[:k]] = composition(size - k, k, random) + 1
    found[order[k:]] = -composition(size, n - k, random)
    return found


def _uniform_size(n: int, radius: int, random: Random) -> int:
    """½‖z‖₁ of a uniform point of a ball: the least size with so many points or more."""
    total = points_in_ball(n, radius)
    wanted = random.below(total)
    share = (wanted << 64) // total / 2.0**64
    low, high = -1, radius  # B(low) ≤ wanted < B(high)
    step = max(1, n, radius >> 50)
    guess = min(max(int(radius * share ** (1 / (n - 1))), 0), radius)
    while high - low > 1:
        if points_in_ball(n, guess) > wanted:
            high, guess = guess, max(guess - step, (low + guess) // 2)
        else:
            low, guess = guess, min(guess + step, (guess + high + 1) // 2)
        guess = min(max(guess, low + 1), high - 1) if high - low > 1 else guess
        step *= 2
    return high
