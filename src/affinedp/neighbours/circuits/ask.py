"""Elementary vectors (circuits) of the kernel: list them, or find the worst one.

A circuit is a vector of ``ker D`` with minimal support.  Moving one free entry of any
basis, as Definition 4 of the paper does, moves ``x`` along a circuit, and every circuit
arises so from each of its entries.  All searches work on one matroid component.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Norm
from affinedp.equations.component import Component
from affinedp.equations.incidence import recognise_network
from affinedp.errors import AffineDPError, DoubtfulZeroError, TooManyCircuitsError
from affinedp.neighbours.circuits.prepare import (
    DOUBTFUL,
    ColumnSide,
    Cycles,
    KernelSide,
    Records,
    Search,
    SingleCircuit,
    doubtful,
    orthonormal,
    parallel_rows,
)
from affinedp.progress import Progress

LEADING = 16
# Scores that differ by less than this share are equal, and a fixed rule says which comes first.
TIED = 2.0**-34
BUFFER_VALUES = 4_000_000
# Steps a search may take, found to be minutes at the most.
MOST_STEPS = 3e8
# Numbers in a working array before a component counts as too large to search.
MOST_NUMBERS = 3e8

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
    """

    circuits: FloatArray  # one per row, local entries
    scores: FloatArray
    left_out: float
    count: int
    method: str


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
    # powers of two keep squares in the range of floating point
    unit, distance = _power_of_two(matrix), _power_of_two(reach)
    matrix, reach = matrix / unit, reach / distance
    if component.rank == 1:
        pair = _worst_pair(component, matrix, norm, reach, progress)
        scale = unit * distance
        return replace(pair, scores=pair.scores * scale, left_out=pair.left_out * scale)
    search, records = _first_certain(component, matrix, norm, reach, progress)
    found = records.top_scores > -np.inf
    if not np.all(records.top_scores < np.inf):
        raise AffineDPError(
            "the neighbours' differences overflow floating point: the coefficients of the "
            "equations or of the noise differ too much in size. Rescale the entries"
        )
    return Leading(
        search.expand(records.top_values[found][::-1]),
        records.top_scores[found][::-1] * unit * distance,
        float(records.left_out[0]) * unit * distance,
        int(records.counters[1]),
        search.method,
    )


def _power_of_two(array: FloatArray) -> float:
    return math.ldexp(1.0, math.frexp(float(np.abs(array).max(initial=0.0)) or 1.0)[1])


def list_circuits(component: Component, limit: int, progress: Progress) -> Iterator[FloatArray]:
    """Yield all circuits in blocks of rows; raise when there are more than ``limit``."""
    width = len(component.entries)
    doubt: DoubtfulZeroError | None = None
    for search in _searches(component, np.zeros((0, width)), np.ones(width)):
        try:
            yield from _listed(search, limit, progress)
        except DoubtfulZeroError as error:
            doubt = error
            continue
        return
    assert doubt is not None
    raise doubt


def _listed(search: Search, limit: int, progress: Progress) -> list[FloatArray]:
    """All circuits that one search finds, once it is certain of its zeros."""
    buffered = max(1, min(limit + 1, BUFFER_VALUES // search.width))
    records = Records.empty(search.width, 1, buffered)
    blocks = []
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
            blocks.append(search.expand(block))
    return blocks


def _first_certain(
    component: Component, matrix: FloatArray, norm: Norm, reach: FloatArray, progress: Progress
) -> tuple[Search, Records]:
    """Run the cheapest search; where its rounding leaves doubtful zeros, the next one."""
    doubt: DoubtfulZeroError | None = None
    for search in _searches(component, matrix, reach):
        records = Records.empty(search.width, LEADING, 0)
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
    from affinedp.equations.elimination import reduce_exactly

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
    d = d / _power_of_two(d)
    n = len(d)
    _refuse_if_too_many(n * (n - 1) / 2 * max(1, len(matrix)) / 50, "pairs")
    points = np.ascontiguousarray((matrix / d).T)
    far = reach * np.abs(d)
    block = max(1, int(2e6) // n)
    best: list[tuple[float, int, int]] = []
    left_out = -math.inf
    for start in range(0, n, block):
        rows = slice(start, min(n, start + block))
        distance = cdist(points[rows], points, "cityblock" if norm == 1 else "euclidean")
        scores = distance * np.maximum(far[rows, None], far)
        scores[np.arange(start, rows.stop)[:, None] >= np.arange(n)] = -1.0
        flat = scores.ravel()
        for place in _highest(flat, LEADING).tolist():
            best.append((float(flat[place]), start + place // n, place % n))
            flat[place] = -1.0
        left_out = max(left_out, float(flat.max()))
        progress.update(rows.stop / n)
    best.sort(key=lambda pair: (-_leading_bits(pair[0]), pair[1:]))
    circuits = np.zeros((min(LEADING, len(best)), n))
    for row, (_, i, j) in zip(circuits, best):
        row[i], row[j] = 1 / d[i], -1 / d[j]
    scores_found = np.array([score for score, _, _ in best[:LEADING]])
    left_out = max([left_out, *(score for score, _, _ in best[LEADING:])])
    return Leading(circuits, scores_found, left_out, n * (n - 1) // 2, "one equation, closed form")


def _highest(scores: FloatArray, most: int) -> IntArray:
    """Places of the highest scores that are not negative; of equal ones, the first places."""
    most = min(most, len(scores))
    least = float(np.partition(scores, -most)[-most])
    above = np.flatnonzero(scores - least > abs(least) * TIED)
    tied = np.flatnonzero(np.abs(scores - least) <= abs(least) * TIED)
    places = np.concatenate([above, tied])[:most]
    return np.asarray(places[scores[places] >= 0.0])


def _leading_bits(score: float) -> float:
    """The score rounded to the bits in which scores are compared."""
    mantissa, exponent = math.frexp(score)
    return math.ldexp(round(mantissa / TIED) * TIED, exponent)


def _nonzero_row(component: Component) -> int:
    return int(component.equations.indices[0])


# ---------------------------------------------------------------------- choosing and running


def _searches(component: Component, matrix: FloatArray, reach: FloatArray) -> Iterator[Search]:
    """Yield the possible searches, cheapest first, or refuse before any starts."""
    n, q, k = len(component.entries), component.rank, component.dim
    r = matrix.shape[0]
    if q == 0 or k == 1:
        yield SingleCircuit(component)
        return
    candidates: list[tuple[float, Callable[[], Search]]] = []
    doubt: DoubtfulZeroError | None = None
    network = recognise_network(component.equations)
    if network is not None and (n + 1.0) * max(r, 1) < MOST_NUMBERS:
        candidates.append((1e5, lambda: Cycles(component, network, matrix, reach)))
    if (n + r) * float(k) * k < MOST_NUMBERS and n * float(n) < MOST_NUMBERS:
        balance = component.entry_units()
        basis = orthonormal(component.kernel() * balance[:, None])
        try:
            folded = parallel_rows(basis)
        except DoubtfulZeroError as error:
            doubt = error
        else:
            steps = math.exp(_log_binomial(len(folded[0]), k - 1))
            cost = steps * (len(folded[0]) + r) * 2
            candidates.append(
                (cost, lambda: KernelSide(basis, balance, folded, matrix, reach, steps))
            )
    if float(n) * q * (q + 1) < MOST_NUMBERS:
        steps_by_column = sum(math.exp(_log_binomial(n, t)) for t in range(1, q + 2))
        cost = steps_by_column * (q + r)
        candidates.append((cost, lambda: ColumnSide(component, matrix, reach, steps_by_column)))
    fewest = math.inf
    for _, build in sorted(candidates, key=lambda candidate: candidate[0]):
        search = build()
        fewest = min(fewest, search.steps())
        if search.steps() <= MOST_STEPS:
            yield search
    if fewest > MOST_STEPS and doubt is not None:
        raise doubt
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
        raise doubtful(float(records.extremes[0]))


def _log_binomial(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
