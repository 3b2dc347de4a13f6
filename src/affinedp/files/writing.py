"""Files written at once or not at all: a full disk leaves nothing behind.  Documents as TOML."""

from __future__ import annotations

import json
import numbers
import os
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError

LONGEST_LINE = 100


def toml_text(document: Mapping[str, Any], words: Callable[[Any], str] = str) -> str:
    """Return a document as TOML: what is no mapping first, then a section for every mapping.

    ``words`` says how keys, and values that TOML has no kind for, are written if they are no texts.

    Examples
    --------
    >>> print(toml_text({"rounds": 3, "noise": {"law": "laplace", "mu": {"a": 1.0, "b c": 2.0}}}))
    rounds = 3
    <BLANKLINE>
    [noise]
    law = "laplace"
    mu = {a = 1.0, "b c" = 2.0}
    <BLANKLINE>
    """

    def key(name: Any) -> str:
        text = name if isinstance(name, str) else words(name)
        bare = text and all(c.isascii() and (c.isalnum() or c in "-_") for c in text)
        return text if bare else _quoted(text)

    def written(value: Any) -> str:
        if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool":
            return "true" if value else "false"
        if isinstance(value, numbers.Real | Decimal):
            return repr(int(value) if isinstance(value, numbers.Integral) else float(value))
        if isinstance(value, Mapping):
            return f"{{{', '.join(lines(value))}}}"
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return _quoted(value if isinstance(value, str) else words(value))
        items = [written(one) for one in value]
        if sum(map(len, items)) < LONGEST_LINE:
            return f"[{', '.join(items)}]"
        return "\n".join(["[", *(f"    {item}," for item in items), "]"])

    def lines(table: Mapping[Any, Any]) -> list[str]:
        keys = [key(name) for name in table]
        if len(set(keys)) < len(keys):
            twice = next(one for one in keys if keys.count(one) > 1)
            raise AffineDPError(f"a file has one spelling, {twice}, for two names: rename one")
        return [f"{one} = {written(value)}" for one, value in zip(keys, table.values())]

    top = {name: value for name, value in document.items() if not isinstance(value, Mapping)}
    parts = [lines(top)] if top else []
    for name, value in document.items():
        if name not in top:
            parts.append([f"[{key(name)}]", *lines(value)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _quoted(text: str) -> str:
    """Return a TOML string; what is not seen, and what a reader would compose, is escaped."""
    composed = unicodedata.is_normalized("NFC", text)
    shown = json.dumps(text, ensure_ascii=False)
    return "".join(
        c if c.isprintable() and (composed or c.isascii()) else _escape(c) for c in shown
    )


def _escape(character: str) -> str:
    # half of a letter has no escape in TOML: readers refuse it, and say in which text
    number = ord(character)
    half = 0xD800 <= number <= 0xDFFF
    return character if half else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


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
