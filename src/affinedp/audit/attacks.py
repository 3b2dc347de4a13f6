"""What an attacker looks at in releases: likelihood ratios, noiseless combinations, low bits.

An attack is a pair of neighbours and a score of releases.  Any score gives a valid audit; the
likelihood ratio is the best one against additive noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.lattice import whole_kernel
from affinedp.exact.numbers import real_array
from affinedp.laws.base import Law
from affinedp.laws.curves import laplace_delta
from affinedp.laws.laplace import Laplace
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.strategies.coordinates import Coordinates
from affinedp.strategies.dense import Dense
from affinedp.strategies.whitening import whiten

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


class Score(Protocol):
    """What the attacker computes from releases (rows, m): an array (rows, columns)."""

    def __call__(self, published: FloatArray) -> NDArray[Any]:
        """Score every release."""


@dataclass(frozen=True, eq=False)
class Attack:
    """Two neighbours and a score of their releases.

    Attributes
    ----------
    start, direction : arrays, shape (n,)
        x, and what x' differs by.
    score : Score
        Large where it speaks for x'; a pattern from 0 to ``PATTERNS − 1`` if ``learns``.
    words : str
        What is looked at.
    leak : array, shape (m,), or None
        The noiseless combination, if that is what is looked at.
    learns : bool
        Whether the attacker must first learn which patterns speak for which data.
    """

    start: FloatArray
    direction: FloatArray
    score: Score
    words: str
    leak: FloatArray | None = None
    learns: bool = False


@dataclass(frozen=True, eq=False)
class Target:
    """Releases to attack, and what the attacker knows about them.

    Attributes
    ----------
    mechanism : Mechanism
        The equations, the query, and the noise that the attacker assumes.
    release : callable
        What is attacked.
    neighbours : Adjacency
        Whom the claim is about.
    inverse : matrix, shape (p, m)
        Λ⁺ of the assumed noise; for K-norm noise what takes outputs to coordinates.
    """

    mechanism: Mechanism
    release: Release
    neighbours: Adjacency
    inverse: Matrix

    @classmethod
    def of(cls, mechanism: Mechanism, release: Release | None, neighbours: Adjacency) -> Target:
        """Prepare an attack on ``release``, or on the mechanism's own releases."""
        import scipy.sparse as sparse

        if release is None and mechanism.guarantee.leak is not None:
            raise AffineDPError(
                "this mechanism promises nothing and releases nothing; give the release function "
                "that is to be attacked"
            )
        identity = sparse.csr_array(sparse.eye_array(len(mechanism.output_names)))
        if mechanism.noise.size is None:
            inverse = whiten(mechanism.strategy.loadings(), identity).query
        else:
            inverse = Coordinates.of(identity, mechanism.dense.noise, mechanism.noise).matrix
        return cls(mechanism, release or mechanism.release, neighbours, inverse)

    @cached_property
    def query(self) -> Matrix:
        """What is published of data, before noise."""
        strategy = self.mechanism.strategy
        if isinstance(strategy, Dense):
            return strategy.query
        moves = np.eye(len(self.mechanism.domain.names))
        return np.asarray(dense(strategy.loadings()) @ dense(strategy.measure(moves)))

    @property
    def start(self) -> FloatArray:
        """The data that is attacked: a public point of the manifold."""
        return np.asarray(self.mechanism.manifold.point)

    def releases(self, points: FloatArray) -> FloatArray:
        """Return one release of every row, checked."""
        return releases(self.release, points, len(self.mechanism.output_names))

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


def releases(release: Release, points: FloatArray, outputs: int) -> FloatArray:
    """Call a release function and check what it returns.

    Parameters
    ----------
    release : callable
        From rows of data to rows of outputs.
    points : array, shape (rows, n)
        The data.
    outputs : int
        How many outputs a row must have.
    """
    published = real_array(release(points), "what the release function returns")
    if published.shape != (len(points), outputs):
        raise AffineDPError(
            f"the release function returns shape {published.shape}, but must return "
            f"{(len(points), outputs)}: one row of outputs for every row of data"
        )
    return published


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
    """Return the likelihood ratio between the worst pair of neighbours.

    Parameters
    ----------
    target : Target
        What is attacked.
    epsilon, delta : float
        The claim, which decides the worst pair for Laplace noise.
    """
    mechanism = target.mechanism
    whitened = target.inverse @ target.query
    direction = None
    if isinstance(mechanism.noise, Laplace) and delta > 0:
        direction = _worst_for_laplace(target.neighbours, whitened, epsilon)
    elif target.neighbours is mechanism.adjacency:
        direction = mechanism.guarantee.worst_direction
    norm = mechanism.noise.norm
    if direction is None and norm is None:
        direction = _worst_for_body(target, whitened)
    if direction is None:
        direction = target.worst_direction(whitened, norm or 2)
    shift = dense(whitened @ direction).ravel()
    if not shift.any():
        raise AffineDPError("neighbours do not differ in the outputs: there is nothing to attack")
    origin = dense(target.query @ target.start).ravel()
    score = _LikelihoodRatio(mechanism.noise, target.inverse, origin, shift)
    words = f"the likelihood ratio of {mechanism.noise.words} noise"
    return Attack(target.start, direction, score, words)


def _worst_for_body(target: Target, whitened: Matrix) -> FloatArray | None:
    """The move with the largest gauge, where they can be listed."""
    try:
        directions = target.neighbours.directions(LISTED_DIRECTIONS)
    except TooManyCircuitsError:
        return None
    gauges = target.mechanism.noise.gauges(dense(whitened @ directions)).upper
    return directions[:, int(np.argmax(gauges))]


def _worst_for_laplace(
    neighbours: Adjacency, whitened: Matrix, epsilon: float
) -> FloatArray | None:
    """At δ > 0 another direction than the one with the largest 1-norm can be the worst."""
    try:
        directions = neighbours.directions(LISTED_DIRECTIONS)
    except TooManyCircuitsError:
        return None
    shifts = dense(whitened @ directions).T
    return directions[:, int(np.argmax([laplace_delta(shift, epsilon) for shift in shifts]))]


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
    """Look for a combination without noise that still moves with the data, in a few releases.

    Parameters
    ----------
    target : Target
        What is attacked.

    Returns
    -------
    Attack or None
        None if there is no such combination (or too many outputs to search).
    """
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
