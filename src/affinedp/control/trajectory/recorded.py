"""The noise of a trajectory as an ordinary mechanism, for a trajectory that was recorded whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from affinedp.control.trajectory.neighbours import trajectory_manifold
from affinedp.control.trajectory.record import OneDrawNoise
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism, build

# Entries of a trajectory that still become an ordinary mechanism.
MOST_ENTRIES = 5_000


def ordinary_mechanism(noise: OneDrawNoise, offsets: ArrayLike | None = None) -> Mechanism:
    """Return the same noise as an ordinary mechanism; its guarantee is computed anew.

    Parameters
    ----------
    noise : OneDrawNoise
        One draw for the whole horizon.
    offsets : array_like, shape (horizon − 1, n), optional
        The public inputs ``B u(t)``; zero by default.
    """
    import scipy.sparse as sparse

    entries = noise.horizon * noise.states
    if entries > MOST_ENTRIES:
        raise AffineDPError(
            f"a trajectory of {entries:,} entries is too long for an ordinary mechanism (at "
            f"most {MOST_ENTRIES:,}); send it step by step through a Gateway"
        )
    dynamics = noise.dynamics
    manifold = trajectory_manifold(dynamics, offsets)
    query = sparse.csr_array(
        sparse.block_diag([dynamics.output_matrix(t) for t in range(noise.horizon)])
    )
    names = [f"{name}({t})" for t in range(noise.horizon) for name in dynamics.output_names]
    return build(
        noise.neighbours.adjacency(manifold), query, noise.noise_matrix,
        np.eye(noise.root.shape[1]), "gaussian", names, gap=noise.gap, notes=noise.notes,
    )  # fmt: skip
