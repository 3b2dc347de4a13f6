"""Privacy curves of K-norm noise: below its exact ε at δ = 0.

On R^r one Laplace pair serves all moves; on a lattice each move has a pair of its own, and they
are not ordered.  docs/explanation/knorm.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from affinedp.promise.curves import EPS, LaplaceCurve
from affinedp.promise.pure_pairs import ThreeAtoms


@dataclass(frozen=True)
class KNormCurve:
    """Noise with a log-concave density that is purely ε-private: at most Laplace's curve.

    Releases are drawn on a grid, and the rate pays for what that adds to the curve.

    Attributes
    ----------
    sensitivity : float
        ε at δ = 0, which is exact.
    """

    sensitivity: float
    exact: bool = False

    @property
    def _pair(self) -> LaplaceCurve:
        return LaplaceCurve(self.sensitivity)

    def delta(self, epsilon: float) -> float:
        """Return that of a scalar Laplace mechanism; 0 from ε on."""
        return 0.0 if epsilon >= self.sensitivity else self._pair.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return that of a scalar Laplace mechanism, at most ε."""
        return min(self.sensitivity, self._pair.epsilon(delta))

    def renyi(self, alpha: float) -> float:
        """Return that of a scalar Laplace mechanism, at most ε."""
        return min(self.sensitivity, self._pair.renyi(alpha))

    def rho(self) -> float:
        """Return ε²/2, which every pure promise gives."""
        return self._pair.rho()

    def losses(self) -> list[tuple[str, float]]:
        """Return the scalar Laplace mechanism that dominates this one."""
        return self._pair.losses()


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

    Parameters
    ----------
    total : float
        ε of the move.
    steps : int
        m, at least 1.
    epsilon : float
        Where on the curve.

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
