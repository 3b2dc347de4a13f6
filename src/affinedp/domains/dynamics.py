"""Linear dynamics over a horizon, and plants that private inputs drive: what everyone knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.base import Domain
from affinedp.domains.reading import Wrap, read_rows
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.exact.systems import LinearSystem
from affinedp.parts import frozen

MOST_STATES = 500
MOST_STEPS = 10**9
# What "for all time" stands for where a number is needed: at a thousand steps a second, 35 years.
ENDLESS = 2**40


def step_of(step: int, horizon: int) -> str:
    """Return how far a run is, in words: "96 of 100", or "96 (without an end)".

    Examples
    --------
    >>> step_of(96, 100), step_of(96, ENDLESS)
    ('96 of 100', '96 (without an end)')
    """
    return f"{step} (without an end)" if horizon >= ENDLESS else f"{step} of {horizon}"


@dataclass(frozen=True, eq=False)
class Dynamics(Domain):
    """``x(t+1) = A(t) x(t) + B u(t)``, ``y(t) = C(t) x(t)`` for t = 0, …, horizon − 1.

    Inputs, feedthrough and disturbances that the adversary knows only shift the manifold;
    neighbours and noise depend on A and C alone.  Trajectories are known by x(0), which is what is
    read.  The numbers of A and C are what doubles stand for everywhere: 0.1 is one tenth.

    Attributes
    ----------
    A : array, shape (n, n) or (horizon − 1, n, n)
        State matrix, one for all steps or one for each.
    C : array, shape (m, n) or (horizon, m, n)
        Output matrix, likewise.
    horizon : int
        How many outputs are sent.
    state_names, output_names : tuples of str
        What to call them.
    """

    kind = "dynamics"
    A: FloatArray = field(repr=False)
    C: FloatArray = field(repr=False)
    horizon: int
    state_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, count in (("A", self.horizon - 1), ("C", self.horizon)):
            object.__setattr__(self, name, frozen(_matrices(getattr(self, name), name, count)))
        n, m = self.A.shape[-1], self.C.shape[-2]
        if self.A.shape[-2] != n:
            raise AffineDPError(f"A must be square, but has shape {self.A.shape}")
        if n > MOST_STATES:
            raise AffineDPError(f"{n} states are more than the {MOST_STATES} that are handled here")
        if self.C.shape[-1] != n or m == 0:
            raise AffineDPError(
                f"C has shape {self.C.shape}, but must have one column for each of {n} states"
            )
        if (len(self.state_names), len(self.output_names)) != (n, m):
            raise AffineDPError("the names do not fit the matrices")
        if self.horizon != ENDLESS or self.time_varying:
            checked_horizon(self.horizon)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Of the entries of x(0)."""
        return tuple(f"{name}(0)" for name in self.state_names)

    def read(self, x: Any) -> tuple[FloatArray, Wrap]:
        """Return x(0) as rows; outputs come back with one row per step.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n), or a table
            The first state of one trajectory, or of one per row.
        """
        data, wrap = read_rows(self.names, x)
        if hasattr(x, "columns") or hasattr(x, "to_frame") or isinstance(x, Mapping):
            return data, wrap
        shape = (*np.shape(x)[:-1], self.horizon, self.outputs)
        return data, lambda y, outputs: np.reshape(y, shape)

    @property
    def plain_A(self) -> FloatArray:
        """A as one matrix where it does not change, else one for each step that there is."""
        if self.A.ndim == 2 or self.horizon == 1:
            return self.A if self.A.ndim == 2 else self.A[0] * 0
        return self.A[0] if np.all(self.A[0] == self.A) else self.A

    @property
    def states(self) -> int:
        """How many entries x(t) has."""
        return int(self.A.shape[-1])

    @property
    def outputs(self) -> int:
        """How many entries y(t) has."""
        return int(self.C.shape[-2])

    @property
    def time_varying(self) -> bool:
        """Whether A or C depends on the time."""
        return self.A.ndim == 3 or self.C.ndim == 3

    def state_matrix(self, t: int) -> FloatArray:
        """Return A(t), which leads from x(t) to x(t+1).

        Parameters
        ----------
        t : int
            A time before the last.
        """
        return self.A[t] if self.A.ndim == 3 else self.A

    def output_matrix(self, t: int) -> FloatArray:
        """Return C(t).

        Parameters
        ----------
        t : int
            A time in the horizon.
        """
        return self.C[t] if self.C.ndim == 3 else self.C

    def shortened(self, horizon: int) -> Dynamics:
        """Return the same dynamics over fewer steps.

        Parameters
        ----------
        horizon : int
            How many.
        """
        if not 1 <= horizon <= self.horizon:
            raise AffineDPError(f"horizon must lie between 1 and {self.horizon}, not {horizon}")
        A = self.A[: max(horizon - 1, 1)] if self.A.ndim == 3 else self.A
        C = self.C[:horizon] if self.C.ndim == 3 else self.C
        return Dynamics(A, C, horizon, self.state_names, self.output_names)


def checked_horizon(horizon: Any) -> int:
    """Return a horizon as a positive int, or refuse it."""
    return whole_number(horizon, "horizon", most=MOST_STEPS)


def dynamics_of(system: Any, horizon: int) -> Dynamics:
    """Return the dynamics that a system has over a horizon.

    Parameters
    ----------
    system : StateSpace, Dynamics, or (A, C), (A, B, C) or (A, B, C, D)
        A discrete-time system of python-control, or its matrices.  A and C may depend on the
        time: an array with one matrix per step, or a function of t.
    horizon : int
        How many outputs y(0), …, y(horizon − 1) are sent.

    Returns
    -------
    Dynamics

    Examples
    --------
    >>> from affinedp.domains.dynamics import dynamics_of
    >>> vehicle = dynamics_of(([[1, 0.1], [0, 1]], [[1, 0]]), horizon=100)
    >>> vehicle.states, vehicle.outputs, vehicle.state_names
    (2, 1, ('x1', 'x2'))
    """
    steps = checked_horizon(horizon)
    if isinstance(system, Dynamics):
        return system.shortened(steps)
    if hasattr(system, "A") and hasattr(system, "C") and hasattr(system, "dt"):
        if system.dt is not None and system.dt == 0:
            raise AffineDPError(
                "the system is in continuous time, but outputs are sent step by step: sample it "
                "first, control.sample_system(system, Ts), or give dt to control.ss"
            )
        labels = tuple(map(str, system.state_labels)), tuple(map(str, system.output_labels))
        states, outputs = _plain(labels[0], "x"), _plain(labels[1], "y")
        return Dynamics(system.A, system.C, steps, states, outputs)
    if not isinstance(system, Sequence) or not 2 <= len(system) <= 4:
        raise AffineDPError(
            "the system must be a discrete-time control.StateSpace, or matrices (A, C), "
            f"(A, B, C) or (A, B, C, D), not {type(system).__name__}"
        )
    A, C = system[0], system[1 if len(system) == 2 else 2]
    A, C = _matrices(A, "A", steps - 1), _matrices(C, "C", steps)
    states, outputs = (
        tuple(f"{letter}{i + 1}" for i in range(count))
        for letter, count in (("x", A.shape[-1]), ("y", C.shape[-2]))
    )
    if not states:
        raise AffineDPError("A must be square and have a state at least")
    return Dynamics(A, C, steps, states, outputs)


def _matrices(given: Any, name: str, count: int) -> FloatArray:
    """One matrix, or one for each of ``count`` steps (more are ignored)."""
    if callable(given):
        function: Callable[[int], Any] = given
        stacked = [real_array(function(t), f"{name}({t})", 2) for t in range(max(count, 1))]
        if len({matrix.shape for matrix in stacked}) > 1:
            raise AffineDPError(f"{name}(t) changes its shape over time")
        given = np.array(stacked)
    array = real_array(given, name)
    if array.ndim not in (2, 3):
        raise AffineDPError(f"{name} must be a matrix, or one for each step, not {array.shape}")
    if array.ndim == 3 and len(array) < max(count, 1):
        raise AffineDPError(f"{name} has {len(array)} matrices, but {count} steps need one each")
    # a single output needs no step; the matrix is kept for its size
    return array[: max(count, 1)] if array.ndim == 3 else array


def _plain(labels: tuple[str, ...], letter: str) -> tuple[str, ...]:
    """Labels that python-control made up, such as x[0], become x1."""
    made_up = all(label == f"{letter}[{i}]" for i, label in enumerate(labels))
    return tuple(f"{letter}{i + 1}" for i in range(len(labels))) if made_up else labels


# ---------------------------------------------------------------------- plants


@dataclass(frozen=True, eq=False)
class Plant(Domain):
    """``x(t+1) = A x + E w``, ``y = C x + F w``: data are the private inputs w, step by step."""

    kind = "plant"
    system: LinearSystem = field(repr=False)  # from w to the outputs
    names: tuple[str, ...]  # names, output_names: of the private inputs, and of the outputs
    output_names: tuple[str, ...]
    horizon: int | None = None  # how many outputs are sent; None for all time

    def __post_init__(self) -> None:
        if (len(self.names), len(self.output_names)) != (self.system.inputs, self.system.outputs):
            raise AffineDPError("the names do not fit the inputs and outputs of the plant")
        if max(self.system.order, self.system.inputs, self.system.outputs) > MOST_STATES:
            raise AffineDPError(f"a plant may have up to {MOST_STATES} states, inputs and outputs")
        if self.horizon is not None:
            object.__setattr__(self, "horizon", checked_horizon(self.horizon))

    @property
    def steps(self) -> int:
        """How many outputs may be sent: 2⁴⁰ stands for all time where a number is needed."""
        return ENDLESS if self.horizon is None else self.horizon


def seen_system(A: FloatArray, B: FloatArray, C: FloatArray, D: FloatArray) -> LinearSystem:
    """Return the states that inputs reach and outputs show, by the zeros of the matrices: exact."""
    moves = A != 0
    reached, shown = (B != 0).any(axis=1), (C != 0).any(axis=0)
    for _ in range(len(A)):
        reached = reached | moves[:, reached].any(axis=1)
        shown = shown | moves[shown].any(axis=0)
    kept = np.flatnonzero(reached & shown)
    return LinearSystem(A[np.ix_(kept, kept)], B[kept], C[:, kept], D)
