"""Output noise for state trajectories: which promise decides which noise."""

from __future__ import annotations

import math
from typing import Any, Literal

from numpy.typing import ArrayLike

from affinedp.control.stationary.design import NoiseResponse, designed
from affinedp.control.trajectory.design import NoiseCost, design_trajectory_noise
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.domains.dynamics import checked_horizon
from affinedp.errors import AffineDPError
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Distances
from affinedp.neighbours.inputs import forward_states
from affinedp.neighbours.trajectory import Neighbours


def design_output_noise(
    system: Any,
    horizon: float,
    epsilon: float,
    delta: float = 0.0,
    mu: Distances = 1.0,
    neighbours: Neighbours | Literal["forward"] = "time-local",
    cost: NoiseCost | NoiseResponse | ArrayLike | None = None,
    *,
    law: LawName | Literal["auto"] = "gaussian",
    tol: float = 1e-8,
) -> Mechanism:
    """Return the least output noise that keeps (ε, δ) for the state trajectory.

    By default Theorem 3 of the paper with the Σ of least cost: one draw serves the whole horizon,
    ``γ(t) = C A^t √Σ η``.  Neighbours share all inputs and disturbances: those are not hidden.  For
    inputs, loads and occupancy see :func:`~affinedp.control.design_input_noise`.

    Parameters
    ----------
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D)
        A discrete-time system of python-control, or its matrices, constant or one per step.
    horizon : int or inf
        How many outputs are sent.  What happens later is not covered.  ``math.inf`` is for
        ``"initial"`` neighbours of a stable plant, and for ``"forward"`` ones.
    epsilon, delta : float
        The promise to keep: ε ≥ 0 and 0 < δ < 1 for Gaussian, ε > 0 and δ = 0 for other noise.
    mu : float, array_like or mapping
        How far a state entry moves: one number, one per state (or by its name), or one per time and
        state.  Zero means that an entry is not private; for all times, that it is public.
    neighbours : {"time-local", "manifold", "initial", "forward"}
        Who is a neighbour.  ``"time-local"``: Theorem 3, a state entry at any time differs, and
        past and future with it.  ``"manifold"``: the full Definition 4, a stronger promise.
        ``"initial"``: x(0) alone differs, and the future with it.  ``"forward"``: a state entry
        jumps at any time and the future follows, for all time; fresh noise at every step.
    cost : ClosedLoop or array_like, optional
        What noise costs: the tracking error of a closed loop, or a matrix W for the cost
        ``tr(W Σ)`` of noise with covariance Σ on x(0) (for ``"forward"``: weights of the
        outputs).  By default the outputs' squared error.
    law : {"gaussian", "laplace", "knorm", "auto"}
        Law of the draw.  Laplace and K-norm noise keep ε without δ, with the best basis or body
        that a local search finds.  ``"auto"`` takes the law of least cost; the notes say by how
        much.
    tol : float
        Relative gap to certify (Gaussian).

    Returns
    -------
    Mechanism

    Examples
    --------
    A vehicle whose position is sent.  The paper protects the positions only (velocities are then
    revealed exactly); one standard deviation at all times is enough for that.

    >>> from affinedp.control import design_output_noise, noise_by_time, stationary_variance
    >>> vehicle = ([[1, 0.1], [0, 1]], [[1, 0]])
    >>> m = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01, mu=[1, 0])
    >>> noise_by_time(m)[[0, 99], 0].round(4).tolist()
    [1.8779, 1.8779]

    Protecting position and velocity at every time takes more, the full Definition 4 more again.

    >>> both = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01)
    >>> full = design_output_noise(vehicle, 100, 1.0, 0.01, neighbours="manifold")
    >>> [round(float((noise_by_time(x) ** 2).mean() ** 0.5), 1) for x in (both, full)]
    [14.7, 147.2]

    Without any δ, and with less noise than Gaussian noise needs for δ = 0.01.

    >>> pure = design_output_noise(vehicle, 100, epsilon=1.0, mu=[1, 0.1], law="knorm")
    >>> both = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01, mu=[1, 0.1])
    >>> round(both.expected_squared_error / pure.expected_squared_error, 2)
    1.49

    A room that forgets its first temperature, for all time.

    >>> import math
    >>> room = ([[0.99]], [[1]])
    >>> m = design_output_noise(room, math.inf, 1.0, 0.01, neighbours="initial")
    >>> noise_by_time(m, 101)[[0, 100]].round(3).ravel().tolist()
    [1.878, 0.687]

    A jump of its temperature at any time, whose past does not follow.

    >>> m = design_output_noise(room, math.inf, 1.0, 0.01, neighbours="forward")
    >>> (stationary_variance(m) ** 0.5).round(2).tolist()
    [4.01]
    """
    if neighbours != "forward":
        one_draw: Any = cost
        return design_trajectory_noise(
            system, horizon, epsilon, delta, mu, neighbours, one_draw, law=law, tol=tol
        )
    if law != "gaussian":
        raise AffineDPError("noise for forward neighbours is Gaussian: law must be 'gaussian'")
    endless = isinstance(horizon, float) and horizon == math.inf
    steps = None if endless else checked_horizon(horizon)
    limit = largest_sensitivity(epsilon, delta)
    return designed(forward_states(system, mu, steps), limit, cost).keeping(epsilon, delta)
