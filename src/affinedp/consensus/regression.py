"""Least squares over records that agents keep to themselves.

Each agent adds noise to the sums of its own records, once.  The noisy sums are averaged over the
network, and every agent solves the normal equations of the average.  Nothing after the noise
touches a record, so all messages together promise what the one release of the sums does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger
from affinedp.consensus.moments import GRID_BITS, SHARE, Moments, NoisySums, OneRecord
from affinedp.consensus.network import whole
from affinedp.consensus.spectrum import check_convergence, spectrum_of
from affinedp.consensus.weights import Weights, network_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.laws.calibration import gaussian_sigma
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.privacy.asked import Asked
from affinedp.privacy.design import Design
from affinedp.privacy.guarantee import Guarantee

AGREED = 1e-9
MOST_ROUNDS = 100_000


@dataclass(frozen=True, eq=False)
class Learned:
    """What the agents know at the end: public.

    Attributes
    ----------
    coefficients : array, shape (agents, 1 + features)
        Intercept and slopes of every agent, in the units of the columns.
    features : tuple of str
        The columns of the slopes.
    rounds : int
        How many rounds of averaging.
    """

    coefficients: FloatArray
    features: tuple[str, ...]
    rounds: int

    def predict(self, data: Any, agent: int = 0) -> FloatArray:
        """Return predictions of the target.

        Parameters
        ----------
        data : mapping of str to array_like, or pandas DataFrame
            The features, by name.
        agent : int
            Whose coefficients.
        """
        columns = np.column_stack([np.asarray(data[name], dtype=float) for name in self.features])
        return np.asarray(self.coefficients[agent, 0] + columns @ self.coefficients[agent, 1:])


class PrivateRegression:
    """Agents that fit one linear model to the records of all, and show none of them.

    Parameters
    ----------
    graph : networkx.Graph, sparse matrix or array
        The network, as for :class:`PrivateConsensus`.
    ranges : dict of str to (float, float)
        Public: between which values every column lies; what is beyond is cut.  The last is the
        target.
    epsilon, delta : float
        The promise to every record of every agent.
    neighbours : {"join", "replace"}
        A record joins or leaves, or changes.
    norm : float, optional
        Records are shortened to this length, where the constant and each column count up to 1.
        By default none is; a smaller norm costs some bias and less noise.
    ridge : float, optional
        Added to the diagonal of the normal equations; by default the size of the noise in them.
    weights : {"metropolis", "uniform"} or float, optional
        As for :class:`PrivateConsensus`.

    Examples
    --------
    >>> import networkx as nx
    >>> learning = PrivateRegression(nx.cycle_graph(3), {"x": (0, 1), "y": (0, 10)}, 1.0, 1e-6)
    >>> learning.guarantee.holds(1.0, 1e-6), learning.guarantee.unit
    (True, 'one record of one agent')
    >>> x = np.linspace(0, 1, 5000)
    >>> learned = learning.simulate([{"x": x, "y": 2 + 5 * x}] * 3, seed=1)
    >>> learned.coefficients.round(1).tolist()[0]
    [2.0, 5.0]
    """

    def __init__(
        self,
        graph: Any,
        ranges: Mapping[str, tuple[float, float]],
        epsilon: float,
        delta: float,
        *,
        neighbours: Literal["join", "replace"] = "join",
        norm: float | None = None,
        ridge: float | None = None,
        weights: Weights = None,
    ) -> None:
        self.network = network_of(graph, weights)
        self.network.check_connected()
        check_convergence(self.network)
        if neighbours not in ("join", "replace"):
            raise AffineDPError(f"neighbours must be 'join' or 'replace', not {neighbours!r}")
        self.neighbours = neighbours
        kept = {str(name): (float(low), float(high)) for name, (low, high) in ranges.items()}
        if len(kept) < len(ranges):
            raise AffineDPError("two columns of ranges have the same name")
        if ridge is not None and not 0 <= ridge < math.inf:
            raise AffineDPError(f"ridge must be finite and not negative, not {ridge!r}")
        self.moments = Moments(kept, math.sqrt(len(kept) + 1) if norm is None else float(norm))
        farthest = self.moments.sensitivity(neighbours == "replace")
        sigma = Fraction(float(gaussian_sigma(epsilon, delta)))
        self._noise = NoisySums(self.moments, math.ceil(sigma * farthest * (1 + SHARE)))
        #: The one release of every agent: its noisy sums.
        self.mechanism = Mechanism(
            OneRecord(self.moments, neighbours == "replace"),
            self._noise,
            Gaussian(),
            design=Design(asked=Asked(float(epsilon), float(delta))),
        )
        self._ridge = ridge

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that predict."""
        return tuple(self.moments.ranges)[:-1]

    @property
    def scale(self) -> int:
        """The noise on every sum, in grid steps."""
        return self._noise.scale

    @property
    def sigma(self) -> float:
        """The noise of each agent on each sum, in units of the records."""
        return self._noise.sigma

    @property
    def guarantee(self) -> Guarantee:
        """What all messages together promise to every record, however long they are averaged."""
        return self.mechanism.guarantee

    def release(
        self, data: Any, *, ledger: Ledger | None = None, label: str | None = None
    ) -> FloatArray:
        """Return the noisy sums of one agent, to be sent to everyone: a release, made once.

        A record with a missing or infinite value is refused, with all others of the agent; leave
        it out or fill it first.  An agent without records releases noise as all others do.

        Parameters
        ----------
        data : mapping of str to array_like, or pandas DataFrame
            The agent's records.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger.
        """
        return np.asarray(self.mechanism.release(data, ledger=ledger, label=label))

    def learn(self, released: Sequence[FloatArray], rounds: int | None = None) -> Learned:
        """Average released sums over the network, and solve at every agent.

        Parameters
        ----------
        released : sequence of arrays
            One for each agent, in the order of the network.
        rounds : int, optional
            Rounds of averaging; by default as many as bring all agents together.
        """
        messages = real_array(np.array(released), "what was released")
        if messages.shape != (self.network.n, self.moments.numbers):
            raise AffineDPError(
                f"there must be {self.moments.numbers} sums for each of {self.network.n} agents, "
                f"not {messages.shape}"
            )
        count = self._rounds() if rounds is None else whole(rounds, "rounds", 0)
        for _ in range(count):
            messages = self.network.transition @ messages
        slopes = np.array([self._solve(row) for row in self.network.n * messages])
        return Learned(self.moments.in_units(slopes), self.features, count)

    def simulate(
        self,
        parts: Sequence[Any],
        seed: int | np.random.Generator | None = None,
        *,
        curator: Literal["agents", "central"] = "agents",
    ) -> Learned:
        """Return what would be learned, with noise that is good for studies and not for secrets.

        Parameters
        ----------
        parts : sequence of mappings or DataFrames
            The records of each agent.
        seed : int or Generator, optional
            Where the noise comes from.
        curator : {"agents", "central"}
            Whether each agent adds noise, or somebody whom all trust adds it once to the total.
        """
        if len(parts) != self.network.n:
            raise AffineDPError(f"there are {self.network.n} agents, but {len(parts)} parts")
        generator = np.random.default_rng(seed)
        sums = np.array([self._plain(self.moments.sums(part)) for part in parts])
        if curator == "agents":
            return self.learn(list(sums + self.sigma * generator.normal(size=sums.shape)))
        if curator != "central":
            raise AffineDPError(f"curator must be 'agents' or 'central', not {curator!r}")
        total = sums.sum(axis=0) + self.sigma * generator.normal(size=sums.shape[1])
        slopes = self._solve(total, noises=1)[None]
        return Learned(self.moments.in_units(slopes), self.features, 0)

    def _plain(self, sums: NDArray[Any]) -> FloatArray:
        return np.asarray(np.ldexp(sums.astype(np.float64), -GRID_BITS))

    def _rounds(self) -> int:
        alpha = spectrum_of(self.network).alpha
        if not alpha < 1:
            raise AffineDPError("this network is too slow to bring its agents together")
        needed = 1 if alpha <= 0 else math.ceil(math.log(AGREED) / math.log(alpha))
        if needed > MOST_ROUNDS:
            raise AffineDPError(f"{needed:,} rounds would be needed: add links, or give rounds")
        return max(needed, 1)

    def _solve(self, total: FloatArray, noises: int | None = None) -> FloatArray:
        """Least squares from noisy sums: negative eigenvalues are noise, and are set to 0."""
        matrix = self.moments.matrix(total)
        deviation = self.sigma * math.sqrt(self.network.n if noises is None else noises)
        ridge = deviation * math.sqrt(self.moments.size) if self._ridge is None else self._ridge
        values, vectors = np.linalg.eigh(matrix[:-1, :-1])
        return np.asarray(
            vectors @ ((vectors.T @ matrix[:-1, -1]) / (np.maximum(values, 0.0) + ridge))
        )
