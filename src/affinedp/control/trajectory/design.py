"""The least output noise that hides a trajectory (section V of the paper)."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, real_array
from affinedp.control.trajectory.coordinates import Coordinates, output_gramian
from affinedp.control.trajectory.dynamics import Dynamics, dynamics_of
from affinedp.control.trajectory.laplace_noise import least_laplace_root
from affinedp.control.trajectory.least_noise import least_noise
from affinedp.control.trajectory.neighbours import (
    Neighbours,
    TrajectoryNeighbours,
    trajectory_neighbours,
)
from affinedp.control.trajectory.noise import IndependentOutputNoise, TrajectoryMechanism
from affinedp.control.trajectory.powers import HorizonTooLongError
from affinedp.control.trajectory.promise import (
    UncertainPromiseError,
    independent_laplace_promise,
    independent_promise,
    needed_coordinates,
    structured_promise,
)
from affinedp.designs.gaussian import floor_note, largest_sensitivity
from affinedp.designs.separate import with_floor
from affinedp.errors import AffineDPError
from affinedp.progress import Progress
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import Law

# Noise that varies by more than this over the horizon is worth a warning.
UNEVEN = 100.0


class NoiseCost(Protocol):
    """What a :class:`~affinedp.control.ClosedLoop` offers to a design."""

    def noise_cost(self, dynamics: Dynamics) -> FloatArray:
        """Return W such that noise of covariance Σ on x(0) costs ``tr(W Σ)``."""


class UnevenNoiseWarning(UserWarning):
    """Noise that is far larger at some times than at others."""


def design_output_noise(
    system: Any,
    horizon: int,
    epsilon: float,
    delta: float = 0.0,
    mu: float | ArrayLike = 1.0,
    neighbours: Neighbours = "time-local",
    cost: NoiseCost | ArrayLike | None = None,
    *,
    law: Law = "gaussian",
    tol: float = 1e-8,
) -> TrajectoryMechanism:
    """Return the least output noise that keeps (ε, δ) for the whole state trajectory.

    Theorem 3 of the paper with the Σ of least cost, or, for ``neighbours="manifold"``, Theorem 1
    with all neighbours of Definition 4.  One draw serves the whole horizon: ``γ(t) = C A^t √Σ η``.

    Parameters
    ----------
    system : StateSpace, or (A, C), (A, B, C) or (A, B, C, D)
        A discrete-time system of python-control, or its matrices, constant or one per step.
    horizon : int
        How many outputs are sent.  What happens later is not covered.
    epsilon, delta : float
        The promise to keep: ε ≥ 0 and 0 < δ < 1 for Gaussian, ε > 0 and δ = 0 for Laplace noise.
    mu : float or array_like
        How far a state entry moves: one number, one per state, or one per time and state.  Zero
        means that an entry is not private; for all times, that it is public.
    neighbours : {"time-local", "manifold"}
        Who is a neighbour: Theorem 3, or the full Definition 4, a stronger promise.
    cost : ClosedLoop or array_like, optional
        What noise costs: the tracking error of a closed loop, or a matrix W for the cost
        ``tr(W Σ)`` of noise with covariance Σ on x(0).  By default the outputs' squared error.
    law : {"gaussian", "laplace"}
        Law of η.  Laplace noise keeps ε without δ (Theorem 2), with the best basis that a local
        search finds; a gateway cannot send it.
    tol : float
        Relative gap to certify (Gaussian).

    Returns
    -------
    TrajectoryMechanism

    Examples
    --------
    A vehicle whose position is sent.  The paper protects the positions only (velocities are then
    revealed exactly); one standard deviation at all times is enough for that.

    >>> from affinedp.control import design_output_noise
    >>> vehicle = ([[1, 0.1], [0, 1]], [[1, 0]])
    >>> m = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01, mu=[1, 0])
    >>> print(m.noise_by_time[[0, 99], 0].round(4), m.guarantee.basis.split(" (")[0])
    [1.8779 1.8779] Theorem 3

    Protecting position and velocity at every time takes more, the full Definition 4 more again.

    >>> both = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01)
    >>> full = design_output_noise(vehicle, 100, 1.0, 0.01, neighbours="manifold")
    >>> [round(float((x.noise_by_time**2).mean() ** 0.5), 1) for x in (both, full)]
    [14.7, 147.2]
    """
    limit = _limit(law, epsilon, delta)
    dynamics = dynamics_of(system, horizon)
    tolerance = float(real_array(tol, "tol", 0))
    if not 1e-14 <= tolerance < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-14 and less than 1, not {tol}")
    chosen = trajectory_neighbours(dynamics, mu, neighbours)
    try:
        return _designed(chosen, limit, cost, tolerance, law)
    except (UncertainPromiseError, HorizonTooLongError) as error:
        works = _longest_horizon(chosen, limit, cost, tolerance, law)
        if works is None:
            raise
        reason = str(error).partition(" A horizon of up to")[0].rstrip(".")
        raise HorizonTooLongError(f"{reason}. A horizon of up to {works:,} works", works) from None


def independent_output_noise(
    system: Any,
    horizon: int,
    epsilon: float,
    delta: float = 0.0,
    mu: float | ArrayLike = 1.0,
    neighbours: Neighbours = "time-local",
    *,
    law: Law = "gaussian",
) -> IndependentOutputNoise:
    """Return fresh noise at every step that truly keeps (ε, δ): the honest baseline.

    The paper compares with it in section V.C (r = T); its promise is that of Theorem 1.

    Parameters
    ----------
    system, horizon, epsilon, delta, mu, neighbours, law
        As for :func:`design_output_noise`.

    Returns
    -------
    IndependentOutputNoise

    Examples
    --------
    A state that does not change is averaged over the horizon, so that √100 times as much noise
    is needed as for one measurement.

    >>> from affinedp.control import independent_output_noise
    >>> noise = independent_output_noise(([[1]], [[1]]), 100, epsilon=1.0, delta=0.01)
    >>> round(float(noise.sigma[0]), 4)
    18.7788
    """
    limit = _limit(law, epsilon, delta)
    dynamics = dynamics_of(system, horizon)
    chosen = trajectory_neighbours(dynamics, mu, neighbours)
    promise = independent_promise if law == "gaussian" else independent_laplace_promise
    sigma = promise(chosen, 1.0).sensitivity / limit * (1 + 1e-14)
    guarantee = promise(chosen, sigma)
    return IndependentOutputNoise(chosen, guarantee, np.full(dynamics.outputs, sigma))


def _limit(law: str, epsilon: float, delta: float) -> float:
    """The largest sensitivity that keeps the promise."""
    if law == "gaussian":
        return largest_sensitivity(epsilon, delta)
    if law != "laplace":
        raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    if delta != 0.0:
        raise AffineDPError("Laplace noise is designed for δ = 0; delta must be 0")
    limit = float(real_array(epsilon, "epsilon", 0))
    if limit <= 0:
        raise AffineDPError(f"epsilon must be positive for Laplace noise, not {epsilon!r}")
    return limit


def _designed(
    neighbours: TrajectoryNeighbours, limit: float, cost: Any, tol: float, law: Law
) -> TrajectoryMechanism:
    dynamics = neighbours.dynamics
    gramian = output_gramian(dynamics)
    coordinates = needed_coordinates(neighbours, gramian)
    differences = neighbours.directions()
    places = coordinates.places
    lengths = np.abs(differences[:, places]).max(axis=0)
    weight, floor = with_floor(_weight(cost, dynamics, gramian)[np.ix_(places, places)], lengths)
    notes: tuple[str, ...] = (floor_note(floor),) if floor else ()
    gap = None
    if law == "laplace":
        square, note = least_laplace_root(differences, coordinates.combinations, weight, limit)
        notes += (note,)
    else:
        with Progress("least noise") as progress:
            best = least_noise(
                differences, coordinates.combinations, weight, limit, tol,
                lambda gap: progress.update(0.5, f"(gap {gap:.0e})"),
            )  # fmt: skip
        square, gap = best.root, best.gap
    chosen, guarantee = _at_the_limit(neighbours, coordinates, square, limit, law)
    root = np.zeros((dynamics.states, len(chosen)))
    root[coordinates.places] = chosen
    return _with_notes(TrajectoryMechanism(neighbours, guarantee, root, gap, notes))


def _weight(cost: Any, dynamics: Dynamics, gramian: FloatArray) -> FloatArray:
    if cost is None:
        return gramian
    weight = cost.noise_cost(dynamics) if hasattr(cost, "noise_cost") else cost
    matrix = real_array(weight, "cost", 2)
    n = dynamics.states
    if matrix.shape != (n, n) or np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
        raise AffineDPError(
            f"cost must be a ClosedLoop or a symmetric {n}×{n} matrix, not {matrix.shape}"
        )
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 0.0):
        raise AffineDPError(f"cost must be positive semidefinite (eigenvalue {values[0]:.2g})")
    return (matrix + matrix.T) / 2


def _at_the_limit(
    neighbours: TrajectoryNeighbours,
    coordinates: Coordinates,
    square: FloatArray,
    limit: float,
    law: Law,
) -> tuple[FloatArray, Guarantee]:
    """Scale the noise so that its sensitivity, computed anew, is at most and nearly the limit."""
    for _ in range(4):
        guarantee = structured_promise(neighbours, coordinates, square, law)
        if limit * (1 - 1e-9) <= guarantee.sensitivity <= limit:
            return square, guarantee
        square = square * (guarantee.sensitivity / limit * (1 + 4e-15))
    if guarantee.sensitivity <= limit:
        return square, guarantee
    raise UncertainPromiseError("the noise could not be scaled to the promise")


def _with_notes(mechanism: TrajectoryMechanism) -> TrajectoryMechanism:
    """Say so, and warn, where the noise is very uneven over time."""
    from dataclasses import replace

    size = np.linalg.norm(mechanism.noise_by_time, axis=1)
    wanted = mechanism.neighbours.mu.max(axis=1)
    relative = size[wanted > 0] / wanted[wanted > 0]
    if not relative.max() > UNEVEN * np.median(relative[relative > 0]):
        return mechanism
    peak, last = int(size.argmax()), mechanism.horizon - 1
    note = (
        f"the noise is uneven over time: standard deviation {size[0]:.3g} at t = 0, "
        f"{size[last]:.3g} at t = {last}, {size[peak]:.3g} at most (t = {peak}). Dynamics that "
        "contract make late states cost much noise early: let mu decrease with time if late "
        "states matter less"
    )
    warnings.warn(note, UnevenNoiseWarning, stacklevel=4)
    return replace(mechanism, notes=(*mechanism.notes, note))


def _longest_horizon(
    neighbours: TrajectoryNeighbours, limit: float, cost: Any, tol: float, law: Law
) -> int | None:
    """The longest horizon for which a design succeeds, by bisection; None if there is none."""
    low, high = 0, neighbours.dynamics.horizon
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnevenNoiseWarning)
        while high - low > 1:
            middle = (low + high) // 2
            shorter = trajectory_neighbours(
                neighbours.dynamics.shortened(middle), neighbours.mu[:middle], neighbours.kind
            )
            try:
                _designed(shorter, limit, cost, tol, law)
                low = middle
            except AffineDPError:
                high = middle
    return low or None
