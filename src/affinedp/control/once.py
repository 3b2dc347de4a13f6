"""Once, then predict: publish x(0) with noise one time, and let everyone compute the rest.

Without unknown disturbances all outputs follow from x(0) and public inputs.  Then there is nothing
to stream: the noisy x(0) is an ordinary release, and what is sent later is computed from it, by
linear dynamics or by any simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.checks import causal, shaped, whole_number
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import TrajectoryAdjacency
from affinedp.strategies.trajectory import Trajectory

WARNINGS = (
    "predictions do not see disturbances: what moves the plant and is not among the inputs is "
    "missing in them",
    "a controller that follows predictions controls the predicted plant: how far the true one is "
    "off follows its own dynamics, and nothing that is sent can reduce it",
    "releasing the state again is another release, and another charge",
)


@dataclass(frozen=True, eq=False)
class Simulator:
    """A plant that is not linear, for predictions from a released x(0).

    All that is predicted is a function of the released x(0) and of public inputs, so the promise
    is that of x(0), for every plant and horizon.  Any mechanism that releases x(0) will do, with
    the equations of the state among its equations.

    Attributes
    ----------
    step : callable
        The next state from a state and an input.
    output : callable or None
        Outputs of a state; the state itself if left out.
    warnings : tuple of str
        What predictions cannot do: read them before a controller acts on predictions.

    Examples
    --------
    An epidemic, of which S + I + R is public:

    >>> import affinedp as adp
    >>> from affinedp.control import Simulator, predict
    >>> M = adp.AffineManifold.from_equations(["S + I + R = 100000"])
    >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    >>> def day(x, u):
    ...     new, well = 0.3 * x[0] * x[1] / 1e5, 0.1 * x[1]
    ...     return x + [-new, new - well, well]
    >>> predict(Simulator(day), m.release([99500, 500, 0]), steps=150).shape
    (150, 3)
    """

    step: Callable[[Any, Any], Any]
    output: Callable[[Any], Any] | None = None
    warnings: tuple[str, ...] = field(default=WARNINGS, repr=False)

    def _run(self, state: Any, steps: int, inputs: Any) -> FloatArray:
        """Outputs, one row per step."""
        if inputs is not None and len(inputs) < steps - 1:
            raise AffineDPError(f"{steps} steps need {steps - 1} inputs, not {len(inputs)}")
        found = []
        for t in range(steps):
            if t > 0:
                state = np.asarray(self.step(state, None if inputs is None else inputs[t - 1]))
            seen = state if self.output is None else self.output(state)
            found.append(np.atleast_1d(np.asarray(seen, dtype=float)))
        return np.array(found)


def once_then_predict(mechanism: Mechanism) -> Mechanism:
    """Return the same promise as one ordinary release of x(0), from which everyone predicts.

    It is right only where nothing unknown moves the plant and no input was ever computed from raw
    measurements: a disturbance that is not among the inputs makes the predictions wrong (not the
    promise), and an input that follows the raw state breaks the promise.

    Parameters
    ----------
    mechanism : Mechanism
        Of one draw, from :func:`~affinedp.control.design_output_noise` or
        :func:`~affinedp.control.verify_output_noise`.

    Returns
    -------
    Mechanism
        Of x(0), or of the combinations of it that the outputs reveal.

    Examples
    --------
    >>> from affinedp.control import design_output_noise, once_then_predict, predict
    >>> room = ([[0.99]], [[1.0]])
    >>> m = design_output_noise(room, 10**6, epsilon=1.0, delta=1e-4, adjacency="initial")
    >>> once = once_then_predict(m)
    >>> bool(once.guarantee.holds(1.0, 1e-4))
    True
    >>> predict(m, once.release([20.0]), steps=3).shape
    (3, 1)
    """
    strategy, adjacency = _one_draw(mechanism), mechanism.adjacency
    assert isinstance(adjacency, TrajectoryAdjacency)
    dense, about = strategy.on_first_state(adjacency, mechanism.noise)
    made = Mechanism(about, dense, mechanism.noise).with_design(notes=mechanism.notes)
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made


def predict(
    mechanism: Mechanism | Simulator, released: ArrayLike, steps: int, offsets: Any = None
) -> FloatArray:
    """Return the outputs that follow from a released x(0): post-processing, free of charge.

    Parameters
    ----------
    mechanism : Mechanism or Simulator
        What :func:`once_then_predict` was given; or a plant that is not linear.
    released : array_like
        What its mechanism released.  States that no output tells of are taken for zero.
    steps : int
        How many outputs.
    offsets : array_like, shape (steps − 1, n), optional
        The public inputs ``B u(t)``; zero by default.  For a simulator the inputs that its
        ``step`` takes, one per step; None by default.

    Returns
    -------
    array, shape (steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise, predict
    >>> m = design_output_noise(([[0.5]], [[1.0]]), 9, 1.0, 0.01, adjacency="initial")
    >>> predict(m, [8.0], steps=3).ravel().tolist()
    [8.0, 4.0, 2.0]
    """
    if isinstance(mechanism, Simulator):
        state = real_array(released, "released", 1)
        return mechanism._run(state, whole_number(steps, "steps"), offsets)
    strategy = _one_draw(mechanism)
    dynamics, places = strategy.domain, strategy.revealed.places
    values = shaped(released, (len(places),), "released")
    if whole_number(steps, "steps") > dynamics.horizon:
        raise AffineDPError(f"steps must lie between 1 and the horizon, not {steps}")
    pushed = np.zeros((steps - 1, dynamics.states))
    if offsets is not None:
        pushed = shaped(offsets, pushed.shape, "offsets")
    state = np.zeros(dynamics.states)
    state[places] = values
    found = np.empty((steps, dynamics.outputs))
    for t in range(steps):
        found[t] = dynamics.output_matrix(t) @ state
        if t + 1 < steps:
            state = dynamics.state_matrix(t) @ state + pushed[t]
    return found


def _one_draw(mechanism: Mechanism) -> Trajectory:
    strategy = causal(mechanism)
    if not isinstance(strategy, Trajectory):
        raise AffineDPError("once, then predict needs noise from one draw for the whole horizon")
    return strategy
