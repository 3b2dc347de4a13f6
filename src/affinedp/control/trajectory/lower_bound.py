"""What no noise on a trajectory can go below, whatever its law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.control.trajectory.least_noise import least_noise
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.control.trajectory.promise import needed_coordinates
from affinedp.designs.separate import with_floor
from affinedp.domains.observability import output_gramian
from affinedp.errors import AffineDPError
from affinedp.privacy.least_possible import LeastPossible

# How exact the bound is.
GAP = 1e-6


def with_lower_bound(
    mechanism: TrajectoryMechanism, cost: Any, epsilon: float, delta: float
) -> TrajectoryMechanism:
    """Add what no mechanism with the promise can go below: outputs that err in any way at all.

    Their error has a second moment M ⪰ V n nᵀ for every move n of the outputs, by which the least
    squared error is V times that of Gaussian noise of sensitivity 1.  Nothing is asked of the
    mechanisms: they may wait for all outputs, and need not obey the dynamics.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
        As designed.
    cost : object or None
        If noise costs something else than the squared error of the outputs, there is no bound: it
        says what noise *of this form* costs, and other noise may cost less.
    epsilon, delta : float
        The promise that was asked for.
    """
    neighbours = mechanism.neighbours
    if cost is not None:
        return mechanism
    try:
        gramian = output_gramian(neighbours.dynamics)
        coordinates = needed_coordinates(neighbours, gramian)
        differences, places = neighbours.directions(), coordinates.places
        lengths = np.abs(differences[:, places]).max(axis=0)
        weight, floor = with_floor(gramian[np.ix_(places, places)], lengths)
        if floor:
            return mechanism
        best = least_noise(
            differences, coordinates.combinations, weight, 1.0, GAP, lambda gap: None
        )
        error = mechanism.variance * float(np.trace(mechanism.root.T @ gramian @ mechanism.root))
        dual = best.lower_bound(weight)
        least = LeastPossible(dual, error, float(epsilon), float(delta), "real")
    except AffineDPError:  # too ill-conditioned to say anything
        return mechanism
    return replace(mechanism, least=least)
