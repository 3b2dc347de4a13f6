"""Neighbours of a trajectory: one entry of the state moves at one time, and others with it.

*Time-local* neighbours are those of Theorem 3 of the paper: one entry of x(t) moves by μ while
the other entries of x(t) stay, and the rest of the trajectory follows from the dynamics.  The full
Definition 4 lets any entries of the trajectory be the ones that stay, which is a stronger promise.
*Initial* neighbours differ in x(0) alone, which needs no inverse powers, whatever the horizon.

Trajectories are known by their initial state, so all are described by differences of x(0).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, Matrix, Norm
from affinedp.domains.dynamics import ENDLESS, Dynamics
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.powers import scan_inverse_transitions
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import (
    LISTED,
    Adjacency,
    Columns,
    ExactMatrix,
    Sensitivity,
    Vector,
    mu_words,
)
from affinedp.neighbours.circuit_adjacency import DEFINITION_4, CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.parts import frozen

Neighbours = Literal["time-local", "manifold", "initial"]
MOST_CIRCUITS = 2_000_000
CHUNK = 100_000
MOST_NUMBERS = 4e8


class TrajectoryAdjacency(Adjacency):
    """Differences of trajectories that are to be hidden, as differences of x(0)."""

    domain: Dynamics
    mu: FloatArray
    # What a caller says, and which of the promises about trajectories it is.
    said: ClassVar[Neighbours]
    rank: ClassVar[str]

    @property
    def times(self) -> int:
        """At how many times, from the first on, a state may move."""
        return len(self.mu)

    def _check(self, times: int) -> None:
        mu = np.asarray(frozen(self.mu), dtype=np.float64)
        if mu.shape != (times, self.domain.states) or np.any(mu < 0) or not np.any(mu > 0):
            raise AffineDPError(
                f"mu must be positive numbers of shape {(times, self.domain.states)}"
            )
        object.__setattr__(self, "mu", mu)

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours of the same dynamics."""
        # what is sent of the states is not part of who is a neighbour
        own = self.domain
        return self.key_of(
            {"names": own.state_names, "horizon": own.horizon, "A": own.plain_A, "mu": self.mu}
        )

    @abstractmethod
    def differences(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""

    @abstractmethod
    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours; decided exactly."""

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return None: powers of the state matrix are not kept in exact numbers."""
        return None

    def on_manifold(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""
        times, n = self.mu.shape
        sets = [list(range(t * n, (t + 1) * n)) for t in range(times)]
        distances = np.zeros(manifold.n)
        distances[: self.mu.size] = self.mu.ravel()
        return FreeSetAdjacency(manifold, sets, distances, unit=self.unit)


@dataclass(frozen=True, eq=False)
class InitialState(TrajectoryAdjacency):
    """One entry of x(0) moves, the others stay, and the future follows."""

    kind = "initial state"
    said = "initial"
    rank = "Theorem 3 for x(0) alone: initial neighbours, a weaker promise than time-local"
    domain: Dynamics  # the system; its state matrices may be singular
    mu: FloatArray = field(repr=False)  # how far each entry of x(0) moves; shape (1, n)

    def __post_init__(self) -> None:
        self._check(1)

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        steps = self.domain.horizon
        times = "at all times" if steps >= ENDLESS else f"over {steps:,} steps"
        return (
            f"initial: one entry of x(0) moves by at most {mu_words(self.mu[0])}, the other "
            f"entries stay, and the trajectory {times} follows; all inputs and disturbances are "
            "the same for both"
        )

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return "one entry of a trajectory's first state (initial)"

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the moves, all at once."""
        yield Columns.given(self.differences().T)

    def differences(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return np.asarray(np.diag(self.mu[0])[self.moving()])

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours."""
        return np.asarray(self.mu[0] > 0)


@dataclass(frozen=True, eq=False)
class TimeLocal(TrajectoryAdjacency):
    """One entry of the state at one time moves, the others at that time stay (Theorem 3)."""

    kind = "time-local"
    said = "time-local"
    rank = "Theorem 3: time-local neighbours, a weaker promise than Definition 4"
    domain: Dynamics  # with nonsingular state matrices
    mu: FloatArray = field(repr=False)  # how far each entry moves at each time; shape (horizon, n)

    def __post_init__(self) -> None:
        self._check(self.domain.horizon)

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        return (
            f"time-local: one entry of the state at one of {self.domain.horizon:,} times moves "
            f"by at most {mu_words(self.mu.ravel())}, the other entries at that time stay, and the "
            "trajectory follows"
        )

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return "one entry of a trajectory's state at one time (time-local)"

    @cached_property
    def _differences(self) -> tuple[FloatArray, float]:
        """Differences of x(0) as rows, and how much an entry may be off besides its rounding."""
        n, distance = self.domain.states, self.mu
        if self.domain.horizon * float(n) ** 2 > MOST_NUMBERS:
            fits = int(MOST_NUMBERS / n**2)
            raise AffineDPError(
                f"{n} states over this horizon do not fit in memory; {fits:,} steps do"
            )
        rows = np.empty((self.domain.horizon * n, n))

        def keep(t: int, inverses: FloatArray) -> None:
            moved = inverses.transpose(0, 2, 1) * distance[t : t + len(inverses), :, None]
            rows[t * n : (t + len(inverses)) * n] = moved.reshape(-1, n)

        error = scan_inverse_transitions(self.domain, keep).error
        # exact: no protected state ever moves these entries
        rows[:, ~self.moving()] = 0.0
        protected = distance.ravel() > 0
        return rows if protected.all() else rows[protected], error * float(distance.max())

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) can differ at all, from the zeros of A.

        The smallest set that holds every protected entry and that A maps into itself; then the
        inverse maps it into itself, too.
        """
        pattern = (self.domain.A.reshape(-1, *self.domain.A.shape[-2:]) != 0).any(axis=0)
        reached = (self.mu > 0).any(axis=0)
        for _ in range(self.domain.states):
            reached = reached | pattern[:, reached].any(axis=1)
        return np.asarray(reached)

    def differences(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return self._differences[0]

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the moves, some at a time; they are known up to rounding."""
        rows, error = self._differences
        for start in range(0, len(rows), CHUNK):
            values = rows[start : start + CHUNK].T
            yield Columns(values, error + 2 * EPS * np.abs(values), _unknown)


@dataclass(frozen=True, eq=False)
class WholeManifold(TrajectoryAdjacency):
    """All neighbours of Definition 4 on the manifold of trajectories."""

    kind = "whole trajectories"
    said = "manifold"
    rank = "the neighbours of Definition 4"
    domain: Dynamics  # the system; its state matrices may be singular
    mu: FloatArray = field(repr=False)  # how far each entry moves at each time; shape (horizon, n)

    def __post_init__(self) -> None:
        self._check(self.domain.horizon)

    @cached_property
    def _circuits(self) -> CircuitAdjacency:
        return CircuitAdjacency(trajectory_manifold(self.domain), self.mu.ravel())

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        return f"Definition 4 on whole trajectories: {self._circuits.words}"

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return DEFINITION_4

    def differences(self) -> FloatArray:
        """Return the differences of x(0), one per row, scaled by μ."""
        return self._differences

    def moving(self) -> NDArray[np.bool_]:
        """Return which entries of x(0) differ between some neighbours."""
        return np.asarray((self._differences != 0).any(axis=0))

    @cached_property
    def _differences(self) -> FloatArray:
        """Differences of x(0), from circuits whose zeros are decided exactly."""
        n = self.domain.states
        try:
            blocks = [columns.values[:n].T for columns in self._circuits.moves(MOST_CIRCUITS)]
        except TooManyCircuitsError as error:
            raise TooManyCircuitsError(
                f"the trajectories have too many neighbours of Definition 4 to list ({error}). "
                "Shorten the horizon, or use adjacency='time-local' (a weaker promise)",
                error.estimate,
                error.limit,
            ) from None
        return np.ascontiguousarray(np.vstack(blocks))

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield what the circuits move of x(0), some at a time."""
        n = self.domain.states
        for columns in self._circuits.moves(limit):
            yield Columns(columns.values[:n], columns.off[:n], _first(columns, n))

    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0)."""
        import scipy.sparse as sparse

        n, entries = self.domain.states, self.mu.size
        self.differences()  # refuses circuits that floating point cannot tell
        rest = sparse.csr_array((matrix.shape[0], entries - n))
        widened = sparse.csr_array(sparse.hstack([sparse.csr_array(matrix), rest]))
        found = self._circuits.sensitivity(widened, norm)
        return Sensitivity(
            found.value, found.upper, found.exact, found.method, found.direction[:n], found.warnings
        )

    def on_manifold(self, manifold: AffineManifold) -> Adjacency:
        """Return the same neighbours on the manifold of whole trajectories."""
        return CircuitAdjacency(manifold, self.mu.ravel())


@dataclass(frozen=True, eq=False)
class FirstState(Adjacency):
    """Neighbours of a trajectory as data that is x(0) alone."""

    kind = "first state"
    of: TrajectoryAdjacency  # whose words, unit and key it has

    @cached_property
    def domain(self) -> AffineManifold:  # type: ignore[override]
        """States without equations."""
        return AffineManifold(np.zeros((0, self.of.domain.states)), names=self.of.domain.names)

    @cached_property
    def key(self) -> str:
        """The key of the neighbours of the trajectory."""
        return self.of.key

    @property
    def words(self) -> str:
        """Who counts as a neighbour."""
        return self.of.words

    @property
    def unit(self) -> str:
        """What moves between neighbours."""
        return self.of.unit

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        """Yield the moves of x(0), some at a time."""
        return self.of.moves(limit)

    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        """Return the largest norm of ``matrix @ d`` over the differences d of x(0)."""
        return self.of.measured(matrix, norm, None)

    def exact_sensitivity(self, matrix: ExactMatrix, norm: Norm) -> Sensitivity | None:
        """Return None: powers of the state matrix are not kept in exact numbers."""
        return None

    def span(self) -> Matrix:
        """Return the entries that move, about as far as they do."""
        size = np.abs(self.of.differences()).max(axis=0)
        return np.asarray(np.diag(size)[:, self.of.moving()])

    def exact_span(self) -> list[Vector]:
        """Return the entries that move."""
        return [{int(j): Fraction(1)} for j in np.flatnonzero(self.of.moving())]


def _unknown(place: int) -> Vector | None:
    """Products of inverse matrices are not kept in exact numbers."""
    return None


def _first(columns: Columns, n: int) -> Callable[[int], Vector | None]:
    """The exact moves of x(0) alone."""

    def exact(place: int) -> Vector | None:
        move = columns.exact(place)
        return None if move is None else {j: value for j, value in move.items() if j < n}

    return exact


def trajectory_manifold(dynamics: Dynamics) -> AffineManifold:
    """Return the manifold of trajectories ``[x(0); …; x(T−1)]``."""
    import scipy.sparse as sparse

    n, horizon = dynamics.states, dynamics.horizon
    names = [f"{name}({t})" for t in range(horizon) for name in dynamics.state_names]
    steps = horizon - 1
    if steps == 0:
        return AffineManifold(np.zeros((0, n)), names=names)
    moved = sparse.block_diag([dynamics.state_matrix(t) for t in range(steps)])
    empty = sparse.csr_array((steps * n, n))
    D = sparse.hstack([moved, empty]) - sparse.hstack([empty, sparse.eye_array(steps * n)])
    return AffineManifold(sparse.csr_array(D), None, names, "allow")
