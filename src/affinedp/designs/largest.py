"""Gaussian noise whose largest variance is the least, certified through weights.

For weights q ≥ 0 of sum 1 the largest variance is at least the weighted one, so the certified least
weighted trace is a lower bound.  At the optimum the weights sit on outputs with equal variances:
weights grow where the variance is above the average, until bound and variance meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.designs.bounds import COORDINATES
from affinedp.designs.fit import at_the_limit
from affinedp.designs.gaussian import LeastGaussian
from affinedp.designs.least_trace import least_trace
from affinedp.designs.separate import NOTHING_TO_HIDE, Block, together
from affinedp.errors import AffineDPError
from affinedp.mechanism import build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.privacy.design import LeastProof
from affinedp.progress import Progress

ROUNDS = 120
STEP = 0.7
# Weights smaller than this share of the largest are kept there: the problem stays well posed.
SMALLEST = 1e-7


@dataclass(frozen=True)
class LeastLargest:
    """The design, and the weights that prove it."""

    found: LeastGaussian  # the noise; its dual value bounds the largest variance at sensitivity 1
    # one per output; those of a block sum to 1, and 0 where nothing moves; shape (m,)
    weights: FloatArray


def least_largest(
    adjacency: Adjacency,
    query: Matrix,
    names: tuple[str, ...],
    limit: float,
    blocks: list[Block],
    tol: float = 1e-4,
) -> LeastLargest:
    """Return the Gaussian noise of least largest variance whose sensitivity is ``limit``."""
    if not blocks:
        raise AffineDPError(NOTHING_TO_HIDE)
    solved: dict[str, _Balanced] = {}
    with Progress("least largest variance") as progress:
        for i, block in enumerate(blocks):
            if block.key not in solved:
                solved[block.key] = _balance(block, limit, tol)
            progress.update((i + 1) / len(blocks))
    found = [solved[block.key] for block in blocks]
    weights = np.zeros(query.shape[0])
    for block, one in zip(blocks, found):
        weights[block.outputs] = one.weights
    basis, root = together(blocks, [one.root for one in found], query.shape[0])
    worst = max(range(len(found)), key=lambda i: found[i].bound)
    bound = found[worst].bound
    alone = np.zeros(query.shape[0])
    alone[blocks[worst].outputs] = found[worst].weights
    proof = LeastProof(
        bound * limit**2 * COORDINATES, blocks[worst].moves, found[worst].shares, alone
    ).kept()
    gap = max(0.0, max(one.largest for one in found) / bound - 1)
    mechanism = at_the_limit(
        build(adjacency, query, basis, root, "gaussian", names, gap=gap), limit
    )
    return LeastLargest(LeastGaussian(mechanism, proof), weights)


@dataclass(frozen=True)
class _Balanced:
    root: FloatArray
    weights: FloatArray
    shares: FloatArray
    bound: float
    largest: float


def _balance(block: Block, limit: float, tol: float) -> _Balanced:
    """Weights on the outputs of one block until all that count have equal variances."""
    moved = np.abs(block.basis).max(axis=1) > 0
    weights = np.where(moved, 1.0, 0.0) / moved.sum()
    bound, best = 0.0, None
    for _ in range(ROUNDS):
        cost = block.basis.T @ (weights[:, None] * block.basis)
        one = least_trace(block.directions / limit, (cost + cost.T) / 2, tol=tol / 10)
        variances = ((block.basis @ one.root) ** 2).sum(axis=1)
        largest = float(variances.max()) * (1 + 1e-13)
        lower = one.lower_bound / float(weights.sum()) * (1 - 1e-14)
        proof = (weights, one.weights)
        if best is not None and lower <= bound:
            proof = (best.weights, best.shares)
        bound = max(bound, lower)
        if best is None or largest < best.largest:
            best = _Balanced(one.root, *proof, bound, largest)
        best = _Balanced(best.root, *proof, bound, best.largest)
        if best.largest <= bound * (1 + tol):
            break
        weights = weights * (variances / float(weights @ variances)) ** STEP
        weights = np.where(moved, np.maximum(weights, SMALLEST * weights.max()), 0.0)
        weights /= weights.sum()
    assert best is not None
    return best
