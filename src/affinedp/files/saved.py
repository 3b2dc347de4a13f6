"""Parts on disk: one JSON document, read with limits and never believed.

What a file claims about a design is said only as far as its proof goes; the rest is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from affinedp.arrays import Matrix, is_sparse
from affinedp.errors import AffineDPError
from affinedp.files import documents, writing
from affinedp.files.values import check_texts
from affinedp.neighbours.whole import moves_are_whole, weight_of_three
from affinedp.parts import Part, StorageError, restored
from affinedp.privacy.design import LeastPossible, LeastProof, compares, proven_value
from affinedp.record import MechanismRecord, error_under
from affinedp.strategies.matrices import Matrices

MOST_BYTES = 1_000_000_000  # nearly all of it base64, which takes about as much memory again
MOST_VALUES = 5_000_000
# What is computed again differs by rounding only.
AGREEMENT = 1e-9
ROUNDING = 1e-13
SENT = (
    "what is sent with these sensors is stated by the file; control.noise_by_time and the gateway "
    "compute it again"
)
LEFT_OUT = "as designed it was compared with others; a file does not prove that, so it is left out"

Kind = TypeVar("Kind", bound=Part)


def file_path(path: Any) -> Path:
    """Return the name of a file as a path, or refuse what is none."""
    try:
        return Path(path)
    except TypeError:
        raise AffineDPError(f"path must name a file, and is {type(path).__name__}") from None


def write_saved(path: Path, form: str, part: Part, stated: Mapping[str, Any]) -> None:
    """Write a part and what is stated about it, at once or not at all."""
    document = {"format": form, "stated": dict(stated), "saved": part.record()}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    check_texts(document, text)
    try:
        writing.write_text(path, text)
    except AffineDPError as error:
        raise StorageError(str(error)) from None


def read_saved(path: Path, form: str, wanted: type[Kind]) -> tuple[Kind, Mapping[str, Any]]:
    """Return the part that a file holds, and what the file states about it."""
    document = parsed(path)
    found = document.get("format")
    if found != form:
        name = str(found)[:60]
        hint = ", an older version: design it again, and save it" if "mechanism" in name else ""
        raise StorageError(f"{path.name} is not a file of the kind {form!r}, but {name!r}{hint}")
    stated = document.get("stated")
    if not isinstance(stated, dict):
        raise StorageError(f"{path.name} does not state what it holds")
    with refusals(path):
        return restored(document.get("saved"), wanted), stated


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with the content of a file into a refusal that names the file."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{path.name}: {error}") from None
    except AffineDPError as error:
        raise StorageError(f"{path.name} does not describe a mechanism: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise StorageError(
            f"{path.name} does not describe a mechanism ({type(error).__name__}: {error})"
        ) from None
    except (MemoryError, RecursionError):
        raise StorageError(f"{path.name} describes more than the memory holds") from None


def parsed(path: Path) -> Mapping[str, Any]:
    """Return the JSON document of a file, within the limits that every reader keeps."""
    try:
        text = documents.read_bytes(path, "it", MOST_BYTES).decode("utf-8")
        return documents.parsed(text, ".json", MOST_VALUES)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StorageError(f"{path.name} is not a mechanism: it is not text") from None
    except AffineDPError as error:
        raise StorageError(f"{path.name} is not a mechanism: {error}") from None


def proved_design(mechanism: MechanismRecord) -> dict[str, Any]:
    """Return what may still be said about a design that was read from a file.

    The bound is computed again from the moves and shares in the file, the error from the noise,
    and the gap from both: an altered file can only prove less.
    """
    design = mechanism.design
    least = None if design.least is None else _proved(design.least, mechanism)
    gap = _gap(mechanism, least) if design.gap is not None else None
    notes = tuple(note for note in design.notes if not compares(note))
    dropped = (design.gap is not None and gap is None) or design.alternatives
    if (dropped or notes != design.notes) and LEFT_OUT not in notes:
        notes = (*notes, LEFT_OUT)
    if design.sent is not None and SENT not in notes:
        notes = (*notes, SENT)
    return {"least": least, "gap": gap, "alternatives": (), "error": None, "notes": notes}


def _gap(mechanism: MechanismRecord, least: LeastPossible | None) -> float | None:
    """How far the error is from the least of Gaussian noise, which the dual value bounds."""
    if least is None or mechanism.law != "gaussian" or not least.dual > 0:
        return None
    square = mechanism.guarantee.sensitivity**2
    return max(0.0, least.error * square / least.dual - 1) * (1 + AGREEMENT) + ROUNDING


def _proved(claim: LeastPossible, mechanism: MechanismRecord) -> LeastPossible | None:
    """How near to the least possible a mechanism is; None where nothing is proved."""
    if claim.weights is None or not isinstance(mechanism.strategy, Matrices):
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
