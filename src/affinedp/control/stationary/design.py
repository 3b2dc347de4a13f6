"""The least output noise that hides inputs, loads and occupancy for all time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, within_range
from affinedp.control.stationary.certificate import NoCertificateError, start_certificate
from affinedp.control.stationary.filters import Filter
from affinedp.control.stationary.fit import (
    MOST_ORDER,
    Candidate,
    fitted_candidates,
    plain_candidates,
)
from affinedp.control.stationary.horizon import horizon_candidates
from affinedp.control.stationary.inputs import PrivateInputs, private_inputs
from affinedp.control.stationary.noise import StationaryMechanism
from affinedp.control.stationary.promise import (
    noise_filter,
    squared_sensitivities,
    stationary_promise,
)
from affinedp.control.stationary.spectrum import least_spectrum
from affinedp.control.trajectory.choose import Distances
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.privacy.guarantee import keeping
from affinedp.progress import Progress

# Poles this close to the unit circle count as on it.
ON_THE_CIRCLE = 1e-9


class NoiseResponse(Protocol):
    """What a :class:`~affinedp.control.ClosedLoop` offers to a design."""

    def noise_response(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return (A, B, C, D) from output noise to the weighted tracking error."""


class UnstablePlantError(AffineDPError):
    """A plant whose response to a private input does not fade.

    Attributes
    ----------
    radius : float
        Largest modulus of its poles.
    """

    def __init__(self, message: str, radius: float) -> None:
        self.radius = radius
        super().__init__(message)


@within_range
def design_input_noise(
    system: Any,
    epsilon: float,
    delta: float,
    mu: Distances = 1.0,
    window: float = 1,
    inputs: Any = None,
    cost: NoiseResponse | ArrayLike | None = None,
    *,
    horizon: int | None = None,
    most_order: int = MOST_ORDER,
) -> StationaryMechanism:
    """Return the least output noise that hides private inputs of a stable plant, for all time.

    Inputs, loads, occupancy or references w enter as ``x(t+1) = A x + B u + E w``,
    ``y = C x + F w``.  Two data sets are neighbours if one private input differs at one step (or
    over a window of steps); later outputs follow, and all that came before stays.  The noise is
    stationary, ``γ = G ζ`` with fresh ζ at every step and a causal filter G of low order.  Its
    promise is certified in rational arithmetic and does not rest on the fit.

    Parameters
    ----------
    system : StateSpace, or (A, E, C) or (A, E, C, F)
        A discrete-time system of python-control, or its matrices.
    epsilon, delta : float
        The promise to keep, 0 < δ < 1.
    mu : float, array_like or mapping
        How far a private input moves: one number, one per private input, or by name.  Zero for
        inputs that are not private.
    window : int or inf
        How many steps in a row may change; μ then bounds the root of the sum of squares.  A change
        by at most a at each of L steps has μ = a √L.
    inputs : sequence of int or str, optional
        Which inputs of ``system`` are private, by number or name; all unless given.  The others are
        public, or the same for both neighbours.
    cost : ClosedLoop or array_like, optional
        What noise costs: the tracking error of a closed loop, or weights of the outputs (one each,
        or a matrix).  By default the sum of the variances.
    horizon : int, optional
        For plants with poles on the unit circle (integrators), which need one.
    most_order : int
        The largest order of the noise filter.

    Returns
    -------
    StationaryMechanism

    Raises
    ------
    UnstablePlantError
        Where an input's effect never fades.

    Notes
    -----
    The promise needs that u and every other input follow from what was sent and from randomness
    that does not depend on the data, never from x or raw measurements, before the start too (people
    who react to the temperature are a loop); that every sensor is linear over the range that any u
    can reach (a clipped sensor breaks it); that skipping or refusing a step does not depend on y;
    and that A, C, E and F are the plant's.  docs/explanation/plants.md says more.

    Examples
    --------
    A room that forgets in a day, sampled every 15 minutes.  One kilowatt for one step is hidden,
    for ever, by noise of a third of the standard deviation that white noise would need.

    >>> from affinedp.control import design_input_noise
    >>> room = ([[0.99]], [[0.9]], [[1.0]])                 # w in kW, y in °C
    >>> m = design_input_noise(room, epsilon=1.0, delta=1e-4)
    >>> print(m.stationary_deviation.round(2), m.shaper.order)
    [6.13] 3
    >>> {name: round(cost**0.5, 1) for name, cost in m.alternatives.items()}
    {'white output noise': 20.3, 'input perturbation': 20.3}
    """
    neighbours = private_inputs(system, mu, window, horizon, inputs)
    found = designed(neighbours, largest_sensitivity(epsilon, delta), cost, most_order)
    return keeping(found, epsilon, delta)


def designed(
    neighbours: PrivateInputs, limit: float, cost: Any = None, most_order: int = MOST_ORDER
) -> StationaryMechanism:
    """Return the least noise with a sensitivity of at most ``limit``.

    Parameters
    ----------
    neighbours : PrivateInputs
        Whom the promise is about.
    limit : float
        The sensitivity to keep.
    cost : ClosedLoop, array_like or None
        What noise costs.
    most_order : int
        The largest order of the noise filter.
    """
    if isinstance(most_order, bool) or not isinstance(most_order, int) or most_order < 0:
        raise AffineDPError(f"most_order must be a whole number, at least 0, not {most_order!r}")
    shown = neighbours.plant.order + 2
    if neighbours.horizon is not None:
        shown = min(shown, neighbours.steps_to_remember + 1)
    if not neighbours.plant.impulse(shown).any():
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    weight = _weight(cost, neighbours.plant.outputs)
    neighbours = _checked(neighbours)
    least = None
    with Progress("least noise"):
        if neighbours.horizon is not None:
            _refuse_over_a_horizon(neighbours, cost)
            candidates = plain = horizon_candidates(neighbours)
        else:
            candidates = plain = plain_candidates(neighbours, weight)
            if neighbours.window is not None and most_order:
                spectrum = least_spectrum(neighbours, weight)
                least = spectrum.bound / limit**2 if spectrum.resolved else None
                fitted = fitted_candidates(neighbours, weight, spectrum, most_order)
                candidates = [*plain, *fitted]
        alternatives = {
            one.name: one.cost / limit**2
            for one in plain
            if one.name in ("white output noise", "input perturbation")
        }
        for one in sorted(candidates, key=lambda candidate: candidate.cost):
            try:
                return _certified(one, neighbours, limit, least, alternatives)
            except NoCertificateError as error:
                reason = error
    raise reason


def _certified(
    one: Candidate,
    neighbours: PrivateInputs,
    limit: float,
    least: float | None,
    alternatives: dict[str, float],
) -> StationaryMechanism:
    """The mechanism of a candidate, or a refusal if it cannot be certified."""
    squares = squared_sensitivities(neighbours, one.shaper, one.place)
    scale = math.sqrt(float(squares.max())) / limit * (1 + 1e-14)
    # draws of about unit size: a power of two goes into the filter, exactly
    exponent = math.frexp(scale)[1]
    shaper = one.shaper.scaled(math.ldexp(1.0, exponent))
    scale = math.ldexp(scale, -exponent)
    start = None
    if neighbours.horizon is None:
        start = start_certificate(noise_filter(neighbours, shaper, one.place)).root
    promise = stationary_promise(neighbours, shaper, one.place, scale, start)
    if not promise.sensitivity <= limit:
        raise NoCertificateError("the noise could not be scaled to the promise")
    notes = (f"{one.name}, coloured at the {one.place}",) if one.shaper.order else (one.name,)
    return StationaryMechanism(
        neighbours,
        promise,
        shaper,
        one.place,
        scale,
        start,
        one.cost / limit**2,
        least,
        alternatives,
        notes,
    )


def _checked(neighbours: PrivateInputs) -> PrivateInputs:
    """Refuse plants for which there is no such noise; a stable one needs no horizon."""
    radius = neighbours.plant.radius
    if radius > 1 + ON_THE_CIRCLE:
        raise UnstablePlantError(
            f"the plant is unstable (a pole of modulus {radius:.6g} that private inputs excite "
            "and outputs show): what an input does grows without end, and so would any noise that "
            "hides it. Close a local loop that stabilises the plant first, and design for the "
            "closed loop, (A − B K C, E, C)",
            radius,
        )
    if radius < 1 - ON_THE_CIRCLE:
        return replace(neighbours, mu=np.array(neighbours.mu), horizon=None)
    if neighbours.horizon is None:
        raise UnstablePlantError(
            "the plant has a pole on the unit circle (an integrator): what an input does never "
            "fades, and noise for all time would grow with log² of the time. Give a horizon, or "
            "close a local loop first",
            radius,
        )
    return neighbours


def _refuse_over_a_horizon(neighbours: PrivateInputs, cost: Any) -> None:
    if neighbours.window != 1:
        raise AffineDPError("over a horizon only single steps are hidden: use window=1")
    if cost is not None:
        raise AffineDPError("over a horizon noise is made small by its mean variance: leave cost")


def _weight(cost: Any, outputs: int) -> Filter:
    """What noise costs, as a filter whose output's mean square is the cost."""
    if cost is None:
        return Filter.static(np.eye(outputs))
    if hasattr(cost, "noise_response"):
        found = Filter.of(*cost.noise_response())
        if found.inputs != outputs:
            raise AffineDPError(f"the loop has {found.inputs} outputs, the system {outputs}")
        if not found.radius < 1:
            raise AffineDPError(
                "the loop is not stable, so that noise costs without end in it: see its warnings"
            )
        return found
    values = real_array(cost, "cost")
    if values.shape == (outputs,):
        values = np.diag(values)
    if values.shape != (outputs, outputs):
        raise AffineDPError(
            f"cost has shape {values.shape}; give one weight for each of {outputs} outputs, a "
            "matrix, or a ClosedLoop"
        )
    if np.abs(values - values.T).max() > 1e-9 * np.abs(values).max():
        raise AffineDPError("cost is not symmetric: pass (W + W.T) / 2")
    sizes, vectors = np.linalg.eigh((values + values.T) / 2)
    if sizes[0] < -1e-9 * max(sizes[-1], 0.0) or sizes[-1] <= 0:
        raise AffineDPError("cost must be positive semidefinite, and not zero")
    return Filter.static(np.sqrt(np.maximum(sizes, 0.0))[:, None] * vectors.T)
