"""What a file claims about a design, as far as its proof goes: the rest is left out, and said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.arrays import Matrix, is_sparse
from affinedp.neighbours.exact_moves import moves_are_whole, weight_of_three
from affinedp.parts import StorageError
from affinedp.privacy.least_possible import LeastPossible
from affinedp.privacy.least_proof import LeastProof, proven_value
from affinedp.record import MechanismRecord, error_under
from affinedp.strategies.dense import Dense

# What is computed again differs by rounding only.
AGREEMENT = 1e-9
ROUNDING = 1e-13
LEFT_OUT = "as designed it was compared with others; a file does not prove that, so it is left out"


def proved_design(mechanism: MechanismRecord) -> dict[str, Any]:
    """Return what may still be said about a design that was read from a file.

    The bound is computed again from the moves and shares in the file, the error from the noise,
    and the gap from both: an altered file can only prove less.

    Parameters
    ----------
    mechanism : MechanismRecord
        As it was read, with the guarantee that its noise has.
    """
    design = mechanism.design
    least = None if design.least is None else _proved(design.least, mechanism)
    gap = _gap(mechanism, least) if design.gap is not None else None
    notes = design.notes
    dropped = (design.gap is not None and gap is None) or design.alternatives
    if dropped and LEFT_OUT not in notes:
        notes = (*notes, LEFT_OUT)
    return {"least": least, "gap": gap, "alternatives": (), "error": None, "notes": notes}


def _gap(mechanism: MechanismRecord, least: LeastPossible | None) -> float | None:
    """How far the error is from the least of Gaussian noise, which the dual value bounds."""
    if least is None or mechanism.law != "gaussian" or not least.dual > 0:
        return None
    square = mechanism.guarantee.sensitivity**2
    return max(0.0, least.error * square / least.dual - 1) * (1 + AGREEMENT) + ROUNDING


def _proved(claim: LeastPossible, mechanism: MechanismRecord) -> LeastPossible | None:
    """How near to the least possible a mechanism is; None where nothing is proved."""
    if claim.weights is None or not isinstance(mechanism.strategy, Dense):
        return None
    if not mechanism.guarantee.holds(claim.epsilon, claim.delta, AGREEMENT):
        raise StorageError(
            f"the noise does not keep ε = {claim.epsilon:g}, δ = {claim.delta:g}, as is stated"
        )
    weights = _weights(claim, len(mechanism.output_names))
    whole = claim.data == "integer"
    if (whole and not moves_are_whole(mechanism.adjacency)) or (
        claim.data == "real" and mechanism.noise.whole
    ):
        raise StorageError(f"a bound for {claim.data} data does not fit this mechanism")
    query, proof = mechanism.strategy.query, claim.proof or LeastProof(claim.dual)
    value = proven_value(proof, mechanism.adjacency, query, weights, whole)
    if not value > 0.0:
        return None
    three = 0.0
    if claim.objective == "sum" and whole:
        three = weight_of_three(mechanism.adjacency, query, weights)
    error = error_under(mechanism, weights, claim.objective)
    return replace(
        claim, dual=min(claim.dual, value), error=error, sum_of_three=three, weights=weights,
        proof=proof,
    )  # fmt: skip


def _weights(claim: LeastPossible, outputs: int) -> Matrix:
    weights = claim.weights
    assert weights is not None
    if weights.shape != (outputs, outputs):
        raise StorageError("the weights of the bound do not fit the outputs")
    numbers = weights.data if is_sparse(weights) else weights
    if not np.all(np.isfinite(numbers)) or abs(weights - weights.T).max() > 0:
        raise StorageError("the weights of the bound are not symmetric numbers")
    if claim.objective == "largest":
        own = weights.diagonal()
        beside = abs(weights).sum() - np.abs(own).sum()
        if beside != 0 or own.min() < 0 or math.fsum(own) > 1 + ROUNDING:
            raise StorageError("weights that bound the largest variance have a sum of 1")
        weights = weights / (1 + 2 * ROUNDING)
    return weights
