"""Private average consensus, from the simulation of a network to the agents that run it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from functools import cached_property

from affinedp.budget.ledger import Ledger
from affinedp.consensus.agents.agent import Agent
from affinedp.consensus.agents.message import checked_name
from affinedp.consensus.agents.noise import AgentNoise
from affinedp.consensus.network.network import NetworkError
from affinedp.consensus.protocol.protocol import ConsensusProtocol


class PrivateConsensus(ConsensusProtocol):
    """Agents that find the average of their values without showing them (section VI).

    Agent i sends y_i(t) = x_i(t) + γ_i, always with the same draw γ_i = σ_i η_i, and moves by
    x_i(t+1) = x_i(t) + Σ_j w_ij (y_j(t) − y_i(t)).  The object does not change once it is made.

    Parameters
    ----------
    graph : networkx.Graph, sparse matrix or array
        Undirected links; a graph may have the edge attribute ``weight``, a matrix holds weights.
    law : {"gaussian", "laplace", "auto"}
        The law of η_i: N(0, 1), or L(0, 1), which has variance 2; ``"auto"`` takes the one with
        the least error for (ε, δ).
    epsilon : float, array_like or mapping of agents, optional
        ε, one for all or one per agent.
    delta : float
        δ; for Gaussian noise only.
    mu : float, array_like or mapping of agents
        How far the trajectory of an agent moves between neighbours; 0 for an agent whose value
        is public.
    weights : {"metropolis", "uniform"} or float, optional
        In place of the weights of the graph; "metropolis" if it has none.
    sigma : float, array_like or mapping of agents, optional
        The noise, in place of ε: it is verified, not designed.

    Examples
    --------
    >>> import networkx as nx
    >>> ring = nx.cycle_graph(["a", "b", "c", "d", "e"])
    >>> consensus = PrivateConsensus(ring, law="gaussian", epsilon=1.0, delta=0.01)
    >>> round(float(consensus.sigma[0]), 6), consensus.guarantee.holds(1.0, 0.01)
    (1.877876, True)
    >>> x0 = [10, 0, 5, 5, 20]
    >>> [round(float(consensus.limit(readout)), 3) for readout in ("state", "message", "corrected")]
    [14.106, 3.526, 2.821]
    >>> round(float(consensus.mean_square_error(x0, 100)[-1]), 3)
    14.106
    """

    @cached_property
    def process_names(self) -> tuple[str, ...]:
        """What the agents are called as processes: their names as text, in their order."""
        names = tuple(checked_name(str(name)) for name in self.agents)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            same = [name for name in self.agents if str(name) == twice]
            raise NetworkError(
                f"{same[0]!r} and {same[1]!r} are the same as text, and as processes they would be "
                "one agent: rename one",
                same,
            )
        return names

    def agent(
        self,
        name: Hashable,
        *,
        state: str | os.PathLike[str],
        value: float | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        redraw: bool = False,
        rerun: bool = False,
        run: int | None = None,
    ) -> Agent:
        """Return an agent of this network, which draws its noise once and publishes for real.

        Its neighbours, weights and noise are those of the network, and so is its promise:
        :meth:`agent_guarantee`.

        Parameters
        ----------
        name : hashable
            One of the agents.  As a process it is called by its name as text.
        state : str or Path
            Its file, secret; it is created if it does not exist.
        value : float, optional
            x(0); may be left out if the state exists.
        ledger : Ledger, optional
            Charged once, before the draw.
        label : str, optional
            What the ledger calls this run.
        bound : float, optional
            A public bound on the size of values.
        redraw, rerun, run
            As for :class:`~affinedp.consensus.Agent`.

        Examples
        --------
        >>> import tempfile
        >>> import networkx as nx
        >>> pair = PrivateConsensus(nx.path_graph(2), law="laplace", epsilon=0.5, mu=3.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with pair.agent(0, state=f"{folder}/0.db", value=20.0) as agent:
        ...         print(agent.name, dict(agent.weights), agent.guarantee.holds(0.5))
        0 {'1': 0.5} True
        """
        weights, noise = self.links_of(name), self.noise_of(name, bound)
        return Agent(
            self.process_names[self.network.position(name)],
            weights,
            state=state,
            value=value,
            noise=noise,
            ledger=ledger,
            label=label,
            redraw=redraw,
            rerun=rerun,
            run=run,
        )

    def links_of(self, name: Hashable) -> Mapping[str, float]:
        """Return the neighbours of an agent as processes, and the weights of its links.

        Parameters
        ----------
        name : hashable
            One of the agents.
        """
        place = self.network.position(name)
        P = self.network.transition
        row = slice(P.indptr[place], P.indptr[place + 1])
        return {
            self.process_names[int(j)]: float(weight)
            for j, weight in zip(P.indices[row], P.data[row])
            if j != place and weight > 0
        }

    def noise_of(self, name: Hashable, bound: float | None = None) -> AgentNoise:
        """Return the noise that an agent draws once.

        Parameters
        ----------
        name : hashable
            One of the agents.
        bound : float, optional
            A public bound on the size of values.
        """
        place = self.network.position(name)
        sigma, mu = float(self.sigma[place]), float(self.mu[place])
        if not (sigma > 0 and mu > 0):
            raise NetworkError(
                f"agent {name!r} sends its value without noise, so there is nothing to draw once: "
                "give it mu and noise of its own, however small",
                (name,),
            )
        epsilon = self.noise.epsilon
        if epsilon is None:
            return AgentNoise(self.law, mu=mu, sigma=sigma, bound=bound)
        # ε rather than σ: what is stated is then at most ε, whichever way σ is rounded
        delta = self.noise.delta if self.law == "gaussian" else None
        return AgentNoise(self.law, float(epsilon[place]), delta, mu, bound=bound)
