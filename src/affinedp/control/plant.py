"""The plant of a closed loop and the loop's record: matrices, gains, reference, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.checks import shaped
from affinedp.domains.dynamics import dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.parts import Locked


@dataclass(frozen=True, eq=False)
class SteeredPlant(Locked):
    """``x(t+1) = A x(t) + B u(t)``, ``y(t) = C x(t) + D u(t)``."""

    A: FloatArray = field(repr=False)
    B: FloatArray = field(repr=False)
    C: FloatArray = field(repr=False)
    D: FloatArray = field(repr=False)
    state_names: tuple[str, ...]
    output_names: tuple[str, ...]
    dt: float = 1.0

    @property
    def states(self) -> int:
        """How many entries x(t) has."""
        return int(self.B.shape[0])

    @property
    def inputs(self) -> int:
        """How many entries u(t) has."""
        return int(self.B.shape[1])

    @property
    def outputs(self) -> int:
        """How many entries y(t) has."""
        return int(self.C.shape[0])


@dataclass(frozen=True, eq=False)
class PrivatePlant(Locked):
    """A plant whose inputs are the private ones, as far as a design asks."""

    A: FloatArray
    B: FloatArray
    C: FloatArray
    D: FloatArray
    dt: float
    state_labels: tuple[str, ...]
    input_labels: tuple[str, ...]
    output_labels: tuple[str, ...]


def plant_of(system: Any) -> SteeredPlant:
    """Return a system as a checked plant.

    Examples
    --------
    >>> from affinedp.control.plant import plant_of
    >>> plant_of(([[1, 0.1], [0, 1]], [[0.005], [0.1]], [[1, 0]])).state_names
    ('x1', 'x2')
    """
    if isinstance(system, SteeredPlant):
        return system
    matrices: Sequence[Any]
    dt: Any = None
    if hasattr(system, "A") and hasattr(system, "C") and hasattr(system, "dt"):
        dynamics = dynamics_of(system, 1)
        matrices, dt = (system.A, system.B, system.C, system.D), system.dt
    elif isinstance(system, Sequence) and 3 <= len(system) <= 4:
        matrices = [real_array(part, name, 2) for part, name in zip(system, "ABCD")]
        dynamics = dynamics_of((matrices[0], matrices[2]), 1)
    else:
        raise AffineDPError(
            "the plant must be a discrete-time control.StateSpace (control.ss makes one), or "
            f"matrices (A, B, C) or (A, B, C, D), not {_described(system)}"
        )
    n, m = dynamics.states, dynamics.outputs
    B = shaped(matrices[1], (n, None), "B")
    if B.shape[1] == 0:
        raise AffineDPError("the plant has no input, so there is no loop to close: B is empty")
    D = (
        shaped(matrices[3], (m, B.shape[1]), "D")
        if len(matrices) == 4
        else np.zeros((m, B.shape[1]))
    )
    return SteeredPlant(
        dynamics.A, B, dynamics.C, D,
        dynamics.state_names, dynamics.output_names,
        1.0 if dt is None or dt is True else float(dt),
    )  # fmt: skip


def _described(system: Any) -> str:
    if isinstance(system, Sequence) and not isinstance(system, str):
        return f"{len(system)} things"
    return type(system).__name__


Reference: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


@dataclass(frozen=True, eq=False)
class LoopRecord(Locked):
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
