"""Neighbours that differ in x(0) alone: no inverse powers, whatever the horizon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, Norm
from affinedp.control.trajectory.neighbours import StateAdjacency, TrajectoryNeighbours
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.domains.manifold import AffineManifold
from affinedp.neighbours.adjacency import Adjacency, Sensitivity, mu_words
from affinedp.parts import digest

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class InitialState(TrajectoryNeighbours):
    """One entry of x(0) moves, the others stay, and the future follows.

    Attributes
    ----------
    dynamics : Dynamics
        The system; its state matrices may be singular.
    mu : array, shape (1, n)
        How far each entry of x(0) moves.
    """

    dynamics: Dynamics
    mu: FloatArray
    kind = "initial"

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        steps = self.dynamics.horizon
        times = "at all times" if steps >= ENDLESS else f"over {steps:,} steps"
        return (
            f"initial: one entry of x(0) moves by at most {mu_words(self.mu[0])}, the other "
            f"entries stay, and the trajectory {times} follows; all inputs and disturbances are "
            "the same for both"
        )

    @property
    def theorem(self) -> str:
        """What the promise rests on."""
        return "Theorem 3 for x(0) alone (initial neighbours, a weaker promise than time-local)"

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        names = repr((self.dynamics.state_names, self.dynamics.horizon))
        return digest("initial", names, self.dynamics.plain_A, self.mu)

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return "one entry of a trajectory's first state (initial)"

    def directions(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return np.asarray(np.diag(self.mu[0])[self.moving()])

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours."""
        return np.asarray(self.mu[0] > 0)

    def sensitivity(self, matrix: FloatArray, norm: Norm = 2) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0).

        Parameters
        ----------
        matrix : array, shape (r, n)
            What is applied to them.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        lengths = np.linalg.norm(matrix * self.mu[0], ord=norm, axis=0)
        place = int(lengths.argmax())
        value = float(lengths[place])
        direction = np.zeros(self.dynamics.states)
        direction[place] = self.mu[0, place]
        method = f"{int(self.moving().sum())} directions, closed form; the worst is "
        method += f"{self.dynamics.state_names[place]} at time 0"
        return Sensitivity(value, value * (1 + (len(matrix) + 8) * EPS), True, method, direction)

    def adjacency(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""
        return StateAdjacency(manifold, self, self.mu)
