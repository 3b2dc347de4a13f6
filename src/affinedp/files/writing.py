"""Files written at once or not at all: a full disk leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from affinedp.errors import AffineDPError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` that takes its place at the end.

    If anything goes wrong the temporary file is removed, and what was there before stays.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(pathlib.Path(folder, "page.html")) as part:
    ...         _ = part.write_text("<p>", encoding="utf-8")
    ...     sorted(found.name for found in pathlib.Path(folder).iterdir())
    ['page.html']
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        # a device or a pipe would be replaced by a file, for everyone
        raise AffineDPError(f"{path} cannot be written: it is not a file")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    except OSError as error:
        raise AffineDPError(f"{path} cannot be written: {error.strerror or error}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        _on_the_disk(part)
        os.replace(part, path)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, at once or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_for_owner(path: Path, text: str) -> None:
    """Write a text in UTF-8 into a new file that only its owner may read."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise AffineDPError(f"{path} cannot be written: {error.strerror}") from None


def folder_for_owner(folder: Path) -> Path:
    """Make a folder for its owner only; one that is there is taken."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AffineDPError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def _on_the_disk(part: Path) -> None:
    handle = os.open(part, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
