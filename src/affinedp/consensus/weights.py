"""Reading a network: NetworkX graphs, weight matrices, lists of links; Metropolis weights.

A link of an agent with itself changes nothing, since w_ii (y_i − y_i) = 0, and is left out.  So a
doubly stochastic matrix and the weights off its diagonal are the same network.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.consensus.network import Network, NetworkError, is_name, listed
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array

# "metropolis", "uniform", one weight for all links, or one for each link.
Weights: TypeAlias = "str | float | ArrayLike | None"
# Positions of agents; 32 bits where they suffice, which makes a step faster.
Ends: TypeAlias = NDArray[Any]

# Weights that differ by less than this share between the two directions are rounding.
SAME_WEIGHT = 1e-12


def network_of(
    graph: Any, weights: Weights = None, names: Sequence[Hashable] | None = None
) -> Network:
    """Return the network of a NetworkX graph or a weight matrix."""
    if hasattr(graph, "is_directed") and hasattr(graph, "edges"):
        if names is not None:
            raise AffineDPError("the nodes of the graph are the agents: leave names out")
        return _from_networkx(graph, weights)
    if isinstance(graph, Network):
        return graph
    return _from_matrix(graph, weights, names)


def network_from_edges(
    n: int,
    sources: ArrayLike,
    targets: ArrayLike,
    weights: Weights = None,
    names: Sequence[Hashable] | None = None,
) -> Network:
    """Return the network of a list of links.

    >>> network_from_edges(3, [0, 1], [1, 2], weights="uniform").weight_sums.round(3).tolist()
    [0.333, 0.667, 0.333]
    """
    count = _count(n)
    ends = [_ends(sources, "sources", count), _ends(targets, "targets", count)]
    if len(ends[0]) != len(ends[1]):
        raise AffineDPError(f"{len(ends[0])} sources but {len(ends[1])} targets")
    given = weights
    if not (weights is None or isinstance(weights, str) or np.ndim(weights) == 0):
        given = real_array(weights, "weights", 1)
        if given.shape != ends[0].shape:
            raise AffineDPError(f"{len(given)} weights for {len(ends[0])} links")
    return _assemble(ends[0], ends[1], given, _checked_names(names, count))


# ---------------------------------------------------------------------- reading what was given


def _count(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise AffineDPError(f"the number of agents must be a whole number, not {n!r}")
    if n < 2:
        raise NetworkError(f"{n} agent(s) have nothing to average: a network needs at least two")
    return int(n)


def _ends(given: ArrayLike, what: str, n: int) -> Ends:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise AffineDPError(f"{what} must be a vector of whole numbers")
    if array.size and not (array.min() >= 0 and array.max() < n):
        bad = array[(array < 0) | (array >= n)][0]
        raise AffineDPError(f"{what} names agent {bad}, but agents go from 0 to {n - 1}")
    return array.astype(np.int32 if n < 2**31 else np.int64)


def _checked_names(names: Sequence[Hashable] | None, n: int) -> Sequence[Hashable]:
    if names is None:
        return range(n)
    kept = tuple(names) if isinstance(names, Iterable) else ()
    bad = [name for name in kept if not is_name(name)]
    if bad:
        raise AffineDPError(
            f"{bad[0]!r} cannot be the name of an agent: names are texts, numbers or tuples of "
            "them, so that they can be looked up"
        )
    if len(kept) != n or len(set(kept)) != n:
        raise AffineDPError(f"names must be {n} different names, one for each agent")
    return kept


def _from_networkx(graph: Any, weights: Weights) -> Network:
    if graph.is_directed():
        raise NetworkError(
            "a directed graph does not keep the average: Σ_i Σ_j w_ij (y_j − y_i) is zero only if "
            "w_ij = w_ji. If every link works both ways, give graph.to_undirected(); for "
            "one-way links there is PrivatePushSum"
        )
    names = tuple(graph.nodes)
    n = _count(len(names))
    place = {name: i for i, name in enumerate(names)}
    links = list(graph.edges(data="weight"))
    sources = np.array([place[a] for a, _, _ in links], dtype=np.int32)
    targets = np.array([place[b] for _, b, _ in links], dtype=np.int32)
    if weights is None and any(weight is not None for _, _, weight in links):
        weights = np.array([_weight(a, b, weight) for a, b, weight in links])
    elif not (weights is None or isinstance(weights, str) or np.ndim(weights) == 0):
        raise AffineDPError("weights of single links belong on the graph, as attribute 'weight'")
    return _assemble(sources, targets, weights, range(n) if names == tuple(range(n)) else names)


def _weight(a: Hashable, b: Hashable, weight: Any) -> float:
    """The weight of one link, or a refusal that names it."""
    if isinstance(weight, numbers.Real) and not isinstance(weight, bool):
        return float(weight)
    if weight is None:
        raise NetworkError(
            f"the link {a!r} – {b!r} has no weight, though others have: give every link one, or "
            "weights='metropolis' for all",
            (a, b),
        )
    raise NetworkError(f"the weight of the link {a!r} – {b!r} is no number: {weight!r}", (a, b))


def _from_matrix(given: Any, weights: Weights, names: Sequence[Hashable] | None) -> Network:
    import scipy.sparse as sparse

    if not is_sparse(given):
        given = real_array(given, "the weight matrix", 2)
    elif given.dtype.kind not in "iuf":
        raise AffineDPError(f"the weight matrix must hold real numbers, not {given.dtype}")
    matrix = sparse.coo_array(sparse.csr_array(given, dtype=np.float64))
    if matrix.shape[0] != matrix.shape[1]:
        raise AffineDPError(f"the weight matrix must be square, not {matrix.shape}")
    agents = _checked_names(names, _count(matrix.shape[0]))
    rows, columns, values = matrix.row, matrix.col, matrix.data
    _check_weights(rows, columns, values, agents)
    _check_symmetry(sparse.csr_array(matrix), agents)
    if weights is None or isinstance(weights, str):
        upper = (rows < columns) & (values > 0)
        if isinstance(weights, str):
            return _assemble(rows[upper], columns[upper], weights, agents)
        return _assemble(rows[upper], columns[upper], values[upper], agents)
    raise AffineDPError(
        "a weight matrix has its weights already; give weights='metropolis' or 'uniform' to use "
        "only its links"
    )


def _check_symmetry(matrix: Matrix, names: Sequence[Hashable]) -> None:
    """Refuse two directions of a link whose weights differ by more than rounding.

    Each link by itself: beside heavy links a light one that goes one way only is no rounding.
    """
    import scipy.sparse as sparse

    off = sparse.coo_array(matrix - matrix.T)
    larger = sparse.csr_array(matrix.maximum(matrix.T))
    rows, columns = off.coords
    if not off.nnz:
        return
    apart = np.abs(off.data) / np.asarray(larger[rows, columns]).ravel()
    worst = int(np.argmax(apart))
    if not apart[worst] > SAME_WEIGHT:
        return
    i, j = int(rows[worst]), int(columns[worst])
    raise NetworkError(
        f"the weights are not symmetric: {names[i]!r} hears {names[j]!r} with the weight "
        f"{float(matrix[i, j]):.6g}, and is heard with {float(matrix[j, i]):.6g}. They differ by "
        f"{abs(float(off.data[worst])):.3g}, and then the average is not kept. Links must work "
        "both ways with one weight",
        (names[i], names[j]),
    )


def _check_weights(
    sources: Ends, targets: Ends, values: FloatArray, names: Sequence[Hashable]
) -> None:
    """Refuse weights that are not finite or negative, naming the agents."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if not len(bad):
        return
    a, b = names[int(sources[bad[0]])], names[int(targets[bad[0]])]
    value = float(values[bad[0]])
    hint = "weights must be finite"
    if math.isfinite(value):
        hint = "weights must not be negative (of a Laplacian, give the weights, not the matrix)"
    raise NetworkError(f"the weight between {a!r} and {b!r} is {value:g}: {hint}", (a, b))


# ---------------------------------------------------------------------- putting it together


def _assemble(sources: Ends, targets: Ends, weights: Weights, names: Sequence[Hashable]) -> Network:
    """P from links, each given once."""
    import scipy.sparse as sparse

    n = len(names)
    notes = []
    if isinstance(weights, np.ndarray):
        _check_weights(sources, targets, weights, names)
        sources, targets, weights = (part[weights > 0] for part in (sources, targets, weights))
    loops = sources == targets
    if loops.any():
        agents = [names[int(i)] for i in np.unique(sources[loops])]
        notes.append(f"a link of {listed(agents)} with itself changes nothing and is left out")
        sources, targets, weights = _kept(~loops, sources, targets, weights)
    repeated = _repeated(sources, targets, n)
    if repeated is not None:
        i, j = (names[int(ends[repeated][0])] for ends in (sources, targets))
        if isinstance(weights, np.ndarray):
            raise NetworkError(
                f"the link {i!r} – {j!r} is given more than once, with a weight each: give every "
                "link once, in one direction",
                (i, j),
            )
        notes.append(f"{int(repeated.sum())} links are given again and count once")
        sources, targets, weights = _kept(~repeated, sources, targets, weights)
    values = _link_weights(sources, targets, weights, n)
    sums = np.asarray(np.bincount(sources, values, n) + np.bincount(targets, values, n), float)
    everyone = np.arange(n, dtype=sources.dtype)
    rows = np.concatenate([sources, targets, everyone])
    columns = np.concatenate([targets, sources, everyone])
    entries = np.concatenate([values, values, 1.0 - sums])
    P = sparse.csr_array((entries, (rows, columns)), shape=(n, n))
    P.sort_indices()
    for array in (P.data, P.indices, P.indptr, sums):
        array.flags.writeable = False
    return Network(P, names, sums, tuple(notes))


def _kept(
    which: NDArray[np.bool_], sources: Ends, targets: Ends, weights: Weights
) -> tuple[Ends, Ends, Weights]:
    kept = weights[which] if isinstance(weights, np.ndarray) else weights
    return sources[which], targets[which], kept


def _repeated(sources: Ends, targets: Ends, n: int) -> NDArray[np.bool_] | None:
    """Which links were given before, in either direction; None if no link was."""
    link = np.minimum(sources, targets).astype(np.int64) * n + np.maximum(sources, targets)
    ordered = np.sort(link)  # much faster than np.unique, which is needed only for names
    if not np.any(ordered[1:] == ordered[:-1]):
        return None
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
    value = float(real_array(weights, "weights", 0))
    if value <= 0:
        raise AffineDPError(f"weights must be positive, not {value:g}")
    return np.full(len(sources), value)
