"""What stationary noise promises about private inputs: the guarantee of a filter, proved."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.certificate import (
    Energy,
    NoCertificateError,
    checked_start,
    energy_certificate,
    upper,
    window_energy,
)
from affinedp.control.stationary.filters import ExactFilter, Filter
from affinedp.control.stationary.inputs import PrivateInputs
from affinedp.control.trajectory.promise import observability_bound
from affinedp.domains.dynamics import Dynamics
from affinedp.laws.curves import GaussianCurve
from affinedp.privacy.guarantee import Guarantee

# Where white noise is coloured: on the way to the outputs, or before it passes the plant.
Place: TypeAlias = Literal["output", "input"]
# A certified energy this close to what floating point finds is called exact.
EXACT = 1 + 1e-6


def noise_filter(neighbours: PrivateInputs, shaper: Filter, place: Place) -> ExactFilter:
    """Return what makes the noise out of white noise, exactly.

    Parameters
    ----------
    neighbours : PrivateInputs
        Whom the promise is about.
    shaper : Filter
        What colours white noise.
    place : {"output", "input"}
        Whether the shaper's output is the noise, or drives a copy of the plant.
    """
    exact = shaper.exact()
    return exact if place == "output" else neighbours.plant.exact().after(exact)


def whitened(neighbours: PrivateInputs, shaper: Filter, place: Place) -> ExactFilter:
    """Return what a unit impulse on a private input looks like in units of the white noise.

    Parameters
    ----------
    neighbours, shaper, place
        As for :func:`noise_filter`.
    """
    undone = shaper.exact().inverse()
    return undone.after(neighbours.plant.exact()) if place == "output" else undone


def whitened_energy(neighbours: PrivateInputs, shaper: Filter, place: Place) -> Energy:
    """Return the proof of how much an impulse on a private input can do, for all time.

    Parameters
    ----------
    neighbours, shaper, place
        As for :func:`noise_filter`.
    """
    return energy_certificate(whitened(neighbours, shaper, place))


def squared_sensitivities(neighbours: PrivateInputs, shaper: Filter, place: Place) -> FloatArray:
    """Return a bound on the squared sensitivity to each private input, for unit white noise.

    Parameters
    ----------
    neighbours, shaper, place
        As for :func:`noise_filter`.
    """
    mu = neighbours.mu
    if neighbours.window is None:
        if (
            place != "input"
            or shaper.order
            or not np.array_equal(shaper.D, np.diag(np.diagonal(shaper.D)))
        ):
            raise NoCertificateError(
                "changes over any number of steps are covered by white noise on the inputs alone"
            )
        # the energy of the pattern itself, whatever it is
        return np.asarray((mu / np.diagonal(shaper.D)) ** 2 * (1 + 1e-15))
    if neighbours.horizon is not None:
        return _within_horizon(neighbours, shaper, place)
    proof = whitened_energy(neighbours, shaper, place)
    found = []
    for i, distance in enumerate(mu):
        square = Fraction(float(distance)) ** 2
        if neighbours.window == 1:
            found.append(upper(square * proof.of(i)))
        else:
            energy = window_energy(proof, i, neighbours.window)
            found.append(upper(square * Fraction(energy)))
    return np.array(found)


def _within_horizon(neighbours: PrivateInputs, shaper: Filter, place: Place) -> FloatArray:
    """Over a horizon the impulse at the first step does most; its energy is summed, not proved."""
    if neighbours.window != 1:
        raise NoCertificateError("windows over a finite horizon are not certified: use window=1")
    exact = whitened(neighbours, shaper, place)
    system = exact.floats()
    pairs = ((exact.A, system.A), (exact.B, system.B), (exact.C, system.C), (exact.D, system.D))
    if not all(_same(a.values, a.over, b) for a, b in pairs):
        raise NoCertificateError("over a finite horizon the whitening filter must be exact doubles")
    steps = neighbours.steps_to_remember
    direct = (system.D**2).sum(axis=0) * (1 + 1e-14)
    if steps and system.order:
        names = tuple(f"x{i}" for i in range(system.order))
        outputs = tuple(f"y{i}" for i in range(system.outputs))
        dynamics = Dynamics(np.array(system.A), np.array(system.C), steps, names, outputs)
        root, slack = observability_bound(dynamics)
        for part in (root, slack):
            moved = part @ system.B
            terms = np.abs(part) @ np.abs(system.B)
            direct = direct + ((np.abs(moved) + 1e-14 * system.order * terms) ** 2).sum(axis=0)
    return np.asarray(direct * neighbours.mu**2 * (1 + 1e-13))


def _same(values: FloatArray, over: int, doubles: FloatArray) -> bool:
    return all(
        Fraction(int(value), over) == Fraction(float(double))
        for value, double in zip(values.ravel(), doubles.ravel())
    )


def stationary_promise(
    neighbours: PrivateInputs,
    shaper: Filter,
    place: Place,
    scale: float,
    start: FloatArray | None,
) -> Guarantee:
    """Return the guarantee of noise of which everything is given.

    Parameters
    ----------
    neighbours, shaper, place
        As for :func:`noise_filter`.
    scale : float
        Standard deviation of the white noise.
    start : array or None
        Root of the first memory's covariance, for unit white noise; None starts at rest.

    Examples
    --------
    >>> from affinedp.control.stationary.inputs import private_inputs
    >>> room = private_inputs(([[0.99]], [[0.9]], [[1.0]]), mu=1.0)
    >>> white = Filter.static(np.eye(1))
    >>> promise = stationary_promise(room, white, "output", 20.0, np.zeros((0, 0)))
    >>> round(promise.sensitivity, 4)                  # √(0.9² / (1 − 0.99²)) / 20
    0.319
    """
    if not 0 < scale < math.inf:
        raise NoCertificateError(f"the scale of the noise must be positive, not {scale}")
    squares = squared_sensitivities(neighbours, shaper, place)
    if start is not None:
        checked_start(noise_filter(neighbours, shaper, place), start)
    elif neighbours.horizon is None:
        raise NoCertificateError(
            "noise for all time starts in its stationary state: at rest it does not cover events "
            "before the start"
        )
    worst = int(np.argmax(squares))
    sensitivity = math.sqrt(squares[worst]) / scale * (1 + 1e-15)
    direction = np.zeros(len(neighbours.mu))
    direction[worst] = neighbours.mu[worst]
    near = _nearly(neighbours, shaper, place, squares[worst], worst)
    return stated(neighbours, sensitivity, direction, exact=near)


def _nearly(neighbours: PrivateInputs, shaper: Filter, place: Place, square: float, i: int) -> bool:
    """Whether a certified energy is also the true one, as far as floating point tells."""
    if place == "input" or neighbours.horizon is not None or neighbours.window != 1:
        return False
    seen = whitened(neighbours, shaper, place).floats()
    return square <= float(seen.energies()[i]) * float(neighbours.mu[i]) ** 2 * EXACT


def stated(
    neighbours: PrivateInputs, sensitivity: float, direction: FloatArray | None, exact: bool
) -> Guarantee:
    """Return the guarantee of a sensitivity.

    Parameters
    ----------
    neighbours : PrivateInputs
        Whom it is about.
    sensitivity : float
        In units of the noise.
    direction : array or None
        Which input attains it.
    exact : bool
        Whether nothing stronger is true.
    """
    how = "one step" if neighbours.window == 1 else "a window"
    return Guarantee(
        law="gaussian",
        sensitivity=sensitivity,
        exact=exact,
        neighbours=neighbours.words,
        basis=neighbours.theorem,
        curve=GaussianCurve(sensitivity),
        worst_direction=direction,
        names=neighbours.input_names,
        output_names=neighbours.output_names,
        method=f"energy of the whitened response to {how}, certified",
        neighbours_key=neighbours.key,
        unit=neighbours.unit,
    )
