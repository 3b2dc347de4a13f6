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

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.files.documents import read_document
from affinedp.files.values import check_keys, section
from affinedp.tables.margin_release import MarginRelease
from affinedp.tables.table_file import checked_section

_KEYS: dict[str, dict[str, str]] = {
    "": {
        "attributes": "table", "margins": "text or whole number or list of lists",
        "hierarchy": "list of texts", "places": "text", "count": "text", "person": "text",
        "privacy": "table", "output": "table",
    },
    "privacy": {
        "epsilon": "number", "delta": "number", "law": "text", "neighbours": "text",
        "household": "whole number", "at_most": "whole number", "releases": "whole number",
        "weights": "text or table", "goal": "text",
    },
    "output": {
        "round_to": "whole number", "nonnegative": "truth", "report": "text", "level": "number",
        "at": "text",
    },
}  # fmt: skip


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
    file = Path(path)
    try:
        return _margin_file(read_document(file), file.parent)
    except AffineDPError as error:
        raise AffineDPError(f"{file}: {error}") from None


def _margin_file(document: Mapping[str, Any], folder: Path) -> MarginFile:
    check_keys(document, "", _KEYS)
    top = checked_section(document, "", _KEYS)
    privacy, output = (
        checked_section(section(document, name, _KEYS), name, _KEYS)
        for name in ("privacy", "output")
    )
    for name in ("privacy", "output"):
        top.pop(name, None)
    if "epsilon" not in privacy:
        raise AffineDPError("[privacy] epsilon is missing: the promise")
    told = {key: output.pop(key) for key in ("round_to", "nonnegative") if key in output}
    columns = {key: top.pop(key, None) for key in ("count", "person")}
    if "places" in top:
        top["places"] = read_table(folder / top["places"])
    return MarginFile(release=MarginRelease(**top, **privacy, **told), **columns, **output)
