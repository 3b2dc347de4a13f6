"""The one way in which ``adjacency=`` and ``mu=`` are read."""

from __future__ import annotations

from numpy.typing import ArrayLike

from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency, checked_manifold
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency


def adjacency_of(
    manifold: AffineManifold,
    adjacency: Adjacency | str | None = None,
    mu: float | ArrayLike | None = None,
) -> Adjacency:
    """Return the neighbours that were asked for: Definition 4 with ``mu`` unless others are given.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    adjacency : Adjacency or {"entry"}, optional
        Neighbours, or their short name: one entry of any basis moves (Definition 4).
    mu : float or array_like, optional
        How far an entry moves (1 by default); for Definition 4 alone.

    Examples
    --------
    >>> adjacency_of(AffineManifold([[1, -1]]), mu=2).words
    'Definition 4: one free entry of any basis moves by at most μ = 2'
    """
    checked_manifold(manifold)
    if adjacency is None or (isinstance(adjacency, str) and adjacency == "entry"):
        return CircuitAdjacency(manifold, 1.0 if mu is None else mu)
    if isinstance(adjacency, str):
        raise AffineDPError(
            f"adjacency={adjacency!r:.60} has no meaning for a manifold, which does not say in "
            "which entries a person is counted: give 'entry' or an Adjacency such as "
            "DirectionAdjacency, or describe the table"
        )
    if mu is not None:
        raise AffineDPError("give mu or adjacency, not both: the adjacency has its own scale")
    if not isinstance(adjacency, Adjacency):
        raise AffineDPError(f"adjacency must be an Adjacency, not {adjacency!r}")
    if adjacency.domain is not manifold and adjacency.domain.key != manifold.key:
        raise AffineDPError("the adjacency is about another manifold")
    return adjacency
