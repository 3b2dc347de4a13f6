"""Mechanisms on disk: versioned JSON with hashed arrays, verified again when read.

Nothing in the file is executed.  Arrays are little-endian float64 in base64 with a SHA-256
hash, so that a damaged file is noticed; that the noise keeps the promise is computed again
from the noise, so that an altered one is too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.equations.manifold import AffineManifold
from affinedp.equations.text import LinearEquations
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency, DirectionAdjacency, FreeSetAdjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.curves import GaussianCurve, LaplaceCurve
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import promise_of
from affinedp.promise.without_list import certified_promise
from affinedp.record import MechanismRecord

Kind = TypeVar("Kind", bound=MechanismRecord)

FORMAT = "affinedp mechanism"
TRAJECTORY_FORMAT = "affinedp trajectory mechanism"
VERSION = 1
MOST_BYTES = 2_000_000_000
MOST_NUMBERS = 200_000_000
# A guarantee that is computed again differs by rounding only.
AGREEMENT = 1e-9


class StorageError(AffineDPError):
    """A mechanism file that cannot be trusted."""


def save_mechanism(mechanism: MechanismRecord, path: Path) -> None:
    """Write a mechanism; an existing file is replaced at once or not at all.

    Parameters
    ----------
    mechanism : MechanismRecord
        What to write.
    path : Path
        Where to.
    """
    guarantee = mechanism.guarantee
    document = {
        "format": FORMAT,
        "version": VERSION,
        "manifold": _manifold_record(mechanism.manifold),
        "adjacency": _adjacency_record(mechanism.adjacency),
        "law": mechanism.law,
        "outputs": list(mechanism.output_names),
        "query": packed(mechanism.query),
        "basis": packed(mechanism.basis),
        "root": packed(mechanism.root),
        "certificate": None if mechanism.certificate is None else packed(mechanism.certificate),
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "guarantee": {
            "sensitivity": guarantee.sensitivity,
            "exact": guarantee.exact,
            "neighbours": guarantee.neighbours,
            "basis": guarantee.basis,
            "method": guarantee.method,
        },
    }
    write_text(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def load_mechanism(kind: type[Kind], path: Path, reverify: bool) -> Kind:
    """Read a mechanism; see :meth:`Mechanism.load`.

    Parameters
    ----------
    kind : type
        The record, or a class with more conveniences.
    path : Path
        What :func:`save_mechanism` wrote.
    reverify : bool
        Compute the guarantee again from the noise.
    """
    document = read_document(path)
    with refusals(path):
        return _restore(kind, document, reverify)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with the content of a file into a refusal that names the file."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{path.name}: {error}") from None
    except AffineDPError as error:
        raise StorageError(f"{path.name} does not describe a mechanism: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise StorageError(
            f"{path.name} does not describe a mechanism ({type(error).__name__}: {error})"
        ) from None


def _restore(kind: type[Kind], document: Mapping[str, Any], reverify: bool) -> Kind:
    manifold = _manifold(document["manifold"])
    adjacency = _adjacency(document["adjacency"], manifold)
    query, basis, root = (unpacked(document[key]) for key in ("query", "basis", "root"))
    names = tuple(document["outputs"])
    law = document["law"]
    if law not in ("gaussian", "laplace"):
        raise StorageError(f"the law {law!r} is not known")
    outputs = len(names)
    if query.shape != (outputs, manifold.n) or basis.shape[0] != outputs:
        raise StorageError("the query and the noise do not fit the names of the outputs")
    if root.shape[0] != basis.shape[1] or not all(isinstance(name, str) for name in names):
        raise StorageError("the noise matrices do not fit together")
    weights = document["certificate"]
    certificate = None if weights is None else unpacked(weights)
    stated = document["guarantee"]
    sensitivity = float(stated["sensitivity"])
    if not reverify:
        guarantee = promise_on_trust(adjacency, law, names, stated)
    elif certificate is not None:
        if law != "gaussian":
            raise StorageError("a certificate proves Gaussian noise only")
        guarantee = certified_promise(adjacency, basis @ root, query, names, certificate)
    else:
        guarantee = promise_of(adjacency, basis @ root, query, law, names)
    if reverify and not guarantee.sensitivity <= sensitivity * (1 + AGREEMENT):
        raise StorageError(
            f"the file states a sensitivity of {sensitivity!r}, but its noise gives "
            f"{guarantee.sensitivity!r}: the file was altered, or made by something else"
        )
    gap = document["gap"]
    if gap is not None and not 0 <= float(gap) < np.inf:
        raise StorageError(f"a gap of {gap} is not possible")
    notes = tuple(str(note) for note in document["notes"])
    return kind(
        adjacency, query, basis, root, law, guarantee, names,
        None if gap is None else float(gap), notes, certificate,
    )  # fmt: skip


def promise_on_trust(
    adjacency: Adjacency, law: str, names: tuple[str, ...], stated: Mapping[str, Any]
) -> Guarantee:
    """Return the guarantee that a file states, marked as not verified here."""
    sensitivity = float(stated["sensitivity"])
    if not sensitivity >= 0:
        raise StorageError("the stated sensitivity is not a number")
    curve = GaussianCurve(sensitivity) if law == "gaussian" else LaplaceCurve(sensitivity)
    guarantee = Guarantee(
        law=law,
        sensitivity=sensitivity,
        exact=False,
        neighbours=adjacency.neighbours,
        basis=str(stated["basis"]),
        curve=curve,
        names=adjacency.manifold.names,
        output_names=names,
        method=str(stated["method"]),
        neighbours_key=adjacency.key,
    )
    warning = "read from a file and NOT verified again: it is as good as the file"
    return replace(guarantee, warnings=(warning,))


# ---------------------------------------------------------------------- manifold, adjacency


def _manifold_record(manifold: AffineManifold) -> dict[str, Any]:
    record: dict[str, Any] = {"names": list(manifold.names), "b": packed(manifold.b)}
    if manifold.exact_rows is None:
        record["D"] = packed(manifold.D)
        record["rank_tolerance"] = manifold.rank_tolerance
    else:
        record["rows"] = [{str(j): str(v) for j, v in row.items()} for row in manifold.exact_rows]
        record["sparse"] = is_sparse(manifold.D)
    return record


def _manifold(record: Mapping[str, Any]) -> AffineManifold:
    names, offsets = list(record["names"]), unpacked(record["b"])
    if "D" in record:
        tolerance = float(record["rank_tolerance"]) or None
        return AffineManifold(unpacked(record["D"]), offsets, names, "allow", tolerance)
    rows = tuple({int(j): Fraction(v) for j, v in row.items()} for row in record["rows"])
    exact = LinearEquations(tuple(names), rows, tuple(Fraction(float(value)) for value in offsets))
    return AffineManifold.from_equations(exact, public_entries="allow")


def _adjacency_record(adjacency: Adjacency) -> dict[str, Any]:
    if isinstance(adjacency, CircuitAdjacency):
        return {"kind": "circuits", "mu": packed(adjacency.mu)}
    if isinstance(adjacency, FreeSetAdjacency):
        sets = [list(entries) for entries in adjacency.free_sets]
        return {"kind": "free sets", "sets": sets, "mu": packed(adjacency.mu)}
    if isinstance(adjacency, DirectionAdjacency):
        return {"kind": "directions", "directions": packed(adjacency.directions(10**9))}
    raise AffineDPError(f"an adjacency of type {type(adjacency).__name__} cannot be saved")


def _adjacency(record: Mapping[str, Any], manifold: AffineManifold) -> Adjacency:
    kind = record["kind"]
    if kind == "circuits":
        return CircuitAdjacency(manifold, unpacked(record["mu"]))
    if kind == "free sets":
        return FreeSetAdjacency(manifold, record["sets"], unpacked(record["mu"]))
    if kind == "directions":
        return DirectionAdjacency(manifold, unpacked(record["directions"]))
    raise StorageError(f"neighbours of the kind {kind!r} are not known")


# ---------------------------------------------------------------------- arrays


def packed(array: Matrix) -> dict[str, Any]:
    """Shape, data and hash of a dense or sparse array."""
    if is_sparse(array):
        entries = array.tocoo()
        data = np.stack([entries.row, entries.col, entries.data])
        return {"shape": list(array.shape), "sparse": True, **_encoded(data)}
    return {"shape": list(np.shape(array)), "sparse": False, **_encoded(np.asarray(array))}


def _encoded(array: FloatArray) -> dict[str, str]:
    raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"data": base64.b64encode(raw).decode(), "sha256": hashlib.sha256(raw).hexdigest()}


def unpacked(record: Mapping[str, Any]) -> Any:
    """Return the array of a record, checked against its hash."""
    shape = tuple(int(size) for size in record["shape"])
    if any(size < 0 for size in shape) or len(shape) > 2:
        raise StorageError(f"an array of shape {shape} is not possible")
    try:
        raw = base64.b64decode(record["data"], validate=True)
    except (binascii.Error, ValueError):
        raise StorageError("an array is not valid base64") from None
    if hashlib.sha256(raw).hexdigest() != record["sha256"]:
        raise StorageError("an array does not match its hash: the file is damaged")
    values = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    if not np.all(np.isfinite(values)):
        raise StorageError("an array holds numbers that are not finite")
    if not record["sparse"]:
        if int(np.prod(shape)) != len(values):
            raise StorageError(f"an array of shape {shape} cannot have {len(values)} numbers")
        return values.reshape(shape)
    import scipy.sparse as sparse

    if len(shape) != 2 or max(shape) > MOST_NUMBERS or len(values) % 3:
        raise StorageError(f"a sparse array of shape {shape} is not possible")
    row, column, data = values.reshape(3, -1)
    return sparse.csr_array((data, (row.astype(np.int64), column.astype(np.int64))), shape=shape)


# ---------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    """Write to a file beside it and move that into place, so that no half file is left."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def format_of(path: Path) -> str:
    """Return what a file says it is, or an empty text.

    Parameters
    ----------
    path : Path
        A file with a mechanism of some kind.
    """
    return str(_parsed(path).get("format", ""))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise StorageError(f"{path.name} is too large to be a mechanism")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StorageError(f"{path.name} is not a mechanism: it is not text") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise StorageError(f"{path.name} is not a mechanism, or only a part of one") from None
    if not isinstance(document, dict):
        raise StorageError(f"{path.name} is not a mechanism")
    return document


def read_document(path: Path, form: str = FORMAT) -> Mapping[str, Any]:
    """Read a file of a format that is known here, as far as its format and version."""
    document = _parsed(path)
    if document.get("format") != form:
        other = {TRAJECTORY_FORMAT: "TrajectoryMechanism.load", FORMAT: "Mechanism.load"}
        reader = other.get(str(document.get("format")))
        hint = f", but something that {reader} reads" if reader else ""
        raise StorageError(f"{path.name} is not a file of the kind {form!r}{hint}")
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise StorageError(
            f"{path.name} has version {version!r} of the format, this affinedp knows {VERSION}: "
            "install a newer affinedp"
        )
    return document
