"""The public part of a release: grids, exact coordinates, and all that rounding adds.

docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Norm, dense, real_array
from affinedp.errors import AffineDPError
from affinedp.promise.verification import whiten
from affinedp.promise.without_list import longest_move
from affinedp.record import MechanismRecord
from affinedp.release.fixed_point import BigIntegers, FixedPoint

# The noise lives on multiples of 2^-GRID_BITS of its own scale.
GRID_BITS = 56
# All that rounding adds to the sensitivity may be this share of it; the noise is made larger by
# the same share.
SHARE = 2.0**-30
MOST_NUMBERS = 2e8
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything about releases of a mechanism that is public: made once, used for all rows.

    Attributes
    ----------
    free : array of int
        The entries of x that are read; the others follow from the equations.
    coordinates : FixedPoint, shape (p, k)
        From steps of the free entries to grid steps of z.
    step_exponent : int
        Free entries are read on the grid ``2**step_exponent``.
    noise_factor : float
        How much larger than unit the noise is, for all that rounding adds.
    offset, spread : arrays
        Published is ``offset + spread @ z̃``.
    law : str
        Law of the noise.
    bound : float or None
        The public bound on the data.
    """

    free: IntArray
    origin: FloatArray
    coordinates: FixedPoint
    step_exponent: int
    noise_factor: float
    offset: FloatArray
    spread: FloatArray
    law: str
    bound: float | None

    def grid_steps(self, points: FloatArray) -> BigIntegers:
        """Return z on the noise's grid, exactly, one column per row of ``points``."""
        steps = np.rint(np.ldexp(points[:, self.free], -self.step_exponent)).T
        origin = np.rint(np.ldexp(self.origin, -self.step_exponent))[:, None]
        product = self.coordinates.times(steps) - self.coordinates.times(origin)
        shift = -(self.coordinates.exponent + self.step_exponent + GRID_BITS)
        if shift <= 0:
            return product * (1 << -shift)
        half = 1 << (shift - 1)
        return (product + half) >> shift

    def publish(self, noisy: BigIntegers) -> FloatArray:
        """Return the outputs from noisy grid steps: public quantities and nothing else."""
        scaled = np.ldexp(noisy.astype(np.float64), -GRID_BITS)
        return np.asarray(self.offset + (self.spread @ scaled).T)


def checked_bound(bound: float | None) -> float | None:
    """Return a public bound on the data as a positive number, or None.

    Parameters
    ----------
    bound : float or None
        What was given.
    """
    if bound is None:
        return None
    limit = float(real_array(bound, "bound", 0))
    if not limit > 0:
        raise AffineDPError(f"bound must be positive, not {limit}")
    return limit


def plan_of(mechanism: MechanismRecord, bound: float | None) -> Plan:
    """Prepare releases of a mechanism: choose grids, and allow for what they round.

    Parameters
    ----------
    mechanism : MechanismRecord
        With a promise.
    bound : float or None
        If given, |x| is at most this, and neighbours may be off by the rounding of double
        precision; otherwise recorded neighbours differ exactly as the adjacency says.
    """
    guarantee = mechanism.guarantee
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    noise = dense(mechanism.noise_matrix)
    if float(noise.size) > MOST_NUMBERS:
        raise AffineDPError("the noise matrix is too large to release with")
    manifold = mechanism.manifold
    free = manifold.canonical.free
    # Λ⁺F in coordinates of the free entries: one row per noise
    coordinates = dense(whiten(noise, mechanism.query).query @ manifold.kernel)
    p, k = coordinates.shape
    one_per_noise = float(p) if mechanism.law == "laplace" else math.sqrt(p)
    room = guarantee.sensitivity * SHARE / 8
    moves = _longest_move(mechanism, free)
    fixed = FixedPoint.rounded(coordinates, _exponent_below(room / (one_per_noise * moves)))
    # a step of every free entry moves z by at most this
    gain = _norm(np.abs(fixed.values()).sum(axis=1), mechanism.law) * (1 + k * EPS)
    step_exponent = _exponent_below(room / gain)
    total = _drawn_sensitivity(mechanism, fixed, free)
    total += gain * math.ldexp(1.0, step_exponent) + one_per_noise * math.ldexp(1.0, -GRID_BITS)
    if bound is not None:
        total += 2 * gain * bound * EPS
    return Plan(
        free=free,
        origin=manifold.point[free],
        coordinates=fixed,
        step_exponent=step_exponent,
        noise_factor=max(1.0, total / guarantee.sensitivity) * (1 + SHARE),
        offset=np.asarray(mechanism.query @ manifold.point).ravel(),
        spread=noise,
        law=mechanism.law,
        bound=bound,
    )


def _drawn_sensitivity(mechanism: MechanismRecord, fixed: FixedPoint, free: IntArray) -> float:
    """The sensitivity of the fixed-point coordinates, which are what is really drawn on.

    Where the circuits cannot be searched, the certified one plus all that rounding can add.
    """
    values = fixed.values()
    selection = _selection(free, mechanism.manifold.n)
    if mechanism.certificate is None:
        norm: Norm = 1 if mechanism.law == "laplace" else 2
        return mechanism.adjacency.sensitivity(values @ selection, norm).upper * (1 + 4 * EPS)
    rounding = np.full(len(values), math.ldexp(1.0, fixed.exponent) + 1e-12 * np.abs(values).max())
    extra = _norm(rounding, mechanism.law) * _longest_move(mechanism, free)
    return mechanism.guarantee.sensitivity + extra


def _longest_move(mechanism: MechanismRecord, free: IntArray) -> float:
    """How far the free entries of neighbours are apart at most, in the 1-norm."""
    if mechanism.certificate is not None:
        return longest_move(mechanism.adjacency, mechanism.certificate)
    selection = _selection(free, mechanism.manifold.n)
    return mechanism.adjacency.sensitivity(selection, 1).upper


def _norm(vector: FloatArray, law: str) -> float:
    return float(np.linalg.norm(vector, ord=1 if law == "laplace" else 2)) * (1 + 8 * EPS)


def _selection(free: IntArray, n: int) -> Any:
    import scipy.sparse as sparse

    k = len(free)
    return sparse.csr_array((np.ones(k), (np.arange(k), free)), shape=(k, n))


def _exponent_below(size: float) -> int:
    """The largest e with 2^e at most ``size``."""
    return math.frexp(size)[1] - 1
