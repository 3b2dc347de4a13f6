"""How far noise reaches: one number or all at once, exactly or by the rank of simulated releases.

The k-th smallest of n draws is below the quantile only if k draws are, which has a binomial
probability: the exact argument of Clopper and Pearson, for the simulation at hand and not only on
average over simulations.

Sums of independent numbers are never simulated.  Chernoff's bound asks for exponential moments; all
else comes from characteristic functions, with all that is left out or rounded counted against the
probability.  That of Laplace numbers decays by itself, so that a series says what is covered.
Whole numbers in whole proportions have a law on a lattice, which one discrete Fourier transform
makes.  Other sums are smoothed by a little noise.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, is_sparse
from affinedp.errors import AffineDPError

# Half widths, and in words how they were computed.
Reach = tuple[FloatArray, str]

# Simulated releases where the law is not computed: so many, fewer for many numbers, and errors
# beyond the quantile that there should be.
RELEASES = 500_000
LEAST_RELEASES = 1_999
BEYOND = 60
# Simulated numbers at a time, those for one question, and at most.
BATCH = 4e6
SIMULATED = 1e7
MOST_SIMULATED = 1e8
# Noise on whole numbers may lie on the end itself, which rounding must not leave outside.
END = 1 + 1e-12
# With at most this probability a simulation says too little, for all numbers it is asked about.
DOUBT = 1e-6


def safe_rank(releases: int, outside: float, numbers: int = 1, doubt: float = DOUBT) -> int | None:
    """Return the rank of an error that is exceeded with probability ``outside`` at most.

    It is not with a probability of ``doubt`` at most, over simulations; None if even the largest
    error may be too small.
    """
    from scipy.special import bdtr

    each = doubt / max(numbers, 1) * (1 - 1e-9)

    def is_safe(above: int) -> bool:
        return float(bdtr(above, releases, outside)) <= each

    if not is_safe(0):
        return None
    low, high = 0, releases
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_safe(middle) else (low, middle)
    return releases - low


def normal_reach(outside: float) -> float:
    """Return t with P(|W| > t) = outside for a standard Gaussian number W, rounded up.

    Examples
    --------
    >>> round(normal_reach(0.05), 6), round(normal_reach(1e-30), 6)
    (1.959964, 11.523884)
    """
    from scipy import special

    return float(-special.ndtri(outside / 2)) * (1 + 1e-12)


def each_of(outside: float, count: int) -> float:
    """Return 1 − (1 − outside)^(1/count), without cancellation: the share of each of several.

    Examples
    --------
    >>> round(each_of(1e-15, 4) / 1e-16, 9)
    2.5
    """
    if outside >= 1:  # of levels so small that 1 − level is 1
        return 1.0
    return -math.expm1(math.log1p(-outside) / max(count, 1))


class Noise(Protocol):
    """What a simulation asks a law."""

    size: int | None

    @property
    def free(self) -> Any:
        """The coordinates that rows are about."""

    def sample(self, generator: np.random.Generator, size: int, p: int) -> FloatArray:
        """Draw η."""

    def variances(self, rows: Matrix) -> FloatArray:
        """Return the variances of ``rows @ η``."""


def norms(rows: Any) -> FloatArray:
    """Return the lengths of rows of any size."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    return np.asarray(largest * np.sqrt(((rows / safe[:, None]) ** 2).sum(axis=1)))


def with_noise(rows: Any) -> Any:
    """Return which rows have any noise."""
    return np.asarray((rows != 0).sum(axis=1)).ravel() > 0


def simulated_reach(law: Noise, rows: Any, outside: float) -> Reach:
    """Return half widths number by number, by the rank of simulated errors."""
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside, rows.shape[0])
    if releases is None or rank is None:
        raise too_rare(outside, rows.shape[0])
    errors = np.concatenate(list(_simulated(law, rows, releases)))
    reach = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return reach * END, _ranked_words(rank, releases)


def simulated_together(law: Noise, rows: Any, outside: float) -> Reach | None:
    """Return half widths for all numbers at once; None if that is too rare to be simulated."""
    releases = _releases(rows, outside)
    rank = None if releases is None else safe_rank(releases, outside)
    if releases is None or rank is None:
        return None
    scale = _deviations(law, rows)
    errors = _simulated(law, rows, releases)
    largest = np.concatenate([(batch / scale).max(axis=1) for batch in errors])
    times = float(np.partition(largest, rank - 1)[rank - 1])
    return np.where(with_noise(rows), times * scale * END, 0.0), _ranked_words(rank, releases)


def too_rare(outside: float, numbers: int) -> AffineDPError:
    """Return the refusal of a level that cannot be simulated."""
    return AffineDPError(
        f"a level of 1 − {outside:.3g} for {numbers:,} numbers would need more simulated releases "
        "than fit: ask for a lower level, or for fewer numbers at a time"
    )


def _releases(rows: Any, outside: float) -> int | None:
    """How many releases to simulate; None if that would be too many numbers."""
    numbers = float(max(rows.shape))
    releases = max(LEAST_RELEASES, int(min(RELEASES, SIMULATED / numbers)))
    releases = max(releases, math.ceil(min(BEYOND / outside, 1e18)))
    return None if releases * numbers > MOST_SIMULATED else releases


def _ranked_words(rank: int, releases: int) -> str:
    return (
        f"rank {rank} of {releases} simulated releases: never too short, unless chance misled the "
        f"simulation, which has a probability of at most {DOUBT:.0e}"
    )


def _simulated(law: Noise, rows: Any, releases: int) -> Iterator[FloatArray]:
    """The sizes of errors of simulated releases, some releases at a time."""
    generator = np.random.default_rng(0)
    p = law.size or rows.shape[1]
    size = max(1, int(BATCH / max(p, *rows.shape)))
    for start in range(0, releases, size):
        noise = law.sample(generator, min(size, releases - start), p)[:, law.free]
        yield np.abs(np.asarray((rows @ noise.T).T))


def _deviations(law: Noise, rows: Any) -> FloatArray:
    """Standard deviations of the combinations, but for rounding; 1 where there is no noise."""
    import scipy.sparse as sparse

    p = law.size or rows.shape[1]
    free = np.arange(p)[law.free]
    place = sparse.csr_array((np.ones(len(free)), (np.arange(len(free)), free)), (len(free), p))
    whole = rows @ place
    squares = law.variances(whole if is_sparse(whole) else np.asarray(whole))
    found = np.sqrt(np.maximum(squares, 0.0))
    # they only say which numbers get how much of the room: any positive ones will do
    least = 1e-9 * float(found.max(initial=0.0))
    return np.asarray(np.where(with_noise(rows), np.maximum(found, least), 1.0))


# ---------------------------------------------------------------------- sums of independent noise


# Slopes for Chernoff's bound, as shares of the steepest: steep ones for few terms, flat for many.
SLOPES = np.concatenate([np.geomspace(1e-6, 1e-3, 200), np.linspace(0.001, 0.999, 999)])
# What may wrap around in a series, its terms for Laplace numbers, and numbers in one table.
SERIES_TAIL = 1e-12
TERMS = 4096
MOST_SERIES = 2e7
# The smoothing number is so many times smaller than the reach, as there is room in a table of this
# size; it damps the series up to LAST.  P(W > −4κ) is at least NORMAL_4.
SMOOTH = (400.0, 5000.0)
ROOM = 2e5
LAST = 8.5
NORMAL_4 = 0.99996
# Laplace scales are put on a grid, so that outputs with the same mixture need one computation.
GRID = 1e9
# Scales of a sum that are told apart.
MOST_SCALES = 400
# Sums of independent noise that are computed for one question.
MOST_LAWS = 300
# What may wrap around on a lattice, numbers in its tables, and how long it may be.
WHOLE_TAIL = 1e-15
MOST_WORK = 4e7
MOST_PLACES = 1 << 21
# Ratios of coefficients that make a common lattice.
MOST_DENOMINATOR = 10_000
# Where a transform says nothing any more, and simulation would need too many releases.
RARE = 1e-6


class Numbers(Protocol):
    """Some independent numbers of a sum, each with a symmetric law."""

    @property
    def count(self) -> float:
        """How many there are."""

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX) of their sum X, right to 1e-12 of itself and of the count."""


def chernoff(numbers: Sequence[Numbers], probability: float) -> float:
    """Return a t with ``P(|sum| > t) ≤ probability``: Chernoff's bound, best of many slopes."""
    slopes = SLOPES * min(own.steepest for own in numbers)
    logs = np.zeros(len(slopes))
    for own in numbers:
        moments = own.log_moments(slopes)
        logs += moments + 1e-12 * (own.count + moments)
    return float(((logs - math.log(probability / 2)) / slopes).min()) * (1 + 1e-12)


def covering(
    decay: FloatArray, frequency: FloatArray, far: float, missing: float, level: float, safe: float
) -> float:
    """Return the least t at which a Fourier series says that ``|sum| ≤ t`` has this probability."""
    step = math.pi / far  # between frequencies, of which the first is one step
    kept = np.flatnonzero(step * np.abs(decay) > 1e-18)  # the others are less than 1e-18 each
    last = int(kept[-1]) + 1 if len(kept) else 0
    # sines of rounded angles: what they are off by is counted, too
    rounding = 8 * EPS * step * float(np.abs(decay[:last]) @ (1 + safe * frequency[:last]))
    missing += 1e-18 * len(decay) + rounding
    # sin((aw + b)φ) is made of the sines and cosines of awφ and bφ: as few as rows and columns
    width = math.isqrt(last) + 1
    table = np.zeros((width, width))
    table.ravel()[1 : last + 1] = decay[:last]
    places = np.arange(float(width))

    def coverage(t: float) -> float:
        up, across = step * t * width * places, step * t * places
        series = np.sin(up) @ (table @ np.cos(across)) + np.cos(up) @ (table @ np.sin(across))
        return t / far + 2 * step / math.pi * float(series) - missing

    if coverage(safe) < level:
        return safe
    low, high = 0.0, safe
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if coverage(middle) >= level else (middle, high)
    return high


# ---------------------------------------------------------------------- Laplace numbers


@dataclass(frozen=True, eq=False)
class Laplaces:
    """Laplace numbers of some scales, so many of each."""

    scales: FloatArray
    times: FloatArray

    @property
    def count(self) -> float:
        """How many there are."""
        return float(self.times.sum())

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""
        return 1 / float(self.scales.max())

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX)."""
        return np.asarray(-(np.log1p(-(np.outer(slopes, self.scales) ** 2)) @ self.times))

    def reach(self, outside: float) -> float:
        """Return the half width of their sum, the largest scale first, never too small."""
        scales, times = self.scales, self.times
        if len(scales) == 1 and times[0] == 1:
            return -math.log(outside) * float(scales[0])
        safe, far = (chernoff([self], p) for p in (outside, SERIES_TAIL))
        if len(scales) * float(TERMS) > MOST_SERIES or safe >= far:
            return safe
        step = math.pi / far  # the series has period 2 far, so what wraps around is beyond far
        frequency: FloatArray = step * np.arange(1.0, TERMS + 1)
        decay = np.exp(-(np.log1p(np.outer(frequency, scales) ** 2) @ times)) / frequency
        missing = self._left_out(float(frequency[-1])) + SERIES_TAIL
        return covering(decay, frequency, far, missing, 1 - outside, safe)

    def _left_out(self, last: float) -> float:
        """What the terms of the series beyond the last frequency add up to at most."""
        largest = np.repeat(self.scales[:64], np.minimum(self.times[:64], 64).astype(int))[:64]
        logs = 2 * np.cumsum(np.log(largest * last))
        bounds = np.exp(-np.maximum(logs, -700)) / (2 * np.arange(1, len(largest) + 1))
        return 2 / math.pi * float(bounds.min())


def laplace_total_reach(scales: FloatArray, times: FloatArray, outside: float) -> float:
    """Return t with ``P(|Σ b_i η_i| > t) ≤ outside`` for independent Laplace numbers η.

    Scales are taken a little larger so that few of them differ, which makes a sum of symmetric
    unimodal noises reach farther (Birnbaum 1948): the result is never too small, and at most a
    thousandth too large.
    """
    kept = (scales > 0) & (times > 0)
    given, count = scales[kept], times[kept]
    if not len(given):
        return 0.0
    largest = float(given.max())  # squares of small and of large numbers are no doubles
    size = largest * math.sqrt(float((count * (given / largest) ** 2).sum()))
    if len(given) > MOST_SCALES:
        # up to the next power of 1.0005, and nothing below a millionth of the whole
        steps = np.ceil(np.log(np.maximum(given / size, 1e-7)) / math.log1p(5e-4))
        different, where = np.unique(steps, return_inverse=True)
        given = np.exp(different * math.log1p(5e-4)) * size * (1 + 1e-12)
        count = np.asarray(np.bincount(where, count), dtype=float)
    order = np.argsort(-given)
    return Laplaces(given[order] / size, count[order]).reach(outside) * size * (1 + 1e-12)


@functools.lru_cache(maxsize=4096)
def whole_reach(scale: float, terms: int, outside: float) -> float:
    """Return how far a sum of so many whole Laplace numbers of one scale reaches.

    A Laplace number is the difference of two exponential ones.  Their whole parts are geometric,
    independent of the rests, and differ by whole Laplace noise.  So a sum L on the line is the
    whole sum S and independent noise; a window of length 2k + 1 holds 2k + 1 whole numbers
    wherever it is, and S is symmetric and unimodal: P(|S| ≤ k) ≥ P(|L| ≤ k + ½).
    """
    on_the_line = laplace_total_reach(np.array([scale]), np.array([float(terms)]), outside)
    return float(math.ceil(max(on_the_line - 0.5, 0.0)))


def laplace_spread(outside: float) -> float:
    """Return t with P(|Σ a_i L_i| > t σ) ≤ outside for all a, where σ² = 2 Σ a².

    For scales b_i with 2 Σ b² = 1 the moment generating function is Π 1/(1 − u² b_i²), and
    −ln(1 − x) is convex, so that one term with b² = ½ is the worst case at every u < √2:
    P ≤ 2 e^{−ut} / (1 − u²/2).  It is the worst case of every moment, too: the one of order 2k is
    (2k)! times the sum of all monomials of degree k in b², each of which has a coefficient of at
    least 1 in (Σ b²)^k.  So P ≤ (2k)! / (2^k t^{2k}); k = 1 is Chebyshev's inequality.
    """
    u = np.sqrt(2) * (1 - np.geomspace(1e-9, 0.999, 4000))
    bounds = (math.log(2 / outside) - np.log1p(-(u**2) / 2)) / u
    moments = (
        math.factorial(2 * k) ** (0.5 / k) / math.sqrt(2) / outside ** (0.5 / k)
        for k in range(1, 9)
    )
    return float(min(bounds.min(), *moments)) * (1 + 1e-12)


# ---------------------------------------------------------------------- stairs


@dataclass(frozen=True)
class Steps:
    """The law of one coordinate: |z| falls by e^(−rate) at first, first + width, …"""

    width: float
    first: float
    rate: float
    integers: bool  # whether z is whole

    def _beyond(self, far: FloatArray) -> FloatArray:
        """The weight of |z| from ``far`` on, on one side."""
        b, rest = math.exp(-self.rate), -math.expm1(-self.rate)
        down = np.floor(far / self.width)
        inside = far - down * self.width
        period = self.first + b * (self.width - self.first)
        own = np.maximum(self.first - inside, 0.0)
        own += b * (self.width - np.maximum(inside, self.first))
        return np.asarray(np.exp(-self.rate * down) * (own + b / rest * period))

    def tail(self, far: FloatArray) -> FloatArray:
        """Return P(|z| > far), right to a few roundings."""
        zero = float(self._beyond(np.zeros(1))[0])
        if self.integers:
            return self._beyond(np.floor(far) + 1) / (zero - 0.5)
        return self._beyond(far) / zero

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θz), right to 1e-12 of itself and of 1."""
        return np.asarray(np.log(self._mean(self._one_side(slopes) + self._one_side(-slopes))))

    def characteristic(self, frequencies: FloatArray) -> FloatArray:
        """Return E e^(iθz), right to 1e-12 where θ is some thousand times 1/width at most."""
        if not self.integers:
            return self._mean(2 * self._one_side(1j * frequencies).real)
        turns = 2 * math.pi
        near = frequencies - turns * np.rint(frequencies / turns)  # the same for whole numbers
        if self.width == 1.0:  # geometric noise
            return np.asarray(1 / (1 + (np.sin(near / 2) / np.sinh(min(self.rate, 1400) / 2)) ** 2))
        return self._mean(2 * self._one_side(1j * np.where(near == 0, 1e-300, near)).real)

    def _mean(self, sides: FloatArray) -> FloatArray:
        """What both sides have together, of all weight; 0 is on both of them."""
        zero = 1.0 if self.integers else 0.0
        return np.asarray((sides - zero) / (2 * float(self._beyond(np.zeros(1))[0]) - zero))

    def _one_side(self, slopes: Any) -> Any:
        """Σ or ∫ of e^(θz) times the weight, over z ≥ 0."""
        unit = np.expm1(slopes) if self.integers else slopes
        first, all_of_it = (np.expm1(slopes * end) / unit for end in (self.first, self.width))
        period = first + math.exp(-self.rate) * (all_of_it - first)
        return period / -np.expm1(slopes * self.width - self.rate)

    def reach(self, outside: float) -> float:
        """Return the least t with P(|z| > t) ≤ outside, rounded up."""

        def holds(t: float) -> bool:
            return float(self.tail(np.array([t]))[0]) * (1 + 1e-13) <= outside

        if holds(0.0):
            return 0.0
        low, high = 0.0, self.width
        while not holds(high):
            low, high = high, 2 * high
        while high - low > (1.0 if self.integers else 1e-13 * high):
            middle = (low + high) / 2
            middle = float(math.floor(middle)) if self.integers else middle
            if not low < middle < high:  # no double lies between: far beyond 2⁵³
                break
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


@dataclass(frozen=True)
class Stairs:
    """So many independent numbers of one law, times a positive size."""

    law: Steps
    size: float
    count: float

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""
        return self.law.rate / (self.law.width * self.size)

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX) of their sum."""
        return self.count * self.law.log_moments(slopes * self.size)

    def on_lattice(self, multiple: int) -> WholeLaw:
        """Return the law of whole numbers times a multiple, as one of cones: ≥ 0, and below."""
        width, first = int(self.law.width), int(self.law.first)
        down: FloatArray = np.where(np.arange(width + 1) < first, 0.0, -self.law.rate)
        down[width] = -self.law.rate  # which is 0 of the next step
        starts = multiple * np.arange(width + 1)
        sides = (multiple, starts[:-1], down[:-1]), (-multiple, -starts[1:], down[1:])
        cones = tuple(WholeTerm(np.array([s * width]), at, logs) for s, at, logs in sides)
        return WholeLaw(self.law.rate, cones, self.count)


# A law and the size of its coefficient, and how many terms have them.
Terms = Mapping[tuple[Steps, float], float]


def sum_reach(terms: Terms, outside: float) -> float:
    """Return t with P(|Σ c z| > t) ≤ outside."""
    kept = {pair: times for pair, times in terms.items() if times and pair[1]}
    if not kept:
        return 0.0
    if sum(kept.values()) == 1:
        ((law, size),) = kept
        return law.reach(outside) * size * (1 + 4 * EPS)
    unit = math.frexp(max(size for _, size in kept))[1]  # whatever the units are
    numbers = [Stairs(law, math.ldexp(size, -unit), times) for (law, size), times in kept.items()]
    found = _on_lattice(numbers, outside)
    return math.ldexp(smoothed_reach(numbers, outside) if found is None else found, unit)


def smoothed_reach(numbers: Sequence[Stairs], outside: float) -> float:
    """Return the reach of a sum X whose law may have jumps, which a Gaussian number W smooths.

    W has the deviation κ, a small share of the reach, so that the series of X + W is cut off with
    all that is left out counted against the coverage.  X beyond t and W above −4κ mean X + W
    beyond t − 4κ: ``P(|X| > t) ≤ P(|X + W| > t − 4κ) / Φ(4)``.
    """
    safe, far = (chernoff(numbers, p) for p in (outside, SERIES_TAIL))
    fine = min(max(ROOM / len(numbers) * math.pi * safe / (LAST * far), SMOOTH[0]), SMOOTH[1])
    smooth = safe / fine
    far += 8 * smooth  # P(|W| > 8κ) < SERIES_TAIL
    step = math.pi / far
    terms = math.ceil(LAST / smooth / step)
    # beyond the last term: Σ e^(−κ²θ²/2)/θ ≤ e^(−L²/2) (1 + 1/L²) / (step θ), and L = 8.5
    missing = (3 + 4 * len(numbers)) * SERIES_TAIL
    if len(numbers) * float(terms) > MOST_SERIES or safe >= far or missing > outside / 100:
        return safe
    frequency: FloatArray = step * np.arange(1.0, terms + 1)
    decay = np.exp(-((smooth * frequency) ** 2) / 2) / frequency
    for own in numbers:
        decay *= own.law.characteristic(frequency * own.size) ** own.count
    high = covering(decay, frequency, far, missing, 1 - outside * NORMAL_4, safe)
    return min(safe, (high + 4 * smooth) * (1 + 1e-12))


# ---------------------------------------------------------------------- lattices


@dataclass(frozen=True, eq=False)
class WholeTerm:
    """What one cone adds: Σ_b weights[b] e^(iθ starts[b]) Π_i (1 − q) / (1 − q e^(iθ steps[i]))."""

    steps: IntArray  # the combination of the generators
    starts: IntArray  # the combination of the points of the unit box
    logs: FloatArray  # of the weights of these points, up to a number for all cones


@dataclass(frozen=True, eq=False)
class WholeLaw:
    """The law of a whole combination of noise on a lattice, cone by cone, so many times."""

    rate: float  # −ln q
    terms: tuple[WholeTerm, ...]
    count: float = 1

    @property
    def steepest(self) -> float:
        """The exponential moments up to here are finite."""
        return self.rate / max(int(np.abs(term.steps).max()) for term in self.terms)

    @property
    def work(self) -> int:
        """Numbers in a table for one frequency."""
        return sum(len(term.steps) + len(term.starts) for term in self.terms)

    @property
    def _total(self) -> float:
        """The weight of all points of unit boxes."""
        return math.fsum(float(np.exp(term.logs).sum()) for term in self.terms)

    def log_moments(self, slopes: FloatArray) -> FloatArray:
        """Return log E e^(θX) of the sum."""
        rest, found = -math.expm1(-self.rate), np.zeros(len(slopes))
        for term in self.terms:
            own = np.exp(np.outer(slopes, term.starts) + term.logs).sum(axis=1)
            stays = -np.expm1(np.outer(slopes, term.steps) - self.rate)
            found += own * (rest / stays).prod(axis=1)
        return np.asarray(self.count * np.log(found / self._total))

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
        return np.asarray((found.real / self._total) ** self.count)


def lattice_reach(laws: Sequence[WholeLaw], outside: float) -> int | None:
    """Return t with P(|Σ X| > t) ≤ outside for independent X; None if it is too much to compute."""
    work = sum(law.work for law in laws)
    if work * len(SLOPES) > MOST_WORK:
        return None
    safe, far = (math.ceil(chernoff(laws, p)) for p in (outside, WHOLE_TAIL))
    places = 1 << (2 * far + 2).bit_length()
    factors = sum(law.work * law.count for law in laws)
    # entries are off by a few roundings each, and sums over places by √places of that
    doubt = 2 * WHOLE_TAIL + 64 * EPS * (factors + 4 * math.log2(places)) * math.sqrt(places)
    if places > MOST_PLACES or places * float(work) > MOST_WORK or doubt > outside / 100:
        return safe if outside < RARE else None
    transform = np.ones(places // 2 + 1)
    for law in laws:
        transform *= law.transform(places)
    beyond = 2 * np.cumsum(np.fft.irfft(transform, places)[places // 2 - 1 : 0 : -1])[::-1]
    enough = np.flatnonzero(beyond + doubt <= outside)
    # beyond[t] is the probability of more than t
    return min(safe, int(enough[0])) if len(enough) else safe


def proportions(sizes: Sequence[float]) -> tuple[list[int], float, float] | None:
    """Return whole multiples of a unit that numbers are, and how far they are off, relatively."""
    least = min(sizes)
    if max(sizes) > MOST_PLACES * least:
        return None
    ratios = [Fraction(size / least).limit_denominator(MOST_DENOMINATOR) for size in sizes]
    common = math.lcm(*(ratio.denominator for ratio in ratios))
    if common > MOST_PLACES:  # what the least one is
        return None
    unit = least / common
    multiples = [int(ratio * common) for ratio in ratios]
    if max(multiples) > MOST_PLACES:
        return None
    exact = (m * Fraction(unit) / Fraction(size) for m, size in zip(multiples, sizes))
    off = float(max(abs(ratio - 1) for ratio in exact))
    return None if off > 1e-12 else (multiples, unit, off)


def _on_lattice(numbers: Sequence[Stairs], outside: float) -> float | None:
    """Whole noise with coefficients in whole proportions: the exact law."""
    if not all(own.law.integers and own.law.width < MOST_PLACES for own in numbers):
        return None
    known = proportions([own.size for own in numbers])
    if known is None:
        return None
    multiples, unit, off = known
    laws = [own.on_lattice(multiple) for own, multiple in zip(numbers, multiples)]
    found = lattice_reach(laws, outside)
    # coefficients have these proportions but for a rounding, which the noise multiplies
    far = 0.0 if found is None else chernoff(laws, min(outside, SERIES_TAIL))
    return None if found is None else (found * (1 + 4 * EPS) + off * far) * unit


# ---------------------------------------------------------------------- combinations


def sparse_rows(rows: Matrix) -> Any:
    """Return rows without zeros, by which laws are looked up."""
    import scipy.sparse as sparse

    found: Any = sparse.csr_array(rows, copy=True)  # what promises rest on is read-only
    found.eliminate_zeros()
    return found


def independent_reach(
    laws: Mapping[int, Steps] | FloatArray,
    rows: Matrix,
    outside: float,
    apart: bool = False,
    most: float = MOST_LAWS,
) -> Reach | None:
    """Return half widths of combinations of independent coordinates: stairs, or Laplace scales.

    None where there are too many different ones, or where they share noise and must not.
    """
    given = sparse_rows(rows)
    if apart and int(np.unique(given.indices, return_counts=True)[1].max(initial=0)) > 1:
        return None
    known: dict[Any, float] = {}
    found = np.zeros(given.shape[0])
    for i, (start, end) in enumerate(zip(given.indptr[:-1].tolist(), given.indptr[1:].tolist())):
        sizes, places = np.abs(given.data[start:end]), given.indices[start:end]
        if isinstance(laws, Mapping):
            terms = Counter((laws[j], c) for j, c in zip(places.tolist(), sizes.tolist()))
            key: Any = frozenset(terms.items())
            if key not in known and len(known) >= most:
                return None
            found[i] = known[key] = known[key] if key in known else sum_reach(terms, outside)
        elif end > start:
            found[i] = _laplace_reach(sizes * laws[places], outside, known)
    if apart:
        return found * END, "exact: independent noise on every number; never too short"
    return found * END, "from the law of sums of independent noise; never too short"


def _laplace_reach(scales: FloatArray, outside: float, known: dict[Any, float]) -> float:
    """Half width of a sum of Laplace numbers; those in nearly the same proportions are one."""
    largest = float(scales.max())
    size = largest * math.sqrt(float(((scales / largest) ** 2).sum()))
    # scales on a grid, rounded up, which makes a sum of symmetric unimodal noises reach farther
    # (Birnbaum 1948)
    gridded, times = np.unique(np.ceil(scales / size * GRID) / GRID, return_counts=True)
    key = gridded.tobytes() + times.tobytes()
    if key not in known:
        known[key] = laplace_total_reach(gridded, times.astype(float), outside)
    return known[key] * size * (1 + 1e-12)


# ---------------------------------------------------------------------- rows that are alike

# Coefficients, as shares of the largest one of their row, that differ by less are taken as one.
NEAR = 1e-9
# What such differences, and roundings on the way to coefficients, may take of the probability.
SHARE_OF_REST = 1e-6
# Laws that are computed for one table; if there are more, only Chernoff's bounds are.
MOST_ALIKE = 100


@dataclass(frozen=True, eq=False)
class Alike:
    """Combinations of geometric noise; those with nearly the same coefficients are one.

    A combination is the one that stands for it and a rest of small coefficients:
    ``P(|X + R| > t + s) ≤ P(|X| > t) + P(|R| > s)``.
    """

    terms: tuple[Terms, ...]  # with 1 for the largest coefficient
    which: IntArray  # of them, row by row
    sizes: FloatArray  # the largest coefficients
    rests: FloatArray  # bounds on deviations of the rests, as shares of these

    def reach(self, outside: float) -> FloatArray:
        """Return half widths row by row, never too short."""
        most, bound = outside * (1 - 2 * SHARE_OF_REST), len(self.terms) > MOST_ALIKE
        found = np.array([_bounded(one, most) if bound else sum_reach(one, most)
                          for one in self.terms])  # fmt: skip
        rests = laplace_spread(outside * SHARE_OF_REST) * self.rests
        return np.asarray((found[self.which] + rests) * self.sizes * END)


def _bounded(terms: Terms, outside: float) -> float:
    """Chernoff's bound alone."""
    numbers = [Stairs(law, size, times) for (law, size), times in terms.items()]
    return chernoff(numbers, outside) if numbers else 0.0


def alike(rates: FloatArray, times: FloatArray, rows: FloatArray) -> Alike:
    """Return combinations of geometric noise: rates and times of all columns, coefficients."""
    each, law_of = np.unique(rates, return_inverse=True)
    laws = [Steps(1.0, 1.0, rate, True) for rate in each.tolist()]
    sizes = np.abs(rows).max(axis=1, initial=0.0)
    which, rests = np.zeros(len(rows), np.intp), np.zeros(len(rows))
    known: dict[bytes, int] = {}
    kept: list[tuple[Terms, FloatArray]] = []
    for i, size in enumerate(sizes.tolist()):
        shares = np.abs(rows[i]) / (size or 1.0)
        near = np.rint(shares / NEAR)
        keys = np.where(near > 0, near * len(each) + law_of, -1.0)
        own, first, back = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(back, times)
        key = own.tobytes() + counts.tobytes()
        if key not in known:
            known[key] = len(kept)
            stand = np.where(own < 0, 0.0, shares[first])
            pairs = [(laws[j], share) for j, share in zip(law_of[first].tolist(), stand.tolist())]
            terms = {pair: n for pair, n in zip(pairs, counts.tolist()) if pair[1] > 0}
            kept.append((terms, stand))
        which[i] = known[key]
        # a Laplace number of this rate is the geometric one and more; roundings count, too
        off = np.abs(shares - kept[which[i]][1][back]) + 1e-12 * shares
        rests[i] = math.sqrt(2 * float(times @ (off / rates) ** 2))
    return Alike(tuple(terms for terms, _ in kept), which, sizes, rests)
