"""Least noise for network flows, with a record of which laws the promise assumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.errors import AffineDPError, TooManyCircuitsError, listed
from affinedp.flows.manifold import FlowManifold
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency

# Neighbours that move some entry so many times as far as any μ deserve a remark.
FAR = 30.0


def design_flow_noise(
    flow: FlowManifold,
    *,
    epsilon: float,
    delta: float = 0.0,
    mu: float | ArrayLike | None = None,
    adjacency: Adjacency | None = None,
    publish: str | Sequence[str] = "all",
    law: LawName = "gaussian",
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
) -> Mechanism:
    """Return the least noise on the published flows that keeps (ε, δ) under the network's laws.

    :func:`affinedp.design_gaussian` (Algorithm 1 of the paper at its optimum) or
    :func:`affinedp.design_laplace` on the flow manifold.  The notes of the mechanism and the
    neighbours of its guarantee say which laws everyone is assumed to know.  Releases obey them.

    Parameters
    ----------
    flow : FlowManifold
        From ``from_graph``, ``from_incidence`` or ``from_pandapower``.
    epsilon, delta : float
        The promise to keep; δ > 0 for Gaussian noise, δ = 0 for Laplace noise.
    mu : float or array_like, shape (n,), optional
        How far an entry moves (default 1), for the neighbours of Definition 4.
    adjacency : Adjacency, optional
        Other neighbours, such as :func:`injection_neighbours`.
    publish : {"all", "flows", "injections"} or sequence of names
        What is published: flows and private injections, or some of them.
    law : {"gaussian", "laplace"}
        The law of the noise.
    weights : array_like, shape (m,) or (m, m), optional
        What squared error costs: one weight per output, or a matrix.
    tol : float
        Relative gap to certify, for Gaussian noise.

    Returns
    -------
    Mechanism

    Raises
    ------
    TooManyCircuitsError
        If Definition 4 has too many neighbours on this network for any certificate.

    Examples
    --------
    >>> import networkx as nx
    >>> from affinedp import flows
    >>> flow = flows.from_graph(nx.complete_graph(4), laws="balance")
    >>> m = flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6, publish="flows")
    >>> m.guarantee.holds(1.0, 1e-6), len(m.output_names)
    (True, 6)
    >>> print(m.notes[0])
    everyone knows node balance ONLY (whoever knows line laws, such as reactances, is not covered)
    """
    if not isinstance(flow, FlowManifold):
        raise AffineDPError(
            f"design_flow_noise takes a FlowManifold, not {type(flow).__name__}: make one with "
            "flows.from_pandapower, flows.from_graph or flows.from_incidence"
        )
    if adjacency is None:
        adjacency = flow.circuits(1.0 if mu is None else mu)
    elif mu is not None:
        raise AffineDPError("give mu or adjacency, not both: the adjacency has its own scale")
    names = _published(flow, publish)
    try:
        if law == "gaussian":
            mechanism = design_gaussian(
                flow.manifold, epsilon=epsilon, delta=delta, adjacency=adjacency,
                query=names, weights=weights, tol=tol,
            )  # fmt: skip
        elif law == "laplace":
            if delta != 0.0:
                raise AffineDPError("Laplace noise keeps δ = 0: leave delta out")
            mechanism = design_laplace(
                flow.manifold, epsilon=epsilon, adjacency=adjacency, query=names, weights=weights
            )
        else:
            raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {law!r}")
    except TooManyCircuitsError as error:
        raise _too_many(flow, error) from None
    return mechanism.with_design(notes=(*_notes(flow, mechanism), *mechanism.notes))


def _published(flow: FlowManifold, publish: str | Sequence[str]) -> list[str]:
    """The names of what is published."""
    if isinstance(publish, str):
        choices = {
            "all": (*flow.flows, *flow.injections),
            "flows": flow.flows,
            "injections": flow.injections,
        }
        if publish not in choices:
            raise AffineDPError(
                f"publish must be 'all', 'flows', 'injections' or a list of names, not {publish!r}"
            )
        names = list(choices[publish])
    else:
        names = list(publish)
    if not names:
        raise AffineDPError("there is nothing to publish")
    return names


def _notes(flow: FlowManifold, mechanism: Mechanism) -> list[str]:
    """What a reader should know: the laws, what is public anyway, and wild neighbours."""
    notes = [flow.assumes]
    public = [name for name in mechanism.output_names if name in set(flow.known)]
    if public:
        notes.append(f"published without noise, as the laws alone fix it: {listed(public)}")
    if isinstance(mechanism.adjacency, CircuitAdjacency) and mechanism.proof is None:
        notes += _wild_neighbours(flow, mechanism.adjacency)
    return notes


def _wild_neighbours(flow: FlowManifold, adjacency: CircuitAdjacency) -> list[str]:
    """Remark upon neighbours in which entries move much farther than any μ."""
    move = np.abs(adjacency.sensitivity(np.eye(flow.manifold.n), 2).direction)
    ratio = float(move.max() / adjacency.mu.max())
    if ratio <= FAR:
        return []
    return [
        f"Definition 4 has neighbours in which {flow.manifold.names[int(np.argmax(move))]} moves "
        f"{ratio:.3g} times as far as the μ of the entry that moved first, and the noise covers "
        "those too; injection_neighbours leaves them out"
    ]


def _too_many(flow: FlowManifold, error: TooManyCircuitsError) -> TooManyCircuitsError:
    """Say in the words of networks what can be done instead."""
    entries = flow.manifold.n
    ways = [
        "promise that one injection moves and another one balances, which has few neighbours "
        "whatever the size: adjacency=flows.injection_neighbours(flow, mu)",
        "choose the free sets that you mean (affinedp.FreeSetAdjacency), or give the directions "
        "(affinedp.DirectionAdjacency)",
    ]
    if flow.laws == "full":
        reason = (
            f"Definition 4 under node balance and line laws: {entries} entries have too many "
            f"circuits to search (about {error.estimate:.1e} steps, at most {error.limit:.0e} are "
            "tried), and nothing bounds how much the entries of a circuit differ, so no noise can "
            "be certified"
        )
        ways.append(
            "only if nobody who sees the release knows the reactances: laws='balance', whose "
            "circuits are cycles and need no list"
        )
    else:
        reason = str(error).split(". Ways out")[0]
    listed_ways = "; ".join(f"({i}) {way}" for i, way in enumerate(ways, 1))
    return TooManyCircuitsError(f"{reason}. Ways out: {listed_ways}", error.estimate, error.limit)
