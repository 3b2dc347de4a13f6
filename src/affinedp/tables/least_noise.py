"""The least noise that the designs at hand find for a table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.gaussian import design_gaussian, largest_sensitivity
from affinedp.designs.laplace import design_laplace
from affinedp.errors import TooManyCircuitsError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.without_list import certified_promise
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.level_weights import symmetric_noise
from affinedp.tables.refusals import TableError

# Directions times dimensions up to which noise is designed for every direction by itself.
MOST_LISTED = {"gaussian": 2e5, "laplace": 5e4}
MOST_INDEPENDENT = {"gaussian": 2e6, "laplace": 5e4}
MARGIN = 1e-12


def least_noise(
    description: TableDescription, layout: Layout, adjacency: Adjacency, weights: FloatArray | None
) -> Mechanism:
    """Return noise of small expected squared error that keeps the promise for one data set.

    Parameters
    ----------
    description : TableDescription
        Law, ε and δ.
    layout : Layout
        The levels of the entries.
    adjacency : Adjacency
        Whom the promise is about.
    weights : array or None
        What squared error costs, one per private entry.
    """
    law, manifold = description.noise_law, adjacency.manifold
    wanted: dict[str, Any] = {"adjacency": adjacency, "weights": weights}
    limits = MOST_LISTED if isinstance(adjacency, CircuitAdjacency) else MOST_INDEPENDENT
    try:
        count = _count(adjacency)
        if limits[law] < count * manifold.dim < math.inf:
            limit = description.epsilon
            if law == "gaussian":
                limit = largest_sensitivity(description.epsilon, description.delta)
            return symmetric_noise(
                adjacency, law, limit, _levels(layout, adjacency, weights), weights
            )
        if law == "laplace":
            return design_laplace(manifold, epsilon=description.epsilon, **wanted)
        return design_gaussian(
            manifold, epsilon=description.epsilon, delta=description.delta, **wanted
        )
    except TooManyCircuitsError:
        ways = "neighbours='cells' (one cell moves, totals follow)"
        if layout.sums:
            ways = "neighbours='swaps' (two people exchange places)"
        gaussian = "" if law == "gaussian" else ", law='gaussian' with a δ"
        raise TableError(
            f"{manifold.n} private numbers under {manifold.n - manifold.dim} equations have too "
            f"many ways to move for neighbours='circuits'. Ways out: {ways}{gaussian}, or fewer "
            "rows or columns at a time"
        ) from None


def _count(adjacency: Adjacency) -> float:
    """How many neighbour directions there are; infinite where they cannot be counted."""
    if not isinstance(adjacency, CircuitAdjacency):
        return float(sum(block.shape[1] for block in adjacency.blocks(10**6)))
    try:
        return float(adjacency.count())
    except TooManyCircuitsError:
        return math.inf


def _levels(layout: Layout, adjacency: Adjacency, weights: FloatArray | None) -> list[Any]:
    """Entries that can be treated alike: the same level, μ and weight."""
    mu: FloatArray = getattr(adjacency, "mu", np.ones(adjacency.manifold.n))
    cost = np.ones(len(mu)) if weights is None else weights
    level = (layout.levels[entry] for entry in layout.private.tolist())
    return list(zip(level, mu.tolist(), cost.tolist()))


def with_more_noise(mechanism: Mechanism, releases: int) -> Mechanism:
    """Return a mechanism so much noisier that all of these releases keep the promise together.

    Sensitivities of Gaussian releases add up as √(Σ s²), those of Laplace releases as Σ s.

    Parameters
    ----------
    mechanism : Mechanism
        Keeps the promise for one release.
    releases : int
        How many there are.
    """
    factor = math.sqrt(releases) if mechanism.law == "gaussian" else float(releases)
    factor *= 1 + MARGIN
    root = mechanism.root * factor
    if mechanism.certificate is None:
        return build(
            mechanism.adjacency, mechanism.query, mechanism.basis, root, mechanism.law,
            mechanism.output_names, gap=mechanism.gap, notes=mechanism.notes,
        )  # fmt: skip
    certificate = mechanism.certificate.copy()
    certificate[1:] /= factor**2
    guarantee = certified_promise(
        mechanism.adjacency, mechanism.basis @ root, mechanism.query, mechanism.output_names,
        certificate,
    )  # fmt: skip
    return replace(mechanism, root=root, guarantee=guarantee, certificate=certificate)
