"""What people read about a released table: promise, noise by column, whether totals add up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.tree import ADD_UP
from affinedp.show.baseline import Baseline
from affinedp.show.opening import headline, paragraph
from affinedp.show.page import LevelRow, OutputRow, Report, printable, printed
from affinedp.show.report import LAWS
from affinedp.show.report import report as mechanism_report
from affinedp.tables.designed_noise import DesignedNoise
from affinedp.tables.level_summary import level_summary
from affinedp.tables.never_worse import CELLS, GEOMETRIC, INDEPENDENT, LEVELS
from affinedp.tables.refusals import listed

EPS = float(np.finfo(float).eps)
SHOWN_TOTALS = 8
WORDS = {
    "against cells": "noise on the cells, added up",
    "against levels": "the best single weight per level",
}


def table_report(
    design: DesignedNoise, table: Any, public: FloatArray | None, numbers: Any = None
) -> Report:
    """Return a report about a design, and about a table that was published with it.

    Parameters
    ----------
    design : DesignedNoise
        Noise and promise.
    table : DataFrame or None
        What was published.
    public : array or None
        The public numbers in the equations, one row per data set.
    numbers : DataFrame, optional
        What was published before rounding, for relative errors.
    """
    if design.tree:
        return _tree_report(design, table, public, numbers)
    plain = mechanism_report(design.mechanism)
    promise = [(label, text) for label, text in plain.promise if label in ("covers",)]
    return replace(
        plain,
        title=_title(design),
        promise=tuple(
            (label, printable(text))
            for label, text in (*design.guarantee.summary(), *_scope(design, promise))
        ),
        outputs=tuple(
            OutputRow(row.name, deviation, row.independent_deviation, _ratio(deviation, row))
            for row, deviation in zip(plain.outputs, design.deviations.tolist())
        ),
        totals=tuple(
            (label, printable(text))
            for label, text in (
                *((label, text) for label, text in plain.totals if label != "equations"),
                *_comparisons(design),
                *_totals(design, table, public, plain.baseline.deviation),
            )
        ),
        equations=tuple(
            dict.fromkeys(printable(r.words) for r in design.layout.relations if not r.place)
        )
        or plain.equations,
        levels=_levels(design, numbers),
        **_opening(design),
    )


def _tree_report(
    design: DesignedNoise, table: Any, public: FloatArray | None, numbers: Any
) -> Report:
    """A report of a large hierarchy: level by level, not number by number."""
    mechanism = design.mechanism
    summary = level_summary(design, 0.95, None, design.description.hierarchy)
    independent = _independent_deviation(design)
    outputs = tuple(
        OutputRow(
            printable(f"{name} ({int(row['numbers']):,})"),
            float(row["noise"]),
            independent,
            None if independent is None else float(row["noise"]) ** 2 / independent**2,
        )
        for name, row in summary.iterrows()
    )
    total = mechanism.expected_squared_error
    gap = "not certified (Laplace noise): less may do"
    if mechanism.gap is not None:
        gap = f"at most {100 * mechanism.gap:.2g} % above what any Gaussian noise has (computed)"
    texts = [
        ("squared error", f"{total:.6g} expected"),
        ("optimality", gap),
        *_comparisons(design),
        *(("note", note) for note in mechanism.notes),
        *_totals(design, table, public, None),
    ]
    words = [relation.words for relation in design.layout.relations[:SHOWN_TOTALS]]
    return Report(
        title=_title(design),
        promise=tuple(
            (label, printable(text))
            for label, text in (*design.guarantee.summary(), *_scope(design, []))
        ),
        outputs=outputs,
        totals=tuple((label, printable(text)) for label, text in texts),
        equations=tuple(dict.fromkeys(map(printable, words))),
        baseline=Baseline(independent, "no independent noise was compared"),
        levels=_levels(design, numbers),
        **_opening(design),
    )


def _opening(design: DesignedNoise) -> dict[str, Any]:
    """What was asked for, and the paragraph for people who decide."""
    bare = [text for label, text in _scope(design, []) if label == "not protected"]
    return {
        "headline": headline(design.guarantee),
        "opening": printed(paragraph(design.guarantee, design.deviations.tolist(), bare)),
    }


def _levels(design: DesignedNoise, numbers: Any) -> tuple[LevelRow, ...]:
    """Noise by level; with what was published, how large it is in relation to the numbers."""
    summary = level_summary(design, 0.95, numbers, design.description.hierarchy)
    return tuple(
        LevelRow(
            printable(str(name)),
            int(row["numbers"]),
            float(row["noise"]),
            None if numbers is None else float(row["relative_half_width"]),
        )
        for name, row in summary.iterrows()
    )


def _independent_deviation(design: DesignedNoise) -> float | None:
    """Independent noise of the law that was chosen, where every weight is the same."""
    if design.description.weights is not None:
        return None
    for one in design.compared:
        law = "gaussian" if design.mechanism.law == "gaussian" else "laplace"
        if one.name in ("independent", INDEPENDENT) and one.law == law:
            return math.sqrt(one.error / len(design.layout.private))
    return None


def _comparisons(design: DesignedNoise) -> Iterator[tuple[str, str]]:
    """What standard practice costs for the same promise, in units of this design."""
    if not design.compared:
        return
    own = design.weighted_error
    if own <= 0:
        return
    for label, names in (
        ("against cells", (CELLS, GEOMETRIC, ADD_UP)),
        ("against levels", (LEVELS,)),
    ):
        costs = [(one.error, one.law) for one in design.compared if one.name in names]
        if costs:
            error, law = min(costs)
            yield label, f"{WORDS[label]}, costs {error / own:.4g} times as much ({LAWS[law]})"


def _ratio(deviation: float, row: OutputRow) -> float | None:
    if row.independent_deviation is None:
        return None
    return deviation**2 / row.independent_deviation**2


def _title(design: DesignedNoise) -> str:
    law = LAWS[design.mechanism.law]
    layout = design.layout
    columns = len(layout.roles.private)
    words = f"{columns} private column{'s' if columns > 1 else ''}"
    if layout.row_names is None:
        return f"Table with {words}: {law} noise, {_rows_words(design)}"
    rows = len(layout.row_names)
    return f"Table of {rows:,} rows and {words}, released together: {law} noise"


def _rows_words(design: DesignedNoise) -> str:
    if design.releases > 1:
        return f"one promise for {design.releases:,} rows"
    return "one promise per row"


def _scope(design: DesignedNoise, covers: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    description, layout = design.description, design.layout
    if layout.row_names is None and design.releases == 1:
        yield (
            "rows",
            "the promise is for each row by itself. Rows about the same people add up: "
            "rows='composed' makes one promise for all of them",
        )
    elif layout.row_names is None:
        yield "rows", f"the promise is for all {design.releases:,} rows together"
    if layout.roles.known or layout.sums or description.public_rows:
        equations = dict.fromkeys(relation.words for relation in layout.relations)
        shown = "; ".join(list(equations)[:4])
        yield (
            "covers",
            f"the equations that were given ({shown}) with what is public in them; an equation "
            "that the public knows and that was left out is not covered",
        )
    else:
        yield from covers
    names = [*layout.roles.known, *layout.roles.labels]
    columns = f"the columns {listed(names)}, " if names else ""
    yield "not protected", f"{columns}the index and the number of rows: published as they are"


def _totals(
    design: DesignedNoise, table: Any, public: FloatArray | None, independent: float | None
) -> Iterator[tuple[str, str]]:
    layout = design.layout
    if design.enlargement > 1 + 1e-6:
        yield (
            "bound",
            f"the public bound makes the noise {design.enlargement:.4g} times larger than the "
            "squared error says: the noise of each output above has it, the squared error has not",
        )
    if not layout.relations:
        yield "totals", "no equations were given"
        return
    if table is None or public is None:
        yield "totals", "every release obeys the equations"
    else:
        yield "totals", _published_words(design, table, public)
    if independent is not None:
        gaps = _independent_gaps(design, independent)
        worst = int(np.argmax(gaps))
        yield (
            "instead",
            f"independent noise with the same promise would break {layout.relations[worst].words} "
            f"by {gaps[worst]:.4g} on average",
        )


def _published_words(design: DesignedNoise, table: Any, public: FloatArray) -> str:
    """Whether the published totals add up: a fact about what everyone sees."""
    layout = design.layout
    points = np.empty((len(public), len(layout.is_private)))
    points[:, : layout.cells] = layout.cell_points(table[list(layout.columns)].to_numpy(float))
    points[:, ~layout.is_private] = public
    off = np.abs(points @ layout.matrix.T + layout.offsets)
    size = np.abs(points) @ abs(layout.matrix).T + np.abs(layout.offsets)
    largest = float(off.max())
    if largest == 0.0:
        return f"all {_count(off)} equations hold exactly in the published table"
    if bool((off <= 1e-9 * np.maximum(size, float(design.deviations.max()))).all()):
        return (
            f"all {_count(off)} equations hold in the published table up to the rounding of double "
            f"precision (at most {largest:.1g})"
        )
    broken = int((off > 1e-9 * size).sum())
    return f"{broken:,} of {_count(off)} equations do not hold, by at most {largest:.4g}"


def _count(off: FloatArray) -> str:
    return f"{off.size:,}"


def _independent_gaps(design: DesignedNoise, deviation: float) -> FloatArray:
    """By how much independent noise breaks each equation on average."""
    matrix = design.layout.matrix[:, design.layout.private]
    spread = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()) * deviation
    # the mean absolute value of a Gaussian; for sums of Laplace noises nearly so
    return np.asarray(spread * math.sqrt(2 / math.pi))
