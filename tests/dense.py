"""Tables, trees and margins as dense matrices: slow, obvious, and independent of the passes."""

import itertools

import numpy as np
import scipy.linalg as sl

import affinedp as adp


def table(rows, columns):
    """Cells, row and column totals, and the total of a table, which all add up."""
    place = np.arange((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    lines = [*place, *place.T]
    D = np.zeros((len(lines) - 1, place.size))
    for equation, line in zip(D, lines):
        equation[line[:-1]], equation[line[-1]] = 1, -1
    return adp.AffineManifold(D)


def random_parent(rng, n):
    """A random recursive tree with shuffled labels."""
    parent = np.array([-1] + [int(rng.integers(0, v)) for v in range(1, n)])
    label = rng.permutation(n)
    shuffled = np.empty(n, int)
    shuffled[label] = np.where(parent < 0, -1, label[np.maximum(parent, 0)])
    return shuffled


def indicators(parent):
    """Node × leaf: which cells a total adds up; and the leaves."""
    n = len(parent)
    leaves = np.setdiff1d(np.arange(n), parent)
    K = np.zeros((n, len(leaves)))
    for j, v in enumerate(leaves):
        while v >= 0:
            K[v, j] = 1
            v = parent[v]
    return K, leaves


def moves(parent, neighbours, public=()):
    """Differences of the cells between neighbours, one per row."""
    K, leaves = indicators(parent)
    N = len(leaves)
    kept = K[list(public)] if len(public) else np.zeros((0, N))
    if neighbours == "replace":
        kept = np.vstack([kept, np.ones(N)])
    rows = list(np.eye(N)) if neighbours != "replace" else []
    if neighbours != "person" or len(public):
        for i, j in itertools.combinations(range(N), 2):
            v = np.zeros(N)
            v[i], v[j] = 1, -1
            if neighbours == "person":
                # who could leave the table is covered by leaving
                top = [q for q in public if K[q, i]]
                if not top or sorted(top) != sorted(q for q in public if K[q, j]):
                    continue
            rows.append(v)
    rows = [v for v in rows if not (kept @ v).any()]
    return np.array(rows).reshape(-1, N)


def covariance(K, y, kept):
    """Covariance of the cells after least squares, given that ``kept`` is public."""
    P = K.T @ (y[:, None] * K)
    basis = sl.null_space(kept) if len(kept) else np.eye(K.shape[1])
    return basis @ np.linalg.inv(basis.T @ P @ basis) @ basis.T


def least_error(W, directions, rounds=3000, tolerance=1e-6):
    """Bounds of the least trace(W Σ) over Gaussian noise with v' Σ⁻¹ v ≤ 1, by the dual."""
    values, U = np.linalg.eigh(W)
    seen = values > 1e-10 * values[-1]
    V = directions @ (U[:, seen] * np.sqrt(values[seen]))
    V = V @ sl.orth(V.T)
    w = np.ones(len(V)) / len(V)
    low = high = 0.0
    for _ in range(rounds):
        values, U = np.linalg.eigh((V.T * w) @ V)
        r = np.sqrt(np.maximum(values, 1e-300))
        low = r.sum() ** 2
        gain = ((V @ U) ** 2 / r).sum(axis=1)
        high = low * gain.max() / (w @ gain)
        if high / low - 1 < tolerance:
            break
        w = w * gain / (w @ gain)
    return low, high
