"""How far combinations of K-norm noise on R^r reach, from their law.

On the cone over a boundary simplex with vertices a_1..a_r the noise is Σ a_i E_i with independent
exponential E_i, so a combination of it is X = Σ s_i E_i with s_i = c·a_i: a mixture over the cones.
The positive terms are the time that a chain of states takes, with the generator T of exponential
stages; negative ones average over a later start: P(X > t) = e₁ᵀ e^(Tt) Π_j (I − |s_j| T)⁻¹ 1.
All of this has nonnegative numbers only, so that nothing cancels and small tails keep their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, IntArray

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
        """Return the law of the sum of two independent ones; None if it has too many components.

        Parameters
        ----------
        other : Mixture
            The other one.
        """
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

        Parameters
        ----------
        t : float
            At least 0.

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
        """Return a t with P(|X| > t) ≤ outside, longer than needed by 1e-8 of itself at most.

        Parameters
        ----------
        outside : float
            In (0, 1).
        """
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
    """Return Laplace noise: the difference of two exponential numbers.

    Parameters
    ----------
    scale : float
        Positive.
    """
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
