"""Files that people write: TOML and JSON by declared fields, and matrices in CSV files beside them.

What a file may cost is bounded before anything is read from it: its size, how many values it can
hold, how deep its keys go.  Keys that appear twice and control characters are refused.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, EquationError
from affinedp.files.values import (
    Reader,
    check_names,
    check_texts,
    filled_list,
    hint,
    number,
    numbers,
    shown,
)
from affinedp.parts import locked

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
MOST_NUMBERS = 50_000_000  # in one matrix that is made: 400 MB
MOST_CELLS = 20_000_000  # in one CSV file

_CELL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# With these characters only, Python's float takes what _CELL takes.
_PLAIN = re.compile(r"[0-9eE+\-., \t\r\n]*")


def read_document(file: Path, text: str | None = None) -> dict[str, Any]:
    """Read a TOML or JSON file."""
    kind = file.suffix.lower()
    if kind not in (".toml", ".json"):
        raise AffineDPError("a problem file must end in .toml or .json")
    if text is None:
        text = read_text(file, "the problem file", MOST_BYTES[kind])
    text = unicodedata.normalize("NFC", text)  # one encoding for letters that look alike
    return parsed(text, kind, MOST_VALUES[kind])


def parsed(text: str, kind: str, most: int) -> dict[str, Any]:
    """Return what a TOML or JSON text says, within the limits that every reader keeps."""
    check_values(text, most)
    try:
        document = _from_toml(text) if kind == ".toml" else _from_json(text)
    except RecursionError:
        raise AffineDPError("it is nested too deeply") from None
    except ValueError as error:
        raise AffineDPError(f"not valid {kind[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise AffineDPError("what stands in JSON must be an object {...}")
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


def _from_json(text: str) -> Any:
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


class Table(NamedTuple):
    """Numbers, and the names of their columns if they came with names."""

    numbers: FloatArray
    header: tuple[str, ...] | None = None


def matrix(value: Any, where: str, folder: Path, names: Sequence[str] | None) -> Table:
    """Return the matrix that a value says."""
    if isinstance(value, str):
        return _csv_table(folder / value, where, names)
    rows: list[list[float]] = []
    for place, row in enumerate(filled_list(value, where), 1):
        rows.append(numbers(row, f"{where}: row {place}, column"))
        if len(rows[-1]) != len(rows[0]):
            found = f"{len(rows[-1])} numbers, row 1 has {len(rows[0])}"
            raise AffineDPError(f"{where}: row {place} has {found}")
    return Table(np.array(rows))


def fitted(
    table: Table, names: tuple[str, ...] | None, where: str, rows_too: bool = False
) -> FloatArray:
    """Return the numbers with columns in the order of names."""
    if table.header is None:
        return locked(table.numbers)
    if names is None:
        raise AffineDPError(f"{where}: a header means nothing here; remove it, or give names")
    place = {name: column for column, name in enumerate(table.header)}
    wanted = set(names)
    if place.keys() != wanted:
        odd = next((name for name in place if name not in wanted), "")
        wrong = f"holds {shown(odd)}{hint(odd, names)}" if odd else "does not hold every name"
        raise AffineDPError(f"{where}: the header {wrong}")
    order = [place[name] for name in names]
    return locked((table.numbers[order] if rows_too else table.numbers)[:, order])


def zeros(rows: int, columns: int) -> FloatArray:
    """Return a matrix of zeros, unless it is too large."""
    if rows * columns > MOST_NUMBERS:
        raise AffineDPError(f"a matrix of {rows}×{columns} numbers is too large")
    return np.zeros((rows, columns))


def _csv_table(file: Path, where: str, names: Sequence[str] | None) -> Table:
    if file.suffix.lower() != ".csv":
        raise AffineDPError(f"{where}: a text must name a .csv file, not {shown(file.name)}")
    where = f"{where}: {file.name}"
    text = read_text(file, where, MOST_BYTES[".csv"]).rstrip()
    if sum(map(text.count, ",\n\r")) > MOST_CELLS:
        raise AffineDPError(f"{where} has more than {MOST_CELLS:,} cells")
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, strict=True)
    found, blank = array("d"), 0
    try:
        first = next(reader, [])
        header = _header(first, f"{where}: row 1", names)
        begin = lines.tell() if header else 0
        plain = _PLAIN.fullmatch(text, begin) and not may_vanish(text[begin:])
        for cells in reader if header else chain([first], reader):
            line = reader.line_num
            if len(cells) < 2 and not "".join(cells).strip():
                blank = blank or line
                continue
            if blank:
                raise AffineDPError(f"{where}: row {blank} is blank")
            try:
                found.extend(map(float if plain else _cell, cells))
            except ValueError:
                for j, cell in enumerate(cells, 1):
                    _cell(cell, f"{where}: row {line}, column {j}")
            if len(cells) != len(first):
                counts = f"{len(cells)} cells, the first row has {len(first)}"
                raise AffineDPError(f"{where}: row {line} has {counts}")
    except csv.Error as error:
        raise AffineDPError(f"{where}: row {reader.line_num}: {error}") from None
    if not found:
        raise AffineDPError(f"{where} holds no numbers")
    numbers = np.array(found).reshape(-1, len(first))
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0] + 1
        row += header is not None
        raise AffineDPError(f"{where}: row {row}, column {column} must be a finite number")
    return Table(numbers, header)


def _header(cells: list[str], line: str, expected: Sequence[str] | None) -> tuple[str, ...] | None:
    """The first row if it holds names: those expected (years, say), or nothing like numbers."""
    names = tuple(cell.strip() for cell in cells)
    known = expected is not None and sorted(names) == sorted(expected)
    if not known and (not any(names) or any(map(_like_a_number, names))):
        return None
    if "" in names or len(set(names)) < len(names):
        raise AffineDPError(f"{line}: a name in the header is blank or appears twice")
    check_names(names, line)
    return names


def _like_a_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _cell(cell: str, where: str = "") -> float:
    cell = cell.strip()
    if not _CELL.fullmatch(cell):
        found = f"{shown(cell)} is not a number" if cell else "the cell is blank"
        raise AffineDPError(f"{where}: {found}")
    return number(exact_float(cell, f"{where}: "), where)


# ---------------------------------------------------------------------- fields, declared


Built = TypeVar("Built")


@dataclass(frozen=True)
class Field:
    """A field of a file: how its value is read, and what holds where it is not there."""

    # takes the value and its place, and returns it checked, or refuses it
    read: Reader
    default: Any = None
    # makes its absence a refusal, which ends in these words
    needed: str = ""


@dataclass(frozen=True)
class Document:
    """What a file says: the checked values of all declared fields, by section."""

    # those at the top of the file under ``""``
    sections: Mapping[str, dict[str, Any]]
    # sections that the file has
    there: frozenset[str]
    # where files are looked up that it names
    folder: Path

    def __getitem__(self, section: str) -> dict[str, Any]:
        return self.sections[section]

    def given(self, *apart: str) -> dict[str, Any]:
        """Return all fields with a value, of whatever section, without some."""
        return {
            key: value
            for values in self.sections.values()
            for key, value in values.items()
            if value is not None and key not in apart
        }

    def table(self, section: str, key: str, names: Sequence[str] | None = None) -> Table:
        """Return the matrix of a field, or of the CSV file that it names, with its header."""
        return matrix(self[section][key], place(section, key), self.folder, names)

    def rows(self, section: str, key: str) -> FloatArray:
        """Return the matrix of a field that has no use for a header."""
        found = self.table(section, key)
        if found.header is not None:
            raise AffineDPError(f"{place(section, key)}: a header means nothing here; remove it")
        return found.numbers


@dataclass(frozen=True)
class FileKind:
    """A kind of file that people write."""

    # the fields of every section; those at the top of the file under ``""``
    fields: Mapping[str, Mapping[str, Field]]
    # sections that must be there, and what to say further if one is not
    needed: Mapping[str, str] = field(default_factory=dict)
    # fields of other kinds of files, and what to say to who writes them here
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def read(
        self, path: str | Path, build: Callable[[Document], Built], text: str | None = None
    ) -> Built:
        """Return what is built from a file; every refusal begins with its name."""
        file = Path(path)
        try:
            return build(self.document(read_document(file, text), file.parent))
        except EquationError as error:  # still one, so that callers find the place
            raise EquationError(f"{file}: {error.reason}", error.text, error.position) from None
        except AffineDPError as error:
            raise AffineDPError(f"{file}: {error}") from None

    def document(self, found: Mapping[str, Any], folder: Path) -> Document:
        """Return the checked values of all fields."""
        for key, why in self.elsewhere.items():
            if key in found:
                raise AffineDPError(why)
        inner = [name for name in self.fields if name]
        self._refuse_unknown("", found, (*self.fields[""], *inner))
        for name, why in self.needed.items():
            if name not in found:
                raise AffineDPError(f"the section [{name}] is missing{why}")
        for name in inner:
            if not isinstance(found.get(name, {}), dict):
                given = shown(found[name])
                raise AffineDPError(f"{name!r} must be a section [{name}], not {given}")
            self._refuse_unknown(name, found.get(name, {}), self.fields[name])
        parts = {"": found, **{name: found.get(name, {}) for name in inner}}
        read = {name: self._read(name, part) for name, part in parts.items()}
        return Document(read, frozenset(inner).intersection(found), folder)

    def _read(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for key, one in self.fields[name].items():
            if key in found:
                values[key] = one.read(found[key], place(name, key))
            elif one.needed:
                raise AffineDPError(f"{place(name, key)} is missing: {one.needed}")
            else:
                values[key] = one.default
        return values

    def _refuse_unknown(self, name: str, found: Mapping[str, Any], known: Collection[str]) -> None:
        for key in found:
            if key in known:
                continue
            homes = [
                f"in [{home}]" if home else "before the first [section]"
                for home, fields in self.fields.items()
                if key in fields
            ]
            where = f"in [{name}]" if name else "at the top of the file"
            belongs = f"; it belongs {' or '.join(homes)}" if homes else hint(key, known)
            raise AffineDPError(f"unknown key {shown(key)} {where}{belongs}")


def place(section: str, key: str) -> str:
    """Return where a field stands, as messages begin."""
    return f"[{section}] {key}" if section else key
