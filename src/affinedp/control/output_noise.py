"""The least output noise that hides a state trajectory (section V of the paper)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.control.by_time import noise_by_time
from affinedp.control.gateway_path import with_sensors
from affinedp.control.input_noise import (
    NoiseResponse,
    designed,
    refuse_other_laws,
    refuse_rarely,
)
from affinedp.control.least_draw import (
    STARTS,
    least_body,
    least_laplace_root,
    least_noise,
    with_lower_bound,
)
from affinedp.control.plant import semidefinite
from affinedp.control.sensors import Resolution
from affinedp.designs.fit import scaled
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.designs.separate import floor_note, with_floor
from affinedp.domains.dynamics import ENDLESS, Dynamics, checked_horizon, dynamics_of
from affinedp.domains.observability import output_gramian, revealed_coordinates
from affinedp.domains.powers import HorizonTooLongError, inverted, log_growth
from affinedp.errors import AffineDPError, AffineDPWarning, outside
from affinedp.exact.numbers import real_array
from affinedp.exact.systems import LinearSystem
from affinedp.laws.base import Law, LawName
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.knorm import KNorm
from affinedp.laws.laplace import Laplace
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Distances, named
from affinedp.neighbours.inputs import forward_states
from affinedp.neighbours.trajectory import (
    InitialState,
    Neighbours,
    TimeLocal,
    TrajectoryAdjacency,
    WholeManifold,
)
from affinedp.progress import Progress
from affinedp.strategies.trajectory import Fresh, Trajectory

__all__ = ["Dynamics", "design_output_noise", "dynamics_of", "independent_output_noise"]

MOST_ENTRIES = 20_000
MOST_NUMBERS = 4e8
SMALLEST, LARGEST = 1e-150, 1e150
# Noise that is this many times its lower decile over time, or what a state moves, is worth a
# warning.
UNEVEN, HUGE = 10.0, 1e4
# So is a certified gap of more than this.
FAR_FROM_LEAST = 1e-3
# Costs that are equal up to rounding, and noise that is scaled by hardly anything.
SAME = 1e-9
SCALED = 1e-8
# Dynamics that stretch differences by less than this many powers of two are not to blame.
MUCH = 20.0
# Poles up to here do not grow.
ON_THE_CIRCLE = 1e-9


class NoiseCost(Protocol):
    """What a :class:`~affinedp.control.ClosedLoop` offers to a design."""

    def noise_cost(self, dynamics: Dynamics) -> FloatArray:
        """Return W such that noise of covariance Σ on x(0) costs ``tr(W Σ)``."""


@within_range
def design_output_noise(
    system: Any,
    horizon: float,
    epsilon: float,
    delta: float = 0.0,
    mu: Distances = 1.0,
    adjacency: Neighbours | Literal["forward"] = "time-local",
    cost: NoiseCost | NoiseResponse | ArrayLike | None = None,
    *,
    law: LawName | Literal["auto"] = "gaussian",
    tol: float = 1e-8,
    resolution: Resolution | str | None = None,
    measurement_error: ArrayLike | None = None,
    fresh_noise: ArrayLike | None = None,
    every: int = 1,
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
        The promise to keep: ε ≥ 0 and 0 < δ < 1 for Gaussian noise, ε > 0 and 0 ≤ δ < 1 for other
        noise, which keeps ε at δ = 0.
    mu : float, array_like or mapping
        How far a state entry moves: one number, one per state (or by its name), or one per time and
        state.  Zero means that an entry is not private; for all times, that it is public.
    adjacency : {"time-local", "manifold", "initial", "forward"}
        Who is a neighbour.  ``"time-local"``: Theorem 3, a state entry at any time differs, and
        past and future with it.  ``"manifold"``: the full Definition 4, a stronger promise.
        ``"initial"``: x(0) alone differs, and the future with it.  ``"forward"``: a state entry
        jumps at any time and the future follows, for all time; fresh noise at every step.
    cost : ClosedLoop or array_like, optional
        What noise costs: the tracking error of a closed loop, or a matrix W for the cost
        ``tr(W Σ)`` of noise with covariance Σ on x(0) (for ``"forward"``: weights of the
        outputs).  By default the outputs' squared error.
    law : {"gaussian", "laplace", "knorm", "auto"}
        The law of the noise; ``"forward"`` neighbours take Gaussian noise.  ``"auto"`` takes the
        law of least cost, of the noise that is sent if the sensors have steps; the notes say by how
        much.
    tol : float
        Relative gap to certify (Gaussian).
    resolution : float, array_like or Dither, optional
        The step of each sensor, as for a :class:`~affinedp.control.Gateway`.  ``noise_by_time``
        then gives the noise that will be sent, which hides the steps too, over the horizon; the
        notes say what that costs and what helps.
    measurement_error, fresh_noise, every
        What else the gateway is told, beside a resolution.

    Returns
    -------
    Mechanism

    Examples
    --------
    A vehicle whose position is sent.  The paper protects the positions only (velocities are then
    revealed exactly); one standard deviation at all times is enough for that.

    >>> from affinedp.control import design_output_noise, noise_by_time
    >>> vehicle = ([[1, 0.1], [0, 1]], [[1, 0]])
    >>> m = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01, mu=[1, 0])
    >>> noise_by_time(m)[[0, 99], 0].round(4).tolist()
    [1.8779, 1.8779]

    Protecting position and velocity at every time takes more, the full Definition 4 more again.

    >>> both = design_output_noise(vehicle, 100, epsilon=1.0, delta=0.01)
    >>> full = design_output_noise(vehicle, 100, 1.0, 0.01, adjacency="manifold")
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
    >>> m = design_output_noise(room, math.inf, 1.0, 0.01, adjacency="initial")
    >>> noise_by_time(m, 101)[[0, 100]].round(3).ravel().tolist()
    [1.878, 0.687]

    A jump of its temperature at any time, whose past does not follow.

    >>> m = design_output_noise(room, math.inf, 1.0, 0.01, adjacency="forward")
    >>> noise_by_time(m, 1).round(2).tolist()
    [[4.01]]
    """
    endless = isinstance(horizon, float) and horizon == math.inf
    refuse_rarely(cost, every)
    sensors = (resolution, measurement_error, fresh_noise, every)
    if adjacency == "forward":
        refuse_other_laws(law)
        steps = None if endless else checked_horizon(horizon)
        limit = largest_sensitivity(epsilon, delta)
        found = designed(forward_states(system, mu, steps), limit, cost).keeping(epsilon, delta)
        return with_sensors(found, *sensors)
    tolerance = float(real_array(tol, "tol", 0))
    if not 1e-14 <= tolerance < 1.0:
        raise AffineDPError(f"tol is a relative gap, at least 1e-14 and less than 1, not {tol}")
    dynamics = _endless(system, adjacency) if endless else dynamics_of(system, horizon)  # type: ignore[arg-type]
    chosen = trajectory_neighbours(dynamics, mu, adjacency)

    def made(law: LawName) -> Mechanism:
        return with_sensors(_kept(chosen, law, epsilon, delta, cost, tolerance), *sensors)

    return _least_of_laws(made, epsilon, delta, cost) if law == "auto" else made(law)


def independent_output_noise(
    system: Any,
    horizon: int,
    epsilon: float,
    delta: float = 0.0,
    mu: Distances = 1.0,
    adjacency: Neighbours = "time-local",
    *,
    law: LawName = "gaussian",
) -> Mechanism:
    """Return fresh noise at every step that truly keeps (ε, δ): the honest baseline.

    The paper compares with it in section V.C (r = T); its promise is that of Theorem 1.

    Parameters
    ----------
    system, horizon, epsilon, delta, mu, adjacency, law
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
    if law == "knorm":
        raise AffineDPError("independent noise is Gaussian or Laplace: K-norm noise is one draw")
    limit = _limit(law, epsilon, delta)
    dynamics = dynamics_of(system, horizon)
    chosen = trajectory_neighbours(dynamics, mu, adjacency)
    noise: Law = Gaussian() if law == "gaussian" else Laplace()
    made = Mechanism(chosen, Fresh(dynamics, 1.0), noise)
    sigma = made.guarantee.sensitivity / limit * (1 + 1e-14)
    return replace(made, strategy=Fresh(dynamics, sigma)).keeping(epsilon, delta)


def _endless(system: Any, adjacency: str) -> Dynamics:
    """The dynamics of a stable plant for all time."""
    if adjacency != "initial":
        raise AffineDPError(
            f"adjacency={adjacency!r} needs a horizon: late states cost noise at all times. Use "
            "adjacency='initial' or 'forward' for all time"
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


def _limit(law: str, epsilon: float, delta: float) -> float:
    """The largest sensitivity that keeps the promise."""
    if law == "gaussian":
        return largest_sensitivity(epsilon, delta)
    if law not in ("laplace", "knorm"):
        raise AffineDPError(f"law must be 'gaussian', 'laplace' or 'knorm', not {law!r}")
    name = "Laplace" if law == "laplace" else "K-norm"
    if not 0 <= float(real_array(delta, "delta", 0)) < 1:
        raise AffineDPError(f"delta must be at least 0 and less than 1, not {delta!r}")
    limit = float(real_array(epsilon, "epsilon", 0))
    if limit <= 0:
        raise AffineDPError(f"epsilon must be positive for {name} noise, not {epsilon!r}")
    return limit


# -------------------------------------------------------------- who is a neighbour


def trajectory_neighbours(dynamics: Dynamics, mu: Distances, kind: str) -> TrajectoryAdjacency:
    """Return the neighbours of a kind: time-local, manifold or initial."""
    values = _checked_distances(mu, dynamics)
    late = values[1:].any() if values.ndim == 2 else True
    if kind == "initial" or (kind == "time-local" and len(values.shape) == 2 and not late):
        if values.ndim == 2 and late:
            raise AffineDPError(
                "with adjacency='initial' only x(0) moves, but mu is positive at later times: "
                "give one number for each state"
            )
        first = values[0] if values.ndim == 2 else values
        return InitialState(dynamics, np.array(np.broadcast_to(first, (1, dynamics.states))))
    if kind not in ("time-local", "manifold"):
        raise AffineDPError(
            "adjacency must be 'time-local', 'manifold' or 'initial' (for design_output_noise "
            f"also 'forward'), not {kind!r}"
        )
    if float(dynamics.horizon) * dynamics.states > MOST_NUMBERS:
        raise AffineDPError(f"a horizon of {dynamics.horizon:,} does not fit in memory")
    distances = np.array(np.broadcast_to(values, (dynamics.horizon, dynamics.states)))
    if kind == "time-local":
        return TimeLocal(dynamics, distances)
    if distances.size > MOST_ENTRIES:
        raise AffineDPError(
            f"a trajectory of {distances.size:,} entries is too long for Definition 4 (at most "
            f"{MOST_ENTRIES:,}): shorten the horizon, or use adjacency='time-local'"
        )
    return WholeManifold(dynamics, distances)


def _checked_distances(mu: Distances, dynamics: Dynamics) -> FloatArray:
    """μ as it was given, as an array: none negative, not all zero."""
    values = real_array(named(mu, dynamics.state_names), "mu")
    shape = (dynamics.horizon, dynamics.states)
    if values.shape not in ((), shape[1:], shape):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, one for each of {shape[1]} states, a "
            f"mapping from state names to numbers, or one per time and state, shape {shape}"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero at most for what is not private)")
    some = values[values > 0]
    if some.max() > LARGEST or some.min() < SMALLEST:
        raise AffineDPError(
            f"mu must lie between {SMALLEST:g} and {LARGEST:g}; use other units for the states"
        )
    return values


# -------------------------------------------------------------- the noise


def _kept(
    neighbours: TrajectoryAdjacency,
    law: LawName,
    epsilon: float,
    delta: float,
    cost: Any,
    tol: float,
) -> Mechanism:
    """The least noise of a law, or a refusal that names the longest horizon that works."""
    limit = _limit(law, epsilon, delta)
    if isinstance(neighbours, WholeManifold):
        _refuse_what_hides_more(neighbours, cost, tol)
    try:
        found = _designed(neighbours, limit, cost, tol, law).keeping(epsilon, delta)
        return with_lower_bound(found, cost, epsilon, delta)
    except HorizonTooLongError as error:
        works = _longest_that_works(
            neighbours, lambda shorter: _designed(shorter, limit, cost, tol, law, starts=0)
        )
        if works is None:
            raise
        raise _too_long(neighbours, works, error) from None


def _refuse_what_hides_more(neighbours: WholeManifold, cost: Any, tol: float) -> None:
    """Refuse Definition 4 where double precision cannot hide the time-local part of it.

    That is known soon, and all circuits of such a trajectory take hours.
    """
    try:
        weaker = TimeLocal(neighbours.domain, neighbours.mu)
        _kept(weaker, "gaussian", 1.0, 0.01, cost, tol)
    except HorizonTooLongError as error:
        raise HorizonTooLongError(
            f"adjacency='manifold' hides all that 'time-local' hides, and more: {error}",
            error.horizon,
        ) from None
    except AffineDPError:  # such as where A is singular: there are no such neighbours
        return


def _designed(
    neighbours: TrajectoryAdjacency,
    limit: float,
    cost: Any,
    tol: float,
    law: LawName,
    starts: int = STARTS,
) -> Mechanism:
    dynamics = neighbours.domain
    gramian = output_gramian(dynamics)
    coordinates = revealed_coordinates(dynamics, gramian).restricted(neighbours.moving())
    places = coordinates.places
    if len(places) == 0:
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    differences = neighbours.differences()
    lengths = np.abs(differences[:, places]).max(axis=0)
    weight, floor = with_floor(_weight(cost, dynamics, gramian)[np.ix_(places, places)], lengths)
    notes: tuple[str, ...] = (floor_note(floor),) if floor else ()
    gap, start = None, np.zeros((dynamics.states, len(places)))
    if law == "knorm":
        points, note = least_body(differences, coordinates.combinations, weight, starts)
        start[places] = np.eye(len(places))
        body = Mechanism(neighbours, Trajectory(dynamics, start), KNorm(points, limit))
        return _with_notes(_at_the_limit(body, limit).with_design(notes=(*notes, note)))
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
    start[places] = square
    made = _at_the_limit(Mechanism(neighbours, Trajectory(dynamics, start), noise), limit)
    more = float(np.linalg.norm(_start(made)) / np.linalg.norm(square)) ** 2
    if gap is not None and more > 1 + SCALED:  # what rounding hides of the promise costs noise
        gap = (1 + gap) * more - 1
    return _with_notes(made.with_design(gap=gap, notes=notes))


def _start(mechanism: Mechanism) -> FloatArray:
    """R."""
    assert isinstance(mechanism.strategy, Trajectory)
    return mechanism.strategy.start


def _weight(cost: Any, dynamics: Dynamics, gramian: FloatArray) -> FloatArray:
    if cost is None:
        return gramian
    weight = cost.noise_cost(dynamics) if hasattr(cost, "noise_cost") else cost
    return semidefinite(real_array(weight, "cost", 2), "cost", dynamics.states, 1e-9)


def _at_the_limit(mechanism: Mechanism, limit: float) -> Mechanism:
    """Scale the noise so that its sensitivity, computed anew, is at most and nearly the limit."""
    # rounding may move the sensitivity up again: then more and more is added
    added = 0.0
    for margin in (4e-15, 4e-15, 4e-15, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 0.0):
        found = mechanism.guarantee.sensitivity
        if limit * (1 - max(1e-9, 2 * added)) <= found <= limit:
            return mechanism
        mechanism, added = scaled(mechanism, found / limit * (1 + margin)), margin
    raise HorizonTooLongError("the noise could not be scaled to the promise")


def _least_of_laws(
    made: Callable[[LawName], Mechanism], epsilon: float, delta: float, cost: Any
) -> Mechanism:
    """The law of least cost: pure ones keep ε without δ, which is more than is asked for."""
    laws: list[LawName] = ["gaussian"] if delta > 0 else []
    laws += ["knorm", "laplace"] if epsilon > 0 else []
    if not laws:
        raise AffineDPError("ε = 0 needs δ > 0")
    found: list[tuple[Mechanism, list[warnings.WarningMessage]]] = []
    refused: dict[str, Exception] = {}
    for law in laws:
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")  # of laws that are not taken nobody need hear
                found.append((made(law), heard))
        except (AffineDPError, ArithmeticError, np.linalg.LinAlgError) as error:
            refused[law] = error
    if not found:
        raise next(iter(refused.values()))
    dynamics = found[0][0].domain
    weight = _weight(cost, dynamics, output_gramian(dynamics))
    costs = [_cost_as_sent(one, cost, weight) for one, _ in found]
    # of equal ones the first: a gateway sends K-norm noise, and no Laplace noise
    best = next(i for i, value in enumerate(costs) if value <= min(costs) * (1 + SAME))
    chosen, said = found[best]
    others = ", ".join(
        f"{one.law} {value / costs[best]:.3g}" for (one, _), value in zip(found, costs)
    )
    for warning in said:
        warnings.warn(warning.message, stacklevel=outside())
    sensors = "" if chosen.design.sent is None else " with these sensors"
    note = f"the law of least cost{sensors}, relative to it: {others}"
    note += "".join(f"; {law} noise is out of reach: {error}" for law, error in refused.items())
    return chosen.with_design(notes=(*chosen.notes, note))


def _cost_as_sent(mechanism: Mechanism, cost: Any, weight: FloatArray) -> float:
    """What noise costs, with all that hides the sensors' steps."""
    designed = float(np.trace(weight @ mechanism.noise.covariance(_start(mechanism))))
    sent, horizon = mechanism.design.sent, mechanism.domain.horizon
    if sent is None:
        return designed
    if cost is None:
        return float((noise_by_time(mechanism) ** 2).sum())
    if not hasattr(cost, "noise_response"):
        raise AffineDPError(
            "cost as a matrix is about noise on x(0), and says nothing about noise that is fresh "
            "at every step, which hides the sensors' steps: name a law, or leave cost or "
            "resolution out"
        )
    # noise at t = 0, …, T − 1 shows in the errors up to T
    squares = LinearSystem(*cost.noise_response()).impulse(horizon + 1) ** 2 @ np.array(sent.added)
    times = np.minimum(horizon, np.arange(horizon + 1, 0, -1))
    return float(sent.factor**2 * designed + times @ squares.sum(axis=1))


def _with_notes(mechanism: Mechanism) -> Mechanism:
    """Say so, and warn, where the noise is far from the least, uneven over time or huge."""
    notes = []
    if mechanism.gap is not None and mechanism.gap > FAR_FROM_LEAST:
        notes.append(
            f"the noise is only certified to be within {mechanism.gap:.1%} of the least: over this "
            "horizon the dynamics stretch some directions far more than others. The promise holds"
        )
    if not isinstance(mechanism.adjacency, InitialState):  # it fades or grows with what it hides
        notes += _uneven(mechanism)
    for note in notes:
        warnings.warn(note, AffineDPWarning, stacklevel=outside())
    return mechanism.with_design(notes=(*mechanism.notes, *notes)) if notes else mechanism


def _uneven(mechanism: Mechanism) -> list[str]:
    """What to say of noise that is far larger at some times than at others."""
    neighbours = mechanism.adjacency
    assert isinstance(neighbours, TrajectoryAdjacency)
    size = np.linalg.norm(noise_by_time(mechanism), axis=1)
    # what a state that moves at this time moves the outputs by, at once
    seen = np.abs(mechanism.domain.C) @ neighbours.mu[:, :, None]
    wanted = np.linalg.norm(seen[..., 0], axis=1)
    relative = size[wanted > 0] / wanted[wanted > 0]
    if not relative.any():
        return []
    usual = float(np.quantile(relative[relative > 0], 0.1))
    uneven = relative.max() > UNEVEN * usual
    if not (uneven or relative.max() * mechanism.guarantee.sensitivity > HUGE):
        return []
    how = "uneven" if uneven else "huge"
    peak, last = int(size.argmax()), mechanism.domain.horizon - 1
    advice = (
        "Dynamics that contract make late states cost much noise early. If the past need not "
        "follow, use adjacency='forward' or 'initial'; else let mu decrease with time"
    )
    if isinstance(neighbours, WholeManifold) and not uneven:
        advice = (
            "Definition 4 counts entries as free that the others hardly determine; "
            "adjacency='time-local' (Theorem 3) does not"
        )
    elif size[last] > size[0]:
        advice = (
            "One draw grows with the plant, which is unstable: close a local loop that stabilises "
            "it before it is measured, and design for the closed loop"
        )
    return [
        f"the noise is {how} over time: standard deviation {size[0]:.3g} at t = 0, "
        f"{size[last]:.3g} at t = {last}, {size[peak]:.3g} at most (t = {peak}). {advice}"
    ]


# -------------------------------------------------------------- horizons that are too long


def _longest_that_works(
    neighbours: TrajectoryAdjacency, design: Callable[[TrajectoryAdjacency], Mechanism]
) -> Mechanism | None:
    """The noise of a horizon that works though a slightly longer one does not, by bisection."""
    found = None
    low, high = 0, neighbours.domain.horizon
    first = isinstance(neighbours, InitialState)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AffineDPWarning)
        while high - low > 1:
            middle = (low + high) // 2
            mu = neighbours.mu[0] if first else neighbours.mu[:middle]
            dynamics = neighbours.domain.shortened(middle)
            try:
                found = design(trajectory_neighbours(dynamics, mu, neighbours.said))
                low = middle
            except AffineDPError:
                high = middle
    return found


def _too_long(
    neighbours: TrajectoryAdjacency, works: Mechanism, error: AffineDPError
) -> HorizonTooLongError:
    """The refusal: what is wrong, which horizon works at what cost, and what to do."""
    dynamics, first = neighbours.domain, isinstance(neighbours, InitialState)
    sizes, most = np.linalg.norm(noise_by_time(works), axis=1), works.domain.horizon
    peak, stretched, instead = int(sizes.argmax()), 0.0, ""
    if not first and dynamics.time_varying:
        instead = ". To hide x(0) alone, whose past is not sent, use adjacency='initial'"
    elif not first:
        with_inverse = np.linalg.cond(dynamics.A) < 1e12
        if with_inverse:  # about log₂ of how much larger a late difference was at the start
            stretched = log_growth(inverted(dynamics.A), dynamics.horizon - 1)
        instead = (
            ". If the past need not follow, use adjacency='initial' or 'forward': they hide where "
            "the state started, or a jump of it at any time, and work for any horizon"
        )
        if np.abs(np.linalg.eigvals(dynamics.A)).max() > 1 + ON_THE_CIRCLE:
            instead = (
                ". The plant is unstable: close a local loop that stabilises it before it is "
                "measured, and design for the closed loop"
            )
    said = str(error).partition(" A horizon of")[0].removesuffix(" Shorten the horizon").rstrip(".")
    if stretched > MUCH:
        said = (
            "the dynamics contract and the past follows, so that a difference of 1 in the last "
            f"state was one of about 10^{stretched * math.log10(2):.0f} in the first, and no noise "
            "in double precision is certain to hide it"
        )
    return HorizonTooLongError(
        f"a horizon of {dynamics.horizon:,} steps is too long for adjacency={neighbours.said!r}: "
        f"{said}. The longest that works is {most:,}, with noise of standard deviation "
        f"{sizes[peak]:.2g} at t = {peak}{instead}",
        most,
    )
