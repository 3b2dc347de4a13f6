"""The equations that a file obeys, within its rows and between them, and what they cost.

The steps of the page publish every row by itself.  A table whose rows are tied is published as
one data set, by its description: the file that ``affinedp tables`` and ``affinedp release`` take.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from affinedp.discovery.costs import upward
from affinedp.discovery.discover import discover
from affinedp.discovery.found import DiscoveredEquation, Discovery
from affinedp.domains.text import format_equation
from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.progress import Progress
from affinedp.studio.problem import manifold_of, mu_by_name, totals_said
from affinedp.studio.question import Look, RowSums, Sketch, Tied
from affinedp.studio.uploads import Held
from affinedp.tables.describe import TableDescription
from affinedp.tables.files import labelled, read_release
from affinedp.tables.layout import layout_of
from affinedp.tables.release import TableRelease

MOST_FOUND = 60
MOST_DOUBTFUL = 8
# Share of the numbers of a column that occur again in it, for the column to look like counts.
REPEATED = 0.25


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
        "tied": TIED,
        "rows": _rows(found, table).model_dump(),
        "counts": _counts(table, found.columns),
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
        "columns": list(one.columns),
    }


LEVEL = 0.95
TIED = (
    "People are then in several rows, and ε per row is not what they get: publish the table as a "
    "whole, by its description table.toml (step 1 of the page writes it; affinedp release takes it)"
)
SAVED = (
    "# For: affinedp release table.toml DATA --ledger budget.db -o published.csv",
    "# Keep what the public knows. Labels under index and hierarchy are published as they are.",
)


def _rows(found: Discovery, table: Any) -> RowSums:
    """What a table file says about the rows."""
    hierarchy = found.hierarchy or _emptied(found, table)
    index = [name for name in found.labels if name not in hierarchy]
    totals = {} if hierarchy else dict(found.row_totals)
    if totals:  # they go by one column of labels, or by all
        alone = [name for name in index if set(totals) <= set(map(str, table[name]))]
        index = alone[:1] or index
    said = {"hierarchy": bool(hierarchy), "total row": bool(totals), "change": bool(found.changes)}
    said["hierarchy"] |= bool(totals)
    between = [one for one in found.equations if one.scope != "row"]
    return RowSums(
        index=tuple(index),
        hierarchy=tuple(hierarchy),
        row_totals=totals,
        changes=dict(found.changes),
        uncovered=tuple(one.text for one in between if not said.get(one.pattern)),
    )


def _emptied(found: Discovery, table: Any) -> tuple[str, ...]:
    """Label columns as levels, if rows that leave some empty are totals and all levels fit."""
    if not any(one.pattern == "hierarchy" for one in found.equations):
        return ()
    empty = {name: int(table[name].isna().sum()) for name in found.labels}
    levels = tuple(sorted(empty, key=empty.__getitem__))  # higher levels are empty less often
    asked = TableDescription(hierarchy=levels, columns=found.columns, epsilon=1.0)
    try:
        layout_of(asked, table)
    except AffineDPError:
        return ()
    return levels


def _counts(table: Any, names: Sequence[str]) -> list[str]:
    """The columns that can hardly be anything but counts: small whole numbers that repeat.

    Numbers of persons, incomes and the like are different in nearly every row.
    """
    out = []
    for name in names:
        values = table[name]
        if values.dtype.kind not in "iuf" or not ((values >= 0) & (values % 1 == 0)).all():
            continue
        values = values[values > 0]
        if values.duplicated(keep=False).mean() >= REPEATED:
            out.append(name)
    return out


def description(sketch: Sketch) -> dict[str, str]:
    """Return a table file with what was said in steps 1 to 3, and what was found about rows.

    >>> from affinedp.studio.question import Question
    >>> question = Question(equations="all = women + men", hidden="person")
    >>> text = description(Sketch(question=question, rows=RowSums(index=("town",))))["text"]
    >>> read_release("table.toml", text).release.totals
    {'all': ['women', 'men']}
    """
    question, rows = sketch.question, sketch.rows
    if question.hidden == "directions":
        raise AffineDPError(
            "moves that are written down do not go into the description of a table: choose in "
            "step 2 who must stay hidden"
        )
    texts, manifold = manifold_of(question)
    sizes = mu_by_name(question, manifold)
    if isinstance(sizes, dict) and len(set(sizes.values())) == 1:
        sizes = sizes[manifold.names[0]]
    said = totals_said(texts)
    said["totals"] = {key: ways if ways[1:] else ways[0] for key, ways in said["totals"].items()}
    release = TableRelease(
        **said,
        hierarchy=list(rows.hierarchy) or None,
        row_totals=rows.row_totals or None,
        changes=rows.changes or None,
        columns=list(manifold.names),
        mu=sizes,
        epsilon=question.epsilon,
        delta=0.0 if question.law == "laplace" else question.delta,
        law=question.law if question.law in ("gaussian", "laplace") else None,
        adjacency="circuits" if question.hidden == "definition4" else question.hidden,
        at_most=question.counted if question.hidden == "person" else None,
    )
    lines = [*SAVED, *(f"# not covered: {' '.join(one.split())}" for one in rows.uncovered)]
    return {"text": "\n".join([*lines, release.toml(rows.index)])}


def check_untied(table: Any, names: Sequence[str], name: str) -> None:
    """Refuse a table in whose columns of these names rows are tied: not published row by row."""
    for one in discover(table).equations:
        if one.scope != "row" and not set(names).isdisjoint(one.columns):
            raise AffineDPError(f"{name}: {one.text}. {TIED}")


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
