"""Once, then predict, for sensors with steps: a few readings, one noisy x(0), and predictions.

Without unknown disturbances all outputs follow from x(0) and public inputs.  The first L readings
go through a gateway whose outputs stay inside, and only the estimate ``x̂(0) = O_L⁺ ŷ`` leaves it:
post-processing, so the gateway's promise covers it and every prediction from it.  Rounding errors
are hidden where they enter, with fresh noise of its own for each reading: with m_j the columns of
``O_L⁺`` and O the outputs of all T steps, the least total variance is

    (c₀ + Σ_j E_j ‖O m_j‖)² / s²     at     τ_j² = E_j (c₀ + Σ E ‖O m‖) / (s² ‖O m_j‖),

instead of ``(c₀ + T Σ_i E_i)²/s²`` for sending every reading: L enters, and T does not.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.gateway.gateway import Gateway
from affinedp.control.sensors.sensor import Resolution, Sensor, sensor_of
from affinedp.control.trajectory.coordinates import output_gramian
from affinedp.control.trajectory.dynamics import Dynamics
from affinedp.control.trajectory.initial import InitialState
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.control.trajectory.promise import promise_of_root
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

# Readings times outputs that are estimated from at once.
MOST_READINGS = 5000
# A direction of x(0) that the readings show less than this, relative to the most, is not seen.
SEEN = 1e-9


class PredictOnce:
    """Reads a few measurements, publishes one noisy x(0), and predicts.

    It is right only where nothing unknown moves the plant (otherwise predictions are wrong, not
    the promise), where the inputs during the first L steps do not depend on readings, and
    where nothing else is sent before.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        From :func:`~affinedp.control.design_output_noise` with ``neighbours="initial"``.
    readings : int
        L, how many steps are read; they must determine x(0).
    state : str or Path
        As for :class:`~affinedp.control.Gateway`.
    resolution : float, array_like, Dither, or "exact"
        As for :class:`~affinedp.control.Gateway`.
    measurement_error : float or array_like, optional
        As for :class:`~affinedp.control.Gateway`.
    **options
        ``ledger``, ``label``, ``redraw``, ``moved`` of :class:`~affinedp.control.Gateway`.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.control import PredictOnce, design_output_noise
    >>> m = design_output_noise(([[0.99]], [[1]]), 96, 1.0, 1e-4, neighbours="initial")
    >>> folder = tempfile.TemporaryDirectory()
    >>> with PredictOnce(m, readings=1, state=f"{folder.name}/s", resolution=0.1) as once:
    ...     x0 = once.send([[20.3]])                       # publish this, and nothing else
    ...     print(round(once.cost, 2), once.outputs(x0, 96).shape)
    1.21 (96, 1)
    """

    def __init__(
        self,
        mechanism: TrajectoryMechanism,
        *,
        readings: int,
        state: str | os.PathLike[str],
        resolution: Resolution | str,
        measurement_error: ArrayLike | None = None,
        **options: Any,
    ) -> None:
        dynamics = _checked(mechanism, readings)
        self._mechanism = mechanism
        self._readings = readings
        seen = _outputs(dynamics, readings)
        self._estimator = _estimator(seen)
        sensor = sensor_of(dynamics.output_names, resolution, measurement_error)
        weights = _weights(mechanism, self._estimator)
        own = math.sqrt(mechanism.expected_squared_error) * mechanism.guarantee.sensitivity
        fresh = _fresh_noise(sensor, readings, weights, own, mechanism.guarantee.sensitivity)
        self._gateway = Gateway(
            _lifted(mechanism, seen),
            state=state,
            resolution="exact" if sensor.exact else list(np.tile(sensor.steps, readings)),
            measurement_error=None if not sensor.errors else np.tile(sensor.errors, readings),
            fresh_noise=fresh,
            **options,
        )
        factor = self._gateway.noise_factor
        added = float((self._gateway.fresh_noise**2 * weights**2).sum())
        self._cost = factor**2 + added / mechanism.expected_squared_error

    @property
    def cost(self) -> float:
        """Total variance of all predictions, relative to the mechanism's own noise.

        The error of the estimate from rounding alone, at most half of the steps' part, is not
        in it.
        """
        return self._cost

    @property
    def gateway(self) -> Gateway:
        """What adds the noise; its guarantee is that of everything predicted."""
        return self._gateway

    def send(self, readings: ArrayLike, offsets: ArrayLike | None = None) -> FloatArray:
        """Return the noisy x(0) to publish; the same again if it is asked for again.

        Parameters
        ----------
        readings : array_like, shape (L, m)
            The first measurements.  Secret.
        offsets : array_like, shape (L − 1, n), optional
            The public inputs ``B u(t)`` in between; zero by default.
        """
        outputs = self._mechanism.outputs
        values = real_array(readings, "readings", 2)
        if values.shape != (self._readings, outputs):
            raise AffineDPError(
                f"readings have shape {values.shape}, not {(self._readings, outputs)}"
            )
        sent = self._gateway.send(values.ravel(), 0)
        public = self.outputs(np.zeros(self._mechanism.states), self._readings, offsets)
        return np.asarray(self._estimator @ (sent - public.ravel()))

    def outputs(self, x0: ArrayLike, steps: int, offsets: ArrayLike | None = None) -> FloatArray:
        """Return the outputs that follow from a published x(0), shape (steps, m).

        Parameters
        ----------
        x0 : array_like, shape (n,)
            What :meth:`send` returned.
        steps : int
            How many, at most the horizon.
        offsets : array_like, shape (steps − 1, n), optional
            The public inputs ``B u(t)``; zero by default.
        """
        dynamics = self._mechanism.dynamics
        if not 1 <= steps <= dynamics.horizon:
            raise AffineDPError(f"steps must lie between 1 and the horizon, not {steps}")
        pushed = np.zeros((steps - 1, dynamics.states))
        if offsets is not None:
            pushed = real_array(offsets, "offsets", 2)
        if pushed.shape != (steps - 1, dynamics.states):
            raise AffineDPError(f"offsets must have shape {(steps - 1, dynamics.states)}")
        x = real_array(x0, "x0", 1)
        found = np.empty((steps, dynamics.outputs))
        for t in range(steps):
            found[t] = dynamics.output_matrix(t) @ x
            if t + 1 < steps:
                x = dynamics.state_matrix(t) @ x + pushed[t]
        return found

    def close(self) -> None:
        """Close the state."""
        self._gateway.close()

    def __enter__(self) -> PredictOnce:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(mechanism: Any, readings: int) -> Dynamics:
    if not isinstance(mechanism, TrajectoryMechanism) or not isinstance(
        mechanism.neighbours, InitialState
    ):
        raise AffineDPError(
            "once, then predict needs noise that was designed with neighbours='initial'"
        )
    dynamics = mechanism.dynamics
    if type(readings) is not int or not 1 <= readings <= dynamics.horizon:
        raise AffineDPError(f"readings must be a whole number up to the horizon, not {readings!r}")
    if readings * dynamics.outputs > MOST_READINGS:
        raise AffineDPError(f"at most {MOST_READINGS} numbers are estimated from: read fewer steps")
    return dynamics


def _outputs(dynamics: Dynamics, steps: int) -> FloatArray:
    """O_L, shape (L m, n)."""
    rows, product = [], np.eye(dynamics.states)
    for t in range(steps):
        rows.append(dynamics.output_matrix(t) @ product)
        if t + 1 < steps:
            product = dynamics.state_matrix(t) @ product
    return np.vstack(rows)


def _estimator(seen: FloatArray) -> FloatArray:
    """O_L⁺, shape (n, L m)."""
    sizes = np.linalg.svd(seen, compute_uv=False)
    if len(sizes) < seen.shape[1] or sizes[-1] <= SEEN * sizes[0]:
        raise AffineDPError("these readings do not determine x(0): read more steps")
    return np.asarray(np.linalg.pinv(seen))


def _weights(mechanism: TrajectoryMechanism, estimator: FloatArray) -> FloatArray:
    """‖O m_j‖ over the whole horizon, by the gramian of the outputs."""
    gramian = output_gramian(mechanism.dynamics)
    squares = np.einsum("ij,ik,kj->j", estimator, gramian, estimator)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _fresh_noise(
    sensor: Sensor, readings: int, weights: FloatArray, own: float, sensitivity: float
) -> FloatArray | None:
    deviation = sensor.deviation()
    if deviation is None:
        return None
    differences = 2 * np.tile(deviation, readings)
    reach = own + float((differences * weights).sum())
    least = weights.max() * 1e-6  # a reading that hardly counts gets a finite share
    return np.asarray(np.sqrt(differences * reach / np.maximum(weights, least)) / sensitivity)


def _lifted(mechanism: TrajectoryMechanism, seen: FloatArray) -> TrajectoryMechanism:
    """The same noise on x(0), for all readings as the outputs of a single step."""
    dynamics = mechanism.dynamics
    count = len(seen) // dynamics.outputs
    names = tuple(f"{name}({t})" for t in range(count) for name in dynamics.output_names)
    single = Dynamics(np.eye(dynamics.states), seen, 1, dynamics.state_names, names)
    neighbours = InitialState(single, mechanism.neighbours.mu)
    guarantee = promise_of_root(neighbours, mechanism.root)
    stated = replace(guarantee, neighbours=mechanism.guarantee.neighbours)
    return TrajectoryMechanism(neighbours, stated, mechanism.root, None, mechanism.notes)
