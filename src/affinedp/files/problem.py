"""The problem file of the command line, as plain checked values.

A problem is written in TOML (or JSON with the same keys)::

    equations = ["cells_in + cells_out = cells_total"]     # or D = [[1, 1, -1]], b = [0]
    [privacy]
    mu = 1.0
    [noise]
    law = "laplace"
    scale = 2.0

It says what Definition 4 and the mechanism ``F x + Λ η`` of the paper need; nothing is computed
here.  A key that is unknown, or a number that is missing, is refused: a promise about half of
what was written would be a promise about something else.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from affinedp.equations.text import LinearEquations, parse_equations
from affinedp.errors import AffineDPError, EquationError

FloatArray = NDArray[np.float64]
Law = Literal["gaussian", "laplace"]
Neighbours = Literal["circuits", "free_sets", "directions"]
PublicEntries = Literal["refuse", "allow"]
Choice = TypeVar("Choice", bound=str)

MAX_BYTES = 200_000_000
MAX_NUMBERS = 50_000_000  # in one matrix that is made here: 400 MB

_KEYS = {
    "": ("equations", "names", "D", "b", "public_entries", "privacy", "query", "noise"),
    "privacy": ("mu", "neighbours", "free_sets", "directions", "epsilon", "delta"),
    "query": ("outputs", "matrix"),
    "noise": ("law", "scale", "matrix", "covariance"),
}
_CELL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, eq=False)
class Problem:
    """What a problem file says.

    Attributes
    ----------
    equations : LinearEquations or None
        The equations as text gave them; otherwise ``coefficients`` and ``offsets`` are there.
    coefficients, offsets : arrays or None
        ``D`` and ``b`` of ``D x + b = 0``.
    names : tuple of str or None
        One per entry; None when ``D`` came without names.
    public_entries : "refuse" or "allow"
        What to do with entries that the equations alone reveal.
    mu : float or array
        How far an entry moves between neighbours; one number, or one per entry.  It is 1 and
        has no meaning when directions are given, which are already scaled.
    neighbours : "circuits", "free_sets" or "directions"
        Definition 4; or only the chosen free sets; or only the given differences.
    free_sets : tuple of tuples of int, or None
        Columns, counted from 0.
    directions : n×K array or None
        One neighbour difference per column.
    epsilon, delta : float or None
        The promise that is asked for.
    query : m×n array or None
        ``F``; None is the identity.
    output_names : tuple of str
        One per output.
    law : "gaussian", "laplace" or None
        None when the file describes no noise.
    noise_matrix : m×r array or None
        ``Λ``, for noise of unit scale: variance 1 (Gaussian) or 2 (Laplace).
    covariance : m×m array or None
        Instead of a noise matrix; Gaussian only.
    """

    equations: LinearEquations | None
    coefficients: FloatArray | None
    offsets: FloatArray | None
    names: tuple[str, ...] | None
    public_entries: PublicEntries
    mu: float | FloatArray
    neighbours: Neighbours
    free_sets: tuple[tuple[int, ...], ...] | None
    directions: FloatArray | None
    epsilon: float | None
    delta: float | None
    query: FloatArray | None
    output_names: tuple[str, ...]
    law: Law | None
    noise_matrix: FloatArray | None
    covariance: FloatArray | None


def read_problem(path: str | Path) -> Problem:
    """Read and check a problem file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.  CSV files that it names are looked up next to it.

    Returns
    -------
    Problem
        The paper's ``D``, ``b``, ``F``, ``Λ`` and μ (Section II), every number finite and every
        length checked.  Ranks and signs of matrices are left to those who use them.

    Raises
    ------
    AffineDPError
        With the key and the place that is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... equations = ["cells_in + cells_out = cells_total"]
    ... [privacy]
    ... mu = 1.0
    ... [noise]
    ... law = "laplace"
    ... scale = {cells_in = 2, cells_out = 2, cells_total = 4}
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "cells.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     problem = read_problem(file)
    >>> problem.output_names
    ('cells_in', 'cells_out', 'cells_total')
    >>> problem.noise_matrix.diagonal()
    array([2., 2., 4.])
    """
    file = Path(path)
    try:
        return _problem(_document(file), file.parent)
    except EquationError:
        raise  # its caret needs the first column
    except AffineDPError as error:
        raise AffineDPError(f"{file}: {error}") from None


def _problem(document: Mapping[str, Any], folder: Path) -> Problem:
    _only_known_keys(document, "")
    entries = _entries(document, folder)
    privacy = _section(document, "privacy")
    neighbours, free_sets, directions = _neighbours(privacy, entries, folder)
    query, output_names = _query(_section(document, "query"), entries, folder)
    law, noise_matrix, covariance = _noise(_section(document, "noise"), output_names, folder)
    kinds: tuple[PublicEntries, ...] = ("refuse", "allow")
    public = document.get("public_entries", "refuse")
    return Problem(
        equations=entries.equations,
        coefficients=entries.coefficients,
        offsets=entries.offsets,
        names=entries.names,
        public_entries=_choice(public, "public_entries", kinds),
        mu=_mu(privacy, neighbours, entries),
        neighbours=neighbours,
        free_sets=free_sets,
        directions=directions,
        epsilon=_promise(privacy, "epsilon", math.inf),
        delta=_promise(privacy, "delta", 1.0),
        query=query,
        output_names=output_names,
        law=law,
        noise_matrix=noise_matrix,
        covariance=covariance,
    )


@dataclass(frozen=True)
class _Entries:
    """What the equations say about the entries of x."""

    labels: tuple[str, ...]
    named: bool
    equations: LinearEquations | None = None
    coefficients: FloatArray | None = None
    offsets: FloatArray | None = None

    @cached_property
    def column_of(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.labels)}

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.labels if self.named else None


def _entries(document: Mapping[str, Any], folder: Path) -> _Entries:
    names = None
    if "names" in document:
        names = tuple(_texts(_list(document["names"], "names"), "names"))
    if ("equations" in document) == ("D" in document):
        raise AffineDPError("give the equations once: either 'equations' or 'D'")
    if "equations" in document:
        if "b" in document:
            raise AffineDPError("'b' goes with 'D'; write constants into the equations")
        equations = parse_equations(_texts(document["equations"], "equations"), names)
        if not equations.names:
            raise AffineDPError("the equations name no entry")
        return _Entries(equations.names, named=True, equations=equations)
    table = _matrix(document["D"], "D", folder, names)
    names = names or table.header
    parse_equations([], names)  # refuses empty and repeated names
    coefficients = _fitted(table, names, "D")
    rows, count = coefficients.shape
    if names is not None:
        _check_count("names", len(names), "column of D", count)
    offsets = np.array(_numbers(document["b"], "b") if "b" in document else [0.0] * rows)
    _check_count("b", len(offsets), "row of D", rows)
    labels = names or tuple(f"x{column}" for column in range(1, count + 1))
    return _Entries(labels, names is not None, None, coefficients, _frozen(offsets))


def _neighbours(
    privacy: Mapping[str, Any], entries: _Entries, folder: Path
) -> tuple[Neighbours, tuple[tuple[int, ...], ...] | None, FloatArray | None]:
    kinds: tuple[Neighbours, ...] = ("circuits", "free_sets", "directions")
    given = [kind for kind in kinds[1:] if kind in privacy]
    default = given[0] if given else "circuits"
    chosen = _choice(privacy.get("neighbours", default), "[privacy] neighbours", kinds)
    if given != [kind for kind in kinds[1:] if kind == chosen]:
        wanted = "neither free_sets nor directions" if chosen == "circuits" else f"{chosen} only"
        raise AffineDPError(f"[privacy] neighbours = {chosen!r} goes with {wanted}")
    if chosen == "free_sets":
        where = "[privacy] free_sets"
        sets = enumerate(_list(privacy["free_sets"], where), 1)
        return chosen, tuple(_columns(s, f"{where}: set {i}", entries) for i, s in sets), None
    if chosen == "directions":
        rows = _rows_over_entries(privacy["directions"], "[privacy] directions", folder, entries)
        return chosen, None, _frozen(rows.T)
    return chosen, None, None


def _mu(
    privacy: Mapping[str, Any], neighbours: Neighbours, entries: _Entries
) -> float | FloatArray:
    if neighbours == "directions":
        if "mu" in privacy:
            raise AffineDPError("[privacy] directions are already scaled; remove mu")
        return 1.0
    if "mu" not in privacy:
        raise AffineDPError("[privacy] mu is missing: how far an entry may move, as in mu = 1.0")
    return _sizes(privacy["mu"], "[privacy] mu", entries.names, len(entries.labels), "entry")


def _promise(privacy: Mapping[str, Any], key: str, limit: float) -> float | None:
    if key not in privacy:
        return None
    value = _number(privacy[key], f"[privacy] {key}")
    if not 0.0 <= value < limit:
        most = "" if math.isinf(limit) else f" and less than {limit:g}"
        raise AffineDPError(f"[privacy] {key} must be at least 0{most}, not {value}")
    return value


def _query(
    section: Mapping[str, Any], entries: _Entries, folder: Path
) -> tuple[FloatArray | None, tuple[str, ...]]:
    if not section:
        return None, entries.labels
    if len(section) > 1:
        raise AffineDPError("[query] takes either outputs or matrix")
    if "outputs" in section:
        columns = _columns(section["outputs"], "[query] outputs", entries)
        query = _zeros(len(columns), len(entries.labels))
        query[np.arange(len(columns)), columns] = 1.0
        return _frozen(query), tuple(entries.labels[column] for column in columns)
    query = _rows_over_entries(section["matrix"], "[query] matrix", folder, entries)
    return query, tuple(f"y{i}" for i in range(1, len(query) + 1))


def _noise(
    section: Mapping[str, Any], outputs: tuple[str, ...], folder: Path
) -> tuple[Law | None, FloatArray | None, FloatArray | None]:
    if not section:
        return None, None, None
    kinds = [key for key in ("scale", "matrix", "covariance") if key in section]
    if len(kinds) != 1:
        raise AffineDPError("[noise] takes exactly one of scale, matrix and covariance")
    if "law" not in section:
        raise AffineDPError("[noise] law is missing: 'gaussian' or 'laplace'")
    laws: tuple[Law, ...] = ("gaussian", "laplace")
    law = _choice(section["law"], "[noise] law", laws)
    where, value, count = f"[noise] {kinds[0]}", section[kinds[0]], len(outputs)
    if kinds == ["scale"]:
        noise_matrix = _zeros(count, count)
        np.fill_diagonal(noise_matrix, _sizes(value, where, outputs, count, "output"))
        return law, _frozen(noise_matrix), None
    if kinds == ["covariance"] and law != "gaussian":
        raise AffineDPError("[noise] covariance goes with law = 'gaussian'; give scale or matrix")
    names = outputs if kinds == ["covariance"] else None
    table = _matrix(value, where, folder, names)
    _check_count(f"{where}: rows", len(table.numbers), "output", count)
    if kinds == ["matrix"]:
        return law, _fitted(table, None, where), None
    _check_count(f"{where}: columns", table.numbers.shape[1], "output", count)
    return law, None, _fitted(table, outputs, where, rows_too=True)


# Values: each is checked where it is read, and every message names its place.


class _Table(NamedTuple):
    numbers: FloatArray
    header: tuple[str, ...] | None = None


def _rows_over_entries(value: Any, where: str, folder: Path, entries: _Entries) -> FloatArray:
    """A matrix with one column per entry."""
    table = _matrix(value, where, folder, entries.names)
    _check_count(f"{where}: columns", table.numbers.shape[1], "entry", len(entries.labels))
    return _fitted(table, entries.names, where)


def _fitted(
    table: _Table, names: tuple[str, ...] | None, where: str, rows_too: bool = False
) -> FloatArray:
    """The numbers with columns in the order of ``names``; of a covariance the rows follow."""
    if table.header is None:
        return _frozen(table.numbers)
    if names is None:
        raise AffineDPError(f"{where}: a header means nothing here; remove it, or give names")
    place = {name: column for column, name in enumerate(table.header)}
    if place.keys() != set(names):
        odd = next((name for name in place if name not in names), "")
        wrong = f"holds {_shown(odd)}{_hint(odd, names)}" if odd else "does not hold every name"
        raise AffineDPError(f"{where}: the header {wrong}")
    order = [place[name] for name in names]
    return _frozen((table.numbers[order] if rows_too else table.numbers)[:, order])


def _matrix(value: Any, where: str, folder: Path, names: Sequence[str] | None) -> _Table:
    """A list of rows, or the CSV file that a text names."""
    if isinstance(value, str):
        return _csv_table(folder / value, where, names)
    rows: list[list[float]] = []
    for i, row in enumerate(_list(value, where), 1):
        rows.append(_numbers(row, f"{where}: row {i}, column"))
        if len(rows[i - 1]) != len(rows[0]):
            sizes = f"{len(rows[i - 1])} numbers, row 1 has {len(rows[0])}"
            raise AffineDPError(f"{where}: row {i} has {sizes}")
    return _Table(np.array(rows))


def _csv_table(file: Path, where: str, names: Sequence[str] | None) -> _Table:
    if file.suffix.lower() != ".csv":
        raise AffineDPError(f"{where}: a text must name a .csv file, not {_shown(file.name)}")
    where = f"{where}: {file.name}"
    reader = csv.reader(io.StringIO(_text(file, where), newline=""), strict=True)
    header, rows, blank = None, list[FloatArray](), 0
    try:
        for cells in reader:
            line = f"{where}: row {reader.line_num}"
            cells = [cell.strip() for cell in cells]
            if cells in ([], [""]):
                blank = blank or reader.line_num
                continue
            if blank:
                raise AffineDPError(f"{where}: row {blank} is blank")
            if header is None and not rows and _is_header(cells, names):
                header = tuple(cells)
                if "" in header or len(set(header)) < len(header):
                    raise AffineDPError(f"{line}: a name in the header is blank or appears twice")
                continue
            rows.append(np.array([_cell(c, f"{line}, column {j}") for j, c in enumerate(cells, 1)]))
            width = len(header or rows[0])
            if len(cells) != width:
                raise AffineDPError(f"{line} has {len(cells)} cells, the first row has {width}")
    except csv.Error as error:
        raise AffineDPError(f"{where}: row {reader.line_num}: {error}") from None
    if not rows:
        raise AffineDPError(f"{where} holds no numbers")
    return _Table(np.array(rows), header)


def _is_header(cells: list[str], names: Sequence[str] | None) -> bool:
    """Whether these are names: the expected ones (years, say), or at least nothing like numbers."""
    if names is not None and sorted(cells) == sorted(names):
        return True
    return any(cells) and not any(_like_a_number(cell) for cell in cells)


def _like_a_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _cell(cell: str, where: str) -> float:
    if not _CELL.fullmatch(cell):
        found = f"{_shown(cell)} is not a number" if cell else "the cell is blank"
        raise AffineDPError(f"{where}: {found}")
    return _number(_parsed(cell, f"{where}: "), where)


def _parsed(text: str, where: str = "") -> float:
    """A decimal text as a float; one that would silently become 0 is refused."""
    value = float(text)
    if value == 0.0 and re.search("[1-9]", text.lower().partition("e")[0]):
        raise AffineDPError(f"{where}the number {text[:40]} is too small for a float")
    return value


def _numbers(value: Any, where: str) -> list[float]:
    return [_number(x, f"{where} {i}") for i, x in enumerate(_list(value, where), 1)]


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AffineDPError(f"{where} must be a number, not {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise AffineDPError(f"{where} must be a finite number")
    if number != value:
        raise AffineDPError(f"{where} has more digits than a float can hold")
    return number


def _sizes(
    value: Any, where: str, names: tuple[str, ...] | None, count: int, what: str
) -> float | FloatArray:
    """One number for all, a list, or a table by name: none negative, and not all zero."""
    if isinstance(value, dict):
        value = _in_order(value, where, names, what)
    sizes = _numbers(value, where) if isinstance(value, list) else [_number(value, where)]
    if min(sizes) < 0.0 or max(sizes) == 0.0:
        raise AffineDPError(f"{where} must not be negative anywhere, nor zero everywhere")
    if not isinstance(value, list):
        return sizes[0]
    _check_count(where, len(sizes), what, count)
    return _frozen(np.array(sizes))


def _in_order(
    table: dict[str, Any], where: str, labels: tuple[str, ...] | None, what: str
) -> list[Any]:
    if labels is None:
        raise AffineDPError(f"{where}: a table needs names; give 'names', or a list here")
    names = dict.fromkeys(labels)
    for name in table:
        if name not in names:
            raise AffineDPError(f"{where}: no {what} is named {_shown(name)}{_hint(name, names)}")
    for name in names:
        if name not in table:
            raise AffineDPError(f"{where}: {what} {_shown(name)} is missing")
    return [table[name] for name in names]


def _columns(value: Any, where: str, entries: _Entries) -> tuple[int, ...]:
    """Entries, each by name or by number from 0."""
    columns = []
    for item in _list(value, where):
        count = len(entries.labels)
        if isinstance(item, str):
            if item not in entries.column_of:
                hint = _hint(item, entries.column_of)
                raise AffineDPError(f"{where}: no entry is named {_shown(item)}{hint}")
            columns.append(entries.column_of[item])
        elif isinstance(item, int) and not isinstance(item, bool) and 0 <= item < count:
            columns.append(item)
        else:
            raise AffineDPError(
                f"{where}: {_shown(item)} is no name and no number from 0 to {count - 1}"
            )
    if len(set(columns)) < len(columns):
        raise AffineDPError(f"{where}: an entry appears twice")
    return tuple(columns)


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AffineDPError(f"{where} must be a list of texts")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else _shown(value)
        raise AffineDPError(f"{where} must be a list, not {found}")
    return value


def _choice(value: Any, where: str, choices: Sequence[Choice]) -> Choice:
    for choice in choices:
        if value == choice:
            return choice
    raise AffineDPError(
        f"{where} must be one of {', '.join(map(repr, choices))}, not {_shown(value)}"
    )


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise AffineDPError(f"{name!r} must be a section [{name}], not {_shown(section)}")
    _only_known_keys(section, name)
    return section


def _only_known_keys(section: Mapping[str, Any], name: str) -> None:
    for key in section:
        if key not in _KEYS[name]:
            place = f"in [{name}]" if name else "at the top of the file"
            hint = _home(key) or _hint(key, _KEYS[name])
            raise AffineDPError(f"unknown key {_shown(key)} {place}{hint}")


def _home(key: str) -> str:
    homes = [
        f"in [{name}]" if name else "before the first [section]"
        for name in _KEYS
        if key in _KEYS[name]
    ]
    return f"; it belongs {' or '.join(homes)}" if homes else ""


def _hint(word: str, known: Iterable[str] | None) -> str:
    close = difflib.get_close_matches(word, list(known or ()), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(value: Any) -> str:
    """A value in a message, never long, and never a failure of its own."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**20):
        return str(value).lower()
    known = {dict: "a table", list: "a list", int: "a huge number"}
    return known.get(type(value), f"a {type(value).__name__}")


def _check_count(where: str, found: int, what: str, wanted: int) -> None:
    if found != wanted:
        raise AffineDPError(f"{where}: {found} given, but one per {what} makes {wanted}")


def _zeros(rows: int, columns: int) -> FloatArray:
    if rows * columns > MAX_NUMBERS:
        raise AffineDPError(f"a matrix of {rows}×{columns} numbers is too large")
    return np.zeros((rows, columns))


def _frozen(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


# Files.


def _document(file: Path) -> dict[str, Any]:
    kind = file.suffix.lower()
    if kind not in (".toml", ".json"):
        raise AffineDPError("a problem file must end in .toml or .json")
    text = _text(file, "the problem file")
    try:
        if kind == ".toml":
            return tomllib.loads(text, parse_float=_parsed)
        document = json.loads(text, parse_float=_parsed, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise AffineDPError("the problem file is nested too deeply") from None
    except ValueError as error:
        raise AffineDPError(f"not valid {kind[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise AffineDPError("a problem in JSON must be an object {...}")
    return document


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise AffineDPError(f"the key {_shown(key)} appears twice")
        found[key] = value
    return found


def _text(file: Path, where: str) -> str:
    try:
        if not file.exists():
            raise AffineDPError(f"{where} does not exist")
        if not file.is_file():
            raise AffineDPError(f"{where} is not a file")
        if file.stat().st_size > MAX_BYTES:
            raise AffineDPError(f"{where} is larger than {MAX_BYTES // 10**6} MB")
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise AffineDPError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AffineDPError(f"{where} is not UTF-8 text (byte {error.start})") from None
    # One encoding for letters that look alike, so that names match.
    return unicodedata.normalize("NFC", text)
