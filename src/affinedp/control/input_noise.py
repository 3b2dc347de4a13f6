"""The least output noise that hides inputs, loads and occupancy for all time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, semidefinite_root, within_range
from affinedp.control.gateway_path import with_sensors
from affinedp.control.noise_filters import (
    Candidate,
    fitted_candidates,
    horizon_candidates,
    largest_variance,
    plain_candidates,
)
from affinedp.control.plant import semidefinite
from affinedp.control.sensors import Resolution
from affinedp.control.spectrum import least_largest_spectra, least_spectrum
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.exact.systems import LinearSystem, start_certificate
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Distances
from affinedp.neighbours.inputs import Inputs, private_inputs
from affinedp.privacy.design import Alternative, Design, Objective
from affinedp.progress import Progress
from affinedp.strategies.filter import Filter

# Poles this close to the unit circle count as on it.
ON_THE_CIRCLE = 1e-9
OF_ONE_COLOUR = (
    "over a horizon several outputs have noise of one colour, independent of each other: noise "
    "that is correlated between them was not looked for, and may be less"
)


class NoiseResponse(Protocol):
    """What a :class:`~affinedp.control.ClosedLoop` offers to a design."""

    def noise_response(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return (A, B, C, D) from output noise to the weighted tracking error."""


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
    objective: Objective = "sum",
    horizon: int | None = None,
    resolution: Resolution | str | None = None,
    measurement_error: ArrayLike | None = None,
    fresh_noise: ArrayLike | None = None,
    every: int = 1,
    law: str = "gaussian",
) -> Mechanism:
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
    inputs : int, str or sequence of these, optional
        Which inputs of ``system`` are private, by number or name; all unless given.  The others are
        public, or the same for both neighbours.
    cost : ClosedLoop or array_like, optional
        What noise costs: the tracking error of a closed loop, or weights of the outputs (one each,
        or a matrix).  By default the sum of the variances.
    objective : {"sum", "largest"}
        What is to be least: the cost, over a horizon in the mean over its steps, or the largest
        variance of any output at any step.
    horizon : int, optional
        How many outputs are sent; for all time unless given.  Plants with poles on the unit circle
        (integrators) need one.  For a stable plant the noise is that for all time, and so is its
        promise; sensors with steps then cost noise over these steps alone.
    resolution : float, array_like or Dither, optional
        The step of each sensor, as for :func:`~affinedp.control.design_output_noise`; it needs a
        horizon.
    measurement_error, fresh_noise, every
        What else the gateway is told, beside a resolution.
    law : {"gaussian", "auto"}
        Noise of other laws is not certified for private inputs, which may move at any step.

    Returns
    -------
    Mechanism

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

    >>> from affinedp.control import design_input_noise, noise_by_time
    >>> room = ([[0.99]], [[0.9]], [[1.0]])                 # w in kW, y in °C
    >>> m = design_input_noise(room, epsilon=1.0, delta=1e-4)
    >>> noise_by_time(m).round(2).tolist(), m.strategy.noise.order
    ([[6.13]], 3)
    >>> {other.reason: round(other.error**0.5, 1) for other in m.alternatives}
    {'white output noise': 20.3, 'input perturbation': 20.3}

    A thermometer with steps of 0.1 °C takes more to hide, over the days that are sent.

    >>> day = design_input_noise(room, 1.0, 1e-4, horizon=96, resolution=0.1)
    >>> noise_by_time(day)[0].round(2).tolist()
    [9.26]

    Running totals of a stream (an integrator), over 256 steps.  With the least largest variance the
    last total has less noise; ``gap`` is to the least of all filters that start at rest.

    >>> totals = ([[1.0]], [[1.0]], [[1.0]], [[1.0]])
    >>> even = design_input_noise(totals, 1.0, 1e-4, horizon=256, objective="largest")
    >>> square = even.guarantee.sensitivity**2
    >>> float(round(noise_by_time(even).max() ** 2 * square, 3)), even.gap < 1e-5
    (8.015, True)
    """
    refuse_other_laws(law)
    refuse_rarely(cost, every)
    neighbours = private_inputs(system, mu, window, horizon, inputs)
    limit = largest_sensitivity(epsilon, delta)
    found = designed(neighbours, limit, cost, objective)
    found = found.keeping(epsilon, delta)
    return with_sensors(found, resolution, measurement_error, fresh_noise, every)


def refuse_other_laws(law: str) -> None:
    """Refuse a law that a filter cannot be certified with."""
    if law not in ("gaussian", "auto"):
        raise AffineDPError(
            f"noise that is fresh at every step (private inputs, forward neighbours) is Gaussian, "
            f"not {law!r}: what an event does to it is known by its energy, which bounds the loss "
            "of Gaussian noise alone"
        )


def refuse_rarely(cost: Any, every: int) -> None:
    """Refuse a cost where a loop does not get every step."""
    if every != 1 and cost is not None:
        raise AffineDPError(
            "cost is about noise at every step, and every leaves steps out: leave one of them out"
        )


def designed(
    neighbours: Inputs,
    limit: float,
    cost: Any = None,
    objective: Objective = "sum",
) -> Mechanism:
    """Return the least noise with a sensitivity of at most ``limit``."""
    largest = checked_objective(objective, cost) == "largest"
    given, asked = _checked(neighbours), neighbours.domain.horizon
    shown = given.domain.system.order + 2
    if given.domain.horizon is not None:
        shown = min(shown, given.steps_to_remember + 1)
    response = np.abs(given.domain.system.impulse(shown))
    if not response.any():
        raise AffineDPError("the outputs do not depend on what is private: no noise is needed")
    weight = _weight(cost, given.domain.system.outputs)
    # outputs of about unit size: a power of two goes into the filter, exactly
    size = math.frexp(float(response.max()))[1]
    unit = _larger(given.domain.system, math.ldexp(1.0, -size))
    neighbours = replace(given, domain=replace(given.domain, system=unit))

    def summed(made: LinearSystem) -> float:
        return float(np.trace(weight.after(made).output_covariance()))

    least = None
    with Progress("least noise"):
        if neighbours.domain.horizon is not None:
            _refuse_over_a_horizon(neighbours, cost)
            candidates, least = horizon_candidates(neighbours, largest)
        else:
            spread = largest_variance if largest else summed
            candidates = plain_candidates(neighbours, spread)
            if neighbours.window is not None:
                if largest:
                    spectra = least_largest_spectra(neighbours)
                else:
                    spectra = [least_spectrum(neighbours, weight)]
                least = spectra[0].bound if spectra[0].resolved else None
                for spectrum in spectra:
                    candidates += fitted_candidates(neighbours, spread, spectrum)
        square = (math.ldexp(1.0, size) / limit) ** 2
        alternatives = tuple(
            Alternative("gaussian", one.cost * square, reason=one.name)
            for one in candidates
            if one.name in ("white output noise", "input perturbation")
        )
        for one in sorted(candidates, key=lambda candidate: candidate.cost):
            try:
                if one.place == "output":
                    one = replace(one, shaper=_larger(one.shaper, math.ldexp(1.0, size)))
                found = _certified(one, given, limit, asked)
            except AffineDPError as error:
                reason = error
                continue
            gap = None if least is None else max(0.0, one.cost / least - 1)
            return found.with_design(gap=gap, error=one.cost * square, alternatives=alternatives)
    raise reason


def _larger(system: LinearSystem, factor: float) -> LinearSystem:
    """The same with outputs that are larger by a factor."""
    return LinearSystem(system.A, system.B, system.C * factor, system.D * factor)


def checked_objective(objective: Objective, cost: Any) -> Objective:
    """Return what is to be least, or refuse it."""
    if objective not in ("sum", "largest"):
        raise AffineDPError(f"objective must be 'sum' or 'largest', not {objective!r}")
    if objective == "largest" and cost is not None:
        raise AffineDPError(
            "cost goes with objective='sum'; scale the outputs instead, so that their largest "
            "variance is what matters"
        )
    return objective


def _certified(one: Candidate, neighbours: Inputs, limit: float, steps: int | None) -> Mechanism:
    """The mechanism of a candidate, or a refusal if it cannot be certified."""
    unit = Filter(neighbours.domain, one.shaper, one.place)
    scale = math.sqrt(float(unit.squared_sensitivities(neighbours).max())) / limit * (1 + 1e-14)
    # draws of about unit size: a power of two goes into the filter, exactly
    exponent = math.frexp(scale)[1]
    shaper = one.shaper.scaled(math.ldexp(1.0, exponent))
    made = replace(unit, shaper=shaper, scale=math.ldexp(scale, -exponent))
    if neighbours.domain.horizon is None:
        made = replace(made, start=start_certificate(made.exact_noise).root, steps=steps)
    colour = f", coloured at the {one.place}" if one.shaper.order else ""
    notes: tuple[str, ...] = (f"{one.name}{colour}",)
    if neighbours.domain.horizon is not None and one.shaper.outputs > 1:
        notes += (OF_ONE_COLOUR,)
    found = Mechanism(neighbours, made, Gaussian(), design=Design(notes=notes))
    if not found.guarantee.sensitivity <= limit:
        raise AffineDPError("the noise could not be scaled to the promise")
    return found


def _checked(neighbours: Inputs) -> Inputs:
    """Refuse plants for which there is no such noise; a stable one needs no horizon."""
    radius = neighbours.domain.system.radius
    if radius > 1 + ON_THE_CIRCLE:
        raise AffineDPError(
            f"the plant is unstable (a pole of modulus {radius:.6g} that private inputs excite "
            "and outputs show): what an input does grows without end, and so would any noise that "
            "hides it. Close a local loop that stabilises the plant first, and design for the "
            "closed loop, (A − B K C, E, C)"
        )
    if radius < 1 - ON_THE_CIRCLE:
        return replace(neighbours, domain=replace(neighbours.domain, horizon=None))
    if neighbours.domain.horizon is None:
        raise AffineDPError(
            "the plant has a pole on the unit circle (an integrator): what an input does never "
            "fades, and noise for all time would grow with log² of the time. Give a horizon, or "
            "close a local loop first"
        )
    return neighbours


def _refuse_over_a_horizon(neighbours: Inputs, cost: Any) -> None:
    if neighbours.window != 1:
        raise AffineDPError("over a horizon only single steps are hidden: use window=1")
    if cost is not None:
        raise AffineDPError("over a horizon noise is made small by its mean variance: leave cost")


def _weight(cost: Any, outputs: int) -> LinearSystem:
    """What noise costs, as a filter whose output's mean square is the cost."""
    if cost is None:
        return LinearSystem.static(np.eye(outputs))
    if hasattr(cost, "noise_response"):
        found = LinearSystem(*cost.noise_response())
        if found.inputs != outputs:
            raise AffineDPError(f"the loop has {found.inputs} outputs, the system {outputs}")
        if not found.radius < 1:
            raise AffineDPError(
                "the loop is not stable, so that noise costs without end in it: see its warnings"
            )
        return found
    if np.ndim(real_array(cost, "cost")) == 0:
        raise AffineDPError(f"cost must be one weight for each of {outputs} outputs, or a matrix")
    weight = semidefinite(cost, "cost", outputs, 1e-9)
    if not weight.any():
        raise AffineDPError("cost must not be zero")
    return LinearSystem.static(semidefinite_root(weight))
