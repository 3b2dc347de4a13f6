"""The plain record of a closed loop: plant, gains, reference, and how plant and observer move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.loop.numbers import shaped
from affinedp.control.loop.steered import SteeredPlant
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

Reference: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


@dataclass(frozen=True, eq=False)
class LoopRecord:
    """Plant, observer and state feedback that follow a reference."""

    plant: SteeredPlant
    feedback: FloatArray = field(repr=False)
    observer: FloatArray = field(repr=False)
    reference: Reference = field(repr=False)
    x0: FloatArray = field(repr=False)
    xhat0: FloatArray = field(repr=False)
    state_weight: FloatArray = field(repr=False)

    def references(self, steps: int) -> FloatArray:
        """Return x_r(0), …, x_r(steps), shape (steps + 1, n).

        Parameters
        ----------
        steps : int
            How many outputs are sent.
        """
        return references_until(self.reference, steps, self.plant.states)

    @cached_property
    def matrix(self) -> FloatArray:
        """What takes (x, x̂) one step ahead, shape (2n, 2n)."""
        plant = self.plant
        pull = plant.B @ self.feedback
        correction = self.observer @ plant.C
        return np.block([[plant.A, -pull], [correction, plant.A - pull - correction]])

    @cached_property
    def injection(self) -> FloatArray:
        """How γ(t) enters (x, x̂), shape (2n, m)."""
        return np.concatenate([np.zeros_like(self.observer), self.observer])

    def pull(self, references: FloatArray) -> FloatArray:
        """Return how the reference enters (x, x̂): B K x_r(t) in both, shape (time, 2n).

        Parameters
        ----------
        references : array, shape (time, n)
            As :meth:`references` returns it.
        """
        return np.tile(references @ (self.plant.B @ self.feedback).T, (1, 2))


def checked_reference(reference: Reference, n: int) -> Reference:
    """Return a reference that fits n states, arrays as read-only copies, or refuse it."""
    if callable(reference):
        return reference
    array = np.atleast_1d(real_array(reference, "reference"))
    if array.ndim > 2 or array.shape[-1] != n:
        raise AffineDPError(
            f"reference has shape {array.shape}, but must be a constant of shape ({n},), an array "
            f"of shape (time, {n}), or a function of t"
        )
    return shaped(array, array.shape, "reference")


def references_until(reference: Reference, steps: int, n: int) -> FloatArray:
    """Return x_r(0), …, x_r(steps), shape (steps + 1, n)."""
    if callable(reference):
        return np.array([shaped(reference(t), (n,), f"reference({t})") for t in range(steps + 1)])
    given = np.asarray(reference, dtype=np.float64)
    if given.ndim == 1:
        return np.tile(given, (steps + 1, 1))
    if len(given) <= steps:
        raise AffineDPError(
            f"the reference ends at t = {len(given) - 1}, but {steps} steps need it up to "
            f"t = {steps}: give more of it, or a function of t"
        )
    return given[: steps + 1].copy()
