"""What people read about a table: published numbers, the promise, the noise, and if totals fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from affinedp.errors import counted, most_words
from affinedp.intervals import whole_ends
from affinedp.show.page import (
    FOLDED_OUTPUTS,
    LevelRow,
    OutputRow,
    PublishedNumbers,
    Report,
    printable,
    printed,
    shortened,
)
from affinedp.show.plot import OURS, Panel, apart, short_names
from affinedp.show.report import SHOWN_GIVEN, headline, paragraph, size
from affinedp.show.report import report as mechanism_report
from affinedp.tables.noise import WHOLE, DesignedNoise, level_summary
from affinedp.tables.publish import Published
from affinedp.tables.refusals import has_no_label, label_words, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ends = Mapping[Any, tuple[Any, Any]]

NOT_KNOWN = "not known: noise is as large as the total"
GRAND_TOTAL = "grand total"  # a row without any label
SHOWN_BARS = 40
BARS = 5.2  # inches; alone, as wide as a phone
LONGEST_NAME = 26
# Bars so many times as long as the median have a chart of their own, where intervals are usually
# narrower than this share of the longest.
LARGE = 3.0
HIDDEN = 0.05
ROUNDED = "Numbers are shown rounded: their sums may differ in the last digit."
# Totals so many times as noisy as cells: one weight for every level is suggested.
NOISY_TOTALS = 2.0


def whole_frames(lower: Any, upper: Any, known: bool) -> tuple[Any, Any]:
    """Return the ends of intervals as whole numbers; what is known exactly stays as it is.

    Where the true numbers are not ``known`` to be whole, ends are rounded outwards.
    """
    import pandas

    low, high = lower.to_numpy(dtype=float), upper.to_numpy(dtype=float)
    first, last = whole_ends(low, high) if known else (np.floor(low), np.ceil(high))
    same = low == high
    found = []
    for ends, given in ((np.where(same, low, first), lower), (np.where(same, high, last), upper)):
        frame = pandas.DataFrame(ends, index=given.index, columns=given.columns)
        whole = (ends == np.rint(ends)).all(axis=0) & (np.abs(ends) < 2.0**62).all(axis=0)
        names = [name for name, one in zip(frame, whole.tolist()) if one]
        found.append(frame.astype(dict.fromkeys(names, np.int64)))
    return found[0], found[1]


def published_numbers(
    table: Any, ends: Ends, level: float, most: int, unlabelled: str = "", note: str = ""
) -> PublishedNumbers:
    """Return a published table as texts, numbers with their intervals.

    A row without any label is called ``unlabelled``.
    """
    shown = table.iloc[:most]
    headings, columns, labels = [], [], []
    if list(table.index) != list(range(len(table))):
        headings.append(" / ".join(str(one) for one in table.index.names if one is not None))
        columns.append([_label(one) for one in shown.index])
        labels.append(True)
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
    words = [column for column, label in zip(columns, labels) if label]
    for row in range(len(shown) if words else 0):
        if not any(column[row] for column in words):
            words[0][row] = unlabelled
    # labels first; all in their order
    order = sorted(range(len(columns)), key=lambda place: not labels[place])
    return PublishedNumbers(
        f"Published numbers, with {level * 100:g} % intervals for the true ones",
        tuple(printable(headings[place]) for place in order),
        sum(labels),
        tuple(tuple(printable(columns[place][row]) for place in order)
              for row in range(len(shown))),
        len(table) - len(shown),
        printable(note),
    )  # fmt: skip


def with_interval(value: float, low: float, high: float, digits: int) -> str:
    """Return a number and its interval as a text; ends are rounded outwards."""
    if math.isnan(value):
        return NOT_KNOWN
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
    return "" if has_no_label(value) else label_words(value)


def draw_bars(
    table: Any, ends: Ends, level: float, units: Sequence[Sequence[Any]]
) -> tuple[Figure, ...]:
    """Return published numbers as bars with intervals, one figure for the columns of each unit."""
    count = sum(map(len, units))
    rows = min(len(table), max(1, SHOWN_BARS // max(count, 1)))
    shown = [list(names)[:SHOWN_BARS] for names in units]
    drawn, all_ = rows * sum(map(len, shown)), len(table) * count
    some = f"\n(the first {drawn} of {all_:,} numbers)" if all_ > drawn else ""
    title = f"Published, with {level * 100:g} % intervals{some}"
    panels = []
    for names in shown:
        bars = _bars(table.iloc[:rows], ends, names)
        large = _large(bars)
        for own in (~large, large):
            some_bars = [bar for bar, kept in zip(bars, own.tolist()) if kept]
            draw = partial(_draw_panel, some_bars, ", ".join(map(str, names)), title)
            panels += [Panel(BARS, 1.1 + 0.36 * len(some_bars), draw)] if some_bars else []
    return apart(panels)


Bar = tuple[str, float, float, float]


def _bars(table: Any, ends: Ends, shown: Sequence[Any]) -> list[Bar]:
    """The columns of one unit: names, numbers and the ends of their intervals."""
    words = row_labels(table, ends)
    return [
        (words[row] if len(shown) == 1 or words[row] == name else f"{words[row]}: {name}",
         table[name].iloc[row],
         *(end.iloc[row] for end in ends[name]))
        for row in range(len(words)) for name in shown
    ]  # fmt: skip


def _large(bars: Sequence[Bar]) -> NDArray[np.bool_]:
    """Which bars stand apart, as totals do: on their axis nobody would see the other intervals."""
    sizes = np.abs([value for _, value, _, _ in bars])
    widths = np.array([high - low for _, _, low, high in bars])
    hidden = np.median(widths) < HIDDEN * sizes.max()
    return np.asarray(hidden & (sizes > LARGE * np.median(sizes)))


def _draw_panel(bars: Sequence[Bar], unit: str, title: str, axes: Axes) -> None:
    names, values, low, high = zip(*bars)
    height, middle = np.arange(len(names)), np.asarray(values, dtype=float)
    # what was rounded may lie beside the interval, which is around the number before
    reach = [np.maximum(middle - np.asarray(low), 0), np.maximum(np.asarray(high) - middle, 0)]
    axes.barh(height, middle, color=OURS, alpha=0.55)
    axes.errorbar(middle, height, xerr=reach, fmt="none", ecolor="black", capsize=2.5, lw=1)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(height, short_names(names, LONGEST_NAME), parse_math=False)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.locator_params(axis="x", nbins=3)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    (unit,) = short_names([unit], LONGEST_NAME)
    axes.set_xlabel(unit, loc="right", parse_math=False)  # to the left there is room
    axes.figure.suptitle(title, fontsize=10)  # over the names, too: axes are narrower than it
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def units_of(design: DesignedNoise) -> list[list[str]]:
    """Return the private columns in groups of one unit: one μ, or tied by an equation."""
    layout = design.layout
    private = list(layout.roles.private)
    each = layout.units(design.description.mu)
    if each is None:
        return [private]
    own = {layout.columns[entry % len(layout.columns)]: mu
           for entry, mu in zip(layout.private.tolist(), each.tolist())}  # fmt: skip
    tied = [
        {layout.columns[entry] for entry in relation.coefficients} for relation in layout.in_row
    ]
    tied += [{name for name in private if own[name] == mu} for mu in own.values()]
    groups: list[set[str]] = []
    for some in tied:
        apart = [group for group in groups if not group & some]
        groups = [*apart, some.union(*(group for group in groups if group & some))]
    found = [[name for name in private if name in group] for group in groups]
    return sorted(filter(None, found), key=lambda names: private.index(names[0]))


def row_labels(table: Any, ends: Ends) -> list[str]:
    """Return rows in words: their label columns, or the index where there are none."""
    columns = [name for name in table if name not in ends]
    if not columns or list(table.index) != list(range(len(table))):
        return [_label(label) for label in table.index]
    paths = zip(*(table[name].tolist() for name in columns))
    return [" / ".join(filter(None, map(_label, path))) or GRAND_TOTAL for path in paths]


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
        outputs = [OutputRow(f"{row.name} ({row.numbers:,})", row.deviation) for row in levels]
        levels = ()
    else:
        outputs = [
            OutputRow(printable(name), own, alone)
            for name, own in zip(layout.names, design.deviations.tolist())
        ]
    words = dict.fromkeys(relation.words for relation in layout.relations)
    left = ("equations",) if alone is not None else ("equations", "against i.i.d.")
    totals = [(label, text) for label, text in plain.totals if label not in left]
    return replace(
        plain,
        title=printable(table_title(design, published)),
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
    units = ", ".join(_by_unit(design))
    told = {"How far off numbers are": f"typically {units} (root mean square)"} if units else {}
    for lead, text in paragraph(design.guarantee, design.deviations.tolist(), [bare]):
        plain = text.replace("they are in the data", "they are in the table")
        yield lead, told.get(lead, plain.removesuffix(WHOLE))


def _by_unit(design: DesignedNoise) -> Iterator[str]:
    """How far off the numbers of every unit are; nothing where all have the same."""
    layout, units = design.layout, units_of(design)
    column = layout.private % len(layout.columns)
    for names in units if len(units) > 1 else ():
        own = np.isin(column, [layout.columns.index(name) for name in names])
        yield f"by {size(math.sqrt(np.mean(design.deviations[own] ** 2)))} in {listed(names)}"


def table_title(design: DesignedNoise, published: Published | None = None) -> str:
    """Return what a report is about, in one line."""
    layout = design.layout
    count = len(published.table) if published is not None else len(layout.row_names or ())
    rows = f" in {counted(count, 'row')}" if count else " in every row"
    what = "Published table" if published is not None else "Noise for a table"
    names = ", ".join(layout.roles.private[:6])
    more = ", …" if len(layout.roles.private) > 6 else ""
    return f"{what}: {names}{more}{rows}"


def _unprotected(design: DesignedNoise) -> str:
    names = [*design.layout.roles.known, *design.layout.roles.labels]
    columns = f"the column{'s' * (len(names) > 1)} {listed(names)}, " if names else ""
    return f"{columns}the labels, order and number of rows: published as they are"


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
    more = f"; and {len(equations) - SHOWN_GIVEN:,} more" if len(equations) > SHOWN_GIVEN else ""
    shown = "; ".join(map(shortened, equations[:SHOWN_GIVEN])) + more
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
            f"the public bound makes the noise {_larger(design.enlargement)} larger than the "
            "squared error says: the noise of each output above has it, the squared error has not",
        )
    is_total = np.isin(layout.private, list(layout.totals))
    if design.description.weights is None and is_total.any() and not is_total.all():
        noise = [math.sqrt(np.mean(design.deviations[own] ** 2)) for own in (is_total, ~is_total)]
        if noise[0] > NOISY_TOTALS * noise[1]:
            yield (
                "hint",
                f"totals have {noise[0] / noise[1]:.2g} times the noise of cells: "
                "weights='levels' makes the noise of totals smaller, and that of cells larger",
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
            f"independent noise with the same promise would break "
            f"{shortened(layout.relations[worst].words)} by {spread[worst] * independent:.4g} on "
            "average",
        )


def _larger(factor: float) -> str:
    """By how much, never too little: a share, or a factor where it is large."""
    return (
        f"{most_words(100 * (factor - 1), 3)} %" if factor < 2 else f"{most_words(factor, 3)} times"
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
