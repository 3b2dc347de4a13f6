"""What no mechanism of any law can go below, and Gaussian noise that attains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from affinedp.arrays import Matrix
from affinedp.designs.fit import Candidate
from affinedp.designs.least_trace import LeastTrace, least_trace
from affinedp.designs.separate import Block, with_floor
from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.whole import weight_of_three
from affinedp.privacy.design import Design, LeastPossible, LeastProof, Objective
from affinedp.privacy.least_error import Data
from affinedp.record import MechanismRecord, error_under
from affinedp.strategies.dense import Dense

Kind = TypeVar("Kind", bound=MechanismRecord)

# Coordinates of a block are off by some roundings; this much covers them with ease.
COORDINATES = 1 - 1e-9
# How exact the bound needs to be where it is computed for its own sake.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class LeastGaussian:
    """The least Gaussian noise ``basis @ root`` at a sensitivity, by floats."""

    basis: Matrix
    root: Matrix
    # what Gaussian noise costs at least at sensitivity 1; None where nothing is certified
    dual: LeastProof | None
    gap: float  # how far from the least it may be
    notes: tuple[str, ...] = ()  # what a reader should know

    def candidate(
        self, adjacency: Adjacency, query: Matrix, names: tuple[str, ...], limit: float
    ) -> Candidate:
        """Return the noise, to be verified at that sensitivity."""
        strategy = Dense(adjacency.manifold, query, self.basis, names, self.root)
        design = Design(gap=self.gap, notes=self.notes)
        return Candidate(Mechanism(adjacency, strategy, Gaussian(), design=design), limit)


def proof_of(
    blocks: list[Block], solved: Mapping[str, LeastTrace], unit: float = 1.0
) -> LeastProof:
    """Return the bound that the blocks have together, with its proof."""
    import scipy.sparse as sparse

    value = sum(solved[block.key].lower_bound for block in blocks)
    # blocks that cost more count for more: then the proof of all is as good as that of each
    shares = [
        solved[block.key].weights * (solved[block.key].lower_bound / value) for block in blocks
    ]
    moves = sparse.csc_array(sparse.hstack([block.moves for block in blocks]))
    return LeastProof(value * unit**2 * COORDINATES, moves, np.concatenate(shares)).kept()


def dual_value(
    blocks: list[Block], solved: dict[str, LeastTrace] | None = None, tol: float = TOLERANCE
) -> LeastProof | None:
    """Return a lower bound on the least cost of Gaussian noise at sensitivity 1, or None.

    There is none where the weights leave a combination free, or where double precision cannot
    certify it.  What it takes, block by block, is added to ``solved``.
    """
    solved = {} if solved is None else solved
    try:
        for block in blocks:
            if block.key not in solved:
                floored, floor = with_floor(block.weight, np.abs(block.directions).max(axis=0))
                if floor:
                    return None
                solved[block.key] = least_trace(block.directions, floored, tol=tol)
    except AffineDPError:
        return None
    return proof_of(blocks, solved) if blocks else None


def with_least(
    mechanism: Kind,
    weights: Matrix,
    proof: LeastProof | None,
    epsilon: float,
    delta: float = 0.0,
    *,
    data: Data = "any",
    objective: Objective = "sum",
) -> Kind:
    """Return the mechanism with the bound that belongs to its promise, if there is one."""
    if proof is None:
        return mechanism
    import scipy.sparse as sparse

    if proof.weights is not None:
        weights = sparse.csr_array(sparse.diags_array(proof.weights))
    three = 0.0
    if objective == "sum" and data == "integer":
        three = weight_of_three(mechanism.adjacency, mechanism.dense.query, weights)
    least = LeastPossible(
        proof.value, error_under(mechanism, weights, objective), float(epsilon), float(delta),
        data, objective, three, weights, proof,
    )  # fmt: skip
    return mechanism.with_design(least=least)
