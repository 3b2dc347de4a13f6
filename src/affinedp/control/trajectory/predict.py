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
from affinedp.control.by_time import causal
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import TrajectoryAdjacency
from affinedp.strategies.trajectory import Trajectory


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
    dynamics : Dynamics
        What the outputs follow by.
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
    dynamics: Dynamics
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
        dynamics = self.dynamics
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


def once_then_predict(mechanism: Mechanism) -> OnceThenPredict:
    """Return the same promise as one ordinary release of x(0), and predictions from it.

    Parameters
    ----------
    mechanism : Mechanism
        Of one draw, from :func:`~affinedp.control.design_output_noise` or
        :func:`~affinedp.control.verify_output_noise`.

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
    strategy, adjacency = causal(mechanism), mechanism.adjacency
    if not isinstance(strategy, Trajectory) or not isinstance(adjacency, TrajectoryAdjacency):
        raise AffineDPError("once, then predict needs noise from one draw for the whole horizon")
    dense, about = strategy.on_first_state(adjacency, mechanism.noise)
    made = Mechanism(about, dense, mechanism.noise).with_design(notes=mechanism.notes)
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return OnceThenPredict(made, mechanism.domain, np.asarray(strategy.revealed.places))
