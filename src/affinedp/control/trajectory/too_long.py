"""Horizons that are too long for one draw: why, up to where it goes, and what goes instead."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np

from affinedp.control.by_time import noise_by_time
from affinedp.control.trajectory.choose import trajectory_neighbours
from affinedp.domains.powers import HorizonTooLongError, SingularDynamicsError, inverted, log_growth
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import InitialState, TrajectoryAdjacency

# Dynamics that stretch differences by less than this many powers of two are not to blame.
MUCH = 20.0
# Poles up to here do not grow.
ON_THE_CIRCLE = 1e-9


def longest_that_works(
    neighbours: TrajectoryAdjacency, design: Callable[[TrajectoryAdjacency], Mechanism]
) -> Mechanism | None:
    """Return the noise of a horizon that works though a slightly longer one does not, by bisection.

    Parameters
    ----------
    neighbours : TrajectoryAdjacency
        Those over the horizon that is too long.
    design : callable
        From neighbours to noise, or a refusal.
    """
    found = None
    low, high = 0, neighbours.domain.horizon
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        while high - low > 1:
            middle = (low + high) // 2
            mu = (
                neighbours.mu[0] if isinstance(neighbours, InitialState) else neighbours.mu[:middle]
            )
            dynamics = neighbours.domain.shortened(middle)
            try:
                found = design(trajectory_neighbours(dynamics, mu, neighbours.said))
                low = middle
            except AffineDPError:
                high = middle
    return found


def too_long(
    neighbours: TrajectoryAdjacency, works: Mechanism, error: AffineDPError
) -> HorizonTooLongError:
    """Return the refusal: what is wrong, which horizon works at what cost, and what to do.

    Parameters
    ----------
    neighbours : TrajectoryAdjacency
        Those over the horizon that is too long.
    works : Mechanism
        From :func:`longest_that_works`.
    error : AffineDPError
        What the design said.
    """
    sizes, most = np.linalg.norm(noise_by_time(works), axis=1), works.domain.horizon
    peak = int(sizes.argmax())
    return HorizonTooLongError(
        f"a horizon of {neighbours.domain.horizon:,} steps is too long for "
        f"neighbours={neighbours.said!r}: {_reason(neighbours, error)}. The longest that works is "
        f"{most:,}, with noise of standard deviation {sizes[peak]:.2g} at t = {peak}"
        f"{_instead(neighbours)}",
        most,
    )


def _reason(neighbours: TrajectoryAdjacency, error: AffineDPError) -> str:
    stretched = _stretched(neighbours)
    if stretched > MUCH:
        return (
            "the dynamics contract and the past follows, so that a difference of 1 in the last "
            f"state was one of about 10^{stretched * math.log10(2):.0f} in the first, and no noise "
            "in double precision is certain to hide it"
        )
    return str(error).partition(" A horizon of")[0].removesuffix(" Shorten the horizon").rstrip(".")


def _stretched(neighbours: TrajectoryAdjacency) -> float:
    """About log₂ of how much larger a late difference was at the start; 0 if that is not known."""
    dynamics = neighbours.domain
    if isinstance(neighbours, InitialState) or dynamics.time_varying:
        return 0.0
    try:
        return log_growth(inverted(dynamics.A), dynamics.horizon - 1)
    except SingularDynamicsError:
        return 0.0


def _instead(neighbours: TrajectoryAdjacency) -> str:
    """What to promise instead, where Theorem 3 asks too much."""
    dynamics = neighbours.domain
    if isinstance(neighbours, InitialState):
        return ""
    if dynamics.time_varying:
        return ". To hide x(0) alone, whose past is not sent, use neighbours='initial'"
    if np.abs(np.linalg.eigvals(dynamics.A)).max() > 1 + ON_THE_CIRCLE:
        return (
            ". The plant is unstable: close a local loop that stabilises it before it is measured, "
            "and design for the closed loop"
        )
    return (
        ". If the past need not follow, use neighbours='initial' or 'forward': they hide where the "
        "state started, or a jump of it at any time, and work for any horizon"
    )
