"""What an attacker looks at in releases, and the ε that its scores show to be exceeded.

An attack is a pair of neighbours and a score of releases (likelihood ratios, noiseless
combinations, low bits).  Any score gives a valid audit; the likelihood ratio is the best one
against additive noise.

(ε, δ)-differential privacy says P(S) ≤ e^ε Q(S) + δ for every event S.  One half of each sample
chooses an event; the other half bounds its two probabilities by Clopper and Pearson's exact
intervals.  Since the event was chosen on other runs, nothing is lost to trying many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.lattice import whole_kernel
from affinedp.exact.numbers import generator_of, real_array
from affinedp.laws.base import Law
from affinedp.laws.curves import laplace_delta
from affinedp.laws.laplace import Laplace
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.strategies.dense import Dense
from affinedp.strategies.largest_gauge import Coordinates
from affinedp.strategies.matrices import Matrices, whiten

THRESHOLDS = 2_000


@dataclass(frozen=True)
class Evidence:
    """How well two samples are told apart."""

    epsilon_lower: float
    named: int
    hit_rate: float
    miss_rate: float
    advantage: tuple[float, float]


def distinguish(
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    delta: float,
    confidence: float,
    seed: int | None,
    learns: bool = False,
) -> Evidence:
    """Bound ε from below by the best threshold on the scores of two samples.

    Examples
    --------
    Two Gaussians with distance 1 have ε ≈ 1.57 at δ = 0.05.

    >>> noise = np.random.default_rng(0).standard_normal((2, 100_000, 1))
    >>> found = distinguish(noise[0], noise[1] + 1, delta=0.05, confidence=0.99, seed=0)
    >>> 1.4 < found.epsilon_lower < 1.57
    True
    """
    runs = len(first)
    order = generator_of(seed).permutation(runs)
    chosen, counted = order[: runs // 2], order[runs // 2 :]
    if learns:
        first, second = _learnt(first, second, chosen)
    column, named, threshold = _best_event(first[chosen], second[chosen], delta, confidence)
    # samples in the order (other, named); small scores speak for the first one
    pair, sign = ((first, second), 1) if named else ((second, first), -1)
    misses, hits = (
        np.count_nonzero(sign * sample[counted, column] >= threshold) for sample in pair
    )
    hit = clopper_pearson(np.array(hits), len(counted), confidence)
    miss = clopper_pearson(np.array(misses), len(counted), confidence)
    return Evidence(
        epsilon_lower=float(_epsilon_lower(hit[0], miss[1], delta)),
        named=named,
        hit_rate=hits / len(counted),
        miss_rate=misses / len(counted),
        advantage=(float(hit[0] - miss[1]), float(hit[1] - miss[0])),
    )


def clopper_pearson(
    counts: NDArray[Any], runs: int, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return exact lower and upper bounds on probabilities.

    Each is wrong with at most half of the allowed probability, so that two of them hold
    together with the confidence.
    """
    from scipy.special import betainccinv, betaincinv

    k = np.asarray(counts, dtype=np.float64)
    tail = (1 - confidence) / 2
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), runs - k + 1, tail), 0.0)
    high = np.where(k < runs, betainccinv(k + 1, np.maximum(runs - k, 1), tail), 1.0)
    # wider by more than these functions round
    return low * (1 - 1e-9), np.minimum(high * (1 + 1e-9), 1.0)


def _epsilon_lower(hit: FloatArray, miss: FloatArray, delta: float) -> FloatArray:
    return np.asarray(np.log(np.maximum((hit - delta) / miss, 1.0)))


def _best_event(
    first: FloatArray, second: FloatArray, delta: float, confidence: float
) -> tuple[int, int, float]:
    """The column, the sample it speaks for, and the threshold with the best bound."""
    best = (-1.0, 0, 1, 0.0)
    for column in range(first.shape[1]):
        low, high = first[:, column], second[:, column]
        for named, right, wrong in ((1, high, low), (0, -low, -high)):
            hits, misses = np.sort(right), np.sort(wrong)
            steps = np.unique(np.concatenate([hits, misses]))
            evenly = np.linspace(0, len(steps) - 1, THRESHOLDS).astype(int)
            # and all of the upper end, where few mistakes decide
            steps = np.unique(np.concatenate([steps[evenly], steps[-THRESHOLDS:]]))
            hit, miss = (
                clopper_pearson(len(part) - np.searchsorted(part, steps), len(part), confidence)
                for part in (hits, misses)
            )
            # equal bounds (often 0): the larger difference
            merit = _epsilon_lower(hit[0], miss[1], delta) + 1e-6 * (hit[0] - miss[1])
            place = int(np.argmax(merit))
            best = max(best, (float(merit[place]), column, named, float(steps[place])))
    return best[1:]


def _learnt(
    first: NDArray[Any], second: NDArray[Any], chosen: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Log-likelihood ratios of the patterns in each column, learnt from the chosen runs."""
    patterns = int(max(first.max(), second.max())) + 1
    scores = np.zeros(first.shape), np.zeros(second.shape)
    for column in range(first.shape[1]):
        seen = [np.bincount(part[chosen, column], minlength=patterns) for part in (first, second)]
        table = np.log((seen[1] + 1) / (seen[0] + 1))
        for values, part in zip(scores, (first, second)):
            values[:, column] = table[part[:, column]]
    return scores


if TYPE_CHECKING:
    from affinedp.mechanism import Mechanism

# Rows of data in, one release of each out.
Release = Callable[[FloatArray], FloatArray]

# A combination is noiseless if it spreads less than this share of the noise, and it is a leak
# if neighbours move it this many times as far as it spreads.
NOISELESS, LEAK_RATIO = 1e-9, 1e3
# More outputs (or dimensions) than this are not searched for noiseless combinations.
MOST_OUTPUTS = 500
LISTED_DIRECTIONS = 5_000
# Patterns of low bits that are told apart.
PATTERNS = 64
EPS = float(np.finfo(float).eps)


# What the attacker computes from releases (rows, m): an array (rows, columns).
Score = Callable[[FloatArray], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Attack:
    """Two neighbours and a score of their releases."""

    # start, direction: x, and what x' differs by
    start: FloatArray
    direction: FloatArray
    # large where it speaks for x'; a pattern from 0 to ``PATTERNS − 1`` if ``learns``
    score: Score
    # what is looked at
    words: str
    # the noiseless combination, if that is what is looked at
    leak: FloatArray | None = None
    # whether the attacker must first learn which patterns speak for which data
    learns: bool = False


@dataclass(frozen=True, eq=False)
class Target:
    """Releases to attack, and what the attacker knows about them."""

    # the equations, the query, and the noise that the attacker assumes
    mechanism: Mechanism
    # what is attacked
    release: Release
    # whom the claim is about
    neighbours: Adjacency
    # Λ⁺ of the assumed noise; for K-norm noise what takes outputs to coordinates
    inverse: Matrix

    @classmethod
    def of(cls, mechanism: Mechanism, release: Release | None, neighbours: Adjacency) -> Target:
        """Prepare an attack on ``release``, or on the mechanism's own releases."""
        import scipy.sparse as sparse

        if not (release is None or callable(release)):
            raise AffineDPError(f"release must be a function, not {type(release).__name__}")
        if release is None and mechanism.guarantee.leak is not None:
            raise AffineDPError(
                "this mechanism promises nothing and releases nothing; give the release function "
                "that is to be attacked"
            )
        identity = sparse.csr_array(sparse.eye_array(len(mechanism.output_names)))
        if mechanism.noise.size is None or not isinstance(mechanism.strategy, Dense):
            inverse = whiten(mechanism.strategy.loadings(), identity).query
        else:
            inverse = Coordinates.of(identity, mechanism.dense.noise, mechanism.noise).matrix
        return cls(mechanism, release or mechanism.release, neighbours, inverse)

    @cached_property
    def query(self) -> Matrix:
        """What is published of data, before noise."""
        strategy = self.mechanism.strategy
        if isinstance(strategy, Matrices):
            return strategy.query
        moves = np.eye(len(self.mechanism.domain.names))
        return np.asarray(dense(strategy.loadings()) @ dense(strategy.measure(moves)))

    @property
    def start(self) -> FloatArray:
        """The data that is attacked: a public point of the manifold."""
        return np.asarray(self.mechanism.manifold.point)

    def releases(self, points: FloatArray) -> FloatArray:
        """Return one release of every row, checked."""
        published = real_array(self.release(points), "what the release function returns")
        wanted = (len(points), len(self.mechanism.output_names))
        if published.shape != wanted:
            raise AffineDPError(
                f"the release function returns shape {published.shape}, but must return {wanted}: "
                "one row of outputs for every row of data"
            )
        return published

    def worst_direction(self, matrix: Matrix, norm: Norm) -> FloatArray:
        """Return the worst neighbour; where there are too many, the worst of a single basis."""
        mechanism, neighbours = self.mechanism, self.neighbours
        try:
            if mechanism.proof is None or neighbours is not mechanism.adjacency:
                return neighbours.sensitivity(matrix, norm).direction
        except TooManyCircuitsError:
            pass
        manifold = mechanism.manifold
        mu: Any = getattr(neighbours, "mu", 1.0)
        one_basis = FreeSetAdjacency(manifold, [manifold.canonical.free.tolist()], mu)
        return one_basis.sensitivity(matrix, norm).direction


# ---------------------------------------------------------------------- likelihood ratio


@dataclass(frozen=True, eq=False)
class _LikelihoodRatio:
    """Log-likelihood ratio of the noise, in units of what the neighbours differ by."""

    law: Law
    inverse: Matrix
    origin: FloatArray
    shift: FloatArray

    def __call__(self, published: FloatArray) -> FloatArray:
        a = self.shift[:, None]
        z = np.asarray((published - self.origin) @ self.inverse.T).T
        score = (self.law.depths(z) - self.law.depths(z - a)) / self.law.gauges(a).upper[0]
        # beyond the shift the Laplace ratio is constant: rounding must not split that tie
        return np.round(np.asarray(score), 9)[:, None]


def likelihood_attack(target: Target, epsilon: float, delta: float) -> Attack:
    """Return the likelihood ratio between the worst pair of neighbours."""
    mechanism = target.mechanism
    whitened = target.inverse @ target.query
    law, direction = mechanism.noise, None
    if isinstance(law, Laplace) and delta > 0:
        # another direction than the one with the largest 1-norm can be the worst
        direction = _worst_listed(
            target.neighbours,
            whitened,
            lambda image: [laplace_delta(a, epsilon) for a in image.T],
        )
    elif target.neighbours is mechanism.adjacency:
        direction = mechanism.guarantee.worst_direction
    if direction is None and law.norm is None:
        direction = _worst_listed(target.neighbours, whitened, lambda a: law.gauges(a).upper)
    if direction is None:
        direction = target.worst_direction(whitened, law.norm or 2)
    shift = dense(whitened @ direction).ravel()
    if not shift.any():
        raise AffineDPError("neighbours do not differ in the outputs: there is nothing to attack")
    origin = dense(target.query @ target.start).ravel()
    score = _LikelihoodRatio(law, target.inverse, origin, shift)
    return Attack(target.start, direction, score, f"the likelihood ratio of {law.words} noise")


def _worst_listed(
    neighbours: Adjacency, whitened: Matrix, measured: Callable[[FloatArray], Any]
) -> FloatArray | None:
    """The move whose image is measured as the largest, where they can be listed."""
    try:
        directions = neighbours.directions(LISTED_DIRECTIONS)
    except TooManyCircuitsError:
        return None
    return directions[:, int(np.argmax(measured(dense(whitened @ directions))))]


# ---------------------------------------------------------------------- noiseless combinations


@dataclass(frozen=True, eq=False)
class _Combination:
    """The value of one combination of the outputs, from 0 at x to 1 at x'."""

    weights: FloatArray
    origin: float
    move: float

    def __call__(self, published: FloatArray) -> FloatArray:
        score: FloatArray = (published @ self.weights - self.origin) / self.move
        # what little it spreads does not matter
        return np.round(score, 2)[:, None]


def leak_attack(target: Target) -> Attack | None:
    """Look for a combination without noise that still moves with the data, in a few releases."""
    mechanism = target.mechanism
    span, outputs = target.neighbours.span(), len(mechanism.output_names)
    if max(outputs, span.shape[1]) > MOST_OUTPUTS:
        return None
    span = dense(span)
    if mechanism.noise.whole and np.any(
        span != np.rint(span)
    ):  # whole data is moved by whole steps
        manifold = mechanism.manifold
        span = np.array(whole_kernel(manifold.D, manifold.exact_rows), dtype=float).T
    points = np.tile(target.start, (outputs + 8, 1))
    still = target.releases(points)
    if np.array_equal(still, target.releases(points)):
        raise AffineDPError(
            "the release function gave the same twice: it adds no noise, or starts from the same "
            "seed in every call"
        )
    if np.array_equal(still, still[[0] * len(still)]):
        raise AffineDPError(
            "the release function gave all rows of one call the same noise: it gets many data sets "
            "at once, one per row, and each needs a draw of its own"
        )
    moves = target.releases(target.start + span.T) - still.mean(axis=0)
    found = _noiseless_combination(still, moves)
    if found is None:
        return None
    leak, spread = found
    direction = target.worst_direction(dense(leak[None] @ target.query), 1)
    origin = float(leak @ still.mean(axis=0))
    move = float(leak @ target.releases((target.start + direction)[None])[0]) - origin
    if abs(move) <= LEAK_RATIO * spread:
        return None
    guarantee = replace(mechanism.guarantee, leak=leak, output_names=mechanism.output_names)
    combination = dict(guarantee.summary())["leak"].partition(" (")[0]
    words = f"{combination}, which comes out without noise,"
    return Attack(target.start, direction, _Combination(leak, origin, move), words, leak)


def _noiseless_combination(still: FloatArray, moves: FloatArray) -> tuple[FloatArray, float] | None:
    """The noiseless combination that moves most, and what it spreads at most.

    ``still`` holds releases of one data set, ``moves`` how far releases of others are away.
    """
    centre, unit = still.mean(axis=0), still.std(axis=0)
    unit = np.where(unit > 0, unit, np.abs(moves).max(axis=0, initial=0.0))
    unit = np.where(unit > 0, unit, 1.0)
    _, spreads, combinations = np.linalg.svd((still - centre) / unit)
    rounding = 8 * EPS * float(np.abs(np.vstack([still, moves]) / unit).max())
    quiet = combinations[spreads <= max(NOISELESS, rounding) * max(spreads[0], 1.0)]
    left, sizes, _ = np.linalg.svd(quiet @ (moves / unit).T)
    if not len(sizes) or sizes[0] <= LEAK_RATIO * rounding:
        return None
    leak = left[:, 0] @ quiet / unit
    leak[np.abs(leak) < NOISELESS * np.abs(leak).max()] = 0.0
    leak = leak / leak[np.argmax(np.abs(leak))]
    return leak, float((still @ leak).std() + rounding * (np.abs(leak) @ unit))


# ---------------------------------------------------------------------- low bits


@dataclass(frozen=True, eq=False)
class _LowBits:
    """Patterns of the last bits: of what each output equation leaves, and of each output."""

    pivots: IntArray
    free: IntArray
    coefficients: FloatArray
    offset: FloatArray
    exponent: IntArray

    def __call__(self, published: FloatArray) -> NDArray[np.int64]:
        middle = PATTERNS // 2
        wide = published.astype(np.longdouble) - self.offset
        left = wide[:, self.free] - wide[:, self.pivots] @ self.coefficients.T
        last_place = np.spacing(np.abs(published).max(axis=1, keepdims=True))
        residual = np.rint(4 * left / last_place) + middle
        fraction, exponent = np.frexp(published)
        bits = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
        trailing_zeros = np.frexp((bits & -bits).astype(np.float64))[1]
        lowest = trailing_zeros + exponent - self.exponent + middle
        patterns = np.clip(np.hstack([residual, lowest]), 0, PATTERNS - 1)
        return np.asarray(patterns, dtype=np.int64)


def low_bits(target: Target, start: FloatArray, end: FloatArray) -> Attack:
    """Return the attack that sees only what rounding leaves in the last bits.

    Outputs obey ``y[free] = coefficients @ y[pivots]`` up to a public offset.
    """
    from affinedp.exact.canonical import eliminate_dense

    mechanism = target.mechanism
    image = dense(target.query @ mechanism.manifold.kernel)
    canonical = eliminate_dense(np.ascontiguousarray(image.T), 1e-10)
    score = _LowBits(
        canonical.pivots,
        canonical.free,
        dense(canonical.reduced).T,
        dense(target.query @ mechanism.manifold.point).ravel(),
        np.frexp(np.sqrt(mechanism.expected_squared_errors))[1].astype(np.intp),
    )
    words = "the last bits of the outputs and of what their equations leave"
    return Attack(start, end - start, score, words, learns=True)
