"""What a loop is made of, checked: numbers and weights, noise, the plant, and gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.parts import Locked, locked
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter


def shaped(value: ArrayLike, shape: tuple[int | None, ...], name: str) -> FloatArray:
    """Return ``value`` as a read-only array of this shape (None: any length), or refuse it."""
    array = real_array(value, name)
    if array.ndim != len(shape) or any(w not in (None, g) for w, g in zip(shape, array.shape)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise AffineDPError(f"{name} has shape {array.shape}, but must have shape ({wanted})")
    return locked(array)


def covariance(value: ArrayLike | None, name: str, size: int) -> FloatArray:
    """Return standard deviations (one, or a vector) or a covariance as a covariance matrix."""
    array = real_array(0.0 if value is None else value, name)
    if array.ndim < 2:
        if np.any(array < 0):
            raise AffineDPError(f"{name} must not be negative: it holds standard deviations")
        array = array**2
    return semidefinite(array, name, size)


def semidefinite(value: ArrayLike, name: str, size: int, tol: float = 1e-12) -> FloatArray:
    """Return a number, a diagonal or a matrix as a positive semidefinite matrix."""
    array = real_array(value, name)
    if array.ndim < 2:
        if array.ndim == 1 and array.shape != (size,):
            raise AffineDPError(f"{name} has {len(array)} entries, but must have {size}")
        if np.any(array < 0):
            raise AffineDPError(f"{name} must not be negative")
        return locked(np.diag(np.broadcast_to(array, (size,))))
    matrix = shaped(array, (size, size), name)
    if np.abs(matrix - matrix.T).max() > tol * np.abs(matrix).max():
        raise AffineDPError(f"{name} is not symmetric: pass (W + W.T) / 2")
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -tol * abs(values[-1]):
        raise AffineDPError(f"{name} is not positive semidefinite: it has eigenvalue {values[0]:g}")
    return locked((matrix + matrix.T) / 2)


def least_gain(
    A: FloatArray,
    B: FloatArray,
    state_cost: FloatArray,
    input_cost: FloatArray,
    needs: str,
    crossed: FloatArray | None = None,
) -> FloatArray:
    """Return K of least quadratic cost for u = −K x; of the transposed plant an observer's gain."""
    from scipy.linalg import solve_discrete_are

    cross = np.zeros_like(B) if crossed is None else crossed
    try:
        X = solve_discrete_are(A, B, state_cost, input_cost, s=cross)
        found = np.linalg.solve(input_cost + B.T @ X @ B, B.T @ X @ A + cross.T)
    except (ValueError, np.linalg.LinAlgError) as error:
        raise AffineDPError(f"there is no such gain ({error}): {needs}") from None
    if not np.all(np.isfinite(found)):
        raise AffineDPError(f"there is no such gain: {needs}")
    return np.asarray(found)


def causal(mechanism: Any) -> Causal:
    """Return the strategy of a mechanism that makes noise step by step, or refuse it."""
    if isinstance(mechanism, Mechanism) and isinstance(mechanism.strategy, Causal):
        return mechanism.strategy
    raise AffineDPError(
        "this needs noise on the outputs of a system, from design_output_noise, "
        "design_input_noise, independent_output_noise or verify_output_noise, not "
        f"{mechanism!r:.60}"
    )


def filter_of(mechanism: Mechanism) -> Filter:
    """Return the filter of stationary noise, or refuse other noise."""
    strategy = getattr(mechanism, "strategy", None)
    if not isinstance(strategy, Filter):
        raise AffineDPError(
            "the noise must be stationary (design_input_noise, or design_output_noise with "
            "adjacency='forward')"
        )
    return strategy


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
    # as python-control calls them
    input_labels: tuple[str, ...] = ()
    state_labels = property(lambda self: self.state_names)
    output_labels = property(lambda self: self.output_names)

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
