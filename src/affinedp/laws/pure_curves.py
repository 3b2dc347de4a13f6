"""Privacy curves of pure noise on integers, below its exact ε: pairs of laws that dominate it.

The loss is +ε with probability a, −ε with probability a e^(−ε), and 0 otherwise.  The largest
possible a = 1/(1 + e^(−ε)) leaves nothing for 0: randomised response, which dominates every
mechanism that is purely ε-private.  A smaller a is dominated by a larger one (erase at random).
docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.errors import MissingExtraError

EPS = float(np.finfo(float).eps)
# e to the power of more is no double.
MOST_EXPONENT = 700.0
RANDOMISED_RESPONSE = "randomised response"
# Followed by a as a hexadecimal float.
THREE_ATOMS = "three atoms "


@dataclass(frozen=True)
class ThreeAtoms:
    """The pair with losses ε, 0 and −ε.

    Attributes
    ----------
    sensitivity : float
        ε.
    top : float or None
        a; None for the largest possible, randomised response.
    exact : bool
        Whether the curve is attained.

    Examples
    --------
    >>> pair = ThreeAtoms(1.0)
    >>> round(pair.delta(0.0), 6), pair.epsilon(0.0), pair.losses()
    (0.462117, 1.0, [('randomised response', 1.0)])
    """

    sensitivity: float
    top: float | None = None
    exact: bool = False

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


@dataclass(frozen=True)
class LatticeCurve:
    """K-norm noise on a lattice: for a move of m lattice steps, discrete Laplace of shift m.

    Attributes
    ----------
    sensitivity : float
        ε at δ = 0, which is exact.
    moves : tuple of (int, float)
        For every m the largest ε of a move of m primitive lattice steps.
    """

    sensitivity: float
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
        low, high = 0.0, self.sensitivity
        if self.delta(0.0) <= delta:
            return 0.0
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

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
    """Return δ of discrete Laplace noise of rate total/steps under a shift by ``steps``.

    Examples
    --------
    >>> round(lattice_delta(1.0, 2, 0.0), 4), round(lattice_delta(1.0, 3, 0.0), 4)
    (0.3935, 0.4018)
    """
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
