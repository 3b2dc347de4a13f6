"""Which measurements are possible, by public limits on the start and on the inputs of a plant.

Who steers the inputs decides when a sensor saturates, and a saturated sensor is no longer linear.
If the limits keep every possible measurement inside the sensor's range, that never happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics, dynamics_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

# Far more than sums over a horizon round.
SAFE = 1e-9


@dataclass(frozen=True, eq=False)
class Reach:
    """Public limits that hold for every trajectory, whatever was sent.

    They must be enforced by something that does not look at the data: actuators that go no further,
    a physical end.  Disturbances count as inputs: add their columns to B and their limits.

    Attributes
    ----------
    start : (low, high)
        Between which x(0) lies, entry by entry; for neighbours too.
    B : array_like, shape (n, k)
        How inputs and disturbances enter the state.
    inputs : (low, high)
        Between which they lie.
    D : array_like, shape (m, k), optional
        How they enter the outputs at once; not at all unless given.
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D), optional
        The whole plant, if a mechanism knows only a part of it: noise for private inputs knows the
        states that they move, and others move the outputs, too.

    Examples
    --------
    >>> from affinedp.control import dynamics_of
    >>> room = dynamics_of(([[0.9]], [[1.0]]), horizon=100)
    >>> low, high = Reach(start=([15], [25]), B=[[1.0]], inputs=([0], [3])).outputs(room)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0], [30.0])
    """

    start: tuple[ArrayLike, ArrayLike]
    B: ArrayLike
    inputs: tuple[ArrayLike, ArrayLike]
    D: ArrayLike | None = None
    system: Any = None

    def outputs(self, dynamics: Dynamics) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest value that each output can have at any time.

        Parameters
        ----------
        dynamics : Dynamics
            A, C and the horizon.
        """
        dynamics = self._whole(dynamics)
        matrix = real_array(self.B, "B", 2)
        if len(matrix) != dynamics.states:
            raise AffineDPError(
                f"B has {len(matrix)} rows, but x has {dynamics.states} entries. If the mechanism "
                "knows only the states that private inputs move, give the whole plant: "
                "Reach(…, system=(A, C))"
            )
        middle, spread = _box(self.start, "start", dynamics.states)
        given, width = _box(self.inputs, "inputs", matrix.shape[1])
        constant = dynamics.A.ndim == 2 and dynamics.C.ndim == 2
        found = _constant if constant else _varying
        low, high = found(dynamics, matrix, (middle, spread), (given, width))
        if self.D is not None:
            direct = real_array(self.D, "D", 2)
            if direct.shape != (dynamics.outputs, matrix.shape[1]):
                raise AffineDPError(
                    f"D has shape {direct.shape}, but there are {dynamics.outputs} outputs and "
                    f"{matrix.shape[1]} inputs"
                )
            low = low + direct @ given - np.abs(direct) @ width
            high = high + direct @ given + np.abs(direct) @ width
        margin = SAFE * np.maximum(np.abs(low), np.abs(high))
        return low - margin, high + margin

    def _whole(self, dynamics: Dynamics) -> Dynamics:
        if self.system is None:
            return dynamics
        whole = dynamics_of(self.system, dynamics.horizon)
        if whole.outputs != dynamics.outputs:
            raise AffineDPError(
                f"the system of reach has {whole.outputs} outputs, the mechanism {dynamics.outputs}"
            )
        # the outputs are called as the mechanism calls them
        return Dynamics(
            whole.A, whole.C, dynamics.horizon, whole.state_names, dynamics.output_names
        )


def _box(
    limits: tuple[ArrayLike, ArrayLike], name: str, size: int
) -> tuple[FloatArray, FloatArray]:
    try:
        low, high = (np.broadcast_to(real_array(v, name), (size,)) for v in limits)
    except (TypeError, ValueError):
        raise AffineDPError(f"{name} must be a pair (low, high) of {size} numbers each") from None
    if np.any(low > high):
        raise AffineDPError(f"{name}: the lower limit is above the upper one")
    return (low + high) / 2, (high - low) / 2


_Box = tuple[FloatArray, FloatArray]


def _constant(
    dynamics: Dynamics, B: FloatArray, start: _Box, inputs: _Box
) -> tuple[FloatArray, FloatArray]:
    """Exact interval hulls: |C A^t| around the start, Σ |C A^k B| around the inputs."""
    middle = start[0].copy()
    rows = np.array(dynamics.C)
    from_inputs = np.zeros(dynamics.outputs)
    low = np.full(dynamics.outputs, np.inf)
    high = -low
    for _ in range(dynamics.horizon):
        centre, radius = dynamics.C @ middle, np.abs(rows) @ start[1] + from_inputs
        low, high = np.minimum(low, centre - radius), np.maximum(high, centre + radius)
        from_inputs = from_inputs + np.abs(rows @ B) @ inputs[1]
        middle = dynamics.A @ middle + B @ inputs[0]
        rows = rows @ dynamics.A
        if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(middle))):
            raise AffineDPError("the plant grows beyond double precision: no limits keep it in")
    return low, high


def _varying(
    dynamics: Dynamics, B: FloatArray, start: _Box, inputs: _Box
) -> tuple[FloatArray, FloatArray]:
    """Boxes that contain the state step by step: wider than need be, never narrower."""
    middle, spread = start[0].copy(), start[1].copy()
    low = np.full(dynamics.outputs, np.inf)
    high = -low
    for t in range(dynamics.horizon):
        C = dynamics.output_matrix(t)
        centre, radius = C @ middle, np.abs(C) @ spread
        low, high = np.minimum(low, centre - radius), np.maximum(high, centre + radius)
        if t + 1 < dynamics.horizon:
            A = dynamics.state_matrix(t)
            middle = A @ middle + B @ inputs[0]
            spread = np.abs(A) @ spread + np.abs(B) @ inputs[1]
    return low, high
