"""The manifold of a network's flows, the laws it assumes everyone to know, and least noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.domains.manifold import AffineManifold, PublicEntries
from affinedp.errors import AffineDPError, IdentifiableEntriesError, TooManyCircuitsError, listed
from affinedp.flows.flow_network import FlowNetwork, are, line_laws, node_balance
from affinedp.laws.base import LawName
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency

Laws = Literal["full", "balance"]

# Smaller systems are dense, which is quicker.
DENSE_NUMBERS = 1e5


@dataclass(frozen=True, eq=False)
class FlowManifold:
    """The flows and private injections of a network, with the laws that they obey.

    Attributes
    ----------
    network : FlowNetwork
        Nodes, branches, and what is public about them.
    laws : {"full", "balance"}
        Node balance and line laws, or node balance alone.
    manifold : AffineManifold
        Entries: the flows of ``network.branches``, then ``network.injections``.
    public_injections : tuple of str
        Nodes whose injection the caller declared public.
    """

    network: FlowNetwork
    laws: Laws
    manifold: AffineManifold = field(repr=False)
    public_injections: tuple[str, ...] = ()

    @property
    def flows(self) -> tuple[str, ...]:
        """Names of the flows, which come first among the entries."""
        return self.network.branches

    @property
    def injections(self) -> tuple[str, ...]:
        """Names of the private injections, which come after the flows."""
        return self.network.injections

    @property
    def known(self) -> tuple[str, ...]:
        """Entries that the laws alone reveal, such as lines to where nothing is connected."""
        return self.manifold.public_entries

    @property
    def assumes(self) -> str:
        """What everyone is assumed to know, in words: the promise covers that and no more."""
        if self.laws == "full":
            words = "everyone knows node balance and the line laws (all reactances)"
            if len(self.network.references) > len(self._islands_with_reference()):
                words += ", the angles between slack nodes among them"
        else:
            words = (
                "everyone knows node balance ONLY (whoever knows line laws, such as reactances, is "
                "not covered)"
            )
        if len(self.network.private) == 0:
            return f"{words}, and all injections"
        if self.public_injections:
            return f"{words}, and the injections at {listed(self.public_injections)}"
        return words

    def _islands_with_reference(self) -> set[int]:
        return {int(self.network.island[node]) for node in self.network.references}

    def circuits(self, mu: float | ArrayLike = 1.0) -> CircuitAdjacency:
        """Return the neighbours of Definition 4: any one number moves, and others follow.

        Parameters
        ----------
        mu : float or array_like, shape (n,)
            How far an entry moves, one number or one per entry, in the unit of the flows.

        Returns
        -------
        CircuitAdjacency

        Examples
        --------
        >>> import networkx as nx
        >>> from affinedp import flows
        >>> flow = flows.from_graph(nx.cycle_graph(4), laws="balance")
        >>> flow.circuits().count()
        13
        """
        return CircuitAdjacency(self.manifold, mu, assumes=self.assumes)

    def __repr__(self) -> str:
        return (
            f"FlowManifold({len(self.flows)} flows, {len(self.injections)} private injections, "
            f"{self.manifold.n - self.manifold.dim} independent equations; {self.assumes})"
        )


def build(
    network: FlowNetwork,
    laws: Laws,
    declared: tuple[Hashable, ...] = (),
    public_entries: PublicEntries = "refuse",
) -> FlowManifold:
    """Return the manifold of a network."""
    if laws not in ("full", "balance"):
        raise AffineDPError(f"laws must be 'full' or 'balance', not {laws!r}")
    manifold = _manifold(network, laws)
    words = tuple(dict.fromkeys(network.nodes[network.position_of(label)] for label in declared))
    flow = FlowManifold(network, laws, manifold, words)
    if manifold.dim == 0:
        raise IdentifiableEntriesError(
            "the laws and the public injections fix every flow: there is nothing left to protect. "
            "Leave some injections private",
            manifold.names,
        )
    if public_entries == "refuse":
        _refuse_revealed(flow)
    return flow


def _manifold(network: FlowNetwork, laws: Laws) -> AffineManifold:
    import scipy.sparse as sparse

    parts = [node_balance(network)]
    if laws == "full":
        parts.append(line_laws(network))
    matrix: Matrix = sparse.csr_array(sparse.vstack([part for part, _ in parts]))
    offsets = np.concatenate([offset for _, offset in parts])
    if float(matrix.shape[0]) * matrix.shape[1] < DENSE_NUMBERS:
        matrix = matrix.toarray()
    names = (*network.branches, *network.injections)
    return AffineManifold(matrix, offsets, names, public_entries="allow")


def _refuse_revealed(flow: FlowManifold) -> None:
    """Refuse what the caller may not know to be public.

    A flow that is fixed although every injection is private (it leads to where nothing is
    connected) hides nothing.  An injection that is fixed, or a flow that follows from injections
    that were declared public, is another matter.
    """
    harmless = set(flow.flows)
    if flow.public_injections and flow.known:
        harmless &= set(_all_private(flow).public_entries)
    revealed = [name for name in flow.known if name not in harmless]
    if revealed:
        raise IdentifiableEntriesError(
            f"{listed(revealed)} {are(revealed)} fixed by the laws and the public injections "
            "alone; no noise can protect that. Keep more injections private, or pass "
            "public_entries='allow' if this may be public",
            revealed,
        )


def _all_private(flow: FlowManifold) -> AffineManifold:
    """The manifold if no injection had been declared public."""
    network = flow.network
    declared = [network.nodes.index(node) for node in flow.public_injections]
    injected = network.public_injection.copy()
    injected[declared] = 0.0
    private = np.union1d(network.private, declared)
    return _manifold(replace(network, private=private, public_injection=injected), flow.laws)


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
        From ``from_graph`` or ``from_pandapower``.
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
            "flows.from_pandapower or flows.from_graph"
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
    choices = {
        "all": (*flow.flows, *flow.injections),
        "flows": flow.flows,
        "injections": flow.injections,
    }
    names = choices.get(publish) if isinstance(publish, str) else publish
    if not isinstance(names, Sequence):
        raise AffineDPError(
            f"publish must be 'all', 'flows', 'injections' or a list of names, not {publish!r}"
        )
    if not names:
        raise AffineDPError("there is nothing to publish")
    return list(names)


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
