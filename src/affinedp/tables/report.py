"""What people read about a table: published numbers, the promise, the noise, and if totals fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.intervals import whole_ends
from affinedp.show.page import (
    FOLDED_OUTPUTS,
    LevelRow,
    OutputRow,
    PublishedNumbers,
    Report,
    printable,
    printed,
)
from affinedp.show.plot import OURS, unregistered
from affinedp.show.report import headline, paragraph
from affinedp.show.report import report as mechanism_report
from affinedp.tables.noise import WHOLE, DesignedNoise, level_summary
from affinedp.tables.publish import Published
from affinedp.tables.refusals import listed
from affinedp.tables.relations import has_no_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Ends = Mapping[Any, tuple[Any, Any]]

SHOWN_BARS = 40
LONGEST_NAME = 40
# Totals so many times as noisy as cells: one weight for every level is suggested.
NOISY_TOTALS = 2.0


def whole_frames(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Return the ends of intervals as whole numbers; what is known exactly stays as it is."""
    import pandas

    low, high = lower.to_numpy(dtype=float), upper.to_numpy(dtype=float)
    first, last = whole_ends(low, high)
    same = low == high
    found = []
    for ends, given in ((np.where(same, low, first), lower), (np.where(same, high, last), upper)):
        frame = pandas.DataFrame(ends, index=given.index, columns=given.columns)
        whole = (ends == np.rint(ends)).all(axis=0) & (np.abs(ends) < 2.0**62).all(axis=0)
        names = [name for name, one in zip(frame, whole.tolist()) if one]
        found.append(frame.astype(dict.fromkeys(names, np.int64)))
    return found[0], found[1]


def published_numbers(
    table: Any, ends: Ends, level: float, most: int, first: Sequence[Any] = (), unlabelled: str = ""
) -> PublishedNumbers:
    """Return a published table as texts, numbers with their intervals.

    The columns ``first`` follow the labels; a row without any label is called ``unlabelled``.
    """
    shown = table.iloc[:most]
    headings, columns, labels, ranks = [], [], [], []
    if list(table.index) != list(range(len(table))):
        headings.append(" / ".join(str(one) for one in table.index.names if one is not None))
        columns.append([_label(one) for one in shown.index])
        labels.append(True)
        ranks.append(-1)
    for name in table:
        values = shown[name].tolist()
        if name in ends:
            low, high = (one.iloc[:most].tolist() for one in ends[name])
            digits = _digits(low, high)
            texts = [with_interval(x, a, b, digits) for x, a, b in zip(values, low, high)]
        else:
            texts = [_label(value) for value in values]
        headings.append(str(name))
        columns.append(texts)
        labels.append(name not in ends)
        after = first.index(name) if name in first else len(first)
        ranks.append(-1 if name not in ends else after)
    words = [column for column, label in zip(columns, labels) if label]
    for row in range(len(shown) if words else 0):
        if not any(column[row] for column in words):
            words[0][row] = unlabelled
    # labels first, in their order
    order = sorted(range(len(columns)), key=ranks.__getitem__)
    return PublishedNumbers(
        f"Published numbers, with {level * 100:g} % intervals for the true ones",
        tuple(printable(headings[place]) for place in order),
        sum(labels),
        tuple(tuple(printable(columns[place][row]) for place in order)
              for row in range(len(shown))),
        len(table) - len(shown),
    )  # fmt: skip


def with_interval(value: float, low: float, high: float, digits: int) -> str:
    """Return a number and its interval as a text; ends are rounded outwards."""
    step = 10.0**-digits
    ends = [low, high]
    if not isinstance(low, int):  # NumPy's, which keep infinite ends
        ends = [float(np.floor(low / step)) * step, float(np.ceil(high / step)) * step]
    first, last = (_number(one, digits) for one in ends)
    return f"{_number(value, 0 if isinstance(low, int) else digits)} ({first} to {last})"


def _number(value: float, digits: int) -> str:
    return f"{value:,d}" if isinstance(value, int) else f"{value:z,.{digits}f}"


def _digits(low: list[float], high: list[float]) -> int:
    """So many that the half width of a usual interval has two digits."""
    widths = sorted(b - a for a, b in zip(low, high) if 0 < b - a < math.inf)
    if not widths:
        return 1
    return min(max(1 - math.floor(math.log10(widths[len(widths) // 2] / 2)), 0), 12)


def _label(value: Any) -> str:
    if isinstance(value, tuple):
        return " / ".join(_label(one) for one in value)
    return "" if has_no_label(value) else str(value)


def draw_bars(table: Any, ends: Ends, level: float) -> Figure:
    """Return published numbers as bars, with the intervals of the true ones."""
    shown = [name for name in table if name in ends]
    rows = max(1, SHOWN_BARS // max(len(shown), 1))
    words = row_labels(table.iloc[:rows], ends)
    bars = [
        (words[row] if len(shown) == 1 or words[row] == name else f"{words[row]}: {name}",
         table[name].iloc[row],
         *(end.iloc[row] for end in ends[name]))
        for row in range(len(words)) for name in shown
    ]  # fmt: skip
    names, values, low, high = zip(*bars[:SHOWN_BARS])
    figure = unregistered(figsize=(9, 1.1 + 0.27 * len(names)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    height, middle = np.arange(len(names)), np.asarray(values, dtype=float)
    # what was rounded may lie beside the interval, which is around the number before
    reach = [np.maximum(middle - np.asarray(low), 0), np.maximum(np.asarray(high) - middle, 0)]
    axes.barh(height, middle, color=OURS, alpha=0.55)
    axes.errorbar(middle, height, xerr=reach, fmt="none", ecolor="black", capsize=2.5, lw=1)
    axes.axvline(0, color="black", lw=0.6)
    cut = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in names]
    axes.set_yticks(height, [printable(name).replace("$", r"\$") for name in cut])
    axes.invert_yaxis()
    count = len(table) * len(shown)
    some = f"the first {len(names)} of {count:,} numbers, " if count > len(names) else ""
    axes.set_title(f"Published, {some}with {level * 100:g} % intervals", loc="left", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def row_labels(table: Any, ends: Ends) -> list[str]:
    """Return rows in words: their label columns, or the index where there are none."""
    columns = [name for name in table if name not in ends]
    if not columns or list(table.index) != list(range(len(table))):
        return [_label(label) for label in table.index]
    paths = zip(*(table[name].tolist() for name in columns))
    return [" / ".join(filter(None, map(_label, path))) or "grand total" for path in paths]


def table_report(design: DesignedNoise, published: Published | None = None) -> Report:
    """Return a report about a design, and about a table that was published with it."""
    plain = mechanism_report(design.mechanism)
    layout, bare = design.layout, _unprotected(design)
    # one deviation for all numbers says nothing where they have units of their own
    alone = plain.baseline.deviation if layout.units(design.description.mu) is None else None
    numbers = None if published is None else published.unrounded
    levels = tuple(
        LevelRow(
            printable(str(name)),
            int(row["numbers"]),
            float(row["noise"]),
            None if numbers is None else float(row["relative_half_width"]),
        )
        for name, row in level_summary(design, 0.95, numbers).iterrows()
    )
    if design.tree and len(layout.private) > FOLDED_OUTPUTS:
        outputs = [
            OutputRow(f"{row.name} ({row.numbers:,})", row.deviation, None, None) for row in levels
        ]
        levels = ()
    else:
        outputs = [
            OutputRow(printable(name), own, alone, alone and (own / alone) ** 2)
            for name, own in zip(layout.names, design.deviations.tolist())
        ]
    words = dict.fromkeys(relation.words for relation in layout.relations)
    left = ("equations",) if alone is not None else ("equations", "against i.i.d.")
    totals = [(label, text) for label, text in plain.totals if label not in left]
    return replace(
        plain,
        title=printable(_title(design, published)),
        promise=printed((*design.guarantee.summary(), *_scope(design, list(words), bare))),
        outputs=tuple(outputs),
        baseline=replace(plain.baseline, deviation=alone),
        totals=printed((*totals, *_totals(design, published, alone))),
        equations=tuple(map(printable, words)),
        levels=levels,
        headline=headline(design.guarantee),
        opening=printed(_opening(design, bare)),
    )


def _opening(design: DesignedNoise, bare: str) -> Iterator[tuple[str, str]]:
    """The six plain lines, about a table."""
    for lead, text in paragraph(design.guarantee, design.deviations.tolist(), [bare]):
        plain = text.replace("they are in the data", "they are in the table")
        yield lead, plain.removesuffix(WHOLE)


def _title(design: DesignedNoise, published: Published | None) -> str:
    layout = design.layout
    count = len(published.table) if published is not None else len(layout.row_names or ())
    rows = f" in {count:,} row{'s' if count > 1 else ''}" if count else " in every row"
    what = "Published table" if published is not None else "Noise for a table"
    names = ", ".join(layout.roles.private[:6])
    more = ", …" if len(layout.roles.private) > 6 else ""
    return f"{what}: {names}{more}{rows}"


def _unprotected(design: DesignedNoise) -> str:
    names = [*design.layout.roles.known, *design.layout.roles.labels]
    columns = f"the columns {listed(names)}, " if names else ""
    return f"{columns}the labels and the number of rows: published as they are"


def _scope(design: DesignedNoise, equations: list[str], bare: str) -> Iterator[tuple[str, str]]:
    """What the promise is about, and what it is not about."""
    if design.layout.row_names is None:
        yield (
            "rows",
            f"the promise is for all {design.releases:,} rows together"
            if design.releases > 1
            else "the promise is for each row by itself. Rows about the same people add up: "
            "rows='composed' makes one promise for all of them",
        )
    more = f"; and {len(equations) - 4:,} more" if len(equations) > 4 else ""
    shown = "; ".join(equations[:4]) + more
    yield (
        "covers",
        f"the equations that were given ({shown or 'none'}), with what is public in them; an "
        "equation that the public knows and that was left out is not covered",
    )
    yield "not protected", bare


def _totals(
    design: DesignedNoise, published: Published | None, independent: float | None
) -> Iterator[tuple[str, str]]:
    """What is said about the table as a whole, beyond what is said about its noise."""
    layout = design.layout
    if design.enlargement > 1 + 1e-6:
        yield (
            "bound",
            f"the public bound makes the noise {design.enlargement:.4g} times larger than the "
            "squared error says: the noise of each output above has it, the squared error has not",
        )
    is_total = np.isin(layout.private, list(layout.totals))
    if design.description.weights is None and is_total.any() and not is_total.all():
        noise = [math.sqrt(np.mean(design.deviations[own] ** 2)) for own in (is_total, ~is_total)]
        if noise[0] > NOISY_TOTALS * noise[1]:
            yield (
                "hint",
                f"totals have {noise[0] / noise[1]:.2g} times the noise of cells: "
                "weights='levels' counts every level as much as the others, and moves noise from "
                "totals to cells",
            )
    if not layout.relations:
        yield "totals", "no equations were given"
        return
    if published is None:
        yield "totals", "every release obeys the equations"
    else:
        yield "totals", _published_words(design, published)
    if independent is not None:
        matrix = layout.matrix[:, layout.private]
        # the mean absolute value of a Gaussian; for sums of Laplace noises nearly so
        spread = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel() * 2 / math.pi)
        worst = int(np.argmax(spread))
        yield (
            "instead",
            f"independent noise with the same promise would break {layout.relations[worst].words} "
            f"by {spread[worst] * independent:.4g} on average",
        )


def _published_words(design: DesignedNoise, published: Published) -> str:
    """Whether the published totals add up: a fact about what everyone sees."""
    layout, public = design.layout, published.public
    points = np.empty((len(public), len(layout.is_private)))
    numbers = published.table[list(layout.columns)].to_numpy(float)
    points[:, : layout.cells] = layout.cell_points(numbers)
    points[:, ~layout.is_private] = public
    off = np.abs(points @ layout.matrix.T + layout.offsets)
    size = np.abs(points) @ abs(layout.matrix).T + np.abs(layout.offsets)
    largest = float(off.max())
    if largest == 0.0:
        return f"all {off.size:,} equations hold exactly in the published table"
    if bool((off <= 1e-9 * np.maximum(size, float(design.deviations.max()))).all()):
        return (
            f"all {off.size:,} equations hold in the published table up to the rounding of double "
            f"precision (at most {largest:.1g})"
        )
    broken = int((off > 1e-9 * size).sum())
    return f"{broken:,} of {off.size:,} equations do not hold, by at most {largest:.4g}"
