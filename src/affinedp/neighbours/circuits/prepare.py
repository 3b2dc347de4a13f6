"""The searches for circuits of one component: what each prepares and how it is advanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Norm
from affinedp.compiling import STEPS_PER_CALL, Compiled
from affinedp.domains.component import Component, Network
from affinedp.exact.canonical import EPS
from affinedp.exact.modular import inverses
from affinedp.neighbours.circuits.compiled import (
    ACCURATE,
    column_side,
    cycles,
    kernel_side,
    probe_cycles,
)
from affinedp.neighbours.circuits.zeros import first_shadow, prime_words

Marks = NDArray[np.bool_]
# Steps that are tried when no good estimate says that the search is short.
TRIAL_STEPS = 4_000_000


class Search(Protocol):
    """A resumable search over the circuits of one component."""

    method: str
    width: int

    def steps(self) -> float:
        """Upper bound or estimate of the number of steps; inf when unknown."""

    def advance(self, norm: Norm, records: Records) -> bool:
        """Run for a while; True when finished."""

    def expand(self, values: FloatArray) -> FloatArray:
        """Circuits in local entries from the search's own coordinates."""

    def entries(self, marks: Marks) -> Marks:
        """Which local entries circuits are made of, from the search's own coordinates."""


@dataclass
class Records:
    """What a search has found so far."""

    counters: IntArray
    top_scores: FloatArray
    top_values: FloatArray
    left_out: FloatArray
    buffer: FloatArray
    suspects: Marks

    @classmethod
    def empty(cls, width: int, leading: int, buffered: int, suspects: int) -> Records:
        """Fresh records for circuits of ``width`` values."""
        return cls(
            np.zeros(6, dtype=np.int64),
            np.full(leading, -np.inf),
            np.zeros((leading, width)),
            np.full(1, -np.inf),
            np.zeros((buffered, width)),
            np.zeros((suspects, width), dtype=np.bool_),
        )

    def take_suspects(self) -> Marks:
        """Return the circuits whose values are not to be trusted, and forget them."""
        found = self.suspects[: self.counters[5]].copy()
        self.counters[5] = 0
        return found


def orthonormal(basis: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the same space."""
    return np.asarray(np.linalg.qr(basis)[0])


@dataclass(frozen=True)
class Folded:
    """Rows of a kernel with parallel ones merged.

    Entry i of ``basis @ ξ`` is ``factor[i] · (unit[group[i]] @ ξ)``.
    """

    unit: FloatArray  # one unit row for each group; shape (groups, k)
    factor: FloatArray  # length and sign of each entry's row; shape (entries,)
    group: IntArray  # the group of each entry; shape (entries,)
    leaders: IntArray  # the entry that stands for the group; shape (groups,)


def fold_parallel(component: Component, basis: FloatArray) -> Folded:
    """Merge the rows of the kernel that are parallel, which is decided modulo primes."""
    keys: list[list[bytes]] = [[] for _ in component.entries]
    for prime, kernel in component.modular_kernel():
        first = (kernel != 0).argmax(axis=1)
        lead = kernel[np.arange(len(kernel)), first]
        scaled = kernel * inverses(lead, prime)[:, None] % prime
        for key, row in zip(keys, scaled):
            key.append(row.tobytes())
    groups: dict[tuple[bytes, ...], int] = {}
    group = np.array([groups.setdefault(tuple(key), len(groups)) for key in keys], dtype=np.intp)
    leaders = np.unique(group, return_index=True)[1]
    length = np.linalg.norm(basis, axis=1)
    unit = basis / np.where(length > 0, length, 1.0)[:, None]
    sign = np.sign(np.einsum("ij,ij->i", unit, unit[leaders[group]]))
    factor = np.where(length > 0, length, EPS) * np.where(sign == 0, 1.0, sign)
    return Folded(unit[leaders], factor, group, leaders)


class SingleCircuit:
    """No equation (the entry alone) or one degree of freedom: exactly one circuit."""

    method = "one circuit"

    def __init__(self, component: Component) -> None:
        self.width = len(component.entries)
        self._circuit = component.kernel()[:, 0]
        size = np.abs(self._circuit * component.entry_units())
        exact = component.error <= EPS
        self._trusted = exact or 8 * component.error * size.max() <= ACCURATE * size.min()

    def steps(self) -> float:
        return 1.0

    def advance(self, norm: Norm, records: Records) -> bool:
        records.counters[:2] += 1
        if not self._trusted:
            records.counters[5] += len(records.suspects[:1])
            records.suspects[:1] = True
            return True
        records.counters[2] += 1
        records.top_scores[-1] = 1.0
        records.top_values[-1] = self._circuit
        if len(records.buffer):
            records.buffer[0] = self._circuit
        return True

    def expand(self, values: FloatArray) -> FloatArray:
        return values

    def entries(self, marks: Marks) -> Marks:
        return marks


class KernelSide:
    """Flats of the kernel's rows, parallel rows merged."""

    method = "kernel side"

    def __init__(
        self,
        component: Component,
        basis: FloatArray,
        balance: FloatArray,
        folded: Folded,
        matrix: FloatArray,
        reach: FloatArray,
        steps: float,
    ) -> None:
        # ``basis`` is that of the entries multiplied by ``balance``
        unit, self._group = folded.unit, folded.group
        self._factor = folded.factor / balance
        k = unit.shape[1]
        self.width = len(unit)
        self._steps = steps
        image = _compressed((matrix / balance) @ basis)
        self._stack = np.zeros((k, len(unit) + len(image), k))
        self._stack[0] = np.vstack([unit, image])
        kernels = component.modular_kernel()
        self._primes = prime_words([prime for prime, _ in kernels])
        self._shadow = first_shadow(k, [kernel[folded.leaders].T for _, kernel in kernels])
        self._live = np.ones((k, len(kernels)), dtype=np.bool_)
        self._slack = np.full(k, _first_slack(component, folded.factor))
        self._active = np.zeros((k, len(unit)), dtype=np.bool_)
        self._active[0] = True
        self._position = np.zeros(k, dtype=np.int64)
        # the member that may move farthest speaks for its group
        self._reach = np.zeros(len(unit))
        np.maximum.at(self._reach, self._group, reach / np.abs(self._factor))

    def steps(self) -> float:
        return self._steps * 2

    def advance(self, norm: Norm, records: Records) -> bool:
        state = (
            self._stack,
            self._shadow,
            self._primes,
            self._live,
            self._slack,
            self._active,
            self._position,
            self.width,
            self._reach,
        )
        numbers = self._shadow[0].size + self._stack[0].size
        return _advanced(kernel_side, state, numbers, norm, records, records.suspects)

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values[:, self._group] * self._factor)

    def entries(self, marks: Marks) -> Marks:
        return np.asarray(marks[:, self._group])


class ColumnSide:
    """Independent sets of the equations' columns, scaled to unit length."""

    method = "column side"

    def __init__(
        self, component: Component, matrix: FloatArray, reach: FloatArray, steps: float
    ) -> None:
        q, n = component.rank, len(component.entries)
        rows = np.zeros((q, n))
        rows[:, component.pivots] = np.eye(q)
        rows[:, component.free] = component.reduced.toarray()
        # columns of similar size first, so that the units of the entries do not matter
        balance = component.entry_units()
        rows = np.linalg.qr((rows / balance).T)[0].T
        length = np.linalg.norm(rows, axis=0)
        self._length = length * balance
        self.width = n
        self._steps = steps
        self._tableau = np.zeros((q + 1, q, n))
        self._tableau[0] = rows / length
        equations = component.modular_equations()
        self._primes = prime_words([prime for prime, _ in equations])
        self._shadow = first_shadow(q + 1, [modular.T for _, modular in equations])
        self._live = np.ones((q + 1, len(equations)), dtype=np.bool_)
        self._shadow_used = np.zeros((q + 1, len(equations), q), dtype=np.bool_)
        self._shadow_pivot = np.zeros((q + 1, len(equations)), dtype=np.uint32)
        self._slack = np.full(q + 1, _first_slack(component, length))
        self._image = np.ascontiguousarray(matrix / self._length)
        self._chosen = np.zeros(q + 1, dtype=np.int64)
        self._pivot_row = np.zeros(q + 1, dtype=np.int64)
        self._used = np.zeros((q + 1, q), dtype=np.bool_)
        self._position = np.zeros(q + 2, dtype=np.int64)
        self._reach = reach * self._length

    def steps(self) -> float:
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        state = (
            self._tableau,
            self._shadow,
            self._primes,
            self._live,
            self._shadow_used,
            self._shadow_pivot,
            self._slack,
            self._image,
            self._chosen,
            self._pivot_row,
            self._used,
            self._position,
            self._reach,
        )
        numbers = self._shadow[0].size + self._tableau[0].size
        return _advanced(column_side, state, numbers, norm, records, records.suspects)

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self._length)

    def entries(self, marks: Marks) -> Marks:
        return marks


class Cycles:
    """Simple cycles of the graph behind network equations."""

    method = "cycles of the network"

    def __init__(
        self, component: Component, network: Network, matrix: FloatArray, reach: FloatArray
    ) -> None:
        n = len(component.entries)
        self.width = n
        self._coefficient = network.coefficient
        ends = np.concatenate([network.tail, network.head])
        order = np.argsort(ends, kind="stable")
        self._first_arc = np.searchsorted(ends[order], np.arange(network.nodes + 1))
        self._arc_head = np.concatenate([network.head, network.tail])[order]
        self._arc_edge = np.concatenate([np.arange(n), np.arange(n)])[order]
        # along the edge from its tail the balance is +, against it −
        self._arc_sign = np.repeat([1.0, -1.0], n)[order]
        self._image = np.ascontiguousarray(matrix / self._coefficient)
        self._reach = reach * np.abs(self._coefficient)
        nodes = network.nodes
        self._path_node = np.zeros(nodes + 1, dtype=np.int64)
        self._path_arc = np.zeros(nodes + 1, dtype=np.int64)
        self._images = np.zeros((nodes + 1, len(matrix)))
        self._on_path = np.zeros(nodes, dtype=np.bool_)
        self._mark = np.zeros(nodes, dtype=np.int64)
        self._root_and_stamp = np.zeros(2, dtype=np.int64)
        self._started = False
        self._steps: float | None = None

    def steps(self) -> float:
        if self._steps is None:
            nodes = len(self._mark)
            # a cycle is a sum of those that one edge outside a tree closes: there are no more
            most = 2.0 ** min(1000, self.width - nodes + 1)
            if most * 2 * nodes > TRIAL_STEPS:
                most = float(probe_cycles.fast(self._first_arc, self._arc_head, 4000, 1))
            # found to be a few steps per node of each cycle
            self._steps = max(TRIAL_STEPS, most * 2 * nodes)
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        if not self._started:
            records.counters[3] = -1
            self._started = True
        state = (
            self._first_arc,
            self._arc_head,
            self._arc_edge,
            self._arc_sign,
            self._image,
            self._path_node,
            self._path_arc,
            self._images,
            self._on_path,
            self._mark,
            self._root_and_stamp,
            self._reach,
        )
        numbers = len(self._arc_head) + len(self._image)
        return _advanced(cycles, state, numbers, norm, records)

    def expand(self, values: FloatArray) -> FloatArray:
        return values / self._coefficient

    def entries(self, marks: Marks) -> Marks:
        return marks


def _advanced(
    search: Compiled,
    state: tuple[Any, ...],
    numbers: int,
    norm: Norm,
    records: Records,
    *more: Marks,
) -> bool:
    """Run a search for a while, in Python as long as that is quicker than to compile it."""
    found = (records.counters, records.top_scores, records.top_values, records.left_out)
    steps = search.steps_in_python(numbers)
    if not steps:
        return bool(search.fast(*state, norm, STEPS_PER_CALL, *found, records.buffer, *more))
    before = int(records.counters[0])
    with np.errstate(all="ignore"):  # residues wrap around, and what overflows is refused later
        finished = bool(search(*state, norm, steps, *found, records.buffer, *more))
    search.worked(numbers * (int(records.counters[0]) - before))
    return finished


def _first_slack(component: Component, lengths: FloatArray) -> float:
    """About how much unit rows are off that had these lengths before."""
    shortest = float(np.abs(lengths).min(initial=1.0))
    return 8 * max(EPS, component.error) / shortest if shortest > 0 else np.inf


def _compressed(matrix: FloatArray) -> FloatArray:
    """Drop zero rows: they change no norm."""
    return np.asarray(matrix[np.any(matrix != 0.0, axis=1)])
