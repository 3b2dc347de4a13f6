"""Networks with known eigenvalues, however small."""

import mpmath
import networkx as nx


def bridged(weight, size=8):
    """Two complete groups, joined by one light link."""
    graph = nx.disjoint_union(nx.complete_graph(size), nx.complete_graph(size))
    nx.set_edge_attributes(graph, 1 / (size + 1), "weight")
    graph.add_edge(0, size, weight=weight)
    return graph


def precise_second(graph):
    """λ₂ in 60 digits."""
    matrix = mpmath.matrix(len(graph), len(graph))
    with mpmath.workdps(60):
        for i, j, w in graph.edges(data="weight"):
            matrix[i, j] = matrix[j, i] = -mpmath.mpf(w)
            matrix[i, i] += mpmath.mpf(w)
            matrix[j, j] += mpmath.mpf(w)
        return mpmath.eigsy(matrix, eigvals_only=True)[1]
