"""The equations that a file obeys, within its rows and between them, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.discovery.costs import upward
from affinedp.discovery.discover import discover
from affinedp.discovery.equation import DiscoveredEquation
from affinedp.domains.text import format_equation
from affinedp.files.data import read_table
from affinedp.progress import Progress
from affinedp.studio.tied_rows import description
from affinedp.studio.uploads import Held

MOST_FOUND = 60


@dataclass(frozen=True)
class Reading:
    """A file to look for equations in.

    Attributes
    ----------
    held : Held
        The file.
    known : tuple of str
        Equations that are accepted already.
    epsilon, delta : float
        The promise whose loss is told.
    """

    held: Held
    known: tuple[str, ...]
    epsilon: float
    delta: float


def discover_in(reading: Reading) -> dict[str, Any]:
    """Return the equations that a file obeys, with what each would cost.

    Parameters
    ----------
    reading : Reading
        The file, and what is known already.
    """
    with Progress("looking for equations") as bar:
        bar.update(0.1, "reading the file")
        table = read_table(
            Path(reading.held.name), long_numbers="text", content=reading.held.content
        )
        bar.update(0.3, "looking for equations")
        found = discover(table, given=reading.known, epsilon=reading.epsilon, delta=reading.delta)
    within = [one for one in found.equations if one.scope == "row" and len(one.columns) > 1]
    between = [one for one in found.equations if one.scope != "row"]
    return {
        "equations": [one | {"text": _without_total(found)} for one, found in _shown(within)],
        "between": [one for one, _ in _shown(between)],
        "table": description(found, reading.epsilon, reading.delta),
        "doubtful": [one.text for one in found.doubtful[:8]],
        "together": found.cost_of_all,
        "numbers": list(found.columns),
        "labels": list(found.labels),
        "notes": list(found.notes),
        "promise": found.promise,
    }


def _without_total(one: DiscoveredEquation) -> str:
    """The equation with all on one side: data does not say which number is a total of the others.

    What the page reads as a total is what somebody wrote as one.
    """
    values = dict(enumerate(one.coefficients.values()))
    return format_equation(values, one.offset, list(one.coefficients))


def _shown(
    equations: Iterable[DiscoveredEquation],
) -> list[tuple[dict[str, Any], DiscoveredEquation]]:
    return [
        (
            {
                "text": one.text,
                "pattern": one.pattern,
                "kind": one.kind,
                "holds": one.holds,
                "cost": one.cost,
                "cost_text": "" if one.cost is None else upward(one.cost),
                "note": one.cost_note,
            },
            one,
        )
        for one in list(equations)[:MOST_FOUND]
    ]
