"""Networks and independent linear algebra that the tests of flows share."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np


def random_network(nodes: int, seed: int) -> nx.DiGraph:
    """A connected directed graph with decimal reactances."""
    generator = np.random.default_rng(seed)
    graph = nx.DiGraph()
    order = generator.permutation(nodes).tolist()
    for i, node in enumerate(order[1:], 1):
        graph.add_edge(order[int(generator.integers(i))], node)
    for _ in range(nodes // 2 + 1):
        u, v = generator.choice(nodes, 2, replace=False).tolist()
        if not graph.has_edge(v, u):
            graph.add_edge(u, v)
    for _, _, data in graph.edges(data=True):
        data["x"] = float(generator.integers(1, 99)) / 100
    return graph


def directions_by_potentials(graph: nx.DiGraph, private: list[int]) -> np.ndarray:
    """Flows and private injections that potentials can make, the other nodes in balance."""
    nodes = list(graph.nodes)
    A = -nx.incidence_matrix(graph, nodelist=nodes, oriented=True).toarray()
    reactance = np.array([data["x"] for *_, data in graph.edges(data=True)])
    flow_of = A.T / reactance[:, None]
    public = [i for i in range(len(nodes)) if i not in private]
    balanced = null_space((A @ flow_of)[public])
    flows = flow_of @ balanced
    return orthonormal(np.vstack([flows, (A @ flows)[private]]))


def null_space(matrix: np.ndarray) -> np.ndarray:
    if len(matrix) == 0:
        return np.eye(matrix.shape[1])
    _, values, right = np.linalg.svd(matrix)
    rank = int((values > 1e-9 * values[0]).sum())
    return right[rank:].T


def orthonormal(matrix: np.ndarray) -> np.ndarray:
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, values > 1e-9 * values[0]]


def same_space(one: np.ndarray, other: np.ndarray) -> bool:
    p, q = orthonormal(np.asarray(one)), orthonormal(np.asarray(other))
    return p.shape == q.shape and np.allclose(p @ p.T, q @ q.T, atol=1e-8)


def circuits_by_brute_force(kernel: np.ndarray) -> np.ndarray:
    """All elementary vectors: those of the kernel that vanish on dim − 1 independent entries."""
    n, k = kernel.shape
    found: dict[tuple[int, ...], np.ndarray] = {}
    for rows in combinations(range(n), k - 1):
        left = null_space(kernel[list(rows)])
        if left.shape[1] != 1:
            continue
        v = kernel @ left[:, 0]
        v[np.abs(v) < 1e-9 * np.abs(v).max()] = 0.0
        found[tuple(np.flatnonzero(v).tolist())] = v
    return np.array(list(found.values()))


def scaled(circuits: np.ndarray, mu: float = 1.0) -> np.ndarray:
    """Each circuit as far as Definition 4 lets neighbours differ along it."""
    least = np.where(circuits != 0, np.abs(circuits), np.inf).min(axis=1)
    return circuits * (mu / least)[:, None]


def cycles_with_outside(graph: nx.DiGraph, private: list) -> set[frozenset]:
    """Simple cycles of the graph and the outside, as sets of edges and injections."""
    multi = nx.MultiGraph()
    for i, (u, v) in enumerate(graph.edges()):
        multi.add_edge(u, v, entry=i)
    for j, node in enumerate(private):
        multi.add_edge(node, "outside", entry=graph.number_of_edges() + j)
    # a node in the middle of every edge makes parallel edges simple
    split = nx.Graph()
    for u, v, entry in multi.edges(data="entry"):
        split.add_edge(u, ("entry", entry))
        split.add_edge(("entry", entry), v)
    found = set()
    for cycle in nx.simple_cycles(split):
        found.add(frozenset(n[1] for n in cycle if isinstance(n, tuple) and n[0] == "entry"))
    return found
