"""The equations that a file obeys, within its rows and between them, and what they cost.

The steps of the page publish every row by itself.  A table whose rows are tied is published as
one data set, by its description: the file that ``affinedp tables`` and ``affinedp release`` take.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from affinedp.discovery.costs import upward
from affinedp.discovery.discover import discover
from affinedp.discovery.found import DiscoveredEquation, Discovery
from affinedp.domains.text import format_equation
from affinedp.files.data import read_table
from affinedp.progress import Progress
from affinedp.studio.question import Look, Tied
from affinedp.studio.uploads import Held
from affinedp.tables.files import labelled, read_release

MOST_FOUND = 60
MOST_DOUBTFUL = 8


def discover_in(asked: tuple[Held, Look]) -> dict[str, Any]:
    """Return the equations that a file obeys, with what each would cost."""
    held, look = asked
    with Progress("looking for equations") as bar:
        bar.update(0.1, "reading the file")
        table = read_table(Path(held.name), long_numbers="text", content=held.content)
        bar.update(0.3, "looking for equations")
        found = discover(table, given=look.known, epsilon=look.epsilon, delta=look.delta)
    within = [one for one in found.equations if one.scope == "row" and len(one.columns) > 1]
    between = [one for one in found.equations if one.scope != "row"]
    return {
        "equations": [_within(one) for one in within[:MOST_FOUND]],
        "between": [_shown(one) for one in between[:MOST_FOUND]],
        "table": description(found, look.epsilon, look.delta),
        "doubtful": [_within(one) for one in found.doubtful[:MOST_DOUBTFUL]],
        "together": found.cost_of_all,
        "numbers": list(found.columns),
        "labels": list(found.labels),
        "notes": list(found.notes),
        "promise": found.promise,
    }


def _within(one: DiscoveredEquation) -> dict[str, Any]:
    return _shown(one) | {"text": _without_total(one), "total": _total(one)}


def _without_total(one: DiscoveredEquation) -> str:
    """The equation with all on one side: data does not say which number is a total of the others.

    What the page reads as a total is what somebody wrote as one.
    """
    values = dict(enumerate(one.coefficients.values()))
    return format_equation(values, one.offset, list(one.coefficients))


def _total(one: DiscoveredEquation) -> str:
    """The equation as a total of its parts, for whoever says that people are counted in those."""
    return one.text if one.pattern == "total" else ""


def _shown(one: DiscoveredEquation) -> dict[str, Any]:
    return {
        "text": one.text,
        "pattern": one.pattern,
        "kind": one.kind,
        "holds": one.holds,
        "cost": one.cost,
        "cost_text": "" if one.cost is None else upward(one.cost),
        "note": one.cost_note,
    }


LEVEL = 0.95
MU = "mu = 1  # columns count people; for sums of values: { count = [1, 1], income = [0, 200000] }"
HOW = (
    "# Equations between rows are written in one of these ways:",
    '# hierarchy = ["country", "place"]  # rows are totals by these columns of labels',
    '# row_totals = { "all" = ["north", "south"] }  # by the labels of rows in the index',
    '# changes = { "growth" = "people" }  # a column that is the change since the row above',
)


def description(found: Discovery, epsilon: float, delta: float) -> str:
    """Return a table file with everything that was found, to be corrected by who knows the table.

    >>> text = description(Discovery((), columns=("women",), labels=("town",)), 1.0, 0.0)
    >>> read_release("table.toml", f'equations = []\\n{text}').index
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
    lines += ["", "[privacy]", MU, f"epsilon = {epsilon!r}"]
    if delta:
        lines.append(f"delta = {delta!r}")
    return "\n".join(lines) + "\n"


def table(asked: tuple[Held, Tied]) -> dict[str, Any]:
    """Return how accurate every level of a table would be; no private number is used."""
    held, tied = asked
    with Progress("the table") as bar:
        bar.update(0.1, "reading the file")
        read: Any = read_release(Path("table.toml"), tied.text)
        frame = read_table(Path(held.name), content=held.content)
        bar.update(0.3, "designing noise for the whole table")
        design = read.release.design(labelled(frame, read.index, held.name))
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
