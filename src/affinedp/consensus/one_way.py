"""One-way links: who sends to whom, which messages are lost, and what a round of push-sum does.

In every round an agent keeps one part of what it holds and sends an equal part to each of those
that it sends to.  It needs to know how many they are, and nothing about who sends to it.

An agent does not send a part; it sends the *sum of all parts so far*.  Who hears it takes the
difference to what it heard before.  So a lost message delays a part and destroys none: it stays on
its link until the next message arrives (Hadjicostis, Vaidya and Domínguez-García 2016).

Losses are decided by public things or by chance, never by private values.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.graph import Network, checked_names, is_graph, listed, square_matrix
from affinedp.errors import AffineDPError


@dataclass(frozen=True, eq=False)
class DirectedNetwork(Network):
    """Agents and one-way links; ``transition`` is what one round without losses does."""

    sources: IntArray = field(repr=False, kw_only=True)
    targets: IntArray = field(repr=False, kw_only=True)
    shares: FloatArray = field(repr=False, kw_only=True)

    @property
    def links_count(self) -> int:
        """How many one-way links there are."""
        return len(self.sources)

    def check_connected(self) -> None:
        """Refuse a network in which some agents never hear of others."""
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(self.transition, directed=True, connection="strong")
        if count == 1:
            return
        across = label[self.sources] != label[self.targets]
        closed = np.setdiff1d(np.arange(count), label[self.sources[across]])
        inside = self.named(np.flatnonzero(label == closed[0]))
        raise AffineDPError(
            f"what {listed(inside)} {'holds' if len(inside) == 1 else 'hold'} never reaches the "
            "others: along the links there must be a way from every agent to every other"
        )


def directed_network_of(graph: Any, names: Sequence[Hashable] | None = None) -> DirectedNetwork:
    """Return the network of a directed graph or of a matrix of links."""
    import scipy.sparse as sparse

    if is_graph(graph):
        if names is not None:
            raise AffineDPError("the nodes of the graph are the agents: leave names out")
        agents = checked_names(graph.nodes, len(graph))
        place = {name: i for i, name in enumerate(agents)}
        ends = [(place[a], place[b]) for a, b in graph.edges()]
        if not graph.is_directed():
            ends += [(b, a) for a, b in ends]
        pairs = np.array(ends, dtype=np.intp).reshape(-1, 2)
    else:
        matrix = square_matrix(graph, "the matrix of links")
        agents = checked_names(names, matrix.shape[0])
        pairs = np.transpose(matrix.nonzero())
    n = len(agents)
    between = pairs[:, 0] != pairs[:, 1]
    notes = () if between.all() else ("a link of an agent with itself is left out",)
    pairs = np.unique(pairs[between], axis=0)
    sources, targets = pairs[:, 0].astype(np.intp), pairs[:, 1].astype(np.intp)
    shares = np.asarray(1.0 / (1.0 + np.bincount(sources, minlength=n)))
    everyone = np.arange(n)
    step = sparse.csr_array(
        (
            np.concatenate([shares, shares[sources]]),
            (np.concatenate([everyone, targets]), np.concatenate([everyone, sources])),
        ),
        shape=(n, n),
    )
    made = DirectedNetwork(
        step, agents, 1.0 - shares, notes, sources=sources, targets=targets, shares=shares
    )
    made.check_connected()
    return made


Lost = NDArray[np.bool_]


def losses_of(
    given: Any, network: DirectedNetwork, seed: int | np.random.Generator | None = None
) -> Callable[[], Iterator[Lost]]:
    """Return a maker of the losses of round 0, 1, …: the same ones each time it is called."""
    links = network.links_count
    none = np.zeros(links, dtype=np.bool_)
    if given is None:
        return lambda: repeat(none)
    if callable(given):
        return lambda: (_row(given(t), links, t) for t in count())
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        chance = float(given)
        if not 0 <= chance < 1:
            raise AffineDPError(f"a message is lost with a probability in [0, 1), not {given!r}")
        entropy = np.random.default_rng(seed).integers(2**63)  # fixed here: every pass is the same

        def by_chance() -> Iterator[Lost]:
            generator = np.random.default_rng(entropy)
            return (generator.random(links) < chance for _ in count())

        return by_chance
    rows = np.asarray(given)
    if rows.dtype != np.bool_ or rows.ndim != 2 or rows.shape[1] != links:
        raise AffineDPError(
            f"lost must be a probability, a function of the round, or a bool array with one row "
            f"per round and one column for each of {links} links, not {rows.dtype} {rows.shape}"
        )
    fixed = rows.copy()
    return lambda: chain(fixed, repeat(none))


def _row(given: Any, links: int, t: int) -> Lost:
    row = np.asarray(given)
    if row.dtype != np.bool_ or row.shape != (links,):
        raise AffineDPError(f"the losses of round {t} must be {links} booleans, one for each link")
    return row


# Who holds less keeps it: who sends and never hears would divide until nothing is left of 0/0.
LEAST_MASS = 2.0**-500


class Rounds:
    """The rounds of a network, applied to several columns side by side."""

    def __init__(self, network: DirectedNetwork) -> None:
        self._network = network

    @cached_property
    def _arrival(self) -> Any:
        import scipy.sparse as sparse

        links = self._network.links_count
        ends = (self._network.targets, np.arange(links))
        return sparse.csr_array((np.ones(links), ends), shape=(self._network.n, links))

    def held(self, start: FloatArray, losses: Iterator[Lost]) -> Iterator[FloatArray]:
        """Yield what agents hold at time 0, 1, …, without end."""
        return (held for held, _ in self.everywhere(start, losses))

    def everywhere(
        self, start: FloatArray, losses: Iterator[Lost]
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what agents hold, and what is still on the links, at time 0, 1, …, without end."""
        sources, shares = self._network.sources, self._network.shares[:, None]
        held = np.column_stack([np.ones(len(start)), start])  # the mass goes along
        on_links = np.zeros((self._network.links_count, held.shape[1]))
        while True:
            yield held[:, 1:], on_links[:, 1:]
            lost = next(losses)
            gives = held[:, :1] >= LEAST_MASS
            part = np.where(gives, shares * held, held)
            on_links = on_links + np.where(gives, part, 0.0)[sources]
            held = part + self._arrival @ np.where(lost[:, None], 0.0, on_links)
            on_links[~lost] = 0.0
