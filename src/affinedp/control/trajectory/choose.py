"""Which neighbours of a trajectory, and how far they are apart, as a caller says it."""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.neighbours.adjacency import Distances, named
from affinedp.neighbours.trajectory import (
    InitialState,
    TimeLocal,
    TrajectoryAdjacency,
    WholeManifold,
)

MOST_ENTRIES = 20_000
MOST_NUMBERS = 4e8
SMALLEST, LARGEST = 1e-150, 1e150


def trajectory_neighbours(dynamics: Dynamics, mu: Distances, kind: str) -> TrajectoryAdjacency:
    """Return the neighbours of a kind.

    Parameters
    ----------
    dynamics : Dynamics
        The system and its horizon.
    mu : float, array_like or mapping
        One number, one per state (or by its name), or one per time and state, shape (horizon, n).
    kind : {"time-local", "manifold", "initial"}
        Theorem 3, the full Definition 4, or x(0) alone.
    """
    values = checked_distances(mu, dynamics)
    if kind == "initial" or (kind == "time-local" and only_at_first(values)):
        if values.ndim == 2 and not only_at_first(values):
            raise AffineDPError(
                "with neighbours='initial' only x(0) moves, but mu is positive at later times: "
                "give one number for each state"
            )
        return InitialState(dynamics, _row(values, dynamics.states))
    if kind not in ("time-local", "manifold"):
        raise AffineDPError(
            f"neighbours must be 'time-local', 'manifold' or 'initial', not {kind!r}"
        )
    if float(dynamics.horizon) * dynamics.states > MOST_NUMBERS:
        raise AffineDPError(f"a horizon of {dynamics.horizon:,} does not fit in memory")
    distances = np.array(np.broadcast_to(values, (dynamics.horizon, dynamics.states)))
    distances.flags.writeable = False
    if kind == "time-local":
        return TimeLocal(dynamics, distances)
    if distances.size > MOST_ENTRIES:
        raise AffineDPError(
            f"a trajectory of {distances.size:,} entries is too long for Definition 4 (at most "
            f"{MOST_ENTRIES:,}): shorten the horizon, or use neighbours='time-local'"
        )
    return WholeManifold(dynamics, distances)


def only_at_first(distances: FloatArray) -> bool:
    """Whether distances by time are positive at t = 0 alone.

    Parameters
    ----------
    distances : array
        By time and state, or any other shape.
    """
    return distances.ndim == 2 and len(distances) > 1 and not distances[1:].any()


def _row(values: FloatArray, n: int) -> FloatArray:
    first = values[0] if values.ndim == 2 else values
    row = np.array(np.broadcast_to(first, (1, n)))
    row.flags.writeable = False
    return row


def checked_distances(mu: Distances, dynamics: Dynamics) -> FloatArray:
    """Return μ as it was given, as an array: none negative, not all zero.

    Parameters
    ----------
    mu : float, array_like or mapping
        One number, one per state (or by its name), or one per time and state.
    dynamics : Dynamics
        The system and its horizon.
    """
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
