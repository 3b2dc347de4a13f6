"""Least Gaussian noise over one public sum: all entries in closed form, few rows from few pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense
from affinedp.designs.bounds import COORDINATES
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import floor_note, range_basis, with_floor
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.privacy.design import LeastProof
from affinedp.progress import Progress
from affinedp.strategies.one_sum import dual_of_sum, is_exchange, is_identity

# Beyond these sizes matrices of all entries, or of all pairs, take too long.
MOST_ENTRIES = 2_000
MOST_PAIRED = 20_000
MOST_RANK = 30
# Below, moves are listed as for any other manifold.
FEWEST_ENTRIES = 30
CHUNK = 4_000_000
# What scaling the closed form to the promise may cost.
SCALED = 4e-9


@dataclass(frozen=True, eq=False)
class SumNoise:
    """Noise ``basis @ root`` at a sensitivity, up to rounding."""

    basis: FloatArray  # basis, root: Λ as a product
    root: FloatArray
    gap: float  # how far from the least it may be
    notes: tuple[str, ...]  # what a reader should know
    dual: LeastProof | None  # what Gaussian noise costs at least at sensitivity 1


def least_over_sum(
    adjacency: Adjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    tol: float,
) -> SumNoise | None:
    """Return the least Gaussian noise over one public sum, or None for other problems."""
    if not is_exchange(adjacency) or not FEWEST_ENTRIES < adjacency.manifold.n <= MOST_PAIRED:
        return None
    assert isinstance(adjacency, CircuitAdjacency)
    signs = np.sign(dense(adjacency.manifold.D)).ravel()
    width = float(adjacency.mu[0])
    if is_identity(query, len(signs)):
        return _all_entries(adjacency, query, limit, weights, signs, width)
    if query.shape[0] > MOST_RANK:
        return None
    return _few_rows(adjacency, query, limit, weights, tol, signs, width)


def _all_entries(
    adjacency: CircuitAdjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    signs: FloatArray,
    width: float,
) -> SumNoise | None:
    """Equal noise on all that obeys the sum: the variance of an exchange is what decides."""
    from scipy.linalg import helmert

    dual = dual_of_sum(adjacency, weights, False)
    if dual is None or len(signs) > MOST_ENTRIES:
        return None
    basis = signs[:, None] * helmert(len(signs)).T
    root = np.eye(len(signs) - 1) * (math.sqrt(2) * width / limit)
    return SumNoise(basis, root, SCALED, (), LeastProof(dual))


def _few_rows(
    adjacency: CircuitAdjacency,
    query: Matrix,
    limit: float,
    weights: Matrix,
    tol: float,
    signs: FloatArray,
    width: float,
) -> SumNoise | None:
    """Noise for the pairs that are farthest apart, until no other pair is."""
    rows = dense(query) * signs
    rows = rows - rows.mean(axis=1, keepdims=True)
    unit = np.ldexp(1.0, np.frexp(np.abs(rows).max(axis=1))[1])
    unit[~rows.any(axis=1)] = 1.0
    orthonormal = range_basis(rows / unit[:, None])
    if not orthonormal.shape[1]:
        return None
    basis = orthonormal * unit[:, None]
    places = (orthonormal.T @ (rows / unit[:, None])).T * (width / limit)
    weight, floor = with_floor(basis.T @ dense(weights @ basis), np.ptp(places, axis=0))
    ends = zip(places.argmax(axis=0).tolist(), places.argmin(axis=0).tolist())
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in ends)
    metric = np.linalg.inv(np.linalg.cholesky(np.cov(places.T).reshape(2 * (basis.shape[1],))))
    pairs.update(dict.fromkeys(_farthest(places @ metric.T, 3 * basis.shape[1])[1]))
    with Progress("least noise") as progress:
        while True:
            first, second = np.array(list(pairs)).T
            found = least_trace(places[first] - places[second], weight, tol=tol / 4)
            reach, worst = _farthest(places @ np.linalg.inv(found.root).T, 3 * basis.shape[1])
            progress.update(0.0, f"(gap {max(reach**2 - 1, 0.0):.0e})")
            new = [pair for pair in worst if pair not in pairs]
            if reach <= 1 + tol / 4 or not new:
                break
            pairs.update(dict.fromkeys(new))
    gap = max(0.0, found.value * max(reach, 1.0) ** 2 / found.lower_bound - 1)
    notes = (floor_note(floor),) if floor else ()
    proof = None
    if not floor:
        value = found.lower_bound * limit**2 * COORDINATES
        proof = LeastProof(value, _exchanges(first, second, signs * width), found.weights).kept()
    return SumNoise(basis, found.root, gap, notes, proof)


def _farthest(places: FloatArray, count: int) -> tuple[float, list[tuple[int, int]]]:
    """The largest distance, and the pairs that are farthest from the first in each row of them."""
    squares = (places**2).sum(axis=1)
    best: list[tuple[float, int, int]] = []
    step = max(1, CHUNK // len(places))
    for start in range(0, len(places), step):
        part = slice(start, start + step)
        apart = squares[part, None] + squares - 2 * places[part] @ places.T
        other = apart.argmax(axis=1)
        far = apart[np.arange(len(other)), other]
        for row in np.argsort(-far, kind="stable")[: 2 * count].tolist():
            pair = sorted((start + row, int(other[row])))
            best.append((float(far[row]), pair[0], pair[1]))
    best = sorted(set(best), reverse=True)
    pairs = list(dict.fromkeys((i, j) for _, i, j in best))[:count]
    return math.sqrt(max(best[0][0], 0.0)), pairs


def _exchanges(first: FloatArray, second: FloatArray, amounts: FloatArray) -> Matrix:
    """The moves of pairs of entries, one per column."""
    import scipy.sparse as sparse

    count = len(first)
    values = np.concatenate([amounts[first], -amounts[second]])
    place = np.concatenate([first, second]), np.tile(np.arange(count), 2)
    return sparse.csc_array((values, place), shape=(len(amounts), count))
