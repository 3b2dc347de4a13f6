"""How far sums of independent numbers reach: Laplace noise and stairs.

Sums of Laplace noise come from their characteristic function.  Geometric noise on whole numbers is
a staircase with steps of one; the law of a sum on a common lattice is the product of Fourier
transforms.  All that is cut off or rounded on the way is counted against the probability, so that
no reach is too short.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.laws.reach import END, Reach, norms
from affinedp.laws.stairs import real_variance, whole_variance

# Terms of the Fourier series; what is left out is bounded and counted against the coverage.
TERMS = 4096
# Numbers in one table of the series' factors.
MOST_SERIES = 2e7
SERIES_TAIL = 1e-12
# Laplace scales are put on a grid, so that outputs with the same mixture need one computation.
GRID = 1e9
# Sums of independent noise that are computed for one question.
MOST_LAWS = 300
# Scales of a sum that are told apart.
MOST_SCALES = 400
# Slopes for Chernoff's bound, as shares of the steepest: steep ones for few terms, flat for many.
SLOPES = np.concatenate([np.geomspace(1e-6, 1e-3, 200), np.linspace(0.001, 0.999, 999)])


def laplace_reach(scales: FloatArray, times: FloatArray, outside: float) -> float:
    """Return the half width for a sum of Laplace noises with these scales, never too small."""
    if len(scales) == 1 and times[0] == 1:
        return -math.log(outside) * float(scales[0])
    safe = chernoff_reach(scales, times, outside)
    far = chernoff_reach(scales, times, SERIES_TAIL)
    if len(scales) * float(TERMS) > MOST_SERIES or safe >= far:
        return safe
    step = math.pi / far  # the series has period 2 far, so what wraps around is beyond far
    frequency: FloatArray = step * np.arange(1.0, TERMS + 1)
    decay = np.exp(-(np.log1p(np.outer(frequency, scales) ** 2) @ times)) / frequency
    missing = _left_out(scales, times, float(frequency[-1])) + SERIES_TAIL

    return covering(decay, frequency, far, missing, 1 - outside, safe)


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
    reach = laplace_reach(given[order] / size, count[order], outside)
    return reach * size * (1 + 1e-12)


def covering(
    decay: FloatArray,
    frequency: FloatArray,
    far: float,
    missing: float,
    level: float,
    safe: float,
) -> float:
    """Return the least t at which a Fourier series says that ``|sum| ≤ t`` has this probability."""
    step = math.pi / far

    def coverage(t: float) -> float:
        series = float(decay @ np.sin(frequency * t))
        return t / far + 2 * step / math.pi * series - missing

    if coverage(safe) < level:
        return safe
    low, high = 0.0, safe
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if coverage(middle) >= level else (middle, high)
    return high


def _left_out(scales: FloatArray, times: FloatArray, last: float) -> float:
    """What the terms of the series beyond the last frequency add up to at most."""
    largest = np.repeat(scales[:64], np.minimum(times[:64], 64).astype(int))[:64]
    logs = 2 * np.cumsum(np.log(largest * last))
    bounds = np.exp(-np.maximum(logs, -700)) / (2 * np.arange(1, len(largest) + 1))
    return 2 / math.pi * float(bounds.min())


def chernoff_reach(scales: FloatArray, times: FloatArray, probability: float) -> float:
    """Return a t with ``P(|sum| > t) ≤ probability``: Chernoff's bound, best of many slopes."""
    theta = SLOPES / float(scales.max())
    logs = -(np.log1p(-(np.outer(theta, scales) ** 2)) @ times)
    return float(((logs - math.log(probability / 2)) / theta).min())


def laplace_spread(outside: float) -> float:
    """Return t with P(|Σ a_i L_i| > t σ) ≤ outside for all a, where σ² = 2 Σ a².

    For 0 < u < 1 and scales b_i with 2 Σ b² = 1 the moment generating function is
    Π 1/(1 − u² b_i²), and −ln(1 − x) is convex, so that one term with b² = ½ is the worst case at
    every u < √2: P ≤ 2 e^{−ut} / (1 − u²/2).
    """
    u = np.sqrt(2) * (1 - np.geomspace(1e-9, 0.999, 4000))
    chernoff = (math.log(2 / outside) - np.log1p(-(u**2) / 2)) / u
    return float(min(chernoff.min(), 1 / math.sqrt(outside)))


def laplace_rows_reach(rows: FloatArray, outside: float) -> FloatArray:
    """Return half widths of combinations of Laplace noise, row by row."""
    known: dict[bytes, float] = {}
    sizes = norms(rows)
    found = np.zeros(len(rows))
    for i, (row, size) in enumerate(zip(np.abs(rows), sizes.tolist())):
        if size == 0.0:
            continue
        # scales on a grid, rounded up, which makes a sum of symmetric unimodal noises reach
        # farther (Birnbaum 1948)
        scales = np.sort(np.ceil(row[row > 0] / size * GRID))[::-1] / GRID
        key = scales.tobytes()
        if key not in known:
            known[key] = laplace_reach(scales, np.ones(len(scales)), outside)
        found[i] = known[key] * size * (1 + 1e-12)
    return found


# ---------------------------------------------------------------------- stairs

EPS = float(np.finfo(float).eps)
# What is cut off a law, and what may wrap around.
TAIL = 1e-13
# Lengths of the transforms, and ratios of coefficients that make a common lattice.
MOST_PLACES = 1 << 21
MOST_DENOMINATOR = 10_000
# Where a transform says nothing any more, and simulation would need too many releases.
RARE = 1e-6
# On a grid every term is off by half a step at most; all together by this share of the deviation.
SHARE = 1e-3


@dataclass(frozen=True)
class Steps:
    """The law of one coordinate: |z| falls by e^(−rate) at first, first + width, …

    Attributes
    ----------
    width, first, rate : float
        Of the stairs.
    integers : bool
        Whether z is whole.
    """

    width: float
    first: float
    rate: float
    integers: bool

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
        zero = 1.0 if self.integers else 0.0
        sides = [self._one_side(slopes), self._one_side(-slopes)]
        alone = float(self._beyond(np.zeros(1))[0])
        return np.asarray(np.log((sides[0] + sides[1] - zero) / (2 * alone - zero)))

    def _one_side(self, slopes: FloatArray) -> FloatArray:
        """Σ or ∫ of e^(θz) times the weight, over z ≥ 0."""
        unit = np.expm1(slopes) if self.integers else slopes
        first, all_of_it = (np.expm1(slopes * end) / unit for end in (self.first, self.width))
        period = first + math.exp(-self.rate) * (all_of_it - first)
        return np.asarray(period / -np.expm1(slopes * self.width - self.rate))

    @property
    def variance(self) -> float:
        """E z²."""
        if self.integers:
            return whole_variance(int(self.width), int(self.first), self.rate)
        return real_variance(self.width, self.first, self.rate)

    def reach(self, outside: float) -> float:
        """Return the least t with P(|z| > t) ≤ outside, rounded up.

        Examples
        --------
        >>> geometric = Steps(1.0, 1.0, 1.0, True)
        >>> geometric.reach(0.05)                     # 2 e^(−4) / (1 + e^(−1)) is 0.027
        3.0
        """

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


# A law and the size of its coefficient, and how many terms have them.
Terms = Mapping[tuple[Steps, float], int]


def sum_reach(terms: Terms, outside: float) -> float | None:
    """Return t with P(|Σ c z| > t) ≤ outside; None where it is too much to compute.

    Examples
    --------
    >>> geometric = Steps(1.0, 1.0, 1.0, True)
    >>> [round(sum_reach({(geometric, 1.0): times}, 0.05), 9) for times in (1, 2, 10)]
    [3.0, 4.0, 9.0]
    """
    if not terms:
        return 0.0
    count = sum(terms.values())
    if count == 1:
        ((law, size),) = terms
        return law.reach(outside) * size * (1 + 4 * EPS)
    found = _on_lattice(terms, outside)
    found = _on_grid(terms, outside) if found is None else found
    return chernoff_sum_reach(terms, outside) if found is None and outside < RARE else found


def chernoff_sum_reach(terms: Terms, outside: float) -> float:
    """Return t with P(|Σ c z| > t) ≤ outside by Chernoff's bound, at the best of many slopes."""
    slopes = SLOPES * min(law.rate / (law.width * size) for law, size in terms)
    logs = np.zeros(len(slopes))
    for (law, size), times in terms.items():
        moments = law.log_moments(slopes * size)
        logs += times * (moments + 1e-12 * (1 + moments))
    return float(((logs - math.log(outside / 2)) / slopes).min()) * (1 + 1e-12)


def proportions(sizes: Sequence[float]) -> tuple[list[int], float, float] | None:
    """Return whole multiples of a unit that numbers are, and how far they are off, relatively.

    Examples
    --------
    >>> proportions([0.5, 0.75])[:2]
    ([2, 3], 0.25)
    """
    least = min(sizes)
    if max(sizes) > MOST_PLACES * least:
        return None
    ratios = [Fraction(size / least).limit_denominator(MOST_DENOMINATOR) for size in sizes]
    common = math.lcm(*(ratio.denominator for ratio in ratios))
    unit = least / common
    multiples = [int(ratio * common) for ratio in ratios]
    if max(multiples) > MOST_PLACES:
        return None
    exact = (m * Fraction(unit) / Fraction(size) for m, size in zip(multiples, sizes))
    off = float(max(abs(ratio - 1) for ratio in exact))
    return None if off > 1e-12 else (multiples, unit, off)


def _on_lattice(terms: Terms, outside: float) -> float | None:
    """Whole noise with coefficients in whole proportions: the exact law."""
    if not all(law.integers for law, _ in terms):
        return None
    known = proportions([size for _, size in terms])
    if known is None:
        return None
    multiples, unit, off = known
    count = sum(terms.values())
    reaches = [int(law.reach(TAIL / count)) for law, _ in terms]
    if max(map(int.__mul__, reaches, multiples)) * len(terms) > MOST_PLACES:
        return None
    halves, far = [], 0
    for (law, _), multiple, times, ends in zip(terms, multiples, terms.values(), reaches):
        tails = law.tail(np.arange(ends + 1.0))
        # P(±k), from differences of tails: two that nearly cancel are counted as doubt
        half = np.zeros(ends * multiple + 1)
        half[::multiple] = np.concatenate([[1 - tails[0]], (tails[:-1] - tails[1:]) / 2])
        halves.append((half, times))
        far += ends * multiple * times
    found = _covering(halves, outside, far)
    return None if found is None else (found * (1 + 4 * EPS) + off * far) * unit


def _on_grid(terms: Terms, outside: float) -> float | None:
    """Every term rounded to a fine grid; what that may move the sum by is added."""
    count = sum(terms.values())
    spread = math.sqrt(sum(law.variance * c * c * times for (law, c), times in terms.items()))
    step = SHARE * spread / count
    reaches = [math.ceil(law.reach(TAIL / count) * size / step) for law, size in terms]
    if max(reaches) * len(terms) > MOST_PLACES:
        return None
    halves, far = [], 0
    for (law, size), times, ends in zip(terms, terms.values(), reaches):
        edges = (np.arange(ends + 1) + 0.5) * step / size
        tails = law.tail(np.asarray(edges, dtype=float))
        halves.append((np.concatenate([[1 - tails[0]], (tails[:-1] - tails[1:]) / 2]), times))
        far += ends * times
    found = _covering(halves, outside, far)
    # a number on an edge may be on either side of it
    return None if found is None else (found + 0.51 * count) * step * (1 + 1e-9)


def _covering(halves: list[tuple[FloatArray, int]], outside: float, far: int) -> int | None:
    """The least place t with P(|sum| > t) ≤ outside, for laws on whole numbers up to their ends."""
    spread = sum(
        times * 2 * float((np.arange(len(half)) ** 2 * half).sum()) for half, times in halves
    )
    longest = max(len(half) - 1 for half, _ in halves)
    # Bernstein's bound: beyond this is less than TAIL, so that little wraps around
    log = math.log(2 / TAIL)
    bound = longest / 3 * log
    bound += math.sqrt(bound * bound + 2 * spread * log)
    reach = max(longest, min(far, math.ceil(bound * 1.01) + 1))
    places = 1 << (2 * reach + 1).bit_length()
    if places * len(halves) > 2 * MOST_PLACES:
        return None
    transform = np.ones(places // 2 + 1)
    for half, times in halves:
        whole = np.zeros(places)
        whole[: len(half)] = half
        whole[places - len(half) + 1 :] += half[:0:-1]
        transform *= np.fft.rfft(whole).real ** times
    law = np.fft.irfft(transform, places)[: places // 2]
    terms = sum(times * len(half) for half, times in halves)
    count = sum(times for _, times in halves)
    # a transform is off by a few log(places) roundings, its power by count times that, and a sum
    # over places by √places of it (Cauchy and Parseval); entries by a few roundings each
    transforms = 16 * (count + 4) * math.sqrt(places) * math.log2(places)
    doubt = 2 * TAIL + EPS * (transforms + 8 * terms)
    if doubt > outside / 100:
        return None
    covered = 2 * np.cumsum(law) - law[0] - doubt
    enough = np.flatnonzero(1 - covered <= outside)
    return int(enough[0]) if len(enough) else None


# ---------------------------------------------------------------------- combinations


def sparse_rows(rows: Matrix) -> Any:
    """Return rows without zeros, by which laws are looked up."""
    import scipy.sparse as sparse

    found: Any = sparse.csr_array(rows, copy=True)  # what promises rest on is read-only
    found.eliminate_zeros()
    return found


def independent_reach(
    laws: Mapping[int, Steps | float] | None, rows: Matrix, outside: float, apart: bool = False
) -> Reach | None:
    """Return half widths of combinations of independent coordinates; None where it is too much."""
    if laws is None:
        return None
    given = sparse_rows(rows)
    if apart and int(np.unique(given.indices, return_counts=True)[1].max(initial=0)) > 1:
        return None
    known: dict[Any, float | None] = {}
    found = np.zeros(given.shape[0])
    for i, (start, end) in enumerate(zip(given.indptr[:-1].tolist(), given.indptr[1:].tolist())):
        sizes = np.abs(given.data[start:end]).tolist()
        terms = Counter((laws[j], c) for j, c in zip(given.indices[start:end].tolist(), sizes))
        key = frozenset(terms.items())
        if key not in known:
            if len(known) >= MOST_LAWS:
                return None
            known[key] = _terms_reach(terms, outside)
        reach = known[key]
        if reach is None:
            return None
        found[i] = reach
    if apart:
        return found * END, "exact: independent noise on every number; never too short"
    return found * END, "from the law of sums of independent noise; never too short"


def _terms_reach(terms: Mapping[tuple[Any, float], int], outside: float) -> float | None:
    """Half width of a sum of Laplace numbers, or of stairs; None for both at once."""
    if not any(isinstance(law, Steps) for law, _ in terms):
        scales = np.array([law * c for law, c in terms])
        return laplace_total_reach(scales, np.array(list(terms.values()), dtype=float), outside)
    if not all(isinstance(law, Steps) for law, _ in terms):
        return None
    return sum_reach(terms, outside)
