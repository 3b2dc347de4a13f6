"""What no noise on a trajectory can go below, whatever its law."""

from __future__ import annotations

from typing import Any

import numpy as np

from affinedp.control.trajectory.least_noise import least_noise
from affinedp.designs.separate import with_floor
from affinedp.domains.observability import output_gramian
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.privacy.least_possible import LeastPossible

# How exact the bound is.
GAP = 1e-6


def with_lower_bound(mechanism: Mechanism, cost: Any, epsilon: float, delta: float) -> Mechanism:
    """Add what no mechanism with the promise can go below: outputs that err in any way at all.

    Their error has a second moment M ⪰ V n nᵀ for every move n of the outputs, by which the least
    squared error is V times that of Gaussian noise of sensitivity 1.  Nothing is asked of the
    mechanisms: they may wait for all outputs, and need not obey the dynamics.

    Parameters
    ----------
    mechanism : Mechanism
        As designed.
    cost : object or None
        If noise costs something else than the squared error of the outputs, there is no bound: it
        says what noise *of this form* costs, and other noise may cost less.
    epsilon, delta : float
        The promise that was asked for.
    """
    if cost is not None:
        return mechanism
    adjacency: Any = mechanism.adjacency
    strategy: Any = mechanism.strategy
    try:
        gramian = output_gramian(mechanism.domain)
        needed = strategy.revealed.restricted(adjacency.moving())
        differences, places = adjacency.differences(), needed.places
        lengths = np.abs(differences[:, places]).max(axis=0)
        weight, floor = with_floor(gramian[np.ix_(places, places)], lengths)
        if floor:
            return mechanism
        best = least_noise(differences, needed.combinations, weight, 1.0, GAP, lambda gap: None)
        error = float(np.trace(gramian @ mechanism.noise.covariance(strategy.start)))
        dual = best.lower_bound(weight)
        least = LeastPossible(dual, error, float(epsilon), float(delta), "real")
    except AffineDPError:  # too ill-conditioned to say anything
        return mechanism
    return mechanism.with_design(least=least)
