"""Publish without leaking through floating point.

The coordinates ``z = Λ⁺F (x − x_p)`` are computed exactly, on a fixed grid; integer noise
is added exactly; and what is published, ``F x_p + Λ z̃``, is a function of public quantities and
the noisy integers alone.  docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.equations.manifold import ON_MANIFOLD
from affinedp.errors import AffineDPError
from affinedp.record import MechanismRecord
from affinedp.release.fixed_point import BigIntegers
from affinedp.release.integer_noise import integer_sampler
from affinedp.release.plan import GRID_BITS, Plan
from affinedp.release.reading import read_points


class OffManifoldError(AffineDPError):
    """Data that does not obey the equations.

    Attributes
    ----------
    rows : tuple of int
        The rows concerned, counted from 0.
    """

    def __init__(self, message: str, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        super().__init__(message)


def publish(
    mechanism: MechanismRecord,
    plan: Plan,
    x: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
) -> Any:
    """Publish the query of ``x`` with the mechanism's noise; see :meth:`Mechanism.release`.

    Parameters
    ----------
    mechanism : MechanismRecord
        What is published, with which noise.
    plan : Plan
        The public part of its releases.
    x : array_like or pandas object
        The data.
    ledger : Ledger, optional
        Charged before any noise is drawn.
    label : str, optional
        For the ledger.
    """
    points, wrap = read_points(mechanism, x)
    _check(mechanism, points, plan.bound)
    steps = plan.grid_steps(points)
    entry = None
    if ledger is not None:
        entry = ledger.charge(mechanism.guarantee, fingerprint=mechanism.fingerprint, label=label)
    noisy = steps + _noise(plan, steps.shape)
    published = plan.publish(noisy)
    if ledger is not None and entry is not None:
        ledger.settle(entry)
    return wrap(published)


def _noise(plan: Plan, shape: tuple[int, ...]) -> BigIntegers:
    """Integer noise of the plan's scale, independent of any data."""
    count = shape[0] * shape[1]
    if count == 0:
        return np.zeros(shape, dtype=object)
    sampler = integer_sampler(plan.law, math.ldexp(plan.noise_factor, GRID_BITS), count)
    drawn: BigIntegers = np.array(sampler([0] * count), dtype=object)
    return drawn.reshape(shape)


def _check(mechanism: MechanismRecord, points: FloatArray, bound: float | None) -> None:
    """Refuse data off the manifold, or beyond the declared bound."""
    if points.shape[0] == 0:
        raise AffineDPError("there are no rows to release")
    if bound is not None and np.abs(points).max() > bound:
        raise AffineDPError("some entry of x is larger than the declared bound")
    residual = mechanism.manifold.residual(points)
    bad = np.flatnonzero((residual > ON_MANIFOLD).any(axis=1))
    if len(bad):
        worst = int(np.argmax(residual[bad[0]]))
        equation = mechanism.manifold.equations()[worst]
        raise OffManifoldError(
            f"row {bad[0]} (counting from 0) does not obey {equation} (relative residual "
            f"{residual[bad[0], worst]:.1e}); {len(bad)} rows in all. Nothing was released",
            [int(i) for i in bad],
        )
