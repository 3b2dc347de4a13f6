"""Mechanisms on disk: versioned JSON with hashed arrays, verified again when read.

Nothing in the file is executed.  Arrays are little-endian float64 in base64 with a SHA-256
hash, so that a damaged file is noticed; that the noise keeps the promise is computed again
from the noise, so that an altered one is too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.files import documents, writing
from affinedp.files.comparisons import checked_alternatives, checked_least, least_record
from affinedp.files.packing import packed as packed
from affinedp.files.packing import product
from affinedp.files.packing import unpacked as unpacked
from affinedp.files.values import shown
from affinedp.files.visible import check_names, check_texts
from affinedp.laws.base import Law
from affinedp.laws.named import law_named
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import StorageError as StorageError
from affinedp.parts import restored
from affinedp.promise.asked import Asked
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.knorm import knorm_promise, neighbours_key_of, neighbours_of
from affinedp.promise.verification import promise_of
from affinedp.promise.without_list import certified_promise
from affinedp.record import MechanismRecord

Kind = TypeVar("Kind", bound=MechanismRecord)

FORMAT = "affinedp mechanism"
TRAJECTORY_FORMAT = "affinedp trajectory mechanism"
STATIONARY_FORMAT = "affinedp stationary mechanism"
STRUCTURED_FORMAT = "affinedp structured mechanism"
VERSION = 1
MOST_BYTES = 1_000_000_000  # nearly all of it base64, which takes about as much memory again
MOST_VALUES = 5_000_000
# A guarantee that is computed again differs by rounding only.
AGREEMENT = 1e-9


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
    for names in (mechanism.manifold.names, mechanism.output_names):
        check_names(names, f"{path.name} is not written")
    document = {
        "format": FORMAT,
        "version": VERSION,
        "adjacency": mechanism.adjacency.record(),
        "law": mechanism.law,
        "outputs": list(mechanism.output_names),
        "query": packed(mechanism.query),
        "basis": packed(mechanism.basis),
        "root": packed(mechanism.root),
        "certificate": None if mechanism.certificate is None else packed(mechanism.certificate),
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "least": least_record(mechanism.least),
        "alternatives": [asdict(other) for other in mechanism.alternatives],
        "guarantee": {
            "sensitivity": guarantee.sensitivity,
            "exact": guarantee.exact,
            "neighbours": guarantee.neighbours,
            "basis": guarantee.basis,
            "method": guarantee.method,
            "asked": asked_record(guarantee),
        },
    }
    if mechanism.noise.size is not None:
        document |= {"rate": mechanism.rate, "integers": mechanism.integers}
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
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise StorageError(
            f"{path.name} does not describe a mechanism ({type(error).__name__}: {error})"
        ) from None
    except MemoryError:
        raise StorageError(f"{path.name} describes more than the memory holds") from None


def _restore(kind: type[Kind], document: Mapping[str, Any], reverify: bool) -> Kind:
    adjacency = restored(document["adjacency"], Adjacency)
    manifold = adjacency.manifold
    check_names(manifold.names, "names")
    names = _names(document["outputs"], "outputs")
    most = max(len(names), manifold.n)
    query, basis, root = (unpacked(document[key], most) for key in ("query", "basis", "root"))
    law = document["law"]
    stated_rate = law_named(law).norm is None
    rate, integers = _rate(document) if stated_rate else (1.0, False)
    outputs = len(names)
    if query.shape != (outputs, manifold.n) or basis.shape[0] != outputs:
        raise StorageError("the query and the noise do not fit the names of the outputs")
    if basis.ndim != 2 or root.ndim != 2 or root.shape[0] != basis.shape[1]:
        raise StorageError("the noise matrices do not fit together")
    weights = document["certificate"]
    certificate = None if weights is None else unpacked(weights)
    noise = law_named(law).of_root(root, rate, integers)
    stated = document["guarantee"]
    sensitivity = float(stated["sensitivity"])
    if not reverify:
        guarantee = promise_on_trust(adjacency, noise, names, stated)
    elif certificate is not None:
        if law != "gaussian":
            raise StorageError("a certificate proves Gaussian noise only")
        guarantee = certified_promise(adjacency, product(basis, root), query, names, certificate)
    elif noise.size is not None:
        guarantee = knorm_promise(adjacency, query, basis, noise, names)
    else:
        guarantee = promise_of(adjacency, product(basis, root), query, law, names)
    check_stated(sensitivity, guarantee)
    guarantee = with_asked(guarantee, stated)
    gap = checked_gap(document["gap"])
    notes = tuple(str(note) for note in document["notes"])
    found = kind(
        adjacency, query, basis, root, law, guarantee, names,
        gap, notes, certificate, rate, integers, None,
        checked_alternatives(document.get("alternatives", [])),
    )  # fmt: skip
    return replace(found, least=checked_least(document.get("least"), found))


def _rate(document: Mapping[str, Any]) -> tuple[float, bool]:
    """The rate of K-norm noise, and whether it is for whole numbers."""
    rate, integers = document["rate"], document["integers"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < np.inf:
        raise StorageError(f"a rate of {shown(rate)} is not possible")
    if not isinstance(integers, bool):
        raise StorageError("integers must be true or false")
    return float(rate), integers


def check_stated(sensitivity: float, guarantee: Guarantee) -> None:
    """Refuse a file whose noise promises less than the file says.

    Parameters
    ----------
    sensitivity : float
        What the file states.
    guarantee : Guarantee
        What its noise gives.
    """
    if not guarantee.sensitivity <= sensitivity * (1 + AGREEMENT):
        raise StorageError(
            f"the file states a sensitivity of {sensitivity!r}, but its noise gives "
            f"{guarantee.sensitivity!r}: the file was altered, or made by something else"
        )


def asked_record(guarantee: Guarantee) -> dict[str, Any] | None:
    """Return what was asked for, as plain values."""
    return None if guarantee.asked is None else guarantee.asked.record()


def with_asked(guarantee: Guarantee, stated: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee with what the file says was asked for, if its noise keeps that.

    Parameters
    ----------
    guarantee : Guarantee
        What the noise gives.
    stated : mapping
        What the file says about its promise; older files do not say what was asked for.
    """
    return guarantee.asked_for(Asked.read(stated.get("asked")))


def checked_gap(gap: Any) -> float | None:
    """Return the gap that a file states, which is possible at least.

    Parameters
    ----------
    gap : float or None
        As it stands in the file.
    """
    if gap is None:
        return None
    if not 0 <= float(gap) < np.inf:
        raise StorageError(f"a gap of {gap} is not possible")
    return float(gap)


def promise_on_trust(
    adjacency: Adjacency,
    law: Law,
    names: tuple[str, ...],
    stated: Mapping[str, Any],
) -> Guarantee:
    """Return the guarantee that a file states, marked as not verified here."""
    sensitivity = float(stated["sensitivity"])
    if not sensitivity >= 0:
        raise StorageError("the stated sensitivity is not a number")
    guarantee = Guarantee(
        law=law.kind,
        sensitivity=sensitivity,
        exact=False,
        neighbours=neighbours_of(adjacency, law.whole),
        basis=str(stated["basis"]),
        curve=law.curve(sensitivity),
        names=adjacency.manifold.names,
        output_names=names,
        method=str(stated["method"]),
        neighbours_key=neighbours_key_of(adjacency, law.whole),
        unit=adjacency.unit,
    )
    warning = "read from a file and NOT verified again: it is as good as the file"
    return replace(guarantee, warnings=(warning,))


def _names(record: Any, where: str) -> tuple[str, ...]:
    if not isinstance(record, list) or not all(isinstance(name, str) for name in record):
        raise StorageError(f"{where} must be a list of texts")
    check_names(record, where)
    return tuple(record)


# ---------------------------------------------------------------------- files


def format_of(path: Path) -> str:
    """Return what a file says it is, or an empty text.

    Parameters
    ----------
    path : Path
        A file with a mechanism of some kind.
    """
    return str(_parsed(path).get("format", ""))


def write_text(path: Path, text: str) -> None:
    """Write a text at once or not at all.

    Parameters
    ----------
    path : Path
        Where to.
    text : str
        What.
    """
    try:
        writing.write_text(path, text)
    except AffineDPError as error:
        raise StorageError(str(error)) from None


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        text = documents.read_bytes(path, "it", MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StorageError(f"{path.name} is not a mechanism: it is not text") from None
    except AffineDPError as error:
        raise StorageError(f"{path.name} is not a mechanism: {error}") from None
    try:
        documents.check_values(text, MOST_VALUES)
        document = documents.from_json(text)
        check_texts(document, text)
    except AffineDPError as error:
        raise StorageError(f"{path.name} is not a mechanism: {error}") from None
    except (ValueError, RecursionError):
        raise StorageError(f"{path.name} is not a mechanism, or only a part of one") from None
    if not isinstance(document, dict):
        raise StorageError(f"{path.name} is not a mechanism")
    return document


def read_document(path: Path, form: str = FORMAT) -> Mapping[str, Any]:
    """Read a file of a format that is known here, as far as its format and version."""
    document = _parsed(path)
    if document.get("format") != form:
        other = {
            TRAJECTORY_FORMAT: "TrajectoryMechanism.load",
            STATIONARY_FORMAT: "StationaryMechanism.load",
            STRUCTURED_FORMAT: "load_structured",
            FORMAT: "Mechanism.load",
        }
        reader = other.get(str(document.get("format")))
        hint = f", but something that {reader} reads" if reader else ""
        raise StorageError(f"{path.name} is not a file of the kind {form!r}{hint}")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise StorageError(f"{path.name} has no version of the format: {shown(version)}")
    if version > VERSION:
        raise StorageError(
            f"{path.name} has version {shown(version)} of the format, this affinedp knows "
            f"{VERSION}: install a newer affinedp"
        )
    return document
