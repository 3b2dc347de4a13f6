"""Which combinations of x(0) the outputs reveal, and in which coordinates noise hides them.

All outputs of a horizon are ``O x(0)`` plus something public, with the observability matrix O.
Where O has full rank, noise on x(0) itself is what is needed.  Otherwise O = O[:, pivots] E with an
exact E: the outputs reveal ``E x(0)``, and noise on the pivot entries alone hides it.  No choice
here can make a promise too good: noise on more than is revealed does no harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, dense
from affinedp.domains.dynamics import Dynamics
from affinedp.domains.powers import scan_transitions
from affinedp.errors import AffineDPError
from affinedp.exact.canonical import eliminate_exactly
from affinedp.exact.rational import RationalMatrix
from affinedp.exact.rounding import gamma
from affinedp.exact.systems import doubled_sum

# Smallest relative eigenvalue of the Gramian of a clearly observable system.
CLEARLY_OBSERVABLE = 1e-8
# Longer horizons are summed by doubling.
SHORT = 20_000
# Exact elimination is for systems this small.
MOST_EXACT = 24


@dataclass(frozen=True)
class Coordinates:
    """``E x(0)`` is what the outputs reveal; noise goes on the entries ``places`` of x(0)."""

    places: IntArray  # entries of x(0) that get noise; shape (r,)
    # E, with the identity on ``places``; every entry is within one rounding of the true one; shape
    # (r, n)
    combinations: FloatArray
    # whether no less than this is revealed; otherwise there may be more noise than needed
    certain: bool = True

    def restricted(self, moving: NDArray[np.bool_]) -> Coordinates:
        """Return only the rows that depend on some entry of x(0) in ``moving``."""
        kept = (self.combinations[:, moving] != 0).any(axis=1)
        return Coordinates(self.places[kept], self.combinations[kept], self.certain)


def output_gramian(dynamics: Dynamics) -> FloatArray:
    """Return ``OᵀO``: how much each direction of x(0) shows in all outputs together.

    No promise rests on its digits: it says what noise costs, and which states show at all.

    Examples
    --------
    >>> from affinedp.domains.dynamics import dynamics_of
    >>> output_gramian(dynamics_of(([[1, 1], [0, 1]], [[1, 0]]), horizon=3)).tolist()
    [[3.0, 3.0], [3.0, 5.0]]
    """
    if dynamics.time_varying or dynamics.horizon <= SHORT:
        return summed_gramian(dynamics)
    with np.errstate(over="ignore", invalid="ignore"):
        total = doubled_sum(dynamics.A.T, dynamics.C.T @ dynamics.C, dynamics.horizon)
        return _finite(np.asarray((total + total.T) / 2))


def summed_gramian(dynamics: Dynamics) -> FloatArray:
    """Return ``OᵀO`` summed step by step from products that are known to be right."""
    total = np.zeros((dynamics.states, dynamics.states))

    def add(start: int, block: FloatArray) -> None:
        if start == 0:
            total[:] = 0.0
        seen = output_blocks(dynamics, start, block).reshape(-1, dynamics.states)
        total[:] += seen.T @ seen

    with np.errstate(over="ignore", invalid="ignore"):
        scan_transitions(dynamics, add)
    return _finite(total)


def observability_bound(dynamics: Dynamics) -> tuple[FloatArray, FloatArray]:
    """Return G and H with ``‖O d‖² ≤ ‖G d‖² + ‖H d‖²``, where H is what rounding may have done.

    An entry of the Gramian is off by at most γ times the root of the product of its diagonal
    entries, whatever the units.
    """
    gramian = summed_gramian(dynamics)
    n = len(gramian)
    size = np.sqrt(np.diagonal(gramian))
    unit = np.where(size > 0, size, 1.0)
    scaled = gramian / unit[:, None] / unit
    values, vectors = np.linalg.eigh(scaled)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    difference = float(np.linalg.norm(scaled - root.T @ root))
    difference += n * gamma(dynamics.horizon * dynamics.outputs + 100 * n)
    return root * unit, math.sqrt(difference) * np.diag(size) * (1 + 1e-12)


def _finite(total: FloatArray) -> FloatArray:
    if not np.all(np.isfinite(total)):
        raise AffineDPError(
            "the outputs are so large that their squares leave the range of floating point: use "
            "other units for the outputs or the states"
        )
    return total


def output_blocks(dynamics: Dynamics, start: int, block: FloatArray) -> FloatArray:
    """Return ``C(t) Φ_t`` for a stack of products from time ``start`` on."""
    output = dynamics.C[start : start + len(block)] if dynamics.C.ndim == 3 else dynamics.C
    return np.asarray(output @ block)


def revealed_coordinates(dynamics: Dynamics, gramian: FloatArray) -> Coordinates:
    """Return coordinates of what the outputs reveal."""
    n = dynamics.states
    everything = Coordinates(np.arange(n), np.eye(n))
    size = np.sqrt(np.diagonal(gramian))
    if np.all(size > 0):
        # every state in its own units
        values = np.linalg.eigvalsh(gramian / size[:, None] / size)
        if values[0] > CLEARLY_OBSERVABLE * values[-1]:
            return everything
    # for constant matrices, later outputs reveal nothing new (Cayley and Hamilton)
    steps = dynamics.horizon if dynamics.time_varying else min(dynamics.horizon, n)
    if max(steps, n) > MOST_EXACT:
        return replace(everything, certain=False)
    rows = _exact_observability(dynamics, steps)
    canonical, _ = eliminate_exactly(rows, [Fraction(0)] * len(rows), n)
    places = np.asarray(canonical.pivots, dtype=np.intp)
    combinations = np.zeros((len(places), n))
    combinations[np.arange(len(places)), places] = 1.0
    combinations[:, canonical.free] = dense(canonical.reduced)
    order = np.argsort(places)  # whoever takes entries of x(0) by place takes them in order
    return Coordinates(places[order], combinations[order])


def _exact_observability(dynamics: Dynamics, steps: int) -> list[dict[int, Fraction]]:
    """The nonzero rows of O, as exact numbers."""
    product = RationalMatrix.identity(dynamics.states)
    rows: list[dict[int, Fraction]] = []
    for t in range(steps):
        seen = RationalMatrix.meant(dynamics.output_matrix(t)) @ product
        rows += [
            {j: Fraction(int(v), seen.over) for j, v in enumerate(row) if v} for row in seen.values
        ]
        if t + 1 < steps:
            product = RationalMatrix.meant(dynamics.state_matrix(t)) @ product
    return [row for row in rows if row]
