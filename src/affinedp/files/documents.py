"""TOML and JSON from disk, as plain values: one reader for every file that people write.

What a file may cost is bounded before anything is read from it: its size, how many values it can
hold, how deep its keys go.  Keys that appear twice and control characters are refused.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.files.values import shown
from affinedp.files.visible import check_texts

MOST_BYTES = {".toml": 8_000_000, ".json": 50_000_000, ".csv": 100_000_000}
# Values that a text can hold at most; TOML is read in Python, at some microseconds each.
MOST_VALUES = {".toml": 300_000, ".json": 5_000_000}
MOST_KEY_PARTS = 20

# Every value begins after one of these; a backslash takes time of its own.
_BETWEEN_VALUES = ",[{=\n\\"
# Only a number such as 1e-400 or 0.000…1 can become 0: it has such an exponent, or such a row of 0.
_SMALL_EXPONENT = re.compile(r"[eE]-[0-9]{3}")
_MANY_ZEROS = "0" * 200
# What hides dots in TOML: strings of all four kinds, and comments.
_QUOTED = re.compile(
    r'"""(?:\\[\s\S]|[^\\])*?"{3,5}'
    r"|'''[\s\S]*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
)
_KEYS_AND_NUMBERS = re.compile(r"[\w\-.\" \t]+")


def read_document(file: Path, text: str | None = None) -> dict[str, Any]:
    """Read a TOML or JSON file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "loop.toml")
    ...     _ = file.write_text("horizon = 10", encoding="utf-8")
    ...     read_document(file)
    {'horizon': 10}
    """
    kind = file.suffix.lower()
    if kind not in (".toml", ".json"):
        raise AffineDPError("a problem file must end in .toml or .json")
    if text is None:
        text = read_text(file, "the problem file", MOST_BYTES[kind])
    text = unicodedata.normalize("NFC", text)  # one encoding for letters that look alike
    check_values(text, MOST_VALUES[kind])
    try:
        document = _from_toml(text) if kind == ".toml" else from_json(text)
    except RecursionError:
        raise AffineDPError("the problem file is nested too deeply") from None
    except ValueError as error:
        raise AffineDPError(f"not valid {kind[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise AffineDPError("a problem in JSON must be an object {...}")
    check_texts(document, text)
    return document


def read_text(file: Path, where: str, most: int) -> str:
    """Return the text of a file of bounded size, with one encoding for letters that look alike."""
    try:
        if not file.exists():
            raise AffineDPError(f"{where} does not exist")
        text = read_bytes(file, where, most).decode("utf-8-sig")
    except OSError as error:
        raise AffineDPError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AffineDPError(f"{where} is not UTF-8 text (byte {error.start})") from None
    return unicodedata.normalize("NFC", text)


def read_bytes(file: Path, where: str, most: int) -> bytes:
    """Return the content of a file of bounded size; what is no file could be read for ever."""
    size = file.stat().st_size
    if not file.is_file():
        raise AffineDPError(f"{where} is not a file")
    if size <= most:
        with file.open("rb") as opened:
            content = opened.read(size + 1)
        if len(content) <= size:  # otherwise it grew meanwhile
            return content
    raise AffineDPError(f"{where} is larger than {most / 10**6:g} MB")


def check_values(text: str, most: int) -> None:
    """Refuse a text that may hold more values than there is room and time for.

    Examples
    --------
    >>> check_values("[1, 2, 3]", 2)
    Traceback (most recent call last):
    affinedp.errors.AffineDPError: more than 2 values: put large matrices into a CSV file, and ...
    """
    if sum(map(text.count, _BETWEEN_VALUES)) > most:
        raise AffineDPError(
            f"more than {most:,} values: put large matrices into a CSV file, and its name here"
        )


def from_json(text: str) -> Any:
    """Return what a JSON text says; a key that appears twice is refused."""
    return json.loads(text, parse_float=_reader_of(text), object_pairs_hook=_without_repeats)


def exact_float(text: str, where: str = "") -> float:
    """Return a decimal text as a float; one that would silently become 0 is refused.

    Examples
    --------
    >>> exact_float("0e-999")
    0.0
    """
    value = float(text)
    if value == 0.0 and re.search("[1-9]", text.lower().partition("e")[0]):
        raise AffineDPError(f"{where}the number {text[:40]} is too small for a float")
    return value


def _from_toml(text: str) -> dict[str, Any]:
    # time and memory of tomllib grow with the square of the parts of a key
    for piece in _KEYS_AND_NUMBERS.findall(_QUOTED.sub('""', text)):
        if piece.count(".") >= MOST_KEY_PARTS:
            raise AffineDPError(f"a key has more than {MOST_KEY_PARTS} parts")
    return tomllib.loads(text, parse_float=_reader_of(text))


def may_vanish(text: str) -> bool:
    """Return whether a decimal number in a text may be too small for a float."""
    return _SMALL_EXPONENT.search(text) is not None or _MANY_ZEROS in text


def _reader_of(text: str) -> Any:
    """What reads the decimals of a text: Python's own, unless one of them may vanish."""
    return exact_float if may_vanish(text) else float


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise AffineDPError(f"the key {shown(twice)} appears twice")
    return found
