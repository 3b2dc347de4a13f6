"""Elementary vectors (circuits) of the kernel: list them, or find the worst one.

A circuit is a vector of ``ker D`` with minimal support.  Moving one free entry of any
basis, as Definition 4 of the paper does, moves ``x`` along a circuit, and every circuit
arises so from each of its entries.  All searches work on one matroid component.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from affinedp.arrays import EPS, FloatArray, IntArray, Norm
from affinedp.compiling import STEPS_PER_CALL, Compiled
from affinedp.domains.component import Component, Network, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.modular import inverses
from affinedp.neighbours.adjacency import overflow
from affinedp.neighbours.circuits.compiled import (
    ACCURATE,
    COMPARED_BITS,
    Flats,
    Marks,
    Paths,
    Records,
    Sets,
    column_side,
    cycles,
    first_shadow,
    kernel_side,
    leading_bits,
    prime_words,
    probe_cycles,
)
from affinedp.progress import Progress

LEADING = 16
# Scores that differ by less than this share are equal, and a fixed rule says which comes first.
TIED = 2.0**-COMPARED_BITS
BUFFER_VALUES = 4_000_000
CACHED_NUMBERS = 16_384  # that stay in the processor's cache
# Steps a search may take, found to be minutes at the most.
MOST_STEPS = 3e8
# Numbers in a working array before a component counts as too large to search.
MOST_NUMBERS = 3e8
# Circuits whose values floating point cannot tell and that are computed in rational arithmetic.
MOST_SUSPECTS = 5_000
# Steps that are tried when no good estimate says that the search is short.
TRIAL_STEPS = 4_000_000

WAYS_OUT = (
    "Ways out: leave out entries that need no protection, restrict the neighbours to chosen "
    "free sets (FreeSetAdjacency) or to directions that you give (DirectionAdjacency), or split "
    "the data so that the equations fall into smaller components"
)


@dataclass(frozen=True)
class Leading:
    """The circuits with the highest scores, best first, and how they were found.

    Of circuits whose scores agree up to rounding, those with few entries come first, then those
    whose entries come first.  ``left_out`` is the highest score of a circuit that is not listed.
    ``suspects`` are circuits of which floating point knows the entries but not the values.
    """

    circuits: FloatArray  # one per row, local entries
    scores: FloatArray
    left_out: float
    count: int
    method: str
    suspects: Marks  # one circuit per row


# ---------------------------------------------------------------------- the two questions


def worst_circuits(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> Leading:
    """Return the leading circuits of ``‖matrix v‖ · max(reach_i / |v_i|)``."""
    # powers of two keep squares in the range of floating point
    unit, distance = _power_of_two(matrix), _power_of_two(reach)
    matrix, reach = matrix / unit, reach / distance
    if component.rank == 1:
        pair = _worst_pair(component, matrix, norm, reach, progress)
        scale = unit * distance
        return replace(pair, scores=pair.scores * scale, left_out=pair.left_out * scale)
    search, records, suspects = _run(component, matrix, norm, reach, progress)
    found = records.top_scores > -np.inf
    if not np.all(records.top_scores < np.inf):
        raise overflow()
    return Leading(
        search.expand(records.top_values[found][::-1]),
        records.top_scores[found][::-1] * unit * distance,
        float(records.left_out[0]) * unit * distance,
        int(records.counters[1]),
        search.method,
        suspects,
    )


def count_circuits(component: Component, progress: Progress) -> int:
    """Return the number of circuits of a component, up to sign."""
    n = len(component.entries)
    if component.rank == 1:
        return n * (n - 1) // 2
    for search in _searches(component, np.zeros((0, n)), np.ones(n)):
        records = Records.empty(search.width, 1, 0, 0)
        for _ in _calls(search, 2, records, progress):
            pass
        if not records.counters[4]:
            return int(records.counters[1])
    raise _no_prime()


def _power_of_two(array: FloatArray) -> float:
    return math.ldexp(1.0, math.frexp(float(np.abs(array).max(initial=0.0)) or 1.0)[1] - 1)


def list_circuits(
    component: Component, limit: int, progress: Progress
) -> Iterator[tuple[FloatArray, Marks]]:
    """Yield all circuits in blocks of rows; raise when there are more than ``limit``.

    With every block come the entries of circuits whose values floating point cannot tell.
    """
    width = len(component.entries)
    if component.rank == 1 and width * (width - 1) // 2 > limit:
        raise _too_many_to_list(width * (width - 1) // 2, limit)
    for search in _searches(component, np.zeros((0, width)), np.ones(width)):
        blocks, certain = _listed(search, limit, progress)
        if certain:
            yield from blocks
            return
    raise _no_prime()


def _listed(
    search: Search, limit: int, progress: Progress
) -> tuple[list[tuple[FloatArray, Marks]], bool]:
    """All circuits that one search finds, and whether it was certain of its zeros."""
    buffered = max(1, min(limit + 1, BUFFER_VALUES // search.width))
    records = Records.empty(search.width, 1, buffered, min(buffered, MOST_SUSPECTS))
    blocks = []
    suspected = 0
    for _ in _calls(search, 2, records, progress):
        if records.counters[1] > limit:
            raise _too_many_to_list(records.counters[1], limit)
        block = records.buffer[: records.counters[2]].copy()
        records.counters[2] = 0
        suspects = records.take_suspects()
        suspected += len(suspects)
        if suspected > MOST_SUSPECTS:
            raise _too_many_suspects(suspected)
        if len(block) or len(suspects):
            blocks.append((search.expand(block), search.entries(suspects)))
    return blocks, not records.counters[4]


def _too_many_to_list(count: float, limit: int) -> TooManyCircuitsError:
    return TooManyCircuitsError(
        f"there are more than {limit:,} circuits; raise the limit, or ask for the sensitivity, "
        "which does not store them",
        float(count),
        limit,
    )


def _run(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> tuple[Search, Records, Marks]:
    """Run the cheapest search; where its primes cannot tell zeros, the next one."""
    for search in _searches(component, matrix, reach):
        records = Records.empty(search.width, LEADING, 0, MOST_SUSPECTS)
        suspects: list[Marks] = [np.zeros((0, len(component.entries)), dtype=np.bool_)]
        for _ in _calls(search, norm, records, progress):
            suspects.append(search.entries(records.take_suspects()))
            if sum(map(len, suspects)) >= MOST_SUSPECTS:
                raise _too_many_suspects(MOST_SUSPECTS)
        if not records.counters[4]:
            return search, records, np.vstack(suspects)
    raise _no_prime()


def _too_many_suspects(count: int) -> AffineDPError:
    return AffineDPError(
        f"{count:,} or more neighbour directions have coefficients so small that floating point "
        "cannot tell them. Rescale the entries, leave out couplings that weak, or protect them "
        "with FreeSetAdjacency or DirectionAdjacency"
    )


def _no_prime() -> AffineDPError:
    return AffineDPError(
        "the zeros of the neighbour directions could not be decided. Rescale the entries, or use "
        "FreeSetAdjacency or DirectionAdjacency"
    )


# ---------------------------------------------------------------------- one equation


def _worst_pair(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> Leading:
    """One equation d·x: the circuits are e_i/d_i − e_j/d_j; try every pair, block by block."""
    d = component.equations[[int(component.equations.indices[0])]].toarray()[0]
    d = d / _power_of_two(d)
    n = len(d)
    _refuse_if_too_many(n * (n - 1) / 2 * max(1, len(matrix)) / 50, "pairs")
    with np.errstate(over="ignore"):
        points = matrix / d
    far = reach * np.abs(d)
    if not np.all(np.isfinite(points)):
        raise overflow()
    block = max(1, int(2e6) // n)
    best: list[tuple[float, int, int]] = []
    left_out = -math.inf
    for start in range(0, n, block):
        rows = slice(start, min(n, start + block))
        with np.errstate(over="ignore", invalid="ignore"):
            scores = _distances(points, rows, norm) * np.maximum(far[rows, None], far)
        if not np.all(np.isfinite(scores)):
            raise overflow()
        scores[np.arange(start, rows.stop)[:, None] >= np.arange(n)] = -1.0
        flat = scores.ravel()
        for place in _highest(flat, LEADING).tolist():
            best.append((float(flat[place]), start + place // n, place % n))
            flat[place] = -1.0
        left_out = max(left_out, float(flat.max()))
        progress.update(rows.stop / n)
    best.sort(key=lambda pair: (-leading_bits(pair[0]), pair[1:]))
    circuits = np.zeros((min(LEADING, len(best)), n))
    for row, (_, i, j) in zip(circuits, best):
        row[i], row[j] = 1 / d[i], -1 / d[j]
    scores_found = np.array([score for score, _, _ in best[:LEADING]])
    left_out = max([left_out, *(score for score, _, _ in best[LEADING:])])
    nothing = np.zeros((0, n), dtype=np.bool_)
    method = "one equation, closed form"
    return Leading(circuits, scores_found, left_out, n * (n - 1) // 2, method, nothing)


def _distances(points: FloatArray, some: slice, norm: Norm) -> FloatArray:
    """From some columns to all after them.

    SciPy's ``cdist`` gives the same, but to load it takes longer than most answers.
    """
    n = points.shape[1]
    others = np.count_nonzero(points, axis=1)
    # what one column alone has is added once, to all its distances
    alone = (np.abs(points[others == 1]) ** norm).sum(axis=0)
    moving = points[others > 1]
    found = np.zeros((some.stop - some.start, n))
    few = max(1, CACHED_NUMBERS // n)
    for start in range(some.start, some.stop, few):
        stop = min(start + few, some.stop)
        total = alone[start:stop, None] + alone[start:]
        gap = np.empty_like(total)
        for row in moving:
            np.subtract(row[start:stop, None], row[start:], out=gap)
            total += np.abs(gap, out=gap) if norm == 1 else np.multiply(gap, gap, out=gap)
        found[start - some.start : stop - some.start, start:] = total
    return found if norm == 1 else np.sqrt(found, out=found)


def _highest(scores: FloatArray, most: int) -> IntArray:
    """Places of the highest scores that are not negative; of equal ones, the first places."""
    most = min(most, len(scores))
    least = float(np.partition(scores, -most)[-most])
    above = np.flatnonzero(scores - least > abs(least) * TIED)
    tied = np.flatnonzero(np.abs(scores - least) <= abs(least) * TIED)
    places = np.concatenate([above, tied])[:most]
    return np.asarray(places[scores[places] >= 0.0])


# ---------------------------------------------------------------------- choosing and running


def _searches(component: Component, matrix: FloatArray, reach: FloatArray) -> Iterator[Search]:
    """Yield the possible searches, cheapest first, or refuse before any starts."""
    n, q, k = len(component.entries), component.rank, component.dim
    r = matrix.shape[0]
    if q == 0 or k == 1:
        yield SingleCircuit(component)
        return
    candidates: list[tuple[float, Callable[[], Search]]] = []
    network = network_of(component)
    if network is not None and (n + 1.0) * max(r, 1) < MOST_NUMBERS:
        candidates.append((1e5, lambda: Cycles(component, network, matrix, reach)))
    if (n + r) * float(k) * k < MOST_NUMBERS and n * float(n) < MOST_NUMBERS:
        balance = component.entry_units()
        basis = orthonormal(component.kernel() * balance[:, None])
        folded = fold_parallel(component, basis)
        steps = math.exp(min(700.0, _log_binomial(len(folded.leaders), k - 1)))
        cost = steps * (len(folded.leaders) + r) * 2
        candidates.append(
            (cost, lambda: KernelSide(component, basis, balance, folded, matrix, reach, steps))
        )
    if float(n) * q * (q + 1) < MOST_NUMBERS:
        steps_by_column = sum(math.exp(min(700.0, _log_binomial(n, t))) for t in range(1, q + 2))
        cost = steps_by_column * (q + r)
        candidates.append((cost, lambda: ColumnSide(component, matrix, reach, steps_by_column)))
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
    """Advance the search call by call, watching its length."""
    expected = search.steps()
    finished = False
    while not finished:
        finished = search.advance(norm, records)
        done = float(records.counters[0])
        if not finished and done > max(MOST_STEPS, expected):
            raise _too_many(done, f"{search.method} gave {int(records.counters[1]):,} so far")
        progress.update(min(0.99, done / expected))
        yield


def _log_binomial(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# ---------------------------------------------------------------------- the searches


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


class Search:
    """A resumable search over the circuits of one component."""

    method: str
    width: int
    most: float = 1.0  # steps: an upper bound or an estimate

    def steps(self) -> float:
        """Upper bound or estimate of the number of steps; inf when unknown."""
        return self.most

    def advance(self, norm: Norm, records: Records) -> bool:
        """Run for a while; True when finished."""
        raise NotImplementedError

    def expand(self, values: FloatArray) -> FloatArray:
        """Circuits in local entries from the search's own coordinates."""
        return values

    def entries(self, marks: Marks) -> Marks:
        """Which local entries circuits are made of, from the search's own coordinates."""
        return marks


class SingleCircuit(Search):
    """No equation (the entry alone) or one degree of freedom: exactly one circuit."""

    method = "one circuit"

    def __init__(self, component: Component) -> None:
        self.width = len(component.entries)
        self._circuit = component.kernel()[:, 0]
        size = np.abs(self._circuit * component.entry_units())
        exact = component.error <= EPS
        self._trusted = exact or 8 * component.error * size.max() <= ACCURATE * size.min()

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


class KernelSide(Search):
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
        members, k = unit.shape
        self.width, self.most = members, steps * 2
        image = (matrix / balance) @ basis
        image = image[np.any(image != 0.0, axis=1)]  # zero rows change no norm
        stack = np.zeros((k, members + len(image), k))
        stack[0] = np.vstack([unit, image])
        kernels = component.modular_kernel()
        active = np.zeros((k, members), dtype=np.bool_)
        active[0] = True
        # the member that may move farthest speaks for its group
        farthest = np.zeros(members)
        np.maximum.at(farthest, self._group, reach / np.abs(self._factor))
        self._state = Flats(
            stack,
            first_shadow(k, [kernel[folded.leaders].T for _, kernel in kernels]),
            prime_words([prime for prime, _ in kernels]),
            np.ones((k, len(kernels)), dtype=np.bool_),
            np.full(k, _first_slack(component, folded.factor)),
            active,
            np.zeros(k, dtype=np.int64),
            members,
            farthest,
        )

    def advance(self, norm: Norm, records: Records) -> bool:
        numbers = self._state.shadow[0].size + self._state.stack[0].size
        return _advanced(kernel_side, self._state, numbers, norm, records)

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values[:, self._group] * self._factor)

    def entries(self, marks: Marks) -> Marks:
        return np.asarray(marks[:, self._group])


class ColumnSide(Search):
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
        self.width, self.most = n, steps
        tableau = np.zeros((q + 1, q, n))
        tableau[0] = rows / length
        equations = component.modular_equations()
        self._state = Sets(
            tableau,
            first_shadow(q + 1, [modular.T for _, modular in equations]),
            prime_words([prime for prime, _ in equations]),
            np.ones((q + 1, len(equations)), dtype=np.bool_),
            np.zeros((q + 1, len(equations), q), dtype=np.bool_),
            np.zeros((q + 1, len(equations)), dtype=np.uint32),
            np.full(q + 1, _first_slack(component, length)),
            np.ascontiguousarray(matrix / self._length),
            np.zeros(q + 1, dtype=np.int64),
            np.zeros(q + 1, dtype=np.int64),
            np.zeros((q + 1, q), dtype=np.bool_),
            np.zeros(q + 2, dtype=np.int64),
            reach * self._length,
        )

    def advance(self, norm: Norm, records: Records) -> bool:
        numbers = self._state.shadow[0].size + self._state.tableau[0].size
        return _advanced(column_side, self._state, numbers, norm, records)

    def expand(self, values: FloatArray) -> FloatArray:
        return np.asarray(values / self._length)


class Cycles(Search):
    """Simple cycles of the graph behind network equations."""

    method = "cycles of the network"

    def __init__(
        self, component: Component, network: Network, matrix: FloatArray, reach: FloatArray
    ) -> None:
        n, nodes = len(component.entries), network.nodes
        self.width = n
        self._coefficient = network.coefficient
        ends = np.concatenate([network.tail, network.head])
        order = np.argsort(ends, kind="stable")
        self._state = Paths(
            np.searchsorted(ends[order], np.arange(nodes + 1)),
            np.concatenate([network.head, network.tail])[order],
            np.concatenate([np.arange(n), np.arange(n)])[order],
            # along the edge from its tail the balance is +, against it −
            np.repeat([1.0, -1.0], n)[order],
            np.ascontiguousarray(matrix / self._coefficient),
            np.zeros(nodes + 1, dtype=np.int64),
            np.zeros(nodes + 1, dtype=np.int64),
            np.zeros((nodes + 1, len(matrix))),
            np.zeros(nodes, dtype=np.bool_),
            np.zeros(nodes, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
            reach * np.abs(self._coefficient),
        )
        self._started = False

    @cached_property
    def most(self) -> float:  # type: ignore[override]
        """About how many steps; a few per node of each cycle, as was found."""
        nodes = len(self._state.mark)
        # a cycle is a sum of those that one edge outside a tree closes: there are no more
        count = 2.0 ** min(1000, self.width - nodes + 1)
        if count * 2 * nodes > TRIAL_STEPS:
            state = self._state
            count = float(probe_cycles.fast(state.first_arc, state.arc_head, 4000, 1))
        return max(TRIAL_STEPS, count * 2 * nodes)

    def advance(self, norm: Norm, records: Records) -> bool:
        if not self._started:
            records.counters[3] = -1
            self._started = True
        numbers = len(self._state.arc_head) + len(self._state.edge_image)
        return _advanced(cycles, self._state, numbers, norm, records)

    def expand(self, values: FloatArray) -> FloatArray:
        return values / self._coefficient


def _advanced(
    search: Compiled, state: Flats | Sets | Paths, numbers: int, norm: Norm, records: Records
) -> bool:
    """Run a search for a while, in Python as long as that is quicker than to compile it."""
    steps = search.steps_in_python(numbers)
    if not steps:
        return bool(search.fast(state, norm, STEPS_PER_CALL, records))
    before = int(records.counters[0])
    with np.errstate(all="ignore"):  # residues wrap around, and what overflows is refused later
        finished = bool(search(state, norm, steps, records))
    search.worked(numbers * (int(records.counters[0]) - before))
    return finished


def _first_slack(component: Component, lengths: FloatArray) -> float:
    """About how much unit rows are off that had these lengths before."""
    shortest = float(np.abs(lengths).min(initial=1.0))
    return 8 * max(EPS, component.error) / shortest if shortest > 0 else np.inf
