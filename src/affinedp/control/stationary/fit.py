"""Causal noise filters of low order that come close to the least noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.factorisation import impulse_response, realisations
from affinedp.control.stationary.modal import Modal, acceptable, improved
from affinedp.control.stationary.spectrum import LeastSpectrum
from affinedp.exact.systems import ComplexArray, LinearSystem
from affinedp.neighbours.inputs import Inputs
from affinedp.strategies.filter import Place

MOST_ORDER = 12
# A fit this close to the bound is good enough; a scalar one that is farther off is improved.
CLOSE = 1.004
FAR = 1.02
# Larger filters, and those for windows, are not improved: that takes long.
MOST_IMPROVED = 5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise filter, and what it costs for sensitivity 1 (in floating point)."""

    name: str
    shaper: LinearSystem
    place: Place
    cost: float


def evaluated(
    name: str, neighbours: Inputs, weight: LinearSystem, shaper: LinearSystem, place: Place
) -> Candidate:
    """Return a candidate with its cost; inf where it has none."""
    made = shaper if place == "output" else neighbours.domain.system.after(shaper)
    spread = float(np.trace(weight.after(made).output_covariance()))
    undone = shaper.inverse()
    seen = undone.after(neighbours.domain.system) if place == "output" else undone
    cost = spread * float(_squares(neighbours, seen).max())
    return Candidate(name, shaper, place, cost if math.isfinite(cost) and cost > 0 else math.inf)


def _squares(neighbours: Inputs, seen: LinearSystem) -> FloatArray:
    """Squared sensitivities in floating point."""
    mu = neighbours.mu
    if neighbours.window == 1:
        return np.asarray(seen.energies() * mu**2)
    if neighbours.window is None:
        return np.asarray(mu**2 / np.diagonal(seen.inverse().D) ** 2)
    # lags of the response's autocorrelation: D'C.. and the observability Gramian
    gramian = LinearSystem(seen.A.T, seen.C.T, seen.B.T, seen.D.T).covariance()
    found = []
    for i, distance in enumerate(mu):
        state, lags = seen.B[:, i], [float(seen.energies()[i])]
        reach = seen.A.T @ gramian @ seen.B[:, i] + seen.C.T @ seen.D[:, i]
        for _ in range(neighbours.window - 1):
            lags.append(float(reach @ state))
            state = seen.A @ state
        places = np.arange(len(lags))
        matrix = np.array(lags)[np.abs(places[:, None] - places)]
        found.append(distance**2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return np.array(found)


def plain_candidates(neighbours: Inputs, weight: LinearSystem) -> list[Candidate]:
    """Return the two designs that everyone knows: white noise on the outputs, or on the inputs."""
    found = []
    if neighbours.window is not None:
        white = LinearSystem.static(np.eye(neighbours.domain.system.outputs))
        found.append(evaluated("white output noise", neighbours, weight, white, "output"))
    # every input gets noise in proportion to how far it moves
    shares = LinearSystem.static(np.diag(neighbours.mu / neighbours.mu.max()))
    found.append(evaluated("input perturbation", neighbours, weight, shares, "input"))
    return found


def fitted_candidates(
    neighbours: Inputs, weight: LinearSystem, least: LeastSpectrum, most_order: int
) -> list[Candidate]:
    """Return the best causal filters of low order, for each place."""
    m, p = neighbours.domain.system.inputs, neighbours.domain.system.outputs
    found: list[Candidate] = []
    if m >= p:
        found.extend(_near(neighbours, weight, least.output, "output", least.bound, most_order))
    close = any(one.cost <= CLOSE * least.bound for one in found)
    if least.input is not None and not close:
        found.extend(_near(neighbours, weight, least.input, "input", least.bound, most_order))
    return found


def _near(
    neighbours: Inputs,
    weight: LinearSystem,
    spectrum: ComplexArray,
    place: Place,
    bound: float,
    most_order: int,
) -> Iterator[Candidate]:
    """The best realisations of one spectrum, and an improved one where it is scalar."""
    taps = impulse_response(spectrum)
    scalar = taps.shape[1] == 1
    found = []
    for made in realisations(taps, most_order):
        if not acceptable(made):
            continue
        shaper = Modal.of(made).filter() if scalar else made
        if not acceptable(shaper):
            continue
        name = f"coloured noise of order {made.order}"
        one = evaluated(name, neighbours, weight, shaper, place)
        found.append(one)
        if one.cost <= CLOSE * bound:
            break
    found.sort(key=lambda one: one.cost)
    small = [one for one in found if one.shaper.order <= MOST_IMPROVED]
    if scalar and small and neighbours.window == 1 and found[0].cost > FAR * bound:
        best = small[0]
        shaper = improved(
            best.shaper,
            lambda tried: math.log(evaluated("", neighbours, weight, tried, place).cost),
        )
        if acceptable(shaper):
            found.append(evaluated(best.name, neighbours, weight, shaper, place))
            found.sort(key=lambda one: one.cost)
    yield from found[:4]
