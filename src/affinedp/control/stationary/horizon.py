"""Noise for plants with poles on the unit circle (integrators), over a horizon.

An impulse never dies out there, so that the energy is summed over the horizon: exactly in the
promise, by doubling here.  The noise starts at rest.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from affinedp.control.stationary.factorisation import impulse_response, realisations
from affinedp.control.stationary.fit import Candidate
from affinedp.control.stationary.modal import Modal, acceptable, improved
from affinedp.control.stationary.spectrum import least_spectrum
from affinedp.exact.systems import LinearSystem
from affinedp.neighbours.inputs import Inputs

MOST_ORDER = 4
# The plant that is fitted forgets within this share of the horizon.
FORGETS = 2.0


def mean_cost(neighbours: Inputs, shaper: LinearSystem) -> float:
    """Return the mean variance over the horizon, times the squared sensitivity."""
    steps, remembered = int(neighbours.domain.horizon or 1), neighbours.steps_to_remember
    seen = shaper.inverse().after(neighbours.domain.system)
    energies = seen.energies(remembered + 1)
    return mean_variance(shaper, steps) * float((energies * neighbours.mu**2).max())


def mean_variance(shaper: LinearSystem, steps: int) -> float:
    """Return the mean over some steps of the variance of filtered unit white noise, at rest.

    Examples
    --------
    >>> half = LinearSystem([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    >>> round(mean_variance(half, 3), 6), (1 + 2 + 2.25) / 3
    (1.75, 1.75)
    """
    total = float((shaper.D**2).sum()) * steps
    if not shaper.order:
        return total / steps
    poles, vectors = np.linalg.eig(shaper.A)
    left, right = shaper.C @ vectors, np.linalg.solve(vectors, shaper.B.astype(complex))
    product = poles[:, None] * poles.conj()
    rest = 1 - product
    # Σ_k q^(k−1) (steps − k) for every pair of poles
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = (steps * rest - (1 - product**steps)) / rest**2
    sums = np.where(np.abs(rest) * steps < 1e-5, steps * (steps - 1) / 2, sums)
    weights = (left.conj().T @ left).conj() * (right @ right.conj().T)
    return (total + float((weights * sums).sum().real)) / steps


def horizon_candidates(neighbours: Inputs) -> list[Candidate]:
    """Return noise over a horizon: white, and coloured where there is one output."""
    p, steps = neighbours.domain.system.outputs, int(neighbours.domain.horizon or 1)
    white = LinearSystem.static(np.eye(p))
    found = [Candidate("white output noise", white, "output", mean_cost(neighbours, white))]
    if p > 1 or steps < 8:
        return found
    # a plant that forgets within the horizon has a spectrum
    plant = neighbours.domain.system
    pulled = LinearSystem(plant.A * (1 - FORGETS / steps), plant.B, plant.C, plant.D)
    near = replace(
        neighbours, window=1, domain=replace(neighbours.domain, system=pulled, horizon=None)
    )
    spectrum = least_spectrum(near, LinearSystem.static(np.eye(1))).output
    for made in realisations(impulse_response(spectrum), MOST_ORDER):
        if not acceptable(made) or not acceptable(Modal.of(made).filter()):
            continue
        shaper = improved(made, lambda tried: math.log(mean_cost(neighbours, tried)))
        name = f"coloured noise of order {made.order}"
        found.append(Candidate(name, shaper, "output", mean_cost(neighbours, shaper)))
    return found
