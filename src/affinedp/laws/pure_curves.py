"""Privacy curves of pure noise on integers, below its exact ε: pairs of laws that dominate it.

The loss is +ε with probability a, −ε with probability a e^(−ε), and 0 otherwise.  The largest
possible a = 1/(1 + e^(−ε)) leaves nothing for 0: randomised response, which dominates every
mechanism that is purely ε-private.  A smaller a is dominated by a larger one (erase at random).
docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import MissingExtraError

EPS = float(np.finfo(float).eps)
# e to the power of more is no double.
MOST_EXPONENT = 700.0
RANDOMISED_RESPONSE = "randomised response"
# Followed by a as a hexadecimal float.
THREE_ATOMS = "three atoms "


@dataclass(frozen=True)
class ThreeAtoms:
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
class LatticeCurve:
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
