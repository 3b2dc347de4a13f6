"""The file that describes margins and their release.

It is TOML (or JSON with the same keys)::

    margins = "<=2"                      # all tables of up to two attributes
    places = "tracts.csv"                # all places there are, beside this file
    hierarchy = ["state", "county", "tract"]

    [attributes]                         # every label there is
    sex = ["f", "m"]
    age = ["0-17", "18-64", "65+"]

    [privacy]
    epsilon = 1.0
    delta = 1e-6

    [output]
    nonnegative = true

``person`` or ``count`` name the column that says whose row it is, or how many people it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.files.declared import Document, Field, FileKind
from affinedp.files.documents import read_document
from affinedp.files.values import a
from affinedp.tables.margin_release import MarginRelease

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
            "neighbours": _TEXT,
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
    """What a file about margins says.

    Attributes
    ----------
    release : MarginRelease
        The tables and their promise.
    count, person : str or None
        Columns of the data.
    report : str or None
        File for a page to hand on.
    level : float
        Of the intervals.
    at : str or None
        The level of places that is written; all by default.
    """

    release: MarginRelease
    count: str | None = None
    person: str | None = None
    report: str | None = None
    level: float = 0.95
    at: str | None = None


def describes_margins(path: str | Path) -> bool:
    """Return whether a file names attributes, so that it is about margins.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` or ``.json`` file.
    """
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
