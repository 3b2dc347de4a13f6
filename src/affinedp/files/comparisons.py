"""What a saved mechanism says about the least possible error and about other laws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from affinedp.arrays import Matrix, dense
from affinedp.files.packing import StorageError, packed, unpacked
from affinedp.promise.exact_moves import moves_are_whole, weight_of_three
from affinedp.promise.least_possible import Alternative, LeastPossible
from affinedp.promise.least_proof import LeastProof, proven_value
from affinedp.record import MechanismRecord, error_under

NUMBERS = ("dual", "error", "epsilon", "delta", "sum_of_three")
# What is computed again differs by rounding only.
AGREEMENT = 1e-9
ROUNDING = 1e-13


def least_record(least: LeastPossible | None) -> dict[str, Any] | None:
    """Return what a file says about the least possible error, with its proof.

    Parameters
    ----------
    least : LeastPossible or None
        As the mechanism has it.
    """
    if least is None:
        return None
    proof = least.proof or LeastProof(least.dual)
    return {
        **{name: getattr(least, name) for name in NUMBERS},
        "data": least.data,
        "objective": least.objective,
        "confined": least.confined,
        "weights": None if least.weights is None else packed(least.weights),
        "moves": None if proof.moves is None else packed(proof.moves),
        "shares": None if proof.shares is None else packed(proof.shares),
    }


def checked_least(record: Any, mechanism: MechanismRecord) -> LeastPossible | None:
    """Return how near to the least possible the mechanism of a file is, as far as it is proved.

    Error and bound are computed again, the bound from the moves and shares in the file: an altered
    file can only prove less.  None where nothing is proved, as in files of older versions.

    Parameters
    ----------
    record : mapping or None
        As it stands in the file.
    mechanism : MechanismRecord
        As it was read, with the guarantee that its noise has.
    """
    if record is None or record.get("weights") is None:  # also older files
        return None
    epsilon, delta, stated = (float(record[name]) for name in ("epsilon", "delta", "dual"))
    data, objective, confined = record["data"], record["objective"], record["confined"]
    if not _holds(mechanism, epsilon, delta):
        raise StorageError(f"the noise does not keep ε = {epsilon:g}, δ = {delta:g}, as is stated")
    weights = _weights(record, mechanism, objective)
    if (data == "integer" and not moves_are_whole(mechanism.adjacency)) or (
        data == "real" and mechanism.integers
    ):
        raise StorageError(f"a bound for {data} data does not fit this mechanism")
    proof = _proof(record, mechanism)
    value = proven_value(proof, mechanism.adjacency, mechanism.query, weights, data == "integer")
    if not value > 0.0:
        return None
    three = 0.0
    if objective == "sum" and data == "integer":
        three = weight_of_three(mechanism.adjacency, mechanism.query, weights)
    error = error_under(mechanism, weights, objective)
    return LeastPossible(
        min(stated, value), error, epsilon, delta, data, objective, confined, three, weights, proof
    )


def _holds(mechanism: MechanismRecord, epsilon: float, delta: float) -> bool:
    """Whether the promise that is compared is one that the noise keeps, up to rounding."""
    if not (0 <= epsilon < math.inf and 0 <= delta < 1):
        return False
    return mechanism.guarantee.holds(epsilon, delta, AGREEMENT)


def _weights(record: Mapping[str, Any], mechanism: MechanismRecord, objective: str) -> Matrix:
    outputs = len(mechanism.output_names)
    weights = unpacked(record["weights"], max(outputs, 1))
    if weights.shape != (outputs, outputs):
        raise StorageError("the weights of the bound do not fit the outputs")
    numbers = weights.data if hasattr(weights, "tocoo") else weights
    if not np.all(np.isfinite(numbers)) or abs(weights - weights.T).max() > 0:
        raise StorageError("the weights of the bound are not symmetric numbers")
    if objective == "largest":
        own = weights.diagonal()
        beside = abs(weights).sum() - np.abs(own).sum()
        if beside != 0 or own.min() < 0 or math.fsum(own) > 1 + ROUNDING:
            raise StorageError("weights that bound the largest variance have a sum of 1")
        weights = weights / (1 + 2 * ROUNDING)
    return weights


def _proof(record: Mapping[str, Any], mechanism: MechanismRecord) -> LeastProof:
    stated = float(record["dual"])
    if record["moves"] is None or record["shares"] is None:
        return LeastProof(stated)
    moves = unpacked(record["moves"], mechanism.manifold.n)
    return LeastProof(stated, moves, np.asarray(dense(unpacked(record["shares"])).ravel()))


def checked_alternatives(records: Any) -> tuple[Alternative, ...]:
    """Return the other laws that a file lists.

    Parameters
    ----------
    records : list of mappings
        As they stand in the file.
    """
    found = []
    for record in records:
        error = float(record["error"])
        if not 0 <= error < math.inf or type(record["designed"]) is not bool:
            raise StorageError(f"the error of another law cannot be {error}")
        found.append(
            Alternative(str(record["law"]), error, record["designed"], str(record["reason"]))
        )
    return tuple(found)
