"""Matrices of TOML and JSON files: lists of rows, or the name of a CSV file next to them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.files.documents import MOST_BYTES, exact_float, may_vanish, read_text
from affinedp.files.values import filled_list, frozen, hint, number, numbers, shown
from affinedp.files.visible import check_names

MOST_NUMBERS = 50_000_000  # in one matrix that is made: 400 MB
MOST_CELLS = 20_000_000  # in one CSV file
MOST_CELLS_ONE_BY_ONE = 1_000_000  # in one that must be read in Python

_CELL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# With these characters only, NumPy takes what _CELL takes.
_PLAIN = re.compile(r"[0-9eE+\-., \t\r\n]*")
_BLANK_LINES = ("\n\n", "\n\r", "\r\r")


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
        return frozen(table.numbers)
    if names is None:
        raise AffineDPError(f"{where}: a header means nothing here; remove it, or give names")
    place = {name: column for column, name in enumerate(table.header)}
    wanted = set(names)
    if place.keys() != wanted:
        odd = next((name for name in place if name not in wanted), "")
        wrong = f"holds {shown(odd)}{hint(odd, names)}" if odd else "does not hold every name"
        raise AffineDPError(f"{where}: the header {wrong}")
    order = [place[name] for name in names]
    return frozen((table.numbers[order] if rows_too else table.numbers)[:, order])


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
    cells = sum(map(text.count, ",\n\r"))
    if cells > MOST_CELLS:
        raise AffineDPError(f"{where} has more than {MOST_CELLS:,} cells")
    lines = io.StringIO(text, newline="")
    try:
        header = _header(next(csv.reader(lines, strict=True), []), f"{where}: row 1", names)
    except csv.Error as error:
        raise AffineDPError(f"{where}: row 1: {error}") from None
    found = _read_at_once(text[lines.tell() if header else 0 :])
    if found is None:
        if cells > MOST_CELLS_ONE_BY_ONE:
            raise AffineDPError(
                f"{where}: a row is blank or has another length, or a cell is no plain number; "
                f"of so many cells ({cells:,}) only plain numbers are read"
            )
        found = _read_one_by_one(text, where, header)
    if header is not None and found.shape[1] != len(header):
        row = f"row 2 has {found.shape[1]} cells, the first row has {len(header)}"
        raise AffineDPError(f"{where}: {row}")
    return Table(found, header)


def _read_at_once(text: str) -> FloatArray | None:
    """The numbers if they are written plainly, in rows of one length; otherwise nothing."""
    if not _PLAIN.fullmatch(text) or text[:1] in ("", "\n", "\r"):
        return None
    if may_vanish(text) or any(pair in text for pair in _BLANK_LINES):
        return None
    try:
        found = np.loadtxt(io.StringIO(text, newline=""), delimiter=",", comments=None, ndmin=2)
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _read_one_by_one(text: str, where: str, header: tuple[str, ...] | None) -> FloatArray:
    """The numbers, or what is wrong and where."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, width, blank = list[list[float]](), len(header or ()), 0
    try:
        if header:
            next(reader)
        for cells in reader:
            line = f"{where}: row {reader.line_num}"
            cells = [cell.strip() for cell in cells]
            if cells in ([], [""]):
                blank = blank or reader.line_num
                continue
            if blank:
                raise AffineDPError(f"{where}: row {blank} is blank")
            rows.append([_cell(cell, f"{line}, column {j}") for j, cell in enumerate(cells, 1)])
            width = width or len(cells)
            if len(cells) != width:
                raise AffineDPError(f"{line} has {len(cells)} cells, the first row has {width}")
    except csv.Error as error:
        raise AffineDPError(f"{where}: row {reader.line_num}: {error}") from None
    if not rows:
        raise AffineDPError(f"{where} holds no numbers")
    return np.array(rows)


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


def _cell(cell: str, where: str) -> float:
    if not _CELL.fullmatch(cell):
        found = f"{shown(cell)} is not a number" if cell else "the cell is blank"
        raise AffineDPError(f"{where}: {found}")
    return number(exact_float(cell, f"{where}: "), where)
