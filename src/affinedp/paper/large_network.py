"""A hundred thousand agents spread over a square, each linked to those nearby."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.private import PrivateConsensus
from affinedp.consensus.readouts import READOUTS
from affinedp.errors import AffineDPError

SNAPSHOTS = (0, 10, 100, 400, 5_000)
EPSILON = 0.5


@dataclass(frozen=True, eq=False)
class Convergence:
    """One run on a large network."""

    consensus: PrivateConsensus
    places: FloatArray
    average: float
    messages: FloatArray
    times: FloatArray
    errors: Mapping[str, FloatArray]


def geometric_links(agents: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return random places in the unit square, and links between those that are near.

    Opposite sides of the square meet, so that no agent at a side has fewer neighbours.
    """
    from scipy.spatial import cKDTree

    places = np.random.default_rng(seed).random((agents, 2))
    reach = math.sqrt(2 * math.log(agents) / (math.pi * agents))
    return places, cKDTree(places, boxsize=1.0).query_pairs(reach, output_type="ndarray")


def converging(agents: int = 100_000, seed: int = 0) -> Convergence:
    """Run consensus on a geometric network whose values form waves over the square.

    Examples
    --------
    >>> found = converging(agents=500)
    >>> found.messages.shape, bool(found.errors["message"][-1] < found.errors["state"][-1] / 50)
    ((5, 500), True)
    """
    if isinstance(agents, bool) or not isinstance(agents, int) or agents < 100:
        raise AffineDPError(f"a large network has at least 100 agents, not {agents!r}")
    places, links = geometric_links(agents, seed)
    consensus = PrivateConsensus.from_edges(
        agents, links[:, 0], links[:, 1], law="laplace", epsilon=EPSILON
    )
    waves = np.cos(4 * np.pi * places[:, 0]) * np.cos(4 * np.pi * places[:, 1])
    x0 = 20.0 + 4.0 * waves
    # one seed: the same draws at every snapshot
    snapshots = [consensus.run(x0, t, 1, seed, keep="last").messages[0, 0] for t in SNAPSHOTS]
    run = consensus.run(x0, SNAPSHOTS[-1], 1, seed, keep="errors")
    times = np.unique(np.geomspace(1, SNAPSHOTS[-1], 60).round().astype(int))
    errors = {str(name): run.squared_error(name)[0, times] / agents for name in READOUTS}
    return Convergence(consensus, places, float(x0.mean()), np.array(snapshots), times, errors)
