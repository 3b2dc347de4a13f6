"""Private averages over one-way links that lose messages: what is promised, and how well it does.

Agent i draws γ_i once and starts with y_i = x_i + γ_i and the mass 1.  In every round it splits
both into equal parts, keeps one and sends the others; its estimate is what it holds of y over what
it holds of mass.  It needs to know how many it sends to, and nothing about who sends to it.

An agent does not send a part; it sends the *sum of all parts so far*.  Who hears it takes the
difference to what it heard before.  So a lost message delays a part and destroys none: it stays on
its link until the next message arrives (Hadjicostis, Vaidya and Domínguez-García 2016).  Losses are
decided by public things or by chance, never by private values.

All that is ever sent follows from y, which links exist, and which messages are
lost.  So the whole run is post-processing of y, and the promise is that of one release of x_i:
docs/explanation/push-sum.md gives the argument and what breaks it.  An agent may be saved,
copied or started again without any cost, as long as its noisy value is released once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.consensus.error_curves import ErrorCurve, column_curve, times_of
from affinedp.consensus.graph import Network, checked_names, is_graph, listed, square_matrix
from affinedp.consensus.one_draw import PerAgent, noise_for
from affinedp.consensus.protocol import NoisyNetwork
from affinedp.consensus.runs import Run, Seed, generator_of, simulate
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import is_number, real_number, whole_number
from affinedp.laws.base import LawName

READOUTS = ("message", "corrected")
MOST_WEIGHTS = 5e7
MOST_STEPS = 100_000


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
    given: Any, network: DirectedNetwork, generator: np.random.Generator
) -> Callable[[], Iterator[Lost]]:
    """Return a maker of the losses of round 0, 1, …: the same ones each time it is called."""
    links = network.links_count
    none = np.zeros(links, dtype=np.bool_)
    if given is None:
        return lambda: repeat(none)
    if callable(given):
        return lambda: (_row(given(t), links, t) for t in count())
    if is_number(given):
        chance = real_number(given, "the probability that a message is lost", 0.0, 1.0)
        entropy = generator.integers(2**63)  # fixed here: every pass is the same

        def by_chance() -> Iterator[Lost]:
            again = np.random.default_rng(entropy)
            return (again.random(links) < chance for _ in count())

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


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of a network in which some messages are lost, for several columns side by side."""

    network: DirectedNetwork
    losses: Callable[[], Iterator[Lost]]
    order: IntArray | None = None

    def follow(self, columns: FloatArray) -> Iterator[FloatArray]:
        """Yield the estimates at time 0, 1, …: what agents hold over their masses."""
        for held, _ in self.held(columns):
            yield (held[:, 1:] / held[:, :1]).reshape(columns.shape)

    def held(self, start: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what agents hold, and what is still on the links, at time 0, 1, …; masses first."""
        import scipy.sparse as sparse

        sources, shares = self.network.sources, self.network.shares[:, None]
        links = self.network.links_count
        ends = (self.network.targets, np.arange(links))
        arrival = sparse.csr_array((np.ones(links), ends), shape=(self.network.n, links))
        held = np.column_stack([np.ones(len(start)), start])
        on_links = np.zeros((links, held.shape[1]))
        for lost in self.losses():
            yield held, on_links
            gives = held[:, :1] >= LEAST_MASS
            part = np.where(gives, shares * held, held)
            on_links = on_links + np.where(gives, part, 0.0)[sources]
            held = part + arrival @ np.where(lost[:, None], 0.0, on_links)
            on_links[~lost] = 0.0


# ---------------------------------------------------------------------- simulated runs


@dataclass(frozen=True, eq=False)
class PushSumRun(Run):
    """What happened in simulated runs; messages are estimates.  Arrays are (runs, time, agent).

    The noise comes from NumPy's generator: publish nothing of this.

    Attributes
    ----------
    masses : array, shape (time, agent)
        The masses: public, and the same in every run.
    """

    readouts: tuple[str, ...] = READOUTS
    masses: FloatArray = field(kw_only=True, repr=False)

    @property
    def estimates(self) -> FloatArray:
        """Every agent's share of y over its mass: public."""
        return self.messages


class PrivatePushSum(NoisyNetwork):
    """Agents that find the average of their values over one-way links that lose messages.

    Parameters
    ----------
    graph : networkx.DiGraph, sparse matrix or array
        One-way links; an entry (i, j) of a matrix that is not zero is a link from i to j.  There
        must be a way from every agent to every other.
    law : {"gaussian", "laplace", "auto"}
        The law of η_i: N(0, 1), or L(0, 1), which has variance 2; γ_i = σ_i η_i.  ``"auto"`` takes
        the one with the least error for (ε, δ).
    epsilon : float, array_like or mapping of agents, optional
        ε, one for all or one per agent.
    delta : float
        δ; for Gaussian noise only.
    mu : float, array_like or mapping of agents
        How far the value of an agent moves between neighbours.
    sigma : float, array_like or mapping of agents, optional
        The noise, in place of ε: it is verified, not designed.
    names : sequence, optional
        The agents, for a matrix.

    Examples
    --------
    >>> import networkx as nx
    >>> one_way = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")])
    >>> consensus = PrivatePushSum(one_way, law="gaussian", epsilon=1.0, delta=0.01)
    >>> consensus.guarantee.holds(1.0, 0.01), round(float(consensus.sigma[0]), 6)
    (True, 1.877876)
    >>> x0 = {"a": 10.0, "b": 0.0, "c": 20.0}
    >>> error = consensus.mean_square_error(x0, 60, lost=0.3, seed=1)
    >>> print(f"{error[60]:.4f}, limit {consensus.limit():.4f}")
    3.5264, limit 3.5264
    """

    network: DirectedNetwork
    protocol = "push-sum"
    readouts = READOUTS

    def __init__(
        self,
        graph: Any,
        *,
        law: LawName | Literal["auto"],
        epsilon: PerAgent | None = None,
        delta: float = 0.0,
        mu: PerAgent = 1.0,
        sigma: PerAgent | None = None,
        names: Sequence[Hashable] | None = None,
    ) -> None:
        network = directed_network_of(graph, names)
        noise = noise_for(network, law, epsilon, delta, mu, sigma)
        vars(self).update(network=network, noise=noise)

    def run(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int,
        runs: int = 1,
        seed: Seed = None,
        *,
        lost: Any = None,
    ) -> PushSumRun:
        """Simulate; never publish any of it.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int
            The number of rounds; times 0 to ``steps`` are kept.
        runs : int
            How many independent runs, with the same losses.
        seed : int or Generator, optional
            Where the draws and the losses come from.
        lost : None, float, bool array, shape (rounds, links), or callable, optional
            Which messages are lost: a probability, rows by round, or a function of the round.
        """
        start, count = self._start(x0), whole_number(steps, "steps", 0)
        repeats, generator = whole_number(runs, "runs"), generator_of(seed)
        # losses first: they are then those of mean_square_error
        rounds = Rounds(self.network, losses_of(lost, self.network, generator))
        run = simulate(rounds, start, self.noise, count, repeats, generator)
        masses = [held[:, 0] for held, _ in islice(rounds.held(np.empty((self.n, 0))), count + 1)]
        return PushSumRun(
            run.times, run.average, run.noise, run.messages, {}, masses=np.array(masses)
        )

    def mean_square_error(
        self,
        x0: ArrayLike | Mapping[Any, float],
        steps: int | Sequence[int] | IntArray,
        readout: str = "message",
        *,
        lost: Any = None,
        seed: Seed = None,
    ) -> ErrorCurve:
        """Return E‖read-out − average‖² at every time, exactly, for the losses that happen.

        Parameters
        ----------
        x0 : array_like, shape (n,), or mapping of agents
            x(0).
        steps : int or sequence of int
            The number of rounds; or the chosen rounds.
        readout : {"message", "corrected"}
            Which estimate.
        lost : None, float, bool array, shape (rounds, links), or callable, optional
            Which messages are lost.  With a probability one pattern is drawn, and the error is
            that of this pattern.
        seed : int or Generator, optional
            For losses by chance.

        Returns
        -------
        ErrorCurve
            An array with one value for each time.
        """
        start, times = self._start(x0), times_of(steps)
        rounds = Rounds(self.network, losses_of(lost, self.network, generator_of(seed)))
        return column_curve(rounds, self.noise, start, times, self._share(readout))

    def steps_to(self, factor: float, *, lost: Any = None, seed: Seed = None) -> int:
        """Return after how many rounds every estimate weighs all values alike, up to ``factor``.

        From then on an estimate is within ``factor · max|y|`` of the average of y, whatever is
        lost later: what agents and links hold are averages of what they held before.  It depends
        on links and losses alone, so it may be agreed on in public.

        Parameters
        ----------
        factor : float
            Bound on Σ_j |weight_ij − 1/n|, positive.
        lost : None, float, bool array, shape (rounds, links), or callable, optional
            Which messages are lost.
        seed : int or Generator, optional
            For losses by chance.
        """
        allowed = real_number(factor, "factor", positive=True)
        if float(self.n) * (self.n + self.network.links_count) > MOST_WEIGHTS:
            raise AffineDPError(f"{self.n:,} agents have too many weights to follow all of them")
        rounds = Rounds(self.network, losses_of(lost, self.network, generator_of(seed)))
        for t, places in enumerate(islice(rounds.held(np.eye(self.n)), MOST_STEPS + 1)):
            held = np.concatenate(places)
            mass, held = held[:, :1], held[:, 1:]
            if (np.abs(held - mass / self.n).sum(axis=1) <= allowed * mass[:, 0]).all():
                return t
        raise AffineDPError(f"{MOST_STEPS:,} rounds do not bring it below {allowed:g}")


@dataclass(frozen=True)
class PushSumMessage:
    """What an agent sends to all of its receivers: the sums of all parts so far.

    Attributes
    ----------
    agent : str
        Who sends it.
    round : int
        How many parts the sums hold.
    value, mass : float
        The sums of the parts of y and of the mass.
    """

    agent: str
    round: int
    value: float
    mass: float

    def __post_init__(self) -> None:
        if not isinstance(self.agent, str):
            raise AffineDPError(f"the name of an agent is text, not {type(self.agent).__name__}")
        whole_number(self.round, "round", 0)
        for name in ("value", "mass"):
            least = 0.0 if name == "mass" else -math.inf
            object.__setattr__(self, name, real_number(getattr(self, name), name, least))


class PushSumAgent:
    """An agent that starts from its noisy value.

    Parameters
    ----------
    name : str
        Its name.
    first : float
        y(0) = x(0) + γ, released once: the first message of an :class:`Agent`, say, or
        ``AgentNoise(...).mechanism().release([x])[0]``.  Releasing it again is a second release.
    receivers : int
        To how many it sends; who they are does not matter.
    known : iterable of str, optional
        From whom it takes messages; from anyone by default.

    Examples
    --------
    >>> one, two = PushSumAgent("1", 11.5, receivers=1), PushSumAgent("2", 28.5, receivers=1)
    >>> for t in range(40):
    ...     sent = one.send(), two.send()
    ...     if t % 3:                           # every third message to agent 1 is lost
    ...         _ = one.hear(sent[1])
    ...     _ = two.hear(sent[0])
    >>> round(one.estimate, 6), round(two.estimate, 6)
    (20.0, 20.0)
    """

    def __init__(
        self, name: str, first: float, receivers: int, known: frozenset[str] | None = None
    ) -> None:
        self.name, self._receivers = str(name), whole_number(receivers, "receivers", 1)
        self._known = None if known is None else frozenset(known)
        self._held = (real_number(first, "first"), 1.0)
        self._sent = PushSumMessage(self.name, 0, 0.0, 0.0)
        self._heard: dict[str, PushSumMessage] = {}

    @property
    def round(self) -> int:
        """How often it has sent."""
        return self._sent.round

    @property
    def mass(self) -> float:
        """The mass that it holds: public."""
        return self._held[1]

    @property
    def estimate(self) -> float:
        """Its estimate of the average: public."""
        return self._held[0] / self._held[1]

    def send(self) -> PushSumMessage:
        """Split what it holds, and return the message for all receivers of this round.

        Who has not heard anything for hundreds of rounds keeps the little that is left.
        """
        value = mass = 0.0
        if self._held[1] >= LEAST_MASS:
            share = 1.0 / (1 + self._receivers)
            value, mass = self._held[0] * share, self._held[1] * share
            self._held = (value, mass)
        last = self._sent
        self._sent = PushSumMessage(self.name, last.round + 1, last.value + value, last.mass + mass)
        return self._sent

    def hear(self, message: PushSumMessage) -> bool:
        """Take over what the sender has sent since we heard it last; return whether it was new.

        Parameters
        ----------
        message : PushSumMessage
            Of another agent.  Repeated and overtaken messages change nothing.
        """
        if not isinstance(message, PushSumMessage):
            raise AffineDPError(f"an agent hears a PushSumMessage, not {type(message).__name__}")
        if message.agent == self.name:
            return False
        if self._known is not None and message.agent not in self._known:
            raise AffineDPError(f"agent {message.agent!r} is not known to agent {self.name!r}")
        before = self._heard.get(message.agent, PushSumMessage(message.agent, 0, 0.0, 0.0))
        if message.round <= before.round:
            return False
        if message.mass < before.mass:
            raise AffineDPError(
                f"agent {message.agent!r} sends a smaller mass than before: it started again. All "
                "start again together, from their first values, which costs nothing"
            )
        value = self._held[0] + (message.value - before.value)
        mass = self._held[1] + (message.mass - before.mass)
        if not (math.isfinite(value) and math.isfinite(mass) and message.mass > 0):
            raise AffineDPError(f"agent {message.agent!r} sends numbers that cannot be: dropped")
        self._held = (value, mass)
        self._heard[message.agent] = message
        return True
