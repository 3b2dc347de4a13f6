"""The network: agents, their names, and the matrix of one consensus step.

Sign convention: the Laplacian L is positive semidefinite (the paper writes −L), and one step of
plain consensus multiplies by P = I − L.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp import errors
from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array


class NetworkError(AffineDPError):
    """A network on which average consensus does not work.

    Attributes
    ----------
    agents : tuple
        The agents that are to blame, by their names.
    """

    def __init__(self, message: str, agents: Sequence[Hashable] = ()) -> None:
        self.agents = tuple(agents)
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class Network:
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

    @cached_property
    def _places(self) -> Mapping[Hashable, int]:
        return {name: place for place, name in enumerate(self.names)}

    def position(self, agent: Hashable) -> int:
        """Return the row of an agent, by its name."""
        if isinstance(self.names, range):
            if isinstance(agent, numbers.Integral) and not isinstance(agent, bool):
                place = int(agent)
                if 0 <= place < self.n:
                    return place
        elif is_name(agent) and agent in self._places:
            return self._places[agent]
        raise AffineDPError(f"there is no agent {agent!r}; there are {listed(self.names)}")

    def values(self, given: float | ArrayLike | Mapping[Any, float], what: str) -> FloatArray:
        """Return one number per agent from one number, an array in their order, or a mapping."""
        if isinstance(given, Mapping):
            places = [self.position(agent) for agent in given]
            missing = np.setdiff1d(np.arange(self.n), places)
            if len(missing):
                agents = [self.names[int(i)] for i in missing]
                raise NetworkError(f"{what} is missing for {listed(agents)}", agents)
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
        if count == 1:
            return
        sizes = np.bincount(label)
        alone = [self.names[int(i)] for i in np.flatnonzero(sizes[label] == 1)]
        if alone:
            raise NetworkError(
                f"{listed(alone)} {'has' if len(alone) == 1 else 'have'} no link to another "
                "agent, so there is no way to the average of all: add a link or leave it out",
                alone,
            )
        smallest = [self.names[int(i)] for i in np.flatnonzero(label == np.argmin(sizes))]
        raise NetworkError(
            f"the network falls into {count} parts that never hear of each other, one of them "
            f"{listed(smallest)}: add a link or run each part by itself",
            smallest,
        )


def whole(value: Any, what: str, least: int) -> int:
    """Return a whole number that is not too small, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise AffineDPError(f"{what} must be a whole number, at least {least}, not {value!r}")
    return int(value)


def is_name(name: object) -> bool:
    """Whether something can be the name of an agent: a tuple of lists looks hashable and is not.

    >>> is_name(("a", 1)), is_name(("a", [1]))
    (True, False)
    """
    try:
        hash(name)
    except TypeError:
        return False
    return True


def listed(agents: Sequence[Hashable]) -> str:
    """Write the names of a few agents."""
    word = "agent" if len(agents) == 1 else "agents"
    return f"{word} {errors.listed([repr(agent) for agent in agents])}"
