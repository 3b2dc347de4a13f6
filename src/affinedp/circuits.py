"""Elementary vectors (circuits) of the kernel: list them, or find the worst one.

A circuit is a vector of ``ker D`` with minimal support.  Moving one free entry of any
basis, as Definition 4 of the paper does, moves ``x`` along a circuit, and every circuit
arises so from each of its entries.  All searches work on one matroid component.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from affinedp._arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError, DoubtfulZeroError, TooManyCircuitsError
from affinedp.network import Network, recognise_network
from affinedp.progress import Progress

if TYPE_CHECKING:
    import scipy.sparse as sparse

Norm = Literal[1, 2]

# Below TOLERANCE (rows and columns have unit length) a value counts as zero.  Rounding leaves
# true zeros below DOUBTFUL; a value between the two may be a tiny coefficient, and is refused.
TOLERANCE = 1e-9
DOUBTFUL = 1e-12
LEADING = 16
STEPS_PER_CALL = 500_000
BUFFER_VALUES = 4_000_000
# Steps a search may take, found to be minutes at the most.
MOST_STEPS = 3e8
# Steps that are tried when no good estimate says that the search is short.
TRIAL_STEPS = 4_000_000
# Numbers in a working array before a component counts as too large to search.
MOST_NUMBERS = 3e8

WAYS_OUT = (
    "Ways out: leave out entries that need no protection, restrict the neighbours to chosen "
    "free sets (FreeSetAdjacency) or to directions that you give (DirectionAdjacency), or split "
    "the data so that the equations fall into smaller components"
)


@dataclass(frozen=True)
class Component:
    """One matroid component, in local numbering.

    Attributes
    ----------
    entries : array of int
        The entries of x it is made of.
    equations : sparse matrix, CSC
        The columns of D for these entries.
    pivots, free : arrays of int
        Local positions of the basis and of the free entries.
    reduced : q×k matrix
        X of the row-equivalent form ``[I | X]``, sparse.
    """

    entries: IntArray
    equations: sparse.csc_array
    pivots: IntArray
    free: IntArray
    reduced: sparse.csr_array

    @property
    def rank(self) -> int:
        """Number of independent equations in the component."""
        return len(self.pivots)

    @property
    def dim(self) -> int:
        """Number of free entries."""
        return len(self.free)

    def kernel(self) -> FloatArray:
        """Dense kernel basis of the component, entries × free."""
        basis = np.zeros((len(self.entries), self.dim))
        basis[self.free] = np.eye(self.dim)
        basis[self.pivots] = -self.reduced.toarray()
        return basis

    def restricted(self, keep: IntArray) -> Component:
        """The component without some entries that hang on a kept parallel entry."""
        position = np.full(len(self.entries), -1)
        position[keep] = np.arange(len(keep))
        free = position[self.free] >= 0
        return Component(
            self.entries[keep],
            self.equations[:, keep],
            position[self.pivots],
            position[self.free[free]],
            self.reduced[:, free],
        )


@dataclass(frozen=True)
class Leading:
    """The circuits with the highest scores, best first, and how they were found."""

    circuits: FloatArray  # one per row, local entries
    scores: FloatArray
    count: int
    method: str


class Search(Protocol):
    """A resumable search over the circuits of one component."""

    method: str

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
    buffer: FloatArray

    @classmethod
    def empty(cls, width: int, leading: int, buffered: int) -> Records:
        """Fresh records for circuits of ``width`` values."""
        return cls(
            np.zeros(4, dtype=np.int64),
            np.array([0.0, np.inf]),
            np.full(leading, -np.inf),
            np.zeros((leading, width)),
            np.zeros((buffered, width)),
        )


# ---------------------------------------------------------------------- the two questions


def worst_circuits(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> Leading:
    """Return the leading circuits of ``‖matrix v‖ · max(reach_i / |v_i|)``.

    Parameters
    ----------
    component : Component
        Where to search.
    matrix : array, shape (r, entries)
        What the norm is taken of.
    norm : {1, 2}
        Which norm.
    reach : array, shape (entries,)
        How far each entry may move.
    progress : Progress
        Shows the search when it takes long.
    """
    if component.rank == 1:
        return _worst_pair(component, matrix, norm, reach, progress)
    search, records = _first_certain(component, matrix, norm, reach, progress)
    found = records.top_scores > -np.inf
    if np.isposinf(records.top_scores).any():
        raise AffineDPError(
            "the neighbours' differences overflow floating point: the coefficients of the "
            "equations or of the noise differ too much in size. Rescale the entries"
        )
    order = np.argsort(-records.top_scores[found], kind="stable")
    return Leading(
        search.expand(records.top_values[found][order]),
        records.top_scores[found][order],
        int(records.counters[1]),
        search.method,
    )


def list_circuits(component: Component, limit: int, progress: Progress) -> Iterator[FloatArray]:
    """Yield all circuits in blocks of rows; raise when there are more than ``limit``."""
    width = len(component.entries)
    search = next(_searches(component, np.zeros((0, width)), np.ones(width)))
    buffered = max(1, min(limit + 1, BUFFER_VALUES // _width(search)))
    records = Records.empty(_width(search), 1, buffered)
    for _ in _calls(search, 2, records, progress):
        if records.counters[1] > limit:
            raise TooManyCircuitsError(
                f"there are more than {limit:,} circuits; raise the limit, or ask for the "
                "sensitivity, which does not store them",
                float(records.counters[1]),
                limit,
            )
        block = records.buffer[: records.counters[2]].copy()
        records.counters[2] = 0
        if len(block):
            yield search.expand(block)


def _first_certain(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> tuple[Search, Records]:
    """Run the cheapest search; where its rounding leaves doubtful zeros, the next one."""
    doubt: DoubtfulZeroError | None = None
    for search in _searches(component, matrix, reach):
        records = Records.empty(_width(search), LEADING, 0)
        try:
            for _ in _calls(search, norm, records, progress):
                pass
        except DoubtfulZeroError as error:
            doubt = error
            continue
        return search, records
    assert doubt is not None
    raise doubt


def exact_circuit(
    rows: Sequence[Mapping[int, Fraction]], support: IntArray
) -> dict[int, Fraction] | None:
    """Return the circuit with this support in exact arithmetic, or None if there is none."""
    from affinedp.elimination import reduce_exactly

    inside = {int(i) for i in support}
    restricted = [{j: row[j] for j in row if j in inside} for row in rows]
    pivots = reduce_exactly([row for row in restricted if row])
    (*others,) = inside - {column for column, _ in pivots}
    if len(others) != 1:
        return None
    circuit = {others[0]: Fraction(1)}
    for column, row in pivots:
        value = -row.get(others[0], Fraction(0))
        if value == 0:
            return None
        circuit[column] = value
    return circuit


# ---------------------------------------------------------------------- one equation


def _worst_pair(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> Leading:
    """One equation d·x: the circuits are e_i/d_i − e_j/d_j; try every pair, block by block."""
    from scipy.spatial.distance import cdist

    d = component.equations[[_nonzero_row(component)]].toarray()[0]
    n = len(d)
    _refuse_if_too_many(n * (n - 1) / 2 * max(1, len(matrix)) / 50, "pairs")
    points = np.ascontiguousarray((matrix / d).T)
    far = reach * np.abs(d)
    block = max(1, int(2e6) // n)
    best: list[tuple[float, int, int]] = []
    for start in range(0, n, block):
        rows = slice(start, min(n, start + block))
        distance = cdist(points[rows], points, "cityblock" if norm == 1 else "euclidean")
        scores = distance * np.maximum(far[rows, None], far)
        scores[np.arange(start, rows.stop)[:, None] >= np.arange(n)] = -1.0
        flat = scores.ravel()
        most = min(LEADING, len(flat))
        for place in np.argpartition(flat, -most)[-most:].tolist():
            if flat[place] >= 0.0:
                best.append((float(flat[place]), start + place // n, place % n))
        progress.update(rows.stop / n)
    best.sort(reverse=True)
    circuits = np.zeros((min(LEADING, len(best)), n))
    for row, (_, i, j) in zip(circuits, best):
        row[i], row[j] = 1 / d[i], -1 / d[j]
    scores_found = np.array([score for score, _, _ in best[:LEADING]])
    return Leading(circuits, scores_found, n * (n - 1) // 2, "one equation, closed form")


def _nonzero_row(component: Component) -> int:
    return int(component.equations.indices[0])


# ---------------------------------------------------------------------- choosing and running


def _searches(component: Component, matrix: FloatArray, reach: FloatArray) -> Iterator[Search]:
    """Yield the possible searches, cheapest first, or refuse before any starts."""
    n, q, k = len(component.entries), component.rank, component.dim
    r = matrix.shape[0]
    if q == 0 or k == 1:
        yield _Single(component)
        return
    candidates: list[tuple[float, Callable[[], Search]]] = []
    network = recognise_network(component.equations)
    if network is not None and (n + 1.0) * max(r, 1) < MOST_NUMBERS:
        candidates.append((1e5, lambda: _Cycles(component, network, matrix, reach)))
    if (n + r) * float(k) * k < MOST_NUMBERS and n * float(n) < MOST_NUMBERS:
        folded = _parallel_rows(_orthonormal(component.kernel()))
        steps = math.exp(_log_binomial(len(folded[0]), k - 1))
        cost = steps * (len(folded[0]) + r) * 2
        candidates.append((cost, lambda: _KernelSide(component, folded, matrix, reach, steps)))
    if float(n) * q * (q + 1) < MOST_NUMBERS:
        steps_by_column = sum(math.exp(_log_binomial(n, t)) for t in range(1, q + 2))
        cost = steps_by_column * (q + r)
        candidates.append((cost, lambda: _ColumnSide(component, matrix, reach, steps_by_column)))
    fewest = math.inf
    for _, build in sorted(candidates, key=lambda candidate: candidate[0]):
        search = build()
        fewest = min(fewest, search.steps())
        if search.steps() <= MOST_STEPS:
            yield search
    if fewest > MOST_STEPS:
        raise _too_many(fewest, f"a component with {n} entries and {q} equations")


def _refuse_if_too_many(steps: float, where: str) -> None:
    if steps > MOST_STEPS:
        raise _too_many(steps, where)


def _too_many(estimate: float, where: str) -> TooManyCircuitsError:
    about = f"about {estimate:.1e} steps" if math.isfinite(estimate) else "more than fits in memory"
    return TooManyCircuitsError(
        f"the circuits of these equations are too many to search ({where}: {about}, at most "
        f"{MOST_STEPS:.0e} are tried). {WAYS_OUT}",
        estimate,
        MOST_STEPS,
    )


def _calls(search: Search, norm: Norm, records: Records, progress: Progress) -> Iterator[None]:
    """Advance the search call by call, watching its length and its zeros."""
    expected = search.steps()
    finished = False
    while not finished:
        finished = search.advance(norm, records)
        done = float(records.counters[0])
        if not finished and done > max(MOST_STEPS, expected):
            raise _too_many(done, f"{search.method} gave {int(records.counters[1]):,} so far")
        progress.update(min(0.99, done / expected))
        yield
    if records.extremes[0] > DOUBTFUL:
        raise _doubtful(float(records.extremes[0]))


def _doubtful(size: float) -> DoubtfulZeroError:
    return DoubtfulZeroError(
        "some coefficients of the neighbour directions cannot be told from zero (one of relative "
        f"size {size:.1e} was met). The promise would rest on rounding errors. Rescale the "
        "entries, or protect them with FreeSetAdjacency or DirectionAdjacency",
        size,
    )


def _width(search: Search) -> int:
    return int(search.width)  # type: ignore[attr-defined]


def _log_binomial(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _orthonormal(basis: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.qr(basis)[0])


def _parallel_rows(basis: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
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
                raise _doubtful(apart)
            if apart <= DOUBTFUL:
                group[j] = len(leaders)
                factor[j] = sign * length[j]
        leaders.append(i)
    return unit[leaders], factor, group


# ---------------------------------------------------------------------- the searches


class _Single:
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


class _KernelSide:
    """Flats of the kernel's rows, parallel rows merged."""

    method = "kernel side"

    def __init__(
        self,
        component: Component,
        folded: tuple[FloatArray, FloatArray, IntArray],
        matrix: FloatArray,
        reach: FloatArray,
        steps: float,
    ) -> None:
        unit, self._factor, self._group = folded
        basis = _orthonormal(component.kernel())
        k = unit.shape[1]
        self.width = len(unit)
        self._steps = steps
        image = _compressed(matrix @ basis)
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
        from affinedp.search import kernel_side

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
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values[:, self._group] * self._factor)


class _ColumnSide:
    """Independent sets of the equations' columns, scaled to unit length."""

    method = "column side"

    def __init__(
        self, component: Component, matrix: FloatArray, reach: FloatArray, steps: float
    ) -> None:
        q, n = component.rank, len(component.entries)
        rows = np.zeros((q, n))
        rows[:, component.pivots] = np.eye(q)
        rows[:, component.free] = component.reduced.toarray()
        rows = np.linalg.qr(rows.T)[0].T
        self._length = np.linalg.norm(rows, axis=0)
        self.width = n
        self._steps = steps
        self._tableau = np.zeros((q + 1, q, n))
        self._tableau[0] = rows / self._length
        self._image = np.ascontiguousarray(matrix / self._length)
        self._chosen = np.zeros(q + 1, dtype=np.int64)
        self._pivot_row = np.zeros(q + 1, dtype=np.int64)
        self._used = np.zeros((q + 1, q), dtype=np.bool_)
        self._position = np.zeros(q + 2, dtype=np.int64)
        self._reach = reach * self._length

    def steps(self) -> float:
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        from affinedp.search import column_side

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
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self._length)


class _Cycles:
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
        from affinedp.search import probe_cycles

        if self._steps is None:
            cycles = float(probe_cycles(self._first_arc, self._arc_head, 4000, 1))
            # found to be a few steps per node of each cycle
            self._steps = max(TRIAL_STEPS, cycles * 2 * len(self._mark))
        return self._steps

    def advance(self, norm: Norm, records: Records) -> bool:
        from affinedp.search import cycles

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
                records.buffer,
            )
        )

    def expand(self, values: FloatArray) -> FloatArray:
        return values / self._coefficient


def _compressed(matrix: FloatArray) -> FloatArray:
    """Drop zero rows: they change no norm."""
    return np.asarray(matrix[np.any(matrix != 0.0, axis=1)])


def parallel_columns(equations: sparse.csc_array) -> tuple[IntArray, FloatArray]:
    """Group the columns that are multiples of each other: group and factor of each column."""
    groups: dict[Any, int] = {}
    group = np.zeros(equations.shape[1], dtype=np.intp)
    factor = np.ones(equations.shape[1])
    pointers = equations.indptr.tolist()
    for j, (start, stop) in enumerate(pairwise(pointers)):
        values = equations.data[start:stop]
        if stop > start:
            factor[j] = values[np.argmax(np.abs(values))]
        # bit for bit: columns that are only nearly parallel are not
        key = (equations.indices[start:stop].tobytes(), (values / factor[j]).tobytes())
        group[j] = groups.setdefault(key, len(groups))
    return group, factor
