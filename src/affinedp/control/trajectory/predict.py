"""Once, then predict: publish x(0) with noise one time, and let everyone compute the rest.

Without unknown disturbances all outputs follow from x(0) and public inputs.  Then there is nothing
to stream: the noisy x(0) is an ordinary release, and what is sent later is computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.trajectory.initial import InitialState
from affinedp.control.trajectory.neighbours import StateAdjacency
from affinedp.control.trajectory.promise import needed_coordinates
from affinedp.control.trajectory.record import OneDrawNoise
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.observability import Coordinates, output_gramian
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism, build


@dataclass(frozen=True, eq=False)
class OnceThenPredict:
    """A release of x(0), and the outputs that everyone computes from it.

    It is right only where nothing unknown moves the plant and no input was ever computed from raw
    measurements: a disturbance that is not among the inputs makes the predictions wrong (not the
    promise), and an input that follows the raw state breaks the promise.

    Attributes
    ----------
    mechanism : Mechanism
        Of x(0), or of the combinations of it that the outputs reveal.
    noise : OneDrawNoise
        The same noise as a trajectory has it.
    places : array of int
        Which entries of the predicted x(0) the released numbers are; the others are zero, and no
        output tells.

    Examples
    --------
    >>> from affinedp.control import design_output_noise, once_then_predict
    >>> room = ([[0.99]], [[1.0]])
    >>> m = design_output_noise(room, 10**6, epsilon=1.0, delta=1e-4, neighbours="initial")
    >>> once = once_then_predict(m)
    >>> released = once.mechanism.sample(1, seed=0)[0] + [20.0]     # or once.release([20.0])
    >>> once.outputs(released, 3).shape
    (3, 1)
    """

    mechanism: Mechanism = field(repr=False)
    noise: OneDrawNoise
    places: FloatArray = field(repr=False)

    def release(self, x0: ArrayLike, **options: Any) -> FloatArray:
        """Return x(0) with noise: release it once, keep it, and charge a ledger.

        Parameters
        ----------
        x0 : array_like, shape (n,)
            The first state: one recorded number for each entry.
        **options
            As for :meth:`affinedp.Mechanism.release`: ``ledger=``, ``label=``, ``bound=``.
        """
        return np.asarray(self.mechanism.release(x0, **options))

    def outputs(
        self, released: ArrayLike, steps: int, offsets: ArrayLike | None = None
    ) -> FloatArray:
        """Return the outputs that follow from a released x(0): post-processing, free of charge.

        Parameters
        ----------
        released : array_like
            What :meth:`release` returned.
        steps : int
            How many.
        offsets : array_like, shape (steps − 1, n), optional
            The public inputs ``B u(t)``; zero by default.
        """
        dynamics = self.noise.dynamics
        values = real_array(released, "released", 1)
        if values.shape != self.places.shape:
            raise AffineDPError(f"released has shape {values.shape}, not {self.places.shape}")
        if not 1 <= steps <= dynamics.horizon:
            raise AffineDPError(f"steps must lie between 1 and the horizon, not {steps}")
        pushed = np.zeros((steps - 1, dynamics.states))
        if offsets is not None:
            pushed = real_array(offsets, "offsets", 2)
        if pushed.shape != (steps - 1, dynamics.states):
            raise AffineDPError(f"offsets must have shape {(steps - 1, dynamics.states)}")
        state = np.zeros(dynamics.states)
        state[self.places] = values
        found = np.empty((steps, dynamics.outputs))
        for t in range(steps):
            found[t] = dynamics.output_matrix(t) @ state
            if t + 1 < steps:
                state = dynamics.state_matrix(t) @ state + pushed[t]
        return found


def once_then_predict(noise: OneDrawNoise) -> OnceThenPredict:
    """Return the same promise as one ordinary release of x(0), and predictions from it.

    Parameters
    ----------
    noise : TrajectoryMechanism
        From :func:`~affinedp.control.design_output_noise` with ``neighbours="initial"``.

    Returns
    -------
    OnceThenPredict

    Examples
    --------
    >>> from affinedp.control import design_output_noise, once_then_predict
    >>> m = design_output_noise(([[0.9]], [[1.0]]), 100, 1.0, 0.01, neighbours="initial")
    >>> once = once_then_predict(m)
    >>> bool(once.mechanism.guarantee.holds(1.0, 0.01))
    True
    """
    if not isinstance(noise, OneDrawNoise) or not isinstance(noise.neighbours, InitialState):
        raise AffineDPError(
            "once, then predict needs noise that was designed with neighbours='initial'"
        )
    dynamics = noise.dynamics
    coordinates: Coordinates = needed_coordinates(noise.neighbours, output_gramian(dynamics))
    n, places = dynamics.states, coordinates.places
    states = AffineManifold(np.zeros((0, n)), names=[f"{name}(0)" for name in dynamics.state_names])
    adjacency = StateAdjacency(states, noise.neighbours, noise.neighbours.mu)
    names = [f"{dynamics.state_names[place]}(0)" for place in places]
    root = noise.root if noise.points is None else noise.points
    made = build(
        adjacency, coordinates.combinations, np.eye(len(places)), root[places],
        noise.law, names, notes=noise.notes, rate=noise.rate,
    )  # fmt: skip
    return OnceThenPredict(made, noise, np.asarray(places))
