"""Once, then predict: publish x(0) with noise one time, and let everyone compute the rest.

Without unknown disturbances all outputs follow from x(0) and public inputs.  Then there is nothing
to stream: the noisy x(0) is an ordinary release, and what is sent later is computed from it, by
linear dynamics or by any simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.plant import causal, shaped
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import TrajectoryAdjacency
from affinedp.strategies.trajectory import Trajectory


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
    plant: Mechanism | Callable[[Any, Any], Any],
    released: ArrayLike,
    steps: int,
    offsets: Any = None,
    *,
    output: Callable[[Any], Any] | None = None,
) -> FloatArray:
    """Return the outputs that follow from a released x(0): post-processing, free of charge.

    All that is predicted is a function of the released x(0) and of public inputs, so the promise
    is that of x(0), for every plant and horizon.  Predictions do not see disturbances: a controller
    that follows them controls the predicted plant, and how far the true one is off follows its own
    dynamics.  Another release of the state is another charge.

    Parameters
    ----------
    plant : Mechanism or callable
        What :func:`once_then_predict` was given; or, for a plant that is not linear, the next
        state from a state and an input.  Any mechanism that releases x(0) will do there.
    released : array_like
        What the mechanism released.  States that no output tells of are taken for zero.
    steps : int
        How many outputs.
    offsets : array_like, shape (steps − 1, n), optional
        The public inputs ``B u(t)``; zero by default.  For a callable the inputs that it takes,
        one per step; None by default.
    output : callable, optional
        Outputs of a state, for a callable; the state itself by default.

    Returns
    -------
    array, shape (steps, outputs)

    Examples
    --------
    >>> from affinedp.control import design_output_noise, predict
    >>> m = design_output_noise(([[0.5]], [[1.0]]), 9, 1.0, 0.01, adjacency="initial")
    >>> predict(m, [8.0], steps=3).ravel().tolist()
    [8.0, 4.0, 2.0]

    An epidemic, of which S + I + R is public:

    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["S + I + R = 100000"])
    >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
    >>> def day(x, u):
    ...     new, well = 0.3 * x[0] * x[1] / 1e5, 0.1 * x[1]
    ...     return x + [-new, new - well, well]
    >>> predict(day, m.release([99500, 500, 0]), steps=150).shape
    (150, 3)
    """
    if not isinstance(plant, Mechanism):
        return _simulated(plant, real_array(released, "released", 1), steps, offsets, output)
    strategy = _one_draw(plant)
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


def _simulated(step: Any, state: Any, steps: int, inputs: Any, output: Any) -> FloatArray:
    """Outputs of a plant that is not linear, one row per step."""
    if inputs is not None and len(inputs) < whole_number(steps, "steps") - 1:
        raise AffineDPError(f"{steps} steps need {steps - 1} inputs, not {len(inputs)}")
    found = []
    for t in range(whole_number(steps, "steps")):
        if t > 0:
            state = np.asarray(step(state, None if inputs is None else inputs[t - 1]))
        seen = state if output is None else output(state)
        found.append(np.atleast_1d(np.asarray(seen, dtype=float)))
    return np.array(found)


def _one_draw(mechanism: Mechanism) -> Trajectory:
    strategy = causal(mechanism)
    if not isinstance(strategy, Trajectory):
        raise AffineDPError("once, then predict needs noise from one draw for the whole horizon")
    return strategy
