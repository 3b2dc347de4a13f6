"""Privacy curves: what δ holds at each ε, for one law of noise along the worst direction.

Every number returned is exact or an upper bound, and rounding falls on the safe side.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon
from affinedp.laws.pure_curves import (
    MOST_VALUES,
    MOST_WITH_OTHERS,
    LossSum,
    ThreeAtoms,
    bisected,
    is_pure,
    loss_distribution,
    loss_sum,
    pair_of,
)

EPS = float(np.finfo(float).eps)
# More noise coordinates than this are merged: the exact sum has 2^r terms.
MOST_COORDINATES = 12
# Larger losses than this are not discretised; ε then comes from simple addition.
MOST_DISCRETISED = 200.0


class Curve(Protocol):
    """The privacy curve of a mechanism: what δ holds at each ε."""

    @property
    def exact(self) -> bool:
        """Whether the curve is attained, given the sensitivity."""

    def delta(self, epsilon: float) -> float:
        """Return a δ that holds at this ε."""

    def epsilon(self, delta: float) -> float:
        """Return an ε that holds at this δ; inf if none does."""

    def renyi(self, alpha: float) -> float:
        """Return a bound on the Rényi divergence of order α between neighbours."""

    def rho(self) -> float:
        """Return ρ of zero-concentrated differential privacy."""

    def losses(self) -> list[tuple[str, float]]:
        """Return (law, sensitivity) pairs of scalar mechanisms that dominate this one."""


@dataclass(frozen=True)
class GaussianCurve:
    """Theorem 1: exactly s-Gaussian differential privacy."""

    sensitivity: float
    exact: bool = True

    def delta(self, epsilon: float) -> float:
        """Return κ(ε, s)."""
        return float(gaussian_delta(epsilon, self.sensitivity))

    def epsilon(self, delta: float) -> float:
        """Return the least ε with κ(ε, s) ≤ δ."""
        if self.sensitivity == 0.0:
            return 0.0
        return math.inf if delta == 0.0 else float(gaussian_epsilon(delta, self.sensitivity))

    def renyi(self, alpha: float) -> float:
        """Return α s²/2."""
        return alpha * self.rho() * (1 + EPS) if self.sensitivity else 0.0

    def rho(self) -> float:
        """Return s²/2."""
        return self.sensitivity * self.sensitivity / 2 * (1 + 2 * EPS)  # inf, not an error

    def losses(self) -> list[tuple[str, float]]:
        """Return itself: a one-dimensional Gaussian with this sensitivity."""
        return [("gaussian", self.sensitivity)]


@dataclass(frozen=True)
class LaplaceCurve:
    """Theorem 2 at δ = 0, and the curve for δ > 0.

    Along a direction that shifts the noise coordinates by ``a`` the curve is exact
    (:func:`laplace_delta`).  The worst direction changes with ε, so the maximum is taken for
    each ε.  Without a list of shifts a one-dimensional Laplace mechanism with the largest
    ``Σ|a_i|`` is used, which dominates them all.
    """

    sensitivity: float  # the largest ``Σ|a_i|``: the promise at δ = 0
    # ``|a|`` for every neighbour direction, where they were listed; shape (directions, coordinates)
    shifts: FloatArray | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """Whether δ > 0 is exact too, given the sensitivity."""
        if self.shifts is None:
            return False
        return bool(((self.shifts > 0).sum(axis=1) <= MOST_COORDINATES).all())

    def delta(self, epsilon: float) -> float:
        """Return the largest δ over the directions."""
        bound = _scalar_laplace_delta(self.sensitivity, epsilon)
        if self.shifts is None or bound == 0.0:
            return bound
        best = 0.0
        total = self.shifts.sum(axis=1)
        for i in np.argsort(-total):
            if _scalar_laplace_delta(total[i] * (1 + 64 * EPS), epsilon) <= best:
                break  # dominated, and so is every later direction
            best = max(best, laplace_delta(self.shifts[i], epsilon))
        return min(bound, best)

    def epsilon(self, delta: float) -> float:
        """Return the least ε at this δ, by bisection on the curve."""
        if delta == 0.0 or self.sensitivity == 0.0 or math.isinf(self.sensitivity):
            return self.sensitivity
        return bisected(self, delta, self.sensitivity)

    def renyi(self, alpha: float) -> float:
        """Return the largest sum of one-dimensional divergences, or its bound."""
        scalar = min(self.sensitivity, _laplace_renyi(np.array([[self.sensitivity]]), alpha))
        return scalar if self.shifts is None else min(scalar, _laplace_renyi(self.shifts, alpha))

    def rho(self) -> float:
        """Return ε²/2, which every pure promise gives."""
        return self.sensitivity * self.sensitivity / 2 * (1 + 2 * EPS)  # inf, not an error

    def losses(self) -> list[tuple[str, float]]:
        """Return a one-dimensional Laplace mechanism that dominates this one."""
        return [("laplace", self.sensitivity)]


@dataclass(frozen=True)
class ComposedCurve:
    """Several releases with independent noise, by pessimistic privacy-loss accounting.

    Losses of a few values are added up in closed form, also together with Gaussian noise or one
    Laplace mechanism; other sums are discretised.
    """

    parts: tuple[tuple[str, float], ...]
    exact: bool = False

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ."""
        if epsilon >= self.epsilon(0.0):
            return 0.0
        if self._closed is not None:
            atoms, others = self._closed
            return atoms.delta(epsilon, None if others is None else others.deltas)
        return min(1.0, float(self._distribution.get_delta_for_epsilon(epsilon)))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on ε."""
        simple = math.fsum(s if s == 0 or is_pure(law) else math.inf for law, s in self.parts)
        simple *= 1 + 4 * EPS
        if delta == 0.0 or simple == 0.0:
            return simple
        if self._closed is not None:
            others = self._closed[1]
            pure = math.fsum(s for law, s in self.parts if is_pure(law)) * (1 + 4 * EPS)
            # of these the atoms take away their ε at most
            beyond = 0.0 if others is None else others.epsilon(delta)
            return bisected(self, delta, min(simple, (pure + beyond) * (1 + 4 * EPS)))
        return min(simple, float(self._distribution.get_epsilon_for_delta(delta)))

    def renyi(self, alpha: float) -> float:
        """Return the sum of the parts' divergences."""
        return math.fsum(_scalar(law, s).renyi(alpha) for law, s in self.parts) * (1 + 4 * EPS)

    def rho(self) -> float:
        """Return the sum of the parts' ρ."""
        return math.fsum(_scalar(law, s).rho() for law, s in self.parts) * (1 + 4 * EPS)

    def losses(self) -> list[tuple[str, float]]:
        """Return the parts."""
        return list(self.parts)

    @cached_property
    def _closed(self) -> tuple[LossSum, _Other | None] | None:
        """Losses of a few values, and what else there is: if δ has a closed form."""
        atoms: Counter[ThreeAtoms] = Counter()
        others: list[tuple[str, float]] = []
        for law, s in self.parts:
            pair = pair_of(law, s)
            if s and pair is not None:
                atoms[pair] += 1
            elif s:
                others.append((_scalar_law(law), s))
        laws = {law for law, _ in others}
        if laws - {"gaussian"} and len(others) > 1:
            return None
        total = loss_sum(atoms, MOST_WITH_OTHERS if others else MOST_VALUES)
        if total is None:
            return None
        if not others:
            return total, None
        together = math.hypot(*(s for _, s in others)) * (1 + 4 * EPS)
        return total, _Other(others[0][0], together)

    @cached_property
    def _distribution(self) -> Any:
        try:
            from dp_accounting.pld import privacy_loss_distribution as pld
        except ImportError:
            raise MissingExtraError("dp-accounting", "accounting") from None
        largest = max(s for _, s in self.parts)
        if largest > MOST_DISCRETISED:
            raise AffineDPError(
                f"a part with sensitivity {largest:.3g} is too weak for privacy-loss accounting; "
                "use epsilon(0), rho or renyi of the composition instead"
            )
        total = None
        for (law, s), count in Counter(self.parts).items():
            if s == 0.0:
                continue
            pair = pair_of(law, s)
            if pair is not None:
                one = loss_distribution(pair)
            elif _scalar_law(law) == "laplace":
                one = pld.from_laplace_mechanism(1 / s, pessimistic_estimate=True)
            else:
                one = pld.from_gaussian_mechanism(1 / s, pessimistic_estimate=True)
            many = one.self_compose(count) if count > 1 else one
            total = many if total is None else total.compose(many)
        return total


@dataclass(frozen=True)
class _Other:
    """One Gaussian or Laplace mechanism, for many ε at once."""

    law: str
    sensitivity: float

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        if self.law == "gaussian":
            return np.asarray(gaussian_delta(epsilons, self.sensitivity))
        gap = np.minimum((epsilons - self.sensitivity) / 2, 0.0)
        return np.minimum(-np.expm1(gap) * (1 + 4 * EPS), 1.0)

    def epsilon(self, delta: float) -> float:
        return _scalar(self.law, self.sensitivity).epsilon(delta)


@dataclass(frozen=True)
class NoPromise:
    """Some combination of the outputs carries no noise: nothing is promised."""

    exact: bool = True

    def delta(self, epsilon: float) -> float:
        """Return 1."""
        return 1.0

    def epsilon(self, delta: float) -> float:
        """Return inf."""
        return math.inf

    def renyi(self, alpha: float) -> float:
        """Return inf."""
        return math.inf

    def rho(self) -> float:
        """Return inf."""
        return math.inf

    def losses(self) -> list[tuple[str, float]]:
        """Return nothing: there is nothing to compose."""
        return []


def laplace_delta(shift: FloatArray, epsilon: float) -> float:
    """Return the exact δ between L(0,1)^r noise and the same noise shifted, at ε ≥ 0.

    With A = Σ a_i the privacy loss of coordinate i has the law ``e^{l/2}`` times
    ``e^{-a_i/2}/2 · (two atoms at ±a_i and half the Lebesgue measure between)``.  Taking
    Laplace transforms of their convolution, all poles but 0 and ½ cancel, and

        δ(ε) = 1 − 2^{-r} e^{-(A−ε)/2} Σ_σ P_j(Σ σ_i a_i − ε),

    over sign vectors σ with j minus signs and a positive argument, where
    ``P_j(u) = −2 Σ_i c_i (u/2)^{r−1−i}/(r−1−i)!`` and c_i are the coefficients of
    ``(1+q)^{r−j−1} (q−1)^{j−1}``.  For r = 1 this is 1 − e^{(ε−a)/2}.

    Parameters
    ----------
    shift : array, shape (r,)
        How far each noise coordinate moves, in units of its scale.
    epsilon : float
        ε, at least 0.

    Examples
    --------
    >>> round(laplace_delta(np.array([1.0]), 0.5), 6)  # 1 - exp(-1/4)
    0.221199
    """
    a = np.sort(np.abs(shift[shift != 0.0]))[::-1]
    while len(a) > MOST_COORDINATES:
        # two coordinates are dominated by one with the sum of their shifts
        a = np.sort(np.append(a[:-2], a[-2] + a[-1]))[::-1]
    r = len(a)
    gap = float(a.sum()) - epsilon
    if gap <= 0.0 and r > 0:
        return _scalar_laplace_delta(float(a.sum()) * (1 + 64 * EPS), epsilon)
    if r == 0:
        return 0.0
    signs = 1.0 - 2.0 * ((np.arange(2**r)[:, None] >> np.arange(r)) & 1)
    u = (signs @ a - epsilon) / 2
    minus = (signs < 0).sum(axis=1)
    total = size = 0.0
    for j in range(r):
        points = u[(minus == j) & (u > 0)]
        coefficients = _residue_coefficients(r, j)
        powers = points[:, None] ** np.arange(r)
        total += float((powers @ coefficients).sum())
        size += float((powers @ np.abs(coefficients)).sum())
    factor = math.exp(-gap / 2 - r * math.log(2.0))
    # every term is a product of at most r + 4 rounded factors, and there are 2^r r of them
    error = factor * size * (4 * r + 16) * EPS
    scalar = _scalar_laplace_delta(float(a.sum()) * (1 + 64 * EPS), epsilon)
    # the exponent itself is rounded: A − ε cancels
    error += EPS * (float(a.sum()) + epsilon + 4)
    return min(scalar, max(0.0, 1.0 - factor * total) + error)


def _residue_coefficients(r: int, j: int) -> FloatArray:
    """Coefficients of P_j in powers of u/2, lowest first."""
    c = np.zeros(r)
    plus = [math.comb(r - j - 1, i) for i in range(r)]
    if j == 0:  # (1+q)^{r-1}/(q-1) = -(1+q)^{r-1} (1 + q + q² + …)
        c[:] = -np.cumsum(plus)
    else:
        minus = [math.comb(j - 1, i) * (-1) ** (j - 1 - i) for i in range(r)]
        c[:] = np.convolve(plus, minus)[:r]
    factorials = np.array([math.factorial(i) for i in range(r)], dtype=float)
    return np.asarray(-2.0 * c[::-1] / factorials)


def _scalar_laplace_delta(sensitivity: float, epsilon: float) -> float:
    if epsilon >= sensitivity:
        return 0.0
    return min(1.0, -math.expm1((epsilon - sensitivity) / 2) * (1 + 4 * EPS))


def _laplace_renyi(shifts: FloatArray, alpha: float) -> float:
    """Largest row sum of Rényi divergences of order α between shifted L(0,1)."""
    if math.isinf(alpha):
        each = shifts
    elif alpha == 1.0:
        each = shifts + np.expm1(-shifts)
    else:
        alpha = max(alpha, 1 + 1e-4)  # it grows with α; closer to 1 the logarithm cancels
        first = math.log(alpha / (2 * alpha - 1)) + (alpha - 1) * shifts
        second = math.log((alpha - 1) / (2 * alpha - 1)) - alpha * shifts
        each = np.logaddexp(first, second) / (alpha - 1)
        each = np.maximum(each, shifts + np.expm1(-shifts)) + 8 * EPS / (alpha - 1)
    each = np.minimum(np.maximum(each, 0.0) + 8 * EPS * shifts, shifts)
    largest = float(each.sum(axis=1).max(initial=0.0))
    return largest * (1 + 8 * EPS * int(shifts.shape[1]))


def _scalar(law: str, sensitivity: float) -> Curve:
    pair = pair_of(law, sensitivity)
    if pair is not None:
        return pair
    curve = LaplaceCurve if _scalar_law(law) == "laplace" else GaussianCurve
    return curve(sensitivity)


def _scalar_law(law: str) -> str:
    if law not in ("gaussian", "laplace"):
        raise AffineDPError(f"no privacy loss is known by the name {law!r}")
    return law
