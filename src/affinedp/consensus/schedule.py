"""Networks that change from step to step, and agents that are away for a while.

The promise of the messages does not depend on the weights, as long as nobody chooses them by
looking at states or draws: given the messages, u_i(t) is public for any public weights.  What
depends on them is the average.  It is kept if the weights of every step are symmetric, and
differences never grow if λ_n ≤ 2 at every step.  An agent that is away keeps its state and
its one draw, and has no links at that step.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix
from affinedp.consensus.eigenvalues import largest_eigenvalue, largest_eigenvalue_bound
from affinedp.consensus.graph import Network, is_graph, network_of
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import whole_number
from affinedp.parts import Locked

# Beyond this many agents and products a better order of the agents pays for itself.
ORDERED_AGENTS = 30_000
ORDERED_PRODUCTS = 64
# News of so many agents, times links, is followed at a time.
BITS_AT_ONCE = 1 << 28


class Schedule(Locked):
    """Weights by step, and who is away when.

    Parameters
    ----------
    network : Network
        The agents, and the weights wherever ``weights`` gives none.
    weights : sequence of matrices or graphs, or callable, optional
        Weights of step 0, 1, …, or a function of the step.  It must not use states or draws.
    away : mapping of agent to steps, or bool array, shape (steps, n), optional
        Who is away at which step.

    Examples
    --------
    >>> import networkx as nx
    >>> from affinedp.consensus import PrivateConsensus
    >>> ring = PrivateConsensus(nx.cycle_graph(4), law="laplace", epsilon=1.0)
    >>> schedule = ring.schedule(away={2: range(5)})
    >>> ring.run([0, 0, 8, 0], steps=2, seed=1, schedule=schedule).states[0, :, 2].tolist()
    [8.0, 8.0, 8.0]
    """

    order: IntArray | None = None  # of the agents in :meth:`move`, if it is not their own

    def __init__(
        self,
        network: Network,
        weights: Sequence[Any] | Callable[[int], Any] | None = None,
        away: Mapping[Any, Iterable[int]] | ArrayLike | None = None,
    ) -> None:
        self._network = network
        if weights is not None and not callable(weights) and not isinstance(weights, Sequence):
            raise AffineDPError(
                "the weights of a schedule are a list of matrices or graphs, one for each step, or "
                "a function of the step"
            )
        self._weights = weights
        self._matrix: Matrix = network.transition
        self._missing, self._table = _absences(network, away)

    def __repr__(self) -> str:
        return f"Schedule(agents={self._network.n})"

    def move(self, t: int, messages: FloatArray) -> FloatArray:
        """Return y(t+1) from y(t), without building a matrix for those who are away.

        Parameters
        ----------
        t : int
            The step.
        messages : array, shape (n,) or (n, runs)
            y(t).
        """
        if self._weights is None and not self._missing and self._table is None:
            return np.asarray(self._matrix @ messages)
        network, away = self.network_at(t), self.away_at(t)
        P = network.transition
        if not away.any():
            return np.asarray(P @ messages)
        present = np.where(away, 0.0, 1.0)
        stays = 1.0 - network.weight_sums  # the diagonal of P
        # P restricted to those present: their links among each other, and no others
        sums = P @ present - stays * present
        if messages.ndim == 2:
            present, stays, sums = present[:, None], stays[:, None], sums[:, None]
        heard = P @ (present * messages) - stays * (present * messages)
        return np.asarray(messages + present * (heard - sums * messages))

    def follow(self, columns: FloatArray) -> Iterator[FloatArray]:
        """Yield y(0), y(1), … without end.

        Parameters
        ----------
        columns : array, shape (n,) or (n, runs)
            y(0).
        """
        for t in count():
            yield columns
            columns = self.move(t, columns)

    def network_at(self, t: int) -> Network:
        """Return the checked network of step t, before absences.

        Parameters
        ----------
        t : int
            The step.
        """
        if self._weights is None:
            return self._network
        if callable(self._weights):
            given = self._weights(t)
        elif t < len(self._weights):
            given = self._weights[t]
        else:
            raise AffineDPError(
                f"the schedule has weights for {len(self._weights)} steps; step {t} has none"
            )
        try:
            return _checked_step(given, self._network)
        except AffineDPError as error:
            raise error.located(f"step {t} of the schedule") from None

    def away_at(self, t: int) -> NDArray[np.bool_]:
        """Return who is away at step t.

        Parameters
        ----------
        t : int
            The step.
        """
        if self._table is not None:
            if t >= len(self._table):
                raise AffineDPError(
                    f"away covers {len(self._table)} steps, and step {t} is not among them"
                )
            return np.asarray(self._table[t])
        found = np.zeros(self._network.n, dtype=np.bool_)
        found[[place for place, steps in self._missing.items() if t in steps]] = True
        return found

    def connects(self, steps: int) -> bool:
        """Whether news of every agent can reach every other within these steps, in this order.

        A link passes on what its ends know at that step: links 0–1 and then 1–2 bring news of 0
        to 2, and none of 2 to 0.  If some news cannot arrive, the average of all cannot be reached
        within the steps, though the promise holds all the same.  That it can does not yet mean
        that differences are small.

        Parameters
        ----------
        steps : int
            How many steps.

        Examples
        --------
        >>> from affinedp.consensus import PrivateConsensus
        >>> path = PrivateConsensus.from_edges(3, [0, 1], [1, 2], law="laplace", epsilon=1.0)
        >>> first = [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]
        >>> second = [[0, 0, 0], [0, 0, 0.5], [0, 0.5, 0]]
        >>> path.schedule([first, second]).connects(2)
        False
        >>> path.schedule([first, second, first]).connects(3)
        True
        """
        needed = whole_number(steps, "steps", 0)
        n, most = self._network.n, max(1, BITS_AT_ONCE // self._network.transition.nnz)
        return all(
            self._reach_everyone(range(first, min(first + most, n)), needed)
            for first in range(0, n, most)
        )

    def _reach_everyone(self, sources: range, steps: int) -> bool:
        """Whether news of some agents reaches all; one bit of each agent for each source."""
        places = np.arange(len(sources))
        known = np.zeros((self._network.n, (len(sources) + 63) // 64), dtype=np.uint64)
        known[sources, places // 64] = np.uint64(1) << (places % 64).astype(np.uint64)
        wanted = np.bitwise_or.reduce(known, axis=0)
        for t in range(steps):
            if np.all(known == wanted):
                return True
            rows, columns, _ = self.network_at(t).links()
            away = self.away_at(t)
            both = ~(away[rows] | away[columns])
            rows, columns = rows[both], columns[both]
            if len(rows):
                # the rows are sorted; everyone hears what its neighbours knew before the step
                first = np.flatnonzero(np.diff(rows, prepend=-1))
                heard = np.bitwise_or.reduceat(known[columns], first, axis=0)
                known[rows[first]] |= heard
        return bool(np.all(known == wanted))


def schedule_of(given: Any, network: Network, products: int) -> Schedule:
    """Return a schedule from what was given for one; None is the network as it is.

    For many products linked agents of a large network are put next to each other first.
    """
    if given is None:
        steady = Schedule(network)
        if network.n >= ORDERED_AGENTS and products >= ORDERED_PRODUCTS:
            steady._matrix, steady.order = network.ordered
        return steady
    if not isinstance(given, Schedule):
        return Schedule(network, given)
    if given._network is not network:
        raise AffineDPError("the schedule was made for another network")
    return given


def _checked_step(given: Any, network: Network) -> Network:
    """The network of one step, in the order of the agents."""
    if is_graph(given):
        if set(given.nodes) != set(network.names):
            raise AffineDPError(
                "the graph has other agents. One who joins or leaves for good changes whose "
                "average it is: make a new PrivateConsensus (a new release); one who is away for "
                "some steps belongs in away"
            )
        if tuple(given.nodes) != tuple(network.names):
            ordered = given.__class__()
            ordered.add_nodes_from(network.names)
            ordered.add_edges_from(given.edges(data=True))
            given = ordered
    step: Network = network_of(given)
    if step.n != network.n:
        raise AffineDPError(f"the weights are for {step.n} agents, but there are {network.n}")
    safe = 2.0 * (1 + 1e-12)
    if 2 * step.weight_sums.max() > safe and largest_eigenvalue_bound(step) > safe:
        found = largest_eigenvalue(step)
        if found > 2 + 64 * network.n * EPS:
            raise AffineDPError(
                f"differences would grow, since λ_n = {found:.6g} > 2: use smaller weights"
            )
    return step


def _absences(
    network: Network, away: Mapping[Any, Iterable[int]] | ArrayLike | None
) -> tuple[Mapping[int, frozenset[int] | range], NDArray[np.bool_] | None]:
    """Steps of absence by position, or a table of them."""
    if away is None:
        return {}, None
    if isinstance(away, Mapping):
        return {
            network.position(agent): _steps(agent, steps) for agent, steps in away.items()
        }, None
    table = np.array(away)
    if table.dtype != np.bool_ or table.ndim != 2 or table.shape[1] != network.n:
        raise AffineDPError(
            f"away must map agents to steps, or be a bool array of shape (steps, {network.n})"
        )
    return {}, table


def _steps(agent: Hashable, steps: Iterable[int]) -> frozenset[int] | range:
    if isinstance(steps, range):
        return steps
    found = list(steps) if isinstance(steps, Iterable) else [None]
    for step in found:
        if isinstance(step, bool) or not isinstance(step, numbers.Integral):
            raise AffineDPError(f"the steps at which {agent!r} is away must be whole numbers")
    return frozenset(int(step) for step in found)
