"""The plain record of a closed loop: plant, gains, reference, and how plant and observer move."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.plant import Plant
from affinedp.control.loop.reference import Reference, references_until


@dataclass(frozen=True, eq=False)
class LoopRecord:
    """Plant, observer and state feedback that follow a reference.

    Attributes
    ----------
    plant : Plant
        The system.
    feedback, observer : arrays, shapes (k, n) and (n, m)
        K and L.
    reference : array of shape (n,) or (time, n), or function of t
        x_r.
    x0, xhat0 : arrays, shape (n,)
        Where plant and observer start.
    state_weight : array, shape (n, n)
        How tracking errors are weighed.
    """

    plant: Plant
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
