"""Neighbours of a trajectory: one entry of the state moves at one time, and others with it.

*Time-local* neighbours are those of Theorem 3 of the paper: one entry of x(t) moves by μ while
the other entries of x(t) stay, and the rest of the trajectory follows from the dynamics.  The full
Definition 4 lets any entries of the trajectory be the ones that stay, which is a stronger promise.
Neighbours that differ in x(0) alone are in ``initial``.

Trajectories are known by their initial state, so both are described by differences of x(0).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, Norm
from affinedp.domains.dynamics import Dynamics
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.powers import SingularDynamicsError, scan_inverse_transitions
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import real_array
from affinedp.neighbours.adjacency import Adjacency, Sensitivity, mu_words
from affinedp.neighbours.circuit_adjacency import DEFINITION_4, CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.parts import digest

Neighbours = Literal["time-local", "manifold", "initial"]
MOST_CIRCUITS = 2_000_000
CHUNK = 100_000
MOST_NUMBERS = 4e8
EPS = float(np.finfo(float).eps)


class TrajectoryNeighbours(ABC):
    """Differences of trajectories that are to be hidden, as differences of x(0)."""

    dynamics: Dynamics
    mu: FloatArray
    kind: Neighbours

    @property
    @abstractmethod
    def words(self) -> str:
        """Who counts as a neighbour."""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """What the promise rests on."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What moves between neighbours, as a ledger knows it: not how far, nor by which laws."""

    @abstractmethod
    def directions(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""

    @abstractmethod
    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours; decided exactly."""

    @abstractmethod
    def sensitivity(self, matrix: FloatArray, norm: Norm = 2) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0)."""

    @abstractmethod
    def adjacency(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""


@dataclass(frozen=True, eq=False)
class TimeLocal(TrajectoryNeighbours):
    """One entry of the state at one time moves, the others at that time stay (Theorem 3).

    Attributes
    ----------
    dynamics : Dynamics
        With nonsingular state matrices.
    mu : array, shape (horizon, n)
        How far each entry moves at each time.
    """

    dynamics: Dynamics
    mu: FloatArray
    kind = "time-local"

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        return (
            f"time-local: one entry of the state at one of {self.dynamics.horizon:,} times moves "
            f"by at most {mu_words(self.mu.ravel())}, the other entries at that time stay, and the "
            "trajectory follows"
        )

    @property
    def theorem(self) -> str:
        """What the promise rests on."""
        return "Theorem 3 (time-local neighbours, a weaker promise than Definition 4)"

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        # what is sent of the states is not part of who is a neighbour
        names = repr((self.dynamics.state_names, self.dynamics.horizon))
        return digest("time-local", names, self.dynamics.plain_A, self.mu)

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return "one entry of a trajectory's state at one time (time-local)"

    @cached_property
    def _differences(self) -> tuple[FloatArray, float]:
        """Differences of x(0) as rows, and how much an entry may be off besides its rounding."""
        n, distance = self.dynamics.states, self.mu
        if self.dynamics.horizon * float(n) ** 2 > MOST_NUMBERS:
            fits = int(MOST_NUMBERS / n**2)
            raise AffineDPError(
                f"{n} states over this horizon do not fit in memory; {fits:,} steps do"
            )
        rows = np.empty((self.dynamics.horizon * n, n))

        def keep(t: int, inverses: FloatArray) -> None:
            moved = inverses.transpose(0, 2, 1) * distance[t : t + len(inverses), :, None]
            rows[t * n : (t + len(inverses)) * n] = moved.reshape(-1, n)

        try:
            error = scan_inverse_transitions(self.dynamics, keep).error
        except SingularDynamicsError as refusal:
            raise SingularDynamicsError(
                f"time-local neighbours (Theorem 3) need nonsingular state matrices: {refusal}. "
                "Use neighbours='manifold' (Definition 4), which does without"
            ) from None
        # exact: no protected state ever moves these entries
        rows[:, ~self.moving()] = 0.0
        protected = distance.ravel() > 0
        return rows if protected.all() else rows[protected], error * float(distance.max())

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) can differ at all, from the zeros of A.

        The smallest set that holds every protected entry and that A maps into itself; then the
        inverse maps it into itself, too.
        """
        pattern = (self.dynamics.A.reshape(-1, *self.dynamics.A.shape[-2:]) != 0).any(axis=0)
        reached = (self.mu > 0).any(axis=0)
        for _ in range(self.dynamics.states):
            reached = reached | pattern[:, reached].any(axis=1)
        return np.asarray(reached)

    def directions(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return self._differences[0]

    def sensitivity(self, matrix: FloatArray, norm: Norm = 2) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0).

        Parameters
        ----------
        matrix : array, shape (r, n)
            What is applied to them.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        rows, error = self._differences
        r, n = matrix.shape
        rounding = (2 * n + r + 20) * EPS
        spill = error * math.sqrt(n) * float(np.linalg.norm(matrix)) * (1 + rounding)
        if norm == 1:
            spill *= math.sqrt(r)  # of r numbers the 1-norm is at most √r times the 2-norm
        best = (-1.0, 0.0, 0)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            lengths = np.linalg.norm(part @ matrix.T, ord=norm, axis=1)
            terms = np.linalg.norm(np.abs(part) @ np.abs(matrix).T, ord=norm, axis=1)
            upper = (lengths + rounding * terms + spill) * (1 + 4 * EPS)
            place = int(upper.argmax())
            if upper[place] > best[0]:
                best = (float(upper[place]), float(lengths[place]), start + place)
        upper_bound, value, place = best
        t, k = divmod(int(np.flatnonzero(self.mu.ravel() > 0)[place]), n)
        worst = f"the worst is {self.dynamics.state_names[k]} at time {t}"
        method = f"{len(rows):,} directions, closed form; {worst}"
        return Sensitivity(value, upper_bound, True, method, rows[place].copy())

    def adjacency(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""
        return StateAdjacency(manifold, self, self.mu)


class StateAdjacency(FreeSetAdjacency):
    """Free sets are the whole state at one time; a budget counts them as the same neighbours.

    Parameters
    ----------
    manifold : AffineManifold
        Of whole trajectories, or of the first states.
    neighbours : TrajectoryNeighbours
        Whose key and unit it has.
    mu : array, shape (times, n)
        How far each entry moves, for the times whose states are free.
    """

    def __init__(
        self, manifold: AffineManifold, neighbours: TrajectoryNeighbours, mu: FloatArray
    ) -> None:
        times, n = mu.shape
        sets = [list(range(t * n, (t + 1) * n)) for t in range(times)]
        distances = np.zeros(manifold.n)
        distances[: mu.size] = mu.ravel()
        super().__init__(manifold, sets, distances, unit=neighbours.unit)
        self._key = neighbours.key

    @cached_property
    def key(self) -> str:
        """The key of the neighbours."""
        return self._key


@dataclass(frozen=True, eq=False)
class WholeManifold(TrajectoryNeighbours):
    """All neighbours of Definition 4 on the manifold of trajectories.

    Attributes
    ----------
    dynamics : Dynamics
        The system; its state matrices may be singular.
    mu : array, shape (horizon, n)
        How far each entry moves at each time.
    """

    dynamics: Dynamics
    mu: FloatArray
    kind = "manifold"

    @cached_property
    def _circuits(self) -> CircuitAdjacency:
        return CircuitAdjacency(trajectory_manifold(self.dynamics), self.mu.ravel())

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        return f"Definition 4 on whole trajectories: {self._circuits.words}"

    @property
    def theorem(self) -> str:
        """What the promise rests on."""
        return "Theorem 1 with the neighbours of Definition 4"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        return self._circuits.key

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return DEFINITION_4

    def directions(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return self._differences

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours."""
        return np.asarray((self._differences != 0).any(axis=0))

    @cached_property
    def _differences(self) -> FloatArray:
        """Differences of x(0), from circuits whose zeros are decided exactly."""
        n = self.dynamics.states
        try:
            blocks = [columns.values[:n].T for columns in self._circuits.moves(MOST_CIRCUITS)]
        except TooManyCircuitsError as error:
            raise TooManyCircuitsError(
                f"the trajectories have too many neighbours of Definition 4 to list ({error}). "
                "Shorten the horizon, or use neighbours='time-local' (a weaker promise)",
                error.estimate,
                error.limit,
            ) from None
        return np.ascontiguousarray(np.vstack(blocks))

    def sensitivity(self, matrix: FloatArray, norm: Norm = 2) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0).

        Parameters
        ----------
        matrix : array, shape (r, n)
            What is applied to them.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        import scipy.sparse as sparse

        n, entries = self.dynamics.states, self.mu.size
        self.directions()  # refuses circuits that floating point cannot tell
        rest = sparse.csr_array((len(matrix), entries - n))
        widened = sparse.csr_array(sparse.hstack([sparse.csr_array(matrix), rest]))
        found = self._circuits.sensitivity(widened, norm)
        return Sensitivity(
            found.value, found.upper, found.exact, found.method, found.direction[:n], found.warnings
        )

    def adjacency(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""
        return CircuitAdjacency(manifold, self.mu.ravel())


def trajectory_manifold(dynamics: Dynamics, offsets: ArrayLike | None = None) -> AffineManifold:
    """Return the manifold of trajectories ``[x(0); …; x(T−1)]``.

    Parameters
    ----------
    dynamics : Dynamics
        The system and its horizon.
    offsets : array_like, shape (horizon − 1, n), optional
        The public inputs, ``B u(t)``; zero by default.
    """
    import scipy.sparse as sparse

    n, horizon = dynamics.states, dynamics.horizon
    names = [f"{name}({t})" for t in range(horizon) for name in dynamics.state_names]
    steps = horizon - 1
    known = np.zeros((steps, n)) if offsets is None else real_array(offsets, "offsets", 2)
    if known.shape != (steps, n):
        raise AffineDPError(f"offsets must have shape ({steps}, {n}), not {known.shape}")
    if steps == 0:
        return AffineManifold(np.zeros((0, n)), names=names)
    moved = sparse.block_diag([dynamics.state_matrix(t) for t in range(steps)])
    empty = sparse.csr_array((steps * n, n))
    D = sparse.hstack([moved, empty]) - sparse.hstack([empty, sparse.eye_array(steps * n)])
    return AffineManifold(sparse.csr_array(D), known.ravel(), names, "allow")
