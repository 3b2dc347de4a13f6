"""Compiled searches for the elementary vectors (circuits) of a kernel.

Three searches, one shape.  Each keeps its state in arrays and
runs for a given number of steps, so that the caller can show progress, stop, or empty a full buffer
between calls:

* ``kernel_side``: a circuit is a hyperplane of the kernel's rows; every flat is visited
  once, through its lexicographically first basis.  Good for few free entries.
* ``column_side``: independent sets of columns with a Gauss–Jordan tableau; a circuit is
  closed by its last column.  Good for few equations.
* simple cycles, the circuits of network equations, which have no zeros to decide: the graph says
  which entries belong to one.

What is zero is decided modulo primes: ``shadow`` is the same tableau modulo each of them.  The
tableau in floating point only gives values.  Where those may be off by more than ``ACCURATE`` of a
value, as estimated in ``slack``, the circuit's entries are handed over in ``suspects``, to be
computed in rational arithmetic.

Conventions: ``counters`` = [steps, circuits, buffered, depth, lost, suspects], where ``lost`` says
that no prime is left that tells zeros; ``top_scores``/``top_values`` hold the leading
circuits, lowest score first.  A circuit's score is ``‖image‖ · max(reach_i / |value_i|)``.
Scores that agree up to rounding are equal: of such circuits the one with the fewest entries
leads, then the one whose entries come first, so that no last bit decides what people see.
``left_out[0]`` is the highest score of a circuit that is not among the leading ones.

Residues modulo primes of 31 bits are carried beside the tableau in floating point.  Rows may be
multiplied by anything that is not zero, so elimination needs no inverses: a row becomes a
difference of two products, reduced by Montgomery's method, which leaves a factor 2⁻³² everywhere.
A number is zero if it is zero modulo every prime that is still ``live``.  A prime that vanishes
where another does not cannot serve as a pivot; it rests until the search has gone back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.compiling import Compiled
from affinedp.exact.modular import Residues as Table

# residues below 2³¹; primes and their inverses in 64 bits; marks
Residues = NDArray[np.uint32]
Words = NDArray[np.uint64]
Marks = NDArray[np.bool_]
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
# a column is no combination of the chosen ones, of some of them only, or of all of them
INDEPENDENT, PARTLY, CLOSES = 0, 1, 2
# Values found in floating point are trusted if their estimated error is below this share of the
# smallest one; otherwise the circuit is computed in integers.
ACCURATE = 1e-7
# Scores are compared by this many leading bits.
COMPARED_BITS = 34
# Stands for a value that is not zero but came out as zero.
TINY = 1e-200


class Records(NamedTuple):
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


@Compiled
def _paused(records: Records, end: int) -> bool:
    """Whether the budget is spent, or no room is left for what is found."""
    counters, buffer, suspects = records.counters, records.buffer, records.suspects
    return bool(
        counters[0] >= end
        or (buffer.shape[0] > 0 and counters[2] == buffer.shape[0])
        or (suspects.shape[0] > 0 and counters[5] == suspects.shape[0])
    )


def prime_words(primes: list[int]) -> Words:
    """Return every prime with what Montgomery's method needs: −1/p modulo 2³²."""
    return np.array([[p, -pow(p, -1, 2**32) % 2**32] for p in primes], dtype=np.uint64)


def first_shadow(depths: int, tables: list[Table]) -> Residues:
    """Return room for residues at every depth, with the given ones at depth 0."""
    shadow = np.zeros((depths, len(tables), *tables[0].shape), dtype=np.uint32)
    shadow[0] = tables
    return shadow


@Compiled
def _reduced(product: np.uint64, prime: np.uint64, inverse: np.uint64) -> np.uint64:
    """Montgomery's reduction of a sum of two products of residues."""
    reduced = (product + ((product * inverse) & LOW) * prime) >> HALF
    return reduced - prime if reduced >= prime else reduced


@Compiled
def project(
    shadow: Residues,
    t: int,
    j: int,
    left: int,
    primes: Words,
    live: Marks,
    nonzero: Marks,
) -> bool:
    """Project all members along member ``j``, and mark those that are not its multiples.

    ``shadow[t, s]`` has ``left`` coordinates as rows, the next depth gets one less.  False if no
    prime can tell.
    """
    members = nonzero.shape[0]
    nonzero[:] = False
    told = False
    for s in range(primes.shape[0]):
        live[t + 1, s] = False
        if not live[t, s]:
            continue
        pivot = -1
        for l in range(left):
            if shadow[t, s, l, j] != 0:
                pivot = l
                break
        if pivot < 0:
            continue
        live[t + 1, s] = True
        told = True
        prime, inverse = primes[s, 0], primes[s, 1]
        keep = np.uint64(shadow[t, s, pivot, j])
        to = 0
        for l in range(left):
            if l == pivot:
                continue
            take = prime - np.uint64(shadow[t, s, l, j])
            for i in range(members):
                product = np.uint64(shadow[t, s, l, i]) * keep
                product += np.uint64(shadow[t, s, pivot, i]) * take
                rest = np.uint32(_reduced(product, prime, inverse))
                shadow[t + 1, s, to, i] = rest
                nonzero[i] |= rest != 0
            to += 1
    return told


@Compiled
def relation(
    shadow: Residues, t: int, j: int, live: Marks, used: Marks, pivot_row: Residues
) -> int:
    """How column ``j`` relates to the t chosen ones: INDEPENDENT, PARTLY or CLOSES a circuit.

    ``shadow[t, s, j]`` is column j modulo prime s after t steps.
    """
    primes, q = shadow.shape[1], shadow.shape[3]
    if t < q:
        for s in range(primes):
            if live[t, s]:
                for i in range(q):
                    if shadow[t, s, j, i] != 0 and not used[t, s, i]:
                        return INDEPENDENT
    for c in range(t):
        zero = True
        for s in range(primes):
            if live[t, s] and shadow[t, s, j, pivot_row[c, s]] != 0:
                zero = False
                break
        if zero:
            return PARTLY
    return CLOSES


@Compiled
def eliminate(
    shadow: Residues,
    t: int,
    j: int,
    primes: Words,
    live: Marks,
    used: Marks,
    pivot_row: Residues,
    take: Words,
) -> bool:
    """Clear column ``j`` with an unused row in all columns after it.  False if no prime can."""
    n, q = shadow.shape[2], shadow.shape[3]
    told = False
    for s in range(primes.shape[0]):
        live[t + 1, s] = False
        if not live[t, s]:
            continue
        prime, inverse = primes[s, 0], primes[s, 1]
        now = shadow[t, s]
        below = shadow[t + 1, s]
        pivot = -1
        for i in range(q):
            used[t + 1, s, i] = used[t, s, i]
            take[i] = prime - np.uint64(now[j, i])
            if pivot < 0 and now[j, i] != 0 and not used[t, s, i]:
                pivot = i
        if pivot < 0:
            continue
        live[t + 1, s] = True
        told = True
        used[t + 1, s, pivot] = True
        pivot_row[t, s] = pivot
        keep = np.uint64(now[j, pivot])
        for l in range(j + 1, n):
            other = np.uint64(now[l, pivot])
            for i in range(q):
                product = np.uint64(now[l, i]) * keep + other * take[i]
                below[l, i] = np.uint32(_reduced(product, prime, inverse))
            below[l, pivot] = now[l, pivot]
    return told


@Compiled
def leading_bits(score: float) -> float:
    """Return the score rounded to the bits that are compared."""
    if score == 0.0 or not abs(score) < np.inf:
        return score
    mantissa, exponent = math.frexp(score)
    scale = 2.0**COMPARED_BITS
    return math.ldexp(np.rint(mantissa * scale) / scale, exponent)


@Compiled
def _leads(score: float, values: FloatArray, other_score: float, other: FloatArray) -> bool:
    """Whether a circuit goes before another: higher, then fewer entries, then first entries."""
    mine: float = leading_bits(score)
    its: float = leading_bits(other_score)
    if mine != its:
        return mine > its
    fewer = 0
    for i in range(values.shape[0]):
        fewer += int(other[i] != 0.0) - int(values[i] != 0.0)
    if fewer != 0:
        return fewer > 0
    for i in range(values.shape[0]):
        if (values[i] != 0.0) != (other[i] != 0.0):
            return bool(values[i] != 0.0)
    return False


@Compiled
def suspect(values: FloatArray, records: Records) -> None:
    """Count a circuit whose values are not to be trusted, and note its entries."""
    counters, suspects = records.counters, records.suspects
    counters[1] += 1
    if suspects.shape[0] > 0:
        for i in range(values.shape[0]):
            suspects[counters[5], i] = values[i] != 0.0
        counters[5] += 1


@Compiled
def offer(
    values: FloatArray,
    image: FloatArray,
    reach: FloatArray,
    norm: int,
    records: Records,
) -> None:
    """Count a circuit, buffer it, and keep it if it is among the leading ones."""
    counters, top_scores, top_values, left_out, buffer, _ = records
    counters[1] += 1
    if buffer.shape[0] > 0:
        buffer[counters[2], :] = values
        counters[2] += 1
    farthest = 0.0
    for i in range(values.shape[0]):
        if values[i] != 0.0:
            farthest = max(farthest, reach[i] / abs(values[i]))
    size = 0.0
    for i in range(image.shape[0]):
        if norm == 1:
            size += abs(image[i])
        else:
            size += image[i] * image[i]
    if norm == 2:
        size = math.sqrt(size)
    score = size * farthest
    if not score < np.inf:  # overflow, or 0 · inf: the caller refuses
        score = np.inf
    if not _leads(score, values, top_scores[0], top_values[0]):
        left_out[0] = max(left_out[0], score)
        return
    left_out[0] = max(left_out[0], top_scores[0])
    place = 0
    while place + 1 < top_scores.shape[0] and _leads(
        score, values, top_scores[place + 1], top_values[place + 1]
    ):
        top_scores[place] = top_scores[place + 1]
        top_values[place, :] = top_values[place + 1, :]
        place += 1
    top_scores[place] = score
    top_values[place, :] = values


class Flats(NamedTuple):
    """The state of the search over flats of the kernel's rows."""

    stack: FloatArray
    shadow: Residues
    primes: Words
    live: Marks
    slack: FloatArray
    active: Marks
    position: IntArray
    members: int
    reach: FloatArray


@Compiled
def kernel_side(state: Flats, norm: int, budget: int, records: Records) -> bool:
    """Advance the search over flats of the kernel's rows; True when it is finished.

    ``stack[t]`` holds, for depth t, the rows in the k−t coordinates orthogonal to the rows
    chosen so far: ``members`` unit rows of the kernel, then the rows of the image.
    ``shadow[t, s]`` holds the kernel's rows modulo prime s, up to factors: in coordinates that
    vanish on the chosen rows, one coordinate per row and one member per column.
    """
    stack, shadow, primes, live, slack, active, position, members, reach = state
    counters = records.counters
    total, k = stack.shape[1], stack.shape[2]
    values = np.zeros(members)
    image = np.zeros(total - members)
    mirror = np.zeros(k)
    nonzero = np.zeros(members, dtype=np.bool_)
    end = counters[0] + budget
    t = counters[3]
    while t >= 0:
        if _paused(records, end):
            counters[3] = t
            return False
        left = k - t
        j = position[t]
        while j <= members - (left - 1) and not active[t, j]:
            j += 1
        if j > members - (left - 1):
            t -= 1
            continue
        position[t] = j + 1
        counters[0] += 1
        if not project(shadow, t, j, left, primes, live, nonzero):
            counters[4] = 1
            return True
        rows = stack[t]
        first = True
        for i in range(j):
            if active[t, i] and not nonzero[i]:
                first = False
                break
        if not first:
            continue
        length = 0.0
        for l in range(left):
            length += rows[j, l] * rows[j, l]
        length = math.sqrt(length)
        amplified = slack[t] / min(1.0, length) if length > TINY else np.inf
        if left == 2:
            a, b = rows[j, 0], rows[j, 1]
            if length > TINY:
                a /= length
                b /= length
            dust, smallest = 0.0, np.inf
            for i in range(members):
                values[i] = 0.0
                if active[t, i] and i != j:
                    z = b * rows[i, 0] - a * rows[i, 1]
                    if nonzero[i]:
                        if z == 0.0:
                            z = TINY
                        values[i] = z
                        smallest = min(smallest, abs(z))
                    else:
                        dust = max(dust, abs(z))
            if not max(amplified, dust) <= ACCURATE * smallest:
                suspect(values, records)
                continue
            for i in range(total - members):
                image[i] = b * rows[members + i, 0] - a * rows[members + i, 1]
            offer(values, image, reach, norm, records)
            continue
        # Householder reflection that sends row j to a multiple of the first axis
        for l in range(left):
            mirror[l] = rows[j, l]
        mirror[0] += math.copysign(max(length, TINY), mirror[0])
        square = 0.0
        for l in range(left):
            square += mirror[l] * mirror[l]
        below = stack[t + 1]
        dust = 0.0
        for i in range(total):
            if i < members and (not active[t, i] or i == j):
                active[t + 1, i] = False
                continue
            along = 0.0
            for l in range(left):
                along += mirror[l] * rows[i, l]
            along *= 2.0 / square if square > 0.0 else 0.0
            rest = 0.0
            for l in range(1, left):
                z = rows[i, l] - along * mirror[l]
                below[i, l - 1] = z
                rest += z * z
            if i < members:
                active[t + 1, i] = nonzero[i]
                if not nonzero[i]:
                    dust = max(dust, math.sqrt(rest))
        slack[t + 1] = max(amplified, dust)
        t += 1
        position[t] = j + 1
    counters[3] = t
    return True


class Sets(NamedTuple):
    """The state of the search over independent sets of columns."""

    tableau: FloatArray
    shadow: Residues
    primes: Words
    live: Marks
    shadow_used: Marks
    shadow_pivot: Residues
    slack: FloatArray
    columns_image: FloatArray
    chosen: IntArray
    pivot_row: IntArray
    used: Marks
    position: IntArray
    reach: FloatArray


@Compiled
def column_side(state: Sets, norm: int, budget: int, records: Records) -> bool:
    """Advance the search over independent sets of columns; True when it is finished.

    ``tableau[t]`` is the matrix after Gauss–Jordan steps on the t columns ``chosen``, and
    ``shadow[t, s]`` its transpose modulo prime s, every row up to a factor, with pivots of its own.
    """
    (
        tableau,
        shadow,
        primes,
        live,
        shadow_used,
        shadow_pivot,
        slack,
        columns_image,
        chosen,
        pivot_row,
        used,
        position,
        reach,
    ) = state
    counters = records.counters
    q, n = tableau.shape[1], tableau.shape[2]
    r = columns_image.shape[0]
    values = np.zeros(n)
    image = np.zeros(r)
    take = np.zeros(q, dtype=np.uint64)
    end = counters[0] + budget
    t = counters[3]
    while t >= 0:
        if _paused(records, end):
            counters[3] = t
            return False
        j = position[t]
        if j >= n:
            t -= 1
            continue
        position[t] = j + 1
        counters[0] += 1
        now = tableau[t]
        pivot = -1
        largest = -1.0
        for i in range(q):
            if not used[t, i] and abs(now[i, j]) > largest:
                largest = abs(now[i, j])
                pivot = i
        found = relation(shadow, t, j, live, shadow_used, shadow_pivot)
        if found == PARTLY:
            continue
        if found == CLOSES:
            values[:] = 0.0
            values[j] = 1.0
            smallest = 1.0
            for s in range(t):
                z = -now[pivot_row[s], j]
                values[chosen[s]] = z if z != 0.0 else TINY
                smallest = min(smallest, abs(z))
            # what is left in the unused rows should be zero
            if not max(slack[t], largest) <= ACCURATE * smallest:
                suspect(values, records)
                continue
            for i in range(r):
                image[i] = columns_image[i, j]
                for s in range(t):
                    image[i] += columns_image[i, chosen[s]] * values[chosen[s]]
            offer(values, image, reach, norm, records)
            continue
        if not eliminate(shadow, t, j, primes, live, shadow_used, shadow_pivot, take):
            counters[4] = 1
            return True
        slack[t + 1] = slack[t] / min(1.0, largest) if largest > TINY else np.inf
        unit = now[pivot, j] if largest > TINY else 1.0
        below = tableau[t + 1]
        for l in range(j + 1, n):
            below[pivot, l] = now[pivot, l] / unit
        for i in range(q):
            used[t + 1, i] = used[t, i]
            if i != pivot:
                factor = now[i, j]
                for l in range(j + 1, n):
                    below[i, l] = now[i, l] - factor * below[pivot, l]
        used[t + 1, pivot] = True
        pivot_row[t] = pivot
        chosen[t] = j
        t += 1
        position[t] = j + 1
    counters[3] = t
    return True


# ---------------------------------------------------------------------- cycles


@Compiled
def _root_reachable(
    start: int,
    root: int,
    on_path: Marks,
    first_arc: IntArray,
    arc_head: IntArray,
    mark: IntArray,
    stamp: int,
    queue: IntArray,
) -> bool:
    """Whether ``root`` can still be reached from ``start`` off the path, above the root."""
    queue[0] = start
    mark[start] = stamp
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        for arc in range(first_arc[node], first_arc[node + 1]):
            other = arc_head[arc]
            if other == root:
                return True
            if other > root and not on_path[other] and mark[other] != stamp:
                mark[other] = stamp
                queue[tail] = other
                tail += 1
    return False


class Paths(NamedTuple):
    """The state of the search over simple cycles."""

    first_arc: IntArray
    arc_head: IntArray
    arc_edge: IntArray
    arc_sign: FloatArray
    edge_image: FloatArray
    path_node: IntArray
    path_arc: IntArray
    images: FloatArray
    on_path: Marks
    mark: IntArray
    root_and_stamp: IntArray
    reach: FloatArray


@Compiled
def cycles(state: Paths, norm: int, budget: int, records: Records) -> bool:
    """Advance the search over simple cycles; True when it is finished.

    A cycle starts at its lowest node and is kept in the direction whose first edge has the
    lower number.  ``path_arc[t]`` is the arc tried last at depth t.
    """
    (
        first_arc,
        arc_head,
        arc_edge,
        arc_sign,
        edge_image,
        path_node,
        path_arc,
        images,
        on_path,
        mark,
        root_and_stamp,
        reach,
    ) = state
    counters, buffer = records.counters, records.buffer
    nodes = first_arc.shape[0] - 1
    r = edge_image.shape[0]
    values = np.zeros(edge_image.shape[1])
    queue = np.zeros(nodes, dtype=np.int64)
    end = counters[0] + budget
    t = counters[3]
    root = root_and_stamp[0]
    while root < nodes:
        if t < 0:  # a new root
            t = 0
            path_node[0] = root
            path_arc[0] = first_arc[root] - 1
            on_path[root] = True
        while t >= 0:
            if counters[0] >= end or (buffer.shape[0] > 0 and counters[2] == buffer.shape[0]):
                counters[3] = t
                root_and_stamp[0] = root
                return False
            node = path_node[t]
            path_arc[t] += 1
            arc = path_arc[t]
            if arc >= first_arc[node + 1]:
                on_path[node] = False
                t -= 1
                continue
            other = arc_head[arc]
            if other < root or (other != root and on_path[other]):
                continue
            edge = arc_edge[arc]
            counters[0] += 1
            if other == root:
                if t == 0 or edge <= arc_edge[path_arc[0]]:
                    continue
                values[:] = 0.0
                for s in range(t + 1):
                    values[arc_edge[path_arc[s]]] = arc_sign[path_arc[s]]
                for i in range(r):
                    images[t + 1, i] = images[t, i] + arc_sign[arc] * edge_image[i, edge]
                offer(values, images[t + 1], reach, norm, records)
                continue
            root_and_stamp[1] += 1
            if not _root_reachable(
                other, root, on_path, first_arc, arc_head, mark, root_and_stamp[1], queue
            ):
                continue
            for i in range(r):
                images[t + 1, i] = images[t, i] + arc_sign[arc] * edge_image[i, edge]
            t += 1
            path_node[t] = other
            path_arc[t] = first_arc[other] - 1
            on_path[other] = True
        root += 1
        root_and_stamp[0] = root
    counters[3] = -1
    return True


@Compiled
def probe_cycles(first_arc: IntArray, arc_head: IntArray, probes: int, seed: int) -> float:
    """Estimate the number of simple cycles by random self-avoiding walks (Knuth's method)."""
    np.random.seed(seed)  # numba's own generator, not NumPy's global one
    nodes = first_arc.shape[0] - 1
    total = 0.0
    on_path = np.zeros(nodes, dtype=np.bool_)
    choices = np.zeros(arc_head.shape[0], dtype=np.int64)
    for _ in range(probes):
        root = np.random.randint(nodes)
        on_path[:] = False
        on_path[root] = True
        node = root
        weight = float(nodes)
        length = 0
        while True:
            found = 0
            back = 0
            for arc in range(first_arc[node], first_arc[node + 1]):
                other = arc_head[arc]
                if other == root:
                    back += 1
                elif other > root and not on_path[other]:
                    choices[found] = other
                    found += 1
            # every cycle is met in both directions; the first edge does not lead back
            total += weight * (back - 1 if length == 1 else back if length > 1 else 0) / 2.0
            if found == 0:
                break
            weight *= found
            node = choices[np.random.randint(found)]
            on_path[node] = True
            length += 1
    return total / probes
