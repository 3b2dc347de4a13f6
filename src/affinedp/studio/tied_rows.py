"""Equations between the rows of a table: written down, and looked at as a whole.

The steps of the page publish every row by itself.  A table whose rows are tied is published as
one data set, by its description: the file that ``affinedp tables`` and ``affinedp release`` take.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.discovery.found import Discovery
from affinedp.files.data import read_table
from affinedp.progress import Progress
from affinedp.studio.uploads import Held
from affinedp.tables.table_file import labelled, read_table_release

LEVEL = 0.95
HOW = (
    "# Equations between rows are written in one of these ways:",
    '# hierarchy = ["country", "place"]  # rows are totals by these columns of labels',
    '# row_totals = { "all" = ["north", "south"] }  # by the labels of rows in the index',
    '# changes = { "growth" = "people" }  # a column that is the change since the row above',
)


@dataclass(frozen=True)
class Described:
    """A file and the description of its table.

    Attributes
    ----------
    held : Held
        The file.
    text : str
        The description, as TOML.
    """

    held: Held
    text: str


def description(found: Discovery, epsilon: float, delta: float) -> str:
    """Return a table file with everything that was found, to be corrected by who knows the table.

    Parameters
    ----------
    found : Discovery
        Equations, columns and labels.
    epsilon, delta : float
        The promise.

    Examples
    --------
    >>> text = description(Discovery((), columns=("women",), labels=("town",)), 1.0, 0.0)
    >>> read_table_release("table.toml", f'equations = []\\n{text}').index
    ('town',)
    """
    index = [name for name in found.labels if name not in found.hierarchy]
    top, section, rest = found.toml().partition("\n\n[")
    lines = [top]
    if index:
        lines.append(f"index = {_list(index)}  # labels the rows; published as it is")
    lines.append(f"columns = {_list(found.columns)}  # get noise; list under public what does not")
    if section:
        lines.append(f"\n[{rest}")
    elif not found.hierarchy:
        lines += HOW
    lines += ["", "[privacy]", "mu = 1  # how much one person counts for", f"epsilon = {epsilon!r}"]
    if delta:
        lines.append(f"delta = {delta!r}")
    return "\n".join(lines) + "\n"


def table(described: Described) -> dict[str, Any]:
    """Return how accurate every level of a table would be; no private number is used.

    Parameters
    ----------
    described : Described
        The file, and what is known about its rows.
    """
    with Progress("the table") as bar:
        bar.update(0.1, "reading the file")
        read = read_table_release(Path("table.toml"), described.text)
        frame = read_table(Path(described.held.name), content=described.held.content)
        bar.update(0.3, "designing noise for the whole table")
        design = read.release.design(labelled(frame, read.index, described.held.name))
        levels = design.levels(LEVEL)
        return {
            "promise": str(design.guarantee),
            "tied": read.release.ties_rows,
            "levels": [
                {
                    "level": str(name),
                    "numbers": int(row["numbers"]),
                    "noise": float(row["noise"]),
                    "half": float(row["half_width"]),
                }
                for name, row in levels.iterrows()
            ],
        }


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(json.dumps(name, ensure_ascii=False) for name in names)}]"
