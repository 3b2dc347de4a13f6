"""The noise of a trajectory as an ordinary mechanism, for a trajectory that was recorded whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix
from affinedp.control.trajectory.neighbours import trajectory_manifold
from affinedp.control.trajectory.record import OneDrawNoise
from affinedp.domains.dynamics import Dynamics
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build

# Entries of a trajectory that still become an ordinary mechanism.
MOST_ENTRIES = 5_000


def output_query(dynamics: Dynamics) -> tuple[Matrix, tuple[str, ...]]:
    """Return the query of all outputs, and their names.

    Parameters
    ----------
    dynamics : Dynamics
        The system and its horizon.
    """
    import scipy.sparse as sparse

    times = range(dynamics.horizon)
    query = sparse.csr_array(sparse.block_diag([dynamics.output_matrix(t) for t in times]))
    return query, tuple(f"{name}({t})" for t in times for name in dynamics.output_names)


def ordinary_mechanism(noise: OneDrawNoise, offsets: ArrayLike | None = None) -> Mechanism:
    """Return the same noise as an ordinary mechanism; its guarantee is computed anew.

    Parameters
    ----------
    noise : OneDrawNoise
        One draw for the whole horizon.
    offsets : array_like, shape (horizon − 1, n), optional
        The public inputs ``B u(t)``; zero by default.
    """
    entries = noise.horizon * noise.states
    if entries > MOST_ENTRIES:
        raise AffineDPError(
            f"a trajectory of {entries:,} entries is too long for an ordinary mechanism (at "
            f"most {MOST_ENTRIES:,}); send it step by step through a Gateway"
        )
    dynamics = noise.dynamics
    manifold = trajectory_manifold(dynamics, offsets)
    query, names = output_query(dynamics)
    if noise.points is not None:
        places = noise.noisy
        basis = noise.noise_matrix @ np.linalg.inv(noise.root[places])
        return build(
            noise.neighbours.adjacency(manifold), query, basis, noise.points[places], "knorm",
            names, notes=noise.notes, rate=noise.rate,
        )  # fmt: skip
    return build(
        noise.neighbours.adjacency(manifold), query, noise.noise_matrix,
        np.eye(noise.root.shape[1]), noise.law, names, gap=noise.gap, notes=noise.notes,
    )  # fmt: skip
