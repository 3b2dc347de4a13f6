"""The least output noise that hides a trajectory (section V of the paper)."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.control.by_time import noise_by_time
from affinedp.control.trajectory.choose import trajectory_neighbours
from affinedp.control.trajectory.knorm_noise import least_body
from affinedp.control.trajectory.laplace_noise import least_laplace_root
from affinedp.control.trajectory.least_noise import least_noise
from affinedp.control.trajectory.lower_bound import with_lower_bound
from affinedp.control.trajectory.too_long import longest_that_works, too_long
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.separate import floor_note, with_floor
from affinedp.domains.dynamics import ENDLESS, Dynamics, dynamics_of
from affinedp.domains.observability import Coordinates, output_gramian, revealed_coordinates
from affinedp.domains.powers import HorizonTooLongError
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.hull import TooLargeBodyError
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Laplace
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Distances
from affinedp.neighbours.trajectory import InitialState, Neighbours, TrajectoryAdjacency
from affinedp.progress import Progress
from affinedp.strategies.trajectory import Fresh, Trajectory, UncertainPromiseError

__all__ = [
    "Dynamics",
    "GapWarning",
    "UnevenNoiseWarning",
    "design_trajectory_noise",
    "dynamics_of",
    "independent_output_noise",
]

# Noise that varies by more than this over the horizon is worth a warning.
UNEVEN = 100.0
# So is a certified gap of more than this.
FAR_FROM_LEAST = 1e-3
# Costs that are equal up to rounding, and noise that is scaled by hardly anything.
SAME = 1e-9
SCALED = 1e-8


class NoiseCost(Protocol):
    """What a :class:`~affinedp.control.ClosedLoop` offers to a design."""

    def noise_cost(self, dynamics: Dynamics) -> FloatArray:
        """Return W such that noise of covariance Σ on x(0) costs ``tr(W Σ)``."""


class UnevenNoiseWarning(UserWarning):
    """Noise that is far larger at some times than at others."""


class GapWarning(UserWarning):
    """Noise that is not certified to be nearly the least."""


def design_trajectory_noise(
    system: Any,
    horizon: float,
    epsilon: float,
    delta: float = 0.0,
    mu: Distances = 1.0,
    neighbours: Neighbours = "time-local",
    cost: NoiseCost | ArrayLike | None = None,
    *,
    law: LawName | Literal["auto"] = "gaussian",
    tol: float = 1e-8,
) -> Mechanism:
    """Return the least noise with one draw for the whole horizon that keeps (ε, δ).

    :func:`~affinedp.control.design_output_noise` is what people call.

    Parameters
    ----------
    system, horizon, epsilon, delta, mu, neighbours, cost, law, tol
        As there, except for ``neighbours="forward"``.
    """
    if law == "auto":
        best = _least_of_laws(system, horizon, epsilon, delta, mu, neighbours, cost, tol)
        return best.keeping(epsilon, delta)
    limit = _limit(law, epsilon, delta)
    dynamics = _dynamics(system, horizon, neighbours)
    tolerance = float(real_array(tol, "tol", 0))
    if not 1e-14 <= tolerance < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-14 and less than 1, not {tol}")
    chosen = trajectory_neighbours(dynamics, mu, neighbours)
    try:
        found = _designed(chosen, limit, cost, tolerance, law).keeping(epsilon, delta)
        return with_lower_bound(found, cost, epsilon, delta)
    except (UncertainPromiseError, HorizonTooLongError) as error:
        works = longest_that_works(
            chosen, lambda shorter: _designed(shorter, limit, cost, tolerance, law)
        )
        if works is None:
            raise
        raise too_long(chosen, works, error) from None


def _dynamics(system: Any, horizon: float, neighbours: str) -> Dynamics:
    """The dynamics over a horizon, or for all time."""
    if not (isinstance(horizon, float) and horizon == math.inf):
        return dynamics_of(system, horizon)  # type: ignore[arg-type]
    if neighbours != "initial":
        raise AffineDPError(
            f"neighbours={neighbours!r} needs a horizon: late states cost noise at all times. Use "
            "neighbours='initial' or 'forward' for all time"
        )
    first = dynamics_of(system, 1)
    if first.time_varying:
        raise AffineDPError("an endless horizon needs matrices that do not change over time")
    radius = float(np.abs(np.linalg.eigvals(first.A)).max())
    if radius >= 1.0:
        raise AffineDPError(
            f"an endless horizon needs a stable plant, but this one has spectral radius "
            f"{radius:.6g}: noise on x(0) would grow, or never fade. Give a horizon"
        )
    return replace(first, horizon=ENDLESS)


def independent_output_noise(
    system: Any,
    horizon: int,
    epsilon: float,
    delta: float = 0.0,
    mu: Distances = 1.0,
    neighbours: Neighbours = "time-local",
    *,
    law: LawName = "gaussian",
) -> Mechanism:
    """Return fresh noise at every step that truly keeps (ε, δ): the honest baseline.

    The paper compares with it in section V.C (r = T); its promise is that of Theorem 1.

    Parameters
    ----------
    system, horizon, epsilon, delta, mu, neighbours, law
        As for :func:`~affinedp.control.design_output_noise`.

    Returns
    -------
    Mechanism

    Examples
    --------
    A state that does not change is averaged over the horizon, so that √100 times as much noise
    is needed as for one measurement.

    >>> from affinedp.control import independent_output_noise
    >>> noise = independent_output_noise(([[1]], [[1]]), 100, epsilon=1.0, delta=0.01)
    >>> round(noise.strategy.sigma, 4)
    18.7788
    """
    limit = _limit(law, epsilon, delta)
    dynamics = dynamics_of(system, horizon)
    chosen = trajectory_neighbours(dynamics, mu, neighbours)
    noise: Law = Gaussian() if law == "gaussian" else Laplace()
    made = Mechanism(chosen, Fresh(dynamics, 1.0), noise)
    sigma = made.guarantee.sensitivity / limit * (1 + 1e-14)
    return replace(made, strategy=Fresh(dynamics, sigma)).keeping(epsilon, delta)


def _limit(law: str, epsilon: float, delta: float) -> float:
    """The largest sensitivity that keeps the promise."""
    if law == "gaussian":
        return largest_sensitivity(epsilon, delta)
    if law not in ("laplace", "knorm"):
        raise AffineDPError(f"law must be 'gaussian', 'laplace' or 'knorm', not {law!r}")
    name = "Laplace" if law == "laplace" else "K-norm"
    if delta != 0.0:
        raise AffineDPError(f"{name} noise is designed for δ = 0; delta must be 0")
    limit = float(real_array(epsilon, "epsilon", 0))
    if limit <= 0:
        raise AffineDPError(f"epsilon must be positive for {name} noise, not {epsilon!r}")
    return limit


def _designed(
    neighbours: TrajectoryAdjacency, limit: float, cost: Any, tol: float, law: LawName
) -> Mechanism:
    dynamics = neighbours.domain
    gramian = output_gramian(dynamics)
    coordinates = revealed_coordinates(dynamics, gramian).restricted(neighbours.moving())
    if len(coordinates.places) == 0:
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    differences = neighbours.differences()
    places = coordinates.places
    lengths = np.abs(differences[:, places]).max(axis=0)
    weight, floor = with_floor(_weight(cost, dynamics, gramian)[np.ix_(places, places)], lengths)
    notes: tuple[str, ...] = (floor_note(floor),) if floor else ()
    gap = None
    if law == "knorm":
        points, note = least_body(differences, coordinates.combinations, weight)
        start = _placed(dynamics, coordinates, np.eye(len(places)))
        made = _at_the_rate(neighbours, Trajectory(dynamics, start), points, limit)
        return _with_notes(made.with_design(notes=(*notes, note)))
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
    noise: Law = Gaussian() if law == "gaussian" else Laplace()
    start = _placed(dynamics, coordinates, square)
    made = _at_the_limit(Mechanism(neighbours, Trajectory(dynamics, start), noise), limit)
    more = float(np.linalg.norm(_start(made)) / np.linalg.norm(square)) ** 2
    if gap is not None and more > 1 + SCALED:  # what rounding hides of the promise costs noise
        gap = (1 + gap) * more - 1
    return _with_notes(made.with_design(gap=gap, notes=notes))


def _placed(dynamics: Dynamics, coordinates: Coordinates, square: FloatArray) -> FloatArray:
    """Noise on some entries of x(0), for all of them."""
    start = np.zeros((dynamics.states, square.shape[1]))
    start[coordinates.places] = square
    return start


def _start(mechanism: Mechanism) -> FloatArray:
    """R."""
    assert isinstance(mechanism.strategy, Trajectory)
    return mechanism.strategy.start


def _weight(cost: Any, dynamics: Dynamics, gramian: FloatArray) -> FloatArray:
    if cost is None:
        return gramian
    weight = cost.noise_cost(dynamics) if hasattr(cost, "noise_cost") else cost
    matrix = real_array(weight, "cost", 2)
    n = dynamics.states
    if matrix.shape != (n, n):
        raise AffineDPError(f"cost must be a ClosedLoop or a {n}×{n} matrix, not {matrix.shape}")
    if np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
        raise AffineDPError("cost is not symmetric: pass (W + W.T) / 2")
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 0.0):
        raise AffineDPError(f"cost must be positive semidefinite (eigenvalue {values[0]:.2g})")
    return (matrix + matrix.T) / 2


def _at_the_limit(mechanism: Mechanism, limit: float) -> Mechanism:
    """Scale the noise so that its sensitivity, computed anew, is at most and nearly the limit."""
    # rounding may move the sensitivity up again: then more and more is added
    added = 0.0
    for margin in (4e-15, 4e-15, 4e-15, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 0.0):
        found = mechanism.guarantee.sensitivity
        if limit * (1 - max(1e-9, 2 * added)) <= found <= limit:
            return mechanism
        scaled = mechanism.strategy.scaled(found / limit * (1 + margin))
        mechanism, added = replace(mechanism, strategy=scaled), margin
    raise UncertainPromiseError("the noise could not be scaled to the promise")


def _at_the_rate(
    neighbours: TrajectoryAdjacency, strategy: Trajectory, points: FloatArray, limit: float
) -> Mechanism:
    """K-norm noise whose ε, computed anew, is at most and nearly the limit."""
    rate = limit
    for _ in range(6):
        made = Mechanism(neighbours, strategy, KNorm(points, rate))
        found = made.guarantee.sensitivity
        if limit * (1 - 1e-9) <= found <= limit:
            return made
        rate = rate * (limit / found) * (1 - 4e-16)
    raise UncertainPromiseError("the noise could not be scaled to the promise")


def _least_of_laws(
    system: Any,
    horizon: float,
    epsilon: float,
    delta: float,
    mu: Distances,
    neighbours: Neighbours,
    cost: NoiseCost | ArrayLike | None,
    tol: float,
) -> Mechanism:
    """The law of least cost: pure ones keep ε without δ, which is more than is asked for."""
    laws: list[tuple[LawName, float]] = [("gaussian", delta)] if delta > 0 else []
    laws += [("knorm", 0.0), ("laplace", 0.0)] if epsilon > 0 else []
    found: list[Mechanism] = []
    said: list[list[warnings.WarningMessage]] = []
    refused = ""
    for law, each in laws:
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")  # of laws that are not taken nobody need hear
                made = design_trajectory_noise(
                    system, horizon, epsilon, each, mu, neighbours, cost, law=law, tol=tol
                )
        except TooLargeBodyError as error:
            refused = f"; K-norm noise is out of reach: {error}"
            continue
        found.append(made)
        said.append(heard)
    if not found:
        raise AffineDPError("ε = 0 needs δ > 0")
    dynamics = found[0].domain
    weight = _weight(cost, dynamics, output_gramian(dynamics))
    costs = [float(np.trace(weight @ one.noise.covariance(_start(one)))) for one in found]
    # of equal ones the first: a gateway sends K-norm noise, and no Laplace noise
    best = next(i for i, value in enumerate(costs) if value <= min(costs) * (1 + SAME))
    others = ", ".join(f"{one.law} {value / costs[best]:.3g}" for one, value in zip(found, costs))
    for warning in said[best]:
        warnings.warn(warning.message, stacklevel=4)
    note = f"the law of least cost, relative to it: {others}{refused}"
    chosen = found[best].with_design(notes=(*found[best].notes, note), least=None)
    return with_lower_bound(chosen, cost, epsilon, delta)  # with the δ that was asked for


def _with_notes(mechanism: Mechanism) -> Mechanism:
    """Say so, and warn, where the noise is very uneven over time or far from the least."""
    if mechanism.gap is not None and mechanism.gap > FAR_FROM_LEAST:
        note = (
            f"the noise is only certified to be within {mechanism.gap:.1%} of the least: over this "
            "horizon the dynamics stretch some directions far more than others. The promise holds"
        )
        warnings.warn(note, GapWarning, stacklevel=5)
        mechanism = mechanism.with_design(notes=(*mechanism.notes, note))
    neighbours = mechanism.adjacency
    assert isinstance(neighbours, TrajectoryAdjacency)
    if isinstance(neighbours, InitialState):
        return mechanism  # the noise fades or grows with what it hides
    size = np.linalg.norm(noise_by_time(mechanism), axis=1)
    wanted = neighbours.mu.max(axis=1)
    relative = size[wanted > 0] / wanted[wanted > 0]
    if not relative.max() > UNEVEN * np.median(relative[relative > 0]):
        return mechanism
    peak, last = int(size.argmax()), mechanism.domain.horizon - 1
    advice = (
        "Dynamics that contract make late states cost much noise early. If the past need not "
        "follow, use neighbours='forward' or 'initial'; else let mu decrease with time"
    )
    if size[last] > size[0]:
        advice = (
            "One draw grows with the plant, which is unstable: close a local loop that stabilises "
            "it before it is measured, and design for the closed loop"
        )
    note = (
        f"the noise is uneven over time: standard deviation {size[0]:.3g} at t = 0, "
        f"{size[last]:.3g} at t = {last}, {size[peak]:.3g} at most (t = {peak}). {advice}"
    )
    warnings.warn(note, UnevenNoiseWarning, stacklevel=5)
    return mechanism.with_design(notes=(*mechanism.notes, note))
