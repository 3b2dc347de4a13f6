"""Private average consensus: the protocol of section VI, what it promises and how well it does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, Matrix
from affinedp.consensus.network.network import Network, listed
from affinedp.consensus.network.spectrum import check_convergence
from affinedp.consensus.network.weights import Weights, network_from_edges, network_of
from affinedp.consensus.protocol.behaviour import Behaviour
from affinedp.consensus.protocol.promise import (
    PerAgent,
    agent_guarantee_of,
    guarantee_of,
    noise_for,
)
from affinedp.laws.named import LawName
from affinedp.promise.guarantee import Guarantee


class ConsensusProtocol(Behaviour):
    """The protocol on a network, without agents as processes.

    Parameters
    ----------
    graph, law, epsilon, delta, mu, weights, sigma
        As for :class:`~affinedp.consensus.PrivateConsensus`.
    """

    notes: tuple[str, ...]
    _network_notes: tuple[str, ...]

    def __init__(
        self,
        graph: Any,
        *,
        law: LawName | Literal["auto"],
        epsilon: PerAgent | None = None,
        delta: float = 0.0,
        mu: PerAgent = 1.0,
        weights: Weights = None,
        sigma: PerAgent | None = None,
    ) -> None:
        network = network_of(graph, weights)
        self._prepare(network, _checked(network), law, epsilon, delta, mu, sigma)

    @classmethod
    def from_edges(
        cls,
        n: int,
        sources: ArrayLike,
        targets: ArrayLike,
        *,
        law: LawName | Literal["auto"],
        epsilon: PerAgent | None = None,
        delta: float = 0.0,
        mu: PerAgent = 1.0,
        weights: Weights = None,
        sigma: PerAgent | None = None,
        names: Sequence[Hashable] | None = None,
    ) -> Self:
        """Return the protocol on a list of links; a million agents take seconds.

        Parameters
        ----------
        n : int
            The number of agents.
        sources, targets : array_like of int, shape (links,)
            The two ends of every link, 0 to n − 1, each link once.
        law, epsilon, delta, mu, sigma
            As for the class.
        weights : {"metropolis", "uniform"}, float or array_like, shape (links,), optional
            "metropolis" by default.
        names : sequence, optional
            The agents; 0, 1, … by default.

        Examples
        --------
        >>> from affinedp.consensus import PrivateConsensus
        >>> pair = PrivateConsensus.from_edges(2, [0], [1], law="laplace", epsilon=0.5)
        >>> pair.sigma.tolist(), pair.guarantee.epsilon()
        ([2.0, 2.0], 0.5)
        """
        network = network_from_edges(n, sources, targets, weights, names)
        made = cls.__new__(cls)
        made._prepare(network, _checked(network), law, epsilon, delta, mu, sigma)
        return made

    def with_noise(
        self,
        *,
        law: LawName | Literal["auto"] | None = None,
        epsilon: PerAgent | None = None,
        delta: float = 0.0,
        mu: PerAgent | None = None,
        sigma: PerAgent | None = None,
    ) -> Self:
        """Return the protocol on the same network with other noise.

        Parameters
        ----------
        law, epsilon, delta, mu, sigma
            As for the class; law and mu stay as they are unless given.
        """
        made = type(self).__new__(type(self))
        made._prepare(
            self.network,
            self._network_notes,
            self.law if law is None else law,
            epsilon,
            delta,
            self.noise.mu if mu is None else mu,
            sigma,
        )
        return made

    def _prepare(
        self,
        network: Network,
        network_notes: tuple[str, ...],
        law: LawName | Literal["auto"],
        epsilon: PerAgent | None,
        delta: float,
        mu: PerAgent,
        sigma: PerAgent | None,
    ) -> None:
        noise = noise_for(network, law, epsilon, delta, mu, sigma)
        notes = network_notes
        bare = np.flatnonzero(noise.sigma == 0)
        if len(bare):
            agents = [network.names[int(i)] for i in bare]
            notes = (*notes, f"{listed(agents)} send their values without noise")
        vars(self).update(network=network, noise=noise, notes=notes, _network_notes=network_notes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} does not change: {name!r} cannot be set")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(agents={self.n}, law={self.law!r})"

    # ------------------------------------------------------------------ what it is

    @property
    def agents(self) -> Sequence[Hashable]:
        """The names of the agents; arrays are in this order."""
        return self.network.names

    @property
    def law(self) -> LawName:
        """The law of the noise."""
        return self.noise.law

    @property
    def sigma(self) -> FloatArray:
        """σ_i of each agent."""
        return self.noise.sigma

    @property
    def mu(self) -> FloatArray:
        """μ_i of each agent."""
        return self.noise.mu

    @property
    def weights(self) -> Matrix:
        """The weights w_ij, a sparse matrix."""
        return self.network.weights

    @property
    def laplacian(self) -> Matrix:
        """The Laplacian, positive semidefinite, a sparse matrix."""
        return self.network.laplacian

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the messages promise to every agent, however long the protocol runs (Theorem 4)."""
        return guarantee_of(self.noise, self.network)

    def agent_guarantee(self, agent: Hashable) -> Guarantee:
        """Return what the messages promise to one agent.

        Parameters
        ----------
        agent : hashable
            Its name.
        """
        return agent_guarantee_of(self.noise, self.network, agent)


def _checked(network: Network) -> tuple[str, ...]:
    """What to know about a network on which consensus is reached; others are refused."""
    network.check_connected()
    return (*network.notes, *check_convergence(network))
