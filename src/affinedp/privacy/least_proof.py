"""Why no mechanism goes below a bound: moves and shares that prove it, checked on their own.

For shares λ of moves n_k between neighbours, ``Σ λ_k = 1``, and weights ``W = L Lᵀ`` every noise of
sensitivity 1 costs at least ``‖Lᵀ F N diag(√λ)‖_*²`` (the sum of singular values, squared): with
``S = Σ λ_k n_k n_kᵀ`` it has ``tr(Σ⁻¹ S) ≤ 1``, and ``tr(W Σ) tr(Σ⁻¹ S)`` is at least that by
Cauchy and Schwarz.  Any shares will do, so that a file may state them: what they prove is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, Matrix, connected_parts, dense
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.parts import Part
from affinedp.strategies.one_sum import dual_of_sum, is_one_sum

# Rounding of moves and of singular values is far below this share.
ROUNDING = 5e-10
# Moves in a file are those between neighbours up to this share.
SAME = 1e-12
# A support with a second null vector this near to one is no circuit for sure.
SINGULAR = 1e-9
# Shares that together are less than this are left out.
LEFT_OUT = 1e-10
MOST_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class LeastProof(Part):
    """A lower bound on what Gaussian noise of sensitivity 1 costs, and its proof."""

    kind = "least proof"
    # the bound, rounded down
    value: float
    # differences of neighbours; None where the bound is in closed form; shape (n, K)
    moves: Matrix | None = None
    # how much each of them counts; shape (K,)
    shares: FloatArray | None = None
    # for the largest variance: weights of sum 1, whose weighted error it is at least; shape (m,)
    weights: FloatArray | None = None

    def kept(self) -> LeastProof:
        """Return the same bound with the moves that matter, or none if they are too many."""
        import scipy.sparse as sparse

        if self.moves is None or self.shares is None:
            return self
        order = np.argsort(-self.shares, kind="stable")
        left = self.shares.sum() - np.cumsum(self.shares[order])
        count = int(np.searchsorted(-left, -LEFT_OUT * self.shares.sum())) + 1
        chosen = np.sort(order[:count])
        moves = sparse.csc_array(self.moves[:, chosen])
        if moves.nnz > MOST_NUMBERS:
            return LeastProof(self.value, weights=self.weights)
        return LeastProof(self.value, moves, self.shares[chosen], self.weights)


def proven_value(
    proof: LeastProof, adjacency: Adjacency, query: Matrix, weights: Matrix, integers: bool
) -> float:
    """Return the bound that the moves and shares really prove; 0 where they prove none."""
    if proof.moves is None or proof.shares is None:
        known = dual_of_sum(adjacency, weights, integers) if is_one_sum(adjacency, query) else None
        return known or 0.0
    moves, shares = dense(proof.moves), proof.shares
    if moves.shape != (adjacency.manifold.n, len(shares)) or not moves.shape[1]:
        return 0.0
    if not (np.all(np.isfinite(moves)) and np.all(np.isfinite(shares)) and np.all(shares >= 0)):
        return 0.0
    if not shares.sum() > 0 or not all(is_move(adjacency, column) for column in moves.T):
        return 0.0
    image = dense(query @ (moves * np.sqrt(shares)))
    total = 0.0
    for left, right in _blocks(weights, image):
        total += float(np.linalg.svd(left.T @ right, compute_uv=False).sum())
    return total**2 / math.fsum(shares) * (1 - ROUNDING)


def _blocks(weights: Matrix, image: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """A factor L with ``L Lᵀ`` at most W, and the outputs, in parts that have nothing in common."""
    import scipy.sparse as sparse

    reach = sparse.csr_array(sparse.hstack([sparse.csr_array(weights), sparse.csr_array(image)]))
    found = []
    for outputs, columns in connected_parts(reach):
        moved = columns[columns >= len(image)] - len(image)
        if not len(outputs) or not len(moved):
            continue
        part = dense(weights[outputs][:, outputs])
        values, vectors = np.linalg.eigh((part + part.T) / 2)
        # smaller by more than the computed eigenvalues may be off
        low = np.maximum(values - 1e-14 * len(values) * max(values[-1], 0.0), 0.0)
        if np.count_nonzero(part - np.diag(np.diagonal(part))) == 0:
            vectors, low = np.eye(len(part)), np.diagonal(part).clip(min=0.0)
        found.append((vectors * np.sqrt(low), image[np.ix_(outputs, moved)]))
    return found


def is_move(adjacency: Adjacency, move: FloatArray) -> bool:
    """Whether neighbours differ by this vector, up to its rounding; False where that is unclear."""
    equations, size = adjacency.manifold.D, np.abs(move)
    off = np.abs(equations @ move) > SAME * (abs(equations) @ size)
    if not size.any() or np.any(off):
        return False
    if type(adjacency) is CircuitAdjacency:
        return _is_circuit(adjacency, move)
    if type(adjacency) is FreeSetAdjacency:
        small = SAME * size.max()
        moved = [[j for j in entries if size[j] > small] for entries in adjacency.free_sets]
        far = [entries[0] for entries in moved if len(entries) == 1]
        return any(size[j] <= adjacency.mu[j] * (1 + SAME) for j in far)
    listed = adjacency.directions(10**9)
    near = [np.abs(listed - side[:, None]).max(axis=0).min() for side in (move, -move)]
    return bool(min(near) <= SAME * size.max())


def _is_circuit(adjacency: CircuitAdjacency, move: FloatArray) -> bool:
    """Whether the entries that move are tied by one relation only, and move no farther than μ."""
    support = np.flatnonzero(move)
    size, mu = np.abs(move[support]), adjacency.mu[support]
    if not np.any((mu > 0) & (size <= mu * (1 + SAME))):
        return False
    if len(support) == 1:
        return True
    rows = dense(adjacency.manifold.D[:, support]) * size
    largest = np.abs(rows).max(axis=1)
    rows = rows[largest > 0] / largest[largest > 0, None]
    if len(rows) < len(support) - 1:
        return False
    values = np.linalg.svd(rows, compute_uv=False)
    return bool(values[len(support) - 2] > SINGULAR * values[0])
