"""Documents of mechanisms that have a class of their own: format, version, what they state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.files import documents, writing
from affinedp.files.packing import packed as packed
from affinedp.files.packing import unpacked as unpacked
from affinedp.files.values import shown
from affinedp.files.visible import check_texts
from affinedp.parts import StorageError as StorageError
from affinedp.promise.asked import Asked
from affinedp.promise.guarantee import Guarantee

FORMAT = "affinedp mechanism 2"
TRAJECTORY_FORMAT = "affinedp trajectory mechanism"
STATIONARY_FORMAT = "affinedp stationary mechanism"
STRUCTURED_FORMAT = "affinedp structured mechanism"
VERSION = 1
MOST_BYTES = 1_000_000_000  # nearly all of it base64, which takes about as much memory again
MOST_VALUES = 5_000_000
# A guarantee that is computed again differs by rounding only.
AGREEMENT = 1e-9


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
    return None if guarantee.asked is None else asdict(guarantee.asked)


def with_asked(guarantee: Guarantee, stated: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee with what the file says was asked for, if its noise keeps that.

    Parameters
    ----------
    guarantee : Guarantee
        What the noise gives.
    stated : mapping
        What the file says about its promise; older files do not say what was asked for.
    """
    asked = stated.get("asked")
    if asked is None:
        return guarantee
    if not isinstance(asked, dict) or set(asked) != {"epsilon", "delta", "releases"}:
        raise StorageError("what was asked for must be epsilon, delta and releases")
    return guarantee.asked_for(Asked(**asked))


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
