"""Elementary vectors (circuits) of the kernel: list them, or find the worst one.

A circuit is a vector of ``ker D`` with minimal support.  Moving one free entry of any
basis, as Definition 4 of the paper does, moves ``x`` along a circuit, and every circuit
arises so from each of its entries.  All searches work on one matroid component.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Norm
from affinedp.domains.component import Component, network_of
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.circuits.prepare import (
    ColumnSide,
    Cycles,
    KernelSide,
    Marks,
    Records,
    Search,
    SingleCircuit,
    fold_parallel,
    orthonormal,
)
from affinedp.neighbours.norms import overflow
from affinedp.progress import Progress

LEADING = 16
# Scores that differ by less than this share are equal, and a fixed rule says which comes first.
TIED = 2.0**-34
BUFFER_VALUES = 4_000_000
CACHED_NUMBERS = 16_384  # that stay in the processor's cache
# Steps a search may take, found to be minutes at the most.
MOST_STEPS = 3e8
# Numbers in a working array before a component counts as too large to search.
MOST_NUMBERS = 3e8
# Circuits whose values floating point cannot tell and that are computed in rational arithmetic.
MOST_SUSPECTS = 5_000

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
            raise TooManyCircuitsError(
                f"there are more than {limit:,} circuits; raise the limit, or ask for the "
                "sensitivity, which does not store them",
                float(records.counters[1]),
                limit,
            )
        block = records.buffer[: records.counters[2]].copy()
        records.counters[2] = 0
        suspects = records.take_suspects()
        suspected += len(suspects)
        if suspected > MOST_SUSPECTS:
            raise _too_many_suspects(suspected)
        if len(block) or len(suspects):
            blocks.append((search.expand(block), search.entries(suspects)))
    return blocks, not records.counters[4]


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
    d = component.equations[[_nonzero_row(component)]].toarray()[0]
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
    best.sort(key=lambda pair: (-_leading_bits(pair[0]), pair[1:]))
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
    moving = points[np.any(points, axis=1)]
    found = np.zeros((some.stop - some.start, n))
    few = max(1, CACHED_NUMBERS // n)
    for start in range(some.start, some.stop, few):
        stop = min(start + few, some.stop)
        total = np.zeros((stop - start, n - start))
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
