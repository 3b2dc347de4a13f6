"""The manifold of a network's flows, and which laws it assumes everyone to know."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import Matrix
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, IdentifiableEntriesError, listed
from affinedp.files.problem import PublicEntries
from affinedp.flows.flow_network import FlowNetwork, are
from affinedp.flows.laws import line_laws, node_balance
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
        """Return the neighbours of Definition 4: one free entry of any basis moves.

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
