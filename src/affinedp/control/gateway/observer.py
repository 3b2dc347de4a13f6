"""Shares for those who look at a gateway's outputs through an observer.

An observer with a fixed gain, started from a public state, is a linear causal function of what was
sent: post-processing, wherever it runs.  It averages fresh noise away and lets through what the
plant does.  So the shares that are best for its output have more fresh and less correlated noise
than those for the outputs themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.sensors.sensor import Resolution, sensor_of
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

MOST_STEPS = 100_000


@dataclass(frozen=True, eq=False)
class ObserverShares:
    """What an observer makes of a gateway's noise.

    Attributes
    ----------
    fresh_noise : array, shape (m,)
        What to give a :class:`~affinedp.control.Gateway` as ``fresh_noise``.
    noise : float
        Root mean square of the noise in the observer's outputs, over steps and outputs.
    raw_noise : float
        The same in the readings as they are sent, with the shares that are best for those.
    """

    fresh_noise: FloatArray
    noise: float
    raw_noise: float

    def useful(self, without: float, tracking: float = 0.0) -> bool:
        """Whether readings help: the observer's error is less than that of sending nothing.

        Parameters
        ----------
        without : float
            Root mean square error of a prediction without any readings.
        tracking : float
            Root mean square error of the observer without noise.
        """
        return math.hypot(self.noise, tracking) < without


def observer_shares(
    mechanism: TrajectoryMechanism, resolution: Resolution | str, gain: ArrayLike
) -> ObserverShares:
    """Return the shares that are best for the output of an observer.

    It computes ``x̂ ← A x̂ + B u`` and then ``x̂ ← x̂ + L (ŷ − C x̂)``, and shows ``C x̂``.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        The noise, for dynamics that do not change with time.
    resolution : float, array_like or Dither
        As for :class:`~affinedp.control.Gateway`.
    gain : array_like, shape (n, m)
        L.

    Examples
    --------
    >>> from affinedp.control import design_output_noise, observer_shares
    >>> m = design_output_noise(([[0.99]], [[1]]), 96, 1.0, 1e-4, neighbours="initial")
    >>> found = observer_shares(m, 0.1, [[0.05]])
    >>> found.noise < found.raw_noise, found.useful(without=0.3)
    (True, False)
    """
    dynamics = mechanism.dynamics
    L = real_array(gain, "gain", 2)
    if dynamics.time_varying or dynamics.horizon > MOST_STEPS:
        raise AffineDPError(f"the dynamics must be constant, over at most {MOST_STEPS:,} steps")
    if L.shape != (dynamics.states, dynamics.outputs):
        raise AffineDPError(f"gain has shape {L.shape}, not {(dynamics.states, dynamics.outputs)}")
    deviation = sensor_of(dynamics.output_names, resolution).deviation()
    if deviation is None:
        raise AffineDPError("exact readings need no shares")
    weights, own = _filtered(mechanism, L)
    s, T = mechanism.guarantee.sensitivity, dynamics.horizon
    reach = s * math.sqrt(own) + T * float((2 * deviation * weights).sum())
    fresh = np.sqrt(2 * deviation * reach / np.maximum(weights, 1e-9 * weights.max())) / s
    raw = s * math.sqrt(mechanism.expected_squared_error) + T * float((2 * deviation).sum())
    count = math.sqrt(T * dynamics.outputs) * s
    return ObserverShares(np.asarray(fresh), reach / count, raw / count)


def _filtered(mechanism: TrajectoryMechanism, gain: FloatArray) -> tuple[FloatArray, float]:
    """What the observer leaves of fresh noise on each output (rms), and of the correlated noise."""
    dynamics = mechanism.dynamics
    A, C, T = dynamics.A, dynamics.C, dynamics.horizon
    kept = A - gain @ C @ A
    response, state = C @ gain, gain
    energy = np.zeros((T, dynamics.outputs))  # of fresh noise k steps before the end
    estimate, loading = np.zeros_like(mechanism.root), mechanism.root
    own = 0.0
    for t in range(T):
        energy[t] = (response**2).sum(axis=0)
        state = kept @ state
        response = C @ state
        predicted = A @ estimate if t else estimate
        estimate = predicted + gain @ (C @ loading - C @ predicted)
        own += float(((C @ estimate) ** 2).sum())
        loading = A @ loading
    # a reading at step t is seen by the T − t steps that follow
    weights = np.sqrt(np.cumsum(energy, axis=0).mean(axis=0))
    return np.asarray(weights), own
