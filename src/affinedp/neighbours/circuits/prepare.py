"""The searches for circuits of one component: what each prepares and how it is advanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Norm
from affinedp.equations.component import Component
from affinedp.equations.incidence import Network
from affinedp.errors import DoubtfulZeroError

# Below TOLERANCE (rows and columns have unit length) a value counts as zero.  Rounding leaves
# true zeros below DOUBTFUL; a value between the two may be a tiny coefficient, and is refused.
TOLERANCE = 1e-9
DOUBTFUL = 1e-12
STEPS_PER_CALL = 500_000
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


@dataclass
class Records:
    """What a search has found so far."""

    counters: IntArray
    extremes: FloatArray
    top_scores: FloatArray
    top_values: FloatArray
    left_out: FloatArray
    buffer: FloatArray

    @classmethod
    def empty(cls, width: int, leading: int, buffered: int) -> Records:
        """Fresh records for circuits of ``width`` values."""
        return cls(
            np.zeros(4, dtype=np.int64),
            np.array([0.0, np.inf]),
            np.full(leading, -np.inf),
            np.zeros((leading, width)),
            np.full(1, -np.inf),
            np.zeros((buffered, width)),
        )


def doubtful(size: float) -> DoubtfulZeroError:
    """A refusal that says how small the doubtful coefficient is."""
    return DoubtfulZeroError(
        "some coefficients of the neighbour directions cannot be told from zero (one of relative "
        f"size {size:.1e} was met). The promise would rest on rounding errors. Rescale the "
        "entries, or protect them with FreeSetAdjacency or DirectionAdjacency",
        size,
    )


def orthonormal(basis: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the same space."""
    return np.asarray(np.linalg.qr(basis)[0])


def parallel_rows(basis: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Merge parallel rows: unit rows, each entry's factor, each entry's group.

    Entry i of ``basis @ ξ`` is ``factor[i] · (unit[group[i]] @ ξ)``.
    """
    length = np.linalg.norm(basis, axis=1)
    unit = basis / length[:, None]
    close = np.abs(unit @ unit.T) > 1 - 1e-6
    group = np.full(len(basis), -1)
    factor = length.copy()
    leaders: list[int] = []
    for i in range(len(basis)):
        if group[i] >= 0:
            continue
        for j in np.flatnonzero(close[i] & (group < 0)):
            sign = 1.0 if unit[i] @ unit[j] > 0 else -1.0
            apart = float(np.linalg.norm(unit[j] - sign * unit[i]))
            if DOUBTFUL < apart <= TOLERANCE:
                raise doubtful(apart)
            if apart <= DOUBTFUL:
                group[j] = len(leaders)
                factor[j] = sign * length[j]
        leaders.append(i)
    return unit[leaders], factor, group


class SingleCircuit:
    """No equation (the entry alone) or one degree of freedom: exactly one circuit."""

    method = "one circuit"

    def __init__(self, component: Component) -> None:
        self.width = len(component.entries)
        self._circuit = component.kernel()[:, 0]

    def steps(self) -> float:
        return 1.0

    def advance(self, norm: Norm, records: Records) -> bool:
        records.counters[:3] += 1
        records.top_scores[-1] = 1.0
        records.top_values[-1] = self._circuit
        if len(records.buffer):
            records.buffer[0] = self._circuit
        return True

    def expand(self, values: FloatArray) -> FloatArray:
        return values


class KernelSide:
    """Flats of the kernel's rows, parallel rows merged."""

    method = "kernel side"

    def __init__(
        self,
        basis: FloatArray,
        balance: FloatArray,
        folded: tuple[FloatArray, FloatArray, IntArray],
        matrix: FloatArray,
        reach: FloatArray,
        steps: float,
    ) -> None:
        # ``basis`` is that of the entries multiplied by ``balance``
        unit, factor, self._group = folded
        self._factor = factor / balance
        k = unit.shape[1]
        self.width = len(unit)
        self._steps = steps
        image = _compressed((matrix / balance) @ basis)
        self._stack = np.zeros((k, len(unit) + len(image), k))
        self._stack[0] = np.vstack([unit, image])
        self._active = np.zeros((k, len(unit)), dtype=np.bool_)
        self._active[0] = True
        self._position = np.zeros(k, dtype=np.int64)
        # the member that may move farthest speaks for its group
        self._reach = np.zeros(len(unit))
        np.maximum.at(self._reach, self._group, reach / np.abs(self._factor))

    def steps(self) -> float:
        return self._steps * 2

    def advance(self, norm: Norm, records: Records) -> bool:
        from affinedp.neighbours.circuits.compiled import kernel_side

        return bool(
            kernel_side(
                self._stack,
                self._active,
                self._position,
                self.width,
                TOLERANCE,
                self._reach,
                norm,
                STEPS_PER_CALL,
                records.counters,
                records.extremes,
                records.top_scores,
                records.top_values,
                records.left_out,
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values[:, self._group] * self._factor)


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
        self._image = np.ascontiguousarray(matrix / self._length)
        self._chosen = np.zeros(q + 1, dtype=np.int64)
        self._pivot_row = np.zeros(q + 1, dtype=np.int64)
        self._used = np.zeros((q + 1, q), dtype=np.bool_)
        self._position = np.zeros(q + 2, dtype=np.int64)
        self._reach = reach * self._length

    def steps(self) -> float:
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        from affinedp.neighbours.circuits.compiled import column_side

        return bool(
            column_side(
                self._tableau,
                self._image,
                self._chosen,
                self._pivot_row,
                self._used,
                self._position,
                TOLERANCE,
                self._reach,
                norm,
                STEPS_PER_CALL,
                records.counters,
                records.extremes,
                records.top_scores,
                records.top_values,
                records.left_out,
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self._length)


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
        from affinedp.neighbours.circuits.compiled import probe_cycles

        if self._steps is None:
            cycles = float(probe_cycles(self._first_arc, self._arc_head, 4000, 1))
            # found to be a few steps per node of each cycle
            self._steps = max(TRIAL_STEPS, cycles * 2 * len(self._mark))
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        from affinedp.neighbours.circuits.compiled import cycles

        if not self._started:
            records.counters[3] = -1
            self._started = True
        return bool(
            cycles(
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
                norm,
                STEPS_PER_CALL,
                records.counters,
                records.top_scores,
                records.top_values,
                records.left_out,
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return values / self._coefficient


def _compressed(matrix: FloatArray) -> FloatArray:
    """Drop zero rows: they change no norm."""
    return np.asarray(matrix[np.any(matrix != 0.0, axis=1)])
