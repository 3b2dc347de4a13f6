"""Private average consensus (section VI): the protocol on a network, what it promises and does.

It is simulated, predicted and bounded here, and handed to the agents that run it for real.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.budget.ledger import Ledger
from affinedp.consensus import error_curves
from affinedp.consensus.agent import Agent, checked_name
from affinedp.consensus.eigenvalues import (
    DENSE_AGENTS,
    Modes,
    Spectrum,
    check_convergence,
    modes_of,
    spectrum_of,
)
from affinedp.consensus.graph import Weights, listed, network_from_edges, network_of
from affinedp.consensus.one_draw import AgentNoise, PerAgent, noise_for
from affinedp.consensus.protocol import NoisyNetwork
from affinedp.consensus.runs import MOST_NUMBERS, Run, Seed, generator_of, simulate
from affinedp.consensus.schedule import Schedule, schedule_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, real_number, whole_number
from affinedp.files.writing import toml_text, write_for_owner
from affinedp.laws.base import LawName

# Statements (i), (ii) and (iii) of Proposition 1.
STATEMENTS = ("path", "mean", "mean-square")


class PrivateConsensus(NoisyNetwork):
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

    notes: tuple[str, ...]

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
        network.check_connected()
        notes = (*network.notes, *check_convergence(network))
        noise = noise_for(network, law, epsilon, delta, mu, sigma)
        bare = network.named(np.flatnonzero(noise.sigma == 0))
        if bare:
            notes = (*notes, f"{listed(bare)} send their values without noise")
        vars(self).update(network=network, noise=noise, notes=notes)

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
        return cls(network, law=law, epsilon=epsilon, delta=delta, mu=mu, sigma=sigma)

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
        law, mu = law or self.law, self.noise.mu if mu is None else mu
        return type(self)(self.network, law=law, epsilon=epsilon, delta=delta, mu=mu, sigma=sigma)

    @property
    def weights(self) -> Matrix:
        """The weights w_ij, a sparse matrix."""
        return self.network.weights

    @property
    def laplacian(self) -> Matrix:
        """The Laplacian, positive semidefinite, a sparse matrix."""
        return self.network.laplacian

    @cached_property
    def spectrum(self) -> Spectrum:
        """λ₂, λ_n and α: how fast differences die out."""
        return spectrum_of(self.network)

    @cached_property
    def _modes(self) -> Modes:
        return modes_of(self.network)

    @property
    def alpha(self) -> float:
        """The factor by which differences shrink in one step."""
        return self.spectrum.alpha

    def schedule(
        self,
        weights: Sequence[Any] | Callable[[int], Any] | None = None,
        away: Mapping[Any, Iterable[int]] | ArrayLike | None = None,
    ) -> Schedule:
        """Return weights by step and absences, for :meth:`run` and the error curves.

        Parameters
        ----------
        weights : sequence of matrices or graphs, or callable, optional
            Weights of step 0, 1, …, or a function of the step alone.
        away : mapping of agent to steps, or bool array, shape (steps, n), optional
            Who is away at which step: it keeps its state and its draw, and has no links.
        """
        return Schedule(self.network, weights, away)

    # ------------------------------------------------------------------ what happens

    def run(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int,
        runs: int = 1,
        seed: Seed = None,
        *,
        keep: str = "all",
        schedule: Any = None,
    ) -> Run:
        """Simulate; never publish any of it.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int
            The number of steps; times 0 to ``steps`` are kept.
        runs : int
            How many independent runs.
        seed : int, SeedSequence or Generator, optional
            Where the draws come from.
        keep : {"all", "last", "errors"}
            All messages, those of the last step, or only squared errors.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        Run
        """
        count, start = whole_number(steps, "steps", 0), self._start(x0)
        repeats = whole_number(runs, "runs", 1)
        plan = schedule_of(schedule, self.network, count * repeats)
        generator = generator_of(seed)
        return simulate(plan, start, self.noise, count, repeats, generator, keep)

    def mean_error(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int,
        *,
        keep: str = "all",
        schedule: Any = None,
    ) -> FloatArray:
        """Return E[x_i(t)] − average, exactly; it is the same for every read-out.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int
            The number of steps.
        keep : {"all", "last"}
            All steps, or only the last.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        array, shape (steps + 1, n) or (1, n)
        """
        count, start = whole_number(steps, "steps", 0), self._start(x0)
        if keep not in ("all", "last"):
            raise AffineDPError(f"keep must be 'all' or 'last', not {keep!r}")
        if keep == "all" and float(count + 1) * self.n > MOST_NUMBERS:
            raise AffineDPError(f"{count + 1:,} steps × {self.n:,} agents: use keep='last'")
        times = np.arange(count + 1) if keep == "all" else np.array([count])
        moved = error_curves.moved_to(
            schedule_of(schedule, self.network, 1), start - start.mean(), times
        )
        return np.array([deviation for _, deviation in moved])

    def mean_square_error(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int | Sequence[int] | IntArray,
        readout: str = "state",
        *,
        method: str = "auto",
        probes: int = 64,
        confidence: float = 0.95,
        seed: Seed = 0,
        schedule: Any = None,
    ) -> error_curves.ErrorCurve:
        """Return E‖read-out(t) − average‖² over all agents, for t = 0, …, steps.

        Exact up to 2000 agents.  Beyond, an estimate with an interval, marked as such.  However
        many steps there are, only their errors are kept.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int or sequence of int
            The number of steps, or chosen steps, ascending.
        readout : {"state", "message", "corrected"}
            Which estimate of the average.
        method : {"auto", "exact", "estimate"}
            "exact" takes every draw through all steps, however long that takes.
        probes : int
            For an estimate: how many random vectors.
        confidence : float
            For an estimate: the interval at each step covers with at least this probability,
            whatever the network.
        seed : int, SeedSequence or Generator, optional
            For an estimate.
        schedule : Schedule, sequence or callable, optional
            Weights by step and absences.

        Returns
        -------
        ErrorCurve
        """
        times, start = error_curves.times_of(steps), self._start(x0)
        share = self._share(readout)
        if method not in ("auto", "exact", "estimate"):
            raise AffineDPError(f"method must be 'auto', 'exact' or 'estimate', not {method!r}")
        small = self.n <= DENSE_AGENTS
        last = int(times[-1])
        if method == "estimate" or (method == "auto" and not small):
            sure = real_number(confidence, "confidence", below=1.0, positive=True)
            vectors = whole_number(probes, "probes", 2)
            plan = schedule_of(schedule, self.network, last * vectors)
            generator = generator_of(seed)
            return error_curves.estimated_curve(
                plan, self.noise, start, times, share, vectors, sure, generator
            )
        if schedule is None and small:
            return error_curves.spectral_curve(self._modes, self.noise, start, times, share)
        plan = schedule_of(schedule, self.network, last * self.n)
        return error_curves.column_curve(plan, self.noise, start, times, share)

    # ------------------------------------------------------------------ what it comes to

    def bound(
        self,
        x0: ArrayLike | Mapping[Any, float] | None = None,
        steps: int | None = None,
        statement: str = "mean-square",
        *,
        noise: ArrayLike | None = None,
    ) -> FloatArray | float:
        """Return the bounds of Proposition 1 on the state, at every step or in the limit.

        Parameters
        ----------
        x0 : array_like or mapping of agents, optional
            x(0); without it the limit of the bound.
        steps : int, optional
            The number of steps.
        statement : {"path", "mean", "mean-square"}
            (i) on ‖x(t) − average‖ of runs with given draws, (ii) on ‖E x(t) − average‖, (iii) on
            E‖x(t) − average‖².
        noise : array_like, shape (n,) or (runs, n), optional
            The draws γ, for "path".

        Returns
        -------
        array, shape (steps + 1,) or (runs, steps + 1), or float
        """
        if statement not in STATEMENTS:
            raise AffineDPError(f"statement must be one of {STATEMENTS}, not {statement!r}")
        if (x0 is None) != (steps is None):
            raise AffineDPError("give x0 and steps, or neither for the limit of the bound")
        gamma = None
        if statement == "path":
            if noise is None:
                raise AffineDPError("statement 'path' is about given draws: give noise")
            gamma = real_array(noise, "noise")
            if gamma.ndim not in (1, 2) or gamma.shape[-1] != self.n:
                raise AffineDPError(f"noise must have one draw for each of {self.n} agents")
        if x0 is None or steps is None:
            if statement == "mean":
                return 0.0
            nothing = np.zeros(self.n)
            found = error_curves.proposition_1(statement, np.zeros(1), nothing, self.noise, gamma)
            return float(found[0]) if found.ndim == 1 else found[..., 0]
        start, count = self._start(x0), whole_number(steps, "steps", 0)
        powers = self.spectrum.alpha_bound ** np.arange(count + 1.0)
        return error_curves.proposition_1(statement, powers, start, self.noise, gamma)

    def steps_to(
        self, tolerance: float, *, spread: float | None = None, readout: str = "state"
    ) -> int:
        """Return a number of steps that is proved to be enough.

        Without ``spread``: differences between messages have shrunk to this share of what they
        were, in every run.  With it: from this step on the mean-square error is within
        ``tolerance`` of its limit.  Neither depends on the data, so the number may be public.

        Parameters
        ----------
        tolerance : float
            Positive.
        spread : float, optional
            A public bound on ‖x(0) − average‖.
        readout : {"state", "message", "corrected"}
            Which estimate, with ``spread``.
        """
        wanted = real_number(tolerance, "tolerance", positive=True)
        if spread is None:
            return error_curves.shrinking_steps(self.spectrum.alpha_bound, wanted)
        apart, alpha = real_number(spread, "spread", 0.0), self.spectrum.alpha_bound
        return error_curves.settling_steps(alpha, self.noise, readout, apart, wanted)

    def optimal_epsilon(
        self, zeta: float, readout: str = "paper", *, delta: float | None = None
    ) -> float:
        """Return the least ε with which the mean-square error ends at ζ or below.

        Parameters
        ----------
        zeta : float
            ζ, over all agents.
        readout : {"paper", "state", "message", "corrected"}
            "paper" is the paper's trade-off, from its bound; the others use the exact limits.
        delta : float, optional
            δ, for Gaussian noise; the one this was made with by default.

        Returns
        -------
        float
        """
        allowed = delta if delta is not None else (self.noise.delta or None)
        return error_curves.optimal_epsilon(
            self.noise, real_number(zeta, "zeta", positive=True), readout, allowed
        )

    # ------------------------------------------------------------------ agents as processes

    @cached_property
    def process_names(self) -> tuple[str, ...]:
        """What the agents are called as processes: their names as text, in their order."""
        names = tuple(checked_name(str(name)) for name in self.agents)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            same = [name for name in self.agents if str(name) == twice]
            raise AffineDPError(
                f"{same[0]!r} and {same[1]!r} are the same as text, and as processes they would be "
                "one agent: rename one"
            )
        return names

    def write(
        self,
        path: str | os.PathLike[str],
        *,
        rounds: int | None = None,
        values: Mapping[Any, float] | FloatArray | None = None,
    ) -> None:
        """Write the network file, to run the agents as processes.

        Parameters
        ----------
        path : str or Path
            A ``.toml`` file that does not exist; for its owner only, since it may hold values.
        rounds : int, optional
            How many rounds the agents go.
        values : mapping of agents, or array_like, optional
            x(0), for a trial on one machine.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import networkx as nx
        >>> from affinedp.consensus import read_network
        >>> ring = PrivateConsensus(nx.cycle_graph(3), law="gaussian", epsilon=1.0, delta=0.01)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "network.toml")
        ...     ring.write(file, rounds=30)
        ...     again = read_network(file)
        >>> again.rounds, bool((again.consensus.sigma == ring.sigma).all())
        (30, True)
        """
        file, names = Path(path), self.process_names
        if file.suffix.lower() != ".toml":
            raise AffineDPError(f"{file} must end in .toml")
        document: dict[str, Any] = {}
        if rounds is not None:
            document["rounds"] = whole_number(rounds, "rounds", 0)
        rows, columns, weights = self.network.links()
        document["links"] = [
            [names[i], names[j], w]
            for i, j, w in zip(rows.tolist(), columns.tolist(), weights.tolist())
            if i < j
        ]
        noise = self.noise
        given = {"sigma": noise.sigma} if noise.epsilon is None else {"epsilon": noise.epsilon}
        document["noise"] = {"law": self.law}
        for key, array in {**given, "mu": noise.mu}.items():
            same = bool(np.all(array == array[0]))
            each = [float(value) for value in array]
            document["noise"][key] = each[0] if same else dict(zip(names, each))
        if noise.delta:
            document["noise"]["delta"] = noise.delta
        if values is not None:
            found = self.network.values(values, "values")
            document["values"] = {name: float(value) for name, value in zip(names, found)}
        write_for_owner(file, toml_text(document))

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
            raise AffineDPError(
                f"agent {name!r} sends its value without noise, so there is nothing to draw once: "
                "give it mu and noise of its own, however small"
            )
        epsilon = self.noise.epsilon
        if epsilon is None:
            return AgentNoise(self.law, mu=mu, sigma=sigma, bound=bound)
        # ε rather than σ: what is stated is then at most ε, whichever way σ is rounded
        delta = self.noise.delta if self.law == "gaussian" else None
        return AgentNoise(self.law, float(epsilon[place]), delta, mu, bound=bound)
