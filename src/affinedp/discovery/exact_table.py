"""A table as exact columns: which hold numbers, which label rows, and what was left out."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.column_numbers import MISSING_WORDS, Numbers, read_numbers
from affinedp.discovery.relation import Terms
from affinedp.domains.reading import held, pandas_of_polars
from affinedp.errors import AffineDPError

# Beyond these a sample tells as much.
MOST_ROWS = 50_000_000
MOST_COLUMNS = 200_000
SHOWN_GAPS = 6


@dataclass(frozen=True, eq=False)
class Labels:
    """A column that says what a row is about: a code by row, -1 for none, and what codes mean."""

    name: str
    codes: NDArray[np.int64]
    values: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ExactTable:
    """Columns of exact numbers, label columns, the table's own names for rows, and notes."""

    names: tuple[str, ...]
    columns: tuple[Numbers, ...]
    labels: tuple[Labels, ...]
    rows: int
    row_names: Sequence[Any] | None = None
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def terms(self) -> Terms:
        """The columns of numbers, as what relations are about."""
        return Terms(self.names, self.columns)

    def row_name(self, row: int) -> str:
        """Return what a row is called, counting from 0."""
        if self.row_names is not None:
            return f"{self.row_names[row]}"
        for label in self.labels:
            if len(label.values) == self.rows and label.codes[row] >= 0:
                return label.values[int(label.codes[row])]
        return f"row {row} (counting from 0)"


def exact_table(table: Any, names: Sequence[str] | None = None) -> ExactTable:
    """Read a table of any kind into exact columns."""
    raw, row_names, rows = _raw_columns(table, names)
    if rows == 0 or not raw:
        raise AffineDPError(f"the table has {rows} rows and {len(raw)} columns: nothing to look at")
    if rows > MOST_ROWS or len(raw) > MOST_COLUMNS:
        raise AffineDPError(f"{rows} rows and {len(raw)} columns are too many: take a sample")
    notes: list[str] = []
    read: list[tuple[str, Numbers]] = []
    labels: list[Labels] = []
    for name, (values, missing) in zip(_distinct([n for n, _ in raw], notes), (c for _, c in raw)):
        found = read_numbers(values, missing)
        if isinstance(found, Numbers):
            if found.missing.all():
                notes.append(f"{name}: nothing but missing values; not looked at")
                continue
            read.append((name, found))
            notes.extend(f"{name}: {note}" for note in found.notes)
        elif found in ("text", "dates or times"):
            labels.append(_labels(name, values, missing))
        else:
            notes.append(f"{name}: {found}; not looked at")
    gaps = [(name, int(column.missing.sum())) for name, column in read if column.missing.any()]
    if gaps:
        notes.append(_gaps(gaps))
    return ExactTable(
        tuple(name for name, _ in read),
        tuple(column for _, column in read),
        tuple(labels),
        rows,
        row_names,
        tuple(notes),
    )


def _gaps(gaps: list[tuple[str, int]]) -> str:
    some = ", ".join(f"{name} ({count:,})" for name, count in gaps[:SHOWN_GAPS])
    more = f" and {len(gaps) - SHOWN_GAPS:,} more columns" if len(gaps) > SHOWN_GAPS else ""
    return f"missing values in {some}{more}: an equation is checked in rows where it has none"


_Raw = list[tuple[str, tuple[Any, Any]]]


def _raw_columns(table: Any, names: Sequence[str] | None) -> tuple[_Raw, Sequence[Any] | None, int]:
    """(name, (values, missing)) of every column, labels of the rows, and their number."""
    if names is not None and not isinstance(table, np.ndarray | list | tuple):
        raise AffineDPError("names go with an array; a frame has names of its own")
    table = held(table)
    if hasattr(table, "get_columns"):
        table = pandas_of_polars(table)
    if hasattr(table, "iloc"):
        return _pandas_columns(table)
    if isinstance(table, Mapping):
        raw: _Raw = [(str(name), _values(values)) for name, values in table.items()]
    else:
        raw = _array_columns(table, names)
    lengths = {len(values) for _, (values, _) in raw}
    if len(lengths) > 1:
        raise AffineDPError(f"the columns differ in length: {', '.join(map(str, sorted(lengths)))}")
    return raw, None, lengths.pop() if lengths else 0


def _array_columns(table: Any, names: Sequence[str] | None) -> _Raw:
    if isinstance(table, str | PathLike):
        raise AffineDPError("a table, not its path: read the file first, or affinedp discover FILE")
    array, missing = _values(table)
    if array.dtype.names:
        return [(name, (array[name], None)) for name in array.dtype.names]
    if array.ndim != 2:
        raise AffineDPError(
            f"a table has rows and columns, but this has shape {array.shape}: give a frame, a "
            "mapping from names to columns, or a matrix"
        )
    given = [f"x{i + 1}" for i in range(array.shape[1])] if names is None else list(names)
    if isinstance(names, str) or len(given) != array.shape[1]:
        raise AffineDPError(f"{len(given)} names for {array.shape[1]} columns")
    return [
        (str(name), (array[:, i], None if missing is None else missing[:, i]))
        for i, name in enumerate(given)
    ]


def _values(values: Any) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """An array, and which of it is masked."""
    if np.ma.isMaskedArray(values):
        return np.asarray(values.filled(0)), np.ma.getmaskarray(values)
    return _array(values), None


def _array(values: Any) -> NDArray[Any]:
    """An array without silent loss: integers beyond 64 bits stay integers, mixtures objects."""
    if isinstance(values, np.ndarray):
        return values
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.array(values, dtype=object)
    if array.dtype.kind in "fUSuc" and not hasattr(values, "dtype"):
        # a list with a text, a None or a huge integer in it must not become doubles or texts
        plain = np.array(values, dtype=object)
        if plain.shape == array.shape and any(type(x) is not float for x in plain.ravel()):
            return plain
    return array


def _pandas_columns(table: Any) -> tuple[_Raw, Sequence[Any] | None, int]:
    raw: _Raw = []
    for place, name in enumerate(table.columns):
        series = table.iloc[:, place]
        raw.append((_joined(name), _pandas_values(series)))
    index = table.index
    plain = type(index).__name__ == "RangeIndex"
    return raw, None if plain else [_joined(label) for label in index.tolist()], len(table)


def _pandas_values(series: Any) -> tuple[Any, Any]:
    dtype = series.dtype
    missing = np.asarray(series.isna(), dtype=bool)
    if isinstance(dtype, np.dtype):
        return series.to_numpy(), missing if dtype.kind not in "iub" else None
    if getattr(dtype, "kind", "O") in "iub" and hasattr(series, "fillna"):
        filled = series.fillna(False if dtype.kind == "b" else 0)
        whole = filled.to_numpy(dtype=np.uint64 if dtype.kind == "u" else np.int64)
        return whole, missing
    if getattr(dtype, "kind", "O") in "mM":
        return series.astype(str).to_numpy(dtype=object), missing
    return series.to_numpy(dtype=object), missing


def _joined(name: Any) -> str:
    return "/".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _distinct(names: list[str], notes: list[str]) -> list[str]:
    """Names that are not empty and not twice there, also where accents are encoded differently."""
    used: set[str] = set()
    out = []
    for place, given in enumerate(names):
        # spaces around a name belong to it: whoever gives equations must write them too
        name = unicodedata.normalize("NFC", given)
        name = name if name.strip() else f"column {place + 1}"
        fresh, count = name, 1
        while fresh in used:
            count += 1
            fresh = f"{name} ({count})"
        if fresh != name:
            notes.append(f"{name}: the name appears again; the later column is called {fresh!r}")
        used.add(fresh)
        out.append(fresh)
    return out


def _labels(name: str, values: Any, missing: Any) -> Labels:
    gone = np.zeros(len(values), dtype=bool) if missing is None else missing
    known: dict[str, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    for i, (value, none) in enumerate(zip(values.tolist(), gone.tolist())):
        text = "" if none or value is None else str(value).strip()
        nothing = text.lower() in MISSING_WORDS
        codes[i] = -1 if nothing else known.setdefault(text, len(known))
    return Labels(name, codes, tuple(known))
