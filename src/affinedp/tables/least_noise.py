"""The least noise that the designs at hand find for a table, never worse than standard practice."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.gaussian import design_gaussian, largest_sensitivity
from affinedp.designs.laplace import design_laplace
from affinedp.errors import TooManyCircuitsError
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.promise.verification import Law
from affinedp.promise.without_list import certified_promise
from affinedp.tables.description import TableDescription
from affinedp.tables.layout import Layout
from affinedp.tables.level_weights import symmetric_noise
from affinedp.tables.never_worse import (
    DESIGNED,
    INDEPENDENT,
    LEVELS,
    Compared,
    baseline_mechanisms,
    independent_error,
    shared_out,
    weighted_error,
)
from affinedp.tables.refusals import TableError

# Directions times dimensions up to which noise is designed for every direction by itself.
MOST_LISTED = {"gaussian": 2e5, "laplace": 5e4}
MOST_INDEPENDENT = {"gaussian": 2e6, "laplace": 260}
# Errors that are the same up to the accuracy of a design.
SAME = 1e-6
# Up to this many, standard practice is compared, and one weight per level too.
MOST_COMPARED = 4e6
MOST_LEVELS = 4e5
MARGIN = 1e-12


@dataclass(frozen=True)
class LeastNoise:
    """The noise that was chosen, and what it was compared with.

    Attributes
    ----------
    mechanism : Mechanism
        For one data set; all releases keep the promise together.
    compared : tuple of Compared
        Everything that was tried, and standard practice, for one data set.
    """

    mechanism: Mechanism
    compared: tuple[Compared, ...]


def least_noise(
    description: TableDescription,
    layout: Layout,
    adjacency: Adjacency,
    weights: FloatArray | None,
    releases: int,
) -> LeastNoise:
    """Return noise of small expected squared error that keeps the promise.

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
    releases : int
        How many data sets one promise is about.
    """
    tried: list[tuple[Compared, Mechanism]] = []
    compared: list[Compared] = []
    count = _count(adjacency) * adjacency.manifold.dim
    for law in description.laws:
        limit = description.epsilon
        if law == "gaussian":
            limit = largest_sensitivity(description.epsilon, description.delta)
        growth = float(releases if law == "gaussian" else releases**2)

        def note(name: str, mechanism: Mechanism, law: Law = law, growth: float = growth) -> None:
            error = weighted_error(mechanism, weights) * growth
            tried.append((Compared(name, law, error), mechanism))

        if count <= MOST_COMPARED:
            for name, mechanism in baseline_mechanisms(adjacency, law, limit, _cells(layout)):
                note(name, mechanism)
            levels = _levels(layout, adjacency, weights)
            alike = len(set(levels)) < len(levels) and count <= MOST_LEVELS
            if alike and not isinstance(adjacency, JointAdjacency):
                note(LEVELS, symmetric_noise(adjacency, law, limit, levels, weights))
            error = independent_error(adjacency, law, limit, weights) * growth
            compared.append(Compared(INDEPENDENT, law, error))
        # a Laplace design is worth its time only where that law is the better one
        if law == description.laws[0] or min(tried, key=_cost)[0].law == law:
            note(DESIGNED, _designed(description, layout, adjacency, weights, law, limit, count))
    best, mechanism = _simplest(tried)
    if best.name != DESIGNED:
        mechanism = replace(
            mechanism, notes=(*mechanism.notes, f"the best of what was compared: {best.name}")
        )
    if releases > 1:
        mechanism = with_more_noise(mechanism, releases)
    return LeastNoise(mechanism, (*(one for one, _ in tried), *compared))


def _cost(pair: tuple[Compared, Mechanism]) -> float:
    return pair[0].error


def _simplest(tried: list[tuple[Compared, Mechanism]]) -> tuple[Compared, Mechanism]:
    """The least error; of equal ones that with a certificate, else standard practice."""
    least = min(tried, key=_cost)[0].error
    equal = [pair for pair in tried if pair[0].error <= least * (1 + SAME)]
    return next((pair for pair in equal if pair[1].gap is not None), equal[0])


def _cells(layout: Layout) -> FloatArray:
    """Which private entries are no totals."""
    return np.array([entry not in layout.totals for entry in layout.private.tolist()])


def _designed(
    description: TableDescription,
    layout: Layout,
    adjacency: Adjacency,
    weights: FloatArray | None,
    law: Law,
    limit: float,
    count: float,
) -> Mechanism:
    """The design of one law, for every direction by itself or level by level."""
    if isinstance(adjacency, JointAdjacency):
        return shared_out(
            adjacency, law, limit, weights,
            lambda part: _designed(
                description, layout, part, weights, law, limit,
                _count(part) * part.manifold.dim,
            ),
        )  # fmt: skip
    wanted: dict[str, Any] = {"adjacency": adjacency, "weights": weights}
    limits = MOST_LISTED if isinstance(adjacency, CircuitAdjacency) else MOST_INDEPENDENT
    manifold = adjacency.manifold
    try:
        if limits[law] < count < math.inf:
            levels = _levels(layout, adjacency, weights)
            return symmetric_noise(adjacency, law, limit, levels, weights)
        if law == "laplace":
            # more starts take seconds, and standard practice, which is compared too, is close
            return design_laplace(manifold, epsilon=description.epsilon, starts=1, **wanted)
        return design_gaussian(
            manifold, epsilon=description.epsilon, delta=description.delta, **wanted
        )
    except TooManyCircuitsError:
        ways = "neighbours='swaps' (two people exchange places)" if layout.sums else ""
        ways = ways or "neighbours='person' (one person more or less, totals follow)"
        gaussian = "" if law == "gaussian" else ", law='gaussian' with a δ"
        raise TableError(
            f"{manifold.n} numbers under {manifold.n - manifold.dim} equations have too "
            f"many ways to move for neighbours='circuits'. Ways out: {ways}{gaussian}, or fewer "
            "rows or columns at a time"
        ) from None


def _count(adjacency: Adjacency) -> float:
    """How many neighbour directions there are; infinite where they cannot be counted."""
    if isinstance(adjacency, JointAdjacency):
        return sum(_count(part) for part in adjacency.parts)
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
    return replace(mechanism, root=root, guarantee=guarantee, certificate=certificate, least=None)
