"""What plain consensus and push-sum share: agents that each add one draw to what they send."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.consensus.graph import Network
from affinedp.consensus.one_draw import (
    AverageOfAll,
    Noise,
    OneAgent,
    OneDraw,
    Protocol,
    agent_mechanism,
    quotients,
)
from affinedp.consensus.runs import READOUTS, limit_factor, noise_share
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import dimensions
from affinedp.laws.base import LawName
from affinedp.mechanism import Mechanism
from affinedp.parts import digest
from affinedp.privacy.guarantee import Guarantee


class NoisyNetwork:
    """Agents that each add one draw: who they are, and what all that they send promises."""

    network: Network
    noise: Noise
    protocol: ClassVar[Protocol] = "consensus"
    readouts: ClassVar[tuple[str, ...]] = READOUTS  # the first is the default

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} does not change: {name!r} cannot be set")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(agents={self.n}, law={self.law!r})"

    @property
    def n(self) -> int:
        """The number of agents."""
        return self.network.n

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

    @cached_property
    def mechanism(self) -> Mechanism:
        """The release that all messages of an agent follow from: of the agent with least noise.

        Its guarantee is what all that is sent promises to every agent, however long it runs.
        """
        mu, among = self.mu, None
        place = int(np.argmax(quotients(mu, self.sigma)))
        if np.any(mu != mu[0]):
            # the same for any number of agents that are alike: who else takes part matters not
            order = sorted(range(self.n), key=lambda i: repr(self.agents[i]))
            names = "\n".join(repr(self.agents[i]) for i in order)
            among = (float(mu.min()), float(mu.max()), digest(mu[order], names))
        return self._mechanism(place, OneAgent(float(mu[place]), among=among))

    @property
    def guarantee(self) -> Guarantee:
        """What all that is sent promises to every agent, however long it runs (Theorem 4)."""
        return self.mechanism.guarantee

    @cached_property
    def result(self) -> Mechanism:
        """The average that all messages come to, for intervals and functions of it.

        The mean of all messages of one time is the average of the values and of the draws, at any
        time; a single message, or an estimate of push-sum, is so once differences have died out.
        It is made of messages, so its guarantee is theirs.

        Examples
        --------
        >>> import networkx as nx
        >>> from affinedp.consensus import PrivateConsensus
        >>> consensus = PrivateConsensus(nx.cycle_graph(100), law="laplace", epsilon=1.0)
        >>> low, high = consensus.result.interval([20.0])
        >>> round(float(high[0]), 2)
        20.28
        >>> print(consensus.result.function([20.0], "100 * average"))
        2000 (95 %: 1972.25 to 2027.75)
        """
        draw = self.mechanism.strategy
        assert isinstance(draw, OneDraw)
        return replace(self.mechanism, strategy=AverageOfAll(draw, self.sigma))

    def agent_guarantee(self, agent: Hashable) -> Guarantee:
        """Return what all that is sent promises to one agent.

        Parameters
        ----------
        agent : hashable
            Its name.
        """
        place = self.network.position(agent)
        whose = OneAgent(float(self.mu[place]), str(self.agents[place]))
        return self._mechanism(place, whose).guarantee

    def limit(self, readout: str | None = None) -> float:
        """Return the mean-square error over all agents as t grows, exactly.

        With push-sum, if every link works again and again.

        Parameters
        ----------
        readout : {"state", "message", "corrected"}, optional
            Which estimate of the average; the state by default, the message with push-sum.
        """
        return self.noise.total_variance * limit_factor(self._share(readout), self.n)

    def _share(self, readout: str | None) -> float:
        """The share of its own draw that an agent takes off its message."""
        return noise_share(self.readouts[0] if readout is None else readout, self.n, self.readouts)

    def _start(self, x0: ArrayLike | Mapping[Any, float]) -> FloatArray:
        if not isinstance(x0, Mapping) and dimensions(x0, "x0") != 1:
            raise AffineDPError(f"x0 must hold one value for each of {self.n} agents")
        return self.network.values(x0, "x0")

    def _mechanism(self, place: int, adjacency: OneAgent) -> Mechanism:
        asked, agent = self.noise.epsilon, repr(self.agents[place])
        promised = None if asked is None else (asked[place], self.noise.delta)
        return agent_mechanism(
            self.law, self.sigma[place], adjacency, promised, agent, self.protocol
        )
