"""The file that describes a table and its release.

It is TOML (or JSON with the same keys)::

    index = "month"                                  # labels the rows
    public = ["region"]                              # published as it is

    [totals]
    employed = ["women", "men"]

    [privacy]
    mu = 1
    epsilon = 1.0
    delta = 1e-6

Further keys say what the arguments of :class:`~affinedp.tables.TableRelease` of the same name
say.  A key that is unknown is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.files.declared import Document, Field, FileKind
from affinedp.files.documents import read_document
from affinedp.files.values import a
from affinedp.tables.margins import MarginRelease
from affinedp.tables.refusals import closest, label_words
from affinedp.tables.release import TableRelease

_TEXTS = Field(a("text", "list of texts"))
_NUMBER, _WHOLE = Field(a("number")), Field(a("whole number"))
_TABLE = FileKind(
    {
        "": {
            "index": Field(a("text", "list of texts"), ()),
            "equations": Field(a("list of texts")),
            "totals": Field(a("table")),
            "hierarchy": _TEXTS,
            "row_totals": Field(a("table")),
            "changes": Field(a("table")),
            "margins": Field(a("text", "list of lists")),
            "columns": Field(a("list of texts")),
            "public": Field(a("list of texts")),
            "public_rows": Field(a("list")),
            "impossible": Field(a("list")),
        },
        "privacy": {
            "mu": Field(a("number", "table"), needed="how far a number may move, as in mu = 1"),
            "epsilon": Field(a("number"), needed="the promise"),
            "delta": _NUMBER,
            "law": Field(a("text")),
            "rows": Field(a("text")),
            "adjacency": Field(a("text")),
            "cells": Field(a("list of texts")),
            "weights": Field(a("text", "table")),
            "bound": _NUMBER,
            "household": _WHOLE,
            "at_most": _WHOLE,
            "releases": _WHOLE,
            "whole": Field(a("truth")),
        },
        "rounding": {"adjust": _TEXTS, "within": _NUMBER, "unknown": _TEXTS},
        "output": {
            "round_to": _NUMBER,
            "nonnegative": Field(a("truth")),
            "noise": Field(a("text")),
            "report": Field(a("text")),
            "level": Field(a("number"), 0.95),
        },
    },
    elsewhere={"attributes": "this file is about margins: read it with read_margin_release"},
)


@dataclass(frozen=True)
class TableFile:
    """What a table file says."""

    release: TableRelease
    index: tuple[str, ...] = ()
    bound: float | None = None
    noise: str | None = None
    report: str | None = None
    level: float = 0.95


def read_table_release(path: str | Path, text: str | None = None) -> TableFile:
    """Read and check a table file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.
    text : str, optional
        What it holds, where that is in memory; the path is then a name only.

    Returns
    -------
    TableFile

    Raises
    ------
    AffineDPError
        With the file and the key that is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... [totals]
    ... all = ["women", "men"]
    ... [privacy]
    ... mu = 1
    ... epsilon = 1.0
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "table.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     found = read_table_release(file)
    >>> found.release.laws, found.release.adjacency, found.release.row_mode
    (('laplace',), 'person', 'separate')
    """
    return _TABLE.read(path, _table_file, text)


def labelled(table: Any, index: Sequence[str], name: str) -> Any:
    """Return a table with the columns that label its rows as its index."""
    if not index:
        return table
    for one in index:
        if one not in table.columns:
            raise AffineDPError(
                f"{name}: index names {one!r}, but the table has no such column"
                f"{closest(one, [other for other in table.columns if other not in index])}"
            )
    return table.set_index(list(index) if len(index) > 1 else index[0])


def _table_file(told: Document) -> TableFile:
    index, output = told[""]["index"], told["output"]
    return TableFile(
        release=TableRelease(**told.given("index", "bound", "noise", "report", "level")),
        index=(index,) if isinstance(index, str) else tuple(index),
        bound=told["privacy"]["bound"],
        noise=output["noise"],
        report=output["report"],
        level=output["level"],
    )


def table_toml(release: TableRelease, index: Sequence[str] = ()) -> str:
    """Return a table file that says what a release says.

    Parameters
    ----------
    release : TableRelease
        The description.
    index : sequence of str
        Columns that label the rows.

    Examples
    --------
    >>> print(table_toml(TableRelease(totals={"all": ["women", "men"]}, epsilon=1.0)))
    [totals]
    all = ["women", "men"]
    <BLANKLINE>
    [privacy]
    mu = 1.0
    epsilon = 1.0
    adjacency = "person"
    <BLANKLINE>
    """
    keys = {name: list(fields) for name, fields in _TABLE.fields.items()}
    left: dict[str, Any] = {
        name: getattr(release, name, None) for one in keys.values() for name in one
    }
    left["index"] = list(index)
    # labels of several levels are found again by their words
    rows = release.row_totals or {}
    left["row_totals"] = {_label(total): [*map(_label, parts)] for total, parts in rows.items()}
    left["public_rows"] = [*map(_label, release.public_rows)]
    plain = TableRelease(epsilon=1.0, equations=[])
    always = ("mu", "epsilon", "adjacency")

    def told(name: str) -> bool:
        value = left.get(name)
        if value is None or value in ((), [], {}, ""):
            return False
        return name in always or value != getattr(plain, name, None)

    tables = [name for name in keys[""] if isinstance(left.get(name), Mapping) and told(name)]
    lines = [
        f"{name} = {_toml(left[name])}" for name in keys[""] if told(name) and name not in tables
    ]
    for name in tables:
        lines += ["", f"[{name}]"] if lines else [f"[{name}]"]
        lines += [f"{_toml_key(key)} = {_toml(value)}" for key, value in left[name].items()]
    for part in ("privacy", "rounding", "output"):
        own = [f"{name} = {_toml(left[name])}" for name in keys[part] if told(name)]
        if own:
            lines += ["", f"[{part}]", *own]
    return "\n".join(lines) + "\n"


def _label(label: Any) -> Any:
    return label_words(label) if isinstance(label, tuple) else label


def _toml_key(key: Any) -> str:
    text = label_words(key)
    bare = text and all(c.isascii() and (c.isalnum() or c in "-_") for c in text)
    return text if bare else json.dumps(text, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(label_words(value), ensure_ascii=False)


_WHOLE, _TEXT = Field(a("whole number")), Field(a("text"))
_MARGINS = FileKind(
    {
        "": {
            "attributes": Field(a("table")),
            "margins": Field(a("text", "whole number", "list of lists")),
            "hierarchy": Field(a("list of texts")),
            "places": _TEXT,
            "count": _TEXT,
            "person": _TEXT,
        },
        "privacy": {
            "epsilon": Field(a("number"), needed="the promise"),
            "delta": Field(a("number")),
            "law": _TEXT,
            "adjacency": _TEXT,
            "household": _WHOLE,
            "at_most": _WHOLE,
            "releases": _WHOLE,
            "weights": Field(a("text", "table")),
            "goal": _TEXT,
        },
        "output": {
            "round_to": _WHOLE,
            "nonnegative": Field(a("truth")),
            "report": _TEXT,
            "level": Field(a("number"), 0.95),
            "at": _TEXT,
        },
    }
)


@dataclass(frozen=True)
class MarginFile:
    """What a file about margins says."""

    release: MarginRelease
    count: str | None = None
    person: str | None = None
    report: str | None = None
    level: float = 0.95
    at: str | None = None


def describes_margins(path: str | Path) -> bool:
    """Return whether a file names attributes, so that it is about margins."""
    file = Path(path)
    try:
        return "attributes" in read_document(file)
    except AffineDPError as error:
        raise AffineDPError(f"{file}: {error}") from None


def read_margin_release(path: str | Path) -> MarginFile:
    """Read and check a file about margins.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.

    Returns
    -------
    MarginFile

    Examples
    --------
    >>> import pathlib, tempfile
    >>> text = '''
    ... margins = "<=2"
    ... [attributes]
    ... sex = ["f", "m"]
    ... age = ["young", "old"]
    ... [privacy]
    ... epsilon = 1.0
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "margins.toml")
    ...     _ = file.write_text(text, encoding="utf-8")
    ...     found = read_margin_release(file)
    >>> found.release.names
    ('sex', 'age')
    """
    return _MARGINS.read(path, _margin_file)


def _margin_file(told: Document) -> MarginFile:
    columns, output = ("count", "person"), ("report", "level", "at")
    described = told.given(*columns, *output)
    if "places" in described:
        described["places"] = read_table(told.folder / described["places"])
    return MarginFile(
        MarginRelease(**described),
        **{key: told[""][key] for key in columns},
        **{key: told["output"][key] for key in output},
    )
