"""The network: agents, their names, and the matrix of one consensus step.

Sign convention: the Laplacian L is positive semidefinite (the paper writes −L), and one step of
plain consensus multiplies by P = I − L.  A link of an agent with itself changes nothing, since
w_ii (y_i − y_i) = 0, and is left out.  So a doubly stochastic matrix and the weights off its
diagonal are the same network.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp import errors
from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import (
    dimensions,
    is_number,
    real_array,
    real_matrix,
    real_number,
    whole_number,
)
from affinedp.parts import Locked, locked

# "metropolis", "uniform", one weight for all links, or one for each link.
Weights: TypeAlias = "str | float | ArrayLike | None"
# Positions of agents; 32 bits where they suffice, which makes a step faster.
Ends: TypeAlias = NDArray[Any]

# Weights that differ by less than this share between the two directions are rounding.
SAME_WEIGHT = 1e-12


@dataclass(frozen=True, eq=False)
class Network(Locked):
    """Agents and what one step does to their messages."""

    transition: Matrix = field(repr=False)
    names: Sequence[Hashable] = field(repr=False)
    weight_sums: FloatArray = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """The number of agents."""
        return len(self.weight_sums)

    @property
    def laplacian(self) -> Matrix:
        """L = I − P, positive semidefinite; from the weights, since 1 − (1 − w) is not always w."""
        import scipy.sparse as sparse

        return sparse.csr_array(sparse.diags_array(self.weight_sums) - self.weights)

    @property
    def weights(self) -> Matrix:
        """The weights w_ij, with a zero diagonal."""
        import scipy.sparse as sparse

        rows, columns, values = self.links()
        return sparse.csr_array((values, (rows, columns)), shape=(self.n, self.n))

    @cached_property
    def ordered(self) -> tuple[Matrix, NDArray[Any]]:
        """P with linked agents next to each other, and their order."""
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        # the order keeps the 32 bits of the indices: 64 would make every product slower
        order = reverse_cuthill_mckee(self.transition, symmetric_mode=True)
        matrix = self.transition[order][:, order]
        matrix.sort_indices()
        return matrix, order

    def links(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return both directions of every link, as rows, columns and weights."""
        P = self.transition
        rows = np.repeat(np.arange(self.n), np.diff(P.indptr))
        between = rows != P.indices
        return rows[between], P.indices[between].astype(np.intp), P.data[between]

    def named(self, places: ArrayLike) -> list[Hashable]:
        """Return the names of agents by position."""
        return [self.names[int(i)] for i in np.asarray(places)]

    @cached_property
    def _places(self) -> Mapping[Hashable, int]:
        return {name: place for place, name in enumerate(self.names)}

    def position(self, agent: Hashable) -> int:
        """Return the row of an agent, by its name."""
        if isinstance(self.names, range):
            place = agent if isinstance(agent, numbers.Integral) else -1
            if 0 <= place < self.n and not isinstance(agent, bool):
                return int(place)
        elif is_name(agent) and agent in self._places:
            return self._places[agent]
        raise AffineDPError(f"there is no agent {agent!r}; there are {listed(self.names)}")

    def values(self, given: float | ArrayLike | Mapping[Any, float], what: str) -> FloatArray:
        """Return one number per agent from one number, an array in their order, or a mapping."""
        if isinstance(given, Mapping):
            places = [self.position(agent) for agent in given]
            missing = np.setdiff1d(np.arange(self.n), places)
            if len(missing):
                raise AffineDPError(f"{what} is missing for {listed(self.named(missing))}")
            found = np.empty(self.n)
            found[places] = real_array(list(given.values()), what, 1)
            return found
        array = real_array(given, what)
        if array.ndim == 0:
            return np.full(self.n, float(array))
        if array.shape != (self.n,):
            raise AffineDPError(
                f"{what} has shape {array.shape}; give one number for each of {self.n} agents"
            )
        return array

    def check_connected(self) -> None:
        """Refuse a network in which some agents never hear of others."""
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(self.transition, directed=False)
        if count > 1:
            alone = self.named(np.flatnonzero(label == np.argmin(np.bincount(label))))
            raise AffineDPError(
                f"{listed(alone)} {'has' if len(alone) == 1 else 'have'} no link to the others, so "
                f"the network falls into {count} parts that never hear of each other: add a link, "
                "or run each part by itself"
            )


def is_name(name: object) -> bool:
    """Whether something can be the name of an agent: a tuple of lists looks hashable and is not."""
    try:
        hash(name)
    except TypeError:
        return False
    return True


def listed(agents: Sequence[Hashable]) -> str:
    """Write the names of a few agents."""
    word = "agent" if len(agents) == 1 else "agents"
    return f"{word} {errors.listed([repr(agent) for agent in agents])}"


# ---------------------------------------------------------------------- reading what was given


def network_of(graph: Any, weights: Weights = None) -> Network:
    """Return the network of a NetworkX graph or a weight matrix."""
    if isinstance(graph, Network):
        return graph
    if is_graph(graph):
        return _from_networkx(graph, weights)
    matrix = square_matrix(graph, "the weight matrix")
    if not (weights is None or isinstance(weights, str)):
        raise AffineDPError(
            "a weight matrix has its weights already; give weights='metropolis' or 'uniform' to "
            "use only its links"
        )
    agents = checked_names(None, matrix.shape[0])
    entries = matrix.tocoo()
    _check_weights(entries.row, entries.col, entries.data, agents)
    _check_symmetry(matrix, agents)
    upper = (entries.row < entries.col) & (entries.data > 0)
    given = entries.data[upper] if weights is None else weights
    return _assemble(entries.row[upper], entries.col[upper], given, agents)


def network_from_edges(
    n: int,
    sources: ArrayLike,
    targets: ArrayLike,
    weights: Weights = None,
    names: Sequence[Hashable] | None = None,
) -> Network:
    """Return the network of a list of links."""
    agents = checked_names(names, n)
    first, second = _ends(sources, "sources", len(agents)), _ends(targets, "targets", len(agents))
    if len(first) != len(second):
        raise AffineDPError(f"{len(first)} sources but {len(second)} targets")
    if not (weights is None or isinstance(weights, str) or dimensions(weights, "weights") == 0):
        weights = real_array(weights, "weights", 1)
        if weights.shape != first.shape:
            raise AffineDPError(f"{len(weights)} weights for {len(first)} links")
    return _assemble(first, second, weights, agents)


def is_graph(given: object) -> bool:
    """Whether something is a NetworkX graph, which need not be installed."""
    return hasattr(given, "is_directed") and hasattr(given, "edges")


def square_matrix(given: Any, what: str) -> Any:
    """Return a square matrix of numbers as a sparse one."""
    import scipy.sparse as sparse

    matrix = sparse.csr_array(real_matrix(given, what))
    if matrix.shape[0] != matrix.shape[1]:
        raise AffineDPError(f"{what} must be square, not {matrix.shape}")
    return matrix


def checked_names(names: Any, n: int) -> Sequence[Hashable]:
    """Return the names of n agents, at least two; numbers from 0 on as a range."""
    count = whole_number(n, "to average something, the number of agents", 2)
    if names is None:
        return range(count)
    kept = tuple(names) if isinstance(names, Iterable) else ()
    bad = [name for name in kept if not is_name(name)]
    if bad:
        raise AffineDPError(
            f"{bad[0]!r} cannot be the name of an agent: names are texts, numbers or tuples of "
            "them, so that they can be looked up"
        )
    if len(kept) != count or len(set(kept)) != count:
        raise AffineDPError(f"names must be {count} different names, one for each agent")
    return range(count) if kept == tuple(range(count)) else kept


def _ends(given: ArrayLike, what: str, n: int) -> Ends:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise AffineDPError(f"{what} must be a vector of whole numbers")
    bad = array[(array < 0) | (array >= n)]
    if len(bad):
        raise AffineDPError(f"{what} names agent {bad[0]}, but agents go from 0 to {n - 1}")
    return array.astype(np.int32 if n < 2**31 else np.int64)


def _from_networkx(graph: Any, weights: Weights) -> Network:
    if graph.is_directed():
        raise AffineDPError(
            "a directed graph does not keep the average: Σ_i Σ_j w_ij (y_j − y_i) is zero only if "
            "w_ij = w_ji. If every link works both ways, give graph.to_undirected(); for "
            "one-way links there is PrivatePushSum"
        )
    names = checked_names(graph.nodes, len(graph))
    place = {name: i for i, name in enumerate(names)}
    links = list(graph.edges(data="weight"))
    ends = np.array([(place[a], place[b]) for a, b, _ in links], dtype=np.int32).reshape(-1, 2)
    if weights is None and any(weight is not None for _, _, weight in links):
        for a, b, weight in links:
            if not is_number(weight):
                raise AffineDPError(
                    f"the weight of the link {a!r} – {b!r} is no number: {weight!r}. Give every "
                    "link one, or weights='metropolis' for all"
                )
        weights = np.array([float(weight) for _, _, weight in links])
    elif not (weights is None or isinstance(weights, str) or dimensions(weights, "weights") == 0):
        raise AffineDPError("weights of single links belong on the graph, as attribute 'weight'")
    return _assemble(ends[:, 0], ends[:, 1], weights, names)


def _check_symmetry(matrix: Matrix, names: Sequence[Hashable]) -> None:
    """Refuse two directions of a link whose weights differ by more than rounding.

    Each link by itself: beside heavy links a light one that goes one way only is no rounding.
    """
    import scipy.sparse as sparse

    off = sparse.coo_array(matrix - matrix.T)
    rows, columns = off.coords
    if not off.nnz:
        return
    larger = sparse.csr_array(matrix.maximum(matrix.T))
    apart = np.abs(off.data) / np.asarray(larger[rows, columns]).ravel()
    worst = int(np.argmax(apart))
    if apart[worst] > SAME_WEIGHT:
        i, j = int(rows[worst]), int(columns[worst])
        raise AffineDPError(
            f"the weights are not symmetric: {names[i]!r} hears {names[j]!r} with the weight "
            f"{float(matrix[i, j]):.6g}, and is heard with {float(matrix[j, i]):.6g}. They differ "
            f"by {abs(float(off.data[worst])):.3g}, and then the average is not kept. Links must "
            "work both ways with one weight"
        )


def _check_weights(
    sources: Ends, targets: Ends, values: FloatArray, names: Sequence[Hashable]
) -> None:
    """Refuse weights that are not finite or negative, naming the agents."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        a, b = names[int(sources[bad[0]])], names[int(targets[bad[0]])]
        raise AffineDPError(
            f"the weight between {a!r} and {b!r} is {float(values[bad[0]]):g}: weights must be "
            "finite and not negative (of a Laplacian, give the weights, not the matrix)"
        )


def _assemble(sources: Ends, targets: Ends, weights: Weights, names: Sequence[Hashable]) -> Network:
    """P from links, each given once."""
    import scipy.sparse as sparse

    n, notes = len(names), []
    weighted = isinstance(weights, np.ndarray) and weights.ndim == 1

    def keep(which: NDArray[np.bool_]) -> None:
        nonlocal sources, targets, weights
        sources, targets = sources[which], targets[which]
        weights = weights[which] if weighted else weights  # type: ignore[index]

    if weighted:
        _check_weights(sources, targets, weights, names)  # type: ignore[arg-type]
        keep(np.asarray(weights) > 0)
    loops = sources == targets
    if loops.any():
        agents = [names[int(i)] for i in np.unique(sources[loops])]
        notes.append(f"a link of {listed(agents)} with itself changes nothing and is left out")
        keep(~loops)
    repeated = _repeated(sources, targets, n)
    if repeated.any():
        i, j = (names[int(ends[repeated][0])] for ends in (sources, targets))
        if weighted:
            raise AffineDPError(
                f"the link {i!r} – {j!r} is given more than once, with a weight each: give every "
                "link once, in one direction"
            )
        notes.append(f"{int(repeated.sum())} links are given again and count once")
        keep(~repeated)
    values = _link_weights(sources, targets, weights, n)
    with np.errstate(over="ignore"):  # such weights diverge, and are refused for that
        sums = np.asarray(np.bincount(sources, values, n) + np.bincount(targets, values, n), float)
    everyone = np.arange(n, dtype=sources.dtype)
    rows = np.concatenate([sources, targets, everyone])
    columns = np.concatenate([targets, sources, everyone])
    entries = np.concatenate([values, values, 1.0 - sums])
    P = sparse.csr_array((entries, (rows, columns)), shape=(n, n))
    P.sort_indices()
    return Network(locked(P), names, locked(sums), tuple(notes))


def _repeated(sources: Ends, targets: Ends, n: int) -> NDArray[np.bool_]:
    """Which links were given before, in either direction."""
    link = np.minimum(sources, targets).astype(np.int64) * n + np.maximum(sources, targets)
    ordered = np.sort(link)  # much faster than np.unique, which is seldom needed
    if not np.any(ordered[1:] == ordered[:-1]):
        return np.zeros(len(link), dtype=np.bool_)
    again = np.ones(len(link), dtype=np.bool_)
    again[np.unique(link, return_index=True)[1]] = False
    return again


def _link_weights(sources: Ends, targets: Ends, weights: Weights, n: int) -> FloatArray:
    """The weight of every link; Metropolis and uniform weights satisfy Σ_j w_ij < 1."""
    if isinstance(weights, np.ndarray) and weights.ndim == 1:
        return weights
    degrees = np.bincount(sources, minlength=n) + np.bincount(targets, minlength=n)
    if weights is None or (isinstance(weights, str) and weights == "metropolis"):
        return np.asarray(1.0 / (1.0 + np.maximum(degrees[sources], degrees[targets])))
    if isinstance(weights, str) and weights == "uniform":
        return np.full(len(sources), 1.0 / (1.0 + degrees.max(initial=0)))
    if isinstance(weights, str):
        raise AffineDPError(f"weights must be 'metropolis', 'uniform' or numbers, not {weights!r}")
    return np.full(len(sources), real_number(weights, "weights", positive=True))
