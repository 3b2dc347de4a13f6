"""Coordinates that are independent: K is a cross-polytope, its gauge a weighted 1-norm.

On integers each coordinate has discrete Laplace (two-sided geometric) noise, on real numbers
Laplace noise.  Nothing is listed, so there is no limit to the dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse
from affinedp.bodies.polytope import Gauges
from affinedp.exact.numbers import readable

# Second moments of so many coordinates are kept as a dense matrix.
FEW = 1000


def geometric_variance(rate: float) -> float:
    """Return the variance of discrete Laplace noise, P(z) ∝ e^(−rate |z|) on whole numbers.

    2q / (1 − q)² with q = e^(−rate), which is 1 / (2 sinh²(rate/2)).

    Parameters
    ----------
    rate : float
        Positive.

    Examples
    --------
    >>> round(geometric_variance(1.0), 6)                      # Laplace noise has 2
    1.841347
    """
    return 0.5 / math.sinh(rate / 2) ** 2 if rate < 1400 else 0.0


@dataclass(frozen=True, eq=False)
class AxesPart:
    """Independent noise e^(−rate |z_i| / width_i) on every coordinate.

    Attributes
    ----------
    rows : array of int
        Its coordinates.
    widths : array
        Where the body ends on every axis.
    rate : float
        The rate.
    integers : bool
        Whether z is whole.
    """

    rows: IntArray
    widths: FloatArray
    rate: float
    integers: bool

    @cached_property
    def variances(self) -> FloatArray:
        """Variance of every coordinate."""
        rates = self.rate / self.widths
        if not self.integers:
            return np.asarray(2 / rates**2)
        known = {rate: geometric_variance(rate) for rate in np.unique(rates).tolist()}
        return np.array([known[rate] for rate in rates.tolist()])

    @property
    def moment(self) -> Matrix:
        """E zzᵀ."""
        if len(self.rows) <= FEW:
            return np.diag(self.variances)
        import scipy.sparse as sparse

        return sparse.csr_array(sparse.diags_array(self.variances))

    def errors(self, basis: Matrix) -> FloatArray:
        """Return the variances of ``basis @ z``."""
        squares = basis.multiply(basis) if is_sparse(basis) else basis * basis
        return np.asarray(squares @ self.variances).ravel()

    def gauges(self, moves: FloatArray, doubt: FloatArray) -> Gauges:
        """Return bounds on ‖v‖_K for the columns v; ``doubt`` is what they may be off."""
        shares = 1 / self.widths
        sums = np.asarray(shares @ np.abs(moves))
        off = shares @ doubt + (len(self.rows) + 4) * 2.0**-52 * sums
        return Gauges(np.maximum(sums - off, 0.0), sums + off)

    def gauge(self, move: list[Fraction]) -> Fraction:
        """Return ‖v‖_K exactly."""
        pairs = zip(move, self.widths.tolist())
        return sum((abs(c) / readable(width) for c, width in pairs if c), Fraction(0))

    def sample(self, size: int, generator: np.random.Generator) -> FloatArray:
        """Draw for simulation, shape (size, r)."""
        shape = (size, len(self.rows))
        if not self.integers:
            return np.asarray(generator.laplace(0.0, self.widths / self.rate, shape))
        stop = -np.expm1(-self.rate / self.widths)
        drawn = generator.geometric(stop, shape) - generator.geometric(stop, shape)
        return np.asarray(drawn, dtype=float)
