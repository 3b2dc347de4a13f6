"""Compiled search for simple cycles, the circuits of network equations.

It is shaped like the searches in ``compiled`` and shares their conventions.  Cycles have no zeros
to decide: the graph says which entries belong to one.
"""

from __future__ import annotations

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.compiling import Compiled
from affinedp.neighbours.circuits.compiled import offer
from affinedp.neighbours.circuits.zeros import Marks


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


@Compiled
def cycles(
    first_arc: IntArray,
    arc_head: IntArray,
    arc_edge: IntArray,
    arc_sign: FloatArray,
    edge_image: FloatArray,
    path_node: IntArray,
    path_arc: IntArray,
    images: FloatArray,
    on_path: Marks,
    mark: IntArray,
    root_and_stamp: IntArray,
    reach: FloatArray,
    norm: int,
    budget: int,
    counters: IntArray,
    top_scores: FloatArray,
    top_values: FloatArray,
    left_out: FloatArray,
    buffer: FloatArray,
) -> bool:
    """Advance the search over simple cycles; True when it is finished.

    A cycle starts at its lowest node and is kept in the direction whose first edge has the
    lower number.  ``path_arc[t]`` is the arc tried last at depth t.
    """
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
                offer(
                    values,
                    images[t + 1],
                    reach,
                    norm,
                    counters,
                    top_scores,
                    top_values,
                    left_out,
                    buffer,
                )
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
