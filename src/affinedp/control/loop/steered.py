"""The plant of a closed loop: matrices of one size, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.numbers import fixed, shaped
from affinedp.domains.dynamics import dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array


@dataclass(frozen=True, eq=False)
class SteeredPlant:
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
class PrivatePlant:
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
    >>> from affinedp.control.loop.steered import plant_of
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
        fixed(dynamics.A), B, fixed(dynamics.C), fixed(D),
        dynamics.state_names, dynamics.output_names,
        1.0 if dt is None or dt is True else float(dt),
    )  # fmt: skip


def _described(system: Any) -> str:
    if isinstance(system, Sequence) and not isinstance(system, str):
        return f"{len(system)} things"
    return type(system).__name__
