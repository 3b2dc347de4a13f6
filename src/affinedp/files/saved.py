"""Parts on disk: one JSON document, read with limits and never believed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from affinedp.errors import AffineDPError
from affinedp.files import documents, writing
from affinedp.files.visible import check_texts
from affinedp.parts import Part, StorageError, restored

MOST_BYTES = 1_000_000_000  # nearly all of it base64, which takes about as much memory again
MOST_VALUES = 5_000_000

Kind = TypeVar("Kind", bound=Part)


def write_saved(path: Path, form: str, part: Part, stated: Mapping[str, Any]) -> None:
    """Write a part and what is stated about it, at once or not at all.

    Parameters
    ----------
    path : Path
        Where to.
    form : str
        The format, with its version.
    part : Part
        What to write.
    stated : mapping
        Plain values, for people and for comparison.
    """
    document = {"format": form, "stated": dict(stated), "saved": part.record()}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    check_texts(document, text)
    try:
        writing.write_text(path, text)
    except AffineDPError as error:
        raise StorageError(str(error)) from None


def read_saved(path: Path, form: str, wanted: type[Kind]) -> tuple[Kind, Mapping[str, Any]]:
    """Return the part that a file holds, and what the file states about it.

    Parameters
    ----------
    path : Path
        What :func:`write_saved` wrote.
    form : str
        The format that is wanted, with its version.
    wanted : type
        What it must hold.
    """
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
