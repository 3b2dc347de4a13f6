"""Privacy curves: what δ holds at each ε, for one law of noise along the worst direction.

Every number returned is exact or an upper bound, and rounding falls on the safe side.

Pure noise on integers is dominated, below its exact ε, by a pair of laws: the loss is +ε with
probability a, −ε with probability a e^(−ε), and 0 otherwise.  The largest possible
a = 1/(1 + e^(−ε)) leaves nothing for 0: randomised response, which dominates every mechanism that
is purely ε-private.  A smaller a is dominated by a larger one (erase at random).
docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import EPS, FloatArray, IntArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import real_array, real_number
from affinedp.laws.calibration import gaussian_delta, gaussian_epsilon
from affinedp.parts import Locked

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
class GaussianCurve(Locked):
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
class LaplaceCurve(Locked):
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
            best = max(best, _laplace_delta(self.shifts[i], epsilon))
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
class ComposedCurve(Locked):
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
class _Other(Locked):
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
class NoPromise(Locked):
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


def laplace_delta(shift: ArrayLike, epsilon: float) -> float:
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
    shift : array_like, shape (r,)
        How far each noise coordinate moves, in units of its scale.
    epsilon : float
        ε, at least 0.

    Examples
    --------
    >>> round(laplace_delta([1.0], 0.5), 6)  # 1 - exp(-1/4)
    0.221199
    """
    return _laplace_delta(real_array(shift, "shift", 1), real_number(epsilon, "epsilon", 0.0))


def _laplace_delta(shift: FloatArray, epsilon: float) -> float:
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


# ---------------------------------------------------------------------- of pure laws


# e to the power of more is no double.
MOST_EXPONENT = 700.0
RANDOMISED_RESPONSE = "randomised response"
# Followed by a as a hexadecimal float.
THREE_ATOMS = "three atoms "


@dataclass(frozen=True)
class ThreeAtoms(Locked):
    """The pair with losses ε, 0 and −ε."""

    sensitivity: float  # ε
    top: float | None = None  # a; None for the largest possible, randomised response
    exact: bool = False  # whether the curve is attained

    @property
    def probability(self) -> float:
        """The probability of the loss +ε, rounded up."""
        return self._largest if self.top is None else min(self.top, self._largest)

    @property
    def _largest(self) -> float:
        return math.nextafter(1 / (1 + math.exp(-self.sensitivity)), 1.0)

    def delta(self, epsilon: float) -> float:
        """Return a (1 − e^(ε' − ε))."""
        if epsilon >= self.sensitivity:
            return 0.0
        share = -math.expm1(epsilon - self.sensitivity)
        return min(1.0, self.probability * share * (1 + 8 * EPS) + EPS * self.sensitivity)

    def epsilon(self, delta: float) -> float:
        """Return the least ε' at this δ."""
        kept = delta / self.probability * (1 - 8 * EPS) - EPS * self.sensitivity
        if kept >= 1.0:
            return 0.0
        if kept <= 0.0:
            return self.sensitivity
        found = (self.sensitivity + math.log1p(-kept)) * (1 + 8 * EPS) + 8 * EPS
        return min(self.sensitivity, max(0.0, found))

    def renyi(self, alpha: float) -> float:
        """Return the Rényi divergence of order α, rounded up."""
        e = self.sensitivity
        if math.isinf(alpha) or e == 0.0:
            return e
        return min(e, math.nextafter(self._renyi(alpha) * (1 + 16 * EPS), math.inf))

    def _renyi(self, alpha: float) -> float:
        """The same, right to a few roundings: log(1 + g) / (α − 1).

        With x = (α − 1) ε, E e^((α−1) loss) − 1 = a (e^x − 1) + a e^(−ε) (e^(−x) − 1), which is
        g = a (e^x − 1) (1 − e^(−αε)): a product, in which nothing cancels.
        """
        e = self.sensitivity
        x = (alpha - 1) * e
        if x > MOST_EXPONENT:
            return e
        # a rounding of x is one of x parts of e^x
        a = self.probability * (1 + (8 + 4 * x) * EPS)
        slope = math.expm1(x) / x if x > 0.0 else 1.0
        # g / (α − 1), which is no less than the logarithm and has a limit at α = 1
        line = a * e * slope * -math.expm1(-alpha * e)
        grown = line * (alpha - 1)
        if math.isinf(grown):
            return e
        return line if grown < EPS else line * (math.log1p(grown) / grown)

    def rho(self) -> float:
        """Return ε²/2, which every pure promise gives."""
        square = self.sensitivity * self.sensitivity / 2 * (1 + 2 * EPS)
        # also where the square of a small ε is rounded to nothing
        return math.nextafter(square, math.inf) if self.sensitivity else 0.0

    def losses(self) -> list[tuple[str, float]]:
        """Return the pair itself."""
        if self.top is None or self.top >= self._largest:
            return [(RANDOMISED_RESPONSE, self.sensitivity)]
        return [(f"{THREE_ATOMS}{self.top.hex()}", self.sensitivity)]


def pair_of(law: str, sensitivity: float) -> ThreeAtoms | None:
    """Return the pair that a loss names, or None if it is of another law."""
    if law == RANDOMISED_RESPONSE:
        return ThreeAtoms(sensitivity)
    if law.startswith(THREE_ATOMS):
        try:
            top = float.fromhex(law[len(THREE_ATOMS) :])
        except ValueError:
            return None
        return ThreeAtoms(sensitivity, top) if 0.0 < top <= 1.0 else None
    return None


def is_pure(law: str) -> bool:
    """Whether a loss of this law is bounded: its sensitivity is ε at δ = 0."""
    return law == "laplace" or pair_of(law, 1.0) is not None


def dominating_gaussian(pair: ThreeAtoms) -> float:
    """Return the sensitivity of a Gaussian mechanism that dominates the pair, rounded up.

    The trade-off function of the pair is linear between 0, a e^(−ε), a and 1.  That of a
    Gaussian mechanism is convex and symmetric: it is below everywhere if it is at a e^(−ε), that
    is if s ≥ Φ⁻¹(1 − a e^(−ε)) − Φ⁻¹(1 − a).
    """
    from scipy import special

    e, a = pair.sensitivity, pair.probability
    if e == 0.0:
        return 0.0
    low = a * math.exp(-e) * (1 - 4 * EPS)
    if low == 0.0:
        return math.inf
    # 1 − a is at least a e^(−ε), also where a is rounded to 1
    rest = max(1 - a, low)
    quantiles = [float(special.ndtri(p)) for p in (rest, low)]
    # they nearly cancel where ε is small; a quantile has the slope 1/φ
    slopes = (p * 2.5067 * math.exp(z * z / 2) for p, z in zip((rest, low), quantiles))
    doubt = 16 * EPS * (1 + abs(quantiles[0]) + sum(slopes))
    return math.nextafter(-sum(quantiles) * (1 + 1e-13) + doubt, math.inf)


def loss_distribution(pair: ThreeAtoms) -> Any:
    """Return the privacy loss distribution of the pair, for dp_accounting, pessimistic."""
    try:
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise MissingExtraError("dp-accounting", "accounting") from None
    e, a = pair.sensitivity, pair.probability
    if pair.top is None:
        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(e, 0.0))
    low = a * math.exp(-e)
    middle = 1 - a - low
    if middle <= 0:
        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(e, 0.0))
    upper = {0: math.log(a), 1: math.log(middle), 2: math.log(low)}
    lower = {0: math.log(low), 1: math.log(middle), 2: math.log(a)}
    return pld.from_two_probability_mass_functions(lower, upper, pessimistic_estimate=True)


def bisected(curve: Any, delta: float, high: float) -> float:
    """The least ε with curve.delta(ε) ≤ δ, from above: the returned ε always holds."""
    low = 0.0
    if curve.delta(0.0) <= delta:
        return 0.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if curve.delta(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class LatticeCurve(Locked):
    """K-norm noise on a lattice: for a move of m lattice steps, discrete Laplace of shift m."""

    sensitivity: float  # ε at δ = 0, which is exact
    # for every m the largest ε of a move of m primitive lattice steps
    moves: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    exact: bool = False

    def delta(self, epsilon: float) -> float:
        """Return the largest δ over the moves, and never more than randomised response has."""
        most = ThreeAtoms(self.sensitivity).delta(epsilon)
        if not self.moves or most == 0.0:
            return most
        return min(most, max(lattice_delta(e, m, epsilon) for m, e in self.moves))

    def epsilon(self, delta: float) -> float:
        """Return the least ε at this δ, by bisection on the curve."""
        if delta == 0.0 or self.sensitivity == 0.0:
            return self.sensitivity
        return bisected(self, delta, self.sensitivity)

    def renyi(self, alpha: float) -> float:
        """Return that of randomised response."""
        return ThreeAtoms(self.sensitivity).renyi(alpha)

    def rho(self) -> float:
        """Return ε²/2, which every pure promise gives."""
        return ThreeAtoms(self.sensitivity).rho()

    def losses(self) -> list[tuple[str, float]]:
        """Return randomised response, which dominates all moves at once."""
        return ThreeAtoms(self.sensitivity).losses()


def lattice_delta(total: float, steps: int, epsilon: float) -> float:
    """Return δ of discrete Laplace noise of rate total/steps under a shift by ``steps``."""
    if epsilon >= total:
        return 0.0
    rate = total / steps
    # 1 − (e^(−h(m−i)) + e^(ε−h(i−1))) / (1 + e^h) is concave in i: look around its top
    middle = (steps + 1 + epsilon / rate) / 2
    near = np.arange(max(1, math.floor(middle) - 2), min(steps, math.ceil(middle) + 2) + 1)
    first = np.exp(-rate * (steps - near))
    second = np.exp(epsilon - rate * (near - 1))
    best = float((1 - (first + second) / (1 + math.exp(rate))).max())
    return min(1.0, max(0.0, best) * (1 + 4 * EPS) + 16 * EPS * (1 + total))


# ---------------------------------------------------------------------- sums of losses


# Losses are multiples of about the largest one times 2^-GRID_BITS, so that equal ones meet.
GRID_BITS = 40
# Sums of so many values are added up, and so many of one kind.
MOST_VALUES = 1 << 20
MOST_ALIKE = 3000
# With another release there is more to compute for each value.
MOST_WITH_OTHERS = 1 << 16
# Relative, for sums by pairs of up to 2^20 terms of a few roundings each; and what underflows.
ROUNDING = 1e-12
LOST = 1e-290

# δ of a further release at ε ≥ 0, for an array.
Others = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class LossSum:
    """The law of a sum of losses, from above."""

    values: FloatArray  # the losses, none below the true one
    weights: FloatArray  # their probabilities, none below the true one

    def delta(self, epsilon: float, others: Others | None = None) -> float:
        """Return δ at ε, never below the true one."""
        if others is None:
            kept = self.values > epsilon
            terms = self.weights[kept] * -np.expm1(epsilon - self.values[kept])
        else:
            left = epsilon - self.values
            curve = others(np.abs(left))
            with np.errstate(under="ignore"):
                below = -np.expm1(np.minimum(left, 0.0)) + np.exp(np.minimum(left, 0.0)) * curve
            terms = self.weights * below  # at ε − l ≥ 0 this is the curve
        return min(1.0, float(terms.sum()) * (1 + ROUNDING) + LOST)


def loss_sum(pairs: Mapping[ThreeAtoms, int], most: int = MOST_VALUES) -> LossSum | None:
    """Return the law of the sum of all losses, or None where it has too many values."""
    if not pairs or max(pairs.values()) > MOST_ALIKE:
        return None
    total = sum((Fraction(pair.sensitivity) * count for pair, count in pairs.items()), Fraction(0))
    if not 0 < total < 10**9:
        return None
    unit = Fraction(2) ** (math.frexp(float(total))[1] - GRID_BITS)
    places: IntArray = np.zeros(1, dtype=np.int64)
    weights: FloatArray = np.ones(1)
    # the kinds with few values first, while sums may still meet
    for pair, count in sorted(pairs.items(), key=lambda item: item[1]):
        step = Fraction(pair.sensitivity) / unit
        own = np.array([math.ceil(j * step) for j in range(-count, count + 1)], dtype=np.int64)
        if len(places) * len(own) > 4 * most:
            return None
        sums = (places[:, None] + own).ravel()
        products = np.outer(weights, _power(_atoms(pair), count)).ravel()
        places, where, times = np.unique(sums, return_inverse=True, return_counts=True)
        rounding = 1 + (int(times.max()) + 4) * EPS
        weights = np.asarray(np.bincount(where.ravel(), products) * rounding, dtype=float)
        if len(places) > most:
            return None
    return LossSum(np.asarray(places * float(unit), dtype=float), weights)


def _atoms(pair: ThreeAtoms) -> FloatArray:
    """Probabilities of −ε, 0 and ε, from above."""
    top = pair.probability
    low = top * math.exp(-pair.sensitivity) * (1 + 8 * EPS)
    middle = 0.0 if pair.top is None else max(0.0, 1 - top - low) + 8 * EPS
    return np.array([low, middle, top])


def _power(atoms: FloatArray, count: int) -> FloatArray:
    """The law of the sum of ``count`` losses, from above: convolutions of what is not negative."""
    found, power, left = np.ones(1), atoms, count
    while True:
        if left % 2:
            found = _convolved(found, power)
        left //= 2
        if not left:
            return found
        power = _convolved(power, power)


def _convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    # an entry is a sum of so many products, each rounded once
    terms = min(len(first), len(second))
    return np.asarray(np.convolve(first, second) * (1 + (terms + 4) * EPS))
