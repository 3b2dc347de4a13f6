"""Documents of mechanisms that have a class of their own: format, version, what they state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.files import writing
from affinedp.files.packing import packed as packed
from affinedp.files.packing import unpacked as unpacked
from affinedp.files.saved import format_of as format_of
from affinedp.files.saved import parsed
from affinedp.files.saved import refusals as refusals
from affinedp.files.values import shown
from affinedp.parts import StorageError as StorageError
from affinedp.privacy.asked import Asked
from affinedp.privacy.guarantee import Guarantee

FORMAT = "affinedp mechanism 2"
STRUCTURED_FORMAT = "affinedp structured mechanism"
VERSION = 1
# A guarantee that is computed again differs by rounding only.
AGREEMENT = 1e-9


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


def read_document(path: Path, form: str = FORMAT) -> Mapping[str, Any]:
    """Read a file of a format that is known here, as far as its format and version."""
    document = parsed(path)
    if document.get("format") != form:
        other = {
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
